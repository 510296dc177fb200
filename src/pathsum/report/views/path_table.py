"""Every prediction of a text taken apart at once, where a model has so few paths that each is carried forward once.

1. A path's source is carried through its heads to all positions: `x`, `[pos, d_model]`.
2. Each position's number is one direction on the last residual stream, so `directions · x` is what the path adds to all
   of them; over the sources' positions it is `P[i, j] (directions[i] · W_OV … source[j])`, with P the path's pattern,
   summed over the taps of values that are mixed over positions.
3. All paths are there, so sums by order, source and last head are sums of these, and the strongest are certain.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.lowrank import LowRank
from pathsum.paths.logits import Expansion, path_pattern, path_taps
from pathsum.paths.paths import HeadIndex, Path, chains, source_layer
from pathsum.report.tokens import visible
from pathsum.report.views.paths import LONGEST, MOST, PathView, following, listed
from pathsum.weights.tokens import token_strings


@dataclass(frozen=True)
class PathTable:
    """All paths of a run of one text: what each adds to every position's logit of `targets`, less the mean logit."""

    expansion: Expansion
    targets: Int[Tensor, " pos"]
    paths: tuple[Path, ...]
    values: Float[Tensor, "path pos"]
    most: Int[Tensor, "path pos"]
    """From which position most of it comes."""
    from_most: Float[Tensor, "path pos"]
    positions: Float[Tensor, "pos src"]
    """What all paths add, by the position of their source."""

    def view(self, at: int, count: int = MOST) -> PathView:
        """The prediction after one token, its `count` strongest paths listed."""
        run, values = self.expansion.run, self.values[:, at]
        best = values.abs().argsort(descending=True, stable=True)
        shown, value = best[:count].tolist(), self.numbers[at].item()
        rest = values.sum() - values[shown].sum()
        return PathView(
            self.strings[at], self.target_strings[at], None, at, value, self.errors[at].item(),
            run.model.spec.logit_cap is not None, self.orders(at), self.sources(at), self.heads(at),
            self.positions[at].tolist(), [self.row(path, at, value) for path in shown], rest.item(),
            values[best[count]].abs().item() if len(best) > count else 0.0, True,
        )  # fmt: skip

    def orders(self, at: int) -> list[dict[str, Any]]:
        summed = self._summed(at, [path.order for path in self.paths])
        up_to = [self.expansion.counts(order) for order in range(self.expansion.run.model.spec.n_layers + 1)]
        counts = [more - less for less, more in pairwise([0, *up_to])]
        return [{"order": order, "paths": float(n), "value": summed.get(order, 0.0)} for order, n in enumerate(counts)]

    def sources(self, at: int) -> list[dict[str, Any]]:
        summed = self._summed(at, [(path.source, bool(path.heads)) for path in self.paths])
        names = dict.fromkeys(path.source for path in self.paths)
        rows = [{"name": name, "direct": summed.get((name, False), 0.0), "through_heads": summed.get((name, True), 0.0)}
                for name in names]  # fmt: skip
        return listed(rows, "direct", "through_heads")

    def heads(self, at: int) -> list[dict[str, Any]]:
        summed = self._summed(at, [path.head_names[-1] if path.heads else "" for path in self.paths])
        return listed([{"name": name, "value": value} for name, value in summed.items() if name], "value")

    def row(self, path: int, at: int, total: float) -> dict[str, Any]:
        value, where = self.values[path, at].item(), int(self.most[path, at])
        share = value / total if total else None
        found = {"name": self.paths[path].name, "value": value, "share": share, "from_token": self.strings[where]}
        return found | {"from_position": where, "from_value": self.from_most[path, at].item()}

    @cached_property
    def numbers(self) -> Float[Tensor, " pos"]:
        """What is taken apart, from the run's own logits before any soft-cap."""
        logits = self.expansion.run.uncapped_logits
        return logits.gather(-1, self.targets[:, None])[:, 0] - logits.mean(-1)

    @cached_property
    def errors(self) -> Float[Tensor, " pos"]:
        """Of the sums, over the largest logit."""
        size = 2 * self.expansion.run.uncapped_logits.abs().amax()
        return (self.values.sum(0) - self.numbers).abs() / torch.where(size == 0, torch.ones_like(size), size)

    @cached_property
    def strings(self) -> list[str]:
        return [visible(text, LONGEST) for text in self.expansion.run.token_strings]

    @cached_property
    def target_strings(self) -> list[str]:
        return [visible(text, LONGEST) for text in token_strings(self.expansion.run.model, self.targets)]

    def _summed(self, at: int, keys: list[Any]) -> dict[Any, float]:
        found: defaultdict[Any, float] = defaultdict(float)
        for key, value in zip(keys, self.values[:, at].tolist(), strict=True):
            found[key] += value
        return found


@torch.no_grad()
def path_table(expansion: Expansion) -> PathTable:
    """All paths of a run of one text, for as many of them as a model of few heads has."""
    run, frozen = expansion.run, expansion.frozen
    targets = torch.tensor([following(run, at) for at in range(len(run.tokens))])
    W_U, b_U = frozen.ends.W_U, frozen.ends.b_U
    directions = W_U[targets] - W_U.mean(0)
    n, paths, values, most, from_most = len(targets), [], [], [], []
    positions = directions.new_zeros(n, n)

    def add(path: Path, parts: Tensor) -> None:
        positions.add_(parts)
        paths.append(path)
        values.append(parts.sum(1))
        most.append(parts.abs().argmax(1))
        from_most.append(parts.gather(1, most[-1][:, None])[:, 0])

    for path, moved in _moved(expansion):
        parts = (path_pattern(run.frozen, path, taps) * (directions @ x.mT) for taps, x in moved.items())
        add(path, sum(parts, torch.zeros_like(positions)))
    if b_U is not None:
        add(Path("unembed.bias"), torch.diag(b_U[targets] - b_U.mean()))
    each = torch.stack(values), torch.stack(most), torch.stack(from_most)
    return PathTable(expansion, targets, tuple(paths), *each, positions)


def _moved(expansion: Expansion) -> Iterator[tuple[Path, dict[tuple[int, ...], Float[Tensor, "src d_model"]]]]:
    """Every path but the final bias, with `W_OV^{h_k} … W_OV^{h_1} source`, what each position gives, by taps."""
    spec, blocks = expansion.run.model.spec, expansion.frozen.blocks
    for name, source in expansion.sources.items():
        done: dict[tuple[HeadIndex, ...], dict[tuple[int, ...], Tensor]] = {(): {(): source}}
        for heads in chains(spec, source_layer(name), spec.n_layers):
            path = Path(name, heads)
            if heads:
                head, before = blocks[heads[-1][0]].head(heads[-1][1]), done[heads[:-1]]
                taps = path_taps(expansion.frozen, path)
                done[heads] = {some: _through(head.OV_through(some[-1]), before[some[:-1]]) for some in taps}
            yield path, done[heads]


def _through(OV: LowRank, x: Float[Tensor, "src d_model"]) -> Float[Tensor, "src d_model"]:
    return (x @ OV.right.mT) @ OV.left.mT
