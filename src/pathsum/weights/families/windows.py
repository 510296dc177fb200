"""Sliding windows from a config: which layers slide, and how far they see."""

from collections.abc import Callable

from pathsum.errors import CheckpointError
from pathsum.weights.families.config import Config, model_shape

FULL, SLIDING = "full_attention", "sliding_attention"


def layer_kinds(config: Config, slides: Callable[[int], bool]) -> list[str]:
    """`layer_types`; where the config does not list them, the layers that `slides` picks slide."""
    n_layers = model_shape(config)["n_layers"]
    listed = config.per_layer("layer_types", n_layers)
    if listed is None:
        return [SLIDING if slides(layer) else FULL for layer in range(n_layers)]
    if unknown := [kind for kind in listed if kind not in (FULL, SLIDING)]:
        raise CheckpointError(
            f"config: layer_types has {unknown[0]!r}, which pathsum refuses: layers here are {FULL} or {SLIDING}"
        )
    return list(listed[:n_layers])


def windows(config: Config, slides: Callable[[int], bool]) -> list[int | None]:
    """Every layer's window (itself included, see `Attention`), None where it sees all earlier positions."""
    kinds = layer_kinds(config, slides)
    if SLIDING not in kinds:
        return [None] * len(kinds)
    window = config.whole("sliding_window", default=None)
    if window is None:
        raise CheckpointError(f"config: layer_types has {SLIDING}, but sliding_window is null; give both or neither")
    return [window if kind == SLIDING else None for kind in kinds]


def one_window(config: Config) -> list[int | None]:
    """The same window in every layer."""
    return [config.whole("sliding_window", default=None)] * model_shape(config)["n_layers"]
