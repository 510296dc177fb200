"""What families with LayerNorm, biases and plain MLPs share."""

from typing import Any

import torch
from torch import Tensor

from pathsum.errors import CheckpointError
from pathsum.weights.families.config import Config, bos_of, model_shape
from pathsum.weights.families.family import Source, Take, linear, take, wide
from pathsum.weights.spec import Attention, Spec


def layernorm_spec(config: Config, family: str, layers: Attention | tuple[Attention, ...], **facts: Any) -> Spec:
    """A spec of the config's sizes; one `Attention` stands for every layer, `facts` are what the family has its own."""
    shape = model_shape(config)
    if isinstance(layers, Attention):
        layers = (layers,) * shape["n_layers"]
    common = {"norm": "layer", "bos": bos_of(config), "prepend_bos": False, "family": family}
    return Spec(**{**shape, **common, "layers": layers, **facts})


def d_head_of(config: Config) -> int:
    return model_shape(config)["d_head"]


def d_mlp_of(config: Config, name: str) -> int:
    """The MLP's width, four times the stream's where the config says nothing."""
    return config.whole(name, default=4 * model_shape(config)["d_model"])


def plain_mlp(theirs: str, into: str, out: str) -> dict[str, Source]:
    """The two linear maps of an MLP without a gate."""
    return {
        **linear("L{layer}.mlp.W_in", "L{layer}.mlp.b_in", f"{theirs}.{into}"),
        **linear("L{layer}.mlp.W_out", "L{layer}.mlp.b_out", f"{theirs}.{out}"),
    }


def projections(theirs: str, out: str) -> dict[str, Source]:
    """Queries, keys and values of three linear maps, and the map `out` back into the stream."""
    found: dict[str, Source] = {}
    for part in "QKV":
        found |= linear(f"L{{layer}}.W_{part}", f"L{{layer}}.b_{part}", f"{theirs}.{part.lower()}_proj")
    return found | linear("L{layer}.W_O", "L{layer}.b_O", f"{theirs}.{out}")


def normed_embedding(
    embedding: str, norm: str, eps: float | int, vectors: tuple[str, str] = ("weight", "bias")
) -> Take:
    """The embedding's rows, each after its LayerNorm."""

    def normed(spec: Spec, W: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(wide(W), W.shape[-1:], wide(gain), wide(bias), eps)

    return take(embedding, *(f"{norm}.{vector}" for vector in vectors), change=normed)


def even_share(name: str, d_rotary: int, d_head: int) -> int:
    """How many coordinates turn, in pairs. Raises `CheckpointError` naming the field."""
    if d_rotary % 2 or d_rotary > d_head:
        raise CheckpointError(f"config: {name} is {d_rotary}, must be even and at most the {d_head} of a head")
    return d_rotary
