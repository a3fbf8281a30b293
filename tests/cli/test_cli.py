"""The command as a user meets it: real verbs on tiny data, messages and exit codes."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longtail import demo
from longtail.corpora import list_corpora
from longtail.corpora.newswire import load
from longtail.data import TextData, list_formats, read_data

Command = Callable[..., Any]


def test_train_evaluate_predict_report(
    longtail: Command,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    tmp_path: Path,
) -> None:
    for loss in ("db", "bce"):
        code, out, _ = longtail("train", folder, "--out", tmp_path / loss,
            "--loss", loss, "--folds", 1,
        )  # fmt: skip
        assert code == 0 and "longtail evaluate" in out
    code, out, _ = longtail("evaluate", tmp_path / "db", folder, "--json")
    assert code == 0
    found = json.loads(out)
    assert 0 < found["overall"]["micro_f1"] <= 1 and {"head", "medium", "tail"} <= set(found)
    code, out, _ = longtail("evaluate", tmp_path / "db", folder)
    assert code == 0 and "tail (" in out
    code, out, _ = longtail("report", tmp_path / "db", tmp_path / "bce", "--data", folder)
    assert code == 0 and out.count("\n") == 4
    typed = io.BytesIO(b"Earnings figures rose\nwheat harvest\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(typed))
    code, out, _ = longtail("predict", tmp_path / "db")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["text"] for line in lines] == ["Earnings figures rose", "wheat harvest"]
    assert all(isinstance(line["labels"], list) for line in lines)


def test_stats(longtail: Command, folder: Path) -> None:
    code, out, _ = longtail("stats", folder, "--json")
    facts = json.loads(out)
    assert code == 0 and facts["labels"]["labels"] == 12
    assert sum(part["documents"] for part in facts["parts"].values()) == 300
    code, out, _ = longtail("stats", folder, "--cuts", "5,40", "--pairs", 3)
    assert code == 0 and "per document, mean" in out and "suggested mu" in out


def test_stats_draws_figures(
    longtail: Command,
    folder: Path,
    tmp_path: Path,
) -> None:
    code, out, _ = longtail("stats", folder, "--plot", tmp_path / "figures")
    assert code == 0
    for name in ("labels.png", "documents.png"):
        assert str(tmp_path / "figures" / name) in out.replace("\n", "")
        assert (tmp_path / "figures" / name).read_bytes().startswith(b"\x89PNG")


def test_reading_options_reach_the_reader(longtail: Command, tmp_path: Path) -> None:
    table = tmp_path / "data.csv"
    rows = "".join(f"{k},text {k},{'a;b' if k % 2 else 'a'}\n" for k in range(40))
    table.write_text("key,title,tags\n" + rows + "40,,a\n41,no labels,\n")
    flags = ("--text-field", "title", "--labels-field", "tags", "--id-field", "key")
    flags = (*flags, "--label-separator", ";")
    code, _, err = longtail("stats", table, *flags)
    assert code == 1 and "data.csv, line 42: the text is empty." in err
    code, out, err = longtail("stats", table, *flags, "--on-error", "skip", "--json")
    assert code == 0 and "2 bad records were skipped" in err and "line 43" in err
    facts = json.loads(out)
    assert sum(part["documents"] for part in facts["parts"].values()) == 40
    assert facts["labels"]["labels"] == 2
    code, _, err = longtail("stats", "newswire", "--label-separator", ";")
    assert code == 1 and "has no use for --label-separator" in err
    code, _, err = longtail("stats", table, *flags, "--set", "seed=1")
    assert code == 1 and "--path and --set belong to a named corpus" in err


def test_corpus(longtail: Command, tmp_path: Path) -> None:
    names = [line.split()[0] for line in longtail("corpus", "list")[1].splitlines()]
    assert names == list_corpora()
    code, out, _ = longtail("corpus", "get", "newswire", "--out", tmp_path)
    assert code == 0 and "6769 documents" in out
    assert len((tmp_path / "test.jsonl").read_text().splitlines()) == 3019
    code, out, _ = longtail("corpus", "get", "newswire", "--set", "n_documents=50", "--set",
        "n_labels=5", "--out", tmp_path / "small", "--to", "parquet",
    )  # fmt: skip
    assert code == 0 and len(TextData.load(tmp_path / "small" / "train.parquet")) == 31
    code, _, err = longtail("corpus", "get", "newswire", "--set", "n_docs=5")
    assert code == 1 and "Did you mean 'n_documents'" in err


def test_corpus_info_and_formats(
    longtail: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LONGTAIL_CACHE", str(tmp_path))
    code, out, _ = longtail("corpus", "info", "pubmed")
    assert code == 0 and "nothing yet" in out and "min_count=5" in out and str(tmp_path) in out
    (tmp_path / "pubmed").mkdir()
    (tmp_path / "pubmed" / "pubmed26n0001.xml.gz").write_bytes(b"")
    assert "pubmed26n0001.xml.gz\n" in longtail("corpus", "info", "pubmed")[1]
    code, _, err = longtail("corpus", "info", "pubmeds")
    assert code == 1 and "Did you mean 'pubmed'" in err
    code, out, _ = longtail("corpus", "formats")
    listed = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert code == 0 and listed == list_formats()


def test_corpus_split_and_convert(
    longtail: Command,
    folder: Path,
    tmp_path: Path,
) -> None:
    source = folder / "train.jsonl"
    n_documents = len(source.read_text().splitlines())
    code, out, _ = longtail("corpus", "convert", source, "--out", tmp_path / "a.csv")
    assert code == 0 and f"{n_documents} documents" in out
    assert read_data(tmp_path / "a.csv").texts == read_data(source).texts

    def sizes(where: Path, *flags: object) -> dict[str, int]:
        call = ("corpus", "split", source, "--out", where, *flags)
        code, _, err = longtail(*call)
        assert code == 0, err
        return {
            str(p.relative_to(where)): len(read_data(p)) for p in sorted(where.rglob("*.jsonl"))
        }

    found = sizes(tmp_path / "s", "--split-method", "stratified", "--shares", "0.5,0.25,0.25")
    assert sum(found.values()) == n_documents and set(found) == {
        "train.jsonl",
        "validation.jsonl",
        "test.jsonl",
    }
    found = sizes(tmp_path / "f", "--folds", 3)
    assert sum(n for name, n in found.items() if "test" in name) == n_documents
    assert len(found) == 6
    chosen = read_data(source).ids or ()
    (tmp_path / "ids.txt").write_text("\n".join(chosen[:7]))
    assert sizes(tmp_path / "i", "--ids", tmp_path / "ids.txt")["test.jsonl"] == 7
    code, _, err = longtail("corpus", "split", source, "--out", tmp_path / "x", "--shares", "a,b")
    assert code == 1 and "--shares takes numbers" in err


def test_demo_prints_a_document_a_table_and_a_sentence(
    longtail: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "load_corpus", lambda name: load(n_documents=600, n_labels=30))
    code, out, _ = longtail("demo")
    assert code == 0
    assert "labels: " in out and "bce" in out and "tail (" in out and "What you see" in out


def test_a_file_is_judged_whole_and_unknown_labels_are_named(
    longtail: Command,
    trained: Path,
    folder: Path,
    tmp_path: Path,
) -> None:
    file = tmp_path / "d[bold].jsonl"
    lines = (folder / "test.jsonl").read_text().splitlines()
    strange = json.dumps({"text": "nothing known", "labels": ["martian"]})
    file.write_text("\n".join([*lines, strange]) + "\n")
    code, out, _ = longtail("evaluate", trained, file)
    assert code == 0
    assert f"{len(lines) + 1} documents of" in " ".join(out.split()) and "[bold]" in out
    assert "Not evaluated: 1 assignments of 1 labels" in out and "'martian'" in out
    _, out, _ = longtail("evaluate", trained, file, "--json")
    found = json.loads(out)
    assert found["overall"]["n_documents"] == len(lines) + 1
    assert found["unknown_labels"] == {"martian": 1}


@pytest.mark.parametrize("damage", ["model.safetensors", "vocabulary.json", "truncate", "config"])
def test_a_damaged_model_is_one_message(
    longtail: Command,
    trained: Path,
    tmp_path: Path,
    damage: str,
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(trained, broken)
    if damage == "truncate":
        (broken / "model.safetensors").write_bytes(b"short")
    elif damage == "config":
        (broken / "longtail.json").write_text("{}")
    else:
        (broken / damage).unlink()
    code, _, err = longtail("evaluate", broken, "newswire")
    assert code == 1 and "Traceback" not in err
    assert "train it again" in err or "not of a longtail model" in err


def test_predict_refuses_text_that_is_not_utf8(trained: Path) -> None:
    command = [sys.executable, "-c", "from longtail.cli import main; main()", "predict", trained]
    done = subprocess.run(
        list(map(str, command)), input=b"caf\xe9\n", capture_output=True, check=False
    )
    assert done.returncode == 1 and b"not valid UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr


def test_out_is_looked_at_before_training(longtail: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below", tmp_path):
        code, _, err = longtail("train", "newswire", "--out", out)
        assert code == 1 and "Choose another folder" in err
    assert (tmp_path / "file").read_text() == "mine"


def test_a_missing_test_part_is_said_before_training(
    longtail: Command,
    trained: Path,
    folder: Path,
    tmp_path: Path,
) -> None:
    shutil.copy(folder / "train.jsonl", tmp_path / "train.jsonl")
    (tmp_path / "db.yaml").write_text("loss: db\n")
    for arguments in (
        ["report", trained, "--data", tmp_path],
        ["evaluate", trained, tmp_path],
        ["reproduce", tmp_path, "--recipes", tmp_path, "--out", tmp_path / "out"],
    ):
        code, _, err = longtail(*arguments)
        assert code == 1 and "unknown part 'test'" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "newswires", "--out", "x"], "neither a known corpus"),
        (["train", "newswire", "--out", "x", "--loss", "dbb"], "Did you mean 'db'"),
        (
            ["train", "newswire", "--out", "x", "--encoder", "y"],
            "encoder is a setting of the model encoder",
        ),
        (
            ["train", "newswire", "--out", "x", "--model", "svm", "--loss", "db"],
            "loss has no effect on the model svm",
        ),
        (["evaluate", "nowhere", "newswire"], "holds no longtail model"),
        (["evaluate", "nowhere", "newswire", "--part", "tests"], "Did you mean 'test'"),
        (["corpus", "get", "reuter", "--out", "x"], "Did you mean 'reuters'"),
        (["reproduce", "newswire", "--recipes", "none", "--out", "x"], "unknown recipes"),
    ],
)
def test_errors_are_one_message_without_a_traceback(
    longtail: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = longtail(*arguments)
    assert code == 1
    assert err.splitlines()[-1].startswith("error: ") and message in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_usage_errors_exit_with_2(longtail: Command) -> None:
    code, _, err = longtail("train", "newswire")
    assert code == 2 and "--out" in err


def one_file(folder: Path, name: str = "reviews.csv") -> Path:
    path = folder / name
    rows = "".join(f"{k},text {k % 7} word{k % 11},{'a;b' if k % 3 else 'c'}\n" for k in range(100))
    path.write_text("id,text,labels\n" + rows)
    return path


def test_a_file_that_was_trained_on_is_judged_on_its_test_part(
    longtail: Command, tmp_path: Path
) -> None:
    table, model = one_file(tmp_path), tmp_path / "my run"
    code, out, err = longtail("train", table, "--label-separator", ";", "--folds", 1,
        "--out", model, "--split-seed", 7, "--split-method", "stratified",
    )  # fmt: skip
    assert code == 0, err
    hint = shlex.split(out.split("Evaluate it with: ")[1])
    assert hint[:4] == ["longtail", "evaluate", str(model), str(table)]
    assert hint[4:] == ["--label-separator", ";"]
    code, out, err = longtail(*hint[1:], "--json")
    assert code == 0 and "judging its test part" in err
    assert json.loads(out)["overall"]["n_documents"] == 20
    # The options and the split of the training hold even if they are not said again.
    again = longtail("evaluate", model, table, "--json")[1]
    assert json.loads(again)["overall"] == json.loads(out)["overall"]
    named = longtail("evaluate", model, table, "--json", "--part", "test")[1]
    assert json.loads(named)["overall"] == json.loads(out)["overall"]
    longtail("train", table, "--label-separator", ";", "--folds", 1,
        "--out", tmp_path / "second", "--split-seed", 8,
    )  # fmt: skip
    code, _, err = longtail("report", model, tmp_path / "second", "--data", table)
    assert code == 1 and "were not trained on the same split" in err.replace("\n", " ")
    other = one_file(tmp_path, "other.csv")
    code, out, err = longtail("evaluate", model, other, "--label-separator", ";", "--json")
    assert code == 0 and json.loads(out)["overall"]["n_documents"] == 100
    code, out, _ = longtail("report", model, "--data", table)
    assert code == 0 and str(model) in out


def test_what_is_written_can_be_read_and_is_not_mixed(longtail: Command, tmp_path: Path) -> None:
    table, out = one_file(tmp_path), tmp_path / "parts"
    split = ("corpus", "split", table, "--label-separator", ";", "--out", out)
    code, said, err = longtail(*split, "--shares", "70,10,20")
    assert code == 0 and "70 documents" in said, err
    assert longtail("stats", out)[0] == 0
    code, _, err = longtail(*split, "--shares", "0.8,0.2")
    assert code == 1 and "is not an empty folder" in err
    code, _, err = longtail("corpus", "get", "newswire", "--out", out)
    assert code == 1 and "is not an empty folder" in err
    code, said, err = longtail("corpus", "convert", out, "--out", tmp_path / "b.jsonl")
    assert code == 0 and "100 documents" in said
    (out / "test.jsonl").write_text((out / "train.jsonl").read_text())
    code, _, err = longtail("corpus", "convert", out, "--out", tmp_path / "c.jsonl")
    assert code == 1 and "stands in several parts" in err


def test_a_folder_of_files_is_converted_in_its_order(longtail: Command, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for k in range(2):
        (folder / f"{k}.jsonl").write_text(f'{{"text": "text {k}", "labels": ["a"]}}\n')
    code, _, err = longtail("corpus", "convert", folder, "--out", tmp_path / "a.csv")
    assert code == 0, err
    assert read_data(tmp_path / "a.csv").texts == ["text 0", "text 1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stats", "newswire", "--set", "seed=["], "cannot be read"),
        (["stats", "newswire", "--set", "path=abc"], "unknown setting"),
        (["stats", "newswire", "--set", "report=1"], "unknown setting"),
        (["stats", "newswire", "--set", "n_documents=abc"], "must be int"),
        (["stats", "newswire", "--set", "seed=1.5"], "must be int, got 1.5"),
        (["stats", "newswire", "--cuts", "nan,nan"], "--cuts takes numbers"),
        (["stats", "newswire", "--split-method", "bogus"], "unknown split method 'bogus'"),
        (
            ["corpus", "convert", "a.csv", "--path", "b", "--out", "c.csv"],
            "belong to a named corpus",
        ),
        (["corpus", "split", "a.csv", "--ids", "bad.txt", "--out", "o"], "not valid UTF-8"),
        (["corpus", "split", "a.csv", "--ids", "bad.txt", "--folds", "3", "--out", "o"], "exclude"),
    ],
)
def test_wrong_options_are_one_message(
    longtail: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("text,labels\none,x\ntwo,x\n")
    Path("bad.txt").write_bytes(b"\xff\xfe\n")
    code, _, err = longtail(*arguments)
    assert code == 1 and err.splitlines()[-1].startswith("error: ") and message in err


def test_a_console_that_cannot_show_a_label_shows_its_code(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(
        "".join(f'{{"text": "t{k}", "labels": ["\u65e5"]}}\n' for k in range(9)), "utf-8"
    )
    command = [
        sys.executable,
        "-c",
        "from longtail.cli import main; main()",
        "stats",
        str(path),
        "--json",
    ]
    child = subprocess.run(
        command, capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "cp1252"}
    )
    assert child.returncode == 0, child.stderr
    assert b"\\u65e5" in child.stdout


def test_reports_in_every_format(
    longtail: Command,
    trained: Path,
    folder: Path,
    tmp_path: Path,
) -> None:
    starts = {"page.html": "<!doctype html>", "tables.tex": "%", "all.json": "{", "tables.md": "#"}
    for name, start in starts.items():
        out = tmp_path / "reports" / name
        code, said, err = longtail(
            "report",
            trained,
            "--data",
            folder,
            "--out",
            out,
            "--paper",
            "reuters",
        )
        assert code == 0 and str(out) in said.replace("\n", ""), err
        text = out.read_text("utf-8")
        assert text.lower().startswith(start), text[:80]
        assert "64.47" in text  # the paper's macro-F1 of the DB loss
    code, out_text, _ = longtail("report", trained, "--data", folder, "--to", "latex")
    assert code == 0 and "\\toprule" in out_text
    code, _, err = longtail("report", trained, "--data", folder, "--out", "a.pdf")
    assert code == 1 and "unknown format '.pdf'" in err
