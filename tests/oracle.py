"""The slow oracle: a transformer and its expansion from their definitions, in float64, with loops and dense matrices.

Nothing here imports pathsum. A model is a `spec`, of which only attributes are read, and a dict of numpy arrays by
canonical name; everything else follows from the definitions:

1. `run` is the model, one position and one head at a time, and records what is not linear.
2. `dense_OV`, `dense_QK`, `dense_unembedding` are the `d_model × d_model` matrices with the norms' gains and centring.
3. `terms` lists every path and multiplies its matrices out; `passes` is the paper's n+1-pass procedure.
4. The readings (`composition`, `copying_score`, `prefix_matching`, …) are each the definition, on dense matrices.

Vectors are columns; a sequence of them is an array `[pos, d_model]`.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Array = np.ndarray
Tensors = dict[str, Array]


# ---- norms ----


def scale_of(kind: str, eps: float, x: Array) -> float:
    """1/σ: `1/√(mean((x − mean x)²) + ε)`, without the mean for "rms", 1 for "none"."""
    if kind == "none":
        return 1.0
    centred = x - x.mean() if kind == "layer" else x
    return 1.0 / math.sqrt(float((centred * centred).sum()) / len(x) + eps)


def norm_matrix(kind: str, gain: Array | None, width: int) -> Array:
    """`diag(γ) C` with `C = I − 11ᵀ/d` for "layer", `diag(γ)` for "rms", the identity for "none"."""
    if kind == "none":
        return np.eye(width)
    matrix = np.eye(width)
    if kind == "layer":
        matrix = matrix - np.ones((width, width)) / width
    return matrix if gain is None else np.diag(gain) @ matrix


@dataclass
class Norm:
    """`norm(x) = G x / σ(x) + β`."""

    kind: str
    eps: float
    gain: Array | None
    bias: Array

    def scale(self, x: Array) -> float:
        return scale_of(self.kind, self.eps, x)

    @property
    def matrix(self) -> Array:
        return norm_matrix(self.kind, self.gain, len(self.bias))

    def __call__(self, x: Array) -> tuple[Array, float]:
        scale = self.scale(x)
        return self.matrix @ x * scale + self.bias, scale


def norm_named(spec, tensors: Tensors, name: str, width: int) -> Norm:
    """The norm of this name. Norms after a part exist where they have a vector, those before where `pre_norm` says."""
    gain, bias = tensors.get(f"{name}.gain"), tensors.get(f"{name}.bias")
    kind = spec.norm
    if ".post_" in name and gain is None and bias is None:
        kind = "none"
    if name.endswith((".attention_norm", ".mlp_norm")) and not spec.pre_norm:
        kind = "none"
    if kind == "none" or bias is None:
        bias = np.zeros(width)
    return Norm(kind, spec.norm_eps, gain, bias)


def side_norm(spec, tensors: Tensors, layer: int, which: str, head: int) -> Norm:
    """The norm of one head's queries ("Q") or keys ("K", by key/value head); there where it has a vector."""
    name = f"L{layer}.{which.lower()}_norm"
    gain, bias = tensors.get(f"{name}.gain"), tensors.get(f"{name}.bias")
    kind = "none" if gain is None and bias is None else spec.qk_norm
    gain, bias = (v[head] if v is not None and v.ndim == 2 else v for v in (gain, bias))
    return Norm(kind, spec.norm_eps, gain, np.zeros(spec.d_head) if bias is None else bias)


# ---- positions ----


def wave(positions, p: int, d_model: int) -> Array:
    """`a sin(p / base^(2i/d))` at coordinate 2i, `a cos(…)` at 2i + 1."""
    vector = np.zeros(d_model)
    for c in range(d_model):
        angle = p / positions.base ** (2 * (c // 2) / d_model)
        vector[c] = positions.amplitude * (math.sin(angle) if c % 2 == 0 else math.cos(angle))
    return vector


def position_vector(spec, tensors: Tensors, layer: int, p: int) -> Array:
    """What the layer adds to the inputs of queries and keys at position p, after the norm."""
    positions = spec.layers[layer].positions
    kind = None if positions is None else positions.kind
    if kind == "sinusoidal":
        return wave(positions, p, spec.d_model)
    if kind == "learned_qk":
        return tensors["W_pos"][:, p]
    return np.zeros(spec.d_model)


def rotation(positions, angle_of: float, d_head: int, magnitude: float) -> Array:
    """`R(n)`: each pair turned by `n f_i`; all rotary coordinates multiplied by `magnitude`, the others kept."""
    R = np.eye(d_head)
    if positions is None or positions.kind != "rotary":
        return R
    half = positions.d_rotary // 2
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if positions.interleaved else (i, i + half)
        f = positions.base ** (-2 * i / positions.d_rotary)
        f = f if positions.frequencies is None else positions.frequencies[i]
        cos, sin = math.cos(angle_of * f), math.sin(angle_of * f)
        R[a, a], R[a, b], R[b, a], R[b, b] = cos, -sin, sin, cos
        R[[a, b]] *= magnitude
    return R


def rotation_at(spec, layer: int, p: int) -> Array:
    """The matrix applied to queries and keys at position p."""
    positions = spec.layers[layer].positions
    return rotation(positions, p, spec.d_head, getattr(positions, "magnitude", 1.0))


def score_bias(spec, layer: int, head: int, i: int, j: int) -> float:
    """ALiBi: `−slope (i − j)`."""
    positions = spec.layers[layer].positions
    return -positions.slopes[head] * (i - j) if positions is not None and positions.kind == "alibi" else 0.0


# ---- the model ----


@dataclass
class Layer:
    """What one layer did that is not linear: `pattern, scores [head, dst, src]`, scales per position."""

    pattern: Array
    scores: Array
    attention_scale: Array
    post_attention_scale: Array
    query_scale: Array
    key_scale: Array
    mlp: Array | None


@dataclass
class Recorded:
    """A run. `residuals[l]` is the stream before layer l, the last one that after all; `logits` are before any cap."""

    tokens: list[int]
    residuals: list[Array]
    layers: list[Layer]
    final_scale: Array
    logits: Array
    capped_logits: Array


def capped(x: float, cap: float | None) -> float:
    """`cap tanh(x / cap)`."""
    return x if cap is None else cap * math.tanh(x / cap)


def activation(name: str, x: float) -> float:
    match name:
        case "relu":
            return max(x, 0.0)
        case "gelu":
            return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))
        case "gelu_tanh":
            return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        case "silu":
            return x / (1 + math.exp(-x))
        case "identity":
            return x
    raise KeyError(name)


