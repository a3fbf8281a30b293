"""Encoders on packed documents: the layers of BERT and its relatives without padding.

The network keeps its weights and its own forward pass, which explanations, exports and other
devices use. Whether both compute the same is checked on each GPU that the network is moved to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.random_bits import mix
from longtail.training.packed import Layout, attention, dropout, tile_count
from longtail.training.steps import is_out_of_memory

HEAD_SIZES = (16, 32, 64, 128)
"""Numbers of dimensions per attention head that the kernels take."""
# Largest difference of a state that rounding may cause in float32, relative to the standard
# deviation of all states; and of gradients in bf16, relative to their norm.
TOLERANCE, GRADIENT_TOLERANCE = 1e-2, 0.25
RECOMPILATIONS = 64


class Weights(NamedTuple):
    """The weights of one layer."""

    query: tuple[Tensor, Tensor]
    key: tuple[Tensor, Tensor]
    value: tuple[Tensor, Tensor]
    out: tuple[Tensor, Tensor]
    norm: tuple[Tensor, Tensor]
    up: tuple[Tensor, Tensor]
    down: tuple[Tensor, Tensor]
    last_norm: tuple[Tensor, Tensor]


class Rates(NamedTuple):
    """Dropout rates of one layer, and the epsilon of its norms."""

    attention: float
    hidden: float
    eps: float


def layer(
    states: Tensor,
    weights: Weights,
    n_heads: int,
    rates: Rates,
    tiles: Tensor,
    bias: Tensor | None,
    seeds: Tensor,
) -> Tensor:
    """A layer of BERT: attention and a hidden layer, each followed by a sum and a norm."""
    n_tokens, width = states.shape
    # One product with all three takes less time than three, backward too.
    qkv = F.linear(states, *(torch.cat(parts) for parts in zip(*weights[:3], strict=True)))
    qkv = qkv.view(n_tokens, 3, n_heads, width // n_heads)
    mixed = attention(qkv, tiles, bias, seeds[0:1], rates.attention)
    mixed = F.linear(mixed.view(n_tokens, width), *weights.out)
    states = dropout(mixed, rates.hidden, seeds[1:2]) + states
    states = F.layer_norm(states, (width,), *weights.norm, rates.eps)
    inner = F.linear(F.gelu(F.linear(states, *weights.up)), *weights.down)
    inner = dropout(inner, rates.hidden, seeds[2:3]) + states
    return F.layer_norm(inner, (width,), *weights.last_norm, rates.eps)


class PackedEncoder:
    """The encoder as a function of packed tokens.

    Args:
        encoder: a transformers model with embeddings and layers like BERT's or MPNet's.
        longest: largest number of tokens of a document.
    """

    def __init__(self, encoder: Any, longest: int) -> None:
        config = encoder.config
        self.encoder, self.n_heads = encoder, config.num_attention_heads
        self._bias: Tensor | None = None
        """MPNet's attention bias of each distance between tokens; see `attention`."""
        self.fixed: list[nn.Parameter] = []
        """Parameters that packed documents do not train; see `trains`."""
        self._run: Callable[..., Tensor] = layer
        self._parts = [_parts(module) for module in encoder.encoder.layer]
        self._rates = Rates(
            config.attention_probs_dropout_prob, config.hidden_dropout_prob, config.layer_norm_eps
        )
        positions = encoder.embeddings.position_embeddings
        # RoBERTa and MPNet count positions from their padding index on.
        self._first = 0 if positions.padding_idx is None else positions.padding_idx + 1
        self._longest = longest
        layers = encoder.encoder
        if hasattr(layers, "relative_attention_bias"):
            states = torch.empty(1, longest, 0, device=encoder.device)
            with torch.no_grad():
                pairs = layers.compute_position_bias(states).squeeze(0)
            self._bias = torch.cat([pairs[:, 1:, 0].flip(1), pairs[:, 0]], dim=1)

    def compile(self) -> None:
        """Compile the layers at their next training step, which takes some seconds."""
        from torch._dynamo import config

        # Without timing candidates: another process would pick others, which round differently.
        wanted = {"deterministic": True}
        known = torch._inductor.list_options()
        options: Any = {name: value for name, value in wanted.items() if name in known}
        compiled = torch.compile(layer, dynamic=False, options=options)

        def run(*args: Any) -> Tensor:
            # Folds of other sizes may have other shapes.
            with config.patch(recompile_limit=RECOMPILATIONS):
                return compiled(*args)

        self._run = run

    @property
    def is_compiled(self) -> bool:
        return self._run is not layer

    def reset(self) -> None:
        """Use layers that are not compiled."""
        self._run = layer

    def seeds(self, seed: Tensor) -> Tensor:
        """Seeds of all dropouts of a step, (layers + 1, 3); the first row is for what is around
        the layers."""
        n_seeds = 3 * (len(self._parts) + 1)
        numbers = torch.arange(n_seeds, dtype=torch.int32, device=seed.device)
        return mix(numbers, seed).view(-1, 3)

    def __call__(self, input_ids: Tensor, layout: Layout, seeds: Tensor | None = None) -> Tensor:
        """The states of the last layer, (tokens, width); without seeds nothing is dropped."""
        states, rates, run = self._embed(input_ids, layout.position), self._rates, self._run
        if seeds is None:
            # Compiled layers would be compiled again for each size of a batch to predict.
            rates, run = Rates(0.0, 0.0, rates.eps), layer
            shape = (len(self._parts) + 1, 3)
            seeds = torch.zeros(shape, dtype=torch.int32, device=states.device)
        states = dropout(states, rates.hidden, seeds[0, :1])
        for modules, seed in zip(self._parts, seeds[1:], strict=True):
            pairs: Any = ((module.weight, module.bias) for module in modules)
            weights = Weights(*pairs)
            states = run(states, weights, self.n_heads, rates, layout.tiles, self._bias, seed)
        result: Tensor = states
        return result

    def _embed(self, input_ids: Tensor, position: Tensor) -> Tensor:
        """The states before the first layer.

        The gradient of a lookup sorts its indices. That of a product does not, so that positions
        are one, and all tokens are of the first type anyway.
        """
        parts = self.encoder.embeddings
        states = parts.word_embeddings(input_ids)
        if torch.is_grad_enabled():
            table = parts.position_embeddings.weight[self._first :][: self._longest]
            numbers = torch.arange(len(table), device=position.device)
            states = states + (position.unsqueeze(1) == numbers).to(table.dtype) @ table
        else:
            states = states + parts.position_embeddings(position + self._first)
        if hasattr(parts, "token_type_embeddings"):
            states = states + parts.token_type_embeddings.weight[0]
        result: Tensor = parts.LayerNorm(states)
        return result

    def trains(self, half: bool = True) -> bool:
        """Whether gradients are those of the padded encoder; `half`: in bf16.

        Also finds the parameters that packed documents do not train.
        """
        tokens = _some_tokens(self.encoder, self._longest)
        named = [(name, p) for name, p in self.encoder.named_parameters() if p.requires_grad]
        lengths = torch.tensor([len(tokens)], device=tokens.device)
        layout = Layout.of(lengths, len(tokens), tile_count(len(tokens), 1))
        gradients = []
        with _evaluating(self.encoder), torch.enable_grad():
            for packed in (False, True):
                with torch.autocast(tokens.device.type, torch.bfloat16, enabled=half):
                    states = self(tokens, layout) if packed else _padded(self.encoder, tokens)
                    signs = torch.arange(states.numel(), device=tokens.device).view(states.shape)
                    total = (states.float() * torch.cos(signs.float())).sum()
                parameters = [parameter for _, parameter in named]
                gradients.append(torch.autograd.grad(total, parameters, allow_unused=True))
        self.fixed, checked = [], {id(part.weight) for part in self._parts[0][:3]}
        for (name, parameter), padded, ours in zip(named, *gradients, strict=True):
            if ours is None:
                self.fixed.append(parameter)
                # MPNet's attention bias, a few hundred weights: the kernels compute no gradient.
                if padded is not None and "relative_attention_bias" not in name:
                    return False
            elif padded is None:
                return False
            elif id(parameter) in checked:
                difference: Tensor = (ours - padded).norm()
                if not bool(difference <= GRADIENT_TOLERANCE * padded.norm()):
                    return False
        return True


