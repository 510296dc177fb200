"""`pathsum.run`: texts and token ids in, everything recorded out; the BOS choice explicit."""

import dataclasses

import pytest
import torch

import pathsum
from pathsum.errors import TextError
from pathsum.weights.model import Model
from pathsum.weights.tokens import token_strings
from pathsum.weights.weights import Weights


@pytest.fixture(scope="module")
def model() -> Model:
    return pathsum.open("two-layer-small")


@pytest.fixture(scope="module")
def with_bos(model) -> Model:
    spec = dataclasses.replace(model.spec, bos=0)
    return dataclasses.replace(model, weights=Weights.from_tensors(spec, model.weights.tensors()))


def test_a_run_has_tokens_logits_and_patterns(model):
    run = pathsum.run(model, "def f(x):\n    return x")
    n = len(run.tokens)
    assert run.logits.shape == (n, 1024)
    assert run.patterns.shape == (2, 4, n, n)
    assert torch.allclose(run.patterns.sum(-1), torch.ones(2, 4, n))
    assert torch.allclose(run.log_probabilities.exp().sum(-1), torch.ones(n), atol=1e-5)
    assert "".join(run.token_strings) == "def f(x):\n    return x"
    assert not run.bos


def test_text_ids_and_a_tensor_of_ids_are_the_same_run(model):
    text = pathsum.run(model, "some text")
    for given in (text.tokens.tolist(), text.tokens, text.tokens[None]):
        assert torch.allclose(pathsum.run(model, given).logits.squeeze(), text.logits, atol=1e-5)


def test_a_model_without_layers_has_no_patterns():
    run = pathsum.run(pathsum.open("zero-layer"), [1, 2, 3])
    assert run.patterns.shape[0] == 0 and run.patterns.shape[-2:] == (3, 3)


def test_bos_goes_before_text_where_the_model_has_one_and_never_before_ids(with_bos):
    text = pathsum.run(with_bos, "text")
    assert text.tokens[0] == 0 and text.bos
    bare = pathsum.run(with_bos, "text", bos=False)
    assert bare.tokens.tolist() == text.tokens[1:].tolist() and not bare.bos
    assert pathsum.run(with_bos, bare.tokens).tokens.tolist() == bare.tokens.tolist()
    assert pathsum.run(with_bos, bare.tokens, bos=True).tokens.tolist() == text.tokens.tolist()
    batch = pathsum.run(with_bos, torch.tensor([[1, 2], [3, 4]]), bos=True)
    assert batch.tokens.tolist() == [[0, 1, 2], [0, 3, 4]] and batch.bos


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is empty"),
        ([], "the text is empty"),
        ([1, 1024], "0 to 1023, got 1 to 1024"),
        ([-1, 3], "got -1 to 3"),
        (list(range(300)), "300 tokens, the model's context is 256"),
        ([1.5, 2.0], "whole numbers"),
        (torch.zeros(2, 2, 2, dtype=torch.long), "one list of whole numbers"),
        (torch.full((2, 3), 5000), "5000"),
        (torch.zeros(2, 0, dtype=torch.long), "the text is empty"),
        (torch.zeros(0, 3, dtype=torch.long), "one list of whole numbers"),
        (torch.full((2, 3), 1.5), "whole numbers"),
        (None, "not NoneType"),
        (["a", "b"], "not list"),
        (b"abc", "not bytes|whole numbers|got"),
        ([[1, 2], [3]], "not list"),
        ([2**70], "not list"),
        ("\ud800", "no valid Unicode"),
    ],
)
def test_what_cannot_be_run_is_one_clear_error(model, text, message, unchecked):
    with pytest.raises(TextError, match=message):
        pathsum.run(model, text)


def test_a_model_without_bos_or_tokenizer_says_so(model):
    with pytest.raises(TextError, match="no beginning-of-sequence token"):
        pathsum.run(model, "text", bos=True)
    with pytest.raises(TextError, match="pass token ids"):
        pathsum.run(dataclasses.replace(model, tokenizer=None), "text")


def test_tokens_are_shown_as_text_or_as_the_tokenizer_spells_their_bytes(model):
    ids = model.tokenizer.encode("é ☃", add_special_tokens=False).ids
    shown = token_strings(model, ids)
    assert all(part for part in shown) and not any("\ufffd" in part for part in shown)
    assert token_strings(dataclasses.replace(model, tokenizer=None), [7, 8]) == ["7", "8"]


