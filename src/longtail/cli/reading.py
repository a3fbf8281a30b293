"""DATA for every verb: one argument, one set of options, and the `Source` built from them.

The options are the fields of `ReadOptions`, so a new field is a flag of every verb. A verb that
evaluates a model reads DATA as the training data was read, unless a flag overrides it.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.flags import Verb, command_line, flag, given_flags, option, parse_settings, takes
from longtail.cli.show import print_notes
from longtail.data.documents import PARTS, ReadOptions, ReadReport
from longtail.errors import DataError, InputError, UnknownNameError
from longtail.progress import show_progress
from longtail.runs.files import read_regular, write_text
from longtail.runs.model import whole_folder

if TYPE_CHECKING:
    from longtail.data import TextData
    from longtail.data.collect import Files

HELP = "A corpus name, a file, a folder of parts (train, validation, test), or hf:NAME."
PANEL = "Data"
SPLIT_NAMES = ("stratified", "random", "time")  # the first is the default
MEMORY = "data.json"
# Options that choose the training documents and labels, and mean nothing to an evaluation.
TRAINING_OPTIONS = ("split_method", "split_seed", "min_count")
EXCLUSIVE = {"label_separator", "label_columns"}
# Options that a copy in another format does not share.
FILE_OPTIONS = {"encoding", "delimiter", "quote"}


@dataclasses.dataclass(frozen=True)
class Source:
    """DATA as the user typed it, and how to read it."""

    data: str
    format: str | None
    path: Path | None
    settings: dict[str, Any]
    options: dict[str, Any]
    """Fields of ReadOptions that were given as flags."""
    split_method: str = SPLIT_NAMES[0]
    split_seed: int = 0
    min_count: int = 0
    remembered: tuple[str, ...] = ()
    """Names of options that come from a run."""

    def __post_init__(self) -> None:
        """Raise for missing data, before any heavy import."""
        from longtail.corpora import list_corpora
        from longtail.data.arrow import PREFIX
        from longtail.data.formats import get_format

        if self._is_corpus():
            return
        names = ", ".join(list_corpora())
        if self.path is not None or self.settings:
            raise InputError(
                f"--path and --set belong to a named corpus, but {self.data!r} is none of {names}."
            )
        if self.format is not None:
            get_format(self.format)  # raises for an unknown one
        if self.data.startswith(PREFIX) or Path(self.data).exists():
            return
        is_path = any(mark in self.data for mark in "./\\")
        near = difflib.get_close_matches(self.data, list_corpora(), n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]!r}? " if near and not is_path else ""
        raise DataError(
            f"no such file or folder: {self.data}. {hint}Expected a file such as data.jsonl, a "
            "folder with train.jsonl and, if you have them, validation.jsonl and test.jsonl, or a "
            f"corpus name: {names}."
        )

    def parts(
        self, needed: tuple[str, ...] = (), only: tuple[str, ...] = PARTS
    ) -> dict[str, TextData]:
        """The train, validation and test parts, or `only` some: files of others stay closed."""
        from longtail.data import load_data

        if self._is_corpus():
            parts = {name: part for name, part in self._corpus().items() if name in only}
        else:
            parts = self._read(
                load_data,
                self.format,
                split_method=self.split_method,
                random_state=self.split_seed,
                min_count=self.min_count,
                parts=only,
                **self.options,
            )
        for part in needed:
            if part not in parts:
                raise UnknownNameError("part", part, parts)
        return parts

    def whole(self) -> TextData:
        """All documents, of whatever part."""
        from longtail.data import TextData, read_data

        if not self.has_parts():
            if self.min_count:
                raise InputError(
                    f"--min-count counts training documents, and {self.data} is taken whole here. "
                    "Leave it out, or divide the data first with `longtail corpus split`."
                )
            documents: TextData = self._read(read_data, self.format, **self.options)
            return documents
        whole = TextData.concat(self.parts().values())
        # A file with an id twice could not be read back.
        for document_id, n in Counter(whole.ids or ()).items():
            if n > 1:
                raise DataError(
                    f"{self.data}: the id {document_id!r} occurs in several parts, so they "
                    "cannot be combined. Give every document its own id, or take the parts one "
                    "by one."
                )
        return whole

    def part(self, name: str | None = None) -> TextData:
        """One part, by default `test`; all documents of a source without parts."""
        from longtail.data import read_data

        if self.has_parts():
            name = name or "test"
            report = ReadReport()
            files = self.files(report).get(name)
            if files:
                print_notes(report.lines())
                # Only this part: an error names its file.
                paths = [path for path, _ in files]
                data = paths[0] if len(paths) == 1 else paths
                documents: TextData = self._read(read_data, self.format, data, **self.options)
                return documents
            return self.parts(needed=(name,))[name]
        if name is not None:
            raise InputError(
                f"{self.data} has no parts, so --split {name} cannot choose one. Leave it out "
                "(evaluate skips the documents that the run was trained on), or write the parts "
                f"that train made of it: longtail corpus split {self.data} --out FOLDER."
            )
        return self.whole()

    def check_split_is_used(self) -> None:
        """Raise if flags ask to split data that has parts already."""
        split = (self.split_method, self.split_seed)
        if split != (DEFAULTS["split_method"], DEFAULTS["split_seed"]) and self.has_parts():
            raise InputError(
                f"{self.data} is divided into parts already, so --split-method and --split-seed "
                "have no effect. Leave them out, or split again with `longtail corpus split`."
            )

    def remember(self, run: Path) -> None:
        """Save what a run was trained on, and how it was read, in the run's folder."""
        write_text(run / MEMORY, json.dumps(asdict(self), indent=2, default=str))

    def read_as(self, run: Path) -> Source:
        """The same source, with the reading options of a run's training data as defaults."""
        from longtail.corpora import corpus_settings

        remembered = asdict(remembered_options(run, self.data))
        known = corpus_settings(self.data) if self._is_corpus() else remembered
        given = self.options.keys() | (EXCLUSIVE if EXCLUSIVE & self.options.keys() else set())
        added = {k: v for k, v in remembered.items() if k in known and k not in given}
        flags = command_line(added, DEFAULTS)
        if flags:
            print_notes([f"reading {self.data} as {run} was trained: {shlex.join(flags)}"])
        return dataclasses.replace(self, options={**added, **self.options}, remembered=tuple(added))

    def arguments(self, with_split: bool = False) -> list[str]:
        """DATA and the options that differ from their defaults, as on a command line.

        `with_split`: for `train`; without it, for a verb that reads the other options from the run.
        """
        values: dict[str, Any] = {"format": self.format, "path": self.path}
        settings = dict(self.settings)
        if with_split:
            values |= {name: getattr(self, name) for name in TRAINING_OPTIONS} | self.options
        elif self.min_count and self._is_corpus():
            settings["min_count"] = self.min_count
        arguments = [self.data, *command_line(values, DEFAULTS)]
        for key, value in settings.items():
            arguments += ["--set", f"{key}={value}"]
        return arguments

    def _is_corpus(self) -> bool:
        from longtail.corpora import list_corpora

        return self.data in list_corpora()

    def has_parts(self) -> bool:
        from longtail.data.sources import has_parts

        return self._is_corpus() or has_parts(self.data, self.format)

    def has_test(self) -> bool:
        """Whether there are documents to evaluate; of data with parts inside, this is assumed."""
        files = self.files(ReadReport())
        return not files or "" in files or "test" in files

    def files(self, report: ReadReport) -> dict[str, Files]:
        """The files by part; "" for a source without parts or with parts inside; none: a corpus."""
        from longtail.data.sources import find_parts

        return {} if self._is_corpus() else find_parts(self.data, self.format, report)

    def _read(self, read: Callable[..., Any], place: Any, data: Any = None, **settings: Any) -> Any:
        """Call a reader with a progress bar, and print notes on the records it skipped."""
        report = ReadReport(remembered=self.remembered)
        with show_progress() as progress:
            documents = read(data or self.data, place, progress=progress, report=report, **settings)
        print_notes(report.lines())
        return documents

    def _corpus(self) -> dict[str, TextData]:
        from longtail.corpora import corpus_settings, load_corpus

        known, settings = corpus_settings(self.data), dict(self.settings)
        for key in settings:
            if key not in known:
                raise UnknownNameError(f"setting of the corpus {self.data}", key, known)
        # Reading options are settings of a corpus that reads files; others would have no effect.
        options = {"format": self.format, "min_count": self.min_count, **self.options}
        for name, value in options.items():
            if value != DEFAULTS[name]:
                if name not in known:
                    raise InputError(f"the corpus {self.data} does not take {flag(name)}.")
                settings[name] = value
        parts: dict[str, TextData] = self._read(load_corpus, self.path, **settings)
        return parts