def _parts(layer: Any) -> list[nn.Module]:
    """The modules of a layer, in the order of Weights."""
    attention = layer.attention
    if hasattr(attention, "attn"):
        inside, out, norm = attention.attn, attention.attn.o, attention.LayerNorm
        first = [inside.q, inside.k, inside.v, out, norm]
    else:
        inside, after = attention.self, attention.output
        first = [inside.query, inside.key, inside.value, after.dense, after.LayerNorm]
    return [*first, layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm]


def pack(encoder: Any, max_length: int) -> PackedEncoder | None:
    """The packed form of an encoder on its device; None if it has none that computes the same."""
    config = encoder.config
    size = getattr(config, "hidden_size", 0) // max(1, getattr(config, "num_attention_heads", 0))
    if size not in HEAD_SIZES or getattr(config, "hidden_act", None) != "gelu":
        return None
    tokens = _some_tokens(encoder, max_length)
    with _evaluating(encoder):
        try:
            packed = PackedEncoder(encoder, max_length)
            lengths = (max_length // 3 + 1, max_length)
            same = all(_agree(packed, tokens[-length:]) for length in lengths)
        except Exception as error:
            # Another architecture, or kernels that cannot be built or do not fit on this GPU.
            if is_out_of_memory(error):
                raise
            return None
    return packed if same else None


def _agree(packed: PackedEncoder, document: Tensor) -> bool:
    """Whether the encoder has the same states for two copies of a document, packed and alone."""
    n_tokens, alone = len(document), _padded(packed.encoder, document)
    lengths = torch.tensor([n_tokens, n_tokens], device=document.device)
    layout = Layout.of(lengths, 2 * n_tokens, tile_count(2 * n_tokens, 2))
    both: Tensor = packed(torch.cat([document, document]), layout).view(2, n_tokens, -1)
    difference: Tensor = (both - alone).abs().max()
    return bool(difference < TOLERANCE * alone.std())


def _some_tokens(encoder: Any, n_tokens: int) -> Tensor:
    """A text of any tokens but the first ones, one of which is padding."""
    n_words = encoder.get_input_embeddings().num_embeddings
    tokens = torch.arange(n_tokens) * 7919 % max(1, n_words - 4) + min(4, n_words - 1)
    on_device: Tensor = tokens.to(encoder.device)
    return on_device


def _padded(encoder: Any, tokens: Tensor) -> Tensor:
    """The states of one text by the encoder's own forward pass."""
    mask = torch.ones_like(tokens).unsqueeze(0)
    states: Tensor = encoder(tokens.unsqueeze(0), attention_mask=mask).last_hidden_state[0]
    return states


@contextmanager
def _evaluating(encoder: nn.Module) -> Iterator[None]:
    """Put the encoder in eval mode for a while, without gradients."""
    training = encoder.training
    encoder.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        encoder.train(training)
