"""Documents with labels: `TextData`, which all of longtail takes and returns.

Labels are in a sparse matrix; nothing here builds a dense row of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import scipy.sparse as sp

from longtail.data.documents import Document
from longtail.errors import InputError
from longtail.labels import LabelStats, check_unique, encode_labels


@dataclass(frozen=True, eq=False)
class TextData:
    """Texts, their labels as a sparse documents x labels matrix, label names, ids and dates.

    `data[3]` is one document; `data[10:20]`, `data[rows]` and `data[mask]` are TextData again, on
    the same labels.
    """

    texts: list[str]
    Y: sp.csr_matrix
    label_names: tuple[str, ...]
    ids: tuple[str, ...] | None = None
    dates: tuple[str, ...] | None = None
    """ISO 8601 as far as known (`1987`, `1987-02-26`), so that later ones sort later."""

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
                f"{matrix.data.min():g} to {matrix.data.max():g}. Cut soft labels at a threshold; "
                "the losses themselves take them."
            )
        object.__setattr__(self, "Y", matrix)
        for name in ("ids", "dates"):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, _strings(name, values, tuple))
                if len(values) != len(self.texts):
                    raise InputError(f"expected {len(self.texts)} {name}, got {len(values)}.")

    @classmethod
    def from_lists(
        cls,
        texts: Sequence[str],
        labels: Iterable[Iterable[str]],
        label_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        dates: Sequence[str] | None = None,
    ) -> TextData:
        """From texts and one list of label names per text."""
        matrix, names = encode_labels(labels, label_names)
        return cls(list(texts), matrix, names, ids, dates)  # type: ignore[arg-type]

    @classmethod
    def concat(cls, parts: Iterable[TextData]) -> TextData:
        """All documents of several parts, on the union of their labels.

        Ids and dates are kept where every part has them.
        """
        parts = list(parts)
        if not parts:
            raise InputError("nothing to concatenate: expected at least one TextData.")
        names = label_union(parts)

        def joined(field: str) -> tuple[str, ...] | None:
            values = [getattr(part, field) for part in parts]
            return None if None in values else tuple(v for part in values for v in part)

        texts = [text for part in parts for text in part.texts]
        matrix = sp.vstack([part.onto(names)[0].Y for part in parts], format="csr")
        return cls(texts, matrix, names, joined("ids"), joined("dates"))

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, rows: int) -> Document: ...

    @overload
    def __getitem__(self, rows: Any) -> TextData: ...

    def __getitem__(self, rows: Any) -> Document | TextData:
        if isinstance(rows, (int, np.integer)):
            row = range(len(self))[rows]
            identity = None if self.ids is None else self.ids[row]
            date = None if self.dates is None else self.dates[row]
            return Document(self.texts[row], self.labels_of(row), identity, date)
        if isinstance(rows, slice):
            rows = np.arange(len(self))[rows]
        return self.select(rows)

    def __iter__(self) -> Iterator[Document]:
        return (self[row] for row in range(len(self)))

    def select(self, rows: Any) -> TextData:
        """The documents at these positions, or where a mask is true, with the same label set."""
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
        return TextData(texts, self.Y[positions], self.label_names, ids, dates)  # type: ignore[arg-type]

    def labels_of(self, row: int) -> list[str]:
        """The label names of one document."""
        row = range(len(self))[row]
        start, stop = self.Y.indptr[row], self.Y.indptr[row + 1]
        return [self.label_names[k] for k in self.Y.indices[start:stop]]

    def onto(self, label_names: Sequence[str]) -> tuple[TextData, dict[str, int]]:
        """The same documents on another label set, and the counts of the labels it lacks."""
        names = tuple(label_names)
        if names == self.label_names:
            return self, {}
        check_unique(names)
        column_of = {name: column for column, name in enumerate(names)}
        pairs = [(k, column_of[n]) for k, n in enumerate(self.label_names) if n in column_of]
        old, new = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        shape = (len(self.label_names), len(names))
        columns = sp.csr_matrix((np.ones(len(old), self.Y.dtype), (old, new)), shape=shape)
        counts = np.bincount(self.Y.indices, minlength=len(self.label_names)).tolist()
        named = zip(self.label_names, counts, strict=True)
        unknown = {name: n for name, n in named if n and name not in column_of}
        return TextData(self.texts, self.Y @ columns, names, self.ids, self.dates), unknown

    def stats(self) -> LabelStats:
        return LabelStats.from_matrix(self.Y, self.label_names)

    def fingerprint(self) -> str:
        """A digest of texts, labels and label names in their order."""
        digest = hashlib.sha256()
        for text in (*self.label_names, *self.texts):
            raw = text.encode("utf-8", "surrogatepass")
            digest.update(len(raw).to_bytes(8, "little") + raw)
        for array in (self.Y.indptr, self.Y.indices):
            digest.update(array.astype("<i8").tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write a Parquet file, from which `load` restores everything, empty labels included."""
        from longtail.data.arrow import write_parquet

        write_parquet(self, path)

    @classmethod
    def load(cls, path: str | Path) -> TextData:
        """Read a file that `save` wrote, or any other Parquet file with texts and labels."""
        from longtail.data.collect import collect, our_errors
        from longtail.data.documents import ReadOptions, ReadReport
        from longtail.data.sources import resolve

        options, report = ReadOptions(keep_unlabelled=True), ReadReport()
        with our_errors(path):
            return collect(resolve(path, "parquet", report), options, report, exact=True)[0]


def label_union(parts: Iterable[TextData]) -> tuple[str, ...]:
    """The labels of all parts: in their order if all have the same, else sorted."""
    names, *others = dict.fromkeys(part.label_names for part in parts)
    return tuple(sorted({*names}.union(*others))) if others else names


def _strings(name: str, values: Any, kind: type[list[str]] | type[tuple[str, ...]]) -> Any:
    """The values as a list or tuple; raises unless all are strings."""
    # A set of types, because a loop over a million texts is slow in every slice.
    wrong = [type_ for type_ in set(map(type, values)) if not issubclass(type_, str)]
    if wrong or isinstance(values, str):
        got = wrong[0].__name__ if wrong else "one string"
        raise InputError(f"{name} must be strings, one per item, got {got}.")
    return values if isinstance(values, kind) else kind(values)
