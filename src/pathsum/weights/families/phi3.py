"""Phi-3: Llama with fused projections, part of each head rotated, and longrope.

Longrope has one set of frequencies up to the original context and another beyond; only texts of the original
context are read (`rope_context`).
"""

from pathsum.weights.families.config import Config, model_shape
from pathsum.weights.families.family import Family, Source, fused, one_after_another, take
from pathsum.weights.families.llama import LAYER, OUT, PARTS, ends, gains, linears, llama_spec
from pathsum.weights.families.mistral import first_half, second_half
from pathsum.weights.families.rope import rope_kind, rope_parameters, rotary
from pathsum.weights.families.windows import one_window
from pathsum.weights.spec import Attention, Spec


def phi3_spec(config: Config) -> Spec:
    config = _longrope(config)
    d_head = model_shape(config)["d_head"]
    rotation = rotary(config, d_head)
    layers = tuple(Attention(rotation, d_head**-0.5, window) for window in one_window(config))
    return llama_spec(config, "phi3", layers)


def _longrope(config: Config) -> Config:
    """Early configs call it "su" or "yarn"; no Phi-3 has the yarn of other families."""
    parameters = rope_parameters(config)
    if rope_kind(parameters) not in ("su", "yarn"):
        return config
    renamed = {**parameters.plain, "rope_type": "longrope", "type": None}
    return Config({**config.plain, "rope_parameters": renamed, "rope_scaling": None}, config.defaults)


def phi3_table(config: Config) -> dict[str, Source]:
    qkv = fused(f"{LAYER}.self_attn.qkv_proj", one_after_another)
    return {
        **ends(config),
        **gains(PARTS),
        **{name: source for name, source in qkv.items() if ".W_" in name},
        **linears("self_attn", OUT),
        "L{layer}.mlp.W_gate": take(f"{LAYER}.mlp.gate_up_proj.weight", change=first_half),
        "L{layer}.mlp.W_in": take(f"{LAYER}.mlp.gate_up_proj.weight", change=second_half),
        **linears("mlp", {"mlp.W_out": "down_proj"}),
    }


PHI3 = Family(
    "phi3",
    spec=phi3_spec,
    tensors=phi3_table,
    defaults={
        "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 32, "hidden_act": "silu", "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "bos_token_id": 1,
        "tie_word_embeddings": False,
    },
    prefixes=("model.",),
)  # fmt: skip
