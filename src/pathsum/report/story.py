"""What is said of a model in words: the facts that summary and page share."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from pathsum.errors import StudyError
from pathsum.report.numbers import count, fixed, in_millions
from pathsum.report.tokens import printable
from pathsum.study.result import Result

PAPER_COPYING = "10 of 12"
"""Copying heads of the paper's one-layer model."""
MOST_ORDERS = 8
"""Told one by one; those of a deeper model after them are told together."""
ORDERS = {-1: "uniform", 0: "direct path", 1: "single heads", 2: "virtual heads"}


@dataclass(frozen=True)
class Step:
    """The loss of all terms up to one order, nats per token, and what that order saved."""

    name: str
    order: int
    loss: float
    gain: float | None


def spec_of(results: dict[str, Result]) -> dict[str, Any]:
    """The model's shape and facts, from any manifest. Raises `StudyError` where there are no results."""
    return first_manifest(results)["spec"]


def first_manifest(results: dict[str, Result]) -> dict[str, Any]:
    if not results:
        raise StudyError("there are no results to report; run at least one reading")
    return next(iter(results.values())).manifest


def parameters(results: dict[str, Result]) -> float | None:
    """How many numbers the model has."""
    if "describe" not in results:
        return None
    totals = results["describe"].frame.filter((pl.col("group") == "parameters") & (pl.col("name") == "total"))
    return totals["value"].item() if len(totals) else None


def shape_line(results: dict[str, Result]) -> str:
    """`2 layers × 12 heads, d_model 384, …` in one line."""
    spec, total = spec_of(results), parameters(results)
    layers = spec["n_layers"]
    heads = f"{layers} layer{'' if layers == 1 else 's'}" + (f" × {spec['n_heads']} heads" if layers else "")
    parts = [heads, f"d_model {spec['d_model']}"] + ([f"d_head {spec['d_head']}"] if layers else [])
    parts += [f"vocabulary {count(spec['d_vocab'])}", f"context {count(spec['n_ctx'])}"]
    return ", ".join(parts) + ("" if total is None else f"; {in_millions(total)} parameters")


def model_line(results: dict[str, Result]) -> str:
    return f"{printable(first_manifest(results)['model'])}: {shape_line(results)}"


def text_line(results: dict[str, Result], most: int = 48) -> str:
    """Where the text comes from, in up to `most` characters, and the model's loss on it; "" where there was no text."""
    text = next((r.manifest["text"] for r in results.values() if "text" in r.manifest), None)
    if text is None:
        return ""
    short = printable(str(text["source"]), most)
    in_context = results.get("in_context")
    if in_context is None or in_context.frame.is_empty():
        return short
    row = in_context.rows()[0]
    return f"{short}; loss {fixed(row['mean_loss'])} nats per token"


def term_steps(results: dict[str, Result]) -> list[Step]:
    """From the uniform guess to all terms, order by order; the highest orders of a deep model in one step."""
    if "importance" not in results:
        return []
    rows = results["importance"].rows()
    steps = [Step(order_name(int(r["order"])), int(r["order"]), r["loss"], r["gain"]) for r in rows]
    shown, rest = steps[: MOST_ORDERS + 1], steps[MOST_ORDERS + 1 :]
    if len(rest) < 2:
        return steps
    return [*shown, Step(f"orders {rest[0].order} to {rest[-1].order}", rest[-1].order, rest[-1].loss,
                         shown[-1].loss - rest[-1].loss)]  # fmt: skip


def order_name(order: int) -> str:
    """`single heads` for 1; the terms of that order."""
    return ORDERS.get(order, f"order {order}")


def copying_count(results: dict[str, Result], heads: pl.DataFrame) -> str:
    """`15 of 24 heads copy`, beside the paper's count for a one-layer model."""
    paper = f" (paper: {PAPER_COPYING})" if spec_of(results)["n_layers"] == 1 else ""
    return f"{heads['is_copying'].fill_null(False).sum()} of {len(heads)} heads copy{paper}"
