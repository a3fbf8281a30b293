"""The peers of benchmarks/default.py, each in a process of its own that does not import longtail.

    python benchmarks/peers.py fit NAME WORK        # WORK/train.jsonl, validation.jsonl: a model
    python benchmarks/peers.py predict NAME WORK    # WORK/test.jsonl: WORK/NAME.npz, 0 or 1

`labels` of a record are column numbers, WORK/labels.json is their number. The model goes to the
folder WORK/NAME. All peers have the features of scikit-learn's TfidfVectorizer with its defaults.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

# Documents that are scored at a time, as in LibMultiLabel's own evaluation.
BATCH = 256
# Labels per document that omikuji returns at most; its default of 10 is less than PubMed has.
MOST_LABELS = 100


def read(work: Path, part: str) -> tuple[list[str], sp.csr_matrix]:
    """Texts, and the documents x labels matrix."""
    with (work / f"{part}.jsonl").open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    columns = np.concatenate([np.array(r["labels"], dtype=np.int32) for r in records])
    starts = np.cumsum([0, *(len(r["labels"]) for r in records)])
    n_labels = json.loads((work / "labels.json").read_text("utf-8"))
    shape = (len(records), n_labels)
    return [r["text"] for r in records], sp.csr_matrix(
        (np.ones(len(columns)), columns, starts), shape
    )


class Peer:
    """Fits, scores, saves and loads one model. `cut` is the global threshold of the scores."""

    tunes_cut = True
    floor = 0.0
    """No cut is below it: a tree does not score a pair at 0."""
    seed = 0

    def fit(self, x: sp.csr_matrix, y: sp.csr_matrix, folder: Path) -> None:
        raise NotImplementedError

    def scores(self, x: sp.csr_matrix) -> np.ndarray:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        with (folder / "model.pickle").open("wb") as file:
            pickle.dump(self.__dict__, file, protocol=pickle.HIGHEST_PROTOCOL)

    def load(self, folder: Path) -> None:
        with (folder / "model.pickle").open("rb") as file:
            self.__dict__ = pickle.load(file)

    def batches(self, texts: list[str]) -> Iterator[np.ndarray]:
        """Scores of BATCH documents at a time, so that memory is the model's, not the scores'."""
        for start in range(0, len(texts), BATCH):
            x = self.features.transform(texts[start : start + BATCH])
            yield self.scores(x).astype(np.float32)

    def best_cut(self, texts: list[str], truth: sp.csr_matrix) -> float:
        """The threshold of the best micro-F1: a label is predicted if its score is above it."""
        candidates, labels = [], []
        for k, scores in enumerate(self.batches(texts)):
            keep = scores > self.floor
            candidates.append(scores[keep])
            labels.append(truth[k * BATCH : (k + 1) * BATCH].toarray()[keep])
        values = np.concatenate(candidates)
        order = np.argsort(-values)
        values, hits = values[order], np.cumsum(np.concatenate(labels)[order])
        f1 = 2 * hits / (np.arange(1, len(values) + 1) + truth.nnz)
        # A cut lies between two scores that differ.
        f1[:-1][values[:-1] == values[1:]] = 0
        best = int(np.argmax(f1[:-1]))
        return float((values[best] + values[best + 1]) / 2)


class Svm(Peer):
    """One-vs-rest LinearSVC(C=1); the cut is one shift of all hyperplanes."""

    floor = -1.0

    def fit(self, x: sp.csr_matrix, y: sp.csr_matrix, folder: Path) -> None:
        from joblib import parallel_config
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.svm import LinearSVC

        machine = LinearSVC(C=1, random_state=self.seed)
        # LIBLINEAR releases the interpreter's lock, so that threads share the features.
        with parallel_config(backend="threading", n_jobs=-1):
            self.model = OneVsRestClassifier(machine, n_jobs=-1).fit(x, y)

    def scores(self, x: sp.csr_matrix) -> np.ndarray:
        scores = self.model.decision_function(x)
        # With a single label there is one axis.
        return np.asarray(scores).reshape(x.shape[0], -1)


# A bias, as its documentation advises. Its default of all cores for one label is the slower choice:
# 20 s of CPU time instead of 3 s for 15 labels of Reuters. The tree trains labels side by side.
LIBLINEAR = "-B 1 -m 1"


class Labels(sp.csc_matrix):
    """LibMultiLabel 0.10 sums over axis 2, which scipy refuses since it has arrays of n axes."""

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return super().sum(0 if axis == 2 else axis, dtype, out)


class Thresholding(Peer):
    """LibMultiLabel's thresholds per label, chosen by three folds inside of it."""

    tunes_cut = False

    def fit(self, x: sp.csr_matrix, y: sp.csr_matrix, folder: Path) -> None:
        from libmultilabel.linear import train_thresholding

        np.random.seed(self.seed)
        self.model = train_thresholding(Labels(y), x, options=LIBLINEAR, verbose=False)

    def scores(self, x: sp.csr_matrix) -> np.ndarray:
        return np.asarray(self.model.predict_values(x))