def gated(spec, gate: float, up: float) -> float:
    """`φ(gate) up`; clamped, `(up + 1) gate σ(1.702 gate)` with the gate at most the limit, the other within ±limit."""
    if spec.activation != "silu_clamped":
        return activation(spec.activation, gate) * up
    gate, up = min(gate, spec.mlp_limit), max(-spec.mlp_limit, min(up, spec.mlp_limit))
    return (up + 1) * gate / (1 + math.exp(-1.702 * gate))


def bias(tensors: Tensors, name: str, shape: tuple[int, ...]) -> Array:
    return tensors.get(name, np.zeros(shape))


def key_value_head(spec, head: int) -> int:
    """The key/value head that a query head shares."""
    return head // (spec.n_heads // spec.n_key_value_heads)


def embedded(spec, tensors: Tensors, tokens: list[int]) -> Array:
    rows = []
    for p, token in enumerate(tokens):
        x = tensors["W_E"][:, token]
        rows.append(x + tensors["W_pos"][:, p] if spec.learned_positions else x)
    return np.array(rows).reshape(len(tokens), spec.d_model)


def run(spec, tensors: Tensors, tokens) -> Recorded:
    """The model on one sequence of tokens."""
    tokens = [int(token) for token in tokens]
    x = embedded(spec, tensors, tokens)
    residuals, layers = [x], []
    for index in range(spec.n_layers):
        out, layer = attention(spec, tensors, index, x)
        if spec.d_mlp is not None:
            layer.mlp = mlp(spec, tensors, index, x if spec.parallel else x + out)
            out = out + layer.mlp
        x = x + out
        residuals.append(x)
        layers.append(layer)
    norm = norm_named(spec, tensors, "final_norm", spec.d_model)
    W_U, b_U = tensors["W_U"], bias(tensors, "b_U", (spec.d_vocab,))
    logits = np.array([W_U @ norm(row)[0] + b_U for row in x])
    final = np.array([norm.scale(row) for row in x])
    return Recorded(tokens, residuals, layers, final, logits, np.vectorize(capped)(logits, spec.logit_cap))


def before_norm(spec, tensors: Tensors, layer: int, x: Array, p: int, which: str, head: int) -> Array:
    """One head's query ("Q") or key ("K") at position p: `W (x + p) + b`."""
    b = bias(tensors, f"L{layer}.b_{which}", (head + 1, spec.d_head))[head]
    return tensors[f"L{layer}.W_{which}"][head] @ (x + position_vector(spec, tensors, layer, p)) + b


def tap_count(spec, layer: int, which: str) -> int:
    """How many positions the layer's queries ("Q"), keys ("K") or values ("V") are mixed over."""
    facts = spec.layers[layer]
    if facts.smeared_keys and which == "K":
        return 2
    return 1 if facts.convolution is None else facts.convolution


def tap(spec, tensors: Tensors, layer: int, which: str, head: int, t: int) -> Array:
    """`c_t`, one number a coordinate: what the vector t positions before is multiplied with."""
    if spec.layers[layer].smeared_keys and which == "K":
        gate = 1 / (1 + math.exp(-tensors[f"L{layer}.smear"][head]))
        return np.full(spec.d_head, gate if t == 0 else 1 - gate)
    if spec.layers[layer].convolution is None:
        return np.ones(spec.d_head)
    return tensors[f"L{layer}.conv_{which}"][head][t]


