"""Argument checks: valid values, and messages for others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from longtail.checks import (
    check_bool,
    check_choice,
    check_integer,
    check_number,
    has_surrogate,
    replace_surrogates,
)
from longtail.errors import InputError


@pytest.mark.parametrize("value", [True, 1.0, "2", 0, None, np.float32(3)])
def test_what_is_no_integer_of_at_least_one(value: object) -> None:
    with pytest.raises(InputError, match=r"epochs must be a whole number of at least 1, got "):
        check_integer("epochs", value, 1)


def test_integers() -> None:
    check_integer("epochs", 1, 1)
    check_integer("epochs", np.int64(7), 1)
    check_integer("epochs", None, 1, optional=True)


@pytest.mark.parametrize("value", [True, math.nan, math.inf, "1", -0.1, 1.1, None, 1j])
def test_what_is_no_number_from_zero_to_one(value: object) -> None:
    with pytest.raises(InputError, match="dropout must be a number of at least 0 and at most 1"):
        check_number("dropout", value, 0, 1)


def test_numbers() -> None:
    for value in (0, 1, 0.5, np.float32(0.25)):
        check_number("dropout", value, 0, 1)
    check_number("rate", None, 0, optional=True)
    check_number("shift", -1e300)
    check_number("count", 10**400, 0)
    with pytest.raises(InputError, match="at most 1"):
        check_number("dropout", 10**400, 0, 1)
    with pytest.raises(InputError, match="C must be a number above 0, got 0"):
        check_number("C", 0, 0, exclusive=True)
    with pytest.raises(InputError, match="shift must be a finite number, got inf"):
        check_number("shift", math.inf)
    with pytest.raises(InputError, match=r"In YAML write 1\.0e-4\."):
        check_number("learning_rate", "1e-4", 0)


def test_choices_and_flags() -> None:
    check_choice("schedule", "linear", ("linear", "cosine"))
    for flag in (False, np.True_):
        check_bool("informed", flag)
    with pytest.raises(InputError, match="schedule must be one of linear, cosine, got 3"):
        check_choice("schedule", 3, ("linear", "cosine"))
    with pytest.raises(InputError, match="informed must be true or false, got 1"):
        check_bool("informed", 1)


@pytest.mark.parametrize(
    ("text", "replaced"), [("naïve 😀", "naïve 😀"), ("a\ud83d", "a�"), ("\ud83d\ude00", "😀")]
)
def test_surrogates(text: str, replaced: str) -> None:
    assert replace_surrogates(text) == replaced
    assert has_surrogate(text) == (text != replaced)
