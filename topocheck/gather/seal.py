"""The end of a snapshot, by which a reader sees that nothing is missing of it and nothing was put in between.

`topocheck probe` seals with it and reads nothing: what reads streams stays out of its start.
"""

from __future__ import annotations

from topocheck.snapshot import Snapshot

__all__ = ["ends_as_it_began", "has_its_length", "sealed"]

END = b',"end":"'
"""What stands before the seal of a snapshot."""


def sealed(document: bytes, token: str) -> bytes:
    """An encoded snapshot with its end: see `Snapshot.end`."""
    body = document.removesuffix(b"}")
    return body + END + f'{token}:{len(body)}"}}'.encode()


def ends_as_it_began(snapshot: Snapshot) -> bool:
    """Beginning and end are of one snapshot; one without a token does not tell."""
    return snapshot.token is None or (snapshot.end or "").partition(":")[0] == snapshot.token


def has_its_length(document: bytes, snapshot: Snapshot) -> bool:
    """Nothing is missing or put in between; true of one that does not tell.

    Programs that write JSON anew change lengths without harm, so that this proves nothing by itself.
    """
    length = (snapshot.end or "").partition(":")[2]
    return not length or document.rfind(END) == (int(length) if length.isdecimal() else -1)
