"""Endless damage to small valid files of every format: no crash, no hang, no silent loss."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import random
import re
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from longtail.data import ReadReport, TextData, load_data, read_data

from ..data.cases import write_files
from . import REPORTED, RIGHT, Outcome, verdict_on
from .file_samples import Sample, samples

MINIMUM = 10_000
SECONDS = 2.0
Chance = random.Random
INSERTED = (
    *(b"\0", b"\n", b"\r", b'"', b"\t", b",", b"[", b"{", b"<", b"&", b"\xff", b"\xef\xbb\xbf"),
    *(b"\xed\xa0\x80", b"\\ud800", b"&#0;", b"</", b"]]>", b"\x1a", b"9" * 5000, b"[" * 3000),
)
DAMAGES = (
    *("flip", "flip", "overwrite", "insert", "insert", "delete"),
    *("repeat", "truncate", "splice", "append", "unharmed"),
)


def damaged(how: str, content: bytes, other: bytes, chance: Chance) -> bytes:
    """Return the content with one kind of damage; `other` is the content of another file."""
    start = chance.randrange(len(content) + 1)
    stop = min(len(content), start + chance.choice([1, 1, 2, 8, 60, 400]))
    match how:
        case "flip":
            flipped = bytearray(content)
            for _ in range(chance.choice([1, 1, 1, 3, 20]) if content else 0):
                flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            return bytes(flipped)
        case "overwrite":
            size = stop - start
            noise = chance.choice([bytes(size), chance.randbytes(size), b'"' * 3, b"\n"])
            return content[:start] + noise + content[stop:]
        case "insert":
            odd = chance.choice(INSERTED) * chance.choice([1, 1, 5])
            return content[:start] + odd + content[start:]
        case "delete":
            return content[:start] + content[stop:]
        case "repeat":
            return content[:stop] + content[start:]
        case "truncate":
            return content[:start]
        case "splice":
            return content[:start] + other[chance.randrange(len(other) + 1) :]
        case "append":
            rest = [other, content, b"\x1f\x8b" + other[2:], bytes(600), b"x"]
            return content + chance.choice(rest)
    return content


def odd_options(chance: Chance) -> dict[str, Any]:
    """Draw `on_error`, and sometimes other options that a user might guess."""
    options: dict[str, Any] = {"on_error": chance.choice(["raise", "skip", "skip"])}
    if chance.random() < 0.3:
        encodings = ["latin-1", "utf-8", "utf-16", "utf-32", "utf-7", "cp1252", "shift_jis", "hex"]
        options |= chance.choice(
            [
                {"encoding": chance.choice([*encodings, "ascii", "idna", "iso2022_jp"])},
                {"label_separator": chance.choice([";", " ", "ab", "\n", '"'])},
                {"label_columns": chance.choice(["*", "labels", "copper,tin"])},
                {"delimiter": chance.choice([";", "\t", " "])},
                {"quote": "none"},
                {"keep_unlabelled": True},
                {"years": chance.choice(["2020", "1987-1990"])},
                {"text_field": chance.choice(["text,id", "none", ""])},
                {"max_record_mb": 0.001},
            ]
        )
    return options


def attack(seed: int, scratch: Path) -> Iterator[Outcome]:
    """Yield endless cases, reproducible from the seed."""
    chance, table = Chance(seed), samples()
    for number in count(1):
        yield one_case(chance.choice(list(table)), table, f"{seed}:{number}", scratch)


def one_case(name: str, table: dict[str, Sample], seed: str, scratch: Path) -> Outcome:
    """Damage one file of a sample, read it, and give a verdict."""
    chance, sample = Chance(seed), table[name]
    other = chance.choice(list(chance.choice(list(table.values())).files.values()))
    how, target = chance.choice(DAMAGES), chance.choice(list(sample.files))
    options = odd_options(chance)
    files = {**sample.files, target: damaged(how, sample.files[target], other, chance)}
    read = chance.choice([read_data, read_data, read_data, read_parts])
    kind, detail = f"{name}, {how}", f"seed {seed!r}, {target}, {options}, {read.__name__}"
    shutil.rmtree(scratch / "case", ignore_errors=True)
    folder = write_files(scratch / "case", files)
    report = ReadReport()
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ended, data = verdict_on(
            lambda: read(folder / sample.source, sample.format, report=report, **options)
        )
    if (seconds := time.process_time() - start) > SECONDS:
        return Outcome(kind, f"took {seconds:.1f} s", detail)
    if ended == RIGHT:
        plain = set(options) <= {"on_error", "keep_unlabelled"}
        ended = verdict(sample, files, data, report, plain)
    return Outcome(kind, ended, detail)


def read_parts(source: Path, format: str, **options: Any) -> TextData:
    """Load all parts with `load_data`, and concatenate them."""
    return TextData.concat(load_data(source, format, **options).values())


def verdict(
    sample: Sample,
    files: dict[str, bytes],
    result: TextData,
    report: ReadReport,
    plain: bool,
) -> str:
    """Intact records in the damaged bytes must be read, or something must be reported."""
    if report.skipped or report.passed_over or report.left_out:
        return REPORTED
    if report.documents != len(result):
        return f"report says {report.documents} documents, there are {len(result)}"
    if not plain:
        return RIGHT
    read = Counter(
        (text, tuple(sorted(result.labels_of(row))), result.ids[row] if result.ids else "")
        for row, text in enumerate(result.texts)
    )
    if not Counter(sample.documents) - read and len(result) == len(sample.documents):
        return RIGHT
    if files == sample.files:
        return "an undamaged file was read wrongly"
    if sample.packed:
        return "other documents in spite of a checksum, and nothing reported"
    lines = b"".join(files.values()).split(b"\n")
    if sample.format in ("jsonl", "libmultilabel"):
        # In other formats a quote or tag may have made a record part of another one.
        for piece, document in zip(sample.pieces, sample.documents, strict=True):
            if piece in lines and not read[document]:
                return f"lost in silence: {document[2]}"
    missing = records_in(sample, files) - len(result)
    return f"{missing} records lost in silence" if missing > 0 else RIGHT


def records_in(sample: Sample, files: dict[str, bytes]) -> int:
    """Count the records that a reader must account for, without longtail."""
    text = b"".join(files.values()).decode("utf-8", "replace")
    match sample.format:
        case "jsonl" | "libmultilabel":
            return sum(bool(line.strip()) for line in text.split("\n"))
        case "csv" | "tsv":
            delimiter = "," if sample.format == "csv" else "\t"
            with contextlib.suppress(csv.Error):
                rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
                return sum(map(bool, rows)) - 1
            return 0
        case "bioasq":
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                return len(json.loads(text)["articles"])
            return 0
        case "medline":
            return len(re.findall(r"<PubmedArticle[\s>]", text))
        case "reuters":
            # By starts or ends, whichever are more.
            return max(text.count("</REUTERS>"), len(re.findall(r"<REUTERS\b", text)))
        case "nltk" if "cats.txt" in files:
            return sum(bool(line.split()) for line in files["cats.txt"].split(b"\n"))
    return len(sample.documents)
