"""The paper's claims about its results, as a table of checks.

Each is checked on our means and on the paper's own tables, which contradict some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from longtail.report import paper_rows
from longtail.report.paper import LAYOUTS, Pair
from longtail.reproduce.recipes import BALANCED_SVM, LOSS_ROWS

Figures = Mapping[str, Mapping[str, Pair | None]]
"""Row -> group of labels or documents -> micro- and macro-F1 in percent."""
Names = tuple[str, ...]
Measures = tuple[int, ...]
Outcome = tuple[bool, str]
"""Whether a claim holds, and the figures that decide it."""
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
"""The most confused pairs according to the paper, the most frequent first."""


@dataclass(frozen=True)
class Evidence:
    """The figures that decide the claims. Checks raise KeyError if a figure is missing.

    The paper publishes no figures for the other fields, which are then empty.
    """

    figures: Figures
    confused: Mapping[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Row -> its three most confused pairs, regardless of which label was missed."""
    errors: Mapping[str, float] = field(default_factory=dict)
    """Row -> confusions of the pairs in CONFUSED, mean over the seeds."""
    linked: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Confused pair -> number of training documents with both labels."""

    def value(self, row: str, group: str, measure: int) -> float:
        pair = self.figures[row][group]
        if pair is None:
            raise KeyError(row)
        return pair[measure]

    def leads(
        self, rows: Names, others: Names, groups: Names, measures: Measures
    ) -> list[tuple[float, str]]:
        """The lead of each row over each of the others, and both figures as text."""
        leads = []
        for row, other, group, measure in product(rows, others, groups, measures):
            if row != other:
                first, second = (self.value(name, group, measure) for name in (row, other))
                text = f"{row_name(row)} {first:.2f}, {row_name(other)} {second:.2f}"
                leads.append((first - second, f"{text} ({_column(group, measure)})"))
        return leads

    def above(
        self, better: Names, worse: Names, groups: Names, measures: Measures = BOTH, by: float = 0.0
    ) -> Outcome:
        """Each of the better rows leads each worse one by more than `by` points in each group."""
        least, text = min(self.leads(better, worse, groups, measures))
        return least > by, f"smallest lead {signed(least)}: {text}"

    def near(
        self, rows: Names, others: Names, groups: Names, within: float, measures: Measures = BOTH
    ) -> Outcome:
        """Each row is within `within` points of each of the others."""
        leads = self.leads(rows, others, groups, measures)
        most, text = max((abs(lead), text) for lead, text in leads)
        return most <= within, f"largest distance {most:.2f}: {text}"

    def between(
        self,
        row: str,
        groups: Names,
        low: float = -1.0,
        high: float = 101.0,
        measures: Measures = BOTH,
    ) -> Outcome:
        """The figures of a row lie strictly between `low` and `high`."""
        values = {column: self.value(row, *column) for column in product(groups, measures)}
        texts = [f"{_column(*column)} {value:.2f}" for column, value in values.items()]
        inside = all(low < value < high for value in values.values())
        return inside, f"{row_name(row)}: {', '.join(texts)}"

    def gap(self, rows: Names, by: float) -> Outcome:
        """Each row's micro-F1 over all labels is more than `by` points above its macro-F1."""
        gaps = [(self.value(row, "all", 0) - self.value(row, "all", 1), row) for row in rows]
        least, row = min(gaps)
        return least > by, f"smallest gap {least:.2f} ({row_name(row)})"

    def gains_more(
        self, better: str, worse: str, groups: Names, than: str, measures: Measures = BOTH
    ) -> Outcome:
        """The better row's lead over the worse one is larger in each group than in group `than`."""
        leads = {
            (group, measure): self.value(better, group, measure) - self.value(worse, group, measure)
            for measure in measures
            for group in (*groups, than)
        }
        holds = all(leads[group, m] > leads[than, m] for group, m in product(groups, measures))
        texts = [f"{_column(*column)} {signed(lead)}" for column, lead in leads.items()]
        return holds, f"{row_name(better)} minus {row_name(worse)}: {', '.join(texts)}"

    def most_confused(self, corpus: str) -> Outcome:
        """The three most confused pairs of each row are those that the paper names."""
        pairs = {frozenset(pair) for pair in CONFUSED[corpus]}
        same = {row: sum(frozenset(p) in pairs for p in self.confused[row]) for row in LOSSES}
        text = ", ".join(f"{row_name(row)} {n}" for row, n in same.items())
        return all(n == 3 for n in same.values()), f"of the paper's three: {text}"

    def confused_are_linked(self) -> Outcome:
        """The most confused labels of each row share training documents."""
        pairs = dict.fromkeys(pair for row in LOSSES for pair in self.confused[row])
        unlinked = ["/".join(pair) for pair in pairs if not self.linked[pair]]
        text = f"{len(pairs) - len(unlinked)} of {len(pairs)} pairs share training documents"
        return not unlinked, text + (f"; not {', '.join(unlinked)}" if unlinked else "")

    def more_errors(self, row: str) -> Outcome:
        """A row confuses the paper's pairs more often than each of the others."""
        most = max(self.errors[other] for other in LOSSES if other != row)
        errors = self.errors[row]
        return errors > most, f"{row_name(row)} {errors:.1f}, others at most {most:.1f}"