def mix(spec, tensors: Tensors, layer: int, which: str, head: int, vector_at, p: int) -> Array:
    """`Σ_t c_t ⊙ vector_at(p − t)`; there is nothing before the text."""
    total = np.zeros(spec.d_head)
    for t in range(tap_count(spec, layer, which)):
        if p - t >= 0:
            total = total + tap(spec, tensors, layer, which, head, t) * vector_at(p - t)
    return total


def mixed_before_norm(spec, tensors: Tensors, layer: int, read, p: int, which: str, head: int) -> Array:
    """One head's query or key at position p, mixed with those before; `read` is what is read by position."""
    at = lambda q: before_norm(spec, tensors, layer, read[q], q, which, head)
    return mix(spec, tensors, layer, which, head, at, p)


def projected(spec, tensors: Tensors, layer: int, read: Array, which: str, head: int) -> tuple[Array, Array]:
    """Queries ("Q") or keys ("K") of one head as they enter its scores, and the 1/σ of their norm.

    σ is of the head's own vector, or of those of all heads (all key/value heads) put after one another.
    """
    norm = side_norm(spec, tensors, layer, which, head)
    heads = range(len(tensors[f"L{layer}.W_{which}"])) if spec.qk_norm_across_heads else [head]
    vectors, scales = [], []
    for p in range(len(read)):
        measured = np.concatenate([mixed_before_norm(spec, tensors, layer, read, p, which, h) for h in heads])
        scale = norm.scale(measured)
        normed = norm.matrix @ mixed_before_norm(spec, tensors, layer, read, p, which, head) * scale + norm.bias
        vectors.append(rotation_at(spec, layer, p) @ normed)
        scales.append(scale)
    return np.array(vectors), np.array(scales)


def softmax_row(spec, tensors: Tensors, layer: int, head: int, scores: Array, i: int) -> Array:
    """Row i of a pattern: the softmax over what position i may see, and the sink where there is one."""
    facts = spec.layers[layer]
    weight, total = np.zeros(len(scores)), 0.0
    seen = [j for j in range(i + 1) if facts.window is None or i - j < facts.window]
    values = {j: capped(scores[j], facts.score_cap) for j in seen}
    top = max(values.values())
    for j in seen:
        weight[j] = math.exp(values[j] - top)
        total += weight[j]
    if f"L{layer}.sinks" in tensors:
        total += math.exp(tensors[f"L{layer}.sinks"][head] - top)
    return weight / total


def attention(spec, tensors: Tensors, layer: int, x: Array) -> tuple[Array, Layer]:
    """What the layer's heads add to the stream: `post_norm(Σ_h Σ_j A_ij W_O (W_V n_j + b_V) + b_O)`, `n = norm(x)`.

    Where values are mixed, `Σ_t c_t ⊙ (W_V n_{j−t} + b_V)` in place of `W_V n_j + b_V`.
    """
    n, H = len(x), spec.n_heads
    norm = norm_named(spec, tensors, f"L{layer}.attention_norm", spec.d_model)
    post = norm_named(spec, tensors, f"L{layer}.post_attention_norm", spec.d_model)
    read = np.array([norm(row)[0] for row in x])
    scores, pattern = np.zeros((H, n, n)), np.zeros((H, n, n))
    query_scale, key_scale = np.zeros((H, n)), np.zeros((spec.n_key_value_heads, n))
    out = np.tile(bias(tensors, f"L{layer}.b_O", (spec.d_model,)), (n, 1))
    for h in range(H):
        kv = key_value_head(spec, h)
        queries, query_scale[h] = projected(spec, tensors, layer, read, "Q", h)
        keys, key_scale[kv] = projected(spec, tensors, layer, read, "K", kv)
        W_V, W_O = tensors[f"L{layer}.W_V"][kv], tensors[f"L{layer}.W_O"][h]
        b_V = bias(tensors, f"L{layer}.b_V", (kv + 1, spec.d_head))[kv]
        for i in range(n):
            for j in range(n):
                scores[h, i, j] = spec.layers[layer].score_scale * float(queries[i] @ keys[j])
                scores[h, i, j] += score_bias(spec, layer, h, i, j)
            pattern[h, i] = softmax_row(spec, tensors, layer, h, scores[h, i], i)
            for j in range(n):
                value = mix(spec, tensors, layer, "V", kv, lambda q, W_V=W_V, b_V=b_V: W_V @ read[q] + b_V, j)
                out[i] = out[i] + pattern[h, i, j] * (W_O @ value)
    scales = np.array([norm.scale(row) for row in x])
    post_scales = np.array([post.scale(row) for row in out])
    added = np.array([post(row)[0] for row in out])
    return added, Layer(pattern, scores, scales, post_scales, query_scale, key_scale, None)


def mlp(spec, tensors: Tensors, layer: int, x: Array) -> Array:
    """What the layer's MLP adds to the stream."""
    norm = norm_named(spec, tensors, f"L{layer}.mlp_norm", spec.d_model)
    post = norm_named(spec, tensors, f"L{layer}.post_mlp_norm", spec.d_model)
    rows = []
    for row in x:
        read = norm(row)[0]
        if spec.n_experts is None:
            out = one_mlp(spec, tensors, layer, read)
        else:
            out = np.zeros(spec.d_model)
            for expert, share in routing(spec, tensors, layer, read).items():
                out = out + share * one_mlp(spec, tensors, layer, read, expert)
        rows.append(post(out)[0])
    return np.array(rows)


