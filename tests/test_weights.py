"""Weights are one function in many forms: folded, gauge-changed, rotated and permuted, they give the same logits."""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import oracle
import pathsum
from cases import BY_NAME, CASES, Case, agree
from pathsum.errors import CheckpointError, MissingTensor, NotApplicable
from pathsum.runs.forward import Pass, forward, logits
from pathsum.weights.blocks import Block, Experts, map_tensors
from pathsum.weights.norms import Norm
from pathsum.weights.positions import Alibi, Rotary
from pathsum.weights.shapes import expected_shape, required_shapes
from pathsum.weights.spec import Spec
from pathsum.weights.taps import later
from pathsum.weights.weights import TAPS, Ends, Weights, head_index

VECTORS = ("gain", "bias")
WITH_LAYERS = [case for case in CASES if case.spec.n_layers]
QUERY_NORM = [case for case in CASES if "L0.q_norm.gain" in case.tensors]
POST = [case for case in CASES if "L0.post_attention_norm.gain" in case.tensors and case not in QUERY_NORM]


def output(weights: Weights, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits and every layer's patterns."""
    done = run(weights, tokens)
    return logits(weights.ends, done.residual, done.final_scale), [layer.pattern for layer in done.layers]


def run(weights: Weights, tokens: Tensor) -> Pass:
    return forward(weights, tokens, record=True)


def same_function(a: Weights, b: Weights, tokens: Tensor, tolerance: float = 1e-12) -> None:
    """The same logits, and the same patterns."""
    (logits_a, patterns_a), (logits_b, patterns_b) = output(a, tokens), output(b, tokens)
    agree(logits_a, logits_b, tolerance)
    for one, other in zip(patterns_a, patterns_b, strict=True):
        agree(one, other, tolerance)


def all_tensors(part: Any) -> dict[str, Tensor]:
    """Every tensor anywhere inside a part, in any order of nesting."""
    found: dict[str, Tensor] = {}
    map_tensors(part, lambda tensor: found.setdefault(str(len(found)), tensor))
    return found


# ---- folding ----


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_folding_keeps_logits_and_patterns(case):
    same_function(case.folded, case.weights, case.tokens)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_folding_leaves_no_gain_anywhere_and_no_bias_before_a_matrix_that_reads(case):
    norms = [case.folded.ends.final_norm]
    for block in case.folded.blocks:
        norms += [block.attention_norm, block.mlp_norm]
        assert {norm.gain for norm in (block.post_attention_norm, block.post_mlp_norm)} == {None}
        assert {norm.gain for norm in (block.q_norm, block.k_norm)} == {None}
    assert {norm.gain for norm in norms} == {None} == {norm.bias for norm in norms}
    ones = torch.ones(2, case.spec.d_model, dtype=torch.float64)
    assert all(norm.folded and norm.matrix(ones) is ones and norm.offset(ones) is None for norm in norms)


@pytest.mark.parametrize("case", [case for case in CASES if case.spec.norm == "layer"], ids=repr)
def test_what_reads_a_folded_layer_norm_does_not_see_the_mean(case):
    ones = torch.ones(case.spec.d_model, dtype=torch.float64)
    readers = [case.folded.W_U]
    for block in case.folded.blocks if case.spec.pre_norm else []:
        readers += [block.W_Q, block.W_K, block.W_V]
        if block.mlp is not None:
            readers += [W for W in (block.mlp.W_in, block.mlp.W_gate) if W is not None]
            readers += [block.mlp.W_router] if isinstance(block.mlp, Experts) else []
    for W in readers:
        assert (W @ ones).abs().max() < 1e-14


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_folding_leaves_the_embedding_as_it_is(case):
    assert torch.equal(case.folded.W_E, case.weights.W_E)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_folding_is_recorded_and_folding_again_changes_nothing(case):
    assert case.folded.spec == dataclasses.replace(case.spec, folded=True)
    assert case.folded.fold() is case.folded
    again = [block.fold() for block in case.folded.blocks]
    for block, once in zip(again, case.folded.blocks, strict=True):
        agree(block.W_Q, once.W_Q)
        agree(block.W_O, once.W_O)
    agree(case.folded.ends.fold().W_U, case.folded.W_U)


@pytest.mark.parametrize("case", WITH_LAYERS, ids=repr)
def test_circuits_of_folded_heads_have_gain_and_centring_of_every_norm_beside_them(case):
    agree(case.folded.W_U, oracle.dense_unembedding(case.spec, case.arrays))
    for block in case.folded.blocks:
        for head in block.heads:
            at = case.spec, case.arrays, head.layer, head.index
            agree(head.OV.dense(), oracle.dense_OV(*at))
            agree(head.QK(delta=3).dense(), oracle.dense_QK(*at, 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_halves_are_folded_in_float32(case, dtype):
    """Folded in their own dtype, gains and centring would be rounded into the matrices once more."""
    narrow = case.weights.to(dtype)
    mine, theirs = narrow.fold(), narrow.to(torch.float32).fold()
    pairs = [(mine.ends, theirs.ends), *zip(mine.blocks, theirs.blocks, strict=True)]
    pairs += [(mine.attention(layer), theirs.attention(layer)) for layer in range(case.spec.n_layers)]
    for one, other in pairs:
        one, other = all_tensors(one), all_tensors(other)
        assert one.keys() == other.keys() != set()
        assert all(torch.equal(one[name], tensor) for name, tensor in other.items())
        assert {tensor.dtype for tensor in one.values()} == {torch.float32}


@pytest.mark.parametrize("case", POST + QUERY_NORM, ids=repr)
def test_a_zero_gain_after_a_part_cannot_be_folded_and_says_so(case):
    name = "L1.k_norm.gain" if case in QUERY_NORM else "L1.post_attention_norm.gain"
    dead = case.with_tensors(**{name: case.tensors[name] * torch.arange(case.tensors[name].shape[-1])})
    with pytest.raises(NotApplicable, match="gain has a zero in it"):
        dead.weights.fold().block(1)


def test_weights_are_raw_until_fold_is_asked_for():
    case = BY_NAME["gpt2"]
    assert not case.weights.spec.folded
    assert torch.equal(case.weights.block(1).W_Q, case.tensors["L1.W_Q"])
    assert case.weights.block(1).attention_norm.gain is case.tensors["L1.attention_norm.gain"]


@pytest.mark.parametrize("form", ["weights", "folded"])
@pytest.mark.parametrize("case", QUERY_NORM, ids=repr)
def test_the_norm_of_one_head_is_the_norm_of_all_heads_at_that_head(case, form):
    for block in getattr(case, form).blocks:
        for norm, n in ((block.q_norm, block.n_heads), (block.k_norm, block.W_K.shape[0])):
            x = torch.randn(2, n, 5, case.spec.d_head, dtype=torch.float64)
            scale = norm.scale(x)
            for head in range(n):
                own = norm.of(head)
                agree(own.apply(x[:, head], scale[:, head]), norm.apply(x, scale)[:, head])
                if not norm.across:
                    agree(own.scale(x[:, head]), scale[:, head])


def test_one_vector_for_all_heads_may_stand_beside_one_a_head():
    shared = {"L0.q_norm.bias": torch.randn(5).double(), "L0.k_norm.gain": torch.rand(5).double() + 1}
    case = BY_NAME["stablelm_qk"].with_tensors(**shared)
    for weights in (case.weights, case.folded):
        agree(run(weights, case.tokens).residual, case.recorded.residuals[-1])


# ---- a model from tensors ----


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_tensors_are_those_the_weights_were_made_from(case):
    written = case.weights.tensors()
    assert written.keys() == case.tensors.keys()
    assert all(written[name] is tensor for name, tensor in case.tensors.items())


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_missing_tensor_is_named_with_the_shape_it_should_have(case):
    optional = () if case.spec.activation == "silu_clamped" else ("W_gate",)
    matrices = {name for name in case.tensors if ".W_" in f".{name}" and not name.endswith(optional)}
    assert required_shapes(case.spec).keys() == matrices | {name for name in case.tensors if name.endswith(TAPS)}
    for name, shape in required_shapes(case.spec).items():
        with pytest.raises(MissingTensor) as caught:
            case.with_tensors(**{name: None}).weights.load()
        assert name in str(caught.value)
        assert str(shape) in str(caught.value)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_tensor_of_another_shape_is_named_with_both_shapes(case, unchecked):
    for name, tensor in case.tensors.items():
        assert expected_shape(case.spec, name, tensor.dim()) == tuple(tensor.shape)
        wrong = torch.cat([tensor, tensor[:1]])
        with pytest.raises(MissingTensor) as caught:
            case.with_tensors(**{name: wrong}).weights.load()
        for part in (f"{name} ", str(tuple(tensor.shape)), str(tuple(wrong.shape))):
            assert part in str(caught.value)


@pytest.mark.parametrize(
    "name, shape",
    [
        ("L0.b_q", (3, 4)),
        ("L1.W_Q", (3, 4, 8)),
        ("L0.mlp.W_in", (5, 8)),
        ("L0.mlp_norm.gain", (8,)),
        ("L0.attention_norm.bias", (8,)),
        ("L0.mlp.W_router", (4, 8)),
        ("W_pos", (8, 9)),
    ],
    ids=str,
)
def test_a_tensor_without_a_place_in_the_model_is_refused_by_name(name, shape):
    """Ignored, it would leave a model that runs without a part of itself."""
    with pytest.raises(CheckpointError, match=f"{name} has no place in the model"):
        BY_NAME["one_layer"].with_tensors(**{name: torch.ones(shape).double()}).weights.load()


@pytest.mark.parametrize(
    "name, facts, tensor",
    [
        ("olmo2", {}, "L0.attention_norm.gain"),
        ("olmo2", {}, "L1.mlp_norm.bias"),
        ("gpt2", {"qk_norm": "none"}, "L0.q_norm.bias"),
        ("gpt2", {"qk_norm": "none"}, "L1.k_norm.gain"),
        ("one_layer", {}, "L0.post_attention_norm.gain"),
        ("llama", {}, "L0.mlp.W_router"),
        ("qwen3", {}, "L1.mlp.b_router"),
    ],
    ids=str,
)
def test_a_tensor_that_the_config_rules_out_is_refused(name, facts, tensor):
    """Given and not applied, they would leave another model than the one that was trained."""
    case = BY_NAME[name].with_tensors(**{tensor: torch.ones(1)})
    with pytest.raises(CheckpointError, match=f"{tensor} has no place in the model"):
        Weights.from_tensors(dataclasses.replace(case.spec, **facts), case.tensors)


def test_without_an_mlp_no_tensor_of_one_is_asked_for():
    clamped = dataclasses.replace(BY_NAME["one_layer"].spec, activation="silu_clamped", mlp_limit=1)
    assert required_shapes(clamped) == required_shapes(BY_NAME["one_layer"].spec)


def test_a_saved_model_keeps_its_tokenizer_and_its_training(tmp_path, unchecked):
    model = pathsum.open("two-layer-small")
    pathsum.save(tmp_path / "whole", model)
    whole = pathsum.open(tmp_path / "whole")
    assert whole.tokenizer.to_str() == model.tokenizer.to_str() and whole.training == model.training != {}
    pathsum.save(tmp_path / "bare", model.weights)
    assert pathsum.open(tmp_path / "bare").tokenizer is None and not pathsum.open(tmp_path / "bare").training
    with pytest.raises(NotApplicable, match="takes an opened model or its weights, not dict"):
        pathsum.save(tmp_path / "wrong", model.weights.tensors())
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_saved_model_is_opened_as_it_was(case, tmp_path):
    pathsum.save(tmp_path / "model", case.weights)
    weights = pathsum.open(tmp_path / "model").weights
    assert weights.spec == case.spec
    found = weights.tensors()
    assert found.keys() == case.tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in case.tensors.items())


def test_a_tied_unembedding_is_in_memory_once_and_any_other_stays_its_own():
    case = BY_NAME["llama"]
    W_E = case.tensors["W_E"].mT.contiguous().mT
    tied = Weights.from_tensors(case.spec, case.tensors | {"W_E": W_E, "W_U": W_E.mT.clone()}).load()
    assert tied.W_U.data_ptr() == tied.W_E.data_ptr()
    assert torch.equal(tied.W_U, W_E.mT)
    own = Weights.from_tensors(case.spec, case.tensors).load()
    assert torch.equal(own.W_U, case.tensors["W_U"]) and own.W_U.data_ptr() != own.W_E.data_ptr()


def test_layers_are_read_only_when_asked_for():
    case = BY_NAME["llama"]
    partial = {name: tensor for name, tensor in case.tensors.items() if not name.startswith("L0.")}
    lazy = Weights.from_tensors(case.spec, partial)
    assert lazy.block(1).layer == 1
    assert lazy.fold().block(1).layer == 1
    with pytest.raises(MissingTensor, match=r"L0\.W_Q"):
        lazy.block(0)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_to_changes_the_dtype_of_every_tensor_raw_or_folded(case):
    for weights in (case.weights, case.folded):
        narrow = weights.to(torch.float32)
        assert {tensor.dtype for tensor in narrow.tensors().values()} == {torch.float32}
        agree(output(narrow, case.tokens)[0], output(weights, case.tokens)[0], 2e-4)


@pytest.mark.parametrize("read", ["block", "attention"])
@pytest.mark.parametrize("layer", [-1, 2])
def test_a_layer_the_model_does_not_have_is_refused(layer, read):
    with pytest.raises(NotApplicable, match=f"2 layers .0-based., no layer {layer}"):
        getattr(BY_NAME["llama"].weights, read)(layer)


class Recorder(Mapping[str, Tensor]):
    """Tensors, and the names that were read, in order."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors
        self.names: list[str] = []

    def __getitem__(self, name: str) -> Tensor:
        self.names.append(name)
        return self.tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


@pytest.mark.parametrize(
    "change", [lambda w: w, Weights.fold, lambda w: w.to(torch.float32)], ids=["raw", "fold", "to"]
)
@pytest.mark.parametrize("case", WITH_LAYERS, ids=repr)
def test_attention_is_read_without_a_tensor_of_the_mlp_or_of_another_layer(case, change, unchecked):
    last = case.spec.n_layers - 1
    tensors = Recorder(case.tensors)
    weights = change(Weights.from_tensors(case.spec, tensors))
    own = sorted(name for name in case.tensors if name.startswith(f"L{last}.") and ".mlp." not in name)
    assert tensors.names == []
    found = weights.attention(last)
    assert sorted(tensors.names) == own
    weights.head(f"L{last}H0")
    assert sorted(tensors.names) == sorted(own + own)
    whole = all_tensors(dataclasses.replace(weights.block(last), mlp=None))
    assert len(tensors.names) == 2 * len(own) + sum(name.startswith(f"L{last}.") for name in case.tensors)
    assert found.mlp is None and weights.load().attention(last).mlp is None
    assert all(torch.equal(tensor, whole[name]) for name, tensor in all_tensors(found).items())


# ---- heads ----


@pytest.mark.parametrize("case", WITH_LAYERS, ids=repr)
def test_heads_are_views_of_their_layer(case):
    for block in case.weights.load().blocks:
        for head in block.heads:
            kv = oracle.key_value_head(case.spec, head.index)
            for name, index in (("W_Q", head.index), ("W_O", head.index), ("W_K", kv), ("W_V", kv)):
                mine, whole = getattr(head, name), getattr(block, name)
                assert mine.data_ptr() == whole[index].data_ptr()
                assert mine.shape == whole.shape[1:]
            assert head.OV.left.data_ptr() == head.W_O.data_ptr()
            assert head.name == f"L{block.layer}H{head.index}"


def test_a_head_is_found_by_its_name():
    case = BY_NAME["llama"]
    head = case.weights.head("L1H3")
    assert torch.equal(head.W_Q, case.tensors["L1.W_Q"][3])
    assert torch.equal(head.W_K, case.tensors["L1.W_K"][1])
    assert head_index("L0H2", case.spec) == (0, 2)


@pytest.mark.parametrize("name", ["L2H0", "L0H4", "H3", "L1H", "l1h1", "L1H1 ", "L-1H0"])
def test_a_head_the_model_does_not_have_is_refused_by_name(name):
    with pytest.raises(NotApplicable, match=name):
        BY_NAME["llama"].weights.head(name)


@pytest.mark.parametrize("index", [-1, 4])
def test_a_head_outside_its_layer_is_refused(index):
    with pytest.raises(NotApplicable, match=f"layer 0 has heads 0 to 3, not {index}"):
        BY_NAME["llama"].weights.block(0).head(index)


@pytest.mark.parametrize("case", WITH_LAYERS, ids=repr)
def test_concatenate_and_project_is_the_sum_of_heads(case):
    """`attention(x) = S_post Σ_h (A_h S ⊗ W_OV^h) x`, and what is left over is the same whatever the layer reads."""
    done = run(case.folded, case.tokens)
    ends = [*done.residuals[1:], done.residual]
    for block, layer, x, after in zip(case.folded.blocks, done.layers, done.residuals, ends, strict=True):
        read = layer.attention_scale[:, None] * x
        moved = sum(
            pattern @ later(head.OV_through(tap).apply(read), tap)
            for head, pattern in zip(block.heads, layer.pattern, strict=True)
            for tap in range(block.width("V"))
        )
        if layer.mlp is not None:
            after = after - layer.mlp
        bias = oracle.layer_bias(case.spec, case.arrays, case.recorded, block.layer)
        agree(layer.post_attention_scale[:, None] * moved, after - x - torch.from_numpy(bias))


@pytest.mark.parametrize("case", WITH_LAYERS, ids=repr)
def test_scores_are_the_bilinear_form_of_W_QK_at_each_distance(case):
    """`score[i, j] = scale · x_iᵀ W_QK(i − j) x_j`, where nothing but the residual stream enters queries and keys."""
    dropped = ("b_Q", "b_K", "attention_norm.bias", "q_norm.gain", "k_norm.gain", "q_norm.bias", "k_norm.bias")
    bare = case.with_tensors(**{f"L{i}.{name}": None for i in range(case.spec.n_layers) for name in dropped})
    if not isinstance(case.spec.layers[-1].positions, Rotary):
        learned = bare.spec.learned_positions
        bare = bare.with_layers(positions=None).with_tensors(**({} if learned else {"W_pos": None}))
    done = run(bare.folded, case.tokens)
    for block, layer, residual in zip(bare.folded.blocks, done.layers, done.residuals, strict=True):
        x = layer.attention_scale[:, None] * residual
        for head, scores in zip(block.heads, layer.scores, strict=True):
            n = len(x)
            expected = torch.zeros(n, n, dtype=torch.float64)
            for s, t in product(range(block.width("Q")), range(block.width("K"))):
                for i, j in product(range(s, n), range(t, n)):
                    expected[i, j] += x[i - s] @ head.QK(i - j, (s, t)).apply(x[j - t])
            agree(scores, block.attention.score_scale * expected)


@pytest.mark.parametrize("name", ["llama", "gptj", "qwen3"])
def test_W_QK_of_a_rotary_head_is_not_given_without_a_distance(name):
    with pytest.raises(NotApplicable, match="pass delta="):
        BY_NAME[name].weights.head("L0H1").QK()


def test_W_QK_of_any_other_head_does_not_depend_on_the_distance():
    head = BY_NAME["bloom"].weights.head("L0H1")
    assert torch.equal(head.QK().dense(), head.QK(delta=5.0).dense())


@pytest.mark.parametrize("name", ["llama", "gptj", "neox", "multi_query", "gemma3"])
def test_rotations_combine_by_distance(name):
    """`(R(i) q)ᵀ (R(j) k) = qᵀ R(i − j)ᵀ k`, with the magnitude of both sides in `R(Δ)`."""
    spec = BY_NAME[name].spec
    positions = spec.layers[0].positions
    q, k = torch.randn(2, spec.d_head, dtype=torch.float64)
    for i, j in [(0, 0), (5, 2), (7, 7), (1, 6)]:
        turned = positions.rotate(torch.stack([q, k]), torch.tensor([i, j]))
        agree(turned[0] @ turned[1], q @ positions.matrix(i - j, spec.d_head).T @ k)


# ---- symmetries ----


def changed(weights: Weights, end: dict[str, Tensor | None], blocks: list[dict]) -> Weights:
    """Weights with fields of the ends and of the blocks replaced."""
    ends = dataclasses.replace(weights.ends, **end)
    found = [dataclasses.replace(b, **fields) for b, fields in zip(weights.blocks, blocks, strict=True)]
    return Weights.of_parts(weights.spec, ends, found)


def spread(M: Tensor, bias: Tensor | None) -> Tensor | None:
    """Every head's bias changed by its matrix."""
    return None if bias is None else (M @ bias.unsqueeze(-1)).squeeze(-1)


def query_key_gauge(block: Block, d_head: int) -> Tensor:
    """A matrix per key/value head that scores do not see when it meets its inverse transpose.

    Any invertible one; with rotary, what commutes with every R(n): a rotation and a stretch of each pair; with query
    and key norms, permutations and signs, gains and biases along (an orthogonal matrix would still turn the gain); with
    both, one sign a pair; where the norms centre, one sign a head.
    """
    n_kv, positions = block.W_K.shape[0], block.attention.positions
    if block.q_norm.kind == "layer" and isinstance(positions, Rotary):
        return signs(n_kv, 1)[..., None] * torch.eye(d_head, dtype=torch.float64)
    if not isinstance(positions, Rotary):
        if block.q_norm.kind != "none":
            orders = torch.stack([torch.eye(d_head)[torch.randperm(d_head)] for _ in range(n_kv)]).double()
            return signs(n_kv, 1 if block.q_norm.kind == "layer" else d_head)[..., None] * orders
        return torch.randn(n_kv, d_head, d_head, dtype=torch.float64)
    M, half = torch.randn(n_kv, d_head, d_head, dtype=torch.float64), positions.d_rotary // 2
    M[:, : positions.d_rotary] = M[:, :, : positions.d_rotary] = 0
    if block.q_norm.kind != "none":
        M = torch.diag_embed(M.diagonal(dim1=-2, dim2=-1).sign())
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if positions.interleaved else (i, i + half)
        cos, sin = torch.randn(2, n_kv, dtype=torch.float64)
        if block.q_norm.kind != "none":
            cos, sin = cos.sign(), torch.zeros(n_kv, dtype=torch.float64)
        M[:, a, a], M[:, a, b], M[:, b, a], M[:, b, b] = cos, -sin, sin, cos
    return M


def signs(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).sign()


def norm_along(norm: Norm, M: Tensor) -> Norm:
    """The norm of every head's queries or keys, in the basis that its signed permutation makes."""
    return dataclasses.replace(
        norm, gain=spread(M.abs(), norm.gain), undo=spread(M.abs(), norm.undo), bias=spread(M, norm.bias)
    )


def gauge_changed(block: Block, d_head: int) -> dict[str, Tensor | Norm | None]:
    """`W_Q → M W_Q`, `W_K → M⁻ᵀ W_K`, `W_V → N W_V`, `W_O → W_O N⁻¹`, biases and norms along."""
    M = query_key_gauge(block, d_head)
    N = torch.randn(block.W_V.shape[0], d_head, d_head, dtype=torch.float64)
    if block.conv_Q is not None:  # Coordinates that are mixed by taps of their own keep their axes.
        M, N = signs(len(N), 1, 1) * torch.eye(d_head, dtype=torch.float64), torch.diag_embed(N[:, 0])
    inverse, each = torch.linalg.inv(M).mT, M.repeat_interleave(block.group, 0)
    back = torch.linalg.inv(N).repeat_interleave(block.group, 0)
    return {
        "W_Q": each @ block.W_Q, "b_Q": spread(each, block.b_Q), "W_K": inverse @ block.W_K,
        "b_K": spread(inverse, block.b_K), "W_V": N @ block.W_V, "b_V": spread(N, block.b_V), "W_O": block.W_O @ back,
        "W_QP": None if block.W_QP is None else each @ block.W_QP,
        "W_KP": None if block.W_KP is None else inverse @ block.W_KP,
        "q_norm": norm_along(block.q_norm, each), "k_norm": norm_along(block.k_norm, inverse),
    }  # fmt: skip


@pytest.mark.parametrize("form", ["weights", "folded"])
@pytest.mark.parametrize("case", WITH_LAYERS, ids=repr)
def test_the_inner_basis_of_a_head_is_free(case, form):
    weights = getattr(case, form)
    other = changed(weights, {}, [gauge_changed(block, case.spec.d_head) for block in weights.blocks])
    same_function(other, weights, case.tokens, 1e-11)
    for one, two in zip(other.blocks, weights.blocks, strict=True):
        for a, b in zip(one.heads, two.heads, strict=True):
            agree(a.OV.dense(), b.OV.dense(), 1e-11)
            agree(a.QK(2.0).dense(), b.QK(2.0).dense(), 1e-11)


def random_rotation(d: int, keep_ones: bool) -> Tensor:
    """Orthogonal; with `keep_ones` it leaves the vector of ones, and so the mean, alone."""
    Q = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64)).Q
    if not keep_ones:
        return Q
    basis = torch.linalg.qr(torch.cat([torch.ones(d, 1), torch.randn(d, d - 1)], 1).double()).Q
    inner = torch.block_diag(torch.ones(1, 1), random_rotation(d - 1, False)).double()
    return basis @ inner @ basis.T


