"""Composition of everything that writes with everything that reads, and the token metric, against dense matrices."""

import numpy as np
import pytest
import torch

import oracle
import pathsum
from cases import BY_NAME, CASES, Case, agree, case
from pathsum.circuits import composition
from pathsum.circuits.cut import compositions
from pathsum.circuits.metric import in_token_metric
from pathsum.errors import NotApplicable
from pathsum.runs.run import run_weights
from pathsum.study.catalogue import BY_NAME as READINGS
from pathsum.weights.model import Model
from test_symmetries import MODEL, changed_basis, gap, rotation, stretch

WITH_MLPS = ["gpt2", "gptj", "llama", "gemma2", "gpt_oss", "experts_without_gate", "olmo2", "post_layer_norm"]
SPANNING = [each for each in CASES if each.spec.d_vocab >= each.spec.d_model and each.spec.n_layers >= 2]


def writers(one: Case) -> dict[str, tuple[int, np.ndarray]]:
    """Stage and matrix of everything that writes, by name."""
    spec, tensors = one.spec, one.arrays
    found = {"embed": (-1, tensors["W_E"])}
    found |= {"pos": (-1, tensors["W_pos"])} if spec.learned_positions else {}
    for layer in range(spec.n_layers):
        for head in range(spec.n_heads):
            found[f"L{layer}H{head}"] = 2 * layer, oracle.dense_OV(spec, tensors, layer, head)
        if spec.d_mlp is not None:
            post = oracle.norm_named(spec, tensors, f"L{layer}.post_mlp_norm", spec.d_model).matrix
            for name, W in experts(one, layer, "W_out").items():
                found[name] = 2 * layer + (not spec.parallel), post @ W
    return found


def readers(one: Case, delta: float) -> dict[tuple[str, str], tuple[int, np.ndarray]]:
    """Stage and matrix of everything that reads, by kind and name."""
    spec, tensors, found = one.spec, one.arrays, {}
    for layer in range(spec.n_layers):
        for head in range(spec.n_heads):
            for kind in "QKV":
                found[kind, f"L{layer}H{head}"] = 2 * layer, oracle.reader(spec, tensors, kind, layer, head, delta)
        if spec.d_mlp is None:
            continue
        norm = oracle.norm_named(spec, tensors, f"L{layer}.mlp_norm", spec.d_model).matrix
        stage = 2 * layer + (not spec.parallel)
        for kind, part in (("in", "W_in"), ("gate", "W_gate")):
            if f"L{layer}.mlp.{part}" in tensors:
                found |= {(kind, name): (stage, W @ norm) for name, W in experts(one, layer, part).items()}
        if spec.n_experts is not None:
            found["router", f"L{layer}.router"] = stage, tensors[f"L{layer}.mlp.W_router"] @ norm
    last = oracle.norm_named(spec, tensors, "final_norm", spec.d_model).matrix
    found["unembed", "unembed"] = 2 * spec.n_layers, tensors["W_U"] @ last
    return found


def experts(one: Case, layer: int, part: str) -> dict[str, np.ndarray]:
    W = one.arrays[f"L{layer}.mlp.{part}"]
    if one.spec.n_experts is None:
        return {f"L{layer}.mlp": W}
    return {f"L{layer}.mlp.{expert}": W[expert] for expert in range(one.spec.n_experts)}


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_oss", "experts_without_gate"])
def test_every_pair_is_the_same_when_measured_again(name, monkeypatch):
    """From what the file holds, not from the Gram matrices: of heads, MLPs, experts, embeddings."""
    every = lambda: list(compositions(BY_NAME[name].folded, deltas=(2,), writers="all", readers="all",
                                      dtype=torch.float64))  # fmt: skip
    plain = every()
    monkeypatch.setattr(composition, "NOISE", 1e30)
    for one, other in zip(plain, every(), strict=True):
        assert (one.reader, one.writer) == (other.reader, other.writer)
        agree(other.pairs.score, one.pairs.score, 1e-9)


@pytest.mark.parametrize("memory", [10**9, "least"])
@pytest.mark.parametrize("name", WITH_MLPS)
def test_virtual_weights_of_every_writer_and_every_later_reader_are_the_oracles(name, memory):
    one = BY_NAME[name]
    wrote, read, seen = writers(one), readers(one, 2), set()
    least = 6_000 * max(1, 2 * (one.spec.n_experts or 1)) if memory == "least" else memory
    every = compositions(one.folded, deltas=(2,), writers="all", readers="all", dtype=torch.float64, memory=least)
    for reader, writer, pairs in every:
        for i, destination in enumerate(reader.names):
            for j, source in enumerate(writer.names):
                (stage, X), (before, Y) = read[reader.kind, destination], wrote[source]
                assert before < stage
                theirs = oracle.interaction(X, Y)
                assert pairs.score[i, j].item() == pytest.approx(theirs.score, rel=1e-12, abs=1e-12)
                assert pairs.ceiling[i, j].item() == pytest.approx(theirs.ceiling, rel=1e-10)
                assert pairs.z[i, j].item() == pytest.approx(theirs.z, rel=1e-8, nan_ok=True)
                seen.add((reader.kind, destination, source))
    can = {(k, d, s) for (k, d), (at, _) in read.items() for s, (before, _) in wrote.items() if before < at}
    assert seen == can


