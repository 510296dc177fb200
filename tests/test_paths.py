"""The expansion is exact: every path, every order, every grouping, against the oracle's explicit products."""

import pytest
import torch

import oracle
from cases import BY_NAME, CASES, agree, case
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.paths.logits import expand
from pathsum.paths.paths import Path, chains, path_counts
from pathsum.paths.scores import head_scores
from pathsum.runs import graded
from pathsum.runs.graded import frozen_run, graded_streams
from pathsum.runs.run import Run, run_weights
from pathsum.weights.model import Model

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=repr)


def recorded(case, weights=None) -> Run:
    weights = case.weights if weights is None else weights
    return run_weights(Model(case.name, weights), weights, case.tokens)


def oracle_terms(case) -> dict[tuple, oracle.Term]:
    return {(term.source, term.heads): term for term in oracle.terms(case.spec, case.arrays, case.recorded)}


@EVERY_CASE
def test_the_sum_of_all_terms_is_the_logits(case):
    expansion = expand(recorded(case))
    terms = list(expansion.terms())
    agree(sum(term.logits for term in terms), expansion.run.uncapped_logits)
    assert len(terms) == expansion.counts()
    assert expansion.check() <= 1e-12


@EVERY_CASE
def test_every_term_is_the_oracles_product_of_dense_matrices(case):
    theirs = oracle_terms(case)
    mine = {(term.path.source, term.path.heads): term.logits for term in expand(recorded(case)).terms()}
    assert set(mine) == set(theirs)
    for key, term in theirs.items():
        agree(mine[key], term.logits, 1e-11)


@EVERY_CASE
@pytest.mark.parametrize("at_once", [1, graded.ORDERS])
def test_the_graded_pass_equals_the_n_plus_one_passes(case, at_once, monkeypatch):
    monkeypatch.setattr(graded, "ORDERS", at_once)
    run = recorded(case)
    agree(expand(run).by_order().values, oracle.logits_by_order(case.spec, case.arrays, case.recorded))
    for layer, stream in enumerate(graded_streams(frozen_run(run))):
        theirs = oracle.residuals_by_order(case.spec, case.arrays, case.recorded, layer)
        agree(stream, theirs[: len(stream)])


@pytest.mark.parametrize("name", ["gpt2", "three_layers_rotary_rms", "gemma2", "post_layer_norm", "gptj", "olmo2"])
def test_one_path_is_its_pattern_applied_to_its_matrix(name):
    """`(S_f A … A S) ⊗ (W_U W_OV … W_OV W_E)` on one-hot tokens, and on the source's vectors elsewhere."""
    case = BY_NAME[name]
    expansion = expand(recorded(case))
    one_hot = torch.eye(case.spec.d_vocab, dtype=torch.float64)[case.tokens]
    for term in expansion.terms():
        if term.path.source == "unembed.bias":
            continue
        x = one_hot if term.path.source == "embed" else expansion.sources[term.path.source]
        agree(expansion.pattern(term.path) @ expansion.matrix(term.path).apply(x), term.logits, 1e-11)
        alone = expansion.term(term.path.name)
        assert alone.path == term.path
        agree(alone.logits, term.logits)


@EVERY_CASE
def test_paths_of_a_batch_are_the_paths_of_its_members(case):
    rows = (case.tokens, (case.tokens + 3) % case.spec.d_vocab)
    model = Model("batch", case.weights)
    both = expand(run_weights(model, case.weights, torch.stack(rows)))
    path = Path("embed", tuple((layer, 0) for layer in range(case.spec.n_layers)))
    for row, tokens in enumerate(rows):
        alone = expand(run_weights(model, case.weights, tokens))
        agree(both.by_order().values[:, row], alone.by_order().values)
        agree(both.pattern(path)[row], alone.pattern(path))
        agree(both.term(path).logits[row], alone.term(path).logits)


def test_the_error_is_measured_on_the_uncapped_logits():
    case = BY_NAME["gemma2"]
    run = recorded(case)
    assert not torch.allclose(run.logits, run.uncapped_logits)
    assert expand(run).check() <= 1e-12


def test_a_wrong_pattern_shows_in_the_check():
    """The number is measured, not assumed."""
    import dataclasses

    run = recorded(BY_NAME["gpt2"])
    layer = run.frozen.layers[0]
    spoilt = dataclasses.replace(layer, kept=layer.pattern.roll(1, -1))
    frozen = dataclasses.replace(run.frozen, layers=(spoilt, *run.frozen.layers[1:]))
    assert expand(dataclasses.replace(run, frozen=frozen)).check() > 1e-3


def test_the_final_norms_scale_at_every_layer_does_not_sum_to_the_logits():
    import dataclasses

    run = recorded(BY_NAME["gpt2"])
    layers = tuple(dataclasses.replace(x, attention_scale=run.frozen.final_scale) for x in run.frozen.layers)
    wrong = dataclasses.replace(run, frozen=dataclasses.replace(run.frozen, layers=layers))
    assert expand(run).check() <= 1e-12 < 1e-2 < expand(wrong).check()


