"""Llama and GPT-2, and the other ways their configs are written."""

from families.family_case import Case

LLAMA = {
    "vocab_size": 31, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 40,
}  # fmt: skip
GPT2 = {"vocab_size": 31, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 20}
LLAMA3 = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}

CASES = [
    Case("llama", "llama", LLAMA, ({"model_type": "llama", **LLAMA, "rope_theta": 10000.0, "rope_scaling": None},)),
    Case("llama_mha", "llama", {**LLAMA, "num_key_value_heads": 6, "tie_word_embeddings": True}),
    Case("llama_mqa_biases", "llama", {**LLAMA, "num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True}),
    Case(
        "llama3_rope", "llama",
        {**LLAMA, "head_dim": 10, "rope_parameters": {"rope_type": "llama3", "rope_theta": 500.0, **LLAMA3}},
        ({"model_type": "llama", **LLAMA, "head_dim": 10, "rope_theta": 500.0,
          "rope_scaling": {"type": "llama3", **LLAMA3}},),
    ),
    Case(
        "gpt2", "gpt2", GPT2,
        ({"model_type": "gpt2", "vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
          "max_position_embeddings": 20, "n_ctx": 20, "activation_function": "gelu_new"},),
    ),
    Case(
        "gpt2_scales", "gpt2",
        {**GPT2, "scale_attn_by_inverse_layer_idx": True, "n_inner": 17, "activation_function": "relu"},
    ),
    Case("gpt2_untied", "gpt2", {**GPT2, "scale_attn_weights": False, "tie_word_embeddings": False}),
    Case(
        "gpt2_odd", "gpt2",
        {"vocab_size": 31, "n_embd": 30, "n_layer": 3, "n_head": 5, "n_positions": 17, "layer_norm_epsilon": 1e-3,
         "activation_function": "gelu"},
        ({"model_type": "gpt2", "vocab_size": 31, "n_embd": 30, "n_layer": 3, "n_head": 5, "n_ctx": 1024,
          "n_positions": 17, "n_inner": None, "layer_norm_epsilon": 1e-3, "activation_function": "gelu",
          "attn_pdrop": 0.1, "reorder_and_upcast_attn": True, "summary_type": "cls_index"},),
    ),
]  # fmt: skip
