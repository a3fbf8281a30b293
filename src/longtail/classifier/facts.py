"""What fitting found out, kept beside the model for its card: figures, and where they come from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data import TextData
from longtail.evaluation import Scores
from longtail.fitting import Fitted, Plan
from longtail.labels import label_groups
from longtail.metrics import Counts, count
from longtail.thresholds import Earned, Thresholds, cross_validated_score

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
"""A name on the Hugging Face hub: owner/name."""


@dataclass(frozen=True)
class Facts:
    """Of the training documents, and of those that were held out to choose the thresholds."""

    without_labels: int
    """Training documents without any label."""
    most_labels: int
    """The largest number of labels of a training document."""
    n_validation: int
    """Documents of the validation part that cross-fitting trained on as well."""
    cross_fitted: bool
    """Whether the held-out documents are the training documents, each scored by a model that had
    not seen it; otherwise they are a validation part."""
    held_out: Mapping[str, Scores]
    """`all`, `head`, `medium` and `tail`, at the thresholds that these documents chose."""
    earned: Earned | None
    """What thresholds earn on held-out documents that had no part in choosing them, by the method
    that was chosen with all of them; None where there are too few to divide."""
    base_model: str | None = None
    """The encoder's name on the Hugging Face hub; None for one from a folder."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain["held_out"] = {name: asdict(scores) for name, scores in self.held_out.items()}
        plain["earned"] = None if self.earned is None else self.earned._asdict()
        return plain

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Facts:
        """What `to_dict` gave."""
        earned = saved["earned"]
        return cls(
            int(saved["without_labels"]),
            int(saved["most_labels"]),
            int(saved["n_validation"]),
            bool(saved["cross_fitted"]),
            {str(name): Scores(**scores) for name, scores in saved["held_out"].items()},
            None
            if earned is None
            else Earned(float(earned["micro_f1"]), float(earned["macro_f1"])),
            saved["base_model"],
        )


def facts_of(
    plans: Sequence[Plan], data: TextData, fitted: Fitted, thresholds: Thresholds, **rule: Any
) -> Facts:
    """The facts of a fit; `rule`: what `fit_thresholds` was asked for."""
    each = np.diff(data.Y.indptr)
    return Facts(
        int((each == 0).sum()),
        int(each.max(initial=0)),
        0 if fitted.fold_of is None else len(fitted.tuning) - len(data),
        fitted.fold_of is not None,
        _by_group(fitted, thresholds, data),
        _earned(fitted, thresholds, **rule),
        next(filter(None, map(_base_model, plans)), None),
    )


def _by_group(fitted: Fitted, thresholds: Thresholds, data: TextData) -> dict[str, Scores]:
    counts = count(fitted.tuning.Y, thresholds.apply(fitted.scores))
    n_documents = len(fitted.tuning)
    masks = label_groups(data.stats().label_counts)
    return {"all": Scores.of(counts, n_documents)} | {
        name: Scores.of(Counts(*(part[mask] for part in counts)), n_documents)
        for name, mask in masks.items()
    }


def _earned(
    fitted: Fitted, thresholds: Thresholds, label_counts: Any, method: str, **rule: Any
) -> Earned | None:
    """By the method that was chosen; `auto` has found that out already, in order to choose."""
    if method == "auto":
        found = thresholds.details["earned"].get(thresholds.method)
        return None if found is None else Earned(*found)
    if len(fitted.tuning) < 2:
        return None
    return cross_validated_score(fitted.scores, fitted.tuning.Y, label_counts, method, **rule)


def _base_model(plan: Plan) -> str | None:
    name = plan.model_settings.get("encoder")
    is_name = isinstance(name, str) and REPOSITORY.fullmatch(name) and not Path(name).exists()
    return name if is_name else None