def routing(spec, tensors: Tensors, layer: int, read: Array) -> dict[int, float]:
    """The experts of largest score and their shares: `exp(score) / Σ exp(score)` over these alone."""
    b = bias(tensors, f"L{layer}.mlp.b_router", (spec.n_experts,))
    scores = [float(tensors[f"L{layer}.mlp.W_router"][e] @ read + b[e]) for e in range(spec.n_experts)]
    chosen = sorted(range(spec.n_experts), key=lambda e: scores[e], reverse=True)[: spec.experts_per_token]
    total = sum(math.exp(scores[e]) for e in chosen)
    return {e: math.exp(scores[e]) / total for e in chosen}


def one_mlp(spec, tensors: Tensors, layer: int, read: Array, expert: int | None = None) -> Array:
    """The layer's MLP, or one of its experts, on what it reads."""

    def part(name: str, *shape: int) -> Array:
        found = tensors.get(f"L{layer}.mlp.{name}")
        return np.zeros(shape) if found is None else found if expert is None else found[expert]

    hidden = part("W_in") @ read + part("b_in", spec.d_mlp)
    if f"L{layer}.mlp.W_gate" in tensors:
        gate = part("W_gate") @ read + part("b_gate", spec.d_mlp)
        hidden = np.array([gated(spec, g, u) for g, u in zip(gate, hidden, strict=True)])
    else:
        hidden = np.array([activation(spec.activation, h) for h in hidden])
    return part("W_out") @ hidden + part("b_out", spec.d_model)


# ---- dense matrices, norms folded by hand ----


def dense_OV(spec, tensors: Tensors, layer: int, head: int, t: int = 0) -> Array:
    """`G_post W_O C_t W_V G`, `G = diag(γ) C` of the norms, `C_t` a tap of the values (1 without any)."""
    G = norm_named(spec, tensors, f"L{layer}.attention_norm", spec.d_model).matrix
    G_post = norm_named(spec, tensors, f"L{layer}.post_attention_norm", spec.d_model).matrix
    kv = key_value_head(spec, head)
    C = np.diag(tap(spec, tensors, layer, "V", kv, t))
    return G_post @ tensors[f"L{layer}.W_O"][head] @ C @ tensors[f"L{layer}.W_V"][kv] @ G


def query_matrix(spec, tensors: Tensors, layer: int, head: int, t: int = 0) -> Array:
    """`G_q C_t W_Q G`."""
    gain = side_norm(spec, tensors, layer, "Q", head).matrix @ np.diag(tap(spec, tensors, layer, "Q", head, t))
    return gain @ tensors[f"L{layer}.W_Q"][head] @ attention_gain(spec, tensors, layer)


def key_matrix(spec, tensors: Tensors, layer: int, head: int, t: int = 0) -> Array:
    """`G_k C_t W_K G` of the key/value head that `head` uses."""
    kv = key_value_head(spec, head)
    gain = side_norm(spec, tensors, layer, "K", kv).matrix @ np.diag(tap(spec, tensors, layer, "K", kv, t))
    return gain @ tensors[f"L{layer}.W_K"][kv] @ attention_gain(spec, tensors, layer)


def attention_gain(spec, tensors: Tensors, layer: int) -> Array:
    return norm_named(spec, tensors, f"L{layer}.attention_norm", spec.d_model).matrix


def delta_rotation(spec, layer: int, delta: float) -> Array:
    """`R(Δ)ᵀ`, with the magnitude of both sides."""
    positions = spec.layers[layer].positions
    return rotation(positions, delta, spec.d_head, getattr(positions, "magnitude", 1.0) ** 2).T


def dense_QK(spec, tensors: Tensors, layer: int, head: int, delta: float = 0.0, taps: tuple = (0, 0)) -> Array:
    """`W_QK(Δ) = W_Qᵀ C_s R(Δ)ᵀ C_t W_K`, query on the left, `Δ = i − j`, through taps (s, t)."""
    Q, K = query_matrix(spec, tensors, layer, head, taps[0]), key_matrix(spec, tensors, layer, head, taps[1])
    return Q.T @ delta_rotation(spec, layer, delta) @ K


def dense_unembedding(spec, tensors: Tensors) -> Array:
    """`W_U diag(γ_f) C`."""
    return tensors["W_U"] @ norm_named(spec, tensors, "final_norm", spec.d_model).matrix


# ---- paths of a recorded run ----


@dataclass
class Path:
    """A source, then heads `(layer, head)` in strictly increasing layers; `vectors [pos, d_model]` is what arrives."""

    source: str
    heads: tuple[tuple[int, int], ...]
    vectors: Array

    @property
    def order(self) -> int:
        return len(self.heads)


@dataclass
class Term:
    """One path's part of the logits, `[pos, d_vocab]`."""

    source: str
    heads: tuple[tuple[int, int], ...]
    logits: Array

    @property
    def order(self) -> int:
        return len(self.heads)


