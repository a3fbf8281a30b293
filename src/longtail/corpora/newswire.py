"""A synthetic newswire with a long tail: readable stories, linked labels, any size.

Every story is computed from the seed and its number, so millions of documents and labels cost no
memory until they are read. Rare topics share the vocabulary of frequent ones and are often
mentioned in stories about other topics, so the tail has to be learnt.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from longtail.data.documents import PARTS, Document
from longtail.data.textdata import TextData
from longtail.errors import InputError, UnknownNameError
from longtail.progress import OnProgress, Progress, ignore


class Family(NamedTuple):
    """Topics that share a vocabulary; the first of the words for a topic is its name."""

    topics: list[list[str]]
    nouns: list[str]
    scenes: list[str]
    leads: list[str]


LEXICON: dict[str, Any] = json.loads(Path(__file__).with_name("newswire.json").read_text("utf-8"))
FAMILIES = tuple(
    Family(**family | {"leads": LEXICON["leads"][family["leads"]]})
    for family in LEXICON["families"].values()
)
TOPICS_PER_FAMILY = len(FAMILIES[0].topics)
N_NAMED = len(FAMILIES) * TOPICS_PER_FAMILY
# Documents of the rarest label, if there are enough documents.
RAREST = 6.0 * 1.24
GOLDEN = (math.sqrt(5) - 1) / 2
LINKED = 0.8
# Share of stories that mention another topic of the family. With it plain BCE loses the tail about
# as it does on Reuters-21578; with 0.5 it would keep a third of it.
ASIDE = 0.95


class Newswire:
    """A lazy sequence of stories; `newswire[k]` computes story k.

    Args:
        n_documents, n_labels: sizes; neither costs memory.
        mean_labels: mean number of labels per document; many documents have one.
        random_state: seed; the same seed gives the same stories on every machine.

    Example:
        >>> Newswire(n_documents=10_000_000, n_labels=1_000_000)[9_999_999].id
        'newswire/9999999'
    """

    def __init__(
        self,
        n_documents: int = 10_788,
        n_labels: int = 90,
        mean_labels: float = 1.24,
        random_state: int = 0,
    ) -> None:
        if n_documents < 1 or n_labels < 1 or not 1 <= mean_labels <= max(1, n_labels / 2):
            raise InputError(
                "newswire needs at least one document, one label, and between 1 and n_labels / 2 "
                f"labels per document, got n_documents={n_documents}, n_labels={n_labels}, "
                f"mean_labels={mean_labels}."
            )
        self.n_documents, self.n_labels = n_documents, n_labels
        self.mean_labels, self.random_state = mean_labels, random_state
        self._exponent = _exponent(n_documents * mean_labels, n_labels)
        self._start = random.Random(random_state).random()

    def __len__(self) -> int:
        return self.n_documents

    def __getitem__(self, index: int) -> Document:
        return self._story(range(self.n_documents)[index])

    def __iter__(self) -> Iterator[Document]:
        return map(self._story, range(self.n_documents))

    def label_name(self, label: int) -> str:
        """Return the name of the label with this frequency rank."""
        name = _terms(label)[0].replace(" ", "-")
        return name if label < N_NAMED else f"{name}-{invented_place(label // N_NAMED).lower()}"

    def label_names(self) -> list[str]:
        return [self.label_name(label) for label in range(self.n_labels)]

    def linked_label(self, label: int) -> int:
        """Return the more frequent label linked to a label; the first of a family is its own."""
        return label % (len(FAMILIES) if label < N_NAMED else N_NAMED)

    def _story(self, number: int) -> Document:
        rng = random.Random(self.random_state * 1_000_003 + number * 2 + 1)
        # Golden-ratio steps spread every label, even a rare one, evenly over the stories.
        labels = self._labels(self._rank((self._start + number * GOLDEN) % 1.0), rng)
        text = _write(rng, [self._subject(label, rng) for label in labels])
        return Document(text, [self.label_name(label) for label in labels], f"newswire/{number}")

    def _labels(self, primary: int, rng: random.Random) -> list[int]:
        labels = [primary]
        wanted = 1 + _extra_labels(rng, self.mean_labels - 1)
        linked = self.linked_label(primary)
        if wanted > 1 and linked != primary and rng.random() < LINKED:
            labels.append(linked)
        for _ in range(20 * wanted):
            if len(labels) >= wanted:
                break
            other = self._rank(rng.random())
            if rng.random() < LINKED:
                other = self._linked_to(primary, other, rng)
            if other not in labels:
                labels.append(other)
        return labels

    def _linked_to(self, primary: int, other: int, rng: random.Random) -> int:
        """Return a sibling of `primary` as frequent as `other`, or the label linked to `other`."""
        if rng.random() < 0.5:
            return self.linked_label(other) if other < N_NAMED else other
        sibling = self._sibling(primary, rng) + other // N_NAMED * N_NAMED
        return sibling if sibling < self.n_labels else other

    def _rank(self, uniform: float) -> int:
        """Return the label at a quantile of the power law, in closed form."""
        power = 1 - self._exponent
        low, high = 1.0, (self.n_labels + 1.0) ** power
        position = ((1 - uniform) * low + uniform * high) ** (1 / power) - 1
        return min(int(position), self.n_labels - 1)

    def _sibling(self, label: int, rng: random.Random) -> int:
        """Draw a topic of the same family, rare or frequent."""
        sibling = label % len(FAMILIES) + len(FAMILIES) * rng.randrange(TOPICS_PER_FAMILY)
        return sibling if sibling < self.n_labels else label % len(FAMILIES) % self.n_labels

    def _subject(self, label: int, rng: random.Random) -> _Subject:
        prefix = "" if label < N_NAMED else invented_place(label // N_NAMED) + " "
        aside = self._sibling(label, rng)
        if aside == label:
            aside = (label + len(FAMILIES)) % N_NAMED
        terms = [prefix + term for term in _terms(label)]
        return _Subject(FAMILIES[label % len(FAMILIES)], terms, _terms(aside)[0])


def _terms(label: int) -> list[str]:
    return FAMILIES[label % len(FAMILIES)].topics[label % N_NAMED // len(FAMILIES)]


def invented_place(number: int) -> str:
    """Return a unique place name for every number: Delbaia, Corfenia, ..."""
    rest, digit = divmod(number, len(LEXICON["syllables"]))
    name: str = LEXICON["syllables"][digit]
    return name.capitalize() + (invented_place(rest).lower() if rest else "ia")


class _Subject(NamedTuple):
    family: Family
    terms: list[str]
    mentioned: str


def _write(rng: random.Random, subjects: list[_Subject]) -> str:
    """Write a headline and a few sentences per subject, with asides on topics of its family."""
    headline = _fill(rng, rng.choice(subjects[0].family.leads), subjects[0])
    main_terms = {subject.terms[0] for subject in subjects}
    sentences = []
    for subject in subjects:
        sentences.append(_fill(rng, rng.choice(subject.family.leads), subject))
        scenes = list(subject.family.scenes)
        rng.shuffle(scenes)
        sentences += [_fill(rng, scene, subject) for scene in scenes[: 1 + rng.randrange(3)]]
        if rng.random() < ASIDE and subject.mentioned not in main_terms:
            aside = rng.choice(LEXICON["asides"]).replace("{term}", subject.mentioned)
            sentences.append(_fill(rng, aside, subject))
    sentences.append(_fill(rng, rng.choice(LEXICON["fillers"]), subjects[0]))
    body = " ".join(sentence[0].upper() + sentence[1:] + "." for sentence in sentences)
    return f"{headline.upper()}\n{body}"


def _fill(rng: random.Random, template: str, subject: _Subject) -> str:
    # The topic's name two times in three, else any of its terms.
    terms = subject.terms
    term = terms[0] if rng.random() < 0.67 else terms[rng.randrange(len(terms))]
    return template.format(
        actor=rng.choice(LEXICON["actors"]),
        term=term,
        noun=rng.choice(subject.family.nouns),
        moved=rng.choice(LEXICON["moves"]),
        percent=f"{rng.randrange(1, 30)}.{rng.randrange(10)}",
        period=rng.choice(LEXICON["periods"]),
        place=rng.choice(LEXICON["places"]),
    )


def _extra_labels(rng: random.Random, mean: float) -> int:
    """Draw the number of labels beyond the first: geometric, or a sum of those for large means."""
    parts = max(1, round(mean / 3))
    stop = 1 / (1 + mean / parts)
    total = 0
    for _ in range(parts):
        while rng.random() > stop:
            total += 1
    return total


def _exponent(n_assignments: float, n_labels: int) -> float:
    """Find the power-law exponent for which the rarest label has about RAREST documents."""
    low, high = 0.05, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        power = 1 - middle if abs(1 - middle) > 1e-9 else 1e-9
        total = ((n_labels + 1) ** power - 1) / power
        rarest = n_assignments * float(n_labels) ** -middle / total
        low, high = (middle, high) if rarest > RAREST else (low, middle)
    return low if abs(1 - low) > 1e-6 else low + 1e-6


PRESETS: dict[str, dict[str, Any]] = {
    # Sizes and held-out parts of the paper's two corpora.
    "reuters": dict(n_documents=10_788, n_labels=90, mean_labels=1.24, held_out=(1000, 3019)),
    "pubmed": dict(n_documents=224_897, n_labels=18_211, mean_labels=12.3, held_out=(5000, 5000)),
}


def load(
    n_documents: int | None = None,
    n_labels: int | None = None,
    mean_labels: float | None = None,
    seed: int = 0,
    preset: str = "reuters",
    *,
    progress: OnProgress = ignore,
) -> dict[str, TextData]:
    """Generate train, validation and test parts; sizes given override those of the preset."""
    if preset not in PRESETS:
        raise UnknownNameError("preset of newswire", preset, PRESETS)
    sizes = PRESETS[preset]
    total = sizes["n_documents"] if n_documents is None else n_documents
    wire = Newswire(
        total,
        sizes["n_labels"] if n_labels is None else n_labels,
        sizes["mean_labels"] if mean_labels is None else mean_labels,
        seed,
    )
    n_validation, n_test = (round(n * total / sizes["n_documents"]) for n in sizes["held_out"])
    edges = (0, total - n_validation - n_test, total - n_test, total)
    stories = []
    for number, story in enumerate(wire, start=1):
        stories.append(story)
        if number % 100 == 0:
            progress(Progress("generating documents", number, total))
    texts, labels, ids, *_ = zip(*stories, strict=True)
    data = TextData.from_lists(texts, labels, wire.label_names(), ids=ids)
    return {part: data[slice(*ends)] for part, ends in zip(PARTS, pairwise(edges), strict=True)}
