"""The model card, README.md: what the model is, how to use it, its training data and results.

Label names and settings come from data and from users: the template escapes all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from markupsafe import Markup
from scipy.special import expit

from longtail import __version__
from longtail.classifier.plan import Plan
from longtail.labels import GROUP_NAMES, label_groups
from longtail.losses import LOSSES
from longtail.models import MODELS, ModelSettings
from longtail.report.jinja import render_markdown
from longtail.settings import field_names
from longtail.thresholds import Thresholds

if TYPE_CHECKING:
    from longtail.classifier.estimator import LongTailClassifier

N_RAREST = 10
FEW = 10


def model_card(classifier: LongTailClassifier, name: str | None = None) -> str:
    """The card as Markdown; `name`: the folder or the repository of the model."""
    counts, facts = classifier.label_stats_.label_counts, classifier.facts_
    rarest = np.argsort(counts, kind="stable")
    models = classifier.ensemble_.models
    return render_markdown(
        "card.md.j2",
        version=__version__,
        front_matter=Markup(_front_matter(facts.base_model)),
        members=_members(classifier),
        folds=classifier.plans_[0].folds,
        thresholds=classifier.thresholds_,
        shared=_shared(classifier.thresholds_),
        name=Markup(_quoted(name or "path/to/this/folder")),
        # One encoder with its own head, which plain transformers can load.
        pipeline=len(models) == 1 and models[0].works_in_pipeline,
        stats=classifier.label_stats_,
        facts=facts,
        per_document=counts.sum() / classifier.label_stats_.n_samples,
        groups={name: counts[mask] for name, mask in label_groups(counts).items()},
        rarest=[(classifier.classes_[k], counts[k]) for k in rarest[counts[rarest] > 0][:N_RAREST]],
        results={name: facts.held_out[name] for name in ("all", *GROUP_NAMES)},
        few=int(((counts > 0) & (counts < FEW)).sum()),
        few_limit=FEW,
        n_unseen=int((counts == 0).sum()),
        n_unknown=int((~classifier.ensemble_.known.any(axis=0)).sum()),
    )


def _front_matter(base_model: str | None) -> str:
    """What the Hugging Face hub reads. Language and data are not known here, and left out."""
    facts: dict[str, Any] = {
        "library_name": "longtail",
        "pipeline_tag": "text-classification",
        "tags": ["longtail", "multi-label", "long-tail", "text-classification"],
        **({"base_model": base_model} if base_model else {}),
    }
    return yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)


def _members(classifier: LongTailClassifier) -> list[dict[str, Any]]:
    """Model, loss, settings and weight of every member."""
    plans, weights = classifier.plans_, classifier.ensemble_.weights
    return [
        {
            "prefix": Markup("" if len(plans) == 1 else f"Member {number}: "),
            "model": plan.kind,
            "title": MODELS[plan.kind].title,
            "loss": plan.loss if MODELS[plan.kind].takes_loss else None,
            "loss_title": LOSSES[plan.loss].title,
            "label_texts": plan.label_texts is not None,
            "settings": _settings(plan),
            "weight": f"{weight:.3g}" if len(plans) > 1 else None,
        }
        for number, (plan, weight) in enumerate(zip(plans, weights, strict=True), start=1)
    ]


def _settings(plan: Plan) -> dict[str, str]:
    """The settings of the model, with the names of local folders instead of their paths."""
    shown = {key: str(value) for key, value in plan.model.to_dict().items()}
    return {
        key: Path(value).name if Path(value).is_absolute() else value
        for key, value in shown.items()
        if key not in field_names(ModelSettings)
    }


def _shared(thresholds: Thresholds) -> str | None:
    """The probability from which any label applies, where all that are predicted share one."""
    values = np.unique(thresholds.values[np.isfinite(thresholds.values)])
    return f"{expit(values[0]):.4f}" if len(values) == 1 else None


def _quoted(name: str) -> str:
    """A Python string on one line, without what would end the code block."""
    return repr(name.replace("`", "'")).replace("\n", " ")
