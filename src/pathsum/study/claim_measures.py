"""What the claims measure on one model: numbers by name, each made of readings."""

from collections.abc import Callable, Mapping

import polars as pl
import torch

from pathsum.runs.run import run_weights
from pathsum.study.claim_circuits import Numbers, edge_examples, induction_circuit, own_with_previous
from pathsum.study.claim_context import caused
from pathsum.study.result import read_one
from pathsum.study.subject import Subject
from pathsum.study.weights_only import COPYING, OWN_TOKEN_RANK
from pathsum.weights.weights import Weights


def exactness(subject: Subject) -> Numbers:
    """Errors of the expansion in float64, and what a change of each head's factors does to logits."""
    frame = read_one("reconstruction", subject).frame.filter(pl.col("dtype") == "float64")
    errors = dict(zip(frame["quantity"], frame["error"], strict=True))
    found = {"logits_error": errors["logits"]}
    if "attention scores" in errors:
        found |= {"scores_error": errors["attention scores"], "gauge": gauge_change(subject)}
    return found


@torch.no_grad()
def gauge_change(subject: Subject) -> float:
    """`max|logits' − logits| / max|logits|` when W_Q → M W_Q, W_K → M⁻ᵀ W_K, W_V → N W_V, W_O → W_O N⁻¹, float64.

    M and N are diagonal, which every variant of attention without rotation or norms of queries and keys allows.
    """
    weights, tokens = subject.raw.to(torch.float64), subject.sample_tokens
    generator, changed = torch.Generator().manual_seed(subject.seed), dict(weights.tensors())
    for layer in range(weights.spec.n_layers):
        for first, second in (("W_Q", "W_K"), ("W_V", "W_O")):
            one, other = f"L{layer}.{first}", f"L{layer}.{second}"
            M = torch.empty(weights.spec.d_head, dtype=torch.float64).uniform_(0.5, 2, generator=generator)
            changed[one] = changed[one] * M[:, None]
            changed[other] = changed[other] / (M[:, None] if second == "W_K" else M)
    logits = run_weights(subject.model, weights, tokens).logits
    other_logits = run_weights(subject.model, Weights.from_tensors(weights.spec, changed), tokens).logits
    return ((other_logits - logits).abs().max() / logits.abs().max()).item()


def bigrams(subject: Subject) -> Numbers:
    """How much of the text's bigram table the direct path knows."""
    (row,) = read_one("bigrams", subject).rows()
    beyond = row["unigram_entropy"] - row["bigram_entropy"]
    return {
        "bigram_share": (row["unigram_entropy"] - row["direct_path_loss"]) / beyond,
        "bigram_kl": row["kl"],
        "rank_correlation": row["rank_correlation"],
    }


def copying(subject: Subject) -> Numbers:
    """How many heads copy, by eigenvalues and by ranks, of twelve; and bugs among the strongest skip-trigrams."""
    frame = read_one("spectra", subject).frame
    spectral, ranked = frame["copying_score"] >= COPYING, frame["own_token_rank"] <= OWN_TOKEN_RANK
    twelfths = 12 / len(frame)
    return {
        "copying_by_eigenvalues": twelfths * int(spectral.sum()),
        "copying_by_ranks": twelfths * int(ranked.sum()),
        "copying_disagree": twelfths * int((spectral != ranked).sum()),
        "bugs": len(read_one("bugs", subject, among=10, count=10).frame) / len(frame),
    }


def bug_examples(subject: Subject) -> list[tuple[str, float]]:
    """The strongest skip-trigram bug of each head that has one, with its effect: its text has both parts, never it."""
    frame = read_one("bugs", subject, among=10, count=1).frame
    return [
        (f"{row['head']}: {row['source']!r} … {row['destination']!r} → {row['out']!r}", row["effect"])
        for row in frame.iter_rows(named=True)
    ]


def orders(subject: Subject) -> Numbers:
    """What terms of each order save, and which layer's single heads save most."""
    gains = {row["order"]: row["gain"] for row in read_one("importance", subject).rows()}
    every = sum(gain for gain in gains.values() if gain is not None)
    layers = [row["gain_individual"] for row in read_one("importance_layers", subject).rows()]
    virtual = sum(gain for order, gain in gains.items() if order >= 2)
    found = {"first_order_share": gains[1] / every, "virtual_share": virtual / every}
    if len(layers) == 2:
        found |= {"second_order": gains[2], "second_order_share": gains[2] / every}
        found |= {"later_layer_lead": layers[1] - layers[0]}
    return found


def best_head(subject: Subject) -> Numbers:
    """Of a one-layer model: how well its best head finds the tokens after earlier copies, and whether it copies."""
    heads = read_one("induction", subject).frame.sort("prefix_matching", descending=True)
    best, scores = heads["head"][0], read_one("spectra", subject).frame
    copies = scores.filter(pl.col("head") == best)["copying_score"][0]
    found = {"best_prefix_matching": heads["prefix_matching"][0], "best_copying": copies}
    return {**found, "own_with_previous": own_with_previous(subject, best)}


def expands(subject: Subject) -> Numbers:
    """Of a model with MLPs: what paths from embeddings alone carry."""
    rows = {row["source"]: row for row in read_one("carried", subject).rows()}
    paths = [row for name, row in rows.items() if not name.endswith("mlp")]
    return {
        "embedding_share": paths[-1]["saved_share_up_to"],
        "embedding_variance": sum(row["variance_share"] for row in paths),
    }


MEASURES: Mapping[str, tuple[Callable[[Subject], Numbers], ...]] = {
    "zero layers": (exactness, bigrams),
    "one layer": (exactness, copying),
    "one-layer variants": (exactness, best_head),
    "two layers": (exactness, induction_circuit, orders, caused),
    "deeper": (exactness, orders),
    "MLPs": (exactness, expands),
}
"""What is measured on the models of a kind."""
EXAMPLES: Mapping[str, tuple[str, Callable[[Subject], list[tuple[str, float]]]]] = {
    "one layer": ("bug", bug_examples),
    "two layers": ("edge", edge_examples),
}
"""What is shown of the first model of a kind, by name: words, each with a number."""
