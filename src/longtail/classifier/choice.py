"""Settle what settings leave open, by held-out documents.

The objective decides, with thresholds cross-validated on the held-out documents; beside it stands
the mean average precision of the labels, which needs no thresholds. (It alone chose too small a C
on Reuters: the ranking within labels was best at 0.1, F1 at 3.) Of many labels a sample is
compared, as the problems of linear models are independent of each other; where held-out labels are
few, more folds are compared, by models that are not clearly worse on the first.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.classifier.crossfit import Run, Trial, seeded
from longtail.classifier.folds import FoldedData
from longtail.classifier.plan import Plan, to_plain
from longtail.classifier.weights import blend_weights
from longtail.data import TextData
from longtail.metrics import average_precision
from longtail.models import ModelSettings, build_model
from longtail.models.base import FitContext, Floats
from longtail.models.search import learn_alike
from longtail.progress import Progress
from longtail.thresholds import Objective, cross_validated_score

# Labels, and training documents of a fold, that are compared.
MAX_LABELS, MAX_DOCUMENTS = 300, 50_000
# Labels of held-out documents that are enough; with fewer than the last, the first settings are
# taken without a comparison.
ENOUGH, TOO_FEW = 5_000, 30
METHOD = "per-label"
# What another C must gain; what other features, another loss or two models together must, which the
# corpora of docs/log.md seldom needed; and what may be lost on the first fold by one that is
# compared on the others; of 1.
LEAST_GAIN, LEAST_GAIN_OF_ANOTHER, MARGIN = 0.002, 0.005, 0.005


def settle(
    plan: Plan, folded: FoldedData, objective: Objective, run: Run, *, may_blend: bool = False
) -> tuple[list[Plan], list[Trial]]:
    """The plan with nothing left open, or the two best to be blended, and what was compared."""
    stages = plan.model.stages(folded.data, plan.loss)
    if not stages:
        return [plan.with_model(plan.model)], []
    comparison = Comparison(plan, folded, objective, run)
    if not comparison.parts:
        return [plan.with_model(stages[0](None)[0])], []
    for stage in stages:
        for model in stage(comparison.best):
            comparison.add(model)
    models = comparison.two_best() if may_blend else [comparison.best]
    folded.keep_encodings([build_model(model) for model in models])
    return [plan.with_model(model) for model in models], list(comparison.trials.values())


class Part(NamedTuple):
    """A fold of the comparison."""

    fold: int
    training: TextData
    rows: NDArray[np.int64]
    held_out: NDArray[np.int64]
    truth: sp.csr_matrix
    earlier: dict[Any, Any]
    """Where the next fit on these documents may start."""

    @property
    def n_positive(self) -> int:
        return int((self.truth.data == 1).sum())


class Compared(NamedTuple):
    """A model, and its scores of the parts it was compared on: all of them, or the first."""

    model: Any
    trial: Trial
    first: float
    scores: list[Floats]


class Comparison:
    """Models on the same documents and labels."""

    def __init__(self, plan: Plan, folded: FoldedData, objective: Objective, run: Run) -> None:
        self.plan, self.folded, self.objective, self.run = plan, folded, objective, run
        self.trials: dict[str, Trial] = {}
        self._best: Compared | None = None
        self._others: list[Compared] = []
        self.parts: list[Part] = []
        labels = _spread(folded.training_part(0), MAX_LABELS)
        weight = plan.loss_settings.get("label_weight")
        if weight is not None:
            chosen = {"label_weight": [weight[k] for k in labels]}
            self.plan = dataclasses.replace(plan, loss_settings={**plan.loss_settings, **chosen})
        for fold in range(folded.n_folds):
            if sum(part.n_positive for part in self.parts) < ENOUGH:
                self.parts.append(self._part(fold, labels))
        if sum(part.n_positive for part in self.parts) < TOO_FEW:
            self.parts = []

    @property
    def best(self) -> Any:
        return self._best and self._best.model

    def _part(self, fold: int, labels: NDArray[np.int64]) -> Part:
        training = self.folded.training_part(fold)
        rng = np.random.default_rng(self.plan.random_state)
        kept = np.sort(rng.permutation(len(training))[:MAX_DOCUMENTS])
        held_out = self.folded.held_out_rows(fold)
        names = [training.label_names[k] for k in labels]
        training, _ = training.select(kept).onto(names)
        truth = self.folded.data.select(held_out).truth[:, labels]
        return Part(fold, training, self.folded.training_rows(fold)[kept], held_out, truth, {})

    def add(self, model: ModelSettings) -> None:
        """Fit and score a model that was not compared yet."""
        plan = self.plan.with_model(model)
        name = describe(plan)
        if name in self.trials:
            return
        self.run.progress(Progress(f"comparing {name}", len(self.trials) + 1, unit="settings"))
        scores = [self._scores(plan, self.parts[0])]
        trial = self._evaluate(name, scores)
        first, best = trial.score, self._best
        if len(self.parts) > 1 and (best is None or first > best.first - MARGIN):
            scores += [self._scores(plan, part) for part in self.parts[1:]]
            trial = self._evaluate(name, scores)
        self.trials[name] = trial
        if len(scores) < len(self.parts):
            return
        compared = Compared(model, trial, first, scores)
        is_alike = best is None or learn_alike(best.model, model)
        gain = LEAST_GAIN if is_alike else LEAST_GAIN_OF_ANOTHER
        if best is None or trial.score > best.trial.score + gain:
            compared, self._best = best or compared, compared
        if compared is not self._best:
            self._others.append(compared)

    def two_best(self) -> list[ModelSettings]:
        """The best, and the best of those that learn otherwise if their sum gains."""
        best = self._best
        assert best is not None
        different = [each for each in self._others if not learn_alike(best.model, each.model)]
        if not different:
            return [best.model]
        other = max(different, key=lambda each: each.trial.score)
        truth = sp.vstack([part.truth for part in self.parts], format="csr")
        scores = [np.concatenate(each.scores) for each in (best, other)]
        (first, second), _ = blend_weights(scores, truth)
        pairs = zip(best.scores, other.scores, strict=True)
        total = [first * one + second * another for one, another in pairs]
        name = f"{best.trial.settings} + {other.trial.settings}"
        trial = self._evaluate(name, total)
        self.trials[name] = trial
        is_better = trial.score > best.trial.score + LEAST_GAIN_OF_ANOTHER
        return [best.model, other.model] if is_better else [best.model]

    def _scores(self, plan: Plan, part: Part) -> Floats:
        self.run.stop.check(self.run.work.kept)
        model = build_model(plan.model, self.run.trust_remote_code)
        with seeded(plan, part.fold):
            model.fit(part.training, plan.new_loss, plan.training, self._context(part))
        return model.scores([], self.folded.encode(model, part.held_out))

    def _evaluate(self, name: str, scores: list[Floats]) -> Trial:
        parts = self.parts[: len(scores)]
        truth = sp.vstack([part.truth for part in parts], format="csr")
        values = np.concatenate(scores)
        f1 = cross_validated_score(
            values,
            truth,
            parts[0].training.stats().label_counts,
            METHOD,
            objective=self.objective,
            scale="margin",
        )
        precision = average_precision(truth, values, "macro", absent="skip")
        return Trial(name, *f1, f1.of(self.objective), precision, len(values))

    def _context(self, part: Part) -> FitContext:
        return FitContext(
            encode=lambda model: self.folded.encode(model, part.rows),
            validation=lambda model: None,
            seed=self.plan.random_state,
            checkpoints=None,
            progress=lambda progress: None,
            note=self.run.note,
            stop=self.run.stop,
            kept=self.run.work.kept,
            describe=lambda row: str(part.rows[row]),
            earlier=part.earlier,
        )


def describe(plan: Plan) -> str:
    """The loss, and the settings that differ from their defaults."""
    model = plan.model.to_dict()
    default = type(plan.model)().to_dict()
    changed = {key: value for key, value in model.items() if value != default[key]}
    return ", ".join([str(plan.loss), *(f"{k}={to_plain(v)}" for k, v in changed.items())])


def _spread(part: TextData, most: int) -> NDArray[np.int64]:
    """Labels with training documents, of all frequencies."""
    counts = part.stats().label_counts
    # A label of one document has none to be held out.
    n_useful = int((counts > 1).sum()) or int((counts > 0).sum())
    order = np.argsort(-counts, kind="stable")[:n_useful]
    places = np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int)
    return np.sort(order[np.unique(places)])
