"""The model card, README.md: what the model is, how to use it, what it learned from, how good.

Label names and settings come from data and from users: nothing of them is taken for markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from longtail import __version__
from longtail.classifier.plan import Plan
from longtail.evaluation import Scores
from longtail.labels import GROUP_NAMES, label_groups
from longtail.losses import LOSSES
from longtail.models import MODELS, ModelSettings
from longtail.report.markdown import escape_markdown
from longtail.settings import field_names
from longtail.thresholds import Thresholds

if TYPE_CHECKING:
    from longtail.classifier.estimator import LongTailClassifier

NONE = "\N{EN DASH}"
N_RAREST = 10
FEW = 10
TOO_GOOD = (
    "The thresholds were chosen on these same documents, so the figures of this table are somewhat "
    "too good:\n"
)
USE = (
    "For suggesting labels of texts like those that it was trained on: of the same kind, in the "
    "same language. It was not tested on any other.\n"
)
NEW = (
    "- It knows the labels of its training documents and no others: a text about something new "
    "gets the wrong label, or none."
)
PEOPLE = (
    "- It repeats what the annotators of its training documents did, errors included. Where a "
    "label decides about people, let a person decide.\n"
)


def model_card(classifier: LongTailClassifier, name: str | None = None) -> str:
    """The card as Markdown; `name`: where the model is to be found, a folder or a repository."""
    sections = [
        _front_matter(classifier),
        "# Text classification with several labels per document\n",
        _what_it_is(classifier),
        _how_to_use(classifier, name or "path/to/this/folder"),
        _training_data(classifier),
        _results(classifier),
        _limits(classifier),
        f"---\n\nWritten by longtail {__version__}.\n",
    ]
    return "\n".join(sections)


def _front_matter(classifier: LongTailClassifier) -> str:
    """What the Hugging Face hub reads. Language and data are not known here, and left out."""
    facts: dict[str, Any] = {
        "library_name": "longtail",
        "pipeline_tag": "text-classification",
        "tags": ["longtail", "multi-label", "long-tail", "text-classification"],
    }
    if classifier.facts_.base_model is not None:
        facts["base_model"] = classifier.facts_.base_model
    return f"---\n{yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)}---\n"


def _what_it_is(classifier: LongTailClassifier) -> str:
    plans, thresholds = classifier.plans_, classifier.thresholds_
    weights, folds = classifier.ensemble_.weights, plans[0].folds
    rows = []
    for number, (plan, weight) in enumerate(zip(plans, weights, strict=True)):
        rows += _member_rows(plan, "" if len(plans) == 1 else f"Member {number + 1}: ")
        if len(plans) > 1:
            rows.append((f"Member {number + 1}: weight", f"{weight:.3g}, by held-out documents"))
    if folds > 1:
        each = "" if len(plans) == 1 else " of each member"
        rows.append(("Folds", f"{folds} models{each}, each trained without a fold; mean of scores"))
    else:
        rows.append(("Folds", "one model, and a validation part for the thresholds"))
    how = "one for each label" if _shared(thresholds) is None else "one for all labels"
    method, objective = escape_markdown(thresholds.method), escape_markdown(thresholds.objective)
    rows.append(("Thresholds", f"{how}, by the method {method}, for {objective} F1"))
    if thresholds.top_k is not None:
        rows.append(("Labels per text", f"at most {thresholds.top_k}"))
    if thresholds.at_least_one:
        rows.append(("Without any label", "the nearest to its threshold is given"))
    return "## What it is\n\n" + _table(("", ""), rows)


def _member_rows(plan: Plan, prefix: str) -> list[tuple[str, str]]:
    """Model, loss and settings of one member."""
    kind = MODELS[plan.kind]
    rows = [(f"{prefix}Model", f"`{plan.kind}`: {kind.title}")]
    if kind.takes_loss:
        title = escape_markdown(LOSSES[plan.loss].title)
        rows.append((f"{prefix}Loss", f"`{plan.loss}`: {title}"))
    if plan.label_texts is not None:
        rows.append((f"{prefix}Texts of labels", "names or descriptions trained rare labels too"))
    overrides = field_names(ModelSettings)
    for key, value in plan.model.to_dict().items():
        if key in overrides:
            continue
        is_path = isinstance(value, str) and Path(value).is_absolute()
        shown = Path(value).name if is_path else value
        rows.append((prefix + escape_markdown(key), escape_markdown(str(shown))))
    return rows


def _how_to_use(classifier: LongTailClassifier, name: str) -> str:
    lines = [
        "## How to use it\n",
        "```python",
        "from longtail import LongTailClassifier",
        "",
        f"classifier = LongTailClassifier.from_pretrained({_quoted(name)})",
        'classifier.predict_labels(["a text", "another text"])',
        'classifier.top_k(["a text"], k=5)',
        "```\n",
    ]
    if works_in_pipeline(classifier):
        lines += [
            "Without longtail, by transformers alone:\n",
            "```python",
            "from transformers import pipeline",
            "",
            f'classify = pipeline("text-classification", model={_quoted(name)}, top_k=None)',
            'classify("a text")  # every label with its probability',
            "```\n",
        ]
        value = _shared(classifier.thresholds_)
        if value is not None:
            probability = 1 / (1 + np.exp(-value))
            lines.append(f"A label applies where its probability is at least {probability:.4f}.\n")
        else:
            lines.append("The threshold of each label, as a logit, is in `longtail.json`.\n")
    return "\n".join(lines)


def _shared(thresholds: Thresholds) -> float | None:
    """The threshold of all labels that are ever predicted, where they share one."""
    values = np.unique(thresholds.values[np.isfinite(thresholds.values)])
    return float(values[0]) if len(values) == 1 else None


def works_in_pipeline(classifier: LongTailClassifier) -> bool:
    """Whether plain transformers can load the folder: one encoder with its own head."""
    models = classifier.ensemble_.models
    return len(models) == 1 and models[0].works_in_pipeline


def _training_data(classifier: LongTailClassifier) -> str:
    stats, facts = classifier.label_stats_, classifier.facts_
    counts = stats.label_counts
    per_document = counts.sum() / stats.n_samples
    rows = [
        ("Documents", f"{stats.n_samples:,}"),
        ("without labels", f"{facts.without_labels:,}"),
        ("Labels", f"{stats.n_labels:,}"),
        ("without a document", f"{int((counts == 0).sum()):,}"),
        ("Labels per document", f"{per_document:.2f} on average, at most {facts.most_labels}"),
    ]
    if facts.n_validation:
        rows.insert(1, ("and of the validation part", f"{facts.n_validation:,}, not counted below"))
    rarest = np.argsort(counts, kind="stable")
    rarest = rarest[counts[rarest] > 0][:N_RAREST]
    named = "; ".join(
        f"{escape_markdown(str(classifier.classes_[k]))} ({counts[k]:g})" for k in rarest
    )
    return "\n".join(
        [
            "## Training data\n",
            _table(("", ""), rows),
            "Labels by their number of training documents, in thirds:\n",
            _table(("", "labels", "documents of each"), _group_rows(counts)),
            f"The rarest labels with a training document, and how many they have: {named}.\n",
        ]
    )


def _group_rows(counts: Any) -> Sequence[Sequence[str]]:
    rows = []
    for name, mask in label_groups(counts).items():
        own = counts[mask]
        span = f"{own.min():,.0f} to {own.max():,.0f}" if own.size else NONE
        rows.append((name, f"{own.size:,}", span))
    return rows


def _results(classifier: LongTailClassifier) -> str:
    facts = classifier.facts_
    n_documents = facts.held_out["all"].n_documents
    if facts.cross_fitted:
        source = (
            f"On the {_many(n_documents, 'training document')}, each scored by a model that was "
            "trained without it."
        )
    else:
        source = f"On {_many(n_documents, 'held-out document')}, not used to train the model."
    rows = [_result_row(name, facts.held_out[name]) for name in ("all", *GROUP_NAMES)]
    lines = [
        "## Results\n",
        source,
        TOO_GOOD,
        _table(("labels", "how many", "micro-F1", "macro-F1"), rows),
    ]
    if facts.earned is None:
        lines.append("There were too few documents to say what others would give.\n")
    else:
        lines.append(
            "With thresholds chosen on some of these documents and applied to the others, over all "
            f"labels: **micro-F1 {_percent(facts.earned.micro_f1)}, macro-F1 "
            f"{_percent(facts.earned.macro_f1)}**. That is what to expect of new documents like "
            "these.\n"
        )
        if classifier.thresholds_.top_k is not None or classifier.thresholds_.at_least_one:
            lines.append("(Without the limits on the number of labels per text.)\n")
    return "\n".join(lines)


def _result_row(name: str, scores: Scores) -> Sequence[str]:
    if scores.is_empty:
        return name, str(scores.n_labels), NONE, NONE
    return (
        name,
        f"{scores.n_labels:,}",
        _percent(scores.micro_f1),
        _percent(scores.macro_f1),
    )


def _limits(classifier: LongTailClassifier) -> str:
    counts = classifier.label_stats_.label_counts
    few = int(((counts > 0) & (counts < FEW)).sum())
    none = int((~classifier.ensemble_.known.any(axis=0)).sum())
    lines = ["## Intended use and limits\n", USE, NEW]
    lines.append(
        f"- Of {_many(len(counts), 'label')}, {few:,} had fewer than {FEW} training documents. "
        "What is said of them rests on few examples: see the tail in the table above."
    )
    if none:
        lines.append(f"- {_many(none, 'label')} had no training document: never predicted.")
    lines += ["- Scores are not calibrated: the loss and the thresholds aim at F1.", PEOPLE]
    return "\n".join(lines)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _quoted(name: str) -> str:
    """A Python string on one line, without what would end the code block."""
    return repr(name.replace("`", "'")).replace("\n", " ")
