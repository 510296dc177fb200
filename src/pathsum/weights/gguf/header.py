"""The header of a GGUF file: its metadata, and where each tensor lies.

Read here and not by the `gguf` package, whose reader makes an array of every token (seconds for one vocabulary) and
follows the counts and offsets of a damaged file. Every count here is held against the bytes that are left.
"""

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathsum.errors import CheckpointError

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY, FLOAT32 = 8, 9, 6
MOST_ENTRIES = 1 << 24
"""Of one array: fifty times the largest vocabulary."""
MOST_AXES = 4


@dataclass(frozen=True)
class Entry:
    """A tensor as the header lists it; `shape` in torch's order, `start` from the beginning of the file."""

    kind: str
    shape: tuple[int, ...]
    start: int
    n_bytes: int


class Cursor:
    """A place in the file's bytes; taking more than there is raises `CheckpointError`."""

    def __init__(self, data: Any) -> None:
        self.data, self.place = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.place:
            raise self.cut_short(size)
        self.place += size
        return self.data[self.place - size : self.place]

    def cut_short(self, size: int) -> CheckpointError:
        return CheckpointError(
            f"cut short or damaged: {size} bytes are wanted at byte {self.place} of {len(self.data)}; copy it again"
        )

    def scalar(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        """One loop without a call in it: vocabularies are long."""
        found: list[str] = []
        length, data, end = struct.Struct("<Q"), self.data, len(self.data)
        for _ in range(count):
            start = self.place + length.size
            stop = start + (length.unpack_from(data, self.place)[0] if start <= end else 0)
            if stop > end:
                raise self.cut_short(stop - self.place)
            # Bytes that are no UTF-8 survive as lone surrogates: such a token costs the tokenizer, not the model.
            found.append(data[start:stop].decode("utf-8", errors="surrogateescape"))
            self.place = stop
        return found


def read_header(data: Any) -> tuple[dict[str, Any], dict[str, Entry]]:
    """Metadata as plain values and the tensors by name. Raises `CheckpointError` for anything that is no GGUF."""
    cursor = Cursor(data)
    _check_magic(cursor)
    n_tensors, n_keys = cursor.scalar("<Q"), cursor.scalar("<Q")
    metadata: dict[str, Any] = {}
    for _ in range(n_keys):
        key = cursor.string()
        if key in metadata:
            raise CheckpointError(f"metadata key {key!r} is there twice")
        metadata[key] = _value(cursor, key)
    infos: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for _ in range(n_tensors):
        name, info = _info(cursor)
        if name in infos:
            raise CheckpointError(f"tensor {name} is there twice")
        infos[name] = info
    start = _aligned(cursor.place, metadata.get("general.alignment", 32))
    return metadata, {name: _entry(name, *info, start, len(data)) for name, info in infos.items()}


def _check_magic(cursor: Cursor) -> None:
    if cursor.take(4) != b"GGUF":
        raise CheckpointError("no GGUF file: its first four bytes are not GGUF")
    version = cursor.scalar("<I")
    if version in (2, 3):
        return
    if int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3):
        raise CheckpointError("a big-endian GGUF file, which is not read here; convert the model again, little-endian")
    raise CheckpointError(f"GGUF version {version} is not read here, only 2 and 3; convert the model again")


def _value(cursor: Cursor, key: str) -> Any:
    kind = cursor.scalar("<I")
    if kind == STRING:
        return cursor.string()
    if kind == ARRAY:
        return _array(cursor, key)
    return _scalar(cursor, kind, key)


def _scalar(cursor: Cursor, kind: int, key: str) -> Any:
    if kind not in SCALARS:
        raise CheckpointError(f"metadata key {key!r} has unknown type {kind}")
    if kind != FLOAT32:
        return cursor.scalar(SCALARS[kind])
    # The number meant: the shortest decimal that rounds to this float32 (1e-05, not 9.999999747378752e-06).
    return float(str(np.float32(cursor.scalar("<f"))))


def _array(cursor: Cursor, key: str) -> list[Any]:
    kind, count = cursor.scalar("<I"), cursor.scalar("<Q")
    if count > MOST_ENTRIES:
        raise CheckpointError(f"metadata key {key!r} claims {count} entries; at most {MOST_ENTRIES} are read")
    if kind == STRING:
        return cursor.strings(count)
    if kind not in SCALARS:
        raise CheckpointError(f"metadata key {key!r} is an array of unknown type {kind}")
    dtype = np.dtype(SCALARS[kind])
    return np.frombuffer(cursor.take(count * dtype.itemsize), dtype).tolist()


def _info(cursor: Cursor) -> tuple[str, tuple[tuple[int, ...], int, int]]:
    """Name, and shape, type number and offset, of the next tensor."""
    name, axes = cursor.string(), cursor.scalar("<I")
    if not 1 <= axes <= MOST_AXES:
        raise CheckpointError(f"tensor {name!r} claims {axes} axes; a GGUF tensor has 1 to {MOST_AXES}")
    shape = tuple(cursor.scalar("<Q") for _ in range(axes))
    return name, (shape[::-1], cursor.scalar("<I"), cursor.scalar("<Q"))


def _aligned(place: int, alignment: Any) -> int:
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise CheckpointError(f"general.alignment is {alignment!r}, must be a power of two")
    return -(-place // alignment) * alignment


def _entry(name: str, shape: tuple[int, ...], number: int, offset: int, start: int, size: int) -> Entry:
    """Checked against the file's size, in whole numbers of any length."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        kind = GGMLQuantizationType(number)
        block, block_bytes = GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError) as error:
        raise CheckpointError(
            f"tensor {name} has type {number}, unknown to the installed gguf package; update it"
        ) from error
    count = math.prod(shape)
    if not count or shape[-1] % block:
        raise CheckpointError(f"tensor {name} of shape {shape} cannot be {kind.name}: rows are blocks of {block}")
    n_bytes = count // block * block_bytes
    if start + offset + n_bytes > size:
        raise CheckpointError(
            f"cut short or damaged: tensor {name} of shape {shape} ends at byte {start + offset + n_bytes}, "
            f"the file has {size}; copy it again"
        )
    return Entry(kind.name, shape, start + offset, n_bytes)
