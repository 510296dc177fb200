"""Circuits over tokens, their eigenvalues, own-token ranks, skip-trigrams and positions, against dense tables."""

import numpy as np
import pytest
import torch

import oracle
import pathsum
from cases import BY_NAME, CASES, agree
from pathsum.circuits import spectra
from pathsum.circuits.positional import lag_curve, positional_scores
from pathsum.circuits.spectra import (
    departure,
    embedding_gram,
    ov_eigenvalues,
    own_token_ranks,
    pair_eigenvalues,
    positivity,
    qk_eigenvalues,
    through_tokens,
    unembedding_gram,
)
from pathsum.circuits.tables import direct_path, layer_OV, layer_QK, ov_circuit, qk_circuit
from pathsum.circuits.trigrams import centred_ov, centred_qk, skip_trigrams
from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.study import pairs, weights_only
from pathsum.weights.model import Model

LAYERED = [case for case in CASES if case.spec.n_layers]
EVERY_LAYERED_CASE = pytest.mark.parametrize("case", LAYERED, ids=repr)
DELTA = 3


@EVERY_LAYERED_CASE
def test_circuits_are_the_oracles_dense_tables(case):
    agree(direct_path(case.folded).dense(), oracle.dense_unembedding(case.spec, case.arrays) @ case.arrays["W_E"])
    for layer in range(case.spec.n_layers):
        ov, qk = ov_circuit(case.folded, layer), qk_circuit(case.folded, layer, DELTA)
        for index in range(case.spec.n_heads):
            agree(ov[index].dense(), oracle.ov_circuit(case.spec, case.arrays, layer, index))
            agree(qk[index].dense(), oracle.qk_circuit(case.spec, case.arrays, layer, index, DELTA))


@EVERY_LAYERED_CASE
def test_copying_and_matching_scores_are_those_of_the_whole_tables(case):
    layer = case.spec.n_layers - 1
    copying = positivity(ov_eigenvalues(case.folded, layer))
    matching = positivity(qk_eigenvalues(case.folded, layer, DELTA))
    for index in range(case.spec.n_heads):
        theirs = oracle.copying_score(case.spec, case.arrays, layer, index)
        assert copying[index].item() == pytest.approx(theirs, abs=1e-6)
        theirs = oracle.matching_score(case.spec, case.arrays, layer, index, DELTA)
        assert matching[index].item() == pytest.approx(theirs, abs=1e-6)


def test_matching_score_of_a_pair_is_that_of_the_whole_table():
    case = BY_NAME["gpt2"]
    found = positivity(pair_eigenvalues(case.folded, layer_QK(case.folded, 1)[2], layer_OV(case.folded, 0)))
    for source in range(case.spec.n_heads):
        theirs = oracle.pair_matching_score(case.spec, case.arrays, (0, source), (1, 2))
        assert found[source].item() == pytest.approx(theirs, abs=1e-6)


@EVERY_LAYERED_CASE
def test_departure_from_normality_is_that_of_the_whole_tables(case):
    """Against all eigenvalues and the norm of the dense table."""
    layer = case.spec.n_layers - 1
    rows = pathsum.spectra(Model("m", case.weights), delta=DELTA).rows()[-case.spec.n_heads :]
    for index, row in enumerate(rows):
        for name, table in (
            ("copying_departure", oracle.ov_circuit(case.spec, case.arrays, layer, index)),
            ("matching_departure", oracle.qk_circuit(case.spec, case.arrays, layer, index, DELTA)),
        ):
            own = np.abs(np.linalg.eigvals(table))
            theirs = np.sqrt(max(0.0, 1 - (own**2).sum() / (table**2).sum()))
            assert row[name] == pytest.approx(theirs, abs=1e-6)


def test_departure_is_zero_for_a_normal_matrix_one_for_a_shift_and_nan_for_nothing():
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    shift = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    for matrix, expected in ((turn, 0.0), (shift, 1.0), (turn + 3 * shift, (1 - 4 / 5) ** 0.5)):
        own, norm = torch.linalg.eigvals(matrix), torch.linalg.matrix_norm(matrix)
        assert departure(own, norm).item() == pytest.approx(expected, abs=1e-7)
    assert departure(torch.linalg.eigvals(0 * turn), torch.zeros((), dtype=torch.float64)).isnan()


