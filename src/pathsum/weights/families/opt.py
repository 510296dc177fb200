"""OPT: learned positions stored after two rows that no text reaches, ReLU, and embeddings that may be narrower.

A narrower embedding is projected into the stream and out of it; both maps are multiplied into W_E and W_U, exactly.
"""

from pathsum.weights.families.config import ACTIVATIONS, Config, model_shape
from pathsum.weights.families.family import Family, Source, norm, take, unembedding, wide
from pathsum.weights.families.layernorm import d_head_of, layernorm_spec, plain_mlp, projections
from pathsum.weights.spec import Attention, Spec


def opt_spec(config: Config) -> Spec:
    config.only("do_layer_norm_before", True, why="norms of the sum of stream and part are in no expansion (OPT-350m)")
    config.only("_remove_final_layer_norm", False, why="the last norm is part of how OPT is read")
    return layernorm_spec(
        config, "opt", Attention(score_scale=d_head_of(config) ** -0.5),
        d_mlp=config.whole("ffn_dim"),
        activation=config.choice("activation_function", among=ACTIVATIONS),
        norm_eps=1e-5,
        learned_positions=True,
    )  # fmt: skip


def opt_table(config: Config) -> dict[str, Source]:
    layer, d_model = "layers.{layer}", model_shape(config)["d_model"]
    embedding, head = "embed_tokens.weight", unembedding(config, "embed_tokens.weight")
    W_E: Source = embedding
    W_U: Source = head
    if config.whole("word_embed_proj_dim", default=d_model) != d_model:
        out = take(head, "project_out.weight", change=lambda spec, W, out: wide(W) @ wide(out))
        into = take(embedding, "project_in.weight", change=lambda spec, W, into: wide(W) @ wide(into).mT)
        W_E, W_U = into, out
    norms = {
        **norm("final_norm", "final_layer_norm"),
        **norm("L{layer}.attention_norm", f"{layer}.self_attn_layer_norm"),
        **norm("L{layer}.mlp_norm", f"{layer}.final_layer_norm"),
    }
    return {
        "W_E": W_E,
        "W_pos": take("embed_positions.weight", change=lambda spec, W: W[2:]),
        "W_U": W_U,
        **(norms if config.truth("layer_norm_elementwise_affine") else {}),
        **projections(f"{layer}.self_attn", "out_proj"),
        **plain_mlp(layer, "fc1", "fc2"),
    }


OPT = Family(
    "opt",
    spec=opt_spec,
    tensors=opt_table,
    defaults={
        "vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12, "ffn_dim": 3072, "num_attention_heads": 12,
        "max_position_embeddings": 2048, "activation_function": "relu", "bos_token_id": 2, "tie_word_embeddings": True,
        "layer_norm_elementwise_affine": True,
    },
    prefixes=("model.decoder.", "decoder."),
)  # fmt: skip
