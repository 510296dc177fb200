"""Attention on text: every number against the definition, and the bytes it travels as."""

import base64
import dataclasses

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import cases
import oracle
import pathsum
from cases import agree
from pathsum.report.tokens import visible
from pathsum.report.views.attention import AttentionView
from pathsum.runs.graded import frozen_run
from pathsum.runs.run import run
from pathsum.weights.model import Model


def view_of(case: cases.Case) -> AttentionView:
    return AttentionView(frozen_run(run(Model(case.name, case.weights), case.tokens, dtype=torch.float64)))


def followers(case: cases.Case) -> list[int]:
    """The token whose logit each row's effect is about."""
    return [*case.tokens.tolist()[1:], int(case.recorded.logits[-1].argmax())]


def centred_row(case: cases.Case, token: int) -> np.ndarray:
    W_U = oracle.dense_unembedding(case.spec, case.arrays)
    return W_U[token] - sum(W_U[t] for t in range(case.spec.d_vocab)) / case.spec.d_vocab


def expected_head(case: cases.Case, layer: int, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Value norms and effects of one head, entry by entry."""
    record, n = case.recorded, len(case.tokens)
    seen, taps = record.layers[layer], range(oracle.tap_count(case.spec, layer, "V"))
    norms, effects = np.zeros(n), np.zeros((n, n))
    for j in range(n):
        moved = np.zeros(case.spec.d_model)
        for t in (t for t in taps if t <= j):
            OV = oracle.dense_OV(case.spec, case.arrays, layer, head, t)
            moved += OV @ record.residuals[layer][j - t] * seen.attention_scale[j - t]
        norms[j] = np.sqrt((moved * moved).sum())
        for i, token in enumerate(followers(case)):
            scale = record.final_scale[i] * seen.post_attention_scale[i]
            effects[i, j] = scale * seen.pattern[head, i, j] * (centred_row(case, token) @ moved)
    return norms, effects


@pytest.mark.parametrize("case", cases.CASES, ids=repr)
def test_value_norms_and_effects_are_their_definition(case):
    view = view_of(case)
    for layer in range(case.spec.n_layers):
        for head in range(case.spec.n_heads):
            found = view.head(f"L{layer}H{head}")
            norms, effects = expected_head(case, layer, head)
            agree(found.value_norm, norms)
            agree(found.effect, effects)
            agree(found.pattern, case.recorded.layers[layer].pattern[head])


@pytest.mark.parametrize("case", cases.CASES, ids=repr)
def test_effects_and_direct_terms_sum_to_the_centred_logit(case):
    view, rows = view_of(case), followers(case)
    names = [f"L{layer}H{head}" for layer in range(case.spec.n_layers) for head in range(case.spec.n_heads)]
    total = sum((view.head(name).effect.sum(1).numpy() for name in names), np.zeros(len(rows)))
    direct = sum(term.logits for term in oracle.terms(case.spec, case.arrays, case.recorded) if not term.heads)
    for i, token in enumerate(rows):
        total[i] += direct[i, token] - direct[i].mean()
    logits = case.recorded.logits
    agree(total, [logits[i, token] - logits[i].mean() for i, token in enumerate(rows)], 1e-10)


def test_triangles_travel_row_by_row():
    case = cases.BY_NAME["two_layers_sinusoidal"]
    found = view_of(case).head("L1H2")
    sent, n = found.to_dict(), len(case.tokens)
    pattern = np.frombuffer(base64.b64decode(sent["pattern"]), np.uint8) / 255
    roots = np.frombuffer(base64.b64decode(sent["effect"]), np.int8) / 127
    effect = np.sign(roots) * roots**2 * sent["effect_scale"]
    assert len(pattern) == len(effect) == n * (n + 1) // 2
    for i in range(n):
        for j in range(i + 1):
            at = i * (i + 1) // 2 + j
            assert abs(pattern[at] - found.pattern[i, j]) <= 0.5 / 255 + 1e-6
            # Half a step of the root, either way.
            slack = (2 * abs(roots[at]) + 0.5 / 127) * 0.5 / 127 * sent["effect_scale"]
            assert abs(effect[at] - found.effect[i, j]) <= slack * (1 + 1e-6)


def test_a_head_without_effect_has_zeros():
    case = cases.BY_NAME["one_layer"]
    silent = case.with_tensors(**{"L0.W_O": torch.zeros_like(case.tensors["L0.W_O"])})
    sent = view_of(silent).head("L0H0").to_dict()
    assert sent["effect_scale"] == 0 and not any(base64.b64decode(sent["effect"]))


def test_the_index_names_tokens_heads_and_what_follows(hostile_tokens):
    tokenizer = Tokenizer(WordLevel({token: at for at, token in enumerate(hostile_tokens)}, unk_token="🦊"))
    model = dataclasses.replace(pathsum.toys.induction_model(d_vocab=len(hostile_tokens)), tokenizer=tokenizer)
    recorded = run(model, list(range(len(hostile_tokens))))
    index = AttentionView(frozen_run(recorded), {"L1H1": "induction"}).index()
    assert index["tokens"] == [visible(token, 60) for token in hostile_tokens] and max(map(len, index["tokens"])) <= 120
    first = int(recorded.logits[-1].argmax())
    assert index["next"] == [*index["tokens"][1:], index["tokens"][first]] and not index["bos"]
    assert [head["name"] for head in index["heads"]] == ["L0H0", "L0H1", "L1H0", "L1H1"]
    assert [head["note"] for head in index["heads"]] == ["", "", "", "induction"]
    few = AttentionView(frozen_run(recorded)).index(["L1H0"])
    assert [head["name"] for head in few["heads"]] == ["L1H0"]


def test_a_thumbnail_keeps_the_largest_of_every_block():
    model = pathsum.toys.induction_model(d_vocab=16, n_ctx=64)
    view = AttentionView(frozen_run(run(model, [*range(16)] * 4)))
    head = view.index()["heads"][3]
    pixels = np.frombuffer(base64.b64decode(head["thumbnail"]), np.uint8).reshape(head["size"], head["size"])
    pattern = view.head("L1H1").pattern.numpy()
    assert head["size"] == 28
    assert pixels.max() == round(255 * pattern.max()) and pixels[0, -1] == 0
