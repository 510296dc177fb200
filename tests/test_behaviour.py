"""What heads do on tokens: scores of a perfect head, of the oracle, and the near misses that must not pass."""

import itertools
import math

import numpy as np
import pytest
import torch

import oracle
from cases import BY_NAME, CASES, agree
from pathsum.behaviour import induction
from pathsum.behaviour.attention import (
    default_block,
    earlier_copies,
    lag_profile,
    prefix_matching,
    prefix_targets,
    repeated_tokens,
    start_token_rest,
)
from pathsum.behaviour.bigrams import bigram_counts, compare_bigrams, direct_log_probabilities, frequent_pairs, spearman
from pathsum.behaviour.induction import copying_on_sequence, removal_losses, repeat_rows
from pathsum.behaviour.losses import in_context_score, in_context_tokens, next_token_losses, run_losses
from pathsum.errors import TextError
from pathsum.paths.logits import expand
from pathsum.runs.attention import soft_cap
from pathsum.runs.forward import forward, logits
from pathsum.runs.graded import frozen_run
from pathsum.runs.run import run_weights
from pathsum.weights.model import Model
from test_paths import recorded

LAYERED = [case for case in CASES if case.spec.n_layers]
TOKENS = torch.tensor([3, 1, 4, 1, 5, 3, 1, 3, 3])


def random_patterns(*shape: int) -> torch.Tensor:
    scores = torch.randn(*shape, dtype=torch.float64)
    hidden = torch.ones(shape[-1], shape[-1], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -math.inf).softmax(-1)


def test_profiles_and_scores_are_the_oracles():
    pattern = random_patterns(2, 9, 9)
    for head in range(2):
        one = pattern[head].numpy()
        agree(lag_profile(pattern, 9)[head], oracle.lag_profile(one, 9))
        agree(prefix_matching(pattern, TOKENS)[head], oracle.prefix_matching(one, TOKENS.tolist()))
        agree(start_token_rest(pattern, TOKENS)[head], oracle.start_token_rest(one, TOKENS.tolist()))


def test_a_batch_is_averaged_over_its_rows():
    pattern, tokens = random_patterns(3, 2, 9, 9), torch.stack([TOKENS, TOKENS.flip(0), TOKENS.roll(2)])
    rows = [sum(TOKENS[:i].eq(TOKENS[i]).any().item() for i in range(9)) for TOKENS in tokens]
    each = [prefix_matching(pattern[b], tokens[b]) for b in range(3)]
    agree(prefix_matching(pattern, tokens), sum(n * e for n, e in zip(rows, each, strict=True)) / sum(rows))
    agree(lag_profile(pattern, 3), torch.stack([lag_profile(one, 3) for one in pattern]).mean(0))


def perfect_pattern(tokens: torch.Tensor) -> torch.Tensor:
    """Attention spread over the tokens after all earlier copies; the first token where there is none."""
    pattern = prefix_targets(tokens).double()
    pattern[pattern.sum(-1) == 0, 0] = 1
    return (pattern / pattern.sum(-1, keepdim=True))[None]


def test_a_perfect_induction_head_scores_one_and_rests_on_the_start_token():
    tokens = torch.arange(8).repeat(3)
    assert prefix_matching(perfect_pattern(tokens), tokens).item() == 1.0
    assert start_token_rest(perfect_pattern(tokens), tokens).item() == 1.0


def test_rows_without_a_target_do_not_count():
    """Leaving them in the denominator would give a perfect head 16/24."""
    tokens = torch.arange(8).repeat(3)
    found = perfect_pattern(tokens)[0]
    assert (found * prefix_targets(tokens)).sum() / len(tokens) == pytest.approx(16 / 24)
    assert prefix_matching(found[None], tokens).item() == 1.0


@pytest.mark.parametrize("shift", [-1, 1])
def test_prefix_matching_one_off_scores_nothing(shift):
    tokens = torch.arange(8).repeat(3)
    off = perfect_pattern(tokens).roll(shift, -1)
    assert prefix_matching(off, tokens).item() < 0.1


def test_all_earlier_copies_count_not_only_the_latest():
    tokens = torch.arange(8).repeat(3)
    assert prefix_targets(tokens)[20].nonzero().flatten().tolist() == [5, 13]
    assert earlier_copies(tokens)[20].nonzero().flatten().tolist() == [4, 12]


def test_where_no_token_recurs_prefix_matching_is_undefined():
    assert prefix_matching(random_patterns(1, 5, 5), torch.arange(5)).isnan().all()
    assert start_token_rest(random_patterns(1, 3, 3), torch.tensor([1, 1, 1])).isnan().all()
    assert lag_profile(random_patterns(1, 3, 3), 5)[0, 3:].isnan().all()