def remembered_options(run: Path, data: str) -> ReadOptions:
    """The reading options of a run's training data, such as columns; defaults if unknown.

    `data`: what is to be read; FILE_OPTIONS apply only if it has the same suffix.
    """
    try:
        saved = json.loads(read_regular(whole_folder(run) / MEMORY))
        same_suffix = Path(data).suffix == Path(saved["data"]).suffix
        known = asdict(ReadOptions()).keys() - (set() if same_suffix else FILE_OPTIONS)
        return ReadOptions(**{k: v for k, v in saved["options"].items() if k in known})
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return ReadOptions()


def _options(panel: str = PANEL, of_run: bool = False) -> list[inspect.Parameter]:
    """--format and the like, then one flag per field of ReadOptions.

    `of_run`: for a verb that takes the defaults from a run, and does not train.
    """
    methods = ", ".join(SPLIT_NAMES)
    # name, type, help, default, whether common
    rows: list[tuple[str, Any, str, Any, bool]] = [
        ("format", str, "A name of `longtail corpus formats`; default: by the suffix.", None, True),
        ("split_method", str, f"How to split a file: {methods}.", SPLIT_NAMES[0], True),
        ("split_seed", int, "Seed of that split.", 0, False),
        ("min_count", int, "Leave out labels with fewer training documents.", 0, True),
        ("path", Path, "For a named corpus: a local copy of its source.", None, False),
        ("set", list[str], "For a named corpus: a setting KEY=VALUE, repeatable.", None, False),
    ]
    for field in dataclasses.fields(ReadOptions):
        kind = type(field.default) if isinstance(field.default, bool | float) else str
        text, common = field.metadata["help"], field.metadata["common"]
        rows.append((field.name, kind, text, field.default, common))
    return [
        option(name, kind, text, panel, None if of_run else default, common=common)
        for name, kind, text, default, common in rows
        if not (of_run and name in TRAINING_OPTIONS)
    ]


