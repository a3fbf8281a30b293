"""Explanations as text with coloured words, on a page or a terminal, and lists of strongest words.

Blue words raise the score of a label, orange ones lower it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup, escape

from longtail import __version__
from longtail.errors import printable
from longtail.models.explanation import Explanation
from longtail.report.jinja import render_html, text_file
from longtail.report.table import plural

if TYPE_CHECKING:
    from rich.text import Text

# Words listed per sign; words below this share of the strongest one are not shown.
LISTED, LEAST_SHARE = 8, 0.05
# Characters of a text shown on the terminal.
TERMINAL_LIMIT = 4000
STYLES = {True: ("blue", "bold white on blue"), False: ("dark_orange3", "bold black on orange1")}
STRONG = 0.5
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class Part(NamedTuple):
    """A stretch of a text, printable."""

    text: str
    value: float
    share: float
    """Value relative to the strongest word, negative if it lowers the score; 0 for no colour."""


def parts_of(explanation: Explanation, label: int, limit: int | None = None) -> Iterator[Part]:
    """Split the first `limit` characters of the text at the words to be coloured for a label."""
    text, values = explanation.text[:limit], explanation.values[label].tolist()
    largest = max(map(abs, values), default=0.0) or 1.0
    end = 0
    for (start, stop), value in zip(explanation.words, values, strict=True):
        if abs(value) >= LEAST_SHARE * largest and stop <= len(text):
            yield _part(text[end:start])
            yield _part(text[start:stop], value, value / largest)
            end = stop
    yield _part(text[end:])


def _part(text: str, value: float = 0.0, share: float = 0.0) -> Part:
    # An escape sequence has at most six characters.
    return Part(printable(text, 6 * len(text)), value, share)


def highlighted(explanation: Explanation, label: int) -> Markup:
    """The text as HTML; marks show how much words add to the score of a label."""
    return Markup("").join(
        Markup('<mark class="{}" style="--v:{:.0f}%" title="{:+.3g}">{}</mark>').format(
            "for" if part.share > 0 else "against", 100 * abs(part.share), part.value, part.text
        )
        if part.share
        else escape(part.text)
        for part in parts_of(explanation, label)
    )


def strongest(explanation: Explanation, label: int) -> tuple[list[str], list[str]]:
    """The words for and against a label, with the sum over their occurrences."""
    total: Counter[str] = Counter()
    values = explanation.values[label].tolist()
    for (start, stop), value in zip(explanation.words, values, strict=True):
        total[explanation.text[start:stop].lower()] += value
    ranked = sorted(total.items(), key=lambda item: -abs(item[1]))
    least = LEAST_SHARE * abs(ranked[0][1]) if ranked else 0.0
    words = [(f"{printable(w, 60)} {v:+.2f}", v) for w, v in ranked if abs(v) > least]
    positive = [text for text, value in words if value > 0]
    negative = [text for text, value in words if value < 0]
    return positive[:LISTED], negative[:LISTED]


def equation(explanation: Explanation, label: int, thresholds: Mapping[str, float]) -> str:
    """The score of a label as base + words, and on which side of its threshold it is."""
    score, base = explanation.scores[label], explanation.base[label]
    added, error = explanation.values[label].sum(), explanation.error[label]
    words = f"{'-' if added < 0 else '+'} {abs(added):.2f} by words (error {100 * error:.1f} %)"
    text = f"score {score:.2f} = {base:.2f} {words}"
    threshold = thresholds.get(explanation.labels[label])
    if threshold is None:
        return text
    return f"{text}, {'below' if score < threshold else 'above'} the threshold {threshold:.2f}"


def explanations_page(
    documents: Sequence[tuple[str, Explanation]], thresholds: Mapping[str, float], source: str
) -> str:
    """One self-contained HTML page of explained documents.

    Args:
        documents: pairs of id and explanation.
        thresholds: label -> threshold, on the scale of the scores.
        source: the name of the model, for the title.
    """
    return render_html(
        "explanations.html.j2",
        title=f"Explanations: {plural(len(documents), 'document')}, {source}",
        version=__version__,
        policy=POLICY,
        style=Markup(text_file("page.css")),
        documents=documents,
        highlighted=highlighted,
        strongest=strongest,
        equation=lambda explanation, label: equation(explanation, label, thresholds),
    )


def explanation_lines(
    id: str, explanation: Explanation, thresholds: Mapping[str, float]
) -> Iterator[Text]:
    """Lines for a rich console: for each label its score, the text and the strongest words."""
    from rich.text import Text

    for label, name in enumerate(explanation.labels):
        head = f"{id}: {printable(name)}"
        yield Text.assemble((head, "bold"), f"  {equation(explanation, label, thresholds)}")
        text = Text()
        for part in parts_of(explanation, label, TERMINAL_LIMIT):
            style = STYLES[part.share > 0][abs(part.share) > STRONG] if part.share else ""
            text.append(part.text, style)
        if len(explanation.text) > TERMINAL_LIMIT:
            text.append(f" ... ({len(explanation.text):,} characters in all)", "dim")
        yield text
        for words, sign in zip(strongest(explanation, label), ("for", "against"), strict=True):
            if words:
                yield Text(f"  {sign}: {', '.join(words)}")
        yield Text()
    if not explanation.labels:
        yield Text(f"{id}: the model knows no label")
