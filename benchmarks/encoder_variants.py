"""What a setting of an encoder gains on held-out documents, alone and blended with the default.

    python benchmarks/encoder_variants.py FOLDER --encoder ENCODER_FOLDER \\
        --variants default loss=bce label_texts=names epochs=10,learning_rate=2e-4

A variant is settings as in a recipe, joined by commas; `default` changes nothing. Documents of
FOLDER's training part are held out (a stratified fifth, or with --validation its validation part)
and scored once per variant; the test part is not read. Prints micro- and macro-F1 with thresholds
cross-validated on the held-out documents, for each label and for all, the macro average precision
of all labels and of the tail, and the same for blends with the linear default, as each is done.
"""

from __future__ import annotations

import argparse
import gc
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from longtail import LongTailClassifier
from longtail.classifier.weights import blend_weights
from longtail.data import TextData, load_data
from longtail.data.splits import split
from longtail.labels import label_groups
from longtail.metrics import average_precision
from longtail.thresholds import cross_validated_score

Scores = NDArray[np.float32]


def parse(variant: str) -> dict[str, Any]:
    """The settings of a variant, with numbers as numbers."""
    pairs = [item.split("=", 1) for item in variant.split(",") if item != "default"]
    return {name: number(value) for name, value in pairs}


def number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class HeldOut:
    """The documents that all variants are scored on."""

    def __init__(self, folder: str, use_validation: bool, seed: int) -> None:
        parts = load_data(folder, parts=("train", "validation"))
        self.train, held_out = parts["train"], parts.get("validation")
        if not use_validation:
            both = [part for part in (self.train, held_out) if part is not None]
            self.train, held_out = split(TextData.concat(both), (0.8, 0.2), random_state=seed)
        if held_out is None:
            raise SystemExit(f"{folder} has no validation part. Leave out --validation.")
        self.held_out = held_out.onto(self.train.label_names)[0]
        self.counts = self.train.stats().label_counts
        self.tail = label_groups(self.counts)["tail"]

    def fit(self, **settings: Any) -> Scores:
        """Logits of the held-out documents, by a model of the training documents."""
        settings = {"thresholds": "global", "folds": 1, **settings}
        classifier = LongTailClassifier.from_settings(settings)
        classifier.fit(self.train, validation=self.held_out)
        scores = classifier.decision_function(self.held_out.texts)
        del classifier
        gc.collect()
        torch.cuda.empty_cache()
        return scores

    def show(self, name: str, scores: Scores, seconds: float) -> None:
        truth = self.held_out.Y
        cells = []
        for method in ("per-label", "global"):
            f1 = cross_validated_score(scores, truth, self.counts, method, objective="mean")
            cells.append(f"{method} {100 * f1.micro_f1:.2f} / {100 * f1.macro_f1:.2f}")
        precision = average_precision(truth, scores, "macro", absent="skip")
        cells.append(f"AP {100 * precision:.2f}")
        tail = truth[:, self.tail]
        if tail.nnz:
            precision = average_precision(tail, scores[:, self.tail], "macro", absent="skip")
            cells.append(f"tail AP {100 * precision:.2f}")
        print(f"{name:40} {seconds:6.1f} s   {'   '.join(cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder with a train file")
    parser.add_argument("--encoder", required=True, help="folder of an encoder")
    parser.add_argument("--variants", nargs="+", default=["default"])
    parser.add_argument("--validation", action="store_true", help="hold out the validation part")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="then begin no other")
    options = parser.parse_args()
    data, begin = HeldOut(options.data, options.validation, options.seed), time.monotonic()
    sizes = len(data.train), len(data.held_out), data.train.Y.shape[1]
    print("{:,} training and {:,} held-out documents, {:,} labels".format(*sizes))
    linear = data.fit(model="auto", random_state=options.seed)
    data.show("auto", linear, time.monotonic() - begin)
    for variant in options.variants:
        start = time.monotonic()
        if start - begin > 60 * options.minutes:
            break
        settings = {"loss": "db", "random_state": options.seed, **parse(variant)}
        scores = data.fit(model="encoder", encoder=options.encoder, **settings)
        data.show(variant, scores, time.monotonic() - start)
        (one, other), intercept = blend_weights([scores, linear], data.held_out.Y)
        data.show("    blended with auto", one * scores + other * linear + intercept, 0.0)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{device}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
