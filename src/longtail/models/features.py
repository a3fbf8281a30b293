"""TF-IDF features, saved without pickle.

Arrow splits and counts the texts, in threads; character n-grams are made once per distinct word,
not once per occurrence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from longtail.errors import DataError, InputError
from longtail.models.words import Pieces, Spans, runs
from longtail.training.devices import in_threads

# Minimum word lengths, tried in turn: words of one character count only if the corpus has no longer
# ones, and other characters (0) only if it has no words at all.
SHORTEST_WORDS = (2, 1, 0)
NON_WORD = r"[^\pL\pN_]+"
# As str.split. Arrow's utf8_split_whitespace sometimes misses white space at the end of the last
# text: a second call with the same input gave other words (26.0.1).
SPACE = r"[\s\pZ\x0b\x1c-\x1f\x{85}]+"
# A few short texts may share no word: a min_df of up to this falls back to 1.
LOW_MIN_DF = 2
BLOCK_CHARACTERS = 4_000_000

Counts = tuple[Any, sp.csr_matrix]
"""Distinct strings as an Arrow array, and their counts, (texts, strings)."""


@dataclass(eq=False)
class TextFeatures:
    """TF-IDF rows of unit length; the fields are those of Bag and Svm."""

    ngrams: int = 1
    min_df: int = 1
    max_features: int = 200_000
    char_ngrams: int = 0
    sublinear: bool = True

    def __post_init__(self) -> None:
        self._shortest = SHORTEST_WORDS[0]
        self._vocabularies: list[Any] = []
        self._idf: NDArray[np.float32] = np.zeros(0, dtype=np.float32)

    def __len__(self) -> int:
        return len(self._idf)

    def fit_transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Learn the vocabulary and document frequencies; return the features of the texts."""
        for self._shortest in SHORTEST_WORDS:
            counts = self._learn(texts)
            if counts is not None:
                break
        else:
            raise InputError(
                f"the {len(texts)} texts contain nothing but white space, so there is nothing to "
                "learn from. Check the text field of your data."
            )
        documents = np.bincount(counts.indices, minlength=counts.shape[1])
        # Smoothed as in scikit-learn: as if one more document had every word.
        self._idf = (np.log((1 + len(texts)) / (1 + documents)) + 1).astype(np.float32)
        return self._weigh(counts)

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """The features of texts; a text without known words is a row of zeros."""
        pieces = []
        for count, known in zip(self._counters(), self._vocabularies, strict=True):
            blocks = [_on_vocabulary(block, known) for block in _in_blocks(count, texts)]
            pieces.append(sp.vstack([sp.csr_matrix((0, len(known))), *blocks], format="csr"))
        return self._weigh(sp.hstack(pieces, format="csr"))

    def pieces(self, text: str) -> Pieces:
        """Where the known features occur in a text; the shares of each sum to 1."""
        known = self._vocabularies
        located = [*_locate_words(text, self._shortest, self.ngrams, known[0])]
        if self.char_ngrams:
            part = _locate_characters(text, self.char_ngrams, known[1])
            columns = np.where(part.features >= 0, part.features + len(known[0]), -1)
            located.append(part._replace(features=columns))
        fields = [np.concatenate(parts) for parts in zip(*located, strict=True)]
        pieces = Pieces(*(field[fields[0] >= 0] for field in fields))
        total = np.bincount(pieces.features, pieces.shares, len(self))
        return pieces._replace(shares=pieces.shares / total[pieces.features])

    def _weigh(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        features = sp.csr_matrix(counts, dtype=np.float32)
        counted = 1 + np.log(features.data) if self.sublinear else features.data
        values = counted * self._idf[features.indices]
        rows = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
        lengths = np.sqrt(np.bincount(rows, weights=values**2, minlength=features.shape[0]))
        features.data = (values / np.maximum(lengths, 1e-12)[rows]).astype(np.float32)
        return features

    def _learn(self, texts: Sequence[str]) -> sp.csr_matrix | None:
        """Learn the vocabularies and return the counts; None if the texts have no words."""
        counts = [list(_in_blocks(count, texts)) for count in self._counters()]
        min_df = min(self.min_df, len(texts))
        for threshold in dict.fromkeys((min_df, 1)):
            learned = [self._vocabulary(blocks, threshold) for blocks in counts]
            if not len(learned[0]):
                continue
            if threshold < min_df and self.min_df > LOW_MIN_DF:
                raise InputError(
                    f"no word is in {self.min_df} of the {len(texts)} training documents. "
                    "Lower min_df (--min-df)."
                )
            self._vocabularies = learned
            pieces = [
                sp.vstack([_on_vocabulary(block, known) for block in blocks], format="csr")
                for blocks, known in zip(counts, learned, strict=True)
            ]
            return sp.csr_matrix(sp.hstack(pieces, format="csr"))
        return None

    def _vocabulary(self, blocks: list[Counts], min_df: int) -> Any:
        """The strings in enough documents, sorted; at most the max_features most frequent."""
        strings = pa.concat_arrays([strings for strings, _ in blocks]).dictionary_encode()
        ids, n_strings = strings.indices.to_numpy(), len(strings.dictionary)
        block_df = [np.diff(counts.tocsc().indptr) for _, counts in blocks]
        block_total = [counts.sum(axis=0).A1 for _, counts in blocks]
        df = np.bincount(ids, np.concatenate(block_df), n_strings)
        total = np.bincount(ids, np.concatenate(block_total), n_strings)
        kept = np.flatnonzero(df >= min_df)
        if len(kept) > self.max_features:
            kept = kept[np.argsort(-total[kept], kind="stable")[: self.max_features]]
        known = strings.dictionary.take(pa.array(kept))
        return known.take(pc.sort_indices(known))

    def _counters(self) -> list[Callable[[Sequence[str]], Counts]]:
        """The functions that count: words, and character n-grams if requested."""
        shortest, ngrams, longest = self._shortest, self.ngrams, self.char_ngrams
        words = partial(_count_words, shortest=shortest, ngrams=ngrams)
        return [words, partial(_count_characters, longest=longest)] if longest else [words]

    def words(self) -> list[str]:
        """The vocabulary: words, and character n-grams if requested."""
        return [word for known in self._vocabularies for word in known.to_pylist()]

    def save(self, folder: Path) -> None:
        words = [known.to_pylist() for known in self._vocabularies]
        saved = {"shortest_word": self._shortest, "vocabularies": words}
        (folder / "vocabulary.json").write_text(json.dumps(saved, ensure_ascii=True), "utf-8")
        save_file({"idf": self._idf}, folder / "idf.safetensors")

    def load(self, folder: Path) -> None:
        path = folder / "vocabulary.json"
        saved = json.loads(path.read_text("utf-8"))
        self._shortest, lists = saved["shortest_word"], saved["vocabularies"]
        self._vocabularies = [pa.array(words, pa.large_string()) for words in lists]
        self._idf = load_file(folder / "idf.safetensors")["idf"]
        n_words = sum(map(len, lists))
        expected = len(self._counters()), (n_words,)
        if (len(lists), self._idf.shape) != expected or self._idf.dtype != np.float32:
            raise DataError(
                f"{path} and idf.safetensors do not belong together: {n_words} words in "
                f"{len(lists)} vocabularies, weights of shape {self._idf.shape}."
            )
        is_distinct = all(len(known.unique()) == len(known) for known in self._vocabularies)
        if (
            not is_distinct
            or self._shortest not in SHORTEST_WORDS
            or any(known.null_count for known in self._vocabularies)
            or not np.isfinite(self._idf).all()
        ):
            raise DataError(
                f"{path} repeats a word or has an invalid value, or idf.safetensors has values "
                "that are not finite."
            )


def _in_blocks(count: Callable[[Sequence[str]], Counts], texts: Sequence[str]) -> Iterator[Counts]:
    """Count blocks of texts, in order."""
    ends = np.cumsum([len(text) for text in texts]) // BLOCK_CHARACTERS
    edges = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(texts)]
    blocks = [texts[a:b] for a, b in pairwise(edges)]
    yield from in_threads(count, blocks)


