"""Every field of every config, changed: what changes the reference's numbers changes ours as much, or is refused."""

import copy
from typing import Any

import pytest
import torch

import pathsum
from cases import agree
from families import reference
from families.all_cases import CASES, config_of, made
from pathsum.errors import CheckpointError

FIRST = {case.model_type: case for case in reversed(CASES)}
"""One case a family: its first."""
NOT_EAGER = {"use_bidirectional_attention"}
"""Fields that the reference honours with its default attention, but not with the one that shows its patterns."""


def perturbed(value: Any) -> list[Any]:
    """Other values a field could have."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value + 2]
    if isinstance(value, float):
        return [1.7 * value + 0.1]
    if value is None:
        return [True, 3, 0.5]
    return ["relu"] if isinstance(value, str) else []


def changed(case, name: str, value: Any):
    """The reference with one field changed and the same weights; None where it has other tensors, or fails itself."""
    base = made(case)
    try:
        config = config_of(case, **{name: value})
        with reference.in_float64():
            model = reference.build(config)
            model.load_state_dict(base.reference.model.state_dict())
            model.tie_weights()
            return model, reference.run(model, base.tokens).logits
    except Exception:  # whatever the reference says of a config it does not take
        return None


def ours(case, model, name: str, value: Any):
    """Our logits for that config and those weights; None where we refuse it by name."""
    plain = copy.deepcopy(model.config.to_dict())
    plain[name] = value
    try:
        opened = pathsum.open(dict(model.state_dict()), config=plain)
        return pathsum.run(opened, made(case).tokens, dtype=torch.float64).logits
    except CheckpointError as error:
        assert name in str(error), f"refused, but not by name: {error}"
        return None


@pytest.mark.parametrize("case", FIRST.values(), ids=FIRST)
def test_every_field_that_changes_the_numbers_is_honoured_or_refused(case, unchecked):
    base = made(case)
    honoured = 0
    for name, value in sorted(base.config.to_dict().items()):
        for other in perturbed(value):
            found = changed(case, name, other)
            if found is None:
                continue
            model, logits = found
            mine = ours(case, model, name, other)
            moved = not torch.allclose(logits, base.reference.logits, rtol=1e-9, atol=1e-9)
            if mine is None:
                assert moved or name in NOT_EAGER, f"{name} = {other!r} changes nothing, but is refused"
                continue
            try:
                agree(mine, logits, 1e-10)
            except AssertionError as error:
                raise AssertionError(f"{name} = {other!r} (was {value!r}): {error}") from error
            honoured += moved
    assert honoured, "no field changed anything: the audit looks at the wrong thing"
