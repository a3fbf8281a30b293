"""Several fitted models as one: each label's score is the mean over the models that know it.

A blend is the weighted sum of its members; each member is the mean of its folds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from longtail.classifier.kept_pairs import KeptPairs
from longtail.errors import DataError, LongtailError
from longtail.models.base import Floats, Scale, TextModel
from longtail.models.explanation import Contributions
from longtail.models.words import Spans, word_spans
from longtail.thresholds import Thresholds
from longtail.training.devices import in_threads

MANY_LABELS = 50_000
"""With more labels, predictions keep the scores that matter, as CSR."""
# With more document-label pairs only the highest scores of each document are kept: KEPT_LABELS, or
# as many as make KEPT_PAIRS of all documents, but at least FEWEST_LABELS.
DENSE_PAIRS = 200_000_000
KEPT_LABELS = 200
KEPT_PAIRS, FEWEST_LABELS = 50_000_000, 20
# Documents that are encoded together, and the most pairs of a block of dense scores: 256 MiB.
BLOCK_DOCUMENTS, BLOCK_PAIRS = 4096, 2**26
# Documents that a thread scores at a time, for a tile of labels: 1 MiB of scores.
TILE_DOCUMENTS = 32


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Fitted models, and which labels each of them has seen in training.

    A model scores an unseen label with a constant, which is left out of the mean.
    """

    models: list[TextModel]
    """The folds of each member of the blend, member by member."""
    known: NDArray[np.bool_]
    """Models x labels: whether the model was trained on a document with the label."""
    sizes: tuple[int, ...]
    """Number of models of each member."""
    weights: tuple[float, ...] = (1.0,)
    """Weight of each member; at least one is positive."""
    intercept: float = 0.0
    scale: Scale = "logit"

    def scores(self, texts: Sequence[str], encoded: Any = None) -> Floats:
        """Scores, (documents, labels), dense."""
        blocks = [block for _, block in self.blocks(texts, encoded=encoded)]
        if not blocks:
            return np.zeros((0, self.known.shape[1]), dtype=np.float32)
        return np.concatenate(blocks)

    def blocks(
        self, texts: Sequence[str], size: int | None = None, encoded: Any = None
    ) -> Iterator[tuple[slice, Floats]]:
        """Dense scores of `size` documents at a time, in bounded memory.

        `encoded`: the texts, encoded for the only member.
        """
        size = size or min(BLOCK_DOCUMENTS, max(1, BLOCK_PAIRS // max(1, self.known.shape[1])))
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            rows = slice(start, start + len(part))
            inputs = encoded and encoded.select(np.arange(rows.start, rows.stop))
            yield rows, self._sum(partial(self._member_scores, texts=part, encoded=inputs))

    def kept_blocks(
        self,
        texts: Sequence[str],
        n_highest: int,
        thresholds: Thresholds | None = None,
        encoded: Any = None,
    ) -> Iterator[tuple[slice, sp.csr_matrix]]:
        """The scores that matter, as CSR, of a few thousand documents at a time.

        Those are the `n_highest` of each document among the labels that a model knows, and those
        that `thresholds` predict; the arguments are those of `KeptPairs` and `blocks`.
        """
        known = np.asarray(self.known.any(axis=0))
        keep = partial(KeptPairs, known=known, n_highest=n_highest, thresholds=thresholds)
        count, *others = {model.n_tiles for model in self.models}
        if count == 0 or others:
            for rows, scores in self.blocks(texts, encoded=encoded):
                kept = keep(len(scores))
                kept.add(0, scores)
                yield rows, kept.matrix()
            return
        for start in range(0, len(texts), BLOCK_DOCUMENTS):
            rows = slice(start, min(start + BLOCK_DOCUMENTS, len(texts)))
            inputs = self._inputs(texts, rows, encoded)

            def score(first: int, inputs: Any = inputs) -> sp.csr_matrix:
                part = np.arange(first, min(first + TILE_DOCUMENTS, len(inputs[0])))
                chosen = [item.select(part) for item in inputs]
                kept, label = keep(len(part)), 0
                for tile in range(count):
                    scores = self._sum(partial(self._tile_scores, chosen, tile, label))
                    kept.add(label, scores)
                    label += scores.shape[1]
                return kept.matrix()

            with _as_data_error():
                parts = list(in_threads(score, range(0, len(inputs[0]), TILE_DOCUMENTS)))
            yield rows, sp.vstack(parts, format="csr")

    def _inputs(self, texts: Sequence[str], rows: slice, encoded: Any) -> list[Any]:
        """Some texts, encoded for each model; `encoded`: all texts, for the only member."""
        if encoded is not None:
            return [encoded.select(np.arange(rows.start, rows.stop))] * len(self.models)
        with _as_data_error():
            inputs = [(self.models[s.start].encode(texts[rows]), s) for _, s in self._members()]
        return [item for item, folds in inputs for _ in self.models[folds]]

    def _sum(self, member_scores: Callable[[slice], Floats]) -> Floats:
        """The weighted sum of the members' scores."""
        total: Any = np.float32(self.intercept)
        for weight, folds in self._members():
            if weight:
                # In place, as a block of scores may take most of the memory.
                scores = member_scores(folds)
                scores *= np.float32(weight)
                scores += total
                total = scores
        return np.asarray(total)

    def _tile_scores(self, inputs: Sequence[Any], tile: int, label: int, folds: slice) -> Floats:
        """As `_member_scores`, for the labels of a tile, which starts at `label`."""
        pairs = zip(self.models[folds], inputs[folds], strict=True)
        scores = [model.tile_scores(item, tile) for model, item in pairs]
        shares = self._shares(self.known[folds, label : label + scores[0].shape[1]])
        return np.asarray(sum(share * part for share, part in zip(shares, scores, strict=True)))

    def _members(self) -> Iterator[tuple[float, slice]]:
        """The weight of each member, and the slice of its models."""
        start = 0
        for weight, size in zip(self.weights, self.sizes, strict=True):
            yield weight, slice(start, start + size)
            start += size

    def _member_scores(self, folds: slice, texts: Sequence[str], encoded: Any) -> Floats:
        """The mean of a member's models, for each label over those that know it."""
        models, known = self.models[folds], self.known[folds]
        shares = self._shares(known)
        total = np.zeros((len(texts), known.shape[1]), dtype=np.float32)
        with _as_data_error():
            if encoded is None and models[0].encoding_key is not None:
                encoded = models[0].encode(texts)
            for model, share in zip(models, shares, strict=True):
                total += share * model.scores(texts, encoded)
        return total

    def explain(self, text: str, labels: NDArray[np.int64]) -> tuple[Spans, Contributions]:
        """The words of a text, and what they add to the scores of labels (column indices).

        Contributions are averaged and summed over models as the scores are.
        """
        words = word_spans(text)
        base = np.full(len(labels), self.intercept)
        values = np.zeros((len(labels), len(words)))
        for weight, folds in self._members():
            shares = weight * self._shares(self.known[folds])[:, labels].astype(np.float64)
            for model, share in zip(self.models[folds], shares, strict=True):
                if share.any():
                    with _as_data_error():
                        part = model.explain(text, labels, words)
                    base += share * part.base
                    values += share[:, None] * part.values
        return words, Contributions(base, values)

    def compact_scores(
        self,
        texts: Sequence[str],
        n_documents: int = 0,
        encoded: Any = None,
        thresholds: Thresholds | None = None,
    ) -> Any:
        """Dense scores or, if those are too large, those that matter as CSR: see `kept_blocks`.

        `n_documents`: the total, if these texts are only some of the documents.
        """
        n_documents = n_documents or len(texts)
        if len(texts) == 0 or n_documents * self.known.shape[1] <= DENSE_PAIRS:
            return self.scores(texts, encoded)
        kept = min(KEPT_LABELS, max(FEWEST_LABELS, KEPT_PAIRS // n_documents))
        blocks = self.kept_blocks(texts, kept, thresholds, encoded)
        return sp.vstack([block for _, block in blocks], format="csr")

    def merged(self) -> Ensemble:
        """Merge the folds of the only member into one model, if its kind can."""
        first, *others = self.models
        model = first.merged(others, self._shares(self.known)) if others else None
        if model is None:
            return self
        known = np.asarray(self.known.any(axis=0))[None, :]
        return dataclasses.replace(self, models=[model], known=known, sizes=(1,))

    @staticmethod
    def _shares(known: NDArray[np.bool_]) -> Floats:
        """The weight of each model in the mean of each label; equal if no model knows the label."""
        shares = np.where(known.any(axis=0), known, True).astype(np.float32)
        return np.asarray(shares / shares.sum(axis=0), dtype=np.float32)

    def save(self, folder: Path) -> None:
        """Write a single model to the folder itself, several to subfolders."""
        for path, model in zip(self._folders(folder), self.models, strict=True):
            path.mkdir(parents=True, exist_ok=True)
            model.save(path)

    def load(self, folder: Path, device: torch.device) -> None:
        """Load what `save` wrote into the unfitted models."""
        for path, model in zip(self._folders(folder), self.models, strict=True):
            model.load(path, self.known.shape[1], device)

    def _folders(self, folder: Path) -> Iterator[Path]:
        for member, size in enumerate(self.sizes):
            path = folder / f"member-{member}" if len(self.sizes) > 1 else folder
            for fold in range(size):
                yield path / f"fold-{fold}" if size > 1 else path


@contextmanager
def _as_data_error() -> Iterator[None]:
    """Raise a DataError if a library fails, perhaps on a damaged model."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, LongtailError) or not is_failure(error):
            raise
        raise DataError(
            f"the model cannot score these texts: {type(error).__name__}: {error}. It is damaged, "
            "or was saved with other versions of its libraries."
        ) from error


def is_failure(error: BaseException) -> bool:
    """Whether a library failed; a Rust panic, as in tokenizers, is not an Exception."""
    if isinstance(error, MemoryError):
        return False
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
