"""One row a head: what the readings say of it side by side, and the names it earns by stated thresholds."""

from typing import Any

import polars as pl

from pathsum.report.story import first_manifest
from pathsum.study.result import Result
from pathsum.study.weights_only import COPYING as COPYING
from pathsum.study.weights_only import OWN_TOKEN_RANK as OWN_TOKEN_RANK

PREVIOUS_TOKEN = 0.5
"""A head is a previous-token head if on the text it gives the token before at least this much attention."""

SOURCES: dict[str, dict[str, Any]] = {
    "spectra": dict.fromkeys(("copying_score", "matching_score", "own_token_rank", "own_token_top"), pl.Float64),
    "attention": {"previous_token": pl.Float64},
    "induction": {
        **dict.fromkeys(
            ("prefix_matching", "start_token", "copying", "causal_effect", "prefix_matching_text"), pl.Float64
        ),
        "partner": pl.String,
        "is_induction_head": pl.Boolean,
    },
    "importance_heads": dict.fromkeys(("gain_individual", "cost_without"), pl.Float64),
}
"""For each reading, the columns a head's row takes from it."""


def head_table(results: dict[str, Result]) -> pl.DataFrame:
    """Columns: `head`, `layer`, `index`, those of `SOURCES` (null where not read), and what follows from them.

    `is_copying`, `is_previous_token`, `is_induction_head`; `disagrees`: eigenvalues and own-token rank tell different
    stories of whether the head copies; `lag`: how many tokens back it looks, if one lag has half of its attention.
    """
    heads = _head_names(results)
    table = pl.DataFrame({"head": heads}, schema={"head": pl.String})
    for reading, columns in SOURCES.items():
        table = _beside(table, results.get(reading), columns)
    table = table.join(_lags(results.get("attention")), on="head", how="left", maintain_order="left")
    return table.with_columns(
        pl.col("head").str.extract(r"^L(\d+)", 1).cast(pl.Int64).alias("layer"),
        pl.col("head").str.extract(r"H(\d+)$", 1).cast(pl.Int64).alias("index"),
        (pl.col("copying_score") >= COPYING).alias("is_copying"),
        (pl.col("previous_token") >= PREVIOUS_TOKEN).alias("is_previous_token"),
        ((pl.col("copying_score") >= COPYING) != (pl.col("own_token_rank") <= OWN_TOKEN_RANK)).alias("disagrees"),
    )


def _head_names(results: dict[str, Result]) -> list[str]:
    spec = first_manifest(results)["spec"]
    return [f"L{layer}H{index}" for layer in range(spec["n_layers"]) for index in range(spec["n_heads"])]


def looks(lag: int | None) -> str:
    """Where a head of this lag looks, in two words; "" for None."""
    return "" if lag is None else {0: "own token", 1: "previous token"}.get(lag, f"{lag} back")


def _lags(attention: Result | None) -> pl.DataFrame:
    """`head` and `lag` of the heads that look at one place."""
    if attention is None or attention.frame.is_empty():
        return pl.DataFrame(schema={"head": pl.String, "lag": pl.Int64})
    names = [name for name in attention.frame.columns if name.startswith("lag_")]
    long = attention.frame.unpivot(names, index="head", variable_name="lag", value_name="share")
    found = long.filter(pl.col("share").fill_nan(None) >= PREVIOUS_TOKEN)
    best = found.sort("share", descending=True).unique("head", keep="first", maintain_order=True)
    return best.select("head", pl.col("lag").str.strip_prefix("lag_").cast(pl.Int64))


def _beside(table: pl.DataFrame, result: Result | None, columns: dict[str, Any]) -> pl.DataFrame:
    """The table with more columns, undefined as null."""
    if result is None or result.frame.is_empty():
        return table.with_columns(pl.lit(None, kind).alias(column) for column, kind in columns.items())
    chosen = [
        pl.col(column).cast(kind).fill_nan(None) if kind == pl.Float64 else pl.col(column).cast(kind)
        for column, kind in columns.items()
    ]
    return table.join(result.frame.select("head", *chosen), on="head", how="left", maintain_order="left")
