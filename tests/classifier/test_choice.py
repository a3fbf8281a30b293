"""What settings leave open is settled on held-out documents: the same seed makes the same choice,
and it is what the fitted classifier says and saves."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Bag, LongTailClassifier
from longtail.classifier import choice
from longtail.classifier.blend import fit_plans
from longtail.classifier.choice import TOO_FEW, settle
from longtail.classifier.crossfit import Run
from longtail.classifier.folds import FoldedData
from longtail.classifier.plan import Plan
from longtail.classifier.saving import model_card
from longtail.data import TextData
from longtail.models.bag import LinearBag
from longtail.models.settings import Auto
from longtail.progress import Progress
from longtail.training.interrupt import Stop, StoppedError

from .cases import CPU, documents
from .conftest import Patch

pytestmark = pytest.mark.usefixtures("quick")
DOCUMENTS = documents(120)
AUTO = Plan(Auto(), folds=3, training=CPU)


@pytest.fixture
def quick(monkeypatch: Patch) -> None:
    """Compares on one fold."""
    monkeypatch.setattr(choice, "ENOUGH", TOO_FEW)


def chosen(
    plan: Plan, data: TextData = DOCUMENTS, validation: Any = None
) -> tuple[Plan, list[Any]]:
    folded = FoldedData.split(plan, data, validation, None)
    (settled,), trials = settle(plan, folded, "mean", Run())
    return settled, trials


def stems(n: int = 400, seed: int = 0) -> TextData:
    """A label is a stem, and no two of its documents share a word."""
    rng, roots = np.random.default_rng(seed), ("kupfer", "weizen", "zink", "nickel")
    lists = [[str(rng.choice(roots))] for _ in range(n)]
    texts = [f"{name[0]}{k:x}q preis{k:x}" for k, name in enumerate(lists)]
    return TextData.from_lists(texts, lists, roots)


def noise(n: int = 400, seed: int = 0) -> TextData:
    """A word for each label that one in three documents lacks, and ten words of no meaning."""
    rng = np.random.default_rng(seed)
    lists = [[f"label{rng.integers(8)}"] for _ in range(n)]
    words = [" ".join(f"w{k}" for k in rng.integers(800, size=10)) for _ in range(n)]
    is_hinted = rng.random(n) < 0.66
    texts = [f"{w} {x[0] if t else ''}" for w, x, t in zip(words, lists, is_hinted, strict=True)]
    return TextData.from_lists(texts, lists)


def test_the_choice_is_in_the_plan_the_facts_and_the_card(tmp_path: Path) -> None:
    first, again = (LongTailClassifier(folds=3).fit(DOCUMENTS) for _ in range(2))
    (plan,), trials = first.plans_, first.facts_.trials
    assert isinstance(plan.model, Bag) and plan.model.C is not None and plan.model.loss is None
    assert first.plans_ == again.plans_ and trials == again.facts_.trials and len(trials) > 5
    assert choice.describe(plan) in [trial.settings for trial in trials]
    best = max(trial.score for trial in trials)
    (own,) = [trial for trial in trials if trial.settings == choice.describe(plan)]
    assert own.score >= best - len(trials) * choice.LEAST_GAIN
    np.testing.assert_array_equal(
        first.decision_function(DOCUMENTS.texts), again.decision_function(DOCUMENTS.texts)
    )
    # What was chosen, fitted on its own, is the same model.
    alone = LongTailClassifier(plan.model, plan.loss, folds=3).fit(DOCUMENTS)
    np.testing.assert_array_equal(
        first.decision_function(DOCUMENTS.texts), alone.decision_function(DOCUMENTS.texts)
    )
    first.save_pretrained(tmp_path / "run")
    loaded = LongTailClassifier.from_pretrained(tmp_path / "run")
    assert loaded.facts_ == first.facts_ and loaded.plans_ == first.plans_
    assert loaded.model == "auto" and f"| {plan.model.C} |" in model_card(loaded)


def test_trials_say_on_how_many_documents(monkeypatch: Patch) -> None:
    monkeypatch.setattr(choice, "ENOUGH", 10**6)
    data = stems()
    _, trials = chosen(AUTO, data)
    assert trials[0].n_documents == len(data)
    assert all(0 < (trial.n_documents or 0) <= len(data) for trial in trials)


def test_characters_win_where_words_say_nothing() -> None:
    plan, trials = chosen(AUTO, stems())
    assert plan.model.char_ngrams > 0  # type: ignore[attr-defined]
    scores = {"char_ngrams" in trial.settings: trial.score for trial in trials}
    assert scores[True] > 0.9 > scores[False]


def test_a_small_c_wins_where_words_are_noise() -> None:
    """By average precision as well; the choice is the best of what was compared."""
    plan, trials = chosen(Plan(Bag(min_df=1, informed=False), "squared-hinge", folds=3), noise())
    best = max(trials, key=lambda trial: trial.score)
    assert plan.model.C < 1 and best.score > trials[0].score  # type: ignore[attr-defined]
    by_c = {trial.settings: trial.average_precision for trial in trials}
    assert by_c[choice.describe(plan)] > by_c["squared-hinge, C=10.0, informed=False, min_df=1"]


def test_few_positives_take_the_first_settings(monkeypatch: Patch) -> None:
    monkeypatch.setattr(LinearBag, "fit", lambda *args: pytest.fail("fitted"))
    few = DOCUMENTS[: TOO_FEW // 2]
    for model, loss in ((Auto(), "squared-hinge"), (Bag(C=None, ngrams=2), "db")):
        plan, trials = chosen(Plan(model, None, folds=3, training=CPU), few)
        expected = Bag(C=1.0) if isinstance(model, Auto) else Bag(C=1.0, ngrams=2)
        assert (plan.model, plan.loss, trials) == (expected, loss, [])


def test_one_fold_compares_on_the_validation_part(monkeypatch: Patch) -> None:
    trained, fit = [], LinearBag.fit

    def recorded(self: Any, data: TextData, *args: Any) -> None:
        trained.append(data.texts)
        fit(self, data, *args)

    monkeypatch.setattr(LinearBag, "fit", recorded)
    train, validation = DOCUMENTS[:80], DOCUMENTS[80:]
    plan, trials = chosen(Plan(Bag(), "squared-hinge", training=CPU), train, validation)
    assert len(trials) == len(trained) >= 5 and all(texts == train.texts for texts in trained)
    assert plan.model.C is not None  # type: ignore[attr-defined]


@pytest.mark.parametrize(("enough", "n_parts"), [(1, 1), (10**6, 3)])
def test_parts_hold_out_their_documents(enough: int, n_parts: int, monkeypatch: Patch) -> None:
    """Samples of documents and labels; more folds where labels are few. Nobody is compared on a
    document that it was trained on."""
    for name, value in (("MAX_LABELS", 3), ("MAX_DOCUMENTS", 40), ("ENOUGH", enough)):
        monkeypatch.setattr(choice, name, value)
    folded = FoldedData.split(AUTO, DOCUMENTS, None, None)
    parts = choice.Comparison(AUTO, folded, "mean", Run()).parts
    assert [part.fold for part in parts] == list(range(n_parts))
    for part in parts:
        assert part.training.Y.shape == (40, 3) and not set(part.rows) & set(part.held_out)
        assert part.training.texts == [DOCUMENTS.texts[row] for row in part.rows]
        columns = [DOCUMENTS.label_names.index(name) for name in part.training.label_names]
        assert (DOCUMENTS.Y[part.rows][:, columns] != part.training.Y).nnz == 0
        assert (part.truth != DOCUMENTS.Y[part.held_out][:, columns]).nnz == 0
        assert (folded.fold_of[part.held_out] == part.fold).all()
    settled, trials = chosen(AUTO)
    assert choice.describe(settled) in [trial.settings for trial in trials]


def test_of_many_labels_documents_of_the_compared_ones_come_first(monkeypatch: Patch) -> None:
    monkeypatch.setattr(choice, "MANY_LABELS", 1)
    monkeypatch.setattr(choice, "MAX_LABELS", 1)
    monkeypatch.setattr(choice, "MAX_DOCUMENTS", 12)
    monkeypatch.setattr(choice, "MAX_HELD_OUT", 31)
    data = stems()
    folded = FoldedData.split(AUTO, data, None, None)
    part = choice.Comparison(AUTO, folded, "mean", Run()).parts[0]
    assert len(part.training) == 12 and part.training.Y.sum() == 12
    assert part.truth.shape == (31, 1) and part.truth.sum() == 31
    texts = [data.texts[row] for row in part.rows]
    assert part.training.texts == texts and set(part.held_out) <= set(folded.held_out_rows(0))
    # Where few documents have the label, others fill the sample.
    Y = sp.csr_matrix(np.arange(9)[:, None] == 4, dtype=np.float32)
    rows = choice._sample(Y, 5, np.random.default_rng(0))
    assert 4 in rows and len(set(rows)) == 5 and sorted(rows) == rows.tolist()


def test_weights_of_labels_follow_the_compared_labels() -> None:
    """A label whose only document is held out is not compared."""
    Y = sp.hstack([DOCUMENTS.Y, np.ones((120, 1)) * (np.arange(120)[:, None] == 3)], format="csr")
    data = TextData(DOCUMENTS.texts, Y.astype(np.float32), (*DOCUMENTS.label_names, "once"))
    for seed in range(2):
        weights = {"label_weight": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
        plan = Plan(Auto(), loss_settings=weights, folds=2, training=CPU, random_state=seed)
        settled, trials = chosen(plan, data)
        assert trials and settled.loss_settings == weights


@pytest.mark.parametrize("stage", ["comparing", "solving"])
def test_an_interrupted_fit_makes_the_same_choice(stage: str, tmp_path: Path) -> None:
    whole = LongTailClassifier(folds=3).fit(DOCUMENTS)
    stop, seen = Stop(), []

    def progress(moment: Progress) -> None:
        seen.append(moment.stage)
        if moment.stage.startswith(stage) and len(seen) > 4:
            stop.signal = signal.SIGTERM

    resumed, folder = LongTailClassifier(folds=3), tmp_path / "work"
    with pytest.raises(StoppedError):
        resumed.fit(DOCUMENTS, folder=folder, progress=progress, stop=stop)
    for fold in range(3):
        resumed.fit(DOCUMENTS, folder=folder, only_fold=fold)
    resumed.fit(DOCUMENTS, folder=folder, resume=True)
    assert resumed.plans_ == whole.plans_ and resumed.facts_ == whole.facts_
    scores = whole.decision_function(DOCUMENTS.texts)
    np.testing.assert_array_equal(resumed.decision_function(DOCUMENTS.texts), scores)


def test_a_blend_settles_each_member() -> None:
    plans = [Plan(model, "squared-hinge", folds=2, training=CPU) for model in (Bag(), Auto())]
    fitted = fit_plans(plans, DOCUMENTS)
    assert fitted is not None and all(isinstance(plan.model, Bag) for plan in fitted.plans)
    assert all(plan.model.stages(DOCUMENTS, plan.loss) == [] for plan in fitted.plans)
    assert fitted.ensemble.sizes == (1, 1) and len(fitted.trials) > 8


def test_features_are_learned_once_from_all_texts_and_no_labels(monkeypatch: Patch) -> None:
    calls, learn = [], LinearBag.learn_encoding

    def recorded(self: Any, texts: Any, cache: Any = None) -> Any:
        calls.append((self.encoding_key, list(texts)))
        return learn(self, texts, cache)

    monkeypatch.setattr(LinearBag, "learn_encoding", recorded)
    fit_plans([AUTO], DOCUMENTS)
    keys = [key for key, _ in calls]
    assert len(set(keys)) == len(keys) and all(texts == DOCUMENTS.texts for _, texts in calls)


def test_texts_without_spaces() -> None:
    """Chinese: characters are chosen, and words that were never seen are recognised."""
    rng, subjects = np.random.default_rng(0), ("\u94dc\u4ef7", "\u5c0f\u9ea6", "\u5929\u7136\u6c14")
    filler = [chr(0x4E00 + k) for k in range(200)]
    lists = [[str(rng.choice(subjects))] for _ in range(240)]
    texts = ["".join([*rng.choice(filler, 4), names[0], *rng.choice(filler, 4)]) for names in lists]
    classifier = LongTailClassifier(folds=2).fit(texts[:160], lists[:160])
    assert classifier.plans_[0].model.char_ngrams > 0
    assert classifier.score(texts[160:], lists[160:]) > 0.9
    assert classifier.predict_labels(["", " "]) is not None
