"""As a scikit-learn estimator: clone, Pipeline, cross-validation, searches, copies, threads."""

from __future__ import annotations

import copy
import pickle
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
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from longtail import Bag, LongTailClassifier, Svm, Training
from longtail.errors import InputError, NotFittedError

from .cases import CPU, DATA, LABELS, NAMES, TEXTS
from .conftest import Classifier, Make, Request

MATRIX = MultiLabelBinarizer().fit_transform(LABELS)


@pytest.fixture
def quick(make: Make) -> LongTailClassifier:
    """An unfitted classifier with two epochs."""
    return make(epochs=2)


def lower(texts: Any) -> Any:
    return [text.lower() for text in texts]


def test_clone_and_parameters(quick: Classifier) -> None:
    twin = clone(quick)
    assert twin is not quick and twin.get_params() == quick.get_params()
    assert twin.model is not quick.model and twin.training is not quick.training
    assert twin.set_params(loss="cb", folds=3).get_params()["folds"] == 3
    assert (quick.loss, twin.loss) == (None, "cb")
    with pytest.raises(ValueError, match="colour"):
        twin.set_params(colour=1)
    with pytest.raises(ValueError, match="unknown setting of Encoder 'colour'"):
        twin.set_params(model__colour=1)
    assert "Encoder(" in repr(quick) and "epochs=2" in repr(quick)


def test_nested_parameters_change_neither_originals_nor_defaults() -> None:
    bag, training = Bag(C=3.0, training=Training(ema=0.5)), Training(epochs=3)
    first, second = (LongTailClassifier(bag, training=training) for _ in range(2))
    first.set_params(model__C=5.0, model__training__ema=0.9, training__epochs=7)
    assert first.model == Bag(C=5.0, training=Training(ema=0.9))
    assert first.training == Training(epochs=7)
    assert second.model is bag and bag == Bag(C=3.0, training=Training(ema=0.5))
    assert second.training is training and training == Training(epochs=3)
    # Names and None stand for defaults, which can be set as well.
    plain = LongTailClassifier("bag").set_params(model__C=5.0, training__learning_rate=0.1)
    assert (plain.model, plain.training) == (Bag(C=5.0), Training(learning_rate=0.1))
    other = LongTailClassifier(Bag(), training=training)
    other.set_params(model="svm", model__C=5.0, training=None, training__epochs=2)
    assert (other.model, other.training) == (Svm(C=5.0), Training(epochs=2))
    assert (LongTailClassifier().model, LongTailClassifier().training) == ("auto", None)
    assert (Bag().C, Training().epochs) == (None, None)
    assert other.get_params()["model__C"] == 5.0 and other.get_params()["training__epochs"] == 2
    for model, params, message in (
        ("svm", {"model__C": -1}, "C must be a number above 0, got -1"),
        ("svm", {"model__training__epochs": 1}, "training is None, which has no settings"),
        (["bag", "svm"], {"model__C": 1}, "model is a list, which has no model__ parameters"),
    ):
        with pytest.raises(InputError, match=message):
            LongTailClassifier(model).set_params(**params)


def test_a_clone_of_a_fitted_classifier_is_not_fitted(encoder: Classifier) -> None:
    check_is_fitted(encoder)
    twin = clone(encoder)
    names = ["predict", "predict_proba", "predict_labels", "top_k", "decision_function", "score"]
    for name in (*names, "evaluate", "save_pretrained"):
        with pytest.raises(NotFittedError, match="Call fit"):
            getattr(twin, name)(DATA)
    assert not hasattr(twin, "held_out_")


def test_tags(quick: Classifier) -> None:
    tags = get_tags(quick)
    assert is_classifier(quick)
    assert tags.classifier_tags.multi_label and not tags.classifier_tags.multi_class
    assert tags.input_tags.string and not tags.input_tags.two_d_array
    assert tags.target_tags.required and not tags.target_tags.single_output


@pytest.mark.parametrize(
    ("texts", "labels", "names"),
    [
        (np.array(TEXTS), MATRIX, ["0", "1", "2"]),
        (TEXTS, sp.csc_array(MATRIX), ["0", "1", "2"]),
        (pd.Series(TEXTS), pd.DataFrame(MATRIX.astype(bool), columns=NAMES), NAMES),
        (TEXTS, LABELS, NAMES),
    ],
)
def test_all_types_of_labels_give_the_same_model_and_stay_unchanged(
    texts: Any, labels: Any, names: list[str], quick: Classifier
) -> None:
    before, params = joblib.hash((texts, labels)), quick.get_params()
    assert quick.fit(texts, labels) is quick
    assert joblib.hash((texts, labels)) == before
    assert quick.get_params() == params and quick.classes_.tolist() == names
    other = clone(quick).fit(DATA)
    scores = other.decision_function(TEXTS)
    assert np.array_equal(quick.decision_function(texts), scores)
    assert quick.score(texts, labels) == other.score(TEXTS, LABELS)


