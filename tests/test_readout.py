"""Numbers read off the logits, backward: every path's value is its term's, at a position, in a direction."""

import pytest
import torch

from cases import BY_NAME, CASES, agree
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.paths.logits import expand
from pathsum.runs.linear import each_head_output, each_head_transposed, head_covectors, heads_output, heads_transposed
from pathsum.runs.run import run_weights
from pathsum.weights.model import Model

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=repr)


def expansion_of(case):
    return expand(run_weights(Model(case.name, case.weights), case.weights, case.tokens))


def directions(case, count: int = 2) -> torch.Tensor:
    """One token's logit, and anything."""
    one_hot = torch.eye(case.spec.d_vocab, dtype=torch.float64)[[3]]
    return torch.cat([one_hot, torch.randn(count - 1, case.spec.d_vocab, dtype=torch.float64)])


@EVERY_CASE
@pytest.mark.parametrize("position", [-1, 2])
def test_every_value_is_the_paths_term_in_the_direction(case, position):
    expansion, u = expansion_of(case), directions(case)
    found = expansion.toward(u, position).terms(case.spec.n_layers)
    mine = dict(zip(found.paths, found.values, strict=True))
    theirs = {term.path: u @ term.logits[position] for term in expansion.terms()}
    assert set(mine) == set(theirs) and len(found.paths) == expansion.counts()
    agree(torch.stack([mine[path] for path in theirs]), torch.stack(list(theirs.values())), 1e-11)


@EVERY_CASE
def test_sources_and_orders_are_the_sums_of_their_paths(case):
    expansion, u = expansion_of(case), directions(case)
    readout = expansion.toward(u)
    by_source = readout.by_source
    total = {name: torch.zeros_like(share) for name, share in by_source.items()}
    for term in expansion.terms():
        total[term.path.source][term.path.order] += u @ term.logits[-1]
    for name, share in by_source.items():
        agree(share, total[name], 1e-11)
    agree(readout.by_order, expansion.by_order().values[:, -1] @ u.T, 1e-11)
    orders = [term.path.order for term in expansion.terms()]
    assert readout.counts() == [orders.count(order) for order in range(case.spec.n_layers + 1)]
    agree(readout.target, u @ expansion.run.uncapped_logits[-1])
    assert readout.check() <= 1e-12


@EVERY_CASE
def test_a_path_alone_forward_and_from_each_position_is_its_term(case):
    readout = expansion_of(case).toward(directions(case), 3)
    found = readout.terms(case.spec.n_layers)
    for path, value in zip(found.paths[:60], found.values, strict=False):
        agree(readout.value(path), value, 1e-10)
        positions = readout.by_position(path)
        agree(positions.sum(-1), value, 1e-10)
        assert not positions[..., 4:].any()


@EVERY_CASE
def test_terms_up_to_an_order_are_those_of_all_terms(case):
    readout = expansion_of(case).toward(directions(case))
    everything = readout.terms(case.spec.n_layers)
    full = dict(zip(everything.paths, everything.values, strict=True))
    for order in range(case.spec.n_layers):
        found = readout.terms(order)
        assert set(found.paths) == {path for path in full if path.order <= order}
        assert len(found.paths) == sum(readout.counts()[: order + 1])
        agree(found.values, torch.stack([full[path] for path in found.paths]), 1e-11)


@EVERY_CASE
def test_transposed_heads_are_the_transpose(case):
    for block, seen in expansion_of(case).frozen.layers:
        x, g = torch.randn(2, 3, len(case.tokens), case.spec.d_model, dtype=torch.float64)
        agree((heads_output(block, seen, x) * g).sum(), (x * heads_transposed(block, seen, g)).sum(), 1e-11)
        apart = each_head_transposed(block, seen, head_covectors(block, seen, g))
        ours = (x.unsqueeze(-3) * apart).sum((-2, -1))
        agree((each_head_output(block, seen, x) * g.unsqueeze(-3)).sum((-2, -1)), ours, 1e-11)


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "post_layer_norm", "zero_layers_normed"])
def test_a_batch_is_read_as_its_members(name):
    case = BY_NAME[name]
    rows, u = (case.tokens, (case.tokens + 3) % case.spec.d_vocab), directions(case, 3)
    model = Model("batch", case.weights)
    both = expand(run_weights(model, case.weights, torch.stack(rows))).toward(u)
    for row, tokens in enumerate(rows):
        alone = expand(run_weights(model, case.weights, tokens)).toward(u)
        agree(both.by_order[..., row], alone.by_order)
        agree(both.terms(2).values[..., row], alone.terms(2).values)
        agree(both.target[..., row], alone.target)
        for path in both.terms(2).paths:
            agree(both.value(path)[..., row], alone.value(path), 1e-10)
            agree(both.by_position(path)[:, row], alone.by_position(path), 1e-10)


def test_the_check_is_measured():
    import dataclasses

    expansion = expansion_of(BY_NAME["gpt2"])
    layer = expansion.run.frozen.layers[0]
    spoilt = dataclasses.replace(layer, kept=layer.pattern.roll(1, -1))
    frozen = dataclasses.replace(expansion.run.frozen, layers=(spoilt, *expansion.run.frozen.layers[1:]))
    wrong = expand(dataclasses.replace(expansion.run, frozen=frozen))
    assert wrong.toward(directions(BY_NAME["gpt2"])).check() > 1e-3
    assert expansion.toward(torch.zeros(1, 11)).check() == 0


def test_the_check_is_of_the_worst_direction_in_the_worst_text():
    import dataclasses

    case = BY_NAME["gpt2"]
    tokens = torch.stack([case.tokens, case.tokens.flip(0)])
    run = run_weights(Model("batch", case.weights), case.weights, tokens)
    longer = dataclasses.replace(run, residual=run.residual * torch.tensor([1 + 1e-3, 1 + 1e-5])[:, None, None])
    u = directions(case, 3) * torch.tensor([1.0, 1e6, 1e-6])[:, None]
    readout, logits = expand(longer).toward(u), longer.uncapped_logits
    gaps = u @ (logits - run.uncapped_logits)[:, -1].mT
    found = [(gaps[i].abs() / (u[i].abs().sum() * logits.abs().max())).max().item() for i in range(3)]
    assert readout.check() == pytest.approx(max(found), rel=1e-6) and max(found) > 1e-6
    assert expand(run).toward(u).check() <= 1e-12


def test_directions_of_another_shape_are_refused(unchecked):
    with pytest.raises(NotApplicable, match=r"directions are \[read, 11\], one a row, not \(11,\)"):
        expansion_of(BY_NAME["gpt2"]).toward(torch.ones(11))


def test_too_many_paths_and_positions_that_are_not_there_are_refused():
    expansion = expansion_of(BY_NAME["gpt2"])
    readout = expansion.toward(directions(BY_NAME["gpt2"]))
    with pytest.raises(ExpansionTooLarge, match=r"of at most 1 heads.*max_order="):
        readout.terms(1, most=3)
    with pytest.raises(NotApplicable, match="no position 7: the text has 7 tokens, 0 to 6"):
        expansion.toward(directions(BY_NAME["gpt2"]), 7)
