"""`open_gguf`: a GGUF file as a spec, canonical tensors and a tokenizer."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import Tokenizer
from torch import Tensor

from pathsum.errors import CheckpointError
from pathsum.weights.gguf.architectures import LAYER, RMS, Architecture, architecture_of
from pathsum.weights.gguf.file import GgufFile
from pathsum.weights.gguf.parts import Parts
from pathsum.weights.gguf.plan import is_parallel, plan
from pathsum.weights.gguf.source import Source, read_sizes
from pathsum.weights.gguf.tokenizer import Vocabulary, read_vocabulary
from pathsum.weights.spec import Spec


@dataclass(frozen=True)
class Gguf:
    """A model as its file tells it; `tensors` by canonical name, float32, each read when it is asked for."""

    spec: Spec
    tensors: Mapping[str, Tensor]
    tokenizer: Tokenizer | None
    no_tokenizer: str | None = None
    """Why there is none."""


def open_gguf(path: str | os.PathLike[str]) -> Gguf:
    """Opens a GGUF file, memory-mapped; tensors are dequantised one by one.

    Raises `CheckpointError` for a damaged file, `MissingTensor` for one that is no whole model, and
    `UnsupportedFamily` naming the architecture, metadata key or tensor that is not known here.
    """
    try:
        file = GgufFile(path)
        architecture, keys = architecture_of(file.metadata)
        source = Source(file, keys, read_sizes(file, keys))
        parts = plan(architecture, source)
        vocabulary = read_vocabulary(file.metadata, source.sizes.d_vocab)
        return Gguf(
            _spec(architecture, source, vocabulary), Parts(file, parts), vocabulary.tokenizer, vocabulary.no_tokenizer
        )
    except CheckpointError as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from error


def _spec(architecture: Architecture, source: Source, vocabulary: Vocabulary) -> Spec:
    keys, sizes = source.keys, source.sizes
    cap = keys.number("final_logit_softcapping", architecture.final_cap) if architecture.final_cap is not None else 0
    return Spec(
        d_vocab=sizes.d_vocab,
        n_ctx=architecture.n_ctx(source),
        d_model=sizes.d_model,
        n_layers=sizes.n_layers,
        n_heads=sizes.n_heads,
        d_head=sizes.d_head,
        n_key_value_heads=sizes.n_key_value_heads,
        layers=architecture.layers(source),
        d_mlp=sizes.d_mlp,
        activation=architecture.activation,
        norm=architecture.norm,
        norm_eps=keys.number(RMS if architecture.norm == "rms" else LAYER),
        pre_norm=architecture.pre_norm,
        qk_norm=architecture.qk_norm or "rms",
        qk_norm_across_heads=architecture.qk_norm_across_heads,
        n_experts=sizes.n_experts,
        experts_per_token=None if sizes.n_experts is None else keys.whole("expert_used_count"),
        mlp_limit=architecture.mlp_limit,
        parallel=is_parallel(architecture, source),
        learned_positions=architecture.learned_positions,
        logit_cap=cap or None,
        bos=vocabulary.bos,
        prepend_bos=vocabulary.prepend_bos,
        family=keys.architecture,
    )
