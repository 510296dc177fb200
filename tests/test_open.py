"""What can be opened, and what is said of what cannot: folders, files, shards, pickles, values in memory."""

import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

import pathsum
from cases import BY_NAME
from pathsum.errors import CheckpointError, MissingTensor, TextError, UnsupportedFamily
from pathsum.runs.run import run_weights
from pathsum.weights import hub
from pathsum.weights.families.family import Family, take
from pathsum.weights.spec import Attention, Spec
from sparse_files import sparse_checkpoint

CONFIG = {
    "model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": 16,
}  # fmt: skip
TOKENS = [3, 1, 4, 1, 5]


def llama_tensors(d: int = 8, vocab: int = 11, width: int = 6) -> dict[str, torch.Tensor]:
    """A tiny Llama's tensors under the names of its checkpoints."""
    generator = torch.Generator().manual_seed(5)
    normal = lambda *shape: torch.randn(*shape, generator=generator)
    found = {"model.embed_tokens.weight": normal(vocab, d), "lm_head.weight": normal(vocab, d)}
    found["model.norm.weight"] = normal(d)
    for layer in range(2):
        at = f"model.layers.{layer}."
        found |= {f"{at}self_attn.{part}_proj.weight": normal(d, d) for part in "qkvo"}
        found |= {f"{at}mlp.{part}_proj.weight": normal(width, d) for part in ("gate", "up")}
        found |= {f"{at}mlp.down_proj.weight": normal(d, width)}
        found |= {f"{at}{norm}_layernorm.weight": normal(d) for norm in ("input", "post_attention")}
    return found


def folder_of(place: Path, config: dict | None = CONFIG, **files) -> Path:
    """A model folder; `files` are names with `__` for the dot, and their tensors."""
    place.mkdir(exist_ok=True)
    if config is not None:
        (place / "config.json").write_text(json.dumps(config))
    for name, tensors in files.items():
        save_file(tensors, place / f"{name}.safetensors")
    return place


