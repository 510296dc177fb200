"""Next-token losses, in nats per token, and how they fall along a text."""

from jaxtyping import Float, Int
from torch import Tensor

from pathsum.weights.spec import Spec


def next_token_losses(
    logits: Float[Tensor, "*batch pos d_vocab"], tokens: Int[Tensor, "*batch pos"]
) -> Float[Tensor, "*batch predicted"]:
    """`−log p(token[i+1] | …)` at every position but the last: entry 0 is the loss of predicting the second token."""
    log_probabilities = logits[..., :-1, :].log_softmax(-1)
    return -log_probabilities.gather(-1, tokens[..., 1:, None]).squeeze(-1)


def in_context_tokens(spec: Spec, length: int) -> tuple[int, int]:
    """The (early, late) tokens compared, counted from 1: 50th and 500th, or one tenth and the end of a shorter text."""
    n = min(spec.n_ctx, length)
    return (50, 500) if n >= 500 else (max(n // 10, 2), n)


def in_context_score(losses: Float[Tensor, "*batch predicted"], early: int, late: int) -> Float[Tensor, "*batch"]:
    """Loss of predicting the `late`-th token less that of the `early`-th (framework §7); negative: context helps."""
    return losses[..., late - 2] - losses[..., early - 2]
