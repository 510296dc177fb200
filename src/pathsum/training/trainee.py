"""The parameters of a model in training, and the `Weights` that look at them.

Heads are held fused, `W_Q, W_K, W_V [head·d_head, d_model]` and `W_O [d_model, head·d_head]`: one matrix for the
optimizer, and the views that `forward` flattens again cost nothing. MLPs are `W_in [d_mlp, d_model]` and
`W_out [d_model, d_mlp]`.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pathsum.training.loss import mean_loss
from pathsum.training.recipe import Recipe
from pathsum.weights.blocks import Block, Mlp
from pathsum.weights.norms import Norm
from pathsum.weights.weights import TAPS, Ends, Weights


class Trainee(nn.Module):
    """Parameters of a recipe, started from its seed; calling it gives the loss."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.spec = recipe.spec()
        generator = torch.Generator().manual_seed(recipe.seed)
        for name, (shape, std) in _starts(recipe).items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape, generator=generator) * std))
        for name in _gains(recipe):
            self.register_parameter(name, nn.Parameter(torch.ones(recipe.d_model)))
        for name, start in _taps(recipe).items():
            self.register_parameter(name, nn.Parameter(start))

    def forward(self, inputs: Int[Tensor, "batch pos"], targets: Int[Tensor, "batch pos"]) -> Float[Tensor, ""]:
        """Mean cross-entropy of the next token, in nats."""
        return mean_loss(self.weights(), inputs, targets)

    def weights(self) -> Weights:
        """The model as a value whose tensors are views of the parameters."""
        part = self.get_parameter
        ends = Ends(part("W_E").mT, part("W_U"), final_norm=self._norm("final_norm"))
        blocks = [self._block(layer) for layer in range(self.spec.n_layers)]
        return Weights.of_parts(self.spec, ends, blocks)

    def layer_matrices(self) -> list[nn.Parameter]:
        """What heads and MLPs read and write with: the matrices that Muon trains."""
        return [
            parameter for name, parameter in self.named_parameters() if name.startswith("L") and parameter.ndim == 2
        ]

    def gates(self) -> list[nn.Parameter]:
        """Those of smeared keys."""
        return [parameter for name, parameter in self.named_parameters() if name.endswith("_smear")]

    def other_parameters(self) -> list[nn.Parameter]:
        apart = {id(parameter) for parameter in (*self.layer_matrices(), *self.gates())}
        return [parameter for parameter in self.parameters() if id(parameter) not in apart]

    def _block(self, layer: int) -> Block:
        shape = (self.spec.n_heads, self.spec.d_head)
        W_Q, W_K, W_V = (self.get_parameter(f"L{layer}_W_{name}").unflatten(0, shape) for name in "QKV")
        W_O = self.get_parameter(f"L{layer}_W_O").unflatten(1, shape).transpose(0, 1)
        norm = self._norm(f"L{layer}_attention_norm")
        taps: dict[str, Any] = {name: dict(self.named_parameters()).get(f"L{layer}_{name}") for name in TAPS}
        block = Block(layer, self.spec.layers[layer], W_Q, W_K, W_V, W_O, attention_norm=norm, **taps)
        if self.spec.d_mlp is None:
            return block
        mlp = Mlp(self.spec.activation, self.get_parameter(f"L{layer}_W_in"), self.get_parameter(f"L{layer}_W_out"))
        return replace(block, mlp=mlp, mlp_norm=self._norm(f"L{layer}_mlp_norm"))

    def _norm(self, name: str) -> Norm:
        if self.spec.norm == "none":
            return Norm()
        return Norm(self.spec.norm, self.spec.norm_eps, self.get_parameter(name))


def _starts(recipe: Recipe) -> dict[str, tuple[tuple[int, int], float]]:
    """Shape and standard deviation of every matrix at the start."""
    width, d = recipe.heads * recipe.d_head, recipe.d_model
    starts = {"W_E": ((recipe.vocab, d), 0.02), "W_U": ((recipe.vocab, d), 0.5 / math.sqrt(d))}
    for layer in range(recipe.layers):
        starts |= {
            f"L{layer}_W_Q": ((width, d), recipe.query_key_start / math.sqrt(d)),
            f"L{layer}_W_K": ((width, d), recipe.query_key_start / math.sqrt(d)),
            f"L{layer}_W_V": ((width, d), 1 / math.sqrt(d)),
            f"L{layer}_W_O": ((d, width), 0.5 / math.sqrt(width)),
        }
    # Drawn last: the heads of a model with MLPs start as those of the same one without.
    for layer in range(recipe.layers if recipe.d_mlp else 0):
        starts |= {
            f"L{layer}_W_in": ((recipe.d_mlp, d), 1 / math.sqrt(d)),
            f"L{layer}_W_out": ((d, recipe.d_mlp), 0.5 / math.sqrt(recipe.d_mlp)),
        }
    return starts


def _taps(recipe: Recipe) -> dict[str, Float[Tensor, "..."]]:
    """What mixes positions at the start: gates at the recipe's logit; convolutions as the identity."""
    starts: dict[str, Tensor] = {}
    for layer in range(recipe.layers):
        if recipe.smeared_keys:
            starts[f"L{layer}_smear"] = torch.full((recipe.heads,), recipe.smear_start)
        if recipe.convolution:
            identity = torch.zeros(recipe.heads, recipe.convolution, recipe.d_head)
            identity[:, 0] = 1
            starts |= {f"L{layer}_conv_{which}": identity.clone() for which in "QKV"}
    return starts


def _gains(recipe: Recipe) -> list[str]:
    if recipe.norm == "none":
        return []
    parts = ("attention", "mlp") if recipe.d_mlp else ("attention",)
    return [*(f"L{layer}_{part}_norm" for layer in range(recipe.layers) for part in parts), "final_norm"]
