"""DATA for every verb: one argument, one set of options, and the `Source` that they make.

The options are the fields of `ReadOptions`, so that a new one is a flag of every verb at once.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.flags import Verb, as_words, flag, option, parse_settings, takes
from longtail.cli.show import print_notes, show_progress
from longtail.data.documents import ReadOptions, ReadReport
from longtail.errors import DataError, InputError, UnknownNameError
from longtail.runs.files import read_regular, write_text
from longtail.runs.model import whole_folder

if TYPE_CHECKING:
    from longtail.data import TextData

HELP = "A corpus name, a file, a folder of parts (train, validation, test), or hf:NAME."
PANEL = "Reading the data"
SPLIT_NAMES = ("random", "stratified", "time")
MEMORY = "data.json"
# The default method and seed of a split.
DEFAULT_SPLIT = ("random", 0)


@dataclasses.dataclass(frozen=True)
class Source:
    """DATA as the user named it, and how to read it."""

    data: str
    format: str | None
    split_method: str
    split_seed: int
    path: Path | None
    settings: dict[str, Any]
    options: ReadOptions
    min_count: int = 0

    def __post_init__(self) -> None:
        # What is not there is an error before anything is imported or read.
        self._is_corpus()

    def parts(self, needed: tuple[str, ...] = ()) -> dict[str, TextData]:
        """The train, validation and test parts."""
        from longtail.data import load_data

        if self._is_corpus():
            parts = self._corpus()
        else:
            parts = self._read(
                load_data,
                self.format,
                split_method=self.split_method,
                random_state=self.split_seed,
                min_count=self.min_count,
                **asdict(self.options),
            )
        for part in needed:
            if part not in parts:
                raise UnknownNameError("part", part, parts)
        return parts

    def whole(self) -> TextData:
        """All documents, whatever their part."""
        from longtail.data import TextData, read_data

        if not self._has_parts():
            if self.min_count:
                raise InputError(
                    f"--min-count counts training documents, and {self.data} is taken whole here. "
                    "Leave it out, or divide the data first with `longtail corpus split`."
                )
            documents: TextData = self._read(read_data, self.format, **asdict(self.options))
            return documents
        whole = TextData.concat(self.parts().values())
        # Parts may share ids; one file of all of them could not be read back.
        for identity, n in Counter(whole.ids or ()).items():
            if n > 1:
                raise DataError(
                    f"{self.data}: the id {identity!r} occurs in several parts, so they "
                    "cannot be combined. Give every document another id, or take the parts one "
                    "by one."
                )
        return whole

    def part(self, name: str | None = None, run: Path | None = None) -> TextData:
        """One part to evaluate on.

        By default the test part; a source without parts is taken whole, unless it is the very one
        that the run was trained on: then it is split as it was then, so that what was held out
        for testing is evaluated.
        """
        source, wanted = self, name or "test"
        if not self._has_parts():
            trained = None if run is None else self.as_trained(run)
            if trained is None and name is None:
                return self.whole()
            if trained is not None:
                self._check_same_split(trained, run)
                source = trained
                print_notes(
                    [f"{self.data} was split to train {run}: evaluating its {wanted} part."]
                )
        return source.parts(needed=(wanted,))[wanted]

    def part_for(self, runs: list[Path]) -> TextData:
        """What several runs can be evaluated on: what all of them held out for testing."""
        splits = [source and source._test_key() for source in map(self.as_trained, runs)]
        for run, split in zip(runs, splits, strict=True):
            if split != splits[0]:
                raise InputError(
                    f"{runs[0]} and {run} cannot be compared on {self.data}: they were not trained "
                    "on the same split of it, so that one would be evaluated on documents that it "
                    "has seen. Train them with the same --split-method and --split-seed, or on "
                    "a folder of parts made by `longtail corpus split`."
                )
        return self.part(run=runs[0])

    def check_split_is_used(self) -> None:
        """Raise if a split is requested of data that are divided already."""
        if (self.split_method, self.split_seed) != DEFAULT_SPLIT and self._has_parts():
            raise InputError(
                f"{self.data} is divided into parts already, so --split-method and --split-seed "
                "would do nothing. Leave them out, or split again with `longtail corpus split`."
            )

    def _check_same_split(self, trained: Source, run: Path | None) -> None:
        then = (trained.split_method, trained.split_seed)
        if (self.split_method, self.split_seed) not in (DEFAULT_SPLIT, then):
            raise InputError(
                f"{run} was trained on {self.data} split by --split-method {then[0]} --split-seed "
                f"{then[1]}: another split would evaluate documents that it has seen. Leave these "
                "flags out."
            )

    def _test_key(self) -> tuple[Any, ...]:
        """What decides which documents are for testing."""
        return self.data, self.format, self.split_method, self.split_seed

    def remember(self, run: Path) -> None:
        """Write down in the run's folder what it was trained on, and how that was split."""
        saved = {**asdict(self), "data": self._address(), "path": str(self.path or "")}
        write_text(run / MEMORY, json.dumps(saved, indent=2, default=str))

    def as_trained(self, run: Path) -> Source | None:
        """This source as the run read and split it; None if it was trained on another one."""
        try:
            saved = json.loads(read_regular(whole_folder(run) / MEMORY))
            if saved["data"] != self._address():
                return None
            options = remembered_options(run) or ReadOptions()
            return dataclasses.replace(
                self,
                format=self.format or saved["format"],
                split_method=saved["split_method"],
                split_seed=saved["split_seed"],
                options=options if self.options == ReadOptions() else self.options,
                min_count=self.min_count or saved.get("min_count", 0),
            )
        except (OSError, KeyError, TypeError, ValueError):
            return None

    def arguments(self, with_split: bool = False) -> list[str]:
        """DATA and the options that differ from their defaults, as on the command line.

        `with_split`: also those that say how one file is split, which a trained run remembers.
        """
        values: dict[str, Any] = {"format": self.format, "path": self.path}
        if with_split:
            values |= {"split_method": self.split_method, "split_seed": self.split_seed}
        values |= {"min_count": self.min_count, **asdict(self.options)}
        words = [self.data, *as_words(values, DEFAULTS)]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value}"]
        return words

    def _address(self) -> str:
        return self.data if self._is_corpus() else str(Path(self.data).resolve())

    def _is_corpus(self) -> bool:
        from longtail.corpora import list_corpora
        from longtail.data.arrow import PREFIX

        if self.data in list_corpora():
            return True
        names = ", ".join(list_corpora())
        if self.path is not None or self.settings:
            raise InputError(
                f"--path and --set belong to a named corpus, but {self.data!r} is none of {names}."
            )
        if self.data.startswith(PREFIX) or Path(self.data).exists():
            return False
        if any(mark in self.data for mark in "./\\"):
            raise DataError(
                f"no such file or folder: {self.data}. Expected a file such as data.jsonl, a "
                "folder with train.jsonl and, if you have them, validation.jsonl and test.jsonl, "
                f"or a corpus name: {names}."
            )
        near = difflib.get_close_matches(self.data, list_corpora(), n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise DataError(
            f"{self.data} is neither a known corpus ({names}) nor a file or a folder. {hint}"
            "Expected a corpus name, a file such as data.jsonl, or a folder with train.jsonl and, "
            "if you have them, validation.jsonl and test.jsonl."
        )

    def _has_parts(self) -> bool:
        from longtail.data.sources import has_parts

        return self._is_corpus() or has_parts(self.data, self.format)

    def _read(self, read: Callable[..., Any], place: Any, **settings: Any) -> Any:
        """What a function reads, with a bar and notes of what was left out."""
        report = ReadReport()
        with show_progress() as progress:
            documents = read(self.data, place, progress=progress, report=report, **settings)
        print_notes(report.lines())
        return documents

    def _corpus(self) -> dict[str, TextData]:
        from longtail.corpora import corpus_settings, load_corpus

        known, settings = corpus_settings(self.data), dict(self.settings)
        for key in settings:
            if key not in known:
                raise UnknownNameError(f"setting of the corpus {self.data}", key, known)
        # A corpus that reads files takes the options that it has; the others would do nothing.
        options = {"format": self.format, "min_count": self.min_count, **asdict(self.options)}
        for name, value in options.items():
            if value != DEFAULTS[name]:
                if name not in known:
                    raise InputError(f"the corpus {self.data} has no use for {flag(name)}.")
                settings[name] = value
        parts: dict[str, TextData] = self._read(load_corpus, self.path, **settings)
        return parts


def remembered_options(run: Path) -> ReadOptions | None:
    """How the data of a trained run were read: columns, separators, encoding; None: not known."""
    try:
        saved = json.loads(read_regular(whole_folder(run) / MEMORY))["options"]
        known = asdict(ReadOptions())
        return ReadOptions(**{name: value for name, value in saved.items() if name in known})
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _options() -> list[inspect.Parameter]:
    """--format and the others, then one flag per field of ReadOptions."""
    rows: list[tuple[str, Any, str, Any]] = [
        ("format", str, "A name of `longtail corpus formats`; default: by suffix.", None),
        ("split_method", str, f"How one file is split: {', '.join(SPLIT_NAMES)}.", "random"),
        ("split_seed", int, "Seed of that split.", 0),
        ("min_count", int, "Leave out labels with fewer training documents.", 0),
        ("path", Path, "For a named corpus: a local copy of its source.", None),
        ("set", list[str], "For a named corpus: KEY=VALUE, repeatable.", None),
    ]
    for field in dataclasses.fields(ReadOptions):
        kind = type(field.default) if isinstance(field.default, bool | float) else str
        rows.append((field.name, kind, field.metadata["help"], field.default))
    return [option(name, kind, text, PANEL, default) for name, kind, text, default in rows]


def _source(
    data: str,
    format: str | None,
    split_method: str,
    split_seed: int,
    min_count: int,
    path: Path | None,
    set: list[str] | None,
    **options: Any,
) -> Source:
    if split_method not in SPLIT_NAMES:
        raise UnknownNameError("split method", split_method, SPLIT_NAMES)
    if min_count < 0:
        raise InputError(f"--min-count must be at least 0, got {min_count}.")
    settings, read = parse_settings(set or []), ReadOptions(**options)
    return Source(data, format, split_method, split_seed, path, settings, read, min_count)


def _takes_source(kind: Any) -> Callable[[Verb], Verb]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    data = inspect.Parameter("data", keyword, annotation=Annotated[str, kind])
    return takes("source", [data, *OPTIONS], _source)


OPTIONS = _options()
DEFAULTS = {parameter.name: parameter.default for parameter in OPTIONS}
reads_data = _takes_source(typer.Argument(help=HELP))
"""Gives a verb the argument DATA and the reading options in place of its `source`."""
reads_data_option = _takes_source(typer.Option(help=HELP))
"""The same with --data, for a verb whose arguments are something else."""