# ---- repeated random tokens ----


def test_repeated_tokens_are_distinct_blocks_three_times_after_bos():
    import dataclasses

    spec = dataclasses.replace(BY_NAME["one_layer"].spec, d_vocab=50, n_ctx=40, bos=7)
    tokens = repeated_tokens(spec, 12, 5, seed=3)
    assert tokens.shape == (5, 37)
    assert (tokens[:, 0] == 7).all()
    first, second, third = tokens[:, 1:13], tokens[:, 13:25], tokens[:, 25:37]
    assert (first == second).all() and (second == third).all()
    assert all(len(set(row)) == 12 and 7 not in row for row in first.tolist())
    assert (tokens == repeated_tokens(spec, 12, 5, seed=3)).all()
    assert (tokens != repeated_tokens(spec, 12, 5, seed=4)).any()
    assert default_block(spec) == 13


@pytest.mark.parametrize("block", [1, 4, 100])
def test_blocks_that_do_not_fit_are_refused(block):
    with pytest.raises(TextError, match="smaller block"):
        repeated_tokens(BY_NAME["one_layer"].spec, block, 1)


def test_the_default_block_is_64_or_what_fits_three_times():
    import dataclasses

    def block(**facts: int | None) -> int:
        return default_block(dataclasses.replace(BY_NAME["one_layer"].spec, **facts))

    assert block(n_ctx=256, d_vocab=1000) == 64
    assert block(n_ctx=99, d_vocab=1000) == 33 and block(n_ctx=99, d_vocab=1000, bos=0) == 32
    assert block(n_ctx=256, d_vocab=10) == 9
    for facts in ({"n_ctx": 99, "d_vocab": 34}, {"n_ctx": 100, "d_vocab": 34, "bos": 0}, {"n_ctx": 6, "d_vocab": 3}):
        spec = dataclasses.replace(BY_NAME["one_layer"].spec, **facts)
        tokens = repeated_tokens(spec, block(**facts), 1)
        assert tokens.shape == (1, 3 * block(**facts) + ("bos" in facts))
    full = dataclasses.replace(BY_NAME["one_layer"].spec, n_ctx=100, d_vocab=20, bos=3)
    assert sorted(repeated_tokens(full, 19, 1)[0, 1:20].tolist()) == [t for t in range(20) if t != 3]
    with pytest.raises(TextError, match="smaller block"):
        repeated_tokens(full, 20, 1)


def test_repeat_rows_are_those_whose_successor_was_seen():
    tokens = torch.tensor([[9, 0, 1, 2, 0, 1, 2, 0, 1, 2]])
    assert repeat_rows(tokens, 3, 1).nonzero()[:, 1].tolist() == [4, 5, 6, 7, 8]
    assert repeat_rows(tokens[0], 3, 1).tolist() == repeat_rows(tokens, 3, 1)[0].tolist()


# ---- copying and removal ----


@pytest.mark.parametrize("case", LAYERED, ids=repr)
def test_copying_on_a_sequence_is_its_definition_position_by_position(case):
    run = recorded(case)
    frozen, record = frozen_run(run), case.recorded
    found = copying_on_sequence(frozen)
    W_U = oracle.dense_unembedding(case.spec, case.arrays)
    n = len(record.tokens)
    for layer in range(case.spec.n_layers):
        for index in range(case.spec.n_heads):
            seen, total = record.layers[layer], 0.0
            taps = range(oracle.tap_count(case.spec, layer, "V"))
            OVs = [oracle.dense_OV(case.spec, case.arrays, layer, index, t) for t in taps]
            read = record.residuals[layer] * seen.attention_scale[:, None]
            for j in range(n):
                logits = W_U @ sum(OV @ read[j - t] for t, OV in enumerate(OVs) if t <= j)
                gain = logits[record.tokens[j]] - logits.mean()
                for i in range(n):
                    total += record.final_scale[i] * seen.post_attention_scale[i] * seen.pattern[index, i, j] * gain
            agree(found[layer][index], total / n, 1e-10)


def test_a_head_removed_frozen_takes_exactly_its_terms_away():
    """Biases aside (a removed head's W_O b_V goes too), the logits lose all terms through the head."""
    case = BY_NAME["three_layers_rotary_rms"]
    run = recorded(case)
    rows = torch.ones(len(case.tokens) - 1, dtype=torch.bool)
    losses = removal_losses(run, rows, frozen=True)
    terms = list(expand(run).terms())
    for layer, index in [(0, 1), (1, 0), (2, 1)]:
        left = sum(term.logits for term in terms if (layer, index) not in term.path.heads)
        assert losses[f"L{layer}H{index}"] == pytest.approx(
            next_token_losses(left, case.tokens).mean().item(), rel=1e-9
        )


