"""The synthetic newswire: reproducible, lazy, long-tailed, with linked labels."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from longtail.corpora import list_corpora, load_corpus
from longtail.corpora.newswire import FAMILIES, Newswire
from longtail.data import TextData
from longtail.errors import InputError, UnknownNameError
from longtail.progress import Progress


@pytest.fixture(scope="module")
def whole() -> dict[str, TextData]:
    """Of the size of Reuters."""
    return load_corpus("newswire")


def test_the_same_seed_gives_the_same_stories_on_every_machine() -> None:
    # Stories use only integers, random.Random and one power: the digests hold on any platform.
    digests = {(90, 1.24, 0): "585d7c5f2468a293", (3000, 5.0, 7): "14acb01dd98ff94d"}
    for settings, digest in digests.items():
        text = "".join(story.text + "|".join(story.labels) for story in Newswire(200, *settings))
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest
    assert Newswire(random_state=1)[0].text != Newswire(random_state=2)[0].text


def test_a_story_names_its_labels_in_its_text() -> None:
    topics = [topic for family in FAMILIES for topic in family.topics]
    terms = {topic[0].replace(" ", "-"): topic for topic in topics}
    for story in Newswire(300, 90):
        for label in story.labels:
            assert any(term in story.text.lower() for term in terms[label]), (label, story.text)


def test_counts_follow_a_power_law_and_every_label_is_learnable(
    whole: dict[str, TextData],
) -> None:
    assert [len(part) for part in whole.values()] == [6769, 1000, 3019]
    counts = np.sort(whole["train"].stats().label_counts)[::-1]
    assert counts.min() >= 1 and whole["test"].stats().label_counts.min() >= 1
    ranks = np.log(np.arange(len(counts)) + 2)
    slope, _ = np.polyfit(ranks, np.log(counts), 1)
    fit = np.corrcoef(ranks, np.log(counts))[0, 1]
    assert slope < -1 and fit < -0.97 and counts[0] / counts[-1] > 300


def test_presets_and_single_sizes() -> None:
    parts = load_corpus("newswire", preset="pubmed", n_documents=450, n_labels=40, mean_labels=3)
    assert [len(part) for part in parts.values()] == [430, 10, 10]
    with pytest.raises(UnknownNameError, match="unknown preset of newswire 'reuter'"):
        load_corpus("newswire", preset="reuter")
    with pytest.raises(UnknownNameError, match="unknown setting of the corpus newswire 'seeds'"):
        load_corpus("newswire", seeds=3)
    with pytest.raises(InputError, match="takes no path"):
        load_corpus("newswire", "somewhere")
    seen: list[Progress] = []
    load_corpus("newswire", n_documents=300, progress=seen.append)
    assert seen == [Progress("generating documents", done, 300) for done in (100, 200, 300)]


def test_rare_labels_are_linked_to_frequent_ones(whole: dict[str, TextData]) -> None:
    wire = Newswire(10_788, 90)
    names = wire.label_names()
    nickel, copper = names.index("nickel"), names.index("copper")
    assert wire.linked_label(nickel) == copper
    Y = whole["train"].Y
    shared = (Y.T @ Y).tocsr()
    counts = shared.diagonal()
    assert counts[nickel] < counts[copper] / 3
    given_nickel = np.asarray(shared[nickel].todense()).ravel() / counts[nickel]
    given_nickel[nickel] = 0
    assert int(np.argmax(given_nickel)) == copper


def test_indexing_like_a_sequence() -> None:
    wire = Newswire(10, 5)
    assert len(wire) == 10 and wire[-1] == wire[9] == list(wire)[9]
    with pytest.raises(IndexError):
        wire[10]


@pytest.mark.parametrize("settings", [{"n_documents": 0}, {"n_labels": 0}, {"mean_labels": 0.5}])
def test_wrong_sizes_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match="at least one document"):
        load_corpus("newswire", **settings)


def test_unknown_corpus() -> None:
    assert list_corpora() == ["newswire", "newswire-pubmed", "reuters", "pubmed"]
    with pytest.raises(UnknownNameError, match="Did you mean 'newswire'"):
        load_corpus("newswires")