def both(*outcomes: Outcome) -> Outcome:
    """The conjunction of several checks."""
    return all(seen for seen, _ in outcomes), "; ".join(because for _, because in outcomes)


REUTERS, PUBMED = ("reuters",), ("pubmed",)
CORPORA = (*REUTERS, *PUBMED)
FOCAL_KIN: Names = ("fl", "cb", "r-fl", "ntr-fl")
WITH_NTR: Names = ("ntr-fl", "cb-ntr", "db")
WITHOUT_NTR: Names = tuple(loss for loss in LOSSES if loss not in WITH_NTR)
CLAIMS: dict[str, tuple[Callable[[Evidence], Outcome], Names]] = {
    "The long tail shows: micro-F1 is far above macro-F1 (more than 20 points) with every loss":
        (lambda e: e.gap(LOSSES, 20), REUTERS),
    "The long tail shows even more: micro-F1 is more than 35 points above macro-F1 with every "
    "loss that works (all but BCE)":
        (lambda e: e.gap(LOSSES[1:], 35), PUBMED),
    "BCE has the lowest total macro-F1 of all losses":
        (lambda e: e.above(LOSSES[1:], ("bce",), ("all",), MACRO), REUTERS),
    "BCE finds nothing in the tail (F1 below 0.5)":
        (lambda e: e.between("bce", ("tail",), high=0.5), REUTERS),
    "The SVM stays below the distribution-balanced losses (DB-0FL, CB-NTR, DB) in total":
        (lambda e: e.above(("db-0fl", "cb-ntr", "db"), ("svm",), ("all",)), CORPORA),
    "FL, CB, R-FL and NTR-FL do about as well as BCE on head labels (within 2.5 points)":
        (lambda e: e.near(FOCAL_KIN, ("bce",), ("head",), 2.5), REUTERS),
    "FL, CB, R-FL and NTR-FL are better than BCE on medium and tail labels":
        (lambda e: e.above(FOCAL_KIN, ("bce",), RARE), REUTERS),
    "DB has the best tail micro-F1 of all losses":
        (lambda e: e.above(("db",), LOSSES[:-1], ("tail",), MICRO), REUTERS),
    "DB's tail micro-F1 is more than 20 points above those of FL (by 21.49) and CB (by 25.81)":
        (lambda e: e.above(("db",), ("fl", "cb"), ("tail",), MICRO, by=20), REUTERS),
    "DB beats earlier work, whose micro-F1 stayed below 89.9":
        (lambda e: e.between("db", ("all",), low=89.9, measures=MICRO), REUTERS),
    "BCE does not work: it is the worst loss in total and finds nothing in medium and tail "
    "(F1 below 0.5)": (
        lambda e: both(e.above(LOSSES[1:], ("bce",), ("all",)), e.between("bce", RARE, high=0.5)),
        PUBMED,
    ),
    "All other losses (but BCE) are better than FL on medium and tail labels":
        (lambda e: e.above(LOSSES[2:], ("fl",), RARE), PUBMED),
    "DB is the best loss in every set of labels":
        (lambda e: e.above(("db",), LOSSES[:-1], SETS), PUBMED),
    "DB gains most on medium and tail labels: its lead over FL is larger there than on head "
    "labels (micro-F1)":
        (lambda e: e.gains_more("db", "fl", RARE, "head", MICRO), PUBMED),
    "Without negative-tolerant regularisation (R-FL) DB gets worse in every set of labels":
        (lambda e: e.above(("db",), ("r-fl",), SETS), CORPORA),
    "Without the focal factor (DB-0FL) DB gets worse in every set of labels":
        (lambda e: e.above(("db",), ("db-0fl",), SETS), CORPORA),
    "Without rebalanced weights (NTR-FL) the total micro-F1 stays about the same (1 point)":
        (lambda e: e.near(("db",), ("ntr-fl",), ("all",), 1, MICRO), CORPORA),
    "but DB is better than NTR-FL in total macro-F1 and on medium and tail labels": (
        lambda e: both(
            e.above(("db",), ("ntr-fl",), ("all",), MACRO), e.above(("db",), ("ntr-fl",), RARE)
        ), CORPORA,
    ),
    "CB-NTR is better than CB in every set of labels":
        (lambda e: e.above(("cb-ntr",), ("cb",), SETS), CORPORA),
    "DB is close to CB-NTR (1 point) or better on medium and tail labels":
        (lambda e: e.above(("db",), ("cb-ntr",), RARE, by=-1), CORPORA),
    "On documents with one label all losses have a similar micro-F1 (within 2 points)":
        (lambda e: e.near(LOSSES, LOSSES, ("single_label",), 2, MICRO), REUTERS),
    "From documents with one label to those with several, BCE loses more than DB":
        (lambda e: e.gains_more("db", "bce", ("multi_label",), "single_label"), REUTERS),
    "DB is the best loss in micro-F1 on documents with several labels, and in macro-F1 on "
    "those with one and those with several": (
        lambda e: both(
            e.above(("db",), LOSSES[:-1], ("multi_label",), MICRO),
            e.above(("db",), LOSSES[:-1], ("single_label", "multi_label"), MACRO),
        ), REUTERS,
    ),
    "NTR-FL, CB-NTR and DB are better than all other losses, whatever the number of labels "
    "of a document":
        (lambda e: e.above(WITH_NTR, WITHOUT_NTR, TERCILES), PUBMED),
    "The three most confused pairs of labels are the same for all losses: platinum and gold, "
    "yen and money-fx, platinum and copper":
        (lambda e: e.most_confused("reuters"), REUTERS),
    "The three most confused pairs of labels are the same for all losses: Pandemics and "
    "Betacoronavirus, Pandemics and SARS-CoV-2, Pneumonia, Viral and Betacoronavirus":
        (lambda e: e.most_confused("pubmed"), PUBMED),
    "BCE confuses these pairs more often than every other loss":
        (lambda e: e.more_errors("bce"), PUBMED),
    "What is confused most are linked labels, with every loss":
        (Evidence.confused_are_linked, CORPORA),
}  # fmt: skip


