"""Weights in a file: shapes and types are compared with what is expected before they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open

from longtail.errors import DataError


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the tensors in a safetensors file, from its header alone."""
    with safe_open(path, framework="numpy") as opened:
        return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118


def check_shapes(path: Path, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise unless a file holds the expected tensors in float32, and no others."""
    with safe_open(path, framework="numpy") as opened:
        parts = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
        found = {name: (tuple(p.get_shape()), p.get_dtype()) for name, p in parts.items()}
    for name in sorted({*found, *expected}):
        wanted = (expected[name], "F32") if name in expected else None
        if found.get(name) != wanted:
            raise DataError(
                f"{path} does not belong to the rest of its model: expected {name} as "
                f"{wanted or 'nothing'}, got {found.get(name, 'nothing')}. Copy the model again "
                "from where it came from, or train it again."
            )
