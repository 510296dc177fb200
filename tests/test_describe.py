"""What a model is made of: counted from shapes, equal to what its tensors hold, and nothing read for it."""

import dataclasses
import json

import pytest
import torch
from safetensors.torch import save_file

import pathsum
from cases import BY_NAME, CASES
from pathsum.errors import TextError
from pathsum.study import catalogue
from pathsum.study.describe import is_tied, tensor_sizes
from pathsum.study.subject import Subject
from pathsum.weights.files import SafetensorsFile
from pathsum.weights.model import Model
from test_cli import succeed

LLAMA = {
    "model_type": "llama", "vocab_size": 50, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
    "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 16, "rms_norm_eps": 1e-5,
}  # fmt: skip


def facts(model: Model) -> dict[tuple[str, str], float | None]:
    return {(row["group"], row["name"]): row["value"] for row in pathsum.describe(model).rows()}


def notes(model: Model) -> str:
    return " ".join(f"{row['name']}: {row['note']};" for row in pathsum.describe(model).rows())


def llama_folder(folder, tied: bool):
    """A Llama-like checkpoint of zeros, as the hub has them."""
    shapes = {"model.embed_tokens.weight": (50, 12), "model.norm.weight": (12,)}
    shapes |= {} if tied else {"lm_head.weight": (50, 12)}
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        shapes |= {f"{prefix}.self_attn.{name}_proj.weight": (12, 12) for name in "qo"}
        shapes |= {f"{prefix}.self_attn.{name}_proj.weight": (4, 12) for name in "kv"}
        shapes |= {f"{prefix}.mlp.{name}_proj.weight": (20, 12) for name in ("gate", "up")}
        shapes |= {f"{prefix}.mlp.down_proj.weight": (12, 20)}
        shapes |= {f"{prefix}.{name}_layernorm.weight": (12,) for name in ("input", "post_attention")}
    folder.mkdir()
    save_file({name: torch.zeros(shape) for name, shape in shapes.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(LLAMA | {"tie_word_embeddings": tied}))
    return folder


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_sizes_from_names_are_the_tensors_own(case):
    sizes = {name: tensor.numel() for name, tensor in case.tensors.items()}
    assert tensor_sizes(case.weights) == tensor_sizes(case.weights.load()) == sizes
    found = facts(Model(case.name, case.weights))
    assert found["parameters", "total"] == sum(sizes.values())
    parts = {"embedding", "positions", "attention", "MLP", "experts", "router", "norms", "unembedding"}
    assert sum(found.get(("parameters", part)) or 0 for part in parts) == sum(sizes.values())
    mlp = sum(size for name, size in sizes.items() if ".mlp." in name)
    assert sum(found.get(("parameters", part), 0) for part in ("MLP", "experts", "router")) == mlp


def test_parameters_by_part_of_a_model_counted_by_hand():
    found = facts(Model("gpt2", BY_NAME["gpt2"].weights))
    d, layers, mlp, vocab, ctx = 8, 2, 13, 11, 9
    assert found["parameters", "embedding"] == d * vocab
    assert found["parameters", "positions"] == d * ctx
    assert found["parameters", "attention"] == layers * (4 * 3 * 4 * d + 3 * 3 * 4 + d)
    assert found["parameters", "MLP"] == layers * (2 * d * mlp + mlp + d)
    assert found["parameters", "norms"] == (2 * layers + 1) * 2 * d
    assert found["parameters", "unembedding"] == d * vocab + vocab


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_is_described_without_reading_a_tensor_and_tied_embeddings_count_once(tied, tmp_path, monkeypatch):
    folder = llama_folder(tmp_path / "llama", tied)
    monkeypatch.setattr(SafetensorsFile, "__getitem__", lambda self, name: pytest.fail(f"read {name}"))
    model = pathsum.open(folder)
    monkeypatch.setattr(Model, "digest", lambda self: pytest.fail("read everything"))
    found = facts(model)
    assert is_tied(model.weights) is tied
    layer = 2 * 144 + 2 * 48 + 3 * 240
    assert found["parameters", "total"] == 600 * (1 if tied else 2) + 2 * layer + 5 * 12
    assert found["parameters", "unembedding"] == (None if tied else 600)
    assert found["attention", "rotary"] == 2 and found["attention", "heads per key/value head"] == 3
    assert found["bottleneck: neurons / d_model", "before the unembedding"] == 2 * 20 / 12
    assert ("tied embeddings leave" in notes(model)) is tied


def test_experts_are_counted_apart_and_those_a_token_uses():
    case = next(case for case in CASES if case.spec.n_experts is not None)
    found = facts(Model(case.name, case.weights))
    per_expert = found["parameters", "experts"] / case.spec.n_experts
    idle = per_expert * (case.spec.n_experts - case.spec.experts_per_token)
    assert found["parameters", "used by a token"] == found["parameters", "total"] - idle


def test_paths_are_counted_by_order_and_long_ones_together():
    found = facts(Model("three", BY_NAME["three_layers_alibi"].weights))
    assert [found["paths from the embedding", f"order {k}"] for k in range(4)] == [1, 9, 27, 27]
    spec = BY_NAME["three_layers_alibi"].spec
    deep = dataclasses.replace(spec, n_layers=9, layers=(spec.layers * 3))
    rows = pathsum.describe(Model("deep", dataclasses.replace(BY_NAME["three_layers_alibi"].weights, spec=deep))).rows()
    paths = [row for row in rows if row["group"] == "paths from the embedding"]
    assert [row["name"] for row in paths] == [*(f"order {k}" for k in range(5)), "orders 5 to 9", "total"]
    assert paths[-1]["value"] == 4**9 == sum(row["value"] for row in paths[:-1])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "gemma2",
            ["soft-cap of logits: expansions sum to the logits before it", "soft-cap of scores", "window: tokens"],
        ),
        ("qwen3", ["q/k-norm", "QK from weights alone: approximate", "layers with W_QK(Δ)"]),
        ("gpt_oss", ["sinks", "window: tokens, itself included; 1 of 2 layers"]),
        ("gpt2", ["learned positions: in the residual stream", "centring leave", "MLP outputs: sources"]),
        ("bloom", ["ALiBi: a bias on the scores"]),
        ("gptj", ["4 of 5 coordinates, base 30, interleaved"]),
        ("multi_query", ["1 of 2 layers; 4 of 5 coordinates, scaled frequencies"]),
    ],
)
def test_what_is_frozen_and_where_readings_stop_is_said(name, words):
    said = notes(Model(name, BY_NAME[name].weights))
    assert all(word in said for word in words), said


