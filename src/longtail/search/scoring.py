"""Scores settings out of fold: as `fit` would, but always on the same folds.

The folds are made once, and trials with the same encoding share it.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from longtail.classifier import LongTailClassifier
from longtail.classifier.blend import fit_folded
from longtail.classifier.choice import METHOD
from longtail.classifier.crossfit import Fitted, Run
from longtail.classifier.estimator import FIT_LOCK
from longtail.classifier.folds import FoldedData
from longtail.classifier.held_out import choose_thresholds, held_out_f1, threshold_rule
from longtail.classifier.inputs import with_validation
from longtail.classifier.label_texts import note_unknown_labels
from longtail.classifier.plan import Plan, fingerprint, make_plans, plain_params
from longtail.data import TextData
from longtail.errors import InputError
from longtail.thresholds import CrossValidatedF1, Objective
from longtail.thresholds.selection import AUTO

AfterFold = Callable[[int, float], None]
"""Receives a fold and the objective on the documents held out so far; may raise to stop."""


class Scorer:
    """Scores settings by the objective of their thresholds on held-out documents."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        data: TextData,
        validation: TextData | None,
        note: Callable[[str], None],
    ) -> None:
        self.n_documents = len(data)
        params, (plan,) = self._read(settings)
        note_unknown_labels(data, plan.label_texts, note)
        self.data, validation = with_validation(data, validation, params, plan.folds, note)
        self.documents: str = fingerprint((), self.data, validation)["documents"]
        self.folded = FoldedData.split(plan, self.data, validation, None)
        self.objective: Objective = params["objective"]
        self.random_state: int = params["random_state"]
        n_held_out = int((self.folded.fold_of >= 0).sum())
        if n_held_out < 2:
            raise InputError(
                f"a search needs at least two held-out documents, got {n_held_out}. Add documents."
            )

    @property
    def n_folds(self) -> int:
        return self.folded.n_folds

    def _read(self, settings: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Plan, ...]]:
        classifier = LongTailClassifier.from_settings(settings)
        params = plain_params(classifier.get_params(deep=False))
        return params, make_plans(params, self.n_documents)

    def score(
        self, settings: Mapping[str, Any], run: Run, after_fold: AfterFold
    ) -> CrossValidatedF1:
        """Fit settings on all folds; return the F1 that `longtail train` reports for them.

        `after_fold` is not called after the last one, when there is nothing left to stop.
        """
        params, plans = self._read(settings)

        def report(fold: int, so_far: Fitted) -> None:
            if fold + 1 < self.n_folds:
                f1 = held_out_f1(so_far, self._rule(params, so_far))
                after_fold(fold, f1.of(self.objective))

        run = dataclasses.replace(run, after_fold=report)
        as_logits = params["thresholds"] != "grid"
        with FIT_LOCK:
            try:
                fitted = fit_folded(
                    plans, self.folded, run, objective=self.objective, as_logits=as_logits
                )
                assert fitted is not None  # all folds are fitted
                _, facts = choose_thresholds(self.data, fitted, params, None)
            finally:
                fitted = None  # to free the GPU memory of its models
                gc.collect()
                torch.cuda.empty_cache()
        assert facts.cross_validated is not None  # at least two documents are held out
        whole = facts.cross_validated["all"]
        return CrossValidatedF1(whole.micro_f1, whole.macro_f1)

    def _rule(self, params: Mapping[str, Any], so_far: Fitted) -> dict[str, Any]:
        """How thresholds are chosen after some of the folds."""
        trained = self.folded.data.select(np.flatnonzero(self.folded.fold_of >= 0)).stats()
        rule = threshold_rule(params, trained, so_far.ensemble.scale)
        # `auto` compares all methods: too slow for each trial and fold.
        method = METHOD if params["thresholds"] == AUTO else params["thresholds"]
        return {**rule, "method": method}
