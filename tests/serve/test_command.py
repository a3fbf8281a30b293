"""`longtail serve` refuses wrong models and flags before it serves anything, and starts."""

from __future__ import annotations

import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from longtail.cli import app
from longtail.errors import LongtailError
from longtail.runs.model import CONFIG_FILE
from longtail.serve import run as running
from longtail.serve.served import PredictQuery, Served
from longtail.serve.settings import Service


def refusal(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["serve", *map(str, arguments)])
    assert result.exit_code != 0
    assert isinstance(result.exception, (LongtailError, SystemExit)), result.exception
    return result.output + str(result.exception)


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copied"))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Service, int]]:
    """The services that the command would start, with their numbers of workers."""
    services: list[tuple[Service, int]] = []

    def serve(service: Service, listener: Any, workers: int, started: Any) -> None:
        with listener:
            services.append((service, workers))
            started()

    monkeypatch.setattr(running, "serve", serve)
    return services


def test_damaged_models_are_refused(copied: Path, tmp_path: Path) -> None:
    assert "holds no longtail model" in refusal(tmp_path)
    assert "does not exist" in refusal(tmp_path / "nowhere")
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    assert "model.safetensors has" in refusal(copied, "--port", 0)
    weights.unlink()
    assert "model.safetensors is missing" in refusal(copied, "--port", 0)
    (copied / CONFIG_FILE).write_text('{"architectures": ["BertModel"]}')
    assert "is not the configuration of a longtail model" in refusal(copied, "--port", 0)


def test_exported_runs(run: Path, tmp_path: Path, loaded: Served) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    assert "was not exported to ONNX" in refusal(run, "--engine", "onnx", "--port", 0)
    out = tmp_path / "exported"
    arguments = ["export", str(run), "--to", "onnx", "--out", str(out)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    exported = Served.load("exported", Service({"exported": out}, engine="onnx"))
    texts = [PredictQuery("copper and wheat", 2), PredictQuery("nickel")]
    assert exported.predict(texts) == loaded.predict(texts)


def test_names(run: Path, copied: Path, tmp_path: Path) -> None:
    assert "both called 'run'" in refusal(run, f"run={copied}")
    odd = copied.rename(tmp_path / "a run")
    assert f"as in name={odd}" in refusal(odd)


def test_a_busy_port_a_missing_extra_and_wrong_flags(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = f"port {port} of 127.0.0.1 cannot be used (Address already in use). Choose"
        assert message in refusal(run, "--port", port)
    assert "--host" in refusal(run, "--host", "no.such.host.invalid")
    assert "Raise --queue" in refusal(run, "--queue", 5)
    assert "printable ASCII" in refusal(run, "--api-key", "a b")
    assert "inside the model" in refusal(run, "--corrections", run / "x.jsonl")
    (tmp_path / "empty.txt").write_text("")
    assert "holds no" in refusal(run, "--examples", tmp_path / "empty.txt")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'longtail[serve]'" in refusal(run)


def test_flags_become_settings(
    run: Path, tmp_path: Path, started: list[tuple[Service, int]]
) -> None:
    (tmp_path / "texts.txt").write_text("copper rose\n\nwheat fell\n" + "x" * 50)
    flags = ["--port", "0", "--workers", "2", "--max-text-length", "20", "--max-wait-ms", "0"]
    flags += ["--examples", str(tmp_path / "texts.txt"), "--timeout", "3"]
    environment = {"LONGTAIL_API_KEY": "secret"}
    words = ["serve", str(run), f"other={run}", *flags]
    result = CliRunner().invoke(app, words, env=environment)
    assert result.exit_code == 0, result.output
    ((service, workers),) = started
    assert dict(service.runs) == {"run": run, "other": run} and workers == 2
    assert service.api_key == "secret" and "secret" not in repr(service) + result.output
    assert service.examples == ("copper rose", "wheat fell")
    assert (service.limits.timeout, service.limits.max_wait_ms) == (3.0, 0.0)
    assert "serves run, other. Stop with Ctrl-C." in result.output


@pytest.mark.parametrize(
    ("flags", "only_local", "is_open"),
    [
        ([], True, False),
        (["--host", "localhost"], True, False),
        (["--api-key", "secret"], False, False),
        (["--host", "0.0.0.0"], False, True),
        (["--host", "0.0.0.0", "--api-key", "secret"], False, False),
    ],
)
def test_hosts_and_keys(
    run: Path,
    started: list[tuple[Service, int]],
    flags: list[str],
    only_local: bool,
    is_open: bool,
) -> None:
    result = CliRunner().invoke(app, ["serve", str(run), "--port", "0", *flags])
    assert result.exit_code == 0 and started[0][0].only_local == only_local
    assert ("Anyone who can reach this port" in result.stderr) == is_open
