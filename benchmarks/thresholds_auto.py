"""Test F1 of every method to choose thresholds, and what the choice of `auto` costs.

    python benchmarks/thresholds_auto.py CORPORA --cache scores     # a folder of corpora
    python benchmarks/thresholds_auto.py CORPORA --sets reuters eurlex57k

CORPORA has a folder for each corpus (reuters, pubmed_mesh, eurlex57k), as `load_data` reads it.
Training and validation part together are cut into stratified folds, and every document is scored
by the linear model of the other folds; thresholds see these scores only. `noisy`: 30 % of the
labels of the training documents are deleted, for the models and for the thresholds. Figures are
means over the seeds, which draw folds, deleted labels and, of a part of a corpus, the documents.
The regret of `auto` is how far the mean of its micro- and macro-F1 is below the best method's.
"""

from __future__ import annotations

import argparse
import pickle
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from longtail.classifier.ensemble import KEPT_LABELS
from longtail.classifier.kept_pairs import highest
from longtail.data import ReadReport, TextData, load_data
from longtail.data.splits import assign_stratified
from longtail.metrics import count, precision_recall_f1
from longtail.thresholds import METHODS, fit_thresholds

DELETED = 0.3


class DataSet(NamedTuple):
    """One line of the table: a corpus, its model, and what is changed."""

    corpus: str
    model: str
    n_folds: int = 5
    n_documents: int | None = None
    """Training documents, drawn from all parts; all others are the test part."""
    n_labels: int | None = None
    """From the most frequent label on, in equal steps of log(rank)."""
    noisy: bool = False
    n_seeds: int = 3


FEW = DataSet("pubmed_mesh", "logistic", n_documents=6000, n_labels=23)
SETS = {
    "reuters": DataSet("reuters", "svm"),
    "reuters noisy": DataSet("reuters", "svm", noisy=True),
    "reuters logistic": DataSet("reuters", "logistic"),
    "reuters logistic noisy": DataSet("reuters", "logistic", noisy=True),
    "23 labels": FEW,
    "23 labels noisy": FEW._replace(noisy=True),
    "23 labels svm": FEW._replace(model="svm"),
    "pubmed_mesh": DataSet("pubmed_mesh", "ridge", 3, n_seeds=1),
    "eurlex57k": DataSet("eurlex57k", "ridge", 3, n_seeds=1),
    "eurlex57k noisy": DataSet("eurlex57k", "ridge", 3, noisy=True, n_seeds=1),
}


class Scored(NamedTuple):
    """Out-of-fold scores of the training documents, and scores of the test part."""

    scores: Any
    y_train: sp.csr_matrix
    folds: np.ndarray
    test_scores: Any
    y_test: sp.csr_matrix


def one_vs_rest(machine: Callable[[], Any]) -> Callable[..., np.ndarray]:
    def scores(features: Any, y_train: sp.csr_matrix, others: Any) -> np.ndarray:
        columns = []
        for label in range(y_train.shape[1]):
            applies = y_train[:, [label]].toarray().ravel()
            if applies.any() and not applies.all():
                columns.append(machine().fit(features, applies).decision_function(others))
            else:
                columns.append(np.zeros(others.shape[0]))
        return np.column_stack(columns).astype(np.float32)

    return scores


def ridge(features: Any, y_train: sp.csr_matrix, others: Any) -> np.ndarray:
    """Least squares on all labels at once."""
    gram = features.T @ features + np.eye(features.shape[1], dtype=np.float32) * 0.3
    weights = np.linalg.solve(gram, (y_train.T @ features).T).astype(np.float32)
    return np.asarray(others @ weights)


MODELS: dict[str, tuple[str, Callable[..., np.ndarray]]] = {
    "svm": ("margin", one_vs_rest(lambda: LinearSVC(C=1, random_state=0))),
    "logistic": ("logit", one_vs_rest(lambda: LogisticRegression(C=10, solver="liblinear"))),
    "ridge": ("margin", ridge),
}


def known_pairs(scores: np.ndarray, known: np.ndarray) -> Any:
    """Labels without a training document masked; of many labels the highest of each document."""
    if len(known) < 1000:
        return np.ma.MaskedArray(scores, np.broadcast_to(~known, scores.shape))
    return highest(np.where(known, scores, -np.inf), KEPT_LABELS)


