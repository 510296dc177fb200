"""Every reading is invariant under what it declares, and no more than that."""

import dataclasses
import functools

import polars as pl
import pytest
import torch

from cases import Case, case
from pathsum.study.catalogue import READINGS
from pathsum.study.result import read_one
from pathsum.study.subject import Subject
from pathsum.weights.model import Model
from pathsum.weights.positions import LearnedQK, Rotary
from pathsum.weights.weights import Weights

MODEL = case(
    "symmetries",
    LearnedQK(),
    LearnedQK(),
    extras="attention_bias b_O b_U",
    shape=(10, 3, 3, 4),
    d_vocab=13,
    n_tokens=28,
    learned_positions=True,
    smeared=(False, True),
)
TURNING = case(
    "turning",
    Rotary(2),
    Rotary(4, base=9.0, interleaved=True),
    extras="attention_bias",
    shape=(10, 4, 2, 5),
    d_vocab=13,
    n_tokens=28,
)
STREAM = case("stream", None, None, extras="attention_bias", shape=(10, 3, 3, 4), n_tokens=28, learned_positions=True)
NAMES = [reading.name for reading in READINGS]
EVERY_READING = pytest.mark.parametrize("reading", READINGS, ids=lambda r: r.name)


def subject_of(weights: Weights) -> Subject:
    text = torch.randint(MODEL.spec.d_vocab, (120,), generator=torch.Generator().manual_seed(5)).tolist()
    subject = Subject(Model("m", weights), text, sequences=3, batch=2, block=9)
    # Runs in float64 too, so that a symmetry holds to rounding and not to float32.
    subject.__dict__["raw"] = weights.load()
    return subject


@functools.cache
def plain(name: str) -> pl.DataFrame:
    return read_one(name, subject_of(MODEL.weights)).frame


def changed_basis(one: Case, M: torch.Tensor) -> Case:
    """`x → M x` with every matrix that reads or writes the residual stream."""
    inverse, new = torch.linalg.inv(M), {}
    for name, tensor in one.tensors.items():
        part = name.split(".")[-1]
        if part in ("W_E", "W_pos", "b_O") or part == "W_O":
            new[name] = M @ tensor
        elif part in ("W_Q", "W_K", "W_V", "W_U"):
            new[name] = tensor @ inverse
        else:
            new[name] = tensor
    return dataclasses.replace(one, tensors=new)


def rotation() -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.linalg.qr(torch.randn(10, 10, generator=generator, dtype=torch.float64)).Q


def stretch() -> torch.Tensor:
    return rotation() @ torch.diag(torch.linspace(0.5, 2.5, 10).double()) @ rotation().T @ rotation()


def gap(one: pl.DataFrame, other: pl.DataFrame, column: str) -> float:
    """Largest difference, relative to the column's largest value; NaN must stay NaN."""
    a, b = one[column].to_torch().double(), other[column].to_torch().double()
    assert torch.equal(a.isnan(), b.isnan())
    a, b = a.nan_to_num(), b.nan_to_num()
    return ((a - b).abs().max() / a.abs().max().clamp_min(1e-12)).item() if len(a) else 0.0


def numbers(frame: pl.DataFrame) -> list[str]:
    return [name for name in frame.columns if frame[name].dtype == pl.Float64 and frame[name].null_count() == 0]


