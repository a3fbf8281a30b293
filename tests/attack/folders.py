"""Model folders, damaged at random or by somebody who knows how to mend the checksums.

A damaged folder gives the right answers or an error of ours. With mended checksums the answers may
differ, but nothing else may happen: no other exception, no hang, no code, no absurd memory.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from longtail import LongTailClassifier
from longtail.errors import LongtailError
from longtail.runs.model import CONFIG_FILE, manifest, seal

from . import OUR_ERROR, RIGHT, Outcome
from .models import TEXTS, fit_kinds

MINIMUM = 3000
SECONDS = 20
BAIT = "import pathlib; pathlib.Path(__file__).with_name('RAN').touch()\n"
ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 7, 10**6, 10**9, 2**31, 2**63, 10**30, 0.5, -1.5, 1e308,
    float("nan"), "", "x", "../..", "/etc/passwd", "(a+)+$", [], [0], {}, {"a": 1}, "kernels/x",
)  # fmt: skip


class StuckError(Exception):
    """A case took too long."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    def ring(_: int, __: FrameType | None) -> None:
        raise StuckError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "README.md")


# ---- what happens to a folder by accident


def flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 3, 20))):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def cut(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])


def extend(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    place = draw.randrange(len(content) + 1)
    path.write_bytes(content[:place] + draw.randbytes(draw.choice((1, 8, 500))) + content[place:])


def digit(path: Path, draw: random.Random) -> None:
    """Another digit in a number, the length the same: JSON stays JSON."""
    content = bytearray(path.read_bytes())
    places = [k for k, byte in enumerate(content) if chr(byte).isdigit()]
    if places:
        content[draw.choice(places)] = ord(draw.choice("0123456789"))
    path.write_bytes(content)


def remove(path: Path, draw: random.Random) -> None:
    path.unlink()


def replace(path: Path, draw: random.Random) -> None:
    """A pipe, a link, a folder or a device in the place of a file."""
    content = path.read_bytes()
    path.unlink()
    how = draw.randrange(4)
    if how == 0:
        os.mkfifo(path)
    elif how == 1:
        path.mkdir()
    elif how == 2:
        path.symlink_to("/dev/zero")
    else:
        other = path.with_name("elsewhere")
        other.write_bytes(content)
        path.symlink_to(other)


def add(path: Path, draw: random.Random) -> None:
    """A file beside, by a name that some library might look for."""
    name = draw.choice((
        "modeling_x.py", "pytorch_model.bin", "adapter_config.json", "added_tokens.json",
        "special_tokens_map.json", "vocab.txt", "model-00001-of-00002.safetensors",
        "model.safetensors.index.json", "chat_template.jinja", "config.json", "tokenizer.json",
        "notes.txt", "sitecustomize.py", "merges.txt", "generation_config.json",
    ))  # fmt: skip
    place = path.with_name(name)
    if not place.exists():
        place.write_text(draw.choice((BAIT, "{}", '{"[PAD]": 5}', "copper", "")))


ACCIDENTS: dict[str, Callable[[Path, random.Random], None]] = {
    "bits": flip,
    "cut": cut,
    "extended": extend,
    "digit": digit,
    "removed": remove,
    "replaced": replace,
    "added": add,
}


# ---- what somebody does who mends the checksums


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        found += [way for key, item in items for way in places(item, (*path, key))]
    return found


def edit_json(path: Path, draw: random.Random) -> None:
    """An odd value somewhere in a JSON file, or a setting that would load code."""
    content = json.loads(path.read_text("utf-8"))
    *way, last = draw.choice(places(content) or [("x",)])
    target = content
    for key in way:
        target = target[key]
    target[last] = draw.choice(ODD)
    if isinstance(content, dict) and draw.random() < 0.3:
        key = draw.choice(
            ("auto_map", "attn_implementation", "_attn_implementation", "use_kernels")
        )
        auto = {"AutoModel": "modeling_x.Bait", "AutoConfig": "modeling_x.Bait"}
        content[key] = auto if key == "auto_map" else draw.choice(("kernels/x", "x/y:z", True))
        path.with_name("modeling_x.py").write_text(BAIT)
    path.write_text(json.dumps(content), "utf-8")


def edit_tensors(path: Path, draw: random.Random) -> None:
    """Another shape, another type, or numbers that are none."""
    tensors = load_file(path)
    name = draw.choice(sorted(tensors))
    how = draw.randrange(5)
    if how == 0:
        tensors[name] = tensors[name][..., :-1].copy()
    elif how == 1:
        tensors[name] = tensors[name].astype(np.float16)
    elif how == 2:
        tensors[name] = np.full_like(tensors[name], np.nan)
    elif how == 3:
        tensors[f"{name}x"] = tensors.pop(name)
    else:
        tensors[name] = np.repeat(tensors[name], 2, axis=0)
    save_file(tensors, path)


def mend(folder: Path) -> None:
    """Write the list of files anew, as somebody would who wants the folder to load."""
    config = json.loads((folder / CONFIG_FILE).read_text("utf-8"))
    listed = {n: e for n, e in manifest(folder).items() if n != CONFIG_FILE}
    (folder / CONFIG_FILE).write_text(json.dumps(seal({**config, "files": listed})), "utf-8")


# ---- judging


def answers(folder: Path) -> np.ndarray:
    classifier = LongTailClassifier.from_pretrained(folder)
    return np.concatenate(
        [classifier.decision_function(TEXTS[:4]), classifier.predict(TEXTS[:4]).toarray()]
    )


def judge(folder: Path, expected: np.ndarray | None) -> str:
    """The verdict on a folder; `expected`: what it must answer, None: anything."""
    try:
        with limited(SECONDS):
            found = answers(folder)
    except LongtailError as error:
        shown = str(error)
        bad = len(shown) > 5000 or any(ord(c) < 32 and c != "\n" for c in shown)
        return "an unprintable or endless message" if bad else OUR_ERROR
    except StuckError:
        return "it hangs"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    if list(folder.rglob("RAN")):
        return "foreign code was run"
    if expected is not None and not np.array_equal(found, expected):
        return "it answers differently"
    return RIGHT


def attack(seed: int, scratch: Path) -> Iterator[Outcome]:
    """Folders of every kind in turn, damaged by accident and with mended checksums."""
    originals = fit_kinds(scratch / "fitted")
    expected = {kind: answers(folder) for kind, folder in originals.items()}
    number = 0
    while True:
        for kind, original in originals.items():
            number += 1
            draw = random.Random(f"{seed} {number}")
            folder = scratch / "damaged"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(original, folder)
            path = draw.choice(files_of(folder))
            detail = f"seed {seed}, case {number}, {kind}, {path.relative_to(folder)}"
            if draw.random() < 0.6:
                how = draw.choice(sorted(ACCIDENTS))
                ACCIDENTS[how](path, draw)
                yield Outcome(f"accident: {how}", judge(folder, expected[kind]), f"{detail}, {how}")
            else:
                (edit_tensors if path.suffix == ".safetensors" else edit_json)(path, draw)
                with_list = path.name != CONFIG_FILE or draw.random() < 0.5
                try:
                    mend(folder) if with_list else _reseal(folder)
                except (ValueError, TypeError, KeyError):
                    continue
                yield Outcome("mended checksums", judge(folder, None), detail)


def _reseal(folder: Path) -> None:
    config = json.loads((folder / CONFIG_FILE).read_text("utf-8"))
    (folder / CONFIG_FILE).write_text(json.dumps(seal(config)), "utf-8")