def _source(
    data: str,
    format: str | None,
    path: Path | None,
    set: list[str] | None,
    split_method: str = SPLIT_NAMES[0],
    split_seed: int = 0,
    min_count: int = 0,
    **options: Any,
) -> Source:
    if split_method not in SPLIT_NAMES:
        raise UnknownNameError("split method", split_method, SPLIT_NAMES)
    if min_count < 0:
        raise InputError(f"--min-count must be at least 0, got {min_count}.")
    given = given_flags(**options)
    ReadOptions(**given)  # raises for a wrong value, before a corpus is downloaded
    settings = parse_settings(set or [])
    return Source(data, format, path, settings, given, split_method, split_seed, min_count)


def _takes_source(kind: Any, options: list[inspect.Parameter]) -> Callable[[Verb], Verb]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    data = inspect.Parameter("data", keyword, annotation=Annotated[str, kind])
    return takes("source", [data, *options], _source)


OPTIONS = _options()
DEFAULTS = {parameter.name: parameter.default for parameter in OPTIONS}
RUN_OPTIONS = _options("Data; default: as the training data of the run", of_run=True)
reads_data = _takes_source(typer.Argument(help=HELP), OPTIONS)
"""Replaces the argument `source` of a verb with DATA and the reading options."""
evaluates_data = _takes_source(typer.Argument(help=HELP), RUN_OPTIONS)
"""The same for a verb that reads DATA as the training data of a run was read."""
evaluates_data_option = _takes_source(typer.Option(help=HELP), RUN_OPTIONS)
"""The same with DATA as the flag --data, for a verb that takes several runs."""