def in_another_basis(weights: Weights, M: Tensor) -> Weights:
    """Every matrix that writes to the residual stream gets M on its left, every one that reads M⁻¹ on its right.

    Positions that enter queries and keys only are not in the stream: what reads them (`W_QP, W_KP`) stays.
    """
    back, ends = torch.linalg.inv(M), weights.ends
    written = {"W_E": M @ ends.W_E, "W_U": ends.W_U @ back}
    in_stream = weights.spec.learned_positions
    written["W_pos"] = M @ ends.W_pos if in_stream and ends.W_pos is not None else ends.W_pos
    return changed(weights, written, [_block_in_another_basis(block, M, back) for block in weights.blocks])


def _block_in_another_basis(block: Block, M: Tensor, back: Tensor) -> dict:
    post, mlp, post_mlp = block.post_attention_norm, block.mlp, block.post_mlp_norm
    turn = lambda vector: None if vector is None else vector @ M.T
    fields = {
        "W_Q": block.W_Q @ back, "W_K": block.W_K @ back, "W_V": block.W_V @ back, "W_O": M @ block.W_O,
        "b_O": turn(block.b_O), "post_attention_norm": dataclasses.replace(post, bias=turn(post.bias)),
        "W_QP": block.W_Q if block.W_QP is None else block.W_QP,
        "W_KP": block.W_K if block.W_KP is None else block.W_KP,
    }  # fmt: skip
    if mlp is None:
        return fields
    gate = None if mlp.W_gate is None else mlp.W_gate @ back
    router = {"W_router": mlp.W_router @ back} if isinstance(mlp, Experts) else {}
    mlp = dataclasses.replace(
        mlp, W_in=mlp.W_in @ back, W_gate=gate, W_out=M @ mlp.W_out, b_out=turn(mlp.b_out), **router
    )  # fmt: skip
    return {**fields, "mlp": mlp, "post_mlp_norm": dataclasses.replace(post_mlp, bias=turn(post_mlp.bias))}


