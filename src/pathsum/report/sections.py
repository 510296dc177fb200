"""What the page says between its figures: one short paragraph after another, each made from the tables."""

from typing import Any

import polars as pl

from pathsum.report.heads import COPYING, OWN_TOKEN_RANK, PREVIOUS_TOKEN, head_table
from pathsum.report.numbers import count, fixed, in_millions, signed, small
from pathsum.report.partners import composition_pairs
from pathsum.report.story import copying_count, parameters, spec_of, term_steps, text_line
from pathsum.study.on_tokens import INDUCTION_THRESHOLDS, PARTNER_Z
from pathsum.study.result import Result

POSITIONS = {
    "sinusoidal": "sinusoidal positions added to queries and keys only",
    "learned_qk": "learned positions added to queries and keys only",
    "rotary": "rotary positions",
    "alibi": "ALiBi positions",
}
NORMS = {"none": "no norms", "layer": "LayerNorm", "rms": "RMSNorm"}


def model_paragraph(results: dict[str, Result]) -> str:
    """The model in words."""
    spec, total = spec_of(results), parameters(results)
    size = "" if total is None else f", {in_millions(total)} parameters"
    if not spec["n_layers"]:
        return (
            f"A zero-layer transformer{size}: an embedding of {count(spec['d_vocab'])} tokens into {spec['d_model']} "
            "dimensions, unembedded again. The direct path is all there is, and the best it can be is a bigram table."
        )
    layers, heads = spec["n_layers"], spec["n_heads"]
    kind = "An attention-only transformer" if spec["d_mlp"] is None else "A transformer with MLPs"
    return (
        f"{kind} of {layers} layer{'s' * (layers > 1)} with {heads} head{'s' * (heads > 1)} each{size}. Its residual "
        f"stream has {spec['d_model']} dimensions, of which a head reads and writes {spec['d_head']}; it knows "
        f"{count(spec['d_vocab'])} tokens, sees up to {count(spec['n_ctx'])} of them, and has "
        f"{_positions(spec)} and {NORMS[spec['norm']]}."
    )


def facts(results: dict[str, Result]) -> list[tuple[str, str, str]]:
    """(value, what it is, a word more) of the numbers at the top of the page."""
    rows = [*_path_fact(results)]
    in_context = _first(results, "in_context")
    if in_context:
        tokens = f"loss at token {in_context['late_token']} less at {in_context['early_token']}"
        rows.append((fixed(in_context["mean_loss"]), "nats per token", "loss on the text"))
        rows.append((signed(in_context["score"], 2), "nats, in-context score", tokens))
    for row in _rows(results, "reconstruction"):
        if row["quantity"] == "logits":
            rows.append((small(row["error"]), f"error in {row['dtype']}", "sum of all terms against the logits"))
    return rows


def bigram_paragraph(results: dict[str, Result]) -> str:
    """The direct path against the text's bigrams."""
    row = _first(results, "bigrams")
    if not row:
        return ""
    return (
        f"Alone, the direct path W_U W_E loses {fixed(row['direct_path_loss'])} nats per token on the whole text. "
        f"No bigram table can lose less than the text's own bigram entropy, {fixed(row['bigram_entropy'])}; the direct "
        f"path is {fixed(row['kl'])} nats away from it (KL of the text's bigrams to the direct path; single tokens "
        f"have an entropy of {fixed(row['unigram_entropy'])}). Its logits rank next tokens as the text's counts do "
        f"with a correlation of {fixed(row['rank_correlation'])}."
    )


def head_paragraphs(results: dict[str, Result]) -> list[str]:
    """Copying, previous-token heads, and where two ways to call a head copying disagree."""
    table = head_table(results)
    if table.is_empty():
        return ["The model has no heads."]
    said = []
    if table["copying_score"].count():
        said.append(
            f"{copying_count(results, table)} by the eigenvalues of their OV circuit (copying score ≥ {COPYING})"
            f"{_names(table.filter('is_copying'))}. {_disagreement(table)}"
        )
    if table["previous_token"].count():
        previous = table.filter("is_previous_token")
        said.append(f"Previous-token heads (mean attention ≥ {PREVIOUS_TOKEN} to the token before, on the text): "
                    f"{_names(previous, '') or 'none'}.")  # fmt: skip
    return said


