"""`Recipe`: everything that decides a trained model, besides its text; and the named ones."""

import dataclasses
import difflib
import math
from dataclasses import dataclass
from typing import Any, get_args

from pathsum.errors import TrainingError
from pathsum.weights.positions import Sinusoidal
from pathsum.weights.spec import Attention, NormKind, Spec


@dataclass(frozen=True)
class Recipe:
    """A model, attention-only unless `d_mlp` is given, and how to train it. No biases.

    Sinusoidal positions enter queries and keys only.

    Tokens seen: `steps · batch · context`.
    """

    name: str
    layers: int
    heads: int = 12
    d_model: int = 384
    d_head: int = 32
    vocab: int = 2048
    d_mlp: int = 0
    """Hidden units of each layer's MLP, `W_out gelu(W_in x)`; 0: no MLPs."""
    context: int = 256
    norm: NormKind = "none"
    amplitude_first: float = 3.0
    """Of the position waves in the first layer: large, so that heads that look a fixed way back form."""
    amplitude_later: float = 0.5
    """In later layers: small, since positions would drown the content that induction heads match."""
    steps: int = 1000
    batch: int = 16
    """Sequences a step, over all devices."""
    tiled: float = 0.0
    """Share of the sequences that are a short stretch of text repeated to the context's length."""
    warm_up: int = 40
    """Steps in which learning rates rise linearly from 0."""
    decay: float = 0.4
    """Share of the steps, at the end, in which they fall linearly to 0."""
    rate_heads: float = 0.02
    """Learning rate of Muon, for the matrices of heads and MLPs."""
    rate_ends: float = 3e-3
    """Learning rate of AdamW, for embedding, unembedding and gains."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    query_key_start: float = 0.2
    """Shrinks W_Q and W_K at the start: attention begins nearly uniform."""
    smeared_keys: bool = False
    """Each key is mixed with the one before it, by a gate a head that is trained."""
    smear_start: float = -1.5
    """The gate's logit at the start: σ of it is the share of the key's own position."""
    rate_smear: float = 0.03
    """Learning rate of AdamW for the gates."""
    convolution: int = 0
    """Queries, keys and values are mixed with those of so many positions, themselves included; 0: not."""
    held_out: float = 0.02
    """Share of the documents kept for validation."""
    seed: int = 0

    def spec(self) -> Spec:
        """The model's shapes and facts."""
        mixing: dict[str, Any] = {"smeared_keys": self.smeared_keys, "convolution": self.convolution or None}
        amplitudes = [self.amplitude_first] + [self.amplitude_later] * (self.layers - 1)
        facts = tuple(
            Attention(Sinusoidal(amplitude), score_scale=1 / math.sqrt(self.d_head), **mixing)
            for amplitude in amplitudes[: self.layers]
        )
        return Spec(
            d_vocab=self.vocab, n_ctx=self.context, d_model=self.d_model, n_layers=self.layers, n_heads=self.heads,
            d_head=self.d_head, n_key_value_heads=self.heads, layers=facts, norm=self.norm,
            d_mlp=self.d_mlp or None,
        )  # fmt: skip

    def rate(self, step: int) -> float:
        """What learning rates are multiplied with at `step` (the first is 0)."""
        rising = (step + 1) / self.warm_up if self.warm_up else 1.0
        falling = (self.steps - step) / (self.decay * self.steps) if self.decay else 1.0
        return min(1.0, rising, falling)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("zero-layer", layers=0, steps=2000),
        Recipe("one-layer", layers=1, amplitude_first=0.5, steps=2000),
        Recipe(
            "one-layer-smeared-small", layers=1, heads=4, d_model=128, vocab=1024, amplitude_first=0.2, steps=1200,
            smeared_keys=True,
        ),
        Recipe(
            "one-layer-convolution-small", layers=1, heads=4, d_model=128, vocab=1024, amplitude_first=0.5, steps=1200,
            convolution=3,
        ),
        Recipe("two-layer", layers=2, steps=2400),
        Recipe("two-layer-small", layers=2, heads=4, d_model=128, vocab=1024),
        Recipe(
            "paper-two-layer", layers=2, d_model=768, d_head=64, vocab=50_257, context=2048, batch=64, steps=76_000,
            warm_up=2000,
        ),
        Recipe("two-layer-mlp-small", layers=2, heads=4, d_model=128, vocab=1024, d_mlp=512),
    )
}  # fmt: skip

AT_LEAST = {
    "seed": 0,
    "layers": 0,
    "heads": 1,
    "d_model": 1,
    "d_head": 1,
    "d_mlp": 0,
    "convolution": 0,
    "vocab": 257,
    "context": 12,
    "steps": 1,
    "batch": 1,
    "warm_up": 0,
}
SHARES = ("tiled", "decay", "held_out")


def recipe(name: str, **changes: Any) -> Recipe:
    """The named recipe with some fields changed; a field given as None stays as it is.

    Raises `TrainingError` for a name that is not known (suggesting the nearest) or a value out of range.

    >>> recipe("two-layer", layers=3, seed=1).layers
    3
    """
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise TrainingError(f"no recipe {name!r}: {hint}recipes are {', '.join(RECIPES)}")
    given = {field: value for field, value in changes.items() if value is not None}
    _check(given)
    chosen = dataclasses.replace(RECIPES[name], **given)
    if chosen.d_mlp and not chosen.layers:
        raise TrainingError(f"d_mlp is {chosen.d_mlp}, but without layers there are no MLPs; give layers, or d_mlp 0")
    if chosen.convolution and chosen.smeared_keys:
        raise TrainingError("smeared keys and a convolution both mix keys; train with one of them")
    return chosen


def _check(given: dict[str, Any]) -> None:
    for field, value in given.items():
        if field in AT_LEAST and not isinstance(value, int):
            raise TrainingError(f"{field} is {value!r}, must be a whole number")
        if field in AT_LEAST and value < AT_LEAST[field]:
            raise TrainingError(f"{field} is {value}, must be at least {AT_LEAST[field]}")
        if field == "held_out" and value == 0:
            raise TrainingError("held_out is 0, but the loss is measured on held-out text: give it a share")
        if field in SHARES and not 0 <= value <= 1:
            raise TrainingError(f"{field} is {value}, must be from 0 to 1")
        if field == "convolution" and value == 1:
            raise TrainingError("convolution is 1, which mixes nothing; give at least 2 positions, or 0 for none")
        if field == "norm" and value not in get_args(NormKind):
            raise TrainingError(f"norm is {value!r}, must be one of {', '.join(get_args(NormKind))}")
