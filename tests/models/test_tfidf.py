"""TF-IDF features, and the models on them: `bag` and `svm`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from longtail.data import TextData
from longtail.errors import DataError, InputError
from longtail.models import Bag, Svm, build_model
from longtail.models.bag import LinearNetwork
from longtail.models.features import TextFeatures
from longtail.progress import Progress
from longtail.training import linear
from longtail.training.checkpoints import Checkpoints
from longtail.training.interrupt import Stop, StoppedError

from .cases import DATA, ODD, TEXTS, fit_model

OPTIONS: list[dict[str, Any]] = [
    {},
    {"ngrams": 2},
    {"char_ngrams": 3},
    {"hashing": 64},
    {"ngrams": 2, "char_ngrams": 4, "hashing": 128},
]


@pytest.mark.parametrize("sublinear", [True, False])
def test_features_equal_those_of_scikit_learn(sublinear: bool) -> None:
    texts = [*TEXTS, "zinc and zinc"]
    expected = TfidfVectorizer(sublinear_tf=sublinear, ngram_range=(1, 2)).fit_transform(texts)
    features = TextFeatures(ngrams=2, min_df=1, sublinear=sublinear).fit_transform(texts)
    np.testing.assert_allclose(features.toarray(), expected.toarray(), atol=1e-6)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_odd_texts_become_rows_of_length_one_or_zero(
    options: dict[str, Any], tmp_path: Path
) -> None:
    features = TextFeatures(min_df=1, **options)
    first = features.fit_transform(TEXTS)
    assert (first != features.transform(TEXTS)).nnz == 0
    rows = features.transform(ODD)
    assert rows.shape == (len(ODD), len(features)) and rows.dtype == np.float32
    lengths = np.sqrt(rows.multiply(rows).sum(axis=1)).A1
    assert np.all((np.abs(lengths - 1) < 1e-5) | (lengths == 0))
    assert lengths[0] == 0 and lengths[2] > 0
    features.save(tmp_path)
    loaded = TextFeatures(min_df=1, **options)
    loaded.load(tmp_path)
    assert (loaded.transform(ODD) != rows).nnz == 0 and len(features) == len(loaded)


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
@settings(max_examples=60)
def test_any_text_has_features(texts: list[str]) -> None:
    features = TextFeatures(min_df=1)
    features.fit_transform(TEXTS)
    rows = features.transform(texts)
    assert rows.shape[0] == len(texts) and np.isfinite(rows.data).all()


@pytest.mark.parametrize("texts", [["a", "b b"], ["!", "? !"], ["🙂", "🙃"]])
def test_texts_without_words_fall_back_to_single_characters(texts: list[str]) -> None:
    features = TextFeatures(min_df=1).fit_transform(texts)
    assert features.nnz > 0 and np.any(features[0].toarray() != features[1].toarray())


def test_the_vocabulary_is_limited() -> None:
    for limits, size in (({"min_df": 2}, 6), ({"min_df": 1, "max_features": 3}, 3)):
        features = TextFeatures(**limits)
        features.fit_transform(TEXTS)
        assert len(features) == size
    # Few texts may share no word; more than there are documents is all of them.
    assert TextFeatures(min_df=2).fit_transform(["copper", "nickel"]).shape == (2, 2)
    assert TextFeatures(min_df=9).fit_transform(["copper", "copper"]).shape == (2, 1)
    with pytest.raises(InputError, match=r"no word is in 3 of the 3 training documents.*min-df"):
        TextFeatures(min_df=3).fit_transform(["copper rose", "nickel fell", "tin rose"])
    for hashing in (0, 64):
        with pytest.raises(InputError, match=r"nothing but white space.*text field"):
            TextFeatures(hashing=hashing).fit_transform(["", " \n"])


def test_damaged_features_are_refused(tmp_path: Path) -> None:
    features = TextFeatures(min_df=1)
    features.fit_transform(TEXTS)
    features.save(tmp_path)
    words = tmp_path / "vocabulary.json"
    text = words.read_text()
    for damaged, message in (
        (text.replace(r"\\b\\w\\w+\\b", "(a+)+"), "a pattern that longtail does not use"),
        (text.replace('"zinc"', '"wheat"'), "names a word twice"),
        (text.replace(', "zinc"', ""), "do not belong together"),
    ):
        assert damaged != text
        words.write_text(damaged)
        with pytest.raises(DataError, match=message):
            TextFeatures().load(tmp_path)


def test_the_linear_head_learns() -> None:
    model = fit_model(Bag(min_df=1, C=100.0))
    scores = model.scores(["copper", "tin", "", "unknown words"])
    assert scores[0, 0] > 0 > scores[0, 1] and scores[1, 1] > 0 > scores[1, 0]
    # A text without known words gets the bias.
    np.testing.assert_array_equal(scores[2:], np.stack([model.network.bias.detach()] * 2))
    untrained = LinearNetwork(3, 2)(torch.tensor([0]), torch.tensor([0]), torch.ones(1))
    assert not untrained.any()


def test_the_linear_head_stops_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit_model(Bag(min_df=1))
    monkeypatch.setattr(linear, "CHUNK_LABELS", 1)
    stop, seen = Stop(), []

    def progress(moment: Progress) -> None:
        seen.append((moment.done, moment.total))
        stop.signal = signal.SIGINT

    states = Checkpoints(tmp_path, minutes=0)
    with pytest.raises(StoppedError, match="Finished labels are kept: resume with --resume"):
        fit_model(Bag(min_df=1), checkpoints=states, progress=progress, stop=stop)
    assert seen == [(1, 4)] and list(tmp_path.glob("labels-0-1.safetensors"))
    resumed = fit_model(Bag(min_df=1), checkpoints=states)
    np.testing.assert_allclose(resumed.scores(TEXTS), whole.scores(TEXTS), atol=1e-3)


def test_weights_of_another_size_are_refused(tmp_path: Path) -> None:
    for kind in (Bag(min_df=1), Svm()):
        fit_model(kind).save(tmp_path)
        with pytest.raises(DataError, match="does not belong to the rest of its model"):
            build_model(kind).load(tmp_path, 3, torch.device("cpu"))
        weights = load_file(tmp_path / "model.safetensors")
        doubles = {name: value.astype(np.float64) for name, value in weights.items()}
        save_file(doubles, tmp_path / "model.safetensors")
        with pytest.raises(DataError, match=r"expected \w.* as .*'F32'.*got .*'F64'"):
            build_model(kind).load(tmp_path, 4, torch.device("cpu"))


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("sublinear", [False, True])
def test_svm_equals_scikit_learn(class_weight: str | None, sublinear: bool) -> None:
    texts = [*TEXTS, "zinc zinc zinc tin"]
    data = TextData.concat([DATA, DATA[:1]])
    data = TextData.from_lists(texts, [data.labels_of(k) for k in range(7)], DATA.label_names)
    features = TfidfVectorizer(sublinear_tf=sublinear)
    machine = LinearSVC(C=1, class_weight=class_weight, random_state=0)
    machine.fit(features.fit_transform(texts), data.Y[:, [1]].toarray().ravel())
    expected = machine.decision_function(features.transform(texts))
    model = fit_model(Svm(class_weight=class_weight, sublinear=sublinear), data)
    assert model.scale == "margin"
    scores = model.scores(texts + ODD)
    np.testing.assert_allclose(scores[:7, 1], expected, atol=1e-3)
    # A label of no document, and one of all.
    assert (scores[:, 2] == -1).all() and (scores[:, 3] == 1).all()
