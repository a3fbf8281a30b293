"""Messages are bounded and printable whatever they quote, and errors can be pickled."""

from __future__ import annotations

import copy
import pickle
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import errors
from longtail.errors import (
    LIMIT,
    DataError,
    InputError,
    LongtailError,
    MissingExtraError,
    NotFittedError,
    UnknownNameError,
    known_name,
    printable,
)


class StoppedError(LongtailError):
    """Like the one of longtail.training: with its own arguments and an attribute."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


ERRORS = [
    LongtailError(),
    InputError("an input"),
    NotFittedError("not yet"),
    UnknownNameError("loss", "bec", ["bce", "fl"]),
    MissingExtraError("the service", "fastapi", "serve"),
    StoppedError("stopped by SIGINT.", 130),
]


# Terminal controls, bidirectional marks, line separators, a non-UTF-8 byte of a file name.
UNPRINTABLE = ["\x00", "\x1b", "\r", "\t", "\x08", "\x7f", "\x9b", "\x85", "\u202e", "\udcff"]


@pytest.mark.parametrize(
    "character", [*UNPRINTABLE, "\u061c", "\u200f", "\u2028", "\ufeff", "\ud83d", "\u2066"]
)
def test_what_a_terminal_obeys_is_shown_as_an_escape(character: str) -> None:
    escaped = character.encode("unicode_escape").decode()
    assert len(escaped) > 1 and printable(f"a{character}b") == f"a{escaped}b"
    assert str(DataError(f"a{character}b")) == f"a{escaped}b"
    assert character not in str(UnknownNameError(f"x{character}", character, [f"k{character}"]))


@pytest.mark.parametrize("character", ["a", "\n", "\x1b", "\U0001f600", "\ud800"])
def test_ten_megabytes_are_cut_at_once(character: str) -> None:
    text = "the beginning " + character * 10_000_000 + " what to do."
    began = time.perf_counter()
    error = DataError(text)
    assert time.perf_counter() - began < 1
    message = str(error)
    assert len(message) <= LIMIT and len(repr(error)) < 3 * LIMIT
    assert message.startswith("the beginning ") and message.endswith(" what to do.")
    assert f" ... ({len(text):,} characters in all) ... " in message
    assert len(pickle.dumps(error)) < 20 * LIMIT


def test_the_limit() -> None:
    note = " ... (1,000 characters in all) ... "
    assert printable("a" * 500 + "b" * 500, 79) == "a" * 33 + note + "b" * 11
    assert printable("a" * 100, 100) == "a" * 100
    assert len(printable("a" * 101, 100)) == 100
    assert printable("a" * 1000, 0) == note


@given(st.text(st.characters(), max_size=60), st.integers(40, 80))
def test_never_longer_than_the_limit_and_always_printable(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert len(shown) <= limit
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c != "\n"]
    assert printable(shown, limit) == shown
    if not errors._UNPRINTABLE.search(text) and len(text) <= limit:
        assert shown == text


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("bec", ["fl", "bce"], "unknown loss 'bec'. Did you mean 'bce'? Known: bce, fl."),
        ("zzz", [], "unknown loss 'zzz'. Known: ."),
        ("bce" * 3_500_000, ["bce", "fl", "x" * 10_000_000], "Known: bce, fl, xxx"),
        ("label-99x", [f"label-{k}" for k in range(100_000)], " characters in all) ... "),
    ],
    ids=["near", "none", "long", "many"],
)
def test_an_unknown_name(name: str, known: list[str], expected: str) -> None:
    began = time.perf_counter()
    message = str(UnknownNameError("loss", name, known))
    assert time.perf_counter() - began < 2  # measured: 0.1 s; 1.8 s if all names were compared
    assert len(message) < 2500 and message.startswith(f"unknown loss '{name[:9]}")
    assert expected in message


@pytest.mark.parametrize(
    "name", [None, 10**6000, ["bce"] * 10**6], ids=lambda name: type(name).__name__
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
        assert getattr(again, "exit_code", None) == getattr(error, "exit_code", None)
    del error.__notes__


def test_a_known_name_in_any_case() -> None:
    assert known_name("loss", "DB", ["bce", "db"]) == "db"
    assert known_name("model", "bag", ["Bag"]) == "Bag"
    for wrong in ("dbb", "db ", "", None, 3):
        with pytest.raises(UnknownNameError, match="unknown loss"):
            known_name("loss", wrong, ["bce", "db"])
