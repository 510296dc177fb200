"""What the claims measure over training: when what comes, comes; and the series themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import torch

from pathsum.study.claim_context import windows
from pathsum.study.estimates import change_point
from pathsum.study.sweep import series_table

OVER_TRAINING = ("composition", "matching", "induction", "repeats", "loss_by_position", "importance")
"""Readings of every checkpoint."""
CHANGES = {"rise": 0.1, "composition": 0.02, "matching": 0.3, "repeats": 0.3, "fall": 0.05}
"""The least whole change of each series that can be placed: attention, score, score, nats, nats."""
Series = list[tuple[float, float]]


def over_training(swept: Path) -> list[dict[str, Any]]:
    """When what comes, comes; and the series themselves, for the figures."""
    table = lambda reading: series_table(swept, reading)
    rows = [{"quantity": name, "tokens": None, "value": at} for name, at in changes(table).items()]
    best = table("induction").group_by("tokens").agg(pl.col("prefix_matching").max()).sort("tokens")
    series = {
        "prefix matching": [*best.iter_rows()],
        "in-context score": score_over_windows(table("loss_by_position")),
        "saved by repeats": saved_by_repeats(table("repeats")),
        "second-order share": second_order_over_training(table("importance")),
    }  # fmt: skip
    strongest = table("composition").filter(pl.col("kind") == "K").group_by("tokens").agg(pl.col("effect").max())
    series["K-composition"] = [*strongest.sort("tokens").iter_rows()]
    return rows + [
        {"quantity": name, "tokens": int(at), "value": value} for name, found in series.items() for at, value in found
    ]


def changes(table: Callable[[str], pl.DataFrame]) -> dict[str, float]:
    """When what comes, comes: log₂ tokens of prefix matching's rise, and doublings from it to the others'.

    `table` gives a reading's table over training.
    """
    k_pairs = table("composition").filter(pl.col("kind") == "K")
    induction = table("induction").filter(pl.col("head").is_in(k_pairs["destination"].unique().implode()))
    last = induction.filter(pl.col("tokens") == pl.col("tokens").max())
    head = last.sort("prefix_matching", descending=True)["head"][0]
    pairs = k_pairs.filter(pl.col("destination") == head)
    partner = pairs.filter(pl.col("tokens") == pl.col("tokens").max()).sort("effect", descending=True)["source"][0]
    pair = (pl.col("source") == partner) & (pl.col("destination") == head)
    series = {
        "rise": _series(induction.filter(pl.col("head") == head), "prefix_matching"),
        "composition": _series(pairs.filter(pair), "effect"),
        "matching": _series(table("matching").filter(pair), "matching_score"),
        "repeats": saved_by_repeats(table("repeats")),
        "fall": score_over_windows(table("loss_by_position")),
    }
    points = {name: _point(series[name], least) for name, least in CHANGES.items()}
    if points["rise"] is None:
        return {}
    return {"rise": points["rise"]} | {
        f"{name}_after_rise": at - points["rise"] for name, at in points.items() if name != "rise" and at is not None
    }


def _series(frame: pl.DataFrame, column: str) -> Series:
    """(tokens, value) at every checkpoint."""
    kept = frame.select("tokens", pl.col(column).cast(pl.Float64).fill_nan(None)).drop_nulls().sort("tokens")
    return [(float(at), value) for at, value in kept.iter_rows()]


def _point(series: Series, least: float) -> float | None:
    return change_point([at for at, _ in series], [value for _, value in series], least)


def saved_by_repeats(repeats: pl.DataFrame) -> Series:
    """Loss in the first copy less that in the third, at every checkpoint."""
    wide = repeats.pivot(on="copy", index="tokens", values="loss").sort("tokens")
    return [(float(row["tokens"]), row["1"] - row["3"]) for row in wide.iter_rows(named=True)]


def score_over_windows(losses: pl.DataFrame) -> Series:
    """The in-context score over windows at every checkpoint, of `loss_by_position`."""
    found: Series = []
    for (tokens,), frame in losses.group_by("tokens"):
        ordered = torch.tensor(frame.sort("token")["loss"].to_list())
        found.append((float(tokens), windows(ordered[None])))  # type: ignore[arg-type]
    return sorted(found)


def second_order_over_training(importance: pl.DataFrame) -> Series:
    """The share of what is saved that terms of second order save, at every checkpoint."""
    found: Series = []
    for (tokens,), frame in importance.group_by("tokens"):
        gains = {row["order"]: row["gain"] for row in frame.iter_rows(named=True) if row["gain"] is not None}
        found.append((float(tokens), gains[2] / sum(gains.values())))  # type: ignore[arg-type]
    return sorted(found)
