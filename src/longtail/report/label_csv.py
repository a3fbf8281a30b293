"""Every label of every run as CSV, for a spreadsheet or pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from longtail.analysis.runs import label_rows
from longtail.evaluation import Evaluation

MEASURES = ("predicted", "threshold", "precision", "recall", "f1")


def to_csv(evaluations: Mapping[str, Evaluation]) -> str:
    """A row per label, and columns `RUN MEASURE` if there are several runs.

    Fractions, and thresholds on the scale of the scores, `inf` where the label is never predicted;
    empty where a run does not know the label.
    """
    names = [f"{run} " for run in evaluations] if len(evaluations) > 1 else [""]
    measures = [f"{name}{measure}" for name in names for measure in MEASURES]
    table = csv.writer(text := io.StringIO(), lineterminator="\n")
    table.writerow(["label", "group", "train_count", "documents", *measures])
    for row in label_rows(evaluations):
        values = [row["figures"][each][k] for k in range(len(names)) for each in MEASURES]
        figures = ["" if value is None else f"{value:.6g}" for value in values]
        table.writerow([row["name"], row["group"], row["train_count"], row["documents"], *figures])
    return text.getvalue()
