"""scikit-learn's manners: clone, Pipeline, cross-validation, searches, copies, threads."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone, is_classifier
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from longtail import LongTailClassifier
from longtail.data import TextData
from longtail.errors import InputError, NotFittedError

from .cases import LABELS, NAMES, TEXTS

MATRIX = MultiLabelBinarizer().fit_transform(LABELS)


@pytest.fixture
def quick(encoder_arguments: dict[str, Any]) -> LongTailClassifier:
    """Not fitted yet, and not to learn much."""
    return LongTailClassifier(**encoder_arguments | {"epochs": 2})


def lower(texts: Any) -> Any:
    return [text.lower() for text in texts]


def test_clone_and_parameters(quick: LongTailClassifier) -> None:
    twin = clone(quick)
    assert twin is not quick and twin.get_params() == quick.get_params()
    assert twin.set_params(loss="cb", folds=3).get_params()["folds"] == 3
    assert (quick.loss, twin.loss) == ("db", "cb")
    with pytest.raises(ValueError, match="colour"):
        twin.set_params(colour=1)
    assert "encoder" in repr(quick)


def test_a_clone_of_a_fitted_one_is_not_fitted(encoder: LongTailClassifier) -> None:
    check_is_fitted(encoder)
    twin = clone(encoder)
    with pytest.raises(NotFittedError, match="Call fit"):
        twin.predict(TEXTS)
    for name in ("predict", "predict_proba", "predict_labels", "top_k", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(twin, name)(TEXTS)
    with pytest.raises(NotFittedError):
        twin.score(TEXTS, LABELS)
    with pytest.raises(NotFittedError):
        twin.save_pretrained("nowhere")
    with pytest.raises(NotFittedError):
        twin.evaluate(TextData.from_lists(TEXTS, LABELS))


def test_tags(quick: LongTailClassifier) -> None:
    tags = get_tags(quick)
    assert is_classifier(quick)
    assert tags.classifier_tags.multi_label and not tags.classifier_tags.multi_class
    assert tags.input_tags.string and not tags.input_tags.two_d_array
    assert tags.target_tags.required and not tags.target_tags.single_output


def test_fit_returns_itself_and_changes_nothing_of_the_callers(quick: LongTailClassifier) -> None:
    texts, labels = list(TEXTS), [list(own) for own in LABELS]
    before = quick.get_params()
    assert quick.fit(texts, labels) is quick
    assert texts == TEXTS and labels == LABELS
    assert quick.get_params() == before
    matrix = sp.csr_matrix(MATRIX)
    kept = matrix.copy()
    quick.fit(np.array(TEXTS), matrix)
    assert matrix.dtype == kept.dtype and (matrix != kept).nnz == 0
    frame = pd.DataFrame(MATRIX, columns=NAMES)
    quick.fit(pd.Series(TEXTS), frame)
    assert frame.equals(pd.DataFrame(MATRIX, columns=NAMES))


def test_the_form_of_the_labels_makes_no_difference(quick: LongTailClassifier) -> None:
    expected = quick.fit(TEXTS, LABELS).decision_function(TEXTS)
    for labels, names in (
        (MATRIX, ["0", "1", "2"]),
        (sp.csc_array(MATRIX), ["0", "1", "2"]),
        (pd.DataFrame(MATRIX.astype(bool), columns=NAMES), NAMES),
    ):
        other = clone(quick).fit(TEXTS, labels)
        assert other.classes_.tolist() == names
        assert np.array_equal(other.decision_function(TEXTS), expected)
        assert other.score(TEXTS, labels) == quick.score(TEXTS, LABELS)
    by_data = clone(quick).fit(TextData.from_lists(TEXTS, LABELS))
    assert np.array_equal(by_data.decision_function(np.array(TEXTS)), expected)


def test_a_second_fit_forgets_the_first(quick: LongTailClassifier) -> None:
    quick.fit(TEXTS, LABELS)
    quick.odd_ = 1
    fresh = clone(quick).fit(TEXTS, [["a"], ["b"]] * 12)
    quick.fit(TEXTS, [["a"], ["b"]] * 12)
    assert quick.classes_.tolist() == ["a", "b"]
    assert np.array_equal(quick.decision_function(TEXTS), fresh.decision_function(TEXTS))
    assert vars(quick).keys() == vars(fresh).keys()


def test_refused_input_leaves_what_was_fitted(quick: LongTailClassifier) -> None:
    expected = quick.fit(TEXTS, LABELS).decision_function(TEXTS)
    for wrong in (["x"] * 24, MATRIX * 2):
        with pytest.raises(InputError):
            quick.fit(TEXTS, wrong)
    with pytest.raises(InputError, match=r"cannot split|at least two"):
        quick.fit(TEXTS[:1], LABELS[:1])
    assert np.array_equal(quick.decision_function(TEXTS), expected)


def test_one_fold_alone_fits_nothing(quick: LongTailClassifier, tmp_path: Path) -> None:
    quick.set_params(folds=2)
    quick.fit(TEXTS, LABELS, folder=tmp_path / "work", only_fold=0)
    with pytest.raises(NotFittedError):
        quick.predict(TEXTS)
    quick.fit(TEXTS, LABELS, folder=tmp_path / "work", resume=True)
    whole = clone(quick).fit(TEXTS, LABELS)
    assert np.array_equal(quick.decision_function(TEXTS), whole.decision_function(TEXTS))


def test_predictions_are_taken_by_scikit_learn(encoder: LongTailClassifier) -> None:
    decided = encoder.predict(TEXTS)
    assert decided.shape == MATRIX.shape and decided.dtype == np.float32
    expected = encoder.score(TEXTS, LABELS)
    for truth in (MATRIX, sp.csr_matrix(MATRIX), MATRIX.astype(bool)):
        assert f1_score(truth, decided, average="micro") == pytest.approx(expected)


def test_in_a_pipeline(quick: LongTailClassifier) -> None:
    upper = [text.upper() for text in TEXTS]
    steps = make_pipeline(FunctionTransformer(lower), quick)
    steps.fit(upper, MATRIX)
    alone = clone(quick).fit(TEXTS, MATRIX)
    assert np.array_equal(steps.decision_function(upper), alone.decision_function(TEXTS))
    assert np.array_equal(steps.predict_proba(upper), alone.predict_proba(TEXTS))
    assert steps.score(upper, MATRIX) == alone.score(TEXTS, MATRIX)
    assert clone(steps).set_params(longtailclassifier__loss="bce")[-1].loss == "bce"


def test_cross_validation(quick: LongTailClassifier) -> None:
    for scoring in (None, "f1_micro", "f1_macro", "average_precision"):
        found = cross_val_score(quick, TEXTS, MATRIX, cv=2, scoring=scoring, error_score="raise")
        assert found.shape == (2,) and ((found >= 0) & (found <= 1)).all()
    frame = cross_val_score(quick, pd.Series(TEXTS), pd.DataFrame(MATRIX, columns=NAMES), cv=2)
    dense = cross_val_score(quick, np.array(TEXTS), MATRIX, cv=2)
    assert np.array_equal(frame, dense)
    by_fold = cross_val_predict(quick, TEXTS, MATRIX, cv=2)
    assert by_fold.shape == MATRIX.shape
    scores = cross_val_predict(quick, TEXTS, MATRIX, cv=2, method="decision_function")
    assert np.asarray(scores).shape == MATRIX.shape


def test_searches(quick: LongTailClassifier) -> None:
    settings = quick.model_settings
    assert settings is not None
    grid = {
        "loss": ["bce", "db"],
        "model_settings": [{**settings, "pooling": pooling} for pooling in ("mean", "cls")],
    }
    search = GridSearchCV(quick, grid, cv=2, error_score="raise").fit(TEXTS, MATRIX)
    assert search.best_params_["loss"] in ("bce", "db")
    assert search.best_estimator_.predict(TEXTS).shape == MATRIX.shape
    assert quick.model_settings is settings
    wide = GridSearchCV(quick, {"epochs": np.arange(1, 3)}, cv=2, error_score="raise")
    # Searches take sparse labels, which cross_val_score itself refuses.
    assert wide.fit(TEXTS, sp.csr_matrix(MATRIX)).best_params_["epochs"] in (1, 2)


def test_a_search_in_threads(quick: LongTailClassifier) -> None:
    with joblib.parallel_backend("threading", n_jobs=2):
        search = GridSearchCV(quick, {"loss": ["bce", "fl"]}, cv=2, error_score="raise")
        search.fit(TEXTS, MATRIX)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("name", ["encoder", "cross_fitted"])
def test_copies_answer_alike(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    fitted: LongTailClassifier = request.getfixturevalue(name)
    expected = fitted.decision_function(TEXTS)
    joblib.dump(fitted, tmp_path / "fitted.joblib")
    for twin in (
        copy.deepcopy(fitted),
        copy.copy(fitted),
        pickle.loads(pickle.dumps(fitted)),
        joblib.load(tmp_path / "fitted.joblib"),
    ):
        assert np.array_equal(twin.decision_function(TEXTS), expected)
        assert twin.predict_labels(TEXTS) == fitted.predict_labels(TEXTS)
        twin.save_pretrained(tmp_path / "run")
    # A deep copy that learns something else leaves the original alone.
    copy.deepcopy(fitted).set_params(epochs=1).fit(TEXTS, [["x"], ["y"]] * 12)
    assert np.array_equal(fitted.decision_function(TEXTS), expected)


def test_fitting_in_a_thread(quick: LongTailClassifier) -> None:
    expected = clone(quick).fit(TEXTS, LABELS).decision_function(TEXTS)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            quick.fit(TEXTS, LABELS)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == []
    assert np.array_equal(quick.decision_function(TEXTS), expected)


def test_the_same_seed_and_the_callers_own_random_numbers(quick: LongTailClassifier) -> None:
    torch.manual_seed(7)
    np.random.seed(7)
    expected, expected_too = torch.rand(3), np.random.rand(3)
    threads = torch.get_num_threads()
    torch.manual_seed(7)
    np.random.seed(7)
    first = clone(quick).fit(TEXTS, LABELS).decision_function(TEXTS)
    assert torch.equal(torch.rand(3), expected)
    assert np.array_equal(np.random.rand(3), expected_too)
    assert torch.get_num_threads() == threads
    again = clone(quick).fit(TEXTS, LABELS).decision_function(TEXTS)
    other = clone(quick).set_params(seed=1).fit(TEXTS, LABELS).decision_function(TEXTS)
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_the_seed_also_chooses_the_validation_part(quick: LongTailClassifier) -> None:
    held = set()
    for seed in range(4):
        found = clone(quick).set_params(seed=seed, epochs=1).fit(TEXTS, LABELS).held_out_
        assert found is not None and found.y_true is not None
        held.add(found.y_true.toarray().tobytes())
    assert len(held) > 1


def test_labels_that_only_the_test_part_has(quick: LongTailClassifier) -> None:
    """In cross-validation a rare label may be in no training fold: missed, not an error."""
    quick.fit(TEXTS, LABELS)
    score = quick.score(TEXTS, LABELS)
    more = quick.score(TEXTS, [[*own, "unseen"] for own in LABELS])
    assert 0 < more < score
    frame = pd.DataFrame(MATRIX, columns=NAMES).assign(unseen=1)
    assert quick.score(TEXTS, frame) == pytest.approx(more)
    padded = np.hstack([quick.predict(TEXTS).toarray(), np.zeros((24, 1))])
    assert more == pytest.approx(f1_score(frame, padded, average="micro"))
    assert quick.score([], np.zeros((0, 3))) == 0.0
