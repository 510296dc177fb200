import dataclasses

import pytest

from pathsum.errors import TrainingError
from pathsum.training.recipe import RECIPES, recipe
from pathsum.weights.positions import Sinusoidal


@pytest.mark.parametrize("name", RECIPES)
def test_every_named_recipe_is_valid(name: str) -> None:
    spec = recipe(name).spec()
    assert spec.n_layers == recipe(name).layers == {"zero": 0, "one": 1, "two": 2, "paper": 2}[name.split("-")[0]]
    assert spec.norm == "none" and spec.d_mlp == (512 if "mlp" in name else None)


def test_the_recipe_with_mlps_is_the_other_one_but_for_them() -> None:
    without = recipe("two-layer-mlp-small", d_mlp=0)
    assert without == dataclasses.replace(recipe("two-layer-small"), name="two-layer-mlp-small")
    assert without.spec().d_mlp is None
    assert recipe("one-layer", d_mlp=24).spec().d_mlp == 24


def test_the_recipes_of_one_layer_that_mix_positions_have_all_else_in_common() -> None:
    smeared, convolution = recipe("one-layer-smeared-small"), recipe("one-layer-convolution-small")
    (facts,), (others,) = smeared.spec().layers, convolution.spec().layers
    assert (facts.smeared_keys, facts.convolution, others.smeared_keys, others.convolution) == (True, None, False, 3)
    changed = dataclasses.replace(smeared, name=convolution.name, smeared_keys=False, convolution=3)
    assert changed == dataclasses.replace(convolution, amplitude_first=smeared.amplitude_first)


def test_any_depth_is_a_change_of_a_recipe() -> None:
    spec = recipe("two-layer", layers=5, heads=2, seed=None).spec()
    amplitudes = [layer.positions.amplitude for layer in spec.layers if isinstance(layer.positions, Sinusoidal)]
    assert amplitudes == [3.0, 0.5, 0.5, 0.5, 0.5]
    assert spec.n_heads == 2 and recipe("two-layer", seed=None).seed == 0


def test_an_unknown_recipe_suggests_the_nearest() -> None:
    with pytest.raises(TrainingError, match="no recipe 'two-layers': did you mean 'two-layer'"):
        recipe("two-layers")
    with pytest.raises(TrainingError, match="recipes are zero-layer, one-layer"):
        recipe("???")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed is -1, must be at least 0"),
        ({"layers": -1}, "layers is -1, must be at least 0"),
        ({"steps": 0}, "steps is 0, must be at least 1"),
        ({"context": 3}, "context is 3"),
        ({"vocab": 256}, "vocab is 256, must be at least 257"),
        ({"d_mlp": -1}, "d_mlp is -1, must be at least 0"),
        ({"d_mlp": 1.5}, r"d_mlp is 1\.5, must be a whole number"),
        ({"d_mlp": "four"}, "d_mlp is 'four', must be a whole number"),
        ({"convolution": 1}, "convolution is 1, which mixes nothing; give at least 2 positions, or 0 for none"),
        ({"convolution": 3, "smeared_keys": True}, "both mix keys; train with one of them"),
        ({"layers": 0, "d_mlp": 8}, "without layers there are no MLPs; give layers, or d_mlp 0"),
        ({"tiled": 1.5}, "tiled is 1.5, must be from 0 to 1"),
        ({"norm": "batch"}, "norm is 'batch', must be one of none, layer, rms"),
    ],
)
def test_values_out_of_range_are_named(change: dict, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        recipe("two-layer", **change)


def test_rates_rise_then_stay_then_fall() -> None:
    chosen = recipe("two-layer", steps=1000)
    assert chosen.rate(0) == 1 / 40
    assert chosen.rate(39) == chosen.rate(600) == 1
    assert chosen.rate(800) == pytest.approx(0.5)
    assert chosen.rate(999) == pytest.approx(1 / 400)
