"""Every kind of model as an ONNX file: the same scores for any number of texts of any length."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from longtail.data import TextData
from longtail.errors import DataError, InputError, LongtailError
from longtail.models import Bag, Encoder, ModelSettings, Svm, build_model
from longtail.models.onnx import DATA_FILE, MODEL_FILE, OnnxModel

from .cases import DATA, NAMES, ODD, TEXTS, fit_model

KINDS: dict[str, ModelSettings] = {
    "bag": Bag(C=100.0, min_df=1, char_ngrams=3),
    "bag, hidden layer": Bag(hidden=5, min_df=1),
    "encoder": Encoder(max_length=16),
    # As many tokens as texts in the example that the graph is traced with.
    "encoder, its head": Encoder(max_length=3, pooling="cls"),
    "svm": Svm(),
}


def exported(model: Any, *, int8: bool = False) -> OnnxModel:
    one = OnnxModel(model)
    one.export(int8)
    return one


def loaded(settings: ModelSettings, folder: Path, n_labels: int = len(NAMES)) -> Any:
    model = build_model(settings, engine="onnx")
    model.load(folder, n_labels, torch.device("cpu"))
    return model


Pair = tuple[Any, OnnxModel]
"""A fitted model and its export."""


@pytest.fixture(scope="module")
def make(tiny_bert: Path) -> Callable[[str], Pair]:
    @cache
    def make_pair(kind: str) -> Pair:
        settings = KINDS[kind]
        if isinstance(settings, Encoder):
            settings = dataclasses.replace(settings, encoder=str(tiny_bert))
        model = fit_model(settings, **({"epochs": 2} if settings.trains_in_steps else {}))
        return model, exported(model)

    return make_pair


@pytest.fixture(scope="module")
def folder(make: Callable[[str], Pair], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved linear bag."""
    path: Path = tmp_path_factory.mktemp("bag")
    make("bag")[1].save(path)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_the_scores_are_those_of_torch(
    kind: str, make: Callable[[str], Pair], tmp_path: Path
) -> None:
    model, one = make(kind)
    many = [" ".join(TEXTS[:n]) for n in range(1, 7)] * 20
    for texts in ([""], ["zinc"], ["", ""], ODD, TEXTS + ODD, many):
        expected = model.scores(texts)
        assert np.abs(one.scores(texts) - expected).max() < 1e-5
    encoded = one.encode(TEXTS)
    np.testing.assert_array_equal(one.scores([], encoded), one.scores(TEXTS))
    assert one.engine == "onnx" and not one.is_int8 and model.engine == "torch"
    assert (one.scale, one.encoding_key) == (model.scale, model.encoding_key)

    one.save(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert MODEL_FILE in names and not names & {"model.safetensors", "head.safetensors"}
    again = loaded(model.settings, tmp_path)
    np.testing.assert_array_equal(again.scores(TEXTS + ODD), one.scores(TEXTS + ODD))
    (tmp_path / "again").mkdir()
    again.save(tmp_path / "again")
    assert {path.name for path in (tmp_path / "again").iterdir()} == names
    third = loaded(model.settings, tmp_path / "again")
    np.testing.assert_array_equal(third.scores(TEXTS + ODD), one.scores(TEXTS + ODD))


def test_a_vocabulary_of_one_word() -> None:
    data = TextData.from_lists(["zinc", "zinc zinc", ""], [["a"], ["a"], ["b"]])
    model = fit_model(Svm(), data)
    one = exported(model)
    assert len(one.words()) == 1
    for texts in (TEXTS, TEXTS[:1], ["wheat"] * 3):
        assert np.abs(one.scores(texts) - model.scores(texts)).max() < 1e-5


def test_int8_of_an_encoder_decides_each_text_alone(
    make: Callable[[str], Pair], tmp_path: Path
) -> None:
    model = make("encoder")[0]
    one = exported(model, int8=True)
    difference = np.abs(one.scores(TEXTS) - model.scores(TEXTS)).max()
    assert one.is_int8 and 0 < difference < 0.2
    alone = np.concatenate([one.scores([text]) for text in TEXTS + ODD])
    np.testing.assert_array_equal(one.scores(TEXTS + ODD), alone)
    one.save(tmp_path)
    assert loaded(model.settings, tmp_path).is_int8


def test_an_export_can_be_neither_trained_nor_explained(folder: Path) -> None:
    with pytest.raises(InputError, match="Explain with the trained run"):
        loaded(KINDS["bag"], folder).explain("zinc", np.arange(1), [])
    with pytest.raises(InputError, match="cannot be trained"):
        loaded(KINDS["bag"], folder).fit(DATA, None, None, None)


def test_a_graph_that_torch_cannot_export(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(torch.nn.Module):
        def forward(self, indices: Any, offsets: Any, weights: Any) -> Any:
            return weights if weights.sum() > 0 else offsets

    model = fit_model(Bag(C=100.0, min_df=1))
    monkeypatch.setattr(model, "graph", Odd)
    with pytest.raises(LongtailError, match="torch cannot export TF-IDF with a linear head"):
        exported(model)


def damaged(folder: Path, tmp_path: Path, model: Any) -> Path:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    onnx.save(model, copy / MODEL_FILE)
    return copy


@pytest.mark.parametrize("place", ["/etc/passwd", "../weights", "other.data", f"x/{DATA_FILE}"])
@pytest.mark.parametrize("where", ["initializer", "sparse", "attribute"])
def test_weights_in_other_files_are_refused(
    place: str, where: str, folder: Path, tmp_path: Path
) -> None:
    model = onnx.load(folder / MODEL_FILE)
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.name = "w"
    tensor.external_data.add(key="location", value=place)
    if where == "initializer":
        model.graph.initializer.append(tensor)
    elif where == "sparse":
        model.graph.sparse_initializer.add().values.CopyFrom(tensor)
    else:
        inner = helper.make_graph([], "inner", [], [], initializer=[tensor])
        model.graph.node[0].attribute.append(helper.make_attribute("body", inner))
    with pytest.raises(DataError, match=r"reads weights from .*Expected model.onnx.data"):
        loaded(KINDS["bag"], damaged(folder, tmp_path, model))


def test_weights_in_an_external_file(folder: Path, tmp_path: Path) -> None:
    """As models of more than 2 GB have."""
    expected = loaded(KINDS["bag"], folder).scores(TEXTS)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    model = onnx.load(folder / MODEL_FILE)
    settings = {"save_as_external_data": True, "location": DATA_FILE, "size_threshold": 64}
    onnx.save(model, copy / MODEL_FILE, **settings)
    large = loaded(KINDS["bag"], copy)
    np.testing.assert_array_equal(large.scores(TEXTS), expected)
    (tmp_path / "again").mkdir()
    large.save(tmp_path / "again")
    np.testing.assert_array_equal(loaded(KINDS["bag"], tmp_path / "again").scores(TEXTS), expected)
    (copy / DATA_FILE).rename(tmp_path / "moved")
    (copy / DATA_FILE).symlink_to(tmp_path / "moved")
    with pytest.raises(OSError, match="not a regular file"):
        loaded(KINDS["bag"], copy)


def test_a_file_of_another_model(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected scores of 7 labels, got .*\(1, 4\)"):
        loaded(KINDS["bag"], folder, n_labels=7)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    nodes = [helper.make_node("Odd", ["x"], ["y"], domain="foreign")]
    opsets = [helper.make_opsetid("foreign", 1)]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    with pytest.raises(Exception, match=r"foreign.*is not a registered function/op|No opset"):
        loaded(KINDS["bag"], damaged(folder, tmp_path, model))
