"""nanoGPT's model as a small module of its own, which also records its residual streams and attention patterns."""

import math

import torch
from torch import Tensor, nn


class Norm(nn.Module):
    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        x = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * self.weight
        return x if self.bias is None else x + self.bias


class Attention(nn.Module):
    def __init__(self, width: int, n_head: int, bias: bool) -> None:
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What attention adds, and its patterns, one head after the other."""
        width = x.shape[-1] // self.n_head
        future = torch.ones(len(x), len(x)).triu(1).bool()
        mixed, patterns = [], []
        q, k, v = self.c_attn(x).chunk(3, dim=-1)
        for head in range(self.n_head):
            part = slice(head * width, (head + 1) * width)
            scores = q[:, part] @ k[:, part].T / math.sqrt(width)
            patterns.append(scores.masked_fill(future, -math.inf).softmax(-1))
            mixed.append(patterns[-1] @ v[:, part])
        return self.c_proj(torch.cat(mixed, dim=-1)), torch.stack(patterns)


class Mlp(nn.Module):
    def __init__(self, width: int, bias: bool, tanh: bool) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias=bias)
        self.c_proj = nn.Linear(4 * width, width, bias=bias)
        self.act = nn.GELU(approximate="tanh" if tanh else "none")

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.act(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width: int, n_head: int, bias: bool, tanh: bool) -> None:
        super().__init__()
        self.ln_1, self.attn = Norm(width, bias), Attention(width, n_head, bias)
        self.ln_2, self.mlp = Norm(width, bias), Mlp(width, bias, tanh)


class NanoGPT(nn.Module):
    """Random, with nothing at its neutral value, in float64."""

    def __init__(self, args: dict, tanh: bool = False, tied: bool = True) -> None:
        super().__init__()
        width, bias = args["n_embd"], args.get("bias", True)
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(args["vocab_size"], width),
            "wpe": nn.Embedding(args["block_size"], width),
            "h": nn.ModuleList(Block(width, args["n_head"], bias, tanh) for _ in range(args["n_layer"])),
            "ln_f": Norm(width, bias),
        })  # fmt: skip
        self.lm_head = nn.Linear(width, args["vocab_size"], bias=False)
        if tied:
            self.transformer["wte"].weight = self.lm_head.weight
        self.double()
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.add_(0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))

    @torch.no_grad()
    def forward(self, tokens: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Logits, the residual stream before every layer, every layer's patterns."""
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"](torch.arange(len(tokens)))
        residuals, patterns = [], []
        for block in parts["h"]:
            residuals.append(x)
            added, pattern = block.attn(block.ln_1(x))
            patterns.append(pattern)
            x = x + added
            x = x + block.mlp(block.ln_2(x))
        return self.lm_head(parts["ln_f"](x)), residuals, patterns
