import pytest
import torch

from pathsum.runs.forward import forward, logits
from pathsum.training.loss import ROWS, mean_loss, position_losses
from pathsum.training.recipe import recipe
from pathsum.training.trainee import Trainee

SMALL = recipe("two-layer-small", d_model=16, heads=2, d_head=4, vocab=300, context=32)


def batch(rows: int) -> torch.Tensor:
    return torch.randint(0, 300, (rows, 33), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
def test_loss_and_gradient_in_chunks_are_those_of_cross_entropy(norm: str) -> None:
    trainee = Trainee(recipe("two-layer-small", d_model=16, heads=2, d_head=4, vocab=300, context=32, norm=norm))
    rows = batch(3 * ROWS // 32 - 1)
    chunked = mean_loss(trainee.weights(), rows[:, :-1], rows[:, 1:])
    chunked.mul(2).backward()
    found = {name: parameter.grad.clone() for name, parameter in trainee.named_parameters()}
    trainee.zero_grad()
    weights = trainee.weights()
    done = forward(weights, rows[:, :-1])
    scores = logits(weights.ends, done.residual, done.final_scale).flatten(0, 1)
    plain = torch.nn.functional.cross_entropy(scores, rows[:, 1:].flatten())
    plain.mul(2).backward()
    torch.testing.assert_close(chunked, plain)
    for name, parameter in trainee.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, msg=name)


def test_mixed_precision_stays_close() -> None:
    trainee, rows = Trainee(SMALL), batch(4)
    exact = mean_loss(trainee.weights(), rows[:, :-1], rows[:, 1:])
    with torch.autocast("cpu", torch.bfloat16):
        mixed = mean_loss(trainee.weights(), rows[:, :-1], rows[:, 1:])
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, exact, rtol=1e-3, atol=0)


def test_the_mean_of_the_positions_is_the_loss() -> None:
    trainee, rows = Trainee(SMALL), batch(4)
    losses = position_losses(trainee.weights(), rows[:, :-1], rows[:, 1:])
    assert losses.shape == (4, 32)
    torch.testing.assert_close(losses.mean(), mean_loss(trainee.weights(), rows[:, :-1], rows[:, 1:]))
