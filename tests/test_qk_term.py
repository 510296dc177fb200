"""The weights of a score term: a thin matrix that is the oracle's product, and with its patterns the term itself."""

import numpy as np
import pytest
import torch

import oracle
from cases import BY_NAME, agree
from pathsum.errors import NotApplicable
from pathsum.paths.paths import Path
from pathsum.paths.qk_term import qk_term
from test_score_terms import expansion_of, last_head


def dense_into(case, path: Path) -> np.ndarray:
    matrix = case.arrays["W_E"] if path.source == "embed" else np.eye(case.spec.d_model)
    for layer, head in path.heads:
        matrix = oracle.dense_OV(case.spec, case.arrays, layer, head) @ matrix
    return matrix


@pytest.mark.parametrize("name", ["gpt2", "three_layers_rotary_rms", "qwen2", "three_layers_alibi", "neox"])
@pytest.mark.parametrize(("query", "key"), [("embed", "embed → L0H1"), ("L0H1", "L0H0"), ("L0.mlp", "embed"),
                                            ("embed", "L0.mlp"), ("L0.bias", "L0.bias → L1H0"),
                                            ("embed → L0H0 → L1H1", "L0H1")])  # fmt: skip
def test_the_weights_of_a_term_are_the_oracles_product(name, query, key):
    case, delta = BY_NAME[name], 2.0
    layer, index = last_head(case)
    paths = [Path.parse(text, case.spec) for text in (query, key)]
    if any(path.heads and path.heads[-1][0] >= layer for path in paths):
        with pytest.raises(NotApplicable, match=f"does not end before layer {layer}"):
            qk_term(case.folded, f"L{layer}H{index}", query, key, delta)
        return
    term = qk_term(case.folded, f"L{layer}H{index}", query, key, delta)
    wanted = dense_into(case, paths[0]).T @ oracle.dense_QK(case.spec, case.arrays, layer, index, delta)
    wanted = wanted @ dense_into(case, paths[1])
    agree(term.matrix.dense(), wanted, 1e-11)
    assert term.matrix.rank <= case.spec.d_head
    agree(qk_term(case.folded, f"L{layer}H{index}", *paths, delta).matrix.dense(), term.matrix.dense())
    if paths[0].source == paths[1].source:
        assert term.matching_score == pytest.approx(oracle.eigenvalue_share(wanted), abs=1e-8)
    else:
        with pytest.raises(NotApplicable, match="one side is over tokens"):
            _ = term.matching_score


@pytest.mark.parametrize("name", ["biases_without_norm", "two_layers_wide_heads", "three_layers_alibi"])
def test_without_norms_a_term_is_its_patterns_with_its_weights(name):
    case = BY_NAME[name]
    expansion = expansion_of(case)
    patterns = lambda path: [expansion.expansion.run.frozen.layers[at].pattern[head] for at, head in path.heads]
    for term in expansion.terms(max_order=1):
        if not (term.query.startswith("embed") and term.key.startswith("embed")):
            continue
        weights = expansion.weights_of(term.query, term.key)
        A_q, A_k = (sum(patterns(side), torch.zeros(1)) if side.heads else torch.eye(len(case.tokens)).double()
                    for side in (weights.query, weights.key))  # fmt: skip
        over_tokens = weights.matrix.dense()[case.tokens][:, case.tokens]
        agree(term.scores, expansion.block.attention.score_scale * A_q @ over_tokens @ A_k.mT, 1e-11)


def test_with_rotary_positions_a_term_is_one_of_a_distance():
    case = BY_NAME["three_layers_rotary_rms"]
    expansion = expansion_of(case)
    (direct,) = [term for term in expansion.terms(max_order=0) if term.query == term.key == "embed"]
    S = expansion.expansion.run.frozen.layers[expansion.layer].attention_scale
    with pytest.raises(NotApplicable, match="pass delta="):
        expansion.weights_of()
    for i, j in ((5, 5), (5, 2), (6, 0)):
        own = expansion.weights_of(delta=i - j).matrix.entries(case.tokens[[i]], case.tokens[[j]])
        agree(direct.scores[i, j], expansion.block.attention.score_scale * S[i] * S[j] * own[0], 1e-11)


def test_a_term_prints_as_the_paper_writes_it():
    case = BY_NAME["gpt2"]
    term = qk_term(case.folded, "L1H2", "embed", "L0H1")
    assert str(term) == "Id ⊗ A^{L0H1} ⊗ W_Eᵀ W_QK^{L1H2} W_OV^{L0H1} W_E"
    assert str(qk_term(case.folded, "L1H2")) == "Id ⊗ Id ⊗ W_Eᵀ W_QK^{L1H2} W_E"
    assert str(qk_term(case.folded, "L1H2", "L0H0", "pos")) == ("A^{L0H0} ⊗ Id ⊗ W_Eᵀ W_OV^{L0H0}ᵀ W_QK^{L1H2} · pos")
