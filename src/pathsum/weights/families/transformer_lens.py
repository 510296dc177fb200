"""TransformerLens: state dicts of `HookedTransformer`, attention-only or with MLPs, with `model.cfg` as the config.

Matrices are stored `[head, d_model, d_head]` and `[in, out]`, for vectors that are rows. A gated MLP adds its b_in
after the gate: it reaches the stream as `W_out b_in` and is read as part of b_out.
"""

from pathsum.errors import CheckpointError
from pathsum.weights.checks import MOST_LAYERS
from pathsum.weights.families.config import ACTIVATIONS, MOST_WIDTH, Config
from pathsum.weights.families.family import Family, Source, take, transposed, wide
from pathsum.weights.families.layernorm import even_share, normed_embedding
from pathsum.weights.positions import Alibi, LearnedQK, Positions, Rotary
from pathsum.weights.spec import Attention, NormKind, Spec

NORMS: dict[str | None, NormKind] = {None: "none", "LN": "layer", "LNPre": "layer", "RMS": "rms", "RMSPre": "rms"}
POSITIONS = {name: name for name in ("standard", "shortformer", "rotary", "alibi")}

HONOURED = (
    "n_layers", "d_model", "n_ctx", "d_head", "n_heads", "n_key_value_heads", "d_vocab", "d_vocab_out", "d_mlp",
    "act_fn", "attn_only", "gated_mlp", "parallel_attn_mlp", "normalization_type", "eps", "final_rms", "use_qk_norm",
    "use_normalization_before_and_after", "post_embedding_ln", "use_attn_scale", "attn_scale",
    "scale_attn_by_inverse_layer_idx", "use_local_attn", "attn_types", "window_size", "attn_scores_soft_cap",
    "output_logits_soft_cap", "positional_embedding_type", "rotary_dim", "rotary_base", "rotary_adjacent_pairs",
)  # fmt: skip
WITHOUT_EFFECT = (
    "model_name", "model_type", "original_architecture", "from_checkpoint", "checkpoint_index",
    "checkpoint_label_type", "checkpoint_value", "tokenizer_name", "init_mode", "initializer_range", "init_weights",
    "device", "n_devices", "seed", "n_params", "dtype", "trust_remote_code", "default_prepend_bos",
    "tokenizer_prepends_bos", "use_attn_result", "use_split_qkv_input", "use_hook_mlp_in", "use_attn_in",
    "use_hook_tokens", "ungroup_grouped_query_attention", "tie_word_embeddings", "relative_attention_max_distance",
    "relative_attention_num_buckets", "decoder_start_token_id", "NTK_by_parts_low_freq_factor",
    "NTK_by_parts_high_freq_factor", "NTK_by_parts_factor", "NTK_original_ctx_len", "experts_per_token",
)  # fmt: skip
REFUSED = {
    "attention_dir": (("causal",), "pathsum reads models that look back only"),
    "num_experts": ((), "how the shares of experts are made differs between TransformerLens versions"),
    "use_NTK_by_parts_rope": ((False,), "its frequencies differ between TransformerLens versions"),
    "rotary_base_local": ((), "which layers it is of is not in the config"),
    "load_in_4bit": ((False,), "the weights are packed; save them unquantised"),
}  # fmt: skip
"""Field → values that change nothing, and why others are refused."""


