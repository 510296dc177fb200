"""How large the vector of any single path can be: what a search may leave out (see `search`).

1. `W_O^h = U_h R_h` with orthonormal columns U_h: what a head writes is as long as its coordinates `R_h m`.
2. From a source the coordinates are known exactly. From an earlier head they are at most `κ Σ_j A_ij S_j q_h'[j]`,
   `κ` the largest singular value of `R_h W_V^h U_h'` (from above: `tr((MᵀM)⁴)^(1/8)`): what one head writes and the
   next does not read costs nothing, which a product of two norms would charge for. Where values are mixed over
   positions it is the sum over taps: `κ_t` of `R_h C_t W_V^h U_h'`, and what was there t positions before.
3. The largest over all heads so far bounds what every path up to a layer writes, at each position.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.paths.paths import source_layer
from pathsum.runs.forward import FrozenLayer
from pathsum.runs.graded import FrozenRun
from pathsum.runs.linear import mixed_values
from pathsum.weights.blocks import Block
from pathsum.weights.taps import later

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
            lengths = torch.maximum(lengths, _from_heads(block, seen, R, torch.cat(axes), torch.cat(reach)).amax(1))
        axes.append(U)
        reach.append(lengths * seen.post_attention_scale * (1 + SLACK))
        longest.append(torch.maximum(longest[-1], reach[-1].amax(0)))
    return torch.stack(longest)


def _from_heads(
    block: Block,
    seen: FrozenLayer,
    R: Float[Tensor, "head r d_head"],
    axes: Float[Tensor, "earlier d_model q"],
    reach: Float[Tensor, "earlier pos"],
) -> Float[Tensor, "head earlier pos"]:
    """`Σ_t κ_t Σ_j A_ij (S q)_{j−t}`: how long what each head makes of each earlier head's output can be."""
    scaled = (reach * seen.attention_scale).unsqueeze(-1)
    total = reach.new_zeros(())
    for tap in range(block.width("V")):
        W_V = block.reader("V", tap).repeat_interleave(block.group, 0)
        arriving = torch.einsum("hij,pj->hpi", seen.pattern, later(scaled, tap)[..., 0])
        total = total + largest_singular_values(R @ W_V, axes).unsqueeze(-1) * arriving
    return total


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
