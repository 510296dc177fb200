"""The reading `composition`, column by column: a model of a thousand heads has millions of pairs."""

import math
import re
from collections.abc import Sequence
from typing import Any, Literal, cast, get_args

import numpy as np
import polars as pl
import torch

from pathsum.circuits.composition import cyclic_score, sampled_baseline
from pathsum.circuits.cut import Composed, Task, cut
from pathsum.circuits.metric import in_token_metric
from pathsum.circuits.stream import KINDS, Delta, Kind, Which, distances
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.study.cluster import run_tasks, worker_count
from pathsum.study.subject import Subject
from pathsum.weights.weights import Weights

MOST_PAIRS = 5_000_000
"""Rows of a table of composition at several distances."""
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
NUMBERS = ("score", "ceiling", "z")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
One = float | int | Literal["rms"] | None


def composition(
    subject: Subject,
    *,
    delta: Delta = None,
    writers: str = "heads",
    readers: str = "heads",
    metric: str | None = None,
    erratum: bool = False,
    sampled: bool = False,
    dtype: str = "float32",
    memory: int | str = "1.4GB",
    cluster: str | None = None,
) -> pl.DataFrame:
    """Q-, K- and V-composition of all pairs of heads that can compose, beside baseline, ceiling and z; largest first.

    Where W_QK depends on the distance Δ (rotary), Q and K need `delta`: a number; several, each with rows of its own;
    or "rms", √(mean of score(Δ)²) over Δ = 0 … n_ctx − 1, with its own exact z and ceiling (one random rotation for all
    Δ together). A column `delta` then says which, null where nothing depends on it. Without it those rows are null.
    `writers` and `readers` "all" take in all that writes to the residual stream (embed, pos, L0.mlp) and reads from it
    (kinds in, gate, router, unembed): virtual weights. `metric` "tokens" adds the same numbers in the basis in which
    tokens are spread evenly, which no change of the residual basis alters.
    `erratum` adds the score with the cyclic permutation of the paper's first diagram, `sampled` the paper's own
    baseline (random matrices, seeded) with its standard error.
    Products are in `dtype` (float32, off by 1e-3 of the baseline at most and by 2e-6 as measured; or float64), spectra
    and moments in float64. `memory`, bytes or such as "4GB", bounds what is held beyond the weights.
    `cluster`, a Dask scheduler's address, gives pairs of groups of layers to its workers.

    Raises `NotApplicable` for an option that is none of these, `ExpansionTooLarge` for more than 5 million rows at
    several distances.
    """
    spec = subject.model.spec
    more: dict[str, Any] = {"writers": _which("writers", writers), "readers": _which("readers", readers)}
    more |= {"deltas": _each(subject, delta), "dtype": _dtype(dtype), "memory": byte_count(memory)}
    tasks: list[Task | None] = [None]
    if cluster is not None:
        more |= {"groups": _enough_groups(worker_count(cluster))}
        tasks = [*cut(subject.model.weights.fold(), **more).tasks]
    asked = [(task, more, _metric(metric), erratum) for task in tasks]
    frames = [frame for found in run_tasks(_frames, subject, asked, cluster) for frame in found]
    table = pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()
    if sampled and frames:
        mean, error = sampled_baseline(spec.d_model, spec.d_head, seed=subject.seed)
        table = table.with_columns(pl.lit(mean).alias("sampled_baseline"), pl.lit(error).alias("sampled_error"))
    return largest_first(table, "effect") if frames else table


