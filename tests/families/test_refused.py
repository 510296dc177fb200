"""What checkpoints of Llama's kin are refused for, and that it is named."""

import pytest

import pathsum
from families.all_cases import CASES, made
from pathsum.errors import CheckpointError, MissingTensor

BY_NAME = {case.name: case for case in CASES}


def opened(name, changes=None, without="", more=""):
    """A case's model in memory with a config that differs, or tensors left out or given twice."""
    reference = made(BY_NAME[name]).reference.model
    stored = {key: tensor for key, tensor in reference.state_dict().items() if key != without}
    if more:
        stored[more] = stored["model.norm.weight"].clone()
    return pathsum.open(stored, config={**reference.config.to_dict(), **(changes or {})})


@pytest.mark.parametrize(
    ("name", "changes", "match"),
    [
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.25}}, "partial_rotary_factor is 0.25"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_parameters is .* but rope_scaling"),
        ("mistral", {"layer_types": ["full_attention"] * 3}, "layer_types and sliding_window disagree"),
        ("qwen3", {"layer_types": ["chunked_attention"] * 3}, "layer_types has 'chunked_attention'"),
        ("qwen3", {"use_sliding_window": False}, "layer_types has sliding_attention, but sliding_window is null"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
        ("gemma3_text", {"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters has 'rope_type'"),
        ("smollm3", {"no_rope_layers": [1, 1, 2, 1]}, "no_rope_layers has 2"),
        ("smollm3", {"no_rope_layers": [1, 1]}, "no_rope_layers must be a list of 4"),
        ("phi3", {"rope_parameters": {"rope_theta": -1, "rope_type": "default"}}, "rope_theta is -1"),
        ("granite", {"logits_scaling": 0}, "logits_scaling is 0"),
        ("gpt_oss", {"swiglu_alpha": 1.0}, "swiglu_alpha is 1.0"),
        ("mixtral", {"num_experts_per_tok": 6}, "6 of 5 experts"),
        ("mixtral", {"num_local_experts": 4}, "not of the same model"),
    ],
)
def test_a_config_that_is_not_computed_is_refused_by_name(name, changes, match):
    with pytest.raises(CheckpointError, match=match):
        opened(name, changes).weights.load()


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("llama", "model.norm.weight"),
        ("llama", "model.layers.1.input_layernorm.weight"),
        ("llama_mqa_biases", "model.layers.1.self_attn.k_proj.bias"),
        ("qwen3", "model.layers.0.self_attn.q_norm.weight"),
        ("gemma2", "model.layers.2.pre_feedforward_layernorm.weight"),
        ("gpt_oss", "model.layers.1.self_attn.sinks"),
        ("gpt_oss", "model.layers.2.mlp.experts.down_proj_bias"),
        ("mixtral", "model.layers.0.mlp.gate.weight"),
    ],
)
def test_norms_sinks_routers_and_single_biases_may_not_be_missing(name, tensor):
    """Without them the model would run, and its numbers be another model's."""
    with pytest.raises(MissingTensor, match=r"tensor .* is missing"):
        opened(name, without=tensor)


@pytest.mark.parametrize("tensor", ["model.layers.0.self_attn.q_proj.bias", "model.layers.0.input_layernorm.bias"])
def test_tensors_that_the_config_says_are_not_there_have_no_place(tensor):
    with pytest.raises(CheckpointError, match=r"\.bias has no place in a llama model"):
        opened("llama", more=tensor)
