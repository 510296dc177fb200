"""Writes tiny GGUF files as llama.cpp's converter does, from canonical tensors: the other direction, on its own.

`CASES` has every architecture with the spec a reader must find; `case.write(path)` makes the file.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFWriter
from torch import Tensor

from cases import random_tensors
from pathsum.weights.positions import Alibi, Positions, Rotary
from pathsum.weights.spec import Attention, Spec

Arrays = dict[str, np.ndarray]
NAMES = {
    "attention_norm": "attn_norm", "mlp_norm": "ffn_norm",
    "post_attention_norm": "post_attention_norm", "post_mlp_norm": "post_ffw_norm",
    "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
}  # fmt: skip
MLP = {"W_in": "ffn_up", "W_gate": "ffn_gate", "W_out": "ffn_down", "b_in": "ffn_up", "b_gate": "ffn_gate"}
MLP |= {"b_out": "ffn_down"}


@dataclass(frozen=True)
class GgufCase:
    """A model, and how a file of its architecture holds it."""

    name: str
    architecture: str
    spec: Spec
    tensors: dict[str, Tensor]
    metadata: dict[str, Any]
    permuted: bool = False
    fused_qkv: bool = False
    fused_gate: bool = False
    tied: bool = False
    one_norm: bool = False
    """The MLP's norm is not written, as it is the attention's."""
    names: dict[str, str] = field(default_factory=dict)
    embedding: float = 1.0
    residual: float = 1.0
    logits: float = 1.0
    """What the runtime multiplies with, so that the file holds that much less."""
    others: Arrays = field(default_factory=dict)
    """Tensors that are written as they are."""

    def __repr__(self) -> str:
        return self.name

    def write(self, path: Path, metadata: dict[str, Any] | None = None, without: tuple[str, ...] = ()) -> Path:
        write(path, self.architecture, {**self.metadata, **(metadata or {})}, self.arrays(), without)
        return path

    def arrays(self) -> Arrays:
        """The file's tensors by its names, torch's shapes."""
        ours = {name: tensor.numpy() for name, tensor in self.tensors.items()}
        found = {
            "token_embd.weight": ours["W_E"].T / np.float32(self.embedding),
            "output_norm.weight": ours["final_norm.gain"],
        }
        if not self.tied:
            found["output.weight"] = ours["W_U"] * np.float32(self.logits)
        for name, theirs in (("b_U", "output.bias"), ("final_norm.bias", "output_norm.bias")):
            found |= {theirs: ours[name]} if name in ours else {}
        found |= {"position_embd.weight": ours["W_pos"].T} if "W_pos" in ours else {}
        for layer in range(self.spec.n_layers):
            own = {
                name.removeprefix(f"L{layer}."): value for name, value in ours.items() if name.startswith(f"L{layer}.")
            }
            found |= {f"blk.{layer}.{name}": value for name, value in self._layer(own).items()}
        return found | self.others

    def _layer(self, own: Arrays) -> Arrays:
        found = self._attention(own) | self._mlp(own)
        for name, value in own.items():
            norm, _, vector = name.partition(".")
            if norm not in NAMES or (self.one_norm and norm == "mlp_norm"):
                continue
            value = value.reshape(-1) if self.spec.qk_norm_across_heads and norm in ("q_norm", "k_norm") else value
            found[f"{self.names.get(norm, NAMES[norm])}.{'weight' if vector == 'gain' else 'bias'}"] = value
        return found

    def _attention(self, own: Arrays) -> Arrays:
        heads, d_model, d_head = own["W_O"].shape
        found = {"attn_output.weight": np.zeros((d_model, heads * d_head), np.float32)}
        for head in range(heads):
            found["attn_output.weight"][:, head * d_head : (head + 1) * d_head] = own["W_O"][head] / self.residual
        if "b_O" in own:
            found["attn_output.bias"] = own["b_O"] / np.float32(self.residual)
        if "sinks" in own:
            found["attn_sinks.weight"] = own["sinks"]
        for letter, end in (("W", "weight"), ("b", "bias")):
            parts = [self._rows(own[f"{letter}_{one}"], one) for one in "QKV" if f"{letter}_{one}" in own]
            if parts and self.fused_qkv:
                found[f"attn_qkv.{end}"] = np.concatenate(parts)
            else:
                found |= {f"attn_{one}.{end}": rows for one, rows in zip("qkv", parts, strict=False)}
        return found

    def _rows(self, heads: np.ndarray, one: str) -> np.ndarray:
        """All heads' rows one after the other; pair by pair where the runtime turns neighbours."""
        rows = heads.copy()
        half = heads.shape[1] // 2
        if self.permuted and one in "QK":
            for pair in range(half):
                rows[:, 2 * pair], rows[:, 2 * pair + 1] = heads[:, pair], heads[:, pair + half]
        return rows.reshape(-1, *heads.shape[2:])

    def _mlp(self, own: Arrays) -> Arrays:
        ending = "" if self.spec.n_experts is None else "_exps"
        found: Arrays = {}
        for name, theirs in MLP.items():
            if f"mlp.{name}" in own:
                factor = np.float32(self.residual if name in ("W_out", "b_out") else 1)
                found[f"{theirs}{ending}.{'weight' if name[0] == 'W' else 'bias'}"] = own[f"mlp.{name}"] / factor
        for name, end in (("W_router", "weight"), ("b_router", "bias")):
            found |= {f"ffn_gate_inp.{end}": own[f"mlp.{name}"]} if f"mlp.{name}" in own else {}
        if self.fused_gate:
            found["ffn_up.weight"] = np.concatenate([found.pop("ffn_gate.weight"), found["ffn_up.weight"]])
        return found


