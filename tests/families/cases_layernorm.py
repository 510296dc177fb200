"""Families with LayerNorm: GPT-Neo, GPT-J, GPT-NeoX, OPT, BLOOM, Falcon, Phi and StableLM."""

from families.family_case import Case

ROPE = {
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 16},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 10, "rope_theta": 300.0},
}  # fmt: skip

NEO = {
    "vocab_size": 31, "hidden_size": 24, "num_layers": 4, "num_heads": 3, "max_position_embeddings": 20,
    "attention_types": [[["global", "local"], 2]], "window_size": 4,
}  # fmt: skip
GPT_NEO = [
    Case(
        "gpt_neo", "gpt_neo", NEO,
        (
            {"model_type": "gpt_neo", **NEO, "attention_layers": ["global", "local", "global", "local"],
             "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "attention_dropout": 0, "use_cache": True},
            {"model_type": "gpt_neo", "vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 4,
             "num_attention_heads": 3, "n_positions": 20, "window_size": 4,
             "attention_layers": ["global", "local", "global", "local"]},
        ),
    ),
    Case(
        "gpt_neo_untied", "gpt_neo",
        {**NEO, "tie_word_embeddings": False, "intermediate_size": 17, "activation_function": "relu",
         "attention_types": [[["local"], 3], [["global"], 1]], "layer_norm_epsilon": 1e-3},
    ),
]  # fmt: skip

J = {"vocab_size": 31, "n_embd": 30, "n_layer": 3, "n_head": 3, "n_positions": 20, "rotary_dim": 4}
GPTJ = [
    Case(
        "gptj", "gptj", J,
        (
            {"model_type": "gptj", **J, "n_inner": None, "activation_function": "gelu_new", "rotary": True,
             "scale_attn_weights": True, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-05},
            {"model_type": "gptj", "vocab_size": 31, "hidden_size": 30, "num_hidden_layers": 3,
             "num_attention_heads": 3, "max_position_embeddings": 20, "rotary_dim": 4},
        ),
    ),
    Case("gptj_whole_head", "gptj", {**J, "rotary_dim": 10, "n_inner": 17, "tie_word_embeddings": True}),
]  # fmt: skip

NEOX = {
    "vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 17,
    "max_position_embeddings": 20,
}  # fmt: skip
GPT_NEOX = [
    Case(
        "gpt_neox", "gpt_neox", NEOX,
        (
            {"model_type": "gpt_neox", **NEOX, "rotary_pct": 0.25, "rotary_emb_base": 10000, "hidden_act": "gelu",
             "use_parallel_residual": True, "tie_word_embeddings": False, "torch_dtype": "float16"},
            {"model_type": "gpt_neox", **NEOX},
        ),
    ),
    Case(
        "gpt_neox_sequential", "gpt_neox",
        {**NEOX, "use_parallel_residual": False, "attention_bias": False, "tie_word_embeddings": True,
         "hidden_act": "gelu_new", "rope_parameters": {"rope_type": "default", "rope_theta": 50.0,
                                                       "partial_rotary_factor": 1.0}},
        ({"model_type": "gpt_neox", **NEOX, "use_parallel_residual": False, "tie_word_embeddings": True,
          "hidden_act": "gelu_new", "rotary_emb_base": 50, "rotary_pct": 1.0},),
    ),
    *(
        Case(
            f"gpt_neox_{kind}", "gpt_neox", {**NEOX, "rope_parameters": {"partial_rotary_factor": 0.5, **rope}},
            ({"model_type": "gpt_neox", **NEOX, "rotary_pct": 0.5, "rotary_emb_base": rope.get("rope_theta", 1e4),
              "rope_scaling": {"type" if key == "rope_type" else key: value for key, value in rope.items()}},),
        )
        for kind, rope in ROPE.items()
    ),
]  # fmt: skip

OPT125 = {
    "vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "ffn_dim": 17,
    "max_position_embeddings": 20,
}  # fmt: skip
OPT = [
    Case(
        "opt", "opt", OPT125,
        (
            {"model_type": "opt", **OPT125, "do_layer_norm_before": True, "_remove_final_layer_norm": False,
             "word_embed_proj_dim": 24, "activation_function": "relu", "enable_bias": True,
             "layer_norm_elementwise_affine": True, "prefix": "</s>", "layerdrop": 0.0, "dropout": 0.1},
        ),
    ),
    Case("opt_projected", "opt", {**OPT125, "word_embed_proj_dim": 10, "activation_function": "gelu"}),
    Case(
        "opt_bare", "opt",
        {**OPT125, "word_embed_proj_dim": 30, "enable_bias": False, "layer_norm_elementwise_affine": False,
         "tie_word_embeddings": False},
    ),
]  # fmt: skip

B = {"vocab_size": 31, "hidden_size": 24, "n_layer": 3, "n_head": 3}
BLOOM = [
    Case(
        "bloom", "bloom", B,
        (
            {"model_type": "bloom", "vocab_size": 31, "n_embed": 24, "n_layer": 3, "num_attention_heads": 3,
             "n_inner": None, "offset_alibi": 100, "pretraining_tp": 4, "slow_but_exact": False, "seq_length": 2048,
             "masked_softmax_fusion": True, "attention_softmax_in_fp32": True, "skip_bias_add": True,
             "layer_norm_epsilon": 1e-05, "apply_residual_connection_post_layernorm": False},
            {"model_type": "bloom", "vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 3, "n_head": 3},
        ),
    ),
    Case("bloom_4_heads_untied", "bloom", {**B, "n_head": 4, "tie_word_embeddings": False, "layer_norm_epsilon": 0.1}),
    Case("bloom_6_heads", "bloom", {**B, "n_head": 6}),
]  # fmt: skip

F = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6}
NEW = {**F, "new_decoder_architecture": True, "num_kv_heads": 2}
FALCON = [
    Case(
        "falcon", "falcon", F,
        (
            {"model_type": "falcon", **F, "num_kv_heads": 71, "multi_query": True, "parallel_attn": True,
             "bias": False, "alibi": False, "new_decoder_architecture": False, "layer_norm_epsilon": 1e-05,
             "apply_residual_connection_post_layernorm": False},
            {"model_type": "falcon", "vocab_size": 31, "hidden_size": 24, "n_layer": 3, "n_head": 6},
        ),
    ),
    Case("falcon_new", "falcon", NEW),
    Case("falcon_new_one_norm", "falcon", {**NEW, "num_ln_in_parallel_attn": 1, "bias": True, "ffn_hidden_size": 17}),
    Case("falcon_new_mqa", "falcon", {**NEW, "num_kv_heads": 1, "activation": "relu"}),
    Case(
        "falcon_sequential", "falcon",
        {**F, "parallel_attn": False, "multi_query": False, "bias": True, "tie_word_embeddings": False},
    ),
    Case(
        "falcon_linear", "falcon", {**F, "rope_parameters": {**ROPE["linear"], "rope_theta": 50.0}},
        ({"model_type": "falcon", **F, "rope_theta": 50.0, "rope_scaling": {"type": "linear", "factor": 2.5}},),
    ),
    Case("falcon_dynamic", "falcon", {**F, "rope_parameters": ROPE["dynamic"]}),
]  # fmt: skip

P = {
    "vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 17,
    "max_position_embeddings": 20,
}  # fmt: skip
PHI = [
    Case(
        "phi", "phi", P,
        (
            {"model_type": "phi", **P, "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_scaling": None,
             "num_key_value_heads": None, "qk_layernorm": False, "hidden_act": "gelu_new", "embd_pdrop": 0.0},
            {"model_type": "phi", **P},
        ),
    ),
    Case("phi_gqa_norms", "phi", {**P, "num_attention_heads": 6, "num_key_value_heads": 2, "qk_layernorm": True}),
    Case("phi_mqa_tied", "phi", {**P, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    *(Case(f"phi_{kind}", "phi", {**P, "rope_parameters": {"partial_rotary_factor": 0.75, **rope}})
      for kind, rope in ROPE.items()),
]  # fmt: skip

S = {**P, "num_attention_heads": 3, "num_key_value_heads": 3}
STABLELM = [
    Case(
        "stablelm", "stablelm", S,
        (
            {"model_type": "stablelm", **S, "partial_rotary_factor": 0.25, "rope_theta": 10000, "rope_scaling": None,
             "use_qkv_bias": False, "hidden_act": "silu", "layer_norm_eps": 1e-05},
            {"model_type": "stablelm", **S},
        ),
    ),
    Case(
        "stablelm_12b", "stablelm",
        {**S, "num_attention_heads": 6, "num_key_value_heads": 2, "qk_layernorm": True, "use_parallel_residual": True,
         "partial_rotary_factor": 0.5},
    ),
    Case(
        "stablelm_mqa", "stablelm",
        {**S, "num_key_value_heads": 1, "use_qkv_bias": True, "tie_word_embeddings": True, "hidden_act": "relu"},
    ),
    *(Case(f"stablelm_{kind}", "stablelm", {**S, "rope_parameters": {"partial_rotary_factor": 0.5, **rope}})
      for kind, rope in ROPE.items()),
]  # fmt: skip

CASES = [*GPT_NEO, *GPTJ, *GPT_NEOX, *OPT, *BLOOM, *FALCON, *PHI, *STABLELM]