def test_what_is_no_model_no_run_and_no_head_is_said_so(model, unchecked):
    with pytest.raises(pathsum.PathsumError, match=r"not str: pathsum\.open"):
        pathsum.run("two-layer", "text")
    with pytest.raises(pathsum.PathsumError, match=r"not str: pathsum\.open"):
        pathsum.spectra("two-layer")
    with pytest.raises(pathsum.PathsumError, match=r"not Model: pathsum\.run"):
        pathsum.expand(model)
    run = pathsum.run(model, "text")
    with pytest.raises(pathsum.PathsumError, match=r"not Model: pathsum\.run"):
        pathsum.expand_scores(model, "L1H3")
    asked = {pathsum.prompt_lens: (), pathsum.prompt_scores: ("L1H3",), pathsum.prompt_table: (["head"],)}
    for ask, more in {pathsum.prompt_expansion: (), pathsum.prompt_paths: (), **asked}.items():
        with pytest.raises(pathsum.PathsumError, match=r"not str: pathsum\.open"):
            ask("two-layer", "text", *more)
    with pytest.raises(pathsum.PathsumError, match="is no head"):
        pathsum.expand_scores(run, (1, 3))
    for ask in (pathsum.expand(run).matrix, pathsum.expand(run).pattern, pathsum.expand(run).term):
        with pytest.raises(pathsum.PathsumError, match="no source 'pos'"):
            ask("pos → L0H0")
    with pytest.raises(pathsum.PathsumError, match="or 'rms'"):
        pathsum.composition(model, delta="x")
    with pytest.raises(pathsum.PathsumError, match="count is -1"):
        pathsum.entries(model, count=-1)
    with pytest.raises(pathsum.PathsumError, match="per_source is 100000"):
        pathsum.trigrams(model, per_source=100_000)
    with pytest.raises(pathsum.PathsumError, match="too short to compare"):
        pathsum.in_context(model, context=2)
    with pytest.raises(TextError, match="sequences is 0"):
        pathsum.attention(model, sequences=0)
    with pytest.raises(TextError, match="batch is -1"):
        pathsum.repeats(model, batch=-1)
    with pytest.raises(pathsum.PathsumError, match="lags is 0"):
        pathsum.positional(model, lags=0)
    with pytest.raises(pathsum.PathsumError, match="positions is 1;"):
        pathsum.pointer(pathsum.toys.pointer_model(), positions=1)
    for token, said in ((1024, "0 to 1023"), (-1, "got -1"), (" no such token", "tokens of two-layer-small")):
        for ask in (pathsum.logit, pathsum.log_probability):
            with pytest.raises(TextError, match=said):
                ask(run, token)
    with pytest.raises(pathsum.PathsumError, match="a target is of one text"):
        pathsum.logit(pathsum.run(model, torch.tensor([[1, 2], [3, 4]])), 5)


@pytest.mark.parametrize(
    ("given", "said"), [({"d_rotary": 3}, "in pairs"), ({"frequencies": (1.0,)}, "1 positions freq")]
)
def test_what_makes_no_rotation_is_refused(given, said):
    with pytest.raises(pathsum.PathsumError, match=said):
        pathsum.Rotary(**{"d_rotary": 4, **given})


def test_values_show_themselves_in_a_line(model):
    run = pathsum.run(model, "text")
    for value in (model, model.weights, run, pathsum.expand(run), pathsum.expand(run).frozen):
        assert len(repr(value)) < 200 and "\n" not in repr(value)


def test_the_digest_is_of_the_weights_and_of_nothing_else(model):
    in_memory = Model("other", model.weights)
    assert in_memory.digest() == Model("renamed", model.weights.load()).digest()
    changed = {**model.weights.tensors()}
    changed["W_E"] = changed["W_E"].clone()
    changed["W_E"][0, 0] += 1
    assert Model("other", Weights.from_tensors(model.spec, changed)).digest() != in_memory.digest()


def test_a_result_is_json_without_nan_and_shows_itself_in_a_notebook():
    result = pathsum.spectra(pathsum.toys.induction_model())
    assert '"copying_score": null' in result.to_json()
    assert "<table" in result._repr_html_()
