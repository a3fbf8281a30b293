"""The Reuters corpus: exact figures of a real copy, and a small synthetic one."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from longtail.corpora import load_corpus, reuters
from longtail.data import ReadReport, TextData, read_data
from longtail.errors import DataError

from ..data import cases


def test_the_papers_reuters(shared: Path) -> None:
    parts = load_corpus("reuters", shared / "reuters21578.tar.gz", report=ReadReport())
    assert cases.sizes(parts) == {"train": 6769, "validation": 1000, "test": 3019}
    corpus = TextData.concat(parts.values())
    assert len(corpus.label_names) == 90 and corpus.Y.nnz == 13_328
    per_document = np.diff(parts["test"].Y.indptr)
    assert (per_document == 1).sum() == 2583 and (per_document > 1).sum() == 436
    # A verified conversion; tests/test_shared.py checks its counts and groups.
    validation = (shared / "reuters" / "validation_ids.txt").read_text().split()
    assert set(parts["validation"].ids or ()) == set(validation)
    for part, data in parts.items():
        checked = read_data(shared / "reuters" / f"{part}.jsonl.gz")
        assert data.ids == checked.ids and data.texts == checked.texts
        assert cases.labels_of(data) == cases.labels_of(checked)


TRAIN = {n: ["grain", "wheat"] if n % 3 == 0 else ["gold"] for n in range(2, 42, 2)}
TEST = {101: ["gold"], 103: ["grain", "tin"], 105: ["tin"], 107: ["wheat"]}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A small Reuters with labels in one part only, and the story that NLTK does not have."""
    stories = [cases.story(n, (*topics, "cpu")) for n, topics in TRAIN.items()]
    stories.append(cases.story(1199, ("gold",)))
    stories += [cases.story(n, tuple(topics), "TEST") for n, topics in TEST.items()]
    path = tmp_path / "reuters21578.tar.gz"
    path.write_bytes(cases.tar_of({"reut2-000.sgm": cases.sgml(*reversed(stories))}, "w:gz"))
    return path


@pytest.fixture
def nltk_zip(tmp_path: Path) -> Path:
    labels = {f"training/{number}": [*names, "cpu"] for number, names in TRAIN.items()}
    labels |= {f"test/{number}": names for number, names in TEST.items()}
    files = {f"reuters/{name}": f"TEXT OF {name}\n  text rose." for name in labels}
    cats = "\n".join(f"{name} {' '.join(names)}" for name, names in labels.items())
    return cases.zip_of(tmp_path / "reuters.zip", {**files, "reuters/cats.txt": cats})


def test_only_labels_of_both_parts_count(archive: Path, nltk_zip: Path) -> None:
    for source in (archive, nltk_zip):
        report = ReadReport()
        parts = load_corpus("reuters", source, report=report)
        assert parts["train"].label_names == ("gold", "grain", "wheat")
        assert len(parts["train"]) + len(parts["validation"]) == 20
        assert parts["test"].ids == ("test/101", "test/103", "test/107")
        assert parts["test"].labels_of(1) == ["grain"]
        assert report.passed_over["none of the labels that occur in both parts"] == 1
        numbers = [int(identity.split("/")[1]) for identity in parts["train"].ids or ()]
        assert numbers == sorted(numbers) and 1199 not in numbers


def test_a_copy_in_the_cache_is_used(
    archive: Path, nltk_zip: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "cache" / "reuters"
    folder.mkdir(parents=True)
    monkeypatch.setenv("LONGTAIL_CACHE", str(folder.parent))
    archive.rename(folder / archive.name)
    assert load_corpus("reuters")["test"].texts[0] == "TITLE 101\nBody 101."
    nltk_zip.rename(folder / nltk_zip.name)
    assert load_corpus("reuters")["test"].texts[0] == "TEXT OF test/101\n  text rose."


def test_another_corpus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"text": "a", "labels": ["x"], "id": "1"}\n')
    with pytest.raises(DataError, match="not Reuters-21578"):
        load_corpus("reuters", tmp_path / "data.jsonl")


def test_limits(archive: Path) -> None:
    with pytest.raises(DataError, match=r"the file is larger than 0\.001 MB.*max_record_mb"):
        load_corpus("reuters", archive, max_record_mb=0.001)


@pytest.mark.parametrize(
    ("error", "message"),
    [(MemoryError(), "more memory than available"), (OverflowError("big"), r"\(big\)")],
)
def test_errors_of_python_end_as_ours(
    archive: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(reuters, "paper_split", fail)
    with pytest.raises(DataError, match=f"the corpus reuters.*{message}"):
        load_corpus("reuters", archive, report=ReadReport())


def test_a_warning_names_the_caller(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        content = packed.extractfile("reut2-000.sgm").read()
    files = {"reut2-000.sgm": content, "reut2-001.sgm": cases.sgml("<REUTERS>")}
    folder = cases.write_files(tmp_path / "sgml", files)
    with pytest.warns(UserWarning, match="1 bad record was skipped") as caught:
        load_corpus("reuters", folder, on_error="skip")
    assert caught[0].filename == __file__
