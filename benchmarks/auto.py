"""What `auto` gains over one C for all corpora: leave one corpus out.

python benchmarks/auto.py FOLDER[:noisy|:titles]... [--min-count NAME=COUNT] [--jobs 4]

FOLDER has train and test parts; `noisy` deletes 30 % of the training labels at random, `titles`
keeps the first line of each text, or its first 120 characters. For each corpus: test micro- and
macro-F1 of a squared hinge on words with each C; of the C that is best on the held-out documents
of the other corpora (mean of cross-validated micro- and macro-F1, relative to the best of each
corpus); of `auto`; and the points that both lose against the best C in hindsight.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from pathlib import Path
from typing import NamedTuple

import joblib
import numpy as np

from longtail import Bag, LongTailClassifier, TextData, load_data
from longtail.data.documents import ReadReport
from longtail.report.table import Table, to_markdown

PATH = (0.1, 0.32, 1.0, 3.2, 10.0)
DELETED, TITLE = 0.3, 120


class Result(NamedTuple):
    micro: float
    macro: float
    held_out: float
    chosen: str

    @property
    def mean(self) -> float:
        return (self.micro + self.macro) / 2

    def __str__(self) -> str:
        return f"{self.micro:.2f} / {self.macro:.2f}"


def read(corpus: str, min_count: int) -> dict[str, TextData]:
    folder, _, kind = corpus.partition(":")
    parts = load_data(folder, keep_unlabelled=True, min_count=min_count, report=ReadReport())
    if kind == "titles":
        for name, part in parts.items():
            titles = [text.partition("\n")[0][:TITLE] for text in part.texts]
            parts[name] = dataclasses.replace(part, texts=titles)
    if kind == "noisy":
        for name in ("train", "validation"):
            Y = parts[name].Y.copy()
            Y.data *= np.random.default_rng(0).random(Y.nnz) >= DELETED
            Y.eliminate_zeros()
            parts[name] = dataclasses.replace(parts[name], Y=Y)
    return parts


def result(model: str | Bag, corpus: str, min_count: int) -> Result:
    parts = read(corpus, min_count)
    classifier = LongTailClassifier(model).fit(
        parts["train"], validation=parts.get("validation"), note=lambda text: None
    )
    overall = classifier.evaluate(parts["test"]).overall
    assert classifier.facts_.cross_validated is not None
    held_out = classifier.facts_.cross_validated["all"]
    cross_validated = 50 * (held_out.micro_f1 + held_out.macro_f1)
    chosen = " + ".join(str(plan.model.get_params()["C"]) for plan in classifier.plans_)
    return Result(100 * overall.micro_f1, 100 * overall.macro_f1, cross_validated, chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpora", nargs="+", metavar="FOLDER")
    parser.add_argument("--min-count", action="append", default=[], metavar="NAME=COUNT")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    min_counts = dict(pair.split("=") for pair in args.min_count)
    names = {corpus: Path(corpus).name for corpus in args.corpora}
    models = {**{f"C={C:g}": Bag(C=C, loss="squared-hinge") for C in PATH}, "auto": "auto"}
    tasks = list(itertools.product(names, models))
    results = joblib.Parallel(args.jobs, batch_size=1)(
        joblib.delayed(result)(models[m], c, int(min_counts.get(names[c].split(":")[0], 0)))
        for c, m in tasks
    )
    of = dict(zip(tasks, results, strict=True))
    fixed = [name for name in models if name != "auto"]
    rows = []
    for corpus, name in names.items():
        relative = {
            C: sum(
                of[other, C].held_out - max(of[other, each].held_out for each in fixed)
                for other in names
                if other != corpus
            )
            for C in fixed
        }
        left_out = max(fixed, key=lambda C: relative[C])
        best, auto = max(of[corpus, C].mean for C in fixed), of[corpus, "auto"]
        lost = (f"{best - each.mean:.2f}" for each in (of[corpus, left_out], auto))
        cells = [f"{of[corpus, left_out]} ({left_out})", f"{auto} (C={auto.chosen})"]
        rows.append([name, *(str(of[corpus, C]) for C in fixed), *cells, *lost])
    header = ["test part", *fixed, "C of the others", "auto", "lost by it", "lost by auto"]
    print(to_markdown(Table("Leave one corpus out", header, rows)))


if __name__ == "__main__":
    main()
