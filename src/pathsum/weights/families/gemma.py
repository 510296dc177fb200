"""Gemma 1, 2 and 3: Llama with gains stored less one and embeddings times √d_model.

Gemma 2 and 3 norm what attention and MLP write, too, and layers alternate between a window and full attention;
Gemma 2 caps scores and logits, Gemma 3 norms queries and keys and has other rotary frequencies in layers that slide.
"""

from dataclasses import replace
from typing import Any

from pathsum.errors import CheckpointError
from pathsum.weights.families.config import ACTIVATIONS, Config, model_shape
from pathsum.weights.families.family import Family, Source, plus_one, scaled
from pathsum.weights.families.llama import GATED, OUT, PARTS, QKV, attentions, ends, gains, linears, llama_spec
from pathsum.weights.families.qwen import QK_NORMS
from pathsum.weights.families.windows import FULL, SLIDING, layer_kinds, windows
from pathsum.weights.spec import Attention, Spec

FOUR_NORMS = {
    "attention_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm", "post_mlp_norm": "post_feedforward_layernorm",
}  # fmt: skip

IDLE = {"rope_type": "default", "rope_theta": None}
"""What some versions of transformers (5.3 to 5.14) write beside the two objects of Gemma 3's `rope_parameters`."""


def gemma_spec(config: Config, family: str, layers: tuple[Attention, ...] | None = None, **facts: Any) -> Spec:
    config.only("use_bidirectional_attention", False, why="its attention looks ahead; only causal models are read")
    return llama_spec(config, family, layers, **facts)


def gemma1_spec(config: Config) -> Spec:
    """Early configs say "gelu" and mean its tanh form, or name it `hidden_activation`."""
    named = ("hidden_act", "hidden_activation")
    tanh = {name: "gelu_pytorch_tanh" for name in named if config.plain.get(name) == "gelu"}
    activation = Config({**config.plain, **tanh}, config.defaults).choice(*named, among=ACTIVATIONS)
    return gemma_spec(config, "gemma", activation=activation)


def gemma2_spec(config: Config) -> Spec:
    alternating = windows(config, lambda layer: layer % 2 == 0)
    cap = config.number("attn_logit_softcapping", default=None)
    layers = attentions(config, alternating, _score_scale(config))
    return gemma_spec(
        config,
        "gemma2",
        tuple(replace(layer, score_cap=cap) for layer in layers),
        activation=config.choice("hidden_activation", among=ACTIVATIONS),
        logit_cap=config.number("final_logit_softcapping", default=None),
    )


def gemma3_spec(config: Config) -> Spec:
    every = config.whole("sliding_window_pattern", "_sliding_window_pattern")
    slides = lambda layer: (layer + 1) % every != 0
    rotating = {kind: attentions(_rope(config, kind), None, _score_scale(config)) for kind in (FULL, SLIDING)}
    kinds, seen = layer_kinds(config, slides), windows(config, slides)
    return gemma_spec(
        _rope(config, FULL),
        "gemma3_text",
        tuple(replace(rotating[kind][layer], window=seen[layer]) for layer, kind in enumerate(kinds)),
        activation=config.choice("hidden_activation", among=ACTIVATIONS),
        logit_cap=config.number("final_logit_softcapping", default=None),
    )


def _score_scale(config: Config) -> float:
    scalar = config.number("query_pre_attn_scalar")
    if scalar <= 0:
        raise CheckpointError(f"config: query_pre_attn_scalar is {scalar}, but scores are divided by its root")
    return scalar**-0.5


def _rope(config: Config, kind: str) -> Config:
    """The config as layers of one kind see it: `rope_scaling` is of those with full attention only."""
    given = config.part("rope_parameters")
    if unknown := {name for name, value in given.plain.items() if value != IDLE.get(name)} - {FULL, SLIDING}:
        raise CheckpointError(
            f"config: rope_parameters has {min(unknown)!r}; Gemma 3 has one object for {FULL} and one for {SLIDING}"
        )
    theta = config.number("rope_theta" if kind == FULL else "rope_local_base_freq")
    scaling = config.part("rope_scaling").plain if kind == FULL else {}
    merged = {"rope_theta": theta, **given.part(kind).plain, **scaling}
    return Config({**config.plain, "rope_parameters": merged, "rope_scaling": None}, config.defaults)


def gemma_table(config: Config, norms: dict[str, str]) -> dict[str, Source]:
    return {
        **ends(config, plus_one),
        "W_E": scaled("embed_tokens.weight", model_shape(config)["d_model"] ** 0.5),
        **gains(norms, plus_one),
        **linears("self_attn", QKV | OUT, config.truth("attention_bias")),
        **linears("mlp", GATED),
    }


def text_part(config: Config) -> Config:
    """The language model of a Gemma 3 that also sees: tied as the whole says, its logits never capped."""
    whole = {"tie_word_embeddings": config.truth("tie_word_embeddings", default=True), "final_logit_softcapping": None}
    return Config({**config.part("text_config").plain, **whole}, dict(GEMMA3_TEXT.defaults))


DEFAULTS = {
    "vocab_size": 256000, "head_dim": 256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "bos_token_id": 2,
    "tie_word_embeddings": True, "attention_bias": False,
}  # fmt: skip
GEMMA = Family(
    "gemma",
    spec=gemma1_spec,
    tensors=lambda config: gemma_table(config, PARTS),
    defaults={
        **DEFAULTS, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 16, "hidden_act": "gelu_pytorch_tanh",
    },
    prefixes=("model.",),
)  # fmt: skip
LATER = {
    **DEFAULTS, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
    "num_key_value_heads": 4, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}  # fmt: skip
GEMMA2 = Family(
    "gemma2",
    spec=gemma2_spec,
    tensors=lambda config: gemma_table(config, FOUR_NORMS),
    defaults={**LATER, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
    prefixes=("model.",),
)
GEMMA3_TEXT = Family(
    "gemma3_text",
    spec=gemma3_spec,
    tensors=lambda config: gemma_table(config, FOUR_NORMS | QK_NORMS),
    defaults={
        **LATER, "vocab_size": 262208, "max_position_embeddings": 131072, "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0, "sliding_window_pattern": 6,
    },
    prefixes=("model.",),
)  # fmt: skip
GEMMA3 = Family(
    "gemma3",
    spec=lambda config: gemma3_spec(text_part(config)),
    tensors=lambda config: gemma_table(text_part(config), FOUR_NORMS | QK_NORMS),
    prefixes=("model.language_model.", "language_model.model.", "language_model.", "model."),
    ignore=(r"vision_tower\..*", r"multi_modal_projector\..*"),
)
"""What it sees enters only where a text has images in it."""
