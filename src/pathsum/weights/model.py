"""`Model`: what `pathsum.open` returns: weights, the tokenizer that goes with them, and where they came from."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from pathsum.errors import NotApplicable
from pathsum.weights.spec import Spec
from pathsum.weights.weights import Weights


@dataclass(frozen=True, repr=False)
class Model:
    """An opened model. Weights are raw (nothing folded) and read when asked for; reading raises `CheckpointError`.

    Not in the paper.

    >>> model = pathsum.open("two-layer-small")
    >>> model
    Model('two-layer-small': 2 layers × 4 heads, d_model 128, d_head 32, d_vocab 1024, n_ctx 256)
    """

    name: str
    weights: Weights
    tokenizer: Tokenizer | None = None
    path: Path | None = None
    """The folder it was opened from."""
    files: tuple[Path, ...] = ()
    """The files its tensors are in."""
    training: dict[str, Any] = field(default_factory=dict)
    """`training.json` of a model trained here: recipe, text digest, curve."""
    no_tokenizer: str | None = None
    """Why a file's own tokenizer could not be made."""

    @property
    def spec(self) -> Spec:
        """Shapes and facts of the model; no tensor is read for it."""
        return self.weights.spec

    @property
    def takes_ids_alone(self) -> str:
        """Of a model without tokenizer, why: the beginning of a message."""
        why = ".json" if self.no_tokenizer is None else f" ({self.no_tokenizer})"
        return f"{self.name} has no tokenizer{why}"

    def __repr__(self) -> str:
        spec = self.spec
        return (
            f"Model({self.name!r}: {spec.n_layers} layers × {spec.n_heads} heads, d_model {spec.d_model}, "
            f"d_head {spec.d_head}, d_vocab {spec.d_vocab}, n_ctx {spec.n_ctx})"
        )

    def digest(self) -> str:
        """sha256 of the weights: of the files where there are any, else of every tensor's name and bytes."""
        sha = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as file:
                while chunk := file.read(1 << 22):
                    sha.update(chunk)
        if not self.files:
            for name, tensor in self.weights.tensors().items():
                sha.update(name.encode())
                sha.update(tensor.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes())
        return sha.hexdigest()


def opened(model: Any, asked: str) -> Model:
    """The model. Raises `NotApplicable` for what is none, naming what was asked."""
    if not isinstance(model, Model):
        raise NotApplicable(f"{asked} takes an opened model, not {type(model).__name__}: pathsum.open(…) gives one")
    return model
