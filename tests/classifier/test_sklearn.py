"""As a scikit-learn estimator: clone, Pipeline, cross-validation, searches, copies, threads."""

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

from longtail import Bag, LongTailClassifier, Svm, Training
from longtail.errors import InputError, NotFittedError

from .cases import CPU, DATA, LABELS, NAMES, TEXTS
from .conftest import Make

MATRIX = MultiLabelBinarizer().fit_transform(LABELS)


@pytest.fixture
def quick(make: Make) -> LongTailClassifier:
    """Not fitted yet, and two epochs only."""
    return make(epochs=2)


def lower(texts: Any) -> Any:
    return [text.lower() for text in texts]


def test_clone_and_parameters(quick: LongTailClassifier) -> None:
    twin = clone(quick)
    assert twin is not quick and twin.get_params() == quick.get_params()
    assert twin.model is not quick.model and twin.training is not quick.training
    assert twin.set_params(loss="cb", folds=3).get_params()["folds"] == 3
    assert (quick.loss, twin.loss) == ("db", "cb")
    with pytest.raises(ValueError, match="colour"):
        twin.set_params(colour=1)
    with pytest.raises(ValueError, match="unknown setting of Encoder 'colour'"):
        twin.set_params(model__colour=1)
    assert "Encoder(" in repr(quick) and "epochs=2" in repr(quick)


def test_nested_parameters_change_neither_originals_nor_defaults() -> None:
    bag, training = Bag(C=3.0, training=Training(ema=0.5)), Training(epochs=3)
    first, second = (LongTailClassifier(bag, training=training) for _ in range(2))
    first.set_params(model__C=5.0, model__training__ema=0.9, training__epochs=7)
    assert (first.model, first.training) == (
        Bag(C=5.0, training=Training(ema=0.9)),
        Training(epochs=7),
    )
    assert second.model is bag and bag == Bag(C=3.0, training=Training(ema=0.5))
    assert second.training is training and training == Training(epochs=3)
    # Names and None stand for defaults, which can be set as well.
    plain = LongTailClassifier().set_params(model__C=5.0, training__learning_rate=0.1)
    assert (plain.model, plain.training) == (Bag(C=5.0), Training(learning_rate=0.1))
    other = LongTailClassifier(Bag(), training=training)
    other.set_params(model="svm", model__C=5.0, training=None, training__epochs=2)
    assert (other.model, other.training) == (Svm(C=5.0), Training(epochs=2))
    assert (LongTailClassifier().model, LongTailClassifier().training) == ("bag", None)
    assert (Bag().C, Training().epochs) == (1000.0, None)
    assert other.get_params()["model__C"] == 5.0 and other.get_params()["training__epochs"] == 2
    with pytest.raises(InputError, match="C must be a number above 0, got -1"):
        other.set_params(model__C=-1)
    with pytest.raises(InputError, match="training is None, which has no settings"):
        other.set_params(model__training__epochs=1)
    with pytest.raises(InputError, match="model is a list, which has no model__ parameters"):
        LongTailClassifier(["bag", "svm"]).set_params(model__C=1)


def test_a_clone_of_a_fitted_one_is_not_fitted(encoder: LongTailClassifier) -> None:
    check_is_fitted(encoder)
    twin = clone(encoder)
    for name in ("predict", "predict_proba", "predict_labels", "top_k", "decision_function"):
        with pytest.raises(NotFittedError, match="Call fit"):
            getattr(twin, name)(TEXTS)
    with pytest.raises(NotFittedError):
        twin.score(TEXTS, LABELS)
    with pytest.raises(NotFittedError):
        twin.save_pretrained("nowhere")
    with pytest.raises(NotFittedError):
        twin.evaluate(DATA)
    assert not hasattr(twin, "held_out_")


