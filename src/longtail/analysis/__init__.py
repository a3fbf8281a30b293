"""Numbers for reports: statistics of corpora, mistakes, curves, comparisons of runs; no drawing."""

from longtail.analysis.label_warnings import label_warnings
from longtail.analysis.measures import LinkedPair, linked_pairs
from longtail.analysis.mistakes import (
    ConfusedPair,
    confused_pairs,
    never_predicted,
    worst_documents,
)
from longtail.analysis.runs import Run, compare_runs
from longtail.analysis.statistics import stats
from longtail.analysis.verdict import Lead, Weakness, leads, weakness

__all__ = [
    "ConfusedPair",
    "Lead",
    "LinkedPair",
    "Run",
    "Weakness",
    "compare_runs",
    "confused_pairs",
    "label_warnings",
    "leads",
    "linked_pairs",
    "never_predicted",
    "stats",
    "weakness",
    "worst_documents",
]
