"""The queues of one model: predictions, and reasons, which are slow and take turns with them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from longtail.errors import InputError
from longtail.serve.batching import Batcher
from longtail.serve.observe import Metrics
from longtail.serve.served import MOST_EXPLAINED, Answer, Explained, Served, Wanted
from longtail.serve.settings import Limits

# Documents with reasons of a request; labels of one document in a call, which for an encoder takes
# dozens of its predictions; and such calls that may wait.
MOST_REASONS, LABELS_OF_CALL, REASONS_QUEUE = 16, 4, 256


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
            max_batch=1,
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
            wanted = [
                (Explained(text, tuple(each["label"] for each in labels)), labels)
                for text, answer in zip(texts, answers, strict=True)
                for start in range(0, min(len(answer), MOST_EXPLAINED), LABELS_OF_CALL)
                for labels in [answer[start : start + LABELS_OF_CALL]]
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
