"""Pairs of positions that the tokens single out: a destination `dst` and a source `src` before it."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def earlier_copies(tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch dst src"]:
    """Where `src < dst` and both hold the same token."""
    same = tokens[..., :, None] == tokens[..., None, :]
    return same.tril(-1)


def prefix_targets(tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch dst src"]:
    """Where `src` comes directly after an earlier copy of the token at `dst`."""
    copies = earlier_copies(tokens)
    after = torch.zeros_like(copies)
    after[..., 1:] = copies[..., :-1]
    return after


def previous_tokens(tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch dst src"]:
    """Where `src` is the position directly before `dst`."""
    n = tokens.shape[-1]
    return torch.ones(n, n, dtype=torch.bool).tril(-1).triu(-1).expand(*tokens.shape, n)
