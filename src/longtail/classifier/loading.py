"""Load a saved classifier, or say what is wrong with its folder and what to do about it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from longtail import __version__
from longtail.classifier.ensemble import Ensemble, is_failure
from longtail.classifier.held_out import Facts
from longtail.classifier.plan import Plan
from longtail.classifier.saving import FORMAT
from longtail.errors import DataError, InputError, LongtailError, UnknownNameError
from longtail.labels import LabelStats
from longtail.models import build_model, parse_model
from longtail.runs.files import check_regular, read_regular
from longtail.runs.model import CARD_FILE, CONFIG_FILE, checksum, seal, whole_folder
from longtail.thresholds import Thresholds
from longtail.training import Training
from longtail.training.devices import device_of

if TYPE_CHECKING:
    from longtail.classifier.estimator import LongTailClassifier

# Attempts if the folder is being replaced while it is read, and seconds between them, increasing.
ATTEMPTS, SECONDS = 10, 0.02
# Files that transformers reads if they exist; beside an encoder these must be on the list.
READ_BY_TRANSFORMERS = (
    "*config.json", "tokenizer*", "vocab*", "merges*", "special_tokens_map.json",
    "added_tokens.json", "chat_template*", "*.safetensors", "*.index.json", "*.model", "*.bin",
    "*.py",
)  # fmt: skip


def load_classifier(
    cls: type[LongTailClassifier],
    folder: Path,
    device: str | None,
    trust_remote_code: bool = False,
) -> LongTailClassifier:
    """Read what `save_classifier` wrote; `device`: where to compute, default: where it trained."""
    for attempt in range(ATTEMPTS):
        time.sleep(SECONDS * attempt)
        root, text = whole_folder(folder), None
        try:
            text = _read_config(root, folder)
            classifier = _load(cls, root, json.loads(text), device, trust_remote_code)
        except DataError:
            if _unchanged(folder, root, text):
                raise
            continue
        if _unchanged(folder, root, text):
            return classifier
    raise DataError(f"{folder} was replaced repeatedly while it was read. Try again.")


def _unchanged(folder: Path, root: Path, read: str | None) -> bool:
    """Whether the folder still holds what was read from it; None: nothing."""
    if whole_folder(folder) != root:
        return False
    try:
        return _read_config(root, folder) == read
    except DataError:
        return read is None


def _read_config(root: Path, folder: Path) -> str:
    try:
        text = read_regular(root / CONFIG_FILE, _links_within(root)).decode("utf-8")
        json.loads(text)
    except FileNotFoundError as error:
        what = "has no such file" if folder.is_dir() else "does not exist"
        raise DataError(
            f"{folder} holds no longtail model: expected a {CONFIG_FILE} there, but it {what}. "
            f"Train one with: longtail train DATA --out {folder}"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{root / CONFIG_FILE} cannot be read ({error}). Copy the model again from where it "
            "came from, or train it again."
        ) from error
    return text


def _links_within(root: Path) -> Path | None:
    """Where links may lead: a snapshot of the Hugging Face hub links to the blobs beside it."""
    snapshots = root.absolute().parent
    is_snapshot = snapshots.name == "snapshots" and (snapshots.parent / "blobs").is_dir()
    return snapshots.parent if is_snapshot else None


def _load(
    cls: type[LongTailClassifier],
    root: Path,
    config: Any,
    device: str | None,
    trust_remote_code: bool,
) -> LongTailClassifier:
    version = _check_version(root, config)
    try:
        _check_files(root, config["files"], config["n_models"])
        classifier = cls(**_parameters(config["arguments"], cls()))
        names = [str(name) for name in config["label_names"]]
        classifier.classes_ = np.asarray(names, dtype=object)
        classifier.label_stats_ = LabelStats.from_counts(
            config["label_counts"], config["n_samples"], names
        )
        classifier.thresholds_ = Thresholds.from_dict(config["thresholds"])
        _check_length("thresholds", classifier.thresholds_.n_labels, len(names))
        classifier.plans_ = tuple(map(Plan.from_dict, config["plans"]))
        classifier.facts_ = Facts.from_dict(config["facts"])
        classifier._tuning_ = None
        known = _known_labels(config["unknown"], config["n_models"], len(names))
        weights = tuple(float(weight) for weight in config["weights"])
        _check_length("weights", len(weights), len(classifier.plans_))
        each, rest = divmod(len(known), len(weights))
        _check_length("models left over", rest, 0)
        models = [
            build_model(plan.model, trust_remote_code)
            for plan in classifier.plans_
            for _ in range(each)
        ]
        ensemble = Ensemble(models, known, weights, float(config["intercept"]))
        ensemble.load(root, _device(device, classifier.plans_[0].training.device))
        classifier.ensemble_ = ensemble
        if classifier.thresholds_.scale != ensemble.scale:
            raise ValueError(f"thresholds for scores of the scale {classifier.thresholds_.scale!r}")
    except DataError:
        raise
    except BaseException as error:
        # Whatever a damaged file makes a library raise.
        if not is_failure(error):
            raise
        reason = str(error).strip() or "no reason given"
        if isinstance(error, LongtailError):
            if device is not None and isinstance(error, InputError):
                _device(device, "auto")  # the device itself may be the error
            raise DataError(
                f"the model in {root} has settings that longtail {__version__} refuses: {reason} "
                f"Install the version that wrote it: pip install longtail=={version}"
            ) from error
        raise DataError(
            f"the model in {root} is damaged: {type(error).__name__}: {reason}. It was written by "
            f"longtail {version}. Copy it again from where it came from, or train it again."
        ) from error
    return classifier


def _parameters(saved: Mapping[str, Any], default: LongTailClassifier) -> dict[str, Any]:
    """The parameters of the estimator from their plain values."""
    params, known = dict(saved), default.get_params(deep=False)
    for name in saved.keys() - known:
        raise UnknownNameError("parameter", name, known)
    model, training = params["model"], params["training"]
    if isinstance(model, list):
        params["model"] = [parse_model(item) if isinstance(item, dict) else item for item in model]
    elif isinstance(model, dict):
        params["model"] = parse_model(model)
    params["training"] = None if training is None else Training().set_params(**training)
    return params


def _check_version(root: Path, config: Any) -> str:
    """The version that wrote the folder; raises if this version cannot read it."""
    number = config.get("format") if isinstance(config, dict) else None
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise DataError(
            f"{root / CONFIG_FILE} is not of a longtail model: expected a JSON object with an "
            f"integer as its format, got {number!r}."
        )
    version = str(config.get("longtail_version"))
    writer = f"the model in {root} was written by longtail {version}, format {number}"
    if number > FORMAT:
        raise DataError(
            f"{writer}; this is longtail {__version__}, which reads format {FORMAT}. Upgrade it: "
            "pip install --upgrade longtail"
        )
    if number < FORMAT:
        raise DataError(
            f"{writer}, which longtail {__version__} no longer reads. Train it again, or install "
            f"the version that wrote it: pip install longtail=={version}"
        )
    if config.get("checksum") != seal(config)["checksum"]:
        raise DataError(
            f"{root / CONFIG_FILE} is damaged, or was changed by hand: its checksum differs. Copy "
            "the model again from where it came from, or train it again."
        )
    return version


def _check_files(root: Path, files: Mapping[str, Any], n_models: int) -> None:
    """Name missing, truncated and changed files, before any library opens them."""
    if isinstance(n_models, bool) or not 1 <= n_models <= len(files):
        raise ValueError(f"{n_models} models in {len(files)} files")
    for name, entry in files.items():
        fault = None if name == CARD_FILE else _fault(root, name, entry)
        if fault is not None:
            raise DataError(
                f"the model in {root} is incomplete: {name} {fault}. Copy it again from where it "
                "came from, or train it again."
            )
    for config in (name for name in files if PurePosixPath(name).name == "config.json"):
        _check_unlisted((root / config).parent, root, files)


def _fault(root: Path, name: str, entry: Mapping[str, Any]) -> str | None:
    """What is wrong with a file, or None."""
    if name != PurePosixPath(name).as_posix() or name[0] == "/" or ".." in name.split("/"):
        raise ValueError(f"a file outside of the folder, {name!r}")
    path = root / name
    try:
        if path.parent.resolve() != root.resolve() / PurePosixPath(name).parent:
            raise OSError(f"{path.parent} is a link")
        size = check_regular(path, _links_within(root)).st_size
        if size != entry["size"]:
            return f"has {size:,} bytes instead of {entry['size']:,}"
        if checksum(path) != entry["sha256"]:
            return "was damaged or changed: its checksum differs"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error})"
    return None


def _check_unlisted(folder: Path, root: Path, files: Mapping[str, Any]) -> None:
    """Refuse a file that transformers would read, and that the model did not come with."""
    for path in sorted(folder.iterdir()):
        name = path.relative_to(root).as_posix()
        is_read = any(fnmatch(path.name.lower(), pattern) for pattern in READ_BY_TRANSFORMERS)
        if is_read and name not in (*files, CONFIG_FILE):
            raise DataError(
                f"{path} is not part of the model that was saved in {root}, and would change its "
                "predictions. Move it out of that folder."
            )


def _known_labels(unknown: Any, n_models: int, n_labels: int) -> Any:
    """Which labels each model knows, from those that it does not."""
    _check_length("lists of unknown labels", len(unknown), n_models)
    known = np.ones((n_models, n_labels), dtype=bool)
    for row, missing in zip(known, unknown, strict=True):
        if any(not 0 <= label < n_labels for label in missing):
            raise ValueError(f"an unknown label outside of 0 to {n_labels - 1}")
        row[missing] = False
    return known


def _check_length(what: str, length: int, expected: int) -> None:
    if length != expected:
        raise ValueError(f"expected {expected} {what}, got {length}")


def _device(requested: str | None, trained: str) -> torch.device:
    """The requested device, or that of the training if it exists here."""
    if requested is not None:
        Training(device=requested)
        return device_of(requested)
    try:
        return device_of(trained)
    except (InputError, RuntimeError):
        return device_of("auto")
