"""What a person should know about labelled documents: `stats` measures, `render` shows."""

from longtail.statistics.facts import DataStats, LinkedPair
from longtail.statistics.measures import linked_pairs, stats
from longtail.statistics.tables import render

__all__ = ["DataStats", "LinkedPair", "linked_pairs", "render", "stats"]
