"""SIGINT and SIGTERM end a training at the next safe point, with its state saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from longtail.errors import LongtailError
from longtail.training.devices import n_processes


class StoppedError(LongtailError):
    """A signal stopped a training; its progress is saved if it has a folder."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Stop:
    """The signal that requested a stop, if any."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def check(self, saved: str) -> None:
        """Raise if a stop was requested; `saved`: a sentence on what is kept."""
        if self.signal is not None:
            raise StoppedError(f"stopped by {self.signal.name}. {saved}", 128 + self.signal)


NEVER = Stop()


@contextmanager
def stopping() -> Iterator[Stop]:
    """Catch the first SIGINT or SIGTERM; a second one ends the process at once.

    A signal that is ignored (a command in the background, under nohup) stays ignored. Under
    torchrun every signal after the first is: Ctrl-C comes twice, from the terminal and from
    torchrun, which also kills what has not ended 30 seconds later.
    """
    stop, before = Stop(), dict[signal.Signals, Any]()

    def request(number: int, frame: FrameType | None) -> None:
        stop.signal = stop.signal or signal.Signals(number)
        if n_processes() == 1:
            restore()

    def restore() -> None:
        for number, handler in before.items():
            # Another handler may have been installed meanwhile.
            if signal.getsignal(number) is request:
                signal.signal(number, handler)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            # None: a handler not installed from Python, which could not be restored.
            if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                before[number] = handler
                signal.signal(number, request)
    try:
        yield stop
    finally:
        restore()
