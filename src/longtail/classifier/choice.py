"""Settle what settings leave open, by held-out documents of the first fold.

The objective decides, with thresholds cross-validated on the held-out documents; beside it stands
the mean average precision of the labels, which needs no thresholds. (It alone chose too small a C
on Reuters: the ranking within labels was best at 0.1, F1 at 1.) Of many labels a sample is
compared, as the problems of linear models are independent of each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.classifier.crossfit import Run, Trial, seeded
from longtail.classifier.folds import FoldedData
from longtail.classifier.plan import Plan, to_plain
from longtail.data import TextData
from longtail.metrics import label_average_precision
from longtail.models import ModelSettings, build_model
from longtail.models.base import FitContext, Floats
from longtail.progress import Progress
from longtail.thresholds import Objective, cross_validated_score

# Labels, and training and held-out documents, that alternatives are compared on.
MAX_LABELS, MAX_DOCUMENTS, MAX_HELD_OUT = 300, 50_000, 10_000
METHOD = "per-label"
# Fewer held-out labels say too little: the first settings are taken.
FEWEST_POSITIVES = 30
# What an alternative must gain, of 1.
LEAST_GAIN = 0.001


def settle(
    plan: Plan, folded: FoldedData, objective: Objective, run: Run
) -> tuple[Plan, list[Trial]]:
    """The plan with nothing left open, and what was compared."""
    stages = plan.model.stages(folded.data, plan.loss)
    if not stages:
        return plan.with_model(plan.model), []
    comparison = Comparison(plan, folded, objective, run)
    for stage in stages:
        for model in stage(comparison.best):
            comparison.add(model)
        if comparison.n_positives < FEWEST_POSITIVES:
            break
    settled = plan.with_model(comparison.best)
    folded.keep_encodings([build_model(settled.model)])
    return settled, list(comparison.trials.values())


class Comparison:
    """Scores of models on the same documents and labels."""

    def __init__(self, plan: Plan, folded: FoldedData, objective: Objective, run: Run) -> None:
        self.plan, self.folded, self.objective, self.run = plan, folded, objective, run
        self.trials: dict[str, Trial] = {}
        self.best: Any = None
        self._best_score = -1.0
        part = folded.training_part(0)
        rng = np.random.default_rng(plan.random_state)
        self._kept = _sample(rng, len(part), MAX_DOCUMENTS)
        self._held_out = folded.held_out_rows(0)
        self._held_out = self._held_out[_sample(rng, len(self._held_out), MAX_HELD_OUT)]
        truth = folded.data.select(self._held_out).Y
        labels = _spread(part.select(self._kept), MAX_LABELS)
        self._part = _on_labels(part.select(self._kept), labels)
        weight = plan.loss_settings.get("label_weight")
        if weight is not None:
            chosen = {"label_weight": [weight[k] for k in labels]}
            self.plan = dataclasses.replace(plan, loss_settings={**plan.loss_settings, **chosen})
        self._truth = truth[:, labels]
        self.n_positives = int(self._truth.sum())

    def add(self, model: ModelSettings) -> None:
        """Fit and score a model that was not compared yet."""
        plan, folded, run = self.plan.with_model(model), self.folded, self.run
        name = describe(plan)
        if name in self.trials:
            return
        run.stop.check(run.work.kept)
        run.progress(Progress(f"comparing {name}", len(self.trials) + 1))
        if self.n_positives < FEWEST_POSITIVES:
            self.best = model
            return
        rows = folded.training_rows(0)[self._kept]
        fitted = build_model(plan.model, run.trust_remote_code)
        with seeded(plan, 0):
            fitted.fit(self._part, plan.new_loss, plan.training, self._context(rows))
        scores = fitted.scores([], folded.encode(fitted, self._held_out))
        trial = self._evaluate(name, scores)
        if self.best is None or trial.score > self._best_score + LEAST_GAIN:
            self.best, self._best_score = model, trial.score
        self.trials[name] = trial

    def _evaluate(self, name: str, scores: Floats) -> Trial:
        counts = self._part.stats().label_counts
        f1 = cross_validated_score(
            scores, self._truth, counts, METHOD, objective=self.objective, scale="margin"
        )
        has_any = np.asarray(self._truth.sum(axis=0)).ravel() > 0
        precision = label_average_precision(self._truth, scores)[has_any].mean()
        return Trial(name, *f1, f1.of(self.objective), float(precision))

    def _context(self, rows: NDArray[np.int64]) -> FitContext:
        return FitContext(
            encode=lambda model: self.folded.encode(model, rows),
            validation=lambda model: None,
            seed=self.plan.random_state,
            checkpoints=None,
            progress=lambda progress: None,
            note=self.run.note,
            stop=self.run.stop,
            kept=self.run.work.kept,
            describe=lambda row: str(rows[row]),
        )


def describe(plan: Plan) -> str:
    """The loss, and the settings that differ from their defaults."""
    model = plan.model.to_dict()
    default = type(plan.model)().to_dict()
    changed = {key: value for key, value in model.items() if value != default[key]}
    return ", ".join([str(plan.loss), *(f"{k}={to_plain(v)}" for k, v in changed.items())])


def _sample(rng: np.random.Generator, n: int, most: int) -> NDArray[np.int64]:
    return np.sort(rng.permutation(n)[:most])


def _spread(part: TextData, most: int) -> NDArray[np.int64]:
    """Labels with training documents, of all frequencies."""
    counts = part.stats().label_counts
    order = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    places = np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int)
    return np.sort(order[np.unique(places)])


def _on_labels(part: TextData, labels: Sequence[int] | NDArray[np.int64]) -> TextData:
    names = tuple(part.label_names[k] for k in labels)
    return dataclasses.replace(part, Y=part.Y[:, labels], label_names=names)
