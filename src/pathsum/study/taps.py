"""What heads whose queries, keys or values are mixed over positions say through each tap: weights alone."""

from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.circuits.spectra import departure, eigenvalues_over, positivity, table_norms
from pathsum.circuits.tables import MIXED, layer_OV, layer_QK
from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.study.reading import Rows
from pathsum.study.subject import Subject
from pathsum.weights.blocks import Block, Which
from pathsum.weights.positions import Rotary

NUMBERS = ("size", "score", "departure")


def taps(subject: Subject, *, delta: float | int | None = None) -> Rows:
    """Each head's `W_QK(s, t) = W_Qᵀ C_s R(Δ)ᵀ C_t W_K` and `W_OV(t) = W_O C_t W_V` over tokens, through every tap.

    Tap 0 is the position itself, tap 1 the one before: an induction head of one layer matches in QK (0, 1).
    Raises `NotApplicable` for a model whose heads mix nothing over positions.
    """
    blocks = [subject.folded.attention(layer) for layer in range(subject.model.spec.n_layers)]
    mixing = [block for block in blocks if any(block.width(which) > 1 for which in MIXED)]
    if not mixing:
        raise NotApplicable(f"no head of {subject.model.name} mixes queries, keys or values over positions")
    return [row for block in mixing for row in (*_qk_rows(subject, block, delta), *_ov_rows(subject, block))]


def _qk_rows(subject: Subject, block: Block, delta: float | int | None) -> Rows:
    """A row for every head, tap of its query and tap of its key; without numbers in a rotary layer without a Δ."""
    gram, scale, rows = subject.embedding_gram, block.attention.score_scale, []
    for query, key in product(range(block.width("Q")), range(block.width("K"))):
        weights = _sizes(_of(block, "Q", query) * _of(block, "K", key))
        if delta is None and isinstance(block.attention.positions, Rotary):
            numbers: list[dict[str, Any]] = [dict.fromkeys(NUMBERS)] * block.n_heads
        else:
            QK = layer_QK(subject.folded, block.layer, delta, (query, key))
            numbers = _numbers(subject, QK, gram, gram, gram, abs(scale))
        rows += [
            {"head": head.name, "circuit": "QK", "query_tap": query, "key_tap": key, "value_tap": None,
             "weight": weights[head.index], **numbers[head.index]}
            for head in block.heads
        ]  # fmt: skip
    return rows


def _ov_rows(subject: Subject, block: Block) -> Rows:
    """A row for every head and tap of its value."""
    rows = []
    for tap in range(block.width("V")):
        OV, weights = layer_OV(subject.folded, block.layer, tap), _sizes(_of(block, "V", tap))
        numbers = _numbers(subject, OV, subject.through_tokens, subject.unembedding_gram, subject.embedding_gram)
        rows += [
            {"head": head.name, "circuit": "OV", "query_tap": None, "key_tap": None, "value_tap": tap,
             "weight": weights[head.index], **numbers[head.index]}
            for head in block.heads
        ]  # fmt: skip
    return rows


def _numbers(
    subject: Subject, matrices: LowRank, over: Tensor, rows: Tensor, columns: Tensor, scale: float | int = 1
) -> list[dict[str, Any]]:
    """Of each head's table over tokens: its size, its eigenvalues' score and how far it is from normal."""
    own, norms = eigenvalues_over(matrices, over), table_norms(matrices, rows, columns)
    sizes, scores, departs = scale * norms / subject.model.spec.d_vocab, positivity(own), departure(own, norms)
    each = zip(sizes.tolist(), scores.tolist(), departs.tolist(), strict=True)
    return [dict(zip(NUMBERS, found, strict=True)) for found in each]


def _of(block: Block, which: Which, tap: int) -> Float[Tensor, "head d_head"]:
    """One tap of every head; ones where nothing is mixed."""
    found = block.taps_by_head(which)
    return torch.ones_like(block.W_O[:, 0]) if found is None else found[:, tap]


def _sizes(taps: Float[Tensor, "head d_head"]) -> list[float]:
    """Root mean square over coordinates."""
    return taps.square().mean(-1).sqrt().tolist()
