"""Readings made from weights alone: no text, no run."""

from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.circuits.positional import lag_curve, matching_curve, positional_scores, rotary_curve
from pathsum.circuits.spectra import (
    departure,
    ov_eigenvalues,
    own_token_ranks,
    positivity,
    qk_eigenvalues,
    table_norms,
)
from pathsum.circuits.tables import layer_OV, layer_QK, ov_circuit, score_circuit
from pathsum.circuits.trigrams import centred_ov, centred_qk
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.study.cluster import run_tasks
from pathsum.study.reading import Rows
from pathsum.study.subject import Subject
from pathsum.weights.positions import Rotary
from pathsum.weights.tokens import token_strings

COPYING = 0.5
"""A head copies if its copying score reaches this."""
OWN_TOKEN_RANK = 0.25
"""By ranks a head copies if on average at most this share of outputs is above the source's own token (chance: 0.5)."""
MOST_ROWS = 100_000
"""Of a table of entries or trigrams."""
RANKED = 5_000_000_000
"""Entries of OV tables looked at for own-token ranks: some ten seconds."""


def spectra(
    subject: Subject, *, delta: float | int | None = None, exact: bool = False, cluster: str | None = None
) -> Rows:
    """Copying and matching score, how far both tables are from normal, and copying by own-token rank, per head.

    Where all heads' tables together have more than 5 billion entries, ranks are those of a seeded random sample of
    source tokens, with their standard errors; `exact` ranks every token whatever it takes. Of rotary heads the matching
    score needs a distance `delta`. `cluster`, a Dask scheduler's address, gives layers to its workers.
    """
    asked = [(layer, delta, exact) for layer in range(subject.model.spec.n_layers)]
    return [row for rows in run_tasks(_layer_spectra, subject, asked, cluster) for row in rows]


def _layer_spectra(subject: Subject, layer: int, delta: float | int | None, exact: bool) -> Rows:
    weights, tokens, ends, rows = subject.folded, _ranked_tokens(subject, exact), subject.tables.ends, []
    OV, own = layer_OV(weights, layer), ov_eigenvalues(weights, layer, subject.through_tokens)
    copying = positivity(own)
    departs = departure(own, table_norms(OV, subject.unembedding_gram, subject.embedding_gram))
    matching, astray = _matching(subject, layer, delta)
    ov = ends.W_U @ layer_OV(subject.tables, layer) @ ends.W_E[:, tokens]
    for index in range(weights.spec.n_heads):
        scores = {"copying_score": copying[index].item(), "matching_score": matching[index]}
        scores |= {"copying_departure": departs[index].item(), "matching_departure": astray[index]}
        ranks = own_token_ranks(ov[index], tokens)
        rows.append({"head": f"L{layer}H{index}", **scores, **_rank_means(ranks, weights.spec.d_vocab)})
    return rows


def _ranked_tokens(subject: Subject, exact: bool) -> Int[Tensor, " token"]:
    d_vocab = subject.model.spec.d_vocab
    most = RANKED // max(1, len(subject.head_names) * d_vocab)
    if exact or most >= d_vocab:
        return torch.arange(d_vocab)
    return torch.randperm(d_vocab, generator=torch.Generator().manual_seed(subject.seed))[: max(2, most)].sort().values


def _rank_means(ranks: Float[Tensor, " token"], d_vocab: int) -> dict[str, float]:
    """Means over the tokens that say something, and their standard errors: 0 where no token is left out."""
    left = max(0.0, 1 - len(ranks) / d_vocab)
    ranks = ranks[~ranks.isnan()]
    share, top = ranks / max(d_vocab - 1, 1), (ranks == 0).double()
    # Two of each kind added (Agresti and Coull): that a sample has none does not make it certain that there are none.
    spreads = [part.std().item() if left else 0.0 for part in (share, torch.cat([top, top.new_tensor([0, 0, 1, 1])]))]
    errors = [spread * (left / max(len(ranks), 1)) ** 0.5 for spread in spreads]
    return {
        "own_token_rank": share.mean().item(),
        "own_token_rank_error": errors[0],
        "own_token_top": top.mean().item(),
        "own_token_top_error": errors[1],
    }


def eigenvalues(subject: Subject, *, delta: float | int | None = None) -> Rows:
    """The non-zero eigenvalues of every head's OV and QK circuits over tokens: d_head of each, largest modulus first.

    Of rotary heads QK is there with a distance `delta` alone.
    """
    weights, rows = subject.folded, []
    for layer in range(weights.spec.n_layers):
        found = {"OV": ov_eigenvalues(weights, layer, subject.through_tokens)}
        if delta is not None or not _rotary(subject, layer):
            found["QK"] = qk_eigenvalues(weights, layer, delta, subject.embedding_gram)
        for circuit, values in found.items():
            for index, head_values in enumerate(values):
                rows += [
                    {"head": f"L{layer}H{index}", "circuit": circuit, "real": v.real.item(), "imaginary": v.imag.item()}
                    for v in head_values
                ]
    return rows


