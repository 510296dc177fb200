"""`describe`: what a model is made of, what an expansion of it freezes, and where a reading of it stops.

Everything is counted from the spec and the names of the tensors: no weights are read, whatever their size.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pathsum.paths.paths import path_counts
from pathsum.study.reading import Rows
from pathsum.study.subject import Subject
from pathsum.weights.positions import Alibi, LearnedQK, Positions, Rotary
from pathsum.weights.shapes import shapes
from pathsum.weights.spec import Spec
from pathsum.weights.weights import Weights

ORDERS = 4
"""Orders of paths counted apart; longer ones are one row."""
Fact = tuple[str, str, float | int | None, str]
"""Group, name, number, words."""


def describe(subject: Subject) -> Rows:
    """Parameters by part, shapes, sizes of expanded circuits, path counts, what is frozen, and where readings stop.

    Counted from the config and the names of the tensors; no weights are read.
    """
    spec, sizes = subject.model.spec, tensor_sizes(subject.model.weights)
    facts = [
        *_parameters(spec, sizes, is_tied(subject.model.weights)),
        *_shape(spec),
        *_circuits(spec),
        *_paths("paths from the embedding", path_counts(spec.n_layers, spec.n_heads)),
        *_attention(spec, sizes),
        *_frozen(spec, sizes),
        *_limits(spec, sizes, is_tied(subject.model.weights)),
    ]
    return [
        {"group": group, "name": name, "value": None if value is None else float(value), "note": note}
        for group, name, value, note in facts
    ]


def tensor_sizes(weights: Weights) -> dict[str, int]:
    """How many numbers every tensor has, by canonical name; of weights on disk without reading them."""
    stored, known = weights.stored, shapes(weights.spec)
    if stored is None:
        return {name: tensor.numel() for name, tensor in weights.tensors().items()}
    return {name: _size(stored, name, known[name]) for name in stored}


def is_tied(weights: Weights) -> bool:
    """Embedding and unembedding are made of one tensor of the checkpoint."""
    origin = getattr(weights.stored, "origin", None)
    return origin is not None and origin("W_E") == origin("W_U")


def _size(stored: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> int:
    """Norms of queries and keys have one vector for all heads or one a head: only the tensor, a small one, tells."""
    return stored[name].numel() if ".q_norm." in name or ".k_norm." in name else math.prod(shape)


def _parameters(spec: Spec, sizes: Mapping[str, int], tied: bool) -> Iterator[Fact]:
    parts: Counter[str] = Counter()
    for name, size in sizes.items():
        if not (tied and name == "W_U"):
            parts[_part(name, spec)] += size
    order = ("embedding", "positions", "attention", "MLP", "experts", "router", "norms", "unembedding")
    notes = {"unembedding": "the embedding's, counted there"} if tied else {}
    for part in order:
        if parts[part] or part in notes:
            yield "parameters", part, parts[part] or None, notes.get(part, "")
    total = sum(parts.values())
    yield "parameters", "total", total, ""
    if spec.n_experts is not None and spec.experts_per_token is not None:
        idle = parts["experts"] * (spec.n_experts - spec.experts_per_token) // spec.n_experts
        yield "parameters", "used by a token", total - idle, f"{spec.experts_per_token} of {spec.n_experts} experts"


def _part(name: str, spec: Spec) -> str:
    if "norm." in name:
        return "norms"
    if "router" in name:
        return "router"
    if name.startswith("L"):
        return "attention" if ".mlp." not in name else "MLP" if spec.n_experts is None else "experts"
    return {"W_E": "embedding", "W_pos": "positions"}.get(name, "unembedding")


def _shape(spec: Spec) -> Iterator[Fact]:
    names = ("n_layers", "n_heads", "n_key_value_heads", "d_model", "d_head", "d_mlp", "n_experts", "d_vocab", "n_ctx")
    for name in names:
        if (value := getattr(spec, name)) is not None:
            yield "shape", name, value, ""


def _circuits(spec: Spec) -> Iterator[Fact]:
    heads, entries = spec.n_layers * spec.n_heads, spec.d_vocab**2
    if heads:
        yield "circuits", "rank of a head's QK and OV", min(spec.d_head, spec.d_model), "at most"
    yield "circuits", "entries of one over tokens", entries, f"d_vocab²: {_bytes(4 * entries)} in float32, never formed"
    if heads:
        yield "circuits", "entries of all, QK and OV", 2 * heads * entries, _bytes(8 * heads * entries)
    if spec.d_mlp is not None and spec.n_layers:
        added = spec.d_mlp * (spec.n_experts or 1) / spec.d_model
        for layer in sorted({1, spec.n_layers // 2, spec.n_layers} - {0}):
            where = "the unembedding" if layer == spec.n_layers else f"layer {layer}"
            note = "how many write into each dimension" if layer == 1 else ""
            yield "bottleneck: neurons / d_model", f"before {where}", added * layer, note


def _paths(group: str, counts: list[int]) -> Iterator[Fact]:
    apart = counts if len(counts) <= ORDERS + 2 else counts[: ORDERS + 1]
    for order, count in enumerate(apart):
        yield group, f"order {order}", count, ""
    if rest := counts[len(apart) :]:
        yield group, f"orders {len(apart)} to {len(counts) - 1}", sum(rest), ""
    yield group, "total", sum(counts), "every later source adds its own"


def _attention(spec: Spec, sizes: Mapping[str, int]) -> Iterator[Fact]:
    """Kinds of attention with the number of their layers."""
    if spec.learned_positions:
        yield "attention", "learned positions", None, "in the residual stream: the source pos"
    for name, count in Counter(_positions(layer.positions, spec) for layer in spec.layers).items():
        yield "attention", name[0], count, f"{_layers(count, spec)}{name[1]}"
    if spec.group > 1:
        yield "attention", "heads per key/value head", spec.group, "each with queries of its own"
    for window, count in Counter(layer.window for layer in spec.layers).items():
        if window is not None:
            yield "attention", "window", window, f"tokens, itself included; {_layers(count, spec)}".rstrip("; ")
    smeared = sum(layer.smeared_keys for layer in spec.layers)
    if smeared:
        yield "attention", "smeared keys", smeared, f"{_layers(smeared, spec)}each mixed with the one before"
    for width, count in Counter(layer.convolution for layer in spec.layers).items():
        if width is not None:
            yield "attention", "convolution", width, f"{_layers(count, spec)}of queries, keys and values"
    for tensor, part, words in (
        ("sinks", "sinks", "a share of every row goes nowhere"),
        ("q_norm.gain", "q/k-norm", "queries and keys are normed"),
    ):
        if layers := _having(sizes, tensor):
            yield "attention", part, layers, words


def _positions(positions: Positions | None, spec: Spec) -> tuple[str, str]:
    if isinstance(positions, Rotary):
        how = "scaled frequencies" if positions.frequencies is not None else f"base {positions.base:,.0f}"
        pairs = ", interleaved" if positions.interleaved else ""
        return "rotary", f"{positions.d_rotary} of {spec.d_head} coordinates, {how}{pairs}"
    if isinstance(positions, Alibi):
        return "ALiBi", "a bias on the scores"
    if positions is None:
        return "no positions of its own", ""
    kind = "learned" if isinstance(positions, LearnedQK) else "sinusoidal"
    return f"{kind} positions", "added where queries and keys read"


def _layers(count: int, spec: Spec) -> str:
    return "" if count == spec.n_layers else f"{count} of {spec.n_layers} layers; "


def _frozen(spec: Spec, sizes: Mapping[str, int]) -> Iterator[Fact]:
    """What an expansion takes from the run as it was: given these the model is linear in its sources."""
    if spec.n_layers:
        yield "frozen in an expansion", "attention patterns", spec.n_layers * spec.n_heads, "one a head"
    if norms := _norms(spec, sizes):
        yield "frozen in an expansion", "norm scales 1/σ", norms, "a number a position each"
    if spec.d_mlp is not None and spec.n_layers:
        kind = "MLP outputs" if spec.n_experts is None else "outputs of experts"
        yield "frozen in an expansion", kind, spec.n_layers, "sources of their own, not expanded"


def _norms(spec: Spec, sizes: Mapping[str, int]) -> int:
    """Norms whose scale enters an expansion of logits: before attention, after it, and the last one."""
    if spec.norm == "none":
        return 0
    before = spec.n_layers if spec.pre_norm else _having(sizes, "attention_norm.gain")
    return before + _having(sizes, "post_attention_norm.gain") + 1


def _limits(spec: Spec, sizes: Mapping[str, int], tied: bool) -> Iterator[Fact]:
    """Where a reading stops, or is approximate, or needs to be told more."""
    rotary = sum(isinstance(layer.positions, Rotary) for layer in spec.layers)
    if rotary:
        yield "limits", "layers with W_QK(Δ)", rotary, "QK readings need a distance: delta= (--delta)"
    if _having(sizes, "q_norm.gain"):
        yield "limits", "QK from weights alone", None, "approximate: 1/σ of queries and keys differs by token"
    mixing = sum(layer.smeared_keys or layer.convolution is not None for layer in spec.layers)
    if mixing:
        yield "limits", "layers with taps", mixing, "weight-only readings are of tap 0; taps has the others"
    caps = Counter(layer.score_cap for layer in spec.layers if layer.score_cap is not None)
    for cap, count in caps.items():
        yield (
            "limits",
            "soft-cap of scores",
            cap,
            f"their expansion stops before it; {_layers(count, spec)}".rstrip("; "),
        )
    if spec.logit_cap is not None:
        yield "limits", "soft-cap of logits", spec.logit_cap, "expansions sum to the logits before it"
    if spec.d_mlp is not None and spec.n_layers:
        yield "limits", "MLPs are not expanded", spec.n_layers, "each is a source; weight-only readings leave them out"
    if spec.norm == "layer" or tied:
        why = " and ".join([*(["centring"] if spec.norm == "layer" else []), *(["tied embeddings"] if tied else [])])
        yield "limits", "change of basis", None, f"{why} leave fewer changes of basis free"


def _having(sizes: Iterable[str], part: str) -> int:
    """Layers with a tensor of this name."""
    return sum(name.endswith(f".{part}") for name in sizes)


def _bytes(number: float | int) -> str:
    """`9.7 GB`."""
    power = 0 if number < 1 else min(int(math.log10(number) // 3), 8)
    return f"{number / 1000**power:,.3g} {('B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB', 'ZB', 'YB')[power]}"
