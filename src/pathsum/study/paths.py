"""Which paths made a prediction: the strongest of all, to a logit, a logit difference or a log-probability."""

from collections.abc import Sequence
from typing import Any

from pathsum.paths.logits import expand
from pathsum.paths.readout import Readout
from pathsum.paths.removal import Removal, removed
from pathsum.paths.search import Strongest, strongest_paths
from pathsum.runs.run import Run
from pathsum.study.prompt import prompt_run
from pathsum.study.question import Question
from pathsum.study.reading import Column, Reading, Rows
from pathsum.study.result import Result, manifest, table
from pathsum.study.subject import Subject
from pathsum.weights.model import Model

PATHS = Reading(
    "paths", "The strongest paths to a prediction", "The Path Expansion Trick; Path Expansion of Logits", ("weights",),
    (Column("rank", "", "by size"), Column("path", "", "source, then heads"), Column("order", "", "heads of the path"),
     Column("value", "nats", "what the path adds to the target, everything frozen"),
     Column("share", "1", "value over the sum of all paths"),
     Column("token", "", "the token from whose position most of it comes"),
     Column("position", "", "its position, BOS counted"),
     Column("from_position", "nats", "what comes from there"),
     Column("equation", "", "the path in the paper's notation")),
    "paths",
    optional=(
        Column("without_frozen", "nats", "change of the target without what the path wrote: of it and all paths on"),
        Column("without_live", "nats", "the same, everything after it run again")),
)  # fmt: skip


def prompt_paths(
    model: Model,
    prompt: str | Sequence[int],
    *,
    target: str | int | None = None,
    versus: str | int | None = None,
    log_probability: bool = False,
    at: int = -1,
    limit: int = 100,
    seconds: float | int = 30.0,
    live: bool = False,
    bos: bool | None = None,
) -> Result:
    """The `limit` strongest of all paths to what a model predicts after one token of a prompt.

    The target is the logit of `target` (default: the model's first choice), that less the logit of `versus`, or its
    log-probability, linearised. Positions count BOS where there is one. The search is widened until it is certified or
    `seconds` are over; the manifest says which, with the bound on every path that is not listed. `live` also takes each
    path out of the stream and runs the rest again.

    Columns: `rank`, `path`, `order`, `value` [nats], `share` of the target, and `token`, `position` and `from_position`
    [nats], the place that most of it comes from; `live` adds `without_frozen` and `without_live` [nats].

    Raises `TextError` for a token that is none, `NotApplicable` for a position that is not there, and
    `ExpansionTooLarge` for a prompt whose patterns would not fit in memory. Paper: “Path Expansion of Logits”; the
    search is ours.

    >>> row = pathsum.prompt_paths(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D").rows()[0]
    >>> print(row["path"], f"{row['value']:.1f}, most from", row["token"], "at", row["position"])
    embed → L0H1 → L1H1 3.5, most from ur at 3
    """
    recorded = prompt_run(model, prompt, bos)
    asked = Question.of(recorded, target, versus, log_probability, at)
    readout = expand(recorded).toward(asked.target.direction[None], asked.target.position)
    found = strongest_paths(readout, limit, seconds=float(seconds))
    streamed = [path for path in found.paths if path.source != "unembed.bias"]
    change = removed(readout, asked.target, streamed) if live else None
    rows = _rows(recorded, readout, found)
    if change is not None:
        names = [path.name for path in streamed]
        both = dict(zip(names, zip(change.frozen.tolist(), change.live.tolist(), strict=True), strict=True))
        for row in rows:
            row["without_frozen"], row["without_live"] = both.get(row["path"], (None, None))
    facts = manifest(Subject(model, bos=bos), PATHS, {"limit": limit, "seconds": seconds, "live": live})
    return Result(PATHS, table(PATHS, rows), facts | {"prompt": asked.facts() | _known(readout, found, change)})


def _rows(recorded: Run, readout: Readout, found: Strongest) -> Rows:
    rows, names, total = [], recorded.token_strings, readout.target.item()
    for rank, (path, value) in enumerate(zip(found.paths, found.values.tolist(), strict=True), start=1):
        shares = readout.by_position(path)[0]
        most = int(shares.abs().argmax())
        row: dict[str, Any] = {"rank": rank, "path": path.name, "order": path.order, "value": value}
        row |= {"share": value / total if total else None, "token": names[most], "position": most}
        row |= {"from_position": shares[most].item(), "equation": str(path)}
        rows.append(row)
    return rows


def _known(readout: Readout, found: Strongest, change: Removal | None) -> dict[str, Any]:
    """Of all paths, and of those that are not listed."""
    return {
        "paths": float(sum(readout.counts())),
        "certified": found.certified,
        "bound": found.bound,
        "width": found.width,
        "listed": found.values.double().sum().item(),
        "rest": found.rest,
        "error": readout.check(),
        "error_of_single_paths": found.error,
        "frozen_explains": None if change is None else change.explained,
    }
