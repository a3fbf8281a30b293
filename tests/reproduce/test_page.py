"""The results page, its links and tables, and the JSON file it is generated from."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from longtail.analysis import confused_pairs
from longtail.errors import InputError
from longtail.reproduce.cells import read_finished
from longtail.reproduce.claims import CLAIMS
from longtail.reproduce.page import figure_table, results_markdown
from longtail.reproduce.run import cells_of

from .cases import bags, documents, networks, run

RESULTS = sorted((Path(__file__).parents[2] / "results").glob("*.json"))
# The others are of benchmarks.
PUBLISHED = [path for path in RESULTS if "corpus" in json.loads(path.read_text())]
LOSSES = ("bce", "fl", "cb", "r-fl", "ntr-fl", "db-0fl", "cb-ntr", "db")


def headings(page: str) -> list[str]:
    return re.findall("^## (.*)$", page, re.MULTILINE)


def test_a_corpus_of_the_paper_has_its_figures_claims_and_pairs(tmp_path: Path) -> None:
    stem = tmp_path / "published" / "tiny-1.5"
    svm = {"model": "svm", "folds": 1, "thresholds": "grid"}
    recipes = {"svm": svm, **bags(*LOSSES), "best": bags("db")["db"]}
    outcome, _ = run(
        recipes, tmp_path / "out", corpus="reuters", command="longtail reproduce x", publish=stem
    )
    files = set()
    for folder, name in ((tmp_path / "out", "results"), (stem.parent, stem.name)):
        page = (folder / f"{name}.md").read_text("utf-8")
        links = re.findall(r"!\[[^]]*\]\(([^)]*)\)", page)
        assert links == [f"{name}.png", f"{name}-labels.png"]
        assert all((folder / link).read_bytes().startswith(b"\x89PNG") for link in links)
        files |= {folder / file for file in (f"{name}.md", f"{name}.json", *links)}
    assert set(outcome.files) == files
    assert headings(page) == [
        "By frequency of the labels",
        "By frequency of the labels: ours minus the paper's",
        "By labels per document",
        "By labels per document: ours minus the paper's",
        "Intervals",
        "The paper's claims",
        "Labels that are confused",
        "Training",
        "The corpus",
    ]
    first = page.partition("## ")[0]
    assert "30 train, 10 validation, 20 test documents; 5 labels" in first
    assert "These are not the paper's documents: it has 90 labels." in first
    ours = outcome.results["rows"]["db"]["mean"]["head"]
    less = f"{ours['micro_f1'] - 92.14:+.2f} / {ours['macro_f1'] - 83.48:+.2f}"
    less = less.replace("-", "\N{MINUS SIGN}")
    assert f"{less} (92.14 / 83.48)" in page.replace("**", "")
    # Bold where ours is higher.
    minus = page.split("ours minus the paper's\n")[1].split("\n## ")[0]
    assert not re.search(r"\*\*\N{MINUS SIGN}", minus)
    assert not re.search(r"[^*]\+\d+\.\d\d", minus.replace("+0.00", ""))
    assert "longtail reproduce x\n```" in first and "one threshold for all labels" in first
    assert "No row uses random numbers" in first
    assert "| row | total (5) | head (2) | medium (1) | tail (2) | n |" in page
    assert "(90.62 / 64.47)" in page and "platinum and gold" in page
    assert page.index("Micro-F1 / macro-F1 in percent") < page.index("As above; in brackets")
    # Rows that the paper lacks are compared with its best.
    assert re.search(r"\| best \| .*\(90.74 / 64.47\)", page)
    claims = [text for text, (_, corpora) in CLAIMS.items() if "reuters" in corpora]
    assert all(text in page for text in claims)
    plain = json.loads((stem.parent / f"{stem.name}.json").read_text())
    assert len(plain["claims"]) == len(claims)
    assert plain["paper"]["labels"]["db"]["all"] == [90.62, 64.47]


def test_another_corpus_has_no_paper_columns(tmp_path: Path) -> None:
    outcome, _ = run(networks("bce", "db"), tmp_path, seeds=2, corpus="mine")
    page = (tmp_path / "results.md").read_text("utf-8")
    assert not any("paper" in line for line in headings(page)) and "paper's" not in page
    assert page.startswith("# mine: recipes compared") and "2 seeds each." in page
    assert re.search(r"\| DB \| (\*\*)?\d+\.\d\d(\*\*)?(\\\*){0,2} ± \d+\.\d\d / ", page)
    plain = json.loads((tmp_path / "results.json").read_text())
    assert set(plain) >= {"corpus", "command", "commit", "hardware", "rows", "paper", "claims"}
    assert plain["paper"] is None and plain["claims"] == []
    row = plain["rows"]["db"]
    assert set(row) >= {"seeds", "mean", "std", "seconds", "recipe"}
    assert set(row["seeds"]) == {"0", "1"}
    assert set(row["seeds"]["0"]["tail"]) == {"micro_f1", "macro_f1"}
    assert row["recipe"]["loss"] == "db" and row["mean"] == outcome.results["rows"]["db"]["mean"]
    assert plain["corpus"]["documents"] == {"train": 30, "validation": 10, "test": 20}
    narrow = figure_table(outcome.results, "labels", spread=False).plain()
    assert [cells[0] for cells in narrow] == ["row", "BCE", "DB"] and "±" not in str(narrow)
    # The page is generated from the JSON file alone.
    assert results_markdown(plain, "results") == page


def test_stars_mark_significant_differences(tmp_path: Path) -> None:
    recipes = bags("bce", "db")
    # Strong regularisation: this model predicts nothing.
    recipes["bad"] = {**recipes["db"], "C": 1e-9}
    outcome, _ = run(recipes, tmp_path, parts=documents(240))
    cells = {row[0]: row[1] for row in figure_table(outcome.results, "labels").plain()[1:]}
    assert "*" not in cells["BCE"]
    lost = outcome.results["rows"]["bad"]["difference"]["all"]["micro_f1"]
    assert lost["value"] < 0 and lost["p"] < 0.01 and "**" in cells["bad"]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_figures_give_the_published_tables(path: Path) -> None:
    page = results_markdown(json.loads(path.read_text()), path.stem)
    pages = (page, path.with_suffix(".md").read_text("utf-8"))
    ours, published = (re.findall(r"^\|.*\d\.\d\d.*", text, re.MULTILINE) for text in pages)
    assert len(ours) > 10 and ours == published


def test_pubmed_is_cut_where_the_paper_cuts_it(tmp_path: Path) -> None:
    outcome, _ = run(bags("bce"), tmp_path, corpus="pubmed")
    sizes = outcome.results["corpus"]["sizes"]["documents"]
    assert list(sizes)[1:] == ["up to 9 labels", "10 to 14 labels", "15 or more labels"]
    assert sizes["up to 9 labels"] == 20
    page = (tmp_path / "results.md").read_text()
    assert "15 or more labels (0)" in page and "Betacoronavirus" in page


def test_pairs_are_counted_over_the_seeds(tmp_path: Path) -> None:
    outcome, _ = run(networks("db"), tmp_path, seeds=2)
    parts, amounts = documents(), defaultdict[tuple[str, str], float](float)
    for cell in cells_of(networks("db"), tmp_path, 2):
        result = read_finished(cell)
        names = parts["train"].label_names
        for missed, given, n in confused_pairs(parts["test"].Y, result["decisions"], names, 100):
            amounts[missed, given] += n / 2
    confused = outcome.results["rows"]["db"]["confused"]
    most = sorted(amounts.values(), reverse=True)[:3]
    assert most and [pair["documents"] for pair in confused] == pytest.approx(most)
    assert all(p["documents"] == amounts[p["missed"], p["given"]] for p in confused)


def test_a_page_is_not_replaced_by_one_with_fewer_rows(tmp_path: Path) -> None:
    stem = tmp_path / "page"
    run(bags("bce", "db"), tmp_path / "out", publish=stem)
    before = stem.with_suffix(".json").read_text()
    for name in (stem, stem.with_suffix(".md")):
        with pytest.raises(InputError, match=r"rows that this command does not make: bce\."):
            run(bags("db"), tmp_path / "out", publish=name)
    assert stem.with_suffix(".json").read_text() == before
    run(bags("bce", "db", "fl"), tmp_path / "out", publish=stem)
