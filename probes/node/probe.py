"""One node as it shows itself now: every probe apart, and what they found joined to a snapshot.

What is absent, refused, broken or late is a fault in the snapshot and hides nothing but its own part. Of
the many processes of a node only the first one looks at the whole node: those of a higher local rank tell
who they are, and views of one boot id are joined when they are verified.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from topocheck.plugins import PROBES as OFFERED
from topocheck.plugins import offers
from topocheck.probes.node.driver import ask_driver
from topocheck.probes.node.gpus import NodeGpus, join_gpus
from topocheck.probes.node.isolate import Apart
from topocheck.probes.node.ranks import claim, job_variables, local_rank, scrubbed
from topocheck.probes.node.roots import Roots
from topocheck.probes.node.visibility import Visible, visible_gpus
from topocheck.snapshot import (
    SCHEMA,
    Coverage,
    Extent,
    FullSnapshot,
    GpuState,
    Hardware,
    Host,
    Identity,
    Limits,
    NcclFile,
    Network,
    ProbeFault,
    Software,
    Source,
    State,
)

if TYPE_CHECKING:
    from topocheck.probes.node.net import Interfaces
    from topocheck.probes.node.nics import Nics
    from topocheck.probes.node.pci import PciTree
    from topocheck.probes.node.workers import Workers

__all__ = ["LIGHT", "PROBES", "Request", "read_node"]

SOURCE = Source(name="topocheck probe", kind="topocheck probe")

GRACE_S = 1.0
"""How long after the deadline the driver's process may take to be ended."""

Faults = tuple[ProbeFault, ...]


class Probe(msgspec.Struct, frozen=True, gc=False):
    """One reader of files: `function(roots)` of a module of this folder, imported when it is asked."""

    part: str
    """What of the snapshot is missing if it fails."""
    module: str
    function: str
    in_tree: bool = False
    """It takes the PCI tree as well, to say where its devices are in it."""

    def read(self, roots: Roots, *arguments: object) -> tuple[Any, Faults]:
        """Ask it."""
        module = importlib.import_module(f"topocheck.probes.node.{self.module}")
        found: tuple[Any, Faults] = getattr(module, self.function)(roots, *arguments)
        return found


READERS = {
    "identity": Probe("identity", "identity", "read_identity"),
    "pci": Probe("links", "pci", "read_pci"),
    "nics": Probe("nics", "nics", "read_nics", in_tree=True),
    "network": Probe("network", "net", "read_net"),
    "verbs": Probe("verbs", "verbs", "read_verbs"),
    "files": Probe("files", "nccl_files", "read_nccl_files"),
    "software": Probe("software", "software", "read_software"),
    "limits": Probe("limits", "limits", "read_limits"),
    "clock": Probe("state", "clock", "read_clock"),
}
AMD = Probe("gpus", "amd", "read_amd", in_tree=True)
MODEL = Probe("model", "model_files", "read_model_files")
WORKERS = Probe("ranks", "workers", "read_workers")

PROBES = (*READERS, "gpus", "environment", "ranks")
"""Names of all probes."""
LIGHT = frozenset({"identity", "gpus", "limits", "environment", "ranks"})
"""What one of many processes of a node tells: who it is. The first one tells the rest."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """What is asked of a node."""

    roots: Roots
    """The machine."""
    timeout_s: float = 10.0
    """How long all probes together may take."""
    names: frozenset[str] = frozenset(PROBES)
    """Probes to ask."""
    run: str | None = None
    """Id of the launch that the snapshot belongs to."""
    pids: Sequence[int] = ()
    """Running workers whose claims are wanted in place of this process's own."""
    workers: bool = False
    """All workers that are found are wanted."""
    model: str | None = None
    """Folder of the model whose files are wanted."""
    plugins: frozenset[str] = frozenset()
    """Probes of other packages to ask."""

    @property
    def of_workers(self) -> bool:
        """It is about other processes than this one."""
        return bool(self.pids) or self.workers

    @property
    def light(self) -> bool:
        """Another process of the node tells what the node is like."""
        return not self.of_workers and (local_rank(self.roots.env) or 0) > 0

    @property
    def asked(self) -> frozenset[str]:
        """Probes that run."""
        return self.names & LIGHT if self.light else self.names


