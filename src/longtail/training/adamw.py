"""AdamW for a network in bf16 on a GPU: one pass over master weights, moments and gradients.

It reads the network's gradients and writes its rounded weights in the same pass; torch's optimizer
takes float32 gradients, and rounding is another pass, which together takes 1.6 times as long.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8  # as torch.optim.AdamW
LOGARITHMS = math.log(BETA1), math.log(BETA2)
BLOCK = 1024
# Weights start at multiples of this many elements, as matrix products expect.
ALIGNMENT = 128


@triton.jit
def _step_kernel(
    weight_ptr, first_ptr, second_ptr, rounded_ptr, grad_ptr, rate_ptr, scale_ptr, count_ptr,
    n_weights, decay, beta1, beta2, log_beta1, log_beta2, eps, BLOCK: tl.constexpr,
):  # fmt: skip
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n_weights
    rate, count = tl.load(rate_ptr), tl.load(count_ptr)
    grad = tl.load(grad_ptr + places, mask=mask, other=0.0).to(tl.float32) / tl.load(scale_ptr)
    weight = tl.load(weight_ptr + places, mask=mask, other=0.0)
    first = tl.load(first_ptr + places, mask=mask, other=0.0)
    second = tl.load(second_ptr + places, mask=mask, other=0.0)
    first = first + (1 - beta1) * (grad - first)
    second = beta2 * second + (1 - beta2) * grad * grad
    correction = 1 - tl.exp(count * log_beta1)
    denominator = tl.sqrt(second / (1 - tl.exp(count * log_beta2))) + eps
    weight = weight * (1 - rate * decay) - rate / correction * first / denominator
    tl.store(weight_ptr + places, weight, mask=mask)
    tl.store(first_ptr + places, first, mask=mask)
    tl.store(second_ptr + places, second, mask=mask)
    tl.store(rounded_ptr + places, weight.to(rounded_ptr.dtype.element_ty), mask=mask)


class FlatAdamW:
    """AdamW over a few flat tensors, each with all weights of one group.

    Like a torch optimizer it has `param_groups`, `state` and `grad_scale`, by which gradients are
    divided.

    Args:
        groups: as those of torch.optim.AdamW, with numbers in `members`.
        masters: float32 weights; replaced by views of the flat tensors.
        used: the network's weights in bf16; their data becomes views of flat tensors too.
    """

    @torch.no_grad()
    def __init__(
        self, groups: list[dict[str, Any]], masters: list[Tensor], used: list[Tensor]
    ) -> None:
        self.param_groups = groups
        self.state: dict[Tensor, dict[str, Tensor]] = defaultdict(dict)
        device = used[0].device
        self.count = torch.zeros((), device=device)
        self.grad_scale = torch.ones((), device=device)
        self._grads: dict[int, Tensor] = {}
        self._flat: list[tuple[Tensor, ...]] = []
        for group in groups:
            sizes = [-(-used[k].numel() // ALIGNMENT) * ALIGNMENT for k in group["members"]]
            wide = [torch.zeros(sum(sizes), device=device) for _ in range(3)]
            half = [torch.zeros(sum(sizes), dtype=used[0].dtype, device=device) for _ in range(2)]
            self._flat.append((*wide, *half))
            start = 0
            for k, size in zip(group["members"], sizes, strict=True):
                end, shape = start + used[k].numel(), used[k].shape
                master, first, second, rounded, grad = (
                    flat[start:end].view(shape) for flat in self._flat[-1]
                )
                masters[k] = master.copy_(masters[k])
                used[k].data = rounded.copy_(used[k])
                self._grads[k] = grad
                self.state[master] = {"step": self.count, "exp_avg": first, "exp_avg_sq": second}
                start += size

    def collect(self, used: list[Tensor]) -> Tensor:
        """Copy the gradients of the network's weights; return their norm."""
        grads: Any = [used[k].grad for k in self._grads]
        torch._foreach_copy_(list(self._grads.values()), grads)
        norms = [torch.linalg.vector_norm(flat[4], dtype=torch.float32) for flat in self._flat]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        return norm

    def step(self) -> None:
        """Update masters, moments and the network's weights."""
        self.count += 1
        for group, flat in zip(self.param_groups, self._flat, strict=True):
            n_weights = len(flat[0])
            _step_kernel[(triton.cdiv(n_weights, BLOCK),)](
                *flat, group["lr"], self.grad_scale, self.count, n_weights, group["weight_decay"],
                BETA1, BETA2, *LOGARITHMS, EPS, BLOCK=BLOCK,
            )  # fmt: skip