def without_post_gains(case: Case) -> Case:
    """A gain after a part scales coordinates of the stream, so it singles out their basis: here they are one."""
    names = [name for name in case.tensors if ".post_" in name and name.endswith(".gain")]
    return case.with_tensors(**{name: torch.ones_like(case.tensors[name]) for name in names})


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_rotation_of_the_residual_stream_changes_nothing(case):
    """Of folded weights: norms only scale then. A LayerNorm still takes the mean for its σ, so ones stay fixed."""
    folded = without_post_gains(case).folded
    Q = random_rotation(case.spec.d_model, keep_ones=case.spec.norm == "layer")
    same_function(in_another_basis(folded, Q), folded, case.tokens)


@pytest.mark.parametrize("case", [case for case in CASES if case.spec.norm == "none"], ids=repr)
def test_any_invertible_change_of_the_residual_basis_changes_nothing_where_there_is_no_norm(case):
    M = torch.randn(case.spec.d_model, case.spec.d_model, dtype=torch.float64)
    same_function(in_another_basis(case.weights, M), case.weights, case.tokens, 1e-10)


@pytest.mark.parametrize("name", ["three_layers_rotary_rms", "olmo"])
def test_a_norm_does_see_a_change_of_basis_that_is_no_rotation(name):
    case = BY_NAME[name]
    M = torch.diag(torch.linspace(0.5, 2, case.spec.d_model, dtype=torch.float64))
    a, b = (output(weights, case.tokens)[0] for weights in (in_another_basis(case.folded, M), case.folded))
    assert (a - b).abs().max() > 1e-2


