"""Settings as documented dataclasses: arguments of the estimator, keys of a recipe and flags of
the command at once, with scikit-learn's `get_params` and `set_params`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Self

from longtail.errors import InputError, UnknownNameError


def setting(default: Any, text: str, *, common: bool = False) -> Any:
    """A field with the sentence that documents it everywhere.

    `common`: `--help` shows its flag, and not only `--help-all`.
    """
    return field(default=default, metadata={"help": text, "common": common})


@dataclass(repr=False)
class Settings:
    """Base of all settings; fields are checked when the object is made and by `set_params`."""

    def __repr__(self) -> str:
        """The class with the fields that differ from their defaults."""
        changed = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.changed())
        return f"{type(self).__name__}({changed})"

    def changed(self) -> list[str]:
        """The fields that differ from their defaults."""
        fields = dataclasses.fields(self)
        return [item.name for item in fields if getattr(self, item.name) != item.default]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name and, if `deep`, those of nested settings as `name__field`."""
        params = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        if deep:
            for name, value in list(params.items()):
                if isinstance(value, Settings):
                    nested = value.get_params().items()
                    params |= {f"{name}__{key}": inner for key, inner in nested}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set fields by name, and those of nested settings as `name__field`."""
        changed: dict[str, Any] = {}
        for key, value in params.items():
            name, nested, rest = key.partition("__")
            if name not in (known := self.get_params(deep=False)):
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


def field_names(kind: type[Settings]) -> set[str]:
    """The names of the fields of a settings class."""
    return {item.name for item in dataclasses.fields(kind)}
