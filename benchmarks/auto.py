"""What `auto` gains over one C for all corpora: leave one corpus out.

python benchmarks/auto.py FOLDER[:KIND]... [--min-count NAME=COUNT] [--C 0.1 1 10]
                          [--results FILE]

FOLDER has train and test parts. KIND changes them: `noisy` deletes 30 % of the training labels at
random; `titles` keeps the first line of each text, or its first 120 characters; `moods` keeps
titles and the 28 most frequent labels, and for 30 % of the training labels puts another in their
place, half of the time none: as people label short messages. For each corpus: test micro- and
macro-F1 of a squared hinge on words with each C; of the C that is best on the held-out documents
of the other corpora (mean of cross-validated micro- and macro-F1, relative to the best of each
corpus); where texts are short, of words and characters with the best of some C in hindsight; of
`auto`; the points that it and the C of the others lose against the best of all these in hindsight;
and what the whole of `auto` costs beside one fit of what it chose, in CPU time. FILE keeps
results, one a line, and those that it has are not computed again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail import Bag, LongTailClassifier, TextData, load_data
from longtail.data.documents import ReadReport
from longtail.models.stages import HINGE, asks_for_characters
from longtail.report.table import Table, to_markdown

PATH = (0.1, 0.32, 1.0, 3.2, 10.0)
DELETED, TITLE, N_MOODS = 0.3, 120, 28
WITH_CHARACTERS = (0.32, 1.0, 3.2)


class Result(NamedTuple):
    micro: float
    macro: float
    held_out: float
    chosen: list[dict[str, Any]]
    cpu: float

    @property
    def mean(self) -> float:
        return (self.micro + self.macro) / 2

    def __str__(self) -> str:
        return f"{self.micro:.2f} / {self.macro:.2f}"


def read(corpus: str, min_count: int) -> dict[str, TextData]:
    folder, _, kind = corpus.partition(":")
    parts = load_data(folder, keep_unlabelled=True, min_count=min_count, report=ReadReport())
    if kind in ("titles", "moods"):
        for name, part in parts.items():
            titles = [text.partition("\n")[0][:TITLE] for text in part.texts]
            parts[name] = dataclasses.replace(part, texts=titles)
    if kind == "moods":
        counts = np.asarray(parts["train"].Y.sum(axis=0)).ravel()
        names = [parts["train"].label_names[k] for k in np.argsort(-counts, kind="stable")]
        parts = {name: part.onto(names[:N_MOODS])[0] for name, part in parts.items()}
        rng = np.random.default_rng(0)
        for name in {"train", "validation"} & parts.keys():
            Y = parts[name].Y.tocoo()
            wrong = rng.random(Y.nnz) < DELETED
            columns = np.where(wrong, rng.integers(N_MOODS, size=Y.nnz), Y.col)
            kept = ~wrong | (rng.random(Y.nnz) < 0.5)
            changed = sp.csr_matrix((Y.data[kept], (Y.row[kept], columns[kept])), Y.shape)
            changed.data[:] = 1
            parts[name] = dataclasses.replace(parts[name], Y=changed)
    if kind == "noisy":
        for name in {"train", "validation"} & parts.keys():
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
    chosen = [plan.model.to_dict() | {"loss": plan.loss} for plan in classifier.plans_]
    values = Result(100 * overall.micro_f1, 100 * overall.macro_f1, mean, chosen, cpu)
    print(f"{corpus}: {model}: {values}, {cpu:.0f} CPU s, {chosen}", file=sys.stderr, flush=True)
    return values


def compile_solver() -> None:
    """Before anything is timed."""
    texts, labels = ["copper rose", "wheat fell"] * 4, [["copper"], ["wheat"]] * 4
    LongTailClassifier(Bag(C=1.0, loss="squared-hinge")).fit(texts, labels)


def known(file: Path | None) -> dict[tuple[str, str], Result]:
    lines = file.read_text("utf-8").splitlines() if file and file.exists() else []
    read = [json.loads(line) for line in lines]
    return {(each.pop("corpus"), each.pop("title")): Result(**each) for each in read}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpora", nargs="+", metavar="FOLDER")
    parser.add_argument("--min-count", action="append", default=[], metavar="NAME=COUNT")
    parser.add_argument("--C", nargs="+", type=float, default=PATH)
    parser.add_argument("--results", type=Path)
    args = parser.parse_args()
    min_counts = dict(pair.split("=") for pair in args.min_count)
    names = {corpus: Path(corpus).name for corpus in args.corpora}
    fixed = {f"C={C:g}": Bag(C=C, loss="squared-hinge") for C in args.C}
    compile_solver()
    of = known(args.results)

    def compute(corpus: str, title: str, model: Any) -> None:
        if (names[corpus], title) not in of:
            min_count = int(min_counts.get(names[corpus].partition(":")[0], 0))
            values = of[names[corpus], title] = result(model, corpus, min_count)
            if args.results:
                line = {"corpus": names[corpus], "title": title, **values._asdict()}
                with args.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")

    for corpus, name in names.items():
        models: dict[str, Any] = {"auto": "auto", **fixed}
        if asks_for_characters(read(corpus, 0)["train"].texts):
            for C in WITH_CHARACTERS:
                models[f"C={C:g}, characters"] = Bag(C=C, char_ngrams=4, loss="squared-hinge")
        for title, model in models.items():
            compute(corpus, title, model)
        compute(corpus, "again", [Bag(**each) for each in of[name, "auto"].chosen])
    print(to_markdown(table(list(names.values()), list(fixed), of)))


def table(names: list[str], fixed: list[str], of: dict[tuple[str, str], Result]) -> Table:
    rows = []
    for name in names:
        relative = {
            C: sum(
                of[other, C].held_out - max(of[other, each].held_out for each in fixed)
                for other in names
                if other != name
            )
            for C in fixed
        }
        left_out = max(fixed, key=lambda C: relative[C])
        by_title = {title: each for (corpus, title), each in of.items() if corpus == name}
        singles = [title for title in by_title if title not in ("auto", "again")]
        best = max(singles, key=lambda title: by_title[title].mean)
        characters = [title for title in singles if "characters" in title]
        of_characters = max(characters, key=lambda title: by_title[title].mean, default="")
        auto, again = by_title["auto"], by_title["again"]
        lost = (f"{by_title[best].mean - each.mean:.2f}" for each in (of[name, left_out], auto))
        cost = f"{auto.cpu:.0f} s, {auto.cpu / again.cpu:.1f} times"
        chosen = " + ".join(described(each) for each in auto.chosen)
        cells = [f"{by_title[of_characters]} ({of_characters})" if characters else "not tried"]
        cells += [f"{of[name, left_out]} ({left_out})", f"{auto} ({chosen})", *lost, cost]
        rows.append([name, *(str(of[name, C]) for C in fixed), *cells])
    header = ["test part", *fixed, "best with characters", "C of the others", "auto"]
    header += ["lost by it", "lost by auto", "auto beside one fit"]
    return Table("Leave one corpus out", header, rows)


def described(chosen: dict[str, Any]) -> str:
    extra = ", characters" * bool(chosen["char_ngrams"])
    extra += ", not weighted" * (not chosen["informed"])
    loss = "" if chosen["loss"] == HINGE else f"{chosen['loss']}, "
    return f"{loss}C={chosen['C']:g}{extra}"


if __name__ == "__main__":
    main()