def head_permutation(spec: Spec) -> tuple[Tensor, Tensor]:
    """A permutation of heads that keeps groups together, and that of their key/value heads."""
    kv = torch.randperm(spec.n_key_value_heads)
    inside = [torch.randperm(spec.group) + spec.group * k for k in kv.tolist()]
    return torch.cat(inside), kv


def with_heads_permuted(case: Case, heads: Tensor, kv: Tensor) -> Case:
    """Every tensor that has heads, or key/value heads, in their new order."""
    orders = dict.fromkeys(("W_Q", "b_Q", "W_O", "sinks"), heads)
    orders |= dict.fromkeys(("W_K", "b_K", "W_V", "b_V", "smear", "conv_K", "conv_V"), kv) | {"conv_Q": heads}
    orders |= {f"{side}_norm.{vector}": order for side, order in (("q", heads), ("k", kv)) for vector in VECTORS}
    moved = dict(case.tensors)
    for name, tensor in case.tensors.items():
        order = orders.get(name.split(".", 1)[-1])
        if order is not None and not ("_norm." in name and tensor.dim() == 1):
            moved[name] = tensor[order]
    layers = []
    for layer in case.spec.layers:
        if isinstance(layer.positions, Alibi):
            slopes = tuple(layer.positions.slopes[h] for h in heads.tolist())
            layer = dataclasses.replace(layer, positions=Alibi(slopes))
        layers.append(layer)
    return dataclasses.replace(case, spec=dataclasses.replace(case.spec, layers=tuple(layers)), tensors=moved)


