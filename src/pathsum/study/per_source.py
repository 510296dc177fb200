"""Tables of every source token: what attends to it most, and what it then raises most, streamed to Parquet."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import torch
from polars.io.plugins import register_io_source

from pathsum.by_row import BLOCK, RowEntries, largest_by_row
from pathsum.circuits.tables import ov_circuit, score_circuit
from pathsum.circuits.trigrams import centred_ov, centred_qk
from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.study.subject import Subject
from pathsum.weights.model import Model
from pathsum.weights.positions import Rotary
from pathsum.weights.tokens import token_strings
from pathsum.weights.weights import head_index

SCHEMA = pl.Schema({
    "head": pl.String, "circuit": pl.String, "source_id": pl.Int32, "source": pl.String, "rank": pl.Int16,
    "row_id": pl.Int32, "row": pl.String, "value": pl.Float32,
})  # fmt: skip
"""QK: the row is the destination, the value a centred score, queries' bias included.

OV: the row is the output, the value a centred logit.
"""


def per_source(
    model: Model,
    path: str | Path,
    *,
    count: int = 5,
    head: str | None = None,
    delta: float | int | None = None,
    block: int = BLOCK,
) -> int:
    """Write every source token's `count` strongest destinations (QK) and outputs (OV), of one head or all, as Parquet.

    Exact, over the full vocabulary; columns and units are those of `SCHEMA`. Equal values come in the order of ids. A
    rotary layer's QK needs `delta`; without it only OV is written. Memory: the weights and `block` entries of a table.
    The file is written beside `path` and renamed; what it has is told by the returned number of rows.
    Raises `NotApplicable` for a head or a count that is none.
    """
    if not 1 <= count <= model.spec.d_vocab:
        raise NotApplicable(f"count is {count}; it may be 1 to the vocabulary's {model.spec.d_vocab}")
    chosen = None if head is None else head_index(head, model.spec)
    path, rows = Path(path), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    names = pl.Series(token_strings(model, range(model.spec.d_vocab)), dtype=pl.String)
    tables = _tables(Subject(model), chosen, delta)

    def frames(*_: object) -> Iterator[pl.DataFrame]:
        nonlocal rows
        for name, circuit, table in tables:
            for found in largest_by_row(table.T.left, table.T.right, count, block):
                frame = _frame(name, circuit, found, names)
                rows += len(frame)
                yield frame

    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        beside = Path(folder) / path.name
        register_io_source(frames, schema=SCHEMA).sink_parquet(beside)
        beside.replace(path)
    return rows


def _tables(
    subject: Subject, chosen: tuple[int, int] | None, delta: float | int | None
) -> Iterator[tuple[str, str, LowRank]]:
    """Head, circuit, and the centred table over tokens, a layer at a time."""
    weights = subject.tables
    for layer, facts in enumerate(weights.spec.layers):
        if chosen is not None and layer != chosen[0]:
            continue
        known = delta is not None or not isinstance(facts.positions, Rotary)
        qk, ov = score_circuit(weights, layer, delta) if known else None, ov_circuit(weights, layer)
        for index in range(weights.spec.n_heads) if chosen is None else [chosen[1]]:
            if qk is not None:
                yield f"L{layer}H{index}", "QK", centred_qk(qk[index], facts.score_scale)
            yield f"L{layer}H{index}", "OV", centred_ov(ov[index])


def _frame(head: str, circuit: str, found: RowEntries, names: pl.Series) -> pl.DataFrame:
    rows, k = found.values.shape
    sources = torch.arange(found.first, found.first + rows, dtype=torch.int32).repeat_interleave(k).numpy()
    ids = found.columns.flatten().int().numpy()
    frame = pl.DataFrame({
        "source_id": sources, "source": names.gather(sources), "row_id": ids, "row": names.gather(ids),
        "rank": torch.arange(1, k + 1, dtype=torch.int16).repeat(rows).numpy(), "value": found.values.flatten().numpy(),
    })  # fmt: skip
    return frame.with_columns(head=pl.lit(head), circuit=pl.lit(circuit)).select(*SCHEMA).cast(SCHEMA)
