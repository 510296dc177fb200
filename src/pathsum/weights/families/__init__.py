"""The families pathsum knows. Adding one = one table, and one line in `tests/families/`."""

import difflib
from collections.abc import Collection
from typing import Any

from pathsum.errors import CheckpointError, UnsupportedFamily
from pathsum.weights.families.bloom_falcon import BLOOM, FALCON
from pathsum.weights.families.eleuther import GPT_NEO, GPT_NEOX, GPTJ
from pathsum.weights.families.family import Family
from pathsum.weights.families.gemma import GEMMA, GEMMA2, GEMMA3, GEMMA3_TEXT
from pathsum.weights.families.gpt2 import GPT2
from pathsum.weights.families.gpt_oss import GPT_OSS
from pathsum.weights.families.granite import GRANITE
from pathsum.weights.families.llama import LLAMA
from pathsum.weights.families.mistral import MISTRAL, MIXTRAL
from pathsum.weights.families.nanogpt import NANOGPT
from pathsum.weights.families.olmo import OLMO2
from pathsum.weights.families.opt import OPT
from pathsum.weights.families.phi3 import PHI3
from pathsum.weights.families.phi_stablelm import PHI, STABLELM
from pathsum.weights.families.qwen import QWEN2, QWEN3
from pathsum.weights.families.smollm import SMOLLM3
from pathsum.weights.families.transformer_lens import TRANSFORMER_LENS

KNOWN = (
    GPT2, GPT_NEO, GPTJ, GPT_NEOX, OPT, BLOOM, FALCON, PHI, STABLELM, NANOGPT, TRANSFORMER_LENS,
    LLAMA, MISTRAL, MIXTRAL, QWEN2, QWEN3, GEMMA, GEMMA2, GEMMA3_TEXT, GEMMA3, PHI3, OLMO2, SMOLLM3, GRANITE, GPT_OSS,
)  # fmt: skip
FAMILIES: dict[str, Family] = {family.name: family for family in KNOWN}
"""By the `model_type` of their configs."""


def family_named(given: str | Family | None, config: dict[str, Any], names: Collection[str]) -> Family:
    """The caller's family, or the one of the config's `model_type`, or of the tensors' names where these tell.

    Raises `UnsupportedFamily` with the families there are.
    """
    if isinstance(given, Family):
        return given
    if given is None and "embed.W_E" in names:
        given = "transformer_lens"
    wanted = config.get("model_type") if given is None else given
    if wanted is None:
        raise CheckpointError("config: field 'model_type' is missing; pass family= to say what it is")
    if not isinstance(wanted, str) or wanted not in FAMILIES:
        near = difflib.get_close_matches(str(wanted), FAMILIES, n=1, cutoff=0.6)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UnsupportedFamily(
            f"no table for model_type {wanted!r}{hint}; there are {', '.join(FAMILIES)}. If it is laid out like one of "
            "them pass family= with that name, or a table of your own: pathsum.Family"
        )
    return FAMILIES[wanted]
