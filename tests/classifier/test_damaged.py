"""Folders that are damaged, incomplete, of another version or of another kind: one clear word."""

from __future__ import annotations

import json
from collections.abc import Callable
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


def test_a_later_format_asks_for_an_upgrade(copied: Path) -> None:
    change(copied, lambda config: config.update(format=FORMAT + 1, longtail_version="9.1"))
    expected = (
        rf"written by longtail 9\.1, format {FORMAT + 1}; this is longtail "
        rf"{longtail.__version__}.*pip install --upgrade longtail"
    )
    with pytest.raises(DataError, match=expected):
        LongTailClassifier.from_pretrained(copied)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c["arguments"].update(colour=1), "with the argument colour, which longtail"),
        (lambda c: c["plans"][0].update(colour=1), "with the setting colour, which longtail"),
        (lambda c: c["plans"][0]["training"].update(colour=1), "with the setting colour"),
        (lambda c: c["plans"][0]["model_settings"].update(colour=1), r"(?s)refuses: .*colour"),
        (lambda c: c["plans"][0].update(model="tree"), "refuses: unknown model 'tree'"),
        (lambda c: c["plans"][0].update(loss="dbx"), "refuses: unknown loss 'dbx'"),
        (lambda c: c["plans"][0]["training"].update(clip=-1), "refuses: clip must be"),
    ],
)
def test_what_another_version_had(
    edit: Callable[[dict[str, Any]], object], message: str, copied: Path
) -> None:
    change(copied, lambda config: config.update(longtail_version="0.9.7"))
    change(copied, edit)
    with pytest.raises(DataError, match=message) as raised:
        LongTailClassifier.from_pretrained(copied)
    assert "pip install longtail==0.9.7" in str(raised.value)


def test_every_missing_or_cut_file_is_named(copied: Path) -> None:
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
    with pytest.raises(DataError, match=rf"{name} was damaged or changed.*Copy it again"):
        LongTailClassifier.from_pretrained(copied)


def test_an_edited_card_is_no_damage(copied: Path) -> None:
    (copied / "README.md").write_text("mine")
    assert LongTailClassifier.from_pretrained(copied).classes_.tolist() == NAMES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "3",
        '"x"',
        "{}",
        '{"format": "1"}',
        '{"format": true}',
        '{"format": 0}',
        "\x00",
        "[",
    ],
)
def test_what_is_no_configuration(text: str, copied: Path) -> None:
    (copied / CONFIG_FILE).write_text(text)
    with pytest.raises(DataError, match=CONFIG_FILE):
        LongTailClassifier.from_pretrained(copied)


def test_a_configuration_that_is_no_text(copied: Path) -> None:
    (copied / CONFIG_FILE).write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match="cannot be read"):
        LongTailClassifier.from_pretrained(copied)
    (copied / CONFIG_FILE).write_text("[" * 100_000)
    with pytest.raises(DataError, match="cannot be read"):
        LongTailClassifier.from_pretrained(copied)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not exist. Train one"):
        LongTailClassifier.from_pretrained(tmp_path / "nowhere")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value of a JSON document."""
    found = [path] if path else []
    if isinstance(value, dict):
        found += [way for key, item in value.items() for way in places(item, (*path, key))]
    if isinstance(value, list):
        found += [way for key, item in enumerate(value) for way in places(item, (*path, key))]
    return found


ODD = st.sampled_from([None, True, -1, 0, 1, 2, 10**12, 0.5, "", "x", [], [0], {}, {"a": 1}])


@settings(max_examples=80)
@given(st.data(), ODD)
def test_a_wrong_value_is_either_harmless_or_explained(
    saved: Path, data: st.DataObject, odd: Any
) -> None:
    """No value in longtail.json makes loading fail in a way that is not ours, or hang."""
    good = json.loads((saved / CONFIG_FILE).read_text("utf-8"))
    before = (saved / CONFIG_FILE).read_bytes()
    *way, last = data.draw(st.sampled_from(places(good)))
    target = good
    for key in way:
        target = target[key]
    target[last] = odd
    try:
        # With the right checksum: what is attacked is what comes after it.
        (saved / CONFIG_FILE).write_text(json.dumps(seal(good) if "checksum" in good else good))
        loaded = LongTailClassifier.from_pretrained(saved)
    except LongtailError:
        pass
    else:
        assert loaded.predict(TEXTS[:2]).shape == (2, len(loaded.classes_))
    finally:
        (saved / CONFIG_FILE).write_bytes(before)