def read_node(request: Request) -> FullSnapshot:
    """The node, within `timeout_s` and little more. Never raises for what a probe meets."""
    deadline = time.monotonic() + request.timeout_s
    running, (plugins, refused) = start(request, deadline), start_plugins(request, deadline)
    found: dict[str, Any] = {}
    faults: dict[str, Faults] = {}
    for name, probe in running.items():
        # The driver's process is ended at the deadline, and what it said until then is still to be told.
        until = deadline + GRACE_S if name == "gpus" else deadline
        found[name], faults[name] = probe.result(until, None)
    driver = (*faults.pop("gpus", ()), *faults.pop("amd", ()))
    gpus = join_gpus(found.get("gpus"), found.get("amd"), found.get("pci"), driver, identity=request.light)
    told = (*gpus.faults, *(fault for probe in faults.values() for fault in probe))
    snapshot = with_plugins(view(request, gpus, found, (*told, *refused)), plugins, deadline + GRACE_S)
    if request.of_workers:
        return with_workers(snapshot, request, gpus, max(deadline, time.monotonic()) + GRACE_S)
    return with_claim(snapshot, request, gpus)


def start(request: Request, deadline: float) -> dict[str, Apart[Any]]:
    """All probes that are asked for, each running apart."""
    roots, asked, running = request.roots, request.asked, dict[str, Apart[Any]]()
    if "gpus" in asked:
        ask = partial(ask_driver, roots, deadline, request.timeout_s, identity=request.light)
        running["gpus"] = Apart("gpus", "gpus", ask)
    for name, probe in READERS.items():
        if name in asked and not probe.in_tree:
            running[name] = Apart(name, probe.part, partial(probe.read, roots))
    if request.model is not None and not request.light:
        running["model"] = Apart("model", "model", partial(MODEL.read, roots, request.model))
    tree, half = running.get("pci"), deadline - request.timeout_s / 2
    if "nics" in asked:
        nics = READERS["nics"]
        running["nics"] = Apart("nics", nics.part, partial(read_in_tree, nics, roots, tree, half))
    if "gpus" in asked:
        running["amd"] = Apart("amd", AMD.part, partial(read_in_tree, AMD, roots, tree, half))
    return running


def start_plugins(request: Request, deadline: float) -> tuple[dict[str, Apart[Any]], Faults]:
    """Probes of other packages that are asked for, each running apart, and those that are refused."""
    if request.light or not request.plugins or not offers(OFFERED):
        return {}, ()
    from topocheck.probes.node.plugins import ask_plugin, part_of, sort_offers  # noqa: PLC0415 - only with some

    found, refused = sort_offers(PROBES)
    asked = {name: offer for name, offer in found.items() if name in request.plugins}
    return {
        name: Apart(
            name, part_of(name), partial(ask_plugin, offer, request.roots, deadline, request.timeout_s)
        )
        for name, offer in asked.items()
    }, refused


def with_plugins(snapshot: FullSnapshot, plugins: Mapping[str, Apart[Any]], deadline: float) -> FullSnapshot:
    """The snapshot with what probes of other packages found."""
    for name, probe in plugins.items():
        facts, faults = probe.result(deadline, None)
        known = snapshot.plugins if facts is None else {**snapshot.plugins, name: facts}
        snapshot = replace(snapshot, plugins=known, faults=(*snapshot.faults, *faults))
    return snapshot


def read_in_tree(probe: Probe, roots: Roots, tree: Apart[Any] | None, deadline: float) -> tuple[Any, Faults]:
    """Ask a probe that takes the PCI tree; it goes without, if that is not there in time."""
    from topocheck.probes.node.pci import PciTree  # noqa: PLC0415 - as all probes, only where asked

    found = None if tree is None else tree.result(deadline, None)[0]
    return probe.read(roots, found or PciTree())


def view(request: Request, gpus: NodeGpus, found: Mapping[str, Any], faults: Faults) -> FullSnapshot:
    """What the probes found, as a snapshot without claims."""
    nics: Nics | None = found.get("nics")
    interfaces: Interfaces | None = found.get("network")
    tree: PciTree | None = found.get("pci")
    return FullSnapshot(
        schema=SCHEMA,
        token=os.urandom(8).hex(),
        run=request.run,
        taken_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        sources=(SOURCE,),
        coverage=replace(gpus.coverage, nics=None if nics is None else extent(whole=nics.whole)),
        identity=Identity(
            host=found.get("identity") or Host(),
            gpus=tuple(gpus.listed or ()) if request.light else gpus.ids,
            nics=() if nics is None else nics.ids,
        ),
        hardware=Hardware() if request.light else hardware(gpus, nics, tree),
        network=Network(
            nics=() if nics is None else nics.networks,
            netdevs=() if interfaces is None else interfaces.netdevs,
        ),
        fabric=gpus.fabric,
        software=versions(gpus.software, found.get("software")),
        limits=found.get("limits") or Limits(),
        verbs=found.get("verbs"),
        files=tuple(map(without_secrets, found.get("files") or ())),
        model=found.get("model"),
        state=State(
            gpus=with_names(request.roots, gpus.states),
            ports=() if nics is None else nics.ports,
            addresses=() if interfaces is None else interfaces.addresses,
            pci=() if tree is None else tree.links,
            clock=found.get("clock"),
        ),
        faults=faults,
    )


