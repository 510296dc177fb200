"""What paths from each source carry: sums by enumeration of terms."""

import pytest
import torch
from torch.nn.functional import cross_entropy

import pathsum
from cases import CASES, agree
from oracle import scale_of
from pathsum.paths import carried as module
from pathsum.paths.carried import FIRST, carried, carriers
from pathsum.paths.logits import expand
from pathsum.runs.run import run_weights
from pathsum.weights.model import Model


def carrier(path) -> str:
    """Whose a path is."""
    if path.source in ("embed", "pos"):
        return "embed through heads" if path.heads else "embed"
    return "bias" if path.source.endswith("bias") else path.source


@pytest.mark.parametrize("case", CASES, ids=repr)
@pytest.mark.parametrize("at_once", [1, module.AT_ONCE])
def test_numbers_are_those_of_the_enumerated_terms(case, at_once, monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    run = run_weights(Model(case.name, case.weights), case.weights, case.tokens)
    expansion, names = expand(run), carriers(case.spec)
    rows = torch.tensor([0, 2, 3])
    parts = {name: torch.zeros(3, case.spec.d_vocab, dtype=torch.float64) for name in names}
    for term in expansion.terms():
        parts[carrier(term.path)] += term.logits[rows]
    total = run.uncapped_logits[rows]
    agree(sum(parts.values()), total, 1e-10)
    centred = total - total.mean(-1, keepdim=True)
    found, targets, summed = carried(expansion.frozen, rows), case.tokens[1:][rows], torch.zeros_like(total)
    first = sum(parts[name] for name in FIRST)
    W_U, b_U = expansion.frozen.ends.W_U, expansion.frozen.ends.b_U
    constant = torch.zeros(case.spec.d_vocab, dtype=torch.float64)
    recorded = run.frozen.final_scale[rows, None]
    for name, (covariance, variance, up_to, beside, rescaled) in zip(names, found, strict=True):
        summed = summed + parts[name]
        own = parts[name] - parts[name].mean(-1, keepdim=True)
        agree(covariance, (own * centred).mean(-1), 1e-9)
        agree(variance, centred.square().mean(-1), 1e-9)
        agree(up_to, cross_entropy(summed, targets, reduction="none"), 1e-9)
        expected = summed if name in FIRST else first + parts[name]
        constant = b_U if name == "bias" and b_U is not None else constant
        stream = torch.linalg.lstsq(W_U, (summed - constant).mT).solution.mT / recorded
        own = [scale_of(case.spec.norm, case.spec.norm_eps, row.numpy()) for row in stream]
        anew = stream @ W_U.mT * torch.tensor(own, dtype=torch.float64)[:, None] + constant
        agree(rescaled, cross_entropy(anew, targets, reduction="none"), 1e-7)
        agree(beside, cross_entropy(expected, targets, reduction="none"), 1e-9)
    agree(found[:, 0].sum(0), found[0, 1], 1e-9)


def test_an_attention_only_model_is_carried_by_its_embeddings():
    rows = pathsum.carried(pathsum.open("two-layer-small"), sequences=2).rows()
    assert [row["source"] for row in rows] == ["embed", "embed through heads"], "no biases, no MLPs"
    assert sum(row["variance_share"] for row in rows) == pytest.approx(1, abs=1e-5)
    assert rows[-1]["saved_share_up_to"] == pytest.approx(1)
    assert sum(row["saved_share"] for row in rows) == pytest.approx(1)


def test_where_a_model_saves_nothing_shares_of_it_are_undefined():
    rows = pathsum.carried(pathsum.open("two-layer-small"), text=" the" * 400, sequences=2).rows()
    assert all(row["saved_share"] is None and row["saved_share_up_to"] is None for row in rows), "one token: no entropy"
