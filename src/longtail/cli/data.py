"""The verbs about data: `stats`, and `corpus list, info, get, split, convert, formats`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.reading import Source, reads_data
from longtail.cli.show import AsJson, Overwrite, OverwriteOut, print_notes
from longtail.errors import DataError, InputError
from longtail.progress import show_progress
from longtail.runs.files import check_new, check_not_read, check_replaceable, read_small

if TYPE_CHECKING:
    from longtail.data import TextData

corpus_app = typer.Typer(
    help="List and fetch named corpora; split and convert files.", no_args_is_help=True
)
Out = Annotated[Path, typer.Option(help="Folder to write to.")]
Suffix = Annotated[str, typer.Option(help="jsonl, jsonl.gz, parquet, csv, tsv or txt.")]


@reads_data
def stats(
    source: Source,
    cuts: Annotated[
        str | None,
        typer.Option(
            help="Group boundaries, e.g. 8,35: tail < 8, head > 35 training documents. Default: "
            "terciles."
        ),
    ] = None,
    pairs: Annotated[int, typer.Option(min=0, help="Linked label pairs to show.")] = 10,
    plot: Annotated[
        Path | None, typer.Option(help="Folder for figures: labels.png and documents.png.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Describe the data: sizes, the long tail, linked labels, duplicates, drift, and mu."""
    from rich.console import Console

    from longtail.analysis import label_warnings
    from longtail.analysis import stats as describe
    from longtail.report import plot_documents, plot_labels, stats_tables, to_terminal

    boundaries: Any = tuple(_numbers(cuts, 2, "--cuts", "8,35")) if cuts else None
    figures = [] if plot is None else [plot / name for name in ("labels.png", "documents.png")]
    for path in figures:
        check_replaceable(path, overwrite)
    parts, title = source.parts(), Path(source.data).name
    print_notes(label_warnings(parts["train"]))
    with show_progress() as progress:
        result = describe(parts, cuts=boundaries, n_pairs=pairs, progress=progress)
        if plot is not None:
            plot.mkdir(parents=True, exist_ok=True)
            labels_title = f"{title}: labels of the training part"
            plot_labels(parts["train"], figures[0], title=labels_title, cuts=boundaries)
            plot_documents(parts, figures[1], title=title)
    if as_json:
        typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
        return
    console = Console()
    for table in stats_tables(result, source.data):
        console.print(to_terminal(table))
    for path in figures:
        typer.echo(f"figure: {path}")


@corpus_app.command("list")
def corpus_list() -> None:
    """List the corpora that longtail knows by name."""
    from longtail.corpora import CORPORA

    for corpus in CORPORA.values():
        typer.echo(f"{corpus.name:<17} {corpus.summary}")


@corpus_app.command("info")
def corpus_info(
    name: Annotated[str, typer.Argument(help="A name of `longtail corpus list`.")],
) -> None:
    """Show the source of a corpus, its licence, its settings and its cached files."""
    from longtail.corpora import cache_folder, corpus_settings, get_corpus

    corpus = get_corpus(name)
    facts = {key: getattr(corpus, key) for key in ("name", "summary", "source", "licence")}
    if corpus.files is not None:
        folder = cache_folder() / name
        cached = sorted(path.name for path in folder.glob("*") if path.is_file())
        facts |= {"files": corpus.files, "cache folder": folder}
        facts["in the cache"] = ", ".join(cached) or "nothing yet"
    settings = [f"{key}={value}" for key, value in corpus_settings(name).items()]
    facts["settings"] = ", ".join(settings) or "none"
    for key, value in facts.items():
        typer.echo(f"{key:<13} {value}")


@corpus_app.command("get")
@reads_data
def corpus_get(
    source: Source,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write the parts to; without it nothing is written."),
    ] = None,
    to: Suffix = "jsonl",
) -> None:
    """Fetch a corpus into the cache and, with --out, write its parts as files."""
    if out is not None:
        _check_empty(out)
    for part, documents in source.parts().items():
        written = part if out is None else _write(documents, out / part, to)
        typer.echo(f"{written}: {len(documents):,} documents")


@corpus_app.command("split")
@reads_data
def corpus_split(
    source: Source,
    out: Out,
    shares: Annotated[
        str, typer.Option(help="Shares of train, validation and test, or of train and test.")
    ] = "0.7,0.1,0.2",
    n_folds: Annotated[
        int | None, typer.Option("--folds", min=2, help="Number of folds, instead of one split.")
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(help="File with the ids of the test part, one per line.")
    ] = None,
    to: Suffix = "jsonl",
) -> None:
    """Split documents at random, stratified or by time (--split-method), by ids, or into folds."""
    from longtail.data import folds, split, split_by_ids

    _check_empty(out)
    if ids is not None and n_folds is not None:
        raise InputError(
            "--ids and --folds cannot be combined: give the ids of the test part, or the number of "
            "folds."
        )
    documents = source.whole()
    splits: dict[str, Sequence[TextData]]
    if ids is not None:
        splits = {"": split_by_ids(documents, _lines(ids))}
    elif n_folds is not None:
        pairs = folds(documents, n_folds, source.split_method, source.split_seed)
        splits = {f"fold-{k}": pair for k, pair in enumerate(pairs)}
    else:
        sizes = _numbers(shares, None, "--shares", "0.7,0.1,0.2")
        if len(sizes) not in (2, 3):
            raise InputError(f"--shares takes two or three shares, got {shares!r}.")
        splits = {"": split(documents, sizes, source.split_method, source.split_seed)}
    for folder, parts in splits.items():
        names = ("train", "test") if len(parts) == 2 else ("train", "validation", "test")
        for name, part in zip(names, parts, strict=True):
            typer.echo(f"{_write(part, out / folder / name, to)}: {len(part):,} documents")


@corpus_app.command("convert")
@reads_data
def corpus_convert(
    source: Source,
    out: Annotated[Path, typer.Option(help="File to write; the suffix decides the format.")],
    overwrite: OverwriteOut = False,
) -> None:
    """Read documents in any format and write them in another."""
    check_not_read(out, source.data)
    check_new(out, overwrite)
    documents = source.whole()
    _write(documents, out)
    typer.echo(f"{out}: {len(documents):,} documents")


@corpus_app.command("formats")
def corpus_formats() -> None:
    """List the formats of DATA."""
    from longtail.data import FORMATS

    for entry in FORMATS.values():
        suffixes = " ".join(entry.suffixes) or "-"
        typer.echo(f"{entry.name:<14} {entry.summary}")
        typer.echo(f"{'':<14} {suffixes}{'; can be written' if entry.write else ''}")


def _write(documents: TextData, path: Path, suffix: str = "") -> Path:
    from longtail.data import write_data

    if suffix:
        path = path.with_name(f"{path.name}.{suffix.lstrip('.')}")
    with show_progress() as progress:
        write_data(documents, path, progress=progress)
    return path


def _check_empty(folder: Path) -> None:
    """Raise for a folder with files: beside old parts, new ones would mix train and test."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder. Choose another, or empty it first.")


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in read_small(path).splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read, or is not valid UTF-8: {error}.") from error


def _numbers(text: str, count: int | None, flag: str, example: str) -> list[float]:
    """Numbers separated by commas; integers stay integers, as shares may be document counts."""
    try:
        numbers = [int(p) if p.strip().isdigit() else float(p) for p in text.split(",")]
    except ValueError:
        numbers = []
    finite = all(math.isfinite(number) for number in numbers)
    if not numbers or not finite or (count is not None and len(numbers) != count):
        raise InputError(f"{flag} takes numbers separated by commas, as {example}, got {text!r}.")
    return numbers
