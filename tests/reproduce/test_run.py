"""Rows for seeds: what is finished stays, what changed is refused, what fails stops no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from longtail.data import TextData
from longtail.errors import DataError, InputError, UnknownNameError
from longtail.evaluation import evaluate
from longtail.report.table import NONE
from longtail.reproduce import reproduce
from longtail.reproduce.cells import Cell, part_fingerprints, read_finished
from longtail.reproduce.run import _exclusive, cells_of
from longtail.reproduce.running import Event
from longtail.reproduce.summary import has_papers_sizes
from longtail.reproduce.surroundings import commit, processor
from longtail.thresholds import Thresholds

from .cases import bags, documents, networks, run

HERE = Path(__file__).parents[2]


def test_every_row_for_every_seed_and_none_twice(tmp_path: Path) -> None:
    recipes = {**bags("bce"), **networks("db")}
    first, told = run(recipes, tmp_path, seeds=2)
    begun = [line for line in told if line.startswith("begins")]
    assert begun == ["begins bce 0", "begins db 0", "begins db 1"], "no random numbers: once"
    second, told = run(recipes, tmp_path, seeds=2)
    assert told == []
    assert {row: r.mean for row, r in second.summary.rows.items()} == {
        row: r.mean for row, r in first.summary.rows.items()
    }
    _, told = run(recipes, tmp_path, seeds=3)
    assert told == ["begins db 2", "done db 2"]
    left = {path.name for path in (tmp_path / "db" / "seed-0").iterdir()}
    assert left == {".longtail", "finished.json", "decisions.npz"}


def test_the_figures_are_those_of_the_evaluation(tmp_path: Path) -> None:
    recipes, parts = networks("bce", "db"), documents()
    found, _ = run(recipes, tmp_path, seeds=2, parts=parts)
    row = found.summary.rows["db"]
    by_seed = []
    for seed in (0, 1):
        cell = read_finished(Cell("db", seed, {}, tmp_path / "db" / f"seed-{seed}"))
        assert cell is not None and cell.recipe["random_state"] == seed and cell.seconds >= 0
        for group, key in (("all", "overall"), ("head", "head"), ("tail", "tail")):
            for measure in ("micro_f1", "macro_f1"):
                expected = 100 * cell.evaluation[key][measure]
                assert row.seeds[seed][group][measure] == pytest.approx(expected)
        single = cell.evaluation["by_labels_per_document"]["single_label"]["macro_f1"]
        assert row.seeds[seed]["single_label"]["macro_f1"] == pytest.approx(100 * single)
        logits = np.where(cell.decisions.toarray() > 0, 1.0, -1.0)
        again = evaluate(
            parts["test"].Y, logits, Thresholds(np.zeros(5)), parts["train"].stats(), n_resamples=0
        )
        assert again.overall.micro_f1 == pytest.approx(cell.evaluation["overall"]["micro_f1"])
        by_seed.append(row.seeds[seed]["all"]["micro_f1"])
    assert row.mean["all"]["micro_f1"] == pytest.approx(np.mean(by_seed))
    assert row.std["all"]["micro_f1"] == pytest.approx(np.std(by_seed, ddof=1))
    difference = row.difference["all"]["micro_f1"]
    base = found.summary.rows["bce"].mean["all"]["micro_f1"]
    assert 100 * difference.value == pytest.approx(row.mean["all"]["micro_f1"] - base)
    assert 0 < difference.p <= 1 and found.summary.rows["bce"].difference == {}


def test_a_changed_recipe_or_corpus_is_refused_unless_overwritten(tmp_path: Path) -> None:
    run(bags("bce", "db"), tmp_path)
    changed = bags("bce", "db")
    changed["db"]["loss_settings"] = {"gamma": 1}
    with pytest.raises(InputError, match=r"db \(seed 0\).*gamma.*--overwrite"):
        run(changed, tmp_path)
    found, told = run(changed, tmp_path, overwrite=True)
    assert told == ["begins db 0", "done db 0"], "the other one is as asked for"
    assert not found.failed
    changed["db"]["loss_settings"] = {"gamma": 3}
    with pytest.raises(InputError, match="gamma was 1, now 3"):
        run(changed, tmp_path)
    changed["db"] |= {"loss_settings": {"gamma": 1}, "device": "auto"}
    assert run(changed, tmp_path)[1] == [], "where it is computed may change"
    with pytest.raises(InputError, match=r"bce .*the test, train, validation documents changed"):
        run(changed, tmp_path, parts=documents(seed=6))
    other = documents()
    shuffled = other["test"].select(np.arange(len(other["test"]))[::-1])
    with pytest.raises(InputError, match="other settings: the test documents changed"):
        run(changed, tmp_path, parts={**other, "test": shuffled})


def test_another_recipe_starts_over_only_with_overwrite(tmp_path: Path) -> None:
    (cell,) = cells_of(bags("db"), tmp_path, 1)
    with _exclusive(tmp_path):
        space = cell.open()
    plan, begun = space.file("plan.json"), space.file("begun.json")
    plan.write_text('{"plan": "{}", "documents": ""}')
    begun.write_text('{"fingerprint": {"recipe": {"loss": "bce"}, "documents": {}}, "spans": []}')
    with pytest.raises(InputError, match=r"was trained with other settings: .*loss was 'bce', now"):
        run(bags("db"), tmp_path)
    assert plan.exists(), "nothing is thrown away unasked"
    found, _ = run(bags("db"), tmp_path, overwrite=True)
    assert not found.failed and not plan.exists()


def test_a_damaged_record_starts_over(tmp_path: Path) -> None:
    (cell,) = cells_of(bags("db"), tmp_path, 1)
    with _exclusive(tmp_path):
        cell.open().file("begun.json").write_text("{")
    notes: list[str] = []
    found, _ = run(bags("db"), tmp_path, note=notes.append)
    assert not found.failed and "starting over" in notes[0]


@pytest.mark.parametrize("jobs", [1, 2])
def test_notes_reach_the_user(jobs: int, tmp_path: Path) -> None:
    recipes = bags("bce", "db")
    recipes["db"]["label_texts"] = {"tin": "a metal", "gold": "another", "lead": "a third"}
    notes: list[str] = []
    run(recipes, tmp_path, jobs=jobs, note=notes.append)
    assert len(notes) == 1 and "2 of 3 texts are not used" in notes[0]


def test_long_differences_are_shortened(tmp_path: Path) -> None:
    recipes = bags("db")
    recipes["db"]["label_texts"] = dict.fromkeys("abcde", "word " * 50) | {"tin": "x"}
    run(recipes, tmp_path)
    with pytest.raises(InputError) as told:
        run(bags("db"), tmp_path)
    assert len(str(told.value)) < 500


def test_a_missing_gpu_is_told_before_the_work(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    recipes = bags("bce", "db")
    recipes["db"]["device"] = "cuda"
    with pytest.raises(InputError, match="needs a CUDA GPU"):
        run(recipes, tmp_path)


def test_versions_are_those_of_each_row(tmp_path: Path) -> None:
    run(bags("bce", "db"), tmp_path)
    place = tmp_path / "db" / "seed-0" / "finished.json"
    told = json.loads(place.read_text())
    place.write_text(json.dumps({**told, "versions": {"python": "9.9"}}))
    summary = run(bags("bce", "db"), tmp_path)[0].summary
    assert summary.rows["db"].versions == ({"python": "9.9"},)
    assert "torch" in summary.rows["bce"].versions[0]
    page = (tmp_path / "results.md").read_text()
    assert "DB: python 9.9." in page and re.search(r"BCE: python 3[^:]*torch \d", page)


def test_a_row_that_fails_leaves_the_others(tmp_path: Path) -> None:
    recipes = {"fl": {"model": "encoder", "encoder": str(tmp_path / "none")}}
    recipes |= bags("bce", "db")
    found, told = run(recipes, tmp_path / "out", seeds=1)
    assert [line for line in told if not line.startswith("begins")] == [
        "failed fl 0",
        "done bce 0",
        "done db 0",
    ]
    assert list(found.failed) == ["fl (seed 0)"] and "none" in found.failed["fl (seed 0)"]
    kept = json.loads((tmp_path / "out" / "fl" / "seed-0" / "failed.json").read_text())
    assert "Traceback" in kept["traceback"]
    page = (tmp_path / "out" / "results.md").read_text()
    assert "## Failed" in page
    assert "\n| FL |" + f" {NONE} |" * 5 + "\n" in page
    again, told = run(recipes, tmp_path / "out", seeds=1)
    assert told == ["begins fl 0", "failed fl 0"] and again.failed == found.failed


def test_several_at_a_time_give_the_same(tmp_path: Path) -> None:
    recipes = {"fl": {"model": "encoder", "encoder": str(tmp_path / "none")}}
    recipes |= {**bags("bce"), **networks("db")}
    apart, told = run(recipes, tmp_path / "apart", seeds=1, jobs=2)
    here, _ = run(recipes, tmp_path / "here", seeds=1)
    assert sorted(line for line in told if not line.startswith("begins")) == [
        "done bce 0",
        "done db 0",
        "failed fl 0",
    ]
    assert apart.failed == here.failed
    for row in ("bce", "db"):
        assert apart.summary.rows[row].mean == here.summary.rows[row].mean
    assert not (tmp_path / "apart" / ".documents").exists()


def test_tables_are_written_after_every_cell(tmp_path: Path) -> None:
    seen: list[int] = []

    def note_rows(text: str) -> None:
        raise AssertionError(text)

    parts = documents()

    def watch(event: Event) -> None:
        page = tmp_path / "results.json"
        if event.kind == "begins" and page.exists():
            rows = json.loads(page.read_text())["rows"]
            seen.append(sum(bool(row["mean"]) for row in rows.values()))

    reproduce(parts, bags("bce", "fl", "db"), tmp_path, watch=watch, note=note_rows)
    assert seen == [0, 1, 2]


def test_a_failed_cell_starts_over_with_overwrite(tmp_path: Path) -> None:
    wild = {"fl": {**networks("fl")["fl"], "learning_rate": 1e15, "max_grad_norm": 0.0}}
    found, _ = run(wild, tmp_path, seeds=1)
    assert "diverged" in found.failed["fl (seed 0)"] or "became" in found.failed["fl (seed 0)"]
    left = tmp_path / "fl" / "seed-0" / "plan.json"
    assert left.exists()
    seen = []

    def watch(event: Event) -> None:
        if event.kind == "begins":
            seen.append(left.exists())

    reproduce(documents(), wild, tmp_path, seeds=1, watch=watch, overwrite=True)
    assert seen == [False]


def test_intervals_hold_the_mean(tmp_path: Path) -> None:
    found, _ = run(bags("bce"), tmp_path)
    row = found.summary.rows["bce"]
    low, high = row.interval["all"]["micro_f1"]
    assert low < row.mean["all"]["micro_f1"] < high <= 100
    page = (tmp_path / "results.md").read_text()
    assert "## Intervals" in page and f"{low:.1f} to {high:.1f}" in page


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


def test_damage_and_wrong_numbers_are_explained(tmp_path: Path) -> None:
    run(bags("db"), tmp_path)
    place = tmp_path / "db" / "seed-0" / "decisions.npz"
    place.write_bytes(place.read_bytes()[:50])
    with pytest.raises(DataError, match=r"db \(seed 0\) in .* cannot be read.*Remove that folder"):
        run(bags("db"), tmp_path)
    with pytest.raises(UnknownNameError, match="row to compare with 'bcc'"):
        run(bags("bce", "db"), tmp_path / "new", against="bcc")
    for name, value in (("jobs", 0), ("seeds", 0)):
        with pytest.raises(InputError, match=f"--{name}"):
            run(bags("db"), tmp_path / "new", **{name: value})


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
    assert re.search(r", \d+ cores?$", processor())


def test_seconds_of_a_machine_are_counted_once(tmp_path: Path) -> None:
    run(networks("bce", "db"), tmp_path, seeds=2)
    spans = {
        ("bce", 0): [[100, 110], [200, 230]],
        ("bce", 1): [[105, 115]],
        ("db", 0): [[210, 220], [90, None]],
        ("db", 1): [[225, 240]],
    }
    for (row, seed), own in spans.items():
        place = tmp_path / row / f"seed-{seed}" / "finished.json"
        told = json.loads(place.read_text())
        machine = "a GPU" if (row, seed) == ("db", 1) else "a CPU"
        place.write_text(json.dumps({**told, "spans": own, "hardware": machine}))
    summary = run(networks("bce", "db"), tmp_path, seeds=2)[0].summary
    assert summary.busy == {"a CPU": 45.0, "a GPU": 15.0} and summary.killed
    assert summary.rows["bce"].seconds == (40 + 10) / 2 and summary.rows["db"].seconds == 15
    page = (tmp_path / "results.md").read_text()
    assert "at least 45 seconds of a CPU and 15 seconds of a GPU" in page


def test_documents_travel_to_other_processes_as_they_are(tmp_path: Path) -> None:
    parts = documents()
    for name, part in parts.items():
        part.save(tmp_path / f"{name}.parquet")
    again = {name: TextData.load(tmp_path / f"{name}.parquet") for name in parts}
    assert part_fingerprints(again) == part_fingerprints(parts)
