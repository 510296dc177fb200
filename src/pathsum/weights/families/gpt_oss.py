"""GPT-OSS: Llama with attention sinks, alternating windows, yarn, and experts with a clamped gate and biases.

Published checkpoints keep the experts' matrices in MXFP4; every value of theirs is a bfloat16, so nothing is lost.
"""

from pathsum.weights.families.config import Config
from pathsum.weights.families.family import Family, Source, Take, take
from pathsum.weights.families.llama import LAYER, OUT, PARTS, QKV, attentions, ends, gains, linears, llama_spec
from pathsum.weights.families.mxfp4 import decoded
from pathsum.weights.families.rope import rope_parameters
from pathsum.weights.families.windows import windows
from pathsum.weights.spec import Spec

YARN = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip


def gpt_oss_spec(config: Config) -> Spec:
    config.only("swiglu_alpha", 1.702, why="only the clamped gate with 1.702 is known")
    if not rope_parameters(config).plain:
        config = Config({**config.plain, "rope_parameters": YARN}, config.defaults)
    return llama_spec(
        config,
        "gpt_oss",
        attentions(config, windows(config, lambda layer: layer % 2 == 0)),
        activation="silu_clamped",
        mlp_limit=config.number("swiglu_limit"),
        n_experts=config.whole("num_local_experts", "num_experts"),
        experts_per_token=config.whole("num_experts_per_tok", "experts_per_token"),
    )


EXPERTS = f"{LAYER}.mlp.experts"


def experts(matrix: str, rows: slice) -> tuple[Take, ...]:
    """Some rows of every expert's matrix, stored `[expert, in, out]`, or quantised `[expert, out, in]`."""
    return (
        take(f"{EXPERTS}.{matrix}", change=lambda spec, W: W[..., rows].mT),
        take(
            f"{EXPERTS}.{matrix}_blocks", f"{EXPERTS}.{matrix}_scales",
            change=lambda spec, blocks, scales: decoded(blocks[:, rows], scales[:, rows]),
        ),
    )  # fmt: skip


def gpt_oss_table(config: Config) -> dict[str, Source]:
    """Gate and up are the even and the odd rows of one matrix."""
    even, odd, both = slice(0, None, 2), slice(1, None, 2), slice(None)
    bias = lambda matrix, rows: take(f"{EXPERTS}.{matrix}_bias", change=lambda spec, b: b[:, rows])
    return {
        **ends(config),
        **gains(PARTS),
        **linears("self_attn", QKV | OUT, config.truth("attention_bias")),
        "L{layer}.sinks": f"{LAYER}.self_attn.sinks",
        **linears("mlp", {"mlp.W_router": "router"}, bias=True),
        "L{layer}.mlp.W_gate": experts("gate_up_proj", even),
        "L{layer}.mlp.b_gate": bias("gate_up_proj", even),
        "L{layer}.mlp.W_in": experts("gate_up_proj", odd),
        "L{layer}.mlp.b_in": bias("gate_up_proj", odd),
        "L{layer}.mlp.W_out": experts("down_proj", both),
        "L{layer}.mlp.b_out": bias("down_proj", both),
    }


GPT_OSS = Family(
    "gpt_oss",
    spec=gpt_oss_spec,
    tensors=gpt_oss_table,
    defaults={
        "num_hidden_layers": 36, "num_local_experts": 128, "vocab_size": 201088, "hidden_size": 2880,
        "intermediate_size": 2880, "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
        "sliding_window": 128, "tie_word_embeddings": False, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "num_experts_per_tok": 4, "swiglu_limit": 7.0, "rope_theta": 150_000.0, "attention_bias": True,
    },
    prefixes=("model.",),
    quantized=("mxfp4",),
)  # fmt: skip
