"""`Run`: one text through one model, with everything recorded that makes it linear afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.runs.attention import soft_cap
from pathsum.runs.forward import Frozen, forward, logits
from pathsum.weights.model import Model, opened
from pathsum.weights.tokens import token_ids, token_strings
from pathsum.weights.weights import Weights


@dataclass(frozen=True, repr=False)
class Run:
    """A recorded run. Tokens are `[pos]`, or `[batch, pos]` for several texts of one length; logits are in nats.

    `pathsum.run` makes one, or raises `TextError`. Paper: “The Path Expansion Trick”, with the patterns frozen.

    >>> run = pathsum.run(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D")
    >>> print(run.patterns.shape)      # [layer, head, dst, src]
    torch.Size([2, 4, 14, 14])
    """

    model: Model
    weights: Weights
    """The raw weights that ran, in the dtype they ran in."""
    tokens: Int[Tensor, "*batch pos"]
    residual: Float[Tensor, "*batch pos d_model"]
    """The residual stream after the last layer."""
    frozen: Frozen
    bos: bool

    def __repr__(self) -> str:
        shape = [*self.tokens.shape, self.model.spec.d_vocab]
        return f"Run(of {self.model.name!r}, tokens {list(self.tokens.shape)}, logits {shape})"

    @cached_property
    def uncapped_logits(self) -> Float[Tensor, "*batch pos d_vocab"]:
        """Before any soft-cap: what an expansion sums to. Made when asked for: they may be larger than all the rest."""
        x, scale = self.residual, self.frozen.final_scale
        with torch.no_grad():
            return logits(self.weights.ends, x, scale.to(x.dtype)).to(scale.dtype)

    @property
    def logits(self) -> Float[Tensor, "*batch pos d_vocab"]:
        """The model's own, soft-capped where it does that."""
        return soft_cap(self.uncapped_logits, self.model.spec.logit_cap)

    @property
    def patterns(self) -> Float[Tensor, "*batch layer head dst src"]:
        """Attention patterns of all heads."""
        if not self.frozen.layers:
            pos = self.tokens.shape[-1]
            return self.residual.new_zeros(*self.tokens.shape[:-1], 0, self.model.spec.n_heads, pos, pos)
        return torch.stack([layer.pattern for layer in self.frozen.layers], dim=-4)

    @property
    def token_strings(self) -> list[str]:
        """The tokens as text (of a single text), as they were run, BOS included."""
        return token_strings(self.model, self.tokens)

    @property
    def log_probabilities(self) -> Float[Tensor, "*batch pos d_vocab"]:
        """`log softmax(logits)` over the vocabulary, nats: of the token after each position."""
        return self.logits.log_softmax(-1)


def run(
    model: Model,
    text: str | Sequence[int] | Tensor,
    *,
    bos: bool | None = None,
    dtype: torch.dtype = torch.float32,
) -> Run:
    """Run a text (or token ids, or a batch of equally long id lists as a tensor) and record patterns and scales.

    `patterns [layer, head, dst, src]`, `logits [pos, d_vocab]` in nats, `residual [pos, d_model]`, a batch's axis in
    front. `bos` puts that token first (None: before a text where the model was trained so, never before ids).

    Raises `TextError` for an empty text, one longer than the context, ids outside the vocabulary. Paper: “The Path
    Expansion Trick”, with the patterns frozen.

    >>> run = pathsum.run(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D")
    >>> print(run.patterns.shape, run.token_strings[run.patterns[1, 1, -1].argmax()])       # where L1H1 looks last
    torch.Size([2, 4, 14, 14]) ur
    """
    model = opened(model, "run()")
    if isinstance(text, Tensor) and text.dim() == 2 and len(text):
        tokens = torch.stack([token_ids(model, ids, bos) for ids in text])
    else:
        tokens = token_ids(model, text, bos)
    return run_weights(model, model.weights.to(dtype).load(), tokens)


@torch.no_grad()
def run_weights(
    model: Model, weights: Weights, tokens: Int[Tensor, "*batch pos"], *, patterns: int | None = None
) -> Run:
    """`run` with these weights, in their dtype; `patterns` is of how many layers they are kept, None: of all."""
    trace = forward(weights, tokens, record=True, patterns=patterns)
    has_bos = model.spec.bos is not None and tokens.numel() > 0 and bool((tokens[..., 0] == model.spec.bos).all())
    return Run(model, weights, tokens, trace.residual, trace.frozen, has_bos)
