"""The parts of a model: `Head`, `Mlp` and `Block` (one layer), in the paper's column convention."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.weights.norms import Norm
from pathsum.weights.positions import LearnedQK, Sinusoidal, rotation_of
from pathsum.weights.spec import Activation, Attention
from pathsum.weights.taps import smearing, through, width

Which = Literal["Q", "K", "V"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "identity": lambda x: x,
}


@dataclass(frozen=True)
class Head:
    """One attention head; its tensors are views of its layer's.

    `W_Q, W_K, W_V [d_head, d_model]`, `W_O [d_model, d_head]`, biases `[d_head]`; taps `[width, d_head]` where what it
    makes is mixed over positions.
    """

    layer: int
    index: int
    attention: Attention
    W_Q: Float[Tensor, "d_head d_model"]
    W_K: Float[Tensor, "d_head d_model"]
    W_V: Float[Tensor, "d_head d_model"]
    W_O: Float[Tensor, "d_model d_head"]
    b_Q: Float[Tensor, " d_head"] | None = None
    b_K: Float[Tensor, " d_head"] | None = None
    b_V: Float[Tensor, " d_head"] | None = None
    taps_Q: Float[Tensor, "width d_head"] | None = None
    taps_K: Float[Tensor, "width_k d_head"] | None = None
    taps_V: Float[Tensor, "width d_head"] | None = None

    @property
    def name(self) -> str:
        """As `L1H6`: layer and index, both from 0."""
        return f"L{self.layer}H{self.index}"

    @property
    def OV(self) -> LowRank:
        """`W_OV = W_O W_V`, `[d_model, d_model]` of rank d_head: what the head moves (through tap 0)."""
        return self.OV_through(0)

    def OV_through(self, tap: int) -> LowRank:
        """`W_OV(t) = W_O C_t W_V`: what it moves of the token t before the one attended to.

        Raises `NotApplicable` for a tap that the values do not have.
        """
        return LowRank(self.W_O, through(self.W_V, self.taps_V, tap))

    def QK(self, delta: float | int | None = None, taps: tuple[int, int] = (0, 0)) -> LowRank:
        """`W_QK(Δ) = W_Qᵀ R(Δ)ᵀ W_K`, query on the left; `W_Qᵀ W_K` where the layer is not rotary.

        With taps (s, t) `W_Qᵀ C_s R(Δ)ᵀ C_t W_K`: what the token s before the destination says of the one t before the
        source. Raises `NotApplicable` for a rotary layer without `delta`, or a tap that is not there.
        """
        R = rotation_of(self.attention.positions, delta, self.W_Q.shape[0])
        W_Q, W_K = through(self.W_Q, self.taps_Q, taps[0]), through(self.W_K, self.taps_K, taps[1])
        return LowRank(W_Q.mT, W_K) if R is None else LowRank(W_Q.mT, R.to(W_K).mT @ W_K)

    def width(self, which: Which) -> int:
        """Taps of its queries, keys or values; 1 where they are not mixed."""
        return width({"Q": self.taps_Q, "K": self.taps_K, "V": self.taps_V}[which])


@dataclass(frozen=True)
class Mlp:
    """`W_out φ(W_in x + b_in) + b_out`, or gated: `W_out (φ(W_gate x + b_gate) ⊙ (W_in x + b_in)) + b_out`."""

    activation: Activation
    W_in: Float[Tensor, "*expert d_mlp d_model"]
    W_out: Float[Tensor, "*expert d_model d_mlp"]
    b_in: Float[Tensor, "*expert d_mlp"] | None = None
    b_out: Float[Tensor, "*expert d_model"] | None = None
    W_gate: Float[Tensor, "*expert d_mlp d_model"] | None = None
    b_gate: Float[Tensor, "*expert d_mlp"] | None = None
    limit: float | int | None = None
    """Of `silu_clamped`."""

    def apply(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The MLP on normed residual vectors."""
        linear, limit = torch.nn.functional.linear, self.limit
        hidden = linear(x, self.W_in, self.b_in)
        if self.W_gate is None:
            return linear(ACTIVATIONS[self.activation](hidden), self.W_out, self.b_out)
        gate = linear(x, self.W_gate, self.b_gate)
        gated = clamped_gate(gate, hidden, limit) if limit is not None else ACTIVATIONS[self.activation](gate) * hidden
        return linear(gated, self.W_out, self.b_out)

    def fold(self, norm: Norm, post: Norm) -> "Mlp":
        """The same with the norm before it in its reading matrices, the one after it in `W_out`."""
        return replace(
            self,
            W_in=norm.matrix(self.W_in),
            b_in=_sum(self.b_in, norm.offset(self.W_in)),
            W_gate=None if self.W_gate is None else norm.matrix(self.W_gate),
            b_gate=self.b_gate if self.W_gate is None else _sum(self.b_gate, norm.offset(self.W_gate)),
            W_out=post.written(self.W_out),
            b_out=_written(post, self.b_out),
        )


