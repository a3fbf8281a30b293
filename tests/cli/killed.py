"""python killed.py RUN DATA FOLDER WHOLE EVERY: predicts DATA, killed at a change of a file.

At every EVERY-th change in turn. After each kill FOLDER/out.jsonl must be WHOLE or not there, and
resuming must make it WHOLE. Prints the number of changes. This interpreter forks, as importing
torch takes seconds.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from itertools import count
from pathlib import Path
from typing import Any

import longtail.classifier  # noqa: F401 - before the forks
from longtail import cli
from longtail.cli import texts
from longtail.runs import parts

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")


def predict(arguments: list[str], log: Path, kill_at: int | None = None) -> int:
    """The exit code of a child process; minus the signal that ended it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    n_changes = 0

    def watch(event: str, values: tuple[Any, ...]) -> None:
        nonlocal n_changes
        writes = event == "open" and isinstance(values[2], int) and values[2] & os.O_WRONLY
        if event in CHANGES or writes:
            n_changes += 1
            if n_changes == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        with log.open("w") as opened:
            os.dup2(opened.fileno(), 1)
            os.dup2(opened.fileno(), 2)
        sys.argv = ["longtail", "predict", *arguments]
        sys.addaudithook(watch)
        cli.main()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 0)
    except BaseException:
        traceback.print_exc()
        os._exit(99)
    os._exit(0)


def main(run: str, data: str, place: str, whole: str, every: str) -> None:
    parts.MOST_RECORDS = texts.BATCH = 10
    expected = Path(whole).read_bytes()
    folder = Path(place)
    out, log = folder / "out.jsonl", folder.with_name("log.txt")
    arguments = [run, data, "--out", str(out), "--device", "cpu"]
    for kill_at in count(1, int(every)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        code = predict(arguments, log, kill_at)
        if out.exists():
            assert out.read_bytes() == expected, kill_at
        if code == 0:
            print(kill_at - 1)
            return
        assert code == -signal.SIGKILL, (kill_at, code, log.read_text())
        code = predict([*arguments, "--resume"], log)
        text = log.read_text()
        if "is not started" in text:
            assert predict(arguments, log) == 0, (kill_at, log.read_text())
        else:
            assert code == 0 or "is whole already" in text, (kill_at, code, text)
        assert out.read_bytes() == expected, (kill_at, text)
        # A private folder whose process was killed before it wrote the mark is left, empty.
        left = [path.name for path in folder.iterdir() if path.is_file() or any(path.iterdir())]
        assert left == ["out.jsonl"], (kill_at, left, text)


if __name__ == "__main__":
    main(*sys.argv[1:])
