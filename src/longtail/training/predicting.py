"""Logits of many documents: batches of similar length, as wide as the device is fast."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from longtail.errors import InputError
from longtail.progress import OnProgress, Progress, ignore
from longtail.training.encoded import Encoded, EncodedTokens
from longtail.training.feed import sorted_batches
from longtail.training.steps import is_out_of_memory, too_large


def predict_logits(
    network: nn.Module,
    encoded: Encoded,
    batch_size: int = 256,
    progress: OnProgress = ignore,
) -> NDArray[np.float32]:
    """Logits of every document, (documents, labels); memory that runs out halves the batches.

    The network must be in eval mode, and computes where it is. Nothing that several threads share
    is changed.
    """
    if len(encoded) == 0:
        raise InputError("expected at least one document to compute logits of, got none.")
    if network.training:
        raise InputError("the network is in training mode, with dropout: call network.eval().")
    while True:
        try:
            return _predict(network, encoded, batch_size, progress)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if batch_size == 1:
                raise too_large(error) from error
            batch_size = -(-min(batch_size, len(encoded)) // 2)
            torch.cuda.empty_cache()


def _predict(
    network: nn.Module, encoded: Encoded, batch_size: int, progress: OnProgress
) -> NDArray[np.float32]:
    device = next(network.parameters()).device
    logits: NDArray[np.float32] | None = None
    done = 0
    # As wide as in training: on a GPU an encoder computes in bf16.
    half = device.type == "cuda" and isinstance(encoded, EncodedTokens)
    half = half and torch.cuda.is_bf16_supported()
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=half):
        for rows in sorted_batches(encoded.lengths, batch_size):
            inputs = {k: v.to(device) for k, v in encoded.batch(rows).items()}
            found = network(**inputs).float().cpu().numpy()
            if logits is None:
                logits = np.empty((len(encoded), found.shape[1]), dtype=np.float32)
            logits[rows] = found
            done += len(rows)
            progress(Progress("predicting", done, len(encoded)))
    assert logits is not None
    return logits
