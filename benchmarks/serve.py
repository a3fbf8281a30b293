"""Documents per second of the service, and how long requests take, by the number of clients.

    python benchmarks/serve.py | tee results/serve-cpu.txt
    python benchmarks/serve.py --models bag --soak 180    # nothing lost, memory flat
    python benchmarks/serve.py --in-process               # the queue alone: no sockets, no HTTP

Clients send one document after another over a connection of their own. `titles` are the first 10
words of the test documents of Reuters-21578, `texts` the whole documents. `loop` is the same model
called with one document at a time, before and after each line, so that the ratio compares what the
machine gave in the same minute. Documents per CPU second, of the service with all its HTTP and of
the loop, say what batches bring where others use the machine too. One thread computes, in both.

bag is TF-IDF trained on Reuters; minilm is all-MiniLM-L6-v2 with a head for its labels, trained for
one epoch on 48 documents, since only speed counts here. Corpora and encoder are in
$LONGTAIL_SHARED.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

# Two threads on a busy machine wait for each other; set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from longtail import Bag, Encoder, LongTailClassifier, Training, load_data
from longtail.classifier.export import to_onnx
from longtail.reproduce.cells import hardware
from longtail.serve.batching import Batcher
from longtail.serve.settings import Limits

SHARED = Path(os.environ.get("LONGTAIL_SHARED", Path(__file__).parents[2] / "shared"))
MODELS = ("bag", "minilm")
ENGINES = ("torch", "onnx")
CLIENTS = (1, 8, 64)
TITLE_WORDS = 10
Send = Callable[[str], Awaitable[None]]


def train(kind: str, folder: Path, data: Any, device: str) -> None:
    """A model whose speed is that of a well trained one."""
    training = Training(device=device)
    if kind == "bag":
        classifier = LongTailClassifier(Bag(), folds=2, training=training)
    else:
        training, data = Training(epochs=1, device=device), data[:48]
        encoder = Encoder(str(SHARED / "models" / "all-minilm-l6-v2"))
        classifier = LongTailClassifier(encoder, folds=1, training=training)
    classifier.fit(data, progress=None).save_pretrained(folder)


@asynccontextmanager
async def http_client(port: int) -> Any:
    """Sends a document over one connection, with little work of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send(text: str) -> None:
        body = json.dumps({"documents": [{"text": text}]}).encode()
        head = "POST /models/run/predict HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.split(b"content-length:")[1].split()[0])
        content = await reader.readexactly(length)
        if b" 200 " not in answer.split(b"\r\n")[0] or len(json.loads(content)["documents"]) != 1:
            raise RuntimeError(content[:200].decode())

    try:
        yield send
    finally:
        writer.close()


@asynccontextmanager
async def queue_client(batcher: Batcher[str, list[str]]) -> Any:
    """Sends a document to the queue of this process."""

    async def send(text: str) -> None:
        await batcher.submit([text])

    yield send


async def drive(
    connect: Callable[[], Any], texts: list[str], n_clients: int, seconds: float
) -> tuple[float, list[float], int]:
    """Documents per second, the seconds of each request, and how many failed."""
    turn, end, taken, n_failed = itertools.cycle(texts), time.monotonic() + seconds, [], 0

    async def client() -> None:
        nonlocal n_failed
        async with connect() as send:
            while time.monotonic() < end:
                start = time.perf_counter()
                try:
                    await send(next(turn))
                except (OSError, RuntimeError, asyncio.IncompleteReadError):
                    n_failed += 1
                else:
                    taken.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(n_clients)))
    return len(taken) / (time.perf_counter() - start), taken, n_failed


def loop(classifier: LongTailClassifier, texts: list[str], seconds: float) -> tuple[float, float]:
    """Documents per second, and per CPU second, of single calls."""
    turn, start, used = itertools.cycle(texts), time.perf_counter(), time.process_time()
    for n_done in itertools.count(1):
        classifier.predict_labels([next(turn)])
        elapsed = time.perf_counter() - start
        if elapsed > seconds:
            return n_done / elapsed, n_done / (time.process_time() - used)
    raise AssertionError


def cpu_seconds(process: int) -> float:
    """That a process has used until now."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> float:
    """Resident megabytes of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def start_service(folder: Path, limits: Limits, device: str) -> tuple[Any, int]:
    flags = ["--port", "0", "--device", device, "--max-batch", str(limits.max_batch)]
    flags += ["--max-wait-ms", str(limits.max_wait_ms), "--timeout", "300"]
    command = [sys.executable, "-m", "longtail", "serve", str(folder), *flags]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, text=True, **pipe)  # type: ignore[call-overload]
    port = int(server.stdout.readline().split()[0].rpartition(":")[2])
    return server, port


