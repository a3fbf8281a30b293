"""The kernel of AdamW against torch's optimizer."""

from __future__ import annotations

import pytest
import torch

from longtail.training import Training
from longtail.training.weights import Weights, make_optimizer

from ..interpreted import DEVICE, needs_kernels, run_interpreted, starts_interpreter
from .cases import make_network


@starts_interpreter
def test_kernels_agree_when_interpreted() -> None:
    run_interpreted(__file__)


@needs_kernels
@pytest.mark.parametrize("max_norm", [0.0, 0.5])
@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_kernel_equals_the_optimizer_of_torch(max_norm: float, ema: float) -> None:
    """Masters, rounded weights, moments and averages, over steps with other learning rates."""
    training = Training(learning_rate=0.01, head_learning_rate=0.03, weight_decay=0.1)
    results = []
    for flat in (False, True):
        network = make_network().to(DEVICE)
        weights = Weights(network, half=True, ema=ema)
        optimizer = make_optimizer(
            weights, lambda name: name.startswith("head."), training, DEVICE, flat
        )
        generator = torch.Generator().manual_seed(0)
        for step in range(4):
            for group in optimizer.param_groups:
                rate = group["peak"] * (step + 1) / 4
                group["lr"] = torch.tensor(rate, device=DEVICE) if flat else rate
            for weight in weights.used:
                noise = torch.randn(weight.shape, generator=generator)
                weight.grad = noise.to(torch.bfloat16).to(DEVICE)
            weights.step(optimizer, max_norm)
        assert all(weight.grad is None for weight in weights.used)
        saved = weights.tensors(optimizer)
        rounded = {f"rounded.{k}": w.detach().float() for k, w in enumerate(weights.used)}
        results.append(saved | rounded)
        if flat:
            # Nothing may hold the network's autograd graph: CUDA graphs could not be recorded.
            assert not any(part.requires_grad for parts in optimizer._flat for part in parts)
            # A checkpoint restores all of it.
            again = make_network(seed=1).to(DEVICE)
            restored = Weights(again, half=True, ema=ema)
            other = make_optimizer(restored, lambda name: False, training, DEVICE, flat)
            restored.load(saved, other)
            assert restored.tensors(other).keys() == saved.keys()
            for name, value in restored.tensors(other).items():
                assert torch.equal(value, saved[name]), name
            weights.finish()
            assert {p.dtype for p in network.parameters()} == {torch.float32}
    first, second = results
    assert first.keys() == second.keys()
    for name, value in first.items():
        # The interpreter cuts numbers off where bfloat16 rounds them.
        rtol = 2**-7 if name.startswith("rounded") else 1e-5
        torch.testing.assert_close(second[name], value, atol=1e-6, rtol=rtol, msg=name)