def write(
    path: Path, architecture: str, metadata: dict[str, Any], arrays: Arrays, without: tuple[str, ...] = ()
) -> None:
    """Keys with a dot in front are the architecture's; None leaves a key out."""
    writer = GGUFWriter(path, architecture)
    for key, value in metadata.items():
        if value is not None:
            put(writer, f"{architecture}{key}" if key.startswith(".") else key, value)
    for name, array in arrays.items():
        if name not in without:
            writer.add_tensor(name, np.ascontiguousarray(array, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def put(writer: GGUFWriter, key: str, value: Any) -> None:
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    kinds[list] = writer.add_array
    kinds[type(value)](key, value)


# ---- the cases ----

D_MODEL, D_VOCAB, D_MLP, N_CTX = 16, 11, 10, 24
RMS, LAYER = ".attention.layer_norm_rms_epsilon", ".attention.layer_norm_epsilon"
GATED = {"norm": "rms", "activation": "silu", "norm_eps": 1e-3}
PLAIN = {"norm": "layer", "activation": "gelu_tanh", "norm_eps": 1e-3}


def case(
    name: str,
    architecture: str,
    positions: Positions | list[Positions | None] | None,
    extras: str = "",
    metadata: dict[str, Any] | None = None,
    shape: tuple[int, int, int, int] = (2, 4, 2, 4),
    facts: dict[str, Any] | None = None,
    layer: dict[str, Any] | None = None,
    windows: dict[int, int] | None = None,
    **form: Any,
) -> GgufCase:
    """`shape` is (n_layers, n_heads, n_key_value_heads, d_head); `layer` facts of every layer, `windows` of some."""
    n_layers, heads, kv, d_head = shape
    where = positions if isinstance(positions, list) else [positions] * n_layers
    common = {"score_scale": d_head**-0.5, **(layer or {})}
    layers = tuple(Attention(one, **common, window=(windows or {}).get(index)) for index, one in enumerate(where))
    facts = {**GATED, "d_mlp": D_MLP, "prepend_bos": False, **(facts or {})}
    n_ctx = facts.pop("n_ctx", N_CTX)
    spec = Spec(D_VOCAB, n_ctx, D_MODEL, n_layers, heads, d_head, kv, layers, family=architecture, **facts)
    tensors = {key: one.float() for key, one in random_tensors(spec, len(name), frozenset(extras.split())).items()}
    if form.get("one_norm"):
        for index in range(n_layers):
            for vector in ("gain", "bias"):
                tensors[f"L{index}.mlp_norm.{vector}"] = tensors[f"L{index}.attention_norm.{vector}"]
    if form.get("tied"):
        tensors["W_U"] = tensors["W_E"].mT.clone() / form.get("embedding", 1.0) / form.get("logits", 1.0)
    written = {
        ".block_count": n_layers, ".context_length": N_CTX, ".embedding_length": D_MODEL,
        ".feed_forward_length": D_MLP, ".attention.head_count": heads, ".attention.head_count_kv": kv,
        (RMS if facts["norm"] == "rms" else LAYER): 1e-3,
    }  # fmt: skip
    if d_head != D_MODEL // heads:
        written |= {".attention.key_length": d_head, ".attention.value_length": d_head}
    return GgufCase(name, architecture, spec, tensors, {**written, **(metadata or {})}, **form)


def frequencies(d_rotary: int, base: float, *divisors: float) -> tuple[float, ...]:
    return tuple(base ** (-2 * pair / d_rotary) / divisor for pair, divisor in enumerate(divisors))


def yarn(
    d_rotary: int, base: float, factor: float, context: int, fast: float = 32, slow: float = 1, rounded: bool = True
) -> tuple[float, ...]:
    """Each pair by itself: how often it turns in the original context places it on the ramp."""
    ends = [d_rotary * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow)]
    low, high = (math.floor(ends[0]), math.ceil(ends[1])) if rounded else ends
    low, high = max(low, 0), min(high, d_rotary - 1)
    found = []
    for pair in range(d_rotary // 2):
        scaled = min(max((pair - low) / max(high - low, 0.001), 0), 1)
        frequency = base ** (-2 * pair / d_rotary)
        found.append(frequency * (1 - scaled) + frequency / factor * scaled)
    return tuple(found)


def bloom() -> GgufCase:
    """Its file has the table before BLOOM's norm of the embeddings; ours has it after."""
    slopes = (2**-2.0, 2**-4.0, 2**-6.0, 2**-8.0, 2**-1.0)
    made = case(
        "bloom", "bloom", Alibi(slopes), "norm_bias attention_bias b_O mlp_bias", shape=(2, 5, 5, 4), facts=PLAIN,
        metadata={".attention.key_length": 4, ".attention.value_length": 4}, fused_qkv=True,
    )  # fmt: skip
    rng = np.random.default_rng(3)
    table, gain, bias = rng.normal(size=(D_VOCAB, D_MODEL)), rng.normal(size=D_MODEL), rng.normal(size=D_MODEL)
    table, gain, bias = (one.astype(np.float32) for one in (table, gain, bias))
    wide = table.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-3) * gain + bias
    tensors = {**made.tensors, "W_E": torch.tensor(normed.T).float(), "W_U": torch.tensor(table)}
    others = {"token_embd.weight": table, "token_embd_norm.weight": gain, "token_embd_norm.bias": bias}
    return dataclasses.replace(made, tensors=tensors, others=others, tied=True)


HALVES = Rotary(4, 500.0)
THETA = {".rope.freq_base": 500.0}
DIVISORS = np.array([1.5, 4.0], np.float32)
POST = "gate post"
EXPERTS = {".expert_count": 5, ".expert_used_count": 2}
SCALES = {".attention.scale": 0.3, ".embedding_scale": 8.0, ".residual_scale": 0.25, ".logit_scale": 4.0}
YARN = {".rope.scaling.type": "yarn", ".rope.scaling.factor": 8.0, ".rope.scaling.original_context_length": 64}
LLAMA = {"permuted": True}
EVERY_SECOND = {0: 5, 2: 5}

CASES: list[GgufCase] = [
    case("llama", "llama", HALVES, "gate", THETA, **LLAMA),
    case("llama-mqa-wide", "llama", Rotary(6, 500.0), "gate", THETA, shape=(2, 4, 1, 6), **LLAMA),
    case(
        "llama-tied-biased", "llama", Rotary(4), "gate attention_bias b_O mlp_bias", shape=(2, 4, 4, 4), tied=True,
        **LLAMA,
    ),
    case("llama-fused", "llama", HALVES, "gate attention_bias", THETA, fused_qkv=True, **LLAMA),
    case(
        "llama-factors", "llama", Rotary(4, 500.0, frequencies=frequencies(4, 500.0, 1.5, 4.0)), "gate", THETA,
        others={"rope_freqs.weight": DIVISORS}, **LLAMA,
    ),
    case(
        "llama-linear", "llama", Rotary(4, 500.0, frequencies=frequencies(4, 500.0, 4, 4)), "gate",
        {**THETA, ".rope.scaling.type": "linear", ".rope.scaling.factor": 4.0}, **LLAMA,
    ),
    case(
        "llama-yarn", "llama", Rotary(8, 500.0, frequencies=yarn(8, 500.0, 8, 64), magnitude=1 + 0.1 * math.log(8)),
        "gate", {**THETA, **YARN}, shape=(2, 2, 1, 8), **LLAMA,
    ),
    case(
        "llama-yarn-told", "llama", Rotary(8, 500.0, frequencies=yarn(8, 500.0, 8, 64, 6, 2), magnitude=0.8), "gate",
        {**THETA, **YARN, ".rope.scaling.yarn_beta_fast": 6.0, ".rope.scaling.yarn_beta_slow": 2.0,
         ".rope.scaling.yarn_attn_factor": 0.8}, shape=(2, 2, 1, 8), **LLAMA,
    ),
    case(
        "mixtral", "llama", HALVES, "gate", {**THETA, **EXPERTS},
        facts={"n_experts": 5, "experts_per_token": 2}, **LLAMA,
    ),
    case("smollm3", "smollm3", [HALVES] * 3 + [None, HALVES], "gate", THETA, shape=(5, 4, 2, 4), **LLAMA),
    case(
        "granite", "granite", HALVES, "gate attention_bias b_O mlp_bias", {**THETA, **SCALES},
        layer={"score_scale": 0.3}, embedding=8.0, residual=0.25, logits=0.25**-1, **LLAMA,
    ),
    case(
        "granite-unplaced", "granite", None, "gate", {".rope.scaling.finetuned": False, ".logit_scale": 2.0},
        tied=True, logits=2.0, **LLAMA,
    ),
    case("qwen2", "qwen2", HALVES, "gate attention_bias", THETA),
    case("qwen3", "qwen3", Rotary(6, 500.0), "gate qk_norm", THETA, shape=(2, 4, 2, 6)),
    case("phi3", "phi3", HALVES, "gate", {**THETA, ".attention.sliding_window": 5}, windows={0: 5, 1: 5},
         fused_qkv=True, fused_gate=True),
    case(
        "phi3-long", "phi3", Rotary(4, 500.0, frequencies=frequencies(4, 500.0, 1.5, 4.0), magnitude=1.25), "gate",
        {**THETA, ".attention.sliding_window": 0, ".rope.scaling.original_context_length": 16,
         ".rope.scaling.attn_factor": 1.25}, facts={"n_ctx": 16}, fused_qkv=True, fused_gate=True,
        others={"rope_factors_short.weight": DIVISORS, "rope_factors_long.weight": 2 * DIVISORS},
    ),
    case(
        "gemma", "gemma", Rotary(6), "gate", shape=(2, 4, 1, 6), facts={"activation": "gelu_tanh"},
        tied=True, embedding=4.0,
    ),
    case(
        "gemma2", "gemma2", Rotary(6), POST,
        {".attention.sliding_window": 5, ".attn_logit_softcapping": 2.0, ".final_logit_softcapping": 3.0},
        shape=(3, 4, 2, 6), facts={"activation": "gelu_tanh", "logit_cap": 3.0}, layer={"score_cap": 2.0},
        windows=EVERY_SECOND, tied=True, embedding=4.0,
    ),
    case(
        "gemma3", "gemma3", [Rotary(6)] * 5 + [Rotary(6, 1e6, frequencies=frequencies(6, 1e6, 8, 8, 8)), Rotary(6)],
        POST + " qk_norm",
        {".attention.sliding_window": 5, ".rope.freq_base": 1e6, ".rope.freq_base_swa": 1e4,
         ".rope.scaling.type": "linear", ".rope.scaling.factor": 8.0},
        shape=(7, 4, 1, 6), facts={"activation": "gelu_tanh"}, windows=dict.fromkeys((0, 1, 2, 3, 4, 6), 5),
        tied=True, embedding=4.0,
    ),
    case(
        "olmo2", "olmo2", HALVES, POST + " qk_norm qk_norm_per_head", THETA,
        facts={"pre_norm": False, "qk_norm_across_heads": True},
    ),
    case(
        "olmo3", "olmo2",
        [HALVES, HALVES, Rotary(4, 500.0, frequencies=yarn(4, 500.0, 8, 64), magnitude=1 + 0.1 * math.log(8))],
        POST + " qk_norm qk_norm_per_head",
        {**THETA, **YARN, ".attention.sliding_window": 5, ".attention.sliding_window_pattern": [True, True, False]},
        shape=(3, 4, 2, 4), facts={"pre_norm": False, "qk_norm_across_heads": True}, windows={0: 5, 1: 5},
    ),
    case(
        "gpt-oss", "gpt-oss",
        Rotary(6, 500.0, frequencies=yarn(6, 500.0, 8, 64, rounded=False), magnitude=1 + 0.1 * math.log(8)),
        "gate attention_bias b_O mlp_bias router_bias sinks",
        {**THETA, **YARN, **EXPERTS, ".attention.sliding_window": 5},
        shape=(3, 4, 2, 6), windows=EVERY_SECOND, names={"mlp_norm": "post_attention_norm"},
        facts={"activation": "silu_clamped", "mlp_limit": 7.0, "n_experts": 5, "experts_per_token": 2},
    ),
    case(
        "gpt2", "gpt2", None, "norm_bias attention_bias b_O mlp_bias", shape=(2, 4, 4, 4),
        facts={**PLAIN, "learned_positions": True}, fused_qkv=True, tied=True,
    ),
    case(
        "gptneox", "gptneox", Rotary(2), "norm_bias attention_bias b_O mlp_bias",
        {".use_parallel_residual": True, ".rope.dimension_count": 2}, shape=(2, 4, 4, 4),
        facts={**PLAIN, "activation": "gelu", "parallel": True}, fused_qkv=True,
    ),
    case(
        "gptneox-in-turn", "gptneox", Rotary(4), "norm_bias attention_bias b_O mlp_bias",
        {".use_parallel_residual": False}, shape=(2, 4, 4, 4), facts={**PLAIN, "activation": "gelu"}, fused_qkv=True,
    ),
    case(
        "phi2", "phi2", Rotary(2), "norm_bias attention_bias b_O mlp_bias b_U", {".rope.dimension_count": 2},
        shape=(2, 4, 4, 4), facts={**PLAIN, "parallel": True}, one_norm=True,
    ),
    case(
        "stablelm", "stablelm", Rotary(2), "norm_bias gate attention_bias",
        {".use_parallel_residual": False, ".rope.dimension_count": 2},
        facts={**PLAIN, "activation": "silu", "qk_norm": "layer"},
    ),
    case(
        "stablelm-12b", "stablelm", Rotary(2), "norm_bias gate qk_norm qk_norm_per_head",
        {".use_parallel_residual": True, ".rope.dimension_count": 2}, one_norm=True,
        facts={**PLAIN, "activation": "silu", "qk_norm": "layer", "parallel": True},
    ),
    case("starcoder2", "starcoder2", HALVES, "norm_bias attention_bias b_O mlp_bias", THETA, facts=PLAIN),
    case(
        "falcon-7b", "falcon", Rotary(4), "norm_bias", shape=(2, 4, 1, 4),
        facts={**PLAIN, "activation": "gelu", "parallel": True}, fused_qkv=True, one_norm=True,
    ),
    case(
        "falcon-40b", "falcon", Rotary(4), "norm_bias", facts={**PLAIN, "activation": "gelu", "parallel": True},
        fused_qkv=True, names={"attention_norm": "attn_norm_2", "mlp_norm": "attn_norm"},
    ),
    bloom(),
]  # fmt: skip
BY_NAME = {one.name: one for one in CASES}
