"""Model folders, damaged at random or on purpose with corrected checksums.

A damaged folder gives the right answers or our error. With corrected checksums the answers may
differ, but nothing else may happen: no other exception, no hang, no code, no absurd memory.
"""

from __future__ import annotations

import json
import operator
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from itertools import cycle
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from longtail import LongTailClassifier
from longtail.runs.files import files_in
from longtail.runs.model import CARD_FILE, CONFIG_FILE, manifest, seal

from . import RIGHT, Outcome, verdict_on
from .files import damaged
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


# Names that a library might look for.
ADDED = (
    *("modeling_x.py", "pytorch_model.bin", "adapter_config.json", "added_tokens.json"),
    *("special_tokens_map.json", "vocab.txt", "model-00001-of-00002.safetensors", "merges.txt"),
    *("model.safetensors.index.json", "chat_template.jinja", "config.json", "tokenizer.json"),
    *("notes.txt", "sitecustomize.py", "generation_config.json"),
)
ACCIDENTS = ("flip", "truncate", "insert", "overwrite", "digit", "removed", "replaced", "added")


def damage(how: str, path: Path, draw: random.Random) -> None:
    """Damage a file as an accident would."""
    content = path.read_bytes()
    if how == "added":
        place = path.with_name(draw.choice(ADDED))
        if not place.exists():
            place.write_text(draw.choice((BAIT, "{}", '{"[PAD]": 5}', "copper", "")))
    elif how == "removed":
        path.unlink()
    elif how == "replaced":
        elsewhere = path.rename(path.with_name("elsewhere"))
        make = draw.choice((os.mkfifo, Path.mkdir, _link_to("/dev/zero"), _link_to("elsewhere")))
        make(path)
        if not path.is_file():
            elsewhere.unlink()
    elif how == "digit":
        # Another digit of a number: JSON stays valid.
        numbers = [k for k, byte in enumerate(content) if chr(byte).isdigit()]
        k = draw.choice(numbers or [0])
        path.write_bytes(content[:k] + draw.choice("0123456789").encode() + content[k + 1 :])
    else:
        path.write_bytes(damaged(how, content, content, draw))


def _link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


# ---- damage with corrected checksums

CODE_KEYS = ("auto_map", "attn_implementation", "_attn_implementation", "use_kernels")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of keys of every value in a JSON document."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def edit_json(path: Path, draw: random.Random) -> None:
    """Put an odd value into a JSON file, or a setting that would load code."""
    content = json.loads(path.read_text("utf-8"))
    *keys, last = draw.choice([*places(content)] or [("x",)])
    reduce(operator.getitem, keys, content)[last] = draw.choice(ODD)
    if isinstance(content, dict) and draw.random() < 0.3:
        key = draw.choice(CODE_KEYS)
        auto = {"AutoModel": "modeling_x.Bait", "AutoConfig": "modeling_x.Bait"}
        content[key] = auto if key == "auto_map" else draw.choice(("kernels/x", "x/y:z", True))
        path.with_name("modeling_x.py").write_text(BAIT)
    path.write_text(json.dumps(content), "utf-8")


def edit_tensors(path: Path, draw: random.Random) -> None:
    """Change the shape, type, name or values of a tensor."""
    tensors = load_file(path)
    name = draw.choice(sorted(tensors))
    tensor = tensors.pop(name)
    edits: dict[str, Callable[[], np.ndarray]] = {
        "cut": lambda: tensor[..., :-1].copy(),
        "half": lambda: tensor.astype(np.float16),
        "nan": lambda: np.full_like(tensor, np.nan),
        "renamed": lambda: tensor,
        "repeated": lambda: np.repeat(tensor, 2, axis=0),
    }
    how = draw.choice(list(edits))
    with np.errstate(over="ignore", invalid="ignore"):
        tensors[f"{name}x" if how == "renamed" else name] = edits[how]()
    save_file(tensors, path)


def mend(folder: Path, *, with_list: bool = True) -> None:
    """Correct the checksums, so that the folder loads."""
    config = json.loads((folder / CONFIG_FILE).read_text("utf-8"))
    if with_list:
        config = {**config, "files": manifest(folder)}
    (folder / CONFIG_FILE).write_text(json.dumps(seal(config)), "utf-8")


# ---- verdicts


def answers(folder: Path) -> np.ndarray:
    classifier = LongTailClassifier.from_pretrained(folder)
    return np.concatenate(
        [classifier.decision_function(TEXTS[:4]), classifier.predict(TEXTS[:4]).toarray()]
    )


def judge(folder: Path, expected: np.ndarray | None) -> str:
    """Return the verdict on a folder; `expected`: its right answers, None for any."""
    with limited(SECONDS):
        verdict, given = verdict_on(lambda: answers(folder))
    if verdict != RIGHT:
        return verdict
    if list(folder.rglob("RAN")):
        return "foreign code was run"
    if expected is not None and not np.array_equal(given, expected):
        return "it answers differently"
    return RIGHT


def attack(seed: int, scratch: Path) -> Iterator[Outcome]:
    """Yield folders of every kind in turn, damaged by accident or with corrected checksums."""
    originals = fit_kinds(scratch / "fitted")
    expected = {kind: answers(folder) for kind, folder in originals.items()}
    for number, kind in enumerate(cycle(originals), start=1):
        draw = random.Random(f"{seed} {number}")
        folder = scratch / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(originals[kind], folder)
        path = folder / draw.choice([name for name in files_in(folder) if name != CARD_FILE])
        detail = f"seed {seed}, case {number}, {kind}, {path.relative_to(folder)}"
        if draw.random() < 0.6:
            how = draw.choice(ACCIDENTS)
            damage(how, path, draw)
            yield Outcome(f"accident: {how}", judge(folder, expected[kind]), f"{detail}, {how}")
            continue
        (edit_tensors if path.suffix == ".safetensors" else edit_json)(path, draw)
        try:
            mend(folder, with_list=path.name != CONFIG_FILE or draw.random() < 0.5)
        except (ValueError, TypeError, KeyError):
            continue
        yield Outcome("corrected checksums", judge(folder, None), detail)