def _count_words(texts: Sequence[str], shortest: int, ngrams: int) -> Counts:
    words, rows = _split_words(texts, shortest)
    grams, gram_rows = [words], [rows]
    for n in range(2, ngrams + 1):
        joined, starts = _word_ngrams(words, rows, n)
        grams.append(joined)
        gram_rows.append(rows[starts])
    return _count_strings(pa.concat_arrays(grams), np.concatenate(gram_rows), len(texts))


def _split_words(texts: Sequence[str], shortest: int) -> tuple[Any, NDArray[np.int64]]:
    """The words of texts as an Arrow array, and the row of each word's text."""
    lower = pc.utf8_lower(pa.array(texts, pa.large_string()))
    if shortest:
        lists = pc.split_pattern_regex(lower, NON_WORD)
    else:
        spaced = [" ".join(text) for text in lower.to_pylist()]
        lists = pc.split_pattern_regex(pa.array(spaced, pa.large_string()), SPACE)
    return _at_least(lists, max(1, shortest))


def _at_least(lists: Any, shortest: int) -> tuple[Any, NDArray[np.int64]]:
    words, rows = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    kept = pc.greater_equal(pc.utf8_length(words), shortest)
    return words.filter(kept), rows[kept.to_numpy(zero_copy_only=False)]


