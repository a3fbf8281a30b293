"""A loaded model for the service: predictions, reasons, labels and card as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from longtail.labels import GROUP_NAMES, label_groups
from longtail.models import MODELS

if TYPE_CHECKING:
    from longtail.classifier import LongTailClassifier
    from longtail.serve.settings import Service

MAX_WORDS = 30  # of the reasons of a label, the strongest ones
UNSEEN = "unseen"
Answer = dict[str, Any]


class PredictQuery(NamedTuple):
    """A text; its `top_k` best labels are returned, even if they are not predicted."""

    text: str
    top_k: int | None = None


class Served:
    """A classifier with a name."""

    def __init__(self, name: str, classifier: LongTailClassifier, card: str) -> None:
        from longtail.report.markdown import to_safe_html

        self.name, self.classifier = name, classifier
        stats, facts = classifier.label_stats_, classifier.facts_
        self.labels = [str(label) for label in classifier.classes_]
        self.known = frozenset(self.labels)
        known = np.asarray(classifier.ensemble_.known.any(axis=0))
        self.groups = _groups(stats.label_counts, known)
        self.is_logit = classifier.thresholds_.scale != "margin"
        self.thresholds = _values(classifier.thresholds_.values, self.is_logit)
        self._casefolded = [label.casefold() for label in self.labels]
        self._by_frequency = np.argsort(-stats.label_counts, kind="stable").tolist()
        self.summary: Answer = {
            "name": name,
            "title": " + ".join(MODELS[plan.kind].title for plan in classifier.plans_),
            "n_labels": len(self.labels),
            "n_training_documents": stats.n_samples,
            "scale": "logit" if self.is_logit else "margin",
        }
        body = card.split("\n---\n", 1)[-1] if card.startswith("---\n") else card
        self.details: Answer = {
            **self.summary,
            "card": card,
            "card_html": to_safe_html(body),
            "held_out": {group: _held_out(facts, group) for group in ("all", *GROUP_NAMES)},
        }

    @classmethod
    def load(cls, name: str, service: Service) -> Served:
        """Load a run, and predict once to warm up."""
        from longtail.classifier import LongTailClassifier
        from longtail.classifier.saving import model_card
        from longtail.runs.files import read_small
        from longtail.runs.model import CARD_FILE, whole_folder

        folder = service.runs[name]
        classifier = LongTailClassifier.from_pretrained(
            folder,
            service.device,
            engine=service.engine,
            trust_remote_code=service.trust_remote_code,
        )
        try:
            card = read_small(whole_folder(folder) / CARD_FILE, 1_000_000)
        except (OSError, ValueError):  # users may edit or remove it
            card = model_card(classifier, name)
        served = cls(name, classifier, card)
        served.predict([PredictQuery("text", 1)])
        return served

    def predict(self, queries: list[PredictQuery]) -> list[list[Answer]]:
        """The predicted and the `top_k` best labels of each text, best first."""
        most = max((query.top_k or 0 for query in queries), default=0)
        top_k = min(most, len(self.labels)) or None
        answers: list[list[Answer]] = [[] for _ in queries]
        for block in self.classifier.predict_blocks([query.text for query in queries], top_k):
            pairs = block.pairs(top_k)
            scores = block.at(pairs.documents - block.first, pairs.labels)
            columns = (pairs.documents, pairs.labels, scores, pairs.values, pairs.predicted)
            for row, label, score, value, predicted in zip(
                *(column.tolist() for column in columns), strict=True
            ):
                answer = answers[row]
                # Pairs are sorted: the first k of a document are its k best labels.
                if predicted or len(answer) < (queries[row].top_k or 0):
                    answer.append(self._answer(label, score, value, predicted))
        return answers

    def _answer(self, label: int, score: float, value: float, predicted: bool) -> Answer:
        return {
            "label": self.labels[label],
            "score": _rounded(score),
            "probability": _rounded(value) if self.is_logit else None,
            "threshold": self.thresholds[label],
            "group": self.groups[label],
            "predicted": predicted,
            "reasons": None,
        }

    def explain(self, text: str, labels: list[str]) -> dict[str, list[Answer]]:
        """The strongest words for or against each label of a text, in the order of the text."""
        (explanation,) = self.classifier.explain([text], labels)
        reasons: dict[str, list[Answer]] = {label: [] for label in labels}
        for label, values in zip(explanation.labels, explanation.values, strict=True):
            strongest = np.argsort(-np.abs(values), kind="stable")[:MAX_WORDS]
            for word in sorted(strongest[values[strongest] != 0].tolist()):
                start, end = map(int, explanation.words[word])
                value = _rounded(float(values[word]))
                reason = {"start": start, "end": end, "word": text[start:end], "value": value}
                reasons[str(label)].append(reason)
        return reasons

    def find_labels(self, search: str, offset: int, limit: int) -> tuple[int, list[Answer]]:
        """The number of labels that contain a string, and one page of them.

        Labels that start with it come first; the most frequent first within each group.
        """
        search = search.casefold()
        matches = [k for k in self._by_frequency if search in self._casefolded[k]]
        matches.sort(key=lambda k: not self._casefolded[k].startswith(search))
        return len(matches), [self._label_facts(k) for k in matches[offset : offset + limit]]

    def _label_facts(self, k: int) -> Answer:
        counts = self.classifier.facts_.label_counts
        hits, predicted, actual = (0, 0, 0) if counts is None else (part[k] for part in counts)
        return {
            "label": self.labels[k],
            "group": self.groups[k],
            "training_documents": int(self.classifier.label_stats_.label_counts[k]),
            "threshold": self.thresholds[k],
            "precision": hits / predicted if predicted else None,
            "recall": hits / actual if actual else None,
        }


def _groups(counts: NDArray[np.float64], known: NDArray[np.bool_]) -> list[str]:
    groups = np.full(len(counts), UNSEEN, dtype=object)
    for name, mask in label_groups(counts).items():
        groups[mask & known] = name
    return [str(group) for group in groups]


def _values(thresholds: NDArray[np.float64], is_logit: bool) -> list[float | None]:
    """Thresholds on the scale of the answers; None: never predicted."""
    values = expit(thresholds) if is_logit else thresholds
    finite = np.isfinite(thresholds)
    return [_rounded(v) if f else None for v, f in zip(values.tolist(), finite, strict=True)]


def _held_out(facts: Any, group: str) -> Answer:
    scores = facts.cross_validated and facts.cross_validated[group].to_dict()
    names = ("micro_f1", "macro_f1", "n_labels")
    return {name: scores[name] if scores else None for name in names}


def _rounded(value: float) -> float:
    """Six significant digits: scores are float32."""
    return float(f"{value:.6g}")
