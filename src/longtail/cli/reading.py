"""DATA for every verb: one argument, one set of options, and the `Source` that they make.

The options are the fields of `ReadOptions`, so that a new one is a flag of every verb at once.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.show import print_notes, progress_bar
from longtail.data.documents import ReadOptions, ReadReport
from longtail.errors import DataError, InputError, UnknownNameError

if TYPE_CHECKING:
    from longtail.data import TextData

HELP = "A corpus name, a file, a folder of parts (train, validation, test), or hf:NAME."
PANEL = "Reading the data"


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

    def parts(self, needed: tuple[str, ...] = ()) -> dict[str, TextData]:
        """The train, validation and test parts."""
        from longtail.corpora import list_corpora
        from longtail.data import load_data

        report = ReadReport()
        is_corpus = self.data in list_corpora()
        if not is_corpus and (self.path is not None or self.settings):
            raise InputError(
                f"--path and --set belong to a named corpus, but {self.data!r} is none of "
                f"{', '.join(list_corpora())}."
            )
        if is_corpus:
            found = self._corpus(report)
        else:
            self._check_is_there()
            with reading(self.data) as progress:
                found = load_data(
                    self.data,
                    self.format,
                    split_method=self.split,
                    seed=self.split_seed,
                    progress=progress,
                    report=report,
                    **dataclasses.asdict(self.options),
                )
        print_notes(report.lines())
        for part in needed:
            if part not in found:
                raise UnknownNameError("part", part, found)
        return found

    def part(self, name: str | None = None) -> TextData:
        """One part to judge on; a single file is taken whole unless a part is named."""
        if name is None and self._is_one_source():
            return self.whole()
        return self.parts(needed=(name or "test",))[name or "test"]

    def whole(self) -> TextData:
        """All documents, whatever their part."""
        from longtail.data import TextData, read_data

        if not self._is_one_source():
            return TextData.concat(self.parts().values())
        report = ReadReport()
        with reading(self.data) as progress:
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

    def _is_one_source(self) -> bool:
        from longtail.corpora import list_corpora
        from longtail.data.formats import format_of_file

        path = Path(self.data)
        if self.data in list_corpora() or not path.is_file():
            return False
        entry = format_of_file(path)
        return entry is None or not entry.has_parts

    def _corpus(self, report: ReadReport) -> dict[str, TextData]:
        from longtail.corpora import corpus_settings, load_corpus

        defaults = corpus_settings(self.data)
        settings = dict(self.settings)
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
        in_bytes = self.data in ("reuters", "pubmed")
        with reading(self.data, in_bytes) as progress, downloading(self.data) as arrived:
            plumbing = {"progress": progress, "download_progress": arrived, "report": report}
            return load_corpus(self.data, self.path, **settings, **plumbing)


@contextmanager
def reading(name: str, in_bytes: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar that fills as files are read, gone when they are."""
    with progress_bar(in_bytes=in_bytes, transient=True) as bar:
        tasks: list[Any] = []

        def progress(done: int, total: int) -> None:
            if not tasks:
                tasks.append(bar.add_task(f"reading {Path(name).name}", total=total))
            bar.update(tasks[0], completed=done, total=total)

        yield progress


@contextmanager
def downloading(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar for the bytes that arrive over the network."""
    bars: list[Any] = []
    tasks: list[Any] = []

    def progress(done: int, total: int | None) -> None:
        if not bars:
            bars.append(progress_bar(in_bytes=True, transient=True))
            bars[0].start()
            tasks.append(bars[0].add_task(f"downloading {name}", total=total))
        bars[0].update(tasks[0], completed=done, total=total)

    try:
        yield progress
    finally:
        for bar in bars:
            bar.stop()


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """KEY=VALUE pairs, values read as YAML: numbers are numbers, true is true."""
    import yaml

    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"expected KEY=VALUE, got {pair!r}, as in --set n_documents=5000.")
        settings[key.strip().replace("-", "_")] = yaml.safe_load(value)
    return settings


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
        names = [field.name for field in dataclasses.fields(ReadOptions)]
        source = Source(
            data=arguments.pop("data"),
            format=given["format"],
            split=given["split"],
            split_seed=given["split_seed"],
            path=given["path"],
            settings=parse_settings(given["set_"] or []),
            options=ReadOptions(**{name: given[name] for name in names}),
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
        ("split", str, "random", "How one file is split: random, stratified or time.", ()),
        ("split_seed", int, 0, "Seed of that split.", ()),
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
