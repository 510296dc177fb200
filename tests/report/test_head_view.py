"""A head's page says what the readings say; its tables around a token are those of the whole vocabulary."""

import numpy as np
import polars as pl
import pytest
import torch

import cases
import oracle
from pathsum import toys
from pathsum.errors import NotApplicable
from pathsum.report.tokens import visible
from pathsum.report.views.head import head_page
from pathsum.report.views.token_tables import find_tokens, token_tables, vocabulary
from pathsum.study.result import Result
from pathsum.weights.positions import Rotary

DELTA = 2


def dense_tables(case: cases.Case, layer: int, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Centred QK `[destination, source]` and OV `[out, source]`, from dense matrices and loops."""
    spec, arrays, facts = case.spec, case.arrays, case.spec.layers[layer]
    W_E, n = arrays["W_E"], case.spec.d_vocab
    Q, K = oracle.query_matrix(spec, arrays, layer, head), oracle.key_matrix(spec, arrays, layer, head)
    norm = oracle.norm_named(spec, arrays, f"L{layer}.attention_norm", spec.d_model)
    side = oracle.side_norm(spec, arrays, layer, "Q", head)
    b_Q = oracle.bias(arrays, f"L{layer}.b_Q", (head + 1, spec.d_head))[head]
    taps = sum(oracle.tap(spec, arrays, layer, "Q", head, t) for t in range(oracle.tap_count(spec, layer, "Q")))
    constant = side.matrix @ (taps * (arrays[f"L{layer}.W_Q"][head] @ norm.bias + b_Q)) + side.bias
    R = oracle.delta_rotation(spec, layer, DELTA)
    qk = np.zeros((n, n))
    for d in range(n):
        for s in range(n):
            qk[d, s] = facts.score_scale * float((Q @ W_E[:, d] + constant) @ R @ K @ W_E[:, s])
        qk[d] -= qk[d].mean()
    ov = oracle.ov_circuit(spec, arrays, layer, head)
    return qk, ov - ov.mean(0)


@pytest.mark.parametrize("case", cases.CASES, ids=repr)
def test_tables_around_a_token_are_those_of_the_vocabulary(case):
    count, tokens = 3, torch.arange(case.spec.d_vocab)
    for layer in range(case.spec.n_layers):
        for head in range(case.spec.n_heads):
            qk, ov = dense_tables(case, layer, head)
            found = token_tables(case.folded, f"L{layer}H{head}", tokens, count, DELTA)
            for token in tokens.tolist():
                most = np.sort(ov[:, token])[::-1]
                short = min(count, case.spec.d_vocab // 2)
                cases.agree(found.outs.values[token], [*most[:short], *most[-short:]], 1e-10)
                cases.agree(ov[found.outs.ids[token], token], found.outs.values[token], 1e-10)
                cases.agree(found.destinations.values[token], np.sort(qk[:, token])[::-1][:count], 1e-9)
                cases.agree(qk[found.destinations.ids[token], token], found.destinations.values[token], 1e-9)
                cases.agree(found.sources.values[token], np.sort(qk[token])[::-1][:count], 1e-9)
                cases.agree(qk[token, found.sources.ids[token]], found.sources.values[token], 1e-9)


def test_a_rotary_head_has_no_qk_table_without_a_distance():
    case = cases.BY_NAME["llama"]
    assert isinstance(case.spec.layers[0].positions, Rotary)
    found = token_tables(case.folded, "L0H0", torch.tensor([1]))
    assert found.destinations is None and found.sources is None and found.outs.ids.shape == (1, 10)
    with pytest.raises(NotApplicable):
        token_tables(case.folded, "L9H0", torch.tensor([1]))


def test_the_induction_head_of_the_toy_copies_and_its_page_says_what_it_reads(hostile, results, hostile_tokens):
    page = head_page(results, "L1H1").to_dict()
    assert "induction" in page["roles"] and page["scores"]["copying score, by eigenvalues"] > 0.9
    first = page["partners"]["reads_from"][0]
    assert (first["head"], first["kind"]) == ("L0H0", "K") and not page["partners"]["writes_to"]
    assert head_page(results, "L0H0").partners["writes_to"][0]["head"] == "L1H1"
    assert {circuit for *_, circuit in page["eigenvalues"]} == {"OV", "QK"}
    sent = token_tables(hostile.tables, "L1H1", torch.tensor([0])).to_dict(hostile.model)
    assert sent["outs"][0][0] == visible(hostile_tokens[0], 40) == "<script>alert(1)</script>"


def test_a_disagreement_is_a_sentence_either_way(results):
    spectra = results["spectra"]
    changed = {"L0H0": (0.9, 0.6), "L0H1": (0.1, 0.1), "L1H0": (0.9, 0.1), "L1H1": (float("nan"), 0.1)}
    rows = [{**row, "copying_score": changed[row["head"]][0], "own_token_rank": changed[row["head"]][1]}
            for row in spectra.frame.to_dicts()]  # fmt: skip
    altered = {**results, "spectra": Result(spectra.reading, pl.DataFrame(rows), spectra.manifest)}
    assert "eigenvalues say that it copies" in head_page(altered, "L0H0").said
    assert "own-token rank says that it copies" in head_page(altered, "L0H1").said
    assert head_page(altered, "L1H0").said == "" and head_page(altered, "L1H1").said == ""
    assert head_page(altered, "L1H1").scores["copying score, by eigenvalues"] is None


def test_a_page_of_few_readings_has_what_they_say(results):
    page = head_page({"composition": results["composition"]}, "L1H1")
    assert page.partners["reads_from"] and not page.trigrams and not page.eigenvalues and page.said == ""


def test_tokens_are_found_by_what_they_look_like(hostile):
    shown = vocabulary(hostile.model)
    assert find_tokens(shown, "script>")[0][1] == "</script>"
    assert find_tokens(shown, "U+202E")[0][1] == find_tokens(shown, "right to")[0][1] == "<U+202E>right·to·left"
    assert len(find_tokens(shown, "", 3)) == 3 and not find_tokens(shown, "zebra")
    assert find_tokens(vocabulary(toys.induction_model()), "12") == [(12, "12")]
