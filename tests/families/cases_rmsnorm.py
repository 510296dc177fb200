"""Llama's kin: every kind of rotary scaling, window, bias, norm, gate and multiplier they are used with."""

from typing import Any

from families.family_case import Case

TINY = {
    "vocab_size": 31, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 40,
}  # fmt: skip
MHA, MQA = {"num_key_value_heads": 6}, {"num_key_value_heads": 1}
ODD = {"hidden_size": 30, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 17}
FOUR = {"num_hidden_layers": 4}
BIASES = {"attention_bias": True}
UNTIED, TIED = {"tie_word_embeddings": False}, {"tie_word_embeddings": True}
EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2}
FULL, SLIDING = "full_attention", "sliding_attention"

LINEAR = {"rope_type": "linear", "factor": 3.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 3.0}
LLAMA3 = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
YARN_SAID = {**YARN, "beta_fast": 4.0, "beta_slow": 0.5, "truncate": False, "attention_factor": 1.3}
YARN_MSCALE = {**YARN, "beta_fast": 4.0, "mscale": 0.7, "mscale_all_dim": 1.4}
LONGROPE = {
    "rope_type": "longrope", "short_factor": [1.1, 1.7], "long_factor": [2.0, 5.0],
    "original_max_position_embeddings": 20,
}  # fmt: skip
SHORT_ONE = {**LONGROPE, "short_factor": [1.3], "long_factor": [2.0]}
YARN32 = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip


