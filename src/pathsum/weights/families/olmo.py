"""OLMo 2: Llama that norms what attention and MLP write instead of what they read; one σ for all heads' queries."""

from pathsum.weights.families.config import Config
from pathsum.weights.families.family import Family, Source
from pathsum.weights.families.llama import GATED, OUT, QKV, ends, gains, linears, llama_spec
from pathsum.weights.families.qwen import QK_NORMS

NORMS = {"post_attention_norm": "post_attention_layernorm", "post_mlp_norm": "post_feedforward_layernorm"}


def olmo2_table(config: Config) -> dict[str, Source]:
    return {
        **ends(config),
        **gains(NORMS | QK_NORMS),
        **linears("self_attn", QKV | OUT, config.truth("attention_bias")),
        **linears("mlp", GATED),
    }


OLMO2 = Family(
    "olmo2",
    spec=lambda config: llama_spec(config, "olmo2", pre_norm=False, qk_norm_across_heads=True),
    tensors=olmo2_table,
    defaults={
        "vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "hidden_act": "silu", "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False, "attention_bias": False,
    },
    prefixes=("model.",),
)  # fmt: skip
