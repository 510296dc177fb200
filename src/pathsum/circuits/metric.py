"""The token metric: the residual stream has no privileged basis, but tokens do.

With `G = W_E W_Eᵀ` of the embedding as it is, `x' = G^{-1/2} x` is the basis in which tokens are spread evenly. There
`W_QK' = G^{1/2} W_QK G^{1/2}` and `W_OV' = G^{-1/2} W_OV G^{1/2}`: what reads is multiplied by `G^{1/2}` on the right,
what writes by `G^{-1/2}` on the left. Norms of products are then the same whatever basis the model came in (GL).
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.errors import NotApplicable
from pathsum.weights.blocks import Block, Experts, Mlp
from pathsum.weights.weights import Ends, Weights

SINGULAR = 1e-12
"""An eigenvalue of G this small beside the largest is rounding."""


def in_token_metric(weights: Weights) -> Weights:
    """Folded weights in the basis `x' = G^{-1/2} x`, changed in float64; to be read, not to be run.

    Raises `NotApplicable` where G is singular: fewer tokens than d_model, or dependent embeddings.
    """
    root, inverse = metric_roots(weights)
    reads: Callable = lambda W: None if W is None else (W.double() @ root).to(W.dtype)
    writes: Callable = lambda W: None if W is None else (inverse @ W.double()).to(W.dtype)

    def ends() -> Ends:
        found = weights.ends
        return replace(found, W_E=writes(found.W_E), W_pos=writes(found.W_pos), W_U=reads(found.W_U))

    return Weights(
        weights.spec,
        ends,
        lambda layer: _block(weights.block(layer), reads, writes),
        lambda layer: _block(weights.attention(layer), reads, writes),
    )


def metric_roots(weights: Weights) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d d"]]:
    """`G^{1/2}` and `G^{-1/2}`, float64. Raises `NotApplicable` where G is singular."""
    W_E = weights.W_E.double()
    values, vectors = torch.linalg.eigh(W_E @ W_E.mT)
    if (rank := int((values > SINGULAR * values[-1]).sum())) < len(values):
        raise NotApplicable(
            f"the token metric needs embeddings that span the residual stream: W_E has rank {rank} of d_model "
            f"{len(values)}; leave metric= out"
        )
    return (vectors * values.sqrt()) @ vectors.mT, (vectors / values.sqrt()) @ vectors.mT


def _block(block: Block, reads: Callable, writes: Callable) -> Block:
    return replace(
        block,
        **{name: reads(getattr(block, name)) for name in ("W_Q", "W_K", "W_V", "W_QP", "W_KP")},
        W_O=writes(block.W_O),
        b_O=None if block.b_O is None else writes(block.b_O[:, None])[:, 0],
        mlp=None if block.mlp is None else _mlp(block.mlp, reads, writes),
    )


def _mlp(mlp: Mlp, reads: Callable, writes: Callable) -> Mlp:
    changed = replace(mlp, W_in=reads(mlp.W_in), W_gate=reads(mlp.W_gate), W_out=writes(mlp.W_out))
    changed = replace(changed, b_out=None if mlp.b_out is None else writes(mlp.b_out[..., None])[..., 0])
    return replace(changed, W_router=reads(changed.W_router)) if isinstance(changed, Experts) else changed