def transport(record: Recorded, layer: int, head: int, t: int = 0) -> Array:
    """`S_post A D^t S`: how a frozen head moves vectors between positions; D takes them one further on."""
    frozen = record.layers[layer]
    D = np.eye(len(record.tokens), k=-t)
    return np.diag(frozen.post_attention_scale) @ frozen.pattern[head] @ D @ np.diag(frozen.attention_scale)


def through_head(spec, tensors: Tensors, record: Recorded, layer: int, head: int, x: Array) -> Array:
    """`Σ_t (S_post A D^t S ⊗ W_OV(t)) x` over the taps of the values; `(S_post A S ⊗ W_OV) x` without any."""
    total = np.zeros_like(x)
    for t in range(tap_count(spec, layer, "V")):
        total = total + transport(record, layer, head, t) @ x @ dense_OV(spec, tensors, layer, head, t).T
    return total


def layer_bias(spec, tensors: Tensors, record: Recorded, layer: int) -> Array:
    """What the layer adds whatever it reads: `S_post G_post (Σ_h Σ_j A_ij W_O (W_V β + b_V) + b_O) + β_post`."""
    frozen = record.layers[layer]
    beta = norm_named(spec, tensors, f"L{layer}.attention_norm", spec.d_model).bias
    post = norm_named(spec, tensors, f"L{layer}.post_attention_norm", spec.d_model)
    rows = []
    for i in range(len(record.tokens)):
        total = bias(tensors, f"L{layer}.b_O", (spec.d_model,)).copy()
        for h in range(spec.n_heads):
            kv = key_value_head(spec, h)
            plain = tensors[f"L{layer}.W_V"][kv] @ beta + bias(tensors, f"L{layer}.b_V", (kv + 1, spec.d_head))[kv]
            for j in range(len(record.tokens)):
                value = mix(spec, tensors, layer, "V", kv, lambda _, plain=plain: plain, j)
                total += frozen.pattern[h, i, j] * (tensors[f"L{layer}.W_O"][h] @ value)
        rows.append(frozen.post_attention_scale[i] * (post.matrix @ total) + post.bias)
    return np.array(rows)


def has_bias(tensors: Tensors, layer: int) -> bool:
    names = ("b_V", "b_O", "attention_norm.bias", "post_attention_norm.bias")
    return any(f"L{layer}.{name}" in tensors for name in names)


def sources(spec, tensors: Tensors, record: Recorded) -> list[tuple[str, int, Array]]:
    """`(name, the first layer that can read it, vectors [pos, d_model])`; the final bias is not in the stream.

    Names: `embed`, `pos`, `L0.bias`, `L0.mlp`.
    """
    found = [("embed", 0, np.array([tensors["W_E"][:, token] for token in record.tokens]))]
    if spec.learned_positions:
        found.append(("pos", 0, tensors["W_pos"][:, : len(record.tokens)].T))
    for layer in range(spec.n_layers):
        if has_bias(tensors, layer):
            found.append((f"L{layer}.bias", layer + 1, layer_bias(spec, tensors, record, layer)))
        if spec.d_mlp is not None:
            found.append((f"L{layer}.mlp", layer + 1, record.layers[layer].mlp))
    return found


def paths(spec, tensors: Tensors, record: Recorded, layer: int | None = None, origin: int | None = None) -> list[Path]:
    """Every path into the stream before `layer` (default: after the last); their sum is the residual there.

    `origin`: only what comes from sources at that position.
    """
    end = spec.n_layers if layer is None else layer
    found = []

    def extend(source: str, heads: tuple[tuple[int, int], ...], start: int, x: Array) -> None:
        found.append(Path(source, heads, x))
        for later in range(start, end):
            for h in range(spec.n_heads):
                out = through_head(spec, tensors, record, later, h, x)
                extend(source, (*heads, (later, h)), later + 1, out)

    for name, start, x in sources(spec, tensors, record):
        if start <= end:
            extend(name, (), start, only(x, origin))
    return found


def only(x: Array, position: int | None) -> Array:
    """`x` at that position, zero elsewhere; all of it for None."""
    if position is None:
        return x
    kept = np.zeros_like(x)
    kept[position] = x[position]
    return kept


def read_out(spec, tensors: Tensors, record: Recorded, x: Array) -> Array:
    """`S_f W_U diag(γ_f) C x`, linear in x."""
    return np.diag(record.final_scale) @ x @ dense_unembedding(spec, tensors).T


def final_bias(spec, tensors: Tensors, record: Recorded) -> Array:
    """`W_U β_f + b_U` at every position."""
    beta = norm_named(spec, tensors, "final_norm", spec.d_model).bias
    row = tensors["W_U"] @ beta + bias(tensors, "b_U", (spec.d_vocab,))
    return np.tile(row, (len(record.tokens), 1))


