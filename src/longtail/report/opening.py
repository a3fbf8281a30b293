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
    """The text and tables above the tables of figures."""

    verdict: list[str]
    facts: list[str]
    """The data, and the settings that all runs share."""
    settings: list[Table]
    """The settings that differ, one column each; no table if there are none."""

    @property
    def paragraphs(self) -> list[str]:
        """Verdict and facts."""
        return ["\n".join(self.verdict), *self.facts]


def opening(
    runs: Mapping[str, Run], comparisons: Mapping[str, Comparison], source: str | None = None
) -> Opening:
    """The opening of a report; `source`: the name of the data, and which part was evaluated."""
    evaluations = {name: run.evaluation for name, run in runs.items()}
    if len(runs) == 1:
        ((name, evaluation),) = evaluations.items()
        verdict = _alone(name, evaluation)
    else:
        two = leads(evaluations, comparisons)
        verdict = [_headline(two), *map(_sentence, two)]
    sizes = by_text((_sizes(each), name) for name, each in evaluations.items())
    facts = [f"{', '.join(n)}: {text}" if len(sizes) > 1 else text for text, n in sizes.items()]
    if source is not None:
        facts = [f"Data: {source}.", *facts] if len(facts) > 1 else [f"Data: {source}. {facts[0]}"]
    shared, table = _settings({name: run.settings for name, run in runs.items()})
    return Opening(verdict, [*facts, *shared], table)


def _headline(two: list[Lead]) -> str:
    """Whether any run is better."""
    wins: dict[tuple[str, str], list[str]] = {}
    for lead in two:
        if lead.is_significant:
            wins.setdefault((lead.best, lead.second), []).append(heading(lead.measure))
    if not wins:
        for lead in two:
            if lead.why_not is not None:
                return f"{lead.best} and {lead.second} cannot be compared: {lead.why_not}"
        return "No run is significantly better over all labels."
    won = [f"{a} is significantly better than {b} in {listed(m)}" for (a, b), m in wins.items()]
    return f"{'; '.join(won)}."


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


def _alone(name: str, evaluation: Evaluation) -> list[str]:
    """The figures of a single run, and its weakest group."""
    overall = evaluation.overall
    if overall.is_empty:
        return [f"{name}: there is nothing to evaluate."]
    sentences = [f"{name} reaches micro-F1 {_micro(overall)} and macro-F1 {_macro(overall)}."]
    weak = weakness(evaluation)
    if weak.group is not None:
        of_group, of_head = evaluation.groups()[weak.group], evaluation.head
        beside = weak.group != "head" and not of_head.is_empty
        sentences.append(
            f"It is weakest on the {weak.group} labels: macro-F1 {_macro(of_group)}"
            + (f" (head: {_macro(of_head)})" if beside else "")
            + f", micro-F1 {_micro(of_group)}."
        )
    if weak.never:
        named = [f"{one_line(each.label)} ({each.documents})" for each in weak.never[:MOST_NAMED]]
        sentences.append(
            f"Of the {plural(weak.n_carried, 'label')} that these documents carry, "
            f"{len(weak.never)} {'is' if len(weak.never) == 1 else 'are'} never predicted, such as "
            f"{', '.join(named)}."
        )
    return sentences


def _micro(scores: Scores) -> str:
    """Micro-F1 with the precision and recall behind it."""
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
    """A line of the settings that all runs share, and a table of those that differ."""
    names = dict.fromkeys(name for settings in by_run.values() for name in settings)
    columns = {
        name: [settings.get(name, DEFAULT) for settings in by_run.values()] for name in names
    }
    shared = [f"{name}: {v[0]}" for name, v in columns.items() if len(set(v)) == 1]
    different = {name: values for name, values in columns.items() if len(set(values)) > 1}
    whose = "All runs: " if len(by_run) > 1 else "Settings: "
    line = [f"{whose}{'; '.join(shared)}."] if shared else []
    if not different:
        return line, []
    rows = list(zip(by_run, *different.values(), strict=True))
    return line, [Table("Settings that differ", ("", *different), rows, n_names=1 + len(different))]
