"""DATA for every verb: one argument, one set of options, and the `Source` that they make.

The options are the fields of `ReadOptions`, so that a new one is a flag of every verb at once.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.show import print_notes, show_progress
from longtail.data.documents import ReadOptions, ReadReport
from longtail.errors import DataError, InputError, UnknownNameError
from longtail.runs import read_regular, whole_folder, write_text

if TYPE_CHECKING:
    from longtail.data import TextData

HELP = "A corpus name, a file, a folder of parts (train, validation, test), or hf:NAME."
PANEL = "Reading the data"
SPLIT_NAMES = ("random", "stratified", "time")
MEMORY = "data.json"
# Method and seed of the split where nothing is said.
UNSPLIT = ("random", 0)
_FIELDS = dataclasses.fields(ReadOptions)


@dataclasses.dataclass(frozen=True)
class Source:
    """DATA as the user named it, and how to read it."""

    data: str
    format: str | None
    split: str
    split_seed: int
    path: Path | None
    settings: dict[str, Any]
    options: ReadOptions
    min_count: int = 0

    def parts(self, needed: tuple[str, ...] = ()) -> dict[str, TextData]:
        """The train, validation and test parts."""
        from longtail.data import load_data

        report = ReadReport()
        if self._is_corpus():
            found = self._corpus(report)
        else:
            with show_progress() as progress:
                found = load_data(
                    self.data,
                    self.format,
                    split_method=self.split,
                    seed=self.split_seed,
                    min_count=self.min_count,
                    progress=progress,
                    report=report,
                    **dataclasses.asdict(self.options),
                )
        print_notes(report.lines())
        for part in needed:
            if part not in found:
                raise UnknownNameError("part", part, found)
        return found

    def part(self, name: str | None = None, run: Path | None = None) -> TextData:
        """One part to judge on.

        By default the test part; a source without parts is taken whole, unless it is the very one
        that the run was trained on: then it is split as it was then, so that what was held out
        for testing is judged.
        """
        source, wanted = self, name or "test"
        if not self._is_corpus() and not self._has_parts():
            trained = None if run is None else self.as_trained(run)
            if trained is None and name is None:
                return self.whole()
            if trained is not None:
                self._check_same_split(trained, run)
                source = trained
                print_notes([f"{self.data} was split to train {run}: judging its {wanted} part."])
        return source.parts(needed=(wanted,))[wanted]

    def check_split_is_used(self) -> None:
        """Raise if a split was asked of data that have their parts."""
        if (self.split, self.split_seed) != UNSPLIT and (self._is_corpus() or self._has_parts()):
            raise InputError(
                f"{self.data} has its own parts, so --split-method and --split-seed would do "
                "nothing. Leave them out, or split again with `longtail corpus split`."
            )

    def _check_same_split(self, trained: Source, run: Path | None) -> None:
        asked, then = (self.split, self.split_seed), (trained.split, trained.split_seed)
        if asked not in (UNSPLIT, then):
            raise InputError(
                f"{run} was trained on {self.data} split by --split-method {then[0]} --split-seed "
                f"{then[1]}: another split would judge documents that it has seen. Leave these "
                "flags out."
            )

    def part_for(self, runs: list[Path]) -> TextData:
        """What several runs can be judged on: what all of them held out for testing."""
        first = self.as_trained(runs[0])
        for run in runs[1:]:
            other = self.as_trained(run)
            if _split_of(other) != _split_of(first):
                raise InputError(
                    f"{runs[0]} and {run} cannot be compared on {self.data}: they were not trained "
                    "on the same split of it, so that one would be judged on documents that it has "
                    "seen. Train them with the same --split-method and --split-seed, or on "
                    "a folder of parts made by `longtail corpus split`."
                )
        return self.part(run=runs[0])

    def remember(self, run: Path) -> None:
        """Write down in the run's folder what it was trained on, and how that was split."""
        saved = {**dataclasses.asdict(self), "data": self._place(), "path": str(self.path or "")}
        write_text(run / MEMORY, json.dumps(saved, indent=2, default=str))

    def as_trained(self, run: Path) -> Source | None:
        """This source as the run read and split it; None if it was trained on another one."""
        try:
            saved = json.loads(read_regular(whole_folder(run) / MEMORY))
            if saved["data"] != self._place():
                return None
            fields = {field.name for field in dataclasses.fields(ReadOptions)}
            then = ReadOptions(**{k: v for k, v in saved["options"].items() if k in fields})
            options = then if self.options == ReadOptions() else self.options
            return dataclasses.replace(
                self,
                format=self.format or saved["format"],
                split=saved["split"],
                split_seed=saved["split_seed"],
                options=options,
                min_count=self.min_count or saved.get("min_count", 0),
            )
        except (OSError, KeyError, TypeError, ValueError):
            return None

    def arguments(self, split: bool = False) -> list[str]:
        """DATA and the options that differ from their defaults, as on the command line.

        `split`: also those that say how one file is split, which a trained run remembers.
        """
        words = [self.data]
        pairs: list[tuple[str, Any, Any]]
        pairs = [("format", self.format, None), ("path", self.path, None)]
        if split:
            pairs += [("split_method", self.split, "random"), ("split_seed", self.split_seed, 0)]
        pairs.append(("min_count", self.min_count, 0))
        pairs += [(f.name, getattr(self.options, f.name), f.default) for f in _FIELDS]
        for name, value, default in pairs:
            if value != default:
                flag = f"--{name.replace('_', '-')}"
                words += [flag] if value is True else [flag, str(value)]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value}"]
        return words

    def _place(self) -> str:
        return self.data if self._is_corpus() else str(Path(self.data).resolve())

    def whole(self) -> TextData:
        """All documents, whatever their part."""
        from longtail.data import TextData, read_data

        if self._is_corpus() or self._has_parts():
            whole = TextData.concat(self.parts().values())
            _check_ids(whole, self.data)
            return whole
        if self.min_count:
            raise InputError(
                f"--min-count counts training documents, and {self.data} is taken whole here. "
                "Leave it out, or divide the data first with `longtail corpus split`."
            )
        report = ReadReport()
        with show_progress() as progress:
            found = read_data(
                self.data,
                self.format,
                progress=progress,
                report=report,
                **dataclasses.asdict(self.options),
            )
        print_notes(report.lines())
        return found

    def _check_is_there(self) -> None:
        import difflib

        from longtail.corpora import list_corpora
        from longtail.data.hugging_face import PREFIX

        if self.data.startswith(PREFIX) or Path(self.data).exists():
            return
        near = difflib.get_close_matches(self.data, list_corpora(), n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise DataError(
            f"{self.data} is neither a known corpus ({', '.join(list_corpora())}) nor a file or a "
            f"folder. {hint}Expected a corpus name, a file such as data.jsonl, or a folder with "
            "train.jsonl and, if you have them, validation.jsonl and test.jsonl."
        )

    def _is_corpus(self) -> bool:
        from longtail.corpora import list_corpora

        if self.data in list_corpora():
            return True
        if self.path is not None or self.settings:
            raise InputError(
                f"--path and --set belong to a named corpus, but {self.data!r} is none of "
                f"{', '.join(list_corpora())}."
            )
        self._check_is_there()
        return False

    def _has_parts(self) -> bool:
        from longtail.data.sources import has_parts

        return has_parts(self.data, self.format)

    def _corpus(self, report: ReadReport) -> dict[str, TextData]:
        from longtail.corpora import corpus_settings, load_corpus

        defaults = corpus_settings(self.data)
        settings = dict(self.settings)
        for key in settings:
            if key not in defaults:
                raise UnknownNameError(f"setting of the corpus {self.data}", key, defaults)
        # A corpus that reads files takes the options that it has; the others would do nothing.
        for field in dataclasses.fields(ReadOptions):
            value = getattr(self.options, field.name)
            if value != field.default:
                if field.name not in defaults:
                    flag = field.name.replace("_", "-")
                    raise InputError(f"the corpus {self.data} has no use for --{flag}.")
                settings[field.name] = value
        if self.format is not None:
            raise InputError(f"the corpus {self.data} has no use for --format.")
        if self.min_count and "min_count" not in defaults:
            raise InputError(f"the corpus {self.data} has no use for --min-count.")
        if self.min_count:
            settings["min_count"] = self.min_count
        with show_progress() as progress:
            settings |= {"progress": progress, "report": report}
            return load_corpus(self.data, self.path, **settings)


def _split_of(source: Source | None) -> tuple[Any, ...] | None:
    """What decides which documents are for testing."""
    if source is None:
        return None
    return source.data, source.format, source.split, source.split_seed


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """KEY=VALUE pairs, values read as YAML: numbers are numbers, true is true."""
    import yaml

    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"expected KEY=VALUE, got {pair!r}, as in --set n_documents=5000.")
        try:
            settings[key.strip().replace("-", "_")] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            why = (str(error).splitlines() or ["?"])[0]
            raise InputError(f"the value of {pair!r} cannot be read ({why}).") from error
    return settings