def terms(spec, tensors: Tensors, record: Recorded, origin: int | None = None) -> list[Term]:
    """Every path's part of the logits, and the final bias (`unembed.bias`); their sum is the logits before any cap.

    `origin`: only what comes from that position.
    """
    found = paths(spec, tensors, record, origin=origin)
    listed = [Term(p.source, p.heads, read_out(spec, tensors, record, p.vectors)) for p in found]
    if "b_U" in tensors or "final_norm.bias" in tensors:
        listed.append(Term("unembed.bias", (), only(final_bias(spec, tensors, record), origin)))
    return listed


def terms_by_order(spec, tensors: Tensors, record: Recorded) -> Array:
    """`[order, pos, d_vocab]`, the listed terms summed by their number of heads."""
    total = np.zeros((spec.n_layers + 1, *record.logits.shape))
    for term in terms(spec, tensors, record):
        total[term.order] += term.logits
    return total


# ---- the paper's n+1 passes ----


def passes(spec, tensors: Tensors, record: Recorded) -> list[list[Array]]:
    """`passes[t][l]`: the stream before layer l on pass t.

    Patterns, scales, MLP outputs and biases are those of the recorded run. On pass 0 every head's output is replaced
    by zero; on pass t by what the head put out on pass t − 1. So pass t holds the paths of order ≤ t.
    """
    zero = np.zeros_like(record.residuals[0])
    saved = {(layer, h): zero for layer in range(spec.n_layers) for h in range(spec.n_heads)}
    streams = []
    for _ in range(spec.n_layers + 1):
        x = embedded(spec, tensors, record.tokens)
        stream, outputs = [x], {}
        for layer in range(spec.n_layers):
            for h in range(spec.n_heads):
                outputs[layer, h] = through_head(spec, tensors, record, layer, h, stream[layer])
                x = x + saved[layer, h]
            x = x + layer_bias(spec, tensors, record, layer)
            if record.layers[layer].mlp is not None:
                x = x + record.layers[layer].mlp
            stream.append(x)
        saved = outputs
        streams.append(stream)
    return streams


def residuals_by_order(spec, tensors: Tensors, record: Recorded, layer: int) -> Array:
    """`[order, pos, d_model]`: the stream before `layer` split by order, as differences of passes."""
    streams = [stream[layer] for stream in passes(spec, tensors, record)]
    return np.array([streams[0], *[b - a for a, b in pairwise(streams)]])


def logits_by_order(spec, tensors: Tensors, record: Recorded) -> Array:
    """`[order, pos, d_vocab]`, by the n+1 passes; the final bias has order 0."""
    graded = residuals_by_order(spec, tensors, record, spec.n_layers)
    logits = np.array([read_out(spec, tensors, record, x) for x in graded])
    logits[0] += final_bias(spec, tensors, record)
    return logits


# ---- scores expanded ----


def linear_side(spec, tensors: Tensors, record: Recorded, layer: int, head: int, which: str, x: Array) -> Array:
    """The part of the queries ("Q") or keys ("K") that is linear in the stream's part x, all scales frozen."""
    frozen, rows = record.layers[layer], []
    matrix_of = query_matrix if which == "Q" else key_matrix
    matrices = [matrix_of(spec, tensors, layer, head, t) for t in range(tap_count(spec, layer, which))]
    scale = frozen.query_scale[head] if which == "Q" else frozen.key_scale[key_value_head(spec, head)]
    for p in range(len(x)):
        reached = [(matrix, p - t) for t, matrix in enumerate(matrices) if p - t >= 0]
        vector = sum(matrix @ x[q] * frozen.attention_scale[q] for matrix, q in reached)
        rows.append(rotation_at(spec, layer, p) @ vector * scale[p])
    return np.array(rows)


def constant_side(spec, tensors: Tensors, record: Recorded, layer: int, head: int, which: str) -> Array:
    """The part of the queries or keys that does not read the stream: `G S (W (β + p) + b) + β'` of their norm."""
    frozen, h = record.layers[layer], head if which == "Q" else key_value_head(spec, head)
    scale = (frozen.query_scale if which == "Q" else frozen.key_scale)[h]
    beta = norm_named(spec, tensors, f"L{layer}.attention_norm", spec.d_model).bias
    norm, rows = side_norm(spec, tensors, layer, which, h), []
    for p in range(len(record.tokens)):
        raw = mixed_before_norm(spec, tensors, layer, [beta] * (p + 1), p, which, h)
        rows.append(rotation_at(spec, layer, p) @ (norm.matrix @ raw * scale[p] + norm.bias))
    return np.array(rows)


def alibi_table(spec, layer: int, head: int, n: int) -> Array:
    return np.array([[score_bias(spec, layer, head, i, j) for j in range(n)] for i in range(n)])


def scores_by_order(spec, tensors: Tensors, record: Recorded, layer: int) -> Array:
    """`[query part, key part, head, dst, src]`; the sum over both parts is the scores before cap and mask.

    Parts 0 … layer are the orders of the paths; the last is what does not read the stream: biases, positions of
    queries and keys, and, where both sides are that, ALiBi.
    """
    graded = residuals_by_order(spec, tensors, record, layer)[: layer + 1]
    n = len(record.tokens)
    found = np.zeros((layer + 2, layer + 2, spec.n_heads, n, n))
    for h in range(spec.n_heads):
        sides = []
        for which in ("Q", "K"):
            moved = [linear_side(spec, tensors, record, layer, h, which, x) for x in graded]
            sides.append([*moved, constant_side(spec, tensors, record, layer, h, which)])
        for a, query in enumerate(sides[0]):
            for b, key in enumerate(sides[1]):
                found[a, b, h] = spec.layers[layer].score_scale * query @ key.T
        found[-1, -1, h] += alibi_table(spec, layer, h, n)
    return found


