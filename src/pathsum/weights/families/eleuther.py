"""GPT-Neo, GPT-J and GPT-NeoX (Pythia), in the order they were made.

GPT-Neo does not scale its scores, and every other layer sees a window only. GPT-J turns neighbouring coordinates of
queries and keys, and its attention and MLP read one norm of one stream; NeoX gives the MLP a norm of its own, turns a
share of each head in halves, and fuses queries, keys and values head by head.
"""

from pathsum.errors import CheckpointError
from pathsum.weights.families.config import ACTIVATIONS, Config, model_shape
from pathsum.weights.families.family import Family, Source, fused, head_by_head, linear, norm, unembedding
from pathsum.weights.families.layernorm import (
    d_head_of,
    d_mlp_of,
    even_share,
    layernorm_spec,
    plain_mlp,
    projections,
)
from pathsum.weights.families.rope import rope_context, rotary
from pathsum.weights.positions import Rotary
from pathsum.weights.spec import Attention, Spec

# ---- GPT-Neo ----


def gpt_neo_spec(config: Config) -> Spec:
    kinds = _attention_layers(config, model_shape(config)["n_layers"])
    window = config.whole("window_size")
    layers = tuple(Attention(score_scale=1.0, window=window if kind == "local" else None) for kind in kinds)
    return layernorm_spec(
        config, "gpt_neo", layers,
        d_mlp=d_mlp_of(config, "intermediate_size"),
        activation=config.choice("activation_function", among=ACTIVATIONS),
        norm_eps=config.number("layer_norm_epsilon"),
        learned_positions=True,
    )  # fmt: skip


def _attention_layers(config: Config, n_layers: int) -> list[str]:
    """ "global" or "local" for every layer: `[[kinds, times], …]` written out, or the list that is already so."""
    listed = config.get("attention_layers", default=None)
    types = config.get("attention_types", default=None)
    if types is None:
        types = [[["global", "local"], 12]] if listed is None else [[listed, 1]]
    try:
        kinds = [kind for kinds, times in types for kind in list(kinds) * min(times, n_layers + 1)]
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"config: attention_types {types!r} is no list of [kinds, times]") from error
    if listed is not None and listed != kinds:
        raise CheckpointError(f"config: attention_layers {listed} are not what attention_types says, {kinds}")
    if len(kinds) != n_layers or any(kind not in ("global", "local") for kind in kinds):
        raise CheckpointError(f"config: attention_types gives {kinds}, must give 'global' or 'local' {n_layers} times")
    return kinds


def gpt_neo_table(config: Config) -> dict[str, Source]:
    layer = "h.{layer}"
    return {
        "W_E": "wte.weight",
        "W_pos": "wpe.weight",
        "W_U": unembedding(config, "wte.weight"),
        **norm("final_norm", "ln_f"),
        **norm("L{layer}.attention_norm", f"{layer}.ln_1"),
        **norm("L{layer}.mlp_norm", f"{layer}.ln_2"),
        **projections(f"{layer}.attn.attention", "out_proj"),
        **plain_mlp(f"{layer}.mlp", "c_fc", "c_proj"),
    }


GPT_NEO = Family(
    "gpt_neo",
    spec=gpt_neo_spec,
    tensors=gpt_neo_table,
    defaults={
        "vocab_size": 50257, "max_position_embeddings": 2048, "hidden_size": 2048, "num_layers": 24, "num_heads": 16,
        "window_size": 256, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "bos_token_id": 50256,
        "tie_word_embeddings": True,
    },
    prefixes=("transformer.",),
)  # fmt: skip

# ---- GPT-J ----


def gptj_spec(config: Config) -> Spec:
    d_head = d_head_of(config)
    turned = even_share("rotary_dim", config.whole("rotary_dim"), d_head)
    return layernorm_spec(
        config, "gptj", Attention(Rotary(turned, interleaved=True), d_head**-0.5),
        d_mlp=d_mlp_of(config, "n_inner"),
        activation=config.choice("activation_function", among=ACTIVATIONS),
        norm_eps=config.number("layer_norm_epsilon"),
        parallel=True,
    )  # fmt: skip


def gptj_table(config: Config) -> dict[str, Source]:
    layer = "h.{layer}"
    return {
        "W_E": "wte.weight",
        "W_U": unembedding(config, "wte.weight"),
        "b_U": "lm_head.bias",
        **norm("final_norm", "ln_f"),
        **norm("L{layer}.attention_norm", f"{layer}.ln_1"),
        **norm("L{layer}.mlp_norm", f"{layer}.ln_1"),
        **projections(f"{layer}.attn", "out_proj"),
        **plain_mlp(f"{layer}.mlp", "fc_in", "fc_out"),
    }


GPTJ = Family(
    "gptj",
    spec=gptj_spec,
    tensors=gptj_table,
    defaults={
        "vocab_size": 50400, "n_positions": 2048, "n_embd": 4096, "n_layer": 28, "n_head": 16, "rotary_dim": 64,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "bos_token_id": 50256,
        "tie_word_embeddings": False,
    },
    prefixes=("transformer.",),
    ignore=(r"h\.\d+\.attn\.embed_positions",),
)  # fmt: skip

# ---- GPT-NeoX ----


def gpt_neox_spec(config: Config) -> Spec:
    d_head = d_head_of(config)
    return layernorm_spec(
        config, "gpt_neox", Attention(rotary(config, d_head), d_head**-0.5),
        n_ctx=rope_context(config, model_shape(config)["n_ctx"]),
        d_mlp=config.whole("intermediate_size"),
        activation=config.choice("hidden_act", among=ACTIVATIONS),
        norm_eps=config.number("layer_norm_eps"),
        parallel=config.truth("use_parallel_residual"),
    )  # fmt: skip


def gpt_neox_table(config: Config) -> dict[str, Source]:
    layer, tied = "layers.{layer}", config.truth("tie_word_embeddings")
    return {
        "W_E": "embed_in.weight",
        "W_U": "embed_in.weight" if tied else ("lm_head.weight", "embed_out.weight"),
        **norm("final_norm", "final_layer_norm"),
        **norm("L{layer}.attention_norm", f"{layer}.input_layernorm"),
        **norm("L{layer}.mlp_norm", f"{layer}.post_attention_layernorm"),
        **fused(f"{layer}.attention.query_key_value", head_by_head),
        **linear("L{layer}.W_O", "L{layer}.b_O", f"{layer}.attention.dense"),
        **plain_mlp(f"{layer}.mlp", "dense_h_to_4h", "dense_4h_to_h"),
    }


GPT_NEOX = Family(
    "gpt_neox",
    spec=gpt_neox_spec,
    tensors=gpt_neox_table,
    defaults={
        "vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64,
        "intermediate_size": 24576, "hidden_act": "gelu", "max_position_embeddings": 2048, "layer_norm_eps": 1e-5,
        "rotary_pct": 0.25, "bos_token_id": 0, "tie_word_embeddings": False, "use_parallel_residual": True,
    },
    prefixes=("gpt_neox.",),
)  # fmt: skip
