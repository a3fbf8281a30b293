"""`encoder`: any Hugging Face encoder, by name or folder, with one logit per label."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from longtail.checks import check_integer
from longtail.data import TextData
from longtail.errors import DataError, InputError
from longtail.models.base import FitContext, NetworkModel, load_network
from longtail.models.explanation import Contributions
from longtail.models.foreign import check_encoder
from longtail.models.integrated import integrated_gradients
from longtail.models.networks import PooledNetwork, SequenceNetwork
from longtail.models.packed import PackedEncoder, pack
from longtail.models.settings import Encoder
from longtail.models.tokens import tokenize, tokens_of
from longtail.models.words import Pieces, Spans, spread
from longtail.training.devices import device_of, has_bf16
from longtail.training.encoded import Encoded, EncodedTokens
from longtail.training.packed import has_kernels
from longtail.training.processes import Helper, Processes
from longtail.training.settings import Training
from longtail.training.steps import Note, is_out_of_memory, predict_logits

HEAD_FILE = "head.safetensors"
LIMITS_FILE = "limits.json"  # written for an exported encoder, which has no weights to read it from
# Steps from which compiled layers save more than the 5 to 15 s that compiling takes on an H200.
COMPILED_STEPS = 2000
# Norm of the weights of a label that start from its text. On PubMed with MiniLM, held-out average
# precision is 30.2 without, 41.1 with norm 1, 43.6 with 2 and 44.2 with 4; micro-F1 is best with 2.
HEAD_NORM = 2.0
# What transformers raises for a folder that is incomplete, damaged, or of an unknown kind.
UNREADABLE = (OSError, ValueError, KeyError, ImportError, SafetensorError)
# Files of an encoder, with all names that transformers reads.
NEEDED = {
    "config.json": ("config.json",),
    "model.safetensors": ("model*.safetensors",),
    "tokenizer.json": ("tokenizer.*", "vocab*", "*.model"),
}


class Limits(NamedTuple):
    """Limits on the inputs of an encoder."""

    n_tokens: int
    """Size of the token embedding table."""
    max_length: int


class EncoderModel(NetworkModel):
    """A Hugging Face encoder with a linear head, or with its own classification head."""

    bf16 = True

    def __init__(self, settings: Encoder) -> None:
        self.settings: Encoder = settings
        self.encoding_key = (settings.encoder, settings.max_length)
        self.works_in_pipeline = settings.pooling == "cls"
        self.network: nn.Module = nn.Identity()
        self._pretrained: Any = None
        self._tokenizer: Any = None
        self._packs = True
        """Whether to use the kernels for packed documents: not switched off, and not failed."""
        self._saved: tuple[Limits, str] | None = None
        """For an exported encoder: its limits and its config.json."""

    def prepare(self, data: TextData, device: torch.device, context: FitContext) -> Encoded:
        self.load_pretrained(data.label_names)
        if self.trust_remote_code:
            Processes(torch.device("cpu")).call(_find_code)
        self.network.to(device)
        if isinstance(self.network, PooledNetwork):
            self._start_head(self.network, data.label_names, context.label_texts)
        encoded: Encoded = context.encode(self)
        return encoded

    def _start_head(
        self, network: PooledNetwork, names: Sequence[str], texts: Mapping[str, Sequence[str]]
    ) -> None:
        """Start the weights of labels that have texts from the mean of their pooled states.

        Their mean is subtracted, as what all texts have in common does not tell labels apart.
        """
        rows = [k for k, name in enumerate(names) if name in texts]
        if len(rows) < 2:
            return
        network.eval()
        with network.pooling_only():
            label_texts = [text for k in rows for text in texts[names[k]]]
            states = predict_logits(network, self.encode(label_texts))
        sizes = np.array([len(texts[names[k]]) for k in rows])
        states = np.add.reduceat(states, np.cumsum(sizes) - sizes) / sizes[:, None]
        states -= states.mean(axis=0)
        norms = np.linalg.norm(states, axis=1, keepdims=True)
        weights = torch.from_numpy(HEAD_NORM * states / np.maximum(norms, 1e-6))
        with torch.no_grad():
            head = network.labels.weight
            head[rows] = weights.to(head)

    @contextmanager
    def packing(self, training: Training, n_steps: int, note: Note) -> Iterator[bool]:
        packed = self._to_pack(training, note)
        if packed is None:
            if isinstance(self.network, PooledNetwork):
                # Not for validation either: what it holds of the weights would be out of date.
                self.network.packed = None
            yield False
            return
        if n_steps >= COMPILED_STEPS and training.micro_batch is None:
            packed.compile()
        try:
            for parameter in packed.fixed:
                parameter.requires_grad_(False)
            yield True
        finally:
            for parameter in packed.fixed:
                parameter.requires_grad_(True)
            packed.reset()

    def _to_pack(self, training: Training, note: Note) -> PackedEncoder | None:
        """The encoder for packed documents, if training can use it."""
        device = device_of(training.device)
        if training.acceleration == "off":
            self._packs = False
        if not self._packs or Processes(device).count > 1 or not has_kernels(device):
            return None
        self.to_device(device)
        packed = self.network.packed if isinstance(self.network, PooledNetwork) else None
        if packed is None:
            return None
        try:
            if packed.trains(has_bf16(device, training.precision)):
                return packed
            reason = "their gradients differ from those of the encoder"
        except Exception as error:
            if is_out_of_memory(error):
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
        note(f"continuing with padded documents: the kernels for packed ones failed ({reason}).")
        self._packs = False
        return None

    def to_device(self, device: torch.device) -> None:
        super().to_device(device)
        if isinstance(self.network, PooledNetwork):
            self.network.packed = None
            if self._packs and has_kernels(device):
                self.network.packed = pack(self._pretrained, self._limits().max_length)

    def load_pretrained(self, label_names: Sequence[str]) -> None:
        """Load the pretrained encoder, with a new head for these labels."""
        source = str(Path(self.settings.encoder).expanduser())
        id2label = dict(enumerate(label_names))
        names = {"id2label": id2label, "label2id": {name: k for k, name in id2label.items()}}
        try:
            missing = self._build(source, len(label_names), names)
        except DataError:
            raise
        except UNREADABLE as error:
            raise DataError(_not_found(source, error)) from error
        missing = [name for name in missing if not self._may_be_new(name)]
        if missing:
            # transformers would initialise them at random.
            raise DataError(
                f"the encoder {source!r} has no weights for {len(missing)} of its parts, the first "
                f"of them {missing[0]}. Its model.safetensors does not belong to its config.json."
            )

    def encode(self, texts: Sequence[str], cache: Path | None = None) -> EncodedTokens:
        n_tokens, max_length = self._limits()
        encoded = tokenize(self._tokenizer, texts, max_length, cache=cache)
        largest = int(encoded.tokens.max())
        if max(encoded.pad, largest) >= n_tokens:
            raise DataError(
                f"the tokenizer has the token {largest}, but the encoder has {n_tokens} token "
                "embeddings: they do not belong together."
            )
        return encoded

    @torch.inference_mode(False)
    def explain(self, text: str, labels: NDArray[np.int64], words: Spans) -> Contributions:
        """Integrated gradients over the token embeddings, with padding tokens as the baseline.

        Words past the maximum length add nothing.
        """
        tokens, spans = tokens_of(self._tokenizer, text, self._limits().max_length)
        starts, ends = spans.T
        pieces = Pieces(np.arange(len(tokens)), starts, ends, np.ones(len(tokens)))
        places = spread(pieces, words, len(tokens))
        is_word = np.diff(places.indptr) > 0
        if not is_word.any():
            base = self.scores([text])[0, labels].astype(np.float64)
            return Contributions(base, np.zeros((len(labels), len(words))))
        if "inputs_embeds" not in signature(self._pretrained.forward).parameters:
            raise InputError(
                f"the encoder {type(self._pretrained).__name__} takes tokens only, but an "
                "explanation needs one that also takes embeddings (inputs_embeds)."
            )
        table = self._pretrained.get_input_embeddings()
        device, pad = table.weight.device, self._tokenizer.pad_token_id
        columns = torch.from_numpy(labels).to(device)
        ids = torch.from_numpy(np.stack([np.where(is_word, pad, tokens), tokens])).to(device)
        with torch.no_grad():
            start, end = table(ids)

        def logits(embeddings: Tensor) -> Tensor:
            mask = torch.ones(embeddings.shape[:2], dtype=torch.int64, device=device)
            all_labels: Tensor = self.network(None, mask, embeddings)
            return all_labels[:, columns]

        base, values = integrated_gradients(logits, start, end)
        return Contributions(base, np.asarray(values @ places))

    def is_head(self, parameter: str) -> bool:
        if self.settings.pooling == "mean":
            return parameter.startswith("labels.")
        return not parameter.startswith(f"model.{self._pretrained.base_model_prefix}.")

    def save(self, folder: Path) -> None:
        self._tokenizer.save_pretrained(folder)
        with _quiet():
            self._pretrained.save_pretrained(folder)
        if isinstance(self.network, PooledNetwork):
            save_file(self.network.labels.state_dict(), folder / HEAD_FILE)

    def load(self, folder: Path, n_labels: int, device: torch.device) -> None:
        missing = self._build(str(folder), n_labels, {})
        if missing:
            raise DataError(
                f"{folder} has no weights for {missing[0]} and {len(missing) - 1} other parts of "
                "its model. It is damaged: train it again."
            )
        if isinstance(self.network, PooledNetwork):
            load_network(self.network.labels, folder / HEAD_FILE)
        self.to_device(device)

    def words(self) -> Sequence[str]:
        return sorted(self._tokenizer.get_vocab())

    def save_encoding(self, folder: Path) -> None:
        self._tokenizer.save_pretrained(folder)
        limits, config = self._saved or (self._limits(), self._pretrained.config.to_json_string())
        (folder / "config.json").write_text(config, "utf-8")  # AutoTokenizer reads it
        (folder / LIMITS_FILE).write_text(json.dumps(limits._asdict()), "utf-8")

    def load_encoding(self, folder: Path) -> None:
        self._load_tokenizer(str(folder), has_weights=False)
        limits = Limits(**json.loads((folder / LIMITS_FILE).read_text("utf-8")))
        for name, value in limits._asdict().items():
            check_integer(name, value, 1)
        self._saved = limits, (folder / "config.json").read_text("utf-8")

    def save_for_transformers(self, folder: Path, settings: Mapping[str, Any]) -> None:
        if not self.works_in_pipeline:
            raise InputError(
                "an encoder with mean pooling cannot be a transformers model, as none of its "
                "classification models pools like this. Train with --pooling cls, or export it "
                "with --to onnx."
            )
        parts = (self._pretrained, self._tokenizer)
        if not all(type(part).__module__.startswith("transformers.") for part in parts):
            raise InputError(
                "the encoder runs its own code, which is not exported. Export with --to onnx."
            )
        self.save(folder)
        limit = {"model_max_length": self._limits().max_length}
        for name, added in (("config.json", settings), ("tokenizer_config.json", limit)):
            content = json.loads((folder / name).read_text("utf-8")) | added
            content.pop("auto_map", None)  # refers to code that is not used
            (folder / name).write_text(json.dumps(content, indent=2), "utf-8")

    def _load_tokenizer(self, source: str, has_weights: bool = True) -> None:
        from transformers import AutoTokenizer

        check_encoder(source, self.trust_remote_code, has_weights)
        with _quiet():
            # Always explicit: with None transformers would prompt on stdin, which may hold texts.
            self._tokenizer = AutoTokenizer.from_pretrained(
                source, trust_remote_code=self.trust_remote_code
            )
        if len(self._tokenizer) <= len(self._tokenizer.all_special_ids):
            raise ValueError("its tokenizer has no words: the tokenizer files are missing")

    def _build(self, source: str, n_labels: int, names: dict[str, Any]) -> list[str]:
        """Build tokenizer and network; return the names of missing weights, sorted."""
        from transformers import AutoModel, AutoModelForSequenceClassification

        self._load_tokenizer(source)
        settings: dict[str, Any] = {
            "dtype": torch.float32,
            "output_loading_info": True,
            "use_safetensors": True,
            "trust_remote_code": self.trust_remote_code,
        }
        with _quiet():
            if self.settings.pooling == "cls":
                self._pretrained, info = AutoModelForSequenceClassification.from_pretrained(
                    source,
                    num_labels=n_labels,
                    problem_type="multi_label_classification",
                    # A pretrained head may have other labels; the head of a saved model may not.
                    ignore_mismatched_sizes=bool(names),
                    **names,
                    **settings,
                )
                self.network = SequenceNetwork(self._pretrained)
            else:
                self._pretrained, info = AutoModel.from_pretrained(source, **settings)
                self.network = PooledNetwork(self._pretrained, n_labels, self.settings.dropout)
        mismatched = [entry[0] for entry in info["mismatched_keys"]]
        return sorted({*info["missing_keys"], *mismatched})

    def _may_be_new(self, weight: str) -> bool:
        """Whether a weight belongs to the head or a pooler, which a checkpoint may lack."""
        if weight.startswith("pooler.") or ".pooler." in weight:
            return True
        return self.settings.pooling == "cls" and self.is_head(f"model.{weight}")

    def _limits(self) -> Limits:
        """The saved limits; otherwise `max_length` is also limited by the position embeddings."""
        if self._saved is not None:
            return self._saved[0]
        lengths = [self.settings.max_length]
        n_positions = getattr(self._pretrained.config, "max_position_embeddings", None)
        if isinstance(n_positions, int) and n_positions > 0:
            lengths.append(n_positions)
        for name, module in self.network.named_modules():
            if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
                # RoBERTa-like encoders count positions from their padding index on.
                padding = module.padding_idx
                lengths.append(module.num_embeddings - (0 if padding is None else padding + 1))
        return Limits(self._pretrained.get_input_embeddings().num_embeddings, min(lengths))


def _find_code() -> Helper:
    """Let this process import what transformers copied of the encoder's own code."""
    from transformers.dynamic_module_utils import init_hf_modules

    init_hf_modules()
    yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence progress bars and warnings of transformers."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def is_at_hand(source: str) -> bool:
    """Whether an encoder is a local folder or in the hub's cache; does not use the network."""
    from huggingface_hub import try_to_load_from_cache

    if Path(source).expanduser().is_dir():
        return True
    names = ("model.safetensors", "model.safetensors.index.json")
    try:
        return any(isinstance(try_to_load_from_cache(source, name), str) for name in names)
    except ValueError:
        return False  # not a valid repository name