def score_terms(spec, tensors: Tensors, record: Recorded, layer: int, head: int) -> list[tuple[Path, Path, Array]]:
    """Every (query path, key path) of one head with its part of the scores, `[dst, src]`, before cap and mask.

    What does not read the stream is a path of its own on each side, source `constant`; ALiBi is of the pair of these.
    """
    n, into = len(record.tokens), paths(spec, tensors, record, layer)
    sides = []
    for which in ("Q", "K"):
        fixed = Path("constant", (), constant_side(spec, tensors, record, layer, head, which))
        moved = [
            Path(p.source, p.heads, linear_side(spec, tensors, record, layer, head, which, p.vectors)) for p in into
        ]
        sides.append([*moved, fixed])
    found = []
    for q in sides[0]:
        for k in sides[1]:
            part = spec.layers[layer].score_scale * q.vectors @ k.vectors.T
            if q.source == k.source == "constant":
                part = part + alibi_table(spec, layer, head, n)
            found.append((q, k, part))
    return found


def loss(logits: Array, tokens) -> float:
    """Nats per token of predicting each next token."""
    total = 0.0
    for i in range(len(tokens) - 1):
        row = logits[i] - logits[i].max()
        total += math.log(np.exp(row).sum()) - row[tokens[i + 1]]
    return total / (len(tokens) - 1)


# ---- composition ----


@dataclass
class Composition:
    """`score = ‖XY‖ / (‖X‖‖Y‖)`, beside what a random relative rotation gives."""

    score: float
    baseline: float
    ceiling: float
    z: float
    mean: float
    variance: float


def null_moments(X: Array, Y: Array) -> tuple[float, float]:
    """Mean and variance of `‖X Q Y‖²` over Haar-random orthogonal Q."""
    A, B, d = X.T @ X, Y @ Y.T, X.shape[1]
    a1, a2, b1, b2 = np.trace(A), np.trace(A @ A), np.trace(B), np.trace(B @ B)
    mean = a1 * b1 / d
    second = (a1**2 + 2 * a2) * (b1**2 + 2 * b2) / (3 * d * (d + 2))
    second += 2 * (a1**2 - a2) * (b1**2 - b2) / (3 * d * (d - 1))
    return float(mean), float(second - mean**2)


def interaction(X: Array, Y: Array) -> Composition:
    """The composition of a reader X with a writer Y: any matrices that meet in the residual stream."""
    size = np.linalg.norm(X) * np.linalg.norm(Y)
    squared = np.linalg.norm(X @ Y) ** 2
    s = np.sort(np.linalg.svd(X, compute_uv=False))[::-1]
    t = np.sort(np.linalg.svd(Y, compute_uv=False))[::-1]
    k = min(len(s), len(t))
    ceiling = math.sqrt(float(((s[:k] * t[:k]) ** 2).sum())) / size
    mean, variance = null_moments(X, Y)
    z = (squared - mean) / math.sqrt(variance) if variance > 0 else math.nan
    return Composition(math.sqrt(squared) / size, 1 / math.sqrt(X.shape[1]), ceiling, float(z), mean, variance)


def reader(spec, tensors: Tensors, kind: str, layer: int, head: int, delta: float = 0.0) -> Array:
    """What a head reads with: `W_QKᵀ` for "Q", `W_QK` for "K", `W_OV` for "V"."""
    if kind == "V":
        return dense_OV(spec, tensors, layer, head)
    QK = dense_QK(spec, tensors, layer, head, delta)
    return QK.T if kind == "Q" else QK


def composition(
    spec, tensors: Tensors, kind: str, source: tuple[int, int], destination: tuple[int, int], delta: float = 0.0
) -> Composition:
    """Of `destination` with an earlier `source`: Q `‖W_QKᵀ W_OV‖`, K `‖W_QK W_OV‖`, V `‖W_OV W_OV‖`, normalised."""
    if source[0] >= destination[0]:
        return Composition(*[math.nan] * 6)
    return interaction(reader(spec, tensors, kind, *destination, delta), dense_OV(spec, tensors, *source))


def token_metric_composition(
    spec, tensors: Tensors, kind: str, source: tuple[int, int], destination: tuple[int, int], delta: float = 0.0
) -> Composition:
    """The same in `x' = G^{-1/2} x`, `G = W_E W_Eᵀ`: `G^{1/2} W_QK G^{1/2}` and `G^{-1/2} W_OV G^{1/2}`."""
    values, vectors = np.linalg.eigh(tensors["W_E"] @ tensors["W_E"].T)
    root = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    inverse = vectors @ np.diag(1 / np.sqrt(values)) @ vectors.T
    X = reader(spec, tensors, kind, *destination, delta)
    X = inverse @ X @ root if kind == "V" else root @ X @ root
    return interaction(X, inverse @ dense_OV(spec, tensors, *source) @ root)


