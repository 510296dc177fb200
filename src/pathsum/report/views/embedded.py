"""The views as a page holds them: their data on the subject's sample text, packed, within stated budgets.

What does not fit is left out, and said: a page is one file that is sent around. `pathsum explore` leaves nothing out.
"""

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from pathsum.report.heads import head_table
from pathsum.report.numbers import count
from pathsum.report.patterns import heads_to_show
from pathsum.report.tables import roles
from pathsum.report.views.attention import AttentionView
from pathsum.runs.graded import FrozenRun, frozen_run
from pathsum.runs.run import run_weights
from pathsum.study.result import Result
from pathsum.study.subject import Subject

ATTENTION_BYTES = 1_500_000
"""Of patterns and effects, before they are packed."""


@dataclass(frozen=True)
class EmbeddedView:
    """One view of the page; `packed` is its data, gzipped JSON in base64."""

    name: str
    title: str
    short: str
    said: str
    left_out: str
    packed: Markup


def embedded_views(subject: Subject, results: dict[str, Result]) -> list[EmbeddedView]:
    """The views there is something to show in, in the page's order."""
    frozen = sample_run(subject)
    return [attention_view(frozen, results)] if subject.head_names else []


def sample_run(subject: Subject) -> FrozenRun:
    """The subject's sample text, run and recorded."""
    return frozen_run(run_weights(subject.model, subject.raw, subject.sample_tokens), subject.frozen_weights)


def attention_view(frozen: FrozenRun, results: dict[str, Result]) -> EmbeddedView:
    """Attention on the sample text, of as many heads as fit."""
    n, every = len(frozen.run.tokens), head_table(results)["head"].to_list()
    heads = heads_within(results, ATTENTION_BYTES // (n * (n + 1)))
    view = AttentionView(frozen, head_notes(results))
    data = {"index": view.index(heads), "heads": {name: view.head(name).to_dict() for name in heads}}
    return EmbeddedView(
        "attention", "Attention on text", "Attention",
        "Point at a token, or move with the arrow keys, to see where the chosen head looks from it, and which later "
        "tokens look at it. Value-weighted: attention times the length of what it moves. Effect: what looking there "
        "adds, directly, to the logit of the token that comes next, less what it adds to all logits on average.",
        left_out_words(len(every), len(heads), "heads"), packed(data),
    )  # fmt: skip


def heads_within(results: dict[str, Result], most: int) -> list[str]:
    """Up to `most` heads, in the model's order: those to show, then those whose terms are worth most."""
    table = head_table(results)
    worth = table.sort("cost_without", descending=True, nulls_last=True, maintain_order=True)["head"].to_list()
    chosen = list(dict.fromkeys([*heads_to_show(results), *worth]))[: max(1, most)]
    return [name for name in table["head"] if name in chosen]


def head_notes(results: dict[str, Result]) -> Mapping[str, str]:
    """What each head is, in a few words."""
    return {row["head"]: ", ".join(roles(row)) for row in head_table(results).iter_rows(named=True)}


def left_out_words(every: int, shown: int, what: str) -> str:
    """`The page holds 90 of 270 heads; …`, or nothing where it holds all."""
    if shown == every:
        return ""
    return f"The page holds {count(shown)} of {count(every)} {what}; pathsum explore shows all of them."


def packed(data: Any) -> Markup:
    """Gzipped JSON in base64, the same bytes every time; base64 can end no script."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode())
