import torch

from pathsum.training.measure import best_head, induction_text
from pathsum.training.recipe import recipe
from pathsum.training.trainee import Trainee


def test_blocks_are_a_third_of_the_context() -> None:
    tokens = induction_text(recipe("two-layer-small").spec())
    assert tokens.shape == (4, 255)
    assert torch.equal(tokens[:, :85], tokens[:, 85:170]) and torch.equal(tokens[:, :85], tokens[:, 170:])


def test_the_best_head_is_named_and_a_model_without_layers_has_none() -> None:
    trainee = Trainee(recipe("two-layer-small", vocab=300, context=32))
    best = best_head(trainee.weights(), induction_text(trainee.spec))
    assert best is not None and best.name in {f"L{layer}H{head}" for layer in (0, 1) for head in range(4)}
    assert 0 < best.prefix_matching < 0.2
    bare = Trainee(recipe("zero-layer", vocab=300, context=32))
    assert best_head(bare.weights(), induction_text(bare.spec)) is None
