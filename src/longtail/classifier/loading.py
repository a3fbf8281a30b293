"""A saved classifier read back, or what is wrong with its folder and what to do about it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail import __version__
from longtail.classifier.facts import Facts
from longtail.classifier.saving import FORMAT
from longtail.errors import DataError, InputError, LongtailError, UnknownNameError
from longtail.fitting import Ensemble, Plan
from longtail.fitting.ensemble import is_failure
from longtail.labels import LabelStats
from longtail.losses import LOSSES
from longtail.runs import (
    CARD_FILE,
    CONFIG_FILE,
    check_regular,
    checksum,
    read_regular,
    seal,
    whole_folder,
)
from longtail.settings import TrainingConfig
from longtail.thresholds import Thresholds
from longtail.training.devices import device_of

if TYPE_CHECKING:
    from longtail.classifier.estimator import LongTailClassifier

# How often to begin again when somebody saves to the folder that is being read, and how long to
# wait before: ever longer.
TRIES, SECONDS = 10, 0.02
# What transformers reads of a folder by itself; beside an encoder these must be on the list.
READ_UNASKED = (
    "*config.json", "tokenizer*", "vocab*", "merges*", "special_tokens_map.json",
    "added_tokens.json", "chat_template*", "*.safetensors", "*.index.json", "*.model", "*.bin",
    "*.py",
)  # fmt: skip


def load_classifier(
    kind: type[LongTailClassifier],
    folder: Path,
    device: str | None,
    trust_remote_code: bool = False,
) -> LongTailClassifier:
    """Read what `save_classifier` wrote; `device`: where to compute, default: where it trained."""
    for attempt in range(TRIES):
        time.sleep(SECONDS * attempt)
        place, read = whole_folder(folder), None
        try:
            read = _read_config(place, folder)
            found = _load(kind, place, json.loads(read), device, trust_remote_code)
        except DataError:
            if _unchanged(folder, place, read):
                raise
            continue
        if _unchanged(folder, place, read):
            return found
    raise DataError(f"{folder} was saved to again and again while it was read. Try once more.")


def _unchanged(folder: Path, place: Path, read: str | None) -> bool:
    """Whether the folder still holds what was read from it; None: nothing."""
    if whole_folder(folder) != place:
        return False
    try:
        return _read_config(place, folder) == read
    except DataError:
        return read is None


def _read_config(place: Path, folder: Path) -> str:
    try:
        text = read_regular(place / CONFIG_FILE, _links_within(place)).decode("utf-8")
        json.loads(text)
    except FileNotFoundError as error:
        what = "has no such file" if folder.is_dir() else "does not exist"
        raise DataError(
            f"{folder} holds no longtail model: expected a {CONFIG_FILE} there, but it {what}. "
            f"Train one with: longtail train DATA --out {folder}"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{place / CONFIG_FILE} cannot be read ({error}). Copy the model again from where it "
            "came from, or train it again."
        ) from error
    return text


def _links_within(place: Path) -> Path | None:
    """A snapshot of the Hugging Face hub is links to the blobs beside it; elsewhere links are
    refused."""
    home = place.absolute().parent.parent
    is_snapshot = place.absolute().parent.name == "snapshots" and (home / "blobs").is_dir()
    return home if is_snapshot else None


def _load(
    kind: type[LongTailClassifier],
    place: Path,
    config: Any,
    device: str | None,
    trust_remote_code: bool,
) -> LongTailClassifier:
    version = _check_version(place, config)
    try:
        _check_files(place, config["files"], config["n_models"])
        arguments = _known("argument", config["arguments"], kind._get_param_names(), version)
        classifier = kind(**arguments)
        names = [str(name) for name in config["label_names"]]
        classifier.classes_ = np.asarray(names, dtype=object)
        classifier.label_stats_ = LabelStats.from_counts(
            config["label_counts"], config["n_samples"], names
        )
        classifier.thresholds_ = Thresholds.from_dict(config["thresholds"])
        _check_length("thresholds", classifier.thresholds_.n_labels, len(names))
        classifier.plans_ = tuple(_saved_plan(plan, version) for plan in config["plans"])
        classifier.facts_ = Facts.from_dict(config["facts"])
        classifier.held_out_ = None
        classifier.device = _place(device, classifier.device)
        known = _known_labels(config["unknown"], config["n_models"], len(names))
        weights = tuple(float(weight) for weight in config["weights"])
        _check_length("weights", len(weights), len(classifier.plans_))
        each, left = divmod(len(known), len(weights))
        _check_length("models left over", left, 0)
        models = [
            plan.new_model(trust_remote_code) for plan in classifier.plans_ for _ in range(each)
        ]
        classifier.ensemble_ = Ensemble(
            models, known, classifier.device, weights, float(config["intercept"])
        )
        classifier.ensemble_.load(place)
        if classifier.thresholds_.scale != classifier.ensemble_.scale:
            raise ValueError(f"thresholds for scores of the scale {classifier.thresholds_.scale!r}")
    except LongtailError:
        raise
    except BaseException as error:
        # Whatever a damaged file makes a foreign library raise.
        if not is_failure(error):
            raise
        said = str(error).strip() or "no reason given"
        raise DataError(
            f"the model in {place} is damaged: {type(error).__name__}: {said}. It was written by "
            f"longtail {version}. Copy it again from where it came from, or train it again."
        ) from error
    return classifier


def _check_version(place: Path, config: Any) -> str:
    """The version that wrote the folder; an error if that was a later one than this can read."""
    found = config.get("format") if isinstance(config, dict) else None
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise DataError(
            f"{place / CONFIG_FILE} is not of a longtail model: expected a JSON object with a "
            f"whole number as its format, got {found!r}. Was another file put there?"
        )
    version = str(config.get("longtail_version"))
    if found > FORMAT:
        raise DataError(
            f"the model in {place} was written by longtail {version}, format {found}; this is "
            f"longtail {__version__}, which reads formats up to {FORMAT}. Upgrade it: pip install "
            "--upgrade longtail"
        )
    if found < FORMAT:
        raise DataError(
            f"the model in {place} was written by longtail {version}, format {found}, which this "
            f"longtail {__version__} no longer reads. Train it again, or install the version that "
            f"wrote it: pip install longtail=={version}"
        )
    if config.get("checksum") != seal(config)["checksum"]:
        raise DataError(
            f"{place / CONFIG_FILE} is damaged, or was changed by hand: its checksum differs. Copy "
            "the model again from where it came from, or train it again."
        )
    return version


def _check_files(place: Path, files: Mapping[str, Any], n_models: int) -> None:
    """Missing, cut and changed files by name, before any library opens them."""
    if isinstance(n_models, bool) or not 1 <= n_models <= len(files):
        raise ValueError(f"{n_models} models in {len(files)} files")
    links = _links_within(place)
    for name, entry in files.items():
        if name == CARD_FILE:
            continue
        if name != PurePosixPath(name).as_posix() or name[0] == "/" or ".." in name.split("/"):
            raise ValueError(f"a file outside of the folder, {name!r}")
        path = place / name
        wrong = None
        try:
            if path.parent.resolve() != place.resolve() / PurePosixPath(name).parent:
                raise OSError(f"{path.parent} is a link")
            size = check_regular(path, links).st_size
            if size != entry["size"]:
                wrong = f"has {size:,} bytes instead of {entry['size']:,}"
            elif checksum(path) != entry["sha256"]:
                wrong = "was damaged or changed: its checksum differs"
        except FileNotFoundError:
            wrong = "is missing"
        except OSError as error:
            wrong = f"cannot be read ({error})"
        if wrong:
            raise DataError(
                f"the model in {place} is not whole: {name} {wrong}. Copy it again from where it "
                "came from, or train it again."
            )
    for config in (name for name in files if PurePosixPath(name).name == "config.json"):
        _check_unlisted((place / config).parent, place, files)


def _check_unlisted(folder: Path, place: Path, files: Mapping[str, Any]) -> None:
    """A file that transformers would read, and that the model did not come with."""
    for path in sorted(folder.iterdir()):
        name = path.relative_to(place).as_posix()
        read = any(fnmatch(path.name.lower(), pattern) for pattern in READ_UNASKED)
        if read and name not in (*files, CONFIG_FILE):
            raise DataError(
                f"{path} is no part of the model that was saved in {place}, and would change what "
                "it answers. Move it out of that folder."
            )


def _known(what: str, given: Mapping[str, Any], names: Any, version: str) -> dict[str, Any]:
    """The given settings; an error for those that this version does not have."""
    others = sorted(set(given) - set(names))
    if others:
        raise DataError(
            f"the model was written by longtail {version} with the {what} {', '.join(others)}, "
            f"which longtail {__version__} does not have. Install the version that wrote it: pip "
            f"install longtail=={version}"
        )
    return dict(given)


def _saved_plan(saved: Mapping[str, Any], version: str) -> Plan:
    """The plan with every setting as it was then, whatever today's defaults are.

    It was checked when it was fitted: what a plan may not combine today is for the fits of today.
    """
    plain = _known("setting", saved, Plan.__dataclass_fields__, version)
    training = _known("setting", plain["training"], TrainingConfig.__dataclass_fields__, version)
    plan = object.__new__(Plan)
    try:
        whole = {**vars(Plan()), **plain, "training": TrainingConfig(**training)}
        for name, value in whole.items():
            object.__setattr__(plan, name, value)
        if plan.loss not in LOSSES:
            raise UnknownNameError("loss", plan.loss, LOSSES)
        plan.new_model()
    except (InputError, UnknownNameError) as error:
        raise DataError(
            f"the model was written by longtail {version} with settings that longtail "
            f"{__version__} refuses: {error} Install the version that wrote it: pip install "
            f"longtail=={version}"
        ) from error
    return plan


def _known_labels(unknown: Any, n_models: int, n_labels: int) -> Any:
    """Which labels each model knows, from those that it does not."""
    _check_length("lists of unknown labels", len(unknown), n_models)
    known = np.ones((n_models, n_labels), dtype=bool)
    for row, missing in zip(known, unknown, strict=True):
        if any(not 0 <= label < n_labels for label in missing):
            raise ValueError(f"an unknown label outside of 0 to {n_labels - 1}")
        row[missing] = False
    return known


def _check_length(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"{found} {what} where {expected} were expected")


def _place(asked: str | None, trained: str) -> str:
    """Where to compute: what was asked for, which must be there, or as in training if it is."""
    if asked is not None:
        TrainingConfig(device=asked)
        device_of(asked)
        return asked
    try:
        device_of(trained)
    except (InputError, RuntimeError):
        return "auto"
    return trained
