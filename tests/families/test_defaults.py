"""What a config leaves out is what the reference implementation takes for it."""

from typing import Any

import pytest

from families.all_cases import CASES
from families.reference import transformers
from pathsum.weights.families import FAMILIES, Family
from pathsum.weights.families.config import Config
from pathsum.weights.families.family import Source, Take


def names(source: Source) -> Any:
    """The checkpoint's names that an entry of a table reads."""
    if isinstance(source, tuple):
        return [names(option) for option in source]
    return source.names if isinstance(source, Take) else (source,)


def read(family: Family, plain: dict[str, Any]) -> Any:
    config = Config(plain, dict(family.defaults))
    return family.spec(config), {ours: names(source) for ours, source in family.table(config).items()}


@pytest.mark.parametrize("name", sorted({case.model_type for case in CASES}))
def test_an_empty_config_is_the_references_default(name):
    said = transformers.AutoConfig.for_model(name).to_dict()
    assert read(FAMILIES[name], {"model_type": name}) == read(FAMILIES[name], said)