class Tree(Peer):
    """LibMultiLabel's label tree."""

    def fit(self, x: sp.csr_matrix, y: sp.csr_matrix, folder: Path) -> None:
        from libmultilabel.linear import train_tree

        np.random.seed(self.seed)
        self.model = train_tree(y, x, options=LIBLINEAR, verbose=False)

    def scores(self, x: sp.csr_matrix) -> np.ndarray:
        return np.asarray(self.model.predict_values(x))


class Omikuji(Peer):
    """omikuji's three trees (Parabel) with its defaults; it reads features from a file."""

    def fit(self, x: sp.csr_matrix, y: sp.csr_matrix, folder: Path) -> None:
        from omikuji import Model
        from sklearn.datasets import dump_svmlight_file

        path, self.n_labels = folder.with_suffix(".txt"), y.shape[1]
        with path.open("wb") as file:
            file.write(f"{x.shape[0]} {x.shape[1]} {y.shape[1]}\n".encode())
            dump_svmlight_file(x, y, file, multilabel=True)
        self.model = Model.train_on_data(str(path))
        path.unlink()

    def scores(self, x: sp.csr_matrix) -> np.ndarray:
        scores = np.zeros((x.shape[0], self.n_labels))
        top_k = min(MOST_LABELS, self.n_labels)
        for row in range(x.shape[0]):
            where = slice(x.indptr[row], x.indptr[row + 1])
            pairs = zip(x.indices[where].tolist(), x.data[where].tolist(), strict=True)
            for label, score in self.model.predict(pairs, top_k=top_k):
                scores[row, label] = score
        return scores

    def save(self, folder: Path) -> None:
        model = self.__dict__.pop("model")
        model.save(str(folder / "omikuji"))
        super().save(folder)

    def load(self, folder: Path) -> None:
        from omikuji import Model

        super().load(folder)
        self.model = Model.load(str(folder / "omikuji"))


PEERS: dict[str, type[Peer]] = {
    "svm": Svm,
    "omikuji": Omikuji,
    "tree": Tree,
    "thresholding": Thresholding,
}


def fit(peer: Any, work: Path, folder: Path) -> None:
    """Learn, choose the cut on the validation part, save. No model is fitted a second time."""
    (texts, y), (held_texts, held_y) = read(work, "train"), read(work, "validation")
    if not peer.tunes_cut:
        texts, y = texts + held_texts, sp.vstack([y, held_y], "csr")
    peer.features = TfidfVectorizer()
    folder.mkdir()
    peer.fit(peer.features.fit_transform(texts), y, folder)
    peer.cut = peer.best_cut(held_texts, held_y) if peer.tunes_cut else 0.0
    peer.save(folder)


def predict(peer: Any, work: Path, folder: Path) -> None:
    peer.load(folder)
    texts, _ = read(work, "test")
    decided = [sp.csr_matrix(scores > peer.cut) for scores in peer.batches(texts)]
    sp.save_npz(folder.with_suffix(".npz"), sp.vstack(decided, "csr").astype(np.float64))


if __name__ == "__main__":
    verb, name, work = sys.argv[1:]
    {"fit": fit, "predict": predict}[verb](PEERS[name](), Path(work), Path(work) / name)
