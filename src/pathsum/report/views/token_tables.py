"""A head's QK and OV tables around any token, without forming either.

They are those of `entries` and `trigrams`: of folded weights, OV less each source's mean over outputs (nats, where the
source is attended to fully), QK less each destination's mean over sources (before the softmax).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.linalg import multi_dot as product

from pathsum.circuits.tables import query_bias
from pathsum.report.tokens import visible
from pathsum.weights.model import Model
from pathsum.weights.positions import Rotary
from pathsum.weights.tokens import token_strings
from pathsum.weights.weights import Weights, head_index

LONGEST = 40
"""Characters of a token."""


@dataclass(frozen=True)
class Strongest:
    """Ids of tokens and what stands beside them in a table, `[token, k]`: one row a token that was asked for."""

    ids: Int[Tensor, "token k"]
    values: Float[Tensor, "token k"]


@dataclass(frozen=True)
class TokenTables:
    """A head's tables around some tokens; each row strongest first."""

    outs: Strongest
    """OV column: the outputs that the token raises most, then those it lowers most (most negative last)."""
    destinations: Strongest | None
    """QK column: the tokens that attend to it most. None in a rotary layer without a distance."""
    sources: Strongest | None
    """QK row: the tokens it attends to most."""

    def to_dict(self, model: Model, row: int = 0) -> dict[str, Any]:
        """Of one of the tokens: `outs`, `destinations`, `sources`, each `[[token string, value], …]` or null."""
        return {key: None if part is None else named(model, part.ids[row], part.values[row].tolist())
                for key, part in (("outs", self.outs), ("destinations", self.destinations), ("sources", self.sources))
                }  # fmt: skip


def named(model: Model, ids: Int[Tensor, " k"], values: Sequence[float]) -> list[tuple[str, float]]:
    """Tokens as they are shown, with a number each."""
    strings = [visible(text, LONGEST) for text in token_strings(model, ids)]
    return [(text, float(f"{value:.4g}")) for text, value in zip(strings, values, strict=True)]


@torch.no_grad()
def token_tables(
    weights: Weights, name: str, tokens: Int[Tensor, " token"], count: int = 5, delta: float | int | None = None
) -> TokenTables:
    """The strongest `count` of a head's OV columns (either way) and of its QK columns and rows at `tokens`.

    `weights` are folded. QK of a rotary layer is at the distance `delta`; without one there is none.
    Raises `NotApplicable` for a name that is no head.
    """
    layer, index = head_index(name, weights.spec)
    block, ends = weights.attention(layer), weights.ends
    head, x = block.head(index), ends.W_E.mT[tokens]
    outs = _both_ends(_centred(product([x, head.OV.right.mT, head.W_O.mT, ends.W_U.mT])), count)
    if isinstance(head.attention.positions, Rotary) and delta is None:
        return TokenTables(outs, None, None)
    QK, scale = head.QK(delta), head.attention.score_scale
    # Queries and keys are d_head wide; a score less its destination's mean is one with the key less the mean key.
    keys, queries = (x - ends.W_E.mean(1)) @ QK.right.mT, x @ QK.left
    columns = product([keys, QK.left.mT, ends.W_E])
    bias = query_bias(block)
    if bias is not None:
        columns, queries = columns + (keys @ bias[index])[:, None], queries + bias[index]
    rows = _centred(product([queries, QK.right, ends.W_E]))
    return TokenTables(outs, _largest(scale * columns, count), _largest(scale * rows, count))


def _centred(rows: Float[Tensor, "token d_vocab"]) -> Float[Tensor, "token d_vocab"]:
    """Each row less its mean."""
    return rows - rows.mean(1, keepdim=True)


def _largest(table: Float[Tensor, "token d_vocab"], count: int) -> Strongest:
    values, ids = table.topk(min(count, table.shape[1]), dim=1)
    return Strongest(ids, values)


def _both_ends(table: Float[Tensor, "token d_vocab"], count: int) -> Strongest:
    count = min(count, table.shape[1] // 2)
    most, least = _largest(table, count), _largest(-table, count)
    return Strongest(torch.cat([most.ids, least.ids.flip(1)], 1), torch.cat([most.values, -least.values.flip(1)], 1))


def vocabulary(model: Model) -> list[str]:
    """Every token as it is shown, by id."""
    return [visible(text, LONGEST) for text in token_strings(model, range(model.spec.d_vocab))]


def find_tokens(shown: Sequence[str], typed: str, most: int = 12) -> list[tuple[int, str]]:
    """Places of the tokens in `shown` that have `typed` in them, and the tokens: the shortest first.

    A typed space is a token's space; what begins with the typed text comes before what only has it in it.
    """
    wanted = typed.replace(" ", "·").lower()
    found = [(place, text) for place, text in enumerate(shown) if wanted in text.lower()]
    begins = lambda text: text.lower().removeprefix("·").startswith(wanted.removeprefix("·"))
    return sorted(found, key=lambda pair: (not begins(pair[1]), len(pair[1]), pair[0]))[:most]
