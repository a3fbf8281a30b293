"""A reproduction as files: results.md for people, results.json for programs, figures.

All of them are written again after every cell; readers see the old one or the new one, complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from longtail.data import TextData
from longtail.data.files import replacing, writing
from longtail.errors import InputError
from longtail.report import plot_labels, plot_results
from longtail.report.jinja import render_markdown
from longtail.report.paper import LAYOUTS, SOURCE, paper_rows, paper_sizes
from longtail.reproduce.claims import paper_figures, row_name
from longtail.reproduce.recipes import describe_model, is_random
from longtail.reproduce.summary import Summary
from longtail.reproduce.tables import (
    by_text,
    claim_rows,
    claim_table,
    confusion_table,
    failure_table,
    figure_table,
    interval_table,
    paper_table,
    training_table,
)
from longtail.runs.files import check_replaceable

FIGURE, LABELS = ".png", "-labels.png"
TITLES = {"reuters": "Reuters-21578", "pubmed": "PubMed"}
RULES = {
    "global": "one threshold for all labels",
    "grid": "one for all labels, a probability of 0.40 to 0.60 (of an SVM a shift of -1 to 1)",
    "auto": "thresholds of the kind that held-out documents favour",
}
AIMS = {"micro": "micro-F1", "macro": "macro-F1", "mean": "the mean of micro- and macro-F1"}


def check_publish(publish: Path, rows: Collection[str]) -> None:
    """Raise for a folder, and for a page that has rows which would be lost."""
    if publish.is_dir():
        raise InputError(
            f"--publish {publish} is a folder. Name also the files, as in "
            f"--publish {publish / 'results'}."
        )
    stem = publish_stem(publish)
    try:
        published = json.loads(_named(stem, ".json").read_text("utf-8"))["rows"]
    except (OSError, ValueError, KeyError, TypeError):
        for end in (".md", ".json", FIGURE, LABELS):
            check_replaceable(_named(stem, end), overwrite=False)
        return
    lost = [row for row in published if row not in rows]
    if lost:
        raise InputError(
            f"{_named(stem, '.json')} has rows that this command does not make: "
            f"{', '.join(lost)}. Leave out --rows, or publish under another name."
        )


def publish_stem(publish: Path) -> Path:
    """The name that published files have in common: without a suffix of one of them."""
    return publish.with_suffix("") if publish.suffix in (".md", ".json", ".png") else publish


def write_results(summary: Summary, command: str, stems: Sequence[Path]) -> tuple[Path, ...]:
    """Write page, JSON and figure under each of several names; return all files."""
    has_figure = any(row.mean for row in summary.rows.values())
    if has_figure:
        _draw(FIGURE, stems, lambda path: _plot(summary, path))
    plain = json.dumps(results_json(summary, command), indent=1) + "\n"
    for stem in stems:
        page = results_markdown(summary, command, stem.name)
        for end, text in ((".md", page), (".json", plain)):
            with writing(_named(stem, end)) as file:
                file.write(text)
    ends = (".md", ".json", *([FIGURE] if has_figure else []), LABELS)
    return tuple(_named(stem, end) for stem in stems for end in ends)


def write_corpus_figure(train: TextData, corpus: str, stems: Sequence[Path]) -> None:
    """The long tail of the training part over what its labels share."""
    sizes = f"{len(train)} training documents, {len(train.label_names)} labels"
    title = f"{TITLES.get(corpus, corpus)}: {sizes}"
    _draw(LABELS, stems, lambda path: plot_labels(train, path, title=title))


def results_markdown(summary: Summary, command: str, stem: str) -> str:
    """The whole page; its figures lie beside it and are called by its own name."""
    rows = summary.rows.items()
    random = [name for name, row in rows if is_random(name, row.recipe)]
    n_labels = summary.sizes["labels"]["all"]
    in_paper = paper_sizes(summary.paper, "labels")["all"] if summary.paper else n_labels
    tables = [make(summary, layout) for layout in LAYOUTS for make in (figure_table, paper_table)]
    more = (interval_table, claim_table, confusion_table, training_table)
    return render_markdown(
        "results.md.j2",
        name=TITLES.get(summary.corpus, summary.corpus),
        summary=summary,
        sizes=", ".join(f"{n:,} {part}" for part, n in summary.documents.items()),
        n_labels=f"{n_labels:,}",
        paper_labels=None if in_paper in (None, n_labels) else f"{in_paper:,}",
        models=_grouped((describe_model(name, row.recipe), name) for name, row in rows),
        rules=_grouped((_rule(row.recipe), name) for name, row in rows),
        random=random,
        once=len(random) < len(summary.rows),
        commits=", ".join(_joined(row.commits for _, row in rows)),
        busy=" and ".join(f"{t:,.0f} seconds of {name}" for name, t in summary.busy.items()),
        command=command,
        failures=failure_table(summary),
        by_labels=[table for table in tables[:2] if table],
        has_figure=any(row.mean for _, row in rows),
        figure=stem + FIGURE,
        labels_figure=stem + LABELS,
        tables=[table for table in (*tables[2:], *(make(summary) for make in more)) if table],
    )


def results_json(summary: Summary, command: str) -> dict[str, Any]:
    """Everything that the page shows, as plain numbers in percent."""
    rows = {}
    for name, row in summary.rows.items():
        plain = asdict(row)
        plain["commit"] = plain.pop("commits")
        for by_measure in plain["difference"].values():
            for values in by_measure.values():
                values |= {key: 100 * values[key] for key in ("value", "low", "high")}
        plain["confused"] = [
            {"missed": missed, "given": given, "documents": round(n, 3)}
            for missed, given, n in row.confused
        ]
        rows[name] = plain
    paper = None
    if summary.paper is not None:
        tables = {layout: paper_rows(summary.paper, layout) for layout in LAYOUTS}
        paper = {"source": SOURCE, **tables}
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
        "paper": paper,
        "claims": claim_rows(summary),
    }


def _rule(recipe: Mapping[str, Any]) -> str:
    method, aim = recipe.get("thresholds", "auto"), recipe.get("objective", "mean")
    where = "on the validation part" if recipe.get("folds") == 1 else "on held-out documents"
    return f"{RULES.get(method, f'thresholds `{method}`')}, chosen {where} for {AIMS.get(aim, aim)}"


def _grouped(pairs: Iterable[tuple[str, str]]) -> str:
    """One text for all, or each with the rows that it is about."""
    rows = by_text(pairs)
    if len(rows) == 1:
        return next(iter(rows))
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in rows.items())


def _plot(summary: Summary, path: Path) -> None:
    ours, spread = (
        {
            row_name(name): {
                g: (v["micro_f1"], v["macro_f1"]) for g, v in getattr(row, key).items()
            }
            for name, row in summary.rows.items()
        }
        for key in ("mean", "std")
    )
    paper = {} if summary.paper is None else paper_figures(summary.paper)
    title = f"{TITLES.get(summary.corpus, summary.corpus)}: F1 on the test part"
    paper = {row_name(name): cells for name, cells in paper.items()}
    plot_results(ours, spread, paper, summary.sizes["labels"], path, title=title)


def _named(stem: Path, end: str) -> Path:
    """Not by `with_suffix`: a name such as minilm-1.5 has none."""
    return stem.with_name(stem.name + end)


def _draw(end: str, stems: Sequence[Path], draw: Callable[[Path], None]) -> None:
    """Draw once; the others are copies."""
    first, *others = (_named(stem, end) for stem in stems)
    draw(first)
    for copy in others:
        with replacing(copy) as temporary:
            temporary.write_bytes(first.read_bytes())


def _joined(many: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(one for some in many for one in some))
