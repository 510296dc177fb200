"""Metadata under `{architecture}.`: read with its type checked, and refused by name where it would be ignored."""

from dataclasses import dataclass
from typing import Any

from pathsum.errors import CheckpointError, UnsupportedFamily
from pathsum.weights.checks import number, truth, whole

COMMON = frozenset({
    "context_length", "embedding_length", "block_count", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.value_length", "rope.dimension_count",
})  # fmt: skip
ROTARY = frozenset({
    "rope.freq_base", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor",
    "rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_attn_factor",
})  # fmt: skip
HARMLESS = frozenset({
    # The tensors' own shapes say these, and every shape is checked.
    "vocab_size", "feed_forward_length", "expert_feed_forward_length", "expert_count",
    # How the file was made, and what only matters to those who train or embed with it.
    "tensor_data_layout", "rope.scaling.finetuned", "rope.scaling.original_context_length", "pooling_type",
    # Of the kind of norm the architecture does not have (the other one is read).
    "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon",
})  # fmt: skip
OFF: dict[str, tuple[Any, ...]] = {
    "attention.causal": (True,), "attention.sliding_window": (0,), "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,), "attention.scale": (0,), "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,), "logit_scale": (0, 1), "residual_scale": (0, 1), "embedding_scale": (0, 1),
    "expert_used_count": (0,), "expert_shared_count": (0,), "expert_shared_feed_forward_length": (0,),
    "expert_weights_norm": (True,), "expert_weights_scale": (0, 1), "expert_gating_func": (1,),
    "expert_group_count": (0, 1), "expert_group_used_count": (0, 1), "leading_dense_block_count": (0,),
    "nextn_predict_layers": (0,), "rope.scaling.yarn_ext_factor": (-1, 1), "rope.scaling.yarn_log_multiplier": (0,),
    "rope.scaling.alpha": (0,),
}  # fmt: skip
"""Keys an architecture may leave unread while they have one of these values, which change nothing."""


@dataclass(frozen=True)
class Keys:
    """The metadata of one architecture. Only keys in `known` can be read, so that none is read without being listed."""

    metadata: dict[str, Any]
    architecture: str
    known: frozenset[str]

    def refuse_unread(self) -> None:
        """Raises `UnsupportedFamily` naming a key that could change the numbers and is not read."""
        prefix = f"{self.architecture}."
        for full, value in self.metadata.items():
            key = full.removeprefix(prefix)
            if key == full or key in self.known or key in HARMLESS or value in OFF.get(key, ()):
                continue
            raise UnsupportedFamily(
                f"metadata key {full} = {_short(value)} is not known here and may change the numbers"
            )

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number; a list (one a layer) counts when all its entries are equal."""
        value = self._value(key, default)
        if isinstance(value, list) and value and all(one == value[0] for one in value):
            return self._whole(key, value[0], least)
        return self._whole(key, value, least)

    def _whole(self, key: str, value: Any, least: int) -> int:
        whole(self._full(key), value, least)
        return value

    def number(self, key: str, default: float | int | None = None) -> float:
        value = self._value(key, default)
        number(self._full(key), value)
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._value(key, default)
        truth(self._full(key), value)
        return value

    def text(self, key: str, default: str) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise CheckpointError(f"metadata key {self._full(key)} is {_short(value)}, must be a text")
        return value

    def raw(self, key: str) -> Any:
        """The value as it is, None where the file has none."""
        if key not in self.known:
            raise KeyError(key)
        return self.metadata.get(self._full(key))

    def _value(self, key: str, default: Any) -> Any:
        value = default if (found := self.raw(key)) is None else found
        if value is None:
            raise CheckpointError(f"metadata key {self._full(key)} is missing; the file is no whole model")
        return value

    def _full(self, key: str) -> str:
        return f"{self.architecture}.{key}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
