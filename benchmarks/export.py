"""Trained runs beside their exports: scores, labels, F1, size and speed.

    python benchmarks/export.py FOLDER RUN... --out results/export-cpu.txt

FOLDER has a test part, of which 500 documents are drawn that no RUN was trained on. Each run is
exported to ONNX and, if it has a network, to ONNX in 8 bits. Speeds are documents per second of CPU
time on one thread, from texts to labels, the best of three passes: of all documents at once, and of
100 of them one by one, as a service gets them. The table has their ratios to torch.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from longtail import LongTailClassifier, TextData, load_data
from longtail.classifier.export import compare, to_onnx
from longtail.data import ReadReport
from longtail.errors import InputError
from longtail.reproduce.cells import commit, hardware

N_DOCUMENTS, N_SINGLE, PASSES = 500, 100, 3
LINE = "  {:<9} {:>9} {:>9} {:>8} {:>15} {:>14} {:>12} {:>12}"
HEAD = ("", "MB", "largest", "same", "micro / macro", "loss of F1,", "at once,", "one by one,")
HEAD_2 = ("", "", "change", "labels", "F1", "points", "to torch", "to torch")


def speed(predict: Callable[[], object], n: int) -> float:
    seconds = []
    for _ in range(PASSES):
        start = time.process_time()
        predict()
        seconds.append(time.process_time() - start)
    return n / min(seconds)


def speeds(classifier: LongTailClassifier, texts: list[str]) -> tuple[float, float]:
    """All at once, and one by one."""
    singles = texts[:N_SINGLE]
    return (
        speed(lambda: classifier.predict(texts), len(texts)),
        speed(lambda: [classifier.predict([text]) for text in singles], len(singles)),
    )


def size(classifier: LongTailClassifier) -> float:
    """Of the saved folder, in MB."""
    with tempfile.TemporaryDirectory() as folder:
        classifier.save_pretrained(folder)
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 1e6


def rows(classifier: LongTailClassifier, data: TextData) -> Iterator[str]:
    plans = ", ".join(plan.model.description for plan in classifier.plans_)
    documents = f"{classifier.label_stats_.n_samples:,.0f} training documents"
    yield f"{plans}: {len(classifier.ensemble_.models)} models, {documents}"
    yield LINE.format(*HEAD)
    yield LINE.format(*HEAD_2)
    base = speeds(classifier, data.texts)
    overall = classifier.evaluate(data).overall
    before = f"{100 * overall.micro_f1:.2f} / {100 * overall.macro_f1:.2f}"
    each = [f"{rate:,.0f}/s" for rate in base]
    yield LINE.format("torch", f"{size(classifier):.1f}", "", "", before, "", *each)
    for name, int8 in (("onnx", False), ("onnx int8", True)):
        try:
            exported = to_onnx(classifier, int8)
        except InputError as error:
            yield f"  {name:<9} {str(error).partition(':')[0]}"
            continue
        found = compare(classifier, exported, data)
        one, other = (evaluation.overall for evaluation in found.evaluations)
        after = f"{100 * other.micro_f1:.2f} / {100 * other.macro_f1:.2f}"
        micro, macro = one.micro_f1 - other.micro_f1, one.macro_f1 - other.macro_f1
        after_speeds = speeds(exported, data.texts)
        ratios = [f"{new / old:.2f} x" for new, old in zip(after_speeds, base, strict=True)]
        yield LINE.format(
            name,
            f"{size(exported):.1f}",
            f"{found.difference:.1e}",
            f"{100 * found.n_alike / found.n_documents:.1f} %",
            after,
            f"{100 * micro:.2f} / {100 * macro:.2f}",
            *ratios,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    classifiers = [LongTailClassifier.from_pretrained(run, "cpu") for run in arguments.runs]
    data = load_data(arguments.folder, report=ReadReport())["test"]
    for classifier in classifiers:
        data = data.select(~classifier.trained_on(data.texts))
    drawn = np.random.default_rng(0).permutation(len(data))[:N_DOCUMENTS]
    data = data.select(np.sort(drawn))
    lines = [
        f"python benchmarks/export.py {arguments.folder.name} RUN...",
        f"{hardware(())}; commit {commit()}; one thread; {len(data)} documents",
    ]
    for classifier in classifiers:
        lines += ["", *rows(classifier, data)]
    print("\n".join(lines))
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
