"""State dicts of TransformerLens against a model of its conventions, over every field of its config."""

import dataclasses
import json
from typing import Any

import pytest
import torch

import pathsum
from cases import agree
from families import lens_reference
from families.test_any_config import VALUES
from pathsum.errors import CheckpointError, MissingTensor
from pathsum.runs.forward import forward, logits
from pathsum.weights.families.config import Config
from pathsum.weights.families.transformer_lens import HONOURED, REFUSED, TRANSFORMER_LENS

TOKENS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])
SIZES = {"n_layers": 2, "d_model": 12, "n_ctx": 11, "d_head": 4, "d_vocab": 13}
ATTN_ONLY = {**SIZES, "n_heads": 3, "attn_only": True, "normalization_type": None}
MLP = {**SIZES, "n_heads": 3, "act_fn": "gelu"}
CONFIGS: dict[str, dict[str, Any]] = {
    "attn_only": ATTN_ONLY,
    "no_layers": {**ATTN_ONLY, "n_layers": 0},
    "attn_only_ln": {**ATTN_ONLY, "normalization_type": "LN", "n_heads": 5, "d_head": 6},
    "attn_only_folded": {**ATTN_ONLY, "normalization_type": "LNPre"},
    "shortformer": {**ATTN_ONLY, "positional_embedding_type": "shortformer"},
    "shortformer_ln": {**MLP, "positional_embedding_type": "shortformer", "act_fn": "gelu_new"},
    "defaults": {**SIZES, "act_fn": "relu"},
    "minus_ones": {**SIZES, "n_heads": -1, "act_fn": "silu", "d_mlp": 7, "attn_scale": -1.0, "d_vocab_out": 13,
                   "attn_scores_soft_cap": -1.0, "output_logits_soft_cap": 0.0},
    "rms": {**MLP, "normalization_type": "RMS", "eps": 0.1, "final_rms": True},
    "rms_folded": {**MLP, "normalization_type": "RMSPre", "use_normalization_before_and_after": True},
    "normed_twice": {**MLP, "normalization_type": "RMS", "use_normalization_before_and_after": True},
    "no_norm_mlp": {**MLP, "normalization_type": None},
    "rotary": {**MLP, "positional_embedding_type": "rotary", "rotary_dim": 2, "rotary_base": 50},
    "rotary_pairs": {**ATTN_ONLY, "positional_embedding_type": "rotary", "rotary_adjacent_pairs": True},
    "alibi": {**MLP, "positional_embedding_type": "alibi", "post_embedding_ln": True, "n_heads": 3},
    "parallel": {**MLP, "parallel_attn_mlp": True},
    "gated": {**MLP, "gated_mlp": True, "act_fn": "silu", "normalization_type": "RMS"},
    "local": {**ATTN_ONLY, "use_local_attn": True, "attn_types": ["local", "global"], "window_size": 3},
    "scales": {**ATTN_ONLY, "attn_scale": 0.7, "scale_attn_by_inverse_layer_idx": True},
    "unscaled": {**ATTN_ONLY, "use_attn_scale": False, "attn_scale": 3.0},
    "grouped": {**MLP, "n_heads": 6, "n_key_value_heads": 2, "use_qk_norm": True, "normalization_type": "RMS"},
    "one_key": {**MLP, "n_key_value_heads": 1},
    "capped": {**MLP, "attn_scores_soft_cap": 0.5, "output_logits_soft_cap": 1.5},
}  # fmt: skip
parametrized = pytest.mark.parametrize("cfg", CONFIGS.values(), ids=CONFIGS)


def check(opened, cfg, tensors):
    expected = lens_reference.run(cfg, tensors, TOKENS)
    run = pathsum.run(opened, TOKENS, dtype=torch.float64)
    agree(run.logits, expected.logits, 1e-12)
    trace = forward(run.weights, TOKENS, record=True)
    for ours, theirs in zip(trace.residuals, expected.residuals, strict=True):
        agree(ours, theirs, 1e-12)
    for ours, theirs in zip(trace.layers, expected.patterns, strict=True):
        agree(ours.pattern, theirs, 1e-12)
    return run


@parametrized
def test_a_state_dict_is_the_model_it_was_saved_from(cfg, tmp_path):
    tensors = lens_reference.state(cfg)
    torch.save(tensors, tmp_path / "model.pth")
    (tmp_path / "config.json").write_text(json.dumps(cfg))
    opened = pathsum.open(tmp_path / "model.pth")
    run = check(opened, cfg, tensors)
    check(pathsum.open(tensors, config=cfg), cfg, tensors)
    folded = opened.weights.to(torch.float64).fold()
    pass_ = forward(folded, TOKENS)
    agree(logits(folded.ends, pass_.residual, pass_.final_scale), run.uncapped_logits, 1e-12)
    assert pathsum.expand(run).check() < 1e-12


def test_every_field_that_counts_is_in_some_config():
    assert set(HONOURED) == {name for cfg in CONFIGS.values() for name in cfg}


