"""Checks of an encoder's files before transformers builds anything from them.

They may neither run code, nor claim sizes that the weights do not have, nor name files elsewhere.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from longtail.errors import DataError
from longtail.models.base import read_header
from longtail.runs.files import read_regular

# Settings that make transformers fetch compiled code by name, and the built-in choices.
KERNELS = re.compile(r"_?(attn|experts)_implementation(_internal)?|kernel_config|use_kernels")
BUILT_IN = (None, False, "eager", "sdpa")
SIZES = re.compile(r".*(size|dim|heads|embeddings|channels|labels)|d_\w+")
# Settings with paths that transformers reads. Many tokenizers also name files of the machine that
# they were made on, such as special_tokens_map_file, which is never read.
FILES = re.compile(r"fast_tokenizer_files|vocab|merges|transformers_weights")
LAYERS = re.compile(r".*(layers?|depth)")
# Sizes up to this are accepted whatever the weights.
HARMLESS = 4096


def check_encoder(source: str, trusted: bool, has_weights: bool = True) -> None:
    """Raise if an encoder, by name or folder, would run its own code or take absurd memory.

    `has_weights`: False for an exported encoder, of which no network is built.
    """
    folder = Path(source) if Path(source).is_dir() else None
    config = _read_json(folder / "config.json") if folder else _download_config(source)
    if not isinstance(config, dict):
        raise ValueError("its config.json is not a JSON object")
    for key, value in _settings(config):
        if KERNELS.fullmatch(key) and value not in BUILT_IN:
            raise DataError(
                f"the encoder {source!r} asks for {key} = {value!r:.80} in its config.json, which "
                "would download and run code. Remove the setting from config.json."
            )
    if "auto_map" in config and not trusted:
        from transformers import CONFIG_MAPPING

        # A model type that transformers implements needs no code from the folder.
        if config.get("model_type") not in CONFIG_MAPPING:
            raise DataError(
                f"the encoder {source!r} needs to run its own code (auto_map in its config.json). "
                "If you trust its source, add --trust-remote-code (trust_remote_code=True)."
            )
    if folder and has_weights:
        _check_sizes(folder, config)
    if folder:
        _check_paths(folder)


def _download_config(source: str) -> Any:
    from transformers import PretrainedConfig

    return PretrainedConfig.get_config_dict(source)[0]


def _read_json(path: Path) -> Any:
    # Links are followed, as in the cache of the hub; a pipe would block.
    return json.loads(read_regular(path.resolve()))


def _settings(config: Any) -> Iterator[tuple[str, Any]]:
    """All settings, including those of nested configurations."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield str(key), value
            yield from _settings(value)
    elif isinstance(config, list):
        for item in config:
            yield from _settings(item)


def _check_sizes(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise if the configuration has a size, which would be allocated, that the weights lack."""
    files = sorted(folder.glob("*.safetensors"))
    shapes = [shape for path in files for shape, _ in read_header(path).values()]
    total = sum(math.prod(shape) for shape in shapes)
    for key, value in _settings(config) if shapes else ():
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        is_size, is_depth = SIZES.fullmatch(key), LAYERS.fullmatch(key)
        limit = len(shapes) if is_depth else max(total, HARMLESS)
        if (is_size or is_depth) and value > limit:
            raise DataError(
                f"the config.json of {folder} has {key} = {value}, but its weights have nothing of "
                "that size. It is damaged, or belongs to other weights."
            )


def _check_paths(folder: Path) -> None:
    """Raise if a file of the encoder refers transformers to a file outside of the folder."""
    names = ("*.index.json", "tokenizer_config.json", "config.json")
    for path in [path for name in names for path in sorted(folder.glob(name))]:
        is_index = path.name.endswith(".index.json")
        for key, value in _settings(_read_json(path)):
            for name in value if isinstance(value, list) else [value]:
                is_file = isinstance(name, str) and (is_index or FILES.fullmatch(key))
                if is_file and ("/" in name or "\\" in name):
                    raise DataError(
                        f"{path} names the file {name!r:.80}, which is outside its folder. Remove "
                        "that setting, or copy the file into the folder."
                    )
