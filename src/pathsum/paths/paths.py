"""A `Path` of the expansion: a source, then heads in strictly increasing layers, then the unembedding.

Sources: `embed`; `pos` where learned positions enter the residual stream; `L0.bias` … and `L0.mlp` …;
`unembed.bias`, which goes straight to the logits. Order = number of heads.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import comb

from pathsum.errors import NotApplicable
from pathsum.weights.spec import Spec
from pathsum.weights.weights import head_index

HeadIndex = tuple[int, int]


@dataclass(frozen=True)
class Path:
    """`name` reads in the direction of the data; `str(path)` is the equation, in the paper's notation.

    >>> path = Path("embed", ((0, 3), (1, 6)))
    >>> path.name
    'embed → L0H3 → L1H6'
    >>> print(path)
    A^{L1H6} A^{L0H3} ⊗ W_U W_OV^{L1H6} W_OV^{L0H3} W_E
    """

    source: str
    heads: tuple[HeadIndex, ...] = ()

    @property
    def order(self) -> int:
        """How many heads are in it; 0: the direct path."""
        return len(self.heads)

    @property
    def head_names(self) -> tuple[str, ...]:
        """Its heads as `L0H3`, the first to read first."""
        return tuple(f"L{layer}H{index}" for layer, index in self.heads)

    @property
    def name(self) -> str:
        """Source and heads with arrows between them; `parse` reads it."""
        return " → ".join((self.source, *self.head_names))

    def __str__(self) -> str:
        names = self.head_names[::-1]
        pattern = " ".join(f"A^{{{name}}}" for name in names) or "Id"
        circuit = " ".join(("W_U", *(f"W_OV^{{{name}}}" for name in names)))
        return f"{pattern} ⊗ {circuit}" + (" W_E" if self.source == "embed" else f" · {self.source}")

    @classmethod
    def parse(cls, text: str, spec: Spec) -> "Path":
        """The inverse of `name`; `->` and a missing source (`embed` is meant) are accepted.

        Raises `NotApplicable` for an unknown head, or heads not in strictly increasing layers.
        """
        parts = [part.strip() for part in re.split("→|->", text)]
        if re.fullmatch(r"L\d+H\d+", parts[0]):
            parts = ["embed", *parts]
        heads = tuple(head_index(name, spec) for name in parts[1:])
        layers = [source_layer(parts[0]), *(layer for layer, _ in heads)]
        if any(later <= earlier for earlier, later in pairwise(layers)):
            raise NotApplicable(f"{text!r} is no path: every head must be in a later layer than what it reads")
        return cls(parts[0], heads)


def source_layer(source: str) -> int:
    """The layer that writes a source (−1: before the first); heads of later layers read it."""
    if source in ("embed", "pos"):
        return -1
    if source == "unembed.bias":
        return 1 << 30
    match = re.fullmatch(r"L(\d+)\.(bias|mlp)", source)
    if match is None:
        raise NotApplicable(f"{source!r} is no source; sources are embed, pos, L0.bias, L0.mlp, …, unembed.bias")
    return int(match[1])


def path_counts(n_layers: int, n_heads: int, after: int = -1) -> list[int]:
    """Number of paths of order 0, 1, … from one source written by layer `after`: `C(L, k) H^k`."""
    layers = max(n_layers - after - 1, 0)
    return [comb(layers, k) * n_heads**k for k in range(layers + 1)]


def chains(spec: Spec, after: int, max_order: int) -> Iterator[tuple[HeadIndex, ...]]:
    """All chains of heads after a layer, up to a length, each after its own beginnings."""
    yield ()
    if max_order == 0:
        return
    for layer in range(after + 1, spec.n_layers):
        for index in range(spec.n_heads):
            for rest in chains(spec, layer, max_order - 1):
                yield ((layer, index), *rest)
