"""`TextData`: documents with labels in a sparse matrix; nothing here builds a dense row."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data.documents import SAVED_FIELDS, Document
from longtail.errors import InputError, shown
from longtail.labels import LabelStats, check_unique, encode_labels


@dataclass(frozen=True, eq=False, repr=False)
class TextData:
    """Texts with their labels as a sparse documents x labels matrix.

    `data[3]` is one document; `data[10:20]`, `data[rows]` and `data[mask]` are TextData with the
    same label names.
    """

    texts: list[str]
    Y: sp.csr_matrix
    label_names: tuple[str, ...]
    ids: tuple[str, ...] | None = None
    dates: tuple[str, ...] | None = None
    """ISO 8601 as far as known (`1987`, `1987-02-26`); dates sort as strings."""
    unknown: sp.csr_matrix | None = None
    """Documents x labels, non-zero where it is unknown whether the label applies: such pairs are
    neither trained on nor evaluated. A label that applies is known. None: all are known."""
    weights: NDArray[np.float64] | None = None
    """Weight of each document in training; None: 1."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", _strings("texts", self.texts, list))
        object.__setattr__(self, "label_names", check_unique(self.label_names))
        expected = (len(self.texts), len(self.label_names))
        shape = getattr(self.Y, "shape", None)
        if shape != expected:
            raise InputError(
                f"expected a label matrix of shape {expected} for {expected[0]} texts and "
                f"{expected[1]} label names, got {shape or type(self.Y).__name__}."
            )
        matrix = sp.csr_matrix(self.Y, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        if matrix.data.size and not (matrix.data == 1).all():
            raise InputError(
                "the label matrix of documents must hold 0 and 1, got values from "
                f"{matrix.data.min():g} to {matrix.data.max():g}. Cut soft labels at a threshold, "
                "or pass them to a loss directly."
            )
        object.__setattr__(self, "Y", matrix)
        for name in ("ids", "dates"):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, _strings(name, values, tuple))
                if len(values) != len(self.texts):
                    raise InputError(f"expected {len(self.texts)} {name}, got {len(values)}.")
        object.__setattr__(self, "unknown", _checked_unknown(self.unknown, matrix))
        if self.weights is not None:
            object.__setattr__(self, "weights", _checked_weights(self.weights, len(self.texts)))

    @classmethod
    def from_lists(
        cls,
        texts: Sequence[str],
        labels: Iterable[Iterable[str] | None],
        label_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        dates: Sequence[str] | None = None,
    ) -> TextData:
        """Build from texts and a list of label names per text; None if its labels are unknown."""
        lists = list(labels) if isinstance(labels, Iterable) else [labels]
        matrix, names = encode_labels([() if row is None else row for row in lists], label_names)
        unknown = unknown_pairs([() if row is None else None for row in lists], names)
        return cls(list(texts), matrix, names, ids, dates, unknown)  # type: ignore[arg-type]

    @classmethod
    def concat(cls, parts: Iterable[TextData]) -> TextData:
        """Concatenate several parts on the union of their labels.

        Ids and dates are kept if every part has them. A label missing from a part does not apply
        to its documents; missing weights are 1.
        """
        parts = list(parts)
        if not parts:
            raise InputError("nothing to concatenate: expected at least one TextData.")
        names = label_union(parts)

        def joined(field: str) -> tuple[str, ...] | None:
            values = [getattr(part, field) for part in parts]
            return None if None in values else tuple(v for part in values for v in part)

        texts = [text for part in parts for text in part.texts]
        aligned = [part.onto(names)[0] for part in parts]
        matrix = sp.vstack([part.Y for part in aligned], format="csr")
        unknown = sp.vstack(
            [sp.csr_matrix(p.Y.shape) if p.unknown is None else p.unknown for p in aligned], "csr"
        )
        weights = None
        if any(part.weights is not None for part in parts):
            weights = np.concatenate(
                [np.ones(len(p)) if p.weights is None else p.weights for p in parts]
            )
        return cls(texts, matrix, names, joined("ids"), joined("dates"), unknown, weights)

    @property
    def fields(self) -> list[str]:
        """The fields of these documents, in the order of columns in files."""
        optional = {
            "id": self.ids, "date": self.dates, "known": self.unknown, "weight": self.weights,
        }  # fmt: skip
        return [*(name for name, value in optional.items() if value is not None), "text", "labels"]

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        n_documents, n_labels = self.Y.shape
        mean = self.Y.nnz / max(1, n_documents)
        return (
            f"TextData({n_documents:,} documents, {n_labels:,} labels, "
            f"{mean:.1f} labels per document)"
        )

    @overload
    def __getitem__(self, rows: int) -> Document: ...

    @overload
    def __getitem__(self, rows: Any) -> TextData: ...

    def __getitem__(self, rows: Any) -> Document | TextData:
        if isinstance(rows, (int, np.integer)):
            row = range(len(self))[rows]
            identity = None if self.ids is None else self.ids[row]
            date = None if self.dates is None else self.dates[row]
            known = None
            if self.unknown is not None and self.unknown.indptr[row] < self.unknown.indptr[row + 1]:
                is_known = self.unknown[[row]].toarray().ravel() == 0
                known = [self.label_names[k] for k in np.flatnonzero(is_known)]
            weight = None if self.weights is None else float(self.weights[row])
            labels = self.labels_of(row)
            return Document(self.texts[row], labels, identity, date, known=known, weight=weight)
        if isinstance(rows, slice):
            rows = np.arange(len(self))[rows]
        return self.select(rows)

    def __iter__(self) -> Iterator[Document]:
        return (self[row] for row in range(len(self)))

    def select(self, rows: Any) -> TextData:
        """Return the documents at these positions, or where a mask is True."""
        positions = np.asarray(rows)
        if positions.size and positions.dtype.kind not in "biu":
            raise InputError(f"expected positions or a mask, got {positions.dtype} values.")
        if positions.dtype == bool:
            if positions.shape != (len(self),):
                raise InputError(f"expected a mask of {len(self)} values, got {positions.shape}.")
            positions = np.flatnonzero(positions)
        positions = positions.astype(np.int64, copy=False)
        texts, ids, dates = (
            None if values is None else [values[k] for k in positions]
            for values in (self.texts, self.ids, self.dates)
        )
        Y, unknown, weights = (
            None if values is None else values[positions]
            for values in (self.Y, self.unknown, self.weights)
        )
        return TextData(texts, Y, self.label_names, ids, dates, unknown, weights)  # type: ignore[arg-type]

    def labels_of(self, row: int) -> list[str]:
        """Return the label names of a document."""
        row = range(len(self))[row]
        start, stop = self.Y.indptr[row], self.Y.indptr[row + 1]
        return [self.label_names[k] for k in self.Y.indices[start:stop]]

    def onto(self, label_names: Sequence[str]) -> tuple[TextData, dict[str, int]]:
        """Return the documents on another label set, and the counts of the labels it lacks."""
        names = tuple(label_names)
        if names == self.label_names:
            return self, {}
        check_unique(names)
        column_of = {name: column for column, name in enumerate(names)}
        pairs = [(k, column_of[n]) for k, n in enumerate(self.label_names) if n in column_of]
        old, new = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        shape = (len(self.label_names), len(names))
        columns = sp.csr_matrix((np.ones(len(old), self.Y.dtype), (old, new)), shape=shape)
        unknown = None if self.unknown is None else self.unknown @ columns
        onto = dataclasses.replace(self, Y=self.Y @ columns, unknown=unknown, label_names=names)
        counts = np.bincount(self.Y.indices, minlength=len(self.label_names)).tolist()
        named = zip(self.label_names, counts, strict=True)
        return onto, {name: n for name, n in named if n and name not in column_of}

    @property
    def truth(self) -> sp.csr_matrix:
        """`Y` with NaN where a label is unknown, as metrics and `evaluate` take it."""
        return self.Y if self.unknown is None else self.Y + self.unknown.multiply(np.nan)

    def trainable(self) -> TextData:
        """Drop the documents that no loss sees: weight 0, or no known label."""
        kept = np.ones(len(self), dtype=np.bool_)
        if self.weights is not None:
            kept &= self.weights > 0
        if self.unknown is not None:
            kept &= np.diff(self.unknown.indptr) < len(self.label_names)
        return self if kept.all() else self.select(kept)

    def stats(self) -> LabelStats:
        """Return the counts of the labels that apply, over all documents, unweighted."""
        return LabelStats.from_matrix(self.Y, self.label_names)

    def fingerprint(self) -> str:
        """Return a digest of texts, labels, label names, their order, unknown pairs and weights."""
        digest = hashlib.sha256()
        for text in (*self.label_names, *self.texts):
            raw = text.encode("utf-8", "surrogatepass")
            digest.update(len(raw).to_bytes(8, "little") + raw)
        for matrix in (self.Y, self.unknown):
            if matrix is not None:
                digest.update(matrix.indptr.astype("<i8").tobytes())
                digest.update(matrix.indices.astype("<i8").tobytes())
        if self.weights is not None:
            digest.update(b"weights" + self.weights.astype("<f8").tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write a Parquet file from which `load` restores everything."""
        from longtail.data.formats import write_data

        write_data(self, path, "parquet")

    @classmethod
    def load(cls, path: str | Path) -> TextData:
        """Read a file written by `save`, or any Parquet file with texts and labels."""
        from longtail.data.collect import collect, our_errors
        from longtail.data.documents import ReadOptions, ReadReport
        from longtail.data.sources import resolve

        options, report = ReadOptions(**SAVED_FIELDS, keep_unlabelled=True), ReadReport()
        with our_errors(path):
            return collect(resolve(path, "parquet", report), options, report, exact=True)[0]


def label_union(parts: Iterable[TextData]) -> tuple[str, ...]:
    """Return the labels of all parts: in their order if all have the same, else sorted."""
    names, *others = dict.fromkeys(part.label_names for part in parts)
    return tuple(sorted({*names}.union(*others))) if others else names


def unknown_pairs(
    known: Sequence[Iterable[str] | None], label_names: Sequence[str]
) -> sp.csr_matrix | None:
    """Return the document-label pairs missing from `known`; None if every pair is known."""
    if all(names is None for names in known):
        return None
    column_of = {name: column for column, name in enumerate(label_names)}
    columns, sizes = [], np.zeros(len(known) + 1, dtype=np.int64)
    for row, names in enumerate(known):
        if names is not None:
            is_unknown = np.ones(len(label_names), dtype=np.bool_)
            is_unknown[[column_of[name] for name in names if name in column_of]] = False
            columns.append(np.flatnonzero(is_unknown).astype(np.int32))
            sizes[row + 1] = len(columns[-1])
    indices = np.concatenate(columns)
    pairs = np.ones(len(indices), np.bool_), indices, np.cumsum(sizes)
    return sp.csr_matrix(pairs, shape=(len(known), len(label_names)))


def _checked_unknown(unknown: Any, Y: sp.csr_matrix) -> sp.csr_matrix | None:
    """Return the unknown pairs, without labels that apply, as a Boolean matrix; None if empty."""
    if unknown is None:
        return None
    if getattr(unknown, "shape", None) != Y.shape:
        got = getattr(unknown, "shape", type(unknown).__name__)
        raise InputError(f"unknown must have the shape {Y.shape} of the labels, got {got}.")
    matrix = sp.csr_matrix(sp.csr_matrix(unknown, dtype=np.bool_) > Y.astype(np.bool_))
    matrix.sort_indices()
    return matrix if matrix.nnz else None


def _checked_weights(weights: Any, n_documents: int) -> NDArray[np.float64]:
    try:
        checked = np.array(weights, dtype=np.float64)
        if checked.shape == (n_documents,) and (np.isfinite(checked) & (checked >= 0)).all():
            return checked
    except (TypeError, ValueError):
        pass
    raise InputError(
        f"expected {n_documents} weights, one per document, finite and not negative, got "
        f"{np.size(weights)}: {shown(weights)}."
    )


def _strings(name: str, values: Any, kind: type[list[str]] | type[tuple[str, ...]]) -> Any:
    """Return the values as a list or tuple; raise unless all are strings."""
    # A set of types: a loop over a million texts would slow down every slice.
    wrong = [type_ for type_ in set(map(type, values)) if not issubclass(type_, str)]
    if wrong or isinstance(values, str):
        got = wrong[0].__name__ if wrong else "one string"
        raise InputError(f"{name} must be strings, one per item, got {got}.")
    return values if isinstance(values, kind) else kind(values)
