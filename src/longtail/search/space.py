"""`Space`: the settings of a study that are searched, and what is tried for each.

The values are declared where the settings are: fields of models and of `Training`, rows of LOSSES.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from longtail.classifier import LongTailClassifier
from longtail.classifier.plan import Plan, to_plain
from longtail.errors import InputError, UnknownNameError, known_name
from longtail.losses.presets import LOSSES
from longtail.models import DEFAULT_MODEL, KIND, MODELS
from longtail.settings import Grid, Range, Searched

if TYPE_CHECKING:
    from optuna.trial import Trial

LOSS, CONSTANTS = "loss", "loss_settings"
MANY = 1_000_000
Settings = dict[str, Any]
"""Flat settings, as in a recipe."""


@dataclass(frozen=True)
class Space:
    """What is searched; everything else is as in `base`."""

    base: Settings
    settings: Mapping[str, Searched]
    """Settings of the model and of its training."""
    references: Mapping[str, Any]
    """The defaults that factors multiply."""
    losses: tuple[str, ...]
    """Empty: the model takes none."""
    constants: Mapping[str, Mapping[str, Searched]]
    """Loss -> its constants."""
    first: Mapping[str, Any]
    """The parameters of the first trial, which has the settings of `base` as far as it has any."""

    def suggest(self, trial: Trial) -> Settings:
        """The flat settings of a trial."""
        settings, references = dict(self.base), dict(self.references)
        for name, values in self.settings.items():
            value = _suggest(trial, name, values)
            if isinstance(values, Grid) and values.times is not None:
                value = _product(value, references[values.times], references[name])
            settings[name] = references[name] = value
        if self.losses:
            loss = self.losses[0]
            if len(self.losses) > 1:
                loss = trial.suggest_categorical(LOSS, self.losses)
            settings |= self.with_loss(loss)
            for constant, values in self.constants[loss].items():
                value = _suggest(trial, self.key(loss, constant), values)
                settings[CONSTANTS] = {**settings[CONSTANTS], constant: value}
        return settings

    def searched_of(self, settings: Settings) -> Settings:
        """Those settings of a trial that may differ from the others'."""
        names = [*self.settings, *((LOSS, CONSTANTS) if self.losses else ())]
        return {name: settings[name] for name in names}

    @property
    def start(self) -> Settings:
        """The settings of `base`, with a loss that has the constants there."""
        return self.base | (self.with_loss(self.losses[0]) if self.losses else {})

    def with_loss(self, loss: str) -> Settings:
        """The loss and the constants that are given."""
        return {LOSS: loss, CONSTANTS: self.base.get(CONSTANTS) or {}}

    def key(self, loss: str, constant: str) -> str:
        """The name of a constant in the study: losses with the same values for it share it."""
        values = self.constants[loss][constant]
        first = next(row[constant] for row in self.constants.values() if constant in row)
        return constant if values == first else f"{constant} of {loss}"

    def to_dict(self) -> dict[str, str]:
        """What is searched, as text, by name."""
        described = {name: describe(values) for name, values in self.settings.items()}
        if len(self.losses) > 1:
            described[LOSS] = ", ".join(self.losses)
        for loss, row in self.constants.items():
            described |= {self.key(loss, name): describe(values) for name, values in row.items()}
        return described


def make_space(
    settings: Mapping[str, Any],
    fixed: Collection[str],
    losses: Sequence[str] | None,
    n_documents: int,
) -> Space:
    """Determine what is searched.

    Args:
        settings: flat settings, as in a recipe, with which the first trial starts.
        fixed: names of settings and of constants of the loss that keep their values.
        losses: the losses to compare; default: those of the paper except ablations, and those that
            the model adds.
        n_documents: of the training part, which determines the epochs of an encoder.
    """
    base = _flat(settings)
    # Constants are checked with the losses that they are meant for.
    plan = plan_of({k: v for k, v in base.items() if k != CONSTANTS}, n_documents)
    searched = {k: values for k, values in plan.model.searched().items() if k not in fixed}
    references = plan.resolved().training.to_dict() | plan.model.to_dict()
    names = _losses(base, plan, fixed, losses)
    constants = {
        name: {k: values for k, values in LOSSES[name].searched.items() if k not in fixed}
        for name in names
    }
    if not searched and len(names) < 2 and not any(constants.values()):
        raise InputError(
            "there is nothing to search: every setting is fixed. Leave some flags out, or train "
            "with these settings: longtail train."
        )
    first: dict[str, Any] = {}
    for key, values in searched.items():
        start = references[key]
        if isinstance(values, Grid) and values.times is not None:
            start = _significant(start / references[values.times], 6)
        searched[key] = _including(values, start, first, key)
    space = Space(base, searched, references, names, constants, first)
    if names:
        space = _with_first_loss(space, plan)
        _check_losses(space, n_documents)
    return space


def check_settings(
    settings: Mapping[str, Any], fixed: Collection[str], losses: Sequence[str] | None
) -> Plan:
    """Raise now for what would fail once the data is read; return the plan to start from."""
    # The number of documents matters to folds and epochs only.
    return plan_of(make_space(settings, fixed, losses, MANY).start, MANY)