def _check_ids(data: TextData, name: str) -> None:
    """Parts may share ids; one file of all of them could not be read back."""
    if data.ids is None or len(set(data.ids)) == len(data.ids):
        return
    seen: set[str] = set()
    twice = next(identity for identity in data.ids if identity in seen or seen.add(identity))  # type: ignore[func-returns-value]
    raise DataError(
        f"{name}: the id {twice!r} stands in several parts, so that they cannot be put together. "
        "Give every document an id of its own, or take the parts one by one."
    )


def reads_data(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the argument DATA and the reading options in place of its `source`."""
    return _with_source(verb, typer.Argument(help=HELP))


def reads_data_option(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The same with --data, for a verb whose arguments are something else."""
    return _with_source(verb, typer.Option(help=HELP))


def _with_source(verb: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    parameters = []
    for parameter in inspect.signature(verb, eval_str=True).parameters.values():
        if parameter.name == "source":
            parameters.append(parameter.replace(name="data", annotation=Annotated[str, kind]))
        else:
            parameters.append(parameter)
    own = _options()
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in [*parameters, *own]]

    def called(**arguments: Any) -> Any:
        given = {parameter.name: arguments.pop(parameter.name) for parameter in own}
        names = [field.name for field in _FIELDS]
        if given["split_method"] not in SPLIT_NAMES:
            raise UnknownNameError("split method", given["split_method"], SPLIT_NAMES)
        if given["min_count"] < 0:
            raise InputError(f"--min-count must be at least 0, got {given['min_count']}.")
        source = Source(
            data=arguments.pop("data"),
            format=given["format"],
            split=given["split_method"],
            split_seed=given["split_seed"],
            path=given["path"],
            settings=parse_settings(given["set_"] or []),
            options=ReadOptions(**{name: given[name] for name in names}),
            min_count=given["min_count"],
        )
        return verb(source=source, **arguments)

    called.__name__, called.__doc__ = verb.__name__, verb.__doc__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


def _options() -> list[inspect.Parameter]:
    """--format and the others, then one flag per field of ReadOptions."""
    table: list[tuple[str, Any, Any, str, tuple[str, ...]]] = [
        (
            "format",
            str | None,
            None,
            "A name of `longtail corpus formats`; default: by suffix.",
            (),
        ),
        ("split_method", str, "random", f"How one file is split: {', '.join(SPLIT_NAMES)}.", ()),
        ("split_seed", int, 0, "Seed of that split.", ()),
        (
            "min_count",
            int,
            0,
            "Leave out labels with fewer training documents.",
            (),
        ),
        ("path", Path | None, None, "For a named corpus: a local copy of its source.", ()),
        ("set_", list[str] | None, None, "For a named corpus: KEY=VALUE, repeatable.", ("--set",)),
    ]
    for field in dataclasses.fields(ReadOptions):
        kind = bool if isinstance(field.default, bool) else str
        annotation = kind | None if field.default is None else kind
        flags = (f"--{field.name.replace('_', '-')}",) if kind is bool else ()
        table.append((field.name, annotation, field.default, field.metadata["help"], flags))
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[
                annotation, typer.Option(*flags, help=text, rich_help_panel=PANEL)
            ],
        )
        for name, annotation, default, text, flags in table
    ]