def in_order(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Pairs by name, for they come sorted by size; of eigenvalues, conjugates come in either order."""
    if "source" in frame.columns and "destination" in frame.columns and "head" not in frame.columns:
        return frame.sort([column for column in ("kind", "source", "destination") if column in frame.columns])
    if name != "eigenvalues":
        return frame
    rounded = frame.with_columns(pl.col("real", "imaginary").round(6) + 0.0)
    return rounded.sort("head", "circuit", "real", "imaginary")


def rounding_only(name: str) -> bool:
    """The reconstruction error is rounding itself."""
    return name == "reconstruction"


@EVERY_READING
def test_readings_are_unchanged_by_rotations(reading):
    if rounding_only(reading.name):
        pytest.skip("its values are rounding errors")
    found = read_one(reading.name, subject_of(changed_basis(MODEL, rotation()).weights)).frame
    one, other = in_order(reading.name, plain(reading.name)), in_order(reading.name, found)
    for column in numbers(one):
        assert gap(one, other, column) < 1e-5, column


@EVERY_READING
def test_gl_columns_are_unchanged_by_any_change_of_basis_and_o_columns_are_not(reading):
    if rounding_only(reading.name):
        pytest.skip("its values are rounding errors")
    found = read_one(reading.name, subject_of(changed_basis(MODEL, stretch()).weights)).frame
    one, other = in_order(reading.name, plain(reading.name)), in_order(reading.name, found)
    declared = {column.name: column.invariance for column in reading.columns}
    for column in numbers(one):
        if declared[column] == "GL":
            assert gap(one, other, column) < 1e-5, column
        else:
            assert gap(one, other, column) > 1e-3, column


@pytest.mark.parametrize("one", [TURNING, STREAM], ids=repr)
def test_positional_circuits_of_rotary_and_learned_positions_are_gl_invariant(one):
    frames = [read_one("positional", subject_of(each.weights)).frame for each in (one, changed_basis(one, stretch()))]
    assert frames[0].height and one.spec.n_layers == 2
    for column in ["score", "spread", *["matching_score"] * (one is TURNING)]:
        assert gap(*frames, column) < 1e-5, column


@EVERY_READING
def test_readings_are_unchanged_by_the_heads_own_gauge(reading):
    """W_Q → M W_Q, W_K → M⁻ᵀ W_K, W_V → N W_V, W_O → W_O N⁻¹, biases along."""
    if rounding_only(reading.name):
        pytest.skip("its values are rounding errors")
    generator = torch.Generator().manual_seed(3)
    M, N = (torch.eye(4) + 0.4 * torch.randn(3, 4, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    new = dict(MODEL.tensors)
    for layer in range(2):
        parts = {"Q": M, "K": torch.linalg.inv(M).mT, "V": N}
        for part, change in parts.items():
            new[f"L{layer}.W_{part}"] = change @ MODEL.tensors[f"L{layer}.W_{part}"]
            new[f"L{layer}.b_{part}"] = (change @ MODEL.tensors[f"L{layer}.b_{part}"][..., None])[..., 0]
        new[f"L{layer}.W_O"] = MODEL.tensors[f"L{layer}.W_O"] @ torch.linalg.inv(N)
    found = read_one(reading.name, subject_of(dataclasses.replace(MODEL, tensors=new).weights)).frame
    one, other = in_order(reading.name, plain(reading.name)), in_order(reading.name, found)
    for column in numbers(one):
        assert gap(one, other, column) < 1e-5, column


@pytest.mark.parametrize(
    "name", ["spectra", "attention", "induction", "importance_heads", "composition", "matching", "pointer", "virtual"]
)
def test_permuted_heads_give_permuted_rows(name):
    order = [2, 0, 1]
    new = {
        key: tensor[order]
        if key.split(".")[-1] in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "smear")
        else tensor
        for key, tensor in MODEL.tensors.items()
    }
    found = read_one(name, subject_of(dataclasses.replace(MODEL, tensors=new).weights)).frame
    renamed = {f"L{layer}H{new}": f"L{layer}H{old}" for layer in range(2) for new, old in enumerate(order)}
    keys = [column for column in ("head", "kind", "source", "destination") if column in found.columns]
    heads = [column for column in keys if column != "kind"]
    found = found.with_columns(pl.col(heads).replace(renamed)).sort(keys)
    one = plain(name).sort(keys)
    assert one.select(keys).equals(found.select(keys))
    for column in numbers(one):
        assert gap(one, found, column) < 1e-5, column


@EVERY_READING
def test_columns_are_those_of_the_catalogue(reading):
    assert plain(reading.name).columns == [column.name for column in reading.columns]