def test_a_second_fit_replaces_the_first_if_it_is_valid(quick: Classifier) -> None:
    expected = quick.fit(TEXTS, LABELS).decision_function(TEXTS)
    for n_texts, wrong in ((24, ["x"] * 24), (24, MATRIX * 2), (1, LABELS[:1])):
        with pytest.raises(InputError):
            quick.fit(TEXTS[:n_texts], wrong)
    assert np.array_equal(quick.decision_function(TEXTS), expected)
    quick.odd_ = 1
    first = quick.held_out_
    assert first is not None and quick.held_out_ is first
    fresh = clone(quick).fit(TEXTS, [["a"], ["b"]] * 12)
    quick.fit(TEXTS, [["a"], ["b"]] * 12)
    assert quick.classes_.tolist() == ["a", "b"]
    assert np.array_equal(quick.decision_function(TEXTS), fresh.decision_function(TEXTS))
    assert vars(quick).keys() == vars(fresh).keys()
    assert quick.held_out_ is not None and quick.held_out_.overall.n_labels == 2


def test_a_single_fold_does_not_fit_it(quick: Classifier, tmp_path: Path) -> None:
    quick.set_params(folds=2)
    quick.fit(TEXTS, LABELS, folder=tmp_path / "work", only_fold=0)
    with pytest.raises(NotFittedError):
        quick.predict(TEXTS)
    quick.fit(TEXTS, LABELS, folder=tmp_path / "work", resume=True)
    direct = clone(quick).fit(TEXTS, LABELS)
    assert np.array_equal(quick.decision_function(TEXTS), direct.decision_function(TEXTS))


def test_in_a_pipeline(quick: Classifier) -> None:
    upper = [text.upper() for text in TEXTS]
    steps = make_pipeline(FunctionTransformer(lower), quick)
    steps.fit(upper, MATRIX)
    alone = clone(quick).fit(TEXTS, MATRIX)
    assert np.array_equal(steps.decision_function(upper), alone.decision_function(TEXTS))
    assert np.array_equal(steps.predict_proba(upper), alone.predict_proba(TEXTS))
    assert steps.score(upper, MATRIX) == alone.score(TEXTS, MATRIX)
    changed = clone(steps).set_params(longtailclassifier__model__max_length=4)
    assert (changed[-1].model.max_length, steps[-1].model.max_length) == (4, 8)


def test_cross_validation(quick: Classifier) -> None:
    for scoring in (None, "f1_macro", "average_precision"):
        scores = cross_val_score(quick, TEXTS, MATRIX, cv=2, scoring=scoring, error_score="raise")
        assert scores.shape == (2,) and ((scores >= 0) & (scores <= 1)).all()
    for method in ("predict", "decision_function"):
        by_fold = cross_val_predict(quick, TEXTS, MATRIX, cv=2, method=method)
        assert np.shape(by_fold) == MATRIX.shape


def test_searches(quick: Classifier) -> None:
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
    bag = LongTailClassifier(Bag(C=9.0), training=CPU, folds=2)
    grids = [{"model": ["svm"], "model__C": np.array([1.0, 2.0])}, {"model__min_df": [1]}]
    wide = GridSearchCV(bag, grids, cv=2, error_score="raise", refit=False)
    wide.fit(TEXTS, sp.csr_matrix(MATRIX))
    assert np.isfinite(wide.cv_results_["mean_test_score"]).all() and bag.model == Bag(C=9.0)
    # Splitters by label refuse lists of names.
    by_names = GridSearchCV(bag, grids[1:], cv=KFold(2), error_score="raise").fit(TEXTS, LABELS)
    assert np.isfinite(by_names.cv_results_["mean_test_score"]).all()


def test_a_search_in_threads(quick: Classifier) -> None:
    with joblib.parallel_backend("threading", n_jobs=2):
        search = GridSearchCV(quick, {"loss": ["bce", "fl"]}, cv=2, error_score="raise")
        search.fit(TEXTS, MATRIX)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("name", ["encoder", "cross_fitted"])
def test_copies_score_the_same(name: str, request: Request, tmp_path: Path) -> None:
    fitted: Classifier = request.getfixturevalue(name)
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


def test_random_state_and_global_random_states(quick: Classifier) -> None:
    def draw() -> list[float]:
        return [*torch.rand(3).tolist(), *np.random.rand(3)]

    torch.manual_seed(7)
    np.random.seed(7)
    expected, threads = draw(), torch.get_num_threads()
    torch.manual_seed(7)
    np.random.seed(7)
    first = clone(quick).fit(TEXTS, LABELS).decision_function(TEXTS)
    assert draw() == expected and torch.get_num_threads() == threads
    again = clone(quick).fit(TEXTS, LABELS).decision_function(TEXTS)
    assert np.array_equal(first, again)
    # Another seed gives other weights, and another validation part.
    parts = set()
    for seed in range(4):
        other = quick.set_params(random_state=seed).fit(TEXTS, LABELS)
        assert np.array_equal(other.decision_function(TEXTS), first) is (seed == 0)
        assert other.held_out_ is not None and other.held_out_.y_true is not None
        parts.add(other.held_out_.y_true.toarray().tobytes())
    assert len(parts) > 1


def test_labels_that_only_the_test_part_has(quick: Classifier) -> None:
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
