"""Checkpoints: one safetensors file per state, replaced atomically.

The file holds the tensors; plain values ("facts") are JSON in its header.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from longtail.errors import DataError
from longtail.runs.files import whole_file
from longtail.runs.workspace import Workspace

STATE = "state"
SUFFIX = ".safetensors"


class Checkpoints:
    """The saved states of one training, in a workspace.

    `minutes`: time after the last save from which `due` is true; 0: always.
    """

    def __init__(self, space: Workspace, minutes: float = 5.0) -> None:
        self._space, self._seconds, self._last = space, 60 * minutes, time.monotonic()
        self.folder = space.path

    def due(self) -> bool:
        return time.monotonic() - self._last >= self._seconds

    def save(
        self, tensors: Mapping[str, Tensor], facts: dict[str, Any] | None = None, name: str = STATE
    ) -> None:
        """Write a state; the previous one is kept until the new one is complete on disk."""
        path = self.folder / f"{name}{SUFFIX}"
        on_cpu = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        try:
            with whole_file(self._space.file(path.name)) as temporary:
                save_file(on_cpu, temporary, metadata={"facts": json.dumps(facts or {})})
        except (OSError, SafetensorError) as error:
            has_previous = path.exists()
            kept = "The last good state is kept" if has_previous else "Nothing was saved before"
            raise DataError(
                f"could not save to {path}: {error}. {kept}. Free some space, then resume with "
                "--resume."
            ) from error
        self._last = time.monotonic()

    def load(self, name: str = STATE) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The tensors and facts of a state; None if it was never saved."""
        path = self.folder / f"{name}{SUFFIX}"
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                facts = json.loads((file.metadata() or {}).get("facts", "{}"))
                names = file.keys()
                return {name: file.get_tensor(name) for name in names}, facts
        except (OSError, SafetensorError, ValueError) as error:
            raise DataError(
                f"{path} cannot be read ({error}). Remove it to start this part over."
            ) from error

    def check_space(self, n_bytes: int) -> None:
        """Raise if the disk has no room for a checkpoint of `n_bytes` beside the previous one."""
        free = shutil.disk_usage(self.folder).free
        copies = 1 if (self.folder / f"{STATE}{SUFFIX}").exists() else 2
        needed = copies * n_bytes + (1 << 20)
        if free < needed:
            raise DataError(
                f"the disk of {self.folder} has {free / 2**20:,.0f} MiB free, and saving this "
                f"training takes {needed / 2**20:,.0f} MiB. Free some, or choose another folder."
            )

    def clear(self) -> None:
        """Remove all states."""
        for path in self.folder.glob(f"*{SUFFIX}"):
            self._space.discard(path.name)
