"""Which tokens a step sees: a function of seed and step alone, so that resuming needs no state of the data."""

import numpy
import torch
from jaxtyping import Int
from torch import Tensor

from pathsum.training.recipe import Recipe


def batch_at(tokens: numpy.ndarray, recipe: Recipe, step: int) -> Int[Tensor, "batch pos_plus_one"]:
    """The batch of a step: windows of `context + 1` tokens at random places.

    A share `recipe.tiled` of the rows is instead the window's first few tokens (context/16 to context/4), repeated.
    """
    random = numpy.random.default_rng((recipe.seed, step))
    width = recipe.context + 1
    starts = random.integers(0, len(tokens) - width + 1, size=recipe.batch)
    is_tiled = random.random(recipe.batch) < recipe.tiled
    lengths = random.integers(max(2, recipe.context // 16), recipe.context // 4 + 1, size=recipe.batch)
    rows = [
        numpy.resize(tokens[start : start + length], width) if tile else tokens[start : start + width]
        for start, tile, length in zip(starts, is_tiled, lengths, strict=True)
    ]
    return torch.from_numpy(numpy.stack(rows).astype(numpy.int64))


def even_windows(tokens: numpy.ndarray, context: int, most: int) -> Int[Tensor, "window pos_plus_one"]:
    """At most `most` windows of `context + 1` tokens, evenly spread: the same ones for every measurement."""
    width = context + 1
    count = min(most, len(tokens) // width)
    starts = numpy.linspace(0, len(tokens) - width, count).astype(numpy.int64)
    rows = numpy.stack([tokens[start : start + width] for start in starts])
    return torch.from_numpy(rows.astype(numpy.int64))