def with_names(roots: Roots, states: tuple[GpuState, ...]) -> tuple[GpuState, ...]:
    """States of GPUs with what /proc says of the processes on them."""
    if not any(state.processes for state in states):
        return states
    from topocheck.probes.node.processes import named  # noqa: PLC0415 - only where there are any

    return named(roots, states)


def extent(*, whole: bool) -> Extent:
    """Whether one may conclude from absence."""
    return "all" if whole else "part"


def hardware(gpus: NodeGpus, nics: Nics | None, tree: PciTree | None) -> Hardware:
    """The shape of the node."""
    return Hardware(
        gpus=gpus.shapes,
        nics=() if nics is None else nics.shapes,
        pci=() if tree is None else tree.nodes,
        matrix=gpus.matrix,
        peers=gpus.peers,
    )


def versions(driver: Software, files: Software | None) -> Software:
    """Versions by files, and those that only the driver tells; it knows its own best."""
    if files is None:
        return driver
    told = {
        name: value for name in Software.__struct_fields__ if (value := getattr(driver, name)) is not None
    }
    return replace(files, **told)


def without_secrets(file: NcclFile) -> NcclFile:
    """A file's settings as a snapshot may show them."""
    return replace(file, settings={name: scrubbed(value) for name, value in file.settings.items()})


def with_claim(snapshot: FullSnapshot, request: Request, gpus: NodeGpus) -> FullSnapshot:
    """The snapshot with what this process claims, and with the variables of its job."""
    env, asked = request.roots.env, request.asked
    if "ranks" in asked:
        pid = os.getpid() if snapshot.limits.scope == "host" else None  # other namespaces count anew
        claimed = claim(env, devices(env, gpus), name="this process", pid=pid)
        snapshot = replace(
            snapshot,
            coverage=with_ranks(snapshot.coverage, None if claimed.rank is None else claimed.whole),
            ranks=() if claimed.rank is None else (claimed.rank,),
            node_claim=claimed.node,
            disagreements=claimed.disagreements,
            nested=claimed.nested,
            faults=(*snapshot.faults, *claimed.faults),
        )
    if "environment" in asked:
        variables, faults = job_variables(env)
        snapshot = replace(snapshot, environment=variables, faults=(*snapshot.faults, *faults))
    return snapshot


def devices(env: Mapping[str, str], gpus: NodeGpus) -> Visible:
    """Devices of a process that sees the GPUs that this one sees."""
    if gpus.listed is None:
        return Visible(None, "the node's GPUs are not known")
    return visible_gpus(env, gpus.listed, gpus.sliced, amd=gpus.amd)


def with_ranks(coverage: Coverage, whole: bool | None) -> Coverage:
    """Coverage with that of the ranks; None if there are none."""
    return coverage if whole is None else replace(coverage, ranks=extent(whole=whole))


def with_workers(snapshot: FullSnapshot, request: Request, gpus: NodeGpus, deadline: float) -> FullSnapshot:
    """The snapshot with what running workers claim and show."""
    reading = partial(WORKERS.read, request.roots, request.pids, gpus, snapshot.identity.host)
    found: Workers | None
    found, faults = Apart("workers", WORKERS.part, reading).result(deadline, None)
    snapshot = replace(snapshot, faults=(*snapshot.faults, *faults))
    if found is None:
        return snapshot
    asked = request.asked
    return replace(
        snapshot,
        coverage=with_ranks(snapshot.coverage, False if found.ranks else None),
        ranks=found.ranks if "ranks" in asked else (),
        node_claim=found.node if "ranks" in asked else None,
        disagreements=found.disagreements if "ranks" in asked else (),
        nested=found.nested if "ranks" in asked else (),
        job=found.job if "ranks" in asked else (),
        environment=found.environment if "environment" in asked else {},
        own_environments=found.own if "environment" in asked else (),
        limits=found.limits if "limits" in asked else snapshot.limits,
    )
