"""The PubMed corpus: the paper's recipe from both sources, and a real MEDLINE file."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from sklearn.model_selection import train_test_split

from longtail.corpora import load_corpus, pubmed
from longtail.data import ReadReport, TextData, read_data
from longtail.errors import DataError, InputError

from ..data import cases

SMALL = dict(min_count=5, n_validation=10, n_test=20)


def read(path: Path | None, **settings: Any) -> dict[str, TextData]:
    return load_corpus("pubmed", path, **{"report": ReadReport(), **SMALL, **settings})


def labels_of(number: int) -> list[str]:
    return ["Humans", *(["Mice"] if number % 7 == 0 else []), *(["Rare"] if number < 3 else [])]


def year_of(number: int) -> int:
    return 2019 + number % 3


def medline_headings(number: int) -> str:
    major = "Y" if number % 2 else "N"
    return "".join(
        cases.heading(name, major if k == 0 else "N") for k, name in enumerate(labels_of(number))
    )


@pytest.fixture
def bioasq(tmp_path: Path) -> Path:
    path = tmp_path / "allMeSH.json"
    articles = [cases.article(n, year=str(year_of(n)), meshMajor=labels_of(n)) for n in range(150)]
    path.write_bytes(cases.bioasq(*articles))
    return path


@pytest.fixture
def medline(tmp_path: Path) -> Path:
    """The same documents as MEDLINE, in three files."""
    citations = [
        cases.citation(n, headings=medline_headings(n), date=f"<Year>{year_of(n)}</Year>")
        for n in range(150)
    ]
    files = {
        f"pubmed26n000{k}.xml.gz": gzip.compress(cases.xml(*citations[50 * k : 50 * k + 50]))
        for k in range(3)
    }
    return cases.write_files(tmp_path / "medline", files)


def test_both_sources_give_the_same_corpus(bioasq: Path, medline: Path) -> None:
    report = ReadReport()
    first, second = read(bioasq, report=report), read(medline)
    for part, data in first.items():
        assert data.fingerprint() == second[part].fingerprint()
        assert (data.ids, data.dates) == (second[part].ids, second[part].dates)
    assert report.passed_over == {"not of the years 2020-2021": 50}
    assert report.notes and "Left out: 1 labels with" in report.notes[0]


def test_the_parts_are_those_of_scikit_learn(bioasq: Path) -> None:
    parts = read(bioasq)
    ids = [str(n) for n in range(150) if year_of(n) in (2020, 2021)]
    train, held_out = train_test_split(ids, random_state=123, test_size=30)
    validation, test = train_test_split(held_out, random_state=123, test_size=20)
    for part, expected in (("train", train), ("validation", validation), ("test", test)):
        assert parts[part].ids == tuple(sorted(expected, key=int))
        assert parts[part].label_names == ("Humans", "Mice")
        assert set(parts[part].dates or ()) == {"2020", "2021"}
    first = next(iter(parts["train"]))
    assert first.text == f"Title {first.id}. Abstract {first.id}."


def test_years_and_major_topics(bioasq: Path, medline: Path) -> None:
    assert sum(map(len, read(bioasq, years="all").values())) == 150
    assert sum(map(len, read(bioasq, years=2019).values())) == 50
    major = TextData.concat(read(medline, years="all", major_topics=True).values())
    assert len(major) == 75 and major.label_names == ("Humans",)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_test": 5000, "n_validation": 50}, r"cannot hold out 50 \+ 5000 of 100 documents"),
        ({"n_test": 90}, r"cannot hold out 10 \+ 90 of 100 documents"),
        ({"n_test": 0}, r"cannot hold out 10 \+ 0 of"),
        ({"years": "1990-1991"}, r"(?s)holds no documents.*not of the years 1990-1991"),
        ({"years": "nineties"}, "years must look like"),
        ({"min_count": 500}, "no label has 500 training documents"),
        ({"major_topics": True}, "do not say which headings are major"),
        ({"n_test": "many"}, "the setting n_test of the corpus pubmed must be int, got 'many'"),
        ({"n_test": 1.5}, "the setting n_test .* must be int"),
        ({"major_topics": 1}, "the setting major_topics .* must be bool"),
        ({"max_record_mb": "1"}, "the setting max_record_mb .* must be float"),
    ],
)
def test_wrong_settings(bioasq: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, InputError), match=message):
        read(bioasq, **settings)


def test_without_files_it_says_what_to_place_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bioasq: Path
) -> None:
    folder = tmp_path / "cache" / "pubmed"
    monkeypatch.setenv("LONGTAIL_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError) as caught:
        load_corpus("pubmed")
    for words in (str(folder), "allMeSH_2021.json", pubmed.BASELINE):
        assert words in str(caught.value)
    folder.mkdir(parents=True)
    bioasq.rename(folder / bioasq.name)
    assert len(read(None)["test"]) == 20


def test_a_real_medline_file(shared: Path) -> None:
    report = ReadReport()
    data = read_data(shared / "pubmed20n0014.xml.gz", report=report)
    assert len(data) == 14_832 and report.passed_over.total() + len(data) == 30_000
    assert report.passed_over == {"no abstract": 15_166, "no MeSH headings": 2}
    assert len(data.label_names) == 9315
    assert data.Y.nnz / len(data) == pytest.approx(10.6053, abs=5e-5)
    files = [shared / "pubmed_mesh" / f"{part}.jsonl.gz" for part in ("train", "test")]
    converted = TextData.concat(map(read_data, files))
    expected = {d.id: (" ".join(d.text.split()), set(d.labels)) for d in converted}
    assert {d.id: (d.text, set(d.labels)) for d in data} == expected