@pytest.mark.parametrize("case", WITH_LAYERS, ids=repr)
def test_permuting_heads_permutes_patterns_and_keeps_logits(case):
    heads, kv = head_permutation(case.spec)
    (after, permuted), (before, patterns) = (
        output(c.weights, case.tokens) for c in (with_heads_permuted(case, heads, kv), case)
    )
    agree(after, before)
    for mine, theirs in zip(permuted, patterns, strict=True):
        agree(mine, theirs[heads])


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_permuting_the_vocabulary_permutes_the_logits(case):
    order = torch.randperm(case.spec.d_vocab)
    moved = {"W_E": case.tensors["W_E"][:, order], "W_U": case.tensors["W_U"][order]}
    if "b_U" in case.tensors:
        moved["b_U"] = case.tensors["b_U"][order]
    permuted = output(case.with_tensors(**moved).weights, order.argsort()[case.tokens])[0]
    agree(permuted, output(case.weights, case.tokens)[0][:, order])


@pytest.mark.parametrize("case", [case for case in CASES if case.spec.d_mlp], ids=repr)
def test_permuting_neurons_changes_nothing(case):
    order, moved = torch.randperm(case.spec.d_mlp), {}
    for name, tensor in case.tensors.items():
        if name.split(".mlp.")[-1] in ("W_in", "W_gate"):
            moved[name] = tensor[..., order, :]
        if name.split(".mlp.")[-1] in ("b_in", "b_gate", "W_out"):
            moved[name] = tensor[..., order]
    same_function(case.with_tensors(**moved).weights, case.weights, case.tokens)


