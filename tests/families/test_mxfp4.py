"""MXFP4: every byte against a decoder of its own, and GPT-OSS checkpoints that keep their experts in it."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import pathsum
from cases import agree
from families import reference
from families.all_cases import Case, made
from families.cases_rmsnorm import EXPERTS, TINY
from pathsum.errors import CheckpointError
from pathsum.weights.families.mxfp4 import decoded

CASE = Case("mxfp4", "gpt_oss", {**TINY, **EXPERTS, "hidden_size": 32, "intermediate_size": 64, "head_dim": 8})
"""Rows are whole blocks of 32."""


def four_bits(code: int) -> float:
    """A float of one sign, two exponent (bias 1) and one mantissa bit, from its bits."""
    sign, exponent, mantissa = code >> 3, code >> 1 & 3, code & 1
    size = mantissa / 2 if exponent == 0 else (1 + mantissa / 2) * 2 ** (exponent - 1)
    return -size if sign else size


def slowly(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """`[rows, blocks, 16]` and `[rows, blocks]` bytes to `[rows, 32 · blocks]`, one value at a time, in float64."""
    out = np.zeros((blocks.shape[0], 32 * blocks.shape[1]))
    for row in range(blocks.shape[0]):
        for column in range(out.shape[1]):
            byte = int(blocks[row, column // 32, column % 32 // 2])
            code = byte >> 4 if column % 2 else byte & 15
            out[row, column] = math.ldexp(four_bits(code), int(scales[row, column // 32]) - 127)
    return out


def random_bytes(*shape: int, least: int = 0, most: int = 256, seed: int = 0) -> torch.Tensor:
    return torch.randint(least, most, shape, generator=torch.Generator().manual_seed(seed)).to(torch.uint8)


def test_every_byte_under_every_scale_is_what_its_bits_say():
    """Scales up to 252: 6 · 2¹²⁶ and more is beyond bfloat16, and no weight."""
    blocks = torch.arange(256, dtype=torch.uint8).view(1, 16, 16).expand(253, 16, 16)
    scales = torch.arange(253, dtype=torch.uint8)[:, None].expand(253, 16)
    found = decoded(blocks, scales)
    assert found.shape == (253, 512)
    assert np.array_equal(found.double().numpy(), slowly(blocks.numpy(), scales.numpy()))


def test_experts_and_rows_stay_where_they_are():
    blocks, scales = random_bytes(3, 5, 2, 16), random_bytes(3, 5, 2, least=120, most=130)
    found = decoded(blocks, scales)
    for expert in range(3):
        assert np.array_equal(found[expert].double().numpy(), slowly(blocks[expert].numpy(), scales[expert].numpy()))


def test_a_scale_that_stands_for_no_number_gives_none():
    assert decoded(random_bytes(1, 1, 16), torch.full((1, 1), 255, dtype=torch.uint8)).isnan().all()


@pytest.fixture
def quantised(tmp_path):
    """A folder as published, its experts' matrices in MXFP4, and a reference model with what they decode to."""
    found = made(CASE)
    tensors = load_file(found.folder / "model.safetensors")
    model = reference.transformers.AutoModelForCausalLM.from_pretrained(
        found.folder, **reference.PLAINLY, dtype=torch.float64
    )
    state = model.state_dict()
    for seed, name in enumerate(sorted(n for n in tensors if n.endswith(("gate_up_proj", "down_proj")))):
        experts, width, rows = tensors.pop(name).shape
        blocks = random_bytes(experts, rows, width // 32, 16, seed=seed)
        scales = random_bytes(experts, rows, width // 32, least=122, most=126, seed=seed)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        plain = [slowly(b, s) for b, s in zip(blocks.numpy(), scales.numpy(), strict=True)]
        state[name] = torch.from_numpy(np.stack(plain)).mT
    model.load_state_dict(state)
    config = json.loads((found.folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path, model.eval(), found.tokens


def test_a_quantised_checkpoint_is_the_model_its_matrices_decode_to(quantised):
    folder, model, tokens = quantised
    opened = pathsum.open(folder)
    assert opened.weights.block(0).mlp.W_out.dtype == torch.bfloat16
    with reference.in_float64():
        expected = reference.transformers.AutoModelForCausalLM.from_config(
            model.config, **reference.PLAINLY, dtype=torch.float64
        )
        expected.load_state_dict(model.state_dict())
        logits = reference.run(expected.eval(), tokens).logits
    agree(pathsum.run(opened, tokens, dtype=torch.float64).logits, logits, 1e-10)


def test_a_scale_of_no_number_is_named(quantised):
    folder, _, _ = quantised
    tensors = load_file(folder / "model.safetensors")
    next(tensor for name, tensor in sorted(tensors.items()) if name.endswith("down_proj_scales"))[0, 0, 0] = 255
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"L0\.mlp\.W_out holds values that are not finite"):
        pathsum.open(folder).weights.block(0)


def test_blocks_without_their_scales_are_missing_scales(quantised):
    folder, _, _ = quantised
    tensors = load_file(folder / "model.safetensors")
    gone = next(name for name in sorted(tensors) if name.endswith("gate_up_proj_scales"))
    save_file({name: tensor for name, tensor in tensors.items() if name != gone}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="gate_up_proj"):
        pathsum.open(folder)


def test_other_quantisations_are_refused_by_name(quantised):
    folder, _, _ = quantised
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="quantised by 'awq'"):
        pathsum.open(folder)
