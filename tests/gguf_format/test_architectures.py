"""A GGUF file is the model it was written from: spec, every tensor, logits; nothing that matters is ignored."""

import dataclasses

import numpy as np
import pytest
import torch

from cases import agree
from gguf_files import BY_NAME, CASES, GgufCase
from pathsum.errors import CheckpointError, MissingTensor, UnsupportedFamily
from pathsum.runs.run import run
from pathsum.weights.gguf import open_gguf
from pathsum.weights.model import Model
from pathsum.weights.weights import Weights

TOKENS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8])
each = pytest.mark.parametrize("case", CASES, ids=repr)


def logits(spec, tensors):
    return run(Model("written", Weights.from_tensors(spec, tensors)), TOKENS, dtype=torch.float64).logits


def opened_logits(path):
    opened = open_gguf(path)
    return logits(opened.spec, opened.tensors)


@each
def test_the_spec_is_the_one_the_file_was_written_for(case, tmp_path):
    spec = open_gguf(case.write(tmp_path / "m.gguf")).spec
    for ours, theirs in zip(spec.layers, case.spec.layers, strict=True):
        agree(facts(ours.positions), facts(theirs.positions))
        assert dataclasses.replace(ours, positions=None) == dataclasses.replace(theirs, positions=None)
    assert dataclasses.replace(spec, layers=case.spec.layers) == case.spec


def facts(positions):
    """Numbers of a layer's positions; Rotary's frequencies as they are used."""
    if positions is None:
        return []
    if hasattr(positions, "slopes"):
        return positions.slopes
    frequencies = positions.angles(torch.tensor([1])).flatten().tolist()
    return [*frequencies, positions.d_rotary, positions.magnitude, float(positions.interleaved)]


@each
def test_every_tensor_and_the_logits_are_those_it_was_written_from(case, tmp_path):
    opened = open_gguf(case.write(tmp_path / "m.gguf"))
    assert set(opened.tensors) == set(case.tensors) == set(Weights.from_tensors(opened.spec, opened.tensors).tensors())
    # BLOOM's norm of the embeddings is worked out in float32; everything else is copied, or scaled by powers of two.
    tolerance = 1e-6 if case.architecture == "bloom" else 1e-12
    for name, tensor in opened.tensors.items():
        assert tensor.dtype == torch.float32
        agree(tensor, case.tensors[name], tolerance)
    agree(logits(opened.spec, opened.tensors), logits(case.spec, case.tensors), tolerance)