@pytest.mark.parametrize("case", [case for case in CASES if case.spec.n_experts], ids=repr)
def test_experts_that_are_all_alike_are_one_mlp(case):
    """Their shares sum to one, whichever are chosen."""
    stacked = {name for name in case.tensors if ".mlp." in name and "router" not in name}
    alike = case.with_tensors(**{name: case.tensors[name][:1].expand_as(case.tensors[name]) for name in stacked})
    routers = {name: None for name in case.tensors if "_router" in name}
    dense = case.with_tensors(**{name: case.tensors[name][0] for name in stacked}, **routers)
    spec = dataclasses.replace(case.spec, n_experts=None, experts_per_token=None)
    same_function(alike.weights, dataclasses.replace(dense, spec=spec).weights, case.tokens)


@pytest.mark.parametrize("case", [case for case in CASES if case.spec.n_experts], ids=repr)
def test_permuting_experts_changes_nothing(case):
    order = torch.randperm(case.spec.n_experts)
    moved = {name: tensor[order] for name, tensor in case.tensors.items() if ".mlp." in name}
    same_function(case.with_tensors(**moved).weights, case.weights, case.tokens)


# ---- the spec ----


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_spec_survives_json(case):
    for spec in (case.spec, case.folded.spec):
        assert Spec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_an_unknown_field_of_a_config_is_refused_by_name():
    with pytest.raises(CheckpointError, match="unknown field 'd_modle'"):
        Spec.from_dict({**BY_NAME["llama"].spec.to_dict(), "d_modle": 3})