def composition_paragraphs(results: dict[str, Result]) -> list[str]:
    """The strongest composition and the strongest avoidance, with counts of sure ones."""
    pairs = composition_pairs(results)
    if pairs.is_empty():
        layers = spec_of(results)["n_layers"]
        return [
            "There is no pair of heads in different layers, so nothing composes."
            if layers < 2
            else "With rotary positions Q- and K-composition depend on the distance; pass it as delta."
        ]
    above = pairs.filter(pl.col("effect") > 0).sort("effect", descending=True)
    below = pairs.filter(pl.col("effect") < 0).sort("effect")
    sure = [count(len(some.filter(pl.col("z").abs() >= PARTNER_Z))) for some in (above, below)]
    return [
        f"Of {count(len(pairs))} pairs of heads and kinds, {sure[0]} are beyond doubt above chance (z ≥ {PARTNER_Z:g}) "
        f"and {sure[1]} below (z ≤ −{PARTNER_Z:g}: the heads avoid each other). Strongest composition: "
        f"{_pairs(above)}. Strongest avoidance: {_pairs(below)}."
    ]


def induction_paragraph(results: dict[str, Result]) -> str:
    table = head_table(results)
    if not _rows(results, "induction"):
        return "Induction needs heads, and repeated tokens to try them on."
    found = table.filter("is_induction_head")
    low = INDUCTION_THRESHOLDS
    tests = (
        f"prefix matching ≥ {low['prefix_matching']}, copying ≥ {low['copying']} nats on repeated random tokens, and "
        f"≥ {low['causal_effect']} nats of loss on the repeats when the head is removed"
    )
    if found.is_empty():
        return f"No head passes all three tests ({tests}). The nearest is shown, with what speaks for and against it."
    verb = "passes" if len(found) == 1 else "pass"
    return f"{len(found)} of {len(table)} heads {verb} all three tests ({tests}){_names(found)}. Step by step:"


def term_paragraph(results: dict[str, Result]) -> str:
    """What each order is worth, in words."""
    steps = term_steps(results)
    if len(steps) < 2:
        return ""
    parts = [f"{step.name} {signed(step.gain, 2)}" for step in steps[1:]]
    return (
        f"From {fixed(steps[0].loss)} nats per token for a uniform guess to {fixed(steps[-1].loss)} with all terms, "
        f"attention patterns kept as they were. Saved by the terms of each order: {', '.join(parts)}."
    )


def text_paragraph(results: dict[str, Result]) -> str:
    line = text_line(results, 1000)
    return f"Text: {line}." if line else ""


def _positions(spec: dict[str, Any]) -> str:
    kinds = {(layer.get("positions") or {}).get("kind") for layer in spec["layers"]}
    words = [POSITIONS.get(kind, str(kind)) for kind in sorted(kind for kind in kinds if kind is not None)]
    if spec["learned_positions"]:
        words.insert(0, "learned positions in the residual stream")
    return ", ".join(words) or "no positions"


def _path_fact(results: dict[str, Result]) -> list[tuple[str, str, str]]:
    rows = [row for row in _rows(results, "describe") if row["group"] == "paths from the embedding"]
    total = next((row["value"] for row in rows if row["name"] == "total"), None)
    if total is None:
        return []
    return [(count(total), "path" if total == 1 else "paths", "from the embedding to the logits")]


def _disagreement(table: pl.DataFrame) -> str:
    odd = table.filter("disagrees")
    if odd.is_empty():
        return f"Own-token ranks (≤ {OWN_TOKEN_RANK}) agree for every head."
    return (
        f"Own-token ranks (≤ {OWN_TOKEN_RANK}) tell otherwise of {_names(odd, '')}: positive eigenvalues are no "
        "proof that tokens raise themselves above others."
    )


def _names(table: pl.DataFrame, before: str = ": ", most: int = 24) -> str:
    names = table["head"].to_list()
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{before}{', '.join(names[:most])}{more}" if names else ""


def _pairs(pairs: pl.DataFrame) -> str:
    rows = pairs.head(3).iter_rows(named=True)
    words = [f"{row['kind']} {row['source']} → {row['destination']} ({signed(row['effect'])}, z {fixed(row['z'], 1)})"
             for row in rows]  # fmt: skip
    return ", ".join(words) or "none"


def _rows(results: dict[str, Result], name: str) -> list[dict[str, Any]]:
    return results[name].rows() if name in results else []


def _first(results: dict[str, Result], name: str) -> dict[str, Any]:
    return next(iter(_rows(results, name)), {})