def transformer_lens_spec(config: Config) -> Spec:
    _check_fields(config)
    d_model, d_head = config.whole("d_model", most=MOST_WIDTH), config.whole("d_head", most=MOST_WIDTH)
    n_layers = config.whole("n_layers", least=0, most=MOST_LAYERS)
    given = config.get("n_heads", default=-1) != -1
    n_heads = config.whole("n_heads", most=MOST_WIDTH) if given else d_model // d_head
    kind = _norm_kind(config)
    config.only("final_rms", *((False,) if kind == "layer" else (False, True)), why="all norms must be of one kind")
    d_vocab = config.whole("d_vocab")
    config.only("d_vocab_out", -1, d_vocab, why="tokens read and tokens predicted must be of one vocabulary")
    where = config.choice("positional_embedding_type", among=POSITIONS)
    positions = _positions(config, where, d_head, n_heads)
    attn_only = config.truth("attn_only")
    return Spec(
        d_vocab=d_vocab,
        n_ctx=config.whole("n_ctx"),
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_head=d_head,
        n_key_value_heads=config.whole("n_key_value_heads", default=n_heads),
        layers=tuple(_attention(config, layer, positions) for layer in range(n_layers)),
        d_mlp=None if attn_only else config.whole("d_mlp", default=4 * d_model),
        activation="identity" if attn_only else config.choice("act_fn", among=ACTIVATIONS),
        norm=kind,
        norm_eps=config.number("eps"),
        qk_norm="rms" if config.truth("use_qk_norm") else "none",
        parallel=config.truth("parallel_attn_mlp"),
        learned_positions=where == "standard",
        logit_cap=_cap(config, "output_logits_soft_cap"),
        prepend_bos=False,
        family="transformer_lens",
    )


def _check_fields(config: Config) -> None:
    for name, (neutral, why) in REFUSED.items():
        config.only(name, *neutral, why=why)
    if unknown := sorted(set(config.plain) - {*HONOURED, *WITHOUT_EFFECT, *REFUSED}):
        raise CheckpointError(
            f"config: {unknown[0]} is no field of TransformerLens that pathsum knows; "
            "leave it out if the logits do not depend on it"
        )


def _norm_kind(config: Config) -> NormKind:
    """`null` means that there are no norms; absent, that they are LayerNorms."""
    word = config.plain.get("normalization_type", "LN")
    if not isinstance(word, str | None) or word not in NORMS:
        raise CheckpointError(f"config: normalization_type {word!r} is not one of {', '.join(map(str, NORMS))}")
    return NORMS[word]


def _cap(config: Config, name: str) -> float | int | None:
    """Caps of zero and below are none."""
    cap = config.number(name, default=-1.0)
    return cap if cap > 0 else None


def _positions(config: Config, where: str, d_head: int, n_heads: int) -> Positions | None:
    if where == "rotary":
        turned = even_share("rotary_dim", config.whole("rotary_dim", default=d_head), d_head)
        return Rotary(turned, config.number("rotary_base"), config.truth("rotary_adjacent_pairs"))
    if where == "alibi":
        config.only("attn_scores_soft_cap", 0, -1, why="it caps the scores before ALiBi is added")
        return Alibi(tuple(2 ** (-8 * (head + 1) / n_heads) for head in range(n_heads)))
    return LearnedQK() if where == "shortformer" else None


def _attention(config: Config, layer: int, positions: Positions | None) -> Attention:
    divisor = 1.0
    if config.truth("use_attn_scale"):
        given = config.number("attn_scale", default=-1.0)
        divisor = config.whole("d_head") ** 0.5 if given == -1 else float(given)
    if divisor == 0:
        raise CheckpointError("config: attn_scale is 0; scores are divided by it")
    if config.truth("scale_attn_by_inverse_layer_idx"):
        divisor *= layer + 1
    window = None
    if config.truth("use_local_attn"):
        kinds = config.per_layer("attn_types", config.whole("n_layers", least=0))
        if kinds is None or kinds[layer] not in ("global", "local"):
            raise CheckpointError("config: attn_types must say 'global' or 'local' for every layer (use_local_attn)")
        window = config.whole("window_size") if kinds[layer] == "local" else None
    return Attention(positions, 1 / divisor, window, _cap(config, "attn_scores_soft_cap"))


