"""Attention patterns of the heads worth looking at, on the subject's sample text."""

from collections.abc import Sequence

import polars as pl
import torch

from pathsum.report.heads import head_table
from pathsum.report.partners import partners_of
from pathsum.report.tokens import visible
from pathsum.runs.run import run_weights
from pathsum.study.result import Result
from pathsum.study.subject import Subject
from pathsum.weights.tokens import token_strings

MOST = 6
LONGEST = 18
"""Characters of a token on an axis."""


def heads_to_show(results: dict[str, Result]) -> list[str]:
    """Induction heads and their partners; where there are none, the heads with the most prefix matching; at most 6."""
    table = head_table(results).sort("prefix_matching", descending=True, nulls_last=True)
    induction = table.filter(pl.col("is_induction_head").fill_null(False)).head(MOST - 2)
    if induction.is_empty():
        previous = table.sort("previous_token", descending=True, nulls_last=True).head(1)
        return list(dict.fromkeys([*table["head"].head(MOST // 2), *previous["head"]]))
    partners = [source for head in induction["head"] for source in partners_of(results, head)["source"].head(2)]
    return list(dict.fromkeys([*induction["head"], *partners]))[:MOST]


def pattern_table(subject: Subject, heads: Sequence[str]) -> pl.DataFrame:
    """Columns `head`, `destination`, `source` (positions in the sample) and `attention`, the lower triangle."""
    recorded = run_weights(subject.model, subject.raw, subject.sample_tokens)
    destination, source = torch.tril_indices(*recorded.patterns.shape[-2:])
    parts = []
    for head in heads:
        layer, index = (int(part) for part in head[1:].split("H"))
        values = recorded.patterns[layer, index, destination, source]
        columns = {"destination": destination.tolist(), "source": source.tolist(), "attention": values.tolist()}
        parts.append(pl.DataFrame({"head": [head] * len(values), **columns}))
    schema = {"head": pl.String, "destination": pl.Int64, "source": pl.Int64, "attention": pl.Float64}
    return pl.concat(parts) if parts else pl.DataFrame(schema=schema)


def sample_labels(subject: Subject) -> list[str]:
    """The sample's tokens as they are shown beside a pattern."""
    return [visible(text, LONGEST) for text in token_strings(subject.model, subject.sample_tokens)]
