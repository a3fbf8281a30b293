"""`encoder`: any Hugging Face encoder, mean pooling, one logit per label."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from longtail.errors import DataError


class EncoderModel:
    """A pretrained encoder by name or folder.

    Args:
        encoder: name on the Hugging Face hub, or a local folder with config, weights and tokenizer.
        max_length: tokens read of each text.
        dropout: dropped share of the pooled vector while training.
    """

    def __init__(
        self,
        encoder: str = "sentence-transformers/all-MiniLM-L6-v2",
        max_length: int = 384,
        dropout: float = 0.1,
    ) -> None:
        self.settings: dict[str, Any] = {
            "encoder": encoder,
            "max_length": max_length,
            "dropout": dropout,
        }
        self.network: nn.Module = nn.Identity()
        self._tokenizer: Any = None

    def prepare(self, texts: Sequence[str], n_labels: int) -> None:
        from transformers import AutoModel, AutoTokenizer

        source = self.settings["encoder"]
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(source)
            encoder = AutoModel.from_pretrained(source, dtype=torch.float32)
        except (OSError, ValueError) as error:
            raise DataError(
                f"the encoder {source!r} is neither a local folder nor could it be loaded from the "
                "Hugging Face hub. Pass the path of a folder that holds config.json, "
                f"model.safetensors and the tokenizer files. ({error})"
            ) from error
        self.network = EncoderNetwork(encoder, n_labels, self.settings["dropout"])

    def encode(self, texts: Sequence[str]) -> EncodedTokens:
        found = self._tokenizer(
            list(texts), truncation=True, max_length=self.settings["max_length"]
        )
        return EncodedTokens(found["input_ids"], self._tokenizer.pad_token_id or 0)

    def save(self, folder: Path) -> None:
        assert isinstance(self.network, EncoderNetwork)
        self.network.encoder.config.save_pretrained(folder / "encoder")
        self._tokenizer.save_pretrained(folder / "encoder")
        tensors = {name: value.contiguous() for name, value in self.network.state_dict().items()}
        save_file(tensors, folder / "model.safetensors")

    def load(self, folder: Path, n_labels: int) -> None:
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder / "encoder")
        encoder = AutoModel.from_config(AutoConfig.from_pretrained(folder / "encoder"))
        self.network = EncoderNetwork(encoder.float(), n_labels, self.settings["dropout"])
        self.network.load_state_dict(load_file(folder / "model.safetensors"))


class EncodedTokens:
    """Token ids of every text; a batch is padded to its own longest text only."""

    def __init__(self, tokens: list[list[int]], pad: int) -> None:
        self._tokens, self._pad = tokens, pad

    def __len__(self) -> int:
        return len(self._tokens)

    def batch(self, rows: NDArray[np.int64]) -> dict[str, Tensor]:
        chosen = [self._tokens[row] for row in rows]
        width = max((len(tokens) for tokens in chosen), default=0)
        ids = torch.full((len(chosen), width), self._pad, dtype=torch.long)
        known = torch.zeros((len(chosen), width), dtype=torch.long)
        for row, tokens in enumerate(chosen):
            ids[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
            known[row, : len(tokens)] = 1
        return {"input_ids": ids, "attention_mask": known}


class EncoderNetwork(nn.Module):
    """Encoder, mean over the tokens, dropout, linear head."""

    def __init__(self, encoder: Any, n_labels: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        self.labels = nn.Linear(encoder.config.hidden_size, n_labels)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        known = attention_mask.unsqueeze(-1).to(states.dtype)
        pooled = (states * known).sum(dim=1) / known.sum(dim=1).clamp(min=1)
        logits: Tensor = self.labels(self.dropout(pooled))
        return logits
