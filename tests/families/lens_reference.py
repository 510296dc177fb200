"""TransformerLens' model from its config, in its own conventions: rows times matrices, heads one after the other.

`state(cfg)` makes a random state dict under its names; `run(cfg, state, tokens)` is the forward pass in float64.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

DEFAULTS = {
    "n_heads": -1, "d_mlp": None, "act_fn": None, "eps": 1e-5, "use_attn_scale": True, "attn_scale": -1.0,
    "use_local_attn": False, "window_size": None, "attn_types": None, "normalization_type": "LN", "attn_only": False,
    "scale_attn_by_inverse_layer_idx": False, "positional_embedding_type": "standard", "parallel_attn_mlp": False,
    "rotary_dim": None, "rotary_base": 10000, "rotary_adjacent_pairs": False, "gated_mlp": False,
    "n_key_value_heads": None, "post_embedding_ln": False, "use_qk_norm": False, "attn_scores_soft_cap": -1.0,
    "use_normalization_before_and_after": False, "output_logits_soft_cap": -1.0,
}  # fmt: skip
ACTS = {
    "relu": functional.relu, "gelu": functional.gelu, "silu": functional.silu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
}  # fmt: skip


class Cfg:
    """The config's fields as attributes, those left out at their defaults."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.__dict__.update({**DEFAULTS, **given})
        self.n_heads = self.d_model // self.d_head if self.n_heads == -1 else self.n_heads
        self.d_mlp = 4 * self.d_model if self.d_mlp is None else self.d_mlp
        self.n_kv = self.n_heads if self.n_key_value_heads is None else self.n_key_value_heads
        self.kv = "" if self.n_key_value_heads is None else "_"
        self.vectors = {"LN": "wb", "RMS": "w"}.get(self.normalization_type, "")
        self.after = {"L": "wb", "R": "w"}[self.normalization_type[0]] if self.normalization_type else ""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def state(given: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Random tensors, none at a neutral value, with the buffers the library saves beside them."""
    cfg, generator = Cfg(given), torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64) / math.sqrt(shape[-1])
    found: dict[str, Tensor] = {}

    def norm(name: str, vectors: str, width: int = cfg.d_model) -> None:
        found.update({f"{name}.{v}": normal(width) + (v == "w") for v in vectors})

    found["embed.W_E"] = 3 * normal(cfg.d_vocab, cfg.d_model)
    norm("embed.ln", "wb" if cfg.post_embedding_ln else "")
    if cfg.positional_embedding_type != "rotary":
        found["pos_embed.W_pos"] = 2 * normal(cfg.n_ctx, cfg.d_model)
    for layer in range(cfg.n_layers):
        block, attn = f"blocks.{layer}", f"blocks.{layer}.attn"
        norm(f"{block}.ln1", cfg.vectors)
        norm(f"{block}.ln1_post", cfg.after if cfg.use_normalization_before_and_after else "")
        for name, heads in (("W_Q", cfg.n_heads), (f"{cfg.kv}W_K", cfg.n_kv), (f"{cfg.kv}W_V", cfg.n_kv)):
            found[f"{attn}.{name}"] = normal(heads, cfg.d_model, cfg.d_head)
            found[f"{attn}.{name.replace('W', 'b')}"] = normal(heads, cfg.d_head)
        found[f"{attn}.W_O"], found[f"{attn}.b_O"] = normal(cfg.n_heads, cfg.d_head, cfg.d_model), normal(cfg.d_model)
        for part in "qk" if cfg.use_qk_norm else "":
            norm(f"{attn}.{part}_norm", "w", cfg.d_head)
        found[f"{attn}.mask"] = torch.ones(cfg.n_ctx, cfg.n_ctx).tril().bool()
        found[f"{attn}.IGNORE"] = torch.tensor(-math.inf)
        if cfg.positional_embedding_type == "rotary":
            found |= {f"{attn}.rotary_{wave}": torch.zeros(cfg.n_ctx, cfg.d_head) for wave in ("sin", "cos")}
        if not cfg.attn_only:
            norm(f"{block}.ln2", cfg.vectors)
            norm(f"{block}.ln2_post", cfg.after if cfg.use_normalization_before_and_after else "")
            found[f"{block}.mlp.W_in"] = normal(cfg.d_model, cfg.d_mlp)
            found[f"{block}.mlp.b_in"] = normal(cfg.d_mlp)
            found[f"{block}.mlp.W_out"] = normal(cfg.d_mlp, cfg.d_model)
            found[f"{block}.mlp.b_out"] = normal(cfg.d_model)
            if cfg.gated_mlp:
                found[f"{block}.mlp.W_gate"] = normal(cfg.d_model, cfg.d_mlp)
    norm("ln_final", cfg.vectors)
    found["unembed.W_U"], found["unembed.b_U"] = normal(cfg.d_model, cfg.d_vocab), normal(cfg.d_vocab)
    return found


@dataclass
class Run:
    logits: Tensor
    residuals: list[Tensor]
    patterns: list[Tensor]


def run(given: dict[str, Any], tensors: dict[str, Tensor], tokens: Tensor) -> Run:
    cfg = Cfg(given)
    x = tensors["embed.W_E"][tokens]
    if cfg.post_embedding_ln:
        x = _norm(cfg, tensors, "embed.ln", x, "LN")
    positions = tensors["pos_embed.W_pos"][: len(tokens)] if "pos_embed.W_pos" in tensors else None
    if cfg.positional_embedding_type == "standard":
        x = x + positions
    residuals, patterns = [], []
    for layer in range(cfg.n_layers):
        block = f"blocks.{layer}"
        residuals.append(x)
        shift = positions if cfg.positional_embedding_type == "shortformer" else 0.0
        added, pattern = _attention(cfg, tensors, layer, _norm(cfg, tensors, f"{block}.ln1", x), shift)
        patterns.append(pattern)
        if cfg.use_normalization_before_and_after:
            added = _norm(cfg, tensors, f"{block}.ln1_post", added)
        middle = x + added
        if not cfg.attn_only:
            out = _mlp(cfg, tensors, block, _norm(cfg, tensors, f"{block}.ln2", x if cfg.parallel_attn_mlp else middle))
            if cfg.use_normalization_before_and_after:
                out = _norm(cfg, tensors, f"{block}.ln2_post", out)
            middle = middle + out
        x = middle
    logits = _norm(cfg, tensors, "ln_final", x) @ tensors["unembed.W_U"] + tensors["unembed.b_U"]
    return Run(_capped(logits, cfg.output_logits_soft_cap), residuals, patterns)


def _norm(cfg: Cfg, tensors: dict[str, Tensor], name: str, x: Tensor, kind: str | None = "") -> Tensor:
    kind = cfg.normalization_type if kind == "" else kind
    if kind is None:
        return x
    if kind.startswith("LN"):
        x = x - x.mean(-1, keepdim=True)
    x = x / ((x**2).mean(-1, keepdim=True) + cfg.eps).sqrt()
    return x * tensors.get(f"{name}.w", 1.0) + tensors.get(f"{name}.b", 0.0)


def _capped(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap) if cap > 0 else x


def _attention(cfg: Cfg, tensors: dict[str, Tensor], layer: int, x: Tensor, shift: Any) -> tuple[Tensor, Tensor]:
    name = f"blocks.{layer}.attn"
    divisor = (cfg.attn_scale if cfg.attn_scale != -1 else math.sqrt(cfg.d_head)) if cfg.use_attn_scale else 1.0
    divisor *= layer + 1 if cfg.scale_attn_by_inverse_layer_idx else 1
    window = cfg.window_size if cfg.use_local_attn and cfg.attn_types[layer] == "local" else None
    out, patterns = tensors[f"{name}.b_O"], []
    for head in range(cfg.n_heads):
        kv = head // (cfg.n_heads // cfg.n_kv)
        project = lambda part, index, y: y @ tensors[f"{name}.{part}"][index] + tensors[f"{name}.{_b(part)}"][index]
        q = project("W_Q", head, x + shift)
        k = project(f"{cfg.kv}W_K", kv, x + shift)
        v = project(f"{cfg.kv}W_V", kv, x)
        if cfg.use_qk_norm:
            q, k = _norm(cfg, tensors, f"{name}.q_norm", q, "RMS"), _norm(cfg, tensors, f"{name}.k_norm", k, "RMS")
        if cfg.positional_embedding_type == "rotary":
            q, k = _rotated(cfg, q), _rotated(cfg, k)
        scores = _capped(q @ k.T / divisor, cfg.attn_scores_soft_cap)
        for i in range(len(x)):
            for j in range(len(x)):
                if cfg.positional_embedding_type == "alibi":
                    scores[i, j] -= (i - j) * 2 ** (-8 / cfg.n_heads * (head + 1))
                if j > i or (window is not None and i - j >= window):
                    scores[i, j] = -math.inf
        patterns.append(scores.softmax(-1))
        out = out + patterns[-1] @ v @ tensors[f"{name}.W_O"][head]
    return out, torch.stack(patterns)


def _b(part: str) -> str:
    return part.replace("W", "b")


def _rotated(cfg: Cfg, x: Tensor) -> Tensor:
    """Pairs `(2i, 2i+1)`, or `(i, i + n/2)`, turned by `p / base^(2i/n)`, one at a time."""
    n, x = cfg.rotary_dim or cfg.d_head, x.clone()
    for p in range(len(x)):
        for i in range(n // 2):
            a, b = (2 * i, 2 * i + 1) if cfg.rotary_adjacent_pairs else (i, i + n // 2)
            angle = p / cfg.rotary_base ** (2 * i / n)
            first, second = x[p, a].item(), x[p, b].item()
            x[p, a] = math.cos(angle) * first - math.sin(angle) * second
            x[p, b] = math.sin(angle) * first + math.cos(angle) * second
    return x


def _mlp(cfg: Cfg, tensors: dict[str, Tensor], block: str, x: Tensor) -> Tensor:
    part = lambda name: tensors[f"{block}.mlp.{name}"]
    act = ACTS[cfg.act_fn]
    hidden = act(x @ part("W_gate")) * (x @ part("W_in")) + part("b_in") if cfg.gated_mlp else None
    hidden = act(x @ part("W_in") + part("b_in")) if hidden is None else hidden
    return hidden @ part("W_out") + part("b_out")
