"""The file itself: every kind of quantisation, rows by themselves, and what damaged files lead to."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import agree
from gguf_files import BY_NAME
from pathsum.errors import CheckpointError
from pathsum.weights.gguf import open_gguf
from pathsum.weights.gguf.file import GgufFile
from pathsum.weights.weights import Weights

QUANTISED = sorted(kind.name for kind in gguf.quants._type_traits if kind.name != "BF16")


def written(path: Path, name: str, data: np.ndarray, kind: GGMLQuantizationType | None = None) -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_tensor(name, data, raw_dtype=kind)
    writer.add_tensor("after", np.arange(3, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", QUANTISED)
@pytest.mark.parametrize("shape", [(4,), (2, 3)])
def test_every_quantisation_is_dequantised_rows_of_it_by_themselves(kind, shape, tmp_path):
    quantisation = GGMLQuantizationType[kind]
    block, n_bytes = GGML_QUANT_SIZES[quantisation]
    stored = np.random.default_rng(0).integers(0, 256, (*shape, 2 * n_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(stored, quantisation)
    file = GgufFile(written(tmp_path / "m.gguf", "W", stored, quantisation))
    assert file.shape("W") == expected.shape == (*shape, 2 * block)
    assert file.kind("W") == kind
    for read, wanted in (
        (file["W"], expected),
        (file.read("W", 1, 2), expected[1:2]),
        (file.read("W", 1), expected[1:]),
    ):
        assert read.dtype == torch.float32
        np.testing.assert_array_equal(read.numpy(), wanted)
    agree(file["after"], [0, 1, 2])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_plain_numbers_are_read_as_they_are(dtype, tmp_path):
    data = np.random.default_rng(0).normal(size=(3, 2, 5)).astype(dtype)
    file = GgufFile(written(tmp_path / "m.gguf", "W", data))
    agree(file["W"], data, 0)
    agree(file.read("W", 1, 3), data[1:3], 0)
    agree(GgufFile(written(tmp_path / "v.gguf", "v", data[0, 0])).read("v", 2, 4), data[0, 0, 2:4], 0)


def test_bfloat16_is_read(tmp_path):
    data = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    stored = data.view(torch.uint8).numpy()
    agree(GgufFile(written(tmp_path / "m.gguf", "W", stored, GGMLQuantizationType.BF16))["W"], data.float(), 0)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float64])
def test_a_kind_that_is_not_dequantised_is_refused_by_name(dtype, tmp_path):
    file = GgufFile(written(tmp_path / "m.gguf", "W", np.ones((2, 2), dtype)))
    with pytest.raises(CheckpointError, match=r"tensor W is stored as [IF]\d+"):
        file["W"]


def test_metadata_becomes_plain_values_and_a_float32_the_decimal_that_was_meant(tmp_path):
    metadata = {"general.a": 1e-5, "general.b": [1, 2], "general.c": ["x", "ÿ"], "general.d": True, "general.e": "t"}
    file = GgufFile(BY_NAME["llama"].write(tmp_path / "m.gguf", metadata))
    assert {key: file.metadata[key] for key in metadata} == metadata
    assert file.metadata["llama.rope.freq_base"] == 500


def test_names_that_are_not_there_are_key_errors(tmp_path):
    file = GgufFile(BY_NAME["llama"].write(tmp_path / "m.gguf"))
    assert "nothing" not in file
    assert len(file) == len(list(file)) == len(BY_NAME["llama"].arrays())
    with pytest.raises(KeyError):
        file["nothing"]


def test_a_tensor_is_read_only_when_it_is_asked_for(tmp_path, monkeypatch):
    opened = open_gguf(BY_NAME["llama"].write(tmp_path / "m.gguf"))
    read, original = [], GgufFile.read
    monkeypatch.setattr(GgufFile, "read", lambda self, name, *rows: read.append(name) or original(self, name, *rows))
    weights = Weights.from_tensors(opened.spec, opened.tensors)
    read.clear()
    weights.attention(1)
    parts = ("attn_k", "attn_norm", "attn_output", "attn_q", "attn_v", "ffn_norm")
    assert sorted(set(read)) == [f"blk.1.{part}.weight" for part in parts]


# ---- damaged files ----


def header(version: int = 3, n_tensors: int = 0, n_keys: int = 0, order: str = "<", magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack(f"{order}IQQ", version, n_tensors, n_keys)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def info(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0, axes: int | None = None) -> bytes:
    many = len(shape) if axes is None else axes
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", many, *shape, kind, offset)


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


FOUR = struct.pack("<I", 4)
HUGE = 2**60
DAMAGED = {
    "empty": (b"", "cannot be read"),
    "three bytes": (b"GGU", "cut short or damaged"),
    "another format": (b"PK\x03\x04" + bytes(60), "its first four bytes are not GGUF"),
    "version 1": (header(1), "version 1 is not read here"),
    "version 9": (header(9), "version 9 is not read here"),
    "big-endian": (header(3, order=">"), "big-endian"),
    "cut in the header": (header()[:20], "cut short"),
    "keys that are not there": (header(n_keys=HUGE), "cut short"),
    "tensors that are not there": (header(n_tensors=HUGE), "cut short"),
    "a text without end": (header(n_keys=1) + struct.pack("<Q", HUGE) + b"abc", "cut short"),
    "a value of no type": (header(n_keys=1) + key("a", 99, b"1234"), "'a' has unknown type 99"),
    "a list without end": (header(n_keys=1) + key("a", 9, struct.pack("<IQ", 8, HUGE)), "claims 1152921504606846976"),
    "a list cut short": (header(n_keys=1) + key("a", 9, struct.pack("<IQ", 4, 1 << 20)), "cut short"),
    "a list of lists": (header(n_keys=1) + key("a", 9, struct.pack("<IQ", 9, 1)), "array of unknown type 9"),
    "a key twice": (header(n_keys=2) + 2 * key("a", 4, FOUR), "'a' is there twice"),
    "a tensor twice": (header(n_tensors=2) + 2 * info("W", (1,)) + bytes(64), "tensor W is there twice"),
    "no axes": (header(n_tensors=1) + info("W", ()) + bytes(64), "claims 0 axes"),
    "many axes": (header(n_tensors=1) + info("W", (1,), axes=2**31) + bytes(64), "claims 2147483648 axes"),
    "a huge shape": (header(n_tensors=1) + info("W", (HUGE, HUGE)) + bytes(64), "cut short or damaged: tensor W"),
    "an empty shape": (header(n_tensors=1) + info("W", (0, 4)) + bytes(64), "cannot be F32"),
    "half a block": (header(n_tensors=1) + info("W", (31,), kind=8) + bytes(99), "rows are blocks of 32"),
    "a type of no name": (header(n_tensors=1) + info("W", (4,), kind=999) + bytes(99), "has type 999"),
    "an offset outside": (header(n_tensors=1) + info("W", (4,), offset=HUGE) + bytes(99), "ends at byte 11529215"),
    "an offset past 64 bits": (header(n_tensors=1) + info("W", (4,), offset=2**64 - 8) + bytes(99), "ends at byte"),
    "no alignment": (header(n_keys=1) + key("general.alignment", 4, bytes(4)), "must be a power of two"),
    "no model": (header(), "general.architecture None"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_one_clear_error(name, tmp_path):
    data, message = DAMAGED[name]
    (path := tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as error:
        open_gguf(path)
    assert str(path) in str(error.value)


def test_a_file_that_is_not_there_is_one_clear_error(tmp_path):
    for path in (tmp_path / "nothing.gguf", tmp_path):
        with pytest.raises(CheckpointError, match="cannot be read"):
            open_gguf(path)


TOKENS = ["<s>", "</s>", *"abcdefgh", "ab"]
TOKENIZERS = (
    {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.merges": ["a b"]},
    {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [-float(i) for i in range(11)]},
)


@pytest.fixture(scope="module")
def valid(tmp_path_factory) -> list[bytes]:
    """Two whole files with tokenizers, as bytes."""
    folder, found = tmp_path_factory.mktemp("valid"), []
    for name, own in zip(("llama-factors", "gpt-oss"), TOKENIZERS, strict=True):
        common = {"tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.token_type": [3, 3] + [1] * 9}
        path = BY_NAME[name].write(folder / f"{name}.gguf", {**common, **own, "tokenizer.ggml.bos_token_id": 0})
        found.append(path.read_bytes())
    return found


def use(path: Path) -> None:
    """Opens a file and reads all of it."""
    opened = open_gguf(path)
    Weights.from_tensors(opened.spec, opened.tensors).tensors()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_cut_anywhere_is_one_clear_error(data, valid, tmp_path):
    whole = data.draw(st.sampled_from(valid))
    (path := tmp_path / "m.gguf").write_bytes(whole[: data.draw(st.integers(0, len(whole) - 33))])
    with pytest.raises(CheckpointError):
        use(path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_with_changed_bytes_is_read_or_refused(data, valid, tmp_path):
    whole = bytearray(data.draw(st.sampled_from(valid)))
    end = len(whole) if data.draw(st.booleans()) else 2500
    for place in data.draw(st.lists(st.integers(0, end - 1), min_size=1, max_size=3)):
        whole[place] = data.draw(st.integers(0, 255))
    (path := tmp_path / "m.gguf").write_bytes(whole)
    try:
        use(path)
    except CheckpointError as error:
        assert str(error)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_with_a_changed_count_is_read_or_refused(data, valid, tmp_path):
    """Eight bytes at once: counts, lengths and offsets become anything."""
    whole = bytearray(data.draw(st.sampled_from(valid)))
    place = data.draw(st.integers(0, 2500))
    whole[place : place + 8] = struct.pack("<Q", data.draw(st.integers(0, 2**64 - 1)))
    (path := tmp_path / "m.gguf").write_bytes(whole)
    try:
        use(path)
    except CheckpointError as error:
        assert str(error)


def test_the_package_is_imported_only_with_a_file():
    import subprocess
    import sys

    code = "import pathsum, pathsum.weights.gguf, sys; print('gguf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
