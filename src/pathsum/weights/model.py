"""`Model`: what `pathsum.open` returns: weights, the tokenizer that goes with them, and where they came from."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from pathsum.weights.spec import Spec
from pathsum.weights.weights import Weights


@dataclass(frozen=True, repr=False)
class Model:
    """An opened model. Weights are raw (nothing folded) and read when asked for."""

    name: str
    weights: Weights
    tokenizer: Tokenizer | None = None
    path: Path | None = None
    training: dict[str, Any] = field(default_factory=dict)
    """`training.json` of a model trained here: recipe, text digest, curve."""

    @property
    def spec(self) -> Spec:
        return self.weights.spec

    def __repr__(self) -> str:
        spec = self.spec
        return (
            f"Model({self.name!r}: {spec.n_layers} layers × {spec.n_heads} heads, d_model {spec.d_model}, "
            f"d_head {spec.d_head}, d_vocab {spec.d_vocab}, n_ctx {spec.n_ctx})"
        )

    def digest(self) -> str:
        """sha256 of the weights: of the file where there is one, else of every tensor's name and bytes."""
        sha = hashlib.sha256()
        if self.path is not None:
            with (self.path / "model.safetensors").open("rb") as file:
                while chunk := file.read(1 << 22):
                    sha.update(chunk)
        else:
            for name, tensor in self.weights.tensors().items():
                sha.update(name.encode())
                sha.update(tensor.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes())
        return sha.hexdigest()
