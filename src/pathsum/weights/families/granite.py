"""Granite: Llama with four multipliers, on embeddings, scores, what layers write, and logits."""

from pathsum.errors import CheckpointError
from pathsum.weights.families.config import Config
from pathsum.weights.families.family import Family, Source, scaled, unembedding
from pathsum.weights.families.llama import attentions, llama_spec, llama_table
from pathsum.weights.spec import Spec

WRITERS = ("L{layer}.W_O", "L{layer}.b_O", "L{layer}.mlp.W_out", "L{layer}.mlp.b_out")


def granite_spec(config: Config) -> Spec:
    return llama_spec(
        config, "granite", attentions(config, score_scale=config.number("attention_multiplier"))
    )  # fmt: skip


def granite_table(config: Config) -> dict[str, Source]:
    """Multipliers are in the tensors: of a tied model, in the embedding and the unembedding each its own."""
    table, embedding = llama_table(config), "embed_tokens.weight"
    written = config.number("residual_multiplier")
    divisor = config.number("logits_scaling")
    if divisor == 0:
        raise CheckpointError("config: logits_scaling is 0, but logits are divided by it")
    return {
        **table,
        **{name: scaled(str(table[name]), written) for name in WRITERS if name in table},
        "W_E": scaled(embedding, config.number("embedding_multiplier")),
        "W_U": scaled(unembedding(config, embedding), 1 / divisor),
    }


GRANITE = Family(
    "granite",
    spec=granite_spec,
    tensors=granite_table,
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "hidden_act": "silu", "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
        "bos_token_id": 1, "tie_word_embeddings": False, "embedding_multiplier": 1.0, "logits_scaling": 1.0,
        "residual_multiplier": 1.0, "attention_multiplier": 1.0,
    },
    prefixes=("model.",),
)  # fmt: skip
