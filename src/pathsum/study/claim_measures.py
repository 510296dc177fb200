"""What the claims measure on one model: numbers by name, each made of readings."""

from collections.abc import Callable, Mapping

import polars as pl
import torch

from pathsum.behaviour.losses import residual_losses
from pathsum.paths.logits import Expansion
from pathsum.paths.scores import head_scores
from pathsum.runs.forward import HeadIndex, forward
from pathsum.runs.run import run_weights
from pathsum.study.estimates import change_point
from pathsum.study.on_tokens import INDUCTION_THRESHOLDS, PARTNER_Z
from pathsum.study.result import read_one
from pathsum.study.subject import Subject
from pathsum.weights.weights import Weights, head_index

Numbers = dict[str, float]
COPYING, OWN_TOKEN_RANK = 0.5, 0.25
"""A head copies by its eigenvalues from the one on, by its ranks up to the other."""
DRAWN = 0.5
"""An edge is drawn from this share of the way from the median pair of its kind to the strongest pair of any kind."""
EARLY, LATE = (20, 30), 0.1
"""Tokens, from 1, and share of the positions at the end, whose losses the in-context score over windows compares."""
CONTEXTS = 64
OVER_TRAINING = ("composition", "matching", "induction", "repeats", "loss_by_position", "importance")
"""Readings of every checkpoint."""


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


def edge_examples(subject: Subject) -> list[tuple[str, float]]:
    """The edges that are drawn with one of the two scores alone, with how far the corrected one is above chance."""
    pairs = read_one("composition", subject, erratum=True).frame
    effects = {tuple(row[:3]): row[3] for row in pairs.select("kind", "source", "destination", "effect").iter_rows()}
    drawn = _drawn(pairs)
    found = []
    for one, other, where in (("cyclic_score", "score", "cyclic only"), ("score", "cyclic_score", "corrected only")):
        found += [
            (f"{where}: {' '.join(edge[:2])} → {edge[2]}", effects[edge]) for edge in sorted(drawn[one] - drawn[other])
        ]
    return found


def induction_circuit(subject: Subject) -> Numbers:
    """Whether an induction head has formed, and what composes with it."""
    heads, pairs = read_one("induction", subject).frame, read_one("composition", subject, erratum=True).frame
    found = heads.filter(pl.col("is_induction_head"))["head"].to_list()
    reads = heads.filter(pl.col("head").is_in(pairs["destination"].unique().implode()))
    best = reads.sort("prefix_matching", descending=True)["head"][0]
    into = pairs.filter((pl.col("kind") == "K") & (pl.col("destination") == best)).sort("effect", descending=True)
    numbers = {"induction_formed": float(bool(found)), "induction_heads": float(len(found)), **_edges(pairs)}
    partner, k = into.row(0, named=True)["source"], into["effect"][0]
    attention = read_one("attention", subject).frame
    looks = attention.filter(pl.col("head") == partner)["previous_token"][0]
    strongest = {kind: pairs.filter(pl.col("kind") == kind)["effect"].max() for kind in "QKV"}
    beside = max(float(strongest[kind]) for kind in "QV") / max(float(strongest["K"]), 1e-9)  # type: ignore[arg-type]
    numbers |= {"k_effect": k, "k_z": into["z"][0], "partner_previous": looks, "qv_beside_k": beside}
    numbers["own_with_previous"] = own_with_previous(subject, best)
    return {**numbers, **_corner(subject, best), **_partners(found, pairs, attention)}


def _edges(pairs: pl.DataFrame) -> Numbers:
    """How many edges are drawn with the one score and not with the other."""
    drawn = _drawn(pairs)
    only = {"edges_cyclic_only": ("cyclic_score", "score"), "edges_corrected_only": ("score", "cyclic_score")}
    return {name: float(len(drawn[one] - drawn[other])) for name, (one, other) in only.items()}


def _drawn(pairs: pl.DataFrame) -> dict[str, set[tuple[str, ...]]]:
    """The edges that are drawn with each score."""
    drawn: dict[str, set[tuple[str, ...]]] = {}
    for column in ("score", "cyclic_score"):
        over = pairs.with_columns((pl.col(column) - pl.col(column).median().over("kind")).alias("over"))
        over = over.filter(pl.col("over") >= DRAWN * pl.col("over").max())
        drawn[column] = set(over.select("kind", "source", "destination").iter_rows())
    return drawn


