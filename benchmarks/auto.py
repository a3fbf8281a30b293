"""What `auto` gains over one C for all corpora: leave one corpus out.

python benchmarks/auto.py FOLDER... [--min-count 5]

FOLDER has train and test parts. For each corpus: test micro- and macro-F1 of every C; of the C that
is best on the held-out documents of the other corpora (mean of cross-validated micro- and macro-F1,
relative to the best of each corpus); of `auto`; and the points that both lose against the best C in
hindsight.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from longtail import Bag, LongTailClassifier, load_data
from longtail.report.table import Table, to_markdown

PATH = (0.1, 0.32, 1.0, 3.2, 10.0)


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


def result(model: str | Bag, folder: Path, min_count: int) -> Result:
    parts = load_data(folder, keep_unlabelled=True, min_count=min_count)
    classifier = LongTailClassifier(model).fit(parts["train"], validation=parts.get("validation"))
    overall = classifier.evaluate(parts["test"]).overall
    held_out = classifier.facts_.cross_validated
    assert held_out is not None
    chosen = " and ".join(f"C={plan.model.get_params()['C']:g}" for plan in classifier.plans_)
    return Result(100 * overall.micro_f1, 100 * overall.macro_f1, 50 * sum(held_out), chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--min-count", type=int, default=0)
    args = parser.parse_args()
    fixed: dict[Path, dict[float, Result]] = {}
    auto: dict[Path, Result] = {}
    for folder in args.folders:
        fixed[folder] = {
            C: result(Bag(C=C, loss="squared-hinge"), folder, args.min_count) for C in PATH
        }
        auto[folder] = result("auto", folder, args.min_count)
        print(folder.name, *fixed[folder].values(), "auto", auto[folder], flush=True)
    rows = []
    for folder, results in fixed.items():
        others = [fixed[other] for other in fixed if other != folder]
        relative = {
            C: sum(each[C].held_out - max(r.held_out for r in each.values()) for each in others)
            for C in PATH
        }
        left_out = max(PATH, key=lambda C: relative[C])
        best = max(each.mean for each in results.values())
        regrets = (f"{best - results[left_out].mean:.2f}", f"{best - auto[folder].mean:.2f}")
        cells = [f"{results[left_out]} (C={left_out:g})", f"{auto[folder]} ({auto[folder].chosen})"]
        rows.append([folder.name, *map(str, results.values()), *cells, *regrets])
    header = ["test part", *(f"C={C:g}" for C in PATH), "C of the others", "auto"]
    header += ["lost by it", "lost by auto"]
    print(to_markdown(Table("Leave one corpus out", header, rows)))


if __name__ == "__main__":
    main()
