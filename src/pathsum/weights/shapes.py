"""Which tensors a model of a given spec has, by canonical name, and their shapes."""

import re
from collections.abc import Iterable

from pathsum.errors import CheckpointError, MissingTensor
from pathsum.weights.positions import LearnedQK
from pathsum.weights.spec import Attention, Spec


def required_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """The tensors every model of this spec must have, and their shapes."""
    must = ["W_E", "W_U", *(["W_pos"] if _reads_W_pos(spec) else [])]
    layer = ["W_Q", "W_K", "W_V", "W_O"]
    if spec.d_mlp is not None:
        layer += ["mlp.W_in", "mlp.W_out"]
        layer += [] if spec.mlp_limit is None else ["mlp.W_gate"]
        layer += [] if spec.n_experts is None else ["mlp.W_router"]
    for index, facts in enumerate(spec.layers):
        must += [f"L{index}.{name}" for name in (*layer, *_tap_shapes(spec, facts))]
    known = shapes(spec)
    return {name: known[name] for name in must}


def shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Every tensor that has a place in a model of this spec, and its shape; biases and norm vectors are optional."""
    known, layer = _end_shapes(spec), _layer_shapes(spec)
    for index, facts in enumerate(spec.layers):
        known |= {f"L{index}.{name}": shape for name, shape in (layer | _tap_shapes(spec, facts)).items()}
    return known


def _end_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    d = spec.d_model
    known: dict[str, tuple[int, ...]] = {"W_E": (d, spec.d_vocab), "W_U": (spec.d_vocab, d), "b_U": (spec.d_vocab,)}
    known |= {"W_pos": (d, spec.n_ctx)} if _reads_W_pos(spec) else {}
    return known | _norm_shapes(spec, ("final_norm",))


def _layer_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """What any layer may have."""
    d, query, key = spec.d_model, (spec.n_heads, spec.d_head), (spec.n_key_value_heads, spec.d_head)
    layer: dict[str, tuple[int, ...]] = {
        "W_Q": (*query, d), "W_K": (*key, d), "W_V": (*key, d), "W_O": (spec.n_heads, d, spec.d_head),
        "b_Q": query, "b_K": key, "b_V": key, "b_O": (d,), "sinks": (spec.n_heads,),
        **_norm_shapes(spec, ("attention_norm", "post_attention_norm")),
    }  # fmt: skip
    if spec.qk_norm != "none":
        layer |= {f"{name}_norm.{vector}": (spec.d_head,) for name in "qk" for vector in ("gain", "bias")}
    if spec.d_mlp is not None:
        layer |= _mlp_shapes(spec, spec.d_mlp)
        layer |= _norm_shapes(spec, ("mlp_norm", "post_mlp_norm"))
    return layer


def _tap_shapes(spec: Spec, facts: Attention) -> dict[str, tuple[int, ...]]:
    """What mixes a layer's queries, keys and values over positions: always there where the layer's facts say so."""
    if facts.smeared_keys:
        return {"smear": (spec.n_key_value_heads,)}
    if facts.convolution is None:
        return {}
    heads = {"Q": spec.n_heads, "K": spec.n_key_value_heads, "V": spec.n_key_value_heads}
    return {f"conv_{which}": (n, facts.convolution, spec.d_head) for which, n in heads.items()}


def _mlp_shapes(spec: Spec, d_mlp: int) -> dict[str, tuple[int, ...]]:
    d, many = spec.d_model, () if spec.n_experts is None else (spec.n_experts,)
    found = {f"mlp.{name}": (*many, d_mlp, d) for name in ("W_in", "W_gate")}
    found |= {f"mlp.{name}": (*many, d_mlp) for name in ("b_in", "b_gate")}
    found |= {"mlp.W_out": (*many, d, d_mlp), "mlp.b_out": (*many, d)}
    return found if spec.n_experts is None else found | {"mlp.W_router": (*many, d), "mlp.b_router": many}


def _norm_shapes(spec: Spec, names: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """A model without norms, or without those before a part, has no place for their gains and biases."""
    vectors = () if spec.norm == "none" else ("gain", "bias")
    there = [name for name in names if spec.pre_norm or name not in ("attention_norm", "mlp_norm")]
    return {f"{name}.{vector}": (spec.d_model,) for name in there for vector in vectors}


def _reads_W_pos(spec: Spec) -> bool:
    return spec.learned_positions or any(isinstance(layer.positions, LearnedQK) for layer in spec.layers)


def check_names(spec: Spec, names: Iterable[str]) -> None:
    """Raises `CheckpointError` for a tensor that the model would silently do without."""
    if unknown := sorted(set(names) - set(shapes(spec))):
        raise CheckpointError(f"tensor {unknown[0]} has no place in the model that config.json describes")


def expected_shape(spec: Spec, name: str, axes: int) -> tuple[int, ...]:
    """The shape of a tensor of this name; norms of queries and keys have one vector for all heads, or one a head."""
    layer = re.match(r"L(\d+)\.", name)
    known = _end_shapes(spec) if layer is None else _layer_shapes(spec) | _tap_shapes(spec, spec.layers[int(layer[1])])
    shape = known[name if layer is None else name[layer.end() :]]
    if axes == 2 and "q_norm." in name:
        return (spec.n_heads, *shape)
    return (spec.n_key_value_heads, *shape) if axes == 2 and "k_norm." in name else shape


def check_shape(name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raises `MissingTensor` with both shapes."""
    if found != expected:
        raise MissingTensor(
            f"tensor {name} has shape {found}, but config.json asks for {expected}; "
            "config and weights are not of the same model"
        )
