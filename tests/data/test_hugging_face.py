"""Hugging Face datasets from a folder and by name, without downloads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from longtail.data import load_data, read_data
from longtail.errors import DataError, MissingExtraError

from .cases import labels_of, sizes, skip

datasets = pytest.importorskip("datasets")
NAMES = ["sport", "never", "art"]


def many_classes() -> Any:
    """A list of classes per row; the type is called List since version 4."""
    kind = getattr(datasets, "List", datasets.Sequence)
    return kind(datasets.ClassLabel(names=NAMES))


def table(labels: list[Any], feature: Any = None, **columns: Any) -> Any:
    rows = {"text": [f"text {k}" for k in range(len(labels))], "labels": labels} | columns
    dataset = datasets.Dataset.from_dict(rows)
    return dataset if feature is None else dataset.cast_column("labels", feature)


@pytest.fixture(autouse=True)
def quiet() -> Any:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


@pytest.mark.parametrize("as_list", [False, True])
def test_classes_become_their_names(tmp_path: Path, as_list: bool) -> None:
    numbers: list[Any] = [[0], [0, 2], []] if as_list else [0, 2, 2]
    feature = many_classes() if as_list else datasets.ClassLabel(names=NAMES)
    table(numbers, feature, id=["a", "b", "c"]).save_to_disk(tmp_path / "saved")
    data = read_data(tmp_path / "saved", keep_unlabelled=True)
    expected = [["sport"], ["sport", "art"], []] if as_list else [["sport"], ["art"], ["art"]]
    assert labels_of(data) == expected and data.ids == ("a", "b", "c")
    # Label names are the classes of the dataset, in its order.
    assert data.label_names == tuple(NAMES)


@pytest.mark.parametrize("missing", [None, -1, 3])
def test_a_class_that_is_none(tmp_path: Path, missing: int | None) -> None:
    # -1 is how datasets mark rows without a label; names[-1] would be the last class.
    rows = table([0, 2, 1], datasets.ClassLabel(names=NAMES))
    column = rows.data.table.schema.get_field_index("labels")
    changed = rows.data.table.set_column(column, "labels", pa.array([0, missing, 1], pa.int64()))
    datasets.Dataset(changed, rows.info).save_to_disk(tmp_path / "saved")
    with pytest.raises(DataError, match=rf"row 2: expected classes from 0 to 2, got {missing}"):
        read_data(tmp_path / "saved")
    data, report = skip(tmp_path / "saved")
    assert labels_of(data) == [["sport"], ["never"]] and report.skipped == 1


def test_labels_as_strings_and_in_columns(tmp_path: Path) -> None:
    table([["b"], ["a", "b"]]).save_to_disk(tmp_path / "lists")
    assert read_data(tmp_path / "lists").label_names == ("a", "b")
    table(["b", "a;b"]).save_to_disk(tmp_path / "strings")
    data = read_data(tmp_path / "strings", label_separator=";")
    assert labels_of(data) == [["b"], ["a", "b"]]
    columns = datasets.Dataset.from_dict({"text": ["x", "y"], "z": [1, 0], "a": [True, False]})
    columns.save_to_disk(tmp_path / "columns")
    data = read_data(tmp_path / "columns", label_columns="*", keep_unlabelled=True)
    assert data.label_names == ("z", "a") and labels_of(data) == [["z", "a"], []]
    with pytest.raises(
        DataError, match=r"expected a column 'labels'\. The columns are: 'text', 'z'"
    ):
        read_data(tmp_path / "columns")
    table([[1], [2]]).save_to_disk(tmp_path / "numbers")
    with pytest.raises(DataError, match="row 1: expected a list of strings"):
        read_data(tmp_path / "numbers")


@pytest.mark.parametrize("validation", [None, "validation", "valid", "val", "dev"])
def test_splits_are_parts(tmp_path: Path, validation: str | None) -> None:
    splits = {"test": table([["a"]] * 2), "train": table([["b"]] * 10)}
    if validation:
        splits[validation] = table([["c"]] * 3)
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    parts = load_data(tmp_path / "saved")
    n_train, n_validation = (10, 3) if validation else (9, 1)
    assert sizes(parts) == {"train": n_train, "validation": n_validation, "test": 2}
    assert parts["test"].Y.sum() == 2 and set(parts["test"].label_names) >= {"a", "b"}
    assert len(read_data(tmp_path / "saved")) == 12 + 3 * bool(validation)


def test_split_names_in_messages(tmp_path: Path) -> None:
    rows = {"train": table([["a"], ["a"]]), "test": table([["a"], []])}
    datasets.DatasetDict(rows).save_to_disk(tmp_path / "saved")
    with pytest.raises(DataError, match=r"saved, test 2: the document has no labels"):
        read_data(tmp_path / "saved")
    datasets.DatasetDict(rows | {"more": table([["a"]])}).save_to_disk(tmp_path / "other")
    with pytest.raises(DataError, match="the split 'more' is none of train, validation"):
        load_data(tmp_path / "other", keep_unlabelled=True)


def test_by_name_without_a_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for name in ("hf:nobody/nothing", "hf:nobody/nothing:config"):
        for read in (read_data, load_data):
            with pytest.raises(
                DataError, match=r"hf:nobody/nothing.* cannot be loaded.*save_to_disk"
            ):
                read(name)


def test_by_name_from_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "lines"
    folder.mkdir()
    lines = [json.dumps({"text": f"text {k}", "labels": ["a"]}) for k in range(5)]
    (folder / "train.jsonl").write_text("\n".join(lines))
    data = read_data(f"hf:{folder}")
    assert len(data) == 5 and data.label_names == ("a",)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dataset_info.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    for source in (tmp_path, "hf:owner/name"):
        with pytest.raises(MissingExtraError, match=r"pip install 'longtail\[hf\]'"):
            read_data(source)


@pytest.mark.parametrize("file", ["dataset_dict.json", "dataset_info.json"])
@pytest.mark.parametrize("content", ["", '{"splits": ["train"]}', "nonsense"])
def test_a_damaged_folder(tmp_path: Path, file: str, content: str) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match=r"cannot be loaded|holds no documents"):
        read_data(tmp_path)
