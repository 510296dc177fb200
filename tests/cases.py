"""Tiny random models, one a shape of architecture: the list that feeds every law of the model.

`CASES` are named; `case.weights` is the model, `case.arrays` the same tensors for the oracle, `case.tokens` a text.
Gains are never one, biases never zero, and no two layers share a fact that may differ.
"""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

import oracle
from pathsum.weights.positions import Alibi, LearnedQK, Positions, Rotary, Sinusoidal
from pathsum.weights.spec import Attention, Spec
from pathsum.weights.weights import Weights


@dataclass(frozen=True)
class Case:
    """A model with a text to run it on."""

    name: str
    spec: Spec
    tensors: dict[str, Tensor]
    tokens: Tensor

    @cached_property
    def weights(self) -> Weights:
        return Weights.from_tensors(self.spec, self.tensors)

    @cached_property
    def folded(self) -> Weights:
        return self.weights.fold().load()

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        return {name: tensor.double().numpy() for name, tensor in self.tensors.items()}

    @cached_property
    def recorded(self) -> oracle.Recorded:
        """The oracle's run of the text, made once."""
        return oracle.run(self.spec, self.arrays, self.tokens.tolist())

    def with_tensors(self, **changed: Tensor | None) -> "Case":
        """The same case with tensors replaced, or left out where None."""
        merged = {**self.tensors, **changed}
        return dataclasses.replace(self, tensors={name: t for name, t in merged.items() if t is not None})

    def with_layers(self, **facts: Any) -> "Case":
        """The same case with facts of every layer replaced."""
        layers = tuple(dataclasses.replace(layer, **facts) for layer in self.spec.layers)
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, layers=layers))

    def __repr__(self) -> str:
        return self.name


def agree(actual, expected, tolerance: float = 1e-12) -> None:
    """Equal shapes, and `max|actual − expected| ≤ tolerance · max|expected|`."""
    actual, expected = (np.asarray(x, dtype=np.float64) for x in (actual, expected))
    assert actual.shape == expected.shape
    if expected.size:
        error = np.abs(actual - expected).max() / max(np.abs(expected).max(), 1e-300)
        assert error <= tolerance, f"relative error {error:.1e}, allowed {tolerance:.0e}"


