"""Families with LayerNorm: tensors as older checkpoints name them, and configs that are refused by name."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

import pathsum
from cases import agree
from families.all_cases import CASES, made
from pathsum.errors import CheckpointError

BY_NAME = {case.name: case for case in CASES}


def renamed(tensors: dict[str, Tensor], *changes: tuple[str, str]) -> dict[str, Tensor]:
    found = {}
    for name, tensor in tensors.items():
        for pattern, other in changes:
            name = re.sub(pattern, other, name)
        found[name] = tensor
    return found


def with_buffers(tensors: dict[str, Tensor], *names: str) -> dict[str, Tensor]:
    return tensors | {name: torch.ones(1, 1, 20, 20).tril() for name in names}


OLDER = {
    "gpt_neo": lambda t: with_buffers(
        t, "transformer.h.1.attn.attention.bias", "transformer.h.1.attn.attention.masked_bias"
    ),
    "gptj": lambda t: with_buffers(
        t, "transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias", "transformer.h.0.attn.embed_positions"
    ),
    "gpt_neox": lambda t: with_buffers(
        renamed(t, ("^lm_head", "embed_out")),
        "gpt_neox.layers.2.attention.bias", "gpt_neox.layers.2.attention.masked_bias",
        "gpt_neox.layers.2.attention.rotary_emb.inv_freq",
    ),
    "gpt_neox_sequential": lambda t: renamed(t, ("^lm_head", "embed_out")),
    "opt": lambda t: renamed(t, (r"^model\.", "")),
    "bloom": lambda t: {name: x for name, x in renamed(t, (r"^transformer\.", "")).items() if "lm_head" not in name},
    "falcon": lambda t: with_buffers(t, "transformer.h.0.self_attention.rotary_emb.inv_freq"),
    "phi": lambda t: with_buffers(t, "model.layers.0.self_attn.rotary_emb.inv_freq"),
}  # fmt: skip


@pytest.mark.parametrize("name", OLDER)
def test_older_names_and_buffers_give_the_same_model(name):
    found = made(BY_NAME[name])
    model = found.reference.model
    tensors = OLDER[name](dict(model.state_dict()))
    assert set(tensors) != set(model.state_dict()), "nothing is older here"
    opened = pathsum.open(tensors, config=model.config.to_dict())
    agree(pathsum.run(opened, found.tokens, dtype=torch.float64).logits, found.reference.logits, 1e-10)


def test_halves_are_widened_before_arithmetic():
    """The embedding's norm of BLOOM and the projections of OPT, from bfloat16."""
    for name in ("bloom", "opt_projected"):
        model = made(BY_NAME[name]).reference.model
        halves = {key: tensor.bfloat16() for key, tensor in model.state_dict().items()}
        exact = pathsum.open({key: tensor.double() for key, tensor in halves.items()}, config=model.config.to_dict())
        W_E = pathsum.open(halves, config=model.config.to_dict()).weights.W_E
        assert W_E.dtype == torch.float32
        agree(W_E, exact.weights.W_E, 1e-6)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gpt_neo", {"attention_layers": None, "attention_types": [[["global", "local"], 3]]}, "attention_types gives"),
    ("gpt_neo", {"attention_layers": None, "attention_types": [[["global", ["local"]], 2]]}, "attention_types gives"),
    ("gpt_neo", {"attention_layers": None, "attention_types": [[[], 10**12], [["local"], 10**12]]}, "attention_types"),
    ("gpt_neo", {"attention_types": 3}, "attention_types 3 is no list"),
    ("gpt_neo", {"attention_layers": ["local"] * 4}, "attention_layers .* are not what attention_types says"),
    ("gptj", {"rotary_dim": 5}, "rotary_dim is 5, must be even"),
    ("gptj", {"rotary_dim": 12}, "rotary_dim is 12, must be even and at most the 10 of a head"),
    ("gptj", {"rotary_dim": None}, "rotary_dim"),
    ("gpt_neox", {"rope_parameters": {"partial_rotary_factor": 0.4}}, "partial_rotary_factor 0.4 of d_head 8"),
    ("gpt_neox", {"rope_parameters": {"rope_type": "proportional"}}, "rope_type 'proportional'"),
    ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before is False"),
    ("opt", {"_remove_final_layer_norm": True}, "_remove_final_layer_norm is True"),
    ("opt", {"activation_function": "gelu_10"}, "activation_function 'gelu_10' is not one of"),
    ("bloom", {"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_layernorm is True"),
    ("bloom", {"slow_but_exact": True, "pretraining_tp": 2}, "slow_but_exact with pretraining_tp"),
    ("falcon", {"alibi": True}, "alibi is True.*bfloat16"),
    ("falcon", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn is 2"),
    ("falcon_new", {"parallel_attn": False}, "parallel_attn is False"),
    ("falcon_new", {"num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn is 3"),
    ("stablelm", {"hidden_act": "mish"}, "hidden_act 'mish' is not one of"),
]


@pytest.mark.parametrize(("name", "changes", "said"), REFUSED, ids=[f"{n}-{next(iter(c))}" for n, c, _ in REFUSED])
def test_what_cannot_be_exact_is_refused_by_name(name, changes, said):
    model = made(BY_NAME[name]).reference.model
    with pytest.raises(CheckpointError, match=said):
        pathsum.open(dict(model.state_dict()), config=model.config.to_dict() | changes)
