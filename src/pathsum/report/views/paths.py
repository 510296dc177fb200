"""One prediction as the sum of its paths: by order, source, last head and position, and the strongest paths.

What is taken apart is the logit of a token less the mean of all logits, or less that of another token, before any
soft-cap; either way a number that no constant added to all logits changes.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from pathsum.paths.cross import cross
from pathsum.paths.logits import Expansion
from pathsum.paths.readout import Readout, place
from pathsum.paths.search import strongest_paths
from pathsum.report.tokens import visible
from pathsum.runs.graded import streams
from pathsum.runs.linear import head_covectors, mixed_values
from pathsum.runs.run import Run
from pathsum.weights.tokens import token_strings

LONGEST = 40
"""Characters of a token."""
MOST = 20
"""Heads, sources and paths listed, strongest first; the others are one number."""


@dataclass(frozen=True)
class PathView:
    """A prediction after the token at `at`; numbers are nats."""

    token: str
    target: str
    versus: str | None
    """The token whose logit is taken away; None: the mean of all logits."""
    at: int
    value: float
    error: float
    """Of the sum of all paths, over the largest logit."""
    capped: bool
    """The model soft-caps its logits: this is before that."""
    orders: list[dict[str, Any]]
    sources: list[dict[str, Any]]
    heads: list[dict[str, Any]]
    """By the last head, all paths that end there."""
    positions: list[float]
    """By the token that paths start at."""
    paths: list[dict[str, Any]]
    rest: float
    """The sum of all paths that are not listed."""
    bound: float
    """No path that is not listed adds more than this, either way."""
    certified: bool
    """No path that is not listed adds more than the last that is."""

    def to_dict(self) -> dict[str, Any]:
        return _rounded(asdict(self))


def path_view(
    expansion: Expansion,
    at: int = -1,
    target: int | None = None,
    versus: int | None = None,
    count: int = MOST,
    seconds: float | int = 10.0,
    width: int | None = None,
) -> PathView:
    """The logit of `target` at a position of a run of one text, less that of `versus` or the mean of all.

    `target` is the token that follows, after the last the model's first choice. Paths are searched as
    `strongest_paths` does, with its `seconds` and `width`. Raises `NotApplicable` for a position that is not there.
    """
    run = expansion.run
    at = place(run, at)
    target = following(run, at) if target is None else target
    others = 0.0 if versus is not None else -1 / run.model.spec.d_vocab
    direction = torch.full((1, run.model.spec.d_vocab), others, dtype=run.logits.dtype)
    direction[0, target] += 1
    if versus is not None:
        direction[0, versus] -= 1
    readout = expansion.toward(direction, at)
    orders, sources = _orders_and_sources(readout)
    found = strongest_paths(readout, count, seconds=float(seconds), width=width)
    strings = [visible(text, LONGEST) for text in run.token_strings]
    targets = [
        visible(text, LONGEST) for text in token_strings(run.model, [target, *([] if versus is None else [versus])])
    ]
    positions = cross(readout, "position").values[:, 0].tolist()
    value = readout.target.item()
    paths = [_path_row(readout, path, each, value, strings)
             for path, each in zip(found.paths, found.values.tolist(), strict=True)]  # fmt: skip
    return PathView(
        strings[at], targets[0], None if versus is None else targets[1], at, value, readout.check(),
        run.model.spec.logit_cap is not None, orders, sources, _last_heads(readout), positions,
        paths, found.rest, found.bound, found.certified,
    )  # fmt: skip


def _orders_and_sources(readout: Readout) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    table = cross(readout, "source", "order")
    values = table.values[..., 0]
    by_order = enumerate(zip(readout.counts(), values.sum(0).tolist(), strict=True))
    orders = [{"order": order, "paths": float(count), "value": value} for order, (count, value) in by_order]
    direct, through = values[:, 0].tolist(), values[:, 1:].sum(1).tolist()
    sources = [{"name": name, "direct": one, "through_heads": other}
               for name, one, other in zip(table.labels[0], direct, through, strict=True)]  # fmt: skip
    return orders, listed(sources, "direct", "through_heads")


@torch.no_grad()
def _last_heads(readout: Readout) -> list[dict[str, Any]]:
    """What every head adds directly, whatever it read: all paths that it ends."""
    frozen, rows = readout.frozen, []
    for (block, seen), x in zip(frozen.layers, streams(frozen), strict=False):
        r = head_covectors(block, seen, readout.covectors[0])
        added = (mixed_values(block, seen, x) * r).sum((-1, -2)).tolist()
        rows += [{"name": head.name, "value": value} for head, value in zip(block.heads, added, strict=True)]
    return listed(rows, "value")


def _path_row(readout: Readout, path, value: float, total: float, strings: list[str]) -> dict[str, Any]:
    shares = readout.by_position(path)[0]
    most = int(shares.abs().argmax())
    share = value / total if total else None
    row = {"name": path.name, "value": value, "share": share}
    return row | {"from_token": strings[most], "from_position": most, "from_value": shares[most].item()}


def following(run: Run, at: int) -> int:
    """The token that follows; after the last the model's first choice."""
    return int(run.tokens[at + 1] if at + 1 < len(run.tokens) else run.logits[at].argmax())


def listed(rows: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """The first `MOST` by the largest of these numbers, and the others, where there are two at least, as one row."""
    rows = sorted(rows, key=lambda row: -max(abs(row[key]) for key in keys))
    if len(rows) <= MOST + 1:
        return rows
    rest = rows[MOST:]
    return [*rows[:MOST], {"name": f"{len(rest)} others", **{key: sum(row[key] for row in rest) for key in keys}}]


def _rounded(data: Any) -> Any:
    """Every number in it to four digits: what is drawn."""
    if isinstance(data, float):
        return float(f"{data:.4g}")
    if isinstance(data, dict):
        return {key: _rounded(value) for key, value in data.items()}
    return [_rounded(value) for value in data] if isinstance(data, list) else data
