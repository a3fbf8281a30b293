"""Whether explanations name the words that matter, and what several labels cost against one.

    python benchmarks/explain.py DATA RUN ... --documents 300
    python benchmarks/explain.py DATA RUN --train ENCODER --documents 40 --words 60

DATA: a corpus as `load_data` reads it; its test documents are explained. With --train, RUN is first
trained: the encoder on some documents of the training part, with thresholds of the validation part.

Of each document the best predicted label is explained. A fifth of its words, those that add most to
the score, are deleted, and as many drawn at random (mean of three draws); the drops of the score
are compared. Cost: CPU seconds for the k best labels of a document together, over the mean of those
for each of them alone; with k the same for all documents, or as many labels as each document has.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from longtail import Encoder, LongTailClassifier, TextData, Training, load_data
from longtail.models.explanation import Explanation

SHARE, DRAWS, SEED = 0.2, 3, 0
TOGETHER = (2, 3, 5)


def train(folder: Path, encoder: str, parts: dict[str, TextData], n_documents: int) -> None:
    rows = np.random.default_rng(SEED).permutation(len(parts["train"]))[:n_documents]
    training = Training(epochs=2, batch_size=16, learning_rate=2e-4, device="cpu")
    model = Encoder(encoder, max_length=128)
    classifier = LongTailClassifier(model, "db", training=training, folds=1)
    start = time.process_time()
    classifier.fit(parts["train"].select(rows), validation=parts["validation"], progress=None)
    classifier.save_pretrained(folder)
    print(f"trained {folder} on {len(rows)} documents, {time.process_time() - start:.0f} CPU s")


def without(explanation: Explanation, words: Iterable[int]) -> str:
    """The text without some of its words."""
    text = list(explanation.text)
    for word in words:
        start, stop = explanation.words[word]
        text[start:stop] = [""] * (stop - start)
    return "".join(text)


def drops(classifier: LongTailClassifier, explanation: Explanation) -> tuple[float, float]:
    """How far the score falls without the best words, and without random ones."""
    n_words = len(explanation.words)
    rng, n = np.random.default_rng(SEED), max(1, round(SHARE * n_words))
    chosen = [np.argsort(-explanation.values[0])[:n].tolist()]
    chosen += [rng.choice(n_words, n, replace=False).tolist() for _ in range(DRAWS)]
    column = classifier.classes_.tolist().index(explanation.labels[0])
    texts = [without(explanation, words) for words in chosen]
    fallen = explanation.scores[0] - classifier.decision_function(texts)[:, column]
    return float(fallen[0]), float(fallen[1:].mean())


def cost(classifier: LongTailClassifier, texts: list[str], n_labels: list[int]) -> float:
    """CPU time of some labels together, over that of one."""
    together = alone = 0.0
    for text, k in zip(texts, n_labels, strict=True):
        best = classifier.top_k([text], k)[0]
        columns = np.array([classifier.classes_.tolist().index(name) for name, _ in best])
        start = time.process_time()
        classifier.ensemble_.explain(text, columns)
        middle = time.process_time()
        for column in columns:
            classifier.ensemble_.explain(text, column[None])
        together += middle - start
        alone += (time.process_time() - middle) / k
    return together / alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--words", type=int, help="only the first words of each document")
    parser.add_argument("--cost-documents", type=int, default=10)
    parser.add_argument("--train", help="an encoder, from which RUN is trained first")
    parser.add_argument("--train-documents", type=int, default=1000)
    options = parser.parse_args()
    parts = load_data(options.data)
    if options.train:
        train(options.runs[0], options.train, parts, options.train_documents)
    table = Table()
    names = [f"cost of {k} labels" for k in TOGETHER] + ["of its own"]
    columns = ("documents", "top 20 %", "random 20 %", "ratio", "error", "over 1 %", "CPU s each")
    for column in ("run", *columns, *names):
        table.add_column(column, justify="left" if column == "run" else "right")
    for run in options.runs:
        classifier = LongTailClassifier.from_pretrained(run, device="cpu")
        texts = [" ".join(text.split(" ")[: options.words]) for text in parts["test"].texts]
        rows = np.random.default_rng(SEED).permutation(len(texts)).tolist()
        rows = [row for row in rows if len(texts[row].split()) >= 1 / SHARE]
        counts = np.diff(parts["test"].Y.indptr)[rows].clip(min=1).tolist()
        texts = [texts[row] for row in rows]
        fallen, errors, start = [], [], time.process_time()
        for text in texts:
            best = classifier.top_k([text], 1)[0][0][0]
            if best in classifier.predict_labels([text])[0]:
                (explanation,) = classifier.explain([text], [best])
                fallen.append(drops(classifier, explanation))
                errors += explanation.error.tolist()
            if len(fallen) == options.documents:
                break
        seconds = (time.process_time() - start) / len(fallen)
        top, random = np.mean(fallen, axis=0)
        over = f"{np.mean(np.array(errors) > 0.01):.1%}"
        n = options.cost_documents
        several = [[k] * n for k in TOGETHER] + [counts[: 4 * n]]
        costs = [f"{cost(classifier, texts[: len(k)], k):.2f}" for k in several]
        drop = (f"{top:.2f}", f"{random:.2f}", f"{top / random:.1f}")
        error = (f"{max(errors):.1e}", over, f"{seconds:.3f}")
        table.add_row(run.name, str(len(fallen)), *drop, *error, *costs)
    Console(width=170).print(table)


if __name__ == "__main__":
    main()
