"""Download models from the Hugging Face hub, and upload them."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail import __version__
from longtail.classifier.saving import WEIGHTS_AND_TOKENIZER, write_files
from longtail.errors import DataError, InputError, LongtailError, printable
from longtail.models.settings import HUB_NAME

if TYPE_CHECKING:
    from longtail.classifier.estimator import LongTailClassifier

# The files of a saved model. Nothing else is downloaded: no pickle, no code.
PATTERNS = ["*.safetensors", "*.json", "*.txt", "*.model", "*.onnx", "*.onnx.data", "README.md"]
# Files of an earlier model to delete: those that are not overwritten would be read with the new.
STALE = ["fold-*/*", "member-*/*", "*.onnx", "*.onnx.data", *WEIGHTS_AND_TOKENIZER]
# huggingface_hub keeps a file of this name in its cache, and lets ../ lead out of there.
REVISION = re.compile(r"(?!.*\.\.)[\w.+@-]+(/[\w.+@-]+)*")


def find_model(name: str | Path, revision: str | None = None, token: str | None = None) -> Path:
    """The local folder of that name or, if there is none, a download of the model from the hub."""
    folder = Path(name)
    if _exists(folder) or not (isinstance(name, str) and HUB_NAME.fullmatch(name)):
        if revision is not None:
            raise InputError(f"revision is for models on the hub, but {name} is a folder.")
        return folder
    if revision is not None and not REVISION.fullmatch(revision):
        raise InputError(f"revision must be a branch, a tag or a commit, got {revision!r:.300}.")
    try:
        return Path(_api(token).snapshot_download(name, revision=revision, allow_patterns=PATTERNS))
    except Exception as error:
        at = name if revision is None else f"{name} at revision {revision}"
        raise DataError(
            f"there is no folder {name} here, and the model {at} could not be downloaded from the "
            f"Hugging Face hub: {_reason(error)}"
        ) from error


def push_classifier(
    classifier: LongTailClassifier,
    repo_id: str,
    private: bool | None,
    token: str | None,
    revision: str | None,
    commit_message: str,
    include_hashes: bool,
) -> str:
    """Upload to a repository, created if needed; return its address."""
    api = _api(token)
    try:
        repo = api.create_repo(repo_id, private=private, exist_ok=True)
        name: str = repo.repo_id
        if revision is not None and not revision.startswith("refs/pr/"):
            api.create_branch(name, branch=revision, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="longtail-") as folder:
            write_files(classifier, Path(folder), name, include_hashes=include_hashes)
            api.upload_folder(
                repo_id=name,
                folder_path=folder,
                commit_message=commit_message,
                revision=revision,
                delete_patterns=STALE,
            )
    except LongtailError:
        raise
    except Exception as error:
        raise DataError(
            f"could not upload to {repo_id} on the Hugging Face hub: {_reason(error)} The model "
            "can still be saved to a folder with save_pretrained."
        ) from error
    return str(repo)


def _api(token: str | None) -> Any:
    from huggingface_hub import HfApi

    endpoint = os.environ.get("HF_ENDPOINT") or None
    return HfApi(endpoint, token, library_name="longtail", library_version=__version__)


def _exists(folder: Path) -> bool:
    try:
        os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:  # an invalid name, or no permission
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot read the model {str(folder)[:300]!r}: {reason}.") from error
    return True


def _reason(error: Exception) -> str:
    """One sentence on why an error occurred, and what to do about it."""
    from huggingface_hub import errors

    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and cause not in chain:
        chain.append(cause)
    responses = [getattr(item, "response", None) for item in chain]
    status = next((getattr(item, "status_code", None) for item in responses if item), None)
    if any(isinstance(e, errors.OfflineModeIsEnabled) for e in chain):
        return "HF_HUB_OFFLINE is set. Unset it, or point to a folder that holds the model."
    if isinstance(error, errors.HFValidationError):
        return f"not the name of a repository, which looks like owner/name ({_line(error)})."
    if isinstance(error, errors.RevisionNotFoundError):
        return "it has no such revision. Pass an existing branch, tag or commit."
    log_in = "Log in with `hf auth login`, or pass token=..."
    if isinstance(error, errors.GatedRepoError):
        return f"it is gated: request access on its page first. {log_in}"
    if status in (401, 403):
        return f"the hub refused access ({_line(error)}). {log_in} of an account with access."
    if isinstance(error, errors.RepositoryNotFoundError) or status == 404:
        return f"no such model, or it is private. Check the name. {log_in} if it is private."
    if status is not None:
        return f"the hub answered with an error ({_line(error)}). Try again later."
    if isinstance(error, OSError) and not isinstance(error, ConnectionError) and error.errno:
        return f"{error.strerror}. Free some space, or set HF_HOME to another folder."
    return f"the hub could not be reached ({_line(error)}). Check the network and try again."


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return printable(lines[0].strip().rstrip("."), 300)
