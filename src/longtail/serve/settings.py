"""The models and limits of a service, as plain values that are sent to worker processes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longtail.checks import check_integer, check_number
from longtail.errors import InputError
from longtail.runs.model import check_model
from longtail.settings import setting

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Limits:
    """Bounds of requests, and of the queue in front of each model."""

    max_batch: int = setting(32, "Documents per call of a model.")
    max_wait_ms: float = setting(
        5.0, "Milliseconds that a batch waits for more documents, if requests arrive concurrently."
    )
    queue: int = setting(1024, "Documents that may wait for a model; beyond that, status 503.")
    timeout: float = setting(30.0, "Seconds for a request to arrive, and to be answered.")
    max_text_length: int = setting(100_000, "Characters per text.")
    max_documents: int = setting(256, "Documents per request.")
    max_body_mb: float = setting(10.0, "Megabytes per request.")

    def __post_init__(self) -> None:
        for name in ("max_batch", "queue", "max_text_length", "max_documents"):
            check_integer(name, getattr(self, name), 1)
        check_number("max_wait_ms", self.max_wait_ms, 0, 10_000)
        check_number("timeout", self.timeout, 0, 3600, exclusive=True)
        check_number("max_body_mb", self.max_body_mb, 0, 2000, exclusive=True)
        if self.queue < self.max_documents:
            raise InputError(
                f"a queue of {self.queue} documents never has room for a request of "
                f"{self.max_documents}. Raise --queue or lower --max-documents."
            )

    @property
    def max_body_bytes(self) -> int:
        return int(self.max_body_mb * 1_000_000)


@dataclass(frozen=True)
class Service:
    """The settings of a service."""

    runs: Mapping[str, Path]
    """Model folders by name."""
    limits: Limits = field(default_factory=Limits)
    device: str | None = None
    engine: str | None = None
    trust_remote_code: bool = False
    corrections: Path | None = None
    """File for the corrections of all models; None: one beside each run."""
    examples: tuple[str, ...] = ()
    api_key: str | None = field(default=None, repr=False)
    only_local: bool = False
    """Refuse requests whose Host is neither `localhost` nor an IP address."""

    def corrections_of(self, name: str) -> Path:
        beside = self.runs[name].resolve().parent / f"corrections-{name}.jsonl"
        return self.corrections or beside


def name_runs(arguments: Sequence[str]) -> dict[str, Path]:
    """Model folders by name, from arguments RUN or NAME=RUN; raises before any heavy import."""
    runs: dict[str, Path] = {}
    for argument in arguments:
        name, equals, folder = argument.partition("=")
        if not equals or Path(argument).exists():
            name, folder = "", argument
        path = Path(folder)
        check_model(path)
        name = name or path.resolve().name
        if not NAME.fullmatch(name):
            raise InputError(
                f"{name!r} cannot be part of a URL: expected letters, digits, '.', '_' and '-'. "
                f"Name the model, as in name={folder}."
            )
        if name in runs:
            raise InputError(
                f"{runs[name]} and {path} are both called {name!r}. Name one, as in other={path}."
            )
        runs[name] = path
    return runs


def check_corrections(service: Service) -> None:
    """Raise unless the corrections of every model can be written, outside of all runs."""
    for name in service.runs:
        path = service.corrections_of(name).absolute()
        if path.suffix != ".jsonl":
            raise InputError(f"--corrections: expected the name of a .jsonl file, got {path}.")
        for run in service.runs.values():
            if path.resolve().is_relative_to(run.resolve()):
                raise InputError(f"{path} is inside the model {run}. Choose another --corrections.")
        try:
            path.open("ab").close()
        except OSError as error:
            raise InputError(
                f"{path} cannot be written as a file ({error.strerror or error}). Choose another "
                "--corrections."
            ) from error
