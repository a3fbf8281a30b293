"""`--engine ray`: independent tasks on a Ray cluster, in place of one after another here.

A task is a function of a module: `function(shared, task, report, stop)`. It keeps what it does in a
folder that all machines share, so a task whose worker dies is repeated and continues from there.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from longtail.checks import check_choice
from longtail.errors import InputError, LongtailError, MissingExtraError
from longtail.training.devices import n_processes
from longtail.training.interrupt import Stop, StoppedError, stopping

ENGINES = ("ray",)
# How often a task is repeated whose worker died.
RETRIES = 3
# What a process that reads files for a pool of workers takes; each worker leaves as much.
READER_CPUS = 0.25
POLL_SECONDS = 0.2
# Time for tasks to save a checkpoint before their workers are killed.
STOP_SECONDS = 120.0
QUIET: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}

Report = Callable[[Any], None]
"""Sends the process that started the tasks anything that can be pickled."""
Function = Callable[[Any, Any, Report, Stop], Any]


@contextmanager
def open_engine(
    name: str | None, say: Callable[[str], None] = lambda line: None
) -> Iterator[RayEngine | None]:
    """Connect to a Ray cluster, or start one on this machine; None does neither.

    The cluster is that of RAY_ADDRESS, else one that runs on this machine. `say`: receives a line
    on what was done.
    """
    if name is None:
        yield None
        return
    check_engine(name)
    import ray

    is_ours = not ray.is_initialized()
    if is_ours:
        _connect(ray)
    try:
        engine = RayEngine()
        say(engine.where)
        yield engine
    finally:
        if is_ours:
            ray.shutdown()


def check_engine(name: str) -> None:
    """Raise for an unknown engine, or if its package is not installed."""
    check_choice("engine", name, ENGINES)
    # Before the import: Ray would report its use to its makers.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("--engine ray", "ray", "ray") from error
    if n_processes() > 1:
        raise InputError(
            "Ray starts processes itself: --engine ray cannot run under torchrun. Call longtail "
            "without torchrun."
        )


def _connect(ray: Any) -> None:
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    address = os.environ.get("RAY_ADDRESS")
    try:
        _check_address(address)
        ray.init(address=address or "auto", **QUIET)
    except (OSError, ValueError, RuntimeError) as error:
        if address:
            raise InputError(
                f"there is no Ray cluster at RAY_ADDRESS={address} ({error}). Start one with `ray "
                "start --head`, or unset RAY_ADDRESS to use this machine alone."
            ) from error
        ray.init(address="local", include_dashboard=False, **QUIET)
    finally:
        # Ray's own handler would end the process without a checkpoint.
        if in_main and handler is not None:
            signal.signal(signal.SIGTERM, handler)


def _check_address(address: str | None) -> None:
    """Raise if nothing listens at an address: Ray itself would wait for minutes."""
    if not address or address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if "/" in host or not port.isdecimal():
        raise ValueError("expected HOST:PORT of the head node")
    socket.create_connection((host, int(port)), timeout=10).close()


class RayEngine:
    """A Ray cluster that this process is connected to."""

    def __init__(self) -> None:
        import ray

        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.n_gpus = int(sum(node.get("GPU", 0) for node in nodes))
        self._cpus = [node.get("CPU", 0) for node in nodes]
        address = ray.get_runtime_context().gcs_address
        size = f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}"
        self.where = f"Ray at {address}: {size}, {sum(self._cpus):g} CPUs, {self.n_gpus} GPUs"
        self._shared: tuple[Any, Any] = (None, None)
        # A worker that is told to end, as on a machine that is taken away, stops its task.
        retries = {"max_retries": RETRIES, "retry_exceptions": [StoppedError]}
        self._remote = ray.remote(scheduling_strategy="SPREAD", **retries)(_run_task)
        self._reports: Any = None
        self._n_runs = 0

    def resources(self, uses_gpu: bool) -> dict[str, float]:
        """What a task takes: a GPU if the cluster has any, else as many CPUs as threads here.

        With as many threads, a CPU computes the same bits.
        """
        if uses_gpu and self.n_gpus:
            return {"num_cpus": 1, "num_gpus": 1}
        return {"num_cpus": max(1, min(_n_threads(), int(max(self._cpus)))), "num_gpus": 0}

    def pool(self, uses_gpu: bool) -> tuple[dict[str, float], int]:
        """What each worker of a pool takes, and how many fit beside the readers that feed them."""
        resources = self.resources(uses_gpu)
        cpus = resources["num_cpus"]
        on_cpus = sum(int(n // cpus) for n in self._cpus)
        n_workers = self.n_gpus if resources["num_gpus"] else on_cpus
        return {**resources, "num_cpus": cpus - READER_CPUS}, n_workers

    @staticmethod
    def check_device(device: str) -> None:
        """Raise for a device that names one GPU of a machine."""
        if ":" in device:
            raise InputError(
                f"Ray chooses the GPU of each task, got the device {device!r}. Use 'auto', 'cuda' "
                "or 'cpu'."
            )

    def setting(self, resources: Mapping[str, float]) -> WorkerSetting:
        """How a worker with these resources computes."""
        return WorkerSetting(_n_threads(), os.getcwd(), resources["num_gpus"] > 0)

    def put(self, shared: Any) -> Any:
        """A reference to an object that all tasks read; the last one is kept."""
        import ray

        if self._shared[0] is not shared:
            # As bytes: Ray's own copies of arrays cannot be written to.
            self._shared = shared, ray.put(pickle.dumps(shared))
        return self._shared[1]

    def run(
        self,
        function: Function,
        shared: Any,
        tasks: Sequence[tuple[Any, bool]],
        receive: Callable[[int, Any], None],
        stop: Stop,
        kept: str,
    ) -> Generator[tuple[int, Callable[[], Any]], None, None]:
        """Run tasks; yield the number of each as it ends, with a function that returns its result.

        That function raises what the task raised, or a LongtailError if its workers died. Closing
        the iterator, or a stop, ends the tasks that still run; they may save a checkpoint.

        Args:
            function: a function of a module. shared: its first argument, sent to a machine once.
            tasks: its second arguments, and whether each uses a GPU.
            receive: called with the number of a task and what it reported.
            kept: a sentence for the error of a stop, on what is kept.
        """
        import ray

        if self._reports is None:
            self._reports = ray.remote(num_cpus=0, **_here(ray))(_Reports).remote()
        reports, self._n_runs = self._reports, self._n_runs + 1
        # In a list, a reference is passed as it is: a worker reads each object once for all tasks.
        reference = [self.put(shared)]
        refs = {}
        for number, (task, uses_gpu) in enumerate(tasks):
            resources = self.resources(uses_gpu)
            address = reports, self._n_runs, number
            arguments = (function, reference, task, address, self.setting(resources))
            refs[self._remote.options(**resources).remote(*arguments)] = number

        def deliver() -> None:
            for n_run, number, item in _result(ray, reports.take.remote()):
                # Tasks of an earlier run that ended early may have reported since.
                if n_run == self._n_runs:
                    receive(number, item)

        try:
            while refs:
                done, _ = ray.wait(list(refs), num_returns=1, timeout=POLL_SECONDS)
                deliver()
                for ref in done:
                    yield refs.pop(ref), partial(_result, ray, ref)
                stop.check(kept)
        finally:
            _end(ray, list(refs))


def _end(ray: Any, refs: list[Any]) -> None:
    """Let running tasks save a checkpoint, then make sure that none is left."""
    for ref in refs:
        ray.cancel(ref, force=False)
    if refs:
        _, late = ray.wait(refs, num_returns=len(refs), timeout=STOP_SECONDS)
        for ref in late:
            ray.cancel(ref, force=True)


def _result(ray: Any, ref: Any) -> Any:
    with worker_errors():
        return ray.get(ref)


@contextmanager
def worker_errors() -> Iterator[None]:
    """Raise what a worker raised, and a LongtailError if workers died."""
    from ray import exceptions

    try:
        yield
    except exceptions.RayTaskError as error:
        # What the task raised, and not Ray's account of it.
        raise error.cause from None
    except exceptions.RayError as error:
        reason = str(error).strip().partition("\n")[0]
        raise LongtailError(
            f"the work was given up after its workers died ({type(error).__name__}: {reason}) and "
            f"{RETRIES} repetitions. If they had too little memory, give each more of a machine by "
            "a larger OMP_NUM_THREADS, then resume."
        ) from error


def _here(ray: Any) -> dict[str, Any]:
    """Options of an actor that lives on this machine, which outlives all workers."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = ray.get_runtime_context().get_node_id()
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


