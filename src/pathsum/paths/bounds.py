"""How large the vector of any single path can be: what a search may leave out (see `search`).

1. `W_O^h = U_h R_h` with orthonormal columns U_h: what a head writes is as long as its coordinates `R_h m`.
2. From a source the coordinates are known exactly. From an earlier head they are at most `κ Σ_j A_ij S_j q_h'[j]`,
   `κ` the largest singular value of `R_h W_V^h U_h'` (from above: `tr((MᵀM)⁴)^(1/8)`): what one head writes and the
   next does not read costs nothing, which a product of two norms would charge for.
3. The largest over all heads so far bounds what every path up to a layer writes, at each position.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.paths.paths import source_layer
from pathsum.runs.graded import FrozenRun
from pathsum.runs.linear import mixed_values

SLACK = 1e-4
"""A bound is raised by so much, relatively: it is made in the run's dtype."""


@torch.no_grad()
def longest_outputs(frozen: FrozenRun, sources: Mapping[str, Any]) -> Float[Tensor, "layers_and_one pos"]:
    """Before each layer and after the last, at each position: at least the length of what any path of heads wrote.

    Of a run of one text and its sources, `[pos, d_model]` by name.
    """
    longest = [torch.zeros_like(frozen.run.frozen.final_scale)]
    axes: list[Tensor] = []
    reach: list[Tensor] = []
    for block, seen in frozen.layers:
        U, R = torch.linalg.qr(block.W_O)
        before = torch.stack([x for name, x in sources.items() if source_layer(name) < block.layer])
        lengths = (mixed_values(block, seen, before) @ R.mT).norm(dim=-1).amax(0)
        if axes:
            gain = largest_singular_values(R @ block.W_V.repeat_interleave(block.group, 0), torch.cat(axes))
            arriving = torch.einsum("hij,j,pj->hpi", seen.pattern, seen.attention_scale, torch.cat(reach))
            lengths = torch.maximum(lengths, (gain.unsqueeze(-1) * arriving).amax(1))
        axes.append(U)
        reach.append(lengths * seen.post_attention_scale * (1 + SLACK))
        longest.append(torch.maximum(longest[-1], reach[-1].amax(0)))
    return torch.stack(longest)


def largest_singular_values(
    read: Float[Tensor, "head r d"], axes: Float[Tensor, "earlier d q"]
) -> Float[Tensor, "head earlier"]:
    """Of every `read · axes`, from above: `‖M‖ ≤ tr((MᵀM)⁴)^(1/8)`, which is at most r^(1/8) times it."""
    found = []
    for one in read:
        M = one @ axes
        size = M.abs().amax((-1, -2), keepdim=True).clamp_min(torch.finfo(M.dtype).tiny)
        square = (M / size).mT @ (M / size)
        found.append((square @ square).norm(dim=(-1, -2)).sqrt().sqrt() * size[:, 0, 0])
    return torch.stack(found)
