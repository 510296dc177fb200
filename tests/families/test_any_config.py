"""Any value of any field of any family's config is one clear error, or a model."""

import copy
import math
from typing import Any

import pytest

from families.all_cases import CASES, config_of
from pathsum.errors import CheckpointError
from pathsum.weights.families import FAMILIES
from pathsum.weights.families.config import Config

FIRST = {case.model_type: case for case in reversed(CASES)}
OLDER = {
    "rope_scaling", "rope_theta", "rope_local_base_freq", "partial_rotary_factor", "sliding_window_pattern",
    "quantization_config", "layer_types", "no_rope_layers", "head_dim", "n_inner", "original_max_position_embeddings",
}  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, 1, 3, -1, 2**63, 0.0, 0.5, -2.5, 1e-320, 1e308, math.nan, math.inf, "", "x", "relu", "yarn",
    [], [1], ["x"] * 9, [None] * 9, [{}] * 9, ["sliding_attention"] * 9, {}, {"x": 1}, {"rope_type": []},
    {"rope_type": "yarn", "factor": 0}, {"rope_type": "linear", "factor": 0}, {"rope_type": "longrope"},
    {"full_attention": 3}, {"full_attention": {"rope_type": "linear"}},
]  # fmt: skip


def changes(plain: dict[str, Any]) -> list[dict[str, Any]]:
    """The config with one field changed, or one field of an object in it."""
    found = [{**plain, name: value} for name in sorted({*plain, *OLDER}) for value in VALUES]
    for outer in ("rope_parameters", "text_config"):
        inner = plain.get(outer)
        if isinstance(inner, dict):
            found += [{**plain, outer: changed} for changed in changes(inner)]
    return found


@pytest.mark.parametrize("case", FIRST.values(), ids=FIRST)
def test_any_value_of_any_field_is_an_error_or_a_model(case):
    family, errors, models = FAMILIES[case.model_type], 0, 0
    for plain in changes(config_of(case).to_dict()):
        config = Config(copy.deepcopy(plain), dict(family.defaults))
        try:
            family.spec(config), family.table(config)
            models += 1
        except CheckpointError as error:
            assert str(error)
            errors += 1
    assert errors > 100 and models > 100
