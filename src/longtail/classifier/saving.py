"""Save a fitted classifier: safetensors, JSON, tokenizer files and a model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from markupsafe import Markup
from safetensors.numpy import save_file
from scipy.special import expit

from longtail import __version__
from longtail.classifier.choice import MAX_LABELS
from longtail.classifier.held_out import FEW
from longtail.classifier.plan import Plan
from longtail.labels import label_groups
from longtail.losses import LOSSES
from longtail.models import MODELS, ModelSettings
from longtail.report.jinja import render_markdown
from longtail.runs.model import CARD_FILE, CONFIG_FILE, manifest, seal
from longtail.settings import field_names
from longtail.thresholds import Thresholds

if TYPE_CHECKING:
    from longtail.classifier.estimator import LongTailClassifier

FORMAT = 7
"""Version of the folder's format; increased when older versions of longtail cannot read it."""
WEIGHTS_AND_TOKENIZER = (
    "*.safetensors", "*.model", "tokenizer*", "vocab*", "merges*", "special_tokens_map.json",
    "added_tokens.json", "chat_template*",
)  # fmt: skip
"""Files of an encoder besides its configuration."""
HASHES_FILE = "documents.safetensors"
"""Hashes of the documents that the model was trained on."""
COUNTS_FILE = "held_out.safetensors"
"""Held-out counts of every label; missing if too few documents were held out."""
N_RAREST = 10


def write_files(
    classifier: LongTailClassifier,
    folder: Path,
    name: str | None = None,
    run: Mapping[str, Any] | None = None,
    *,
    include_hashes: bool = True,
) -> None:
    """Write the files of a classifier; other files in the folder are kept.

    `name`: the model's name in the card. `run`: key and settings of the training run.
    """
    stats, ensemble = classifier.label_stats_, classifier.ensemble_
    ensemble.save(folder)
    hashes = classifier.document_hashes_ if include_hashes else None
    if hashes is not None:
        save_file({"hashes": hashes}, folder / HASHES_FILE)
    counts = classifier.facts_.label_counts
    if counts is not None:
        tensors = {name: np.array(part, np.int32) for name, part in counts._asdict().items()}
        save_file(tensors, folder / COUNTS_FILE)
    # Line endings must be the same on all systems, as the file has a checksum.
    card = model_card(classifier, name, has_hashes=hashes is not None)
    (folder / CARD_FILE).write_text(card, "utf-8", newline="\n")
    config = {
        "format": FORMAT,
        "longtail_version": __version__,
        "saved": datetime.now(UTC).date().isoformat(),
        "arguments": {
            **classifier._params_,
            "min_labels": classifier.thresholds_.min_labels,
            "max_labels": classifier.thresholds_.max_labels,
        },
        "plans": [plan.to_dict() for plan in classifier.plans_],
        "label_names": classifier.classes_.tolist(),
        "label_counts": stats.label_counts.tolist(),
        "n_samples": stats.n_samples,
        "sizes": list(ensemble.sizes),
        "weights": list(ensemble.weights),
        "intercept": ensemble.intercept,
        "unknown": [np.flatnonzero(~row).tolist() for row in ensemble.known],
        "thresholds": classifier.thresholds_.to_dict(),
        "facts": classifier.facts_.to_dict(),
        "run": run,
        "engine": ensemble.models[0].engine,
        "files": manifest(folder),
    }
    text = json.dumps(seal(config), indent=2, ensure_ascii=False)
    (folder / CONFIG_FILE).write_text(text, "utf-8", newline="\n")


def model_card(
    classifier: LongTailClassifier,
    name: str | None = None,
    *,
    has_hashes: bool = True,
    for_transformers: bool = False,
) -> str:
    """The model card as Markdown.

    `name`: the folder or repository of the model. `for_transformers`: exported to transformers.

    Label names and settings come from data and from users: the template escapes all of them.
    """
    counts, facts = classifier.label_stats_.label_counts, classifier.facts_
    rarest = np.argsort(counts, kind="stable")
    models = classifier.ensemble_.models
    # A Python string on one line, without the backticks that would end the code block.
    quoted = repr((name or "path/to/this/folder").replace("`", "'")).replace("\n", " ")
    return render_markdown(
        "card.md.j2",
        version=__version__,
        front_matter=Markup(
            _front_matter(facts.base_model, "transformers" if for_transformers else "longtail")
        ),
        members=_members(classifier),
        folds=classifier.plans_[0].folds,
        thresholds=classifier.thresholds_,
        shared=_shared(classifier.thresholds_),
        name=Markup(quoted),
        for_transformers=for_transformers,
        is_exported=models[0].engine == "onnx",
        is_int8=any(model.is_int8 for model in models),
        # One encoder with its own head, which plain transformers can load.
        pipeline=len(models) == 1 and models[0].works_in_pipeline,
        stats=classifier.label_stats_,
        facts=facts,
        compared_labels=MAX_LABELS,
        hashes_file=HASHES_FILE if has_hashes else None,
        per_document=counts.sum() / classifier.label_stats_.n_samples,
        groups={name: counts[mask] for name, mask in label_groups(counts).items()},
        rarest=[(classifier.classes_[k], counts[k]) for k in rarest[counts[rarest] > 0][:N_RAREST]],
        few=int(((counts > 0) & (counts < FEW)).sum()),
        few_limit=FEW,
        n_unseen=int((counts == 0).sum()),
    )


def _front_matter(base_model: str | None, library: str) -> str:
    """Metadata for the Hugging Face hub; language and dataset are unknown and left out."""
    facts: dict[str, Any] = {
        "library_name": library,
        "pipeline_tag": "text-classification",
        "tags": ["longtail", "multi-label", "long-tail", "text-classification"],
        **({"base_model": base_model} if base_model else {}),
    }
    return yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)


def _members(classifier: LongTailClassifier) -> list[dict[str, Any]]:
    """Model, loss, settings and weight of every member of the blend."""
    plans, weights = classifier.plans_, classifier.ensemble_.weights
    return [
        {
            "prefix": Markup("" if len(plans) == 1 else f"Member {number}: "),
            "model": plan.kind,
            "title": MODELS[plan.kind].title,
            "loss": plan.loss if MODELS[plan.kind].takes_loss else None,
            "loss_title": LOSSES[plan.loss].title if plan.loss else None,
            "label_texts": plan.label_texts is not None,
            "settings": _settings(plan),
            "weight": f"{weight:.3g}" if len(plans) > 1 else None,
        }
        for number, (plan, weight) in enumerate(zip(plans, weights, strict=True), start=1)
    ]


def _settings(plan: Plan) -> list[tuple[str, str, str]]:
    """Name, help and value of each setting; a local path is reduced to the folder's name."""
    rows = []
    for item in fields(plan.model):
        if item.name not in field_names(ModelSettings):
            value = str(getattr(plan.model, item.name))
            value = Path(value).name if Path(value).is_absolute() else value
            rows.append((item.name, item.metadata.get("help", "").rstrip("."), value))
    return rows


def _shared(thresholds: Thresholds) -> str | None:
    """The threshold as a probability, if all labels that can be predicted share one."""
    values = np.unique(thresholds.values[np.isfinite(thresholds.values)])
    return f"{expit(values[0]):.4f}" if len(values) == 1 else None
