"""Which (destination, source) pairs a question about scores is of, and the weights that make it a sum over them."""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pathsum.errors import NotApplicable
from pathsum.runs.token_pairs import prefix_targets, previous_tokens

NAMED: Mapping[str, Callable[[Tensor], Tensor]] = {"induction": prefix_targets, "previous": previous_tokens}
"""Sets of pairs with a name: the token after an earlier copy of the destination's; the token before."""
Pairs = str | Tensor | Sequence[Sequence[int]]


def pair_mask(tokens: Tensor, visible: Bool[Tensor, "dst src"], pairs: Pairs) -> Bool[Tensor, "*batch dst src"]:
    """A set of pairs as a mask: of a name in `NAMED`, of a mask, or of a list of (destination, source).

    Positions count from 0, or from the end: −1. In a batch a listed pair is of every text. Of a named set those pairs
    are taken that the head can see; others must all be so.

    Raises `NotApplicable` for an unknown name, an empty set, or a pair that causality or the layer's window hides.
    """
    if isinstance(pairs, str):
        if pairs not in NAMED:
            raise NotApplicable(f"no pairs named {pairs!r}; there are {', '.join(NAMED)}; or list pairs, such as 5:2")
        mask = NAMED[pairs](tokens) & visible
        if not mask.any():
            raise NotApplicable(f"no {pairs} pairs in this text of {tokens.shape[-1]} tokens that the head can see")
        return mask
    mask = _given(tokens, pairs)
    if (hidden := (mask & ~visible).nonzero()).numel():
        destination, source = hidden[0, -2:].tolist()
        reason = "it comes later" if source > destination else "it is outside the layer's window"
        raise NotApplicable(f"position {destination} does not attend to position {source}: {reason}")
    return mask


def pair_weights(
    mask: Bool[Tensor, "*batch dst src"], visible: Bool[Tensor, "dst src"], dtype: torch.dtype
) -> Float[Tensor, "two *batch dst src"]:
    """The mean over the pairs; and the same less, for each, the mean over all sources its destination can see.

    What is the same for all sources, the softmax does not see: the second is 0 for it.
    """
    mean = mask.to(dtype) / mask.sum()
    seen = visible.to(dtype) / visible.sum(-1, keepdim=True)
    return torch.stack([mean, mean - mean.sum(-1, keepdim=True) * seen])


def visible_sources(n: int, window: int | None) -> Bool[Tensor, "dst src"]:
    """Where a destination can attend to a source: itself and what is before, within the window if there is one."""
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    return mask if window is None else mask.triu(1 - window)


def _given(tokens: Tensor, pairs: Tensor | Sequence[Sequence[int]]) -> Bool[Tensor, "*batch dst src"]:
    n = tokens.shape[-1]
    if isinstance(pairs, Tensor) and pairs.dtype == torch.bool:
        if pairs.shape != (*tokens.shape, n):
            raise NotApplicable(f"a mask of pairs is {[*tokens.shape, n]} here, not {list(pairs.shape)}")
        if not pairs.any():
            raise NotApplicable("no pairs given: the mask is empty")
        return pairs
    listed = [tuple(pair) for pair in (pairs.tolist() if isinstance(pairs, Tensor) else pairs)]
    if not listed or any(len(pair) != 2 for pair in listed):
        raise NotApplicable("list pairs of a destination and a source, at least one")
    for position in (position for pair in listed for position in pair):
        if not -n <= position < n:
            raise NotApplicable(f"no position {position}: the text has {n} tokens, 0 to {n - 1}")
    mask = torch.zeros(n, n, dtype=torch.bool)
    destinations, sources = torch.tensor(listed).T
    mask[destinations, sources] = True
    return mask.expand(*tokens.shape, n)