def evaluate_claims(corpus: str, ours: Evidence) -> list[dict[str, Any]]:
    """Check each claim about a corpus on our figures and on the paper's."""
    papers, rows = Evidence(paper_figures(corpus)), []
    for text, (check, corpora) in CLAIMS.items():
        if corpus in corpora:
            (seen, because), (seen_in_paper, why) = decide(check, ours), decide(check, papers)
            row = {"claim": text, "seen": seen, "because": because}
            rows.append({**row, "seen_in_paper": seen_in_paper, "because_in_paper": why})
    return rows


def decide(check: Callable[[Evidence], Outcome], evidence: Evidence) -> tuple[bool | None, str]:
    """The outcome of a check; None if figures are missing."""
    try:
        return check(evidence)
    except KeyError:
        return None, ""


def paper_figures(corpus: str) -> dict[str, dict[str, Pair | None]]:
    """Both of the paper's tables for a corpus in one."""
    labels, documents = (paper_rows(corpus, layout) for layout in LAYOUTS)
    return {row: cells | documents[row] for row, cells in labels.items()}


def row_name(row: str) -> str:
    """The display name of a row; rows of the paper are in capitals."""
    if row == BALANCED_SVM:
        return "SVM balanced"
    return row.upper() if row in (*LOSSES, "svm") else row


def signed(value: float) -> str:
    """Two decimals with a sign; a true minus sign for negative values."""
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


def _column(group: str, measure: int) -> str:
    return f"{'total' if group == 'all' else group.replace('_', '-')} {MEASURES[measure]}"
