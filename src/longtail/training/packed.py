"""Packed documents: all tokens of a batch in one sequence, without padding between documents.

Attention and dropout for such sequences: on a GPU by Triton kernels, elsewhere in plain torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from longtail.random_bits import mix

BLOCK = 64
"""Tokens per tile of attention."""


@dataclass(frozen=True)
class Layout:
    """Which document each token of a packed sequence belongs to.

    Tokens behind the last document are padding; they form a document of their own.
    """

    document: Tensor
    """Document of each token, (tokens,); the number of documents for padding."""
    position: Tensor
    """Position of each token in its document, (tokens,)."""
    lengths: Tensor
    """Tokens of each document, (documents,)."""
    tiles: Tensor
    """Tiles of at most BLOCK tokens of one document, (tiles, 3): first token of the tile, first
    token of its document, end of its document. Unused tiles are empty."""

    @classmethod
    def of(cls, lengths: Tensor, n_tokens: int, n_tiles: int) -> Layout:
        """Lay out documents of these lengths in `n_tokens` tokens; does not synchronise."""
        device, n_documents = lengths.device, len(lengths)
        ends = lengths.cumsum(0)
        places = torch.arange(n_tokens, device=device)
        document = torch.searchsorted(ends, places, right=True)
        ends = torch.cat([ends, ends.new_full((1,), n_tokens)])
        starts = torch.cat([ends.new_zeros(1), ends[:-1]])
        blocks = (ends - starts + BLOCK - 1) // BLOCK
        block_ends = blocks.cumsum(0)
        tile = torch.arange(n_tiles, device=device)
        owner = torch.searchsorted(block_ends, tile, right=True)
        inside = owner <= n_documents
        owner = owner.clamp(max=n_documents)
        first = starts[owner] + (tile - (block_ends - blocks)[owner]) * BLOCK
        tiles = torch.stack([first, starts[owner], ends[owner]], dim=1)
        tiles = torch.where(inside.unsqueeze(1), tiles, 0).to(torch.int32)
        return cls(document, places - starts[document], lengths, tiles)

    def mean(self, states: Tensor) -> Tensor:
        """The mean over the tokens of each document; states: (tokens, width)."""
        numbers = torch.arange(len(self.lengths), device=states.device)
        members = (self.document == numbers.unsqueeze(1)).to(states.dtype)
        return (members @ states) / self.lengths.unsqueeze(1).clamp(min=1).to(states.dtype)


def tile_count(n_tokens: int, n_documents: int) -> int:
    """The largest number of tiles that these numbers of tokens and documents take, with padding."""
    return n_tokens // BLOCK + n_documents + 1


def kept(numbers: Tensor, seed: Tensor, rate: float) -> Tensor:
    """Which elements dropout keeps, from their numbers and a seed, both int32."""
    return mix(numbers, seed) >= lowest_kept(rate)


def lowest_kept(rate: float) -> int:
    """The lowest hash that dropout keeps, of all of int32."""
    return int(rate * 2**32) - 2**31


def dropout(x: Tensor, rate: float, seed: Tensor) -> Tensor:
    """Zero elements with probability `rate`, and scale the others up."""
    if rate == 0:
        return x
    numbers = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape)
    return torch.where(kept(numbers, seed, rate), x * (1 / (1 - rate)), 0.0)


def attention(qkv: Tensor, tiles: Tensor, bias: Tensor | None, seed: Tensor, rate: float) -> Tensor:
    """Softmax attention of each token over its own document, (tokens, heads, size).

    Args:
        qkv: queries, keys and values, (tokens, 3, heads, size).
        tiles: see Layout.
        bias: (heads, 2 n - 1) for documents of at most n tokens: column n - 1 + d is added to the
            score of a key that is d tokens behind its query. It gets no gradient.
        seed: of dropout, one int32.
        rate: of dropout, applied to the attention weights.
    """
    result: Tensor = _attention(qkv, tiles, bias, seed, rate)[0]
    return result


@torch.library.custom_op("longtail::attention", mutates_args=())
def _attention(
    qkv: Tensor, tiles: Tensor, bias: Tensor | None, seed: Tensor, rate: float
) -> tuple[Tensor, Tensor]:
    """The result, and the logarithm of the sum of weights before dropout, (heads, tokens).

    The kernels return the latter in base 2.
    """
    if qkv.is_cuda:
        from longtail.training import attention_kernels

        return attention_kernels.forward(qkv, tiles, bias, seed, rate)
    # Autocast would round scores, as the kernels do not.
    with torch.autocast(qkv.device.type, enabled=False):
        scores = _scores(qkv, tiles, bias)
        lse = scores.logsumexp(dim=-1)
        weights = (scores - lse.unsqueeze(-1)).exp()
        weights = weights * _dropout_factor(weights, seed, rate)
        result = torch.einsum("hqk,khd->qhd", weights, qkv[:, 2].float())
    return result.to(qkv.dtype).contiguous(), lse


@_attention.register_fake
def _(qkv: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    n_tokens, _three, n_heads, size = qkv.shape
    lse = qkv.new_empty((n_heads, n_tokens), dtype=torch.float32)
    return qkv.new_empty((n_tokens, n_heads, size)), lse


@torch.library.custom_op("longtail::attention_backward", mutates_args=())
def _attention_backward(
    grad: Tensor,
    qkv: Tensor,
    result: Tensor,
    lse: Tensor,
    tiles: Tensor,
    bias: Tensor | None,
    seed: Tensor,
    rate: float,
) -> Tensor:
    if qkv.is_cuda:
        from longtail.training import attention_kernels

        return attention_kernels.backward(grad, qkv, result, lse, tiles, bias, seed, rate)
    query, key, value = qkv.float().unbind(1)
    weights = (_scores(qkv, tiles, bias) - lse.unsqueeze(-1)).exp()
    factor = _dropout_factor(weights, seed, rate)
    grad_result = grad.float()
    grad_scores = torch.einsum("qhd,khd->hqk", grad_result, value) * factor
    delta = (grad_result * result.float()).sum(dim=-1).T.unsqueeze(-1)
    grad_scores = weights * (grad_scores - delta) / query.shape[2] ** 0.5
    grads = (
        torch.einsum("hqk,khd->qhd", grad_scores, key),
        torch.einsum("hqk,qhd->khd", grad_scores, query),
        torch.einsum("hqk,qhd->khd", weights * factor, grad_result),
    )
    return torch.stack(grads, dim=1).to(qkv.dtype)


@_attention_backward.register_fake
def _(grad: Tensor, qkv: Tensor, *_: Any) -> Tensor:
    return qkv.new_empty(qkv.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    qkv, tiles, bias, seed, ctx.rate = inputs
    ctx.save_for_backward(qkv, *output, tiles, bias, seed)


def _backward(ctx: Any, grad: Tensor, _total: Tensor) -> tuple[Tensor | None, ...]:
    grads = _attention_backward(grad.contiguous(), *ctx.saved_tensors, ctx.rate)
    return grads, None, None, None, None


_attention.register_autograd(_backward, setup_context=_setup_context)


def _scores(qkv: Tensor, tiles: Tensor, bias: Tensor | None) -> Tensor:
    """Scores of all pairs of tokens, (heads, queries, keys); -inf across documents."""
    query, key, _ = qkv.float().unbind(1)
    n_tokens, _, size = query.shape
    places = torch.arange(n_tokens, device=query.device)
    starts = torch.zeros_like(places)
    for first, start, end in tiles.tolist():
        starts[first : min(first + BLOCK, end)] = start
    scores = torch.einsum("qhd,khd->hqk", query, key) / size**0.5
    if bias is not None:
        # Padding may be longer than the bias; its states are not used.
        last = bias.shape[1] - 1
        column = (places - places[:, None] + last // 2).clamp(0, last)
        scores = scores + bias.float()[:, column]
    other = starts[:, None] != starts
    result: Tensor = scores.masked_fill(other, -torch.inf)
    return result


def _dropout_factor(weights: Tensor, seed: Tensor, rate: float) -> Tensor | float:
    """What dropout multiplies attention weights by; the same as in the kernels."""
    if rate == 0:
        return 1.0
    n_heads, n_tokens, _ = weights.shape
    places = torch.arange(n_tokens, dtype=torch.int32, device=weights.device)
    heads = torch.arange(n_heads, dtype=torch.int32, device=weights.device)
    rows = places * n_heads + heads.unsqueeze(1)
    # Large numbers wrap around.
    numbers = rows.unsqueeze(-1) * n_tokens + places
    return kept(numbers, seed, rate) / (1 - rate)


def has_kernels(device: torch.device) -> bool:
    """Whether attention over packed documents has kernels for this device."""
    return device.type == "cuda" and find_spec("triton") is not None
