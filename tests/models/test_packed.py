"""Encoders on packed documents compute what they compute with padding."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from longtail.models import Encoder
from longtail.models import encoder as encoder_module
from longtail.models import packed as packed_module
from longtail.models.encoder import EncoderModel, Limits
from longtail.models.networks import PooledNetwork
from longtail.models.packed import Weights, pack
from longtail.training import Training
from longtail.training.encoded import DeviceFeed, EncodedTokens
from longtail.training.steps import predict_logits

CPU = torch.device("cpu")
SHAPE: dict[str, Any] = {
    **dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=2),
    **dict(intermediate_size=64, max_position_embeddings=150),
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Bert": {},
    "Roberta": {"max_position_embeddings": 152, "pad_token_id": 1},
    "MPNet": {"max_position_embeddings": 152},
}
OTHERS: dict[str, dict[str, Any]] = {
    "Bert": {"hidden_act": "relu"},
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "DebertaV2": dict(relative_attention=True, pos_att_type=["p2c"], position_biased_input=False),
    "ModernBert": dict(
        pad_token_id=0, cls_token_id=2, bos_token_id=2, sep_token_id=3, eos_token_id=3
    ),
}


def make_network(family: str, **more: Any) -> PooledNetwork:
    import transformers

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        kind = getattr(transformers, f"{family}Model")
    encoder = kind(kind.config_class(**SHAPE | more))
    with torch.no_grad():
        for parameter in encoder.parameters():
            # Biases and norms start as 0 and 1, which would hide that they are missing.
            parameter.add_(0.05 * torch.randn_like(parameter))
    return PooledNetwork(encoder, 3, 0.0)


def make_documents() -> EncodedTokens:
    """Documents of 1 to 150 tokens, three of them longer than a tile."""
    rng = np.random.default_rng(0)
    lengths = np.array([1, 150, 7, 64, 65, 30, 2, 100])
    tokens = rng.integers(4, 40, size=lengths.sum(), dtype=np.int32)
    return EncodedTokens(tokens, np.concatenate([[0], np.cumsum(lengths)]), 1, 150)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_equals_padded(family: str) -> None:
    """Logits and all gradients; MPNet's attention bias has no gradient here."""
    network = make_network(family, **FAMILIES[family]).eval()
    encoded = make_documents()
    network.packed = pack(network.encoder, 150)
    assert network.packed is not None and network.packed.trains()
    Y = sp.csr_matrix(np.ones((8, 3), dtype=np.float32))
    rows = torch.tensor([3, 1, 0, 4, 7])
    slopes = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    logits, gradients = [], []
    for is_packed in (False, True):
        feed = DeviceFeed(encoded, Y, CPU, packed=5 if is_packed else None)
        inputs, _ = feed.batch(rows, feed.width(rows.numpy()))
        assert ("layout" in inputs) == is_packed
        network.zero_grad()
        logits.append(network(**inputs))
        (logits[-1] * slopes).sum().backward()
        named = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
        gradients.append({name: grad.clone() for name, grad in named.items()})
    torch.testing.assert_close(logits[1], logits[0], atol=1e-5, rtol=1e-4)
    missing = gradients[0].keys() - gradients[1].keys()
    assert all("relative_attention_bias" in name for name in missing)
    for name, grad in gradients[1].items():
        torch.testing.assert_close(grad, gradients[0][name], atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("family", OTHERS)
def test_other_architectures_are_not_packed(family: str) -> None:
    network = make_network(family, **OTHERS[family])
    assert pack(network.encoder, 150) is None
    assert network.training and network.encoder.training


def test_an_encoder_with_other_results_is_not_packed() -> None:
    """Such as one that changes its states in a way of its own."""
    network = make_network("Bert")
    network.encoder.encoder.register_forward_hook(
        lambda module, inputs, output: type(output)(last_hidden_state=2 * output[0])
    )
    assert pack(network.encoder, 150) is None


def test_other_gradients_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of a kernel that a compiler has got wrong."""
    packed = pack(make_network("Bert").encoder, 150)
    assert packed is not None and packed.trains() and packed.trains(half=False)
    original = packed_module.layer

    def wrong(states: torch.Tensor, weights: Weights, *rest: Any) -> torch.Tensor:
        query, bias = weights.query
        changed = weights._replace(query=(query.detach(), bias))
        return original(states, changed, *rest) + 0 * query.sum()

    monkeypatch.setattr(packed_module, "layer", wrong)
    assert not packed.trains()


def test_weights_that_packed_documents_do_not_train() -> None:
    """MPNet's attention bias; and what an encoder has for other inputs than tokens."""
    packed = pack(make_network("MPNet", **FAMILIES["MPNet"]).encoder, 150)
    assert packed is not None and packed.trains()
    assert [tuple(weight.shape) for weight in packed.fixed] == [(32, 2)]
    network = make_network("Bert")
    network.encoder.embeddings.images = torch.nn.Linear(3, 3)
    packed = pack(network.encoder, 150)
    assert packed is not None and packed.trains()
    assert {id(weight) for weight in packed.fixed} == {
        id(weight) for weight in network.encoder.embeddings.images.parameters()
    }


@pytest.mark.parametrize("fails", ["forward", "backward"])
def test_kernels_that_fail_leave_padding(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """As on a GPU with less memory than they need: Triton's errors derive from Exception alone."""

    class TooLargeError(Exception):
        pass

    def fail(*_: Any) -> Any:
        raise TooLargeError("out of resource: shared memory")

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, states: torch.Tensor) -> torch.Tensor:
            return states.clone()

        backward = staticmethod(fail)

    original = packed_module.layer
    changed = fail if fails == "forward" else (lambda *given: Failing.apply(original(*given)))
    notes: list[str] = []
    model = EncoderModel(Encoder("any"))
    model.network = make_network("Bert")
    model._pretrained = model.network.encoder
    monkeypatch.setattr(packed_module, "layer", changed)
    monkeypatch.setattr(encoder_module, "has_kernels", lambda device: True)
    monkeypatch.setattr(model, "_limits", lambda: Limits(40, 150))
    training = Training(device="cpu", precision="fp32")
    with model.packing(training, 10, notes.append) as packed:
        assert not packed and model.network.packed is None
    model.to_device(CPU)
    assert model.network.packed is None
    if fails == "backward":
        assert len(notes) == 1 and "padded documents" in notes[0] and "shared memory" in notes[0]


def test_predictions_are_packed() -> None:
    network = make_network("MPNet", **FAMILIES["MPNet"]).eval()
    encoded = make_documents()
    before = predict_logits(network, encoded, batch_size=3)
    network.packed = pack(network.encoder, 150)
    np.testing.assert_allclose(predict_logits(network, encoded, batch_size=3), before, atol=1e-5)


def test_dropout_differs_from_step_to_step() -> None:
    network = make_network("Bert").train()
    encoded = make_documents()
    network.packed = pack(network.encoder, 150)
    feed = DeviceFeed(encoded, sp.csr_matrix((8, 3), dtype=np.float32), CPU, packed=8)
    inputs, _ = feed.batch(torch.arange(8), feed.width(np.arange(8)))
    results = []
    for seed in (0, 0, 1):
        number = torch.tensor([seed], dtype=torch.int32)
        results.append(network(**inputs, seed=number))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    assert torch.equal(network(**inputs), network(**inputs))
