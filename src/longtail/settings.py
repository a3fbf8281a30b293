"""Settings as documented dataclasses, with scikit-learn's `get_params` and `set_params`.

One declaration makes an argument of the estimator, a key of a recipe, a flag of the command, and
the values that `longtail search` tries.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Self

from longtail.errors import InputError, UnknownNameError


@dataclass(frozen=True)
class Grid:
    """Values of a setting to search."""

    values: tuple[Any, ...]
    times: str | None = None
    """The values are factors of this setting, which may be the default of the same one."""


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high` to search, evenly or, with `log`, by orders of magnitude."""

    low: float
    high: float
    log: bool = False


Searched = Grid | Range


def setting(
    default: Any, text: str, *, common: bool = False, searched: Searched | None = None
) -> Any:
    """A dataclass field with its help text; only `--help-all` lists it unless `common`."""
    metadata = {"help": text, "common": common, "searched": searched}
    return field(default=default, metadata=metadata)


@dataclass(repr=False)
class Settings:
    """Base of all settings; `__post_init__` checks the fields, also after `set_params`."""

    def __repr__(self) -> str:
        changed = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.changed())
        return f"{type(self).__name__}({changed})"

    def changed(self) -> list[str]:
        """Return the names of the fields that differ from their defaults."""
        fields = dataclasses.fields(self)
        return [item.name for item in fields if getattr(self, item.name) != item.default]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name; if `deep`, also nested settings as `name__field`."""
        params = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        if deep:
            for name, value in list(params.items()):
                if isinstance(value, Settings):
                    nested = value.get_params().items()
                    params |= {f"{name}__{key}": inner for key, inner in nested}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set fields by name, nested settings as `name__field`."""
        changed: dict[str, Any] = {}
        known = self.get_params(deep=False)
        for key, value in params.items():
            name, nested, rest = key.partition("__")
            if name not in known:
                raise UnknownNameError(f"setting of {type(self).__name__}", name, known)
            if nested:
                inner = changed.get(name, known[name])
                if not isinstance(inner, Settings):
                    raise InputError(f"{key}: {name} is {inner!r}, which has no settings.")
                changed[name] = dataclasses.replace(inner).set_params(**{rest: value})
            else:
                changed[name] = value
        vars(self).update(vars(dataclasses.replace(self, **changed)))
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, for JSON."""
        return dataclasses.asdict(self)


def searched_fields(kind: type[Settings]) -> dict[str, Searched]:
    """Return what a search tries for the fields of a settings class that have it."""
    values = {item.name: item.metadata.get("searched") for item in dataclasses.fields(kind)}
    return {name: searched for name, searched in values.items() if searched is not None}


def field_names(kind: type[Settings]) -> set[str]:
    """Return the field names of a settings class."""
    return {item.name for item in dataclasses.fields(kind)}