def named(model_type: str, *fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A plain `config.json` of these fields."""
    merged: dict[str, Any] = {"model_type": model_type}
    for part in fields:
        merged |= part
    return merged | more


def old(scaling: dict[str, Any]) -> dict[str, Any]:
    """As configs wrote a `rope_scaling` before: `type` for `rope_type`, the base outside."""
    return {"type": scaling["rope_type"], **{k: v for k, v in scaling.items() if k not in ("rope_type", "rope_theta")}}


LLAMAS = [
    Case(
        f"llama_{name}", "llama", {**TINY, "rope_parameters": {**scaling, "rope_theta": 700.0}},
        (named("llama", TINY, rope_theta=700.0, rope_scaling=old(scaling)),
         named("llama", TINY, rope_theta=700, rope_scaling=scaling, rope_interleaved=False, pretraining_tp=1)),
    )
    for name, scaling in {
        "linear": LINEAR, "dynamic": DYNAMIC, "yarn": YARN, "yarn_said": YARN_SAID, "yarn_mscale": YARN_MSCALE,
        "llama3": LLAMA3, "longrope": LONGROPE,
    }.items()
] + [Case("llama_odd", "llama", {**TINY, **ODD, **BIASES, "hidden_act": "gelu"})]  # fmt: skip

MISTRALS = [
    Case(
        "mistral", "mistral", {**TINY, "sliding_window": 4},
        (named("mistral", TINY, sliding_window=4, rope_theta=10000.0, head_dim=None),
         named("mistral", TINY, sliding_window=4, layer_types=[SLIDING] * 3, num_key_value_heads=2)),
    ),
    Case(
        "mistral_everywhere", "mistral", {**TINY, **MHA, **TIED, "sliding_window": None, "head_dim": 10},
        (named("mistral", TINY, TIED, sliding_window=None, head_dim=10, num_key_value_heads=None),
         named("mistral", TINY, TIED, sliding_window=None, head_dim=10, num_key_value_heads=6,
               layer_types=[FULL] * 3)),
    ),
    Case(
        "mistral_odd", "mistral",
        {**TINY, **ODD, "sliding_window": 1, "rope_parameters": {**YARN, "rope_theta": 90.0}},
    ),
    Case(
        "mixtral", "mixtral", {**TINY, **EXPERTS, "sliding_window": 5},
        (named("mixtral", TINY, EXPERTS, sliding_window=5, rope_theta=1e6),
         named("mixtral", TINY, sliding_window=5, num_experts=5)),
    ),
    Case("mixtral_one", "mixtral", {**TINY, **MHA, **TIED, "num_local_experts": 3, "num_experts_per_tok": 1}),
    Case("mixtral_odd", "mixtral", {**TINY, **ODD, "num_local_experts": 3, "num_experts_per_tok": 3}),
]  # fmt: skip

SLIDES = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
QWENS = [
    Case(
        "qwen2", "qwen2", {**TINY, **SLIDES},
        (named("qwen2", TINY, SLIDES, rope_theta=10000.0), named("qwen2", TINY, SLIDES, rope_scaling=None),
         named("qwen2", TINY, SLIDES, layer_types=[FULL, SLIDING, SLIDING], max_window_layers=28)),
    ),
    Case(
        "qwen2_full", "qwen2", {**TINY, **MQA, **TIED, "rope_parameters": {**YARN, "rope_theta": 300.0}},
        (named("qwen2", TINY, MQA, TIED, use_sliding_window=False, sliding_window=3, max_window_layers=0,
               rope_theta=300.0, rope_scaling=old(YARN)),),
    ),
    Case("qwen2_mha", "qwen2", {**TINY, **MHA, "layer_types": [SLIDING, FULL, SLIDING], **SLIDES}),
    Case(
        "qwen3", "qwen3", {**TINY, **BIASES, **SLIDES, "head_dim": 8},
        (named("qwen3", TINY, BIASES, SLIDES, head_dim=8, rope_theta=10000.0, rope_scaling=None),),
    ),
    Case("qwen3_odd", "qwen3", {**TINY, **ODD, **TIED}, (named("qwen3", TINY, ODD, TIED, sliding_window=None),)),
    Case("qwen3_mha", "qwen3", {**TINY, **MHA, "head_dim": 4, "rope_parameters": {**LINEAR, "rope_theta": 50.0}}),
]  # fmt: skip

CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
PRE = {"query_pre_attn_scalar": 7, "head_dim": 8}
NESTED = {
    "full_attention": {**LINEAR, "rope_theta": 900.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
}
GEMMA3 = {**TINY, **PRE, **FOUR, "sliding_window": 4}
SIGHT = {
    "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8,
    "patch_size": 4,
}  # fmt: skip
SEES = {"vision_config": {"model_type": "siglip_vision_model", **SIGHT}, "mm_tokens_per_image": 4}
GEMMAS = [
    Case(
        "gemma", "gemma", {**TINY, "head_dim": 8},
        (named("gemma", TINY, head_dim=8, hidden_act="gelu", rope_theta=10000.0),
         named("gemma", TINY, head_dim=8, hidden_act="gelu", hidden_activation="gelu_pytorch_tanh"),
         named("gemma", TINY, head_dim=8, hidden_act="gelu_pytorch_tanh", hidden_activation=None)),
    ),
    Case("gemma_untied", "gemma", {**TINY, **UNTIED, **BIASES, **MHA, "head_dim": 10, "hidden_act": "silu"}),
    Case("gemma_odd", "gemma", {**TINY, **ODD}),
    Case(
        "gemma2", "gemma2", {**TINY, **PRE, **CAPS, **FOUR, "sliding_window": 4},
        (named("gemma2", TINY, PRE, CAPS, FOUR, sliding_window=4, rope_theta=10000.0, hidden_act="gelu_pytorch_tanh",
               hidden_activation="gelu_pytorch_tanh", cache_implementation="hybrid", sliding_window_size=4),),
    ),
    Case(
        "gemma2_uncapped", "gemma2",
        {**TINY, **UNTIED, **BIASES, **MHA, "head_dim": 10, "attn_logit_softcapping": None,
         "final_logit_softcapping": None, "layer_types": [FULL, FULL, SLIDING], "sliding_window": 3},
    ),
    Case("gemma2_defaults", "gemma2", {**TINY, **ODD}, (named("gemma2", TINY, ODD, query_pre_attn_scalar=256),)),
    Case(
        "gemma3_text", "gemma3_text", GEMMA3,
        (named("gemma3_text", GEMMA3, rope_theta=1e6, rope_local_base_freq=10000.0, sliding_window_pattern=6),
         named("gemma3_text", GEMMA3, rope_scaling=None, layer_types=[SLIDING] * 4, _sliding_window_pattern=6)),
    ),
    Case(
        "gemma3_text_rope", "gemma3_text",
        {**GEMMA3, **UNTIED, **BIASES, "layer_types": [SLIDING, FULL] * 2, "rope_parameters": NESTED,
         "final_logit_softcapping": 3.0, "attn_logit_softcapping": 2.0},
        (named("gemma3_text", GEMMA3, UNTIED, BIASES, rope_theta=900.0, rope_local_base_freq=20.0,
               rope_scaling=old(LINEAR), sliding_window_pattern=2, final_logit_softcapping=3.0),
         named("gemma3_text", GEMMA3, UNTIED, BIASES, layer_types=[SLIDING, FULL] * 2, final_logit_softcapping=3.0,
               rope_parameters={**NESTED, "rope_type": "default", "rope_theta": None})),
    ),
    Case("gemma3_text_odd", "gemma3_text", {**GEMMA3, **ODD, "sliding_window_pattern": 3}),
    Case(
        "gemma3", "gemma3", {"text_config": {**GEMMA3, "sliding_window_pattern": 2}, **SEES, **UNTIED},
        (named("gemma3", SEES, UNTIED, text_config=named("gemma3_text", GEMMA3, sliding_window_pattern=2)),
         named("gemma3", SEES, UNTIED, text_config={**GEMMA3, "layer_types": [SLIDING, FULL] * 2})),
    ),
    Case(
        "gemma3_tied", "gemma3",
        {"text_config": {**GEMMA3, **MQA, "rope_parameters": NESTED, "final_logit_softcapping": 3.0}, **SEES},
        (named("gemma3", SEES, text_config={
            **GEMMA3, **MQA, "rope_scaling": LINEAR, "rope_theta": 900.0, "rope_local_base_freq": 20.0,
            "final_logit_softcapping": None}),),
    ),
]  # fmt: skip

OTHERS = [
    Case(
        "phi3", "phi3",
        {**TINY, "original_max_position_embeddings": 20, "sliding_window": 4, "rope_parameters": LONGROPE},
        (named("phi3", TINY, original_max_position_embeddings=20, sliding_window=4, rope_theta=10000.0,
               rope_scaling={"type": "su", **{k: LONGROPE[k] for k in ("short_factor", "long_factor")}}),
         named("phi3", TINY, original_max_position_embeddings=20, sliding_window=4,
               rope_scaling={"type": "yarn", **{k: LONGROPE[k] for k in ("short_factor", "long_factor")}})),
    ),
    Case(
        "phi3_partial", "phi3",
        {**TINY, **MHA, **TIED, "original_max_position_embeddings": 20,
         "rope_parameters": {**SHORT_ONE, "partial_rotary_factor": 0.5, "rope_theta": 60.0}},
        (named("phi3", TINY, MHA, TIED, num_key_value_heads=None, original_max_position_embeddings=20,
               partial_rotary_factor=0.5, rope_theta=60.0, attention_bias=False,
               rope_scaling={k: v for k, v in {**SHORT_ONE, "type": "longrope"}.items() if k != "rope_type"}),),
    ),
    Case("phi3_odd", "phi3", {**TINY, **MQA, "hidden_size": 30, "num_attention_heads": 3, "intermediate_size": 17},
         (named("phi3", TINY, MQA, hidden_size=30, num_attention_heads=3, intermediate_size=17, sliding_window=None),)),
    Case(
        "olmo2", "olmo2", TINY,
        (named("olmo2", TINY, rope_theta=10000.0, rope_scaling=None, attention_bias=False, head_dim=None),),
    ),
    Case("olmo2_mha", "olmo2", {**TINY, **MHA, **TIED, **BIASES, "rope_parameters": {**YARN, "rope_theta": 800.0}}),
    Case("olmo2_odd", "olmo2", {**TINY, **ODD}),
    Case(
        "smollm3", "smollm3", {**TINY, **UNTIED, "use_sliding_window": True, "sliding_window": 4, **FOUR},
        (named("smollm3", TINY, UNTIED, FOUR, use_sliding_window=True, sliding_window=4, rope_theta=2e6,
               no_rope_layers=[1, 1, 1, 0]),
         named("smollm3", TINY, UNTIED, FOUR, use_sliding_window=True, sliding_window=4,
               layer_types=[FULL, FULL, FULL, SLIDING])),
    ),
    Case(
        "smollm3_still", "smollm3",
        {**TINY, **BIASES, "mlp_bias": True, **MHA, "no_rope_layers": [0, 1, 0], "sliding_window": 4,
         "rope_parameters": {**LINEAR, "rope_theta": 90.0}},
        (named("smollm3", TINY, BIASES, mlp_bias=True, num_key_value_heads=None, no_rope_layers=[0, 1, 0, 1],
               rope_theta=90.0, rope_scaling=old(LINEAR)),),
    ),
    Case("smollm3_odd", "smollm3", {**TINY, **ODD, "no_rope_layer_interval": 2, "layer_types": [SLIDING, FULL, FULL],
         "sliding_window": 3, "use_sliding_window": True}),
    Case(
        "granite", "granite",
        {**TINY, "embedding_multiplier": 3.5, "logits_scaling": 2.5, "residual_multiplier": 0.3,
         "attention_multiplier": 0.2},
        (named("granite", TINY, embedding_multiplier=3.5, logits_scaling=2.5, residual_multiplier=0.3,
               attention_multiplier=0.2, rope_theta=10000.0, rope_scaling=None),),
    ),
    Case("granite_biases", "granite", {**TINY, **MHA, **BIASES, **TIED, "mlp_bias": True, "residual_multiplier": 0.22,
         "embedding_multiplier": 12, "logits_scaling": 8}),
    Case("granite_odd", "granite", {**TINY, **ODD, "attention_multiplier": 0.0625}),
    Case(
        "gpt_oss", "gpt_oss",
        {**TINY, **EXPERTS, "head_dim": 8, "sliding_window": 4, "swiglu_limit": 1.1, "rope_parameters": None},
        (named("gpt_oss", TINY, EXPERTS, head_dim=8, sliding_window=4, swiglu_limit=1.1, experts_per_token=2,
               initial_context_length=4096, rope_theta=150000, rope_scaling=YARN32),
         named("gpt_oss", TINY, EXPERTS, head_dim=8, sliding_window=4, swiglu_limit=1.1, rope_scaling=None,
               layer_types=[SLIDING, FULL, SLIDING])),
    ),
    Case(
        "gpt_oss_unbiased", "gpt_oss",
        {**TINY, **MHA, **TIED, "head_dim": 4, "num_local_experts": 3, "num_experts_per_tok": 3,
         "attention_bias": False, "layer_types": [FULL, SLIDING, FULL], "sliding_window": 2,
         "rope_parameters": {**YARN, "truncate": False, "rope_theta": 200.0}},
    ),
    Case("gpt_oss_odd", "gpt_oss", {**TINY, **ODD, "num_local_experts": 2, "num_experts_per_tok": 1,
         "sliding_window": 3, "rope_parameters": {"rope_type": "default", "rope_theta": 90.0}}),
]  # fmt: skip

CASES = LLAMAS + MISTRALS + QWENS + GEMMAS + OTHERS
