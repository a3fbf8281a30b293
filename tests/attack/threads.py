"""Many threads that predict with one loaded model: each gets the answer of a single thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import numpy as np
import torch

from longtail import LongTailClassifier

from . import RIGHT, Outcome
from .models import TEXTS, fit_kinds

EACH = 2000
MINIMUM = 8 * EACH
THREADS = 4


def attack(seed: int, scratch: Path) -> Iterator[Outcome]:
    """Yield rounds of 250 predictions with each kind of model."""
    folders = fit_kinds(scratch / "fitted")
    for number, kind in enumerate(cycle(folders), start=1):
        yield from attack_kind(kind, folders[kind], 250, seed + number)


def attack_kind(kind: str, folder: Path, n: int, seed: int) -> Iterator[Outcome]:
    """Predict `n` times in several threads, which start at once with a newly loaded model."""
    alone = LongTailClassifier.from_pretrained(folder, device="cpu")
    batches = [TEXTS[:1], TEXTS[1:4], ["nothing known"], [""], TEXTS * 2]
    expected = [alone.decision_function(texts) for texts in batches]
    labels = [alone.predict_labels(texts) for texts in batches]
    shared = LongTailClassifier.from_pretrained(folder, device="cpu")
    threads, barrier = torch.get_num_threads(), threading.Barrier(THREADS)

    def work(worker: int) -> list[Outcome]:
        rng = random.Random(f"{seed} {worker}")
        outcomes = []
        barrier.wait()
        for number in range(n // THREADS):
            batch = rng.randrange(len(batches))
            detail = f"seed {seed}, {kind}, thread {worker}, prediction {number}"
            try:
                scores = shared.decision_function(batches[batch])
                right = np.array_equal(scores, expected[batch])
                right = right and (
                    number % 5 or shared.predict_labels(batches[batch]) == labels[batch]
                )
                verdict = RIGHT if right else "another answer than alone"
            except Exception as error:
                verdict = f"{type(error).__name__}: {error}"[:200]
            outcomes.append(Outcome(f"threads: {kind}", verdict, detail))
        return outcomes

    with ThreadPoolExecutor(THREADS) as pool:
        for results in pool.map(work, range(THREADS)):
            yield from results
    if torch.get_num_threads() != threads:
        yield Outcome(f"threads: {kind}", "the number of threads of torch was changed", f"{seed}")
