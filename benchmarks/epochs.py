"""When the losses matter: F1 of total and tail after every epoch, by loss and learning rate.

    python benchmarks/epochs.py FOLDER --encoder ENCODER_FOLDER --out results/epochs-NAME

FOLDER: train, validation and test parts. Each loss is trained with two settings: `one rate` of 4e-5
for encoder and head and the loss averaged over all elements, as in the paper's scripts; and `fast
head`, the default of this library, 1e-4 and 1e-3. After every epoch thresholds are chosen on the
validation part, one of 0.40 to 0.60 and one per label, and F1 is computed on the test part. No
setting is chosen by these figures. Writes OUT.json after every training, and at the end OUT.md and
OUT.png; trainings that OUT.json has are not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from longtail import Encoder, LabelStats, Training, build_loss
from longtail.data import TextData, load_data
from longtail.evaluation import evaluate
from longtail.models.encoder import EncoderModel
from longtail.progress import ignore
from longtail.report.table import Table, to_markdown, to_terminal
from longtail.thresholds import fit_thresholds
from longtail.training.encoded import EncodedTokens
from longtail.training.loop import Trainer, Validation

LOSSES = ("bce", "fl", "cb-ntr", "db")
RATES: dict[str, dict[str, Any]] = {
    "one rate": {"learning_rate": 4e-5, "head_learning_rate": 4e-5, "reduction": "mean"},
    "fast head": {"learning_rate": 1e-4, "head_learning_rate": 1e-3, "reduction": "batchmean"},
}
ABOUT = {
    "one rate": "one learning rate, 4e-5",
    "fast head": "learning rate 1e-4, head 1e-3",
}
DECISIONS = {"one threshold": "grid", "a threshold per label": "per-label"}
Scores = dict[str, dict[str, tuple[float, float]]]


def scored(logits: NDArray[np.float32], parts: dict[str, TextData], stats: LabelStats) -> Scores:
    """Micro- and macro-F1 on the test part, by decision and group of labels."""
    n_held_out, Y = len(parts["validation"]), parts["validation"].Y
    scores: Scores = {}
    for name, method in DECISIONS.items():
        objective = "micro" if method == "grid" else "mean"
        thresholds = fit_thresholds(
            logits[:n_held_out], Y, stats.label_counts, method, objective=objective
        )
        result = evaluate(parts["test"].Y, logits[n_held_out:], thresholds, stats, n_resamples=0)
        groups = {"total": result.overall, "tail": result.tail}
        scores[name] = {
            key: (round(group.micro_f1, 5), round(group.macro_f1, 5))
            for key, group in groups.items()
        }
    return scores


@cache
def encoded(encoder: str, texts: tuple[str, ...]) -> EncodedTokens:
    model = EncoderModel(Encoder(encoder))
    model.load_pretrained(["any"])
    return model.encode(texts)


def curve(
    parts: dict[str, TextData], encoder: str, loss: str, rates: str, seed: int, epochs: int
) -> list[Scores]:
    """The scores after every epoch of one training."""
    model = EncoderModel(Encoder(encoder))
    torch.manual_seed(seed)
    data, stats = parts["train"], parts["train"].stats()
    model.load_pretrained(data.label_names)
    settings = dict(RATES[rates])
    module = build_loss(loss, stats, reduction=settings.pop("reduction"), check_targets=False)
    training = Training(epochs=epochs, batch_size=32, weight_decay=0.01, **settings)
    seen: list[Scores] = []

    def record(logits: NDArray[np.float32]) -> float:
        seen.append(scored(logits, parts, stats))
        return float(len(seen))

    held_out = encoded(encoder, (*parts["validation"].texts, *parts["test"].texts))
    options: dict[str, Any] = {"is_head": model.is_head, "bf16": True, "seed": seed, "note": print}
    with model.packing(training, 10**6, print) as packed:
        Trainer(
            model.network,
            encoded(encoder, tuple(data.texts)),
            data.Y,
            module,
            training,
            packed=packed,
            validation=Validation(held_out, record),
            progress=ignore,
            **options,
        ).train()
    return seen


def mean_of(runs: list[list[Scores]], decision: str, group: str, place: int) -> NDArray[np.float64]:
    """Percent after each epoch, (seeds, epochs)."""
    return np.array([[100 * scores[decision][group][place] for scores in run] for run in runs])


def draw(curves: dict[str, list[list[Scores]]], epochs: int, path: Path) -> None:
    """Macro-F1 over the epochs: columns are settings, rows are groups and decisions."""
    rows = [(group, decision) for group in ("tail", "total") for decision in DECISIONS]
    figure, axes = plt.subplots(
        len(rows), len(RATES), figsize=(10, 12), sharex=True, sharey="row", squeeze=False
    )
    for column, rates in enumerate(RATES):
        for row, (group, decision) in enumerate(rows):
            axis = axes[row, column]
            for number, loss in enumerate(LOSSES):
                runs = curves.get(f"{loss} {rates}")
                if not runs:
                    continue
                values = mean_of(runs, decision, group, 1)
                places = np.arange(1, epochs + 1)
                axis.plot(places, values.mean(axis=0), color=f"C{number}", label=loss)
                low, high = values.min(axis=0), values.max(axis=0)
                axis.fill_between(places, low, high, color=f"C{number}", alpha=0.15, linewidth=0)
            axis.set_title(f"{group}, {decision}; {ABOUT[rates]}", fontsize=9)
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel("macro-F1")
            if row == len(rows) - 1:
                axis.set_xlabel("epoch")
    axes[0, 0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def table_of(curves: dict[str, list[list[Scores]]], epochs: int, hardware: list[str]) -> Table:
    """Macro-F1 of tail and total after some epochs, means over the seeds."""
    chosen = [k for k in (1, 3, 5, 10, 20, 30) if k <= epochs]
    rows, rules = [], []
    for rates in RATES:
        rules.append(len(rows))
        for decision in DECISIONS:
            for loss in LOSSES:
                runs = curves.get(f"{loss} {rates}", [])
                if runs:
                    tail, total = (
                        mean_of(runs, decision, group, 1).mean(axis=0)
                        for group in ("tail", "total")
                    )
                    cells = [f"{tail[k - 1]:.1f} / {total[k - 1]:.1f}" for k in chosen]
                    rows.append([ABOUT[rates], decision, loss, *cells, str(len(runs))])
    return Table(
        "Macro-F1 of the tail / of all labels after some epochs",
        ["training", "thresholds", "loss", *map(str, chosen), "seeds"],
        rows,
        notes=[f"Test part, mean over the seeds; {', '.join(hardware)}."],
        rules=rules,
        n_names=3,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder with train, validation and test files")
    parser.add_argument("--encoder", required=True, help="folder of an encoder")
    parser.add_argument("--out", type=Path, required=True, help="path without suffix")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="then begin no other")
    options = parser.parse_args()
    parts, begin = load_data(options.data), time.monotonic()
    path = options.out.with_suffix(".json")
    saved = json.loads(path.read_text("utf-8")) if path.exists() else {"hardware": [], "runs": {}}
    done: dict[str, Any] = saved["runs"]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    hardware = f"{device}, torch {torch.__version__}"
    # All losses of a seed before the next seed, so that a stopped run can be read.
    for seed in range(options.seeds):
        for rates in RATES:
            for loss in LOSSES:
                name = f"{loss} {rates} {seed}"
                taken = (time.monotonic() - begin) / 60
                if len(done.get(name, [])) == options.epochs or taken > options.minutes:
                    continue
                done[name] = curve(parts, options.encoder, loss, rates, seed, options.epochs)
                if hardware not in saved["hardware"]:
                    saved["hardware"].append(hardware)
                path.write_text(json.dumps(saved), "utf-8")
                last = done[name][-1]["one threshold"]["tail"][1]
                print(f"{name}: tail macro-F1 {100 * last:.1f} at the end", flush=True)
    curves: dict[str, list[list[Scores]]] = {}
    for name, run in done.items():
        if len(run) == options.epochs:
            curves.setdefault(name.rpartition(" ")[0], []).append(run)
    draw(curves, options.epochs, options.out.with_suffix(".png"))
    table = table_of(curves, options.epochs, saved["hardware"])
    figure = path.with_suffix(".png")
    command = f"python benchmarks/epochs.py FOLDER --encoder ENCODER --out results/{path.stem}"
    page = f"{to_markdown(table)}\n\n![Macro-F1 over the epochs]({figure.name})\n\n`{command}`\n"
    path.with_suffix(".md").write_text(page, "utf-8")
    Console(width=140).print(to_terminal(table))


if __name__ == "__main__":
    main()
