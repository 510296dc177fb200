"""BLOOM and Falcon: fused projections laid out head by head, tied embeddings.

BLOOM has ALiBi, and a LayerNorm of the embedding: it is a function of the token alone, so W_E holds its values and the
unembedding stays the plain matrix. Falcon is rotary, with one key and value for all heads (7B) or for groups of them
(40B and later), beside an MLP that reads the same stream through the same norm or through its own.
"""

import math

from pathsum.errors import CheckpointError
from pathsum.weights.families.config import ACTIVATIONS, Config, model_shape
from pathsum.weights.families.family import Family, Source, fused, head_by_head, linear, norm, unembedding
from pathsum.weights.families.layernorm import d_mlp_of, layernorm_spec, normed_embedding, plain_mlp
from pathsum.weights.families.rope import rope_context, rotary
from pathsum.weights.positions import Alibi
from pathsum.weights.spec import Attention, Spec

# ---- BLOOM ----


def bloom_spec(config: Config) -> Spec:
    config.only(
        "apply_residual_connection_post_layernorm", False, why="the stream itself would be normed, which no path shows"
    )
    if config.truth("slow_but_exact", default=False) and config.whole("pretraining_tp", default=1) > 1:
        raise CheckpointError(
            "config: slow_but_exact with pretraining_tp above 1 is refused: the reference leaves two biases out then"
        )
    shape = model_shape(config)
    return layernorm_spec(
        config, "bloom", Attention(Alibi(alibi_slopes(shape["n_heads"])), shape["d_head"] ** -0.5),
        d_mlp=4 * shape["d_model"],
        activation="gelu_tanh",
        norm_eps=config.number("layer_norm_epsilon"),
    )  # fmt: skip


def alibi_slopes(n_heads: int) -> tuple[float, ...]:
    """`2^(−8k/n)` for the n a power of two; other counts take every other slope of twice that power for the rest."""
    power = 2 ** math.floor(math.log2(n_heads))
    extra = range(1, 2 * (n_heads - power), 2)
    return tuple(2 ** (-8 * k / power) for k in range(1, power + 1)) + tuple(2 ** (-4 * k / power) for k in extra)


def bloom_table(config: Config) -> dict[str, Source]:
    layer = "h.{layer}"
    return {
        "W_E": normed_embedding(
            "word_embeddings.weight", "word_embeddings_layernorm", config.number("layer_norm_epsilon")
        ),
        "W_U": unembedding(config, "word_embeddings.weight"),
        **norm("final_norm", "ln_f"),
        **norm("L{layer}.attention_norm", f"{layer}.input_layernorm"),
        **norm("L{layer}.mlp_norm", f"{layer}.post_attention_layernorm"),
        **_fused_layer(layer),
    }


def _fused_layer(layer: str) -> dict[str, Source]:
    return {
        **fused(f"{layer}.self_attention.query_key_value", head_by_head),
        **linear("L{layer}.W_O", "L{layer}.b_O", f"{layer}.self_attention.dense"),
        **plain_mlp(f"{layer}.mlp", "dense_h_to_4h", "dense_4h_to_h"),
    }


BLOOM = Family(
    "bloom",
    spec=bloom_spec,
    tensors=bloom_table,
    defaults={
        "vocab_size": 250880, "hidden_size": 64, "n_layer": 2, "n_head": 8, "layer_norm_epsilon": 1e-5,
        "seq_length": 2048, "bos_token_id": 1, "tie_word_embeddings": True,
    },
    prefixes=("transformer.",),
)  # fmt: skip

# ---- Falcon ----


def falcon_spec(config: Config) -> Spec:
    config.only(
        "alibi", False, why="its reference rounds slope × position to bfloat16, so that no slope gives the same scores"
    )
    shape = model_shape(config)
    return layernorm_spec(
        config, "falcon", Attention(rotary(config, shape["d_head"]), shape["d_head"] ** -0.5),
        n_ctx=rope_context(config, shape["n_ctx"]),
        n_key_value_heads=_key_value_heads(config, shape["n_heads"]),
        d_mlp=d_mlp_of(config, "ffn_hidden_size"),
        activation=config.choice("activation", among=ACTIVATIONS),
        norm_eps=config.number("layer_norm_epsilon"),
        parallel=_norms(config) != "sequential",
    )  # fmt: skip


def _key_value_heads(config: Config, n_heads: int) -> int:
    if config.truth("new_decoder_architecture"):
        return config.whole("num_kv_heads", "n_head_kv", default=n_heads)
    return 1 if config.truth("multi_query") else n_heads


def _norms(config: Config) -> str:
    """Which norms a layer has: "one" for both parts, "two" of the same stream, or "sequential" ones."""
    parallel, why = config.truth("parallel_attn"), "its reference fails on it"
    if config.truth("new_decoder_architecture"):
        config.only("parallel_attn", True, why=why)
        config.only("num_ln_in_parallel_attn", 1, 2, why=why)
        return "two" if config.whole("num_ln_in_parallel_attn", default=2) == 2 else "one"
    if parallel and config.get("num_ln_in_parallel_attn", default=1) == 2:
        raise CheckpointError("config: num_ln_in_parallel_attn is 2, which goes with new_decoder_architecture only")
    return "one" if parallel else "sequential"


def falcon_table(config: Config) -> dict[str, Source]:
    layer = "h.{layer}"
    first, second = {
        "one": ("input_layernorm", "input_layernorm"),
        "two": ("ln_attn", "ln_mlp"),
        "sequential": ("input_layernorm", "post_attention_layernorm"),
    }[_norms(config)]
    return {
        "W_E": "word_embeddings.weight",
        "W_U": unembedding(config, "word_embeddings.weight"),
        **norm("final_norm", "ln_f"),
        **norm("L{layer}.attention_norm", f"{layer}.{first}"),
        **norm("L{layer}.mlp_norm", f"{layer}.{second}"),
        **_fused_layer(layer),
    }


FALCON = Family(
    "falcon",
    spec=falcon_spec,
    tensors=falcon_table,
    defaults={
        "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
        "layer_norm_epsilon": 1e-5, "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True,
        "activation": "gelu", "max_position_embeddings": 2048, "bos_token_id": 11, "tie_word_embeddings": True,
    },
    prefixes=("transformer.",),
)  # fmt: skip
