"""The default on very many labels: newswire titles of growing sizes, trained and evaluated.

    python benchmarks/many_labels.py
    python benchmarks/many_labels.py --sizes 300000x131000 1000000x456599 --out results/x.txt

A size is documents x labels. The documents are the headlines of newswire stories with three labels
on average; the last tenth (at most --test) is the test part. `longtail train` runs in a process of
its own with --threads threads, and a second process loads the model, predicts the labels of the
test part and evaluates its scores. Seconds include reading and saving; "labels" are those of the
training part; memory is the peak of resident memory of the process. ns / (d x l) are nanoseconds of
CPU time for each pair of document and label.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MEAN_LABELS = 3.0
SIZES = ("10000x5000", "20000x10000", "40000x20000")
RANKED = ("precision@1", "precision@3", "precision@5", "psp@1", "psp@3", "psp@5")
NAMES = (
    "documents",
    "labels",
    "assignments",
    "train, s",
    "CPU s",
    "ns / (d x l)",
    "ms / assignment",
    "peak GiB",
    "model MB",
    "predict, docs/s",
    "peak GiB of predict",
    "P@1",
    "P@3",
    "P@5",
    "PSP@1",
    "PSP@3",
    "PSP@5",
    "micro-F1",
    "macro-F1",
    "tail micro / macro",
)


def write_titles(folder: Path, n_documents: int, n_labels: int, most_test: int) -> None:
    """The files train.jsonl and test.jsonl."""
    from longtail.corpora.newswire import Newswire

    wire = Newswire(n_documents, n_labels, mean_labels=MEAN_LABELS)
    first_test = n_documents - min(n_documents // 10, most_test)
    with open(folder / "train.jsonl", "w") as train, open(folder / "test.jsonl", "w") as test:
        for number, story in enumerate(wire):
            title = {"text": story.text.split("\n")[0], "labels": story.labels}
            (train if number < first_test else test).write(json.dumps(title) + "\n")


def timed(command: list[str], threads: int) -> tuple[float, float, float]:
    """Run a process; return its seconds, CPU seconds and peak GiB."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LOKY_MAX_CPU_COUNT")
    environment = os.environ | dict.fromkeys(names, str(threads))
    start = time.monotonic()
    process = subprocess.Popen(command, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    seconds = time.monotonic() - start
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def evaluate(run: Path, folder: Path, out: Path) -> None:
    """In a process of its own: predict and evaluate the test part."""
    from longtail import LongTailClassifier, load_data

    classifier = LongTailClassifier.from_pretrained(run)
    test = load_data(folder)["test"]
    classifier.predict(test.texts[:100])
    start = time.monotonic()
    classifier.predict(test.texts)
    rate = len(test) / (time.monotonic() - start)
    result, _ = classifier.evaluate_scores(test)
    stats, tail = classifier.label_stats_, result.tail
    values = {
        "documents": stats.n_samples,
        "labels": int((stats.label_counts > 0).sum()),
        "assignments": int(stats.label_counts.sum()),
        "rate": rate,
        "ranked": [100 * result.metrics[name] for name in RANKED],
        "f1": [100 * result.overall.micro_f1, 100 * result.overall.macro_f1],
        "tail": f"{100 * tail.micro_f1:.2f} / {100 * tail.macro_f1:.2f}",
    }
    out.write_text(json.dumps(values))


def measure(size: str, threads: int, most_test: int) -> list[str]:
    """A column of the table."""
    n_documents, n_labels = map(int, size.split("x"))
    folder = Path(tempfile.mkdtemp(prefix="many-labels-"))
    try:
        write_titles(folder, n_documents, n_labels, most_test)
        run, out = folder / "run", folder / "evaluation.json"
        cli = "from longtail.cli import main; main()"
        train = [sys.executable, "-c", cli, "train", str(folder), "--out", str(run)]
        seconds, cpu, peak = timed(train, threads)
        megabytes = sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) / 1e6
        again = [sys.executable, __file__, "--evaluate", str(run), str(folder), str(out)]
        _, _, predict_peak = timed(again, threads)
        values: dict[str, Any] = json.loads(out.read_text())
    finally:
        shutil.rmtree(folder)
    pairs = values["documents"] * values["labels"]
    return [
        *(f"{values[name]:,}" for name in ("documents", "labels", "assignments")),
        f"{seconds:,.0f}",
        f"{cpu:,.0f}",
        f"{1e9 * cpu / pairs:.1f}",
        f"{1e3 * cpu / values['assignments']:.2f}",
        f"{peak:.2f}",
        f"{megabytes:,.0f}",
        f"{values['rate']:,.0f}",
        f"{predict_peak:.2f}",
        *(f"{value:.2f}" for value in [*values["ranked"], *values["f1"]]),
        values["tail"],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="documents x labels")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--test", type=int, default=20_000, help="most documents of the test part")
    parser.add_argument("--out", type=Path, help="also append the table to this file")
    parser.add_argument("--evaluate", nargs=3, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.evaluate:
        evaluate(*arguments.evaluate)
        return
    columns = [list(NAMES)]
    for size in arguments.sizes:
        columns.append(measure(size, arguments.threads, arguments.test))
        print(*columns[-1], sep="; ", flush=True)
    widths = [max(map(len, column)) for column in columns]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in zip(*columns, strict=True)
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.out:
        with open(arguments.out, "a") as file:
            file.write(text)


if __name__ == "__main__":
    main()
