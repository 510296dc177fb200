"""`verify`: what must be equal, measured on the model at hand, beside the bound that each error must keep.

Folding changes nothing; the terms of an expansion sum to what was expanded; float32 agrees with float64, an accelerator
with the CPU, and `transformers`, where it is installed and opens the same checkpoint, with pathsum. One pass at a time,
and of a model that is not small one layer at a time, so that verifying needs little more memory than running.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pathsum.errors import NotApplicable
from pathsum.paths.logits import expand
from pathsum.paths.scores import score_errors
from pathsum.paths.table import relative_error
from pathsum.runs.run import Run, run_weights
from pathsum.study.describe import tensor_sizes
from pathsum.study.peers import Uncompared, accelerators, logits_on, transformers_logits
from pathsum.study.reading import Column, Reading, Rows
from pathsum.study.result import Result, manifest, table
from pathsum.study.subject import Subject
from pathsum.weights.model import Model, opened

TOKENS = 64
"""Of the sample, unless asked otherwise."""
READ_ONCE = 1_000_000_000
"""Parameters up to which a model is read once and kept; a larger one is read again, layer by layer, by every pass."""
FOLD, LOGITS, SCORES = "folded against raw weights", "sum of paths against logits", "score terms against scores"
PRECISION, DEVICE, PEER = "float32 against float64", "accelerator against CPU", "transformers against pathsum"


@dataclass(frozen=True)
class Bound:
    """What an error may be, and why."""

    error: float
    reason: str


EXACT = "an identity: all that is left is float64's rounding, 2e-16 a step, over every step of the model"
ROUNDED = "float32 rounds by 6e-8 a step; where more than 1e-4 is left of it, read this model in float64"
BOUNDS: dict[tuple[str, str], Bound] = {
    (FOLD, "float32"): Bound(1e-4, ROUNDED),
    (LOGITS, "float32"): Bound(1e-4, ROUNDED),
    (FOLD, "float64"): Bound(1e-10, EXACT),
    (LOGITS, "float64"): Bound(1e-10, EXACT),
    (SCORES, "float64"): Bound(1e-10, EXACT),
    (PRECISION, "float32"): Bound(1e-4, ROUNDED),
    (DEVICE, "float32"): Bound(1e-4, "the same sums in another order; TF32 or a wrong kernel gives 1e-3 and more"),
    (PEER, "float32"): Bound(1e-4, "two programs, both in float32; a misread config or tensor gives far more"),
}
VERIFY = Reading(
    "verify", "Measured errors and their bounds", "The Path Expansion Trick", ("weights",),
    (Column("check", "", "what is compared"), Column("dtype", "", "arithmetic"),
     Column("error", "1", "max|difference| / max|value|"), Column("bound", "1", "what it may be"),
     Column("holds", "", "error ≤ bound; null where nothing was compared"),
     Column("note", "", "where it is largest, or why nothing was compared")),
    "verify",
)  # fmt: skip


def verify(
    model: Model, *, text: str | Sequence[int] | None = None, context: int | None = None, bos: bool | None = None
) -> Result:
    """Every check that can be made of a model, on the first `context` tokens (64) of a text: error, bound, verdict.

    `result.frame["holds"]` is False where a bound is broken, null where nothing could be compared (`note` says why).
    Bounds and their reasons are in the manifest. Columns: `check`, `dtype`, `error` and `bound` (plain numbers,
    max|difference| / max|value|), `holds`, `note`.

    Raises `NotApplicable` for what is no opened model, `TextError` for a text or a number of tokens that it does not
    take. Paper: “The Path Expansion Trick”.

    >>> pathsum.verify(pathsum.open("two-layer-small")).frame["holds"].all()
    True
    """
    return verify_subject(Subject(opened(model, "verify()"), text, bos=bos, context=context))


def verify_subject(subject: Subject) -> Result:
    """`verify` on the first tokens of a subject's text."""
    if subject.context is None:
        subject = replace(subject, context=min(TOKENS, subject.model.spec.n_ctx))
    sample = _sample(subject)
    facts = manifest(subject, VERIFY)
    facts["bounds"] = [
        {"check": check, "dtype": dtype, "bound": bound.error, "reason": bound.reason}
        for (check, dtype), bound in BOUNDS.items()
    ]
    facts["sample"] = {"tokens": sample.tolist(), "source": subject.text_source if subject.text else "the sample"}
    return Result(VERIFY, table(VERIFY, list(_rows(subject.model, sample))), facts)


def _rows(model: Model, sample: Tensor) -> Iterator[dict[str, Any]]:
    if sum(tensor_sizes(model.weights).values()) <= READ_ONCE:
        model = replace(model, weights=model.weights.load())
    logits = {}
    for dtype in (torch.float32, torch.float64):
        recorded = run_weights(model, model.weights.to(dtype), sample)
        logits[dtype] = recorded.logits
        yield from _expansion_rows(recorded, _name(dtype))
        del recorded
    yield _row(PRECISION, "float32", relative_error(logits[torch.float32].double(), logits[torch.float64]))
    ours = logits[torch.float32]
    devices = accelerators()
    for device in devices:
        yield _row(DEVICE, "float32", relative_error(logits_on(device, model, sample), ours), device)
    if not devices:
        yield _row(DEVICE, "float32", None, "not compared: no accelerator")
    try:
        yield _row(PEER, "float32", relative_error(transformers_logits(model, sample), ours))
    except Uncompared as why:
        yield _row(PEER, "float32", None, f"not compared: {why}")


def _expansion_rows(recorded: Run, dtype: str) -> Rows:
    """Folding, and the sums of terms, of one run."""
    scores = [(SCORES, dtype)] if (SCORES, dtype) in BOUNDS else []
    try:
        folded = run_weights(recorded.model, recorded.weights.fold(), recorded.tokens)
        rows = [_row(FOLD, dtype, relative_error(folded.logits, recorded.logits))]
        expansion = expand(recorded)
    except NotApplicable as why:
        return [_row(*which, None, f"not compared: {why}") for which in [(FOLD, dtype), (LOGITS, dtype), *scores]]
    rows.append(_row(LOGITS, dtype, expansion.check()))
    if scores:
        errors = score_errors(expansion)
        worst = max(errors, key=lambda head: errors[head], default=None)
        known = (None, "not compared: no heads") if worst is None else (errors[worst], f"worst head {worst}")
        rows.append(_row(SCORES, dtype, *known))
    return rows


def _row(check: str, dtype: str, error: float | None, note: str = "") -> dict[str, Any]:
    bound = BOUNDS[check, dtype].error
    holds = None if error is None else error <= bound
    return {"check": check, "dtype": dtype, "error": error, "bound": bound, "holds": holds, "note": note}


def _sample(subject: Subject) -> Tensor:
    """The sample that ships where it is long enough, else the first context of the text."""
    sample = subject.sample_tokens
    return sample if len(sample) == subject.context_length else subject.windows[0]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
