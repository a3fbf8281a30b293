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


@pytest.mark.parametrize(
    ("character", "shown"),
    [
        ("\x00", r"\x00"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\r", r"\r"),
        ("\t", r"\t"),
        ("\b", r"\x08"),
        ("\x7f", r"\x7f"),
        ("\x9b2J", r"\x9b2J"),
        ("\x85", r"\x85"),
        ("\u202e", r"\u202e"),
        ("\u2066", r"\u2066"),
        ("\u2028", r"\u2028"),
        ("\ufeff", r"\ufeff"),
        ("\ud83d", r"\ud83d"),
        ("\udcff", r"\udcff"),  # a byte of a file name that is not UTF-8
    ],
)
def test_what_a_terminal_obeys_is_shown_as_an_escape(character: str, shown: str) -> None:
    assert printable(f"a{character}b") == f"a{shown}b"
    for kind in (LongtailError, InputError, DataError, NotFittedError):
        assert str(kind(f"a{character}b")) == f"a{shown}b"
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
    shown = printable("a" * 500 + "b" * 500, 100)
    kept = shown.count("a", 0, shown.index(" ...")) + shown.count("b")
    assert len(shown) <= 100 and f"({1000 - kept} more characters)" in shown
    assert printable("a" * 100, 100) == "a" * 100


@given(st.text(st.characters(), max_size=60), st.integers(40, 80))
def test_never_longer_than_the_limit_and_always_printable(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert len(shown) <= limit
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c != "\n"]
    assert printable(shown, limit) == shown
    if shown != text:
        assert errors._UNPRINTABLE.search(text) or len(text) > limit


def test_a_limit_without_room() -> None:
    assert printable("a" * 100, 0) == " ... (100 more characters) ... "


def test_an_unknown_name_of_ten_megabytes() -> None:
    began = time.perf_counter()
    message = str(UnknownNameError("loss", "bce" * 3_500_000, ["bce", "fl", "x" * 10_000_000]))
    assert time.perf_counter() - began < 1
    assert len(message) < 1000 and message.startswith("unknown loss 'bcebce")
    assert "Known: bce, fl, xxx" in message


def test_an_unknown_name_among_very_many() -> None:
    began = time.perf_counter()
    message = str(UnknownNameError("label", "label-99x", (f"label-{k}" for k in range(100_000))))
    assert time.perf_counter() - began < 2  # 0.1 s alone on a machine, 1.8 s with all compared
    assert len(message) < 2500 and "Did you mean 'label-9" in message
    assert message.endswith(" more.")


@pytest.mark.parametrize(
    "name",
    [None, 3.5, 10**6000, ["bce"] * 10**6, {"a": "b" * 10**6}, b"\x1b" * 10**6],
    ids=lambda name: type(name).__name__,
)
def test_an_unknown_name_of_any_kind(name: object) -> None:
    message = str(UnknownNameError("loss", name, ["bce"]))
    assert message.startswith("unknown loss ") and message.endswith("Known: bce.")
    assert len(message) < 500


def test_short_lists_are_shown_whole_with_the_nearest() -> None:
    error = UnknownNameError("loss", "bec", ["fl", "bce"])
    assert str(error) == "unknown loss 'bec'. Did you mean 'bce'? Known: bce, fl."
    assert str(UnknownNameError("loss", "zzz", [])) == "unknown loss 'zzz'. Known: ."


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_pickled_and_copied(error: LongtailError) -> None:
    error.add_note("while reading")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error) and again.args == error.args
        assert again.__notes__ == ["while reading"]
        assert getattr(again, "exit_code", None) == getattr(error, "exit_code", None)
        assert getattr(again, "msg", None) == getattr(error, "msg", None)
    del error.__notes__


def test_sent_by_another_process() -> None:
    # A pool of processes breaks on an exception that cannot be unpickled.
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(UnknownNameError, match=r"unknown format 'jsonk\\x1b'. Did you mean 'jsonl'"),
    ):
        pool.submit(get_format, "jsonk\x1b").result(60)
