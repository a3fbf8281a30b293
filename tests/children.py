"""Trains in processes that tests may kill: an interpreter that forks for every job.

python children.py ENCODER reads one job in JSON from each line of stdin and answers with the id of
its process, or with its exit code. Importing torch and transformers takes seconds, a fork none.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from longtail.data import TextData
from longtail.errors import LongtailError
from longtail.fitting import Plan, Work, fingerprint, fit
from longtail.losses import build_loss
from longtail.models import encoder
from longtail.models.encoder import EncoderModel
from longtail.models.tokens import content_key
from longtail.runs import Workspace
from longtail.settings import EncoderSettings, TrainingConfig
from longtail.training import Checkpoints, Moment, StoppedError, Validation, checkpoints, stopping
from longtail.training import train as train_network

WORDS = ("copper", "nickel", "tin", "wheat", "zinc")
SECONDS = 60  # that a job may take before it is ended as stuck


def documents(n: int = 40) -> TextData:
    """Texts of several lengths, whose labels are the metals and grains that they name."""
    draw = np.random.default_rng(5)
    texts, labels = [], []
    for _ in range(n):
        words = draw.choice(WORDS, size=draw.integers(1, 4), replace=False).tolist()
        filler = draw.choice(["the", "of", "and", "rose", "fell"], size=draw.integers(0, 12))
        texts.append(" ".join([*words, *filler]))
        labels.append(words)
    return TextData.from_lists(texts, labels, WORDS)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Fate:
    """What happens to a job on its way, `when` it is where: {"step": 3}, {"writing": 2}, ..."""

    def __init__(self, when: dict[str, int], signal_name: str | None, log: Path) -> None:
        self.when, self.signal_name, self.log = when, signal_name, log
        self.met: dict[str, int] = {}

    def meet(self, place: str) -> bool:
        """Whether this is the moment."""
        self.met[place] = self.met.get(place, 0) + 1
        return self.when.get(place) == self.met[place]

    def happen(self) -> None:
        if self.signal_name is None:
            die()
        else:
            os.kill(os.getpid(), getattr(signal, self.signal_name))

    def progress(self, moment: Moment) -> None:
        with self.log.open("a") as log:
            log.write(f"{moment.fold} {moment.step}\n")
        if self.meet("step"):
            self.happen()

    def arm(self, slowly: float) -> None:
        """Be there when a state or a model is written, before and after its rename."""
        write, replace, write_head = checkpoints.save_file, os.replace, encoder.save_file

        def save(tensors: Any, path: Any, metadata: Any) -> None:
            write(tensors, path, metadata)
            if slowly:
                time.sleep(slowly)
            if self.meet("writing"):
                os.truncate(path, os.path.getsize(path) // 2)
                self.happen()

        def rename(old: Any, new: Any) -> None:
            if self.meet("replacing"):
                self.happen()
            replace(old, new)
            if self.meet("replaced"):
                self.happen()

        def save_head(tensors: Any, path: Any) -> None:
            if self.meet("saving"):
                self.happen()
            write_head(tensors, path)

        adopt = Workspace.adopt

        def adopting(space: Workspace, private: Path, name: str) -> None:
            if self.meet("adopting"):
                self.happen()
            adopt(space, private, name)
            if self.meet("adopted"):
                self.happen()

        Workspace.adopt = adopting  # type: ignore[method-assign]
        checkpoints.save_file = save
        encoder.save_file = save_head
        os.replace = rename  # type: ignore[assignment]


def train_job(job: dict[str, Any], fate: Fate, out: Path) -> None:
    """One training with dropout, an average of the weights, and early stopping."""
    data = documents()
    held = data.select(np.arange(30, 40))
    data = data.select(np.arange(30))
    model = EncoderModel(EncoderSettings(encoder=job["encoder"], dropout=0.2))
    torch.manual_seed(1)
    model.prepare(data.texts, WORDS)

    def score(logits: np.ndarray) -> float:
        if fate.meet("judging"):
            fate.happen()
        # Best somewhere on the way, so that the best epoch and patience matter.
        return -abs(float(logits.mean()) + job.get("peak", 0.1))

    settings: dict[str, Any] = dict(epochs=8, batch_size=8, ema=0.5, patience=3, device="cpu")
    settings |= dict(learning_rate=2e-3, head_learning_rate=1e-2, checkpoint_minutes=0.0)
    config = TrainingConfig(**(settings | job.get("training", {})))
    folder = job.get("folder")
    with stopping() as stop:
        found = train_network(
            model,
            model.encode(data.texts),
            data.Y,
            build_loss("db", data.stats(), reduction="batchmean"),
            config,
            validation=Validation(model.encode(held.texts), score),
            checkpoints=None
            if folder is None
            else Checkpoints(Path(folder), config.checkpoint_minutes),
            progress=fate.progress,
            stop=stop,
        )
    save_file(model.network.state_dict(), out / "weights.safetensors")
    facts = {"epochs": found.epochs, "best_epoch": found.best_epoch, "best": found.best}
    (out / "facts.json").write_text(json.dumps(facts))


def fit_job(job: dict[str, Any], fate: Fate, out: Path) -> None:
    """Three folds."""
    data = documents()
    plan = Plan(
        model="encoder",
        model_settings={"encoder": job["encoder"]},
        training=TrainingConfig(epochs=2, batch_size=8, device="cpu", checkpoint_minutes=0.0),
        folds=3,
    )
    work = Work(Path(job["folder"]), lambda text: (out / "note").write_text(text) and None)
    work.begin(fingerprint([plan], data, None), resume=True)
    with stopping() as stop:
        found = fit(plan, data, work=work, only=job.get("only"), progress=fate.progress, stop=stop)
    if found is None:
        return
    tensors = {"scores": torch.from_numpy(np.ma.filled(found.scores, np.nan))}
    for k, model in enumerate(found.ensemble.models):
        assert isinstance(model, EncoderModel)
        tensors |= {f"{k}.{name}": t for name, t in model.network.state_dict().items()}
    save_file(tensors, out / "weights.safetensors")


def shared_job(job: dict[str, Any], fate: Fate, out: Path) -> None:
    """One training in as many processes as `world` says, as `accelerate launch` makes them."""
    data = documents(21)
    rank, world = job["rank"], job["world"]
    if world > 1:
        for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            os.environ[name] = str(world)
        for name in ("RANK", "LOCAL_RANK"):
            os.environ[name] = str(rank)
        store = f"file://{job['store']}"
        torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    model = EncoderModel(EncoderSettings(encoder=job["encoder"], dropout=0.0))
    torch.manual_seed(1)
    model.prepare(data.texts, WORDS)
    # The last batch is one document: a process has nothing to do and must join in all the same.
    config = TrainingConfig(
        epochs=2, batch_size=5, device="cpu", micro_batch=job.get("micro"), precision="fp32"
    )
    losses: list[float] = []
    train_network(
        model,
        model.encode(data.texts),
        data.Y,
        build_loss("db", data.stats(), reduction=job.get("reduction", "batchmean")),
        config,
        checkpoints=Checkpoints(out / "states", minutes=0),
        progress=lambda moment: losses.append(moment.loss),
    )
    logits = model.network(**model.encode(data.texts).batch(np.arange(len(data))))
    found = {"logits": logits.detach(), "losses": torch.tensor(losses)}
    found |= dict(model.network.named_parameters())
    save_file({name: t.detach() for name, t in found.items()}, out / f"found-{rank}.safetensors")
    while not all((out / f"found-{other}.safetensors").exists() for other in range(world)):
        time.sleep(0.01)  # who leaves first would break the connection


def key_job(job: dict[str, Any], fate: Fate, out: Path) -> None:
    """The name of some tokens in the cache."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job["encoder"])
    (out / "key").write_text(content_key(tokenizer, ["copper"], 8))


JOBS: dict[str, Callable[[dict[str, Any], Fate, Path], None]] = {
    "train": train_job,
    "fit": fit_job,
    "shared": shared_job,
    "key": key_job,
}


def run(job: dict[str, Any]) -> int:
    """Do a job; errors of ours go to the file `error`, and its exit code is the command's."""
    signal.alarm(SECONDS)
    out = Path(job["out"])
    out.mkdir(parents=True, exist_ok=True)
    fate = Fate(job.get("when", {}), job.get("signal"), out / "moments")
    fate.arm(job.get("slowly", 0.0))
    if "largest_file" in job:
        limit = job["largest_file"]
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        JOBS[job["job"]](job, fate, out)
    except StoppedError as error:
        (out / "error").write_text(str(error))
        return error.exit_code
    except LongtailError as error:
        (out / "error").write_text(str(error))
        return 1
    except KeyboardInterrupt:
        return 99
    return 0


def main(folder: str) -> None:
    # Everything that a job would import.
    warm = EncoderModel(EncoderSettings(encoder=folder))
    warm.prepare([], WORDS)
    import accelerate  # noqa: F401

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