@parametrized
def test_a_field_left_out_is_the_librarys_default(cfg, unchecked):
    """The same tensors with one field fewer: the same other numbers, or an error in both."""
    tensors = lens_reference.state(cfg)
    for name in sorted(set(cfg) - {"final_rms"}):
        less = {field: value for field, value in cfg.items() if field != name}
        try:
            expected = lens_reference.run(less, tensors, TOKENS)
        except Exception:  # its tensors or the field itself are missing
            continue
        try:
            opened = pathsum.open(tensors, config=less)
            agree(pathsum.run(opened, TOKENS, dtype=torch.float64).logits, expected.logits, 1e-12)
        except CheckpointError:  # tensors are left over, or a size is not said
            continue


def test_a_model_in_memory_carries_its_config(tmp_path):
    cfg = CONFIGS["attn_only_ln"]
    tensors = lens_reference.state(cfg)

    class Hooked:
        """`.cfg`, which holds what the library computed and the objects it was made with."""

        def __init__(self) -> None:
            self.cfg = dataclasses.make_dataclass("Config", (*cfg, "dtype", "init_mode", "device"))(
                **cfg, dtype=torch.float64, init_mode="gpt2", device="cpu"
            )

        def state_dict(self) -> dict[str, torch.Tensor]:
            return tensors

    check(pathsum.open(Hooked()), cfg, tensors)


def test_without_a_config_nothing_is_guessed(tmp_path):
    torch.save(lens_reference.state(ATTN_ONLY), tmp_path / "model.pth")
    with pytest.raises(CheckpointError, match=r"needs config=.*model\.cfg\.to_dict\(\)"):
        pathsum.open(tmp_path / "model.pth")


OTHERWISE = {
    "attention_dir": "bidirectional", "num_experts": 4, "use_NTK_by_parts_rope": True, "rotary_base_local": 100,
    "load_in_4bit": True,
    "final_rms": True, "d_vocab_out": 12, "act_fn": "solu_ln", "positional_embedding_type": "relative_positional_bias",
    "normalization_type": "LayerNorm", "rotary_dim": 3, "attn_types": ["local", "elsewhere"], "attn_scale": 0,
    "a_field_of_next_year": 1,
}  # fmt: skip
BESIDE = {
    "rotary_dim": {"positional_embedding_type": "rotary"},
    "attn_types": {"use_local_attn": True, "window_size": 3},
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_cannot_be_honoured_is_refused_by_name(name):
    cfg = {**MLP, **BESIDE.get(name, {}), name: OTHERWISE[name]}
    with pytest.raises(CheckpointError, match=name):
        pathsum.open(lens_reference.state(MLP), config=cfg)


def test_every_refused_field_is_tried():
    assert set(REFUSED) <= set(OTHERWISE)


def test_alibi_with_capped_scores_is_refused():
    cfg = {**CONFIGS["alibi"], "attn_scores_soft_cap": 5.0}
    with pytest.raises(CheckpointError, match=r"attn_scores_soft_cap is 5\.0"):
        pathsum.open(lens_reference.state(cfg), config=cfg)


def test_config_and_tensors_that_disagree_are_named():
    raw = lens_reference.state({**MLP, "normalization_type": "LN"})
    with pytest.raises(CheckpointError, match=r"blocks\.0\.ln1\.b has no place"):
        pathsum.open(raw, config={**MLP, "normalization_type": "LNPre"})
    folded = lens_reference.state({**MLP, "normalization_type": "LNPre"})
    with pytest.raises(MissingTensor, match=r"ln_final\.w is missing"):
        pathsum.open(folded, config=MLP)
    with pytest.raises(CheckpointError, match=r"blocks\.0\.mlp\.W_in has no place"):
        pathsum.open(folded, config={**MLP, "normalization_type": "LNPre", "attn_only": True})
    del raw["blocks.1.attn.W_V"]
    with pytest.raises(MissingTensor, match=r"blocks\.1\.attn\.W_V is missing"):
        pathsum.open(raw, config=MLP)
    raw = lens_reference.state(MLP)
    raw["blocks.1.attn.W_O"] = raw["blocks.1.attn.W_O"][:, :3]
    with pytest.raises(MissingTensor, match=r"blocks\.1\.attn\.W_O \(3, 3, 12\) cannot be L1\.W_O \(3, 12, 4\)"):
        pathsum.open(raw, config=MLP).weights.load()


@parametrized
def test_any_value_of_any_field_is_an_error_or_a_model(cfg):
    outcomes = set()
    for name in (*HONOURED, *REFUSED):
        for value in VALUES:
            config = Config({**cfg, name: value}, dict(TRANSFORMER_LENS.defaults))
            try:
                TRANSFORMER_LENS.spec(config), TRANSFORMER_LENS.table(config)
                outcomes.add("model")
            except CheckpointError as error:
                outcomes.add("error")
                assert str(error)
    assert outcomes == {"model", "error"}