def plan_of(settings: Mapping[str, Any], n_documents: int) -> Plan:
    """The plan of flat settings; raises for a blend, or a setting that no model has."""
    plans = LongTailClassifier.from_settings(settings).plans(n_documents)
    if len(plans) > 1:
        raise InputError(
            f"the settings blend {len(plans)} models, and a search tries settings of one. Search "
            "each of them by itself (--model), then write a recipe of both."
        )
    return plans[0]


def _flat(settings: Mapping[str, Any]) -> Settings:
    """The settings with those of the model beside them, and a kind that has something to search."""
    model = settings.get("model", DEFAULT_MODEL)
    if isinstance(model, list) and len(model) == 1:
        model = model[0]
    flat: Settings = {"model": model}
    flat |= {**settings, "model": model}
    if isinstance(model, Mapping):
        own = {k: value for k, value in model.items() if k not in (KIND, "training")}
        flat |= {**(model.get("training") or {}), **own, "model": model.get(KIND, DEFAULT_MODEL)}
    if isinstance(flat["model"], str):
        kind = known_name("model", flat["model"], MODELS)
        flat["model"] = MODELS[kind].settings.searched_as or kind
    plain: Settings = to_plain(flat)
    return plain


def _losses(
    base: Settings, plan: Plan, fixed: Collection[str], losses: Sequence[str] | None
) -> tuple[str, ...]:
    """The losses to compare; one that is given with constants of its own is kept."""
    if not MODELS[plan.kind].takes_loss:
        if losses:
            raise InputError(f"--losses has no effect on the model {plan.kind}. Leave it out.")
        return ()
    own = set(base.get(CONSTANTS) or {}) - set(fixed)
    is_kept = LOSS in fixed or bool(own)
    if losses is None:
        paper = [k for k, row in LOSSES.items() if row.published and not row.is_ablation]
        return (str(plan.loss),) if is_kept else (*paper, *plan.model.further_losses)
    names = tuple(dict.fromkeys(known_name("loss", name, LOSSES) for name in losses))
    if is_kept and names != (plan.loss,):
        why = "--loss" if LOSS in fixed else f"its constants ({', '.join(sorted(own))})"
        raise InputError(
            f"the loss is {plan.loss!r} by {why}, so --losses {','.join(names)} cannot be tried. "
            "Leave one of them out."
        )
    return names


def _with_first_loss(space: Space, plan: Plan) -> Space:
    """Let the first trial have the loss of the settings, with its constants."""
    loss = plan.loss if plan.loss in space.losses else space.losses[0]
    first: dict[str, Any] = {**space.first}
    if len(space.losses) > 1:
        first[LOSS] = loss
    starts = {**LOSSES[loss].constants, **(space.base.get(CONSTANTS) or {})}
    # A value beyond the bounds widens them for all losses that share them.
    keys = {name: space.key(loss, name) for name in space.constants[loss]}
    wider = {
        key: _including(space.constants[loss][name], starts.get(name), first, key)
        for name, key in keys.items()
    }
    constants = {
        other: {name: wider.get(space.key(other, name), values) for name, values in row.items()}
        for other, row in space.constants.items()
    }
    return dataclasses.replace(space, constants=constants, first=first)


def _check_losses(space: Space, n_documents: int) -> None:
    """Raise now for a constant that a loss does not have, rather than in its first trial."""
    for loss in space.losses:
        try:
            plan_of({**space.base, **space.with_loss(loss)}, n_documents)
        except UnknownNameError as error:
            raise InputError(
                f"{error} Name the losses that have it, as in --losses fl,db."
            ) from error


def _including(values: Searched, start: Any, first: dict[str, Any], key: str) -> Searched:
    """The values, with one to start from, which becomes that of the first trial."""
    if start is None and not (isinstance(values, Grid) and None in values.values):
        return values
    if isinstance(values, Grid):
        first[key] = start
        is_known = start in values.values
        return values if is_known else Grid((*values.values, start), values.times)
    if isinstance(start, str) or (values.log and start <= 0):
        return values
    first[key] = float(start)
    return Range(min(values.low, start), max(values.high, start), values.log)


def _suggest(trial: Trial, name: str, values: Searched) -> Any:
    if isinstance(values, Grid):
        return trial.suggest_categorical(name, values.values)
    return _significant(trial.suggest_float(name, values.low, values.high, log=values.log))


def _significant(value: float, digits: int = 3) -> float:
    """Round, so that a trial is trained with exactly what tables and recipes say."""
    return float(f"{value:.{digits}g}")


def _product(factor: float, reference: float, default: Any) -> int | float:
    """A factor times a setting; a whole number if the default is one."""
    if isinstance(default, int):
        return max(1, round(factor * reference))
    return _significant(factor * reference)


def describe(values: Searched) -> str:
    """The values on one line."""
    if isinstance(values, Range):
        return f"{values.low:g} to {values.high:g}{' (log)' if values.log else ''}"
    shown = ", ".join("none" if value is None else f"{value}" for value in values.values)
    return shown if values.times is None else f"{shown} times {values.times}"
