"""The command with two workers: if one is killed or cannot load, the other continues."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

from longtail.data import read_data


def children_of(process: int) -> set[int]:
    """The worker processes, which uvicorn spawns."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return {
        int(child)
        for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    }


def wait_for(check: object, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not check():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_killed_worker_is_replaced_while_the_other_continues(run: Path, tmp_path: Path) -> None:
    run, log = Path(shutil.copytree(run, tmp_path / "run")), tmp_path / "log"
    corrections, errors = tmp_path / "corrections.jsonl", log.open("wb")
    flags = ["--port", "0", "--workers", "2", "--corrections", str(corrections)]
    command = [sys.executable, "-m", "longtail", "serve", str(run), *flags]
    with errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().decode().split()[0]
            wait_for(lambda: httpx.get(url + "/ready", timeout=60).status_code == 200)
            # Both have started: one killed earlier would never log that it has.
            wait_for(lambda: log.read_text().count("startup complete") == 2)
            before, stored, statuses, stop = children_of(server.pid), [], [], threading.Event()

            def send(name: str) -> None:
                k = 0
                while not stop.is_set():
                    k += 1
                    body = {"text": f"{name} {k} " + "x" * 5000, "labels": [], "id": f"{name}-{k}"}
                    try:
                        answer = httpx.post(f"{url}/models/run/corrections", json=body, timeout=60)
                    except httpx.TransportError:  # its worker was killed
                        statuses.append(0)
                    else:
                        statuses.append(answer.status_code)
                        stored.append(answer.json()["id"])

            clients = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
            for client in clients:
                client.start()
            wait_for(lambda: len(stored) > 20)
            os.kill(min(before), signal.SIGKILL)
            n_stored = len(stored)
            wait_for(lambda: len(stored) > n_stored + 20)
            wait_for(lambda: len(children_of(server.pid) - {min(before)}) == 2)
            stop.set()
            for client in clients:
                client.join()
            assert set(statuses) <= {0, 201} and statuses.count(0) <= len(clients)
            text = httpx.get(url + "/metrics").text
            lines = [line for line in text.splitlines() if "corrections_total{" in line]
            assert float(lines[0].split()[-1]) >= len(stored), "the numbers of all workers"

            wait_for(lambda: log.read_text().count("startup complete") == 3)
            (run / "idf.safetensors").rename(tmp_path / "idf.safetensors")
            os.kill(min(children_of(server.pid)), signal.SIGKILL)
            wait_for(lambda: "idf.safetensors is missing" in log.read_text())
            assert httpx.get(url + "/ready", timeout=60).status_code == 200
            (tmp_path / "idf.safetensors").rename(run / "idf.safetensors")
            wait_for(lambda: log.read_text().count("startup complete") == 4)
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    kept = read_data(corrections, keep_unlabelled=True)
    assert kept.ids is not None and set(stored) <= set(kept.ids)
    assert len(kept.ids) == len(set(kept.ids)) <= len(stored) + statuses.count(0)
    for line in log.read_text().splitlines():
        assert "xxx" not in json.dumps(json.loads(line))
