"""One head's attention scores on a prompt, taken apart: which paths made it look from one token to another."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.paths.paths import path_counts, source_layer
from pathsum.paths.readout import place
from pathsum.paths.score_readout import ScoreReadout, ScoreShares
from pathsum.paths.score_sides import sources_before, stream_counts
from pathsum.paths.scores import ScoreExpansion, expand_scores
from pathsum.runs.run import Run
from pathsum.study.prompt import prompt_run
from pathsum.study.reading import Column, Reading, Rows
from pathsum.study.result import Result, manifest, table
from pathsum.study.subject import Subject
from pathsum.weights.model import Model, opened
from pathsum.weights.weights import head_index

MOST_PAIRS = 20_000_000
"""Of single paths: those of a model of 30 layers × 9 heads, of at most one head a side."""
LAGS = 3
SCORES = Reading(
    "scores", "What pairs of paths add to a head's scores", "Path Expansion of Attention Scores QK Circuit",
    ("weights",),
    (Column("part", "", "order, lag (how far back it was read), tap (of queries and keys mixed over positions), "
            "source, or term (a single pair of paths)"),
     Column("query", "", "the query's order, lag, source or path; what is not listed"), Column("key", "", "the key's"),
     Column("pairs", "count", "how many pairs of paths; undefined for lags and taps, which split paths"),
     Column("score", "nats", "what they add to the score, before any soft-cap; mean over the pairs of positions"),
     Column("centred", "nats", "the same, less its mean over all sources that the destination can attend to")),
    "scores",
)  # fmt: skip
"""Each part's rows sum to the score."""

PositionPairs = str | Sequence[Sequence[int]]


def prompt_scores(
    model: Model,
    prompt: str | Sequence[int] | None,
    head: str,
    *,
    bos: bool | None = None,
    destination: int | None = None,
    source: int | None = None,
    pairs: PositionPairs | None = None,
    max_order: int = 1,
    top: int = 10,
) -> Result:
    """A head's score from one token to another, or its mean over `pairs`, as sums over pairs of paths.

    The default destination is the last token, the default source what the head attends to most from there. `pairs` is
    "induction" (the source comes after an earlier copy of the destination's token), "previous" (the token before), or
    a list of (destination, source). Positions count the BOS token where there is one. Without a prompt (None), it is
    distinct random tokens repeated three times. The `top` terms of at most `max_order` heads a side are the strongest
    by their centred share.

    Columns: `part` (order, lag, tap, source or term), `query`, `key`, `pairs` [count], `score` and `centred` [nats].

    Raises `NotApplicable` for an unknown head, or positions that do not attend to each other; `ExpansionTooLarge`
    where there are more than 20 million pairs of paths or the prompt is too long. Paper: “Path Expansion of Attention
    Scores QK Circuit”.

    >>> found = pathsum.prompt_scores(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D", "L1H1").rows()
    >>> row = next(row for row in found if row["part"] == "term")
    >>> print(row["query"], "with", row["key"], f"{row['score']:.1f}")          # K-composition: L0H0 looks one back
    embed → L0H2 with embed → L0H0 3.3
    """
    layer, _ = head_index(head, opened(model, "a question about a prompt").spec)
    if pairs is not None and not (destination is None and source is None):
        raise NotApplicable("give a destination and a source, or pairs, not both")
    subject = Subject(model, bos=bos, batch=1)
    text = subject.repeated_tokens[0].tolist() if prompt is None else prompt
    recorded = prompt_run(model, text, bos)
    expansion = expand_scores(recorded, head)
    one = None if pairs is not None else _pair(expansion, destination, source)
    readout = expansion.at([one] if one else pairs or [])
    max_order = min(max_order, layer)
    _bounded(readout, layer, max_order)
    found = {"order": readout.by_order, "lag": readout.by_lag(LAGS), "source": readout.by_source}
    if readout.queries.width > 1 or readout.keys.width > 1:
        found["tap"] = readout.by_tap
    terms = readout.by_path(max_order, most=MOST_PAIRS)
    counts = {"order": _of_orders(readout, layer), "lag": {}, "tap": {}, "source": _of_sources(readout, layer)}
    rows = [row for part, shares in found.items() for row in _all(part, shares, counts[part])]
    rows += _terms(terms, top, stream_counts(readout.expansion, layer), max_order)
    facts = manifest(subject, SCORES, {"max_order": max_order, "top": top})
    error = max(shares.error for shares in (*found.values(), terms))
    facts["prompt"] = {
        **_text(recorded, subject.block_length if prompt is None else None),
        **_asked(expansion, readout, one, pairs),
        **dict(zip(("score", "centred"), readout.target.tolist(), strict=True)),
        "score_cap": expansion.block.attention.score_cap,
        "error": error,
    }
    return Result(SCORES, table(SCORES, rows), facts)


