"""Whether explanations name the words that matter, and what several labels cost against one.

    python benchmarks/explain.py DATA RUN ... --documents 300
    python benchmarks/explain.py DATA RUN --train ENCODER --documents 40 --words 60
    python benchmarks/explain.py DATA RUN --train ENCODER --device cuda --epochs 20

DATA is a corpus as `load_data` reads it; its test documents are explained. With --train, RUN is
first trained: the encoder on documents of the training part, thresholds on the validation part.

For each document the predicted label with the highest score is explained. The fifth of the words
that adds most to the score is deleted, then as many random words (mean of three draws), and the
drops of the score are compared. Cost: the time for the k best labels of a document together,
divided by the mean time for each of them alone; k is the same for all documents, or the number of
labels that each document has. Times are CPU seconds, on a GPU seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from longtail import Encoder, LongTailClassifier, TextData, Training, load_data
from longtail.models.explanation import Explanation

SHARE, DRAWS, SEED = 0.2, 3, 0
TOGETHER = (2, 3, 5)


def train(folder: Path, parts: dict[str, TextData], options: argparse.Namespace) -> None:
    rows = np.random.default_rng(SEED).permutation(len(parts["train"]))[: options.train_documents]
    rate = 2e-4 if options.device == "cpu" else 1e-4
    training = Training(options.epochs, batch_size=16, learning_rate=rate, device=options.device)
    classifier = LongTailClassifier(Encoder(options.train, max_length=128), "db", training=training)
    start = options.clock()
    classifier.fit(parts["train"].select(rows), validation=parts["validation"], progress=None)
    classifier.save_pretrained(folder)
    f1 = classifier.evaluate(parts["test"]).overall
    print(
        f"trained {folder} on {len(rows)} documents in {options.clock() - start:.0f} s; test part: "
        f"{100 * f1.micro_f1:.2f} / {100 * f1.macro_f1:.2f}"
    )


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


def cost(
    classifier: LongTailClassifier,
    texts: list[str],
    n_labels: list[int],
    clock: Callable[[], float],
) -> float:
    """Time for some labels together, divided by that for one."""
    together = alone = 0.0
    for text, k in zip(texts, n_labels, strict=True):
        best = classifier.top_k([text], k)[0]
        columns = np.array([classifier.classes_.tolist().index(name) for name, _ in best])
        start = clock()
        classifier.ensemble_.explain(text, columns)
        middle = clock()
        for column in columns:
            classifier.ensemble_.explain(text, column[None])
        together += middle - start
        alone += (clock() - middle) / k
    return together / alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--words", type=int, help="only the first words of each document")
    parser.add_argument("--cost-documents", type=int, default=10)
    parser.add_argument("--train", help="an encoder, from which RUN is trained first")
    parser.add_argument("--train-documents", type=int, help="all if not given")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    # Scores and explanations come back to the CPU, so that the clock waits for the GPU.
    clock = options.clock = time.process_time if options.device == "cpu" else time.perf_counter
    parts = load_data(options.data)
    if options.train:
        train(options.runs[0], parts, options)
    table = Table()
    names = [f"cost of {k} labels" for k in TOGETHER] + ["of its own"]
    columns = ("documents", "top 20 %", "random 20 %", "ratio", "error", "over 1 %", "s each")
    for column in ("run", *columns, *names):
        table.add_column(column, justify="left" if column == "run" else "right")
    for run in options.runs:
        classifier = LongTailClassifier.from_pretrained(run, options.device)
        texts = [" ".join(text.split(" ")[: options.words]) for text in parts["test"].texts]
        rows = np.random.default_rng(SEED).permutation(len(texts)).tolist()
        rows = [row for row in rows if len(texts[row].split()) >= 1 / SHARE]
        counts = np.diff(parts["test"].Y.indptr)[rows].clip(min=1).tolist()
        texts = [texts[row] for row in rows]
        fallen, errors, start = [], [], clock()
        for text in texts:
            best = classifier.top_k([text], 1)[0][0][0]
            if best in classifier.predict_labels([text])[0]:
                (explanation,) = classifier.explain([text], [best])
                fallen.append(drops(classifier, explanation))
                errors += explanation.error.tolist()
            if len(fallen) == options.documents:
                break
        seconds = (clock() - start) / len(fallen)
        top, random = np.mean(fallen, axis=0)
        over = f"{np.mean(np.array(errors) > 0.01):.1%}"
        n = options.cost_documents
        several = [[k] * n for k in TOGETHER] + [counts[: 4 * n]]
        costs = [f"{cost(classifier, texts[: len(k)], k, clock):.2f}" for k in several]
        drop = (f"{top:.2f}", f"{random:.2f}", f"{top / random:.1f}")
        error = (f"{max(errors):.1e}", over, f"{seconds:.3f}")
        table.add_row(run.name, str(len(fallen)), *drop, *error, *costs)
    Console(width=170).print(table)


if __name__ == "__main__":
    main()
