"""Trains in processes that tests may kill: an interpreter that forks for every job.

python children.py ENCODER reads one job in JSON from each line of stdin and answers with the id of
its process, or with its exit code. Importing torch and transformers takes seconds, a fork none.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import dynamic_module_utils, utils

from longtail import LongTailClassifier
from longtail.classifier.crossfit import Run, fit_plan
from longtail.classifier.folds import FoldedData
from longtail.classifier.plan import Plan, fingerprint
from longtail.classifier.work import open_work
from longtail.data import TextData
from longtail.errors import LongtailError
from longtail.losses import build_loss
from longtail.models import Encoder, encoder
from longtail.models.encoder import EncoderModel
from longtail.models.tokens import content_key
from longtail.progress import Progress
from longtail.runs.workspace import Workspace
from longtail.training import Training, checkpoints
from longtail.training.checkpoints import Checkpoints
from longtail.training.interrupt import StoppedError, stopping
from longtail.training.loop import State, Trainer, Validation
from longtail.training.processes import rank, together
from longtail.training.steps import Steps

WORDS = ("copper", "nickel", "tin", "wheat", "zinc")
SECONDS = 60  # a job that takes longer is ended as stuck


def documents(n: int = 40) -> TextData:
    """Texts of several lengths, whose labels are the metals and grains that they name."""
    rng = np.random.default_rng(5)
    texts, labels = [], []
    for _ in range(n):
        words = rng.choice(WORDS, size=rng.integers(1, 4), replace=False).tolist()
        filler = rng.choice(["the", "of", "and", "rose", "fell"], size=rng.integers(0, 12))
        texts.append(" ".join([*words, *filler]))
        labels.append(words)
    return TextData.from_lists(texts, labels, WORDS)


def begin(folder: str | Path) -> Workspace:
    return Workspace.begin(Path(folder), {}, join=True)


class Interruption:
    """Sends this process a signal at an event: {"step": 3}, {"writing": 2}, ..."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.when, self.slowly = job.get("when", {}), job.get("slowly", 0.0)
        self.signal = getattr(signal, job.get("signal", "SIGKILL"))
        self.log = Path(job["out"]) / "moments"
        self.counts: Counter[str] = Counter()

    def at(self, event: str, prepare: Callable[[], None] = lambda: None) -> None:
        self.counts[event] += 1
        if self.when.get(event) == self.counts[event]:
            prepare()
            os.kill(os.getpid(), self.signal)

    def progress(self, moment: Progress) -> None:
        with self.log.open("a") as log:
            log.write(f"{moment.fold} {moment.done}\n")
        self.at("step")

    def patch(self) -> None:
        """Add the events of writing a state or a model, before and after it is renamed."""
        write = checkpoints.save_file

        def save_state(tensors: Any, path: Any, metadata: Any) -> None:
            write(tensors, path, metadata)
            time.sleep(self.slowly)
            self.at("writing", lambda: os.truncate(path, os.path.getsize(path) // 2))

        checkpoints.save_file = save_state
        self._wrap(os, "replace", "replacing", "replaced")
        self._wrap(encoder, "save_file", "saving", "saved")
        self._wrap(Workspace, "adopt", "adopting", "adopted")
        self._wrap(Steps, "_shares", "sharing", "shared")

    def _wrap(self, owner: Any, name: str, before: str, after: str) -> None:
        function = getattr(owner, name)

        def wrapped(*args: Any) -> Any:
            self.at(before)
            result = function(*args)
            self.at(after)
            return result

        setattr(owner, name, wrapped)


def make_model(job: dict[str, Any], dropout: float) -> EncoderModel:
    model = EncoderModel(Encoder(job["encoder"], dropout=dropout))
    torch.manual_seed(1)
    model.load_pretrained(WORDS)
    return model


def train_encoder(model: EncoderModel, data: TextData, settings: Any, **more: Any) -> State:
    loss = build_loss("db", data.stats(), reduction=settings.pop("reduction", "batchmean"))
    training = Training(device="cpu", **settings).resolved(model.settings.training_defaults)
    more |= {"is_head": model.is_head, "bf16": True}
    encoded = model.encode(data.texts)
    return Trainer(model.network, encoded, data.Y, loss, training, **more).train()


def train_job(job: dict[str, Any], interruption: Interruption, out: Path) -> None:
    """One training with dropout, an average of the weights, and early stopping."""
    data = documents()

    def score(logits: np.ndarray) -> float:
        interruption.at("validating")
        # Best in the middle, so that the best epoch and early stopping matter.
        return -abs(float(logits.mean()) + 0.1)

    settings: dict[str, Any] = dict(epochs=8, batch_size=8, ema=0.5, early_stopping_patience=3)
    settings |= dict(learning_rate=2e-3, head_learning_rate=1e-2, checkpoint_minutes=0.0)
    settings |= job.get("training", {})
    states = None
    if "folder" in job:
        states = Checkpoints(begin(job["folder"]), settings["checkpoint_minutes"])
    model = make_model(job, dropout=0.2)
    more: dict[str, Any] = {"checkpoints": states, "progress": interruption.progress}
    more["validation"] = Validation(model.encode(data[30:].texts), score)
    with stopping() as stop:
        trained = train_encoder(model, data[:30], settings, stop=stop, **more)
    save_file(model.network.state_dict(), out / "weights.safetensors")
    (out / "facts.json").write_text(json.dumps(vars(trained)))


def fit_job(job: dict[str, Any], interruption: Interruption, out: Path) -> None:
    """Three folds; `only`: one of them."""
    data = documents()
    training = Training(epochs=2, batch_size=8, device="cpu", checkpoint_minutes=0.0)
    plan = Plan(model=Encoder(job["encoder"]), training=training, folds=3)

    def note(text: str) -> None:
        (out / "note").write_text(text)

    begun = open_work(Path(job["folder"]), fingerprint([plan], data, None), True, note)
    with stopping() as stop, begun as work:
        run = Run(work, job.get("only"), interruption.progress, stop=stop)
        fitted = fit_plan(plan, FoldedData.split(plan, data, None, run.only_fold), run)
    if fitted is None:
        return
    tensors = {"scores": torch.from_numpy(np.ma.filled(fitted.scores, np.nan))}
    for k, model in enumerate(fitted.ensemble.models):
        tensors |= {f"{k}.{name}": t for name, t in model.network.state_dict().items()}
    save_file(tensors, out / "weights.safetensors")


def shared_job(job: dict[str, Any], interruption: Interruption, out: Path) -> None:
    """A classifier fitted by a script that several processes run."""
    data = documents(21)
    if job.get("unknown"):
        unknown = np.random.default_rng(3).random(data.Y.shape) < 0.4
        unknown[:, -1] = False
        unknown = sp.csr_matrix(unknown)
        data = replace(data, Y=data.Y - data.Y.multiply(unknown), unknown=unknown)
    training = Training(device="cpu", epochs=2, **{"batch_size": 5, **job.get("training", {})})
    model = Encoder(job["encoder"], dropout=0.0, training=training)
    loss = job.get("loss", "db")
    classifier = LongTailClassifier(model, loss, loss_settings=job.get("loss_settings"), folds=1)
    losses: list[float] = []

    def fail(module: Any, inputs: Any) -> None:
        raise LongtailError("failed within a step")

    def progress(now: Progress) -> None:
        losses.append(now.loss or 0.0)
        if now.done == job.get("fails_after"):
            nn.modules.module.register_module_forward_pre_hook(fail)

    if "modules" in job:
        for module in (dynamic_module_utils, utils):
            module.HF_MODULES_CACHE = job["modules"]
    more: Any = {"folder": out / "folder", "trust_remote_code": "modules" in job}
    try:
        classifier.fit(data, validation=documents(9), progress=progress, **more)
    except LongtailError:
        # A script may go on without this model; the other process must not wait for it.
        (out / f"failed-{rank()}").touch()
        while not all((out / f"failed-{other}").exists() for other in range(job["world"])):
            time.sleep(0.01)
        raise
    network = classifier.ensemble_.models[0].network.state_dict()
    save_file({"losses": torch.tensor(losses), **network}, out / f"result-{rank()}.safetensors")


def key_job(job: dict[str, Any], interruption: Interruption, out: Path) -> None:
    """The name of some tokens in the cache."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job["encoder"])
    (out / "key").write_text(content_key(tokenizer, ["copper"], 8))


JOBS = {"train": train_job, "fit": fit_job, "shared": shared_job, "key": key_job}


def join(rank: int, world: int, store: str) -> None:
    """Become one of several processes, as torchrun starts them."""
    os.environ |= {"WORLD_SIZE": str(world), "RANK": str(rank), "LOCAL_RANK": str(rank)}
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world
    )


def run(job: dict[str, Any]) -> int:
    """Do a job; errors of ours go to the file `error`, and its exit code is the command's."""
    signal.alarm(SECONDS)
    out = Path(job["out"])
    out.mkdir(parents=True, exist_ok=True)
    interruption = Interruption(job)
    interruption.patch()
    work = partial(JOBS[job["job"]], job, interruption, out)
    try:
        if "world" in job:
            join(job["rank"], job["world"], job["store"])
        if job["job"] == "shared":
            work()
        else:
            together(work)
    except LongtailError as error:
        (out / f"error{job.get('rank') or ''}").write_text(str(error))
        return error.exit_code if isinstance(error, StoppedError) else 1
    except KeyboardInterrupt:
        return 99
    return 0


def main(folder: str) -> None:
    # Import everything that a job needs.
    EncoderModel(Encoder(folder)).load_pretrained(WORDS)
    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            _, status = os.waitpid(job["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        process = os.fork()
        if process == 0:
            code = 98
            try:
                code = run({"encoder": folder, **job})
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(process, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
