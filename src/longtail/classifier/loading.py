"""Load a saved classifier; errors say what is wrong with its folder and what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from longtail import __version__
from longtail.classifier.ensemble import Ensemble, is_failure
from longtail.classifier.held_out import Facts, LabelCounts
from longtail.classifier.plan import Plan
from longtail.classifier.saving import (
    COUNTS_FILE,
    FORMAT,
    HASHES_FILE,
    WEIGHTS_AND_TOKENIZER,
)
from longtail.errors import (
    DataError,
    InputError,
    LongtailError,
    MissingExtraError,
    UnknownNameError,
)
from longtail.labels import LabelStats
from longtail.models import build_model, parse_model
from longtail.models.base import Scale
from longtail.runs.files import check_regular, read_regular
from longtail.runs.model import (
    CARD_FILE,
    CONFIG_FILE,
    ENGINES,
    check_engine,
    check_model,
    checksum,
    seal,
    whole_folder,
)
from longtail.thresholds import Thresholds
from longtail.training import Training
from longtail.training.devices import device_of

if TYPE_CHECKING:
    from longtail.classifier.estimator import LongTailClassifier

# Attempts while the folder is being replaced, and seconds by which the wait between them grows.
ATTEMPTS, SECONDS = 10, 0.02
# Files that transformers reads if they exist; a model may only have those that it was saved with.
READ_BY_TRANSFORMERS = (*WEIGHTS_AND_TOKENIZER, "*config.json", "*.index.json", "*.bin", "*.py")
AGAIN = "Copy the model again from where it came from, or train it again."


def load_classifier(
    cls: type[LongTailClassifier],
    folder: Path,
    device: str | None,
    trust_remote_code: bool = False,
    engine: str | None = None,
) -> LongTailClassifier:
    """Load what `write_files` wrote; arguments as for `from_pretrained`."""
    for attempt in range(ATTEMPTS):
        time.sleep(SECONDS * attempt)
        root = whole_folder(folder)
        content = _read_config(root)
        if content is None:
            check_model(folder)
            continue  # replaced in between
        loaded: LongTailClassifier | DataError
        try:
            config = _parse_config(content, root)
            check_engine(folder, config, engine)
            if config["engine"] == "onnx" and device not in (None, "auto", "cpu"):
                raise InputError(f"the engine onnx computes on the CPU, got device={device!r}.")
            with _as_data_error(root, config.get("longtail_version"), device):
                _check_files(root, config["files"])
                loaded = _restore(cls, root, config, device, trust_remote_code)
        except DataError as error:
            loaded = error
        # Otherwise the model was replaced while it was being read.
        if whole_folder(folder) == root and _read_config(root) == content:
            if isinstance(loaded, DataError):
                raise loaded
            return loaded
    raise DataError(f"{folder} was replaced repeatedly while it was read. Try again.")


def _read_config(root: Path) -> bytes | None:
    """The bytes of the configuration, or None."""
    try:
        return read_regular(root / CONFIG_FILE, _links_within(root))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise
    except OSError as error:
        raise DataError(f"{root / CONFIG_FILE} cannot be read ({error}). {AGAIN}") from error


def _links_within(root: Path) -> Path | None:
    """The folder that links may lead into: hub snapshots link to the blobs beside them."""
    snapshots = root.absolute().parent
    is_snapshot = snapshots.name == "snapshots" and (snapshots.parent / "blobs").is_dir()
    return snapshots.parent if is_snapshot else None


def _parse_config(content: bytes, root: Path) -> dict[str, Any]:
    """Parse the configuration; raises if it is damaged or this version cannot read it."""
    path = root / CONFIG_FILE
    try:
        config: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error}). {AGAIN}") from error
    number = config.get("format") if isinstance(config, dict) else None
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise DataError(
            f"{path} is not the configuration of a longtail model: expected a JSON object with an "
            f"integer as its format, got {number!r}."
        )
    version = config.get("longtail_version")
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
        raise DataError(f"{path} is damaged or was edited: its checksum differs. {AGAIN}")
    return {"engine": ENGINES[0], **config}


@contextmanager
def _as_data_error(root: Path, version: Any, device: str | None) -> Iterator[None]:
    """Turn whatever a damaged file makes libraries raise into an error that explains it."""
    try:
        yield
    except (DataError, MissingExtraError, PermissionError):
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        reason = str(error).strip() or "no reason given"
        if not isinstance(error, LongtailError):
            raise DataError(
                f"the model in {root} is damaged: {type(error).__name__}: {reason}. It was written "
                f"by longtail {version}. {AGAIN}"
            ) from error
        if device is not None and isinstance(error, InputError):
            _device(device, "auto")  # the device itself may be the error
        raise DataError(
            f"the model in {root} has settings that longtail {__version__} rejects: {reason} "
            f"Install the version that wrote it: pip install longtail=={version}"
        ) from error


def _restore(
    cls: type[LongTailClassifier],
    root: Path,
    config: dict[str, Any],
    device: str | None,
    trust_remote_code: bool,
) -> LongTailClassifier:
    classifier = cls(**_parameters(config["arguments"], cls().get_params(deep=False)))
    names = [str(name) for name in config["label_names"]]
    classifier.classes_ = np.asarray(names, dtype=object)
    n_documents, n_samples = config["label_counts"], config["n_samples"]
    classifier.label_stats_ = LabelStats.from_counts(n_documents, n_samples, names)
    classifier.thresholds_ = Thresholds.from_dict(config["thresholds"])
    classifier.plans_ = tuple(map(Plan.from_dict, config["plans"]))
    counts = _label_counts(root, config["files"], len(names))
    classifier.facts_ = Facts.from_dict(config["facts"], counts)
    classifier.document_hashes_ = _hashes(root, config["files"])
    classifier._tuning_, classifier._params_ = None, config["arguments"]
    unknown, n_files = config["unknown"], len(config["files"])
    weights = tuple(float(weight) for weight in config["weights"])
    sizes = tuple(int(size) for size in config["sizes"])
    n_members = len(classifier.plans_) if any(weights) else 0
    if (
        {len(weights), len(sizes)} != {n_members}
        or min(sizes) < 1
        or not sum(sizes) == len(unknown) <= n_files
    ):
        raise ValueError(f"{sizes} models in {n_files} files, {len(weights)} weights")
    if classifier.thresholds_.n_labels != len(names):
        raise ValueError(f"{classifier.thresholds_.n_labels} thresholds for {len(names)} labels")
    if config["engine"] not in ENGINES:
        raise ValueError(f"the engine {config['engine']!r}")
    known = np.ones((len(unknown), len(names)), dtype=bool)
    for row, labels in zip(known, unknown, strict=True):
        if any(not 0 <= label < len(names) for label in labels):
            raise ValueError(f"an unknown label that is not in 0 to {len(names) - 1}")
        row[labels] = False
    models = [
        build_model(plan.model, trust_remote_code, config["engine"])
        for plan, size in zip(classifier.plans_, sizes, strict=True)
        for _ in range(size)
    ]
    if classifier.thresholds_.scale not in get_args(Scale):
        raise ValueError(f"the scale {classifier.thresholds_.scale!r}")
    scale: Scale = "margin" if classifier.thresholds_.scale == "margin" else "logit"
    ensemble = Ensemble(models, known, sizes, weights, float(config["intercept"]), scale)
    ensemble.load(root, _device(device, classifier.plans_[0].training.device))
    classifier.ensemble_ = ensemble
    return classifier


def _hashes(root: Path, files: Mapping[str, Any]) -> NDArray[np.uint64] | None:
    """The hashes of the training documents; None if the model has none, as from the hub."""
    if HASHES_FILE not in files:
        return None
    hashes = load_file(root / HASHES_FILE)["hashes"]
    if hashes.dtype != np.uint64 or hashes.ndim != 1:
        raise ValueError(f"hashes of type {hashes.dtype} and shape {hashes.shape}")
    return hashes


def _label_counts(root: Path, files: Mapping[str, Any], n_labels: int) -> LabelCounts | None:
    """The held-out counts of every label; None if too few documents were held out."""
    if COUNTS_FILE not in files:
        return None
    parts = load_file(root / COUNTS_FILE)
    for name, part in parts.items():
        if part.dtype != np.int32 or part.shape != (n_labels,) or (part < 0).any():
            raise ValueError(f"held-out counts {name!r} of type {part.dtype}, shape {part.shape}")
    return LabelCounts(**{name: tuple(part.tolist()) for name, part in parts.items()})


def _parameters(saved: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Restore the estimator's parameters from plain values."""
    for name in saved.keys() - known:
        raise UnknownNameError("parameter", name, known)
    model, training = saved["model"], saved["training"]
    if isinstance(model, list):
        model = [parse_model(item) if isinstance(item, dict) else item for item in model]
    elif isinstance(model, dict):
        model = parse_model(model)
    if training is not None:
        training = Training().set_params(**training)
    return {**saved, "model": model, "training": training}


