"""Which canonical tensors a file gives, and out of what: `plan(architecture, source)`."""

import torch
from torch import Tensor

from pathsum.errors import UnsupportedFamily
from pathsum.weights.gguf.architectures import LAYER, Architecture
from pathsum.weights.gguf.parts import Part, heads, output_heads, part, times, unpermuted_heads
from pathsum.weights.gguf.source import Source

EMBEDDING = "token_embd.weight"


def plan(architecture: Architecture, source: Source) -> dict[str, Part]:
    """Every canonical tensor. Raises `MissingTensor`, and `UnsupportedFamily` for a tensor that would be ignored."""
    found = _ends(architecture, source)
    for layer in range(source.sizes.n_layers):
        blk = _Block(architecture, source, f"blk.{layer}.")
        found |= {f"L{layer}.{name}": one for name, one in (blk.norms() | blk.attention() | blk.mlp()).items()}
    used = {one.name for one in found.values()} | set(architecture.factors)
    if architecture.embedding_norm:
        used |= {f"token_embd_norm.{end}" for end in ("weight", "bias")}
    if unused := sorted(set(source.file) - used):
        raise UnsupportedFamily(f"tensor {unused[0]} has no place in a {source.keys.architecture} model as read here")
    return found


def residual_factor(source: Source) -> float:
    return _factor(source, "residual_scale")


def _factor(source: Source, key: str) -> float:
    """A multiplier of the metadata; 0, as the runtime has it, means none."""
    return (source.keys.number(key, 1) or 1) if key in source.keys.known else 1.0


def _ends(architecture: Architecture, source: Source) -> dict[str, Part]:
    file, sizes = source.file, source.sizes
    table = (sizes.d_vocab, sizes.d_model)
    scale = sizes.d_model**0.5 if architecture.root_scaled_embedding else _factor(source, "embedding_scale")
    unembedding = "output.weight" if "output.weight" in file else EMBEDDING
    # The smallest first: who looks at one tensor, as a type check does, looks at this one.
    found = _norm(architecture, source, "final_norm", "output_norm") | {
        "W_E": part(file, EMBEDDING, table, lambda tensor: times(scale)(tensor).mT),
        "W_U": part(file, unembedding, table, times(1 / _factor(source, "logit_scale"))),
    }
    if architecture.embedding_norm:
        found["W_E"] = part(file, EMBEDDING, table, _embedding_norm(source))
    if architecture.learned_positions:
        found["W_pos"] = part(file, "position_embd.weight", (sizes.n_ctx, sizes.d_model), lambda tensor: tensor.mT)
    if "output.bias" in file:
        found["b_U"] = part(file, "output.bias", (sizes.d_vocab,))
    return found


def _norm(architecture: Architecture, source: Source, ours: str, theirs: str) -> dict[str, Part]:
    shape = (source.sizes.d_model,)
    found = {f"{ours}.gain": part(source.file, f"{theirs}.weight", shape)}
    if architecture.norm == "layer":
        found[f"{ours}.bias"] = part(source.file, f"{theirs}.bias", shape)
    return found


