"""Training on a GPU: seconds per epoch against the style of the paper's scripts, and scores.

    python benchmarks/training_gpu.py FOLDER --encoder ENCODER_FOLDER     # FOLDER of Reuters' parts

1. BERT-base's shape with random weights, batch 32: float32 padded to 512 tokens as in the paper's
   scripts (the median step times the steps of an epoch), and this library's loop, in one run.
2. The given encoder: seconds per epoch, seconds to the end of the first one, documents per second
   in predict.
3. The DB loss with one global threshold chosen on the validation part: test scores of three seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from transformers import AutoTokenizer, BertConfig, BertModel

from longtail import Encoder, LongTailClassifier, Training, build_loss
from longtail.data import TextData, load_data
from longtail.evaluation import Evaluation
from longtail.models.encoder import EncoderModel, MeanNetwork
from longtail.progress import Progress
from longtail.training.loop import Trainer

BATCH = 32


class Clock:
    """When each epoch ended; a progress callback."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.ends: list[float] = []

    def __call__(self, progress: Progress) -> None:
        if progress.done == (progress.epoch or 0) * (progress.total or 0) // (progress.epochs or 1):
            torch.cuda.synchronize()
            self.ends.append(time.perf_counter())

    @property
    def first(self) -> float:
        return self.ends[0] - self.begin

    @property
    def epoch(self) -> float:
        return statistics.median(np.diff(self.ends))


def bert_base(tokenizer_of: str, n_labels: int, max_length: int) -> EncoderModel:
    """BERT-base with random weights and a tokenizer of the same vocabulary."""
    model = EncoderModel(Encoder(tokenizer_of, max_length=max_length))
    torch.manual_seed(0)
    model._pretrained = BertModel(BertConfig(), add_pooling_layer=False)
    model.network = MeanNetwork(model._pretrained, n_labels, 0.1)
    model._tokenizer = AutoTokenizer.from_pretrained(tokenizer_of)
    return model


def paper_style(model: EncoderModel, data: TextData, n_steps: int = 15) -> float:
    """Seconds of an epoch in float32, every text padded to 512 tokens."""
    network = model.network.cuda().train()
    encoded = model.encode(data.texts)
    loss = build_loss("db", data.stats(), reduction="batchmean", check_targets=False).cuda()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    dense = torch.from_numpy(data.Y.toarray()).cuda()
    order = np.random.default_rng(0).permutation(len(data))
    seconds = []
    for step in range(n_steps):
        rows = order[step * BATCH : (step + 1) * BATCH]
        torch.cuda.synchronize()
        start = time.perf_counter()
        batch = encoded.batch(rows)
        padded = {k: nn.functional.pad(v, (0, 512 - v.shape[1])) for k, v in batch.items()}
        logits = network(**{k: v.cuda() for k, v in padded.items()})
        value = loss(logits, dense[torch.from_numpy(rows).cuda()])
        value.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value.item()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[3:]) * -(-len(data) // BATCH)


def our_epochs(model: EncoderModel, data: TextData, **settings: object) -> Clock:
    encoded = model.encode(data.texts)
    loss = build_loss("db", data.stats(), reduction="batchmean", check_targets=False)
    clock = Clock()
    training = Training(batch_size=BATCH, **settings)  # type: ignore[arg-type]
    training = training.resolved(model.settings.training_defaults)
    options = dict(is_head=model.is_head, bf16=model.bf16, progress=clock, note=print)
    Trainer(model.network, encoded, data.Y, loss, training, **options).train()  # type: ignore[arg-type]
    return clock


def speed(data: TextData, encoder: str, table: Table) -> None:
    n_labels = len(data.label_names)
    slow = paper_style(bert_base(encoder, n_labels, 512), data)
    torch.cuda.empty_cache()
    table.add_row("BERT-base, float32, padded to 512: epoch", f"{slow:.1f} s", "")
    for exact in (True, False):
        model = bert_base(encoder, n_labels, 512)
        fast = our_epochs(model, data, epochs=4, deterministic=exact).epoch
        name = "this loop" if exact else "this loop, --no-deterministic"
        table.add_row(f"BERT-base, {name}: epoch", f"{fast:.2f} s", f"{slow / fast:.1f} x (>= 15)")
        torch.cuda.empty_cache()


def quality(parts: dict[str, TextData], encoder: str, table: Table, out: Path | None) -> None:
    evaluations: list[Evaluation] = []
    for seed in range(3):
        clock = Clock()
        classifier = LongTailClassifier(
            Encoder(encoder),
            "db",
            thresholds="global",
            objective="micro",
            folds=1,
            random_state=seed,
        ).fit(parts["train"], validation=parts["validation"], progress=clock)
        if seed == 0:
            table.add_row("encoder: to the end of the first epoch", f"{clock.first:.1f} s", "<= 30")
            table.add_row("encoder: epoch", f"{clock.epoch:.2f} s", "<= 1.5")
            start = time.perf_counter()
            classifier.predict(parts["test"].texts)
            rate = len(parts["test"]) / (time.perf_counter() - start)
            table.add_row("encoder: predict", f"{rate:,.0f} documents/s", "")
            with tempfile.TemporaryDirectory() as folder:
                classifier.save_pretrained(Path(folder) / "run")
                again = LongTailClassifier.from_pretrained(Path(folder) / "run")
                same = again.predict_labels(parts["test"].texts[:200])
            assert same == classifier.predict_labels(parts["test"].texts[:200])
            again = classifier.decision_function(parts["test"].texts)
            clone = LongTailClassifier(**classifier.get_params(deep=False))
            clone.fit(parts["train"], validation=parts["validation"])
            equal = np.array_equal(again, clone.decision_function(parts["test"].texts))
            table.add_row("encoder: the same seed again, the same scores", str(equal), "True")
        evaluations.append(classifier.evaluate(parts["test"]))
        table.add_row(f"db, seed {seed}, one threshold: test", _percent(evaluations[-1]), "")
    mean = [
        100 * statistics.mean(getattr(getattr(e, group), name) for e in evaluations)
        for group in ("overall", "tail")
        for name in ("micro_f1", "macro_f1")
    ]
    table.add_row(
        "db, mean of three seeds: test",
        f"{mean[0]:.2f} / {mean[1]:.2f}, tail {mean[2]:.2f} / {mean[3]:.2f}",
        ">= 90.7 / 61",
    )
    if out is not None:
        out.write_text(json.dumps([e.to_dict() for e in evaluations]), "utf-8")


def _percent(evaluation: Evaluation) -> str:
    pairs = [(s.micro_f1, s.macro_f1) for s in (evaluation.overall, evaluation.tail)]
    all_, tail = (f"{100 * micro:.2f} / {100 * macro:.2f}" for micro, macro in pairs)
    return f"{all_}, tail {tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder with train, validation and test files")
    parser.add_argument("--encoder", required=True, help="folder of a BERT-like encoder")
    parser.add_argument("--out", type=Path, help="file for the evaluations as JSON")
    options = parser.parse_args()
    measure(options.data, options.encoder, options.out)


def measure(data: str, encoder: str, out: Path | None) -> None:
    """Run all of it and print the table."""
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a GPU; benchmarks/training.py runs anywhere.")
    parts = load_data(data)
    table = Table(title=f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for column in ("what", "measured", "target"):
        table.add_column(column)
    quality(parts, encoder, table, out)
    speed(parts["train"], encoder, table)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
