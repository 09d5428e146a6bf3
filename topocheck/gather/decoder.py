"""Snapshots from JSON, what equal machines share read once.

Hardware, variables, network and versions are three quarters of a document, and thousands of machines have the
same. A document whose shared parts are known byte by byte is decoded with a stand-in in their place. Devices
are recognised by how they are listed.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import UNSET, UnsetType

from topocheck.gather.devicelists import DeviceLists
from topocheck.gpulist import GpuList, NicList
from topocheck.snapshot import GpuId, Host, Identity, NicId, Snapshot, Source, Verbs
from topocheck.snapshot.record import Record

__all__ = ["SnapshotDecoder"]

SHARED = ("hardware", "environment", "network", "software", "verbs", "coverage", "sources")
"""Parts that machines share, in the order in which they are written."""
KEY = b'"hardware":'
BEGINNING = 192
"""Bytes by which shared parts are told apart at first; those that begin alike are compared."""
MOST_KNOWN = 256
"""Shared parts that are recognised; a cluster has a few dozen."""
SHORTEST = 512
"""Bytes of hardware from which on it is worth the trouble."""
BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
NO_LIST, NO_PART = msgspec.Raw(b"[]"), msgspec.Raw(b"")


class ListedIdentity(Record, frozen=True, kw_only=True):
    """`Identity` with its lists as they are written."""

    host: Host
    gpus: msgspec.Raw = NO_LIST
    nics: msgspec.Raw = NO_LIST


class Written(Snapshot, frozen=True, kw_only=True):
    """A snapshot with its lists of devices as they are written."""

    identity: ListedIdentity  # type: ignore[assignment]  # the same JSON, less of it decoded
    # Of these the value where they are absent is written too: null, [].
    verbs: Verbs | UnsetType | None = UNSET  # type: ignore[assignment]
    sources: tuple[Source, ...] | UnsetType = UNSET  # type: ignore[assignment]


class Parts(Record, frozen=True, kw_only=True):
    """The shared parts of a document as they are written."""

    hardware: msgspec.Raw = NO_PART
    environment: msgspec.Raw = NO_PART
    network: msgspec.Raw = NO_PART
    software: msgspec.Raw = NO_PART
    verbs: msgspec.Raw = NO_PART
    coverage: msgspec.Raw = NO_PART
    sources: msgspec.Raw = NO_PART


class Stretch(NamedTuple):
    """Shared parts that are written one after the other."""

    text: bytes
    """From the first key to the end of the last part."""
    parts: dict[str, Any]
    """The same, decoded, by name."""


class SnapshotDecoder:
    """Decodes as `msgspec.json.Decoder(Snapshot)` does, and raises what it raises.

    Snapshots with known shared parts have the very same objects; devices are packed lists.
    """

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(Written).decode
        self._decode_whole = msgspec.json.Decoder(Snapshot).decode
        self._decode_parts = msgspec.json.Decoder(Parts).decode
        self._gpus, self._nics = DeviceLists(GpuList), DeviceLists(NicList)
        self._known: dict[bytes, list[Stretch]] = {}
        self._free = MOST_KNOWN
        self._start = 0
        """Where the shared parts of the last document began."""
        # Not to be guessed: no document can hold it, so where it comes out is where it was put in.
        self._secret = f'"{os.urandom(16).hex()}"'.encode()
        self._stand_in = KEY + self._secret

    def decode(self, document: bytes) -> Snapshot:
        """One document."""
        # Documents of a stream mostly have it at the same place, and to search takes longer than to compare.
        if not document.startswith(KEY, self._start):
            self._start = max(0, document.find(KEY))
        start = self._start
        for known in self._known.get(document[start : start + BEGINNING], ()):
            if document.startswith(known.text, start):
                found = self._without(document, start, known)
                if found is not None:
                    return found
        try:
            written = self._decode(document)
            found = self._listed(written, {})
        except BROKEN:
            return self._decode_whole(document)  # says where in the document it is
        return msgspec.structs.replace(found, **self._learn(document, written))

    def _without(self, document: bytes, start: int, known: Stretch) -> Snapshot | None:
        """The document with its known parts; None if it has other such parts too, or a fault."""
        end = start + len(known.text)
        try:
            found = self._decode(b"".join((document[:start], self._stand_in, document[end:])))
            if bytes(found.hardware) != self._secret or not lacks(found, known.parts):
                return None
            return self._listed(found, known.parts)
        except BROKEN:
            return None  # what is wrong is said about the document as it is

    def _listed(self, found: Written, parts: dict[str, Any]) -> Snapshot:
        """The snapshot with these parts and its devices. Raises msgspec.ValidationError for other lists."""
        written = found.identity
        gpus, nics = self._gpus.read(written.gpus), self._nics.read(written.nics)
        identity = Identity(
            host=written.host, gpus=cast("tuple[GpuId, ...]", gpus), nics=cast("tuple[NicId, ...]", nics)
        )
        if found.verbs is UNSET and "verbs" not in parts:
            parts = {**parts, "verbs": None}
        if found.sources is UNSET and "sources" not in parts:
            parts = {**parts, "sources": ()}
        return msgspec.structs.replace(found, identity=identity, **parts)

    def _learn(self, document: bytes, written: Written) -> dict[str, Any]:
        """The parts by which documents like this one are known from now on."""
        if not self._free or len(bytes(written.hardware)) < SHORTEST:
            return {}
        known = stretch(document, self._decode_parts(document), written)
        if known.parts:
            self._free -= 1
            self._known.setdefault(known.text[:BEGINNING], []).append(known)
        return known.parts


def lacks(found: Snapshot, parts: dict[str, Any]) -> bool:
    """A document without its known parts has none of them once more: the last of two would count."""
    if (  # written out for every host: a loop takes five times as long
        found.environment is NOTHING.environment
        and found.network is NOTHING.network
        and found.software is NOTHING.software
        and found.verbs is NOTHING.verbs
        and found.coverage is NOTHING.coverage
        and found.sources is NOTHING.sources
    ):
        return True
    return all(getattr(found, name) is getattr(NOTHING, name) for name in SHARED[1:] if name in parts)


def stretch(document: bytes, parts: Parts, written: Snapshot) -> Stretch:
    """The shared parts of a document, as far as they are written one after the other."""
    start, text = document.find(KEY), b""
    ends: dict[str, tuple[int, int]] = {}
    for name in SHARED:
        raw = bytes(getattr(parts, name))
        longer = text + b"," * bool(text) + b'"%b":%b' % (name.encode(), raw)
        if not raw or not document.startswith(longer, start):
            break
        text, ends[name] = longer, (len(longer) - len(raw), len(longer))
    # Views of the text, which is there anyway, in place of copies.
    whole, values = memoryview(text), {name: getattr(written, name) for name in ends}
    raws = {n: msgspec.Raw(whole[slice(*ends[n])]) for n, v in values.items() if isinstance(v, msgspec.Raw)}
    return Stretch(text, values | raws)


NOTHING = msgspec.json.decode(b'{"schema":"","identity":{"host":{}}}', type=Written)
"""A document without any of the parts: where one is not there, these very objects are decoded."""
