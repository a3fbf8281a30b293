"""`svm`: the paper's baseline, equal to scikit-learn's, with defined odd labels."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from longtail.errors import InputError
from longtail.models.svm import SvmModel, SvmSettings

TEXTS = ["copper rose", "gold fell", "copper and gold", "wheat", "wheat and corn", "corn fell"]
ODD = ["", "x", "gold " * 200_000, "🙂", "ذهب", "gold\x00", "and the", "zzzz"]
# Metal, corn (seldom, so that balancing shows), on none, on all.
LABELS = np.array([[1, 0, 0, 1]] * 3 + [[0, 0, 0, 1]] + [[0, 1, 0, 1]] * 2, dtype=np.float32)


def fitted(class_weight: Literal["balanced"] | None = None) -> SvmModel:
    model = SvmModel(SvmSettings(min_df=1, class_weight=class_weight))
    model.fit(TEXTS, sp.csr_matrix(LABELS))
    return model


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_equal_to_scikit_learn(class_weight: Literal["balanced"] | None) -> None:
    features = TfidfVectorizer(sublinear_tf=True)
    machine = LinearSVC(C=1, class_weight=class_weight, random_state=0)
    machine.fit(features.fit_transform(TEXTS), LABELS[:, 1])
    expected = machine.decision_function(features.transform(TEXTS))
    found = fitted(class_weight).scores(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[:, 1], expected, atol=1e-3)


def test_a_label_on_none_scores_minus_one_and_on_all_one() -> None:
    found = fitted().scores(TEXTS + ODD)
    assert (found[:, 2] == -1).all() and (found[:, 3] == 1).all()


def test_odd_texts_have_finite_scores() -> None:
    assert np.isfinite(fitted().scores(ODD)).all()


def test_same_again_and_after_loading(tmp_path: Path) -> None:
    model = fitted()
    assert np.array_equal(model.scores(TEXTS), fitted().scores(TEXTS))
    model.save(tmp_path)
    again = SvmModel(model.settings)
    again.load(tmp_path, LABELS.shape[1])
    assert model.scale == "margin"
    assert np.array_equal(model.scores(TEXTS + ODD), again.scores(TEXTS + ODD))
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize("wrong", [{"C": 0}, {"class_weight": "equal"}, {"ngrams": 0}])
def test_wrong_settings_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        SvmSettings(**wrong)  # type: ignore[arg-type]
