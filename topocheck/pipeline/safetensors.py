"""Headers of safetensors files: names, types and shapes of tensors. The weights themselves are never read.

Format: 8 bytes little-endian length of the header, the header as JSON, then the data
(https://github.com/huggingface/safetensors, README "Format").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated

import msgspec

from topocheck.errors import InputError

__all__ = ["BITS", "Stored", "read_folder", "read_header"]

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MOST_HEADER = 32_000_000
"""Bytes of one header. The format allows 100 MB; 100,000 tensors, more than any file has, need 12."""
MOST_INDEX = 64_000_000
MOST_FILES = 10_000
MOST_TENSORS = 1_000_000
"""Tensors of one model, all files together."""

BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
"""Bits of an element by dtype (safetensors 0.8, `Dtype`)."""
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}\.safetensors")

Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: Annotated[tuple[Size, ...], msgspec.Meta(max_length=16)]
    data_offsets: tuple[Size, Size]


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as a file holds it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    @property
    def elements(self) -> int:
        """Number of elements as stored; packed weights hold several parameters in one."""
        return prod(self.shape)


def read_folder(folder: Path) -> tuple[list[Stored], int]:
    """Tensors of the model in a folder and the number of its files; none where it holds no safetensors.

    Raises InputError for a broken header, a file or tensor that the index names and that is not there, and
    a name in the index that leads out of the folder.
    """
    index = folder / INDEX
    if not index.is_file():
        single = folder / SINGLE
        return (read_header(single), 1) if single.is_file() else ([], 0)
    homes = _read_index(index)
    files = sorted(set(homes.values()))
    if len(files) > MOST_FILES:
        raise InputError(f"names {len(files):,} files: {MOST_FILES:,} are the most", path=str(index))
    found: list[Stored] = []
    for name in files:
        found += read_header(folder / name)
        if len(found) > MOST_TENSORS:
            raise InputError(f"leads to more than {MOST_TENSORS:,} tensors", path=str(index))
    missing = homes.keys() - {tensor.name for tensor in found}
    if missing:
        first = min(missing)
        raise InputError(
            f"names {_quoted(first)} in {homes[first]}, whose header does not have it",
            path=str(index),
            fix="index and files belong to different models or versions",
        )
    return found, len(files)


def _read_index(path: Path) -> dict[str, str]:
    """File of each tensor. Every file is a plain name of a file beside the index."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_INDEX + 1)
        if len(data) > MOST_INDEX:
            raise InputError("is larger than 64 MB and no index of a model", path=str(path))
        homes = msgspec.json.decode(data, type=_Index).weight_map
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", path=str(path)) from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise InputError(
            "is no index of safetensors files", path=str(path), fix='expected {"weight_map": {TENSOR: FILE}}'
        ) from None
    for name in set(homes.values()):
        if not FILE_NAME.fullmatch(name):
            raise InputError(
                f"names the file {_quoted(name)}",
                path=str(path),
                fix="files of a model lie beside the index and end in .safetensors",
            )
    return homes


def read_header(path: Path) -> list[Stored]:
    """Tensors of one file, in the order of its header. Raises InputError; reads the header alone."""
    try:
        if not path.is_file():
            raise InputError("there is no such file", path=str(path), fix="the download is incomplete")
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > size - 8:
                raise InputError(
                    f"has {size:,} bytes, and its header says that it has {length:,}",
                    path=str(path),
                    fix="it is cut short or no safetensors file",
                )
            if length > MOST_HEADER:
                raise InputError(
                    f"has a header of {length:,} bytes: {MOST_HEADER:,} are the most", path=str(path)
                )
            data = stream.read(length)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", path=str(path)) from None
    return list(_parse_header(data, size - 8 - length, str(path)))


def _parse_header(data: bytes, room: int, source: str) -> Iterator[Stored]:
    """Tensors of a header; `room` is the bytes that follow it."""
    try:
        raw = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(entry, type=_Entry) for name, entry in raw.items()}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise InputError(
            "has a header that is not the JSON of safetensors",
            path=source,
            fix="expected {NAME: {dtype, shape, data_offsets}} with whole numbers from 0",
        ) from None
    total = 0
    for name, entry in entries.items():
        stored = Stored(name, entry.dtype, entry.shape, _bytes(entry, name, source))
        begin, end = entry.data_offsets
        if end - begin != stored.bytes:
            raise InputError(
                f"gives {_quoted(name)} {end - begin:,} bytes of data, and {entry.dtype} of shape "
                f"{list(entry.shape)} has {stored.bytes:,}",
                path=source,
            )
        total += stored.bytes
        if end > room or total > room:
            raise InputError(
                f"ends before its tensor {_quoted(name)}", path=source, fix="the download is incomplete"
            )
        yield stored


def _bytes(entry: _Entry, name: str, source: str) -> int:
    bits = BITS.get(entry.dtype)
    if bits is None:
        raise InputError(f"has {_quoted(name)} of the unknown type {_quoted(entry.dtype)}", path=source)
    return -(-prod(entry.shape) * bits // 8)


def _quoted(text: str) -> str:
    """Foreign text in a message: short, and without control characters."""
    return ascii(text[:80])
