"""Folders that are damaged, incomplete, of another version or not of longtail: a clear error."""

from __future__ import annotations

import json
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longtail
from longtail import LongTailClassifier
from longtail.classifier.saving import FORMAT
from longtail.errors import DataError, LongtailError
from longtail.runs import CONFIG_FILE, seal

from .cases import NAMES, TEXTS, change


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (FORMAT + 1, rf"; this is longtail {longtail.__version__}.*install --upgrade longtail"),
        (3, rf", which longtail {longtail.__version__} no longer reads. Train it again.*==9\.1"),
        (1, ".* no longer reads"),
    ],
)
def test_other_formats(number: int, message: str, copied: Path) -> None:
    change(copied, lambda config: config.update(format=number, longtail_version="9.1"))
    with pytest.raises(DataError, match=rf"written by longtail 9\.1, format {number}{message}"):
        LongTailClassifier.from_pretrained(copied)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("plans", 0, "model", "colour"), 1, "unknown setting of the model encoder 'colour'"),
        (("plans", 0, "model", "kind"), "tree", "unknown model 'tree'"),
        (("plans", 0, "model", "pooling"), "max", "pooling must be"),
        (("plans", 0, "loss"), "dbx", "unknown loss 'dbx'"),
        (("plans", 0, "training", "max_grad_norm"), -1, "max_grad_norm must be"),
        (("plans", 0, "training", "colour"), 1, "unknown setting of Training 'colour'"),
        (("plans", 0, "colour"), 1, "unknown setting 'colour'"),
        (("arguments", "colour"), 1, "unknown parameter 'colour'"),
    ],
)
def test_settings_of_another_version(
    keys: tuple[Any, ...], value: Any, message: str, copied: Path
) -> None:
    change(copied, lambda config: reduce(getitem, keys[:-1], config).update({keys[-1]: value}))
    change(copied, lambda config: config.update(longtail_version="0.9.7"))
    expected = rf"refuses: {message}(?s:.*)Install the version that.*pip install longtail==0\.9\.7"
    with pytest.raises(DataError, match=expected):
        LongTailClassifier.from_pretrained(copied)


def test_every_missing_or_truncated_file_is_named(copied: Path) -> None:
    for path in sorted(copied.iterdir()):
        content = path.read_bytes()
        for damaged in (None, content[: len(content) // 2], b""):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            if path.name == "README.md":
                assert LongTailClassifier.from_pretrained(copied).classes_.tolist() == NAMES
            else:
                with pytest.raises(DataError, match=path.name):
                    LongTailClassifier.from_pretrained(copied)
            path.write_bytes(content)
    assert LongTailClassifier.from_pretrained(copied).classes_.tolist() == NAMES


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_damage_that_keeps_the_length(name: str, copied: Path) -> None:
    path = copied / name
    path.write_bytes(b"{" * path.stat().st_size)
    with pytest.raises(DataError, match=rf"{name} was damaged or changed.*Copy the model again"):
        LongTailClassifier.from_pretrained(copied)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"null", b"[]", b'"x"', b"{}", b"\x00", b"[", b"\xff\xfe\xff", b"[" * 100_000),
        *(b'{"format": "1"}', b'{"format": true}', b'{"format": 0}'),
    ],
)
def test_invalid_configurations(content: bytes, copied: Path) -> None:
    (copied / CONFIG_FILE).write_bytes(content)
    with pytest.raises(DataError, match=CONFIG_FILE):
        LongTailClassifier.from_pretrained(copied)


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not exist. Train one"):
        LongTailClassifier.from_pretrained(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["merges.txt", "Tokenizer.model", "modeling.py", "config.JSON"])
def test_files_that_transformers_would_read_are_refused(name: str, copied: Path) -> None:
    (copied / "notes.md").write_text("mine")
    assert LongTailClassifier.from_pretrained(copied).classes_.tolist() == NAMES
    (copied / name).write_text("{}")
    with pytest.raises(DataError, match=f"{name} is not part of the model.*Move it out"):
        LongTailClassifier.from_pretrained(copied)


def test_links_and_files_outside_of_the_folder_are_refused(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes((copied / "model.safetensors").read_bytes())
    (copied / "model.safetensors").unlink()
    (copied / "model.safetensors").symlink_to(tmp_path / "weights")
    with pytest.raises(DataError, match=r"model.safetensors cannot be read"):
        LongTailClassifier.from_pretrained(copied)
    for name in ("../weights", "/weights", "a//b", "./config.json"):
        change(copied, lambda config, name=name: config.update(files={name: {}}))  # type: ignore[misc]
        with pytest.raises(DataError, match="a file outside of the folder"):
            LongTailClassifier.from_pretrained(copied)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of keys to every value of a JSON document."""
    items: Any = ()
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
    return [path] * bool(path) + [p for key, item in items for p in paths(item, (*path, key))]


ODD = st.sampled_from([None, True, -1, 0, 1, 2, 10**12, 0.5, "", "x", [], [0], {}, {"a": 1}])


@settings(max_examples=80)
@given(st.data(), ODD)
def test_a_wrong_value_is_either_harmless_or_explained(
    saved: Path, data: st.DataObject, odd: Any
) -> None:
    """No value in longtail.json makes loading fail with another error, or hang."""
    good = json.loads((saved / CONFIG_FILE).read_text("utf-8"))
    before = (saved / CONFIG_FILE).read_bytes()
    *keys, last = data.draw(st.sampled_from(paths(good)))
    reduce(getitem, keys, good)[last] = odd
    try:
        # With the right checksum, so that later checks are tested.
        (saved / CONFIG_FILE).write_text(json.dumps(seal(good) if "checksum" in good else good))
        loaded = LongTailClassifier.from_pretrained(saved)
    except LongtailError:
        pass
    else:
        assert loaded.predict(TEXTS[:2]).shape == (2, len(loaded.classes_))
    finally:
        (saved / CONFIG_FILE).write_bytes(before)
