"""The queue of one model, and its reasons, which are slower and take turns with predictions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from longtail.errors import InputError
from longtail.serve.batching import Batcher
from longtail.serve.observe import Metrics
from longtail.serve.schemas import MAX_EXPLAINED
from longtail.serve.served import Answer, PredictQuery, Served
from longtail.serve.settings import Limits

LABELS_PER_CALL = 4  # of one document, before other requests have a turn


class Queues:
    """One thread calls the model, alternating between a batch of predictions and one of reasons."""

    def __init__(self, served: Served, limits: Limits, metrics: Metrics) -> None:
        self._served, self._thread = served, ThreadPoolExecutor(1, f"model {served.name}")
        self._waiting = metrics.waiting.labels(served.name)
        observe = metrics.batches.labels(served.name, "predict").observe
        self._observe_reasons = metrics.batches.labels(served.name, "explain").observe
        self._predictions = Batcher[PredictQuery, list[Answer]](
            served.predict,
            self._thread,
            max_batch=limits.max_batch,
            max_wait=limits.max_wait_ms / 1000,
            capacity=limits.queue,
            observe=observe,
        )
        self._reasons = asyncio.Lock()  # first come, first served

    async def predict(
        self,
        texts: Sequence[str],
        top_k: int | None,
        reasons: bool,
        reasons_for: Sequence[str] | None = None,
    ) -> list[list[Answer]]:
        """The labels of each text; with reasons for the best of them, or of those named."""
        if (reasons or reasons_for) and len(texts) > MAX_EXPLAINED:
            raise InputError(
                f"reasons are given for at most {MAX_EXPLAINED} documents at a time, got "
                f"{len(texts)}. Send them in several requests, or without reasons."
            )
        self._waiting.inc(len(texts))
        try:
            queries = [PredictQuery(text, top_k) for text in texts]
            answers = await self._predictions.submit(queries)
            if reasons or reasons_for:
                await self._add_reasons(texts, answers, reasons_for)
            return answers
        finally:
            self._waiting.dec(len(texts))

    async def _add_reasons(
        self, texts: Sequence[str], answers: list[list[Answer]], only: Sequence[str] | None
    ) -> None:
        """Add reasons to MAX_EXPLAINED labels: the best of each text, equally many of each."""
        loop, n_labels = asyncio.get_running_loop(), MAX_EXPLAINED // len(texts)
        for text, answer in zip(texts, answers, strict=True):
            explained = [label for label in answer if only is None or label["label"] in only]
            explained = explained[:n_labels]
            for start in range(0, len(explained), LABELS_PER_CALL):
                part = explained[start : start + LABELS_PER_CALL]
                names = [label["label"] for label in part]
                async with self._reasons:
                    self._observe_reasons(1)
                    explain = self._served.explain
                    reasons = await loop.run_in_executor(self._thread, explain, text, names)
                for label in part:
                    label["reasons"] = reasons[label["label"]]

    async def close(self) -> None:
        """Accept no more requests, and finish those that were accepted."""
        await self._predictions.close()
        self._thread.shutdown()
