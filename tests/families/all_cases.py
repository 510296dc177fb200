"""Every case of every family, and its reference run, made once."""

import copy
import functools
import importlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from families import reference
from families.family_case import Case

TOKENS = 13
GROUPS = ("cases_first", "cases_layernorm", "cases_rmsnorm")


def _cases() -> list[Case]:
    found: list[Case] = []
    for group in GROUPS:
        if (Path(__file__).parent / f"{group}.py").is_file():
            found += importlib.import_module(f"families.{group}").CASES
    return found


CASES = _cases()


@dataclass(frozen=True)
class Made:
    """A case's reference model, its run and its folder."""

    config: Any
    reference: reference.Reference
    tokens: Tensor
    folder: Path
    _keep: Any


@functools.cache
def made(case: Case) -> Made:
    """The tiny model of a case, run on `TOKENS` random tokens in float64, and saved."""
    config = config_of(case)
    place = tempfile.TemporaryDirectory()
    with reference.in_float64():
        model = reference.build(config)
        tokens = torch.randint(
            config.get_text_config().vocab_size, (TOKENS,), generator=torch.Generator().manual_seed(1)
        )
        found = reference.run(model, tokens)
        folder = reference.saved(model, Path(place.name) / case.name)
    return Made(config, found, tokens, folder, place)


def config_of(case: Case, **changed: Any) -> Any:
    """The reference's config object."""
    fields = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, **case.fields, **changed}
    # A copy: it writes its defaults into nested objects.
    return reference.transformers.AutoConfig.for_model(case.model_type, **copy.deepcopy(fields))
