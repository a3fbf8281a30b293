"""A run knows what its scores are: the same figures from logits and from probabilities."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.evaluation import Evaluation, evaluate
from longtail.labels import LabelStats
from longtail.report import Run, build_page
from longtail.report.drawing import draw_figures
from longtail.thresholds import Thresholds
from longtail.thresholds.scales import sigmoid

from .made import runs

RNG = np.random.RandomState(1)
TRUTH = (RNG.rand(50, 6) < 0.3).astype(float)
LOGITS = 2 * TRUTH - 1 + RNG.randn(50, 6)
STATS = LabelStats.from_counts([30, 20, 10, 5, 4, 1], 40)


def judged(scores: Any, **rule: Any) -> Evaluation:
    at = Thresholds(np.linspace(-0.2, 0.3, 6), **rule)
    return evaluate(TRUTH, scores, at, STATS, n_resamples=5)


def forms(scores: np.ndarray) -> list[Any]:
    rows = np.ones(scores.shape, dtype=bool).nonzero()
    return [
        scores,
        np.ma.masked_array(scores),
        sp.csr_matrix((scores[rows], rows), scores.shape),
    ]


@pytest.mark.parametrize(
    ("form", "rule"), [(0, {}), (1, {"top_k": 1}), (2, {"at_least_one": True})], ids=str
)
def test_probabilities_draw_what_their_logits_draw(form: int, rule: dict[str, Any]) -> None:
    logits, probability = forms(LOGITS)[form], forms(sigmoid(LOGITS))[form]
    of_logits = judged(logits, **rule)
    of_probability = judged(probability, scale="probability", **rule)
    expected = drawn(Run(of_logits, scores=logits))
    assert "f1-by-shift" in expected and "precision-recall" in expected
    for run in (
        Run(of_probability, scores=probability),
        Run(of_logits, scores=probability, scale="probability"),
        Run(of_probability, scores=logits, scale="logit"),
    ):
        assert drawn(run) == expected


def drawn(run: Run) -> dict[str, list[float]]:
    """The numbers of every figure, rounded to what can be seen."""
    found = draw_figures({"run": run})
    return {
        name: [round(float(n), 1) for n in re.findall(r"-?\d+\.\d+", svg)]
        for name, svg in found.items()
    }


def test_errors_of_documents_are_on_the_scale_of_logits() -> None:
    pages = [
        build_page({"run": Run(judged(scores, scale=scale), scores=scores)})
        for scores, scale in ((LOGITS, "logit"), (sigmoid(LOGITS), "probability"))
    ]
    one, two = (re.findall(r"error (\d+\.\d+)", page) for page in pages)
    assert one == two and len(one) == 8


def test_scores_on_another_scale_are_not_taken_in_silence() -> None:
    found = judged(LOGITS)
    with pytest.raises(InputError, match=r"as logits these lead to other decisions \(\d+ differ\)"):
        Run(found, scores=sigmoid(LOGITS))
    with pytest.raises(InputError, match="probabilities must lie in"):
        Run(found, scores=LOGITS, scale="probability")
    with pytest.raises(InputError, match="scale must be one of"):
        Run(found, scores=LOGITS, scale="odds")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected the scores that were judged"):
        Run(found, scores=-LOGITS)
    with pytest.raises(InputError, match="finite"):
        Run(found, scores=np.full((50, 6), np.nan))
    Run(judged(LOGITS, top_k=1, at_least_one=True), scores=LOGITS)


def test_a_run_fits_its_evaluation() -> None:
    run = runs()["bce"]
    with pytest.raises(InputError, match=r"\(60, 9\)"):
        Run(run.evaluation, scores=np.zeros((60, 8)))
    with pytest.raises(InputError, match=r"\(60, 9\), got list"):
        Run(run.evaluation, scores=[[0.0] * 9] * 60)
    assert run.data is not None
    with pytest.raises(InputError, match="60 judged documents, got 3"):
        Run(run.evaluation, run.data[:3])
    assert Run(run.evaluation).logits is None
