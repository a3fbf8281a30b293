"""The verbs that look at data: `stats`, and `corpus list, info, get, split, convert, formats`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.cli.reading import Source, reads_data
from longtail.cli.show import AsJson, show_progress
from longtail.errors import DataError, InputError
from longtail.runs import check_replaceable, read_small

if TYPE_CHECKING:
    from longtail.data import TextData

FIGURES = ("labels.png", "documents.png")
corpus_app = typer.Typer(help="Named corpora, and files turned into others.", no_args_is_help=True)
Out = Annotated[Path, typer.Option(help="Folder to write to.")]
Suffix = Annotated[str, typer.Option(help="jsonl, jsonl.gz, parquet, csv, tsv or txt.")]


@reads_data
def stats(
    source: Source,
    cuts: Annotated[
        str | None,
        typer.Option(
            help="Tail below the first count, head above the second: 8,35; else terciles."
        ),
    ] = None,
    pairs: Annotated[int, typer.Option(min=0, help="Linked label pairs to show.")] = 10,
    plot: Annotated[
        Path | None, typer.Option(help="Folder for figures: labels.png and documents.png.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace figures that longtail did not make.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Describe the data: sizes, the long tail, linked labels, duplicates, drift, and mu."""
    from rich.console import Console

    from longtail.analysis import stats as describe
    from longtail.report import stats_tables, to_terminal

    limits = _numbers(cuts, 2, "--cuts", "8,35") if cuts else None
    for name in FIGURES:
        if plot is not None:
            check_replaceable(plot / name, overwrite)
    parts = source.parts()
    with show_progress() as progress:
        found = describe(
            parts,
            cuts=(limits[0], limits[1]) if limits else None,
            n_pairs=pairs,
            progress=progress,
        )
        written = _plot(parts, source.data, plot, limits) if plot else []
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
        return
    console = Console()
    for table in stats_tables(found, source.data):
        console.print(to_terminal(table))
    for path in written:
        typer.echo(f"figure: {path}")


def _plot(
    parts: dict[str, TextData], name: str, folder: Path, cuts: list[float] | None
) -> list[Path]:
    from longtail.report import plot_documents, plot_labels

    folder.mkdir(parents=True, exist_ok=True)
    limits = (cuts[0], cuts[1]) if cuts else None
    title = Path(name).name
    labels, documents = (folder / name for name in FIGURES)
    plot_labels(parts["train"], labels, title=f"{title}: labels of the training part", cuts=limits)
    plot_documents(parts, documents, title=title)
    return [labels, documents]


@corpus_app.command("list")
def corpus_list() -> None:
    """The corpora that longtail knows by name."""
    from longtail.corpora import CORPORA

    for corpus in CORPORA.values():
        typer.echo(f"{corpus.name:<17} {corpus.summary}")


@corpus_app.command("info")
def corpus_info(
    name: Annotated[str, typer.Argument(help="A name of `longtail corpus list`.")],
) -> None:
    """Where a corpus comes from, its licence, its settings, and what is in the cache."""
    from longtail.corpora import cache_folder, corpus_settings, get_corpus

    corpus = get_corpus(name)
    facts = [("name", corpus.name), ("summary", corpus.summary), ("source", corpus.source)]
    facts.append(("licence", corpus.licence))
    if corpus.files is not None:
        folder = cache_folder() / name
        there = sorted(path.name for path in folder.glob("*") if path.is_file())
        facts += [("files", corpus.files), ("cache folder", str(folder))]
        facts.append(("in the cache", ", ".join(there) or "nothing yet"))
    settings = (f"{key}={value}" for key, value in corpus_settings(name).items())
    facts.append(("settings", ", ".join(settings) or "none"))
    for key, value in facts:
        typer.echo(f"{key:<13} {value}")


@corpus_app.command("get")
@reads_data
def corpus_get(
    source: Source,
    out: Annotated[Path | None, typer.Option(help="Folder for the parts; else only read.")] = None,
    to: Suffix = "jsonl",
) -> None:
    """Fetch a corpus into the cache and, with --out, write its parts as files."""
    if out is not None:
        _check_empty(out)
    parts = source.parts()
    for part, documents in parts.items():
        where = f"{_write(documents, out / part, to)}: " if out is not None else f"{part}: "
        typer.echo(f"{where}{len(documents)} documents")


