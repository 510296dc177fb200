"""One prompt's prediction, taken apart: what every order, source and path adds to one token's logit."""

from collections.abc import Sequence
from math import isqrt

import torch

from pathsum.errors import ExpansionTooLarge
from pathsum.paths.logits import expand
from pathsum.paths.paths import path_counts, source_layer
from pathsum.paths.readout import Readout, TermValues, place
from pathsum.runs.run import Run, run_weights
from pathsum.study.reading import Column, Reading, Rows
from pathsum.study.result import Result, manifest, table
from pathsum.study.subject import Subject
from pathsum.weights.model import Model, opened
from pathsum.weights.tokens import token_id, token_ids, token_strings

MOST_PATHS = 1_000_000
PATTERNS = 2_000_000_000
"""Bytes of patterns held at once of a prompt; those of other layers are made again when they are asked for."""
EXPAND = Reading(
    "expand", "What paths add to one token's logit", "The Path Expansion Trick; Path Expansion of Logits", ("weights",),
    (Column("part", "", "order, source, or term (a single path)"),
     Column("name", "", "the order, the source, or the path; what is not listed"),
     Column("order", "", "heads of the paths"), Column("paths", "count", "how many"),
     Column("logit", "nats", "what they add to the logit, before any soft-cap"),
     Column("centred", "nats", "the same, less what they add to all logits on average")),
    "prompt",
)  # fmt: skip
"""Each part's rows sum to the logit."""


def prompt_expansion(
    model: Model,
    prompt: str | Sequence[int],
    *,
    bos: bool | None = None,
    target: str | int | None = None,
    at: int = -1,
    max_order: int = 1,
    top: int = 10,
) -> Result:
    """The logit of `target` (default: the model's first choice) after position `at` of a prompt, as sums of paths.

    Orders, sources, and the `top` strongest paths of at most `max_order` heads, by size of their centred share, with
    what they leave out. Positions count the BOS token where there is one.

    Columns: `part` (order, source or term), `name`, `order`, `paths` [count], `logit` and `centred` [nats].

    Raises `ExpansionTooLarge` where there are more than a million such paths or the prompt is too long, `TextError`
    for a `target` that is no token. Paper: “Path Expansion of Logits”.

    >>> found = pathsum.prompt_expansion(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D").rows()
    >>> print({row["name"]: round(row["logit"], 1) for row in found if row["part"] == "order"})
    {'order 0': 0.3, 'order 1': 3.3, 'order 2': 8.1}
    """
    recorded = prompt_run(model, prompt, bos)
    position = place(recorded, at)
    chosen = int(recorded.logits[position].argmax()) if target is None else token_id(model, target)
    one_hot = torch.nn.functional.one_hot(torch.tensor([chosen]), model.spec.d_vocab).float()
    readout = expand(recorded).toward(torch.cat([one_hot, one_hot - 1 / model.spec.d_vocab]), position)
    max_order = min(max_order, model.spec.n_layers)
    _bounded(readout, max_order)
    rows = [*_orders(readout), *_sources(readout), *_terms(readout, max_order, top)]
    options = {"max_order": max_order, "top": top}
    facts = manifest(Subject(model, bos=bos), EXPAND, options) | {"prompt": _facts(recorded, readout, chosen)}
    return Result(EXPAND, table(EXPAND, rows), facts)


def prompt_run(model: Model, prompt: str | Sequence[int], bos: bool | None = None) -> Run:
    """The prompt, run and recorded, with `PATTERNS` bytes of patterns at most: those of the last layers.

    Raises `ExpansionTooLarge` where not even those of one layer would fit.
    """
    tokens, spec = token_ids(opened(model, "a question about a prompt"), prompt, bos), model.spec
    layer = 4 * spec.n_heads * len(tokens) ** 2
    if layer > PATTERNS:
        fits = isqrt(PATTERNS // (4 * spec.n_heads))
        raise ExpansionTooLarge(
            f"patterns of one layer's {spec.n_heads} heads on {len(tokens):,} tokens take {layer / 1e9:.1f} GB, over "
            f"{PATTERNS / 1e9:.0f}; pass a prompt of at most {fits:,} tokens, such as its end"
        )
    # Where they do not all fit, there is room for the one that is being made again.
    kept = None if spec.n_layers * layer <= PATTERNS else PATTERNS // layer - 1
    return run_weights(model, model.weights.to(torch.float32).load(), tokens, patterns=kept)


def _facts(recorded: Run, readout: Readout, token: int) -> dict:
    """What was asked: the tokens as they were run, where, which token, and what the model itself says of it."""
    logit, centred = readout.target.tolist()
    position = readout.position
    return {
        "tokens": recorded.tokens.tolist(),
        "token_strings": recorded.token_strings,
        "bos": recorded.bos,
        "position": position,
        "token": token,
        "token_string": token_strings(recorded.model, [token])[0],
        "logit": logit,
        "centred": centred,
        "probability": recorded.log_probabilities[position, token].exp().item(),
        "logit_cap": recorded.model.spec.logit_cap,
        "error": readout.check(),
    }


def _orders(readout: Readout) -> Rows:
    shares = readout.by_order.tolist()
    return [
        _row("order", f"order {order}", str(order), count, share)
        for order, (count, share) in enumerate(zip(readout.counts(), shares, strict=True))
    ]


def _sources(readout: Readout) -> Rows:
    """For every source its direct path, and all its paths through heads."""
    rows = []
    for name, share in readout.by_source.items():
        rows.append(_row("source", name, "0", 1, share[0].tolist()))
        if len(share) > 1:
            spec = readout.frozen.weights.spec
            longer = sum(path_counts(spec.n_layers, spec.n_heads, source_layer(name))[1:])
            rows.append(_row("source", name, _up_to(1, len(share) - 1), longer, share[1:].sum(0).tolist()))
    return rows


def _terms(readout: Readout, max_order: int, top: int) -> Rows:
    terms: TermValues = readout.terms(max_order, most=MOST_PATHS)
    best = terms.values[:, 1].abs().argsort(descending=True, stable=True)[:top].tolist()
    rows = [_row("term", terms.paths[i].name, str(terms.paths[i].order), 1, terms.values[i].tolist()) for i in best]
    by_order, counts = readout.by_order, readout.counts()
    rest = by_order[: max_order + 1].sum(0) - terms.values[best].sum(0)
    if others := len(terms.paths) - len(best):
        rows.append(_row("term", "other paths", _up_to(0, max_order), others, rest.tolist()))
    if more := sum(counts[max_order + 1 :]):
        longer = by_order[max_order + 1 :].sum(0).tolist()
        rows.append(_row("term", "longer paths", _up_to(max_order + 1, len(counts) - 1), more, longer))
    return rows


def _row(part: str, name: str, order: str, paths: int, share: Sequence[float]) -> dict:
    return {"part": part, "name": name, "order": order, "paths": float(paths), "logit": share[0], "centred": share[1]}


def _up_to(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}–{most}"


def _bounded(readout: Readout, max_order: int) -> None:
    counts = readout.counts()
    if (n := sum(counts[: max_order + 1])) > MOST_PATHS:
        fits = next(k for k in range(max_order, -1, -1) if k == 0 or sum(counts[: k + 1]) <= MOST_PATHS)
        raise ExpansionTooLarge(
            f"{n:,} paths of at most {max_order} heads are more than {MOST_PATHS:,}; pass max_order={fits} "
            f"(--max-order {fits}), which has {sum(counts[: fits + 1]):,}"
        )
