"""What heads do with what they look at: copying on a sequence, and what their removal costs (“Induction Heads”)."""

from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.behaviour.losses import losses_at
from pathsum.runs.attention import one_heads_values
from pathsum.runs.forward import forward
from pathsum.runs.graded import FrozenRun, streams
from pathsum.runs.run import Run

AT_ONCE = 4096
"""Tokens run at once where heads are removed one by one, several at a time."""


def copying_on_sequence(frozen: FrozenRun) -> list[Float[Tensor, " head"]]:
    """For each layer and head, in nats: attention-weighted over sources, what OV adds to the attended token's logit.

    `mean_i S_f(i) Σ_j A_ij ((W_U − mean_o W_U)[t_j] · W_OV S_j x_j)`: less the mean addition over the vocabulary, with
    the final norm's scale frozen.
    """
    run, W_U = frozen.run, frozen.ends.W_U
    own = W_U[run.tokens] - W_U.mean(0)
    found = []
    for (block, seen), stream in zip(frozen.layers, streams(frozen), strict=False):
        x = stream * seen.attention_scale.unsqueeze(-1)
        kept, pattern = [], seen.pattern
        for head in block.heads:
            added = ((one_heads_values(block, head.index, x) @ head.W_O.mT) * own).sum(-1)
            moved = (pattern[..., head.index, :, :] @ added.unsqueeze(-1)).squeeze(-1)
            kept.append((moved * seen.post_attention_scale * run.frozen.final_scale).mean())
        found.append(torch.stack(kept))
    return found


def removal_losses(run: Run, rows: Tensor, frozen: bool) -> dict[str, float]:
    """Means over `rows` of `removed_losses`, by head."""
    return {name: losses.mean().item() for name, losses in removed_losses(run, rows, frozen).items()}


@torch.no_grad()
def removed_losses(run: Run, rows: Tensor, frozen: bool, by_layer: bool = False) -> dict[str, Float[Tensor, " row"]]:
    """Losses at `rows` of the predicted positions with each head's output set to zero, biases of OV included.

    `frozen=True` keeps all recorded patterns, scales and MLP outputs, so only the terms through the head go;
    `frozen=False` lets the rest of the model react. `by_layer`: all heads of a layer at once.
    `rows [*batch, pos − 1]` is a mask.
    """
    weights, (n_layers, n_heads) = run.weights, (run.model.spec.n_layers, run.model.spec.n_heads)
    residuals = forward(weights, run.tokens, record=True, patterns=0).residuals
    sets = torch.arange(n_heads)[None] if by_layer else torch.arange(n_heads)[:, None]
    targets = run.tokens[..., 1:][rows]
    found: dict[str, Tensor] = {}
    for layer, some in product(range(n_layers), sets.split(max(1, AT_ONCE // run.tokens.numel()))):
        alone = [{(layer, index) for index in heads} for heads in some.tolist()]
        # What comes before the layer is as it was.
        begin, kept = (layer, residuals[layer]), run.frozen if frozen else None
        done = forward(weights, run.tokens, frozen=kept, without=alone, begin=begin)
        residual, scale = done.residual[..., :-1, :][:, rows], done.final_scale[..., :-1][:, rows]
        losses = losses_at(weights, residual.flatten(0, 1), scale.flatten(), targets.repeat(len(alone)))
        names = [f"L{layer}" if by_layer else f"L{layer}H{heads[0]}" for heads in some.tolist()]
        found |= dict(zip(names, losses.unflatten(0, (len(alone), -1)), strict=True))
    return found


def repeat_rows(tokens: Int[Tensor, "*batch pos"], block: int, start: int) -> Tensor:
    """Mask over predicted positions: the present token has an earlier copy and its successor in that copy is next."""
    rows = torch.zeros(*tokens.shape[:-1], tokens.shape[-1] - 1, dtype=torch.bool)
    rows[..., start + block :] = True
    return rows
