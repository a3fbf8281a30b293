"""The answers of every route."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from fastapi.testclient import TestClient

from longtail import Bag, LongTailClassifier, Training, __version__
from longtail.serve.schemas import MAX_EXPLAINED
from longtail.serve.served import PredictQuery, Served

from .conftest import LABELS, TEXTS, Serve

POLICY = "default-src 'none'; script-src 'self'"


def predict(client: TestClient, *texts: str, **more: Any) -> Any:
    body = {"documents": [{"text": text} for text in texts], **more}
    answer = client.post("/models/run/predict", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["documents"]


def test_state(client: TestClient, serving: Serve) -> None:
    for path in ("/", "/health", "/ready"):
        assert client.head(path).status_code == 200
    assert client.get("/health").json() == {"status": "ok", "version": __version__}
    assert client.get("/ready").json() == {"status": "ready", "models": ["run"]}
    with serving() as stopped:
        pass
    answer = TestClient(stopped.app).get("/ready")
    assert answer.status_code == 503 and answer.json() == {"status": "stopping", "models": []}


def test_models(client: TestClient, serving: Serve, loaded: Served) -> None:
    (model,) = client.get("/models").json()["models"]
    expected = {"name": "run", "n_labels": 3, "n_training_documents": 32, "scale": "logit"}
    assert {key: model[key] for key in expected} == expected and "TF-IDF" in model["title"]
    details = client.get("/models/run").json()
    assert details["card"].startswith("---\n") and "library_name" not in details["card_html"]
    assert "<h1>" in details["card_html"] and details["examples"] == []
    scores = loaded.classifier.facts_.cross_validated
    assert scores is not None
    assert details["held_out"]["all"]["micro_f1"] == scores["all"].micro_f1
    assert details["limits"]["max_body_bytes"] == 10_000_000
    with serving(examples=("copper fell",)) as other:
        assert other.get("/models/run").json()["examples"] == ["copper fell"]
    missing = client.get("/models/other")
    assert missing.status_code == 404 and "one of the models run" in missing.json()["error"]


def test_an_edited_card_runs_no_script(loaded: Served) -> None:
    card = "<script>alert(1)</script>\n\n![x](http://a/b.png) [y](javascript:alert(1)) **bold**\n"
    html = Served("run", loaded.classifier, card).details["card_html"]
    assert "<strong>bold</strong>" in html
    assert not re.search(r"<(script|img)|href=.javascript", html)


def test_predictions_are_those_of_the_classifier(client: TestClient, loaded: Served) -> None:
    texts = ["copper rose", "", "wheat and nickel", "copper rose"]
    documents = predict(client, *texts)
    names = [{label["label"] for label in document["labels"]} for document in documents]
    assert names == [set(labels) for labels in loaded.classifier.predict_labels(texts)]
    (document,) = predict(client, "wheat", top_k=3)
    values = [label["probability"] for label in document["labels"]]
    assert len(values) == 3 and values == sorted(values, reverse=True)
    proba = loaded.classifier.predict_proba(["wheat"])[0]
    for label in document["labels"]:
        k = loaded.labels.index(label["label"])
        assert label["probability"] == pytest.approx(float(proba[k]), rel=1e-5)
        assert label["predicted"] == (label["probability"] >= label["threshold"])
        assert label["reasons"] is None and label["group"] in ("head", "medium", "tail")


def test_each_document_of_a_batch_has_its_own_number_of_labels(loaded: Served) -> None:
    pairs = [("wheat", 3), ("wheat", None), ("copper", 1), ("x", 200)]
    queries = [PredictQuery(text, top_k) for text, top_k in pairs]
    alone = [loaded.predict([query])[0] for query in queries]
    assert loaded.predict(queries) == alone
    assert len(alone[0]) == 3 > len(alone[1]) and len(alone[3]) == 3


def test_margins_have_no_probabilities_and_unseen_labels_are_marked() -> None:
    names = ("copper", "never", "nickel", "wheat")
    matrix = np.array([[name in labels for name in names] for labels in LABELS], dtype=int)
    classifier = LongTailClassifier(
        "svm", thresholds="grid", folds=2, training=Training(device="cpu")
    )
    classifier.fit(TEXTS, matrix, label_names=names)
    served = Served("svm", classifier, "")
    assert served.summary["scale"] == "margin"
    (labels,) = served.predict([PredictQuery("copper", 4)])
    assert all(label["probability"] is None for label in labels) and labels[0]["predicted"]
    assert labels[0]["score"] >= labels[0]["threshold"]
    total, (never,) = served.find_labels("never", 0, 5)
    assert (total, never["group"], never["threshold"]) == (1, "unseen", None)
    assert never["recall"] is None and never["training_documents"] == 0


def test_labels_are_found_by_any_part_of_their_names(client: TestClient, loaded: Served) -> None:
    def find(**query: Any) -> Any:
        return client.get("/models/run/labels", params=query).json()

    everything = find()
    assert everything["total"] == 3 and everything["offset"] == 0
    counts = [label["training_documents"] for label in everything["labels"]]
    assert counts == [16, 16, 8]
    assert [label["label"] for label in find(search="E")["labels"]] == ["copper", "wheat", "nickel"]
    assert [label["label"] for label in find(search="NI")["labels"]] == ["nickel"]
    second = find(offset=1, limit=1)
    assert second["total"] == 3 and len(second["labels"]) == 1
    assert find(search="none") == {"total": 0, "offset": 0, "labels": []}
    facts = loaded.classifier.facts_.label_counts
    assert facts is not None
    (nickel,) = find(search="nickel")["labels"]
    k = loaded.labels.index("nickel")
    assert nickel["precision"] == facts.hits[k] / facts.predicted[k]
    assert nickel["recall"] == facts.hits[k] / facts.actual[k]


class Explanation(NamedTuple):
    words: list[tuple[int, int]]
    labels: list[str]
    values: np.ndarray


def test_reasons_are_the_strongest_words_in_the_order_of_the_text(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\U0001f33e wheat " + " ".join(f"w{k}" for k in range(40))

    def explain(_: Any, texts: list[str], labels: list[str]) -> list[Explanation]:
        assert len(texts) == 1
        words = [match.span() for match in re.finditer(r"\w+", texts[0])]
        values = np.arange(len(words), dtype=float) * np.where(np.arange(len(words)) % 2, 1, -1)
        return [Explanation(words, labels, np.tile(values, (len(labels), 1)))]

    monkeypatch.setattr(LongTailClassifier, "explain", explain, raising=False)
    with_none, document = predict(client, "", text, reasons=True, top_k=1)
    reasons = document["labels"][0]["reasons"]
    assert len(reasons) == 30 and reasons[-1]["word"] == "w39" and with_none["labels"]
    starts = [reason["start"] for reason in reasons]
    assert starts == sorted(starts) and reasons[0]["value"] != 0
    assert all(text[reason["start"] : reason["end"]] == reason["word"] for reason in reasons)
    body = {"documents": [{"text": "a"}] * (MAX_EXPLAINED + 1), "reasons": True}
    answer = client.post("/models/run/predict", json=body)
    assert answer.status_code == 422 and "at most 10 documents" in answer.json()["error"]


def test_reasons_of_the_model(client: TestClient) -> None:
    text = "\U0001f33e copper, not wheat"
    document, empty = predict(client, text, "", reasons=True, top_k=3)
    for label in document["labels"]:
        spans = [(reason["start"], reason["end"], reason["word"]) for reason in label["reasons"]]
        assert {text[start:end] for start, end, _ in spans} <= {"copper", "not", "wheat"}
        assert all(text[start:end] == word for start, end, word in spans)
    values = {
        (label["label"], reason["word"]): reason["value"]
        for label in document["labels"]
        for reason in label["reasons"]
    }
    assert values["copper", "copper"] > 0 > values["copper", "wheat"]
    assert all(label["reasons"] == [] for label in empty["labels"])


def test_a_label_without_a_threshold_is_never_predicted() -> None:
    texts, labels = [*TEXTS, "tin"], [*LABELS, ["tin"]]
    classifier = LongTailClassifier(Bag(), folds=2, training=Training(device="cpu"))
    served = Served("run", classifier.fit(texts, labels), "")
    (answer,) = served.predict([PredictQuery("tin", 4)])
    infinite = ~np.isfinite(classifier.thresholds_.values)
    for label in answer:
        k = served.labels.index(label["label"])
        assert (label["threshold"] is None) == infinite[k]


def test_pages_work_without_a_network(client: TestClient) -> None:
    api = client.get("/openapi.json").json()
    assert set(api["paths"]) == {
        *("/health", "/ready", "/metrics", "/models", "/models/{name}"),
        *(f"/models/{{name}}/{what}" for what in ("labels", "predict", "corrections")),
    }
    for path in ("/", "/docs", "/static/api.css"):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-security-policy"].startswith(POLICY)
        assert not re.search(
            r"""(src|href)=["']?(https?:)?//|<style|style=|<script>""", answer.text
        )
    docs = client.get("/docs").text
    assert not re.search(r'(src|href)="/', docs), "a proxy may put the service into a folder"
    assert "HTTPValidationError" not in docs, "an answer that is never given"
    assert "POST /models/{name}/predict" in docs and 'id="PredictRequest"' in docs
    for link in set(re.findall(r'href="#([^"]*)"', docs)):
        assert f'id="{link}"' in docs, link
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/x.css", "/nothing"):
        assert client.get(path).status_code == 404, path


def test_metrics_count_requests_and_documents(client: TestClient) -> None:
    predict(client, "a", "b")
    client.get("/models/other")
    client.request("BREW", "/health")
    text = client.get("/metrics").text
    assert 'longtail_documents_total{model="run"} 2.0' in text
    line = 'longtail_requests_total{method="GET",route="/models/{name}",status="404"} 1.0'
    assert line in text and "BREW" not in text
    assert 'longtail_batch_documents_sum{model="run",work="predict"} 2.0' in text