class _Reports:
    """What tasks have reported, until it is taken; an actor."""

    def __init__(self) -> None:
        self._items: list[tuple[int, int, Any]] = []

    def put(self, n_run: int, number: int, item: Any) -> None:
        self._items.append((n_run, number, item))

    def take(self) -> list[tuple[int, int, Any]]:
        items, self._items = self._items, []
        return items


def _n_threads() -> int:
    import torch

    return torch.get_num_threads()


class WorkerSetting(NamedTuple):
    """What makes a worker compute like the process that it works for."""

    n_threads: int
    folder: str
    has_gpu: bool

    def apply(self) -> None:
        """In a worker: set its threads, its folder, and whether it sees GPUs."""
        if not self.has_gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["LOKY_MAX_CPU_COUNT"] = str(self.n_threads)  # the size of thread pools
        # So that relative paths, such as that of an encoder, mean the same.
        with suppress(OSError):
            os.chdir(self.folder)
        import torch

        torch.set_num_threads(self.n_threads)


_read: dict[str, Any] = {}
"""In a worker: the last shared object, by its reference."""


def _run_task(
    function: Function,
    reference: list[Any],
    task: Any,
    address: tuple[Any, int, int],
    setting: WorkerSetting,
) -> Any:
    """Run a task in a worker; Ray's cancelling stops it as Ctrl-C does."""
    setting.apply()
    import ray

    (ref,), (reports, n_run, number) = reference, address
    if ref.hex() not in _read:
        _read.clear()
        _read[ref.hex()] = pickle.loads(ray.get(ref))

    sent = None

    def report(item: Any) -> None:
        nonlocal sent
        sent = reports.put.remote(n_run, number, item)

    with stopping() as stop:
        result = function(_read[ref.hex()], task, report, stop)
    # Reports keep their order: none arrives after the result.
    if sent is not None:
        ray.get(sent)
    return result


def at_times(callback: Callable[[Any], None], seconds: float = 0.5) -> Callable[[Any], None]:
    """Pass on the first call, then at most one in each interval."""
    last = float("-inf")

    def sometimes(item: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            callback(item)

    return sometimes
