"""SmolLM 3: Llama in which every fourth layer rotates nothing (and may slide)."""

from dataclasses import replace

from pathsum.errors import CheckpointError
from pathsum.weights.families.config import Config, model_shape
from pathsum.weights.families.family import Family
from pathsum.weights.families.llama import attentions, llama_spec, llama_table
from pathsum.weights.families.windows import windows
from pathsum.weights.spec import Spec


def smollm3_spec(config: Config) -> Spec:
    rotates = _rotates(config)
    slide = config.truth("use_sliding_window") and config.get("sliding_window", default=None) is not None
    layers = attentions(config, windows(config, lambda layer: slide and not rotates[layer]))
    still = tuple(
        layer if turning else replace(layer, positions=None) for layer, turning in zip(layers, rotates, strict=True)
    )
    return llama_spec(config, "smollm3", still)


def _rotates(config: Config) -> list[bool]:
    """`no_rope_layers` has a 1 for layers that rotate; without it, all but every `no_rope_layer_interval`-th do."""
    n_layers = model_shape(config)["n_layers"]
    listed = config.per_layer("no_rope_layers", n_layers)
    if listed is not None:
        if unknown := [entry for entry in listed if entry not in (0, 1)]:
            raise CheckpointError(f"config: no_rope_layers has {unknown[0]!r}; entries are 1 (rotates) or 0 (does not)")
        return [bool(entry) for entry in listed[:n_layers]]
    interval = config.whole("no_rope_layer_interval")
    return [(layer + 1) % interval != 0 for layer in range(n_layers)]


SMOLLM3 = Family(
    "smollm3",
    spec=smollm3_spec,
    tensors=llama_table,
    defaults={
        "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 4, "hidden_act": "silu", "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "bos_token_id": 128000, "rope_theta": 2_000_000.0, "use_sliding_window": False,
        "no_rope_layer_interval": 4, "tie_word_embeddings": True,
    },
    prefixes=("model.",),
)  # fmt: skip
