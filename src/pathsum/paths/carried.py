"""How much of a prediction the paths from each source carry, all their orders together.

Sources run through the frozen heads side by side, so what they give sums to the logits. Two answers, neither of which
is the other: a share of the logits' variance, which adds up to one, and losses of sums that leave sources out.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.paths.scored import BLOCK, Scored, row_losses
from pathsum.runs.forward import embed
from pathsum.runs.graded import FrozenRun
from pathsum.runs.linear import bias_source, heads_output
from pathsum.weights.spec import Spec

FIRST = ("embed", "embed through heads", "bias")
"""Token and position embeddings straight to the logits; all their other paths; all paths from biases of heads, with
`b_U`."""
AT_ONCE = 1 << 25
"""Numbers of the sources' streams in memory at once."""
NUMBERS = ("covariance", "variance", "loss_up_to", "loss_beside", "loss_rescaled")


def carriers(spec: Spec) -> tuple[str, ...]:
    """Embeddings, biases, and each layer's MLP, in the order in which they are added up."""
    return (*FIRST, *(f"L{layer}.mlp" for layer in range(spec.n_layers) if spec.d_mlp is not None))


@torch.no_grad()
def carried(frozen: FrozenRun, rows: Int[Tensor, " row"]) -> Float[Tensor, "carrier number row"]:
    """For each carrier and row, float64: covariance of its centred logits with all, and their variance (over the
    vocabulary, nats²); the loss of all carriers up to it, of it alone beside the embedding's and the biases', and of
    all up to it with the final norm's scale measured anew on their sum.
    """
    at = Scored(frozen, rows)
    found = []
    for part in at.parts(BLOCK):
        shares = _scaled_ends(part)
        rescaled = _rescaled(part, shares)
        W_U, b_U = frozen.ends.W_U, frozen.ends.b_U
        total = part.logits(shares.sum(0))
        centred = total - total.mean(-1, keepdim=True)
        variance = centred.square().mean(-1).double()
        summed, beside, numbers = torch.zeros_like(total), torch.zeros_like(total), []
        constant = torch.zeros_like(W_U[:, 0])
        for place, share in enumerate(shares):
            logits = share @ W_U.mT
            if FIRST[-1:] == carriers(frozen.weights.spec)[place : place + 1] and b_U is not None:
                logits = logits + b_U
                constant = b_U
            summed = summed + logits
            beside = summed if place < len(FIRST) else beside
            covariance = (logits * centred).mean(-1).double()
            alone = beside if place < len(FIRST) else beside + logits
            anew = (summed - constant) * rescaled[place].unsqueeze(-1) + constant
            losses = [row_losses(some, part.targets) for some in (summed, alone, anew)]
            numbers.append(torch.stack([covariance, variance, *losses]))
        found.append(torch.stack(numbers))
    return torch.cat(found, dim=-1)


def _rescaled(at: Scored, shares: Float[Tensor, "carrier row d_model"]) -> Float[Tensor, "carrier row"]:
    """The final norm's 1/σ of the sum of each carrier and those before it, over the recorded run's 1/σ."""
    norm = at.frozen.ends.final_norm
    recorded = at.scaled(torch.ones_like(at.frozen.run.frozen.final_scale).unsqueeze(-1))[..., 0]
    return norm.scale(shares.cumsum(0) / recorded.unsqueeze(-1)) / recorded


def _scaled_ends(at: Scored) -> Float[Tensor, "carrier row d_model"]:
    """`S_f x` at the rows of each carrier's stream after the last layer."""
    frozen = at.frozen
    names = carriers(frozen.weights.spec)
    x = embed(frozen.weights, frozen.ends, frozen.run.tokens)
    most = max(1, AT_ONCE // max(1, x.numel()))
    found = {"embed": at.scaled(x)}
    own = ["embed through heads", *names[2:]]
    for some in (own[start : start + most] for start in range(0, len(own), most)):
        streams = torch.zeros(len(some), *x.shape, dtype=x.dtype)
        if some[0] == own[0]:
            streams[0] = x
        for block, seen in frozen.layers:
            streams = streams + heads_output(block, seen, streams)
            written = {"bias": bias_source(block, seen), f"L{block.layer}.mlp": seen.mlp}
            for place, name in enumerate(some):
                if (vectors := written.get(name)) is not None:
                    streams[place] += vectors
        found |= dict(zip(some, at.scaled(streams), strict=True))
    found[own[0]] = found[own[0]] - found["embed"]
    return torch.stack([found[name] for name in names])
