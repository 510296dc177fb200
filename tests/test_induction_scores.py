"""What the scores of induction heads are made of: a planted one's, and those of the models that ship."""

import pytest
import torch

import pathsum
from cases import agree
from pathsum.behaviour.attention import lag_profile, prefix_matching, repeated_tokens
from pathsum.paths.qk_term import qk_term
from pathsum.paths.scores import expand_scores
from pathsum.runs.graded import frozen_run
from pathsum.runs.run import run
from pathsum.toys import induction_model


def test_a_planted_induction_head_compares_its_token_with_the_one_before_the_source():
    model = induction_model()
    tokens = repeated_tokens(model.spec, 8, 2)
    at = expand_scores(run(model, tokens, dtype=torch.float64), "L1H1").at("induction")
    best = at.by_path().strongest(1)[0]
    assert (best.query, best.key) == ("embed", "embed → L0H0")
    agree(best.values[0], at.target[0], 1e-9)
    agree(at.by_lag().share("lag 0", "lag 1").values[0], at.target[0], 1e-9)
    # What the head's keys have against the first position alone is beside it.
    agree(best.values[1] + at.by_path().share("embed", "positions").values[1], at.target[1], 1e-9)
    assert qk_term(frozen_run(at.expansion.run).weights, "L1H1", "embed", "L0H0").matching_score == pytest.approx(1)


@pytest.fixture(scope="module", params=["two-layer", "two-layer-small"])
def trained(request):
    """A built-in model's run of repeated random tokens, and its best induction head at induction pairs."""
    model = pathsum.open(request.param)
    recorded = run(model, repeated_tokens(model.spec, 64, 4), dtype=torch.float64)
    matching = prefix_matching(recorded.frozen.layers[1].pattern, recorded.tokens)
    return recorded, expand_scores(recorded, f"L1H{int(matching.argmax())}").at("induction")


def test_a_trained_induction_head_compares_its_token_with_the_one_before_the_source(trained):
    """All of the small model's score; seven tenths of the larger's, which compares the tokens before those as well."""
    recorded, at = trained
    lags = at.by_lag(3)
    share = lambda query, key: (lags.share(query, key).values / lags.target)[1].item()
    own, before = (0.71, 0.30) if recorded.model.spec.n_heads == 12 else (1.03, 0.0)
    assert share("lag 0", "lag 1") == pytest.approx(own, abs=0.02)
    assert share("lag 1", "lag 2") == pytest.approx(before, abs=0.02)
    best = lags.strongest(1)[0]
    assert (best.query, best.key) == ("lag 0", "lag 1") and lags.error < 1e-12


def test_its_keys_are_made_by_previous_token_heads_and_its_queries_by_all_that_say_its_own_token(trained):
    """The textbook's pair, direct query and key through a previous-token head, is there and is not most of it."""
    recorded, at = trained
    terms, profile = at.by_path(1), lag_profile(recorded.frozen.layers[0].pattern, 3)
    at_lag = [[f"embed → L0H{head}" for head in range(len(profile)) if profile[head, lag] > 0.8] for lag in range(3)]
    present, previous, two_back = at_lag

    def share(queries: list[str], keys: list[str]) -> float:
        total = sum(terms.share(query, key).values[1].item() for query in queries for key in keys)
        return total / terms.target[1].item()

    wanted = (0.17, 0.52, 0.30) if recorded.model.spec.n_heads == 12 else (0.15, 0.88, 0.0)
    found = share(["embed"], previous), share(present, previous), share(previous, two_back)
    assert found == pytest.approx(wanted, abs=0.015)
    assert abs(share(["embed"], ["embed"])) < 0.01
    # Of what a direct query finds, nearly all is through previous-token heads.
    assert share(["embed"], previous) > 0.9 * share(["embed"], [key for key in terms.keys if key != "positions"])