def test_products_over_tokens_are_the_dense_ones_whatever_is_summed_at_once(monkeypatch):
    weights = BY_NAME["gpt2"].folded
    W_E, W_U = weights.W_E.numpy(), weights.W_U.numpy()
    monkeypatch.setattr(spectra, "TOKENS", 3)
    monkeypatch.setattr(spectra, "PANEL", 2)
    for found, dense in ((through_tokens(weights), W_E @ W_U), (embedding_gram(weights), W_E @ W_E.T),
                         (unembedding_gram(weights), W_U.T @ W_U)):  # fmt: skip
        agree(found, dense)
    half = weights.to(torch.float32)
    size = float(np.linalg.norm(W_E @ W_U))
    agree(through_tokens(half) / size, W_E @ W_U / size, 1e-6)


def test_scores_of_float32_weights_are_those_of_float64_to_six_digits():
    case = BY_NAME["llama"]
    single = case.folded.to(torch.float32)
    for wide, narrow in ((ov_eigenvalues(case.folded, 0), ov_eigenvalues(single, 0)),
                         (qk_eigenvalues(case.folded, 0, DELTA), qk_eigenvalues(single, 0, DELTA))):  # fmt: skip
        assert narrow.dtype == torch.complex128
        torch.testing.assert_close(positivity(narrow), positivity(wide), rtol=0, atol=1e-5)


def test_pairs_above_a_z_are_those_of_the_whole_table_and_no_others(monkeypatch):
    model, counted = Model("m", BY_NAME["three_layers_normed"].weights), 0
    every = pathsum.matching(model).rows()
    z = 1
    assert 0 < sum(row["k_z"] >= z for row in every) < len(every)

    def counting(weights, destination, source, gram):
        nonlocal counted
        counted += source.shape[0]
        return pair_eigenvalues(weights, destination, source, gram)

    monkeypatch.setattr(pairs, "pair_eigenvalues", counting)
    some = pathsum.matching(model, z=z).rows()
    assert some == [row for row in every if row["k_z"] >= z]
    assert counted == len(some)


def test_positivity_is_one_for_a_copy_minus_one_for_its_opposite_and_nan_for_nothing():
    copy = LowRank(torch.eye(5)[:, :3], torch.eye(5)[:3])
    assert positivity(copy.eigenvalues()) == 1.0
    assert positivity((-copy).eigenvalues()) == -1.0
    assert positivity((0.0 * copy).eigenvalues()).isnan()


@pytest.mark.parametrize("entries", [1, 50, 1 << 20])
def test_own_token_ranks_count_strictly_larger_outputs(entries):
    case = BY_NAME["gpt2"]
    circuit = ov_circuit(case.folded, 0)[1]
    expected = oracle.own_token_ranks(circuit.dense().numpy())
    assert own_token_ranks(circuit, None, entries).tolist() == expected
    some = torch.tensor([7, 2, 5])
    part = LowRank(circuit.left, circuit.right[:, some])
    assert own_token_ranks(part, some, entries).tolist() == [expected[i] for i in some.tolist()]
    silent = circuit.right.clone()
    silent[:, 4] = 0
    ranks = own_token_ranks(LowRank(circuit.left, silent), None, entries)
    assert ranks.isnan().tolist() == [token == 4 for token in range(len(expected))]
    assert own_token_ranks(circuit * 0.0, None, entries).isnan().all()


def brute_trigrams(qk: np.ndarray, ov: np.ndarray, count: int, per_source: int) -> list[float]:
    """All triples, sorted; at most `per_source` of each source."""
    best = []
    for source in range(qk.shape[1]):
        products = sorted((q * o for q in qk[:, source] for o in ov[:, source] if q > 0 and o > 0), reverse=True)
        best += products[:per_source]
    return sorted(best, reverse=True)[:count]


@pytest.mark.parametrize(("count", "per_source", "block"), [(5, 1, 1024), (30, 3, 2), (500, 11, 4)])
def test_skip_trigrams_are_the_strongest_of_all_triples(count, per_source, block):
    case = BY_NAME["gpt2"]
    qk, ov = centred_qk(qk_circuit(case.folded, 1)[0], 0.5), centred_ov(ov_circuit(case.folded, 1)[0])
    found = skip_trigrams(qk, ov, count, per_source, block)
    theirs = brute_trigrams(qk.dense().numpy(), ov.dense().numpy(), count, per_source)
    agree(found.effect, theirs, 1e-10)
    agree(found.qk, qk.entries(found.destination, found.source))
    agree(found.ov, ov.entries(found.out, found.source))


