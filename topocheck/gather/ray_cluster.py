"""Snapshots from every node of a running Ray cluster, brought by Ray itself.

Ray's client runs in a process of its own (`topocheck.gather.ray_client`): where it loses the cluster it ends
the process that it is in, and a command that the gate starts must find no trace of it. What that process
says is one document a line: the nodes, then what each of them answers.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Mapping, Sequence

import msgspec

from topocheck.errors import InternalError, UndecidedError, UsageError
from topocheck.gather.alone import Alone
from topocheck.gather.store import MOST_BYTES, Entry, Refused
from topocheck.probes.node.child import Child, run_child

__all__ = [
    "Answer",
    "Cluster",
    "Collected",
    "RayMember",
    "Trouble",
    "View",
    "gather_ray",
    "parse_view",
    "ray_address",
    "unpacked",
]

CLIENT = "topocheck.gather.ray_client"
GRACE_S = 5.0
"""How long after its deadline Ray's client may take to leave the cluster before it is ended."""
LONGEST = 300
"""Characters kept of what Ray says."""


class RayMember(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One node as Ray lists it (`ray.nodes()` of Ray 2.60)."""

    id: str
    """Node id, 56 hex digits."""
    address: str
    """Address under which it joined."""
    host: str
    """Host name; empty if Ray does not know it."""
    alive: bool
    gpus: float = 0.0
    """GPUs that it offers; Ray lists none where there are none."""
    reason: str = ""
    """Why it is dead, in Ray's words."""

    @property
    def label(self) -> str:
        """Host name and address, as far as they are known."""
        return f"{self.host} ({self.address})" if self.host and self.host != self.address else self.address


class Cluster(msgspec.Struct, frozen=True, tag="cluster"):
    """The nodes of the cluster."""

    nodes: list[RayMember]
    driver: str | None = None
    """Id of the node that this process runs on; None where Ray runs it elsewhere (ray://)."""


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """What came of the probe on one node."""

    id: str
    packed: bytes = b""
    """A snapshot, packed by zlib; empty where there is none."""
    reason: str = ""
    """Why there is none."""


class Trouble(msgspec.Struct, frozen=True, tag="trouble"):
    """Why the cluster cannot be asked."""

    reason: str


class View(msgspec.Struct, frozen=True):
    """A cluster and what its nodes answered."""

    cluster: Cluster
    answers: Mapping[str, Answer]
    """By node id. Of a node without one nothing is known."""
    ending: str = ""
    """How Ray's client broke; empty if it did not."""

    def answer(self, member: RayMember, timeout_s: float) -> Answer:
        """What a node answered, or why it did not."""
        if not member.alive:
            return Answer(member.id, reason=f"is dead in Ray{': ' * bool(member.reason)}{member.reason}")
        silent = self.ending or f"no answer within {timeout_s:.0f} s"
        return self.answers.get(member.id) or Answer(member.id, reason=silent)


class Collected(Alone):
    """What one process gathered from all nodes, and who did not answer."""

    def __init__(self, refused: Mapping[str, str]) -> None:
        """Take the reasons by the names of those that did not answer."""
        super().__init__()
        self._refused = dict(refused)

    def names(self) -> Sequence[str]:
        """Names of all, those that did not answer too."""
        return sorted([*super().names(), *self._refused])

    def entry(self, name: str) -> Entry | Refused | None:
        """What one node shows, or why it shows nothing."""
        return Refused(name, self._refused[name]) if name in self._refused else super().entry(name)


def ray_address(given: str | None, env: Mapping[str, str]) -> str:
    """Address of the cluster: as given, else RAY_ADDRESS, else the one that runs here.

    Raises UsageError for what makes Ray start a cluster of its own.
    """
    address = given or env.get("RAY_ADDRESS") or "auto"
    if address == "local":
        raise UsageError("--ray-address local: starts a cluster of its own; give that of the one that runs")
    return address


def gather_ray(address: str, run: str, timeout_s: float) -> View:
    """Ask every node that lives, within `timeout_s` and little more.

    Raises UsageError where there is no cluster, UndecidedError where nobody answers in time, InternalError
    where Ray's client breaks.
    """
    command = [sys.executable, "-m", CLIENT, address, run, str(timeout_s)]
    try:
        child = run_child(command, time.monotonic() + timeout_s + GRACE_S)
    except OSError as error:
        raise InternalError(f"Ray's client cannot be started: {error}") from None
    return parse_view(child, address)


def parse_view(child: Child, address: str) -> View:
    """What Ray's client said. Raises as `gather_ray`."""
    cluster: Cluster | None = None
    answers = dict[str, Answer]()
    for line in child.out.split(b"\n")[:-1]:  # what stands behind the last end of line was cut
        try:
            said = msgspec.json.decode(line, type=Cluster | Answer | Trouble)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # a library that writes past Python
        if isinstance(said, Trouble):
            raise UsageError(f"--ray-address {address}: {said.reason}")
        if isinstance(said, Cluster):
            cluster = said
        else:
            answers[said.id] = said
    last = child.err.decode("utf-8", "replace").strip().rpartition("\n")[2][:LONGEST]
    # One that was ended at its deadline is late and not broken.
    broke = f"Ray's client {child.ending}{': ' * bool(last)}{last}" if child.code else ""
    if cluster is None and child.code is None:
        raise UndecidedError(f"--ray-address {address}: nobody answers there in time")
    if cluster is None:
        raise InternalError(broke or "Ray's client tells nothing of its nodes")
    return View(cluster, answers, broke)


def unpacked(answer: Answer) -> bytes:
    """The snapshot of an answer. Raises UsageError for what is damaged, or longer than any snapshot is."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(answer.packed, MOST_BYTES)
    except zlib.error as error:
        raise UsageError(f"what it sent cannot be unpacked: {error}") from None
    if not unpacking.eof:
        raise UsageError(f"what it sent is cut, or longer than {MOST_BYTES >> 20} MiB")
    return data