@corpus_app.command("split")
@reads_data
def corpus_split(
    source: Source,
    out: Out,
    shares: Annotated[
        str, typer.Option(help="Of train, validation and test (or of two parts, train and test).")
    ] = "0.7,0.1,0.2",
    n_folds: Annotated[
        int | None, typer.Option("--folds", min=2, help="That many folds instead of one split.")
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
            "--ids and --folds exclude each other: name the ids, or let longtail fold."
        )
    documents = source.whole()
    if ids is not None:
        chosen = _lines(ids)
        found = {"": dict(zip(("train", "test"), split_by_ids(documents, chosen), strict=True))}
    elif n_folds is not None:
        pairs = folds(documents, n_folds, source.split, source.split_seed)
        found = {
            f"fold-{k}": dict(zip(("train", "test"), p, strict=True)) for k, p in enumerate(pairs)
        }
    else:
        wanted = _numbers(shares, None, "--shares", "0.7,0.1,0.2")
        names = {2: ("train", "test"), 3: ("train", "validation", "test")}.get(len(wanted))
        if names is None:
            raise InputError(f"--shares takes two or three shares, got {shares!r}.")
        pieces = split(documents, wanted, source.split, source.split_seed)
        found = {"": dict(zip(names, pieces, strict=True))}
    for folder, parts in found.items():
        for part, piece in parts.items():
            typer.echo(f"{_write(piece, out / folder / part, to)}: {len(piece)} documents")


@corpus_app.command("convert")
@reads_data
def corpus_convert(
    source: Source,
    out: Annotated[Path, typer.Option(help="File to write; its suffix says the format.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if it is there.")
    ] = False,
) -> None:
    """Read documents in any format and write them in another."""
    from longtail.data import write_data

    _check_new(out, source, overwrite)
    documents = source.whole()
    with show_progress() as progress:
        write_data(documents, out, progress=progress)
    typer.echo(f"{out}: {len(documents)} documents")


@corpus_app.command("formats")
def corpus_formats() -> None:
    """The formats that DATA may have."""
    from longtail.data import FORMATS

    for entry in FORMATS.values():
        suffixes = " ".join(entry.suffixes) or "-"
        typer.echo(f"{entry.name:<14} {entry.summary}")
        typer.echo(f"{'':<14} {suffixes}{'; can be written' if entry.write else ''}")


def _write(documents: TextData, stem: Path, suffix: str) -> Path:
    from longtail.data import write_data

    path = stem.with_name(f"{stem.name}.{suffix.lstrip('.')}")
    with show_progress() as progress:
        write_data(documents, path, progress=progress)
    return path


def _check_new(out: Path, source: Source, overwrite: bool) -> None:
    """Other columns of the source, or another file, would be lost."""
    data = Path(source.data)
    if out.exists() and data.exists() and (data.samefile(out) or data in out.parents):
        raise InputError(f"{out} is what is being read. Choose another name for what is written.")
    if out.is_file() and not overwrite:
        raise InputError(f"{out} is there already. Replace it with --overwrite.")


def _check_empty(folder: Path) -> None:
    """Old parts beside new ones would mix documents that were held out with others."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder. Choose another, or empty it first.")


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in read_small(path).splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read, or is not valid UTF-8: {error}.") from error


def _numbers(text: str, count: int | None, flag: str, example: str) -> list[float]:
    """Whole numbers stay whole: shares may be numbers of documents."""
    try:
        numbers = [int(p) if p.strip().isdigit() else float(p) for p in text.split(",")]
    except ValueError:
        numbers = []
    finite = all(math.isfinite(number) for number in numbers)
    if not numbers or not finite or (count is not None and len(numbers) != count):
        raise InputError(
            f"{flag} takes numbers with commas between, as in {example}, got {text!r}."
        )
    return numbers
