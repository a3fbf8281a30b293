"""Weights in safetensors files, whose shapes and types are compared before they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from longtail.errors import DataError


def read_header(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name -> shape and type of the tensors in a file."""
    with safe_open(path, framework="numpy") as opened:
        parts = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
        return {name: (tuple(p.get_shape()), p.get_dtype()) for name, p in parts.items()}


def read_weights(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The tensors of a file, which must have these shapes, in float32, and no others."""
    header = read_header(path)
    for name in sorted({*header, *shapes}):
        expected = (shapes[name], "F32") if name in shapes else None
        if header.get(name) != expected:
            raise DataError(
                f"{path} does not belong to the rest of its model: expected {name} as "
                f"{expected or 'nothing'}, got {header.get(name, 'nothing')}. Copy the model again "
                "from where it came from, or train it again."
            )
    return load_file(path)


def load_network(network: nn.Module, path: Path) -> None:
    """Load the weights of a network, which may be on the device meta."""
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    network.load_state_dict(read_weights(path, shapes), assign=True)
