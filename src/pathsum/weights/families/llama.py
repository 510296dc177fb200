"""Llama and its kin: RMSNorm before each part, rotary positions, grouped heads, gated MLPs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pathsum.weights.families.config import ACTIVATIONS, Config, bos_of, model_shape
from pathsum.weights.families.family import Family, Source, unembedding
from pathsum.weights.families.rope import rope_context, rope_parameters, rotary
from pathsum.weights.positions import Rotary
from pathsum.weights.spec import Activation, Attention, Spec

# ---- facts ----


def llama_spec(
    config: Config,
    family: str,
    layers: tuple[Attention, ...] | None = None,
    activation: Activation | None = None,
    **facts: Any,
) -> Spec:
    """Facts shared by the family's kin, the rest of `Spec` by name in `facts`."""
    shape = model_shape(config)
    shape["n_ctx"] = rope_context(config, shape["n_ctx"])
    return Spec(
        **shape,
        layers=attentions(config) if layers is None else layers,
        d_mlp=config.whole("intermediate_size"),
        activation=config.choice("hidden_act", among=ACTIVATIONS) if activation is None else activation,
        norm="rms",
        norm_eps=config.number("rms_norm_eps"),
        bos=bos_of(config),
        prepend_bos=False,
        family=family,
        **facts,
    )


def attentions(
    config: Config, windows: Sequence[int | None] | None = None, score_scale: float | int | None = None
) -> tuple[Attention, ...]:
    """One `Attention` a layer, all rotating alike; scores times 1/√d_head unless said otherwise."""
    shape = model_shape(config)
    scale = shape["d_head"] ** -0.5 if score_scale is None else score_scale
    rotation = whole_heads(config, shape["d_head"])
    return tuple(Attention(rotation, scale, window) for window in windows or [None] * shape["n_layers"])


def whole_heads(config: Config, d_head: int) -> Rotary:
    """Rotation of all of a head's coordinates; these families know no other."""
    for place in (config, rope_parameters(config)):
        place.only("partial_rotary_factor", 1, why="the reference implementation of this family rotates whole heads")
    return rotary(config, d_head)


# ---- names ----

LAYER = "layers.{layer}"
QKV = {"W_Q": "q_proj", "W_K": "k_proj", "W_V": "v_proj"}
OUT = {"W_O": "o_proj"}
GATED = {"mlp.W_gate": "gate_proj", "mlp.W_in": "up_proj", "mlp.W_out": "down_proj"}
PARTS = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}


def linears(module: str, names: Mapping[str, str], bias: bool = False) -> dict[str, Source]:
    """Every layer's `torch.nn.Linear`s inside `module`, by our names for their matrices, with or without biases."""
    found: dict[str, Source] = {}
    for ours, theirs in names.items():
        found[f"L{{layer}}.{ours}"] = f"{LAYER}.{module}.{theirs}.weight"
        if bias:
            found[f"L{{layer}}.{ours.replace('W_', 'b_')}"] = f"{LAYER}.{module}.{theirs}.bias"
    return found


def ends(config: Config, gain: Callable[[str], Source] = str) -> dict[str, Source]:
    """Embedding, unembedding and final norm."""
    return {
        "W_E": "embed_tokens.weight",
        "W_U": unembedding(config, "embed_tokens.weight"),
        "final_norm.gain": gain("norm.weight"),
    }


def gains(names: Mapping[str, str], gain: Callable[[str], Source] = str) -> dict[str, Source]:
    """Every layer's norms, by our names for them."""
    return {f"L{{layer}}.{ours}.gain": gain(f"{LAYER}.{theirs}.weight") for ours, theirs in names.items()}


def llama_table(config: Config) -> dict[str, Source]:
    return {
        **ends(config),
        **gains(PARTS),
        **linears("self_attn", QKV | OUT, config.truth("attention_bias", default=False)),
        **linears("mlp", GATED, config.truth("mlp_bias", default=False)),
    }


LLAMA = Family(
    "llama",
    spec=lambda config: llama_spec(config, "llama"),
    tensors=llama_table,
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "hidden_act": "silu", "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
        "bos_token_id": 1, "tie_word_embeddings": False,
    },
    prefixes=("model.",),
)  # fmt: skip
