"""`W_QK` terms: what a head's query says through one path and its key through another, as a thin matrix over tokens.

    score = scale · Σ_{p, q} (A^p ⊗ A^q ⊗ W^{p, q}),   W^{p, q} = W_Eᵀ W_OV^{p…}ᵀ · W_QK · W_OV^{q…} W_E

`Id ⊗ A^{L0H7} ⊗ W_Eᵀ W_QK^{L1H2} W_OV^{L0H7} W_E` is the K-composition term of an induction head. A head that mixes its
keys over positions does without the earlier one: `Id ⊗ D ⊗ W_Eᵀ W_QK^{L0H2}(0, 1) W_E`, D one position back.
"""

from dataclasses import dataclass
from functools import cached_property

from pathsum.circuits.spectra import positivity
from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.paths.paths import Path, source_layer
from pathsum.weights.spec import Spec
from pathsum.weights.weights import Weights, head_index


@dataclass(frozen=True)
class QKTerm:
    """The weights of one (query path, key path) of a head."""

    head: str
    query: Path
    key: Path
    matrix: LowRank
    """Query on the left. A side that starts at `embed` is over tokens, any other over the residual stream."""
    taps: tuple[int, int] = (0, 0)
    """Of the head's query and key."""

    @cached_property
    def matching_score(self) -> float:
        """`Σλ / Σ|λ|` in [−1, 1] over its eigenvalues: 1 where every token looks for itself; NaN for a zero matrix.

        Raises `NotApplicable` where one side is over tokens and the other is not.
        """
        if (self.query.source == "embed") != (self.key.source == "embed"):
            raise NotApplicable(f"no matching score of {self}: one side is over tokens, the other is not")
        return positivity(self.matrix.eigenvalues()).item()

    def __str__(self) -> str:
        patterns = [_pattern(path, tap) for path, tap in zip((self.query, self.key), self.taps, strict=True)]
        return " ⊗ ".join([*patterns, self._weights])

    @property
    def _weights(self) -> str:
        left = [f"W_OV^{{{name}}}ᵀ" for name in self.query.head_names]
        right = [f"W_OV^{{{name}}}" for name in reversed(self.key.head_names)]
        before = ["W_Eᵀ" if self.query.source == "embed" else f"{self.query.source}ᵀ ·"]
        after = ["W_E" if self.key.source == "embed" else f"· {self.key.source}"]
        through = f"({self.taps[0]}, {self.taps[1]})" if any(self.taps) else ""
        return " ".join([*before, *left, f"W_QK^{{{self.head}}}{through}", *right, *after])


def qk_term(
    weights: Weights,
    head: str,
    query: str | Path = "embed",
    key: str | Path = "embed",
    delta: float | int | None = None,
    taps: tuple[int, int] = (0, 0),
) -> QKTerm:
    """`W_Eᵀ W_OV^{q…}ᵀ W_QK(Δ) W_OV^{k…} W_E` of folded weights, for a query path and a key path; without the scale.

    What depends on the text is left out: 1/σ of every norm, those of normed queries and keys too (`left_out` names
    them). `ScoreExpansion.term` has it all. Of queries and keys that are mixed over positions it is the part of these
    two `taps`, of mixed values of heads on the way tap 0.

    Raises `NotApplicable` for a path that does not end before the head, a rotary layer without `delta`, or a tap that
    is not there.

    >>> round(qk_term(model.weights.fold(), "L1H1", key="embed → L0H0").matching_score, 2)
    0.98
    """
    layer, index = head_index(head, weights.spec)
    query, key = (path_before(path, layer, weights.spec) for path in (query, key))
    matrix = weights.attention(layer).head(index).QK(delta, taps)
    for at, which in reversed(key.heads):
        matrix = matrix @ weights.attention(at).head(which).OV
    for at, which in reversed(query.heads):
        matrix = weights.attention(at).head(which).OV.T @ matrix
    matrix = matrix @ weights.W_E if key.source == "embed" else matrix
    return QKTerm(head, query, key, weights.W_E.mT @ matrix if query.source == "embed" else matrix, taps)


def path_before(path: str | Path, layer: int, spec: Spec) -> Path:
    """The path, which a head of the layer can read."""
    path = Path.parse(path, spec) if isinstance(path, str) else path
    if (path.heads[-1][0] if path.heads else source_layer(path.source)) >= layer:
        raise NotApplicable(f"{path.name} does not end before layer {layer}: a head reads what earlier layers write")
    return path


def _pattern(path: Path, tap: int) -> str:
    back = [] if not tap else ["D" if tap == 1 else f"D^{tap}"]
    return " ".join([*back, *(f"A^{{{name}}}" for name in reversed(path.head_names))]) or "Id"
