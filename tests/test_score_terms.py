"""Numbers read off a head's scores, by order, source, lag and path, against the oracle."""

from functools import cache

import numpy as np
import pytest
import torch

import oracle
from cases import BY_NAME, CASES, agree
from pathsum.behaviour.attention import prefix_targets
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.paths.scores import expand_scores
from pathsum.runs.run import run_weights
from pathsum.runs.token_pairs import previous_tokens
from pathsum.weights.model import Model
from test_paths import recorded
from test_symmetries import MODEL, TURNING, changed_basis, stretch

LAYERED = [case for case in CASES if case.spec.n_layers]
EVERY_LAYERED_CASE = pytest.mark.parametrize("case", LAYERED, ids=repr)
SOME = ["gpt2", "three_layers_rotary_rms", "three_layers_alibi", "gemma3", "stablelm_qk", "phi_qk", "olmo2", "gpt_oss",
        "positions_and_norms_across_heads", "post_layer_norm", "smeared_keys", "convolution_rotary",
        "convolution_sinusoidal", "convolution_of_biases"]  # fmt: skip
SOME_CASES = pytest.mark.parametrize("case", [BY_NAME[name] for name in SOME], ids=repr)


def last_head(case) -> tuple[int, int]:
    return case.spec.n_layers - 1, case.spec.n_heads - 1


def expansion_of(case):
    layer, index = last_head(case)
    return expand_scores(recorded(case), f"L{layer}H{index}")


@cache
def oracle_terms(name: str) -> list[tuple[str, str, np.ndarray]]:
    """(query path, key path, scores): what does not read the stream is `constant`, ALiBi taken out of it."""
    case = BY_NAME[name]
    layer, index = last_head(case)
    spelled = lambda p: " → ".join([p.source, *(f"L{at}H{head}" for at, head in p.heads)])
    found = []
    for q, k, part in oracle.score_terms(case.spec, case.arrays, case.recorded, layer, index):
        alibi = oracle.alibi_table(case.spec, layer, index, len(case.tokens))
        found.append((spelled(q), spelled(k), part - alibi * (q.source == k.source == "constant")))
    return found


def visible(case, n: int | None = None) -> np.ndarray:
    layer, _ = last_head(case)
    n, window = len(case.tokens) if n is None else n, case.spec.layers[layer].window
    return np.array([[j <= i and (window is None or i - j < window) for j in range(n)] for i in range(n)])


def means(case, table: np.ndarray, pairs) -> tuple[float, float]:
    """The mean of a table over pairs, and of the same less the mean over what the destination can see; with loops."""
    seen = visible(case, len(table))
    plain = [table[i, j] for i, j in pairs]
    centred = [table[i, j] - np.mean([table[i, k] for k in range(len(table)) if seen[i, k]]) for i, j in pairs]
    return np.mean(plain).item(), np.mean(centred).item()


def grouped(case, names, pairs) -> dict[tuple[str, str], np.ndarray]:
    """The oracle's terms summed by what `names` calls each side."""
    found: dict[tuple[str, str], np.ndarray] = {}
    for q, k, part in oracle_terms(case.name):
        group = names(q), names(k)
        found[group] = found.get(group, 0) + np.array(means(case, part, pairs))
    return found


def source_of(path: str) -> str:
    return path.split(" → ")[0]


def shares_agree(shares, wanted: dict[tuple[str, str], np.ndarray]) -> None:
    """`positions` and `bias` are one part of the oracle's, `constant`."""
    found: dict[tuple[str, str], np.ndarray] = {}
    apart = lambda name: "constant" if name in ("positions", "bias") else name
    for a, q in enumerate(shares.queries):
        for b, k in enumerate(shares.keys):
            group = apart(q), apart(k)
            found[group] = found.get(group, 0) + shares.values[:, a, b].numpy()
    constants = {pair: values for pair, values in wanted.items() if pair not in found}
    assert all(np.abs(values).max() <= 1e-12 for values in constants.values())
    size = max(np.abs(values).max() for values in wanted.values())
    for pair, values in found.items():
        agree(values / size, wanted[pair] / size if np.any(wanted[pair]) else np.zeros(2), 1e-10)


# ---- all scores by source ----


@EVERY_LAYERED_CASE
def test_scores_by_source_sum_to_the_scores(case):
    for layer in range(case.spec.n_layers):
        split = expand_scores(recorded(case), f"L{layer}H0").by_source()
        assert split.check() <= 1e-12
        assert {"embed"} <= set(split.queries) and not any(name.startswith(f"L{layer}.") for name in split.queries)


@SOME_CASES
def test_scores_by_source_are_the_oracles_terms_summed(case):
    split = expansion_of(case).by_source()
    for a, q in enumerate(split.queries):
        for b, k in enumerate(split.keys):
            if not {"positions", "bias"} & {q, k}:
                terms = [part for p, r, part in oracle_terms(case.name) if (source_of(p), source_of(r)) == (q, k)]
                agree(split.scores[a, b], sum(terms), 1e-10)


# ---- numbers read off at pairs ----


