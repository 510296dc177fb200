"""Data as a page carries it: gzipped JSON in base64, and tables of tokens as bytes in it."""

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from markupsafe import Markup
from torch import Tensor

from pathsum.report.tokens import visible
from pathsum.report.views.attention import encoded, squeezed
from pathsum.report.views.token_tables import LONGEST, Strongest, TokenTables
from pathsum.weights.model import Model
from pathsum.weights.tokens import token_strings


def packed(data: Any) -> Markup:
    """Gzipped JSON in base64, the same bytes every time; base64 can end no script."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode())


@dataclass(frozen=True)
class Places:
    """The tokens a page names, each once: tables say their places among them, in three bytes."""

    ids: Int[Tensor, " named"]

    @classmethod
    def of(cls, tokens: Int[Tensor, " token"], tables: Sequence[TokenTables]) -> "Places":
        """All that are asked for or stand in a table."""
        parts = [part.ids.flatten() for each in tables for part in parts_of(each).values() if part is not None]
        return cls(torch.cat([tokens, *parts]).unique())

    def strings(self, model: Model) -> list[str]:
        return [visible(text, LONGEST) for text in token_strings(model, self.ids)]

    def of_tokens(self, tokens: Int[Tensor, "*any"]) -> list[int]:
        return torch.searchsorted(self.ids, tokens).tolist()

    def packed_tables(self, tables: TokenTables) -> dict[str, Any]:
        """`outs`, `destinations`, `sources`, by rank, then token: places as bytes, lowest first, values squeezed."""
        return {name: None if part is None else self._packed(part) for name, part in parts_of(tables).items()}

    def _packed(self, part: Strongest) -> dict[str, Any]:
        places = torch.searchsorted(self.ids, part.ids.mT.contiguous())
        scale = part.values.abs().max().item()
        return {
            "width": part.ids.shape[1],
            "places": [encoded((places >> shift & 255).to(torch.uint8)) for shift in (0, 8, 16)],
            "values": encoded(squeezed(part.values.mT, scale)),
            "scale": scale,
        }


def parts_of(tables: TokenTables) -> dict[str, Strongest | None]:
    return {"outs": tables.outs, "destinations": tables.destinations, "sources": tables.sources}
