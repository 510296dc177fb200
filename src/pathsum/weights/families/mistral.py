"""Mistral and Mixtral: Llama with one sliding window for all layers; Mixtral's MLPs are experts."""

from torch import Tensor

from pathsum.errors import CheckpointError
from pathsum.weights.families.config import Config
from pathsum.weights.families.family import Family, Source, take
from pathsum.weights.families.llama import GATED, LAYER, OUT, PARTS, QKV, attentions, ends, gains, linears, llama_spec
from pathsum.weights.families.windows import SLIDING, one_window
from pathsum.weights.spec import Spec


def mistral_spec(config: Config) -> Spec:
    windows = one_window(config)
    listed = config.per_layer("layer_types", len(windows))
    if listed is not None and [kind == SLIDING for kind in listed] != [window is not None for window in windows]:
        raise CheckpointError(
            "config: layer_types and sliding_window disagree, and implementations differ in which they follow; "
            "remove layer_types if all layers have the window, or set it to null if none has"
        )
    return llama_spec(config, "mistral", attentions(config, windows))


def mistral_table(config: Config) -> dict[str, Source]:
    return {**ends(config), **gains(PARTS), **linears("self_attn", QKV | OUT), **linears("mlp", GATED)}


def mixtral_spec(config: Config) -> Spec:
    return llama_spec(
        config,
        "mixtral",
        attentions(config, one_window(config)),
        n_experts=config.whole("num_local_experts", "num_experts"),
        experts_per_token=config.whole("num_experts_per_tok"),
    )


def mixtral_table(config: Config) -> dict[str, Source]:
    """Experts one by one, as checkpoints have them, or stacked and gate over up, as the model in memory has them."""
    one = f"{LAYER}.block_sparse_moe.experts.{{expert}}"
    all_of_them = f"{LAYER}.mlp.experts"
    return {
        **ends(config),
        **gains(PARTS),
        **linears("self_attn", QKV | OUT),
        "L{layer}.mlp.W_router": (f"{LAYER}.block_sparse_moe.gate.weight", f"{LAYER}.mlp.gate.weight"),
        "L{layer}.mlp.W_gate": (f"{one}.w1.weight", take(f"{all_of_them}.gate_up_proj", change=first_half)),
        "L{layer}.mlp.W_in": (f"{one}.w3.weight", take(f"{all_of_them}.gate_up_proj", change=second_half)),
        "L{layer}.mlp.W_out": (f"{one}.w2.weight", f"{all_of_them}.down_proj"),
    }


def first_half(spec: Spec, rows: Tensor) -> Tensor:
    """The gate of a projection that is gate over up."""
    return rows.tensor_split(2, dim=-2)[0]


def second_half(spec: Spec, rows: Tensor) -> Tensor:
    """The up of a projection that is gate over up."""
    return rows.tensor_split(2, dim=-2)[1]


DEFAULTS = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu", "max_position_embeddings": 131072,
    "bos_token_id": 1, "tie_word_embeddings": False,
}  # fmt: skip
MISTRAL = Family(
    "mistral",
    spec=mistral_spec,
    tensors=mistral_table,
    defaults={**DEFAULTS, "rms_norm_eps": 1e-6, "sliding_window": 4096},
    prefixes=("model.",),
)
MIXTRAL = Family(
    "mixtral",
    spec=mixtral_spec,
    tensors=mixtral_table,
    defaults={
        **DEFAULTS, "rms_norm_eps": 1e-5, "rope_theta": 1_000_000.0, "num_experts_per_tok": 2, "num_local_experts": 8,
    },
    prefixes=("model.",),
)  # fmt: skip