PAIRS = [(3, 1), (4, 2), (4, 4), (6, 6), (6, 5)]


@SOME_CASES
@pytest.mark.parametrize("pairs", [[(4, 3)], [(-1, 5)], PAIRS], ids=["one", "last", "several"])
def test_shares_at_pairs_are_means_of_the_oracles_terms(case, pairs):
    n = len(case.tokens)
    listed = [(i % n, j) for i, j in pairs if visible(case)[i % n, j]]
    at = expansion_of(case).at(listed)
    shares_agree(at.by_path(), grouped(case, lambda path: path, listed))
    shares_agree(at.by_source, grouped(case, source_of, listed))
    order = lambda path: path if path == "constant" else str(path.count("→"))
    shares_agree(at.by_order, grouped(case, order, listed))
    layer, index = last_head(case)
    agree(at.target, means(case, expansion_of(case).scores.numpy(), listed), 1e-10)
    agree(at.distance, means(case, oracle.alibi_table(case.spec, layer, index, n), listed), 1e-10)
    for shares in (at.by_path(), at.by_source, at.by_order, at.by_lag()):
        assert shares.error <= 1e-12 and not shares.longer.any()


def stream_from(case, layer: int, origin: int) -> np.ndarray:
    """What everything that enters the stream at one position has become before a layer."""
    x = np.zeros((len(case.tokens), case.spec.d_model))
    entered = oracle.sources(case.spec, case.arrays, case.recorded)
    for at in range(layer + 1):
        heads = range(case.spec.n_heads) if at else ()
        through = [oracle.through_head(case.spec, case.arrays, case.recorded, at - 1, h, x) for h in heads]
        x = x + sum(through, np.zeros_like(x))
        for _, start, vectors in entered:
            if start == at:
                x[origin] += vectors[origin]
    return x


@SOME_CASES
@pytest.mark.parametrize("lags", [1, 2, 3, 12])
def test_shares_by_lag_are_those_of_single_positions(case, lags):
    layer, index = last_head(case)
    n, side = len(case.tokens), oracle.linear_side
    streams = [stream_from(case, layer, origin) for origin in range(n)]
    q, k = (
        [side(case.spec, case.arrays, case.recorded, layer, index, which, x) for x in streams] for which in ("Q", "K")
    )
    wanted: dict[tuple[str, str], np.ndarray] = {}
    name = lambda lag: f"lag {lag}" if lag < lags else "further"
    pairs = [(i, j) for i, j in PAIRS if visible(case)[i, j]]
    scale = case.spec.layers[layer].score_scale
    found = expansion_of(case).at(pairs).by_lag(lags)
    for a, b in [(a, b) for a in range(n) for b in range(n)]:
        # Origins that are a before the destination and b before each of the sources it can see.
        table = np.zeros((n, n))
        for i in range(a, n):
            for j in range(b, n):
                table[i, j] = scale * q[i - a][i] @ k[j - b][j]
        group = name(a), name(b)
        wanted[group] = wanted.get(group, 0) + np.array(means(case, table, pairs))
    for (query, key), values in wanted.items():
        agree(found.share(query, key).values, values, 1e-9) if np.abs(values).max() > 1e-9 else None
    assert found.error <= 1e-12
    assert found.queries[: lags + 1] == (*(f"lag {lag}" for lag in range(lags)), "further")


@EVERY_LAYERED_CASE
def test_named_pairs_are_those_the_tokens_single_out(case):
    tokens = torch.tensor([1, 2, 3, 1, 2, 3, 1])
    taken = run_weights(Model(case.name, case.weights), case.weights, tokens)
    expansion = expand_scores(taken, f"L{case.spec.n_layers - 1}H0")
    for named, mask in (("induction", prefix_targets(tokens)), ("previous", previous_tokens(tokens))):
        seen = torch.tensor(visible(case, 7))
        wanted = [(i, j) for i, j in mask.nonzero().tolist() if seen[i, j]]
        if not wanted:
            with pytest.raises(NotApplicable, match=f"no {named} pairs in this text of 7 tokens"):
                expansion.at(named)
            continue
        found = expansion.at(named)
        agree(found.target, expansion.at(wanted).target)
        agree(found.target, means(case, expansion.scores.numpy(), wanted))
        agree(expansion.at(mask & seen).by_order.values, found.by_order.values)
    assert previous_tokens(tokens).nonzero().tolist() == [[i, i - 1] for i in range(1, 7)]


@EVERY_LAYERED_CASE
def test_a_batch_is_the_mean_over_its_members(case):
    rows = (case.tokens, (case.tokens + 3) % case.spec.d_vocab)
    model, name = Model("batch", case.weights), f"L{case.spec.n_layers - 1}H0"
    many = expand_scores(run_weights(model, case.weights, torch.stack(rows)), name).at("previous")
    single = [expand_scores(run_weights(model, case.weights, row), name).at("previous") for row in rows]
    for which in (lambda at: at.by_order, lambda at: at.by_source, lambda at: at.by_lag(), lambda at: at.by_path(1)):
        agree(which(many).values, torch.stack([which(one).values for one in single]).mean(0), 1e-11)
    assert many.by_path(1).error <= 1e-12


