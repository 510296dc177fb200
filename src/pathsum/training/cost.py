"""What a run takes, counted: parameters, tokens, and operations of forward and backward."""

from dataclasses import dataclass

from pathsum.training.recipe import Recipe


@dataclass(frozen=True)
class Cost:
    """Of a whole run."""

    parameters: int
    tokens: int
    operations: float
    """Multiplications and additions, each one operation."""

    def hours(self, devices: int, rate: float | int, share: float | int) -> float:
        """On so many devices of `rate` operations a second, of which a `share` is reached."""
        return self.operations / (devices * rate * share) / 3600


def cost(recipe: Recipe) -> Cost:
    """`6 N D` of the matrices that multiply, and `12 · layers · width · context/2 · D` of attention.

    N: parameters but the embedding, whose rows are looked up; D: tokens. A backward pass is two forward ones, and of a
    pattern the lower triangle alone is needed: `score` and `mix` are `2 · width · context/2` each, a token and layer.
    """
    width, d = recipe.heads * recipe.d_head, recipe.d_model
    layers = recipe.layers * (4 * width * d + 2 * recipe.d_mlp * d)
    tokens = recipe.steps * recipe.batch * recipe.context
    multiplied, attention = layers + recipe.vocab * d, recipe.layers * 2 * 2 * width * recipe.context / 2
    return Cost(layers + 2 * recipe.vocab * d, tokens, 3 * tokens * (2 * multiplied + attention))
