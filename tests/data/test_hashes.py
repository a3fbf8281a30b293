"""Text hashes ignore case and white space, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.data.hashes import text_hashes


def test_the_same_on_every_machine() -> None:
    hashes = text_hashes(iter(["copper rose", ""]))
    assert hashes.dtype == np.uint64
    # blake2b of 8 bytes, little-endian.
    assert hashes.tolist() == [8441442883407827662, 13020603013274838756]
    assert text_hashes([]).shape == (0,)


@pytest.mark.parametrize("copy", [" copper  rose\r\n", "Copper\u00a0ROSE", "copper\trose"])
def test_case_and_white_space_do_not_matter(copy: str) -> None:
    assert np.array_equal(text_hashes([copy]), text_hashes(["copper rose"]))


def test_other_texts_have_other_hashes() -> None:
    texts = [
        "copper",
        "rose",
        "copper-rose",
        "copperrose",
        "copper rose.",
        "\ud800",
        "\udc00",
        "\ufffd",
    ]
    assert len(np.unique(text_hashes(texts))) == len(texts)