@SOME_CASES
def test_any_weights_can_be_read_off(case):
    expansion = expansion_of(case)
    n = len(case.tokens)
    weights = torch.randn(3, n, n, dtype=torch.float64) * torch.tensor(visible(case))
    readout, split = expansion.toward(weights), expansion.by_order()
    agree(readout.by_order.values, torch.einsum("wij,qkij->wqk", weights, split.scores), 1e-11)
    assert readout.by_order.error <= 1e-12
    agree(expansion.toward(torch.zeros(1, n, n)).by_order.values, torch.zeros(1, *split.scores.shape[:2]))


@pytest.mark.parametrize("one", [MODEL, TURNING], ids=repr)
def test_no_change_of_the_residual_basis_changes_a_share(one):
    """GL: without norms, in any invertible change of basis."""
    before, after = (expansion_of(case).at("previous") for case in (one, changed_basis(one, stretch())))
    for which in (lambda at: at.by_order, lambda at: at.by_source, lambda at: at.by_lag(), lambda at: at.by_path()):
        agree(which(after).values, which(before).values, 1e-10)


# ---- bounds and rests ----


def test_what_is_not_listed_is_told():
    at = expansion_of(BY_NAME["three_layers_rotary_rms"]).at(PAIRS)
    every, few = at.by_path(), at.by_path(max_order=1)
    longer = [
        every.values[:, a, b]
        for a, q in enumerate(every.queries)
        for b, k in enumerate(every.keys)
        if max(q.count("→"), k.count("→")) > 1
    ]
    agree(few.longer, torch.stack(longer).sum(0), 1e-11)
    assert few.error <= 1e-12 and few.values.shape < every.values.shape
    best = few.strongest(5)
    sizes = few.values[1].abs().flatten().sort(descending=True).values
    agree(torch.stack([one.values[1].abs() for one in best]), sizes[:5])
    assert few.strongest(0) == []
    by_score = few.strongest(1, by=0)[0]
    assert abs(by_score.values[0]) == few.values[0].abs().max()
    for one in best:
        agree(one.values, few.share(one.query, one.key).values)
    agree(few.rest(best) + sum(one.values for one in best) + few.longer + few.distance, few.target, 1e-11)


def test_a_bound_is_asked_for(monkeypatch):
    at = expansion_of(BY_NAME["three_layers_normed"]).at([(4, 2)])
    n = len(at.by_path(1).queries) - 1  # a bias is no path
    assert len(at.by_path(1, most=n**2).queries) == n + 1
    with pytest.raises(ExpansionTooLarge, match=rf"{n**2:,} pairs of paths with at most 1 heads.*max_order=.*most="):
        at.by_path(1, most=n**2 - 1)
    monkeypatch.setattr("pathsum.paths.score_readout.HELD", 10)
    with pytest.raises(ExpansionTooLarge, match=r"at 1 destinations are .* 10 fit; pass a smaller max_order= or pairs"):
        at.by_path(1)


def test_pairs_that_are_none_are_refused():
    expansion, windowed = expansion_of(BY_NAME["gpt2"]), expand_scores(recorded(BY_NAME["gemma3"]), "L0H0")
    n = len(BY_NAME["gpt2"].tokens)
    for pairs, message in (
        ("next", "no pairs named 'next'; there are induction, previous"),
        ([], "at least one"), ([(1, 2, 3)], "pairs of a destination and a source"),
        ([(9, 1)], "no position 9: the text has 7 tokens, 0 to 6"),
        ([(1, -8)], "no position -8"), ([(2, 3)], "position 2 does not attend to position 3: it comes later"),
        (torch.zeros(n, n, dtype=torch.bool), "mask is empty"),
        (torch.ones(3, 3, dtype=torch.bool), r"a mask of pairs is \[7, 7\] here, not \[3, 3\]"),
    ):  # fmt: skip
        with pytest.raises(NotApplicable, match=message):
            expansion.at(pairs)
    assert torch.equal(expansion.at([(-1, -n)]).target, expansion.at([(n - 1, 0)]).target)
    texts = torch.stack([BY_NAME["gpt2"].tokens] * 2)
    batch = expand_scores(run_weights(Model("m", BY_NAME["gpt2"].weights), BY_NAME["gpt2"].weights, texts), "L0H0")
    ahead = torch.zeros(2, n, n, dtype=torch.bool)
    ahead[1, 2, 4] = True
    with pytest.raises(NotApplicable, match="position 2 does not attend to position 4: it comes later"):
        batch.at(ahead)
    with pytest.raises(NotApplicable, match="position 5 does not attend to position 1: it is outside the layer's"):
        windowed.at([(5, 1)])
    with pytest.raises(NotApplicable, match=r"weights are \[read, \[7, 7\]\] here"):
        expansion.toward(torch.ones(1, 3, 3))
    with pytest.raises(NotApplicable, match="must be zero on what causality"):
        expansion.toward(torch.ones(1, 7, 7))
    with pytest.raises(NotApplicable, match="at least one, lag 0"):
        expansion.at("previous").by_lag(0)
