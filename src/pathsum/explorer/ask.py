"""What is computed, as data: it goes to a worker as JSON, and its digest names the answer on disk."""

import hashlib
import importlib.metadata
import json
import platform
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pathsum.explorer.settings import TEXT
from pathsum.weights.model import Model

FORMAT = 1
"""Of answers on disk: one more when their shape changes."""
PATHS = "paths"
"""The name of what is no reading of the catalogue: the strongest paths of a prompt."""
Option = bool | int | float | str | list[float] | None


class Ask(BaseModel):
    """One reading with its options, and what it reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    reading: str
    options: dict[str, Option] = {}
    text: str | None = Field(default=None, max_length=TEXT)
    sequences: int | None = Field(default=None, ge=1, le=1024)
    context: int | None = Field(default=None, ge=2, le=65_536)
    seed: int = Field(default=0, ge=0, lt=2**31)

    def digest(self, model: Model, weights: str) -> str:
        """sha256 of all that the answer depends on: the manifest's model, weights, options, text and versions."""
        whole: dict[str, Any] = {
            "model": model.name,
            "weights_sha256": weights,
            "spec": model.spec.to_dict(),
            "ask": self.model_dump(),
        }
        whole |= {"format": FORMAT, "versions": versions(), "python": platform.python_version()}
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


@cache
def versions() -> dict[str, str]:
    """Of what numbers come from."""
    return {name: importlib.metadata.version(name) for name in ("pathsum", "torch", "polars")}
