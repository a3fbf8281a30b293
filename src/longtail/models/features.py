"""TF-IDF features that are saved as JSON and numbers, without pickle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

from longtail.errors import DataError, InputError

# Words of one character count only where a corpus has no longer ones.
ANY_WORD = r"(?u)\b\w+\b"
ANYTHING = r"(?us)\S"
# Few short texts may share no word at all: up to this many documents, one will do as well.
LOW_MIN_DF = 2
PATTERNS = (CountVectorizer().token_pattern, ANY_WORD, ANYTHING)


class TextFeatures:
    """Counts of words, weighted by rarity, and scaled to length one.

    Args:
        ngrams, char_ngrams: longest sequences of words, and of characters (0: none).
        min_df: least number of training documents; max_features: largest vocabulary.
        hashing: columns to hash words into instead of a vocabulary; 0: a vocabulary.
        sublinear: dampen counts, 1 + log; otherwise they count in full.
    """

    def __init__(
        self,
        ngrams: int = 1,
        min_df: int = 1,
        max_features: int = 200_000,
        char_ngrams: int = 0,
        hashing: int = 0,
        sublinear: bool = True,
    ) -> None:
        self._sublinear = sublinear
        self._ngrams, self._char_ngrams = ngrams, char_ngrams
        self._min_df, self._max_features, self._hashing = min_df, max_features, hashing
        self._pattern = PATTERNS[0]
        self._vocabularies: list[dict[str, int]] = []
        self._idf: NDArray[np.float32] = np.zeros(0, dtype=np.float32)

    def __len__(self) -> int:
        return len(self._idf)

    def fit_transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Learn the vocabulary of the training texts; their features."""
        for self._pattern in PATTERNS:
            counts = self._count_first(texts)
            if counts is not None:
                break
        else:
            raise InputError(
                f"the {len(texts)} texts hold nothing but white space, so there is nothing to "
                "learn from. Check the text field of your data."
            )
        documents = np.bincount(counts.indices, minlength=counts.shape[1])
        # As scikit-learn: one more document that has every word, so that nothing divides by zero.
        self._idf = (np.log((1 + len(texts)) / (1 + documents)) + 1).astype(np.float32)
        return self._weigh(counts)

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """The features of texts; one without any known word is a row of zeros."""
        return self._weigh(self._count(texts))

    def _weigh(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        found = sp.csr_matrix(counts, dtype=np.float32)
        counted = 1 + np.log(found.data) if self._sublinear else found.data
        found.data = counted * self._idf[found.indices]
        rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
        lengths = np.sqrt(np.bincount(rows, weights=found.data**2, minlength=found.shape[0]))
        found.data = (found.data / np.maximum(lengths, 1e-12)[rows]).astype(np.float32)
        return found

    def _count_first(self, texts: Sequence[str]) -> sp.csr_matrix | None:
        """Counts with a vocabulary made of these texts; None if they have no words."""
        if self._hashing:
            counts = self._count(texts)
            return counts if counts.nnz else None
        for min_df in dict.fromkeys((min(self._min_df, len(texts)), 1)):
            pieces, self._vocabularies = [], []
            for kind in self._kinds():
                vectorizer = CountVectorizer(
                    **kind, min_df=min_df, max_features=self._max_features, dtype=np.float32
                )
                try:
                    pieces.append(vectorizer.fit_transform(texts))
                except ValueError:  # its way to say that nothing is left
                    break
                self._vocabularies.append({w: int(k) for w, k in vectorizer.vocabulary_.items()})
            else:
                if min_df < min(self._min_df, len(texts)) and self._min_df > LOW_MIN_DF:
                    raise InputError(
                        f"no word is in {self._min_df} of the {len(texts)} training documents. "
                        "Lower min_df (--min-df)."
                    )
                return sp.csr_matrix(sp.hstack(pieces, format="csr"))
        return None

    def _count(self, texts: Sequence[str]) -> sp.csr_matrix:
        pieces = []
        for position, kind in enumerate(self._kinds()):
            if self._hashing:
                vectorizer: Any = HashingVectorizer(
                    **kind, n_features=self._hashing, norm=None, alternate_sign=False,
                    dtype=np.float32,
                )  # fmt: skip
            else:
                known = self._vocabularies[position]
                vectorizer = CountVectorizer(**kind, vocabulary=known, dtype=np.float32)
            pieces.append(vectorizer.transform(texts))
        return sp.csr_matrix(sp.hstack(pieces, format="csr"))

    def _kinds(self) -> list[dict[str, Any]]:
        """How to cut texts: into words, and into characters if wanted."""
        words = {"token_pattern": self._pattern, "ngram_range": (1, self._ngrams)}
        if not self._char_ngrams:
            return [words]
        least = min(2, self._char_ngrams)
        return [words, {"analyzer": "char_wb", "ngram_range": (least, self._char_ngrams)}]

    def save(self, folder: Path) -> None:
        words = [sorted(known, key=known.__getitem__) for known in self._vocabularies]
        saved = {"pattern": self._pattern, "vocabularies": words}
        (folder / "vocabulary.json").write_text(json.dumps(saved, ensure_ascii=True), "utf-8")
        save_file({"idf": self._idf}, folder / "idf.safetensors")

    def load(self, folder: Path) -> None:
        place = folder / "vocabulary.json"
        saved = json.loads(place.read_text("utf-8"))
        pattern, vocabularies = saved["pattern"], saved["vocabularies"]
        if pattern not in PATTERNS:
            # Any other is not ours, and a regular expression can be made to run for years.
            raise DataError(f"{place} has a pattern that longtail does not use: {pattern!r:.80}.")
        idf = load_file(folder / "idf.safetensors")["idf"]
        n_kinds = 0 if self._hashing else len(self._kinds())
        n_words = self._hashing * len(self._kinds()) or sum(map(len, vocabularies))
        if len(vocabularies) != n_kinds or idf.shape != (n_words,) or idf.dtype != np.float32:
            raise DataError(
                f"{place} and idf.safetensors do not belong together: {n_words} words in "
                f"{len(vocabularies)} vocabularies, weights of shape {idf.shape}."
            )
        found = [{str(word): k for k, word in enumerate(words)} for words in vocabularies]
        if sum(map(len, found)) != sum(map(len, vocabularies)) or not np.isfinite(idf).all():
            raise DataError(f"{place} names a word twice, or idf.safetensors holds no numbers.")
        self._pattern, self._vocabularies, self._idf = pattern, found, idf
