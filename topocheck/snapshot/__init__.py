"""What one node shows: the evidence, as frozen typed data.

A Snapshot is one JSON document a node; a stream of them has one document a line. Its parts are
kept apart on purpose: `hardware` is the shape of the node without any identity, and stays raw
bytes until somebody asks, because thousands of nodes share a few dozen shapes; `identity` names
the parts by the same ordinals; `network` is what equal hosts share of ports and network devices, raw bytes
as well; `state` is what changes by itself, and what is each host's own of the network.

None means "not known", never zero. Whether absence may be concluded is said by `Coverage`.
The text under each field is what `topocheck schema snapshot` prints.
"""

from __future__ import annotations

from typing import Any

import msgspec

from topocheck.snapshot.condition import Condition, GpuCondition
from topocheck.snapshot.hardware import (
    GpuShape,
    Hardware,
    LinkMatrix,
    NicShape,
    NvLink,
    PciNode,
    PeerAccess,
    Port,
)
from topocheck.snapshot.identity import Fabric, GpuId, Host, Identity, MigDevice, NicId, Platform
from topocheck.snapshot.job import (
    CommRank,
    Edge,
    FamilyDisagreement,
    JobFact,
    LogFact,
    NestedLaunch,
    NodeClaim,
    Observed,
    RankClaim,
)
from topocheck.snapshot.network import Family, Gid, Netdev, Network, NicNetwork, PortNetwork
from topocheck.snapshot.record import At, Coverage, Extent, ProbeFault, Record, Scope, Source
from topocheck.snapshot.software import (
    Library,
    Limits,
    ModelFiles,
    NcclFile,
    Software,
    Verbs,
    VerbsDevice,
)
from topocheck.snapshot.state import Clock, GpuState, PciLink, PortState, Process, State

__all__ = [
    "SCHEMA",
    "At",
    "Clock",
    "CommRank",
    "Condition",
    "Coverage",
    "Edge",
    "Extent",
    "Fabric",
    "Family",
    "FamilyDisagreement",
    "FullSnapshot",
    "Gid",
    "GpuCondition",
    "GpuId",
    "GpuShape",
    "GpuState",
    "Hardware",
    "Host",
    "Identity",
    "JobFact",
    "Library",
    "Limits",
    "LinkMatrix",
    "LogFact",
    "MigDevice",
    "ModelFiles",
    "NcclFile",
    "NestedLaunch",
    "Netdev",
    "Network",
    "NicId",
    "NicNetwork",
    "NicShape",
    "NodeClaim",
    "NvLink",
    "Observed",
    "PciLink",
    "PciNode",
    "PeerAccess",
    "Platform",
    "Port",
    "PortNetwork",
    "PortState",
    "ProbeFault",
    "Process",
    "RankClaim",
    "Scope",
    "Snapshot",
    "Software",
    "Source",
    "State",
    "Verbs",
    "VerbsDevice",
]

SCHEMA = "topocheck.snapshot/1"


class Snapshot(Record, frozen=True, kw_only=True):
    """One node as it showed itself once. `hardware`, `environment` and `network` are decoded on demand.

    These three stand together: equal hosts have the same bytes there.
    """

    schema: str
    """`topocheck.snapshot/` and the major version; never left out."""
    token: str | None = None
    """A random word that no other snapshot has."""
    run: str | None = None
    """Run id of the launch that it belongs to."""
    asked: str | None = None
    """What the gate that took it was asked: topocheck's version, and digests of plan, policy and baseline."""
    taken_at: str | None = None
    """RFC 3339 time in UTC."""
    identity: Identity
    """Names of host, GPUs and NICs."""
    hardware: msgspec.Raw = msgspec.Raw(b"{}")
    """Shape of the node (`Hardware`)."""
    environment: msgspec.Raw = msgspec.Raw(b"{}")
    """Variables that all ranks of the node share, by allow-list."""
    network: msgspec.Raw = msgspec.Raw(b"{}")
    """Ports and network devices without digits of their own (`Network`)."""
    software: Software = Software()
    """Versions."""
    verbs: Verbs | None = None
    """Means of RDMA; None where nobody looked."""
    coverage: Coverage = Coverage()
    """From what absence may be concluded."""
    sources: tuple[Source, ...] = ()
    """Inputs that it was made from."""
    own_environments: tuple[dict[str, str], ...] = ()
    """What ranks have besides those, each set once, of the variables by which paths and devices are chosen.
    () where all have the same."""
    fabric: tuple[Fabric, ...] = ()
    """NVLink fabric of the node; usually one entry."""
    ranks: tuple[RankClaim, ...] = ()
    """What the processes of the job claim."""
    node_claim: NodeClaim | None = None
    """What the launcher says of this node, where no process of the job says it with its rank."""
    disagreements: tuple[FamilyDisagreement, ...] = ()
    """Launcher families that number a process of the job differently."""
    nested: tuple[NestedLaunch, ...] = ()
    """Launchers that were started by launchers."""
    limits: Limits = Limits()
    """Limits."""
    files: tuple[NcclFile, ...] = ()
    """Files that NCCL reads."""
    model: ModelFiles | None = None
    """Files of the model; None where nobody asked."""
    state: Condition = Condition()
    """What changes by itself (`State`), the part of it that rules ask of."""
    observed: Observed | None = None
    """What the running job showed; None where nothing of it was looked at."""
    job: tuple[JobFact, ...] = ()
    """Statements about the whole job found here."""
    plugins: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    """What probes of other packages found, by the name of the probe."""
    faults: tuple[ProbeFault, ...] = ()
    """What could not be read."""
    end: str | None = None
    """The last field: the token once more, a colon, and the number of bytes in front of the comma before it.
    Launchers cut long lines and mix the pieces of several processes; what was mixed does not end so."""


class FullSnapshot(Snapshot, frozen=True, kw_only=True):
    """A Snapshot with every part decoded: the published form, and the floor of the benchmark."""

    hardware: Hardware = Hardware()  # type: ignore[assignment]  # the same JSON, decoded
    """Shape of the node."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)  # type: ignore[assignment]
    """Variables that all ranks of the node share, by allow-list."""
    network: Network = Network()  # type: ignore[assignment]  # the same JSON, decoded
    """Ports and network devices without digits of their own."""
    state: State = State()  # type: ignore[assignment]  # the same JSON, with counters and rates
    """What changes by itself."""
    plugins: dict[str, Any] = msgspec.field(default_factory=dict)
    """What probes of other packages found, by the name of the probe."""
