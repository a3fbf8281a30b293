"""The queues of one model: predictions, and reasons, which are slower and take turns with them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from longtail.errors import InputError
from longtail.serve.batching import Batcher
from longtail.serve.observe import Metrics
from longtail.serve.served import MAX_EXPLAINED, Answer, ExplainQuery, PredictQuery, Served
from longtail.serve.settings import Limits

MAX_REASONS = 16  # documents of a request with reasons
# Labels of one document per call: explaining one label takes an encoder dozens of predictions.
LABELS_PER_CALL = 4
REASONS_QUEUE = 256  # such calls that may wait


class Queues:
    """One thread calls the model, alternating between a batch of predictions and one of reasons."""

    def __init__(self, served: Served, limits: Limits, metrics: Metrics) -> None:
        self._thread = ThreadPoolExecutor(1, f"model {served.name}")
        observe, self._waiting = metrics.batches.labels, metrics.waiting.labels(served.name)
        self._predictions = Batcher[PredictQuery, list[Answer]](
            served.predict,
            self._thread,
            max_batch=limits.max_batch,
            max_wait=limits.max_wait_ms / 1000,
            capacity=limits.queue,
            observe=lambda n: observe(served.name, "predict").observe(n),
        )
        self._reasons = Batcher[ExplainQuery, dict[str, list[Answer]]](
            served.explain,
            self._thread,
            max_batch=1,
            max_wait=0,
            capacity=REASONS_QUEUE,
            observe=lambda n: observe(served.name, "explain").observe(n),
        )

    async def predict(
        self, texts: Sequence[str], top_k: int | None, reasons: bool
    ) -> list[list[Answer]]:
        """The labels of each text; `reasons`: with reasons for the MAX_EXPLAINED best."""
        if reasons and len(texts) > MAX_REASONS:
            raise InputError(
                f"reasons are given for at most {MAX_REASONS} documents at a time, got "
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
        queries, parts = [], []
        for text, answer in zip(texts, answers, strict=True):
            for start in range(0, min(len(answer), MAX_EXPLAINED), LABELS_PER_CALL):
                part = answer[start : start + LABELS_PER_CALL]
                queries.append(ExplainQuery(text, tuple(label["label"] for label in part)))
                parts.append(part)
        for part, reasons in zip(parts, await self._reasons.submit(queries), strict=True):
            for label in part:
                label["reasons"] = reasons[label["label"]]

    async def close(self) -> None:
        """Accept no more requests, and finish those that were accepted."""
        await self._predictions.close()
        await self._reasons.close()
        self._thread.shutdown()
