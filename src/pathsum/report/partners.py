"""Which earlier heads a head makes its keys from, and which of them may be the first half of an induction circuit."""

import polars as pl

from pathsum.report.heads import head_table
from pathsum.study.on_tokens import PARTNER_Z
from pathsum.study.result import Result


def composition_pairs(results: dict[str, Result]) -> pl.DataFrame:
    """The pairs whose composition is known, all kinds; with its columns even where there are none."""
    numbers = ("score", "baseline", "ceiling", "z", "effect")
    names = ("kind", "source", "destination")
    schema = {**dict.fromkeys(names, pl.String), **dict.fromkeys(numbers, pl.Float64)}
    result = results.get("composition")
    if result is None or result.frame.is_empty():
        return pl.DataFrame(schema=schema)
    known = result.frame.select(pl.col(name).cast(kind) for name, kind in schema.items())
    return known.with_columns(pl.col(numbers).fill_nan(None)).drop_nulls("effect")


def partners(results: dict[str, Result]) -> pl.DataFrame:
    """K-composing pairs above chance, for each destination the likeliest half of an induction circuit first.

    Those are previous-token heads with z ≥ 10, by effect; then come the others by effect. Columns: `source`,
    `destination`, `score`, `baseline`, `ceiling`, `effect`, `z`, `matching_score`, and of the source `lag`,
    `previous_token`, `is_previous_token`.
    """
    table = composition_pairs(results).filter((pl.col("kind") == "K") & (pl.col("effect") > 0)).drop("kind")
    table = table.join(_matching(results), on=["source", "destination"], how="left")
    heads = head_table(results).select(pl.col("head").alias("source"), "lag", "previous_token", "is_previous_token")
    table = table.join(heads, on="source", how="left")
    likely = pl.col("is_previous_token").fill_null(False) & (pl.col("z") >= PARTNER_Z)
    return table.sort("destination", likely, "effect", descending=[False, True, True])


def partners_of(results: dict[str, Result], head: str) -> pl.DataFrame:
    """The rows of `partners` with this destination and z ≥ 10."""
    return partners(results).filter((pl.col("destination") == head) & (pl.col("z") >= PARTNER_Z))


def circuit_pairs(results: dict[str, Result]) -> pl.DataFrame:
    """Every later head with its first partner.

    Columns: `head`, `partner`, `matching_score`, `k_effect`, `k_z`, `copying_score`, `is_induction_head`.
    """
    first = partners(results).unique("destination", keep="first", maintain_order=True)
    named = first.rename({"destination": "head", "source": "partner", "effect": "k_effect", "z": "k_z"})
    judged = head_table(results).select("head", "copying_score", "is_induction_head")
    pairs = named.select("head", "partner", "matching_score", "k_effect", "k_z")
    return pairs.join(judged, on="head", how="left", maintain_order="left")


def _matching(results: dict[str, Result]) -> pl.DataFrame:
    schema = {"source": pl.String, "destination": pl.String, "matching_score": pl.Float64}
    result = results.get("matching")
    if result is None or result.frame.is_empty():
        return pl.DataFrame(schema=schema)
    frame = result.frame.select(pl.col(name).cast(kind) for name, kind in schema.items())
    return frame.with_columns(pl.col("matching_score").fill_nan(None))
