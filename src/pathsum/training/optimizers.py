"""Muon for the layers' matrices, AdamW for the rest; plain AdamW does not find induction heads in the same time."""

from typing import Any

from torch.optim import AdamW, Muon, Optimizer

from pathsum.training.recipe import Recipe
from pathsum.training.trainee import Trainee


def optimizers_of(trainee: Trainee) -> list[Optimizer]:
    """The optimizers of a model in training; a model without layers needs AdamW alone."""
    recipe = trainee.recipe
    groups: list[dict[str, Any]] = [{"params": trainee.other_parameters()}]
    groups += [{"params": gates, "lr": recipe.rate_smear, "weight_decay": 0.0}] if (gates := trainee.gates()) else []
    adamw = AdamW(groups, lr=recipe.rate_ends, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    matrices = trainee.layer_matrices()
    return [Muon(matrices, lr=recipe.rate_heads, momentum=0.95, weight_decay=0.0), adamw] if matrices else [adamw]


def set_rates(optimizers: list[Optimizer], recipe: Recipe, step: int) -> None:
    """Learning rates of this step: warm-up, plateau, decay."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(step) * group.setdefault("initial_lr", group["lr"])
