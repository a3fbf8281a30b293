"""The summary of a trained model in reports: kind, loss, date, and non-default settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.errors import shown
from longtail.models import MODELS, parse_models
from longtail.report.table import NONE
from longtail.runs.model import read_config, whole_folder
from longtail.settings import Settings
from longtail.training.settings import RUNTIME

if TYPE_CHECKING:
    from longtail.classifier.estimator import LongTailClassifier
    from longtail.classifier.plan import Plan

MAX_LENGTH = 60
# Parameters that have their own entries.
ELSEWHERE = ("model", "loss", "loss_settings", "training", "thresholds", "folds")


def describe_model(classifier: LongTailClassifier, folder: Path) -> dict[str, str]:
    """Model, loss, thresholds, date, version and non-default settings, by name.

    `folder`: where the classifier was loaded from. A blend has the values of all members.
    """
    config = read_config(whole_folder(folder)) or {}
    defaults = type(classifier)().get_params(deep=False)
    others = {
        name: _shown(value)
        for name, value in classifier.get_params(deep=False).items()
        if name not in ELSEWHERE and value != defaults[name]
    }
    trainings = [model.training or classifier.training for model in parse_models(classifier.model)]
    of_plans = _joined([_plan(plan) for plan in classifier.plans_])
    return {
        "model": of_plans.pop("model"),
        "loss": of_plans.pop("loss"),
        "thresholds": classifier.thresholds_.method,
        "trained": str(config.get("saved", NONE)),
        "longtail": str(config.get("longtail_version")),
        **of_plans,
        **_joined([_changed(training, RUNTIME) for training in trainings if training]),
        **others,
    }


def _plan(plan: Plan) -> dict[str, str]:
    kind = MODELS[plan.kind]
    return {
        "model": plan.kind,
        "loss": str(plan.loss) if kind.takes_loss else NONE,
        **_changed(plan.model),
        **{name: _shown(value) for name, value in plan.loss_settings.items()},
        **({} if plan.folds == kind.folds else {"folds": str(plan.folds)}),
    }


def _changed(settings: Settings, ignored: tuple[str, ...] = ()) -> dict[str, str]:
    return {
        name: _shown(getattr(settings, name)) for name in settings.changed() if name not in ignored
    }


def _joined(members: list[dict[str, str]]) -> dict[str, str]:
    """Merge the settings of all members; values that differ are listed in order."""
    names = dict.fromkeys(name for settings in members for name in settings)
    values = {name: [settings.get(name, "default") for settings in members] for name in names}
    return {k: v[0] if len(set(v)) == 1 else " + ".join(v) for k, v in values.items()}


def _shown(value: Any) -> str:
    """The value on one line; a local path is reduced to its name."""
    if isinstance(value, str):
        return Path(value).name if Path(value).is_absolute() else value
    return f"{value:g}" if isinstance(value, float) else shown(value, MAX_LENGTH)