def sharded(place: Path, suffix: str = "safetensors") -> Path:
    """The same model in two shards with an index."""
    tensors = llama_tensors()
    halves = [dict(list(tensors.items())[:9]), dict(list(tensors.items())[9:])]
    stem = "model" if suffix == "safetensors" else "pytorch_model"
    weight_map = {}
    folder_of(place)
    for i, half in enumerate(halves):
        file = f"{stem}-0000{i + 1}-of-00002.{suffix}"
        save_file(half, place / file) if suffix == "safetensors" else torch.save(half, place / file)
        weight_map |= dict.fromkeys(half, file)
    (place / f"{stem}.{suffix}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return place


def logits(model) -> torch.Tensor:
    return pathsum.run(model, TOKENS).logits


@pytest.fixture
def expected() -> torch.Tensor:
    return logits(pathsum.open(llama_tensors(), config=CONFIG))


# ---- every form is the same model ----


def test_every_form_is_the_same_model(tmp_path, expected):
    tensors = llama_tensors()
    one = folder_of(tmp_path / "one", model=tensors)
    other_name = folder_of(tmp_path / "other", weights=tensors)
    torch_folder = folder_of(tmp_path / "bin")
    torch.save(tensors, torch_folder / "pytorch_model.bin")
    old = folder_of(tmp_path / "old")
    torch.save(tensors, old / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    trained = tmp_path / "ckpt.pt"
    torch.save({"model": {f"_orig_mod.{name}": t for name, t in tensors.items()}, "step": 3}, trained)
    in_memory = SimpleNamespace(config=SimpleNamespace(to_dict=lambda: CONFIG), state_dict=lambda: tensors)
    opened = [
        pathsum.open(one),
        pathsum.open(str(one)),
        pathsum.open(one / "model.safetensors"),
        pathsum.open(other_name),
        pathsum.open(sharded(tmp_path / "shards")),
        pathsum.open(tmp_path / "shards" / "model.safetensors.index.json"),
        pathsum.open(sharded(tmp_path / "binshards", "bin")),
        pathsum.open(torch_folder),
        pathsum.open(old),
        pathsum.open(trained, config=CONFIG),
        pathsum.open(trained, config=one / "config.json", family="llama"),
        pathsum.open(in_memory),
    ]
    for model in opened:
        assert torch.equal(logits(model), expected)
    assert [model.name for model in opened[:3]] == ["one", "one", "model"]


def test_a_prefix_may_be_missing_and_a_tied_unembedding_may_lie_about(expected):
    bare = {name.removeprefix("model."): t for name, t in llama_tensors().items()}
    assert torch.equal(logits(pathsum.open(bare, config=CONFIG)), expected)
    tied = pathsum.open(llama_tensors(), config={**CONFIG, "tie_word_embeddings": True})
    assert torch.equal(tied.weights.W_U, llama_tensors()["model.embed_tokens.weight"])
    twice = {**llama_tensors(), "norm.weight": torch.ones(8)}
    with pytest.raises(CheckpointError, match="are two of what a model has once"):
        pathsum.open(twice, config=CONFIG)


def test_the_language_model_of_a_model_that_also_sees(expected):
    config = {"model_type": "sees", "vision_config": {}, "text_config": CONFIG}
    assert torch.equal(logits(pathsum.open(llama_tensors(), config=config)), expected)


def test_canonical_tensors_and_a_spec():
    case = BY_NAME["llama"]
    model = pathsum.open(case.tensors, config=case.spec)
    run = pathsum.run(model, case.tokens, dtype=torch.float64)
    assert torch.allclose(run.logits, run_weights(model, case.weights, case.tokens).logits)


def test_halves_are_read_as_they_are_and_folded_in_float32():
    tensors = {name: tensor.bfloat16() for name, tensor in llama_tensors().items()}
    weights = pathsum.open(tensors, config=CONFIG).weights
    assert weights.W_E.dtype == torch.bfloat16
    wide = pathsum.open({name: t.float() for name, t in tensors.items()}, config=CONFIG).weights
    assert torch.equal(weights.fold().block(0).W_Q, wide.fold().block(0).W_Q)


# ---- only what is asked for is read ----


def test_only_the_tensors_of_the_layers_asked_for_are_read(tmp_path):
    """Two layers of a sharded checkpoint of gigabytes: a few megabytes are touched, and no MLP."""
    folder = sparse_checkpoint(tmp_path / "big", n_layers=6, d=1024, d_mlp=60_000)
    total = sum(file.stat().st_size for file in folder.iterdir())
    assert total > 4 << 30
    script = (
        "import resource, sys, pathsum\n"
        "from pathsum.circuits.composition import layer_composition\n"
        "import torch\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"model = pathsum.open({str(folder)!r})\n"
        "layer_composition(model.weights.fold(), 'V', 2, 0)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    grown = int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
    assert grown < 300 << 10, f"{grown >> 10} MB for two layers' attention of 32 MB"


# ---- tokenizers and the beginning of a text ----


def byte_tokenizer(start: int | None) -> Tokenizer:
    """A byte-level tokenizer that puts `start` before every text, or nothing."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if start is not None:
        tokenizer.add_special_tokens(["<s>"])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
    return tokenizer


@pytest.mark.parametrize("start", [None, 256])
@pytest.mark.parametrize("said", [None, True, False])
def test_texts_start_as_the_tokenizer_says(tmp_path, start, said):
    config = {**CONFIG, "vocab_size": 300, "bos_token_id": 256}
    folder = folder_of(tmp_path / "model", config, model=llama_tensors(vocab=300))
    byte_tokenizer(start).save(str(folder / "tokenizer.json"))
    if said is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": said}))
    model = pathsum.open(folder)
    expected = start is not None if said is None else said
    tokens = pathsum.run(model, "ab").tokens
    assert len(tokens) == 2 + expected
    assert model.spec.bos == 256 and pathsum.run(model, "ab", bos=True).tokens[0] == 256
    assert pathsum.run(model, "ab").bos == expected
    assert len(pathsum.run(model, "ab", bos=False).tokens) == 2


def test_a_model_without_a_tokenizer_takes_token_ids(tmp_path):
    model = pathsum.open(folder_of(tmp_path / "m", model=llama_tensors()))
    assert model.tokenizer is None and len(pathsum.run(model, TOKENS).logits) == 5
    with pytest.raises(TextError, match=r"has no tokenizer\.json: pass token ids"):
        pathsum.run(model, "text")


def test_gpt2s_two_files_and_a_tokenizer_given(tmp_path):
    config = {**CONFIG, "vocab_size": 300}
    folder = folder_of(tmp_path / "m", config, model=llama_tensors(vocab=300))
    tokenizer = byte_tokenizer(None)
    tokenizer.model.save(str(folder))
    assert pathsum.open(folder).tokenizer.encode("né!").ids == tokenizer.encode("né!").ids
    fast = SimpleNamespace(backend_tokenizer=tokenizer)
    assert pathsum.open(folder, tokenizer=fast).tokenizer is tokenizer
    tokenizer.save(str(tmp_path / "t.json"))
    assert pathsum.open(folder, tokenizer=tmp_path / "t.json").tokenizer.encode("a").ids == tokenizer.encode("a").ids
    with pytest.raises(CheckpointError, match="tokenizer= takes"):
        pathsum.open(folder, tokenizer=3)
    (folder / "vocab.json").write_text("{")
    with pytest.raises(CheckpointError, match="no readable tokenizer"):
        pathsum.open(folder)


# ---- what is refused, and how ----


def refused(source, match: str, kind=CheckpointError, **options):
    with pytest.raises(kind, match=match) as caught:
        pathsum.open(source, **options).weights.load()
    return str(caught.value)


class Harmful:
    """A pickle that would write a file when it is read."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "ckpt.pt"])
def test_code_in_a_checkpoint_is_not_run(tmp_path, name):
    target = tmp_path / "ran"
    folder = folder_of(tmp_path / "m")
    (folder / name).write_bytes(pickle.dumps({"model": Harmful(target)}))
    source = folder / name if name == "ckpt.pt" else folder
    message = refused(source, name.replace(".", r"\."))
    assert "copy it again" in message or "runs no code" in message
    assert "weights_only" not in message, "torch's advice to read it all the same"
    torch.save({"model": Harmful(target)}, folder / name)
    refused(source, name.replace(".", r"\."))
    assert not target.exists()


@pytest.mark.parametrize("shard", ["../outside.safetensors", "/etc/passwd", "sub/x.safetensors", "..", "", 3, "a\\b"])
def test_an_index_reads_only_files_beside_it(tmp_path, shard):
    folder = sharded(tmp_path / "m")
    save_file(llama_tensors(), tmp_path / "outside.safetensors")
    index = folder / "model.safetensors.index.json"
    plain = json.loads(index.read_text())
    plain["weight_map"]["lm_head.weight"] = shard
    index.write_text(json.dumps(plain))
    assert "only files beside it are read" in refused(folder, r"lm_head\.weight")


def test_shards_and_their_index_disagree(tmp_path):
    folder = sharded(tmp_path / "m")
    index = folder / "model.safetensors.index.json"
    plain = json.loads(index.read_text())
    plain["weight_map"]["lm_head.weight"] = "model-00002-of-00002.safetensors"
    index.write_text(json.dumps(plain))
    refused(folder, r"tensor lm_head\.weight is not in model-00002", MissingTensor)
    index.write_text(json.dumps({"weight_map": {**plain["weight_map"], "lm_head.weight": index.name}}))
    refused(folder, "no readable safetensors")
    index.write_text(json.dumps({"weight_map": {}}))
    refused(folder, "has no weight_map")
    (folder / "model-00001-of-00002.safetensors").unlink()
    index.write_text(json.dumps(plain))
    refused(folder, "model-00001-of-00002.safetensors is missing")


def test_what_a_config_may_not_be(tmp_path):
    folder = folder_of(tmp_path / "m", model=llama_tensors())
    for text, match in [
        ('{"model_type": "llama", "hidden_size": 8, "hidden_size": 9}', "'hidden_size' is given twice"),
        ("[1]", "must hold one JSON object"),
        ("{", "no readable JSON"),
        ("[" * 100_000, "no readable JSON"),
        ("{}", "'model_type' is missing"),
    ]:
        (folder / "config.json").write_text(text)
        refused(folder, match)
    for change, match in [
        ({"model_type": "lama"}, "did you mean 'llama'"),
        ({"model_type": ["llama"]}, "no table for model_type"),
        ({"hidden_size": "8"}, "hidden_size is '8'"),
        ({"hidden_size": 1 << 60}, "which no model has"),
        ({"num_hidden_layers": 1 << 20}, "which no model has"),
        ({"max_position_embeddings": 1 << 60}, "which no model has"),
        ({"hidden_size": 16}, "not of the same model"),
        ({"num_attention_heads": 3}, "no multiple of 3 heads"),
        ({"rms_norm_eps": None, "hidden_act": "snake"}, "'snake' is not one of"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"hidden_size": 8, "n_embd": 9}, "n_embd, another name for it, is 9"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "rope_type 'spiral' is not one of"),
        ({"rope_scaling": 3}, "rope_scaling is 3, must be a JSON object"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised by 'gptq'"),
    ]:
        (folder / "config.json").write_text(json.dumps({**CONFIG, **change}))
        refused(folder, match)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (torch.full((8,), torch.nan), "not finite"),
        (torch.ones(8, dtype=torch.int64), "floating-point"),
        (torch.ones(9), "not of the same model"),
    ],
)
def test_a_tensor_that_is_not_what_it_should_be_is_named(change, match):
    refused(llama_tensors() | {"model.norm.weight": change}, match, config=CONFIG)


def test_what_is_no_tensor_in_a_shard_is_named(tmp_path):
    folder = sharded(tmp_path / "m", "bin")
    shard = folder / "pytorch_model-00001-of-00002.bin"
    torch.save({**torch.load(shard), "lm_head.weight": [1.0]}, shard)
    refused(folder, r"'lm_head\.weight' is a list, not a tensor; save a state dict")


@pytest.mark.parametrize("form", ["one", "shards", "binshards", "memory"])
def test_tensors_of_another_width_are_named_when_the_model_is_opened(form, tmp_path):
    wide, tensors = {**CONFIG, "intermediate_size": 9}, llama_tensors()
    forms = {
        "one": lambda: folder_of(tmp_path / "one", model=tensors),
        "shards": lambda: sharded(tmp_path / "shards"),
        "binshards": lambda: sharded(tmp_path / "binshards", "bin"),
        "memory": lambda: tensors,
    }
    said = r"model\.layers\.0\.mlp\.\w+_proj\.weight \(.*\) cannot be L0\.mlp\.W_\w+ \(.*9.*\) of the model"
    with pytest.raises(MissingTensor, match=said):
        pathsum.open(forms[form](), config=wide)


@pytest.mark.parametrize("name", ["norm.weight", "layers.1.self_attn.q_proj.weight", "lm_head.weight"])
def test_a_tensor_that_is_missing_is_named(name):
    tensors = llama_tensors()
    tensors.pop(name, tensors.pop(f"model.{name}", None))
    refused(tensors, rf"{re.escape(name)} is missing", config=CONFIG)
    refused({name.removeprefix("model."): tensor for name, tensor in tensors.items()}, "is missing", config=CONFIG)


def test_what_is_no_model_at_all(tmp_path, unchecked):
    refused("", "no model is named")
    refused("two-layr", "did you mean 'two-layer'")
    refused(tmp_path / "nothing", "nothing does not exist; give a folder, a file, hf:owner/name")
    refused("model.gguf", "model.gguf does not exist")
    refused("gpt2", "or give a path or hf:owner/name")
    refused("x" * 5000, "is no path|no model")
    refused("nul\0", "is no path|no model")
    refused(3, "not int")
    refused({"a": 1}, "'a' is a int, not a tensor", config=CONFIG)
    refused(llama_tensors(), "needs config=")
    refused(llama_tensors(), "config= takes", config=3)
    refused(llama_tensors(), "no table for model_type 'mine'", UnsupportedFamily, config=CONFIG, family="mine")
    (tmp_path / "notes.txt").write_text("x")
    refused(tmp_path / "notes.txt", "is a file, but none of")
    refused(tmp_path, r"has no config\.json")
    refused(folder_of(tmp_path / "m"), r"model\.safetensors is missing")
    save_file(llama_tensors(), tmp_path / "alone.safetensors")
    refused(tmp_path / "alone.safetensors", r"no config\.json lies beside it")
    torch.save(torch.ones(3), tmp_path / "t.pt")
    refused(tmp_path / "t.pt", "holds a Tensor, not tensors by name")


# ---- a table of the user's own ----


def test_a_family_of_ones_own():
    """The worked example of the documentation: another layout, another activation, no table here knows it."""
    spec = Spec(
        d_vocab=11, n_ctx=16, d_model=8, n_layers=1, n_heads=2, d_head=4, n_key_value_heads=2,
        layers=(Attention(score_scale=0.5),), family="mine",
    )  # fmt: skip
    tensors = {
        "tok": torch.randn(11, 8),
        "out": torch.randn(11, 8),
        "0.qkv": torch.randn(24, 8),
        "0.o": torch.randn(8, 8),
    }
    third = lambda i: take("{layer}.qkv", change=lambda spec, W: W.chunk(3)[i])
    table = {"W_E": "tok", "W_U": "out", "L{layer}.W_Q": third(0), "L{layer}.W_K": third(1), "L{layer}.W_V": third(2)}
    mine = Family("mine", spec=lambda config: spec, tensors={**table, "L{layer}.W_O": "{layer}.o"})
    model = pathsum.open(tensors, config={}, family=mine)
    block = model.weights.block(0)
    assert torch.equal(block.W_K.flatten(0, 1), tensors["0.qkv"][8:16])
    assert torch.equal(block.W_O[1], tensors["0.o"][:, 4:])
    with pytest.raises(MissingTensor, match=r"says nothing of L0\.W_O"):
        pathsum.open(tensors, config={}, family=replace(mine, tensors=table))
    short = replace(mine, tensors={**table, "L{layer}.W_O": take("{layer}.o", change=lambda spec, W: W[:3])})
    with pytest.raises(MissingTensor, match=r"0\.o \(8, 8\) cannot be L0\.W_O \(2, 8, 4\)"):
        pathsum.open(tensors, config={}, family=short)
    by_value = take("{layer}.o", change=lambda spec, W: W / W.abs().max().item())  # not known before it is read
    scaled = pathsum.open(tensors, config={}, family=replace(mine, tensors={**table, "L{layer}.W_O": by_value}))
    assert scaled.weights.block(0).W_O.abs().max() == 1


# ---- the hub ----


class FakeHub:
    """What the hub's client would do, without the network."""

    def __init__(self, folder: Path, fails: str | None = None) -> None:
        self.folder, self.fails, self.asked = folder, fails, []

    def snapshot_download(self, repository: str, revision: str | None, allow_patterns: list[str]) -> str:
        self.asked.append((repository, revision, allow_patterns))
        if self.fails:
            raise OSError(self.fails)
        return str(self.folder)


def test_a_name_that_asks_for_the_hub(tmp_path, monkeypatch, expected):
    client = FakeHub(folder_of(tmp_path / "snapshot", model=llama_tensors()))
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    model = pathsum.open("hf:owner/tiny@v1")
    assert model.name == "owner/tiny@v1" and torch.equal(logits(model), expected)
    assert client.asked == [("owner/tiny", "v1", hub.WANTED)]
    assert all("bin" not in pattern and "*.py" not in pattern for pattern in hub.WANTED)
    bare = folder_of(tmp_path / "bare")
    torch.save(llama_tensors(), bare / "pytorch_model.bin")
    client = FakeHub(bare)
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    assert torch.equal(logits(pathsum.open("hf:owner/tiny")), expected)
    assert client.asked == [("owner/tiny", None, hub.WANTED), ("owner/tiny", None, hub.PICKLED)]
    monkeypatch.setitem(sys.modules, "huggingface_hub", FakeHub(bare, fails="401 no such repository"))
    refused("hf:owner/tiny", "hf:owner/tiny could not be fetched: 401")
    for name in ("hf:tiny", "hf:/", "hf:a/b/c", "hf:"):
        refused(name, "is no name on the hub")


def test_the_hub_without_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused("hf:owner/tiny", r"pip install 'pathsum\[hub\]'")


# ---- damaged files: one clear error, or a model, and nothing else ----


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return folder_of(tmp_path_factory.mktemp("whole"), model=llama_tensors())


def opens_or_says_why(folder: Path) -> None:
    """Anything but a model or a `CheckpointError` fails the test."""
    try:
        pathsum.open(folder).weights.load()
    except CheckpointError as error:
        assert str(error)


damage = st.one_of(
    st.tuples(st.just("cut"), st.integers(0, 4000), st.just(0)),
    st.tuples(st.just("set"), st.integers(0, 4000), st.integers(0, 255)),
    st.tuples(st.just("grow"), st.integers(0, 4000), st.integers(1, 64)),
)


def damaged(content: bytes, how: tuple[str, int, int]) -> bytes:
    kind, at, value = how
    at = at % (len(content) + 1)
    if kind == "cut":
        return content[:at]
    return content[:at] + bytes([value]) * (1 if kind == "set" else value) + content[at + (kind == "set") :]


@settings(max_examples=150)
@given(file=st.sampled_from(["config.json", "model.safetensors"]), hows=st.lists(damage, min_size=1, max_size=3))
def test_damaged_files_are_an_error_or_a_model(whole, tmp_path_factory, file, hows):
    folder = tmp_path_factory.mktemp("damaged")
    for path in whole.iterdir():
        content = path.read_bytes()
        for how in hows if path.name == file else []:
            content = damaged(content, how)
        (folder / path.name).write_bytes(content)
    opens_or_says_why(folder)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
FIELDS = [*CONFIG, "rope_scaling", "rope_parameters", "head_dim", "num_key_value_heads", "tie_word_embeddings",
          "rms_norm_eps", "rope_theta", "attention_bias", "bos_token_id", "quantization_config",
          "text_config"]  # fmt: skip


@settings(max_examples=200)
@given(changes=st.dictionaries(st.sampled_from(FIELDS), values, min_size=1, max_size=3))
def test_any_value_of_any_field_is_an_error_or_a_model(changes):
    try:
        pathsum.open(llama_tensors(), config={**CONFIG, **changes}).weights.load()
    except CheckpointError as error:
        assert str(error)


ROPE = ["rope_type", "type", "factor", "rope_theta", "low_freq_factor", "high_freq_factor", "short_factor", "beta_fast",
        "original_max_position_embeddings", "attention_factor", "mscale", "mscale_all_dim", "partial_rotary_factor",
        "truncate", "beta_slow"]  # fmt: skip


@settings(max_examples=200)
@given(
    kind=st.sampled_from(["linear", "dynamic", "yarn", "llama3", "longrope", "default"]),
    changes=st.dictionaries(st.sampled_from(ROPE), values, max_size=4),
)
def test_any_rotary_scaling_is_an_error_or_a_model(kind, changes):
    full = {
        "rope_type": kind,
        "factor": 2.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "short_factor": [1.0, 2.0],
    }
    try:
        model = pathsum.open(llama_tensors(), config={**CONFIG, "rope_scaling": {**full, **changes}})
        assert logits(model).isfinite().all()
    except CheckpointError as error:
        assert str(error)