def _pair(expansion: ScoreExpansion, destination: int | None, source: int | None) -> tuple[int, int]:
    """The pair asked for; without a source, what the head attends to most."""
    recorded = expansion.expansion.run
    destination = place(recorded, -1 if destination is None else destination)
    if source is None:
        return destination, int(expansion.pattern[destination].argmax())
    return destination, place(recorded, source)


def _text(recorded: Run, block: int | None) -> dict[str, Any]:
    return {
        "tokens": recorded.tokens.tolist(),
        "token_strings": recorded.token_strings,
        "bos": recorded.bos,
        "repeated_block": block,
    }


def _asked(
    expansion: ScoreExpansion, readout: ScoreReadout, one: tuple[int, int] | None, pairs: PositionPairs | None
) -> dict[str, Any]:
    """Which head, which pairs, and how much it attends there."""
    return {
        "head": expansion.head,
        "pairs": "one" if one else pairs if isinstance(pairs, str) else "given",
        "positions": int((readout.weights[0] > 0).sum()),
        "destination": one and one[0],
        "source": one and one[1],
        "attention": (readout.weights[0] * expansion.pattern).sum().item(),
    }


# ---- rows ----


def _all(part: str, shares: ScoreShares, counts: Mapping[str, int]) -> Rows:
    """Every pair of parts, and ALiBi's share where there is one."""
    rows = []
    for (a, query), (b, key) in product(enumerate(shares.queries), enumerate(shares.keys)):
        n = counts.get(query, 1) * counts.get(key, 1) if counts else None
        rows.append(_row(part, query, key, n, shares.values[:, a, b].tolist()))
    return [*rows, *_distance(part, shares)]


def _terms(shares: ScoreShares, top: int, counts: list[int], max_order: int) -> Rows:
    best = shares.strongest(top)
    rows = [_row("term", one.query, one.key, 1, one.values.tolist()) for one in best]
    sides = len(shares.queries), len(shares.keys)
    if others := sides[0] * sides[1] - len(best):
        rows.append(_row("term", "other pairs", "", others, shares.rest(best).tolist()))
    if more := sum(counts[max_order + 1 :]):
        longer = (sides[0] + more) * (sides[1] + more) - sides[0] * sides[1]
        rows.append(_row("term", "longer paths", "", longer, shares.longer.tolist()))
    return [*rows, *_distance("term", shares)]


def _distance(part: str, shares: ScoreShares) -> Rows:
    return [_row(part, "distance", "distance", 1, shares.distance.tolist())] if shares.distance.any() else []


def _row(part: str, query: str, key: str, pairs: int | None, share: Sequence[float]) -> dict[str, Any]:
    count = None if pairs is None else float(pairs)
    return {"part": part, "query": query, "key": key, "pairs": count, "score": share[0], "centred": share[1]}


def _of_orders(readout: ScoreReadout, layer: int) -> dict[str, int]:
    return {str(order): count for order, count in enumerate(stream_counts(readout.expansion, layer))}


def _of_sources(readout: ScoreReadout, layer: int) -> dict[str, int]:
    spec = readout.expansion.run.model.spec
    names = sources_before(readout.expansion.sources, layer)
    return {name: sum(path_counts(layer, spec.n_heads, source_layer(name))) for name in names}


def _bounded(readout: ScoreReadout, layer: int, max_order: int) -> None:
    counts = stream_counts(readout.expansion, layer)
    pairs = [sum(counts[: order + 1]) ** 2 for order in range(layer + 1)]
    if pairs[max_order] > MOST_PAIRS:
        fits = next(order for order in range(max_order, -1, -1) if order == 0 or pairs[order] <= MOST_PAIRS)
        raise ExpansionTooLarge(
            f"{pairs[max_order]:,} pairs of paths of at most {max_order} heads are more than {MOST_PAIRS:,}; pass "
            f"max_order={fits} (--max-order {fits}), which has {pairs[fits]:,}"
        )
