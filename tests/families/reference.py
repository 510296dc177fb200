"""Tiny random models of the reference implementation, and everything it says of a text, in float64 throughout.

`transformers` computes norms, softmax and rotary angles in float32 even in a float64 model. `in_float64` makes every
mention of float32 mean float64 while a model is built and run, so that the comparison has no such floor. BLOOM writes
its GELU's √(2/π) with eight digits, which is float32's: there it is exact too.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch import Tensor

transformers = pytest.importorskip("transformers")
modeling_bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
if Version(transformers.__version__) < Version("5.24"):
    # Of 5.3 to 5.14, scaled angles of a part of d_head raise; up to 5.17, GPT-OSS clamps at 7 whatever its config says.
    pytest.skip(f"transformers {transformers.__version__} is no reference for all families", allow_module_level=True)


PLAINLY = {"attn_implementation": "eager", "experts_implementation": "eager"}
"""The implementation that forms patterns, and the one of experts that takes float64."""


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """Within: `torch.float32`, `torch.float` and `.float()` are float64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(Tensor, "float", lambda self, *_, **__: self.double())
        patch.setattr(modeling_bloom, "bloom_gelu_forward", partial(torch.nn.functional.gelu, approximate="tanh"))
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


@dataclass(frozen=True)
class Reference:
    """What the reference says of `tokens`: `[pos, d_vocab]`, residual stream before each layer, patterns by layer."""

    model: Any
    logits: Tensor
    residuals: list[Tensor]
    patterns: list[Tensor]


def build(config: Any, seed: int = 0) -> Any:
    """A model of this config with random weights that leave nothing at its neutral value."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, **PLAINLY, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            fan_in = parameter.shape[-1] if parameter.dim() > 1 else 4
            parameter.add_(noise * (1.2 * fan_in**-0.5 if "embed" not in name else 1.0))
    return model.eval()


@torch.no_grad()
def run(model: Any, tokens: Tensor) -> Reference:
    """One forward pass, recorded."""
    out = model(tokens[None], output_hidden_states=True, output_attentions=True, use_cache=False)
    residuals = [state[0] for state in out.hidden_states]
    return Reference(model, out.logits[0], residuals[:-1], [pattern[0] for pattern in out.attentions])


def saved(model: Any, folder: Path) -> Path:
    """As `save_pretrained` writes it."""
    model.save_pretrained(folder)
    return folder
