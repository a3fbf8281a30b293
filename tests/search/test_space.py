"""What is searched: declared with the settings and the losses, fixed by flags, started from."""

from __future__ import annotations

import dataclasses
from typing import Any

import optuna
import pytest

from longtail import LOSSES, LabelStats, build_loss
from longtail.errors import InputError, UnknownNameError
from longtail.losses.presets import LossRow
from longtail.models import MODELS
from longtail.reproduce import find_recipe, read_recipe
from longtail.search.space import Space, make_space
from longtail.settings import Grid, Range, Searched, searched_fields

N = 6769  # documents
STATS = LabelStats.from_counts([900, 9, 2], n_samples=1000)
PAPERS = ("bce", "fl", "cb", "r-fl", "ntr-fl", "cb-ntr", "db")


def space_of(settings: dict[str, Any], fixed: Any = (), losses: Any = None) -> Space:
    return make_space(settings, fixed, losses, N)


def ends(values: Searched) -> tuple[Any, ...]:
    return values.values if isinstance(values, Grid) else (values.low, values.high)


def first_of(space: Space) -> dict[str, Any]:
    """The settings of the first trial; what it leaves open is drawn."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.enqueue_trial(dict(space.first))
    return space.suggest(study.ask())


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_takes_all_values_of_its_constants(name: str) -> None:
    for constant, values in LOSSES[name].searched.items():
        for value in ends(values):
            build_loss(name, STATS, **{constant: value})


def test_constants_of_the_papers_losses_are_searched_around_the_papers() -> None:
    for name, row in LOSSES.items():
        if row.published:
            switched_off = {"gamma"} if not row.constants["gamma"] else set()
            assert set(row.searched) == set(row.constants) - {"weighting"} - switched_off, name
            for constant, values in row.searched.items():
                paper = row.constants[constant]
                if isinstance(values, Range):
                    assert values.low < paper < values.high, (name, constant)
                else:
                    assert paper in values.values, (name, constant)


@pytest.mark.parametrize("kind", MODELS)
def test_settings_take_all_values_that_are_tried(kind: str) -> None:
    settings = MODELS[kind].settings
    for name, values in searched_fields(settings).items():
        for value in ends(values):
            dataclasses.replace(settings(), **{name: value})
    assert settings.searched_as or settings().searched(), kind


def test_the_default_losses_are_the_papers_without_ablations() -> None:
    assert space_of({"model": "encoder"}).losses == PAPERS
    assert space_of({"model": "bag"}).losses == (*PAPERS, "squared-hinge")
    assert space_of({"model": "svm"}).losses == ()


def test_the_learning_rates_are_those_of_the_paper_and_powers_of_two_around() -> None:
    space = space_of(read_recipe(find_recipe("paper")))
    values = space.settings["learning_rate"]
    assert isinstance(values, Grid)
    rates = [float(f"{factor * space.references['learning_rate']:.3g}") for factor in values.values]
    assert rates == [2.5e-5, 5e-5, 1e-4, 2e-4, 4e-4, 8e-4]  # the paper used 1e-4 and 4e-4
    first = first_of(space)
    assert (first["learning_rate"], first["head_learning_rate"], first["epochs"]) == (
        1e-4,
        1e-4,
        40,
    )
    assert first["early_stopping_patience"] == 5 and first["thresholds"] == "grid"


def test_the_first_trial_has_the_settings_that_are_given() -> None:
    settings = {"model": "encoder", "loss": "cb-ntr", "epochs": 7, "learning_rate": 3e-5}
    first = first_of(space_of(settings))
    assert {**first, **settings} == first
    assert first["head_learning_rate"] == 1e-3, "the default, as a ratio"
    assert first["loss_settings"] == {"gamma": 2, "kappa": 0.05, "lambda_": 2, "cb_beta": 0.9}
    assert "mu" in first_of(space_of({"model": "bag"}))["loss_settings"]


def test_factors_multiply_what_they_belong_to() -> None:
    space = space_of({"model": "encoder", "epochs": 3})
    params = {"learning_rate": 4.0, "head_learning_rate": 3.0, "epochs": 0.5, "loss": "bce"}
    settings = space.suggest(optuna.trial.FixedTrial(params))  # type: ignore[arg-type]
    rates = settings["learning_rate"], settings["head_learning_rate"]
    assert rates == (4e-4, 1.2e-3) and settings["epochs"] == 2
    assert settings["loss_settings"] == {}, "bce has no constants"


def test_flags_fix_settings_and_constants() -> None:
    flags = {"model": "encoder", "epochs": 2, "loss": "db", "loss_settings": {"gamma": 1}}
    space = space_of(flags, {"model", "epochs", "loss", "gamma"})
    assert set(space.settings) == {"learning_rate", "head_learning_rate"}
    assert space.losses == ("db",) and "gamma" not in space.to_dict()
    first = first_of(space)
    assert first["epochs"] == 2 and first["loss_settings"]["gamma"] == 1


def test_a_constant_may_belong_to_the_named_losses_only() -> None:
    settings = {"model": "bag", "loss_settings": {"margin": 0.02}}
    space = space_of(settings, {"margin"}, ["asl"])
    assert first_of(space)["loss_settings"]["margin"] == 0.02 and "margin" not in space.to_dict()


def test_a_hidden_layer_is_searched_like_a_network() -> None:
    assert set(space_of({"model": "bag"}).settings) == {"C", "char_ngrams"}
    network = {"char_ngrams", "learning_rate", "head_learning_rate", "epochs"}
    assert set(space_of({"model": "bag", "hidden": 8}).settings) == network


def test_auto_searches_the_settings_that_it_would_choose_from() -> None:
    assert space_of({}).base["model"] == "bag"


def test_settings_of_a_model_may_be_in_a_mapping_or_a_list() -> None:
    nested = {"kind": "encoder", "learning_rate": 2e-4, "training": {"epochs": 4}, "loss": "fl"}
    flat = {"model": "encoder", "learning_rate": 2e-4, "epochs": 4, "loss": "fl"}
    for model in (nested, [nested]):
        assert space_of({"model": model}) == space_of(flat)


def test_a_value_beyond_the_bounds_widens_them() -> None:
    settings = {"model": "bag", "C": 5000.0, "loss": "db", "loss_settings": {"gamma": 9, "mu": 0.1}}
    space = space_of(settings)
    assert space.settings["C"] == Range(0.1, 5000.0, log=True)
    assert space.losses == ("db",), "constants belong to their loss"
    assert space.constants["db"]["gamma"] == Range(0.0, 9)
    assert first_of(space)["loss_settings"]["mu"] == 0.1


def test_losses_share_a_constant_if_they_have_the_same_values() -> None:
    space = space_of({"model": "bag"}, losses=["fl", "asl", "hill"])
    keys = {space.key(loss, name) for loss, row in space.constants.items() for name in row}
    assert keys == {
        "gamma", "gamma_positive", "gamma_negative", "margin", "margin of hill", "peak",
    }  # fmt: skip


def test_a_new_loss_is_searched_without_further_code(monkeypatch: pytest.MonkeyPatch) -> None:
    asl = LOSSES["asl"]
    mine = LossRow(*(getattr(asl, name) for name in ("title", "formula", "paper", "when")),
        class_name=asl.class_name, searched={"gamma_negative": Range(1.0, 2.0)},
    )  # fmt: skip
    monkeypatch.setitem(LOSSES, "mine", mine)  # type: ignore[call-overload]
    space = space_of({"model": "bag"}, losses=["mine"])
    assert 1 <= first_of(space)["loss_settings"]["gamma_negative"] <= 2


@pytest.mark.parametrize(
    ("settings", "fixed", "losses", "error", "words"),
    [
        ({"model": "bag"}, (), ["dbb"], UnknownNameError, "Did you mean 'db'"),
        ({"model": "bagg"}, (), None, UnknownNameError, "Did you mean 'bag'"),
        ({"model": "bag", "epoch": 3}, (), None, UnknownNameError, "epoch"),
        ({"model": "svm"}, (), ["db"], InputError, "--losses has no effect on the model svm"),
        ({"model": "bag", "loss": "db"}, ("loss",), ["fl"], InputError, "is 'db' by --loss"),
        ({"loss_settings": {"mu": 0.3}}, (), ["fl"], InputError, "its constants (mu)"),
        ({"loss_settings": {"gamma": 1}}, ("gamma",), None, InputError, "Name the losses"),
        ({"model": ["bag", "svm"]}, (), None, InputError, "blend 2 models"),
        ({"model": "svm"}, ("C", "class_weight"), None, InputError, "nothing to search"),
    ],
)  # fmt: skip
def test_what_cannot_be_searched_is_refused(
    settings: dict[str, Any], fixed: Any, losses: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as raised:
        space_of(settings, fixed, losses)
    assert words in str(raised.value)
