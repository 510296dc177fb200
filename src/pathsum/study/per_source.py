"""Tables of every source token: what attends to it most, and what it then raises most, streamed to Parquet."""

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import torch
from polars.io.plugins import register_io_source

from pathsum.by_row import BLOCK, RowEntries, largest_by_row
from pathsum.circuits.tables import ov_circuit, score_circuit
from pathsum.circuits.trigrams import centred_ov, centred_qk
from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.study.cluster import run_tasks
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
    cluster: str | None = None,
) -> int:
    """Write every source token's `count` strongest destinations (QK) and outputs (OV), of one head or all, as Parquet.

    Exact, over the full vocabulary; columns and units are those of `SCHEMA`. Equal values come in the order of ids. A
    rotary layer's QK needs `delta`; without it only OV is written. Memory: the weights and `block` entries of a table.
    The file is written beside `path` and renamed; what it has is told by the returned number of rows. `cluster`, a Dask
    scheduler's address, gives layers to its workers; the table of one then lies in memory, compressed.
    Raises `NotApplicable` for a head or a count that is none.
    """
    if not 1 <= count <= model.spec.d_vocab:
        raise NotApplicable(f"count is {count}; it may be 1 to the vocabulary's {model.spec.d_vocab}")
    chosen = None if head is None else head_index(head, model.spec)
    path, rows = Path(path), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    layers = range(model.spec.n_layers) if chosen is None else [chosen[0]]
    asked = [(layer, None if chosen is None else chosen[1], delta, count, block) for layer in layers]

    def frames(*_: object) -> Iterator[pl.DataFrame]:
        nonlocal rows
        subject = Subject(model)
        if cluster is None:
            found = (frame for one in run_tasks(_layer_frames, subject, asked) for frame in one)
        else:
            packed = run_tasks(_packed_frames, subject, asked, cluster)
            found = (pl.read_parquet(one).cast(SCHEMA) for one in packed)
        for frame in found:
            rows += len(frame)
            yield frame

    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        beside = Path(folder) / path.name
        register_io_source(frames, schema=SCHEMA).sink_parquet(beside)
        beside.replace(path)
    return rows


def _layer_frames(
    subject: Subject, layer: int, index: int | None, delta: float | int | None, count: int, block: int
) -> Iterator[pl.DataFrame]:
    """Of one head of a layer or all, a block of sources at a time."""
    names = pl.Series(token_strings(subject.model, range(subject.model.spec.d_vocab)), dtype=pl.String)
    for name, circuit, table in _tables(subject, layer, index, delta):
        for found in largest_by_row(table.T.left, table.T.right, count, block):
            yield _frame(name, circuit, found, names)


def _packed_frames(subject: Subject, layer: int, *how: Any) -> bytes:
    """All of them as one Parquet file."""
    buffer = io.BytesIO()
    frames = [*_layer_frames(subject, layer, *how)]
    (pl.concat(frames) if frames else pl.DataFrame(schema=SCHEMA)).write_parquet(buffer)
    return buffer.getvalue()


def _tables(
    subject: Subject, layer: int, chosen: int | None, delta: float | int | None
) -> Iterator[tuple[str, str, LowRank]]:
    """Head, circuit, and the centred table over tokens."""
    weights, facts = subject.tables, subject.model.spec.layers[layer]
    known = delta is not None or not isinstance(facts.positions, Rotary)
    qk, ov = score_circuit(weights, layer, delta) if known else None, ov_circuit(weights, layer)
    for index in range(weights.spec.n_heads) if chosen is None else [chosen]:
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
