"""Llama and its kin: RMSNorm before each part, rotary positions, grouped heads, gated MLPs."""

from pathsum.weights.families.config import ACTIVATIONS, Config, bos_of, model_shape
from pathsum.weights.families.family import Family, Source, Table, linear, norm, unembedding
from pathsum.weights.families.rope import rope_context, rotary
from pathsum.weights.spec import Attention, Spec


def llama_spec(config: Config, family: str, layers: tuple[Attention, ...] | None = None) -> Spec:
    """Facts shared by the family's kin; `layers` where they are not all alike."""
    shape = model_shape(config)
    shape["n_ctx"] = rope_context(config, shape["n_ctx"])
    if layers is None:
        layers = (Attention(rotary(config, shape["d_head"]), shape["d_head"] ** -0.5),) * shape["n_layers"]
    return Spec(
        **shape,
        layers=layers,
        d_mlp=config.whole("intermediate_size"),
        activation=config.choice("hidden_act", among=ACTIVATIONS),
        norm="rms",
        norm_eps=config.number("rms_norm_eps"),
        bos=bos_of(config),
        prepend_bos=False,
        family=family,
    )


ATTENTION: Table = {
    **linear("L{layer}.W_Q", "L{layer}.b_Q", "layers.{layer}.self_attn.q_proj"),
    **linear("L{layer}.W_K", "L{layer}.b_K", "layers.{layer}.self_attn.k_proj"),
    **linear("L{layer}.W_V", "L{layer}.b_V", "layers.{layer}.self_attn.v_proj"),
    **linear("L{layer}.W_O", "L{layer}.b_O", "layers.{layer}.self_attn.o_proj"),
}
GATED: Table = {
    **linear("L{layer}.mlp.W_gate", "L{layer}.mlp.b_gate", "layers.{layer}.mlp.gate_proj"),
    **linear("L{layer}.mlp.W_in", "L{layer}.mlp.b_in", "layers.{layer}.mlp.up_proj"),
    **linear("L{layer}.mlp.W_out", "L{layer}.mlp.b_out", "layers.{layer}.mlp.down_proj"),
}


def llama_table(config: Config) -> dict[str, Source]:
    return {
        "W_E": "embed_tokens.weight",
        "W_U": unembedding(config, "embed_tokens.weight"),
        **norm("final_norm", "norm"),
        **ATTENTION,
        **norm("L{layer}.attention_norm", "layers.{layer}.input_layernorm"),
        **norm("L{layer}.mlp_norm", "layers.{layer}.post_attention_layernorm"),
        **GATED,
    }


LLAMA = Family(
    "llama",
    spec=lambda config: llama_spec(config, "llama"),
    tensors=llama_table,
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "hidden_act": "silu", "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
        "bos_token_id": 1, "tie_word_embeddings": False,
    },
    prefixes=("model.",),
)  # fmt: skip
