"""The logit lens of one prompt: what partial sums of terms already say."""

from collections.abc import Sequence

from torch import Tensor

from pathsum.paths.lens import by_layer, by_order
from pathsum.paths.logits import expand
from pathsum.study.prompt import prompt_run
from pathsum.study.question import Question
from pathsum.study.reading import Column, Reading, Rows
from pathsum.study.result import Result, manifest, table
from pathsum.study.subject import Subject
from pathsum.weights.model import Model
from pathsum.weights.tokens import token_strings

LENS = Reading(
    "lens", "Logit lens", "Path Expansion of Logits", ("weights",),
    (Column("part", "", "layer: the stream before it; order: all terms of at most so many heads"),
     Column("step", "", "which sum of terms"),
     *(column for how, words in (("frozen", "the run's final scale"), ("recomputed", "the sum's own final scale"))
       for column in (
           Column(f"{how}_target", "nats", f"the target, with {words}"),
           Column(f"{how}_log_probability", "nats", "of the token asked for"),
           Column(f"{how}_rank", "count", "logits above that token's"),
           Column(f"{how}_first", "", "the first choice")))),
    "lens",
)  # fmt: skip


def prompt_lens(
    model: Model,
    prompt: str | Sequence[int],
    *,
    target: str | int | None = None,
    versus: str | int | None = None,
    log_probability: bool = False,
    at: int = -1,
    bos: bool | None = None,
) -> Result:
    """What the direct path of each partial sum of terms says after one token: by layer, and by order.

    Of the targets of `prompt_paths`. With the run's own final scale (`frozen`), so that steps add up to its logits,
    beside that of the partial sum itself (`recomputed`).

    Columns: `part` (layer or order), `step`, and of both the target and the log-probability [nats], the token's rank
    [count] and the first choice.

    Raises `TextError` for a token that is none, `NotApplicable` for a position that is not there. By layer it is not in
    the paper; by order it is. Paper: “Path Expansion of Logits”.

    >>> found = pathsum.prompt_lens(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D").rows()
    >>> print({row["step"]: (row["frozen_first"], row["frozen_rank"]) for row in found if row["part"] == "layer"})
    {'before L0': ('I', 73), 'before L1': ('ec', 74), 'all': ('ur', 0)}
    """
    recorded = prompt_run(model, prompt, bos)
    asked = Question.of(recorded, target, versus, log_probability, at)
    frozen = expand(recorded).frozen
    rows: Rows = []
    for part, lens in (("layer", by_layer(frozen, at)), ("order", by_order(frozen, at))):
        sides = {"frozen": lens.frozen, "recomputed": lens.recomputed}
        columns = {key: values for how, logits in sides.items() for key, values in _said(asked, how, logits).items()}
        for place, step in enumerate(lens.labels):
            rows.append({"part": part, "step": step, **{key: values[place] for key, values in columns.items()}})
    facts = manifest(Subject(model, bos=bos), LENS, {}) | {"prompt": asked.facts()}
    return Result(LENS, table(LENS, rows), facts)


def _said(asked: Question, how: str, logits: Tensor) -> dict[str, list]:
    """Of soft-capped logits of every step."""
    token, versus = asked.token, asked.versus
    log_p = logits.log_softmax(-1)
    value = log_p[:, token] if asked.target.kind == "log-probability" else logits[:, token]
    value = value if versus is None else value - logits[:, versus]
    first = token_strings(asked.run.model, logits.argmax(-1))
    return {
        f"{how}_target": value.tolist(),
        f"{how}_log_probability": log_p[:, token].tolist(),
        f"{how}_rank": (logits > logits[:, [token]]).sum(-1).tolist(),
        f"{how}_first": first,
    }
