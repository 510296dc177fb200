"""The views as a page holds them: their data on the subject's sample text, packed, within stated budgets.

What does not fit is left out, and said: a page is one file that is sent around. `pathsum explore` leaves nothing out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Int
from markupsafe import Markup
from torch import Tensor

from pathsum.paths.logits import Expansion
from pathsum.report.heads import head_table
from pathsum.report.numbers import count
from pathsum.report.patterns import heads_to_show
from pathsum.report.tables import roles
from pathsum.report.tokens import visible
from pathsum.report.views.attention import LONGEST, AttentionView
from pathsum.report.views.head import head_page
from pathsum.report.views.packed import Places, packed
from pathsum.report.views.path_table import path_table
from pathsum.report.views.paths import path_view
from pathsum.report.views.token_tables import token_tables
from pathsum.runs.graded import FrozenRun, frozen_run
from pathsum.runs.run import run_weights
from pathsum.study.result import Result
from pathsum.study.subject import Subject

ATTENTION_BYTES = 1_500_000
"""Of patterns and effects, before they are packed."""
TABLE_BYTES = 1_500_000
"""Of tables around tokens, before they are packed; three bytes an entry."""
NEIGHBOURS = 5
"""Entries of such a table, one way."""
CARRIED = 3_000
"""Paths of a model that are carried forward one by one, for all predictions at once; of more, one prediction's are
searched, for some `SEARCH_SECONDS`."""
SEARCH_SECONDS = 4
WIDTH = 64
"""Nodes of a search."""


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
    if not subject.head_names:
        return [paths_view(frozen)]
    n = len(frozen.run.tokens)
    heads = heads_within(results, ATTENTION_BYTES // (n * (n + 1)))
    return [attention_view(frozen, results, heads), head_view(subject, results, heads), paths_view(frozen)]


def sample_run(subject: Subject) -> FrozenRun:
    """The subject's sample text, run and recorded."""
    return frozen_run(run_weights(subject.model, subject.raw, subject.sample_tokens), subject.frozen_weights)


def attention_view(frozen: FrozenRun, results: dict[str, Result], heads: list[str]) -> EmbeddedView:
    """Attention of some heads on the sample text."""
    view = AttentionView(frozen, head_notes(results))
    data = {"index": view.index(heads), "heads": {name: view.head(name).to_dict() for name in heads}}
    return EmbeddedView(
        "attention", "Attention on text", "Attention",
        "Point at a token, or move with the arrow keys, to see where the chosen head looks from it, and which later "
        "tokens look at it. Value-weighted: attention times the length of what it moves. Effect: what looking there "
        "adds, directly, to the logit of the token that comes next, less what it adds to all logits on average.",
        left_out_words(len(view.notes), len(heads), "heads"), packed(data),
    )  # fmt: skip


def head_view(subject: Subject, results: dict[str, Result], heads: list[str]) -> EmbeddedView:
    """What is said of every head, and for some the tables around as many tokens as fit."""
    notes, vocabulary = head_notes(results), subject.model.spec.d_vocab
    one = 4 * 3 * NEIGHBOURS
    tokens = tokens_within(subject, TABLE_BYTES // (one * len(heads)))
    found = {name: token_tables(subject.frozen_weights, name, tokens, NEIGHBOURS) for name in heads}
    places = Places.of(tokens, list(found.values()))
    with_tables = left_out_words(len(notes), len(heads), "heads' tables")
    data = {
        "index": {"heads": [{"name": name, "note": notes[name]} for name in notes],
                  "held": left_out_words(vocabulary, len(tokens), "tokens")},
        "heads": {name: head_page(results, name).to_dict() for name in notes},
        "strings": places.strings(subject.model), "held": places.of_tokens(tokens),
        "tables": {name: places.packed_tables(tables) for name, tables in found.items()},
    }  # fmt: skip
    return EmbeddedView(
        "head", "One head", "One head",
        "What the readings say of a head, which heads it reads and which read it, and what it does with a token.",
        with_tables, packed(data),
    )  # fmt: skip


def paths_view(frozen: FrozenRun) -> EmbeddedView:
    """The prediction after every token of the sample text; of a model of many paths, which are searched, the last."""
    n, expansion = len(frozen.run.tokens), Expansion(frozen)
    tokens = [visible(text, LONGEST) for text in frozen.run.token_strings]
    if expansion.counts() <= CARRIED:
        table = path_table(expansion)
        views = {at: table.view(at).to_dict() for at in range(n)}
    else:
        views = {n - 1: path_view(expansion, seconds=SEARCH_SECONDS, width=WIDTH).to_dict()}
    data = {"index": {"tokens": tokens, "held": None if len(views) == n else list(views)}, "at": views}
    return EmbeddedView(
        "paths", "Paths to a prediction", "Paths",
        "Choose a token to see what made the model expect the next one as it did: its logit, less the mean of all "
        "logits, as a sum over every path through the model. Shaded: the tokens that the paths start from.",
        left_out_words(n, len(views), "predictions"), packed(data),
    )  # fmt: skip


def tokens_within(subject: Subject, most: int) -> Int[Tensor, " token"]:
    """Up to `most` tokens: those of the sample, then the text's most frequent ones, then the others by id."""
    d_vocab = subject.model.spec.d_vocab
    often = torch.bincount(subject.text_tokens, minlength=d_vocab)
    often[subject.sample_tokens] += len(subject.text_tokens)
    return often.argsort(descending=True, stable=True)[: max(1, most)]


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