def test_expansion_of_float32_is_exact_to_float32():
    case = BY_NAME["llama"]
    assert expand(recorded(case, case.weights.to(torch.float32).load())).check() < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@EVERY_CASE
def test_a_run_in_halves_is_expanded_in_float32(case, dtype):
    """Its weights are folded in float32 at least; what is left over is the rounding of the run itself."""
    expansion = expand(recorded(case, case.weights.to(dtype).load()))
    split = expansion.by_order()
    assert split.values.dtype == split.target.dtype == torch.float32
    assert expansion.run.logits.dtype == torch.float32
    assert split.check() < 0.05 and expansion.by_head().check() < 0.05
    if case.spec.n_layers:
        assert head_scores(expansion, f"L{case.spec.n_layers - 1}H0").by_order().check() < 0.05


def test_what_is_no_path_is_named(unchecked):
    with pytest.raises(NotApplicable, match="written like 'embed → L0H1', or is a Path, not list"):
        expand(recorded(BY_NAME["one_layer"])).term(["L0H0"])


def test_too_many_paths_are_refused_with_the_bound_to_pass():
    expansion = expand(recorded(BY_NAME["gpt2"]))
    with pytest.raises(ExpansionTooLarge, match=r"max_order=.*most="):
        expansion.terms(most=3)
    assert all(term.path.order <= 1 for term in expansion.terms(max_order=1))
    assert len(list(expansion.terms(max_order=1))) == expansion.counts(1)
    assert len(list(expansion.terms(most=expansion.counts()))) == expansion.counts()
    few = expansion.counts(1)
    assert few < expansion.counts() and len(list(expansion.terms(max_order=1, most=few))) == few
    with pytest.raises(ExpansionTooLarge, match=f"^{few:,} paths"):
        expansion.terms(max_order=1, most=few - 1)


def test_path_counts_are_binomials_times_powers():
    assert path_counts(3, 2) == [1, 6, 12, 8]
    assert path_counts(3, 2, after=1) == [1, 2]
    assert path_counts(12, 12)[:3] == [1, 144, 9504]
    assert sum(path_counts(12, 12)) == 13**12
    assert sum(path_counts(12, 12)[:3]) == 9649
    assert len(list(chains(BY_NAME["three_layers_normed"].spec, -1, 3))) == sum(path_counts(3, 2)) == 27
    assert len(list(chains(BY_NAME["three_layers_normed"].spec, -1, 1))) == 7


def test_paths_are_written_and_read():
    spec = BY_NAME["three_layers_normed"].spec
    path = Path("embed", ((0, 1), (2, 0)))
    assert path.name == "embed → L0H1 → L2H0"
    assert Path.parse("embed -> L0H1 -> L2H0", spec) == Path.parse("L0H1 → L2H0", spec) == path
    assert str(path) == "A^{L2H0} A^{L0H1} ⊗ W_U W_OV^{L2H0} W_OV^{L0H1} W_E"
    assert str(Path("L0.bias")) == "Id ⊗ W_U · L0.bias"


@EVERY_CASE
def test_every_path_is_read_back_from_its_name(case):
    for term in expand(recorded(case)).terms():
        assert Path.parse(term.path.name, case.spec) == term.path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("embed → L9H0", "no head L9H0"),
        ("embed → L1H0 → L1H1", "later layer"),
        ("L1.bias → L1H0", "later layer"),
        ("unembed.bias → L2H0", "later layer"),
        ("nowhere → L1H0", "sources are embed"),
        ("embed → 3", "written like L1H6"),
    ],
)
def test_a_wrong_path_is_named(text, message):
    with pytest.raises(NotApplicable, match=message):
        Path.parse(text, BY_NAME["three_layers_normed"].spec)


def test_a_source_the_model_lacks_is_named():
    with pytest.raises(NotApplicable, match="it has embed"):
        expand(recorded(BY_NAME["one_layer"])).term("pos")
    with pytest.raises(NotApplicable, match="it has embed"):
        expand(recorded(BY_NAME["one_layer"])).term("unembed.bias")


def test_the_bias_of_a_norm_after_attention_is_a_source_where_there_is_no_other():
    one = case("post_bias_alone", None, None, extras="post post_bias", norm="layer", pre_norm=False)
    expansion = expand(recorded(one))
    assert set(expansion.sources) == {"embed", "L0.bias", "L1.bias"} and expansion.check() <= 1e-12
    agree(expansion.term("L0.bias → L1H2").logits, oracle_terms(one)["L0.bias", ((1, 2),)].logits, 1e-11)


def test_the_final_bias_is_a_path_of_its_own():
    case = BY_NAME["gpt2"]
    term = expand(recorded(case)).term("unembed.bias")
    assert term.path == Path("unembed.bias")
    agree(term.logits, oracle_terms(case)["unembed.bias", ()].logits)