def check_source(source: str) -> None:
    """Raise if the source is a path and there is no encoder."""
    folder = Path(source).expanduser()
    is_path = source.startswith((".", "/", "~")) or source.count("/") > 1
    if _missing_files(folder) if folder.is_dir() else is_path:
        raise DataError(_not_found(source, FileNotFoundError("no such folder")))


def _missing_files(folder: Path) -> list[str]:
    return [
        name
        for name, patterns in NEEDED.items()
        if not any(any(folder.glob(pattern)) for pattern in patterns)
    ]


def _not_found(source: str, error: Exception) -> str:
    """The message on an encoder that cannot be loaded: what is missing, and what to do."""
    folder = Path(source)
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    how = (
        "Pass the path of a folder that holds config.json, model.safetensors and the tokenizer "
        "files (tokenizer.json), as --encoder FOLDER."
    )
    if folder.is_dir():
        missing = _missing_files(folder)
        what = f"it lacks {', '.join(missing)}" if missing else f"it could not be read ({reason})"
        return f"the folder {source} is not an encoder: {what}. {how}"
    from huggingface_hub.constants import HF_HUB_CACHE, HF_HUB_OFFLINE

    hub = "does not have it, or was not reached"
    if HF_HUB_OFFLINE:
        hub = "was not contacted, as HF_HUB_OFFLINE is set"
    return (
        f"the encoder {source!r} was not found: no such folder here, not in the cache "
        f"{HF_HUB_CACHE}, and the Hugging Face hub {hub}. {how} ({reason})"
    )
