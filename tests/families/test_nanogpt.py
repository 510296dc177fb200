"""nanoGPT checkpoints, as its training script writes them, against a model of their own."""

import dataclasses

import pytest
import torch

import pathsum
from cases import agree
from families.nanogpt_reference import NanoGPT
from families.test_any_config import VALUES
from pathsum.errors import CheckpointError, MissingTensor
from pathsum.runs.forward import forward, logits
from pathsum.weights.families.config import Config
from pathsum.weights.families.nanogpt import NANOGPT

TOKENS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])
ARGS = {"n_layer": 3, "n_head": 3, "n_embd": 24, "block_size": 12, "vocab_size": 31, "dropout": 0.0}
VARIANTS = {
    "biased": {**ARGS, "bias": True},
    "bare": {**ARGS, "bias": False, "n_head": 4},
    "one_head": {**ARGS, "n_head": 1, "n_layer": 1},
}


def checkpoint(model: NanoGPT, args: dict, prefix: str = "") -> dict:
    """What lies in `ckpt.pt`, the optimizer's state and the settings of the training included."""
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return {
        "model": {prefix + name: tensor for name, tensor in model.state_dict().items()},
        "optimizer": optimizer.state_dict(),
        "model_args": args,
        "iter_num": 2000,
        "best_val_loss": torch.tensor(1.47),
        "config": {"dataset": "shakespeare_char", "learning_rate": 1e-3, "compile": True},
    }


def check(opened, expected) -> None:
    logits, residuals, patterns = expected
    run = pathsum.run(opened, TOKENS, dtype=torch.float64)
    agree(run.logits, logits, 1e-12)
    trace = forward(run.weights, TOKENS, record=True)
    for ours, theirs in zip(trace.residuals, residuals, strict=True):
        agree(ours, theirs, 1e-12)
    for ours, theirs in zip(trace.layers, patterns, strict=True):
        agree(ours.pattern, theirs, 1e-12)


@pytest.mark.parametrize("args", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
def test_a_checkpoint_is_the_model_it_was_written_from(args, prefix, tmp_path):
    model = NanoGPT(args)
    stored = checkpoint(model, args, prefix)
    expected = model(TOKENS)
    torch.save(stored, tmp_path / "ckpt.pt")
    opened = pathsum.open(tmp_path / "ckpt.pt")
    check(opened, expected)
    check(pathsum.open(stored), expected)
    assert opened.spec.n_ctx == 12 and opened.spec.bos is None and opened.tokenizer is None


def test_folded_is_raw_and_terms_sum(tmp_path):
    torch.save(checkpoint(NanoGPT(VARIANTS["biased"]), VARIANTS["biased"]), tmp_path / "ckpt.pt")
    opened = pathsum.open(tmp_path / "ckpt.pt")
    run = pathsum.run(opened, TOKENS, dtype=torch.float64)
    folded = opened.weights.to(torch.float64).fold()
    pass_ = forward(folded, TOKENS)
    agree(logits(folded.ends, pass_.residual, pass_.final_scale), run.logits, 1e-12)
    assert pathsum.expand(run).check() < 1e-12


def test_a_model_in_memory_says_its_sizes_but_not_its_family():
    model = NanoGPT(VARIANTS["biased"])
    config = dataclasses.make_dataclass("GPTConfig", VARIANTS["biased"])(**VARIANTS["biased"])
    model.config = config
    check(pathsum.open(model, family="nanogpt"), model(TOKENS))
    with pytest.raises(CheckpointError, match="pass family="):
        pathsum.open(model)


def test_an_unembedding_of_its_own_is_read():
    model = NanoGPT(ARGS, tied=False)
    check(pathsum.open(checkpoint(model, ARGS)), model(TOKENS))


def test_the_older_code_s_activation_can_be_said(tmp_path):
    model = NanoGPT(ARGS, tanh=True)
    torch.save(checkpoint(model, ARGS), tmp_path / "ckpt.pt")
    config = {**ARGS, "activation_function": "gelu_new"}
    check(pathsum.open(tmp_path / "ckpt.pt", family="nanogpt", config=config), model(TOKENS))
    with pytest.raises(AssertionError, match="relative error"):
        check(pathsum.open(tmp_path / "ckpt.pt"), model(TOKENS))


def test_buffers_of_the_older_code_are_left_out():
    model = NanoGPT(ARGS)
    stored = checkpoint(model, ARGS)
    for layer in range(3):
        stored["model"][f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 12, 12).tril()
    check(pathsum.open(stored), model(TOKENS))


def test_a_checkpoint_without_its_arguments_is_not_guessed(tmp_path):
    stored = checkpoint(NanoGPT(ARGS), ARGS)
    del stored["model_args"]
    torch.save(stored, tmp_path / "ckpt.pt")
    with pytest.raises(CheckpointError, match="needs config="):
        pathsum.open(tmp_path / "ckpt.pt")


def test_what_does_not_fit_is_named():
    stored = checkpoint(NanoGPT(ARGS), ARGS)
    del stored["model"]["transformer.h.1.attn.c_proj.weight"]
    with pytest.raises(MissingTensor, match=r"h\.1\.attn\.c_proj\.weight is missing"):
        pathsum.open(stored)
    stored = checkpoint(NanoGPT(ARGS), {**ARGS, "n_embd": 25})
    with pytest.raises(CheckpointError, match="n_embd 25 is no multiple of n_head 3"):
        pathsum.open(stored)
    stored = checkpoint(NanoGPT(ARGS), {**ARGS, "block_size": 13})
    with pytest.raises(MissingTensor, match=r"wpe\.weight \(12, 24\) cannot be W_pos \(24, 13\)"):
        pathsum.open(stored).weights.load()
    stored = checkpoint(NanoGPT(ARGS), {**ARGS, "bias": False})
    with pytest.raises(CheckpointError, match=r"transformer\.h\.0\.attn\.c_attn\.bias has no place"):
        pathsum.open(stored)


def test_any_value_of_any_field_is_an_error_or_a_model():
    outcomes = set()
    for name in (*VARIANTS["biased"], "activation_function"):
        for value in VALUES:
            config = Config({**ARGS, name: value}, dict(NANOGPT.defaults))
            try:
                NANOGPT.spec(config), NANOGPT.table(config)
                outcomes.add("model")
            except CheckpointError as error:
                outcomes.add("error")
                assert str(error)
    assert outcomes == {"model", "error"}
