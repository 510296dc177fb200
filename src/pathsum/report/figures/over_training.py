"""Readings over training: a line for each head, pair or quantity, against tokens seen."""

from dataclasses import dataclass

import altair as alt
import polars as pl

from pathsum.report.figures.labels import names, room_for_names
from pathsum.report.figures.style import Figure, finished, inline
from pathsum.report.figures.training import FAINT, MOST_NAMED, SIZE, TOKENS, composition_over_training, span, ticks


@dataclass(frozen=True)
class Line:
    """What is drawn of a reading: a column, a line for each value of `by`."""

    column: str
    title: str
    by: tuple[str, ...] = ("head",)


LINES: dict[str, tuple[Line, ...]] = {
    "spectra": (
        Line("copying_score", "copying score, Σλ/Σ|λ| of OV"),
        Line("matching_score", "matching score, Σλ/Σ|λ| of QK"),
    ),
    "matching": (Line("matching_score", "matching score through the earlier head", ("source", "destination")),),
    "pointer": (Line("share_next", "share of positions that look one on", ("source", "destination")),),
    "attention": (Line("previous_token", "attention to the previous token"),),
    "induction": (
        Line("prefix_matching", "prefix matching"),
        Line("copying", "copying on the sequence, nats"),
        Line("causal_effect", "loss added by removal, nats"),
    ),
    "repeats": (Line("loss", "loss in each copy, nats", ("copy",)),),
    "in_context": (Line("score", "in-context score, nats", ()), Line("mean_loss", "mean loss, nats", ())),
    "importance": (Line("gain", "loss saved by each order, nats", ("order",)),),
    "importance_layers": (Line("cost_without", "loss without the layer's terms, nats", ("layer",)),),
    "importance_heads": (Line("cost_without", "loss without the head's terms, nats"),),
    "importance_sources": (Line("cost_without", "loss without the source's terms, nats", ("kind", "order")),),
    "bigrams": (Line("kl", "KL of the text's bigrams from the direct path, nats", ()),),
    "bigram_pairs": (),
    "reconstruction": (Line("error", "relative error", ("quantity", "dtype")),),
    "virtual": (Line("v_effect", "V-composition above chance", ("source", "destination")),),
}
"""Readings that are drawn otherwise than by their first number; `composition` has a figure of its own."""


def over_training(reading: str, table: pl.DataFrame) -> list[tuple[str, Figure]]:
    """Titled figures of a reading's `series_table`; none where there are fewer than two checkpoints, or no numbers.

    >>> over_training("spectra", series_table("over-training", "spectra"))
    """
    seen = "tokens" if table["tokens"].null_count() == 0 else "step"
    table = table.filter(pl.col(seen).is_not_null())
    if table[seen].n_unique() < 2:
        return []
    if reading == "composition":
        frames = {int(at): part for (at,), part in table.drop("checkpoint").group_by(seen)}
        return [("composition above chance, of pairs of heads", composition_over_training(frames, seen))]
    lines = LINES.get(reading, _first_number(table))
    drawn = [(line.title, _lines(table, line, seen)) for line in lines if line.column in table.columns]
    return [(title, figure) for title, figure in drawn if figure is not None]


def _lines(table: pl.DataFrame, line: Line, seen: str) -> Figure | None:
    """The strongest at the end in full and named, others faint."""
    name = pl.concat_str([pl.col(part).cast(pl.String) for part in line.by], separator=" → ") if line.by else pl.lit("")
    every = table.select(
        pl.col(seen).alias("seen"),
        name.alias("name"),
        pl.col(line.column).cast(pl.Float64).fill_nan(None).alias("value"),
    ).drop_nulls()
    if every["seen"].n_unique() < 2 or every.group_by("name", "seen").len()["len"].max() != 1:
        return None
    least = min(value for value in every["seen"] if value > 0) / 2
    every = every.with_columns(pl.max_horizontal("seen", pl.lit(least)).log10().alias("power"))
    last = every.filter(pl.col("seen") == every["seen"].max()).sort(pl.col("value").abs(), "name", descending=True)
    named, others = last.head(MOST_NAMED), last[MOST_NAMED : MOST_NAMED + FAINT]
    shown = every.filter(pl.col("name").is_in(last["name"].head(MOST_NAMED + FAINT).implode()))
    across, down = room_for_names(every["power"]), span(shown["value"])
    x = alt.X("power:Q", title=f"{seen} seen (logarithmic)" if seen == "tokens" else "step (logarithmic)",
              scale=alt.Scale(domain=[*across], nice=False),
              axis=alt.Axis(grid=False, values=ticks(every["power"]), labelExpr=TOKENS))  # fmt: skip
    y = alt.Y("value:Q", title=line.title, axis=alt.Axis(grid=False),
              scale=alt.Scale(domain=[down[1], down[0]], nice=False))  # fmt: skip
    tooltip = [
        alt.Tooltip("name:N"),
        alt.Tooltip("seen:Q", format=",", title=seen),
        alt.Tooltip("value:Q", format=".4f"),
    ]
    of = lambda rows: inline(every.filter(pl.col("name").is_in(rows["name"].implode())))
    zero = alt.Chart(inline(pl.DataFrame({"zero": [0]}))).mark_rule(style="guide").encode(y="zero:Q")
    faint = alt.Chart(of(others)).mark_line(style="guide", strokeWidth=1)
    strong = alt.Chart(of(named)).mark_line(strokeWidth=2)
    labels = names(named.sort("value", descending=True), "name", ("power", "value"), across, down, SIZE)
    drawn = [each.encode(x=x, y=y, detail="name:N", tooltip=tooltip) for each in (faint, strong)]
    chart = alt.layer(zero, *drawn, labels).properties(width=SIZE[0], height=SIZE[1])
    return finished(chart, f"{line.title}, against {seen} seen in training.")


def _first_number(table: pl.DataFrame) -> tuple[Line, ...]:
    """Of a reading not known here: its first number, by all its names."""
    own = [name for name in table.columns if name not in ("checkpoint", "step", "tokens")]
    by = tuple(name for name in own if table.schema[name] == pl.String)
    number = next((name for name in own if table.schema[name].is_float()), None)
    return () if number is None else (Line(number, number.replace("_", " "), by),)