def _embedding_norm(source: Source):
    """BLOOM norms its embeddings: a fixed map of each token's vector, so it is done to the matrix."""
    file, shape = source.file, (source.sizes.d_model,)
    gain, bias = (part(file, f"token_embd_norm.{end}", shape).name for end in ("weight", "bias"))
    eps = source.keys.number(LAYER)

    def normed(tensor: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(tensor, shape, file[gain], file[bias], eps).mT

    return normed


class _Block:
    """One layer's parts; names without the layer in front."""

    def __init__(self, architecture: Architecture, source: Source, prefix: str) -> None:
        self.architecture, self.source, self.prefix = architecture, source, prefix
        self.sizes, self.file = source.sizes, source.file

    def norms(self) -> dict[str, Part]:
        found: dict[str, Part] = {}
        for ours, candidates in self.architecture.norms:
            if ours == "mlp_norm" and self.architecture.shared_norm and is_parallel(self.architecture, self.source):
                candidates = ("attn_norm",)
            theirs = next((one for one in candidates if f"{self.prefix}{one}.weight" in self.file), candidates[-1])
            found |= _norm(self.architecture, self.source, ours, self.prefix + theirs)
        for ours, n in (("q_norm", self.sizes.n_heads), ("k_norm", self.sizes.n_key_value_heads)):
            name = f"{self.prefix}attn_{ours}.weight"
            if self.architecture.qk_norm is None or (self.architecture.qk_norm_optional and name not in self.file):
                continue
            found[f"{ours}.gain"] = self._qk_gain(name, n)
        return found

    def _qk_gain(self, name: str, n: int) -> Part:
        if self.architecture.qk_norm_across_heads:
            return part(self.file, name, (n * self.sizes.d_head,), heads(n))
        if self.architecture.qk_norm == "layer":
            return part(self.file, name, (n, self.sizes.d_head))
        return part(self.file, name, (self.sizes.d_head,))

    def attention(self) -> dict[str, Part]:
        sizes = self.sizes
        counts = {"Q": sizes.n_heads, "K": sizes.n_key_value_heads, "V": sizes.n_key_value_heads}
        fused = f"{self.prefix}attn_qkv.weight" in self.file
        found: dict[str, Part] = {}
        start, total = 0, sum(counts.values()) * sizes.d_head
        for one, n in counts.items():
            turn = unpermuted_heads(n) if self.architecture.permuted and one in "QK" else heads(n)
            rows = (start, start + n * sizes.d_head)
            start = rows[1]
            for letter, end, columns in (("W", "weight", (sizes.d_model,)), ("b", "bias", ())):
                own, joint = f"{self.prefix}attn_{one.lower()}.{end}", f"{self.prefix}attn_qkv.{end}"
                if fused and joint in self.file:
                    found[f"{letter}_{one}"] = part(self.file, joint, (total, *columns), turn, rows)
                elif letter == "W" or own in self.file:
                    found[f"{letter}_{one}"] = part(self.file, own, (n * sizes.d_head, *columns), turn)
        return found | self._attention_output()

    def _attention_output(self) -> dict[str, Part]:
        sizes, factor = self.sizes, residual_factor(self.source)
        name = f"{self.prefix}attn_output"
        shape = (sizes.d_model, sizes.n_heads * sizes.d_head)
        found = {"W_O": part(self.file, f"{name}.weight", shape, output_heads(sizes.n_heads, factor))}
        if f"{name}.bias" in self.file:
            found["b_O"] = part(self.file, f"{name}.bias", (sizes.d_model,), times(factor))
        if self.architecture.sinks:
            found["sinks"] = part(self.file, f"{self.prefix}attn_sinks.weight", (sizes.n_heads,))
        return found

    def mlp(self) -> dict[str, Part]:
        sizes, factor = self.sizes, residual_factor(self.source)
        many = () if sizes.n_experts is None else (sizes.n_experts,)
        ending = "" if sizes.n_experts is None else "_exps"
        d, hidden = sizes.d_model, sizes.d_mlp
        wanted = {"out": ("down", (d, hidden), factor), "in": ("up", (hidden, d), 1), "gate": ("gate", (hidden, d), 1)}
        if self.architecture.gate == "fused":
            return self._fused_gate(wanted["out"][2])
        if self.architecture.gate == "none":
            del wanted["gate"]
        found: dict[str, Part] = {}
        for ours, (theirs, shape, scale) in wanted.items():
            name = f"{self.prefix}ffn_{theirs}{ending}"
            found[f"mlp.W_{ours}"] = part(self.file, f"{name}.weight", (*many, *shape), times(scale))
            if f"{name}.bias" in self.file:
                found[f"mlp.b_{ours}"] = part(self.file, f"{name}.bias", (*many, shape[0]), times(scale))
        if many:
            router = f"{self.prefix}ffn_gate_inp"
            found["mlp.W_router"] = part(self.file, f"{router}.weight", (*many, d))
            if f"{router}.bias" in self.file:
                found["mlp.b_router"] = part(self.file, f"{router}.bias", many)
        return found

    def _fused_gate(self, factor: float) -> dict[str, Part]:
        """The gate's rows, then the others."""
        d, hidden, name = self.sizes.d_model, self.sizes.d_mlp, f"{self.prefix}ffn_up.weight"
        return {
            "mlp.W_out": part(self.file, f"{self.prefix}ffn_down.weight", (d, hidden), times(factor)),
            "mlp.W_gate": part(self.file, name, (2 * hidden, d), rows=(0, hidden)),
            "mlp.W_in": part(self.file, name, (2 * hidden, d), rows=(hidden, 2 * hidden)),
        }


def is_parallel(architecture: Architecture, source: Source) -> bool:
    """Whether attention and MLP of a layer read the same residual stream."""
    if architecture.parallel == "key":
        return source.keys.flag("use_parallel_residual")
    return architecture.parallel == "always"