def test_tags(quick: LongTailClassifier) -> None:
    tags = get_tags(quick)
    assert is_classifier(quick)
    assert tags.classifier_tags.multi_label and not tags.classifier_tags.multi_class
    assert tags.input_tags.string and not tags.input_tags.two_d_array
    assert tags.target_tags.required and not tags.target_tags.single_output


def test_fit_returns_itself_and_changes_no_argument(quick: LongTailClassifier) -> None:
    texts, labels = list(TEXTS), [list(names) for names in LABELS]
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


def test_all_types_of_labels_give_the_same_model(quick: LongTailClassifier) -> None:
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
    by_data = clone(quick).fit(DATA)
    assert np.array_equal(by_data.decision_function(np.array(TEXTS)), expected)


def test_a_second_fit_replaces_the_first(quick: LongTailClassifier) -> None:
    quick.fit(TEXTS, LABELS)
    quick.odd_ = 1
    first = quick.held_out_
    assert first is not None and quick.held_out_ is first
    fresh = clone(quick).fit(TEXTS, [["a"], ["b"]] * 12)
    quick.fit(TEXTS, [["a"], ["b"]] * 12)
    assert quick.classes_.tolist() == ["a", "b"]
    assert np.array_equal(quick.decision_function(TEXTS), fresh.decision_function(TEXTS))
    assert vars(quick).keys() == vars(fresh).keys()
    assert quick.held_out_ is not None and quick.held_out_.overall.n_labels == 2


def test_invalid_input_keeps_the_fitted_model(quick: LongTailClassifier) -> None:
    expected = quick.fit(TEXTS, LABELS).decision_function(TEXTS)
    for wrong in (["x"] * 24, MATRIX * 2):
        with pytest.raises(InputError):
            quick.fit(TEXTS, wrong)
    with pytest.raises(InputError, match=r"cannot split|at least two"):
        quick.fit(TEXTS[:1], LABELS[:1])
    assert np.array_equal(quick.decision_function(TEXTS), expected)


def test_a_single_fold_does_not_fit_the_classifier(
    quick: LongTailClassifier, tmp_path: Path
) -> None:
    quick.set_params(folds=2)
    quick.fit(TEXTS, LABELS, folder=tmp_path / "work", only_fold=0)
    with pytest.raises(NotFittedError):
        quick.predict(TEXTS)
    quick.fit(TEXTS, LABELS, folder=tmp_path / "work", resume=True)
    direct = clone(quick).fit(TEXTS, LABELS)
    assert np.array_equal(quick.decision_function(TEXTS), direct.decision_function(TEXTS))


def test_predictions_in_metrics_of_scikit_learn(encoder: LongTailClassifier) -> None:
    decisions = encoder.predict(TEXTS)
    assert decisions.shape == MATRIX.shape and decisions.dtype == np.float32
    expected = encoder.score(TEXTS, LABELS)
    for truth in (MATRIX, sp.csr_matrix(MATRIX), MATRIX.astype(bool)):
        assert f1_score(truth, decisions, average="micro") == pytest.approx(expected)


def test_in_a_pipeline(quick: LongTailClassifier) -> None:
    upper = [text.upper() for text in TEXTS]
    steps = make_pipeline(FunctionTransformer(lower), quick)
    steps.fit(upper, MATRIX)
    alone = clone(quick).fit(TEXTS, MATRIX)
    assert np.array_equal(steps.decision_function(upper), alone.decision_function(TEXTS))
    assert np.array_equal(steps.predict_proba(upper), alone.predict_proba(TEXTS))
    assert steps.score(upper, MATRIX) == alone.score(TEXTS, MATRIX)
    changed = clone(steps).set_params(longtailclassifier__model__max_length=4)
    assert (changed[-1].model.max_length, steps[-1].model.max_length) == (4, 8)


