"""Results as files: a Markdown page, `results.json` and two figures.

The page is generated from the content of the JSON file alone. All files are rewritten after each
cell, atomically.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longtail.data import TextData
from longtail.data.writing import replacing
from longtail.errors import InputError
from longtail.evaluation.bootstrap import MEASURES
from longtail.report import plot_labels
from longtail.report.jinja import render_markdown
from longtail.report.paper import CORPORA, LAYOUTS, SOURCE, Pair, paper_sizes
from longtail.report.table import NONE, Cell, Strong, Table, best_pair, by_text, heading, pair_cell
from longtail.reproduce.claims import CONFUSED, row_name, signed
from longtail.reproduce.figure import plot_results
from longtail.reproduce.recipes import describe_model, is_random
from longtail.reproduce.results import N_RESAMPLES
from longtail.runs.files import check_replaceable

PAGE, JSON, FIGURE, LABELS = ".md", ".json", ".png", "-labels.png"
RULES = {
    "global": "one threshold for all labels",
    "grid": "one for all labels, a probability of 0.40 to 0.60 (of an SVM a shift of -1 to 1)",
    "auto": "thresholds of the kind that held-out documents favour",
}
AIMS = {"micro": "micro-F1", "macro": "macro-F1", "mean": "the mean of micro- and macro-F1"}
Results = Mapping[str, Any]
"""The return value of `Results.to_dict`, or the content of `results.json`."""


def check_publish(publish: Path, rows: Collection[str]) -> None:
    """Raise if a published page has rows that would be lost."""
    stem = publish_stem(publish)
    try:
        published = json.loads(_named(stem, JSON).read_text("utf-8"))["rows"]
    except (OSError, ValueError, KeyError, TypeError):
        for end in (PAGE, JSON, FIGURE, LABELS):
            check_replaceable(_named(stem, end), overwrite=False)
        return
    lost = [row for row in published if row not in rows]
    if lost:
        raise InputError(
            f"{_named(stem, JSON)} has rows that this command does not make: "
            f"{', '.join(lost)}. Leave out --rows, or publish under another name."
        )


def publish_stem(publish: Path) -> Path:
    """The path of published files without the suffix of any of them."""
    return publish.with_suffix("") if publish.suffix in (PAGE, JSON, FIGURE) else publish


def write_results(results: Results, stems: Sequence[Path]) -> tuple[Path, ...]:
    """Write page, JSON and figure under each stem; return all paths, that of `LABELS` included."""
    ends = [PAGE, JSON, FIGURE, LABELS]
    if not any(row["mean"] for row in results["rows"].values()):
        ends.remove(FIGURE)
    plain = json.dumps(results, indent=1) + "\n"
    for stem in stems:
        if FIGURE in ends:
            plot_results(results, _named(stem, FIGURE))
        for end, text in ((PAGE, results_markdown(results, stem.name)), (JSON, plain)):
            with replacing(_named(stem, end)) as temporary:
                temporary.write_bytes(text.encode("utf-8"))
    return tuple(_named(stem, end) for stem in stems for end in ends)


def write_corpus_figure(train: TextData, corpus: str, stems: Sequence[Path]) -> None:
    """Draw the long tail of the training part and which labels co-occur."""
    sizes = f"{len(train)} training documents, {len(train.label_names)} labels"
    title = f"{CORPORA.get(corpus, corpus)}: {sizes}"
    for stem in stems:
        plot_labels(train, _named(stem, LABELS), title=title)


def results_markdown(results: Results, stem: str) -> str:
    """The page as Markdown; it links to figures next to it, named after `stem`."""
    corpus, rows = results["corpus"], results["rows"].items()
    models = {name: describe_model(name, row["recipe"]) for name, row in rows}
    origins = {(*row["hardware"], *row["commit"]) for _, row in rows if row["seeds"]}
    n_labels = corpus["sizes"]["labels"]["all"]
    in_paper = paper_sizes(corpus["name"], "labels")["all"] if results["paper"] else n_labels
    first, *_, last = _groups(results, "labels")
    return render_markdown(
        "results.md.j2",
        name=CORPORA.get(corpus["name"], corpus["name"]),
        results=results,
        stem=stem,
        n_labels=n_labels,
        paper_labels=in_paper or n_labels,
        rows={name: {**row, "model": models[name]} for name, row in rows},
        models=_grouped((model, row_name(name)) for name, model in models.items()),
        rules=_grouped((_rule(row["recipe"]), row_name(name)) for name, row in rows),
        random=[name for name, row in rows if is_random(name, row["recipe"])],
        busy=" and ".join(f"{t:,.0f} seconds of {name}" for name, t in results["busy"].items()),
        intervals=[(group, measure) for group in (first, last) for measure in MEASURES],
        n_resamples=N_RESAMPLES,
        pairs=CONFUSED[corpus["name"]] if results["paper"] else (),
        # A single origin is given above the tables.
        origins=("hardware", "commit") if len(origins) > 1 else (),
        libraries=by_text(
            (", ".join(f"{library} {version}" for library, version in each.items()), row_name(name))
            for name, row in rows
            for each in row["versions"]
        ),
        tables={
            layout: [figure_table(results, layout), *paper_tables(results, layout)]
            for layout in LAYOUTS
        },
        row_name=row_name,
        group_name=_group,
        heading=heading,
        dash=NONE,
    )


def figure_table(results: Results, layout: str, spread: bool = True) -> Table:
    """Mean micro- and macro-F1 of each row; `spread` adds stars, deviations and the best values."""
    groups, rows, cells = _groups(results, layout), results["rows"], list[list[Cell]]()
    best = {g: best_pair(_pair(row["mean"], g) for row in rows.values()) for g in groups}
    for name, row in rows.items():
        extras = {g: (best[g], _suffixes(row, g)) if spread else () for g in groups}
        pairs = [pair_cell(_pair(row["mean"], g), *extras[g]) for g in groups]
        cells.append([row_name(name), *pairs, str(len(row["seeds"]) or NONE)])
    if results["paper"] and spread:
        pairs = [pair_cell(pair) for pair in _papers_best(results, layout).values()]
        cells.append(["the paper's best", *pairs, NONE])
    header = ("row", *_headings(results, layout), "n")
    return Table(LAYOUTS[layout], header, cells, _figure_notes(results, layout))


def paper_tables(results: Results, layout: str) -> list[Table]:
    """A table of ours minus the paper's; none if the corpus is not in the paper."""
    if not results["paper"]:
        return []
    paper, best = results["paper"][layout], _papers_best(results, layout)
    # Rows that the paper lacks are compared with its best.
    rows = [
        (row_name(name), *(_minus(_pair(row["mean"], g), paper.get(name, best)[g]) for g in best))
        for name, row in results["rows"].items()
    ]
    notes = [f"Percentage points, micro / macro; in brackets the paper's figures ({SOURCE})."]
    others = [row_name(name) for name in results["rows"] if name not in paper]
    if others:
        notes.append(f"{', '.join(others)}: minus the paper's best figure of each column.")
    header = ("row", *_headings(results, layout))
    return [Table(f"{LAYOUTS[layout]}: ours minus the paper's", header, rows, notes)]


