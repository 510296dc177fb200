"""Skip-trigrams of heads, and their bugs: products that a head raises and that the text never has."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from pathsum.behaviour.skips import SkipIndex, Skips
from pathsum.circuits.tables import ov_circuit, score_circuit
from pathsum.circuits.trigrams import Trigrams, centred_ov, centred_qk, skip_trigrams
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.lowrank import LowRank
from pathsum.study.cluster import run_tasks
from pathsum.study.reading import Rows
from pathsum.study.subject import Subject
from pathsum.study.weights_only import bounded
from pathsum.training.corpus import read_corpus
from pathsum.weights.positions import Rotary
from pathsum.weights.tokens import passage, token_id, token_ids, token_strings

MOST_PER_SOURCE = 1000
"""Of skip-trigrams: that many of the best destinations and outputs of a source are kept."""
PRODUCTS_PER_SOURCE = 20
"""Of the strong products that are looked at for bugs: one frequent source must not be all of them."""
NEAR, FAR = 3, 16
"""Tokens shown on either side of a passage, and the longest passage that is shown whole."""


def trigrams(
    subject: Subject,
    *,
    count: int = 10,
    per_source: int = 1,
    head: str | None = None,
    source: str | int | None = None,
    corpus: str | None = None,
    delta: float | int | None = None,
    cluster: str | None = None,
) -> Rows:
    """The strongest skip-trigrams `[source] … [destination] → [out]` of every head, over the full vocabulary.

    Strength is qk · ov, both centred and positive: attended to more than the average source, and raised. `source`
    leaves only that token's, `corpus` (a file, a folder, or the word python) only tokens that it has. `cluster`, a
    Dask scheduler's address, gives layers to its workers.

    Raises `NotApplicable` for an unknown head, `TextError` for a source that is no token or a corpus that is not there,
    and `ExpansionTooLarge` for more than 100,000 rows.
    """
    names = _head_names(subject, head)
    bounded(count, len(names))
    most = count if source is not None else per_source
    if not 1 <= most <= MOST_PER_SOURCE:
        named = "count, with a source," if source is not None else "per_source"
        raise ExpansionTooLarge(f"{named} is {most}; it may be 1 to {MOST_PER_SOURCE}")
    tokens = None if corpus is None else _occurring(subject, corpus)
    sources = tokens if source is None else torch.tensor([token_id(subject.model, source)])
    asked = [(layer, names, delta, count, most, sources, tokens) for layer in range(subject.model.spec.n_layers)]
    return [row for rows in run_tasks(_layer_trigrams, subject, asked, cluster) for row in rows]


def _layer_trigrams(
    subject: Subject,
    layer: int,
    names: list[str],
    delta: float | int | None,
    count: int,
    most: int,
    sources: Tensor | None,
    tokens: Tensor | None,
) -> Rows:
    rows = []
    for name, qk, ov in _circuits(subject, layer, names, delta):
        found = skip_trigrams(qk, ov, count, most, sources=sources, tokens=tokens)
        rows += [{"head": name, "rank": rank + 1, **row} for rank, row in enumerate(_rows(subject, found))]
    return rows


def bugs(
    subject: Subject,
    *,
    count: int = 3,
    per_source: int = 1,
    among: int = 1000,
    least: int = 1,
    window: int | None = None,
    head: str | None = None,
    delta: float | int | None = None,
) -> Rows:
    """Skip-trigrams a head raises strongly though the text never has them; it has both parts: the paper's bugs.

    A head's table is a product f1(source, destination) · f2(source, out): raising `keep … in → mind` and
    `keep … at → bay` also raises `keep … in → bay`. Of the `among` strongest products of every head, of tokens that
    the text has (at most 20 of a source), those are listed of which `[source] … [destination]` and `[source] … [out]`
    occur within `window` tokens (None: the model's context) at least `least` times, and the triple never.
    Counted in the whole text; nothing is run. Raises `NotApplicable` for an unknown head.
    """
    names = _head_names(subject, head)
    bounded(count, len(names))
    bounded(among, 1)
    spec = subject.model.spec
    index = SkipIndex.of(subject.text_tokens, spec.d_vocab, spec.n_ctx if window is None else window)
    tokens, rows = index.occurring, []
    every = (_circuits(subject, layer, names, delta) for layer in range(spec.n_layers))
    for name, qk, ov in chain.from_iterable(every):
        found = skip_trigrams(qk, ov, among, PRODUCTS_PER_SOURCE, sources=tokens, tokens=tokens)
        rows += [{"head": name, **row} for row in _bugs(subject, index, found, count, per_source, least)]
    return rows


def _bugs(
    subject: Subject, index: SkipIndex, found: Trigrams, count: int, per_source: int, least: int
) -> Iterator[dict[str, Any]]:
    """The first `count` bugs among the products, at most `per_source` of a source; rank is that of the product."""
    taken: dict[int, int] = {}
    ids = [part.tolist() for part in (found.source, found.destination, found.out)]
    for place, product in enumerate(zip(*ids, strict=True)):
        if count == sum(taken.values()):
            return
        source, destination, out = product
        if taken.get(source, 0) == per_source or len(index.triples(source, destination, out)):
            continue
        parts = index.destinations(source, destination), index.outs(source, out)
        if min(map(len, parts)) < least:
            continue
        taken[source] = taken.get(source, 0) + 1
        row = _rows(subject, found[place : place + 1])[0]
        yield {"rank": place + 1, **row, **_evidence(subject, index, source, *parts)}


def _evidence(subject: Subject, index: SkipIndex, source: int, destinations: Skips, outs: Skips) -> dict[str, Any]:
    """How often the parts occur, how often the triple would if they had nothing to do with each other, and where."""
    (first, destination), (other, before) = destinations.nearest, outs.nearest
    return {
        "source_destination": len(destinations),
        "source_out": len(outs),
        "expected": len(destinations) * len(outs) / index.sight(source),
        "seen_destination": _passage(subject, index.tokens, first, destination),
        "seen_out": _passage(subject, index.tokens, other, before + 1),
    }


def _passage(subject: Subject, tokens: Int[Tensor, " n"], first: int, last: int) -> str:
    """The text around two positions, what is far from both left out."""
    start, stop = max(0, first - NEAR), last + 1 + NEAR
    if last - first <= FAR:
        return passage(subject.model, tokens[start:stop])
    parts = tokens[start : first + 1 + NEAR], tokens[last - NEAR : stop]
    return " … ".join(passage(subject.model, part) for part in parts)


def _rows(subject: Subject, found: Trigrams) -> Rows:
    """What both readings say of a product."""
    names = [token_strings(subject.model, part) for part in (found.source, found.destination, found.out)]
    numbers = [part.tolist() for part in (found.effect, found.qk, found.ov)]
    keys = ("source", "destination", "out", "effect", "qk", "ov")
    return [dict(zip(keys, row, strict=True)) for row in zip(*names, *numbers, strict=True)]


def _head_names(subject: Subject, head: str | None) -> list[str]:
    names = subject.head_names
    if head is not None and head not in names:
        known = f"{names[0]} to {names[-1]}" if names else "none"
        raise NotApplicable(f"{subject.model.name} has no head {head!r}; there are {known}")
    return names if head is None else [head]


def _circuits(
    subject: Subject, layer: int, names: list[str], delta: float | int | None
) -> Iterator[tuple[str, LowRank, LowRank]]:
    """Name, centred QK and centred OV of a layer's heads, float32; rotary layers need a distance.

    Without one they are left out, or, where a single head is asked for, an error.
    """
    weights, facts = subject.tables, subject.model.spec.layers[layer]
    wanted = [index for index in range(weights.spec.n_heads) if f"L{layer}H{index}" in names]
    if not wanted or (delta is None and isinstance(facts.positions, Rotary) and len(names) > 1):
        return
    qk, ov = score_circuit(weights, layer, delta), ov_circuit(weights, layer)
    for index in wanted:
        yield f"L{layer}H{index}", centred_qk(qk[index], facts.score_scale), centred_ov(ov[index])


def _occurring(subject: Subject, corpus: str) -> Int[Tensor, " token"]:
    """The ids of the tokens that a corpus has."""
    text = "\n\n".join(read_corpus([corpus]).documents)
    return token_ids(subject.model, text, bos=False).unique()
