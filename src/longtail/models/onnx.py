"""Exported models: the graph of any kind that has one, computed by onnxruntime."""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.data import TextData
from longtail.errors import DataError, InputError, LongtailError, MissingExtraError
from longtail.models.base import Engine, FitContext, Floats, MakeLoss, TextModel
from longtail.models.explanation import Contributions
from longtail.models.words import Spans
from longtail.runs.files import check_regular
from longtail.training.settings import Training
from longtail.training.steps import prediction_batches

MODEL_FILE = "model.onnx"
# Weights of more than 2 GB, which do not fit into one ONNX file.
DATA_FILE = "model.onnx.data"
BATCH = 32
# Operators on quantised weights: of matrix products, and of embeddings.
QUANTIZED = {"MatMulInteger", "DequantizeLinear"}


class OnnxModel(TextModel):
    """Encodes texts as the model that it wraps, and computes its scores with onnxruntime."""

    engine: Engine = "onnx"

    def __init__(self, model: TextModel) -> None:
        self.settings, self.scale = model.settings, model.scale
        self.encoding_key = model.encoding_key
        self._model = model
        self._folder = Path()

    def fit(self, data: TextData, loss: MakeLoss, training: Training, context: FitContext) -> None:
        raise InputError("an exported model cannot be trained. Train one of its kind.")

    def explain(self, text: str, labels: NDArray[np.int64], words: Spans) -> Contributions:
        raise InputError("an exported model has no explanations. Explain with the trained run.")

    def encode(self, texts: Sequence[str], cache: Path | None = None) -> Any:
        return self._model.encode(texts, cache)

    def words(self) -> Sequence[str]:
        return self._model.words()

    def scores(self, texts: Sequence[str], encoded: Any = None) -> Floats:
        encoded = self.encode(texts) if encoded is None else encoded
        scores = np.empty((len(encoded), self._n_labels), dtype=np.float32)
        # int8 scales the activations of a batch together, so that scores would depend on the other
        # texts. One by one is no slower.
        size = 1 if self.is_int8 else BATCH
        for rows in prediction_batches(encoded, size):
            scores[rows] = self._batch(encoded, rows)
        return scores

    def _batch(self, encoded: Any, rows: NDArray[np.int64]) -> Any:
        inputs = {name: part.numpy() for name, part in encoded.batch(rows).items()}
        return self._session.run(None, inputs)[0]

    def export(self, int8: bool) -> None:
        """Export the wrapped model to a temporary file and load it."""
        folder = Path(tempfile.mkdtemp(prefix="longtail-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        words = list(self.words())[-20:] or ["text"]
        example = self.encode([" ".join(words[:n]) for n in (3, 7, 20)])
        _export(self._model, example.batch(np.arange(3)), folder / MODEL_FILE)
        if int8:
            _quantize(folder)
        self._open(folder)

    def save(self, folder: Path) -> None:
        self._model.save_encoding(folder)
        for path in self._folder.glob(f"{MODEL_FILE}*"):
            shutil.copyfile(path, folder / path.name)

    def load(self, folder: Path, n_labels: int, device: torch.device) -> None:
        self._model.load_encoding(folder)
        scores = self._open(folder)
        if (scores.shape, scores.dtype) != ((1, n_labels), np.float32):
            raise DataError(
                f"{folder / MODEL_FILE} does not belong to the rest of its model: expected scores "
                f"of {n_labels} labels, got {scores.dtype} of shape {scores.shape}. Export it "
                "again."
            )

    def _open(self, folder: Path) -> Any:
        """Start an onnxruntime session, with as many threads as torch; return one text's scores.

        A file of another model fails here rather than at the first prediction.
        """
        onnx, onnxruntime = import_onnx()
        self._folder = folder
        model = onnx.load(folder / MODEL_FILE, load_external_data=False)
        _check_external(model, folder)
        self.is_int8 = any(node.op_type in QUANTIZED for node in model.graph.node)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # errors are raised
        self._session = onnxruntime.InferenceSession(
            folder / MODEL_FILE, options, providers=["CPUExecutionProvider"]
        )
        scores = self._batch(self.encode([""]), np.arange(1))
        self._n_labels = int(scores.shape[1])
        return scores


def import_onnx() -> tuple[Any, Any]:
    """The packages onnx and onnxruntime."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("the engine onnx", str(error.name), "onnx") from error
    return onnx, onnxruntime


def _check_external(model: Any, folder: Path) -> None:
    """Raise if the model reads weights from any file but DATA_FILE beside it."""
    from onnx import TensorProto

    for tensor in _tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        places = [entry.value for entry in tensor.external_data if entry.key == "location"]
        if places != [DATA_FILE]:
            raise DataError(
                f"{folder / MODEL_FILE} reads weights from {', '.join(places) or 'nowhere'}. "
                f"Expected {DATA_FILE} in the same folder: export the model again."
            )
        check_regular(folder / DATA_FILE)


def _tensors(message: Any) -> Iterator[Any]:
    """All tensors in a protobuf message, at any depth."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for item in [value] if hasattr(value, "ListFields") else value:
            if field.message_type.name == "TensorProto":
                yield item
            else:
                yield from _tensors(item)


def _export(model: TextModel, inputs: dict[str, torch.Tensor], path: Path) -> None:
    """Trace the graph of a model with a dynamic number and length of documents."""
    graph = model.graph().eval()
    import_onnx()
    device = next((part.device for part in graph.parameters()), torch.device("cpu"))
    inputs = {name: part.to(device) for name, part in inputs.items()}
    dynamic = torch.export.Dim.DYNAMIC
    shapes = {name: dict.fromkeys(range(part.dim()), dynamic) for name, part in inputs.items()}
    try:
        with _quiet(), torch.inference_mode():
            program = torch.onnx.export(
                graph,
                kwargs=inputs,
                input_names=list(inputs),
                output_names=["scores"],
                dynamic_shapes=shapes,
                dynamo=True,
                verbose=False,
            )
            assert program is not None
            program.save(path)  # beyond 2 GB it also writes DATA_FILE
    except ImportError as error:
        raise MissingExtraError("the export", str(error.name), "onnx") from error
    except torch.onnx.errors.OnnxExporterError as error:
        reason = next(iter(str(error.__cause__ or error).strip().splitlines()), "no reason given")
        raise LongtailError(
            f"torch cannot export {model.settings.description} to ONNX: {reason}. Predict with "
            "the trained run, or train another model."
        ) from error


def _quantize(folder: Path) -> None:
    """Quantise the weights of matrix products and embeddings to int8.

    Of 150 texts of Reuters, 12 got other labels with one scale per matrix, 3 with one per column,
    and 7 with the range also reduced to 7 bits, as sums overflow on CPUs without VNNI otherwise.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    onnx, _ = import_onnx()
    if (folder / DATA_FILE).exists():
        raise InputError("int8 of a model of more than 2 GB is not supported. Leave out int8.")
    model = onnx.load(folder / MODEL_FILE)
    # onnxruntime transposes weights, and then fails on the shapes that torch recorded.
    del model.graph.value_info[:]
    with _quiet():
        quantize_dynamic(
            model,
            folder / MODEL_FILE,
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings and logs of the exporter, which concern its internals."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
