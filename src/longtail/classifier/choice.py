"""Choose the settings that a model leaves open, by its score on held-out documents.

The score is the objective (F1) with cross-validated thresholds. The mean average precision, which
needs no thresholds, is reported as well but does not decide: on Reuters it was best at C=0.1, F1 at
C=3. Two things keep the comparison cheap: with many labels it uses a sample of them, as linear
models are independent per label; and settings that are clearly worse on the first fold are dropped.
Further folds are used only where the held-out documents have few labels.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.classifier.crossfit import Run, Trial, seeded
from longtail.classifier.ensemble import MANY_LABELS
from longtail.classifier.folds import FoldedData
from longtail.classifier.plan import Plan, to_plain
from longtail.classifier.weights import blend_weights
from longtail.data import TextData
from longtail.metrics import average_precision
from longtail.models import ModelSettings, build_model
from longtail.models.base import FitContext, Floats
from longtail.models.stages import learn_alike
from longtail.progress import Progress
from longtail.thresholds import Objective, cross_validated_score

# Size of the sample: labels, and training documents per fold.
MAX_LABELS, MAX_DOCUMENTS = 300, 50_000
# With more than MANY_LABELS labels, a random document rarely has one of the sample: documents that
# have one come first, and of the held-out documents, too, only a sample is compared.
MAX_HELD_OUT = 10_000
# Folds are added until their held-out documents have ENOUGH labels in total; with fewer than
# TOO_FEW the first settings are used without a comparison.
ENOUGH, TOO_FEW = 5_000, 30
METHOD = "per-label"
# Least improvement of the score (0 to 1) to change C; to change features or loss, or to blend two
# models, which rarely pays on the corpora of docs/log.md; and how far behind the best on the first
# fold settings may be to stay in the comparison.
LEAST_GAIN, LEAST_GAIN_OF_ANOTHER, MARGIN = 0.002, 0.005, 0.005


def settle(
    plan: Plan, folded: FoldedData, objective: Objective, run: Run, *, may_blend: bool = False
) -> tuple[list[Plan], list[Trial]]:
    """Return one plan with every setting decided, or two to blend, and the trials."""
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
    """Warm starts for the next fit on these documents."""

    @property
    def n_positive(self) -> int:
        return int((self.truth.data == 1).sum())


class Compared(NamedTuple):
    """A model that was scored on all parts."""

    model: Any
    trial: Trial
    first: float
    scores: list[Floats]


class Comparison:
    """Compares models on the same documents and labels."""

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
        held_out = self.folded.held_out_rows(fold)
        if len(training.label_names) > MANY_LABELS:
            kept = _sample(training.Y[:, labels], MAX_DOCUMENTS, rng)
            held_out = held_out[_sample(self.folded.data.Y[held_out][:, labels], MAX_HELD_OUT, rng)]
        else:
            kept = np.sort(rng.permutation(len(training))[:MAX_DOCUMENTS])
        names = [training.label_names[k] for k in labels]
        training, _ = training.select(kept).onto(names)
        truth = self.folded.data.select(held_out).truth[:, labels]
        return Part(fold, training, self.folded.training_rows(fold)[kept], held_out, truth, {})

    def add(self, model: ModelSettings) -> None:
        """Fit and score a model, unless that was done before."""
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
        """Return the best model; and, if a blend scores higher, the best of another type."""
        best = self._best
        assert best is not None
        others = [other for other in self._others if not learn_alike(best.model, other.model)]
        if not others:
            return [best.model]
        other = max(others, key=lambda other: other.trial.score)
        truth = sp.vstack([part.truth for part in self.parts], format="csr")
        scores = [np.concatenate(compared.scores) for compared in (best, other)]
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
            seeded=partial(seeded, self.plan, part.fold),
            seed=self.plan.random_state,
            checkpoints=None,
            progress=lambda progress: None,
            note=self.run.note,
            stop=self.run.stop,
            kept=self.run.work.kept,
            describe=lambda row: str(part.rows[row]),
            earlier=part.earlier,
        )


def _sample(Y: sp.csr_matrix, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows, in order: at random, those with a label first."""
    order = rng.permutation(Y.shape[0])
    has_label = np.diff(Y.indptr)[order] > 0
    return np.sort(order[np.argsort(~has_label, kind="stable")][:size])


def describe(plan: Plan) -> str:
    """The loss, and the settings that differ from their defaults."""
    model = plan.model.to_dict()
    default = type(plan.model)().to_dict()
    changed = {key: value for key, value in model.items() if value != default[key]}
    return ", ".join([str(plan.loss), *(f"{k}={to_plain(v)}" for k, v in changed.items())])


def _spread(part: TextData, most: int) -> NDArray[np.int64]:
    """Choose at most `most` labels, spread evenly over the frequencies."""
    counts = part.stats().label_counts
    # A label needs two documents: one to train on, one to hold out.
    n_useful = int((counts > 1).sum()) or int((counts > 0).sum())
    order = np.argsort(-counts, kind="stable")[:n_useful]
    places = np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int)
    return np.sort(order[np.unique(places)])
