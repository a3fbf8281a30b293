"""Many threads that predict with one loaded model: each gets the answer that it would get alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from longtail import LongTailClassifier

from .models import TEXTS, fit_kinds
from .outcome import RIGHT, Outcome

EACH = 2000
MINIMUM = 8 * EACH
THREADS = 4


def attack(seed: int, scratch: Path) -> Iterator[Outcome]:
    """Rounds of predictions, a few hundred at a time, with each kind of model in turn."""
    folders = fit_kinds(scratch / "fitted")
    turn = 0
    while True:
        for kind, folder in folders.items():
            turn += 1
            yield from attack_kind(kind, folder, 250, seed + turn)


def attack_kind(kind: str, folder: Path, n: int, seed: int) -> Iterator[Outcome]:
    """So many predictions by several threads, all of which begin at once with a fresh model."""
    alone = LongTailClassifier.from_pretrained(folder, device="cpu")
    lots = [TEXTS[:1], TEXTS[1:4], ["nothing known"], [""], TEXTS * 2]
    expected = [alone.decision_function(texts) for texts in lots]
    labels = [alone.predict_labels(texts) for texts in lots]
    shared = LongTailClassifier.from_pretrained(folder, device="cpu")
    threads, barrier = torch.get_num_threads(), threading.Barrier(THREADS)

    def work(worker: int) -> list[Outcome]:
        draw = random.Random(f"{seed} {worker}")
        found = []
        barrier.wait()
        for number in range(n // THREADS):
            lot = draw.randrange(len(lots))
            detail = f"seed {seed}, {kind}, thread {worker}, prediction {number}"
            try:
                scores = shared.decision_function(lots[lot])
                right = np.array_equal(scores, expected[lot])
                right = right and (number % 5 or shared.predict_labels(lots[lot]) == labels[lot])
                verdict = RIGHT if right else "another answer than alone"
            except Exception as error:
                verdict = f"{type(error).__name__}: {error}"[:200]
            found.append(Outcome(f"threads: {kind}", verdict, detail))
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        for outcomes in pool.map(work, range(THREADS)):
            yield from outcomes
    if torch.get_num_threads() != threads:
        yield Outcome(f"threads: {kind}", "the number of threads of torch was changed", f"{seed}")
