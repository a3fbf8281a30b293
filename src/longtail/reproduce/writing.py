"""A reproduction as files: results.md for people, results.json for programs, figures.

All of them are written anew after every cell; readers find the old one or the new one, whole.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from longtail.data import TextData
from longtail.data.files import replacing, writing
from longtail.errors import InputError
from longtail.figures import plot_labels, plot_results
from longtail.report.markdown import escape_markdown, table_markdown
from longtail.report.paper import LAYOUTS, SOURCE, paper_rows, paper_sizes
from longtail.reproduce.claims import paper_figures, shown
from longtail.reproduce.recipes import describe_model, uses_chance
from longtail.reproduce.summary import Summary
from longtail.reproduce.tables import (
    claim_rows,
    claim_table,
    confusion_table,
    failure_table,
    figure_table,
    interval_table,
    paper_table,
    training_table,
)
from longtail.runs import check_replaceable

FIGURE, LABELS = ".png", "-labels.png"
TITLES = {"reuters": "Reuters-21578", "pubmed": "PubMed"}
RULES = {
    "global": "one threshold for all labels",
    "grid": "one for all labels, a probability of 0.40 to 0.60 (of an SVM a shift of -1 to 1)",
    "auto": "thresholds of the kind that held-out documents favour",
}


def check_publish(publish: Path, rows: Collection[str]) -> None:
    """Raise for a folder, and for a page that has rows which would be lost."""
    if publish.is_dir():
        raise InputError(
            f"--publish {publish} is a folder. Say also what the files are to be called, as in "
            f"--publish {publish / 'results'}."
        )
    try:
        there = json.loads(_named(publish, ".json").read_text("utf-8"))["rows"]
    except (OSError, ValueError, KeyError, TypeError):
        for end in (".md", ".json", FIGURE, LABELS):
            check_replaceable(_named(publish, end), overwrite=False)
        return
    lost = [row for row in there if row not in rows]
    if lost:
        raise InputError(
            f"{_named(publish, '.json')} has rows that this command does not make: "
            f"{', '.join(lost)}. Leave out --rows, or publish under another name."
        )


def write_results(
    summary: Summary, command: str, out: Path, publish: Path | None
) -> tuple[Path, ...]:
    """Tables and figure into the folder and, with another name, wherever they are published."""
    first, *others = _stems(out, publish)
    known = any(row.mean for row in summary.rows.values())
    if known:
        _plot(summary, _named(first, FIGURE))
    files: list[Path] = []
    for stem in (first, *others):
        if known and stem != first:
            _copy(_named(first, FIGURE), _named(stem, FIGURE))
        for end, text in (
            (".md", results_markdown(summary, command, stem.name)),
            (".json", json.dumps(results_json(summary, command), indent=1) + "\n"),
        ):
            with writing(_named(stem, end)) as file:
                file.write(text)
        ends = (".md", ".json", *([FIGURE] if known else []), LABELS)
        files += [_named(stem, end) for end in ends]
    return tuple(files)


def write_corpus_figure(train: TextData, corpus: str, out: Path, publish: Path | None) -> None:
    """The long tail of the training part over what its labels share."""
    said = f"{len(train)} training documents, {len(train.label_names)} labels"
    first, *others = _stems(out, publish)
    title = f"{TITLES.get(corpus, corpus)}: {said}"
    plot_labels(train, _named(first, LABELS), title=title)
    for stem in others:
        _copy(_named(first, LABELS), _named(stem, LABELS))


def results_markdown(summary: Summary, command: str, stem: str) -> str:
    """The whole page; its figures lie beside it and are called by its own name."""
    name = TITLES.get(summary.corpus, summary.corpus)
    title = f"{name}: the paper's tables again" if summary.paper else f"{name}: recipes compared"
    parts = [f"# {escape_markdown(title)}\n", _introduction(summary)]
    if command:
        parts.append(f"```\n{command}\n```\n")
    failures = failure_table(summary)
    if failures is not None:
        parts.append(table_markdown(failures))
    for layout in LAYOUTS:
        parts.append(table_markdown(figure_table(summary, layout)))
        beside = paper_table(summary, layout)
        if beside is not None:
            parts.append(table_markdown(beside))
        if layout == "labels" and any(row.mean for row in summary.rows.values()):
            told = "; hollow: the paper" if summary.paper else ""
            parts.append(f"![F1 by row, mean and standard deviation{told}]({stem}{FIGURE})\n")
    tables = (interval_table, claim_table, confusion_table, training_table)
    for table in (make(summary) for make in tables):
        if table is not None:
            parts.append(table_markdown(table))
    parts.append("## The corpus\n")
    parts.append(f"![Documents per label, and which labels share documents]({stem}{LABELS})\n")
    return "\n".join(parts)


def results_json(summary: Summary, command: str) -> dict[str, Any]:
    """Everything that the page shows, as plain numbers in percent."""
    rows = {
        name: {
            "seeds": {str(seed): values for seed, values in row.seeds.items()},
            "mean": row.mean,
            "std": row.std,
            "interval": row.interval,
            "difference": {
                group: {measure: _percent(asdict(one)) for measure, one in found.items()}
                for group, found in row.difference.items()
            },
            "confused": [
                {"missed": missed, "given": given, "documents": round(n, 3)}
                for missed, given, n in row.confused
            ],
            "seconds": row.seconds,
            "hardware": list(row.hardware),
            "commit": list(row.commits),
            "versions": list(row.versions),
            "recipe": dict(row.recipe),
            "failed": {str(seed): why for seed, why in row.failed.items()},
        }
        for name, row in summary.rows.items()
    }
    return {
        "corpus": {"name": summary.corpus, "documents": summary.documents, "sizes": summary.sizes},
        "command": command,
        "commit": _joined(row.commits for row in summary.rows.values()),
        "hardware": _joined(row.hardware for row in summary.rows.values()),
        "units": "percent; std is that of a sample; difference is to the row `against`",
        "against": summary.against,
        "n_seeds": summary.n_seeds,
        "busy": {name: round(seconds, 1) for name, seconds in summary.busy.items()},
        "killed": summary.killed,
        "rows": rows,
        "paper": None if summary.paper is None else {
            "source": SOURCE,
            **{layout: paper_rows(summary.paper, layout) for layout in LAYOUTS},
        },
        "claims": claim_rows(summary),
    }  # fmt: skip


def _introduction(summary: Summary) -> str:
    """What was done with what, in a few sentences."""
    sizes = ", ".join(f"{n:,} {part}" for part, n in summary.documents.items())
    models: dict[str, list[str]] = {}
    rules: dict[str, list[str]] = {}
    for name, row in summary.rows.items():
        models.setdefault(describe_model(name, row.recipe), []).append(shown(name))
        rules.setdefault(_rule(row.recipe), []).append(shown(name))
    chance = [name for name, row in summary.rows.items() if uses_chance(name, row.recipe)]
    seeds = "One seed" if summary.n_seeds == 1 else f"{summary.n_seeds} seeds"
    once = "" if len(chance) == len(summary.rows) else "; rows without random numbers once"
    n_labels = summary.sizes["labels"]["all"]
    told = [
        f"{TITLES.get(summary.corpus, summary.corpus)}: {sizes} documents; {n_labels:,} labels.",
        *_other_corpus(summary),
        f"Models: {_grouped(models)}.",
        f"{seeds} each{once}." if chance else "No row uses random numbers: one training each.",
        f"Decisions: {_grouped(rules)}.",
    ]
    hardware = _joined(row.hardware for row in summary.rows.values())
    commits = _joined(row.commits for row in summary.rows.values())
    if hardware:
        told.append(f"Made at commit {', '.join(commits)}.")
        least = "at least " if summary.killed else ""
        busy = [f"{seconds:,.0f} seconds of {name}" for name, seconds in summary.busy.items()]
        told.append(f"Training took {least}{' and '.join(busy)}. The command:")
    return escape_markdown(" ".join(told)) + "\n"


def _other_corpus(summary: Summary) -> list[str]:
    """What to say where the corpus has the paper's name and not its size."""
    theirs = paper_sizes(summary.paper, "labels").get("all") if summary.paper else None
    if theirs is None or theirs == summary.sizes["labels"]["all"]:
        return []
    return [f"These are not the paper's documents: it has {theirs:,} labels."]


