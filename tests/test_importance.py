"""What terms are worth: every loss is that of a sum of explicitly listed terms."""

import dataclasses
import math

import pytest
import torch

from cases import BY_NAME, CASES, agree
from pathsum.behaviour.induction import removed_losses
from pathsum.behaviour.losses import next_token_losses, run_losses
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.paths import importance, scored
from pathsum.paths.importance import (
    direct_and_full_losses,
    head_losses,
    order_losses,
    path_losses,
    source_kinds,
    source_losses,
    with_heads,
)
from pathsum.paths.logits import expand
from pathsum.runs.graded import frozen_run, graded
from pathsum.runs.run import run_weights
from pathsum.study.importance import mean_and_error
from pathsum.study.result import read_one
from pathsum.study.subject import Subject
from pathsum.weights.model import Model
from test_paths import recorded
from test_symmetries import gap, numbers

UNCAPPED = [case for case in CASES if case.spec.logit_cap is None]


def loss(logits, tokens) -> float:
    return next_token_losses(logits, tokens).mean().item()


@pytest.mark.parametrize("case", UNCAPPED, ids=repr)
def test_losses_by_order_are_those_of_the_terms_up_to_it(case):
    run = recorded(case)
    found = order_losses(frozen_run(run)).mean(1)
    assert found[0].item() == pytest.approx(math.log(case.spec.d_vocab))
    terms = list(expand(run).terms())
    for order in range(case.spec.n_layers + 1):
        kept = sum(term.logits for term in terms if term.path.order <= order)
        assert found[order + 1].item() == pytest.approx(loss(kept, case.tokens), rel=1e-9)
    assert found[-1].item() == pytest.approx(loss(run.logits, case.tokens))