def test_heads_among_all_are_the_heads_alone():
    model = Model("m", BY_NAME["gpt2"].weights)
    alone, every = pathsum.composition(model).frame, pathsum.composition(model, writers="all", readers="all").frame
    heads = every.join(alone.select("kind", "source", "destination"), on=["kind", "source", "destination"])
    keys = ["kind", "source", "destination"]
    assert len(heads) == len(alone)
    assert gap(heads.sort(keys), alone.sort(keys), "score") < 1e-6
    only = pathsum.composition(model, writers="all").frame
    assert set(only["kind"]) == {"Q", "K", "V"} and {"embed", "pos", "L0.mlp"} < set(only["source"])


# ---- the token metric ----


@pytest.mark.parametrize("one", SPANNING, ids=repr)
def test_token_metric_composition_is_the_oracles(one):
    for reader, writer, pairs in compositions(in_token_metric(one.folded), deltas=(2,), dtype=torch.float64):
        for d in range(one.spec.n_heads):
            for s in range(one.spec.n_heads):
                at = (reader.kind, (writer.layer, s), (reader.layer, d))
                theirs = oracle.token_metric_composition(one.spec, one.arrays, *at, 2)
                assert pairs.score[d, s].item() == pytest.approx(theirs.score, rel=1e-9)
                assert pairs.ceiling[d, s].item() == pytest.approx(theirs.ceiling, rel=1e-9)
                assert pairs.z[d, s].item() == pytest.approx(theirs.z, rel=1e-7)


@pytest.mark.parametrize("change", [rotation, stretch])
def test_token_columns_are_beside_the_plain_ones_and_unchanged_by_any_change_of_basis(change):
    every = {column.name: column.invariance for column in READINGS["composition"].optional}
    optional = [name for name in every if name.startswith("token_")]
    assert set(optional) == {"token_score", "token_ceiling", "token_z", "token_effect"}
    assert {every[name] for name in optional} == {"GL"}
    keys = ["kind", "source", "destination"]
    frames = [
        pathsum.composition(Model("m", each.weights), metric="tokens", writers="all", readers="all").frame.sort(keys)
        for each in (MODEL, changed_basis(MODEL, change()))
    ]
    for column in optional:
        assert gap(*frames, column) < 1e-5, column
    assert (gap(*frames, "score") > 1e-3) == (change is stretch)


def test_tokens_are_spread_evenly_in_their_metric():
    W_E = in_token_metric(MODEL.folded).W_E
    assert torch.allclose(W_E @ W_E.mT, torch.eye(len(W_E), dtype=torch.float64), atol=1e-12)


def test_the_token_metric_needs_embeddings_that_span_the_stream():
    few = case("few_tokens", None, None, d_vocab=5)
    with pytest.raises(NotApplicable, match="rank 5 of d_model 8"):
        pathsum.composition(Model("m", few.weights), metric="tokens")


@pytest.mark.parametrize(
    "wrong", [{"writers": "mlps"}, {"readers": "none"}, {"metric": "l2"}, {"dtype": "float16"}, {"memory": "much"}]
)
def test_what_an_option_may_not_be_is_named(wrong):
    (name,) = wrong
    with pytest.raises(NotApplicable, match=f"{name} is '{wrong[name]}'"):
        pathsum.composition(Model("m", MODEL.weights), **wrong)


EXPERTS = case("experts_without_norm", None, None, extras="gate b_O b_U mlp_bias router_bias", d_mlp=5,
               activation="silu", n_experts=4, experts_per_token=2)  # fmt: skip


@pytest.mark.parametrize("one", [BY_NAME["biases_without_norm"], BY_NAME["three_layers_alibi"], EXPERTS], ids=repr)
def test_the_token_metric_is_a_change_of_basis(one):
    """Where there is no norm: every part that reads or writes is changed with the others, so the logits stay."""
    changed = in_token_metric(one.folded)
    agree(changed.W_E @ changed.W_E.mT, torch.eye(one.spec.d_model), 1e-9)
    agree(run_weights(Model("m", changed), changed, one.tokens).logits, one.recorded.logits, 1e-9)
    for layer in range(one.spec.n_layers):
        agree(changed.attention(layer).W_O, changed.block(layer).W_O)