@pytest.mark.parametrize("case", LAYERED, ids=repr)
@pytest.mark.parametrize("frozen", [False, True])
def test_heads_removed_several_at_a_time_are_those_removed_one_by_one(case, frozen, monkeypatch):
    tokens = torch.stack([case.tokens, case.tokens.flip(0)])
    run = run_weights(Model("m", case.weights), case.weights, tokens)
    monkeypatch.setattr(induction, "AT_ONCE", 2 * tokens.numel())
    rows = torch.ones(2, tokens.shape[1] - 1, dtype=torch.bool)
    rows[1, :3] = False
    found, base = removal_losses(run, rows, frozen), run.frozen if frozen else None
    for layer, index in itertools.product(range(case.spec.n_layers), range(case.spec.n_heads)):
        done = forward(case.weights, tokens, frozen=base, without=frozenset({(layer, index)}))
        capped = soft_cap(logits(case.weights.ends, done.residual, done.final_scale), case.spec.logit_cap)
        expected = next_token_losses(capped, tokens)[rows].mean().item()
        assert found[f"L{layer}H{index}"] == pytest.approx(expected, rel=1e-9)


def test_a_head_removed_live_lets_the_rest_react():
    run = recorded(BY_NAME["gpt2"])
    rows = torch.ones(len(run.tokens) - 1, dtype=torch.bool)
    live, frozen = removal_losses(run, rows, frozen=False), removal_losses(run, rows, frozen=True)
    assert abs(live["L0H0"] - frozen["L0H0"]) > 1e-3


# ---- losses ----


def test_losses_are_the_oracles():
    case = BY_NAME["gpt2"]
    run = recorded(case)
    found = next_token_losses(run.logits, case.tokens).mean().item()
    assert found == pytest.approx(oracle.loss(case.recorded.logits, case.tokens.tolist()))


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
@pytest.mark.parametrize("at_once", [1, 25, 10**6])
def test_losses_without_all_logits_at_once_are_those_of_the_logits(name, at_once, monkeypatch):
    case = BY_NAME[name]
    tokens = torch.stack([case.tokens, case.tokens.flip(0)])
    run = run_weights(Model("m", case.weights), case.weights, tokens)
    monkeypatch.setattr("pathsum.behaviour.losses.AT_ONCE", at_once)
    agree(run_losses(run), next_token_losses(run.logits, tokens))
    assert run_losses(run_weights(Model("m", case.weights), case.weights, tokens[:, :1])).shape == (2, 0)


def test_the_in_context_score_compares_the_500th_token_with_the_50th():
    import dataclasses

    spec = dataclasses.replace(BY_NAME["one_layer"].spec, n_ctx=2048)
    assert in_context_tokens(spec, 2048) == (50, 500)
    assert in_context_tokens(spec, 500) == (50, 500) and in_context_tokens(spec, 499) == (49, 499)
    assert in_context_tokens(dataclasses.replace(spec, n_ctx=256), 300) == (25, 256)
    assert in_context_tokens(spec, 10) == (2, 10)
    losses = torch.zeros(3, 511)
    losses[:, 48], losses[:, 498] = 5.0, 2.0
    assert in_context_score(losses, 50, 500).tolist() == [-3.0] * 3


# ---- bigrams ----


def test_a_bigram_table_of_the_text_itself_has_no_kl():
    from pathsum.toys import bigram_model

    tokens = torch.randint(6, (1, 4000))
    counts = torch.full((6, 6), 1e-12, dtype=torch.float64)
    for first, second in zip(tokens[0, :-1].tolist(), tokens[0, 1:].tolist(), strict=True):
        counts[second, first] += 1
    found = compare_bigrams(bigram_model((counts / counts.sum(0)).log()).weights, tokens)
    assert found.kl == pytest.approx(0, abs=1e-9)
    assert found.rank_correlation == pytest.approx(1)
    joint, first = (counts / counts.sum()), counts.sum(0) / counts.sum()
    assert found.entropy == pytest.approx(-(joint * (joint / first).log()).sum().item(), rel=1e-6)
    assert found.unigram_entropy == pytest.approx(math.log(6), rel=1e-2)
    assert found.tokens == 3999


