"""TF-IDF features, and the models on them: `bag` and `svm`."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.svm import LinearSVC

from longtail.data import TextData
from longtail.errors import DataError, InputError
from longtail.losses import build_loss
from longtail.models import Bag, Svm, build_model
from longtail.models.bag import WEIGHTS_FILE
from longtail.models.features import TextFeatures, _count_characters
from longtail.models.information import label_information
from longtail.progress import Progress
from longtail.runs.workspace import Workspace
from longtail.training import linear
from longtail.training.checkpoints import Checkpoints
from longtail.training.encoded import EncodedBags
from longtail.training.interrupt import Stop, StoppedError

from .cases import DATA, ODD, TEXTS, fit_model

OPTIONS: list[dict[str, Any]] = [
    *({}, {"ngrams": 2}, {"char_ngrams": 3}),
    {"ngrams": 2, "char_ngrams": 4, "sublinear": False},
]


# Letters of several scripts, digits, marks, spaces; not those that become two in lower case.
LETTERS = (
    "abzAZ\u00c4\u00df\u0416\u0436\u00f1\u6f22\u5b57\u30ab\ud55c"
    "\u0627\u0628\u0915\u0301\u00b2\u0661\u00bd19_'-. \t\n\u00a0\u3000"
)
CHARACTERS = st.characters(max_codepoint=0x2FFF, exclude_categories=("Cs",))
SIMPLE = CHARACTERS.filter(lambda c: len(c.lower()) == 1 and c != "\u03a3")
UNICODE = st.lists(st.text(st.sampled_from(LETTERS) | SIMPLE, max_size=30), min_size=1, max_size=6)


@given(texts=UNICODE, sublinear=st.booleans(), ngrams=st.integers(1, 3))
def test_words_equal_those_of_scikit_learn(texts: list[str], sublinear: bool, ngrams: int) -> None:
    reference = TfidfVectorizer(sublinear_tf=sublinear, ngram_range=(1, ngrams))
    assume(any(reference.build_tokenizer()(text.lower()) for text in texts))
    expected = reference.fit_transform(texts)
    features = TextFeatures(ngrams=ngrams, min_df=1, sublinear=sublinear)
    np.testing.assert_allclose(
        features.fit_transform(texts).toarray(), expected.toarray(), atol=1e-6
    )
    words = features._vocabularies[0].to_pylist()
    assert words == reference.get_feature_names_out().tolist()


@given(texts=UNICODE, longest=st.integers(2, 5))
def test_characters_equal_those_of_scikit_learn(texts: list[str], longest: int) -> None:
    reference = CountVectorizer(analyzer="char_wb", ngram_range=(2, longest)).build_analyzer()
    strings, counts = _count_characters(texts, longest)
    names = strings.to_pylist()
    assert len(set(names)) == len(names)
    for text, row in zip(texts, counts.toarray(), strict=True):
        ours = {name: n for name, n in zip(names, row.tolist(), strict=True) if n}
        assert ours == Counter(reference(text))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rows_have_length_one_or_zero(options: dict[str, Any], tmp_path: Path) -> None:
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
    for longest in (0, 4):
        with pytest.raises(InputError, match=r"nothing but white space.*text field"):
            TextFeatures(char_ngrams=longest).fit_transform(["", " \n"])


def test_damaged_features_are_refused(tmp_path: Path) -> None:
    features = TextFeatures(min_df=1)
    features.fit_transform(TEXTS)
    features.save(tmp_path)
    words = tmp_path / "vocabulary.json"
    text = words.read_text()
    for damaged, message in (
        (text.replace('"shortest_word": 2', '"shortest_word": 9'), "has an invalid value"),
        (text.replace('"zinc"', "null"), "has an invalid value"),
        (text.replace('"vocabularies": [', '"vocabularies": [[], '), "do not belong together"),
        (text.replace('"zinc"', '"wheat"'), "repeats a word"),
        (text.replace(', "zinc"', ""), "do not belong together"),
    ):
        assert damaged != text
        words.write_text(damaged)
        with pytest.raises(DataError, match=message):
            TextFeatures().load(tmp_path)


@pytest.mark.parametrize(("loss", "C"), [("db", 100.0), ("squared-hinge", 10.0)])
def test_the_linear_head_learns(loss: str, C: float) -> None:
    model = fit_model(Bag(min_df=1, C=C), loss=loss)
    assert model.scale == ("margin" if loss == "squared-hinge" else "logit")
    scores = model.scores(["copper", "tin", "", "unknown words"])
    assert scores[0, 0] > scores[0, 1] and scores[1, 1] > scores[1, 0]
    # A text without known words gets the bias.
    np.testing.assert_array_equal(scores[2:], np.stack([model._bias] * 2))


@pytest.mark.parametrize("loss", ["bce", "squared-hinge"])
def test_a_label_weight_scales_the_c_of_that_label(loss: str) -> None:
    def scores(C: float, weight: list[float] | None = None) -> Any:
        def make_loss(stats: Any, **options: Any) -> Any:
            return build_loss(loss, stats, label_weight=weight, **options)

        return fit_model(Bag(min_df=1, C=C), loss=make_loss).scores(TEXTS)

    weighted = scores(4.0, [0.5, 1.0, 2.0, 1.0])
    for label, C in enumerate([2.0, 4.0, 8.0, 4.0]):
        np.testing.assert_allclose(weighted[:, label], scores(C)[:, label], atol=5e-3)


def test_an_informed_head_equals_one_on_scaled_features() -> None:
    plain, informed = (fit_model(Bag(min_df=1, C=9.0, informed=flag)) for flag in (False, True))
    features = plain.encode(TEXTS).matrix
    scale = label_information(features, DATA.Y)
    scaled = sp.csr_matrix(features @ sp.diags(scale), dtype=np.float32)
    context_free = fit_model(
        Bag(min_df=1, C=9.0, informed=False), encode=lambda model: EncodedBags(scaled)
    )
    expected = context_free.scores([], EncodedBags(scaled))
    informed_scores = informed.scores([], EncodedBags(features))
    np.testing.assert_allclose(informed_scores, expected, atol=0.05)
    assert np.abs(informed_scores - plain.scores(TEXTS)).max() > 0.1


@pytest.mark.parametrize("loss", ["bce", "squared-hinge"])
def test_merged_heads_score_as_the_mean_of_those_that_know_the_label(loss: str) -> None:
    halves = [DATA.select(rows) for rows in ([0, 1, 2, 3], [2, 3, 4, 5])]
    first = fit_model(Bag(min_df=1, C=10.0), loss=loss)
    models = [first]
    for half in halves:
        rows = [DATA.texts.index(text) for text in half.texts]
        encoded = first.encode(DATA.texts).select(np.array(rows))
        model = fit_model(Bag(min_df=1, C=10.0), half, loss=loss, encode=lambda _, e=encoded: e)
        model.share_encoding(first)
        models.append(model)
    shares = np.array([[1, 0, 0.5, 0.2], [0, 0.5, 0.5, 0.3], [0, 0.5, 0, 0.5]], np.float32)
    one = models[0].merged(models[1:], shares)
    expected = sum(share * model.scores(TEXTS) for share, model in zip(shares, models, strict=True))
    assert one.scale == first.scale and one.settings == first.settings
    # Only weights that are small beside the largest of their label are dropped.
    np.testing.assert_allclose(one.scores(TEXTS), expected, atol=0.02 * np.abs(expected).max())


def test_the_linear_head_stops_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit_model(Bag(min_df=1, C=100.0))
    monkeypatch.setattr(linear, "CHUNK_LABELS", 1)
    stop, seen = Stop(), []

    def progress(moment: Progress) -> None:
        seen.append((moment.done, moment.total))
        stop.signal = signal.SIGINT

    states = Checkpoints(Workspace.begin(tmp_path, {}), minutes=0)
    with pytest.raises(StoppedError, match="Finished labels are kept: resume with --resume"):
        fit_model(Bag(min_df=1, C=100.0), checkpoints=states, progress=progress, stop=stop)
    assert seen == [(1, 4)] and list(tmp_path.glob("labels-0-1.safetensors"))
    resumed = fit_model(Bag(min_df=1, C=100.0), checkpoints=states)
    np.testing.assert_allclose(resumed.scores(TEXTS), whole.scores(TEXTS), atol=1e-3)


def test_weights_of_another_size_are_refused(tmp_path: Path) -> None:
    for kind in (Bag(C=9.0, min_df=1), Svm()):
        fit_model(kind).save(tmp_path)
        with pytest.raises(DataError, match="does not belong to the rest of its model"):
            build_model(kind).load(tmp_path, 3, torch.device("cpu"))
        weights = load_file(tmp_path / WEIGHTS_FILE)
        doubles = {name: value.astype(np.float64) for name, value in weights.items()}
        save_file(doubles, tmp_path / WEIGHTS_FILE)
        with pytest.raises(DataError, match="does not belong to the rest of its model"):
            build_model(kind).load(tmp_path, 4, torch.device("cpu"))


def _set(name: str, place: int, value: float) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays[name].__setitem__(place, value)


@pytest.mark.parametrize(
    "damage",
    [
        *(_set("starts", place, value) for place, value in ((0, 1), (0, -1), (1, 99), (-1, 2**40))),
        *(_set("columns", place, value) for place, value in ((0, -1), (0, 10**6), (1, 10**9))),
        *(_set(name, 0, value) for name in ("weights", "bias") for value in (np.nan, np.inf)),
        lambda arrays: arrays.update(columns=arrays["columns"][:-1]),
        lambda arrays: arrays.update(weights=arrays["weights"][:, None]),
        lambda arrays: arrays.update(bias=arrays["bias"][:-1]),
        lambda arrays: arrays.update(more=arrays["bias"]),
        lambda arrays: arrays.pop("starts"),
        lambda arrays: arrays.update(
            columns=arrays["columns"][:-1], weights=arrays["weights"][:-1]
        ),
    ],
)
def test_damaged_sparse_weights_are_refused(damage: Any, tmp_path: Path) -> None:
    fit_model(Bag(C=9.0, min_df=1)).save(tmp_path)
    arrays = {name: array.copy() for name, array in load_file(tmp_path / WEIGHTS_FILE).items()}
    damage(arrays)
    save_file(
        {name: np.ascontiguousarray(a) for name, a in arrays.items()}, tmp_path / WEIGHTS_FILE
    )
    with pytest.raises(DataError, match="does not belong to the rest of its model"):
        build_model(Bag(C=9.0, min_df=1)).load(tmp_path, 4, torch.device("cpu"))


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
