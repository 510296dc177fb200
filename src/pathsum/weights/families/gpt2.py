"""GPT-2: learned positions in the residual stream, LayerNorm, fused projections stored transposed."""

from pathsum.weights.families.config import ACTIVATIONS, Config, bos_of, model_shape
from pathsum.weights.families.family import Family, Source, fused, norm, one_after_another, transposed, unembedding
from pathsum.weights.spec import Attention, Spec


def gpt2_spec(config: Config) -> Spec:
    shape = model_shape(config)
    config.only("add_cross_attention", False, why="what such layers attend to is not in the text")
    scale = shape["d_head"] ** -0.5 if config.truth("scale_attn_weights") else 1.0
    by_layer = config.truth("scale_attn_by_inverse_layer_idx")
    layers = tuple(
        Attention(score_scale=scale / (layer + 1) if by_layer else scale) for layer in range(shape["n_layers"])
    )
    return Spec(
        **shape,
        layers=layers,
        d_mlp=config.whole("n_inner", default=4 * shape["d_model"]),
        activation=config.choice("activation_function", among=ACTIVATIONS),
        norm="layer",
        norm_eps=config.number("layer_norm_epsilon"),
        learned_positions=True,
        bos=bos_of(config),
        prepend_bos=False,
        family="gpt2",
    )


def gpt2_table(config: Config) -> dict[str, Source]:
    layer = "h.{layer}"
    return {
        "W_E": "wte.weight",
        "W_pos": "wpe.weight",
        "W_U": unembedding(config, "wte.weight"),
        **norm("final_norm", "ln_f"),
        **norm("L{layer}.attention_norm", f"{layer}.ln_1"),
        **norm("L{layer}.mlp_norm", f"{layer}.ln_2"),
        **fused(f"{layer}.attn.c_attn", one_after_another, transposed=True),
        "L{layer}.W_O": transposed(f"{layer}.attn.c_proj.weight"),
        "L{layer}.b_O": f"{layer}.attn.c_proj.bias",
        "L{layer}.mlp.W_in": transposed(f"{layer}.mlp.c_fc.weight"),
        "L{layer}.mlp.b_in": f"{layer}.mlp.c_fc.bias",
        "L{layer}.mlp.W_out": transposed(f"{layer}.mlp.c_proj.weight"),
        "L{layer}.mlp.b_out": f"{layer}.mlp.c_proj.bias",
    }


GPT2 = Family(
    "gpt2",
    spec=gpt2_spec,
    tensors=gpt2_table,
    defaults={
        "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False, "bos_token_id": 50256, "tie_word_embeddings": True,
    },
    prefixes=("transformer.",),
)  # fmt: skip
