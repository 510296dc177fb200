"""Qwen 2 and 3: Llama whose later layers may slide; Qwen 2 has biases on queries, keys and values, Qwen 3 norms."""

from pathsum.weights.families.config import Config
from pathsum.weights.families.family import Family, Source
from pathsum.weights.families.llama import GATED, OUT, PARTS, QKV, attentions, ends, gains, linears, llama_spec
from pathsum.weights.families.windows import windows
from pathsum.weights.spec import Spec

QK_NORMS = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}


def qwen_spec(config: Config, family: str) -> Spec:
    """Layers from `max_window_layers` on slide, where `use_sliding_window` says that any do."""
    if not config.truth("use_sliding_window"):
        config = Config({**config.plain, "sliding_window": None}, config.defaults)
    first = config.whole("max_window_layers", least=0)
    slides = config.get("sliding_window", default=None) is not None
    return llama_spec(config, family, attentions(config, windows(config, lambda layer: slides and layer >= first)))


def qwen2_table(config: Config) -> dict[str, Source]:
    return {
        **ends(config),
        **gains(PARTS),
        **linears("self_attn", QKV, bias=True),
        **linears("self_attn", OUT),
        **linears("mlp", GATED),
    }


def qwen3_table(config: Config) -> dict[str, Source]:
    return {
        **ends(config),
        **gains(PARTS | QK_NORMS),
        **linears("self_attn", QKV | OUT, config.truth("attention_bias")),
        **linears("mlp", GATED),
    }


DEFAULTS = {
    "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "hidden_act": "silu", "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "use_sliding_window": False, "sliding_window": 4096,
    "max_window_layers": 28,
}  # fmt: skip
QWEN2 = Family(
    "qwen2",
    spec=lambda config: qwen_spec(config, "qwen2"),
    tensors=qwen2_table,
    defaults=DEFAULTS,
    prefixes=("model.",),
)
QWEN3 = Family(
    "qwen3",
    spec=lambda config: qwen_spec(config, "qwen3"),
    tensors=qwen3_table,
    defaults={**DEFAULTS, "head_dim": 128, "attention_bias": False},
    prefixes=("model.",),
)
