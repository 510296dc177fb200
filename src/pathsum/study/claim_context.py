"""What the claims measure of in-context learning: a score over windows of text, and what goes with induction heads."""

import polars as pl
import torch

from pathsum.behaviour.losses import residual_losses
from pathsum.runs.forward import HeadIndex, forward
from pathsum.study.on_tokens import INDUCTION_THRESHOLDS
from pathsum.study.result import read_one
from pathsum.study.subject import Subject
from pathsum.weights.weights import head_index

EARLY, LATE = (20, 30), 0.1
"""Tokens, from 1, and share of the positions at the end, whose losses the in-context score over windows compares."""
CONTEXTS = 64


@torch.no_grad()
def caused(subject: Subject) -> dict[str, float]:
    """The in-context score over windows of text, and what of it (and of repeats) goes with the induction heads.

    All heads that match prefixes, at once: each alone may cost little where others do the same, and in a deep model
    those far from the end copy through later ones.
    """
    heads = read_one("induction", subject).frame
    found = heads.filter(pl.col("prefix_matching") >= INDUCTION_THRESHOLDS["prefix_matching"])["head"]
    without = {head_index(name, subject.model.spec) for name in found}
    if not without:
        return {}
    text, repeats = subject.contexts(CONTEXTS), subject.repeated_tokens
    block, start = subject.block_length, repeats.shape[1] - 3 * subject.block_length
    copy = lambda losses, first: losses[:, first : first + block - 1].mean()
    saved = lambda losses: (copy(losses, start) - copy(losses, start + 2 * block)).item()
    with_them = {"text": windows(_losses(subject, text)), "repeats": -saved(_losses(subject, repeats))}
    gone = {
        "text": windows(_losses(subject, text, without)),
        "repeats": -saved(_losses(subject, repeats, without)),
    }
    return {
        "text_score": with_them["text"],
        "text_score_removed": 1 - gone["text"] / with_them["text"],
        "repeats_removed": 1 - gone["repeats"] / with_them["repeats"],
    }


def _losses(subject: Subject, tokens: torch.Tensor, without: set[HeadIndex] | None = None) -> torch.Tensor:
    """Of predicting every token, `[sequence, pos − 1]`, the rest of the model free to react."""
    parts = []
    for some in tokens.split(8):
        done = forward(subject.raw, some, without=without or set())
        parts.append(residual_losses(subject.raw, some, done.residual, done.final_scale))
    return torch.cat(parts)


def windows(losses: torch.Tensor) -> float:
    """Mean loss of the last tenth of positions less that of tokens 20 to 30; negative: context helps."""
    early = losses[:, EARLY[0] - 2 : EARLY[1] - 1].mean()
    return (losses[:, -max(1, round(LATE * losses.shape[1])) :].mean() - early).item()
