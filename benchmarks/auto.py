"""What `auto` gains over one C for all corpora: leave one corpus out.

python benchmarks/auto.py FOLDER[:noisy|:titles]... [--min-count NAME=COUNT] [--C 0.1 1 10]

FOLDER has train and test parts; `noisy` deletes 30 % of the training labels at random, `titles`
keeps the first line of each text, or its first 120 characters. For each corpus: test micro- and
macro-F1 of a squared hinge on words with each C; of the C that is best on the held-out documents
of the other corpora (mean of cross-validated micro- and macro-F1, relative to the best of each
corpus); of `auto`; the points that both lose against the best C in hindsight; and what the whole of
`auto` costs beside one fit of what it chose, in CPU time of this process.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

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
    chosen: list[Any]
    cpu: float

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


def result(model: Any, corpus: str, min_count: int) -> Result:
    parts = read(corpus, min_count)
    start = time.process_time()
    classifier = LongTailClassifier(model).fit(
        parts["train"], validation=parts.get("validation"), note=lambda text: None
    )
    cpu = time.process_time() - start
    overall = classifier.evaluate(parts["test"]).overall
    assert classifier.facts_.cross_validated is not None
    held_out = classifier.facts_.cross_validated["all"]
    mean = 50 * (held_out.micro_f1 + held_out.macro_f1)
    chosen = [dataclasses.replace(plan.model, loss=plan.loss) for plan in classifier.plans_]
    values = Result(100 * overall.micro_f1, 100 * overall.macro_f1, mean, chosen, cpu)
    print(f"{corpus}: {model}: {values}, {cpu:.0f} CPU s, {chosen}", file=sys.stderr, flush=True)
    return values


def compile_solver() -> None:
    """Before anything is timed."""
    texts, labels = ["copper rose", "wheat fell"] * 4, [["copper"], ["wheat"]] * 4
    LongTailClassifier(Bag(C=1.0, loss="squared-hinge")).fit(texts, labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpora", nargs="+", metavar="FOLDER")
    parser.add_argument("--min-count", action="append", default=[], metavar="NAME=COUNT")
    parser.add_argument("--C", nargs="+", type=float, default=PATH)
    args = parser.parse_args()
    min_counts = dict(pair.split("=") for pair in args.min_count)
    names = {corpus: Path(corpus).name for corpus in args.corpora}
    fixed = {f"C={C:g}": Bag(C=C, loss="squared-hinge") for C in args.C}
    compile_solver()
    of: dict[tuple[str, str], Result] = {}
    for corpus, name in names.items():
        min_count = int(min_counts.get(name.partition(":")[0], 0))
        for title, model in {**fixed, "auto": "auto"}.items():
            of[corpus, title] = result(model, corpus, min_count)
        of[corpus, "again"] = result(of[corpus, "auto"].chosen, corpus, min_count)
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
        again = of[corpus, "again"]
        cost = f"{auto.cpu:.0f} s, {auto.cpu / again.cpu:.1f} times"
        chosen = " + ".join(f"{model.C:g}" for model in auto.chosen)
        cells = [f"{of[corpus, left_out]} ({left_out})", f"{auto} (C={chosen})", *lost, cost]
        rows.append([name, *(str(of[corpus, C]) for C in fixed), *cells])
    header = ["test part", *fixed, "C of the others", "auto", "lost by it", "lost by auto"]
    header.append("auto beside one fit")
    print(to_markdown(Table("Leave one corpus out", header, rows)))


if __name__ == "__main__":
    main()