def _rule(recipe: Mapping[str, Any]) -> str:
    method, aim = recipe.get("thresholds", "auto"), recipe.get("objective", "mean")
    aims = {"micro": "micro-F1", "macro": "macro-F1", "mean": "the mean of micro- and macro-F1"}
    folds = recipe.get("folds")
    where = "on the validation part" if folds == 1 else "on held-out documents"
    return f"{RULES.get(method, f'thresholds `{method}`')}, chosen {where} for {aims.get(aim, aim)}"


def _grouped(rows_by: Mapping[str, list[str]]) -> str:
    """One thing for all, or each with the rows that it is about."""
    if len(rows_by) == 1:
        return next(iter(rows_by))
    return "; ".join(f"{what} ({', '.join(rows)})" for what, rows in rows_by.items())


def _plot(summary: Summary, path: Path) -> None:
    measures = ("micro_f1", "macro_f1")
    ours, spread = (
        {
            shown(name): {g: (v[measures[0]], v[measures[1]]) for g, v in values.items()}
            for name, values in found.items()
        }
        for found in (
            {name: row.mean for name, row in summary.rows.items()},
            {name: row.std for name, row in summary.rows.items()},
        )
    )
    paper = {} if summary.paper is None else paper_figures(summary.paper)
    sizes = summary.sizes["labels"]
    title = f"{TITLES.get(summary.corpus, summary.corpus)}: F1 on the test part"
    theirs = {shown(name): cells for name, cells in paper.items()}
    plot_results(ours, spread, theirs, sizes, path, title=title)


def _stems(out: Path, publish: Path | None) -> list[Path]:
    if publish is None:
        return [out / "results"]
    ends = publish.suffix in (".md", ".json", ".png")
    return [out / "results", publish.with_suffix("") if ends else publish]


def _named(stem: Path, end: str) -> Path:
    """Not by `with_suffix`: a name such as minilm-1.5 has none."""
    return stem.with_name(stem.name + end)


def _copy(source: Path, place: Path) -> None:
    with replacing(place) as temporary:
        temporary.write_bytes(source.read_bytes())


def _joined(many: Any) -> list[str]:
    return list(dict.fromkeys(one for some in many for one in some))


def _percent(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value if name == "p" else 100 * value for name, value in values.items()}
