"""TF-IDF features that are saved as JSON and numbers, without pickle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(eq=False)
class TextFeatures:
    """Counts of words, weighted by rarity, and scaled to length one; fields as in Bag and Svm."""

    ngrams: int = 1
    min_df: int = 1
    max_features: int = 200_000
    char_ngrams: int = 0
    hashing: int = 0
    sublinear: bool = True

    def __post_init__(self) -> None:
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
        features = sp.csr_matrix(counts, dtype=np.float32)
        counted = 1 + np.log(features.data) if self.sublinear else features.data
        values = counted * self._idf[features.indices]
        rows = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
        lengths = np.sqrt(np.bincount(rows, weights=values**2, minlength=features.shape[0]))
        features.data = (values / np.maximum(lengths, 1e-12)[rows]).astype(np.float32)
        return features

    def _count_first(self, texts: Sequence[str]) -> sp.csr_matrix | None:
        """Counts with a vocabulary made of these texts; None if they have no words."""
        if self.hashing:
            counts = self._count(texts)
            return counts if counts.nnz else None
        limits = {"max_features": self.max_features, "dtype": np.float32}
        for min_df in dict.fromkeys((min(self.min_df, len(texts)), 1)):
            vectorizers = [CountVectorizer(**c, **limits, min_df=min_df) for c in self._cuts()]
            try:
                pieces = [vectorizer.fit_transform(texts) for vectorizer in vectorizers]
            except ValueError:  # no word is left
                continue
            if min_df < min(self.min_df, len(texts)) and self.min_df > LOW_MIN_DF:
                raise InputError(
                    f"no word is in {self.min_df} of the {len(texts)} training documents. "
                    "Lower min_df (--min-df)."
                )
            self._vocabularies = [
                {word: int(k) for word, k in vectorizer.vocabulary_.items()}
                for vectorizer in vectorizers
            ]
            return sp.csr_matrix(sp.hstack(pieces, format="csr"))
        return None

    def _count(self, texts: Sequence[str]) -> sp.csr_matrix:
        dtype = np.float32
        if self.hashing:
            options = {"n_features": self.hashing, "norm": None, "alternate_sign": False}
            vectorizers = [HashingVectorizer(**c, **options, dtype=dtype) for c in self._cuts()]
        else:
            cuts = zip(self._cuts(), self._vocabularies, strict=True)
            vectorizers = [CountVectorizer(**c, vocabulary=v, dtype=dtype) for c, v in cuts]
        pieces = [vectorizer.transform(texts) for vectorizer in vectorizers]
        return sp.csr_matrix(sp.hstack(pieces, format="csr"))

    def _cuts(self) -> list[dict[str, Any]]:
        """How to cut texts: into words, and into characters if requested."""
        words = {"token_pattern": self._pattern, "ngram_range": (1, self.ngrams)}
        if not self.char_ngrams:
            return [words]
        least = min(2, self.char_ngrams)
        return [words, {"analyzer": "char_wb", "ngram_range": (least, self.char_ngrams)}]

    def save(self, folder: Path) -> None:
        words = [sorted(known, key=known.__getitem__) for known in self._vocabularies]
        saved = {"pattern": self._pattern, "vocabularies": words}
        (folder / "vocabulary.json").write_text(json.dumps(saved, ensure_ascii=True), "utf-8")
        save_file({"idf": self._idf}, folder / "idf.safetensors")

    def load(self, folder: Path) -> None:
        path = folder / "vocabulary.json"
        saved = json.loads(path.read_text("utf-8"))
        self._pattern, lists = saved["pattern"], saved["vocabularies"]
        if self._pattern not in PATTERNS:
            # Any other is not ours, and a regular expression can be made to run for years.
            raise DataError(f"{path} has a pattern that is not ours: {self._pattern!r:.80}.")
        self._vocabularies = [{str(word): k for k, word in enumerate(words)} for words in lists]
        self._idf = load_file(folder / "idf.safetensors")["idf"]
        n_cuts, n_words = len(self._cuts()), sum(map(len, lists))
        expected = (0, (self.hashing * n_cuts,)) if self.hashing else (n_cuts, (n_words,))
        if (len(lists), self._idf.shape) != expected or self._idf.dtype != np.float32:
            raise DataError(
                f"{path} and idf.safetensors do not belong together: {n_words} words in "
                f"{len(lists)} vocabularies, weights of shape {self._idf.shape}."
            )
        if sum(map(len, self._vocabularies)) != n_words or not np.isfinite(self._idf).all():
            raise DataError(f"{path} names a word twice, or idf.safetensors holds no numbers.")