@dataclass(frozen=True, kw_only=True)
class Experts(Mlp):
    """`Σ_e p_e MLP_e(x)` over the `chosen` experts of largest router score, p the softmax over those scores.

    The MLPs' tensors have an axis `expert` in front.
    """

    chosen: int
    W_router: Float[Tensor, "expert d_model"]
    b_router: Float[Tensor, " expert"] | None = None

    def apply(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The chosen experts' weighted sum on normed residual vectors."""
        flat = x.flatten(0, -2)
        scores, which = torch.nn.functional.linear(flat, self.W_router, self.b_router).topk(self.chosen, dim=-1)
        share = x.new_zeros(len(flat), len(self.W_router)).scatter(-1, which, scores.softmax(-1))
        out = torch.zeros_like(flat)
        for expert in which.unique().tolist():
            rows = share[:, expert].nonzero()[:, 0]
            out = out.index_add(0, rows, share[rows, expert, None] * self.expert(expert).apply(flat[rows]))
        return out.view_as(x)

    def expert(self, index: int) -> Mlp:
        """One expert's MLP, as views."""
        names = ("W_in", "W_out", "b_in", "b_out", "W_gate", "b_gate")
        own: dict[str, Any] = {name: None if (v := getattr(self, name)) is None else v[index] for name in names}
        return Mlp(self.activation, **own, limit=self.limit)

    def fold(self, norm: Norm, post: Norm) -> "Experts":
        """`Mlp.fold` of every expert, and the norm before them in the router."""
        folded: Any = super().fold(norm, post)
        return replace(
            folded,
            W_router=norm.matrix(self.W_router),
            b_router=_sum(self.b_router, norm.offset(self.W_router)),
        )


def clamped_gate(gate: Tensor, up: Tensor, limit: float | int) -> Tensor:
    """`(clamp(up) + 1) · g σ(1.702 g)`, `g = min(gate, limit)`: how GPT-OSS gates."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(1.702 * gate)


@dataclass(frozen=True)
class Block:
    """One layer: attention, and an MLP where there is one.

    `W_Q [n_heads, d_head, d_model]`, `W_K, W_V [n_key_value_heads, d_head, d_model]`, `W_O [n_heads, d_model, d_head]`.
    `W_QP, W_KP` read the positions that enter queries and keys only; they are `W_Q, W_K` until a norm is folded.
    Queries, keys and values may be mixed over positions, biases included, before the norms of queries and keys: `taps`.
    """

    layer: int
    attention: Attention
    W_Q: Float[Tensor, "head d_head d_model"]
    W_K: Float[Tensor, "kv d_head d_model"]
    W_V: Float[Tensor, "kv d_head d_model"]
    W_O: Float[Tensor, "head d_model d_head"]
    b_Q: Float[Tensor, "head d_head"] | None = None
    b_K: Float[Tensor, "kv d_head"] | None = None
    b_V: Float[Tensor, "kv d_head"] | None = None
    b_O: Float[Tensor, " d_model"] | None = None
    W_QP: Float[Tensor, "head d_head d_model"] | None = None
    W_KP: Float[Tensor, "kv d_head d_model"] | None = None
    sinks: Float[Tensor, " head"] | None = None
    """One more score per head in every row's softmax, whose share goes nowhere."""
    smear: Float[Tensor, " kv"] | None = None
    """Logit of the gate between a key and the one before it."""
    conv_Q: Float[Tensor, "head width d_head"] | None = None
    conv_K: Float[Tensor, "kv width d_head"] | None = None
    conv_V: Float[Tensor, "kv width d_head"] | None = None
    attention_norm: Norm = Norm()
    post_attention_norm: Norm = Norm()
    q_norm: Norm = Norm()
    k_norm: Norm = Norm()
    mlp: Mlp | None = None
    mlp_norm: Norm = Norm()
    post_mlp_norm: Norm = Norm()

    @property
    def n_heads(self) -> int:
        """Query heads of the layer."""
        return self.W_Q.shape[0]

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self.n_heads // self.W_K.shape[0]

    def taps(self, which: Which) -> Float[Tensor, "n width d_head"] | None:
        """How queries (one set a head), keys or values (one a key/value head) are mixed; None where they are not."""
        if which == "K" and self.smear is not None:
            return smearing(self.smear, self.W_K.shape[1])
        return {"Q": self.conv_Q, "K": self.conv_K, "V": self.conv_V}[which]

    def taps_by_head(self, which: Which) -> Float[Tensor, "head width d_head"] | None:
        """The same, one set a head."""
        taps = self.taps(which)
        return taps if taps is None or len(taps) == self.n_heads else taps.repeat_interleave(self.group, 0)

    def width(self, which: Which) -> int:
        """How many positions are mixed; 1 where none are."""
        return width(self.taps(which))

    def reader(self, which: Which, tap: int = 0) -> Float[Tensor, "n d_head d_model"]:
        """`C_t W_Q`, `C_t W_K` or `C_t W_V`: what is read of the token t before; `W_Q` … themselves without taps."""
        W = {"Q": self.W_Q, "K": self.W_K, "V": self.W_V}[which]
        return through(W, self.taps(which), tap)

    def with_values_of(self, tap: int) -> "Block":
        """The same layer where nothing but one tap of the values is there."""
        if self.conv_V is None:
            return self
        only = torch.zeros_like(self.conv_V)
        only[:, tap] = self.conv_V[:, tap]
        return replace(self, conv_V=only)

    def head(self, index: int) -> Head:
        """Head `index` as views of this layer's tensors."""
        if not 0 <= index < self.n_heads:
            raise NotApplicable(f"layer {self.layer} has heads 0 to {self.n_heads - 1}, not {index}")
        kv = index // self.group
        bias = lambda b, i: None if b is None else b[i]
        return Head(
            self.layer, index, self.attention,
            self.W_Q[index], self.W_K[kv], self.W_V[kv], self.W_O[index],
            bias(self.b_Q, index), bias(self.b_K, kv), bias(self.b_V, kv),
            bias(self.taps("Q"), index), bias(self.taps("K"), kv), bias(self.taps("V"), kv),
        )  # fmt: skip

    @property
    def heads(self) -> list[Head]:
        """All heads, as views of this layer's tensors."""
        return [self.head(index) for index in range(self.n_heads)]

    def fold(self) -> "Block":
        """The same layer with every gain, centring and bias of its norms in its matrices."""
        norm, post = self.attention_norm, self.post_attention_norm
        reads_positions = isinstance(self.attention.positions, Sinusoidal | LearnedQK)
        keep = reads_positions and norm.kind != "none" and not norm.folded
        return replace(
            self,
            W_Q=self.q_norm.written(norm.matrix(self.W_Q)),
            W_K=self.k_norm.written(norm.matrix(self.W_K)),
            W_V=norm.matrix(self.W_V),
            b_Q=_written(self.q_norm, _sum(self.b_Q, norm.offset(self.W_Q))),
            b_K=_written(self.k_norm, _sum(self.b_K, norm.offset(self.W_K))),
            b_V=_sum(self.b_V, norm.offset(self.W_V)),
            W_O=post.written(self.W_O),
            b_O=_written(post, self.b_O),
            W_QP=self.q_norm.written(self.W_Q) if keep else self.W_QP,
            W_KP=self.k_norm.written(self.W_K) if keep else self.W_KP,
            attention_norm=norm.before(), post_attention_norm=post.after(),
            q_norm=self.q_norm.after(), k_norm=self.k_norm.after(),
            mlp=None if self.mlp is None else self.mlp.fold(self.mlp_norm, self.post_mlp_norm),
            mlp_norm=self.mlp_norm.before(), post_mlp_norm=self.post_mlp_norm.after(),
        )  # fmt: skip


def map_tensors(part: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nested dataclass with every tensor changed."""
    if isinstance(part, Tensor):
        return change(part)
    if isinstance(part, tuple):
        return tuple(map_tensors(value, change) for value in part)
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = {f.name: getattr(part, f.name) for f in dataclasses.fields(part)}
        return replace(part, **{name: map_tensors(value, change) for name, value in fields.items()})
    return part


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _written(norm: Norm, bias: Tensor | None) -> Tensor | None:
    return None if bias is None else norm.written(bias[..., None])[..., 0]
