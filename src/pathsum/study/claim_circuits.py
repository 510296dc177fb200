"""What the claims measure of an induction circuit: composition, corner of eigenvalues, partners, erratum."""

import polars as pl

from pathsum.paths.logits import Expansion
from pathsum.paths.scores import head_scores
from pathsum.study.on_tokens import PARTNER_Z
from pathsum.study.result import read_one
from pathsum.study.subject import Subject

Numbers = dict[str, float]
DRAWN = 0.5
"""An edge is drawn from this share of the way from the median pair of its kind to the strongest pair of any kind."""
CORNER = 0.5
"""A head is in the corner where copying and matching score both exceed this."""


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
    """Later heads whose copying score and best matching score through an earlier head both exceed `CORNER`."""
    copies = {row["head"]: row["copying_score"] for row in read_one("spectra", subject).rows()}
    matching: dict[str, float] = {}
    for row in read_one("matching", subject).rows():
        if row["k_z"] >= PARTNER_Z:
            matching[row["destination"]] = max(row["matching_score"], matching.get(row["destination"], -1.0))
    inside = {head for head, score in matching.items() if min(score, copies[head]) > CORNER}
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


def own_with_previous(subject: Subject, head: str) -> float:
    """Of a head's score on the tokens after earlier copies, the share that compares a token with the one before.

    The score, less its mean over all sources, taken apart by how far back what query and key say was read: the
    query's own token with the token before the key's, by whatever heads or taps.
    """
    readout = head_scores(Expansion(subject.frozen_repeats), head).at("induction")
    return (readout.by_lag(2).share("lag 0", "lag 1").values[1] / readout.target[1]).item()