CHANGES = [
    ("llama", ".rope.freq_base", 600.0), ("llama", ".rope.scale_linear", 2.0), ("llama", ".rope.scaling.factor", 2.0),
    ("llama", ".rope.scaling.attn_factor", 1.5), ("llama", ".attention.layer_norm_rms_epsilon", 0.5),
    ("llama-linear", ".rope.scaling.type", "none"), ("llama-linear", ".rope.scaling.factor", 3.0),
    ("llama-yarn", ".rope.scaling.type", "linear"), ("llama-yarn", ".rope.scaling.factor", 9.0),
    ("llama-yarn", ".rope.scaling.original_context_length", 640), ("llama-yarn", ".rope.scaling.yarn_beta_slow", 4.0),
    ("llama-yarn-told", ".rope.scaling.yarn_beta_fast", 1.9), ("llama-yarn", ".rope.scaling.yarn_attn_factor", 1.0),
    ("mixtral", ".expert_used_count", 3), ("granite", ".attention.scale", 0.4), ("granite", ".embedding_scale", 4.0),
    ("granite", ".residual_scale", 0.5), ("granite", ".logit_scale", 2.0), ("granite", ".attention.scale", None),
    ("granite", ".rope.scaling.finetuned", False), ("phi3", ".attention.sliding_window", 4),
    ("phi3", ".attention.sliding_window", 0), ("gemma2", ".attn_logit_softcapping", 2.5),
    ("gemma2", ".final_logit_softcapping", 2.5), ("gemma2", ".attention.sliding_window", 3),
    ("gemma2", ".attention.sliding_window_pattern", 3), ("gemma2", ".final_logit_softcapping", None),
    ("gemma2", ".attn_logit_softcapping", None), ("gemma2", ".rope.freq_base_swa", 90.0),
    ("gemma3", ".rope.freq_base_swa", 90.0), ("gemma3", ".rope.freq_base", 90.0),
    ("gemma3", ".rope.scaling.factor", 2.0),
    ("gemma3", ".attention.sliding_window", 3), ("gemma3", ".attention.sliding_window_pattern", 2),
    ("gemma3", ".final_logit_softcapping", 2.5), ("gptneox", ".use_parallel_residual", False),
    ("gptneox", ".rope.dimension_count", 4), ("gptneox", ".attention.layer_norm_epsilon", 0.5),
    ("olmo3", ".attention.sliding_window_pattern", [True, False, False]), ("olmo3", ".attention.sliding_window", 3),
    ("olmo3", ".rope.freq_base_swa", 90.0), ("gpt-oss", ".attention.sliding_window", 3),
    ("phi3-long", ".rope.scaling.attn_factor", 1.5), ("bloom", ".attention.layer_norm_epsilon", 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("name", "key", "value"), CHANGES)
def test_a_key_that_is_read_changes_the_numbers(name, key, value, tmp_path):
    case = BY_NAME[name]
    before = opened_logits(case.write(tmp_path / "before.gguf"))
    after = opened_logits(case.write(tmp_path / "after.gguf", {key: value}))
    assert (after - before).abs().max() > 1e-6 * before.abs().max()


@pytest.mark.parametrize("name", ["rope_freqs.weight", "rope_factors_short.weight"])
def test_factors_in_tensors_change_the_numbers(name, tmp_path):
    case = BY_NAME["llama-factors" if name == "rope_freqs.weight" else "phi3-long"]
    before = opened_logits(case.write(tmp_path / "before.gguf"))
    other = dataclasses.replace(case, others={**case.others, name: case.others[name] * 3})
    after = opened_logits(other.write(tmp_path / "after.gguf"))
    assert (after - before).abs().max() > 1e-6 * before.abs().max()


REFUSED = [
    ("llama", ".attention.sliding_window", 7), ("llama", ".attention.clamp_kqv", 1.0),
    ("llama", ".attention.scale", 0.5),
    ("llama", ".attention.max_alibi_bias", 8.0), ("llama", ".logit_scale", 2.0), ("llama", ".attention.causal", False),
    ("llama", ".final_logit_softcapping", 30.0), ("llama", ".attn_logit_softcapping", 50.0),
    ("llama", ".rope.scaling.type", "longrope"), ("llama", ".rope.scaling.type", "dynamic"),
    ("llama", ".something_new", 1), ("llama", ".attention.key_length_mla", 4),
    ("mixtral", ".expert_weights_scale", 2.0),
    ("mixtral", ".expert_gating_func", 2), ("mixtral", ".expert_weights_norm", False),
    ("granite", ".expert_used_count", 2),
    ("llama-yarn", ".rope.scaling.yarn_log_multiplier", 0.1), ("llama-yarn", ".rope.scaling.yarn_ext_factor", 0.5),
    ("qwen2", ".leading_dense_block_count", 1), ("gemma2", ".nextn_predict_layers", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "key", "value"), REFUSED)
def test_a_key_that_would_be_ignored_is_refused_by_name(name, key, value, tmp_path):
    path = BY_NAME[name].write(tmp_path / "m.gguf", {key: value})
    with pytest.raises(UnsupportedFamily, match=key[1:].replace(".", r"\.")):
        open_gguf(path)


@pytest.mark.parametrize("base", [0.0, -10.0])
def test_a_base_whose_powers_are_no_frequencies_is_refused(base, tmp_path):
    path = BY_NAME["llama"].write(tmp_path / "m.gguf", {".rope.freq_base": base})
    with pytest.raises(CheckpointError, match=r"rope\.freq_base is .*, so it must be above 0"):
        open_gguf(path)


HARMLESS = [
    ("llama", {".vocab_size": 11, "general.name": "x", ".tensor_data_layout": "Meta AI original pth"}),
    (
        "llama",
        {".rope.scaling.finetuned": True, ".expert_count": 0, ".expert_used_count": 0, ".attention.causal": True},
    ),
    ("llama", {".attention.head_count": [4, 4], ".attention.head_count_kv": [2, 2], ".attention.sliding_window": 0}),
    ("mixtral", {".expert_weights_scale": 1.0, ".expert_gating_func": 1, ".expert_group_count": 1}),
    ("qwen3", {".attention.layer_norm_epsilon": 0.5, ".pooling_type": 3, ".attention.clamp_kqv": 0.0}),
]


@pytest.mark.parametrize(("name", "metadata"), HARMLESS)
def test_keys_that_change_nothing_are_let_pass(name, metadata, tmp_path):
    case = BY_NAME[name]
    agree(opened_logits(case.write(tmp_path / "m.gguf", metadata)), logits(case.spec, case.tensors))


def test_a_tensor_that_would_be_ignored_is_refused_by_name(tmp_path):
    case = BY_NAME["qwen2"]
    stray = dataclasses.replace(case, others={"rope_freqs.weight": np.ones(2, np.float32)})
    with pytest.raises(UnsupportedFamily, match=r"tensor rope_freqs\.weight has no place in a qwen2 model"):
        open_gguf(stray.write(tmp_path / "m.gguf"))


@each
def test_a_tensor_that_is_missing_is_named(case, tmp_path):
    optional = ("bias", "rope_f", "output.weight", "attn_norm_2", "q_norm", "k_norm")
    needed = [name for name in case.arrays() if not any(part in name for part in optional)]
    needed += ["blk.0.attn_k_norm.weight"] if case.architecture in ("qwen3", "gemma3", "olmo2") else []
    for name in needed:
        path = case.write(tmp_path / "m.gguf", without=(name,))
        # Without the fused projection the separate ones are looked for.
        with pytest.raises(MissingTensor, match=name.replace("attn_qkv", "attn_q").replace(".", r"\.")):
            open_gguf(path)


def test_a_tensor_of_another_shape_is_named_with_both(tmp_path):
    case = BY_NAME["llama"]
    wrong = dataclasses.replace(case, others={"blk.1.attn_k.weight": case.arrays()["blk.1.attn_q.weight"]})
    with pytest.raises(MissingTensor, match=r"blk\.1\.attn_k\.weight has shape \(16, 16\), .* \(8, 16\)"):
        open_gguf(wrong.write(tmp_path / "m.gguf"))


WRONG = [
    ("llama", ".block_count", 2**31, "block_count is 2147483648, but the file has"),
    ("llama", ".block_count", 0, "block_count is 0"),
    ("llama", ".attention.head_count", 0, "head_count is 0"),
    ("llama", ".attention.head_count", [4, 2], "head_count is"),
    ("llama", ".attention.head_count", 2**31, "key_length is 0"),
    ("llama", ".attention.head_count_kv", 3, "blk.0.attn_k.weight"),
    ("llama", ".attention.value_length", 8, "values of 8 coordinates with keys of 4"),
    ("llama", ".context_length", None, "llama.context_length is missing"),
    ("llama", ".attention.layer_norm_rms_epsilon", None, "layer_norm_rms_epsilon is missing"),
    ("llama", ".attention.layer_norm_rms_epsilon", float("nan"), "must be a finite number"),
    ("llama", ".rope.freq_base", -1.0, "base is -1.0"),
    ("llama", ".rope.dimension_count", 2, "must be d_head 4 here"),
    ("qwen2", ".rope.dimension_count", 3, "rope.dimension_count is 3"),
    ("qwen2", ".rope.dimension_count", 2**31, "rope.dimension_count is 2147483648"),
    ("llama-yarn", ".rope.freq_base", 1.0, "freq_base is 1.0"),
    ("llama-yarn", ".rope.scaling.yarn_beta_fast", 0.0, "yarn_beta"),
    ("llama-yarn", ".rope.scaling.factor", -2.0, "factor"),
    ("mixtral", ".expert_used_count", 9, "9 of 5 experts"),
    ("gemma3", ".attention.sliding_window_pattern", [True], "must be 7 times"),
    ("gptneox", ".use_parallel_residual", None, "use_parallel_residual is missing"),
    ("llama", "general.type", "adapter", "general.type is 'adapter'"),
    ("llama", "split.count", 3, "split.count is 3"),
    ("llama", "tokenizer.ggml.bos_token_id", 11, "bos_token_id is 11"),
]


@pytest.mark.parametrize(("name", "key", "value", "message"), WRONG)
def test_metadata_that_makes_no_model_is_one_clear_error(name, key, value, message, tmp_path):
    path = BY_NAME[name].write(tmp_path / "m.gguf", {key: value})
    with pytest.raises(CheckpointError, match=message) as error:
        open_gguf(path)
    assert str(path) in str(error.value)


def test_an_unknown_architecture_is_refused_with_what_is_known(tmp_path):
    case = BY_NAME["llama"]
    path = dataclasses.replace(case, architecture="gptj").write(tmp_path / "m.gguf")
    with pytest.raises(UnsupportedFamily, match="'gptj' is not known here; known are bloom, falcon, gemma"):
        open_gguf(path)


@pytest.mark.parametrize(("n_layers", "scale"), [(2, 6**-0.5), (46, (16 // 4) ** -0.5)])
def test_gemma_2_27b_scales_its_scores_by_the_width_of_the_model(n_layers, scale, tmp_path):
    case = deep("gemma2", n_layers)
    assert {layer.score_scale for layer in open_gguf(case.write(tmp_path / "m.gguf")).spec.layers} == {scale}


def deep(name: str, n_layers: int) -> GgufCase:
    """The case with its first layer again and again."""
    case = BY_NAME[name]
    again = {f"L{i}.{key[3:]}": one for i in range(n_layers) for key, one in case.tensors.items() if key[:3] == "L0."}
    ends = {key: one for key, one in case.tensors.items() if "L" not in key}
    spec = dataclasses.replace(case.spec, n_layers=n_layers, layers=case.spec.layers[:1] * n_layers)
    return dataclasses.replace(
        case, spec=spec, tensors={**ends, **again}, metadata={**case.metadata, ".block_count": n_layers}
    )
