"""Checkpoints as large as one likes that take no room: their bytes are holes."""

import json
import math
from pathlib import Path


def sparse_checkpoint(folder: Path, n_layers: int, d: int, d_mlp: int) -> Path:
    """Shards, one a layer, whose bytes are holes: zeros that take no room on the disk."""
    folder.mkdir()
    config = {"model_type": "llama", "vocab_size": 1000, "hidden_size": d, "intermediate_size": d_mlp,
              "num_hidden_layers": n_layers, "num_attention_heads": d // 64, "max_position_embeddings": 16}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    ends = {"model.embed_tokens.weight": (1000, d), "lm_head.weight": (1000, d), "model.norm.weight": (d,)}
    shards = {"ends.safetensors": ends}
    for layer in range(n_layers):
        at = f"model.layers.{layer}."
        shape = {f"{at}self_attn.{part}_proj.weight": (d, d) for part in "qkvo"}
        shape |= {f"{at}mlp.{part}_proj.weight": (d_mlp, d) for part in ("gate", "up")}
        shape |= {f"{at}mlp.down_proj.weight": (d, d_mlp)}
        shape |= {f"{at}{norm}_layernorm.weight": (d,) for norm in ("input", "post_attention")}
        shards[f"layer-{layer}.safetensors"] = shape
    for name, shapes in shards.items():
        write_holes(folder / name, shapes)
    weight_map = {tensor: name for name, shapes in shards.items() for tensor in shapes}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def write_holes(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """A float32 safetensors file of zeros without writing them."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    encoded = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        file.truncate(8 + len(encoded) + at)