def line(
    name: str, n_clients: int, ours: tuple[float, float], single: Any, taken: list[float]
) -> str:
    p50, p99 = (1000 * np.quantile(taken, q) for q in (0.5, 0.99))
    rates = "".join(
        f"{rate:>9.1f}{of_loop:>9.1f}{rate / of_loop:>7.2f}"
        for rate, of_loop in zip(ours, single, strict=True)
    )
    return f"{name:<20}{n_clients:>8}{rates}{p50:>9.1f}{p99:>9.1f}{p99 / p50:>9.1f}"


def exported(folder: Path) -> Path:
    """The model as ONNX files, in a folder next to it."""
    target = folder.parent / "onnx" / "run"
    if not target.is_dir():
        to_onnx(LongTailClassifier.from_pretrained(folder, "cpu")).save_pretrained(target)
    return target


def measure(given: argparse.Namespace, name: str, folder: Path, texts: list[str]) -> None:
    classifier = LongTailClassifier.from_pretrained(folder, given.device)
    limits = Limits(max_batch=given.max_batch, max_wait_ms=given.max_wait_ms)
    loop(classifier, texts, 1.0)

    def report(connect: Callable[[], Any], run: Callable[[Any], Any], process: int) -> None:
        run(drive(connect, texts, 2, 1.0))
        for n_clients in given.clients:
            before = loop(classifier, texts, given.seconds / 2)
            used = cpu_seconds(process)
            rate, taken, n_failed = run(drive(connect, texts, n_clients, given.seconds))
            ours = rate, len(taken) / max(0.01, cpu_seconds(process) - used)
            after = loop(classifier, texts, given.seconds / 2)
            single = np.mean([before, after], axis=0)
            print(line(name, n_clients, ours, single, taken), flush=True)
            if n_failed:
                print(f"  {n_failed} requests failed", flush=True)

    if given.in_process:
        with ThreadPoolExecutor(1) as thread, asyncio.Runner() as runner:
            batcher = Batcher[str, list[str]](
                classifier.predict_labels,
                thread,
                max_batch=limits.max_batch,
                max_wait=limits.max_wait_ms / 1000,
            )
            report(lambda: queue_client(batcher), runner.run, os.getpid())
            runner.run(batcher.close())
        return
    server, port = start_service(folder, limits, given.device)
    try:
        report(lambda: http_client(port), asyncio.run, server.pid)
        if given.soak and "titles, torch" in name:
            soak(server.pid, port, texts, given.soak)
    finally:
        server.terminate()
        server.wait()


def soak(process: int, port: int, texts: list[str], seconds: float) -> None:
    """Many clients for long: nothing is lost, and memory stays."""
    print(f"soak: 64 clients, memory of the service before: {memory(process):.0f} MB", flush=True)
    n_done = n_failed = 0
    for part in range(4):
        _, taken, failed = asyncio.run(drive(lambda: http_client(port), texts, 64, seconds / 4))
        n_done, n_failed = n_done + len(taken), n_failed + failed
        print(
            f"  after {seconds * (part + 1) / 4:.0f} s: {n_done:,} answered, {n_failed} lost, "
            f"{memory(process):.0f} MB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", choices=MODELS, default=MODELS)
    parser.add_argument("--engines", nargs="*", choices=ENGINES, default=ENGINES)
    parser.add_argument("--clients", nargs="*", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each line")
    parser.add_argument("--max-batch", type=int, default=Limits.max_batch)
    parser.add_argument("--max-wait-ms", type=float, default=Limits.max_wait_ms)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--in-process", action="store_true")
    parser.add_argument("--soak", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--folder", type=Path, help="where trained models are kept")
    given = parser.parse_args()
    parts = load_data(SHARED / "corpora" / "reuters")
    whole = list(parts["test"].texts[:512])
    titles = [" ".join(text.split()[:TITLE_WORDS]) for text in whole]
    print(f"python benchmarks/serve.py {' '.join(sys.argv[1:])}")
    with tempfile.TemporaryDirectory() as scratch:
        for kind in given.models:
            folder = (given.folder or Path(scratch)) / kind / "run"
            if not folder.is_dir():
                train(kind, folder, parts["train"], given.device)
            if kind == given.models[0]:
                plans = LongTailClassifier.from_pretrained(folder, given.device).plans_
                where = hardware(plans) if given.device == "cpu" else given.device
                print(f"({where}; {'the queue alone' if given.in_process else 'HTTP'})\n")
                print(f"{'':<28}{'per second':>25}{'per CPU second':>25}{'ms':>18}")
                rates = f"{'service':>9}{'loop':>9}{'ratio':>7}" * 2
                print(f"{'':<20}{'clients':>8}{rates}{'p50':>9}{'p99':>9}{'p99/p50':>9}")
            for engine in given.engines:
                served = folder if engine == "torch" else exported(folder)
                for name, texts in (("titles", titles), ("texts", whole)):
                    measure(given, f"{kind} {name}, {engine}", served, texts)


if __name__ == "__main__":
    main()