def _figure_notes(results: Results, layout: str) -> list[str]:
    """Notes on how to read the table; the second table refers to the first."""
    if layout != "labels":
        return ["As above; in brackets after a group its number of test documents."]
    rows = results["rows"].items()
    several = any(row["std"] for _, row in rows)
    spread = ", mean ± standard deviation over n seeds" if several else ""
    sizes = "in brackets after a group its number of labels"
    notes = [f"Micro-F1 / macro-F1 in percent{spread}; {sizes}. Bold: the best of a column."]
    once = [row_name(name) for name, row in rows if not is_random(name, row["recipe"])]
    if once and several:
        notes.append(f"No random numbers, so one training is enough: {', '.join(once)}.")
    if any(row["difference"] for _, row in rows):
        notes.append(
            f"Stars: the difference to {row_name(str(results['against']))} is significant "
            f"(two-sided p < 0.05 *, p < 0.01 **; paired bootstrap, {N_RESAMPLES} resamples of the "
            "test documents, means over the seeds; not corrected for the number of comparisons)."
        )
    return notes


def _rule(recipe: Mapping[str, Any]) -> str:
    method, aim = recipe.get("thresholds", "auto"), recipe.get("objective", "mean")
    where = "on the validation part" if recipe.get("folds") == 1 else "on held-out documents"
    return f"{RULES.get(method, f'thresholds `{method}`')}, chosen {where} for {AIMS.get(aim, aim)}"


def _grouped(pairs: Iterable[tuple[str, str]]) -> str:
    """The text if it is the same for all rows, else each text with its rows."""
    rows = by_text(pairs)
    if len(rows) == 1:
        return next(iter(rows))
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in rows.items())


def _groups(results: Results, layout: str) -> tuple[str, ...]:
    """The columns: the paper's if the corpus is in the paper, else the non-empty groups."""
    if results["paper"]:
        return tuple(next(iter(results["paper"][layout].values())))
    sizes = results["corpus"]["sizes"][layout]
    return tuple(group for group, size in sizes.items() if size)


def _group(group: str) -> str:
    return "total" if group == "all" else heading(group)


def _headings(results: Results, layout: str) -> list[str]:
    sizes = results["corpus"]["sizes"][layout]
    return [f"{_group(group)} ({sizes[group]})" for group in _groups(results, layout)]


def _pair(figures: Mapping[str, Mapping[str, float]], group: str) -> Pair | None:
    values = figures.get(group)
    return (values["micro_f1"], values["macro_f1"]) if values else None


def _papers_best(results: Results, layout: str) -> dict[str, Pair | None]:
    rows = results["paper"][layout].values()
    return {group: best_pair(row[group] for row in rows) for group in _groups(results, layout)}


def _suffixes(row: Mapping[str, Any], group: str) -> list[str]:
    """Stars and standard deviation, for micro- and macro-F1."""
    suffixes = []
    for measure in MEASURES:
        difference = row["difference"].get(group, {}).get(measure)
        p = difference["p"] if difference and difference["value"] else 1.0
        spread = f" ± {row['std'][group][measure]:.2f}" if group in row["std"] else ""
        suffixes.append(f"{'**' if p < 0.01 else '*' if p < 0.05 else ''}{spread}")
    return suffixes


def _minus(ours: Pair | None, paper: Pair | None) -> Cell:
    if paper is None:
        return NONE
    figures = f" ({paper[0]:.2f} / {paper[1]:.2f})"
    if ours is None:
        return NONE + figures
    # Bold where ours is higher by more than the paper's rounding.
    values = [a - b for a, b in zip(ours, paper, strict=True)]
    micro, macro = (Strong(signed(v)) if v >= 0.005 else signed(v) for v in values)
    return micro, " / ", macro, figures


def _named(stem: Path, end: str) -> Path:
    """Append to the name: `with_suffix` would cut a name such as minilm-1.5."""
    return stem.with_name(stem.name + end)
