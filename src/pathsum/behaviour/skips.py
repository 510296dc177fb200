"""How often a text has `[source] … [destination]`, `[source] … [out]` and `[source] … [destination][out]`.

A source is *in sight* of position j where it stands at one of the last `window` positions up to and including j: what
the attention of a context of that length can reach. Then, over positions j of the text from which the source is in
sight:

    source … destination       token[j] is the destination
    source … out               token[j + 1] is the output
    source … destination out   both

The index is every token's positions in order: one stable sort of the text, 8 bytes a token. A count is one binary
search for each position of the destination or the output, whatever the number of pairs in the text.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from pathsum.errors import TextError

MOST_TOKENS = 2**31 - 1


@dataclass(frozen=True)
class Skips:
    """Where a pair or triple occurs: positions j, and the nearest source in sight of each."""

    positions: Int[Tensor, " k"]
    sources: Int[Tensor, " k"]

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def nearest(self) -> tuple[int, int]:
        """Source and position that are closest together, the first of several."""
        place = int((self.positions - self.sources).argmin())
        return int(self.sources[place]), int(self.positions[place])


@dataclass(frozen=True)
class SkipIndex:
    """A text's tokens, and every token's positions."""

    tokens: Int[Tensor, " n"]
    places: Int[Tensor, " n"]
    """Positions, those of token 0 first, rising for each token."""
    starts: Int[Tensor, " border"]
    """Where in `places` each token's begin."""
    window: int

    @classmethod
    def of(cls, tokens: Int[Tensor, " n"], d_vocab: int, window: int) -> "SkipIndex":
        """Index a text. Raises `TextError` for a window under 2 or 2³¹ tokens or more."""
        if window < 2:
            raise TextError(f"a window of {window} tokens holds no source beside a destination; at least 2")
        if len(tokens) > MOST_TOKENS:
            raise TextError(f"a text of {len(tokens):,} tokens; at most {MOST_TOKENS:,}")
        tokens = tokens.int()
        starts = torch.cat([torch.zeros(1, dtype=torch.long), tokens.bincount(minlength=d_vocab).cumsum(0)])
        return cls(tokens, tokens.argsort(stable=True).int(), starts, window)

    @property
    def occurring(self) -> Int[Tensor, " token"]:
        """The ids of the tokens that the text has."""
        return self.starts.diff().nonzero()[:, 0]

    def where(self, token: int) -> Int[Tensor, " k"]:
        """A token's positions, rising."""
        return self.places[self.starts[token] : self.starts[token + 1]]

    def sight(self, source: int) -> int:
        """From how many positions the source is in sight."""
        places = self.where(source)
        end = torch.tensor([len(self.tokens)], dtype=places.dtype)
        return int(torch.cat([places, end]).diff().clamp_max(self.window).sum())

    def destinations(self, source: int, destination: int) -> Skips:
        """`[source] … [destination]`."""
        return self._in_sight(source, self.where(destination))

    def outs(self, source: int, out: int) -> Skips:
        """`[source] … [out]`: the output follows the position from which the source is in sight."""
        places = self.where(out) - 1
        return self._in_sight(source, places[places >= 0])

    def triples(self, source: int, destination: int, out: int) -> Skips:
        """`[source] … [destination][out]`."""
        places = self.where(destination)
        places = places[places + 1 < len(self.tokens)]
        return self._in_sight(source, places[self.tokens[places.long() + 1] == out])

    def _in_sight(self, source: int, positions: Int[Tensor, " k"]) -> Skips:
        places = self.where(source)
        if not len(places):
            return Skips(positions[:0], positions[:0])
        last = torch.searchsorted(places, positions, right=True) - 1
        nearest = places[last.clamp_min(0)]
        seen = (last >= 0) & (positions - nearest < self.window)
        return Skips(positions[seen], nearest[seen])
