"""Predictions of a fitted classifier: scores, decisions, tables, explanations, evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from longtail.checks import check_integer
from longtail.classifier.ensemble import MANY_LABELS, Ensemble
from longtail.classifier.inputs import check_evaluable, check_texts, on_classes
from longtail.classifier.plan import Plan
from longtail.classifier.predictions import Predictions, as_frame
from longtail.data import TextData
from longtail.data.hashes import text_hashes
from longtail.errors import InputError, NotFittedError, UnknownNameError, shown, warn
from longtail.evaluation import Evaluation, evaluate
from longtail.labels import LabelStats, check_unique
from longtail.metrics import count
from longtail.models.explanation import Explanation
from longtail.report.table import plural
from longtail.thresholds import Overrides, Thresholds

Texts = Iterable[str]


class PredictionMixin:
    """The methods that only need the attributes set by `fit` or loading."""

    classes_: NDArray[np.object_]
    label_stats_: LabelStats
    document_hashes_: NDArray[np.uint64] | None
    plans_: tuple[Plan, ...]
    thresholds_: Thresholds
    ensemble_: Ensemble

    def decision_function(self, texts: Texts) -> NDArray[np.float32]:
        """Scores, (documents, labels): logits, or signed distances to a hyperplane."""
        self._check_fitted()
        return self.ensemble_.scores(check_texts(texts))

    def predict_proba(self, texts: Texts) -> NDArray[np.float32]:
        """Probabilities, (documents, labels): the sigmoid of the logits."""
        self._check_fitted()
        if self.ensemble_.scale != "logit":
            kind = self.plans_[0].kind
            raise InputError(
                f"the scores of the model {kind!r} are margins, not probabilities. "
                "Use decision_function."
            )
        return np.asarray(expit(self.decision_function(texts)), dtype=np.float32)

    def predict_blocks(
        self, texts: Texts, top_k: int | None = None, **overrides: Unpack[Overrides]
    ) -> Iterator[Predictions]:
        """Scores and decisions for a few thousand texts at a time, in bounded memory.

        The other methods are built on it. With more than MANY_LABELS labels, scores are CSR: those
        of the predicted and of the `top_k` best labels. `overrides`: as in `predict_frame`.
        """
        self._check_fitted()
        thresholds, strings = self.thresholds_.override(**overrides), check_texts(texts)
        known = np.flatnonzero(self.ensemble_.known.any(axis=0))
        blocks: Iterator[tuple[slice, Any]] = self.ensemble_.blocks(strings)
        if len(self.classes_) > MANY_LABELS:
            blocks = self.ensemble_.kept_blocks(strings, top_k or 1, thresholds)
        for rows, scores in blocks:
            yield Predictions(rows.start, scores, thresholds, known)

    def predict(self, texts: Texts) -> sp.csr_matrix:
        """The decisions as a sparse indicator matrix, columns in the order of `classes_`."""
        decisions = [block.decisions for block in self.predict_blocks(texts)]
        if not decisions:
            return sp.csr_matrix((0, len(self.classes_)), dtype=np.float32)
        return sp.vstack(decisions, format="csr")

    def predict_labels(self, texts: Texts) -> list[list[str]]:
        """The predicted label names of each text, in the order of `classes_`."""
        decisions = self.predict(texts)
        edges = zip(decisions.indptr[:-1], decisions.indptr[1:], strict=True)
        return [[str(self.classes_[k]) for k in decisions.indices[a:b]] for a, b in edges]

    def predict_frame(
        self, texts: Texts, top_k: int | None = None, **overrides: Unpack[Overrides]
    ) -> Any:
        """A pandas DataFrame with a row for each predicted label of each text, best first.

        Columns: `document`, the position of the text; `label`; `probability` (`score` if the model
        has no probabilities); `threshold` of the label, on the same scale; `predicted`. A text
        without predicted labels has no rows. Needs the extra `pandas`.

        Args:
            top_k: also include those of the k best labels that are not predicted.
            overrides: `threshold`, one probability for all labels; `min_labels`, `max_labels`.
        """
        self._check_fitted()
        check_integer("top_k", top_k, 1, optional=True)
        pairs = (block.pairs(top_k) for block in self.predict_blocks(texts, top_k, **overrides))
        return as_frame(pairs, self.classes_, self.thresholds_)

    def top_k(self, texts: Texts, k: int = 5) -> list[list[tuple[str, float]]]:
        """The k labels with the highest scores for each text, best first, with their scores.

        Scores are those of `decision_function`; labels without training documents are left out.
        """
        check_integer("k", k, 1)
        best: list[list[tuple[str, float]]] = []
        for block in self.predict_blocks(texts, k):
            labels = block.best(k)
            rows = np.repeat(np.arange(len(labels)), labels.shape[1])
            scores = block.at(rows, labels.ravel()).reshape(labels.shape)
            for chosen, values in zip(labels, scores, strict=True):
                names = map(str, self.classes_[chosen])
                best.append(list(zip(names, map(float, values), strict=True)))
        return best

    def explain(self, texts: Texts, labels: Sequence[str] | None = None) -> list[Explanation]:
        """What each word of each text adds to the scores of labels.

        Exact for models on TF-IDF features; integrated gradients for encoders, with their error in
        `Explanation.error`.

        Args:
            labels: names, for all texts; default: the predicted labels of each text or, if there
                are none, the best one.
        """
        self._check_fitted()
        columns = None if labels is None else self._columns_of(labels)
        strings = check_texts(texts)
        explained = []
        for block in self.predict_blocks(strings):
            for row in range(block.scores.shape[0]):
                text = strings[block.first + row]
                scores = block.scores[row]
                if sp.issparse(scores):
                    scores = self.ensemble_.scores([text])[0]
                chosen = block.decisions[[row]].indices if columns is None else columns
                if not len(chosen) and columns is None:
                    chosen = block.best(1)[row]
                chosen = chosen[np.argsort(-scores[chosen], kind="stable")].astype(np.int64)
                words, parts = self.ensemble_.explain(text, chosen)
                spans = [(int(a), int(b)) for a, b in words]
                names = [str(name) for name in self.classes_[chosen]]
                values = scores[chosen].astype(np.float64)
                explained.append(Explanation(text, spans, names, values, parts.values, parts.base))
        return explained

    def _columns_of(self, labels: Sequence[str]) -> NDArray[np.int64]:
        position = {str(name): n for n, name in enumerate(self.classes_)}
        for name in check_unique(labels):
            if name not in position:
                raise UnknownNameError("label", name, position)
        return np.array([position[name] for name in labels], dtype=np.int64)

    def score(self, texts: Texts | TextData, labels: Any = None) -> float:
        """Micro-F1; a label that the classifier does not know counts as missed.

        The columns of a matrix without names are those of `classes_`.
        """
        self._check_fitted()
        data, unknown = on_classes(texts, labels, self.classes_.tolist())
        hits, predicted, actual = (
            part.sum() for part in count(data.truth, self.predict(data.texts))
        )
        total = predicted + actual + sum(unknown.values())
        return float(2 * hits / total) if total else 0.0

    def trained_on(self, texts: Texts | TextData) -> NDArray[np.bool_]:
        """Whether each text was used to train a model or to choose the thresholds.

        Ignores case and white space.
        """
        self._check_fitted()
        if self.document_hashes_ is None:
            raise InputError(
                "this model came without the hashes of its training documents, so that it cannot "
                "recognise them. Load it from the folder that it was saved to after training."
            )
        return np.isin(text_hashes(check_texts(texts)), self.document_hashes_)

    def evaluate(self, texts: Texts | TextData, labels: Any = None) -> Evaluation:
        """Overall, head, medium and tail scores at the fitted thresholds; arguments as in `score`.

        Warns about labels that the model was not trained on, which are left out and counted in
        `unknown_labels`, and about documents that it was trained on; to leave those out:
        `data[~classifier.trained_on(data.texts)]`.
        """
        self._check_fitted()
        texts = texts if isinstance(texts, TextData) else check_texts(texts)
        n_trained = 0 if self.document_hashes_ is None else int(self.trained_on(texts).sum())
        if n_trained:
            others = "data[~classifier.trained_on(data.texts)]"
            if not isinstance(texts, TextData):
                others = (
                    "new = np.flatnonzero(~classifier.trained_on(texts)), then "
                    "[texts[k] for k in new] and [labels[k] for k in new]"
                )
            warn(
                f"the model was trained on {n_trained:,} of these {len(texts):,} documents, so the "
                f"scores are too high. Evaluate only the others: {others}."
            )
        result, _ = self.evaluate_scores(texts, labels)
        if unknown := result.unknown_labels:
            named = ", ".join(shown(name, 60) for name in [*unknown][:3])
            warn(
                f"not evaluated: {plural(sum(unknown.values()), 'assignment')} of "
                f"{plural(len(unknown), 'label')} that the model was not trained on: {named}"
                f"{', ...' if len(unknown) > 3 else ''}. Check their spelling."
            )
        return result

    def evaluate_scores(
        self, texts: Texts | TextData, labels: Any = None
    ) -> tuple[Evaluation, Any]:
        """The evaluation and the scores, which are dense, masked or CSR."""
        self._check_fitted()
        known, unknown = on_classes(texts, labels, self.classes_.tolist())
        check_evaluable(known, unknown)
        scores = self.ensemble_.compact_scores(known.texts, thresholds=self.thresholds_)
        unseen = ~self.ensemble_.known.any(axis=0)
        if unseen.any() and not sp.issparse(scores):
            # The score of a label without a training document cannot be ranked.
            scores = np.ma.array(scores, mask=np.broadcast_to(unseen, scores.shape))
        return evaluate(known.truth, scores, self.thresholds_, self.label_stats_, unknown), scores

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ensemble_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                "this classifier is not fitted yet. Call fit(texts, labels), or load one with "
                "LongTailClassifier.from_pretrained(folder)."
            )
