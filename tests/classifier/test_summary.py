"""The summary of a trained model in reports."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

from longtail import Bag, LongTailClassifier, Svm, Training, __version__
from longtail.classifier.summary import describe_model
from longtail.corpora.newswire import load

CPU = Training(device="cpu")


def described(folder: Path, classifier: LongTailClassifier) -> dict[str, str]:
    parts = load(n_documents=120, n_labels=5)
    classifier.fit(parts["train"], validation=parts["validation"]).save_pretrained(folder)
    return describe_model(LongTailClassifier.from_pretrained(folder), folder)


def test_what_differs_from_the_defaults_is_named(tmp_path: Path) -> None:
    model = Bag(hidden=4, min_df=1)
    training = Training(device="cpu", epochs=1, learning_rate=0.01)
    classifier = LongTailClassifier(
        model, "cb", training=training, folds=1, thresholds="global", loss_settings={"beta": 0.99}
    )
    facts = described(tmp_path, classifier)
    assert date.fromisoformat(facts.pop("trained")) <= datetime.now(UTC).date()
    assert facts == {
        "model": "bag",
        "loss": "cb",
        "thresholds": "global",
        "longtail": __version__,
        "hidden": "4",
        "min_df": "1",
        "beta": "0.99",
        "epochs": "1",
        "learning_rate": "0.01",
        "folds": "1",
    }


def test_a_blend_has_the_values_of_its_members(tmp_path: Path) -> None:
    models = [Bag(C=10.0), Svm()]
    blend = LongTailClassifier(models, training=CPU, folds=2, thresholds="global")
    facts = described(tmp_path, blend)
    assert (facts["model"], facts["loss"], facts["C"]) == (
        "bag + svm",
        "db + \N{EN DASH}",
        "10 + default",
    )