def _check_files(root: Path, files: Mapping[str, Any]) -> None:
    """Raise on missing, truncated and changed files, before any library opens them."""
    for name, entry in files.items():
        fault = None if name == CARD_FILE else _fault(root, name, entry)
        if fault is not None:
            raise DataError(f"the model in {root} is damaged: {name} {fault}. {AGAIN}")
    for name in files:
        if PurePosixPath(name).name == "config.json":
            _check_unlisted((root / name).parent, root, files)


def _fault(root: Path, name: str, entry: Mapping[str, Any]) -> str | None:
    """What is wrong with a file, or None."""
    if name != PurePosixPath(name).as_posix() or name[0] == "/" or ".." in name.split("/"):
        raise ValueError(f"a file outside the folder, {name!r}")
    path = root / name
    try:
        if path.parent.resolve() != root.resolve() / PurePosixPath(name).parent:
            raise OSError(f"{path.parent} is a link")
        size = check_regular(path, _links_within(root)).st_size
        if size != entry["size"]:
            return f"has {size:,} bytes instead of {entry['size']:,}"
        if checksum(path) != entry["sha256"]:
            return "was changed (its checksum differs)"
    except FileNotFoundError:
        return "is missing"
    except PermissionError:
        raise
    except OSError as error:
        return f"cannot be read ({error})"
    return None


def _check_unlisted(folder: Path, root: Path, files: Mapping[str, Any]) -> None:
    """Raise on a file that transformers would read but that was not saved with the model."""
    for path in sorted(folder.iterdir()):
        name = path.relative_to(root).as_posix()
        is_read = any(fnmatch(path.name.lower(), pattern) for pattern in READ_BY_TRANSFORMERS)
        if is_read and name not in (*files, CONFIG_FILE):
            raise DataError(
                f"{path} is not part of the model saved in {root} and would change its "
                "predictions. Move it out of that folder."
            )


def _device(requested: str | None, trained: str) -> torch.device:
    """The requested device, or that of the training if it exists here."""
    if requested is not None:
        Training(device=requested)
        return device_of(requested)
    try:
        return device_of(trained)
    except (InputError, RuntimeError):
        return device_of("auto")
