"""Every family against the reference implementation: logits, every layer's residual stream and attention pattern."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

import pathsum
from cases import agree
from families import reference
from families.all_cases import CASES, made
from pathsum.runs.forward import forward, logits
from pathsum.weights.families import FAMILIES

parametrized = pytest.mark.parametrize("case", CASES, ids=repr)
EXACT, STOCK, SINGLE = 1e-10, 2e-6, 1e-5
NOT_REFERENCED = {"nanogpt", "transformer_lens"}
"""Families of other libraries, which have tests of their own."""


def test_every_family_has_a_case():
    assert set(FAMILIES) - NOT_REFERENCED == {case.model_type for case in CASES}


def check(model, found, tolerance=EXACT):
    """Logits, residual streams and patterns of an opened model against the reference's."""
    expected = found.reference
    run = pathsum.run(model, found.tokens, dtype=torch.float64)
    agree(run.logits, expected.logits, tolerance)
    trace = forward(run.weights, found.tokens, record=True)
    assert len(trace.residuals) == len(expected.residuals) == model.spec.n_layers
    for ours, theirs in zip(trace.residuals, expected.residuals, strict=True):
        agree(ours, theirs, tolerance)
    for ours, theirs in zip(trace.layers, expected.patterns, strict=True):
        agree(ours.pattern, theirs[..., : found.tokens.shape[-1]], tolerance)
    return run


@parametrized
def test_logits_residuals_and_patterns_are_the_references(case):
    found = made(case)
    check(pathsum.open(found.folder), found)


@parametrized
def test_a_model_in_memory_is_read_like_its_folder(case):
    found = made(case)
    check(pathsum.open(found.reference.model), found)


@parametrized
def test_stock_and_float32(case):
    """The reference as it is (float32 norms and angles), and our own float32."""
    found = made(case)
    stock = reference.transformers.AutoModelForCausalLM.from_pretrained(
        found.folder, **reference.PLAINLY, dtype=torch.float64
    )
    model = pathsum.open(found.folder)
    exact = pathsum.run(model, found.tokens, dtype=torch.float64).logits
    agree(exact, reference.run(stock.eval(), found.tokens).logits, STOCK)
    agree(pathsum.run(model, found.tokens, dtype=torch.float32).logits, exact, SINGLE)


@parametrized
def test_folded_is_raw_and_terms_sum(case):
    found = made(case)
    model = pathsum.open(found.folder)
    raw = model.weights.to(torch.float64)
    run = pathsum.run(model, found.tokens, dtype=torch.float64)
    folded = forward(raw.fold(), found.tokens)
    agree(logits(raw.fold().ends, folded.residual, folded.final_scale), run.uncapped_logits, EXACT)
    assert pathsum.expand(run).check() < EXACT
    for layer in range(model.spec.n_layers):
        for head in range(model.spec.n_heads):
            assert pathsum.expand_scores(run, f"L{layer}H{head}").by_order().check() < EXACT


@pytest.mark.parametrize(
    ("case", "config"), [(case, config) for case in CASES for config in case.spellings],
    ids=[f"{case.name}-{i}" for case in CASES for i, _ in enumerate(case.spellings)],
)  # fmt: skip
def test_configs_as_people_have_them(case, config, tmp_path):
    """Other spellings, older and newer, and defaults left out."""
    found = made(case)
    for file in found.folder.glob("*.safetensors"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config))
    check(pathsum.open(tmp_path), found)


@parametrized
def test_a_tensor_missing_or_left_over_is_named(case, tmp_path):
    found = made(case)
    tensors = load_file(found.folder / "model.safetensors")
    (tmp_path / "config.json").write_bytes((found.folder / "config.json").read_bytes())
    needed = next(
        name
        for name in sorted(tensors)
        if name.endswith(("o_proj.weight", "dense.weight", "out_proj.weight", "c_proj.weight"))
    )
    save_file({name: tensor for name, tensor in tensors.items() if name != needed}, tmp_path / "model.safetensors")
    with pytest.raises(pathsum.PathsumError, match=re.escape(f"tensor {needed} is missing")):
        pathsum.open(tmp_path)
    save_file({**tensors, "adapter.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(pathsum.PathsumError, match=r"adapter\.weight has no place"):
        pathsum.open(tmp_path)
    save_file({**tensors, needed: tensors[needed][:-1].clone()}, tmp_path / "model.safetensors")
    with pytest.raises(pathsum.PathsumError, match="not of the same model"):
        pathsum.open(tmp_path)
