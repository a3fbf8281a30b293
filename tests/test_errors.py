"""Messages are bounded and printable whatever they quote, and errors travel between processes."""

from __future__ import annotations

import copy
import pickle
import time
import unicodedata
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import errors
from longtail.data.formats import get_format
from longtail.errors import (
    LIMIT,
    DataError,
    InputError,
    LongtailError,
    MissingExtraError,
    NotFittedError,
    UnknownNameError,
    printable,
)


class StoppedError(LongtailError):
    """As that of longtail.training: arguments of its own, and an attribute."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


ERRORS = [
    LongtailError("plain"),
    LongtailError(),
    InputError("an input"),
    DataError("a file"),
    NotFittedError("not yet"),
    UnknownNameError("loss", "bec", ["bce", "fl"]),
    MissingExtraError("the service", "fastapi", "serve"),
    MissingExtraError(purpose="the service", package="fastapi", extra="serve"),
    StoppedError("stopped by SIGINT.", 130),
]


# Of a terminal; marks of direction; separators of lines; a byte of a file name that is not UTF-8.
UNPRINTABLE = ["\x00", "\x1b", "\r", "\t", "\x08", "\x7f", "\x9b", "\x85", "\u202e", "\udcff"]


@pytest.mark.parametrize(
    "character", [*UNPRINTABLE, "\u061c", "\u200f", "\u2028", "\ufeff", "\ud83d", "\u2066"]
)
def test_what_a_terminal_obeys_is_shown_as_an_escape(character: str) -> None:
    escaped = character.encode("unicode_escape").decode()
    assert len(escaped) > 1 and printable(f"a{character}b") == f"a{escaped}b"
    for kind in (LongtailError, InputError, DataError, NotFittedError):
        assert str(kind(f"a{character}b")) == f"a{escaped}b"
    assert character not in str(UnknownNameError(f"x{character}", character, [f"k{character}"]))
    str(DataError(character)).encode("utf-8")


@pytest.mark.parametrize(
    "text", ["", "two\nlines\n", "R\u00e9sum\u00e9 \u4e2d\u6587 \U0001f600 \\x1b"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text and str(DataError(text)) == text


@pytest.mark.parametrize("character", ["a", "\n", "\x1b", "\U0001f600", "\ud800"])
def test_ten_megabytes_are_cut_at_once(character: str) -> None:
    text = "the beginning " + character * 10_000_000 + " what to do."
    began = time.perf_counter()
    error = DataError(text)
    assert time.perf_counter() - began < 1
    message = str(error)
    assert len(message) <= LIMIT and len(repr(error)) < 3 * LIMIT
    assert message.startswith("the beginning ") and message.endswith(" what to do.")
    assert " more characters) ... " in message
    assert len(pickle.dumps(error)) < 20 * LIMIT


def test_what_was_left_out_is_counted() -> None:
    cut = printable("a" * 500 + "b" * 500, 100)
    kept = cut.count("a", 0, cut.index(" ...")) + cut.count("b")
    assert 95 < len(cut) <= 100 and f"({1000 - kept} more characters)" in cut
    assert printable("a" * 100, 100) == "a" * 100
    assert printable("a" * 100, 0) == " ... (100 more characters) ... "


@given(st.text(st.characters(), max_size=60), st.integers(40, 80))
def test_never_longer_than_the_limit_and_always_printable(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert len(shown) <= limit
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c != "\n"]
    assert printable(shown, limit) == shown
    if shown != text:
        assert errors._UNPRINTABLE.search(text) or len(text) > limit


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("bec", ["fl", "bce"], "unknown loss 'bec'. Did you mean 'bce'? Known: bce, fl."),
        ("zzz", [], "unknown loss 'zzz'. Known: ."),
        ("bce" * 3_500_000, ["bce", "fl", "x" * 10_000_000], "Known: bce, fl, xxx"),
        ("label-99x", [f"label-{k}" for k in range(100_000)], "Did you mean 'label-9"),
        ("label-99x", [f"label-{k}" for k in range(100_000)], " more."),
    ],
    ids=["near", "none", "long", "near of many", "many"],
)
def test_an_unknown_name(name: str, known: list[str], expected: str) -> None:
    began = time.perf_counter()
    message = str(UnknownNameError("loss", name, known))
    assert time.perf_counter() - began < 2  # 0.1 s alone on a machine, 1.8 s with all compared
    assert len(message) < 2500 and message.startswith(f"unknown loss '{name[:9]}")
    assert expected in message


@pytest.mark.parametrize(
    "name",
    [None, 3.5, 10**6000, ["bce"] * 10**6, {"a": "b" * 10**6}, b"\x1b" * 10**6],
    ids=lambda name: type(name).__name__,
)
def test_an_unknown_name_of_any_kind(name: object) -> None:
    message = str(UnknownNameError("loss", name, ["bce"]))
    assert message.startswith("unknown loss ") and message.endswith("Known: bce.")
    assert len(message) < 500


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_pickled_and_copied(error: LongtailError) -> None:
    error.add_note("while reading")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error) and again.args == error.args
        assert again.__notes__ == ["while reading"]
        for name in ("exit_code", "msg"):
            assert getattr(again, name, None) == getattr(error, name, None)
    del error.__notes__


def test_sent_by_another_process() -> None:
    # A pool of processes breaks on an exception that cannot be unpickled.
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(UnknownNameError, match=r"unknown format 'jsonk\\x1b'. Did you mean 'jsonl'"),
    ):
        pool.submit(get_format, "jsonk\x1b").result(60)