def positional(subject: Subject, *, lags: int = 16) -> Rows:
    """What positions alone contribute to every head's scores, as a function of lag.

    Rotary: the mean over all pairs of tokens at that distance (embeddings as they are, each token counted once), and
    the matching score of W_QK at that distance. Raises `NotApplicable` for fewer than one of `lags`.
    """
    if lags < 1:
        raise NotApplicable(f"lags is {lags}, must be at least 1")
    weights, rows, n = subject.folded, [], subject.context_length
    for layer, facts in enumerate(weights.spec.layers):
        matching: list[list[float | None]] = [[None] * lags] * weights.spec.n_heads
        if isinstance(facts.positions, Rotary):
            mean, spread = rotary_curve(weights, layer, torch.arange(n, dtype=torch.float64), subject.embedding_gram)
            mean = mean - mean.mean(-1, keepdim=True)
            near = torch.arange(min(lags, n), dtype=torch.float64)
            matching = matching_curve(weights, layer, near, subject.embedding_gram).tolist()
        elif facts.positions is not None or weights.spec.learned_positions:
            scores = positional_scores(weights, layer, n)
            mean, spread = lag_curve(scores - scores.mean(-1, keepdim=True), min(lags, n))
        else:
            continue
        for index, lag in product(range(weights.spec.n_heads), range(min(lags, n))):
            row = {"head": f"L{layer}H{index}", "lag": lag, "score": mean[index, lag].item()}
            rows.append({**row, "spread": spread[index, lag].item(), "matching_score": matching[index][lag]})
    return rows


def entries(subject: Subject, *, count: int = 10, delta: float | int | None = None, cluster: str | None = None) -> Rows:
    """The strongest entries of every head's QK and OV table, over the full vocabulary.

    Of rotary heads QK is there with a distance `delta` alone. `cluster`, a Dask scheduler's address, gives layers to
    its workers. Raises `NotApplicable` for a count below 1, `ExpansionTooLarge` for more than 100,000 rows.
    """
    bounded(count, 2 * len(subject.head_names))
    asked = [(layer, count, delta) for layer in range(subject.model.spec.n_layers)]
    return [row for rows in run_tasks(_layer_entries, subject, asked, cluster) for row in rows]


def _layer_entries(subject: Subject, layer: int, count: int, delta: float | int | None) -> Rows:
    rows = []
    for index, qk, ov in _head_circuits(subject, layer, delta):
        for circuit, table in (("QK", qk), ("OV", ov)):
            if table is None:
                continue
            values, first, second = table.largest(count)
            left, right = token_strings(subject.model, first), token_strings(subject.model, second)
            for rank in range(len(values)):
                rows.append(
                    {
                        "head": f"L{layer}H{index}",
                        "circuit": circuit,
                        "rank": rank + 1,
                        "row": left[rank],
                        "source": right[rank],
                        "value": values[rank].item(),
                    }
                )
    return rows


def _head_circuits(subject: Subject, layer: int, delta: float | int | None):
    """Index, centred QK (None in a rotary layer without a distance) and centred OV of a layer's heads; float32."""
    weights = subject.tables
    facts = weights.spec.layers[layer]
    qk = score_circuit(weights, layer, delta) if delta is not None or not _rotary(subject, layer) else None
    ov = ov_circuit(weights, layer)
    for index in range(weights.spec.n_heads):
        yield index, None if qk is None else centred_qk(qk[index], facts.score_scale), centred_ov(ov[index])


def _matching(subject: Subject, layer: int, delta: float | int | None) -> tuple[list[float | None], list[float | None]]:
    """Matching score and departure from normality of every head; None in a rotary layer without a distance."""
    gram = subject.embedding_gram
    try:
        QK, own = layer_QK(subject.folded, layer, delta), qk_eigenvalues(subject.folded, layer, delta, gram)
    except NotApplicable:
        return [None] * subject.model.spec.n_heads, [None] * subject.model.spec.n_heads
    return positivity(own).tolist(), departure(own, table_norms(QK, gram, gram)).tolist()


def _rotary(subject: Subject, layer: int) -> bool:
    return isinstance(subject.model.spec.layers[layer].positions, Rotary)


def bounded(count: int, tables: int) -> None:
    """Raises `ExpansionTooLarge` before a table is made that nobody could read, `NotApplicable` for none at all."""
    if count < 1:
        raise NotApplicable(f"count is {count}, must be at least 1")
    if count * tables > MOST_ROWS:
        raise ExpansionTooLarge(f"{count * tables:,} rows; pass a smaller count= (at most {MOST_ROWS:,} rows in all)")