@pytest.mark.parametrize("name", ["gpt2", "three_layers_rotary_rms", "post_layer_norm"])
@pytest.mark.parametrize("by_layer", [False, True])
def test_losses_by_head_and_layer_are_those_of_listed_terms(name, by_layer):
    case = BY_NAME[name]
    run = recorded(case)
    terms = list(expand(run).terms())
    everything = sum(term.logits for term in terms)
    direct = sum(term.logits for term in terms if term.path.order == 0)
    for found in head_losses(frozen_run(run), by_layer):
        ends_here = lambda t: t.path.heads and t.path.head_names[-1].startswith(found.name)  # noqa: B023
        zero = torch.zeros_like(direct)
        ending = sum((t.logits for t in terms if ends_here(t)), zero)
        individual = sum((t.logits for t in terms if ends_here(t) and t.path.order == 1), zero)
        assert found.individual.mean().item() == pytest.approx(loss(direct + individual, case.tokens), rel=1e-9)
        assert found.ending.mean().item() == pytest.approx(loss(direct + ending, case.tokens), rel=1e-9)
        assert found.without.mean().item() == pytest.approx(loss(everything - ending, case.tokens), rel=1e-9)


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "post_layer_norm"])
@pytest.mark.parametrize("by_layer", [False, True])
def test_a_batch_in_blocks_has_the_losses_of_each_position_by_itself(name, by_layer, monkeypatch):
    """Texts of a batch one after the other, logits a few rows at a time."""
    case = BY_NAME[name]
    tokens = torch.stack([case.tokens, case.tokens.flip(0)])
    n = tokens.shape[1] - 1
    rows = torch.tensor([0, 2, n - 1, n, 2 * n - 1])
    alone = [recorded(dataclasses.replace(case, tokens=tokens[row // n, : row % n + 2])) for row in rows.tolist()]
    last = [torch.tensor([len(run.tokens) - 2]) for run in alone]
    each = [frozen_run(run) for run in alone]
    batch = frozen_run(run_weights(Model(name, case.weights), case.weights, tokens))
    monkeypatch.setattr(importance, "KEPT", 2 * case.spec.d_vocab)
    for module in (importance, scored):
        monkeypatch.setattr(module, "BLOCK", case.spec.d_vocab)

    def by_set(*arguments):
        found = head_losses(arguments[0], by_layer, arguments[1])
        return torch.stack([value for each in found for value in dataclasses.astuple(each)[1:]])

    def by_path(*arguments):
        found = path_losses(arguments[0], 2, None, arguments[1])
        return torch.stack(list(found.values())).flatten(0, 1).nan_to_num()

    def by_kind(*arguments):
        return source_losses(arguments[0], "embed", arguments[1]).flatten(0, 1)

    for measure in (order_losses, direct_and_full_losses, by_set, by_path, by_kind):
        expected = torch.cat([measure(*one) for one in zip(each, last, strict=True)], dim=1)
        agree(measure(batch, rows), expected, 1e-9)


def test_direct_and_full_losses_are_the_first_and_last_order():
    frozen = frozen_run(recorded(BY_NAME["llama"]))
    agree(direct_and_full_losses(frozen), order_losses(frozen)[[1, -1]], 1e-9)


# ---- single paths, sources, and sets of heads ----


@pytest.mark.parametrize("case", UNCAPPED, ids=repr)
def test_terms_by_kind_of_source_and_order_sum_to_the_logits_and_have_the_losses_of_listed_terms(case):
    run = recorded(case)
    frozen, terms, total = frozen_run(run), list(expand(run).terms()), torch.zeros_like(run.logits)
    for kind in source_kinds(frozen):
        losses = source_losses(frozen, kind)
        assert len(losses) == case.spec.n_layers + 1
        for order, (alone, without) in enumerate(losses):
            own = [term.logits for term in terms if (kind_of(term), term.path.order) == (kind, order)]
            part = sum(own, torch.zeros_like(total))
            agree(alone, next_token_losses(part, case.tokens), 1e-9)
            agree(without, next_token_losses(run.logits - part, case.tokens), 1e-9)
            total += part
    agree(total, run.logits, 1e-11)


def kind_of(term) -> str:
    return term.path.source.split(".")[-1]


@pytest.mark.parametrize("case", UNCAPPED, ids=repr)
def test_the_graded_streams_of_kinds_of_sources_sum_to_the_logits(case):
    run = recorded(case)
    frozen = frozen_run(run)
    parts = [graded(frozen, lambda name: name.endswith(kind)) for kind in source_kinds(frozen)]  # noqa: B023
    logits = frozen.unembed(torch.stack(parts).sum((0, 1)))
    agree(logits if frozen.ends.b_U is None else logits + frozen.ends.b_U, run.logits, 1e-11)


@pytest.mark.parametrize("name", ["gpt2", "three_layers_rotary_rms", "post_layer_norm"])
def test_losses_by_path_are_those_of_listed_terms(name):
    case = BY_NAME[name]
    run = recorded(case)
    terms = list(expand(run).terms())
    direct = sum(term.logits for term in terms if term.path.order == 0)
    found = path_losses(frozen_run(run), 2)
    assert set(found) == {t.path for t in terms if t.path.order <= 2 and t.path.source != "unembed.bias"}
    for term in terms:
        if term.path in found:
            added, without = found[term.path]
            agree(without, next_token_losses(run.logits - term.logits, case.tokens), 1e-9)
            if term.path.order:
                agree(added, next_token_losses(direct + term.logits, case.tokens), 1e-9)
            else:
                assert added.isnan().all()
    some = path_losses(frozen_run(run), 1, "embed", torch.tensor([2]))
    assert set(some) == {path for path in found if path.source == "embed" and path.order <= 1}
    for path, losses in some.items():
        agree(losses[1], found[path][1, 2:3], 1e-11)


def test_too_many_paths_are_refused_with_the_bounds_to_pass():
    frozen = frozen_run(recorded(BY_NAME["three_layers_rotary_rms"]))
    with pytest.raises(
        ExpansionTooLarge, match=r"19 paths of order ≤ 2 .* smaller max_order= .* larger most= \(now 18"
    ):
        path_losses(frozen, 2, most=18)
    assert len(path_losses(frozen, 2, most=19)) == 19
    with pytest.raises(NotApplicable, match=r"no source 'L0\.mlp' in this model; it has embed"):
        path_losses(frozen, 1, "L0.mlp")


@pytest.mark.parametrize("name", ["three_layers_alibi", "three_layers_rotary_rms", "llama", "gemma3"])
def test_only_these_heads_are_the_terms_whose_heads_are_all_among_them(name):
    """And what is left without a head are the terms that do not pass it: of models whose heads carry no bias."""
    case = BY_NAME[name]
    run = recorded(case)
    frozen, terms = frozen_run(run), list(expand(run).terms())
    every = {(layer, index) for layer in range(case.spec.n_layers) for index in range(case.spec.n_heads)}
    for kept in [every - {(0, 1)}, {(0, 0), (1, 1)}, {(1, 0)}, set()]:
        losses = order_losses(with_heads(frozen, kept))
        for order in range(case.spec.n_layers + 1):
            some = [term.logits for term in terms if term.path.order <= order and set(term.path.heads) <= kept]
            agree(losses[order + 1], next_token_losses(sum(some), case.tokens), 1e-9)
    agree(order_losses(with_heads(frozen, every)), order_losses(frozen))


@pytest.mark.parametrize("case", [case for case in UNCAPPED if case.spec.n_layers], ids=repr)
def test_all_terms_without_a_head_are_the_run_with_it_removed_frozen(case):
    run = recorded(case)
    frozen, rows = frozen_run(run), torch.ones(len(run.tokens) - 1, dtype=torch.bool)
    every = {(layer, index) for layer in range(case.spec.n_layers) for index in range(case.spec.n_heads)}
    removed = removed_losses(run, rows, frozen=True) | removed_losses(run, rows, frozen=True, by_layer=True)
    for layer, index in every:
        agree(order_losses(with_heads(frozen, every - {(layer, index)}))[-1], removed[f"L{layer}H{index}"], 1e-9)
        rest = {head for head in every if head[0] != layer}
        agree(order_losses(with_heads(frozen, rest))[-1], removed[f"L{layer}"], 1e-9)


# ---- means over a text, and their errors ----


def test_the_error_is_that_of_the_means_of_contexts():
    values, contexts = torch.randn(12, generator=torch.Generator().manual_seed(1)).double(), torch.arange(12) // 3
    mean, error = mean_and_error(values, contexts)
    of_contexts = values.view(4, 3).mean(1)
    assert mean == pytest.approx(of_contexts.mean().item())
    assert error == pytest.approx((of_contexts.std() / 2).item())


def test_contexts_with_more_rows_weigh_more():
    """Two contexts, of one and three rows: the ratio estimator's linearised error, by hand."""
    mean, error = mean_and_error(torch.tensor([4.0, 0.0, 0.0, 0.0]).double(), torch.tensor([0, 7, 7, 7]))
    assert mean == 1
    assert error == pytest.approx(math.sqrt(2 * (3**2 + 3**2)) / 4)


def test_a_single_context_has_no_error():
    assert mean_and_error(torch.tensor([1.0, 2.0]).double(), torch.tensor([3, 3])) == (1.5, None)


@pytest.mark.parametrize("name", ["importance", "importance_layers", "importance_heads"])
def test_contexts_run_a_block_at_a_time_give_the_same_numbers(name, monkeypatch):
    case = BY_NAME["gpt2"]
    text = torch.randint(case.spec.d_vocab, (60,), generator=torch.Generator().manual_seed(3)).tolist()
    subject = Subject(Model("m", case.weights), text, sequences=5)
    whole = read_one(name, subject).frame.drop_nulls()
    length, spec = subject.context_length, case.spec
    monkeypatch.setattr("pathsum.study.subject.RECORDED", 2 * spec.n_layers * spec.n_heads * length**2)
    fresh = Subject(subject.model, text, sequences=5)
    assert [start for start, _ in fresh.frozen_blocks()] == [0, 2, 4]
    parts = read_one(name, fresh).frame.drop_nulls()
    assert whole.height == parts.height > 1
    for column in numbers(whole):
        assert gap(whole, parts, column) < 1e-5, column


def subject(name: str) -> Subject:
    case = BY_NAME[name]
    text = torch.randint(case.spec.d_vocab, (60,), generator=torch.Generator().manual_seed(3)).tolist()
    one = Subject(Model(name, case.weights), text, sequences=5)
    one.__dict__["raw"] = case.weights.load()  # runs in float64
    return one


@pytest.mark.parametrize("by", ["heads", "layers"])
def test_removal_is_shown_frozen_and_live(by):
    one = subject("gpt2")
    rows = read_one(f"importance_{by}", one, live=True).rows()
    plain = read_one(f"importance_{by}", one).rows()
    mask = torch.ones(one.windows[:, 1:].shape, dtype=torch.bool)
    base = run_losses(one.text_run).mean().item()
    for row, without in zip(rows, plain, strict=True):
        assert without.items() <= row.items()
        for column, frozen in (("cost_frozen", True), ("cost_live", False)):
            losses = removed_losses(one.text_run, mask, frozen, by == "layers")[row[by[:-1]]]
            assert row[column] == pytest.approx(losses.mean().item() - base, abs=1e-9)
            assert row[f"{column}_error"] > 0
    assert max(abs(row["cost_live"] - row["cost_frozen"]) for row in rows) > 1e-3


@pytest.mark.parametrize("by", ["heads", "layers"])
def test_removal_is_from_as_few_contexts_as_its_budget_allows_or_as_many_as_asked_for(monkeypatch, by):
    """Not for `sequences=`, and not where nothing is removed."""
    several = dataclasses.replace(subject("gpt2"), sequences=None)
    spec, context = several.model.spec, several.windows.shape[1]
    count = sum(part.numel() for name, part in BY_NAME["gpt2"].tensors.items() if "W_" in name)
    once = spec.n_layers * (spec.n_heads if by == "heads" else 1) * count * context
    assert several.parameters == count and len(several.windows) > 3

    def contexts(one: Subject, live: bool = True) -> int:
        result = read_one(f"importance_{by}", one, live=live)
        assert len(result.rows()) == spec.n_layers * (spec.n_heads if by == "heads" else 1)
        assert result.manifest["text"]["positions_scored"] == (context - 1) * result.manifest["text"]["sequences"]
        return result.manifest["text"]["sequences"]

    assert contexts(several) == len(several.windows)
    monkeypatch.setattr("pathsum.study.importance.RERUN", 3 * once - 1)
    assert contexts(several) == 2
    assert contexts(several, live=False) == len(several.windows)
    assert contexts(dataclasses.replace(several, sequences=4)) == 4
    whole = read_one(f"importance_{by}", dataclasses.replace(several, sequences=2), live=True)
    assert read_one(f"importance_{by}", several, live=True).rows() == whole.rows()
    monkeypatch.setattr("pathsum.study.importance.RERUN", once - 1)
    with pytest.raises(ExpansionTooLarge, match=rf"one context of {context} tokens .* at most {context - 1} tokens"):
        contexts(several)
    assert contexts(dataclasses.replace(several, sequences=1)) == 1
    monkeypatch.setattr("pathsum.study.importance.RERUN", 1)
    with pytest.raises(ExpansionTooLarge, match=r"over 1.0e\+00; pass sequences=1"):
        contexts(several)


def test_orders_are_shown_of_some_heads_only_and_without_some():
    one = subject("three_layers_rotary_rms")
    full, none = (read_one("importance", one, **more).frame["loss"] for more in ({}, {"only": ""}))
    assert none[1:].n_unique() == 1 and none[1] == full[1]
    only = read_one("importance", one, only="L0H1, L2H0").frame["loss"]
    without = read_one("importance", one, without="L0H0,L1H0,L1H1,L2H1").frame["loss"]
    assert only.equals(without) and len(set(only[1:])) == 3 and only[3] == only[4]
    both = read_one("importance", one, only="L0H1,L1H1,L2H0", without="L1H1").frame["loss"]
    assert both.equals(only)
    with pytest.raises(NotApplicable, match="'L0' is no head"):
        read_one("importance", one, without="L0")


def test_paths_come_with_the_most_costly_first_and_no_gain_beside_itself_for_order_0():
    frame = read_one("importance_paths", subject("gpt2"), max_order=1, source="L0.mlp").frame
    assert set(frame["path"]) == {"L0.mlp", *(f"L0.mlp → L1H{index}" for index in range(3))}
    assert frame["cost_without"].abs().is_sorted(descending=True)
    assert frame.filter(frame["order"] == 0)["gain_individual"].null_count() == 1
    assert frame["gain_individual"].null_count() == 1 and frame["cost_without_error"].min() > 0


def test_kinds_of_sources_are_those_of_the_model():
    kinds = lambda name: set(read_one("importance_sources", subject(name)).frame["kind"])
    assert kinds("gpt2") == {"embed", "pos", "bias", "mlp"}
    assert kinds("llama") == {"embed", "mlp"}
    assert kinds("three_layers_rotary_rms") == {"embed"}
