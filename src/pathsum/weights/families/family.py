"""`Family`: how one family of checkpoints is read: its facts from the config, and a table of where each tensor lies.

The table maps our canonical names (`W_E`, `L{layer}.W_Q`, …; see `pathsum.weights.weights`) to the checkpoint's:

- a string names one tensor of the checkpoint, stored as `torch.nn.Linear` and `torch.nn.Embedding` store theirs
  (`[out, in]`, `[d_vocab, d_model]`, heads one after the other);
- `take("name", change)` names one or more and says what is made of them: a third of a fused projection, a transpose;
- several in a tuple are alternatives: the first whose tensors are there is read.

`{layer}` counts layers; a name with `{expert}` in it is read for every expert and stacked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from pathsum.weights.families.config import Config
from pathsum.weights.spec import Spec
from pathsum.weights.weights import HALVES


@dataclass(frozen=True)
class Take:
    """Tensors of the checkpoint, by name, and the function from them (and the spec) to the one that is wanted."""

    names: tuple[str, ...]
    change: Callable[..., Tensor]


Source = str | Take | tuple[str | Take, ...]
Table = Mapping[str, Source]


def take(*names: str, change: Callable[..., Tensor]) -> Take:
    """`change(spec, *tensors)` of the named tensors: an entry of a family's table. Not in the paper.

    What it gives is shaped as checkpoints store it, `[out, in]`; if it does not fit, reading it raises `MissingTensor`.

    >>> import torch
    >>> queries = pathsum.take("h.{layer}.attn.c_attn.weight", change=lambda spec, W: W.mT.chunk(3)[0])
    >>> queries.change(None, torch.zeros(4, 12)).shape      # of queries, keys and values side by side
    torch.Size([4, 4])
    """
    return Take(names, change)


@dataclass(frozen=True)
class Family:
    """Facts and names. `spec` and `tensors` are made from the config; a table that needs no config may be plain.

    Tensors are `[out, in]` in the checkpoint, as in `torch.nn.Linear`. Opening raises `CheckpointError` or
    `MissingTensor` naming what does not fit. Not in the paper.

    >>> import torch
    >>> shapes = dict(n_ctx=8, d_model=4, n_layers=0, n_heads=1, d_head=4, n_key_value_heads=1, layers=())
    >>> tiny = pathsum.Family(
    ...     "tiny", spec=lambda config: pathsum.Spec(config.whole("vocab"), **shapes),
    ...     tensors={"W_E": "tok.weight", "W_U": "out.weight"},
    ... )
    >>> stored = {"tok.weight": torch.eye(10, 4), "out.weight": torch.eye(10, 4)}
    >>> pathsum.open(stored, family=tiny, config={"vocab": 10}).weights.W_E.shape       # [d_model, d_vocab]
    torch.Size([4, 10])
    """

    name: str
    spec: Callable[[Config], Spec]
    tensors: Callable[[Config], Table] | Table
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Config fields that may be left out, and what they are then."""
    prefixes: tuple[str, ...] = ()
    """Leading parts of names that may be there or not, longest first; the table leaves them out."""
    ignore: tuple[str, ...] = ()
    """Patterns of names (whole, prefixes off) that the logits do not depend on."""
    quantized: tuple[str, ...] = ()
    """Values of `quantization_config.quant_method` that the table undoes."""

    def table(self, config: Config) -> Table:
        """Where each tensor lies, for this config."""
        return self.tensors(config) if callable(self.tensors) else self.tensors


# ---- what tables are made of ----


def wide(tensor: Tensor) -> Tensor:
    """At least float32, before arithmetic."""
    return tensor.float() if tensor.dtype in HALVES else tensor


def transposed(name: str) -> Take:
    """A matrix stored `[in, out]` (GPT-2's Conv1D)."""
    return take(name, change=lambda spec, W: W.mT)


def scaled(name: str, factor: float | int) -> Take | str:
    """The tensor times a number from the config."""
    return name if factor == 1 else take(name, change=lambda spec, W: wide(W) * factor)


def plus_one(name: str) -> Take:
    """A gain stored as its difference from one (Gemma)."""
    return take(name, change=lambda spec, gain: wide(gain) + 1)


def norm(ours: str, theirs: str, gain: Callable[[str], Source] = str) -> dict[str, Source]:
    """Gain and bias of a norm stored as `theirs.weight`, `theirs.bias`."""
    return {f"{ours}.gain": gain(f"{theirs}.weight"), f"{ours}.bias": f"{theirs}.bias"}


def linear(W: str, b: str, theirs: str) -> dict[str, Source]:
    """Matrix and bias of a `torch.nn.Linear`."""
    return {W: f"{theirs}.weight", b: f"{theirs}.bias"}


def fused(
    theirs: str, split: Callable[[Spec, Tensor], Sequence[Tensor]], transposed: bool = False
) -> dict[str, Source]:
    """Queries, keys and values of one fused projection; `split` takes its weight (and its bias) apart along axis 0."""
    found: dict[str, Source] = {}
    for index, part in enumerate("QKV"):
        weight = lambda spec, W, index=index: split(spec, W.mT if transposed else W)[index]
        found[f"L{{layer}}.W_{part}"] = take(f"{theirs}.weight", change=weight)
        bias = lambda spec, b, index=index: split(spec, b)[index]
        found[f"L{{layer}}.b_{part}"] = take(f"{theirs}.bias", change=bias)
    return found


def one_after_another(spec: Spec, x: Tensor) -> Sequence[Tensor]:
    """Fused as all queries, all keys, all values."""
    kv = spec.n_key_value_heads * spec.d_head
    return x.split([spec.n_heads * spec.d_head, kv, kv])


def head_by_head(spec: Spec, x: Tensor) -> Sequence[Tensor]:
    """Fused as (queries of a group, its key, its value), group after group (NeoX, BLOOM, Falcon)."""
    groups = x.unflatten(0, (spec.n_key_value_heads, spec.group + 2, spec.d_head))
    queries, keys, values = groups.split([spec.group, 1, 1], dim=1)
    return queries.flatten(0, 2), keys.flatten(0, 2), values.flatten(0, 2)


def unembedding(config: Config, embedding: str, head: str = "lm_head.weight") -> str:
    """W_U: the embedding where `tie_word_embeddings` says so."""
    return embedding if config.truth("tie_word_embeddings") else head
