"""TF-IDF features that are saved as JSON and numbers, without pickle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from safetensors.numpy import load_file, save_file
from sklearn.feature_extraction.text import TfidfVectorizer

from longtail.errors import InputError


class TextFeatures:
    """A TF-IDF vectoriser with sublinear counts; words of at least `min_df` documents."""

    def __init__(self, ngrams: int, min_df: int, max_features: int) -> None:
        self._vectorizer = self._make(ngrams, min_df, max_features)

    @staticmethod
    def _make(ngrams: int, min_df: int, max_features: int, **extra: Any) -> TfidfVectorizer:
        return TfidfVectorizer(
            sublinear_tf=True,
            ngram_range=(1, ngrams),
            min_df=min_df,
            max_features=max_features,
            dtype=np.float32,
            **extra,
        )

    def fit(self, texts: Sequence[str]) -> None:
        for min_df in (self._vectorizer.min_df, 1):
            self._vectorizer.min_df = min_df
            try:
                self._vectorizer.fit(texts)
            except ValueError:
                continue
            return
        raise InputError(
            f"the {len(texts)} texts hold no words of two or more letters, so there is nothing to "
            "learn from. Check the text field of your data."
        )

    def __len__(self) -> int:
        return len(self._vectorizer.vocabulary_)

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        return sp.csr_matrix(self._vectorizer.transform(texts))

    def save(self, folder: Path) -> None:
        words = sorted(self._vectorizer.vocabulary_, key=self._vectorizer.vocabulary_.get)
        (folder / "vocabulary.json").write_text(json.dumps(words, ensure_ascii=False), "utf-8")
        save_file({"idf": self._vectorizer.idf_}, folder / "idf.safetensors")

    def load(self, folder: Path) -> None:
        words = json.loads((folder / "vocabulary.json").read_text("utf-8"))
        old = self._vectorizer
        self._vectorizer = self._make(
            old.ngram_range[1],
            old.min_df,
            old.max_features,
            vocabulary={word: k for k, word in enumerate(words)},
        )
        self._vectorizer.idf_ = load_file(folder / "idf.safetensors")["idf"]