def test_kl_is_the_loss_beyond_the_entropy_of_the_direct_path():
    case = BY_NAME["zero_layers_normed"]
    tokens = torch.randint(case.spec.d_vocab, (1, 500))
    found = compare_bigrams(case.weights, tokens)
    gain = oracle.norm_named(case.spec, case.arrays, "final_norm", case.spec.d_model)
    total = 0.0
    for first, second in zip(tokens[0, :-1].tolist(), tokens[0, 1:].tolist(), strict=True):
        x = case.arrays["W_E"][:, first]
        x = gain.matrix @ x * oracle.scale_of("layer", case.spec.norm_eps, x) + gain.bias
        logits = case.arrays["W_U"] @ x + case.arrays["b_U"]
        total += math.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[second]
    assert found.loss == pytest.approx(total / 499, rel=1e-6)


@pytest.mark.parametrize("at_once", [1, 33, 10**6])
def test_bigrams_are_compared_a_block_of_tokens_at_a_time_and_ranks_of_those_seen_often(at_once, monkeypatch):
    from scipy.stats import spearmanr

    monkeypatch.setattr("pathsum.behaviour.bigrams.AT_ONCE", at_once)
    case = BY_NAME["zero_layers_normed"]
    # Tokens 1, 3 and 8 are absent, 7 is followed 19 times and 2 as often as it takes: 20.
    tokens = torch.tensor([[0, 4, 5, 6, 9, 10, 0, 0, 4, 4, 6, 5] * 10 + [7, 0] * 19 + [2, 10, 2, 0] * 10 + [0]])
    found = compare_bigrams(case.weights, tokens)
    table = direct_log_probabilities(case.weights, torch.arange(case.spec.d_vocab)).numpy()
    pairs = list(itertools.pairwise(tokens[0].tolist()))
    assert found.tokens == len(pairs)
    assert found.loss == pytest.approx(-np.mean([table[pair] for pair in pairs]))
    counts = np.zeros((case.spec.d_vocab, case.spec.d_vocab))
    for pair in pairs:
        counts[pair] += 1
    often = [token for token in range(case.spec.d_vocab) if counts[token].sum() >= 20]
    assert counts[7].sum() == 19 and counts[2].sum() == 20
    ranks = [spearmanr(counts[token], table[token]).statistic for token in often]
    assert found.rank_correlation == pytest.approx(np.mean(ranks))
    seconds = counts.sum(0)[counts.sum(0) > 0] / len(pairs)
    assert found.unigram_entropy == pytest.approx(-(seconds * np.log(seconds)).sum())


def test_one_token_has_no_bigrams():
    with pytest.raises(TextError, match=r"1 token\(s\); bigrams need at least 2"):
        compare_bigrams(BY_NAME["zero_layers_normed"].weights, torch.zeros(3, 1, dtype=torch.long))
    assert bigram_counts(torch.tensor([[3, 1], [3, 1]]), 11).tolist() == [[3, 1, 2]]


def test_frequent_pairs_are_counted_and_stand_beside_the_direct_path(monkeypatch):
    monkeypatch.setattr("pathsum.behaviour.bigrams.AT_ONCE", 3 * BY_NAME["zero_layers_normed"].spec.d_vocab)
    case = BY_NAME["zero_layers_normed"]
    tokens = torch.randint(case.spec.d_vocab, (2, 300))
    pairs = [pair for row in tokens.tolist() for pair in itertools.pairwise(row)]
    counts = {pair: pairs.count(pair) for pair in pairs}
    found = frequent_pairs(case.weights, tokens, 10)
    assert found.count.tolist() == sorted(counts.values(), reverse=True)[:10]
    table = case.arrays["W_U"]
    gain = oracle.norm_named(case.spec, case.arrays, "final_norm", case.spec.d_model)
    for place, pair in enumerate(zip(found.first.tolist(), found.second.tolist(), strict=True)):
        assert found.count[place] == counts[pair]
        followed = sum(first == pair[0] for first, _ in pairs)
        assert found.text[place].item() == pytest.approx(math.log(counts[pair] / followed))
        x = case.arrays["W_E"][:, pair[0]]
        x = gain.matrix @ x * oracle.scale_of("layer", case.spec.norm_eps, x) + gain.bias
        logits = table @ x + case.arrays["b_U"]
        assert found.direct_path[place].item() == pytest.approx(logits[pair[1]] - math.log(np.exp(logits).sum()))


def test_spearman_is_scipys():
    from scipy.stats import spearmanr

    a, b = torch.randint(4, (3, 40)), torch.randn(3, 40, dtype=torch.float64)
    b[1, :30] = b[1, 3].round() + torch.randint(3, (30,))
    b[2, 5:9] = b[2].max()
    theirs = [spearmanr(x.numpy(), y.numpy()).statistic for x, y in zip(a, b, strict=True)]
    agree(spearman(a, b), theirs)
