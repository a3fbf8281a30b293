"""The opening of a report: the verdict in sentences, the data, and the settings of the runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from longtail.analysis.runs import Comparison, Run
from longtail.analysis.verdict import Lead, leads, weakness
from longtail.evaluation import Evaluation, Scores
from longtail.report.evaluation_tables import p_value, points
from longtail.report.table import Table, by_text, heading, listed, one_line, plural

MOST_NAMED = 3
DEFAULT = "default"


class Opening(NamedTuple):
    """The text and tables at the top of a report."""

    verdict: list[str]
    facts: list[str]
    """The data, and the settings that all runs share."""
    settings: list[Table]
    """A table of the settings that differ between runs, if any."""

    @property
    def paragraphs(self) -> list[str]:
        return ["\n".join(self.verdict), *self.facts]


def opening(
    runs: Mapping[str, Run], comparisons: Mapping[str, Comparison], source: str | None = None
) -> Opening:
    """Write the opening; `source` is the name of the data and of the evaluated part."""
    evaluations = {name: run.evaluation for name, run in runs.items()}
    if len(runs) == 1:
        ((name, evaluation),) = evaluations.items()
        verdict = _single_run(name, evaluation)
    else:
        both = leads(evaluations, comparisons)
        verdict = [_headline(both), *map(_sentence, both)]
    sizes = by_text((_sizes(each), name) for name, each in evaluations.items())
    facts = [f"{', '.join(n)}: {text}" if len(sizes) > 1 else text for text, n in sizes.items()]
    if source is not None:
        facts = [f"Data: {source}.", *facts] if len(facts) > 1 else [f"Data: {source}. {facts[0]}"]
    shared, different = _settings({name: run.settings for name, run in runs.items()})
    return Opening(verdict, [*facts, *shared], different)


def _headline(both: list[Lead]) -> str:
    """Whether any run is better, from the leads in micro- and macro-F1."""
    wins = by_text(
        (f"{lead.best} is significantly better than {lead.second}", heading(lead.measure))
        for lead in both
        if lead.is_significant
    )
    if wins:
        return "; ".join(f"{text} in {listed(names)}" for text, names in wins.items()) + "."
    for lead in both:
        if lead.why_not is not None:
            return f"{lead.best} and {lead.second} cannot be compared: {lead.why_not}"
    return "No run is significantly better over all labels."


def _sentence(lead: Lead) -> str:
    measure, value = heading(lead.measure), f"{100 * lead.value:.2f}"
    difference = lead.differences.get("all")
    if difference is None:
        return f"The highest {measure} is {value}, of {lead.best}."
    if difference.value == 0:
        return f"{lead.best} and {lead.second} have the same {measure}, {value}."
    word = "significant" if lead.is_significant else "not significant"
    text = (
        f"In {measure} {lead.best} leads with {value}, {100 * difference.value:.2f} points ahead "
        f"of {lead.second} ({word}, {p_value(difference)})"
    )
    if lead.is_significant and lead.deciding:
        decisive = points(lead.differences[lead.deciding].value)
        text += f"; the {lead.deciding} labels decide ({decisive} points)"
    elif not lead.is_significant and lead.significant_groups:
        groups = ((name, lead.differences[name]) for name in lead.significant_groups)
        each = [f"{name} labels ({points(d.value)} points, {p_value(d)})" for name, d in groups]
        text += f", but significantly different on the {listed(each)}"
    return f"{text}."


def _single_run(name: str, evaluation: Evaluation) -> list[str]:
    """The results of a single run, its weakest group, and labels it never predicts."""
    overall = evaluation.overall
    if overall.is_empty:
        return [f"{name}: there is nothing to evaluate."]
    sentences = [f"{name} reaches micro-F1 {_micro(overall)} and macro-F1 {_macro(overall)}."]
    weak = weakness(evaluation)
    if weak.group is not None:
        group, head = evaluation.groups()[weak.group], evaluation.head
        beside = f" (head: {_macro(head)})" if group is not head and not head.is_empty else ""
        sentences.append(
            f"It is weakest on the {weak.group} labels: macro-F1 {_macro(group)}{beside}, "
            f"micro-F1 {_micro(group)}."
        )
    if weak.never:
        named = [f"{one_line(each.label)} ({each.documents})" for each in weak.never[:MOST_NAMED]]
        sentences.append(
            f"Of the {plural(weak.n_carried, 'label')} in these documents, {len(weak.never)} "
            f"{'is' if len(weak.never) == 1 else 'are'} never predicted"
            f"{', such as ' if len(weak.never) > len(named) else ': '}{', '.join(named)}."
        )
    return sentences


def _micro(scores: Scores) -> str:
    """Micro-F1 with its precision and recall."""
    f1, precision, recall = (
        f"{100 * value:.2f}"
        for value in (scores.micro_f1, scores.micro_precision, scores.micro_recall)
    )
    return f"{f1} (precision {precision}, recall {recall})"


def _macro(scores: Scores) -> str:
    return f"{100 * scores.macro_f1:.2f}"


def _sizes(evaluation: Evaluation) -> str:
    (_, overall), *groups = evaluation.groups().items()
    sizes = ", ".join(f"{scores.n_labels} {group}" for group, scores in groups)
    return (
        f"{plural(overall.n_documents, 'evaluated document')}, "
        f"{plural(overall.n_labels, 'label')}: {sizes}."
    )


def _settings(by_run: Mapping[str, Mapping[str, str]]) -> tuple[list[str], list[Table]]:
    """A sentence with the settings that all runs share, and a table of those that differ."""
    names = dict.fromkeys(name for settings in by_run.values() for name in settings)
    columns = {
        name: [settings.get(name, DEFAULT) for settings in by_run.values()] for name in names
    }
    shared = [f"{name}: {v[0]}" for name, v in columns.items() if len(set(v)) == 1]
    different = {name: values for name, values in columns.items() if len(set(values)) > 1}
    sentence = f"{'All runs' if len(by_run) > 1 else 'Settings'}: {'; '.join(shared)}."
    rows = list(zip(by_run, *different.values(), strict=True))
    table = Table("Settings that differ", ("", *different), rows, n_names=1 + len(different))
    return [sentence] if shared else [], [table] if different else []