def _frames(
    subject: Subject, task: Task | None, options: dict[str, Any], metric: str | None, erratum: bool
) -> list[pl.DataFrame]:
    """A table for every two sites that can compose: all, or those of one task."""
    weights, baseline = subject.model.weights.to(options["dtype"]).fold(), subject.model.spec.d_model**-0.5
    every = [weights] if metric is None else [weights, in_token_metric(weights)]
    frames = []
    for one, *others in zip(*(cut(each, **options).pairs(task) for each in every), strict=True):
        frame = _frame(one, baseline)
        for other in others:
            beside = _frame(other, baseline).select("score", "ceiling", "z", "effect")
            frame = frame.hstack(beside.rename(lambda name: f"token_{name}"))
        if options["deltas"] != [None]:
            frame = frame.with_columns(pl.lit(one.reader.delta).alias("delta"))
        if erratum and one.pairs is not None and one.reader.kind in KINDS and one.writer.kind == "OV":
            frame = frame.with_columns(_cyclic(subject.folded, one).alias("cyclic_score"))
        frames.append(frame)
    return frames


def _enough_groups(workers: int) -> int:
    """Of layers, so that there are four tasks a worker: n groups have n (n + 1)/2 pairs."""
    return math.ceil(((32 * workers + 1) ** 0.5 - 1) / 2)


def byte_count(memory: int | str) -> int:
    """`4GB`, `512MiB` or a number of bytes. Raises `NotApplicable`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]i?B|B)?\s*", str(memory), re.IGNORECASE)
    if match is None:
        raise NotApplicable(f"memory is {memory!r}; give bytes, or such as 4GB or 512MiB")
    return int(float(match[1]) * UNITS[(match[2] or "").upper()])


def largest_first(table: pl.DataFrame, column: str) -> pl.DataFrame:
    """Sorted, undefined values last; equal values keep their order."""
    key = pl.col(column).cast(pl.Float64).fill_nan(None)
    return table.sort(key, descending=True, nulls_last=True, maintain_order=True)


def _frame(one: Composed, baseline: float) -> pl.DataFrame:
    """A row a pair; numbers are null where undefined (rotary Q and K without a distance)."""
    sources, destinations = one.writer.names, one.reader.names
    count = len(sources) * len(destinations)
    known = {name: None if one.pairs is None else getattr(one.pairs, name).flatten().numpy() for name in NUMBERS}
    columns = {name: [None] * count if part is None else part for name, part in known.items()}
    columns |= {"source": [*sources] * len(destinations), "destination": np.repeat(destinations, len(sources))}
    columns |= {"kind": [one.reader.kind] * count, "baseline": [baseline] * count}
    frame = pl.DataFrame(columns, schema_overrides=dict.fromkeys(NUMBERS, pl.Float64))
    return frame.with_columns((pl.col("score") - baseline).alias("effect"))


def _cyclic(weights: Weights, one: Composed) -> pl.Series:
    later, earlier, delta = one.reader.layer, one.writer.layer, one.reader.delta
    if later is None or earlier is None or isinstance(delta, str | Sequence):
        raise NotApplicable("the erratum's score is of one distance; pass delta= a number, or several")
    return pl.Series(cyclic_score(weights, cast(Kind, one.reader.kind), later, earlier, delta).flatten().numpy())


def _each(subject: Subject, delta: Delta) -> list[One]:
    """The distances one by one; "rms" and none are one. Raises `ExpansionTooLarge` for a table nobody could read."""
    spec = subject.model.spec
    if delta is None or isinstance(delta, float | int):
        return [delta]
    if delta == "rms":
        return ["rms"]
    several = distances(delta, spec.n_ctx).tolist()
    count = len(several) * 2 * math.comb(spec.n_layers, 2) * spec.n_heads**2
    if len(several) > 1 and count > MOST_PAIRS:
        raise ExpansionTooLarge(f"{count:,} rows; pass fewer distances (at most {MOST_PAIRS:,} rows in all), or 'rms'")
    return several


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise NotApplicable(f"dtype is {name!r}; it may be {' or '.join(DTYPES)}")
    return DTYPES[name]


def _which(option: str, given: str) -> Which:
    for which in get_args(Which):
        if given == which:
            return which
    raise NotApplicable(f"{option} is {given!r}; it may be heads or all")


def _metric(given: str | None) -> str | None:
    if given not in (None, "tokens"):
        raise NotApplicable(f"metric is {given!r}; the one offered beside the plain numbers is tokens")
    return given
