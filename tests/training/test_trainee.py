import dataclasses
from pathlib import Path

import pytest
import torch

import oracle
from cases import agree
from pathsum.runs.forward import forward, logits
from pathsum.training.optimizers import optimizers_of, set_rates
from pathsum.training.recipe import Recipe, recipe
from pathsum.training.trainee import Trainee
from pathsum.weights.checkpoint import open_model
from pathsum.weights.saving import save
from pathsum.weights.shapes import shapes

SMALL = recipe("two-layer-small", d_model=16, heads=2, d_head=4, vocab=300, context=32)
WITH_MLPS = dataclasses.replace(SMALL, d_mlp=24)
SMEARED, CONVOLUTION = dataclasses.replace(SMALL, smeared_keys=True), dataclasses.replace(SMALL, convolution=3)


@pytest.mark.parametrize(
    ("chosen", "a_layer"),
    [(SMALL, 4), (WITH_MLPS, 6), (SMEARED, 5), (CONVOLUTION, 7)],
    ids=["attention only", "MLPs", "smeared keys", "convolution"],
)
def test_weights_are_views_of_the_parameters_in_the_canonical_shapes(chosen: Recipe, a_layer: int) -> None:
    trainee = Trainee(chosen)
    tensors = trainee.weights().tensors()
    assert len(tensors) == 2 + 2 * a_layer
    for name, tensor in tensors.items():
        assert tuple(tensor.shape) == shapes(trainee.spec)[name]
    storages = {parameter.untyped_storage().data_ptr() for parameter in trainee.parameters()}
    assert {tensor.untyped_storage().data_ptr() for tensor in tensors.values()} == storages


def test_the_forward_pass_reads_heads_without_copying_them() -> None:
    block = Trainee(SMALL).weights().block(1)
    assert block.W_Q.flatten(0, 1).untyped_storage().data_ptr() == block.W_Q.untyped_storage().data_ptr()
    W_O = block.W_O.transpose(0, 1).flatten(1)
    assert W_O.untyped_storage().data_ptr() == block.W_O.untyped_storage().data_ptr()


@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
@pytest.mark.parametrize("changes", [{}, {"d_mlp": 24}, {"smeared_keys": True}, {"convolution": 3}], ids=str)
def test_trained_and_opened_logits_are_the_oracles(norm: str, changes: dict, tmp_path: Path) -> None:
    trainee = Trainee(dataclasses.replace(SMALL, norm=norm, **changes)).double()
    generator = torch.Generator().manual_seed(2)
    for parameter in trainee.parameters():  # As after some training: matrices and gains of any size.
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    save(tmp_path / "model", trainee.weights())
    opened = open_model(tmp_path / "model").weights
    tokens = torch.randint(300, (7,), generator=generator)
    tensors = {name: tensor.numpy() for name, tensor in opened.tensors().items()}
    expected = oracle.run(opened.spec, tensors, tokens).logits
    for weights in (trainee.weights(), opened):
        done = forward(weights, tokens)
        agree(logits(weights.ends, done.residual, done.final_scale).detach(), expected, 1e-12)


def test_heads_start_the_same_with_and_without_mlps() -> None:
    without, beside = Trainee(SMALL), dict(Trainee(WITH_MLPS).named_parameters())
    assert set(beside) - set(dict(without.named_parameters())) == {
        f"L{i}_W_{side}" for i in (0, 1) for side in ("in", "out")
    }
    for name, parameter in without.named_parameters():
        assert torch.equal(parameter, beside[name])


def test_the_start_depends_on_the_seed_alone() -> None:
    def start(seed: int) -> torch.Tensor:
        return Trainee(recipe("two-layer-small", seed=seed)).get_parameter("L1_W_K")

    assert torch.equal(start(3), start(3)) and not torch.equal(start(3), start(4))


def test_attention_starts_nearly_uniform() -> None:
    trainee = Trainee(recipe("two-layer-small"))
    assert 0.9 < float(trainee.get_parameter("L0_W_Q").detach().std()) * 128**0.5 / 0.2 < 1.1


def test_muon_trains_heads_and_mlps_and_adamw_the_rest() -> None:
    trainee = Trainee(dataclasses.replace(WITH_MLPS, norm="rms"))
    muon, adamw = optimizers_of(trainee)
    assert len(muon.param_groups[0]["params"]) == 2 * (4 + 2)
    names = {id(parameter): name for name, parameter in trainee.named_parameters()}
    assert {names[id(parameter)] for parameter in adamw.param_groups[0]["params"]} == {
        "W_E", "W_U", "L0_attention_norm", "L1_attention_norm", "L0_mlp_norm", "L1_mlp_norm", "final_norm",
    }  # fmt: skip


def test_gates_have_a_rate_of_their_own_and_no_decay() -> None:
    muon, adamw = optimizers_of(Trainee(dataclasses.replace(SMEARED, rate_smear=0.07)))
    assert len(muon.param_groups[0]["params"]) == 2 * 4
    ends, gates = adamw.param_groups
    assert (ends["lr"], len(ends["params"])) == (SMALL.rate_ends, 2)
    assert (gates["lr"], gates["weight_decay"]) == (0.07, 0.0)
    assert [gate.tolist() for gate in gates["params"]] == [[-1.5, -1.5], [-1.5, -1.5]]


def test_a_convolution_starts_as_none() -> None:
    tokens = torch.arange(20)
    plain, mixing = (forward(Trainee(chosen).weights(), tokens).residual for chosen in (SMALL, CONVOLUTION))
    assert torch.equal(plain, mixing)
    trainee = Trainee(CONVOLUTION)
    (_, adamw) = optimizers_of(trainee)
    assert len(adamw.param_groups[0]["params"]) == 2 + 2 * 3


def test_a_model_without_layers_needs_adamw_alone() -> None:
    assert [type(optimizer).__name__ for optimizer in optimizers_of(Trainee(recipe("zero-layer", vocab=300)))] == [
        "AdamW"
    ]


def test_rates_follow_the_recipe_from_where_they_began() -> None:
    optimizers = optimizers_of(Trainee(SMALL))
    for step in (0, 500, 999):
        set_rates(optimizers, SMALL, step)
        rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
        assert rates == [SMALL.rate_heads * SMALL.rate(step), SMALL.rate_ends * SMALL.rate(step)]
