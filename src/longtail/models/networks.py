"""Networks on a pretrained encoder: one logit per label, from pooled tokens or its own head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from longtail.models.packed import PackedEncoder
from longtail.training.packed import Layout, dropout


class PooledNetwork(nn.Module):
    """Encoder, mean over the tokens, dropout, linear head."""

    def __init__(self, encoder: Any, n_labels: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.packed: PackedEncoder | None = None
        """The encoder for packed documents, on a device that has kernels for them."""
        self.dropout = nn.Dropout(dropout)
        self.labels = nn.Linear(encoder.config.hidden_size, n_labels)
        for name, parameter in encoder.named_parameters():
            # The pooler of the first token is unused and would never get a gradient.
            if name.startswith("pooler."):
                parameter.requires_grad_(False)

    def forward(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        layout: Layout | None = None,
        seed: Tensor | None = None,
    ) -> Tensor:
        """Logits of padded texts, or of packed ones, whose dropout has a `seed`."""
        logits: Tensor = self.labels(
            self.pooled(input_ids, attention_mask, inputs_embeds, layout, seed)
        )
        return logits

    def pooled(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        layout: Layout | None = None,
        seed: Tensor | None = None,
    ) -> Tensor:
        """What the head `labels` takes, (texts, width)."""
        if layout is not None:
            assert self.packed is not None and input_ids is not None
            seeds = None if seed is None else self.packed.seeds(seed)
            pooled = layout.mean(self.packed(input_ids, layout, seeds))
            if seeds is not None:
                pooled = dropout(pooled, self.dropout.p, seeds[0, 1:2])
        else:
            assert attention_mask is not None
            outputs = call(self.encoder, input_ids, attention_mask, inputs_embeds)
            states = outputs.last_hidden_state
            known = attention_mask.unsqueeze(-1).to(states.dtype)
            pooled = (states * known).sum(dim=1) / known.sum(dim=1).clamp(min=1)
            pooled = self.dropout(pooled)
        return pooled

    @contextmanager
    def pooling_only(self) -> Iterator[None]:
        """Return the pooled states instead of logits, for a while."""
        head = self.labels
        self.labels = nn.Identity()  # type: ignore[assignment]
        try:
            yield
        finally:
            self.labels = head


class SequenceNetwork(nn.Module):
    """The sequence-classification model of the encoder's own family."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        logits: Tensor = call(self.model, input_ids, attention_mask, inputs_embeds).logits
        return logits


def call(
    model: nn.Module, input_ids: Tensor | None, mask: Tensor, embeddings: Tensor | None
) -> Any:
    """Call an encoder with tokens or with embeddings; not every one has the second argument."""
    more = {} if embeddings is None else {"inputs_embeds": embeddings}
    return model(input_ids=input_ids, attention_mask=mask, **more)
