"""The architectures a GGUF can be of: what its metadata means, and how its tensors map to ours.

Each is a table; what differs by more than a value is one function of `layers`. A file holds what llama.cpp's converter
wrote: rows of queries and keys permuted where its runtime rotates neighbouring coordinates ("permuted"), fused
projections as queries, keys, values, Gemma's gains with their 1 already added.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pathsum.errors import UnsupportedFamily
from pathsum.weights.gguf import layers
from pathsum.weights.gguf.keys import COMMON, ROTARY, Keys
from pathsum.weights.gguf.rotary import FREQS, LONG, SHORT
from pathsum.weights.gguf.source import Source
from pathsum.weights.spec import Activation, Attention, NormKind

RMS, LAYER = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
WINDOW = {"attention.sliding_window", "attention.sliding_window_pattern"}
EXPERTS = {"expert_count", "expert_used_count"}
POST = {"post_attention_norm": ("post_attention_norm",), "post_mlp_norm": ("post_ffw_norm",)}


@dataclass(frozen=True)
class Architecture:
    """Facts no file states. `norms` names the file's norms, first match first, for each of ours."""

    layers: Callable[[Source], tuple[Attention, ...]]
    keys: frozenset[str] = frozenset()
    """Metadata read besides what every architecture has."""
    norm: NormKind = "rms"
    activation: Activation = "silu"
    gate: Literal["none", "own", "fused"] = "own"
    permuted: bool = False
    norms: tuple[tuple[str, tuple[str, ...]], ...] = (("attention_norm", ("attn_norm",)), ("mlp_norm", ("ffn_norm",)))
    shared_norm: bool = False
    """The MLP reads what attention reads, where they are parallel."""
    qk_norm: NormKind | None = None
    qk_norm_across_heads: bool = False
    qk_norm_optional: bool = False
    parallel: Literal["never", "always", "key"] = "never"
    pre_norm: bool = True
    learned_positions: bool = False
    embedding_norm: bool = False
    root_scaled_embedding: bool = False
    """Embeddings are multiplied by √d_model when they are used."""
    sinks: bool = False
    mlp_limit: float | int | None = None
    final_cap: float | int | None = None
    """What the logits are capped at where the file does not say, 0 for no cap; None: such a key is not known."""
    factors: tuple[str, ...] = ()
    """Tensors that divide rotary frequencies; `layers` reads them."""
    n_ctx: Callable[[Source], int] = lambda source: source.sizes.n_ctx

    @property
    def known(self) -> frozenset[str]:
        """Every metadata key that is read."""
        cap = set() if self.final_cap is None else {"final_logit_softcapping"}
        parallel = {"use_parallel_residual"} if self.parallel == "key" else set()
        return COMMON | ROTARY | self.keys | {RMS if self.norm == "rms" else LAYER} | cap | parallel


def norms(**named: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(named.items())


BOTH = {"attention_norm": ("attn_norm",), "mlp_norm": ("ffn_norm",)}
SCALES = {"attention.scale", "embedding_scale", "residual_scale", "logit_scale", "rope.scaling.finetuned"}

ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(layers.llama_rotary, frozenset(EXPERTS), permuted=True, factors=(FREQS,)),
    "smollm3": Architecture(layers.smollm3, permuted=True, factors=(FREQS,)),
    "granite": Architecture(layers.granite, frozenset(SCALES), permuted=True, factors=(FREQS,)),
    "qwen2": Architecture(layers.rotary),
    "qwen3": Architecture(layers.rotary, qk_norm="rms"),
    "phi3": Architecture(
        layers.phi3, frozenset({"attention.sliding_window"}), gate="fused", factors=(LONG, SHORT),
        n_ctx=layers.phi3_context,
    ),
    "gemma": Architecture(layers.rotary, activation="gelu_tanh", root_scaled_embedding=True),
    "gemma2": Architecture(
        layers.gemma2, frozenset(WINDOW | {"rope.freq_base_swa", "attn_logit_softcapping"}),
        activation="gelu_tanh", root_scaled_embedding=True, norms=norms(**BOTH, **POST), final_cap=30,
    ),
    "gemma3": Architecture(
        layers.gemma3, frozenset(WINDOW | {"rope.freq_base_swa"}),
        activation="gelu_tanh", root_scaled_embedding=True, norms=norms(**BOTH, **POST), qk_norm="rms", final_cap=0,
    ),
    "olmo2": Architecture(
        layers.olmo2, frozenset(WINDOW | {"rope.freq_base_swa"}), norms=norms(**POST), pre_norm=False,
        qk_norm="rms", qk_norm_across_heads=True,
    ),
    "gpt-oss": Architecture(
        layers.gpt_oss, frozenset(EXPERTS | WINDOW), activation="silu_clamped", mlp_limit=7.0, sinks=True,
        norms=norms(attention_norm=("attn_norm",), mlp_norm=("post_attention_norm",)),
    ),
    "gpt2": Architecture(
        layers.without_positions, norm="layer", activation="gelu_tanh", gate="none", learned_positions=True
    ),
    "gptneox": Architecture(layers.rotary, norm="layer", activation="gelu", gate="none", parallel="key"),
    "phi2": Architecture(
        layers.rotary, norm="layer", activation="gelu_tanh", gate="none", parallel="always", shared_norm=True
    ),
    "stablelm": Architecture(
        layers.rotary, norm="layer", parallel="key", shared_norm=True, qk_norm="layer", qk_norm_optional=True
    ),
    "starcoder2": Architecture(layers.rotary, norm="layer", activation="gelu_tanh", gate="none"),
    "falcon": Architecture(
        layers.rotary, norm="layer", activation="gelu", gate="none", parallel="always", shared_norm=True,
        norms=norms(attention_norm=("attn_norm_2", "attn_norm"), mlp_norm=("attn_norm",)),
    ),
    "bloom": Architecture(
        layers.bloom, norm="layer", activation="gelu_tanh", gate="none", embedding_norm=True
    ),
}  # fmt: skip


def architecture_of(metadata: dict[str, object]) -> tuple[Architecture, Keys]:
    """The file's architecture and its metadata, refused by name where either is not known."""
    for key, fine in (("general.type", "model"), ("split.count", 1)):
        if metadata.get(key, fine) not in (fine, 0):
            raise UnsupportedFamily(f"{key} is {metadata[key]!r}; only whole models in one file are read")
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise UnsupportedFamily(
            f"general.architecture {name!r} is not known here; known are {', '.join(sorted(ARCHITECTURES))}"
        )
    found = ARCHITECTURES[name]
    keys = Keys(dict(metadata), name, found.known)
    keys.refuse_unread()
    return found, keys