def transformer_lens_table(config: Config) -> dict[str, Source]:
    attn = "blocks.{layer}.attn"
    reading = lambda name: take(f"{attn}.{name}", change=lambda spec, W: W.mT.flatten(0, 1))
    flat = lambda name: take(f"{attn}.{name}", change=lambda spec, b: b.flatten())
    shared = "" if config.get("n_key_value_heads", default=None) is None else "_"
    table: dict[str, Source] = {
        "W_E": "embed.W_E",
        "W_U": transposed("unembed.W_U"),
        "b_U": "unembed.b_U",
        "L{layer}.W_Q": reading("W_Q"),
        "L{layer}.b_Q": flat("b_Q"),
        "L{layer}.W_K": reading(f"{shared}W_K"),
        "L{layer}.b_K": flat(f"{shared}b_K"),
        "L{layer}.W_V": reading(f"{shared}W_V"),
        "L{layer}.b_V": flat(f"{shared}b_V"),
        "L{layer}.W_O": take(f"{attn}.W_O", change=lambda spec, W: W.flatten(0, 1).mT),
        "L{layer}.b_O": f"{attn}.b_O",
    }
    if config.get("positional_embedding_type") in ("standard", "shortformer"):
        table["W_pos"] = "pos_embed.W_pos"
    if config.truth("post_embedding_ln"):
        table["W_E"] = normed_embedding("embed.W_E", "embed.ln", config.number("eps"), ("w", "b"))
    return table | _mlp(config) | _norms(config)


def _mlp(config: Config) -> dict[str, Source]:
    mlp = "blocks.{layer}.mlp"
    if config.truth("attn_only"):
        return {}
    maps = {f"L{{layer}}.mlp.{name}": transposed(f"{mlp}.{name}") for name in ("W_in", "W_out")}
    if not config.truth("gated_mlp"):
        return {**maps, "L{layer}.mlp.b_in": f"{mlp}.b_in", "L{layer}.mlp.b_out": f"{mlp}.b_out"}
    written = lambda spec, W_out, b_in, b_out: wide(b_in) @ wide(W_out) + wide(b_out)
    names = [f"{mlp}.{name}" for name in ("W_out", "b_in", "b_out")]
    return {
        **maps,
        "L{layer}.mlp.W_gate": transposed(f"{mlp}.W_gate"),
        "L{layer}.mlp.b_out": take(*names, change=written),
    }


def _norms(config: Config) -> dict[str, Source]:
    """Those with vectors of their own: "Pre" norms have none, but what is normed after is not folded."""
    kind, found = config.plain.get("normalization_type", "LN"), {}
    if kind in ("LN", "RMS"):
        found = {"final_norm": "ln_final", "L{layer}.attention_norm": "blocks.{layer}.ln1"}
        found |= {} if config.truth("attn_only") else {"L{layer}.mlp_norm": "blocks.{layer}.ln2"}
    if config.truth("use_normalization_before_and_after") and kind is not None:
        found["L{layer}.post_attention_norm"] = "blocks.{layer}.ln1_post"
        found |= {} if config.truth("attn_only") else {"L{layer}.post_mlp_norm": "blocks.{layer}.ln2_post"}
    if config.truth("use_qk_norm"):
        found |= {f"L{{layer}}.{part}_norm": f"blocks.{{layer}}.attn.{part}_norm" for part in "qk"}
    vectors = {"gain": "w", "bias": "b"}
    return {f"{ours}.{v}": f"{theirs}.{letter}" for ours, theirs in found.items() for v, letter in vectors.items()}


TRANSFORMER_LENS = Family(
    "transformer_lens",
    spec=transformer_lens_spec,
    tensors=transformer_lens_table,
    defaults={
        "eps": 1e-5, "attn_only": False, "gated_mlp": False, "parallel_attn_mlp": False, "use_qk_norm": False,
        "use_normalization_before_and_after": False, "post_embedding_ln": False, "use_attn_scale": True,
        "scale_attn_by_inverse_layer_idx": False, "use_local_attn": False, "positional_embedding_type": "standard",
        "rotary_base": 10_000, "rotary_adjacent_pairs": False,
    },
    ignore=(r"blocks\.\d+\.attn\.(mask|IGNORE|rotary_sin|rotary_cos)", r"pos_embed\.W_pos"),
)  # fmt: skip
"""ALiBi models carry a W_pos that nothing reads."""
