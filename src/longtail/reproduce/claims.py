"""What the paper says of its results, as a table of claims that figures can decide.

Each is judged on our mean figures and on the paper's own tables, which do not bear out all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol

from longtail.report import paper_rows
from longtail.report.paper import LAYOUTS, Pair
from longtail.reproduce.recipes import BALANCED_SVM, LOSS_ROWS

Figures = Mapping[str, Mapping[str, Pair | None]]
"""Row -> group of labels or of documents -> micro- and macro-F1 in percent."""
Names = tuple[str, ...]
LOSSES: Names = tuple(LOSS_ROWS)
BOTH, MICRO, MACRO = (0, 1), (0,), (1,)
MEASURES = ("micro", "macro")
SETS: Names = ("all", "head", "medium", "tail")
RARE: Names = ("medium", "tail")
TERCILES: Names = ("up to 9 labels", "10 to 14 labels", "15 or more labels")
CONFUSED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "reuters": (("platinum", "gold"), ("yen", "money-fx"), ("platinum", "copper")),
    "pubmed": (
        ("Pandemics", "Betacoronavirus"),
        ("Pandemics", "SARS-CoV-2"),
        ("Pneumonia, Viral", "Betacoronavirus"),
    ),
}
"""The pairs that the paper names as most confused, the most frequent first."""


@dataclass(frozen=True)
class Seen:
    """All that claims are judged on; what the paper does not publish is empty for it."""

    figures: Figures
    confused: Mapping[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Row -> its three most confused pairs, in either order of missed and given."""
    errors: Mapping[str, float] = field(default_factory=dict)
    """Row -> confusions of the pairs that the paper names, mean over the seeds."""
    linked: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Training documents that two confused labels share."""

    def value(self, row: str, group: str, measure: int) -> float:
        """KeyError where there is none."""
        pair = self.figures[row][group]
        if pair is None:
            raise KeyError(row)
        return pair[measure]


@dataclass(frozen=True)
class Outcome:
    """Whether a claim is seen, None where figures are missing, and what decides it."""

    seen: bool | None
    because: str = ""


class Check(Protocol):
    def __call__(self, seen: Seen) -> Outcome:
        """Judge; KeyError where a figure is missing."""


@dataclass(frozen=True)
class Above:
    """Every one of some rows is above every other by more than `by` points, in every group."""

    better: Names
    worse: Names
    groups: Names
    measures: tuple[int, ...] = BOTH
    by: float = 0.0

    def __call__(self, seen: Seen) -> Outcome:
        found = []
        for b, w, g, m in product(self.better, self.worse, self.groups, self.measures):
            if b != w:
                one, other = seen.value(b, g, m), seen.value(w, g, m)
                said = f"{shown(b)} {one:.2f}, {shown(w)} {other:.2f} ({_where(g, m)})"
                found.append((one - other, said))
        least, said = min(found)
        return Outcome(least > self.by, f"smallest lead {signed(least)}: {said}")


@dataclass(frozen=True)
class Near:
    """No two of the rows, one from each side, are more than `within` points apart."""

    rows: Names
    others: Names
    groups: Names
    within: float
    measures: tuple[int, ...] = BOTH

    def __call__(self, seen: Seen) -> Outcome:
        found = []
        for a, b, g, m in product(self.rows, self.others, self.groups, self.measures):
            if a != b:
                one, other = seen.value(a, g, m), seen.value(b, g, m)
                said = f"{shown(a)} {one:.2f}, {shown(b)} {other:.2f} ({_where(g, m)})"
                found.append((abs(one - other), said))
        most, said = max(found)
        return Outcome(most <= self.within, f"largest distance {most:.2f}: {said}")


@dataclass(frozen=True)
class Between:
    """A row's figures lie above `low` and below `high`."""

    row: str
    groups: Names
    low: float = -1.0
    high: float = 101.0
    measures: tuple[int, ...] = BOTH

    def __call__(self, seen: Seen) -> Outcome:
        found = {
            _where(g, m): seen.value(self.row, g, m) for g, m in product(self.groups, self.measures)
        }
        told = ", ".join(f"{where} {value:.2f}" for where, value in found.items())
        inside = all(self.low < value < self.high for value in found.values())
        return Outcome(inside, f"{shown(self.row)}: {told}")


@dataclass(frozen=True)
class Gap:
    """The micro-F1 of every row over all labels is more than `by` points above its macro-F1."""

    rows: Names
    by: float

    def __call__(self, seen: Seen) -> Outcome:
        found = [(seen.value(row, "all", 0) - seen.value(row, "all", 1), row) for row in self.rows]
        least, row = min(found)
        return Outcome(least > self.by, f"smallest gap {least:.2f} ({shown(row)})")


