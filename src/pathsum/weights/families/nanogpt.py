"""nanoGPT: GPT-2's architecture with `torch.nn.Linear` weights, the exact GELU, and biases that may be left out.

A checkpoint is a dict of `model` and `model_args`. The code before April 2023 had the tanh form of GELU, which nothing
in its checkpoints tells: there, pass `config={**model_args, "activation_function": "gelu_new"}`, `family="nanogpt"`.
"""

from pathsum.errors import CheckpointError
from pathsum.weights.checks import MOST_LAYERS
from pathsum.weights.families.config import ACTIVATIONS, MOST_WIDTH, Config
from pathsum.weights.families.family import Family, Source, fused, linear, norm, one_after_another
from pathsum.weights.families.layernorm import plain_mlp
from pathsum.weights.spec import Attention, Spec


def nanogpt_spec(config: Config) -> Spec:
    d_model, n_heads = config.whole("n_embd", most=MOST_WIDTH), config.whole("n_head", most=MOST_WIDTH)
    n_layers = config.whole("n_layer", least=0, most=MOST_LAYERS)
    if d_model % n_heads:
        raise CheckpointError(f"config: n_embd {d_model} is no multiple of n_head {n_heads}")
    d_head = d_model // n_heads
    return Spec(
        d_vocab=config.whole("vocab_size"),
        n_ctx=config.whole("block_size"),
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_head=d_head,
        n_key_value_heads=n_heads,
        layers=(Attention(score_scale=d_head**-0.5),) * n_layers,
        d_mlp=4 * d_model,
        activation=config.choice("activation_function", among=ACTIVATIONS),
        norm="layer",
        norm_eps=1e-5,
        learned_positions=True,
        prepend_bos=False,
        family="nanogpt",
    )


def nanogpt_table(config: Config) -> dict[str, Source]:
    layer = "h.{layer}"
    table: dict[str, Source] = {
        "W_E": "wte.weight",
        "W_pos": "wpe.weight",
        "W_U": ("lm_head.weight", "wte.weight"),
        **norm("final_norm", "ln_f"),
        **norm("L{layer}.attention_norm", f"{layer}.ln_1"),
        **norm("L{layer}.mlp_norm", f"{layer}.ln_2"),
        **fused(f"{layer}.attn.c_attn", one_after_another),
        **linear("L{layer}.W_O", "L{layer}.b_O", f"{layer}.attn.c_proj"),
        **plain_mlp(f"{layer}.mlp", "c_fc", "c_proj"),
    }
    if config.truth("bias"):
        return table
    return {ours: theirs for ours, theirs in table.items() if not ours.rpartition(".")[2].startswith("b")}


NANOGPT = Family(
    "nanogpt",
    spec=nanogpt_spec,
    tensors=nanogpt_table,
    defaults={
        "block_size": 1024, "vocab_size": 50304, "n_layer": 12, "n_head": 12, "n_embd": 768,
        "activation_function": "gelu", "bias": True,
    },
    prefixes=("transformer.",),
)  # fmt: skip
