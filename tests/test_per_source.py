"""Every token's strongest destinations and outputs, written as Parquet, against tables formed in full."""

import numpy as np
import polars as pl
import pytest
import torch

import pathsum
from cases import CASES
from pathsum.circuits.tables import ov_circuit, score_circuit
from pathsum.cli import main
from pathsum.errors import NotApplicable
from pathsum.study.per_source import SCHEMA, per_source
from pathsum.toys import induction_model
from pathsum.weights.model import Model

PLAIN, ROTARY = (next(case for case in CASES if case.name == name) for name in ("gpt2", "llama"))


def full_tables(model: Model, delta: int | None) -> dict[tuple[str, str], np.ndarray]:
    """By head and circuit: the whole centred table, float64, a source a column."""
    weights, tables = model.weights.to(torch.float64).fold().load(), {}
    for layer, facts in enumerate(weights.spec.layers):
        qk, ov = (one(weights, layer, *rest).dense().numpy() for one, *rest in ((score_circuit, delta), (ov_circuit,)))
        for head in range(weights.spec.n_heads):
            scores = facts.score_scale * qk[head]
            tables[f"L{layer}H{head}", "QK"] = scores - scores.mean(1, keepdims=True)
            tables[f"L{layer}H{head}", "OV"] = ov[head] - ov[head].mean(0)
    return tables


@pytest.mark.parametrize(("case", "delta"), [(PLAIN, None), (ROTARY, 3)])
def test_every_source_has_its_strongest_rows_of_every_table(case, delta, tmp_path):
    model = Model("m", case.weights)
    rows = per_source(model, tmp_path / "t.parquet", count=3, delta=delta, block=500)
    frame = pl.read_parquet(tmp_path / "t.parquet")
    tables = full_tables(model, delta)
    assert frame.schema == SCHEMA
    assert rows == len(frame) == len(tables) * case.spec.d_vocab * 3
    for (head, circuit), table in tables.items():
        one = frame.filter(pl.col("head") == head, pl.col("circuit") == circuit)
        assert one["source_id"].to_list() == [source for source in range(case.spec.d_vocab) for _ in range(3)]
        assert one["rank"].to_list() == [1, 2, 3] * case.spec.d_vocab
        found = one["value"].to_numpy().reshape(-1, 3)
        size = np.abs(table).max()
        np.testing.assert_allclose(found, -np.sort(-table, 0)[:3].T, rtol=0, atol=2e-6 * size)
        places = table[one["row_id"].to_numpy(), one["source_id"].to_numpy()].reshape(-1, 3)
        np.testing.assert_allclose(found, places, rtol=0, atol=2e-6 * size)


def test_without_a_distance_a_rotary_model_has_only_ov_and_one_head_is_one_head(tmp_path):
    model, path = Model("m", ROTARY.weights), tmp_path / "new" / "t.parquet"
    assert per_source(model, path, head="L1H0", count=2) == 2 * ROTARY.spec.d_vocab
    frame = pl.read_parquet(path)
    assert set(frame["head"]) == {"L1H0"} and set(frame["circuit"]) == {"OV"}


@pytest.mark.parametrize(("options", "error"), [({"count": 0}, "count is 0"), ({"head": "L9H0"}, "no head L9H0"),
                                                ({"delta": float("nan")}, "finite number")])  # fmt: skip
def test_what_cannot_be_written_leaves_the_file_that_was_there(options, error, tmp_path):
    (tmp_path / "t.parquet").write_text("before")
    with pytest.raises(NotApplicable, match=error):
        per_source(Model("m", ROTARY.weights), tmp_path / "t.parquet", **options)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("t.parquet", "before")]


def test_the_command_writes_it(tmp_path, capsys):
    pathsum.save(tmp_path / "toy", induction_model().weights)
    arguments = [
        "per-source",
        str(tmp_path / "toy"),
        "--out",
        str(tmp_path / "t.parquet"),
        "--head",
        "L1H1",
        "--count",
        "1",
    ]
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"32 rows: {tmp_path / 't.parquet'}\n"
    frame = pl.read_parquet(tmp_path / "t.parquet").filter(pl.col("circuit") == "OV")
    assert (frame["source"] == frame["row"]).all() and (frame["value"] > 0).all()
