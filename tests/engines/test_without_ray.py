"""What `--engine ray` says where it cannot work; needs no cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from longtail.classifier.work import Place, rejoin_work
from longtail.errors import DataError, InputError
from longtail.training.engines import check_engine, open_engine

from ..cli.conftest import Command
from ..cli.conftest import longtail as longtail


def test_ray_is_an_extra(tmp_path: Path) -> None:
    """Every verb names the pip command, before it reads anything."""
    code = (
        "import sys; sys.modules['ray'] = None; sys.argv = ['longtail', *sys.argv[1:]]; "
        "from longtail.cli import main; main()"
    )
    ray = ("--out", str(tmp_path / "out"), "--engine", "ray")
    for verb in ("train", "search"):
        call = [sys.executable, "-c", code, verb, "newswire", *ray]
        done = subprocess.run(call, capture_output=True, text=True)
        assert done.returncode == 1
        assert "needs the package 'ray'" in done.stderr
        assert "pip install 'longtail[ray]'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_unknown_engines() -> None:
    with pytest.raises(InputError, match="engine must be one of ray, got 'dask'"):
        check_engine("dask")
    with open_engine(None) as engine:
        assert engine is None


def test_a_process_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    pytest.importorskip("ray", reason="needs the extra ray")
    with pytest.raises(InputError, match="cannot run under torchrun"):
        check_engine("ray")


@pytest.mark.parametrize("address", ["nonsense", "ray://127.0.0.1:1", "127.0.0.1:1"])
def test_no_cluster_at_the_address(
    address: str, longtail: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that Ray cannot use, that of a Ray Client, and one where nothing listens."""
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.setenv("RAY_ADDRESS", address)
    # The other tests of this process may be connected to a cluster.
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    call = ("train", "newswire", "--set", "n_documents=300", "--model", "svm", "--device", "cpu")
    out = ("--out", tmp_path / "run", "--engine", "ray")
    longtail.fails(f"there is no Ray cluster at RAY_ADDRESS={address}", *call, *out)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_shared(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match=r"is not on the machine .*that all machines of the cluster"),
        rejoin_work(Place(tmp_path, "."), print),
    ):
        pass
