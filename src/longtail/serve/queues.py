"""The queue of one model, and its reasons, which are slower and take turns with predictions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from longtail.errors import InputError
from longtail.serve.batching import Batcher
from longtail.serve.observe import Metrics
from longtail.serve.served import Answer, PredictQuery, Served
from longtail.serve.settings import Limits

# Labels with reasons in a request: an encoder may take a second or two for each.
MAX_EXPLAINED = 10
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
        self, texts: Sequence[str], top_k: int | None, reasons: bool
    ) -> list[list[Answer]]:
        """The labels of each text; `reasons`: with reasons for MAX_EXPLAINED of the best."""
        if reasons and len(texts) > MAX_EXPLAINED:
            raise InputError(
                f"reasons are given for at most {MAX_EXPLAINED} documents at a time, got "
                f"{len(texts)}. Send them in several requests, or without reasons."
            )
        self._waiting.inc(len(texts))
        try:
            queries = [PredictQuery(text, top_k) for text in texts]
            answers = await self._predictions.submit(queries)
            if reasons:
                await self._add_reasons(texts, answers)
            return answers
        finally:
            self._waiting.dec(len(texts))

    async def _add_reasons(self, texts: Sequence[str], answers: list[list[Answer]]) -> None:
        """Add reasons to the best labels of each text, equally many of each."""
        loop, n_labels = asyncio.get_running_loop(), MAX_EXPLAINED // len(texts)
        for text, answer in zip(texts, answers, strict=True):
            for start in range(0, min(len(answer), n_labels), LABELS_PER_CALL):
                part = answer[start : min(start + LABELS_PER_CALL, n_labels)]
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
