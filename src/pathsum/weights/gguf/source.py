"""What an architecture's functions read: a file, its metadata, and the sizes both agree on."""

from dataclasses import dataclass

from pathsum.errors import CheckpointError, MissingTensor
from pathsum.weights.gguf.file import GgufFile
from pathsum.weights.gguf.keys import Keys

DOWN = "blk.0.ffn_down.weight"


@dataclass(frozen=True)
class Sizes:
    d_vocab: int
    n_ctx: int
    d_model: int
    n_layers: int
    n_heads: int
    d_head: int
    n_key_value_heads: int
    d_mlp: int
    n_experts: int | None = None


@dataclass(frozen=True)
class Source:
    file: GgufFile
    keys: Keys
    sizes: Sizes


def read_sizes(file: GgufFile, keys: Keys) -> Sizes:
    """Sizes by the metadata, held against tensors before anything is made that grows with them."""
    d_model, n_layers = keys.whole("embedding_length"), keys.whole("block_count")
    n_heads = keys.whole("attention.head_count")
    d_head = keys.whole("attention.key_length", d_model // n_heads)
    if (width := keys.whole("attention.value_length", d_head)) != d_head:
        raise CheckpointError(f"values of {width} coordinates with keys of {d_head} are not read here")
    if n_layers > len(file):
        raise CheckpointError(f"{keys.architecture}.block_count is {n_layers}, but the file has {len(file)} tensors")
    for layer in range(n_layers):
        check(file, f"blk.{layer}.attn_output.weight", (d_model, n_heads * d_head))
    n_experts = keys.whole("expert_count", 0, least=0) if "expert_count" in keys.known else 0
    embedding = shape_of(file, "token_embd.weight", 2)
    return Sizes(
        d_vocab=embedding[0],
        n_ctx=keys.whole("context_length"),
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_head=d_head,
        n_key_value_heads=keys.whole("attention.head_count_kv", n_heads),
        # Some converters write four times d_model as the hidden width whatever the model has; its tensors know.
        d_mlp=shape_of(file, "blk.0.ffn_down_exps.weight", 3)[-1] if n_experts else shape_of(file, DOWN, 2)[-1],
        n_experts=n_experts or None,
    )


def check(file: GgufFile, name: str, shape: tuple[int, ...]) -> None:
    """Raises `MissingTensor` with both shapes."""
    if (found := shape_of(file, name, len(shape))) != shape:
        raise MissingTensor(f"tensor {name} has shape {found}, but the metadata asks for {shape}")


def shape_of(file: GgufFile, name: str, axes: int) -> tuple[int, ...]:
    if name not in file:
        raise MissingTensor(f"tensor {name} is missing")
    if len(shape := file.shape(name)) != axes:
        raise MissingTensor(f"tensor {name} has shape {shape}, but {axes} axes are expected")
    return shape