@dataclass(frozen=True)
class GainsMore:
    """A row's lead over another is larger in each of some groups than in another group."""

    better: str
    worse: str
    groups: Names
    than: str
    measures: tuple[int, ...] = BOTH

    def __call__(self, seen: Seen) -> Outcome:
        def lead(group: str, measure: int) -> float:
            return seen.value(self.better, group, measure) - seen.value(self.worse, group, measure)

        groups = (*self.groups, self.than)
        holds = all(
            lead(group, m) > lead(self.than, m) for group, m in product(self.groups, self.measures)
        )
        told = [f"{_where(g, m)} {signed(lead(g, m))}" for m in self.measures for g in groups]
        said = f"{shown(self.better)} minus {shown(self.worse)}"
        return Outcome(holds, f"{said}: {', '.join(told)}")


@dataclass(frozen=True)
class MostConfused:
    """The three most confused pairs of every row are those that the paper names."""

    corpus: str

    def __call__(self, seen: Seen) -> Outcome:
        wanted = {frozenset(pair) for pair in CONFUSED[self.corpus]}
        found = {row: [set(pair) for pair in seen.confused[row]] for row in LOSSES}
        amount = {row: sum(pair in wanted for pair in pairs) for row, pairs in found.items()}
        told = ", ".join(f"{shown(row)} {n}" for row, n in amount.items())
        return Outcome(all(n == 3 for n in amount.values()), f"of the paper's three: {told}")


@dataclass(frozen=True)
class ConfusedAreLinked:
    """The most confused labels of every row share training documents."""

    def __call__(self, seen: Seen) -> Outcome:
        pairs = dict.fromkeys(pair for row in LOSSES for pair in seen.confused[row])
        alone = ["/".join(pair) for pair in pairs if not seen.linked[pair]]
        told = f"{len(pairs) - len(alone)} of {len(pairs)} pairs share training documents"
        return Outcome(not alone, told + (f"; not {', '.join(alone)}" if alone else ""))


@dataclass(frozen=True)
class MoreErrors:
    """A row confuses the paper's pairs more often than every other."""

    row: str

    def __call__(self, seen: Seen) -> Outcome:
        others = [seen.errors[row] for row in LOSSES if row != self.row]
        own, most = seen.errors[self.row], max(others)
        return Outcome(own > most, f"{shown(self.row)} {own:.1f}, others at most {most:.1f}")


@dataclass(frozen=True)
class All:
    """Several checks, each of which must hold."""

    checks: tuple[Check, ...]

    def __call__(self, seen: Seen) -> Outcome:
        found = [check(seen) for check in self.checks]
        return Outcome(all(one.seen for one in found), "; ".join(one.because for one in found))


@dataclass(frozen=True)
class Claim:
    """What the paper says, in our words, of which corpora."""

    text: str
    check: Check
    corpora: Names = ("reuters", "pubmed")

    def judge(self, seen: Seen) -> Outcome:
        try:
            return self.check(seen)
        except KeyError:
            return Outcome(None)