def _word_ngrams(words: Any, rows: NDArray[np.int64], n: int) -> tuple[Any, NDArray[np.int64]]:
    """The n-grams of words, none across texts, and the index of their first words."""
    starts = np.flatnonzero(rows[: len(rows) - n + 1] == rows[n - 1 :])
    parts = [words.take(pa.array(starts + k)) for k in range(n)]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(" ", pa.large_string()))
    return joined, starts


def _split_on_spaces(texts: Sequence[str]) -> tuple[Any, NDArray[np.int64]]:
    """The strings between white space, and the row of each one's text."""
    lower = pc.utf8_lower(pa.array(texts, pa.large_string()))
    return _at_least(pc.split_pattern_regex(lower, SPACE), 1)


def _count_characters(texts: Sequence[str], longest: int) -> Counts:
    """N-grams of 2 and more characters inside words, here the strings between white space."""
    words, counts = _count_strings(*_split_on_spaces(texts), len(texts))
    strings, sizes = _character_ngrams(words, longest)
    rows = np.repeat(np.arange(len(words)), sizes)
    strings, of_words = _count_strings(strings, rows, len(words))
    return strings, sp.csr_matrix(counts @ of_words)


def _character_ngrams(words: Any, longest: int) -> tuple[Any, NDArray[np.int64]]:
    """The n-grams of each word, padded with spaces, shortest first; and the number per word."""
    grams: list[str] = []
    ends = [0]
    for word in words.to_pylist():
        padded = f" {word} "
        for n in range(min(2, longest), longest + 1):
            grams += [padded[k : k + n] for k in range(len(padded) - n + 1)]
        ends.append(len(grams))
    return pa.array(grams, pa.large_string()), np.diff(ends)


def _count_strings(strings: Any, rows: NDArray[np.int64], n_rows: int) -> Counts:
    """The distinct strings, and their counts in each row."""
    encoded = strings.dictionary_encode()
    pairs = (np.ones(len(rows), np.float32), (rows, encoded.indices.to_numpy()))
    return encoded.dictionary, sp.csr_matrix(pairs, shape=(n_rows, len(encoded.dictionary)))


def _find(text: str, words: Any) -> Spans:
    """The spans of consecutive words in their text."""
    # Arrow lowercases character by character, so that positions do not change.
    lower, end = pc.utf8_lower(pa.array([text], pa.large_string()))[0].as_py(), 0
    spans = []
    for word in words.to_pylist():
        start = lower.index(word, end)
        end = start + len(word)
        spans.append((start, end))
    return np.array(spans, dtype=np.int64).reshape(-1, 2)


def _locate_words(text: str, shortest: int, ngrams: int, known: Any) -> Iterator[Pieces]:
    """Each word of each n-gram of a text, with the n-gram's column."""
    words, rows = _split_words([text], shortest)
    spans = _find(text, words)
    for n in range(1, ngrams + 1):
        grams, first = _word_ngrams(words, rows, n)
        features = _positions(grams, known)
        for k in range(n):
            starts, ends = spans[first + k].T
            yield Pieces(features, starts, ends, np.ones(len(features)))


def _locate_characters(text: str, longest: int, known: Any) -> Pieces:
    """The character n-grams of a text, without the spaces around its words."""
    words, _ = _split_on_spaces([text])
    starts, ends = _find(text, words).T
    distinct = words.dictionary_encode()
    strings, sizes = _character_ngrams(distinct.dictionary, longest)
    features, ids = _positions(strings, known), distinct.indices.to_numpy()
    widths = pc.utf8_length(strings).to_numpy()
    # As in `_character_ngrams`: for each n, from the space before the word on.
    counts = [
        length + 3 - n
        for length in pc.utf8_length(distinct.dictionary).to_pylist()
        for n in range(min(2, longest), min(longest, length + 2) + 1)
    ]
    offsets = runs(np.full(len(counts), -1), np.array(counts, dtype=np.int64))
    grams = runs((np.cumsum(sizes) - sizes)[ids], sizes[ids])
    starts, ends = np.repeat(starts, sizes[ids]), np.repeat(ends, sizes[ids])
    first = starts + offsets[grams]
    inner = np.clip(first, starts, ends - 1), np.clip(first + widths[grams], starts + 1, ends)
    return Pieces(features[grams], *inner, np.ones(len(grams)))


def _positions(strings: Any, known: Any) -> NDArray[np.int64]:
    """The position of each string in a vocabulary, or -1."""
    positions = pc.fill_null(pc.index_in(strings, value_set=known), -1)
    return np.asarray(positions.to_numpy(), dtype=np.int64)


def _on_vocabulary(block: Counts, known: Any) -> sp.csr_matrix:
    """The counts of the known strings, in vocabulary order."""
    strings, counts = block
    columns = _positions(strings, known)
    kept = columns >= 0
    selected = counts[:, kept].tocoo()
    pairs = (selected.data, (selected.row, columns[kept][selected.col]))
    return sp.csr_matrix(pairs, shape=(counts.shape[0], len(known)))
