"""Checks and messages of `longtail train`: wrong plans, expected F1, the recipe to try next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from longtail.cli.show import print_notes, print_table
from longtail.errors import printable

if TYPE_CHECKING:
    from longtail.classifier import LongTailClassifier
    from longtail.classifier.plan import Plan

BEST = "best"
SLOW = (
    "Fine-tuning an encoder without a GPU may take hours, with many documents days. "
    "Linear models, the default, take minutes: leave out --model and --recipe."
)


def check_plans(plans: Sequence[Plan]) -> None:
    """Raise for invalid devices, metrics and encoders before data is read; warn if slow."""
    import scipy.sparse as sp

    from longtail.classifier.crossfit import score_by_name
    from longtail.labels import LabelStats
    from longtail.models.encoder import check_source
    from longtail.training.devices import device_of
    from longtail.training.processes import check_device

    for plan in plans:
        device, training = device_of(plan.training.device), plan.training
        if plan.model.trains_in_steps:
            check_device(device)
        if training.early_stopping_patience:
            stats = LabelStats.from_counts([1, 1], n_samples=2)
            score_by_name(training.early_stopping_metric, sp.eye(2, format="csr"), stats)
        encoder = getattr(plan.model, "encoder", None)
        if encoder is not None:
            check_source(encoder)
            if device.type == "cpu":
                print_notes([SLOW])


def print_result(classifier: LongTailClassifier) -> None:
    """Print the chosen settings and the expected F1 by label frequency."""
    from longtail.classifier.choice import describe
    from longtail.report import group_table

    facts = classifier.facts_
    if facts.trials:
        chosen = " and ".join(describe(plan) for plan in classifier.plans_)
        typer.echo(f"Chosen of {len(facts.trials)} settings on held-out documents: {chosen}.")
    if facts.cross_validated is not None:
        how = "out of fold" if facts.cross_fitted else "held out"
        table = group_table({"expected": facts.cross_validated})
        print_table(table, f"micro-F1 / macro-F1 to expect: {facts.n_held_out:,} documents, {how}")
    for line in facts.sentences():
        typer.echo(printable(line))


def suggest_best(classifier: Any) -> None:
    """Suggest the best recipe where a GPU and its encoder are available."""
    import torch

    from longtail.models.encoder import is_at_hand
    from longtail.reproduce import find_recipe, read_recipe

    if not torch.cuda.is_available():
        return
    recipe = read_recipe(find_recipe(BEST))
    plans = type(classifier).from_settings(recipe).plans(classifier.label_stats_.n_samples)
    encoder = getattr(plans[0].model, "encoder", "")
    if is_at_hand(encoder):
        typer.echo(
            f"A GPU and {encoder} are available: --recipe {BEST} would train {plans[0].folds} "
            f"encoders for {plans[0].training.epochs} epochs and blend them with linear models."
        )
