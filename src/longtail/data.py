"""Documents with labels: `TextData`, reading and writing JSON Lines, and random splits.

Labels live in a sparse matrix; nothing here ever builds a dense row of them.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import scipy.sparse as sp

from longtail.errors import DataError, InputError
from longtail.labels import LabelStats, encode_labels

PARTS = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")


@dataclass(frozen=True)
class TextData:
    """Texts, their labels as a sparse documents x labels matrix, label names and ids."""

    texts: list[str]
    Y: sp.csr_matrix
    label_names: tuple[str, ...]
    ids: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        expected = (len(self.texts), len(self.label_names))
        if self.Y.shape != expected:
            raise InputError(
                f"expected a label matrix of shape {expected} for {expected[0]} texts and "
                f"{expected[1]} label names, got {self.Y.shape}."
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
        if self.ids is not None and len(self.ids) != len(self.texts):
            raise InputError(f"expected {len(self.texts)} ids, got {len(self.ids)}.")

    @classmethod
    def from_lists(
        cls,
        texts: Sequence[str],
        labels: Sequence[Sequence[str]],
        label_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
    ) -> TextData:
        """From texts and one list of label names per text."""
        matrix, names = encode_labels(labels, label_names)
        return cls(list(texts), matrix, names, None if ids is None else tuple(ids))

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, rows: Any) -> TextData:
        """The documents at these positions, with the same label set."""
        positions = np.asarray(rows)
        ids = None if self.ids is None else tuple(self.ids[k] for k in positions)
        texts = [self.texts[k] for k in positions]
        return TextData(texts, self.Y[positions], self.label_names, ids)

    def labels_of(self, row: int) -> list[str]:
        """The label names of one document."""
        start, stop = self.Y.indptr[row], self.Y.indptr[row + 1]
        return [self.label_names[k] for k in self.Y.indices[start:stop]]

    def onto(self, label_names: Sequence[str]) -> tuple[TextData, dict[str, int]]:
        """The same documents on another label set, and how often each label it lacks occurs."""
        index = {name: k for k, name in enumerate(label_names)}
        unknown: dict[str, int] = {}
        lists = []
        for row in range(len(self)):
            known = []
            for name in self.labels_of(row):
                if name in index:
                    known.append(name)
                else:
                    unknown[name] = unknown.get(name, 0) + 1
            lists.append(known)
        return TextData.from_lists(self.texts, lists, label_names, self.ids), unknown

    def stats(self) -> LabelStats:
        return LabelStats.from_matrix(self.Y, self.label_names)


def read_jsonl(
    path: str | Path, *, text_field: str = "text", labels_field: str = "labels"
) -> TextData:
    """Read one document per line: {"text": ..., "labels": [...], "id": ...}; .gz is unpacked."""
    texts: list[str] = []
    labels: list[list[str]] = []
    ids: list[str] = []
    for number, record in _records(Path(path)):
        where = f"{path}, line {number}"
        text, own = record.get(text_field), record.get(labels_field)
        if not isinstance(text, str) or not _encodable(text):
            raise DataError(
                f"{where}: expected a string in field {text_field!r}, got {text!r}. "
                f"The fields are: {', '.join(record) or 'none'}."
            )
        if not isinstance(own, list) or not all(isinstance(n, str) and _encodable(n) for n in own):
            raise DataError(
                f"{where}: expected a list of strings in field {labels_field!r}, got {own!r}."
            )
        texts.append(text)
        labels.append(own)
        ids.append(str(record.get("id", number)))
    if not texts:
        raise DataError(f"{path} holds no documents. Expected one JSON object per line.")
    return TextData.from_lists(texts, labels, ids=ids)


def write_jsonl(data: TextData, path: str | Path) -> None:
    """Write one document per line, gzipped if the name ends in .gz."""
    with _open(Path(path), "wt") as file:
        for row, text in enumerate(data.texts):
            identity = data.ids[row] if data.ids is not None else str(row)
            record = {"id": identity, "text": text, "labels": data.labels_of(row)}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def load_folder(path: str | Path, *, seed: int = 0) -> dict[str, TextData]:
    """Train, validation and test parts from a folder, or from one file that is split at random.

    Labels are those of the training part; a label that only other parts have is kept as a column
    with no training document, so that it counts in the evaluation.
    """
    root = Path(path)
    if root.is_file():
        whole = read_jsonl(root)
        train, rest = random_split(whole, 0.3, seed)
        validation, test = random_split(rest, 0.67, seed)
        return {"train": train, "validation": validation, "test": test}
    if not root.is_dir():
        raise DataError(
            f"{path} is neither a known corpus, a file nor a folder. Expected a corpus name, a "
            ".jsonl file, or a folder with train.jsonl and, if you have them, validation.jsonl "
            "and test.jsonl."
        )
    parts = {}
    for part, names in PARTS.items():
        found = [root / (n + s) for n in names for s in SUFFIXES if (root / (n + s)).is_file()]
        if found:
            parts[part] = read_jsonl(found[0])
    if "train" not in parts:
        raise DataError(
            f"no training part in {path}: expected train.jsonl or train.jsonl.gz, found "
            f"{', '.join(sorted(p.name for p in root.iterdir())) or 'an empty folder'}."
        )
    if "validation" not in parts:
        parts["train"], parts["validation"] = random_split(parts["train"], 0.1, seed)
    every = sorted({name for part in parts.values() for name in part.label_names})
    return {part: data.onto(every)[0] for part, data in parts.items()}


def random_split(data: TextData, fraction: float, seed: int = 0) -> tuple[TextData, TextData]:
    """Two parts, the second with about `fraction` of the documents and at least one."""
    if not 0 < fraction < 1:
        raise InputError(f"the fraction to split off must lie between 0 and 1, got {fraction}.")
    if len(data) < 2:
        raise DataError(f"cannot split {len(data)} document: at least two are needed.")
    order = np.random.default_rng(seed).permutation(len(data))
    n_second = min(len(data) - 1, max(1, round(len(data) * fraction)))
    return data.select(np.sort(order[n_second:])), data.select(np.sort(order[:n_second]))


def _encodable(text: str) -> bool:
    """JSON may hold half of a surrogate pair, which no file can."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _open(path: Path, mode: str) -> IO[str]:
    if path.suffix == ".gz":
        return cast(IO[str], gzip.open(path, mode, encoding="utf-8"))
    return cast(IO[str], path.open(mode, encoding="utf-8"))


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not path.is_file():
        raise DataError(f"no such file: {path}.")
    number = 0
    try:
        with _open(path, "rt") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise DataError(
                        f"{path}, line {number}: expected a JSON object, got {line[:60]!r}."
                    )
                yield number, record
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {number}: not valid JSON ({error}).") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, after line {number}: not valid UTF-8 ({error}).") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}, after line {number}: cannot be read ({error}).") from error