def erratum_score(
    spec, tensors: Tensors, kind: str, source: tuple[int, int], destination: tuple[int, int], delta: float = 0.0
) -> float:
    """The paper's first diagram: the product's first factor moved to the back inside the norm, true denominators."""
    OV = dense_OV(spec, tensors, *source)
    Q, K = query_matrix(spec, tensors, *destination), key_matrix(spec, tensors, *destination)
    R = delta_rotation(spec, destination[0], delta)
    layer, head = destination
    G_post = norm_named(spec, tensors, f"L{layer}.post_attention_norm", spec.d_model).matrix
    W_O = G_post @ tensors[f"L{layer}.W_O"][head]
    kv = key_value_head(spec, head)
    W_V = np.diag(tap(spec, tensors, layer, "V", kv, 0)) @ tensors[f"L{layer}.W_V"][kv]
    W_V = W_V @ attention_gain(spec, tensors, layer)
    shifted = {
        "Q": (lambda: R.T @ Q @ OV @ K.T),
        "K": (lambda: R @ K @ OV @ Q.T),
        "V": (lambda: W_V @ OV @ W_O),
    }[kind]()
    true = reader(spec, tensors, kind, *destination, delta)
    return float(np.linalg.norm(shifted) / (np.linalg.norm(true) * np.linalg.norm(OV)))


# ---- spectra ----


def eigenvalue_share(M: Array) -> float:
    """`Σλ / Σ|λ|`."""
    values = np.linalg.eigvals(M)
    return float(values.sum().real / np.abs(values).sum())


def ov_circuit(spec, tensors: Tensors, layer: int, head: int) -> Array:
    """`W_U W_OV W_E`: row = the output whose logit moves, column = the token attended to."""
    return dense_unembedding(spec, tensors) @ dense_OV(spec, tensors, layer, head) @ tensors["W_E"]


def qk_circuit(spec, tensors: Tensors, layer: int, head: int, delta: float = 0.0) -> Array:
    """`W_Eᵀ W_QK W_E`: row = destination, column = source."""
    return tensors["W_E"].T @ dense_QK(spec, tensors, layer, head, delta) @ tensors["W_E"]


def copying_score(spec, tensors: Tensors, layer: int, head: int) -> float:
    return eigenvalue_share(ov_circuit(spec, tensors, layer, head))


def matching_score(spec, tensors: Tensors, layer: int, head: int, delta: float = 0.0) -> float:
    return eigenvalue_share(qk_circuit(spec, tensors, layer, head, delta))


def pair_matching_score(
    spec, tensors: Tensors, source: tuple[int, int], destination: tuple[int, int], delta: float = 0.0
) -> float:
    """Of an induction pair: the eigenvalues of `W_Eᵀ W_QK W_OV W_E`."""
    QK, OV = dense_QK(spec, tensors, *destination, delta), dense_OV(spec, tensors, *source)
    return eigenvalue_share(tensors["W_E"].T @ QK @ OV @ tensors["W_E"])


def own_token_ranks(circuit: Array) -> list[int]:
    """For each token, the number of outputs with a strictly larger logit in its OV column."""
    ranks = []
    for t in range(circuit.shape[1]):
        ranks.append(sum(1 for out in range(circuit.shape[0]) if circuit[out, t] > circuit[t, t]))
    return ranks


def own_token_rank(circuit: Array) -> tuple[float, float]:
    """Mean rank as a share of d_vocab − 1, and the share of tokens of rank 0."""
    ranks = own_token_ranks(circuit)
    return sum(ranks) / len(ranks) / (circuit.shape[0] - 1), ranks.count(0) / len(ranks)


# ---- what a head does on tokens: `pattern [dst, src]` of one head ----


def prefix_matching(pattern: Array, tokens) -> float:
    """Attention summed over the tokens after all earlier copies of the row's token, mean over rows that have one."""
    rows = []
    for i in range(len(tokens)):
        copies = [j for j in range(i) if tokens[j] == tokens[i]]
        if copies:
            rows.append(sum(pattern[i, j + 1] for j in copies))
    return float(np.mean(rows)) if rows else math.nan


def start_token_rest(pattern: Array, tokens) -> float:
    """Mean attention on the first token over the rows, the first excluded, that have no earlier copy."""
    rows = [pattern[i, 0] for i in range(1, len(tokens)) if tokens[i] not in list(tokens[:i])]
    return float(np.mean(rows)) if rows else math.nan


def lag_profile(pattern: Array, lags: int = 16) -> list[float]:
    """For each lag, the mean of `A[i, i − lag]` over rows i ≥ lag; NaN where there is no such row."""
    n = len(pattern)
    return [
        sum(float(pattern[i, i - lag]) for i in range(lag, n)) / (n - lag) if lag < n else math.nan
        for lag in range(lags)
    ]


def previous_token_score(pattern: Array) -> float:
    return lag_profile(pattern, 2)[1]
