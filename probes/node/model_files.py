"""The files of a model in a folder, by digests: weights are named and counted, never read."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from topocheck.probes.node.reader import Reader, printable
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import ModelFiles, ProbeFault

__all__ = ["read_model_files"]

WEIGHTS = re.compile(r".{1,200}\.(?:safetensors|bin|pt|pth|gguf)")
"""Endings of weight files."""
INDEX = re.compile(r".{1,200}\.(?:safetensors|bin)\.index\.json")
MOST_BYTES = 64 << 20
"""An index of a model of a trillion parameters has some megabytes."""


def read_model_files(roots: Roots, folder: str) -> tuple[ModelFiles | None, tuple[ProbeFault, ...]]:
    """Digests of config.json and of the list of weight files; None if the folder cannot be listed."""
    reader, place = Reader("model"), roots.place(folder)
    try:
        names = sorted(os.listdir(place))  # noqa: PTH208 - the names are wanted, not paths
    except OSError as error:
        reader.refused(place, error)
        return None, reader.faults()
    config = _digest(reader, place / "config.json") if "config.json" in names else None
    weights = [(name, _size(reader, place / name)) for name in names if WEIGHTS.fullmatch(name)]
    listed = hashlib.sha256("".join(f"{name}\0{size}\n" for name, size in weights).encode("utf-8", "replace"))
    for name in filter(INDEX.fullmatch, names):
        listed.update((_digest(reader, place / name) or "").encode())
    sizes = [size for _, size in weights if size is not None]
    found = ModelFiles(
        path=printable(folder),
        config_digest=config,
        weights_digest=f"sha256:{listed.hexdigest()}" if weights else None,
        weights_bytes=sum(sizes) if len(sizes) == len(weights) and weights else None,
        weights_files=len(weights),
    )
    return found, reader.faults()


def _size(reader: Reader, path: Path) -> int | None:
    """Size of a file, links followed: caches of models are made of links."""
    try:
        return path.stat().st_size
    except OSError as error:
        reader.refused(path, error)
        return None


def _digest(reader: Reader, path: Path) -> str | None:
    """Digest of a small regular file; None, and a fault, for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reader.refused(path, error)
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        reader.note("broken", path, "is no regular file")
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        reader.note("broken", path, "is larger than 64 MB")
        return None
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
