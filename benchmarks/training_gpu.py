"""Training on a GPU: seconds per epoch against the style of the paper's scripts, and scores.

    python benchmarks/training_gpu.py FOLDER --encoder ENCODER_FOLDER     # FOLDER of Reuters' parts

1. Shapes of three encoders with random weights, batch 32: BERT-base in float32, padded to 512
   tokens as in the paper's scripts (the median step times the steps of an epoch), then this
   library's loop, padded and packed; with --large FOLDER also documents per second there.
2. The given encoder, if its folder has weights: seconds per epoch, seconds to the end of the first
   one, documents per second in predict.
3. The DB loss with one global threshold chosen on the validation part: test scores of three seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from transformers import AutoTokenizer, BertConfig, BertModel, MPNetConfig, MPNetModel

from longtail import Encoder, LongTailClassifier, Training, build_loss
from longtail.data import TextData, load_data
from longtail.evaluation import Evaluation
from longtail.models.encoder import EncoderModel
from longtail.models.networks import PooledNetwork
from longtail.progress import Progress
from longtail.training.encoded import EncodedTokens
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


SHAPES: dict[str, tuple[Any, Any]] = {
    "BERT-base": (BertModel, BertConfig()),
    "MiniLM": (
        BertModel,
        BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536),
    ),
    "MPNet-base": (MPNetModel, MPNetConfig(vocab_size=30_527, max_position_embeddings=514)),
}
TARGETS = {"BERT-base": "<= 1.8", "MiniLM": "<= 0.6", "MPNet-base": ""}


def random_encoder(shape: str, tokenizer_of: str, n_labels: int) -> EncoderModel:
    """An encoder with random weights, and a tokenizer whose vocabulary it has."""
    kind, config = SHAPES[shape]
    model = EncoderModel(Encoder(tokenizer_of))
    torch.manual_seed(0)
    model._pretrained = kind(config, add_pooling_layer=False)
    model.network = PooledNetwork(model._pretrained, n_labels, 0.1)
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


def our_epochs(
    model: EncoderModel, encoded: EncodedTokens, data: TextData, packed: bool = True, **more: Any
) -> tuple[Clock, dict[str, torch.Tensor]]:
    """Train some epochs; return when they ended, and the weights."""
    loss = build_loss("db", data.stats(), reduction="batchmean", check_targets=False)
    clock = Clock()
    training = Training(batch_size=BATCH, **more).resolved(model.settings.training_defaults)
    options: dict[str, Any] = dict(is_head=model.is_head, bf16=True, progress=clock, note=print)
    torch.manual_seed(1)
    # As many steps as a long training, so that layers are compiled.
    with model.packing(training, 10**6, print) as can_pack:
        options["packed"] = packed and can_pack
        Trainer(model.network, encoded, data.Y, loss, training, **options).train()
    weights = {name: value.cpu() for name, value in model.network.state_dict().items()}
    torch.cuda.empty_cache()
    return clock, weights


def speed(data: TextData, encoder: str, table: Table) -> None:
    n_labels = len(data.label_names)
    slow = paper_style(random_encoder("BERT-base", encoder, n_labels), data)
    torch.cuda.empty_cache()
    table.add_row("BERT-base, float32, padded to 512: epoch", f"{slow:.1f} s", "")
    encoded = random_encoder("MiniLM", encoder, n_labels).encode(data.texts)
    for shape, target in TARGETS.items():
        weights = []
        runs: dict[str, dict[str, Any]] = {"packed": {}}
        if target:
            runs |= {"padded": {"packed": False}, "packed, again": {}}
        if shape == "BERT-base":
            runs |= {"packed, --no-deterministic": {"deterministic": False}}
        for name, more in runs.items():
            model = random_encoder(shape, encoder, n_labels)
            clock, after = our_epochs(model, encoded, data, epochs=3, **more)
            weights.append(after)
            wanted = target if name == "packed" else ""
            table.add_row(f"{shape}, {name}: epoch", f"{clock.epoch:.2f} s", wanted)
        if "packed, again" in runs:
            same = all(torch.equal(weights[0][name], weights[2][name]) for name in weights[0])
            table.add_row(f"{shape}, packed: the same seed, the same weights", str(same), "True")


def large(data: TextData, encoder: str, table: Table) -> None:
    model = random_encoder("MiniLM", encoder, len(data.label_names))
    encoded = model.encode(data.texts)
    clock, _ = our_epochs(model, encoded, data, epochs=3)
    rate, n_tokens = len(data) / clock.epoch, int(encoded.lengths.mean())
    name = f"MiniLM, {len(data):,} documents of {n_tokens} tokens, {len(data.label_names):,} labels"
    table.add_row(name, f"{rate:,.0f} documents/s", ">= 6,000")


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
            table.add_row("encoder: epoch", f"{clock.epoch:.2f} s", "<= 0.6")
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
    parser.add_argument("--large", help="folder of a large corpus")
    parser.add_argument("--out", type=Path, help="file for the evaluations as JSON")
    options = parser.parse_args()
    measure(options.data, options.encoder, options.large, options.out)


def measure(data: str, encoder: str, large_data: str | None, out: Path | None) -> None:
    """Run all of it and print the table."""
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a GPU; benchmarks/training.py runs anywhere.")
    parts = load_data(data)
    table = Table(title=f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for column in ("what", "measured", "target"):
        table.add_column(column)
    speed(parts["train"], encoder, table)
    if large_data is not None:
        large(load_data(large_data)["train"], encoder, table)
    if any(Path(encoder).glob("*.safetensors")):
        quality(parts, encoder, table, out)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
