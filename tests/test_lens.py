"""The logit lens: partial sums of terms, with the run's final scale and with their own."""

import pytest
import torch

from cases import CASES, agree
from pathsum.paths.lens import by_layer, by_order
from pathsum.paths.logits import expand
from pathsum.runs.attention import soft_cap
from pathsum.runs.forward import forward, logits
from pathsum.runs.run import run_weights
from pathsum.weights.model import Model

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=repr)


def expansion_of(case):
    return expand(run_weights(Model(case.name, case.weights), case.weights, case.tokens))


@EVERY_CASE
def test_a_frozen_step_is_the_sum_of_the_terms_up_to_it(case):
    expansion, cap = expansion_of(case), case.spec.logit_cap
    layers, orders = (torch.zeros(case.spec.n_layers + 1, case.spec.d_vocab, dtype=torch.float64) for _ in range(2))
    for term in expansion.terms():
        # What a layer writes is in the stream before the next: its bias and MLP too, the final bias in every step.
        source = term.path.source
        own = int(source[1 : source.index(".")]) if source[0] == "L" else -1
        after = term.path.heads[-1][0] if term.path.heads else own
        layers[0 if source == "unembed.bias" else after + 1] += term.logits[2]
        orders[term.path.order] += term.logits[2]
    for lens, parts in ((by_layer(expansion.frozen, 2), layers), (by_order(expansion.frozen, 2), orders)):
        agree(lens.frozen, soft_cap(parts.cumsum(0), cap), 1e-10)
        assert len(lens.labels) == case.spec.n_layers + 1
        agree(lens.frozen[-1], expansion.run.logits[2], 1e-10)
        agree(lens.recomputed[-1], expansion.run.logits[2], 1e-10)


@EVERY_CASE
def test_a_recomputed_step_is_what_the_model_says_where_it_stops(case):
    expansion = expansion_of(case)
    lens = by_layer(expansion.frozen, -1)
    before = forward(case.weights, case.tokens, record=True).residuals
    for layer, x in enumerate(before):
        ends = case.weights.ends
        agree(
            lens.recomputed[layer], soft_cap(logits(ends, x, ends.final_norm.scale(x))[-1], case.spec.logit_cap), 1e-9
        )
