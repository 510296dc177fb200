"""The reading `carried`: how much of a model with MLPs the paths of an expansion carry, by source and depth."""

import math

import torch

from pathsum.paths.carried import carried as carried_by
from pathsum.paths.carried import carriers
from pathsum.study.importance import over_text
from pathsum.study.reading import Rows
from pathsum.study.subject import Subject


def carried(subject: Subject) -> Rows:
    """What all paths from embeddings, biases and each MLP's output carry of the prediction on the text.

    Frozen patterns and norm scales are the run's own, whatever made them: a head that looks where an MLP told it to
    is counted with what it moves. Shares of the loss are of what the model saves beyond the text's unigrams.
    """
    rows, names = subject.scored_rows, carriers(subject.model.spec)
    each = over_text(subject, lambda frozen, some: dict(zip(names, carried_by(frozen, some), strict=True)), rows)
    covariance, variance, up_to, beside, rescaled = torch.stack([each[name] for name in names]).unbind(1)
    unigrams = _unigram_entropy(subject)
    saved = unigrams - up_to[-1].mean().item()
    found = []
    for place, name in enumerate(names):
        if name == "bias" and not covariance[place].any():
            continue  # There are none, nor paths from them.
        loss = up_to[place].mean().item()
        before = unigrams if place == 0 else up_to[place - 1].mean().item()
        row = {"source": name, "variance_share": (covariance[place].sum() / variance[place].sum()).item()}
        row |= {"loss_up_to": loss, "loss_beside": beside[place].mean().item()}
        row |= {"loss_rescaled": rescaled[place].mean().item()}
        # Of a model that predicts the text no better than its unigrams there is nothing to have a share of.
        shares = ((before - loss) / saved, (unigrams - loss) / saved) if saved > 0 else (math.nan, math.nan)
        row |= dict(zip(("saved_share", "saved_share_up_to"), shares, strict=True))
        found.append(row)
    return found


def _unigram_entropy(subject: Subject) -> float:
    """Of the whole text's tokens, nats: the least loss of any guess that does not look."""
    counts = torch.bincount(subject.text_tokens).double()
    share = counts[counts > 0] / counts.sum()
    return -(share * share.log()).sum().item()