def random_tensors(spec: Spec, seed: int, extras: frozenset[str]) -> dict[str, Tensor]:
    """Normal matrices of about unit effect, gains around 1, biases around 0; `extras` names what is not always there.

    Extras: `attention_bias` (b_Q, b_K, b_V), `b_O`, `b_U`, `norm_bias`, `no_gain`, `mlp_bias`, `gate`, `post`,
    `post_bias`, `qk_norm`, `qk_norm_bias`, `qk_norm_per_head`, `router_bias`, `sinks`.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, size: float = 1.0) -> Tensor:
        return size * torch.randn(*shape, generator=generator, dtype=torch.float64)

    def gain(*shape: int) -> Tensor:
        return (0.5 + torch.rand(*shape, generator=generator, dtype=torch.float64)) * normal(*shape).sign()

    def norm(name: str, bias: bool) -> dict[str, Tensor]:
        if spec.norm == "none" or "no_gain" in extras:
            return {}
        found = {f"{name}.gain": gain(spec.d_model)}
        return {**found, f"{name}.bias": normal(spec.d_model, size=0.5)} if bias else found

    d, h, kv, width = spec.d_model, spec.n_heads, spec.n_key_value_heads, spec.d_head
    many = () if spec.n_experts is None else (spec.n_experts,)
    found = {"W_E": normal(d, spec.d_vocab), "W_U": normal(spec.d_vocab, d, size=d**-0.5)}
    if spec.learned_positions or any(isinstance(layer.positions, LearnedQK) for layer in spec.layers):
        found["W_pos"] = normal(d, spec.n_ctx)
    if "b_U" in extras:
        found["b_U"] = normal(spec.d_vocab)
    found |= norm("final_norm", "norm_bias" in extras)
    for layer in range(spec.n_layers):
        part = {"W_Q": normal(h, width, d, size=1.2 * d**-0.5), "W_K": normal(kv, width, d, size=1.2 * d**-0.5)}
        part |= {"W_V": normal(kv, width, d, size=d**-0.5), "W_O": normal(h, d, width, size=(h * width) ** -0.5)}
        part |= norm("attention_norm", "norm_bias" in extras) if spec.pre_norm else {}
        if "attention_bias" in extras:
            part |= {"b_Q": normal(h, width), "b_K": normal(kv, width), "b_V": normal(kv, width)}
        if "b_O" in extras:
            part["b_O"] = normal(d)
        if "post" in extras:
            part |= norm("post_attention_norm", "post_bias" in extras)
        for side, n in (("q", h), ("k", kv)):
            shape = (n, width) if "qk_norm_per_head" in extras else (width,)
            part |= {f"{side}_norm.gain": gain(*shape)} if "qk_norm" in extras else {}
            part |= {f"{side}_norm.bias": normal(*shape, size=0.5)} if "qk_norm_bias" in extras else {}
        if "sinks" in extras:
            part["sinks"] = normal(h)
        facts = spec.layers[layer]
        if facts.smeared_keys:
            part["smear"] = normal(kv)
        if facts.convolution is not None:
            part |= {
                f"conv_{side}": normal(n, facts.convolution, width) for side, n in (("Q", h), ("K", kv), ("V", kv))
            }
        if spec.d_mlp is not None:
            part |= norm("mlp_norm", "norm_bias" in extras) if spec.pre_norm else {}
            if "post" in extras:
                part |= norm("post_mlp_norm", "post_bias" in extras)
            part["mlp.W_in"] = normal(*many, spec.d_mlp, d, size=d**-0.5)
            part["mlp.W_out"] = normal(*many, d, spec.d_mlp, size=0.4)
            if "gate" in extras:
                part["mlp.W_gate"] = normal(*many, spec.d_mlp, d, size=d**-0.5)
            if "mlp_bias" in extras:
                part |= {"mlp.b_in": normal(*many, spec.d_mlp), "mlp.b_out": normal(*many, d)}
                part |= {"mlp.b_gate": normal(*many, spec.d_mlp)} if "gate" in extras else {}
            part |= {} if spec.n_experts is None else {"mlp.W_router": normal(*many, d)}
            part |= {"mlp.b_router": normal(*many)} if "router_bias" in extras else {}
        found |= {f"L{layer}.{name}": tensor for name, tensor in part.items()}
    return found


def case(
    name: str,
    *positions: Positions | None,
    extras: str = "",
    shape: tuple[int, int, int, int] = (8, 3, 3, 4),
    window: tuple[int | None, ...] = (None,),
    score_cap: float | None = None,
    smeared: tuple[bool, ...] = (False,),
    convolution: tuple[int | None, ...] = (None,),
    d_vocab: int = 11,
    n_tokens: int = 7,
    **facts: Any,
) -> Case:
    """A case of `len(positions)` layers; `shape` is (d_model, n_heads, n_key_value_heads, d_head)."""
    d_model, n_heads, n_kv, d_head = shape
    layers = tuple(
        Attention(
            where, (0.7 + 0.3 * index) * d_head**-0.5, window[index % len(window)], score_cap,
            smeared[index % len(smeared)], convolution[index % len(convolution)],
        )
        for index, where in enumerate(positions)
    )  # fmt: skip
    spec = Spec(d_vocab, n_tokens + 2, d_model, len(layers), n_heads, d_head, n_kv, layers, **facts)
    seed = sum(ord(letter) * (place + 1) for place, letter in enumerate(name))
    tokens = torch.randint(d_vocab, (n_tokens,), generator=torch.Generator().manual_seed(seed + 1))
    return Case(name, spec, random_tensors(spec, seed, frozenset(extras.split())), tokens)


HALVES, PAIRS = Rotary(4), Rotary(4, interleaved=True)
PARTIAL, PARTIAL_PAIRS = Rotary(2, base=50.0), Rotary(4, base=30.0, interleaved=True)
SCALED = Rotary(4, frequencies=(0.9, 0.13), magnitude=1.3)
SLOPES = Alibi((0.5, 0.25, 0.1)), Alibi((0.05, 0.6, 0.3)), Alibi((1.0, 0.0, 0.2))
EVERY_BIAS = "attention_bias b_O b_U norm_bias mlp_bias"

CASES = [
    case("zero_layers"),
    case("zero_layers_normed", extras="norm_bias b_U", norm="layer", learned_positions=True),
    case("one_layer", None),
    case("one_layer_one_narrow_head", Sinusoidal(), shape=(5, 1, 1, 1)),
    case("two_layers_sinusoidal", Sinusoidal(0.4), Sinusoidal(1.7, base=100.0)),
    case("two_layers_wide_heads", None, Sinusoidal(2.0), shape=(5, 2, 2, 7), d_vocab=4, n_tokens=6),
    case("three_layers_alibi", *SLOPES),
    case("three_layers_normed", None, None, None, extras="norm_bias b_O", norm="layer", shape=(7, 2, 2, 3)),
    case("three_layers_rotary_rms", HALVES, PAIRS, SCALED, norm="rms", shape=(9, 2, 1, 5)),
    case("biases_without_norm", None, None, extras=EVERY_BIAS, d_mlp=10, learned_positions=True),
    case("gpt2", None, None, extras=EVERY_BIAS, norm="layer", d_mlp=13, activation="gelu_tanh", learned_positions=True),
    case("gptj", PARTIAL_PAIRS, PARTIAL_PAIRS, extras="norm_bias b_U mlp_bias", norm="layer", parallel=True, d_mlp=9,
         shape=(8, 2, 2, 5)),
    case("neox", PARTIAL, PARTIAL, extras=EVERY_BIAS, norm="layer", parallel=True, d_mlp=9, activation="gelu"),
    case("bloom", *SLOPES[:2], extras=EVERY_BIAS, norm="layer", d_mlp=6, activation="gelu_tanh"),
    case("llama", HALVES, HALVES, extras="gate", norm="rms", d_mlp=9, activation="silu", shape=(7, 4, 2, 4)),
    case("multi_query", SCALED, HALVES, extras="gate b_O", norm="rms", norm_eps=1e-2, d_mlp=5, activation="relu",
         shape=(6, 4, 1, 5)),
    case("olmo", HALVES, HALVES, extras="no_gain gate", norm="layer", d_mlp=7, activation="silu"),
    case("gated_layer_norm", None, extras="norm_bias gate", norm="layer", d_mlp=6, activation="gelu"),
    case("query_norm_alone", None, HALVES, extras="qk_norm attention_bias", norm_eps=0.1, shape=(5, 2, 2, 4)),
    case("qwen2", HALVES, HALVES, extras="attention_bias gate", norm="rms", d_mlp=9, activation="silu",
         shape=(6, 4, 2, 6)),
    case("qwen3", SCALED, HALVES, extras="qk_norm gate", norm="rms", d_mlp=9, activation="silu", shape=(6, 4, 2, 4)),
    case("gemma2", HALVES, HALVES, extras="post gate", norm="rms", d_mlp=9, activation="gelu_tanh", window=(3, None),
         score_cap=2.0, logit_cap=1.5, shape=(7, 4, 2, 4)),
    case("gemma3", Rotary(4, base=20), SCALED, extras="post qk_norm gate", norm="rms", norm_eps=0.1, d_mlp=9,
         activation="gelu_tanh", window=(2, None), shape=(7, 2, 1, 4)),
    case("gpt_oss", HALVES, SCALED, extras="attention_bias b_O sinks gate mlp_bias router_bias", norm="rms", d_mlp=7,
         activation="silu_clamped", mlp_limit=0.8, n_experts=5, experts_per_token=3, window=(4, None),
         shape=(7, 4, 2, 4)),
    case("clamped_gate", None, extras="gate mlp_bias norm_bias", norm="layer", d_mlp=6, activation="silu_clamped",
         mlp_limit=0.6),
    case("mixtral", HALVES, HALVES, extras="gate", norm="rms", d_mlp=5, activation="silu", n_experts=5,
         experts_per_token=2, window=(3,), shape=(7, 4, 2, 4)),
    case("experts_without_gate", SLOPES[0], None, extras=f"post post_bias {EVERY_BIAS}", norm="layer", d_mlp=4,
         n_experts=3, experts_per_token=2, parallel=True, learned_positions=True, shape=(7, 3, 1, 3)),
    case("stablelm_qk", PARTIAL, PARTIAL, extras="qk_norm qk_norm_per_head attention_bias norm_bias gate", norm="layer",
         qk_norm="layer", norm_eps=0.02, parallel=True, d_mlp=9, activation="silu", shape=(7, 4, 2, 5)),
    case("phi_qk", PARTIAL, PARTIAL_PAIRS, extras=f"qk_norm qk_norm_bias {EVERY_BIAS}", norm="layer", qk_norm="layer",
         norm_eps=0.1, parallel=True, d_mlp=9, activation="gelu_tanh", shape=(7, 4, 2, 5)),
    case("olmo2", HALVES, SCALED, extras="post qk_norm qk_norm_per_head attention_bias gate", norm="rms", norm_eps=0.1,
         pre_norm=False, qk_norm_across_heads=True, d_mlp=9, activation="silu", shape=(7, 4, 2, 4)),
    case("post_norms_and_centred_queries", None, PAIRS, extras="post post_bias qk_norm_bias b_O b_U mlp_bias",
         norm="layer", qk_norm="layer", norm_eps=0.1, pre_norm=False, d_mlp=5, activation="relu", shape=(7, 2, 2, 5)),
    case("positions_and_norms_across_heads", Sinusoidal(0.6), LearnedQK(),
         extras=f"qk_norm qk_norm_bias qk_norm_per_head sinks {EVERY_BIAS}", norm="layer", norm_eps=0.1,
         qk_norm_across_heads=True, shape=(7, 4, 2, 3)),
    case("positions_after_norm", LearnedQK(), Sinusoidal(1.5), extras=EVERY_BIAS, norm="layer", d_mlp=5,
         activation="identity", shape=(7, 2, 2, 3)),
    case("positions_after_norm_and_qk_norm", Sinusoidal(0.8), LearnedQK(), extras=f"qk_norm {EVERY_BIAS}", norm="rms",
         norm_eps=0.05, shape=(7, 4, 2, 3)),
    case("post_layer_norm", LearnedQK(), *SLOPES[:1], extras=f"post post_bias qk_norm sinks gate {EVERY_BIAS}",
         norm="layer", d_mlp=5, parallel=True, score_cap=1.5),
    case("smeared_keys", Sinusoidal(0.6), Sinusoidal(0.9, base=50.0), smeared=(True,)),
    case("smeared_and_plain_layers", HALVES, LearnedQK(), extras=f"qk_norm qk_norm_bias {EVERY_BIAS}", norm="layer",
         qk_norm="layer", norm_eps=0.1, smeared=(True, False), window=(None, 4), shape=(7, 4, 2, 4)),
    case("convolution_sinusoidal", Sinusoidal(0.4), Sinusoidal(1.7, base=100.0), convolution=(3,), shape=(8, 2, 2, 4)),
    case("convolution_rotary", SCALED, HALVES, extras="post qk_norm attention_bias b_O gate", norm="rms", norm_eps=0.1,
         d_mlp=9, activation="silu", convolution=(2, 3), window=(None, 5), shape=(7, 4, 2, 4)),
    case("convolution_of_biases", LearnedQK(), None, extras=f"qk_norm qk_norm_per_head sinks {EVERY_BIAS}",
         norm="layer", norm_eps=0.1, qk_norm_across_heads=True, convolution=(3, None), shape=(7, 4, 2, 3)),
]  # fmt: skip
BY_NAME = {each.name: each for each in CASES}
