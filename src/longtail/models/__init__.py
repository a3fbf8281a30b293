"""Models by name: `bag` (TF-IDF), `encoder` (Hugging Face), `svm`. Texts in, scores out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from longtail.errors import InputError, UnknownNameError
from longtail.models.base import Encoded, NetworkModel, SelfFitting, TextModel
from longtail.settings import MODEL_SETTINGS


def _bag(settings: Any) -> TextModel:
    from longtail.models.bag import BagModel

    return BagModel(settings)


def _encoder(settings: Any) -> TextModel:
    from longtail.models.encoder import EncoderModel

    return EncoderModel(settings)


def _svm(settings: Any) -> TextModel:
    from longtail.models.svm import SvmModel

    return SvmModel(settings)


MODELS: Mapping[str, Callable[[Any], TextModel]] = {
    "bag": _bag,
    "encoder": _encoder,
    "svm": _svm,
}


def build_model(name: str, **settings: Any) -> TextModel:
    """Make an untrained model by name; settings are the fields of its settings' dataclass."""
    if name not in MODELS:
        raise UnknownNameError("model", name, MODELS)
    kind = MODEL_SETTINGS[name]
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]
    for key in settings:
        if key not in known:
            raise UnknownNameError(f"setting of the model {name}", key, known)
    try:
        return MODELS[name](kind(**settings))
    except TypeError as error:
        raise InputError(f"model {name!r} cannot take these settings: {error}.") from error


__all__ = ["MODELS", "Encoded", "NetworkModel", "SelfFitting", "TextModel", "build_model"]
