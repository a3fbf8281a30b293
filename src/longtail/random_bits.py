"""Random bits as a hash of numbers and a seed: dropout, stochastic rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def mix(numbers: Tensor, seed: Tensor | int) -> Tensor:
    """Hash numbers and a seed, all int32, to int32; in kernels `losses.kernel_parts.mix`.

    torch's random numbers take longer than the memory traffic of the layers, and all threads share
    their state.
    """
    # Not seed + numbers: the compiler would fold the factor into the numbers, past 32 bits.
    x = (numbers ^ seed) * -1640531535 + seed
    return (x ^ ((x >> 15) & 0x1FFFF)) * 0x7FEB352D
