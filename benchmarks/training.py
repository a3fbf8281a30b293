"""Scores and speed of training: `bag` beside scikit-learn's SVM; with a GPU, encoders too.

    python benchmarks/training.py FOLDER                    # train, validation and test files
    python benchmarks/training.py FOLDER --encoder ENCODER  # also benchmarks/training_gpu.py

The SVM rows are the paper's baseline: one-vs-rest LinearSVC(C=1) on TF-IDF, shifted by the best of
-1, -0.9, ..., 1 for micro-F1 on the validation part. `bag` has one threshold for all labels from
the same part, the best there for micro-F1 or for the mean of micro- and macro-F1 (the default), or
is the default of `longtail train`: cross-fitted on training and validation documents,
thresholds `auto`. All settings were chosen out of fold; the test part is evaluated once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from longtail import LongTailClassifier, Training
from longtail.data import ReadReport, TextData, load_data
from longtail.evaluation import Evaluation, evaluate
from longtail.metrics import count, precision_recall_f1
from longtail.thresholds import Thresholds

SHIFTS = np.round(np.arange(-1, 1.05, 0.1), 1)
Result = tuple[float, Evaluation, str, float]
"""Seconds to train, the evaluation, the thresholds' method, documents per second in predict."""


def svm(parts: dict[str, TextData], class_weight: str | None) -> Result:
    """The paper's baseline with its search for the shift, by scikit-learn alone."""
    train, start = parts["train"], time.perf_counter()
    features = TfidfVectorizer()
    known = features.fit_transform(train.texts)
    columns = sp.csc_matrix(train.Y)

    def fit(label: int) -> LinearSVC:
        applies = columns[:, [label]].toarray().ravel()
        machine = LinearSVC(C=1, class_weight=class_weight, random_state=0, max_iter=5000)
        return machine.fit(known, applies)

    labels = range(columns.shape[1])
    machines = Parallel(n_jobs=-1, prefer="threads")(delayed(fit)(label) for label in labels)
    weight = np.stack([machine.coef_.ravel() for machine in machines])
    bias = np.array([machine.intercept_[0] for machine in machines])

    def scores(part: str) -> np.ndarray:
        return np.asarray(features.transform(parts[part].texts) @ weight.T + bias)

    held, truth = scores("validation"), parts["validation"].Y
    counts = [count(truth, sp.csr_matrix(held > shift)) for shift in SHIFTS]
    scored = [precision_recall_f1(each).f1 for each in counts]
    shift = float(SHIFTS[int(np.argmax(scored))])
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    margins = scores("test")
    rate = len(margins) / (time.perf_counter() - start)
    chosen = Thresholds(np.full(len(bias), shift), scale="margin")
    evaluation = evaluate(parts["test"].Y, margins, chosen, train.stats(), n_resamples=0)
    return seconds, evaluation, "shift", rate


def ours(parts: dict[str, TextData], **settings: object) -> Result:
    """A LongTailClassifier with these settings."""
    start = time.perf_counter()
    classifier = LongTailClassifier(training=Training(device="cpu"), **settings)  # type: ignore[arg-type]
    classifier.fit(parts["train"], validation=parts["validation"])
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    classifier.predict(parts["test"].texts)
    rate = len(parts["test"]) / (time.perf_counter() - start)
    return seconds, classifier.evaluate(parts["test"]), classifier.thresholds_.method, rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder with train, validation and test files")
    parser.add_argument("--encoder", help="folder of a BERT-like encoder, to measure on a GPU")
    options = parser.parse_args()
    parts = load_data(options.data, report=ReadReport())
    one = {"folds": 1, "thresholds": "global"}
    rows: dict[str, Callable[[], Result]] = {
        "scikit-learn SVM + shift": lambda: svm(parts, None),
        "scikit-learn SVM balanced + shift": lambda: svm(parts, "balanced"),
        "bag bce, one threshold for the mean": lambda: ours(parts, loss="bce", **one),
        "bag db, one threshold for the mean": lambda: ours(parts, **one),
        "bag db, one threshold for micro-F1": lambda: ours(parts, **one, objective="micro"),
        "bag db cross-fitted, one threshold": lambda: ours(parts, thresholds="global"),
        "bag db, default of longtail train": lambda: ours(parts),
        "svm cross-fitted, auto": lambda: ours(parts, model="svm"),
    }
    title = "micro-F1 / macro-F1 on the test part; groups by training counts"
    table = Table(title=title)
    for name in ("", "seconds", "all", "head", "medium", "tail", "thresholds", "predict, docs/s"):
        table.add_column(name, justify="left" if name in ("", "thresholds") else "right")
    for name, run in rows.items():
        seconds, result, method, rate = run()
        groups = (result.overall, result.head, result.medium, result.tail)
        cells = [f"{100 * each.micro_f1:.2f} / {100 * each.macro_f1:.2f}" for each in groups]
        table.add_row(name, f"{seconds:.1f}", *cells, method, f"{rate:,.0f}")
    Console(width=150).print(table)
    if options.encoder:
        import training_gpu

        training_gpu.measure(options.data, options.encoder, None)


if __name__ == "__main__":
    main()
