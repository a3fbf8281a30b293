"""The command in use: real verbs on tiny data, messages and exit codes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from longtail import demo
from longtail.corpora import list_corpora
from longtail.corpora.newswire import load
from longtail.data import FORMATS, TextData, read_data

from .conftest import PROGRAM, Command


def test_train_evaluate_report(longtail: Command, folder: Path, tmp_path: Path) -> None:
    for loss in ("db", "bce"):
        flags = ("--out", tmp_path / loss, "--loss", loss, "--folds", 1)
        assert "longtail evaluate" in longtail.ok("train", folder, *flags).out
    assert "tail (" in longtail.ok("evaluate", tmp_path / "db", folder).out
    done = longtail.ok("report", tmp_path / "db", tmp_path / "bce", "--data", folder)
    assert "In macro-F1" in done.out and f"{folder}, test part. " in done.out
    rows = [line for line in done.out.splitlines() if line.startswith("|")]
    assert rows[0].startswith("|  | loss |")
    assert "precision | recall" in rows[4] and len(rows) == 8


def test_stats(longtail: Command, folder: Path, tmp_path: Path) -> None:
    facts = json.loads(longtail.ok("stats", folder, "--json").out)
    assert facts["labels"]["labels"] == 12
    assert sum(part["documents"] for part in facts["parts"].values()) == 300
    figures = tmp_path / "figures"
    out = longtail.ok("stats", folder, "--cuts", "5,40", "--pairs", 3, "--plot", figures).out
    assert "per document, mean" in out and "suggested mu" in out
    for name in ("labels.png", "documents.png"):
        assert str(figures / name) in out.replace("\n", "")
        assert (figures / name).read_bytes().startswith(b"\x89PNG")


def test_reading_options_reach_the_reader(longtail: Command, tmp_path: Path) -> None:
    table = tmp_path / "data.csv"
    rows = "".join(f"{k},text {k},{'a;b' if k % 2 else 'a'}\n" for k in range(40))
    table.write_text("key,title,tags\n" + rows + "40,,a\n41,no labels,\n")
    flags = ("--text-field", "title", "--labels-field", "tags", "--id-field", "key")
    flags = (*flags, "--label-separator", ";")
    longtail.fails("data.csv, line 42: the text is empty.", "stats", table, *flags)
    _, out, err = longtail.ok("stats", table, *flags, "--on-error", "skip", "--json")
    assert "2 bad records were skipped" in err and "line 43" in err
    facts = json.loads(out)
    assert sum(part["documents"] for part in facts["parts"].values()) == 40
    assert facts["labels"]["labels"] == 2
    message = "--path and --set belong to a named corpus"
    longtail.fails(message, "stats", table, *flags, "--set", "seed=1")


def test_corpus(longtail: Command, tmp_path: Path) -> None:
    names = [line.split()[0] for line in longtail("corpus", "list").out.splitlines()]
    assert names == list_corpora()
    assert "6,769 documents" in longtail.ok("corpus", "get", "newswire", "--out", tmp_path).out
    assert len((tmp_path / "test.jsonl").read_text().splitlines()) == 3019
    small = ("--set", "n_documents=50", "--set", "n_labels=5", "--out", tmp_path / "small")
    longtail.ok("corpus", "get", "newswire", *small, "--to", "parquet")
    assert len(TextData.load(tmp_path / "small" / "train.parquet")) == 31


def test_corpus_info_and_formats(
    longtail: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LONGTAIL_CACHE", str(tmp_path))
    out = longtail.ok("corpus", "info", "pubmed").out
    assert "nothing yet" in out and "min_count=5" in out and str(tmp_path) in out
    (tmp_path / "pubmed").mkdir()
    (tmp_path / "pubmed" / "pubmed26n0001.xml.gz").write_bytes(b"")
    assert "pubmed26n0001.xml.gz\n" in longtail("corpus", "info", "pubmed").out
    out = longtail.ok("corpus", "formats").out
    assert [line.split()[0] for line in out.splitlines() if line[0] != " "] == list(FORMATS)


def test_corpus_split_and_convert(longtail: Command, folder: Path, tmp_path: Path) -> None:
    source = folder / "train.jsonl"
    n_documents = len(source.read_text().splitlines())
    done = longtail.ok("corpus", "convert", source, "--out", tmp_path / "a.csv")
    assert f"{n_documents} documents" in done.out
    assert read_data(tmp_path / "a.csv").texts == read_data(source).texts

    def sizes(out: Path, *flags: object) -> dict[str, int]:
        longtail.ok("corpus", "split", source, "--out", out, *flags)
        return {str(p.relative_to(out)): len(read_data(p)) for p in sorted(out.rglob("*.jsonl"))}

    n_by_file = sizes(tmp_path / "s", "--split-method", "stratified", "--shares", "0.5,0.25,0.25")
    assert sum(n_by_file.values()) == n_documents
    assert list(n_by_file) == ["test.jsonl", "train.jsonl", "validation.jsonl"]
    n_by_file = sizes(tmp_path / "f", "--folds", 3)
    assert sum(n for name, n in n_by_file.items() if "test" in name) == n_documents
    assert len(n_by_file) == 6
    (tmp_path / "ids.txt").write_text("\n".join((read_data(source).ids or ())[:7]))
    assert sizes(tmp_path / "i", "--ids", tmp_path / "ids.txt")["test.jsonl"] == 7


def test_demo_prints_a_document_a_table_and_a_sentence(
    longtail: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "load_corpus", lambda name: load(n_documents=600, n_labels=30))
    out = longtail.ok("demo").out
    assert all(words in out for words in ("labels: ", "bce", "tail (", "What you see"))


def test_a_file_is_evaluated_whole_and_unknown_labels_are_named(
    longtail: Command, trained: Path, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "d[bold].jsonl"
    lines = (folder / "test.jsonl").read_text().splitlines()
    strange = json.dumps({"text": "nothing known", "labels": ["martian"]})
    file.write_text("\n".join([*lines, strange]) + "\n")
    out = longtail.ok("evaluate", trained, file).out
    assert f"{len(lines) + 1} documents of" in " ".join(out.split()) and "[bold]" in out
    assert (
        "Not evaluated: 1 assignment of 1 label that" in " ".join(out.split())
        and "'martian'" in out
    )
    result = json.loads(longtail("evaluate", trained, file, "--json").out)
    assert result["overall"]["n_documents"] == len(lines) + 1
    assert result["unknown_labels"] == {"martian": 1}


def test_a_missing_test_part_is_reported_before_training(
    longtail: Command, trained: Path, folder: Path, tmp_path: Path
) -> None:
    shutil.copy(folder / "train.jsonl", tmp_path / "train.jsonl")
    (tmp_path / "db.yaml").write_text("loss: db\n")
    for arguments in (
        ["report", trained, "--data", tmp_path],
        ["evaluate", trained, tmp_path],
        ["reproduce", tmp_path, "--recipes", tmp_path, "--out", tmp_path / "out"],
    ):
        longtail.fails("unknown part 'test'", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train newswires --out x", "no such file or folder: newswires. Did you mean 'newswire'"),
        ("train newswire --out x --loss dbb", "Did you mean 'db'"),
        ("evaluate ../a.csv newswire", "../a.csv is a file. Expected a model folder"),
        ("stats ./reuters", "no such file or folder: ./reuters. Expected a file such as"),
        ("stats reuter", "Did you mean 'reuters'"),
        ("stats ../wide.csv --label-columns *", "name it with id_field (--id-field ID)"),
        ("corpus info pubmeds", "Did you mean 'pubmed'"),
        ("corpus get newswire --set n_docs=5", "Did you mean 'n_documents'"),
        ("reproduce newswire --recipes none --out x", "unknown recipes"),
        ("stats newswire --label-separator ;", "does not take --label-separator"),
        ("stats newswire --format csv", "does not take --format"),
        ("stats newswire --set seed=[", "cannot be read"),
        ("stats newswire --set path=abc", "unknown setting"),
        ("stats newswire --set seed=1.5", "must be int, got 1.5"),
        ("stats newswire --cuts nan,nan", "--cuts takes numbers"),
        ("stats newswire --split-method bogus", "unknown split method 'bogus'"),
        ("stats newswire --min-count -1", "--min-count must be at least 0"),
        ("corpus convert ../a.csv --path b --out c.csv", "belong to a named corpus"),
        ("corpus split ../a.csv --ids ../bad.txt --out o", "not valid UTF-8"),
        ("corpus split ../a.csv --ids ../bad.txt --folds 3 --out o", "cannot be combined"),
        ("corpus split ../a.csv --shares a,b --out o", "--shares takes numbers"),
        ("corpus split ../a.csv --shares 1 --out o", "--shares takes two or three shares"),
    ],
)
def test_errors_are_one_message_and_nothing_is_written(
    longtail: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: str,
    message: str,
) -> None:
    (tmp_path / "a.csv").write_text("text,labels\none,x\ntwo,x\n")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\n")
    (tmp_path / "wide.csv").write_text("ID,text,a,b\n17,one,0,1\n18,two,1,1\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    longtail.fails(message, *arguments.split())
    assert not list(empty.iterdir())


def test_missing_inputs_are_reported_before_heavy_imports(
    tmp_path: Path, trained: Path, folder: Path
) -> None:
    for arguments, missing in (
        (["evaluate", tmp_path / "none", folder], "none holds no longtail model"),
        (["evaluate", trained, tmp_path / "none.csv"], "no such file or folder"),
        (["report", trained, tmp_path / "none", "--data", folder], "holds no longtail model"),
        (["predict", tmp_path / "none", folder], "holds no longtail model"),
        (["serve", tmp_path / "none"], "holds no longtail model"),
    ):
        command = [sys.executable, "-X", "importtime", *PROGRAM[1:], *map(str, arguments)]
        child = subprocess.run(command, capture_output=True, check=False, text=True)
        assert child.returncode == 1 and missing in child.stderr
        modules = {line.rpartition("|")[2].strip() for line in child.stderr.splitlines()}
        assert "typer" in modules and not modules & {"torch", "sklearn", "transformers"}


def test_an_unknown_part_is_an_error(longtail: Command, trained: Path) -> None:
    longtail.fails("Did you mean 'test'", "evaluate", trained, "newswire", "--part", "tests")


def test_missing_permissions_are_reported(
    longtail: Command, trained: Path, folder: Path, tmp_path: Path, unprivileged: None
) -> None:
    run, data, shut = tmp_path / "run", tmp_path / "data.jsonl", tmp_path / "shut"
    shutil.copytree(trained, run)
    shutil.copy(folder / "test.jsonl", data)
    shut.mkdir(mode=0o555)
    writing = (
        ("train", data, "--out", shut / "model"),
        ("report", run, "--data", data, "--out", shut / "report.md"),
        ("corpus", "convert", data, "--out", shut / "data.csv"),
    )
    for arguments in writing:
        error = longtail.fails("ermission", *arguments)
        assert str(shut) in error.replace("\n", "") and ".longtail-" not in error
    for path in (run / "model.safetensors", run / "longtail.json", run, data):
        before = path.stat().st_mode
        path.chmod(0)
        for verb in (("evaluate", run, data), ("report", run, "--data", data)):
            error = longtail.fails("no permission for", *verb).replace("\n", "")
            assert str(path) in error and "damaged" not in error and "Copy" not in error
        path.chmod(before)


def test_usage_errors_exit_with_2(longtail: Command) -> None:
    code, _, err = longtail("train", "newswire")
    assert code == 2 and "--out" in err


def one_file(folder: Path, name: str = "reviews.csv") -> Path:
    path = folder / name
    rows = "".join(f"{k},text {k} word{k % 11},{'a;b' if k % 3 else 'c'}\n" for k in range(100))
    path.write_text("id,text,labels\n" + rows)
    return path


def test_the_command_to_evaluate_is_printed_and_works(longtail: Command, tmp_path: Path) -> None:
    table, model = one_file(tmp_path), tmp_path / "my run"
    train = ("train", table, "--label-separator", ";", "--folds", 1, "--out", model)
    out = longtail.ok(*train, "--split-seed", 7, "--split-method", "stratified").out
    hint = shlex.split(out.split("Evaluate it with: ")[1])
    assert hint == ["longtail", "evaluate", str(model), str(table)]
    assert json.loads(longtail.ok(*hint[1:], "--json").out)["documents"]["evaluated"] == 20


def test_parts_are_not_mixed_with_old_ones(longtail: Command, tmp_path: Path) -> None:
    table, out = one_file(tmp_path), tmp_path / "parts"
    split = ("corpus", "split", table, "--label-separator", ";", "--out", out)
    assert "70 documents" in longtail.ok(*split, "--shares", "70,10,20").out
    longtail.ok("stats", out)
    longtail.fails("is not an empty folder", *split, "--shares", "0.8,0.2")
    longtail.fails("is not an empty folder", "corpus", "get", "newswire", "--out", out)
    done = longtail.ok("corpus", "convert", out, "--out", tmp_path / "b.jsonl")
    assert "100 documents" in done.out
    (out / "test.jsonl").write_text((out / "train.jsonl").read_text())
    message = "occurs in several parts"
    longtail.fails(message, "corpus", "convert", out, "--out", tmp_path / "c.jsonl")


def test_characters_that_the_console_cannot_encode_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    lines = [f'{{"text": "t{k}", "labels": ["\u65e5"]}}\n' for k in range(9)]
    path.write_text("".join(lines), "utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    command = [*PROGRAM, "stats", str(path), "--json"]
    child = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert child.returncode == 0, child.stderr
    assert b"\\u65e5" in child.stdout


def test_reports_in_every_format(
    longtail: Command, trained: Path, folder: Path, tmp_path: Path
) -> None:
    starts = {"page.html": "<!doctype html>", "tables.tex": "%", "all.json": "{", "tables.md": "#"}
    starts["labels.csv"] = "label,group,train_count,documents,predicted,threshold,precision,recall"
    report = ("report", trained, "--data", folder)
    for name, start in starts.items():
        out = tmp_path / "reports" / name
        done = longtail.ok(*report, "--out", out)
        assert str(out) in done.out.replace("\n", "")
        text = out.read_text("utf-8")
        assert text.lower().startswith(start), text[:80]
        assert "64.47" not in text  # the paper's macro-F1 of the DB loss, on another corpus
    assert "\\toprule" in longtail.ok(*report, "--to", "latex").out
    longtail.fails("unknown format '.pdf'", *report, "--out", "a.pdf")


def test_the_wrong_kind_of_data_is_explained(
    longtail: Command, trained: Path, tmp_path: Path
) -> None:
    longtail.fails(f"{trained} is a model folder", "stats", trained)
    table = tmp_path / "rows.json"
    table.write_text('[{"text": "a", "labels": ["x"]}]')
    err = longtail.fails(f"{table}: expected ", "stats", table)
    assert "orient='records', lines=True" in err
    indexed = tmp_path / "indexed.csv"
    indexed.write_text(",text,a,b\n0,one,0,1\n1,two,1,0\n")
    longtail.fails(
        "column 1 has no name (a pandas index?)", "stats", indexed, "--label-columns", "*"
    )


def test_data_that_cannot_be_split_are_named(longtail: Command, tmp_path: Path) -> None:
    table = tmp_path / "g.csv"
    table.write_text("text,labels\na,x\n,y\n,z\n")
    err = longtail.fails("g.csv: cannot split 1 document into", "stats", table, "--on-error=skip")
    assert "2 bad records were skipped of 3" in err and "g.csv, line 3: the text is empty" in err
    table.write_text("text,labels,date\na,x,1.1.2025\nb,x,2.1.2025\nc,x,3.1.2025\n")
    time = ("stats", table, "--split-method", "time")
    err = longtail.fails("g.csv: document 1 has the date '1.1.2025'", *time)
    assert "choose another" in err and "--split-method" in err
    longtail.fails("Did you mean 'date'", *time, "--date-field", "Date")


def test_parts_with_other_fields_than_the_training_data(longtail: Command, tmp_path: Path) -> None:
    table, run, parts = tmp_path / "t.csv", tmp_path / "run", tmp_path / "parts"
    rows = (f"text {k} {'wheat' * (k % 2)},{'ab'[k % 2]}\n" for k in range(60))
    table.write_text("subject,tags\n" + "".join(rows))
    fields = ("--text-field", "subject", "--labels-field", "tags")
    longtail.ok("train", table, *fields, "--folds", 1, "--out", run)
    longtail.ok("corpus", "split", table, *fields, "--out", parts)
    err = longtail.fails("test.jsonl, line 1: expected a string", "evaluate", run, parts)
    flags = err.split("Pass ")[1].strip().rstrip(".").split()
    longtail.ok("evaluate", run, parts, *flags)
    (parts / "test.xlsx").touch()
    assert "1 left out: data file" in longtail.ok("evaluate", run, parts, *flags).err
    message = "in field 'tag', got none. Did you mean 'tags'"
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"subject": "wheat", "tags": ["a"]}\n')
    longtail.fails(message, "evaluate", run, lines, "--labels-field", "tag")
    (parts / "test.jsonl").unlink()
    out = longtail.ok("train", parts, "--folds", 1, "--out", tmp_path / "second").out
    assert "has no test part" in out and "Evaluate it with" not in out
