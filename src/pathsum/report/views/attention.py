"""Attention on a text: where each head looks, how much it moves from there, and what that does to the next token.

    pattern          A[i, j]
    value norm       ‖W_OV x_j S(j)‖: the length of what looking at j moves, whole
    effect           S_f(i) S_post(i) A[i, j] S(j) (W_U[t_i] − mean W_U) · W_OV x_j, in nats

`t_i` is the token that follows row i, in the last row the model's first choice. The effect is what looking from i at j
adds to its logit, directly, less what it adds to all logits on average; the final scale is the recorded one. Over j,
all heads and the sources' direct paths it sums to that logit, less the mean of all logits.

Triangles travel as bytes, row by row: 8,386,560 of them for 4,096 tokens.
"""

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.report.tokens import visible
from pathsum.runs.attention import one_heads_values
from pathsum.runs.forward import FrozenLayer
from pathsum.runs.graded import FrozenRun, streams
from pathsum.weights.blocks import Block
from pathsum.weights.tokens import token_strings
from pathsum.weights.weights import head_index

LONGEST = 60
"""Characters of a token."""
THUMBNAIL = 28
"""Pixels on a side of a head's small picture, at most."""


@dataclass(frozen=True)
class HeadAttention:
    """One head on the text: `pattern`, `effect` are `[dst, src]`, zero above the diagonal; `value_norm` is `[src]`."""

    name: str
    pattern: Float[Tensor, "dst src"]
    value_norm: Float[Tensor, " src"]
    effect: Float[Tensor, "dst src"]
    """Nats."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: triangles as base64; 255 is a pattern's 1, effects are `squeezed` within `effect_scale` nats."""
        scale = self.effect.abs().max().item()
        return {
            "name": self.name,
            "pattern": triangle((self.pattern * 255).round().to(torch.uint8)),
            "value_norm": [float(f"{norm:.4g}") for norm in self.value_norm.tolist()],
            "effect": triangle(squeezed(self.effect, scale)),
            "effect_scale": scale,
        }


@dataclass(frozen=True)
class AttentionView:
    """All heads on one text; of a run of one text. `notes` says in a few words what heads are."""

    frozen: FrozenRun
    notes: Mapping[str, str] = field(default_factory=dict)

    def index(self, heads: list[str] | None = None) -> dict[str, Any]:
        """What is shown before a head is chosen: the tokens, and of all heads, or these, a name, a note, a picture."""
        run = self.frozen.run
        strings = [visible(text, LONGEST) for text in (*run.token_strings, *token_strings(run.model, self.next[-1:]))]
        known = [head.name for block in self.frozen.blocks for head in block.heads]
        pictures = self.thumbnails(known if heads is None else heads)
        return {
            "tokens": strings[:-1],
            "bos": run.bos,
            "next": strings[1:],
            "heads": [{"name": name, "note": self.notes.get(name, ""), **asdict(picture)}
                      for name, picture in pictures.items()],
        }  # fmt: skip

    def head(self, name: str) -> HeadAttention:
        """One head, from the stream that its layer reads.

        Raises `NotApplicable` for a name that is no head of the model.
        """
        layer, index = head_index(name, self.frozen.weights.spec)
        block, seen = self.frozen.blocks[layer], self.frozen.run.frozen.layers[layer]
        pattern = seen.patterns_of(slice(index, index + 1))[0]
        values = self._values(block, seen, index)
        read = self._readers(block, seen, index)
        return HeadAttention(name, pattern, (values @ block.W_O[index].mT).norm(dim=-1), pattern * (read @ values.mT))

    @cached_property
    def next(self) -> Int[Tensor, " pos"]:
        """Of each row, the token whose logit `effect` is about."""
        run = self.frozen.run
        return torch.cat([run.tokens[1:], run.logits[-1].argmax().view(1)])

    def thumbnails(self, names: list[str]) -> "dict[str, Thumbnail]":
        """Patterns as small pictures: of each block of positions the largest."""
        found = {}
        for block, seen in self.frozen.layers:
            wanted = [head.index for head in block.heads if head.name in names]
            if wanted:
                pattern, size = seen.pattern, min(THUMBNAIL, len(self.frozen.run.tokens))
                small = torch.nn.functional.adaptive_max_pool2d(pattern, size)
                for index in wanted:
                    pixels = (small[index] * 255).round().to(torch.uint8)
                    found[f"L{block.layer}H{index}"] = Thumbnail(encoded(pixels.flatten()), size)
        return {name: found[name] for name in names}

    @cached_property
    def _residuals(self) -> list[Float[Tensor, "pos d_model"]]:
        """Before every layer."""
        return list(streams(self.frozen))[:-1]

    @cached_property
    def _directions(self) -> Float[Tensor, "pos d_model"]:
        """`S_f(i) (W_U[t_i] − mean W_U)`."""
        W_U = self.frozen.ends.W_U
        return (W_U[self.next] - W_U.mean(0)) * self.frozen.run.frozen.final_scale[:, None]

    def _values(self, block: Block, seen: FrozenLayer, index: int) -> Float[Tensor, "src d_head"]:
        """`S(j) W_V x_j`, mixed over positions where the layer does that."""
        return one_heads_values(block, index, self._residuals[block.layer] * seen.attention_scale[:, None])

    def _readers(self, block: Block, seen: FrozenLayer, index: int) -> Float[Tensor, "dst d_head"]:
        """What each row's next logit is on what the head has gathered there."""
        return (self._directions * seen.post_attention_scale[:, None]) @ block.W_O[index]


@dataclass(frozen=True)
class Thumbnail:
    """A pattern in `size × size` bytes, row by row."""

    thumbnail: str
    size: int


def triangle(square: Tensor) -> str:
    """The lower triangle of a `[dst, src]` tensor of bytes, row by row, in base64."""
    n = len(square)
    return encoded(square[tuple(torch.tril_indices(n, n))])


def squeezed(values: Tensor, scale: float) -> Tensor:
    """Numbers within ± scale as bytes q, `value = ± scale (q / 127)²`: small ones keep their first digits."""
    share = values / scale if scale else torch.zeros_like(values)
    return (share.sign() * share.abs().sqrt() * 127).round().to(torch.int8)


def encoded(values: Tensor) -> str:
    """A tensor's bytes, little-endian, in base64."""
    return base64.b64encode(
        values.contiguous().numpy().astype(values.numpy().dtype.newbyteorder("<")).tobytes()
    ).decode()