def test_cross_validation(quick: LongTailClassifier) -> None:
    for scoring in (None, "f1_micro", "f1_macro", "average_precision"):
        scores = cross_val_score(quick, TEXTS, MATRIX, cv=2, scoring=scoring, error_score="raise")
        assert scores.shape == (2,) and ((scores >= 0) & (scores <= 1)).all()
    frame = cross_val_score(quick, pd.Series(TEXTS), pd.DataFrame(MATRIX, columns=NAMES), cv=2)
    dense = cross_val_score(quick, np.array(TEXTS), MATRIX, cv=2)
    assert np.array_equal(frame, dense)
    by_fold = cross_val_predict(quick, TEXTS, MATRIX, cv=2)
    assert by_fold.shape == MATRIX.shape
    scores = cross_val_predict(quick, TEXTS, MATRIX, cv=2, method="decision_function")
    assert np.asarray(scores).shape == MATRIX.shape


def test_searches(quick: LongTailClassifier) -> None:
    model, training = copy.deepcopy(quick.model), copy.deepcopy(quick.training)
    grid = {"model__max_length": [4, 8], "training__learning_rate": [1e-7, 1e-2]}
    longer = clone(quick).set_params(training__epochs=12)
    search = GridSearchCV(longer, grid, cv=2, error_score="raise").fit(TEXTS, MATRIX)
    fitted = search.best_estimator_
    assert fitted.model.max_length == search.best_params_["model__max_length"]
    assert fitted.training.learning_rate == fitted.plans_[0].training.learning_rate == 1e-2
    assert fitted.predict(TEXTS).shape == MATRIX.shape
    assert (quick.model, quick.training) == (model, training)
    # Searches take sparse labels, which cross_val_score itself refuses.
    bag = LongTailClassifier(training=CPU, folds=2)
    grids = [{"model": ["svm"], "model__C": np.array([1.0, 2.0])}, {"model__min_df": [1]}]
    wide = GridSearchCV(bag, grids, cv=2, error_score="raise", refit=False)
    wide.fit(TEXTS, sp.csr_matrix(MATRIX))
    assert np.isfinite(wide.cv_results_["mean_test_score"]).all() and bag.model == "bag"


def test_a_search_in_threads(quick: LongTailClassifier) -> None:
    with joblib.parallel_backend("threading", n_jobs=2):
        search = GridSearchCV(quick, {"loss": ["bce", "fl"]}, cv=2, error_score="raise")
        search.fit(TEXTS, MATRIX)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("name", ["encoder", "cross_fitted"])
def test_copies_give_the_same_scores(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
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
    # Fitting a deep copy does not change the original.
    copy.deepcopy(fitted).set_params(training__epochs=1).fit(TEXTS, [["x"], ["y"]] * 12)
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


def test_random_state_and_global_random_states(quick: LongTailClassifier) -> None:
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
    other = clone(quick).set_params(random_state=1).fit(TEXTS, LABELS).decision_function(TEXTS)
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_random_state_chooses_the_validation_part(quick: LongTailClassifier) -> None:
    parts = set()
    for seed in range(4):
        held_out = quick.set_params(random_state=seed).fit(TEXTS, LABELS).held_out_
        assert held_out is not None and held_out.y_true is not None
        parts.add(held_out.y_true.toarray().tobytes())
    assert len(parts) > 1


def test_labels_that_only_the_test_part_has(quick: LongTailClassifier) -> None:
    """In cross-validation a rare label may be in no training fold: missed, not an error."""
    quick.fit(TEXTS, LABELS)
    score = quick.score(TEXTS, LABELS)
    more = quick.score(TEXTS, [[*names, "unseen"] for names in LABELS])
    assert 0 < more < score
    frame = pd.DataFrame(MATRIX, columns=NAMES).assign(unseen=1)
    assert quick.score(TEXTS, frame) == pytest.approx(more)
    padded = np.hstack([quick.predict(TEXTS).toarray(), np.zeros((24, 1))])
    assert more == pytest.approx(f1_score(frame, padded, average="micro"))
    assert quick.score([], np.zeros((0, 3))) == 0.0