def scored(folder: Path, chosen: DataSet, seed: int) -> Scored:
    parts = load_data(folder / chosen.corpus, report=ReadReport())
    train = TextData.concat([parts[name] for name in ("train", "validation") if name in parts])
    test, rng = parts["test"], np.random.default_rng(seed)
    if chosen.n_documents:
        everything = TextData.concat([train, test])
        order = rng.permutation(len(everything))
        train = everything.select(order[: chosen.n_documents])
        test = everything.select(order[chosen.n_documents :])
    y_train, y_test = sp.csr_matrix(train.Y), sp.csr_matrix(test.Y)
    if chosen.n_labels:
        order = np.argsort(-np.bincount(y_train.indices, minlength=y_train.shape[1]))
        ranks = np.geomspace(1, 600, chosen.n_labels).astype(int) - 1
        labels = order[ranks + np.arange(chosen.n_labels)]
        y_train, y_test = y_train[:, labels], y_test[:, labels]
    if chosen.noisy:
        pairs = y_train.tocoo()
        kept = rng.random(pairs.nnz) >= DELETED
        y_train = sp.csr_matrix((pairs.data[kept], (pairs.row[kept], pairs.col[kept])), pairs.shape)
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, max_features=50_000, dtype=np.float32)
    features, test_features = (
        vectorizer.fit_transform(train.texts),
        vectorizer.transform(test.texts),
    )
    if chosen.model == "ridge":
        svd = TruncatedSVD(400, n_iter=2, random_state=0)
        features, test_features = svd.fit_transform(features), svd.transform(test_features)
    shares = [1 / chosen.n_folds] * chosen.n_folds
    folds = assign_stratified(y_train, shares, seed, first_is_train=False)
    score, stack = MODELS[chosen.model][1], []
    known = np.zeros((chosen.n_folds, y_train.shape[1]), dtype=np.bool_)
    for fold in range(chosen.n_folds):
        rest = folds != fold
        known[fold] = y_train[rest].sum(axis=0) > 0
        fold_scores = score(features[rest], y_train[rest], features[~rest])
        stack.append(known_pairs(fold_scores, known[fold]))
    back = np.argsort(np.argsort(folds, kind="stable"))
    sparse = sp.issparse(stack[0])
    scores = (sp.vstack(stack, "csr") if sparse else np.ma.concatenate(stack))[back]
    if sparse:  # as in `likely_pairs`
        y_train = y_train.multiply(known[folds]).tocsr()
    test_scores = score(features, y_train, test_features)
    return Scored(scores, y_train, folds, known_pairs(test_scores, known.any(axis=0)), y_test)


def cached(folder: Path | None, name: str, compute: Callable[[], Scored]) -> Scored:
    path = folder and folder / f"{name.replace(' ', '-')}.pickle"
    if path is None or not path.exists():
        result = compute()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pickle.dumps(tuple(result), protocol=5))
        return result
    return Scored(*pickle.loads(path.read_bytes()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--cache", type=Path, help="folder to keep the scores in")
    parser.add_argument("--objective", default="mean")
    options = parser.parse_args()
    methods = [name for name in METHODS if name != "grid"]
    table = Table(title="micro- / macro-F1 on the test part")
    for column in ("scores", *methods, "auto", "chosen", "regret", "CPU seconds"):
        table.add_column(column, justify="left" if column == "scores" else "right")
    for name in options.sets:
        chosen, n_methods = SETS[name], len(methods) + 1
        seconds, f1, names = 0.0, np.zeros((n_methods, 2)), []
        for seed in range(chosen.n_seeds):
            compute = partial(scored, options.corpora, chosen, seed)
            data = cached(options.cache, f"{name} {seed}", compute)
            counts = np.bincount(data.y_train.indices, minlength=data.y_train.shape[1])
            rule = {"objective": options.objective, "scale": MODELS[chosen.model][0]}
            for k, method in enumerate([*methods, "auto"]):
                start = time.process_time()
                thresholds = fit_thresholds(
                    data.scores, data.y_train, counts, method, folds=data.folds, **rule
                )
                seconds += (method == "auto") * (time.process_time() - start) / chosen.n_seeds
                result = count(data.y_test, thresholds.apply(data.test_scores))
                both = [precision_recall_f1(result, average).f1 for average in ("micro", "macro")]
                f1[k] += np.array(both) * 100 / chosen.n_seeds
            names.append(thresholds.method)
        means = f1.mean(axis=1)
        cells = [f"{micro:.2f} / {macro:.2f}" for micro, macro in f1]
        choices = ", ".join(f"{each} {names.count(each)}x" for each in dict.fromkeys(names))
        regret = f"{means[:-1].max() - means[-1]:.2f}"
        table.add_row(name, *cells, choices, regret, f"{seconds:.1f}")
    Console(width=170).print(table)


if __name__ == "__main__":
    main()