@pytest.mark.parametrize("field", ["d_vocab", "d_model", "n_layers", "d_head"])
def test_a_missing_field_of_a_config_is_named(field):
    plain = BY_NAME["llama"].spec.to_dict()
    del plain[field]
    with pytest.raises(CheckpointError, match=f"config: .*{field}"):
        Spec.from_dict(plain)


@pytest.mark.parametrize(
    "wrong", [{"kind": "spiral"}, {"amplitude": 1.0}, {"kind": "rotary", "d_rotary": 4, "turns": 2}, 3], ids=str
)
def test_positions_a_config_cannot_mean_are_refused(wrong):
    plain = BY_NAME["llama"].spec.to_dict()
    plain["layers"][0]["positions"] = wrong
    with pytest.raises(CheckpointError, match=r"^config: "):
        Spec.from_dict(plain)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"d_model": 0}, "d_model is 0, must be a whole number, at least 1"),
        ({"n_layers": 3}, "3 layers, but facts for 2 of them"),
        ({"n_heads": 5}, "n_heads 5 is no multiple of n_key_value_heads 2"),
        ({"norm": "batch"}, "norm"),
        ({"activation": "sine"}, "activation"),
    ],
    ids=str,
)
def test_a_config_that_contradicts_itself_is_refused(change, message, unchecked):
    with pytest.raises(CheckpointError, match=message):
        Spec.from_dict({**BY_NAME["llama"].spec.to_dict(), **change})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"n_experts": None}, "n_experts and experts_per_token go together"),
        ({"experts_per_token": None}, "n_experts and experts_per_token go together"),
        ({"n_experts": 0}, "n_experts is 0, must be a whole number, at least 1"),
        ({"n_experts": 2.0}, r"n_experts is 2\.0, must be a whole number"),
        ({"experts_per_token": 0}, "experts_per_token is 0, must be a whole number, at least 1"),
        ({"experts_per_token": True}, "experts_per_token is True, must be a whole number"),
        ({"experts_per_token": 6}, "6 of 5 experts with d_mlp 7 is no MLP"),
        ({"d_mlp": None}, "3 of 5 experts with d_mlp None is no MLP"),
        ({"mlp_limit": None}, "mlp_limit goes with the activation silu_clamped, and only with it"),
        ({"activation": "silu"}, "mlp_limit goes with the activation silu_clamped, and only with it"),
        ({"mlp_limit": 0}, "mlp_limit is 0, must be a finite number above 0"),
        ({"mlp_limit": math.inf}, "mlp_limit is inf, must be a finite number"),
        ({"mlp_limit": "7"}, "mlp_limit is '7', must be a finite number"),
        ({"qk_norm": "batch"}, "qk_norm 'batch' is not one of none, layer, rms"),
        ({"qk_norm": "layer", "qk_norm_across_heads": True}, "qk_norm_across_heads goes with the qk_norm rms"),
        ({"qk_norm_across_heads": 1}, "qk_norm_across_heads is 1, must be true or false"),
        ({"pre_norm": None}, "pre_norm is None, must be true or false"),
        ({"prepend_bos": "yes"}, "prepend_bos is 'yes', must be true or false"),
    ],
    ids=str,
)
def test_experts_and_norms_that_a_config_cannot_mean_are_refused(change, message, unchecked):
    with pytest.raises(CheckpointError, match=f"^config: {message}"):
        Spec.from_dict({**BY_NAME["gpt_oss"].spec.to_dict(), **change})


def test_the_ends_of_a_zero_layer_model_are_the_whole_of_it():
    case = BY_NAME["zero_layers"]
    assert isinstance(case.weights.ends, Ends)
    assert case.weights.blocks == []
    table = (case.weights.W_U @ case.weights.W_E).numpy()
    agree(output(case.weights, case.tokens)[0], np.array([table[:, token] for token in case.tokens]))


def test_a_head_has_the_biases_of_its_own_queries_keys_and_values():
    one = BY_NAME["qwen2"]
    head = one.weights.head("L1H3")  # four heads, two key/value heads
    for found, name, index in ((head.b_Q, "b_Q", 3), (head.b_K, "b_K", 1), (head.b_V, "b_V", 1)):
        agree(found, one.tensors[f"L1.{name}"][index])
