"""The queues of one model: predictions, and reasons, which are slow and take turns with them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from longtail.errors import InputError
from longtail.serve.batching import Batcher
from longtail.serve.observe import Metrics
from longtail.serve.served import MOST_EXPLAINED, Answer, Explained, Served, Wanted
from longtail.serve.settings import Limits

# Documents with reasons of a request, of one call, and waiting.
MOST_REASONS, REASONS_BATCH, REASONS_QUEUE = 16, 2, 64


class Queues:
    """One thread calls the model: a batch of predictions, a small one of reasons, and so on."""

    def __init__(self, served: Served, limits: Limits, metrics: Metrics) -> None:
        self._thread = ThreadPoolExecutor(1, f"model {served.name}")
        observe = metrics.batches.labels
        self._predictions = Batcher[Wanted, list[Answer]](
            served.predict,
            self._thread,
            max_batch=limits.max_batch,
            max_wait=limits.max_wait_ms / 1000,
            capacity=limits.queue,
            observe=lambda n: observe(served.name, "predict").observe(n),
        )
        self._reasons = Batcher[Explained, dict[str, list[Answer]]](
            served.explain,
            self._thread,
            max_batch=REASONS_BATCH,
            max_wait=0,
            capacity=REASONS_QUEUE,
            observe=lambda n: observe(served.name, "explain").observe(n),
        )

    @property
    def n_waiting(self) -> int:
        return self._predictions.n_waiting + self._reasons.n_waiting

    async def predict(
        self, texts: Sequence[str], top_k: int | None, reasons: bool
    ) -> list[list[Answer]]:
        """The labels of each text; with reasons, of the best of these."""
        if reasons and len(texts) > MOST_REASONS:
            raise InputError(
                f"reasons are given for at most {MOST_REASONS} documents at a time, got "
                f"{len(texts)}. Send them in several requests, or without reasons."
            )
        answers = await self._predictions.submit([Wanted(text, top_k) for text in texts])
        if reasons:
            best = [answer[:MOST_EXPLAINED] for answer in answers]
            wanted = [
                (Explained(text, tuple(each["label"] for each in labels)), labels)
                for text, labels in zip(texts, best, strict=True)
                if labels
            ]
            found = await self._reasons.submit([one for one, _ in wanted])
            for (_, labels), of_labels in zip(wanted, found, strict=True):
                for each in labels:
                    each["reasons"] = of_labels[each["label"]]
        return answers

    async def close(self) -> None:
        """Finish what was accepted."""
        await self._predictions.close()
        await self._reasons.close()
        self._thread.shutdown()
