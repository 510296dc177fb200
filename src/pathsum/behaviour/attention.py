"""Where heads look: lag profiles, prefix matching and the start-token rest, from recorded patterns (“Induction Heads”).

Patterns are `[*batch, head, dst, src]`; results have one value a head, averaged over rows of all batch members.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pathsum.errors import TextError
from pathsum.runs.token_pairs import earlier_copies, prefix_targets
from pathsum.weights.spec import Spec

LAGS = 16


def lag_profile(pattern: Float[Tensor, "*batch head dst src"], lags: int = LAGS) -> Float[Tensor, "head lag"]:
    """Mean of `A[i, i − lag]` over rows i ≥ lag, for lags 0 … lags − 1; NaN for lags no row has.

    Lag 1 is the previous-token score.
    """
    means = [pattern.diagonal(-lag, -2, -1).mean(-1) for lag in range(lags)]
    return _over_batch(torch.stack(means, dim=-1), keep=2)


def prefix_matching(
    pattern: Float[Tensor, "*batch head dst src"], tokens: Int[Tensor, "*batch pos"]
) -> Float[Tensor, " head"]:
    """Attention on the tokens after *all* earlier copies of the present one, mean over the rows that have one.

    1 for a perfect induction head; NaN where no token recurs.
    """
    targets, has_copy = prefix_targets(tokens), earlier_copies(tokens).any(-1)
    found = (pattern * targets.unsqueeze(-3)).sum(-1)
    return _over_rows(found, has_copy)


def start_token_rest(
    pattern: Float[Tensor, "*batch head dst src"], tokens: Int[Tensor, "*batch pos"]
) -> Float[Tensor, " head"]:
    """Attention on the first token, mean over the rows (the first excluded) with no earlier copy."""
    rows = ~earlier_copies(tokens).any(-1)
    rows[..., 0] = False
    return _over_rows(pattern[..., 0], rows)


def repeated_tokens(spec: Spec, block: int, batch: int, copies: int = 3, seed: int = 0) -> Int[Tensor, "batch pos"]:
    """Blocks of distinct uniformly random tokens, repeated `copies` times, after BOS where texts start with one.

    Raises `TextError` where the context or the vocabulary is too small for it.
    """
    start = [] if spec.first_token is None else [spec.first_token]
    if block < 2 or len(start) + block * copies > spec.n_ctx or block > spec.d_vocab - len(start):
        raise TextError(
            f"{copies} copies of {block} distinct tokens do not fit a context of {spec.n_ctx} and a vocabulary of "
            f"{spec.d_vocab}; pass a smaller block"
        )
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.tensor([token for token in range(spec.d_vocab) if token not in start])
    rows = []
    for _ in range(batch):
        chosen = allowed[torch.randperm(len(allowed), generator=generator)[:block]]
        rows.append(torch.cat([torch.tensor(start, dtype=torch.long), chosen.repeat(copies)]))
    return torch.stack(rows)


def default_block(spec: Spec) -> int:
    """Block length used unless one is given: 64, or what fits three times."""
    return min(64, (spec.n_ctx - (spec.first_token is not None)) // 3, spec.d_vocab - 1)


def _over_rows(values: Float[Tensor, "*batch head dst"], rows: Bool[Tensor, "*batch dst"]) -> Float[Tensor, " head"]:
    """Mean over the chosen rows of all batch members; NaN where none is chosen."""
    chosen = rows.unsqueeze(-2).expand_as(values)
    total = _batch_sum((values * chosen).sum(-1))
    return total / _batch_sum(chosen.sum(-1))


def _batch_sum(x: Tensor) -> Tensor:
    return x.flatten(0, -2).sum(0) if x.dim() > 1 else x


def _over_batch(x: Tensor, keep: int) -> Tensor:
    return x.flatten(0, -keep - 1).mean(0) if x.dim() > keep else x
