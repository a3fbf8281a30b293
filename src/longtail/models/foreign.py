"""What an encoder's folder may not do: run code of its own, or claim sizes that it does not have.

Looked at before transformers builds anything from it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from longtail.errors import DataError
from longtail.models.weights import shapes_in
from longtail.runs.files import read_regular

# Settings by which transformers fetches compiled code by name, and what is built in instead.
KERNELS = re.compile(r"_?(attn|experts)_implementation(_internal)?|kernel_config|use_kernels")
BUILT_IN = (None, False, "eager", "sdpa")
SIZES = re.compile(r".*(size|dim|heads|embeddings|channels|labels)|d_\w+")
# Settings by which transformers reads files that may be anywhere. Not those that many honest
# tokenizers have from the machine they were made on and nobody reads: special_tokens_map_file.
FILES = re.compile(r"fast_tokenizer_files|vocab|merges|transformers_weights")
LAYERS = re.compile(r".*(layers?|depth)")
# Below this many nothing is too large, whatever the weights.
HARMLESS = 4096


def check_encoder(source: str, trusted: bool) -> None:
    """Raise if an encoder, by name or folder, would run foreign code or take absurd memory."""
    config = _config_of(source)
    for key, value in _settings(config):
        if KERNELS.fullmatch(key) and value not in BUILT_IN:
            raise DataError(
                f"the encoder {source!r} asks for {key} = {value!r:.80} in its config.json, which "
                "would fetch and run code by that name. Remove the setting from config.json."
            )
    if "auto_map" in config and not trusted and not _is_known(config):
        raise DataError(
            f"the encoder {source!r} brings code of its own (auto_map in its config.json), which "
            "is not run. If you trust where it comes from, add --trust-remote-code "
            "(trust_remote_code=True)."
        )
    if Path(source).is_dir():
        _check_sizes(Path(source), config)
        _check_paths(Path(source))


def _config_of(source: str) -> dict[str, Any]:
    if Path(source).is_dir():
        # Links are the user's own, as in the cache of the hub; a pipe would wait for ever.
        found = json.loads(read_regular((Path(source) / "config.json").resolve()))
    else:
        from transformers import PretrainedConfig

        found = PretrainedConfig.get_config_dict(source)[0]
    if not isinstance(found, dict):
        raise ValueError("its config.json is not a JSON object")
    return found


def _settings(config: Any) -> Iterator[tuple[str, Any]]:
    """All settings, those of configurations within as well."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield str(key), value
            yield from _settings(value)
    elif isinstance(config, list):
        for item in config:
            yield from _settings(item)


def _is_known(config: Mapping[str, Any]) -> bool:
    """Whether transformers has the kind of model itself, and needs no code from the folder."""
    from transformers import CONFIG_MAPPING

    return config.get("model_type") in CONFIG_MAPPING


def _check_sizes(folder: Path, config: Mapping[str, Any]) -> None:
    """Sizes in the configuration that the weights do not have would be allocated all the same."""
    shapes = [
        shape for path in sorted(folder.glob("*.safetensors")) for shape in shapes_in(path).values()
    ]
    if not shapes:
        return
    total = sum(math.prod(shape) for shape in shapes)
    for key, value in _settings(config):
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        most = None
        if LAYERS.fullmatch(key):
            most = len(shapes)
        elif SIZES.fullmatch(key):
            most = max(total, HARMLESS)
        if most is not None and value > most:
            raise DataError(
                f"the config.json of {folder} says {key} = {value}, and its weights have nothing "
                "of that size. It is damaged, or belongs to other weights."
            )


def _check_paths(folder: Path) -> None:
    """Raise if a file of the encoder leads transformers to a file somewhere else."""
    found = []
    for path in sorted(folder.glob("*.index.json")):
        found += [(path, value) for _, value in _settings(_json(path)) if isinstance(value, str)]
    for name in ("tokenizer_config.json", "config.json"):
        if (folder / name).is_file():
            for key, value in _settings(_json(folder / name)):
                if FILES.fullmatch(key):
                    values = value if isinstance(value, list) else [value]
                    found += [(folder / name, one) for one in values if isinstance(one, str)]
    for path, value in found:
        if "/" in value or "\\" in value:
            raise DataError(
                f"{path} names the file {value!r:.80}, which is outside of its folder. Remove that "
                "setting, or copy the file into the folder."
            )


def _json(path: Path) -> Any:
    return json.loads(read_regular(path.resolve()))