REUTERS, PUBMED = ("reuters",), ("pubmed",)
FOCAL_KIN: Names = ("fl", "cb", "r-fl", "ntr-fl")
WITH_NTR: Names = ("ntr-fl", "cb-ntr", "db")
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "The long tail shows: micro-F1 is far above macro-F1 (more than 20 points) with every loss",
        Gap(LOSSES, 20), REUTERS,
    ),
    Claim(
        "The long tail shows even more: micro-F1 is more than 35 points above macro-F1 with every "
        "loss that works (all but BCE)",
        Gap(LOSSES[1:], 35), PUBMED,
    ),
    Claim(
        "BCE has the lowest total macro-F1 of all losses",
        Above(LOSSES[1:], ("bce",), ("all",), MACRO), REUTERS,
    ),
    Claim(
        "BCE finds nothing in the tail (F1 below 0.5)",
        Between("bce", ("tail",), high=0.5), REUTERS,
    ),
    Claim(
        "The SVM stays below the distribution-balanced losses (DB-0FL, CB-NTR, DB) in total",
        Above(("db-0fl", "cb-ntr", "db"), ("svm",), ("all",)),
    ),
    Claim(
        "FL, CB, R-FL and NTR-FL do about as well as BCE on head labels (within 2.5 points)",
        Near(FOCAL_KIN, ("bce",), ("head",), 2.5), REUTERS,
    ),
    Claim(
        "FL, CB, R-FL and NTR-FL are better than BCE on medium and tail labels",
        Above(FOCAL_KIN, ("bce",), RARE), REUTERS,
    ),
    Claim(
        "DB has the best tail micro-F1 of all losses",
        Above(("db",), LOSSES[:-1], ("tail",), MICRO), REUTERS,
    ),
    Claim(
        "DB's tail micro-F1 is more than 20 points above those of FL (by 21.49) and CB (by 25.81)",
        Above(("db",), ("fl", "cb"), ("tail",), MICRO, by=20), REUTERS,
    ),
    Claim(
        "DB beats earlier work, whose micro-F1 stayed below 89.9",
        Between("db", ("all",), low=89.9, measures=MICRO), REUTERS,
    ),
    Claim(
        "BCE does not work: it is the worst loss in total and finds nothing in medium and tail "
        "(F1 below 0.5)",
        All((Above(LOSSES[1:], ("bce",), ("all",)), Between("bce", RARE, high=0.5))), PUBMED,
    ),
    Claim(
        "All other losses (but BCE) are better than FL on medium and tail labels",
        Above(LOSSES[2:], ("fl",), RARE), PUBMED,
    ),
    Claim(
        "DB is the best loss in every set of labels",
        Above(("db",), LOSSES[:-1], SETS), PUBMED,
    ),
    Claim(
        "DB gains most on medium and tail labels: its lead over FL is larger there than on head "
        "labels (micro-F1)",
        GainsMore("db", "fl", RARE, "head", MICRO), PUBMED,
    ),
    Claim(
        "Without negative-tolerant regularisation (R-FL) DB gets worse in every set of labels",
        Above(("db",), ("r-fl",), SETS),
    ),
    Claim(
        "Without the focal factor (DB-0FL) DB gets worse in every set of labels",
        Above(("db",), ("db-0fl",), SETS),
    ),
    Claim(
        "Without rebalanced weights (NTR-FL) the total micro-F1 stays about the same (1 point)",
        Near(("db",), ("ntr-fl",), ("all",), 1, MICRO),
    ),
    Claim(
        "but DB is better than NTR-FL in total macro-F1 and on medium and tail labels",
        All((Above(("db",), ("ntr-fl",), ("all",), MACRO), Above(("db",), ("ntr-fl",), RARE))),
    ),
    Claim(
        "CB-NTR is better than CB in every set of labels",
        Above(("cb-ntr",), ("cb",), SETS),
    ),
    Claim(
        "DB is close to CB-NTR (1 point) or better on medium and tail labels",
        Above(("db",), ("cb-ntr",), RARE, by=-1),
    ),
    Claim(
        "On documents with one label all losses have a similar micro-F1 (within 2 points)",
        Near(LOSSES, LOSSES, ("single_label",), 2, MICRO), REUTERS,
    ),
    Claim(
        "From documents with one label to those with several, BCE loses more than DB",
        GainsMore("db", "bce", ("multi_label",), "single_label"), REUTERS,
    ),
    Claim(
        "DB is the best loss in micro-F1 on documents with several labels, and in macro-F1 on "
        "those with one and those with several",
        All((
            Above(("db",), LOSSES[:-1], ("multi_label",), MICRO),
            Above(("db",), LOSSES[:-1], ("single_label", "multi_label"), MACRO),
        )), REUTERS,
    ),
    Claim(
        "NTR-FL, CB-NTR and DB are better than all other losses, whatever the number of labels "
        "of a document",
        Above(WITH_NTR, tuple(loss for loss in LOSSES if loss not in WITH_NTR), TERCILES), PUBMED,
    ),
    Claim(
        "The three most confused pairs of labels are the same for all losses: platinum and gold, "
        "yen and money-fx, platinum and copper",
        MostConfused("reuters"), REUTERS,
    ),
    Claim(
        "The three most confused pairs of labels are the same for all losses: Pandemics and "
        "Betacoronavirus, Pandemics and SARS-CoV-2, Pneumonia, Viral and Betacoronavirus",
        MostConfused("pubmed"), PUBMED,
    ),
    Claim("BCE confuses these pairs more often than every other loss", MoreErrors("bce"), PUBMED),
    Claim("What is confused most are linked labels, with every loss", ConfusedAreLinked()),
)  # fmt: skip


def claims_about(corpus: str) -> tuple[Claim, ...]:
    """The claims that the paper makes about a corpus."""
    return tuple(claim for claim in CLAIMS if corpus in claim.corpora)


def paper_figures(corpus: str) -> dict[str, dict[str, Pair | None]]:
    """Both of the paper's tables of a corpus as one."""
    found: dict[str, dict[str, Pair | None]] = {}
    for layout in LAYOUTS:
        for row, cells in paper_rows(corpus, layout).items():
            found.setdefault(row, {}).update(cells)
    return found


def shown(row: str) -> str:
    """A row's name as people read it: the paper's in capitals."""
    if row == BALANCED_SVM:
        return "SVM balanced"
    return row.upper() if row in (*LOSSES, "svm") else row


def signed(value: float) -> str:
    """Two decimals with a plus or a minus sign."""
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


def _where(group: str, measure: int) -> str:
    said = "total" if group == "all" else group.replace("_", "-")
    return f"{said} {MEASURES[measure]}"
