"""Documents in folds, and their encodings, shared by models with the same encoding."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.classifier.label_texts import add_cooccurring, label_documents
from longtail.classifier.plan import Plan
from longtail.corpora.download import cache_folder
from longtail.data import TextData
from longtail.data.splits import assign_stratified
from longtail.errors import InputError
from longtail.models.base import TextModel

IntArray = NDArray[np.int64]
LEFT_OUT = -2
# Number of characters from which tokens are cached: fewer are tokenized in a second or two.
CACHED_CHARACTERS = 2_000_000


@dataclass(frozen=True, eq=False)
class FoldedData:
    """The documents of a fit, shared by its models."""

    data: TextData
    """The documents, followed by label texts, which every fold trains on."""
    fold_of: IntArray
    """The fold that holds out each document; -1: none; LEFT_OUT: the document is not used."""
    n_folds: int
    _encoded: dict[Any, tuple[TextModel, Any]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        # Encodings stay: another process may need none of them.
        return FoldedData, (self.data, self.fold_of, self.n_folds)

    @classmethod
    def split(
        cls, plan: Plan, data: TextData, validation: TextData | None, only_fold: int | None
    ) -> FoldedData:
        """Split by a plan; with one fold, the validation part is held out."""
        n_train = len(data)
        if validation is not None:
            data = TextData.concat([data, validation.onto(data.label_names)[0]])
        fold_of = _assign_folds(plan, data, n_train, only_fold)
        if plan.label_texts is not None:
            training = data if plan.folds > 1 else data[:n_train]
            data = TextData.concat([data, label_documents(training, plan.label_texts)])
        return cls(data, fold_of, plan.folds)

    def training_rows(self, fold: int) -> IntArray:
        label_texts = np.arange(len(self.fold_of), len(self.data))
        return np.concatenate([np.flatnonzero(self._trains(fold)), label_texts])

    def _trains(self, fold: int) -> NDArray[np.bool_]:
        return np.asarray((self.fold_of != fold) & (self.fold_of != LEFT_OUT))

    def held_out_rows(self, fold: int) -> IntArray:
        return np.flatnonzero(self.fold_of == fold)

    def training_part(self, fold: int) -> TextData:
        """The training rows; label texts also get the labels that co-occur with theirs."""
        n_documents = int(self._trains(fold).sum())
        return add_cooccurring(self.data.select(self.training_rows(fold)), n_documents)

    def halved(self, random_state: int) -> FoldedData:
        """A copy without half of the training documents of the first fold."""
        training = np.flatnonzero(self.fold_of != 0)
        order = np.random.RandomState(random_state).permutation(training)
        fold_of = self.fold_of.copy()
        fold_of[order[: len(order) // 2]] = LEFT_OUT
        return dataclasses.replace(self, fold_of=fold_of)

    @cached_property
    def _learning_rows(self) -> IntArray:
        """The rows that encodings are learned from; with several folds every row trains one."""
        return np.arange(len(self.data)) if self.n_folds > 1 else self.training_rows(0)

    def encode(self, model: TextModel, rows: IntArray) -> Any:
        """Encode some documents; models with the same `encoding_key` share the work."""
        if model.encoding_key is None:
            return model.encode(self.data.select(rows).texts)
        learning = self._learning_rows
        if model.encoding_key not in self._encoded:
            texts = self.data.select(learning).texts
            is_large = sum(map(len, texts)) >= CACHED_CHARACTERS
            cache = cache_folder() / "tokens" if is_large else None
            self._encoded[model.encoding_key] = model, model.learn_encoding(texts, cache)
        first, encoded = self._encoded[model.encoding_key]
        model.share_encoding(first)
        if not np.isin(rows, learning).all():
            return model.encode(self.data.select(rows).texts)
        return encoded.select(np.searchsorted(learning, rows))

    def keep_encodings(self, models: list[TextModel]) -> None:
        """Drop the encodings of all other models."""
        kept = {model.encoding_key for model in models}
        for key in self._encoded.keys() - kept:
            del self._encoded[key]


def _assign_folds(plan: Plan, data: TextData, n_train: int, only_fold: int | None) -> IntArray:
    n_folds, n_held_out = plan.folds, len(data) - n_train
    if n_folds == 1:
        if only_fold is not None:
            raise InputError("folds=1 has no folds to fit separately. Use folds=2 or more.")
        if n_train == 0 or n_held_out == 0:
            raise InputError(
                "folds=1 needs documents to train on and a validation part to choose thresholds "
                f"on, got {n_train} and {n_held_out} documents."
            )
        return np.repeat([-1, 0], [n_train, n_held_out])
    if n_folds > len(data):
        raise InputError(f"cannot make {n_folds} folds of {len(data)} documents. Use fewer folds.")
    if only_fold is not None and not 0 <= only_fold < n_folds:
        raise InputError(f"expected a fold from 0 to {n_folds - 1}, got {only_fold}.")
    fractions = [1 / n_folds] * n_folds
    return assign_stratified(data.Y, fractions, plan.random_state, first_is_train=False)
