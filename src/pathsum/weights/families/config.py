"""A checkpoint's `config.json` as a family reads it: several spellings of one field, defaults, and refusals by name."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pathsum.errors import CheckpointError
from pathsum.weights.checks import MOST, MOST_LAYERS, number, truth, whole

REQUIRED: Any = object()
MOST_WIDTH = 2**22
"""Of the residual stream and of heads, which tables are made of before any tensor is seen."""


@dataclass(frozen=True)
class Config:
    """Fields by name; those left out are the family's defaults, and `null` is no value, not the default.

    Two spellings of one field that disagree are an error.
    """

    plain: dict[str, Any]
    defaults: dict[str, Any] = field(default_factory=dict)
    """What the family's reference implementation takes for fields that are left out."""

    def get(self, *names: str, default: Any = REQUIRED) -> Any:
        """The field under the first of these spellings that is there."""
        found = {name: self.plain[name] for name in names if self.plain.get(name) is not None}
        if not found:
            left_out = [name for name in names if name not in self.plain]
            known = [self.defaults[name] for name in left_out if self.defaults.get(name) is not None]
            if known:
                return known[0]
            if default is REQUIRED:
                raise CheckpointError(f"config: field {' or '.join(map(repr, names))} is missing")
            return default
        first = next(iter(found))
        for name, value in found.items():
            if value != found[first]:
                raise CheckpointError(
                    f"config: {first} is {found[first]!r} but {name}, another name for it, is {value!r}; remove one"
                )
        return found[first]

    def whole(self, *names: str, default: Any = REQUIRED, least: int = 1, most: int = MOST) -> Any:
        """A whole number from `least` to `most`."""
        return self._checked(whole, names, default, least, most)

    def number(self, *names: str, default: Any = REQUIRED) -> Any:
        """A finite number."""
        return self._checked(number, names, default)

    def truth(self, *names: str, default: Any = REQUIRED) -> Any:
        """True or false."""
        return self._checked(truth, names, default)

    def part(self, name: str) -> "Config":
        """A JSON object inside this one; empty where it is absent."""
        inner = self.get(name, default={})
        if not isinstance(inner, dict):
            raise CheckpointError(f"config: {name} is {inner!r}, must be a JSON object")
        return Config(inner)

    def only(self, name: str, *allowed: Any, why: str) -> None:
        """Refuses the checkpoint where `name` is there with a value that is not allowed (absent and null are)."""
        value = self.plain.get(name)
        if value is not None and value not in allowed:
            raise CheckpointError(f"config: {name} is {value!r}, which pathsum refuses: {why}")

    def choice(self, *names: str, among: dict[str, Any], default: Any = REQUIRED) -> Any:
        """What the field's word stands for. Raises `CheckpointError` naming a word that is not known."""
        word = self.get(*names, default=default)
        if word is default:
            return default
        if not isinstance(word, str) or word not in among:
            raise CheckpointError(f"config: {names[0]} {word!r} is not one of {', '.join(among)}")
        return among[word]

    def per_layer(self, name: str, n_layers: int) -> Sequence[Any] | None:
        """A list with one entry a layer, or None where the field is absent."""
        value = self.get(name, default=None)
        if value is not None and (not isinstance(value, list) or len(value) < n_layers):
            raise CheckpointError(f"config: {name} must be a list of {n_layers} entries, one a layer, not {value!r}")
        return value

    def _checked(self, check: Any, names: tuple[str, ...], default: Any, *limits: Any) -> Any:
        value = self.get(*names, default=default)
        if value is not default:
            check(names[0], value, *limits)
        return value


ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu", "silu": "silu", "swish": "silu", "linear": "identity",
}  # fmt: skip
"""Names of activations in configs → ours. `gelu_fast` and `gelu_new` are the tanh form with other roundings."""


def model_shape(config: Config) -> dict[str, Any]:
    """The sizes every family has, under the names they usually go by."""
    d_model = config.whole("hidden_size", "n_embd", "n_embed", "d_model", most=MOST_WIDTH)
    n_heads = config.whole("num_attention_heads", "n_head", "num_heads", most=MOST_WIDTH)
    d_head = config.whole("head_dim", default=None, most=MOST_WIDTH)
    if d_head is None and d_model % n_heads:
        raise CheckpointError(f"config: hidden_size {d_model} is no multiple of {n_heads} heads; give head_dim")
    return {
        "d_vocab": config.whole("vocab_size"),
        "n_ctx": config.whole("max_position_embeddings", "n_positions", "seq_length"),
        "d_model": d_model,
        "n_layers": config.whole("num_hidden_layers", "n_layer", "num_layers", least=0, most=MOST_LAYERS),
        "n_heads": n_heads,
        "d_head": d_model // n_heads if d_head is None else d_head,
        "n_key_value_heads": config.whole("num_key_value_heads", default=n_heads),
    }


def bos_of(config: Config) -> int | None:
    """The beginning-of-sequence token's id; None where there is none (or several)."""
    bos = config.get("bos_token_id", default=None)
    return bos if isinstance(bos, int) and not isinstance(bos, bool) and 0 <= bos < config.whole("vocab_size") else None