def _corner(subject: Subject, best: str) -> Numbers:
    """Later heads whose copying score and best matching score through an earlier head both exceed a half."""
    copies = {row["head"]: row["copying_score"] for row in read_one("spectra", subject).rows()}
    matching: dict[str, float] = {}
    for row in read_one("matching", subject).rows():
        if row["k_z"] >= PARTNER_Z:
            matching[row["destination"]] = max(row["matching_score"], matching.get(row["destination"], -1.0))
    inside = {head for head, score in matching.items() if min(score, copies[head]) > 0.5}
    return {"corner": float(best in inside), "corner_others": float(len(inside - {best}))}


def _partners(heads: list[str], pairs: pl.DataFrame, attention: pl.DataFrame) -> Numbers:
    """Where the significant K-partners of induction heads look: lags of their largest attention."""
    sure = pairs.filter(
        (pl.col("kind") == "K") & pl.col("destination").is_in(heads) & (pl.col("z") >= PARTNER_Z)
    )["source"]  # fmt: skip
    if sure.is_empty():
        return {}
    lags = [name for name in attention.columns if name.startswith("lag_")]
    profile = {row["head"]: [row[name] for name in lags] for row in attention.iter_rows(named=True)}
    largest = [max(range(len(lags)), key=profile[head].__getitem__) for head in sure]
    return {
        "partners": len(largest) / len(heads),
        "partner_lag": sum(largest) / len(largest),
        "previous_token_alone": float(all(lag == 1 for lag in largest)),
    }


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


@torch.no_grad()
def caused(subject: Subject) -> Numbers:
    """The in-context score over windows of text, and what of it (and of repeats) goes with the induction heads.

    All heads that match prefixes, at once: each alone may cost little where others do the same, and in a deep model
    those far from the end copy through later ones.
    """
    heads = read_one("induction", subject).frame
    found = heads.filter(pl.col("prefix_matching") >= INDUCTION_THRESHOLDS["prefix_matching"])["head"]
    without = {head_index(name, subject.model.spec) for name in found}
    if not without:
        return {}
    text, repeats = subject.contexts(CONTEXTS), subject.repeated_tokens
    block, start = subject.block_length, repeats.shape[1] - 3 * subject.block_length
    copy = lambda losses, first: losses[:, first : first + block - 1].mean()
    saved = lambda losses: (copy(losses, start) - copy(losses, start + 2 * block)).item()
    with_them = {"text": windows(_losses(subject, text)), "repeats": -saved(_losses(subject, repeats))}
    gone = {
        "text": windows(_losses(subject, text, without)),
        "repeats": -saved(_losses(subject, repeats, without)),
    }
    return {
        "text_score": with_them["text"],
        "text_score_removed": 1 - gone["text"] / with_them["text"],
        "repeats_removed": 1 - gone["repeats"] / with_them["repeats"],
    }


def _losses(subject: Subject, tokens: torch.Tensor, without: set[HeadIndex] | None = None) -> torch.Tensor:
    """Of predicting every token, `[sequence, pos − 1]`, the rest of the model free to react."""
    parts = []
    for some in tokens.split(8):
        done = forward(subject.raw, some, without=without or set())
        parts.append(residual_losses(subject.raw, some, done.residual, done.final_scale))
    return torch.cat(parts)


def windows(losses: torch.Tensor) -> float:
    """Mean loss of the last tenth of positions less that of tokens 20 to 30; negative: context helps."""
    early = losses[:, EARLY[0] - 2 : EARLY[1] - 1].mean()
    return (losses[:, -max(1, round(LATE * losses.shape[1])) :].mean() - early).item()


