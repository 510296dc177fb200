"""Phi-1, Phi-1.5, Phi-2 and StableLM: a share of each head is rotary, queries and keys may have LayerNorms.

In Phi attention and MLP always read one norm of one stream, and everything has a bias; in StableLM they do so where
`use_parallel_residual` says it, the MLP is gated, and the norms of queries and keys are another vector in every head.
"""

import torch

from pathsum.weights.families.config import ACTIVATIONS, Config, model_shape
from pathsum.weights.families.family import Family, Source, linear, norm, take, unembedding
from pathsum.weights.families.layernorm import layernorm_spec, plain_mlp, projections
from pathsum.weights.families.rope import rope_context, rotary
from pathsum.weights.spec import Attention, Spec


def _spec(config: Config, family: str, parallel: bool) -> Spec:
    shape = model_shape(config)
    return layernorm_spec(
        config, family, Attention(rotary(config, shape["d_head"]), shape["d_head"] ** -0.5),
        n_ctx=rope_context(config, shape["n_ctx"]),
        d_mlp=config.whole("intermediate_size"),
        activation=config.choice("hidden_act", among=ACTIVATIONS),
        norm_eps=config.number("layer_norm_eps"),
        qk_norm="layer" if config.truth("qk_layernorm") else "none",
        parallel=parallel,
    )  # fmt: skip


# ---- Phi ----


def phi_table(config: Config) -> dict[str, Source]:
    layer = "layers.{layer}"
    table: dict[str, Source] = {
        "W_E": "embed_tokens.weight",
        "W_U": unembedding(config, "embed_tokens.weight"),
        "b_U": "lm_head.bias",
        **norm("final_norm", "final_layernorm"),
        **norm("L{layer}.attention_norm", f"{layer}.input_layernorm"),
        **norm("L{layer}.mlp_norm", f"{layer}.input_layernorm"),
        **projections(f"{layer}.self_attn", "dense"),
        **plain_mlp(f"{layer}.mlp", "fc1", "fc2"),
    }
    if config.truth("qk_layernorm"):
        table |= norm("L{layer}.q_norm", f"{layer}.self_attn.q_layernorm")
        table |= norm("L{layer}.k_norm", f"{layer}.self_attn.k_layernorm")
    return table


PHI = Family(
    "phi",
    spec=lambda config: _spec(config, "phi", parallel=True),
    tensors=phi_table,
    defaults={
        "vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
        "num_attention_heads": 32, "hidden_act": "gelu_new", "max_position_embeddings": 2048, "layer_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5, "qk_layernorm": False, "bos_token_id": 1, "tie_word_embeddings": False,
    },
    prefixes=("model.",),
)  # fmt: skip

# ---- StableLM ----


def stablelm_table(config: Config) -> dict[str, Source]:
    layer, shape = "layers.{layer}", model_shape(config)
    second = "input_layernorm" if config.truth("use_parallel_residual") else "post_attention_layernorm"
    table: dict[str, Source] = {
        "W_E": "embed_tokens.weight",
        "W_U": unembedding(config, "embed_tokens.weight"),
        **norm("final_norm", "norm"),
        **norm("L{layer}.attention_norm", f"{layer}.input_layernorm"),
        **norm("L{layer}.mlp_norm", f"{layer}.{second}"),
        **projections(f"{layer}.self_attn", "o_proj"),
        **linear("L{layer}.mlp.W_gate", "L{layer}.mlp.b_gate", f"{layer}.mlp.gate_proj"),
        **plain_mlp(f"{layer}.mlp", "up_proj", "down_proj"),
    }
    if config.truth("qk_layernorm"):
        for part, heads in (("q", shape["n_heads"]), ("k", shape["n_key_value_heads"])):
            gains = [f"{layer}.self_attn.{part}_layernorm.norms.{head}.weight" for head in range(heads)]
            table[f"L{{layer}}.{part}_norm.gain"] = take(*gains, change=lambda spec, *gains: torch.stack(gains))
    return table


STABLELM = Family(
    "stablelm",
    spec=lambda config: _spec(config, "stablelm", config.truth("use_parallel_residual")),
    tensors=stablelm_table,
    defaults={
        "vocab_size": 50304, "hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "hidden_act": "silu", "max_position_embeddings": 4096,
        "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25, "qk_layernorm": False, "use_parallel_residual": False,
        "bos_token_id": 0, "tie_word_embeddings": False,
    },
    prefixes=("model.",),
)  # fmt: skip
