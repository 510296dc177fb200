"""Do heads copy: eigenvalues against ranks, which need not agree."""

import altair as alt
import polars as pl

from pathsum.report.figures.labels import names
from pathsum.report.figures.style import Figure, finished, inline

ROLES = ["scores agree", "scores disagree"]
MOST_NAMES = 8
"""Heads named beside their points: those whose two scores are furthest apart."""


def own_token_ranks(spectra: pl.DataFrame, copying: float, rank: float) -> Figure:
    """Own-token rank (0: each token raises itself most) against the copying score, heads that disagree named.

    `spectra` has `head`, `copying_score`, `own_token_rank` and, where ranks are of a sample, `own_token_rank_error`.
    A head copies by its eigenvalues from `copying` on, by its ranks up to `rank` (dashed): it should be in the upper
    right or the lower left quarter.
    """
    frame = spectra.with_columns(pl.col("copying_score", "own_token_rank").fill_nan(None))
    frame = frame.drop_nulls(["copying_score", "own_token_rank"])
    by_rank, by_eigenvalues = pl.col("own_token_rank") <= rank, pl.col("copying_score") >= copying
    role = pl.when(by_rank == by_eigenvalues).then(pl.lit(ROLES[0])).otherwise(pl.lit(ROLES[1]))
    error = pl.col("own_token_rank_error") if "own_token_rank_error" in frame.columns else pl.lit(0.0)
    frame = frame.with_columns(
        role.alias("role"), (pl.col("own_token_rank") - 2 * error).alias("low"),
        (pl.col("own_token_rank") + 2 * error).alias("high"),
    )  # fmt: skip
    shown = frame.select("head", "copying_score", "own_token_rank", "role", "low", "high")
    across, size = (-1.05, 1.2), (440, 340)
    down = -0.03, max(0.6, float(shown["high"].max() or 0) + 0.02)  # type: ignore[arg-type]
    plane, ranks = (alt.Scale(domain=domain, nice=False) for domain in ([*across], [down[1], down[0]]))
    x = alt.X(
        "copying_score:Q",
        scale=plane,
        axis=alt.Axis(grid=False, values=[-1, -0.5, 0, 0.5, 1]),
        title="copying score, Σλ/Σ|λ|",
    )
    y = alt.Y("own_token_rank:Q", scale=ranks, axis=alt.Axis(grid=False),
              title="share of outputs above the own token (top: copies)")  # fmt: skip
    points = alt.Chart(inline(shown)).mark_point(filled=True, size=70 if len(shown) < 100 else 30, opacity=0.85).encode(
        x=x, y=y, color=alt.Color("role:N", scale=alt.Scale(domain=ROLES), title="as to copying"),
        shape=alt.Shape("role:N", scale=alt.Scale(domain=ROLES, range=["circle", "diamond"]), title="as to copying"),
        tooltip=["head:N", alt.Tooltip("copying_score:Q", format=".3f", title="copying score"),
                 alt.Tooltip("own_token_rank:Q", format=".4f", title="own-token rank")],
    )  # fmt: skip
    whiskers = alt.Chart(inline(shown.filter(pl.col("high") > pl.col("low"))))
    rules = alt.Chart(inline(pl.DataFrame({"copying": [copying], "rank": [rank]}))).mark_rule(strokeDash=[4, 3])
    labels = names(_furthest(shown, copying, rank), "head", ("copying_score", "own_token_rank"), across, down, size)
    chart = alt.layer(
        rules.encode(x=alt.X("copying:Q", scale=plane)), rules.encode(y=alt.Y("rank:Q", scale=ranks)),
        whiskers.mark_rule().encode(x=x, y=alt.Y("low:Q", scale=ranks), y2="high:Q"),
        points, labels,
    ).properties(width=size[0], height=size[1])  # fmt: skip
    return finished(chart, "Own-token rank against copying score of every head; those that disagree are named.")


def _furthest(shown: pl.DataFrame, copying: float, rank: float) -> pl.DataFrame:
    """Disagreeing heads by how far the nearer of their two scores is from its threshold."""
    away = pl.min_horizontal(
        (pl.col("copying_score") - copying).abs() / 2, (pl.col("own_token_rank") - rank).abs()
    ).alias("away")
    odd = shown.filter(pl.col("role") == ROLES[1]).with_columns(away)
    return odd.sort("away", "head", descending=[True, False]).head(MOST_NAMES)
