"""Convert texts and labels from lists, numpy, pandas or scipy to a TextData.

Ambiguous input raises an error that says what to write instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.checks import has_surrogate, replace_surrogates
from longtail.data import TextData, split
from longtail.errors import InputError, shown, warn
from longtail.metrics.inputs import known_labels


def as_text_data(
    texts: Any,
    labels: Any = None,
    label_names: Sequence[str] | None = None,
    sample_weight: Any = None,
    note: Callable[[str], None] = warn,
) -> TextData:
    """Training documents as TextData, without those of weight 0 or without any known label.

    Raises unless there are at least two documents, and a label.
    """
    data = _read(texts, labels, label_names)[0]
    if sample_weight is not None:
        if data.weights is not None:
            raise InputError("got sample_weight and a TextData with weights. Pass one of them.")
        data = dataclasses.replace(data, weights=sample_weight)
    data, given = data.trainable(), data
    if given.unknown is not None and len(data) < len(given):
        n_left_out = len(given) - len(data)
        were, their = ("was", "its") if n_left_out == 1 else ("were", "their")
        note(
            f"{n_left_out:,} of {len(given):,} documents {were} left out: none of {their} labels "
            f"is known, or {their} weight is 0."
        )
    if len(data) < 2:
        raise InputError(
            f"expected at least two documents, one to train on and one to choose the thresholds "
            f"on, got {len(data) or 'none'}."
        )
    if not data.label_names:
        raise InputError("expected at least one label, got none: no document has a label.")
    if not data.Y.nnz:
        raise InputError(f"expected documents with labels, got {len(data)} without any.")
    return data


def on_classes(texts: Any, labels: Any, classes: Sequence[str]) -> tuple[TextData, dict[str, int]]:
    """Documents on the labels of a fitted classifier, and the counts of labels it does not know.

    The columns of a matrix without names must be the classes.
    """
    data, is_named = _read(texts, labels)
    if is_named:
        return data.onto(classes)
    if len(data.label_names) != len(classes):
        raise InputError(
            f"expected one column for each of the {len(classes)} labels of the classifier, got "
            f"{len(data.label_names)}."
        )
    return dataclasses.replace(data, label_names=tuple(classes)), {}


def check_evaluable(known: TextData, unknown: Mapping[str, int]) -> None:
    """Raise if no document has a label that the classifier knows: all scores would be 0."""
    if known.Y.nnz:
        return
    if not unknown:
        raise InputError(
            f"there is nothing to evaluate: none of {len(known)} documents has a label. For a "
            "file, check that labels_field (--labels-field) names the field with the labels."
        )
    theirs, ours = (
        ", ".join(shown(name, 60) for name in [*names][:3])
        for names in (unknown, known.label_names)
    )
    raise InputError(
        f"there is nothing to evaluate: the model knows none of the labels of these {len(known)} "
        f"documents. They have {theirs}; it knows {ours}. Check the spelling of the labels and, "
        "for a file, its labels field and their separator (--labels-field, --label-separator)."
    )


def _read(
    texts: Any, labels: Any, label_names: Sequence[str] | None = None
) -> tuple[TextData, bool]:
    """The documents, and whether their labels have names."""
    is_named = True
    if label_names is not None and (labels is None or hasattr(labels, "columns")):
        raise InputError(
            "label_names is for matrices without column names and for lists, not for a TextData "
            "or a DataFrame. Leave label_names out."
        )
    if isinstance(texts, TextData):
        if labels is not None:
            raise InputError(
                "got a TextData, which includes labels, and labels. Pass one of them: fit(data) "
                "or fit(data.texts, labels)."
            )
        checked, data = check_texts(texts), texts
        if any(a is not b for a, b in zip(checked, texts.texts, strict=True)):
            data = dataclasses.replace(texts, texts=checked)
    elif labels is None:
        raise InputError("labels are missing: pass one list of label names per text.")
    elif isinstance(labels, TextData):
        raise InputError("labels must be lists or a matrix, got a TextData: pass it alone.")
    elif hasattr(labels, "columns") and hasattr(labels, "to_numpy"):
        names = [str(name) for name in labels.columns]
        data = _from_matrix(check_texts(texts), _frame_values(labels), names)
    elif sp.issparse(labels) or (isinstance(labels, np.ndarray) and not _holds_names(labels)):
        is_named = label_names is not None
        data = _from_matrix(check_texts(texts), labels, label_names)
    else:
        data = _from_lists(check_texts(texts), labels, label_names)
    for name in data.label_names:
        if has_surrogate(name):
            raise InputError(
                f"the label name {name!r} holds half of a surrogate pair, which UTF-8 cannot "
                "encode. Read the labels with the encoding that they were written in."
            )
    return data, is_named


def check_texts(texts: Any) -> list[str]:
    """The texts as a list of strings; raises an error that names the first that is not."""
    if isinstance(texts, TextData):
        texts = texts.texts
    if isinstance(texts, (str, bytes)):
        raise InputError("expected a list of texts, got one string. Write [text].")
    if isinstance(texts, (Mapping, Set)) or not isinstance(texts, Iterable):
        raise InputError(f"expected a list of texts, got {type(texts).__name__}.")
    shape = getattr(texts, "shape", None)
    if shape is not None and len(shape) != 1:
        raise InputError(
            f"expected one text per document, got {type(texts).__name__} of shape "
            f"{tuple(shape)}. Pass one column, such as frame['text'] or array[:, 0]."
        )
    strings = list(texts)
    for position, text in enumerate(strings):
        if not isinstance(text, str):
            raise InputError(
                f"text {position} must be a string, got {text!r} ({type(text).__name__}). "
                "Write '' for a document without text."
            )
        if type(text) is not str or has_surrogate(text):
            strings[position] = replace_surrogates(str(text))
    return strings


def _holds_names(labels: Any) -> bool:
    """Whether an array holds label names, or lists of them, rather than indicators."""
    if labels.dtype.kind in "biufc":
        return False
    first = labels.flat[0] if labels.size else None
    return isinstance(first, str) or not isinstance(first, (bool, int, float, np.generic))


def _from_matrix(texts: list[str], matrix: Any, names: Sequence[str] | None = None) -> TextData:
    if matrix.ndim == 1:
        raise InputError(
            "expected one list of labels per text, or a matrix with one column per label, got one "
            "number per text. For one label per text write [[str(label)] for label in labels]."
        )
    checked, unknown = known_labels(matrix)
    _check_rows(texts, checked.shape[0], "rows")
    if names is None:
        names = [str(column) for column in range(checked.shape[1])]
    Y = sp.csr_matrix(checked, dtype=np.float32)
    return TextData(texts, Y, tuple(names), unknown=unknown)


def _check_rows(texts: list[str], n_rows: int, kind: str) -> None:
    if n_rows != len(texts):
        raise InputError(
            f"expected the labels of each text, got {len(texts)} texts and {n_rows} {kind} of "
            "labels."
        )


def _frame_values(frame: Any) -> Any:
    """The values of a DataFrame as numbers; a sparse one stays sparse."""
    if not hasattr(frame, "isna"):  # polars, for example
        return frame.to_numpy()
    if not {getattr(kind, "kind", "O") for kind in frame.dtypes} <= set("biuf"):
        raise InputError(
            "expected a DataFrame with one column of 0 and 1 per label, got columns of other types "
            f"({', '.join(sorted({str(kind) for kind in frame.dtypes}))}). For a column that holds "
            "lists of label names pass that column, frame['labels']."
        )
    if all(hasattr(kind, "fill_value") for kind in frame.dtypes) and len(frame.columns):
        return frame.sparse.to_coo()
    return frame.to_numpy(dtype=np.float64, na_value=np.nan)


def _from_lists(texts: list[str], labels: Any, label_names: Sequence[str] | None) -> TextData:
    if isinstance(labels, (str, bytes, Mapping, Set)) or not isinstance(labels, Iterable):
        raise InputError(
            f"expected one list of labels per text, got {type(labels).__name__}. Write "
            "[['copper', 'nickel'], ['wheat']], for example."
        )
    lists = list(labels)
    _check_rows(texts, len(lists), "lists")
    named = [_names(k, names) for k, names in enumerate(lists)]
    return TextData.from_lists(texts, named, label_names)


def _names(row: int, labels: Any) -> list[str] | None:
    """The label names of one document; None or NaN: they are unknown."""
    if labels is None or (isinstance(labels, float) and labels != labels):
        return None
    if isinstance(labels, Mapping):
        raise InputError(
            f"document {row}: expected a list of labels, got a dict. List the labels that apply: "
            "[name for name, applies in labels.items() if applies]."
        )
    if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable):
        value = shown(labels)
        mark = next((mark for mark in ";|,\t" if isinstance(labels, str) and mark in labels), None)
        write = f"[{value}]" if mark is None else f"{value}.split({mark!r}) if these are several"
        raise InputError(f"document {row}: expected a list of labels, got {value}. Write {write}.")
    names = []
    for name in labels:
        if not isinstance(name, str):
            raise InputError(
                f"document {row}: a label must be a string, got {name!r} "
                f"({type(name).__name__}). Convert labels with str(); a matrix of 0 and 1 must be "
                "a numpy array, a scipy matrix or a DataFrame."
            )
        names.append(str(name))
    return names


def with_validation(
    data: TextData,
    validation: TextData | None,
    params: Mapping[str, Any],
    folds: int,
    note: Callable[[str], None],
) -> tuple[TextData, TextData | None]:
    """The training and the validation part; with one fold, split off if none is given."""
    if validation is not None:
        return data, validation_part(validation, data, note)
    if folds > 1:
        return data, None
    share = float(params["validation_fraction"])
    train, held_out = split(data, (1 - share, share), random_state=params["random_state"])
    return train, held_out


def validation_part(value: Any, data: TextData, note: Callable[[str], None]) -> TextData:
    """The validation part, restricted to the labels of the training part."""
    if not isinstance(value, TextData):
        raise InputError(
            f"validation must be a TextData, got {type(value).__name__}. Make it with "
            "TextData.from_lists(texts, labels)."
        )
    held, unknown = on_classes(value.trainable(), None, data.label_names)
    if not len(held):
        raise InputError("the validation part has no documents. Leave it out, or add some.")
    if unknown:
        first = ", ".join(map(repr, list(unknown)[:3]))
        note(
            f"{len(unknown)} labels of the validation part are not in the training part and are "
            f"left out: {first}{', ...' if len(unknown) > 3 else ''}."
        )
    return held