def test_nothing_is_frozen_or_limited_where_there_is_nothing():
    groups = {group for group, _ in facts(Model("zero", BY_NAME["zero_layers"].weights))}
    assert groups == {"parameters", "shape", "circuits", "paths from the embedding"}


def test_norm_scales_are_those_an_expansion_freezes():
    for case in CASES:
        found = facts(Model(case.name, case.weights)).get(("frozen in an expansion", "norm scales 1/σ"))
        norms = [norm.kind != "none" for block in case.weights.blocks
                 for norm in (block.attention_norm, block.post_attention_norm)]  # fmt: skip
        assert (found or 0) == sum(norms) + (case.weights.ends.final_norm.kind != "none")


def test_the_terminal_shows_every_group_within_80_columns(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    pathsum.save(tmp_path / "model", BY_NAME["gemma2"].weights)
    shown = succeed(["describe", str(tmp_path / "model")], capsys)
    assert max(map(len, shown.splitlines())) <= 80
    assert all(
        row["group"] in shown for row in pathsum.describe(Subject(pathsum.open(tmp_path / "model")).model).rows()
    )


@pytest.mark.parametrize("wrong", ["4", 4.0, 0])
def test_counts_of_a_subject_are_whole_numbers(wrong, unchecked):
    for name in ("sequences", "batch"):
        with pytest.raises(TextError, match=rf"{name} is {wrong!r}, must be a whole number from 1"):
            Subject(pathsum.open("two-layer-small"), **{name: wrong})


def test_attention_of_which_little_may_be_kept_is_read_again_and_says_the_same(monkeypatch):
    case, reads = BY_NAME["three_layers_rotary_rms"], []

    def read(layer: int):
        reads.append(layer)
        return case.weights.read_attention(layer)

    model = Model(case.name, dataclasses.replace(case.weights, read_attention=read))
    read_all = lambda subject: [
        catalogue.BY_NAME[name].function(subject) for name in ("spectra", "matching", "entries")
    ]
    whole = read_all(Subject(model))
    assert sorted(reads) == [0, 1, 2]
    monkeypatch.setattr("pathsum.study.subject.KEPT", 0)
    reads.clear()
    again = read_all(Subject(model))
    assert str(again) == str(whole) and len(reads) > 3