@pytest.mark.parametrize("seed", range(8))
def test_no_skip_trigram_is_missed_whatever_sources_are_skipped(seed):
    """Sources of very different lengths, few at a time: most are never looked at."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    qk, ov = (LowRank(normal(40, 3), normal(3, 40) * normal(40).abs() ** 2) for _ in range(2))
    found = skip_trigrams(qk, ov, 4, 2, block=1)
    agree(found.effect, brute_trigrams(qk.dense().numpy(), ov.dense().numpy(), 4, 2), 1e-10)


def test_centring_takes_out_what_the_softmax_ignores():
    case = BY_NAME["gpt2"]
    circuit = qk_circuit(case.folded, 1)[0].dense()
    agree(centred_qk(qk_circuit(case.folded, 1)[0], 0.5).dense(), 0.5 * (circuit - circuit.mean(1, keepdim=True)))
    circuit = ov_circuit(case.folded, 1)[0].dense()
    agree(centred_ov(ov_circuit(case.folded, 1)[0]).dense(), circuit - circuit.mean(0, keepdim=True))


@pytest.mark.parametrize(
    "name",
    ["two_layers_sinusoidal", "positions_after_norm_and_qk_norm", "positions_and_norms_across_heads",
     "three_layers_alibi"],
)  # fmt: skip
def test_positional_scores_are_the_position_part_of_the_scores(name):
    case = BY_NAME[name]
    n = 5
    for layer in range(case.spec.n_layers):
        found = positional_scores(case.folded, layer, n)
        for head in range(case.spec.n_heads):
            if name == "three_layers_alibi":
                agree(found[head], oracle.alibi_table(case.spec, layer, head, n))
                continue
            kv = head // case.spec.group
            p = np.array([oracle.position_vector(case.spec, case.arrays, layer, i) for i in range(n)])
            sides = []
            for which, index in (("Q", head), ("K", kv)):
                norm = oracle.side_norm(case.spec, case.arrays, layer, which, index)
                W = case.arrays[f"L{layer}.W_{which}"][index]
                sides.append(p @ (norm.matrix @ W).T)
                if which == "Q":
                    beta = oracle.norm_named(case.spec, case.arrays, f"L{layer}.attention_norm", case.spec.d_model).bias
                    b = oracle.bias(case.arrays, f"L{layer}.b_Q", (head + 1, case.spec.d_head))[head]
                    sides[0] = sides[0] + norm.matrix @ (W @ beta + b) + norm.bias
            agree(found[head], case.spec.layers[layer].score_scale * sides[0] @ sides[1].T, 1e-11)


def test_rotary_layers_have_no_positional_scores_of_their_own():
    with pytest.raises(NotApplicable, match="no positions of its own"):
        positional_scores(BY_NAME["llama"].folded, 0, 4)


def test_a_lag_curve_is_the_mean_of_each_diagonal():
    scores = torch.arange(16.0, dtype=torch.float64).reshape(1, 4, 4)
    mean, spread = lag_curve(scores, 2)
    agree(mean, [[(0 + 5 + 10 + 15) / 4, (4 + 9 + 14) / 3]])
    agree(spread, [[np.std([0, 5, 10, 15], ddof=0), np.std([4, 9, 14], ddof=0)]])


def test_ranks_of_a_large_table_are_sampled_with_an_error_that_covers_the_exact_share(monkeypatch):
    model = pathsum.open("two-layer-small")
    exact = pathsum.spectra(model).frame
    assert exact["own_token_rank_error"].to_list() == exact["own_token_top_error"].to_list() == [0.0] * 8
    monkeypatch.setattr(weights_only, "RANKED", 8 * 1024 * 300)
    sampled = pathsum.spectra(model).frame
    assert pathsum.spectra(model, exact=True).frame.equals(exact)
    for name in ("own_token_rank", "own_token_top"):
        off = (sampled[name] - exact[name]).abs() / sampled[f"{name}_error"]
        assert 0.1 < off.median() < 2 and off.max() < 4
