"""`Spec`: what the numbers of a checkpoint mean. Plain data, written to and read from `config.json`."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pathsum.errors import CheckpointError
from pathsum.weights.checks import MOST_LAYERS, number, one_of, truth, whole
from pathsum.weights.positions import KINDS, Positions

NormKind = Literal["none", "layer", "rms"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "silu_clamped", "identity"]


@dataclass(frozen=True)
class Attention:
    """Facts of one layer's attention that are not tensors: `score = score_scale · qᵀ k`, before cap and mask.

    Raises `CheckpointError` for a value that makes no sense. Paper: “Transformer Overview”; caps, windows, smeared keys
    and convolutions are not in its equations.

    >>> layer = pathsum.open("two-layer-small").spec.layers[0]
    >>> print(layer.positions.kind, layer.window, f"{layer.score_scale:.3f}")
    sinusoidal None 0.177
    """

    positions: Positions | None = None
    score_scale: float | int = 1.0
    """Multiplies every score; 1/√d_head in most families."""
    window: int | None = None
    """A destination sees the last `window` positions, itself included; None: all earlier ones."""
    score_cap: float | int | None = None
    """Scores become `cap · tanh(score / cap)`, before the mask."""
    smeared_keys: bool = False
    """A key is mixed with the one before it, `k_p ← σ(α) k_p + (1 − σ(α)) k_{p−1}`, one α a key/value head."""
    convolution: int | None = None
    """Queries, keys and values are mixed with those of the positions before, so many in all (Primer)."""

    def __post_init__(self) -> None:
        number("score_scale", self.score_scale)
        truth("smeared_keys", self.smeared_keys)
        if self.convolution is not None:
            whole("convolution", self.convolution, least=2)
        if self.smeared_keys and self.convolution is not None:
            raise CheckpointError("config: smeared_keys and convolution both mix keys; a layer has one of them")
        if self.window is not None:
            whole("window", self.window, least=1)
        if self.score_cap is not None:
            number("score_cap", self.score_cap, above=0)


@dataclass(frozen=True)
class Spec:
    """Shapes and facts of a model, in the field's names; `layers` has one `Attention` a layer.

    Sizes are counts: `d_vocab` tokens, `n_ctx` positions, `d_model`, `d_head` and `d_mlp` coordinates. Raises
    `CheckpointError` naming a field that is wrong or does not go with another. Paper: “Transformer Overview”.

    >>> layer = pathsum.Attention(pathsum.Rotary(d_rotary=4), score_scale=0.5)
    >>> spec = pathsum.Spec(
    ...     d_vocab=10, n_ctx=8, d_model=8, n_layers=2, n_heads=2, d_head=4, n_key_value_heads=1, layers=(layer, layer)
    ... )
    >>> print(spec.group, pathsum.Spec.from_dict(spec.to_dict()) == spec)
    2 True
    """

    d_vocab: int
    n_ctx: int
    d_model: int
    n_layers: int
    n_heads: int
    d_head: int
    n_key_value_heads: int
    layers: tuple[Attention, ...]
    d_mlp: int | None = None
    activation: Activation = "gelu"
    norm: NormKind = "none"
    norm_eps: float | int = 1e-5
    pre_norm: bool = True
    """Attention and MLP read a normed stream; False where only what they write is normed (OLMo 2)."""
    qk_norm: NormKind = "rms"
    """Kind of the norms of queries and keys, in layers that have them."""
    qk_norm_across_heads: bool = False
    """Their statistics are of all heads together (OLMo 2), not of each head."""
    n_experts: int | None = None
    """MLPs a layer chooses from, token by token; None: one MLP, always used."""
    experts_per_token: int | None = None
    """How many are chosen: those of the largest router scores, weighted by the softmax over the chosen."""
    mlp_limit: float | int | None = None
    """Where `silu_clamped` cuts off (GPT-OSS)."""
    parallel: bool = False
    """Attention and MLP of a layer read the same residual stream (GPT-J, NeoX)."""
    learned_positions: bool = False
    """`W_pos` enters the residual stream."""
    logit_cap: float | int | None = None
    bos: int | None = None
    """The beginning-of-sequence token, where the model has one."""
    prepend_bos: bool = True
    """Texts start with `bos`, unless told otherwise."""
    family: str = "pathsum"
    folded: bool = field(default=False)

    def __post_init__(self) -> None:
        for name in ("d_vocab", "n_ctx", "d_model", "n_heads", "d_head", "n_key_value_heads"):
            whole(name, getattr(self, name), least=1)
        whole("n_layers", self.n_layers, least=0, most=MOST_LAYERS)
        for name in ("d_mlp", "bos"):
            if (value := getattr(self, name)) is not None:
                whole(name, value, least=0 if name == "bos" else 1)
        one_of("norm", self.norm, get_args(NormKind))
        one_of("qk_norm", self.qk_norm, get_args(NormKind))
        one_of("activation", self.activation, get_args(Activation))
        number("norm_eps", self.norm_eps)
        if self.logit_cap is not None:
            number("logit_cap", self.logit_cap, above=0)
        for name in ("parallel", "learned_positions", "folded", "pre_norm", "qk_norm_across_heads", "prepend_bos"):
            truth(name, getattr(self, name))
        if self.qk_norm_across_heads and self.qk_norm == "layer":
            raise CheckpointError("config: qk_norm_across_heads goes with the qk_norm rms, which does not centre")
        if self.qk_norm == "layer" and any(layer.convolution is not None for layer in self.layers):
            raise CheckpointError("config: convolution goes with the qk_norm rms; one that centres cannot be folded")
        self._check_mlp()
        if len(self.layers) != self.n_layers:
            raise CheckpointError(f"config: {self.n_layers} layers, but facts for {len(self.layers)} of them")
        if self.n_heads % self.n_key_value_heads:
            raise CheckpointError(
                f"config: n_heads {self.n_heads} is no multiple of n_key_value_heads {self.n_key_value_heads}"
            )

    def _check_mlp(self) -> None:
        if (self.n_experts is None) != (self.experts_per_token is None):
            raise CheckpointError("config: n_experts and experts_per_token go together; give both or neither")
        if self.n_experts is not None and self.experts_per_token is not None:
            whole("n_experts", self.n_experts, least=1)
            whole("experts_per_token", self.experts_per_token, least=1)
            if self.experts_per_token > self.n_experts or self.d_mlp is None:
                raise CheckpointError(
                    f"config: {self.experts_per_token} of {self.n_experts} experts with d_mlp {self.d_mlp} is no MLP"
                )
        if (self.activation == "silu_clamped") != (self.mlp_limit is not None):
            raise CheckpointError("config: mlp_limit goes with the activation silu_clamped, and only with it")
        if self.mlp_limit is not None:
            number("mlp_limit", self.mlp_limit, above=0)

    @property
    def first_token(self) -> int | None:
        """What texts start with unless told otherwise; None: nothing."""
        return self.bos if self.prepend_bos else None

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self.n_heads // self.n_key_value_heads

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `from_dict` is its inverse."""
        plain = dataclasses.asdict(self)
        plain["layers"] = [_attention_to_dict(layer) for layer in self.layers]
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Spec":
        """What `to_dict` made. Raises `CheckpointError` naming the field that is unknown, missing or wrong."""
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(plain) - known):
            raise CheckpointError(f"config: unknown field {unknown[0]!r}")
        needed = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING]
        if missing := [name for name in needed if name not in plain]:
            raise CheckpointError(f"config: field {missing[0]!r} is missing")
        try:
            layers = tuple(_attention_from_dict(layer) for layer in plain.get("layers", ()))
            return cls(**{**plain, "layers": layers})
        except (TypeError, AttributeError, KeyError) as error:
            raise CheckpointError(f"config: {error}") from error


def _attention_to_dict(layer: Attention) -> dict[str, Any]:
    plain = dataclasses.asdict(layer)
    if layer.positions is not None:
        plain["positions"] = {"kind": layer.positions.kind, **dataclasses.asdict(layer.positions)}
    return plain


def _attention_from_dict(plain: dict[str, Any]) -> Attention:
    positions = plain.get("positions")
    if positions is not None:
        one_of("positions kind", positions.get("kind"), tuple(KINDS))
        fields: dict[str, Any] = {key: value for key, value in positions.items() if key != "kind"}
        fields = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
        positions = KINDS[positions["kind"]](**fields)
    return Attention(**{**plain, "positions": positions})
