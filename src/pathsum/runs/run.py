"""`Run`: one text through one model, with everything recorded that makes it linear afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.errors import NotApplicable
from pathsum.runs.forward import Frozen, forward, logits, soft_cap
from pathsum.weights.model import Model
from pathsum.weights.tokens import token_ids, token_strings
from pathsum.weights.weights import Weights


@dataclass(frozen=True, repr=False)
class Run:
    """A recorded run. Tokens are `[pos]`, or `[batch, pos]` for several texts of one length."""

    model: Model
    weights: Weights
    """The raw weights that ran, in the dtype they ran in."""
    tokens: Int[Tensor, "*batch pos"]
    logits: Float[Tensor, "*batch pos d_vocab"]
    """The model's own, soft-capped where it does that."""
    frozen: Frozen
    uncapped_logits: Float[Tensor, "*batch pos d_vocab"]
    """Before any soft-cap: what an expansion sums to."""
    bos: bool

    def __repr__(self) -> str:
        return f"Run(of {self.model.name!r}, tokens {list(self.tokens.shape)}, logits {list(self.logits.shape)})"

    @property
    def patterns(self) -> Float[Tensor, "*batch layer head dst src"]:
        """Attention patterns of all heads."""
        if not self.frozen.layers:
            pos = self.tokens.shape[-1]
            return self.logits.new_zeros(*self.tokens.shape[:-1], 0, self.model.spec.n_heads, pos, pos)
        return torch.stack([layer.pattern for layer in self.frozen.layers], dim=-4)

    @property
    def token_strings(self) -> list[str]:
        """The tokens as text (of a single text), as they were run, BOS included."""
        return token_strings(self.model, self.tokens)

    @property
    def log_probabilities(self) -> Float[Tensor, "*batch pos d_vocab"]:
        return self.logits.log_softmax(-1)


def run(
    model: Model,
    text: str | Sequence[int] | Tensor,
    *,
    bos: bool | None = None,
    dtype: torch.dtype = torch.float32,
) -> Run:
    """Run a text (or token ids, or a batch of equally long id lists as a tensor) and record patterns and scales.

    Raises `TextError` for an empty text, one longer than the context, ids outside the vocabulary.

    >>> run = pathsum.run(model, "the cat sat on the mat")
    >>> run.patterns.shape                                  # [layer, head, dst, src]
    torch.Size([2, 12, 6, 6])
    """
    if not isinstance(model, Model):
        raise NotApplicable(f"run() takes an opened model, not {type(model).__name__}: pathsum.open(…) gives one")
    batched = isinstance(text, Tensor) and text.dim() == 2
    tokens = torch.as_tensor(text).long() if batched else token_ids(model, text, bos)
    return run_weights(model, model.weights.to(dtype).load(), tokens)


@torch.no_grad()
def run_weights(model: Model, weights: Weights, tokens: Int[Tensor, "*batch pos"]) -> Run:
    """`run` with the weights already in memory and in their dtype."""
    trace = forward(weights, tokens, record=True)
    uncapped = logits(weights.ends, trace.residual, trace.final_scale)
    has_bos = model.spec.bos is not None and tokens.numel() > 0 and bool((tokens[..., 0] == model.spec.bos).all())
    capped = soft_cap(uncapped, model.spec.logit_cap)
    return Run(model, weights, tokens, capped, trace.frozen, uncapped, has_bos)
