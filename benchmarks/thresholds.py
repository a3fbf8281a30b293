"""Compare the methods to choose thresholds on out-of-fold scores of a linear SVM.

    python benchmarks/thresholds.py reuters                  # a corpus name, a file or a folder
    python benchmarks/thresholds.py FOLDER --folds 5 --objective mean

Training and validation part together are cut into stratified folds; every document is scored by
the one-vs-rest LinearSVC of the other folds. A label that a fold's training documents lack has no
score there (masked). Thresholds see these scores only; the test part is evaluated once, by a model
of all documents. `unseen` is the cross-validated F1 of a method.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from longtail.corpora import list_corpora, load_corpus
from longtail.data import ReadReport, TextData, load_data
from longtail.data.splits import assign_stratified
from longtail.evaluation import Scores, evaluate
from longtail.thresholds import cross_validated_score, fit_thresholds, list_methods


def svm_scores(train: TextData, texts: list[str]) -> np.ma.MaskedArray:
    """Distances to the hyperplanes; labels without a training document are masked."""
    features = TfidfVectorizer(sublinear_tf=True)
    train_features, test_features = features.fit_transform(train.texts), features.transform(texts)
    scores = np.ma.masked_all((len(texts), len(train.label_names)), dtype=np.float32)
    columns = sp.csc_matrix(train.Y)
    for label in np.flatnonzero(np.diff(columns.indptr)):
        applies = columns[:, [label]].toarray().ravel()
        if applies.all():
            continue
        machine = LinearSVC(C=1, random_state=0).fit(train_features, applies)
        scores[:, label] = machine.decision_function(test_features)
    return scores


def percent(scores: Scores) -> str:
    return f"{100 * scores.micro_f1:.2f} / {100 * scores.macro_f1:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--objective", default="mean")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    load = load_corpus if options.data in list_corpora() else load_data
    parts = load(options.data, report=ReadReport())
    train, test = TextData.concat([parts["train"], parts["validation"]]), parts["test"]
    shares = [1 / options.folds] * options.folds
    folds = assign_stratified(train.Y, shares, options.seed, first_is_train=False)
    start = time.perf_counter()
    scores = np.ma.masked_all(train.Y.shape, dtype=np.float32)
    for fold in range(options.folds):
        held_out = np.flatnonzero(folds == fold)
        scores[held_out] = svm_scores(train.select(folds != fold), train.select(held_out).texts)
    test_scores = svm_scores(train, test.texts)
    scoring = time.perf_counter() - start
    # Groups by the counts of the training part alone, as everywhere.
    stats = parts["train"].stats()
    counts = train.stats().label_counts
    title = f"{options.data}: SVM, {options.folds} folds, {options.objective}"
    title += f" ({scoring:.0f} s to score)"
    table = Table(title=title)
    for column in ("thresholds", "seconds", "unseen", "test, all", "tail"):
        table.add_column(column, justify="left" if column == "thresholds" else "right")
    for method in (name for name in list_methods() if name != "grid"):
        start = time.perf_counter()
        arguments = {"objective": options.objective, "scale": "margin", "folds": folds}
        thresholds = fit_thresholds(scores, train.Y, counts, method, **arguments)
        seconds = time.perf_counter() - start
        result = evaluate(test.Y, test_scores, thresholds, stats, scale="margin", n_resamples=0)
        name = f"{method}: {thresholds.method}" if method != thresholds.method else method
        unseen = cross_validated_score(scores, train.Y, counts, method, **arguments)
        expected = f"{100 * unseen.micro_f1:.2f} / {100 * unseen.macro_f1:.2f}"
        table.add_row(
            name, f"{seconds:.1f}", expected, percent(result.overall), percent(result.tail)
        )
    Console().print(table)


if __name__ == "__main__":
    main()
