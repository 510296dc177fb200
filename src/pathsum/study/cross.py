"""One prompt's prediction as a table by order, source, position, last head or its layer, or by two of them."""

from collections.abc import Sequence

from pathsum.paths.cross import cross
from pathsum.paths.logits import expand
from pathsum.study.prompt import prompt_run
from pathsum.study.question import Question
from pathsum.study.reading import Column, Reading, Rows
from pathsum.study.result import Result, manifest, table
from pathsum.study.subject import Subject
from pathsum.weights.model import Model

CROSS = Reading(
    "expand", "What paths add to a prediction, by what they have in common", "Path Expansion of Logits", ("weights",),
    (Column("first", "", "cell of the first axis"), Column("second", "", "cell of the second, where there is one"),
     Column("value", "nats", "what all paths of both add to the target"),
     Column("share", "1", "value over the sum of all")),
    "cross",
)  # fmt: skip


def prompt_table(
    model: Model,
    prompt: str | Sequence[int],
    by: str | Sequence[str],
    *,
    target: str | int | None = None,
    versus: str | int | None = None,
    log_probability: bool = False,
    at: int = -1,
    bos: bool | None = None,
) -> Result:
    """What all paths that agree in one or two of order, source, position, head and layer add to a prediction.

    Of the targets of `prompt_paths`. `head` is a path's last, `position` that of its source (BOS counted). Rows sum to
    the target's linear part.

    Columns: `first`, `second` (null with one axis), `value` [nats] and `share` of the target.

    Raises `NotApplicable` for an axis or a position that is not there, `TextError` for a token that is none. Paper:
    “Path Expansion of Logits”.

    >>> model = pathsum.open("two-layer-small")
    >>> found = pathsum.prompt_table(model, "Mr Dursley was proud. Mr D", by=["head", "position"]).rows()
    >>> row = max(found, key=lambda row: row["value"])
    >>> print(row["first"], "from position", row["second"], f"{row['value']:.1f}")
    L1H1 from position 3 7.9
    """
    by = [by] if isinstance(by, str) else by
    recorded = prompt_run(model, prompt, bos)
    asked = Question.of(recorded, target, versus, log_probability, at)
    readout = expand(recorded).toward(asked.target.direction[None], asked.target.position)
    found = cross(readout, *by)
    values, total = found.values[..., 0], readout.target.item()
    rows: Rows = []
    for place, first in enumerate(found.labels[0]):
        cells = [(None, values[place])] if len(by) == 1 else zip(found.labels[1], values[place], strict=True)
        for second, value in cells:
            share = value.item() / total if total else None
            rows.append({"first": first, "second": second, "value": value.item(), "share": share})
    facts = manifest(Subject(model, bos=bos), CROSS, {"by": list(by)})
    return Result(CROSS, table(CROSS, rows), facts | {"prompt": asked.facts() | {"error": found.check()}})
