"""Cells: finished ones are reused, changed ones refused, failed ones do not stop the others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from longtail.data import TextData
from longtail.errors import DataError, InputError, UnknownNameError
from longtail.report.table import NONE
from longtail.reproduce import reproduce
from longtail.reproduce.cells import Cell, commit, hardware, read_finished
from longtail.reproduce.results import has_papers_sizes
from longtail.reproduce.run import Event, _exclusive, cells_of

from .cases import bags, documents, networks, run

HERE = Path(__file__).parents[2]


def test_every_row_for_every_seed_and_none_twice(tmp_path: Path) -> None:
    recipes = {**bags("bce"), **networks("db")}
    first, events = run(recipes, tmp_path, seeds=2)
    begun = [line for line in events if line.startswith("begins")]
    assert begun == ["begins bce 0", "begins db 0", "begins db 1"], "no random numbers: once"
    second, events = run(recipes, tmp_path, seeds=2)
    assert events == []
    for row in recipes:
        assert second.results["rows"][row]["mean"] == first.results["rows"][row]["mean"]
    assert run(recipes, tmp_path, seeds=3)[1] == ["begins db 2", "done db 2"]
    left = {path.name for path in (tmp_path / "db" / "seed-0").iterdir()}
    assert left == {".longtail", "finished.json", "decisions.npz"}


def test_the_figures_are_those_of_the_evaluation(tmp_path: Path) -> None:
    recipes, parts = networks("bce", "db"), documents()
    outcome, _ = run(recipes, tmp_path, seeds=2, parts=parts)
    row = outcome.results["rows"]["db"]
    by_seed = []
    for seed in (0, 1):
        cell = read_finished(Cell("db", seed, {}, tmp_path / "db" / f"seed-{seed}"))
        assert cell["recipe"]["random_state"] == seed
        groups = {
            **{group: cell["evaluation"][group] for group in ("head", "tail")},
            "all": cell["evaluation"]["overall"],
            "single_label": cell["evaluation"]["by_labels_per_document"]["single_label"],
        }
        for group, expected in groups.items():
            for measure in ("micro_f1", "macro_f1"):
                value = row["seeds"][seed][group][measure]
                assert value == pytest.approx(100 * expected[measure])
        again = f1_score(parts["test"].Y, cell["decisions"], average="micro")
        assert again == pytest.approx(cell["evaluation"]["overall"]["micro_f1"])
        by_seed.append(row["seeds"][seed]["all"]["micro_f1"])
    mean = row["mean"]["all"]["micro_f1"]
    assert mean == pytest.approx(np.mean(by_seed))
    assert row["std"]["all"]["micro_f1"] == pytest.approx(np.std(by_seed, ddof=1))
    difference, base = row["difference"]["all"]["micro_f1"], outcome.results["rows"]["bce"]
    assert difference["value"] == pytest.approx(mean - base["mean"]["all"]["micro_f1"])
    assert 0 < difference["p"] <= 1 and base["difference"] == {}
    low, high = row["interval"]["all"]["micro_f1"]
    assert low < mean < high <= 100
    page = (tmp_path / "results.md").read_text()
    assert "## Intervals" in page and f"{low:.1f} to {high:.1f}" in page


def test_a_changed_recipe_or_corpus_is_refused_unless_overwritten(tmp_path: Path) -> None:
    run(bags("bce", "db"), tmp_path)
    changed = bags("bce", "db")
    changed["db"]["loss_settings"] = {"gamma": 1}
    with pytest.raises(InputError, match=r"db \(seed 0\).*gamma.*--overwrite"):
        run(changed, tmp_path)
    outcome, events = run(changed, tmp_path, overwrite=True)
    assert events == ["begins db 0", "done db 0"], "the other one is as requested"
    assert not outcome.failed
    changed["db"]["loss_settings"] = {"gamma": 3}
    with pytest.raises(InputError, match="gamma was 1, now 3"):
        run(changed, tmp_path)
    changed["db"] |= {"loss_settings": {"gamma": 1}, "device": "auto"}
    assert run(changed, tmp_path)[1] == [], "where it is computed may change"
    message = r"bce .*the test, train, validation documents changed \(and 1 more cells\)"
    with pytest.raises(InputError, match=message):
        run(changed, tmp_path, parts=documents(seed=6))
    other = documents()
    shuffled = other["test"].select(np.arange(len(other["test"]))[::-1])
    with pytest.raises(InputError, match="other settings: the test documents changed"):
        run(changed, tmp_path, parts={**other, "test": shuffled})
    changed["db"]["label_texts"] = dict.fromkeys("abcde", "word " * 50) | {"tin": "x"}
    with pytest.raises(InputError) as long:
        run(changed, tmp_path)
    assert len(str(long.value)) < 500


def test_another_recipe_starts_over_only_with_overwrite(tmp_path: Path) -> None:
    (cell,) = cells_of(bags("db"), tmp_path, 1)
    with _exclusive(tmp_path):
        space = cell.open()
    plan, begun = space.file("plan.json"), space.file("begun.json")
    plan.write_text('{"plan": "{}", "documents": ""}')
    begun.write_text('{"fingerprint": {"recipe": {"loss": "bce"}, "documents": {}}, "spans": []}')
    with pytest.raises(InputError, match=r"was trained with other settings: .*loss was 'bce', now"):
        run(bags("db"), tmp_path)
    assert plan.exists(), "nothing is removed unless requested"
    outcome, _ = run(bags("db"), tmp_path, overwrite=True)
    assert not outcome.failed and not plan.exists()


def test_several_at_a_time_give_the_same_and_one_that_fails_leaves_the_others(
    tmp_path: Path,
) -> None:
    recipes = {"fl": {"model": "encoder", "encoder": str(tmp_path / "none")}}
    recipes |= {**bags("bce"), **networks("db")}
    recipes["db"]["label_texts"] = {"tin": "a metal", "gold": "another", "lead": "a third"}
    results = []
    for jobs in (1, 2):
        out, notes = tmp_path / str(jobs), list[str]()
        outcome, events = run(recipes, out, seeds=1, jobs=jobs, notes=notes)
        ends = [line for line in events if not line.startswith("begins")]
        assert sorted(ends) == ["done bce 0", "done db 0", "failed fl 0"]
        assert len(notes) == 1 and "2 of 3 texts are not used" in notes[0]
        assert list(outcome.failed) == ["fl (seed 0)"] and "none" in outcome.failed["fl (seed 0)"]
        failure = json.loads((out / "fl" / "seed-0" / "failed.json").read_text())
        assert "Traceback" in failure["traceback"]
        page = (out / "results.md").read_text()
        assert "## Failed" in page and "\n| FL |" + f" {NONE} |" * 5 + "\n" in page
        assert not list(out.glob(".longtail-*"))
        results.append(outcome)
    here, apart = results
    assert apart.failed == here.failed
    for row in ("bce", "db"):
        assert apart.results["rows"][row]["mean"] == here.results["rows"][row]["mean"]
    again, events = run(recipes, tmp_path / "1", seeds=1)
    assert events == ["begins fl 0", "failed fl 0"] and again.failed == here.failed


def test_tables_are_written_after_every_cell(tmp_path: Path) -> None:
    finished: list[int] = []

    def watch(event: Event) -> None:
        if event.kind == "begins":
            rows = json.loads((tmp_path / "results.json").read_text())["rows"]
            finished.append(sum(bool(row["mean"]) for row in rows.values()))

    reproduce(documents(), bags("bce", "fl", "db"), tmp_path, watch=watch)
    assert finished == [0, 1, 2]


def test_a_failed_cell_starts_over_with_overwrite(tmp_path: Path) -> None:
    wild = {"fl": {**networks("fl")["fl"], "learning_rate": 1e15, "max_grad_norm": 0.0}}
    outcome, _ = run(wild, tmp_path, seeds=1)
    assert "diverged" in outcome.failed["fl (seed 0)"] or "became" in outcome.failed["fl (seed 0)"]
    plan = tmp_path / "fl" / "seed-0" / "plan.json"
    assert plan.exists()
    kept = []

    def watch(event: Event) -> None:
        if event.kind == "begins":
            kept.append(plan.exists())

    reproduce(documents(), wild, tmp_path, seeds=1, watch=watch, overwrite=True)
    assert kept == [False]


def test_a_folder_called_reuters_is_not_yet_the_papers() -> None:
    often = [1] * 29 + [2] * 31 + [3] * 30
    lists = [[f"label {k}"] for k, n in enumerate(often) for _ in range(n)]
    same = TextData.from_lists(["text"] * len(lists), lists)
    assert has_papers_sizes({"train": same}, "reuters")
    assert not has_papers_sizes({"train": same}, "pubmed")
    assert not has_papers_sizes(documents(), "reuters")


def test_two_at_once_in_one_folder_are_refused(tmp_path: Path) -> None:
    with _exclusive(tmp_path), pytest.raises(DataError, match="another process is at work"):
        run(bags("db"), tmp_path)


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    run(bags("db"), tmp_path)
    decisions = tmp_path / "db" / "seed-0" / "decisions.npz"
    decisions.write_bytes(decisions.read_bytes()[:50])
    with pytest.raises(DataError, match=r"db \(seed 0\) in .* cannot be read.*Remove that folder"):
        run(bags("db"), tmp_path)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"against": "bcc"}, UnknownNameError, "row to compare with 'bcc'"),
        ({"jobs": 0}, InputError, "--jobs"),
        ({"seeds": 0}, InputError, "--seeds"),
        ({"device": "cuda"}, InputError, "needs a CUDA GPU"),
    ],
    ids=str,
)
def test_errors_come_before_the_work(
    settings: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    if "device" in settings and torch.cuda.is_available():
        pytest.skip("there is one")
    recipes = bags("bce", "db")
    recipes["db"]["device"] = settings.pop("device", "cpu")
    with pytest.raises(error, match=message):
        run(recipes, tmp_path, **settings)
    assert not list(tmp_path.glob("bce/*"))


def test_where_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    commit.cache_clear()
    if (HERE / ".git").exists():
        assert re.fullmatch("[0-9a-f]{7,}( with uncommitted changes)?", commit())
    commit.cache_clear()
    monkeypatch.setenv("LONGTAIL_COMMIT", "abc1234")
    assert commit() == "abc1234"
    monkeypatch.delenv("LONGTAIL_COMMIT")
    monkeypatch.setenv("PATH", "")
    commit.cache_clear()
    assert commit().startswith("version ")
    commit.cache_clear()
    assert re.search(r", \d+ cores?$", hardware([]))


def test_what_cells_were_made_with(tmp_path: Path) -> None:
    """Parallel time of a machine counts once; versions are those of each row."""
    run(networks("bce", "db"), tmp_path, seeds=2)
    spans = {
        ("bce", 0): [[100, 110], [200, 230]],
        ("bce", 1): [[105, 115]],
        ("db", 0): [[210, 220], [90, None]],
        ("db", 1): [[225, 240]],
    }
    for (row, seed), known in spans.items():
        place = tmp_path / row / f"seed-{seed}" / "finished.json"
        result = json.loads(place.read_text())
        result |= {"spans": known, "hardware": "a GPU" if (row, seed) == ("db", 1) else "a CPU"}
        if row == "db":
            result["versions"] = {"python": "9.9"}
        place.write_text(json.dumps(result))
    results = run(networks("bce", "db"), tmp_path, seeds=2)[0].results
    bce, db = results["rows"]["bce"], results["rows"]["db"]
    assert results["busy"] == {"a CPU": 45.0, "a GPU": 15.0} and results["killed"]
    assert bce["seconds"] == (40 + 10) / 2 and db["seconds"] == 15
    assert db["versions"] == [{"python": "9.9"}]
    assert "torch" in bce["versions"][0]
    page = (tmp_path / "results.md").read_text()
    assert "at least 45 seconds of a CPU and 15 seconds of a GPU" in page
    assert "DB: python 9.9." in page and re.search(r"BCE: python 3[^:]*torch \d", page)