def best_head(subject: Subject) -> Numbers:
    """Of a one-layer model: how well its best head finds the tokens after earlier copies, and whether it copies."""
    heads = read_one("induction", subject).frame.sort("prefix_matching", descending=True)
    best, scores = heads["head"][0], read_one("spectra", subject).frame
    copies = scores.filter(pl.col("head") == best)["copying_score"][0]
    found = {"best_prefix_matching": heads["prefix_matching"][0], "best_copying": copies}
    return {**found, "own_with_previous": own_with_previous(subject, best)}


def own_with_previous(subject: Subject, head: str) -> float:
    """Of a head's score on the tokens after earlier copies, the share that compares a token with the one before.

    The score, less its mean over all sources, taken apart by how far back what query and key say was read: the
    query's own token with the token before the key's, by whatever heads or taps.
    """
    readout = head_scores(Expansion(subject.frozen_repeats), head).at("induction")
    return (readout.by_lag(2).share("lag 0", "lag 1").values[1] / readout.target[1]).item()


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


# ---- over training ----


def changes(table: Callable[[str], pl.DataFrame]) -> Numbers:
    """When what comes, comes: log₂ tokens of prefix matching's rise, and doublings from it to the others'.

    `table` gives a reading's table over training.
    """
    k_pairs = table("composition").filter(pl.col("kind") == "K")
    induction = table("induction").filter(pl.col("head").is_in(k_pairs["destination"].unique().implode()))
    last = induction.filter(pl.col("tokens") == pl.col("tokens").max())
    head = last.sort("prefix_matching", descending=True)["head"][0]
    pairs = k_pairs.filter(pl.col("destination") == head)
    partner = pairs.filter(pl.col("tokens") == pl.col("tokens").max()).sort("effect", descending=True)["source"][0]
    pair = (pl.col("source") == partner) & (pl.col("destination") == head)
    series = {
        "rise": _series(induction.filter(pl.col("head") == head), "prefix_matching"),
        "composition": _series(pairs.filter(pair), "effect"),
        "matching": _series(table("matching").filter(pair), "matching_score"),
        "repeats": saved_by_repeats(table("repeats")),
        "fall": score_over_windows(table("loss_by_position")),
    }
    points = {name: _point(series[name], least) for name, least in CHANGES.items()}
    if points["rise"] is None:
        return {}
    return {"rise": points["rise"]} | {
        f"{name}_after_rise": at - points["rise"] for name, at in points.items() if name != "rise" and at is not None
    }


CHANGES = {"rise": 0.1, "composition": 0.02, "matching": 0.3, "repeats": 0.3, "fall": 0.05}
"""The least whole change of each series that can be placed: attention, score, score, nats, nats."""
Series = list[tuple[float, float]]


def _series(frame: pl.DataFrame, column: str) -> Series:
    """(tokens, value) at every checkpoint."""
    kept = frame.select("tokens", pl.col(column).cast(pl.Float64).fill_nan(None)).drop_nulls().sort("tokens")
    return [(float(at), value) for at, value in kept.iter_rows()]


def _point(series: Series, least: float) -> float | None:
    return change_point([at for at, _ in series], [value for _, value in series], least)


def saved_by_repeats(repeats: pl.DataFrame) -> Series:
    """Loss in the first copy less that in the third, at every checkpoint."""
    wide = repeats.pivot(on="copy", index="tokens", values="loss").sort("tokens")
    return [(float(row["tokens"]), row["1"] - row["3"]) for row in wide.iter_rows(named=True)]


def score_over_windows(losses: pl.DataFrame) -> Series:
    """The in-context score over windows at every checkpoint, of `loss_by_position`."""
    found: Series = []
    for (tokens,), frame in losses.group_by("tokens"):
        ordered = torch.tensor(frame.sort("token")["loss"].to_list())
        found.append((float(tokens), windows(ordered[None])))  # type: ignore[arg-type]
    return sorted(found)


def second_order_over_training(importance: pl.DataFrame) -> Series:
    """The share of what is saved that terms of second order save, at every checkpoint."""
    found: Series = []
    for (tokens,), frame in importance.group_by("tokens"):
        gains = {row["order"]: row["gain"] for row in frame.iter_rows(named=True) if row["gain"] is not None}
        found.append((float(tokens), gains[2] / sum(gains.values())))  # type: ignore[arg-type]
    return sorted(found)
