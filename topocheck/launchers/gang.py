"""A gang of pods as NVSentinel's preflight shows it to a check: its id, its size, and who is in it.

Facts from NVSentinel (docs/configuration/preflight.md, preflight/pkg/webhook/injector.go and
pkg/gang/coordinator/coordinator.go, read at 0aedaf36 and 0e36d7f6): the webhook sets GANG_ID,
GANG_CONFIG_DIR, GANG_TIMEOUT_SECONDS, POD_NAME and POD_IP, and mounts a ConfigMap that a controller fills
while pods start.

The rank in that list is the place of the pod's name in the order of the alphabet (`w-10` before `w-2`), made
for the checks' own communicators. The job's ranks are another thing: no claim is made of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from topocheck.errors import InputError, UsageError
from topocheck.launchers.launcher import Environment
from topocheck.launchers.variables import number_of

__all__ = ["Gang", "Peer", "gang_variables", "is_complete", "parse_gang"]

EXPECTED, PEERS, GANG_ID = "expected_count", "peers", "gang_id"
"""Keys of the ConfigMap, which are files where it is mounted."""
MOST_PEERS = 100_000
OLD_ROWS, ROWS = 3, 4
"""Fields of a line: pod, address, rank, and of later versions the checks that run in it."""
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9]+")


class Peer(msgspec.Struct, frozen=True, gc=False):
    """One pod of the gang."""

    pod: str
    address: str
    """IP address of the pod; its host's in the host's network."""
    rank: int
    """Place of its name among the others."""


class Gang(msgspec.Struct, frozen=True, gc=False):
    """What the ConfigMap says so far."""

    id: str
    expected: int
    """Least number of pods; 0 while the controller does not know it yet."""
    peers: Sequence[Peer]
    """Pods that have an address, by name. While a gang starts anew, pods of before may be among them."""


def parse_gang(files: Mapping[str, str], folder: str) -> Gang:
    """The gang of the files' texts by key; `folder` names them in errors. Raises InputError."""
    counted = files.get(EXPECTED, "").strip()
    expected = number_of(counted or "0")
    if expected is None or expected > MOST_PEERS:
        raise InputError(f"expected a number of pods, found {counted[:40]!r}", path=f"{folder}/{EXPECTED}")
    lines = files.get(PEERS, "").split("\n")
    path = f"{folder}/{PEERS}"
    peers = [parse_peer(line.strip(), path, row) for row, line in enumerate(lines, 1) if line.strip()]
    if len(peers) > MOST_PEERS:
        raise InputError(f"more than {MOST_PEERS:,} pods", path=path)
    if len({peer.pod for peer in peers}) < len(peers):
        raise InputError("a pod is named twice", path=path)
    return Gang(files.get(GANG_ID, "").strip(), expected, sorted(peers, key=lambda peer: peer.pod))


def parse_peer(line: str, path: str, row: int) -> Peer:
    """`pod;address;rank` with or without `;checks`. Raises InputError."""
    fields = [field.strip() for field in line.split(";", ROWS - 1)]
    rank = number_of(fields[2]) if len(fields) >= OLD_ROWS else None
    if rank is None or not fields[0] or not fields[1]:
        raise InputError(f"expected pod;address;rank, found {line[:80]!r}", path=path, line=row)
    return Peer(fields[0], fields[1], rank)


def is_complete(gang: Gang | None, env: Environment, least: int) -> bool:
    """As many pods as the gang and the job ask for, this one among them, with the address that it has now.

    Its own line is brought up to date when the pod gets its address, and pods that are gone leave the list
    then: before, the list may be that of the launch before.
    """
    if gang is None or gang.expected == 0 or len(gang.peers) < max(gang.expected, least):
        return False
    own = next((peer for peer in gang.peers if peer.pod == env.get("POD_NAME")), None)
    return own is not None and env.get("POD_IP", own.address) == own.address


def gang_variables(gang: Gang, env: Environment) -> dict[str, str]:
    """What `runid` and the gate take of a complete gang. Raises UsageError where launches look alike.

    The gang's id stays when its pods are made again. Their names change (Job, JobSet) or, where a kind of job
    numbers them, their addresses do, but for pods in their hosts' network; of Volcano the version tells.
    """
    version = env.get("VOLCANO_JOB_VERSION", "")
    in_host_network = bool(env.get("HOST_IP")) and env.get("HOST_IP") == env.get("POD_IP")
    if in_host_network and not version and not env.get("TOPOCHECK_CONTROLLER_UID"):
        raise UsageError(
            "the pods of this gang are in their hosts' network and may have had the same names and addresses "
            "in the launch before: give --run-id with a word that no other launch has"
        )
    text = "\n".join((gang.id, version, *(f"{peer.pod};{peer.address}" for peer in gang.peers)))
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    plain = NOT_IN_A_NAME.sub("-", gang.id).strip("-")[:100] or "gang"
    return {
        "TOPOCHECK_GANG": f"{plain}-{digest}",
        "TOPOCHECK_GANG_PODS": ",".join(peer.pod for peer in gang.peers),
        "TOPOCHECK_GANG_SIZE": str(len(gang.peers)),
    }
