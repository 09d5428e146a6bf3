"""Nodes of healthy jobs, each whole as a probe in the job's own processes shows it.

A `Box` is the model of machine, a `Seat` what one node of a job adds: its name, ranks, variables. Everything
is made; identities follow from names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from boxes import Box, links_of, tree_of

from topocheck.portreading import GidReading, PortReading, parted
from topocheck.snapshot import (
    SCHEMA,
    At,
    Clock,
    Coverage,
    Fabric,
    FullSnapshot,
    GpuId,
    GpuShape,
    GpuState,
    Hardware,
    Host,
    Identity,
    JobFact,
    Limits,
    ModelFiles,
    Netdev,
    Network,
    NicId,
    NicNetwork,
    NicShape,
    PciLink,
    PeerAccess,
    Port,
    PortState,
    Process,
    RankClaim,
    Scope,
    Software,
    Source,
    State,
    Verbs,
    VerbsDevice,
)

__all__ = ["BARE_METAL", "Seat", "launched", "node", "nodes"]

GIB = 1 << 30
WEIGHTS = ModelFiles(
    path="/models/llama",
    config_digest="sha256:" + "1d" * 32,
    weights_digest="sha256:" + "2e" * 32,
    weights_bytes=141 * GIB,
    weights_files=30,
)


BARE_METAL = Limits(
    scope="host",
    memlock_bytes=-1,
    ipc_lock=False,
    shm_bytes=512 * GIB,
    shm_free_bytes=510 * GIB,
    nofile=1 << 20,
    memory_bytes=-1,
)
"""Limits of a process of Slurm's on the machine itself."""


OWN = Fabric(cluster_uuid="0" * 32, clique=0, state="Completed", status="Success", health_mask=0xAA)
"""A fabric that ends at the host."""


@dataclass(frozen=True)
class Seat:
    """What one node of a job adds to its machine."""

    name: str
    number: int = 0
    """Node rank."""
    ranks: tuple[int, ...] = ()
    size: int = 8
    """World size."""
    world: str = ""
    gpus: tuple[int, ...] | None = None
    """Ordinals of the GPUs of its ranks; None for the first ones in order."""
    first_pid: int = 4100
    master: str = ""
    """Where the nodes meet; empty for no such variable."""
    variables: Mapping[str, str] = field(default_factory=dict)
    nics: tuple[str, ...] = ()
    """Names of its NICs; mlx5_0 ... if none are given."""
    interface: str = "eth0"
    gid_shift: int = 0
    """GID entries in front of the usual ones."""
    limits: Limits = BARE_METAL
    scope: Scope = "host"
    software: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "vllm"

    @property
    def address(self) -> str:
        """Its address on the cluster's network."""
        return f"10.20.{self.number}.11"

    @property
    def places(self) -> tuple[int, ...]:
        """Ordinals of the GPUs of its ranks."""
        return tuple(range(len(self.ranks))) if self.gpus is None else self.gpus


def digits(text: str, count: int) -> str:
    """Hex digits that depend on the text alone."""
    return hashlib.sha256(text.encode()).hexdigest()[:count]


def uuid(text: str) -> str:
    """8-4-4-4-12 hex digits."""
    d = digits(text, 32)
    return f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}"


def names_of(box: Box, seat: Seat) -> tuple[str, ...]:
    """Names of the NICs."""
    return seat.nics or tuple(f"mlx5_{n}" for n in range(box.nics))


def hardware(box: Box, seat: Seat) -> Hardware:
    """The shape of a box."""
    tree, make = tree_of(box), box.nic
    gpus = tuple(
        GpuShape(
            model=box.model,
            memory_bytes=box.gib * GIB,
            sm=box.sm,
            numa=part.numa,
            pci=part.id,
            links=links_of(box, number),
            nvswitch=box.links > 0 and box.bonds is None,
            mig=False,
        )
        for number, part in enumerate(tree.gpus)
    )
    port = Port(state="ACTIVE", physical="LinkUp", layer=make.layer, rate_gbps=make.rate_gbps)
    nics = tuple(
        NicShape(
            name=name,
            kind=make.kind,
            numa=part.numa,
            pci=part.id,
            ports=(port,),
            model=make.model,
            virtual=make.virtual,
        )
        for name, part in zip(names_of(box, seat), tree.nics, strict=True)
    )
    pairs = [(a, b) for a in range(box.gpus) for b in range(box.gpus) if a != b]
    status = {True: "OK", False: "CNS"}
    peers = tuple(PeerAccess(a=a, b=b, status=status[box.peers or box.joined(a, b)]) for a, b in pairs)
    return Hardware(gpus=gpus, nics=nics, pci=tuple(tree.parts), peers=peers)


def identity(box: Box, seat: Seat) -> Identity:
    """Names of everything in `hardware`."""
    tree, host = tree_of(box), seat.name
    gpus = tuple(
        GpuId(
            uuid=f"GPU-{uuid(f'{host} gpu {n}')}",
            bus=part.id,
            nvml=n,
            minor=n,
            scope=seat.scope,
            serial=str(1_320_000_000_000 + int(digits(f"{host} board {n}", 9), 16)),
        )
        for n, part in enumerate(tree.gpus)
    )
    guids = [digits(f"{host} nic {n}", 16) for n in range(box.nics)]
    nics = tuple(
        NicId(name=name, bus=part.id, guid=":".join(guid[at : at + 4] for at in range(0, 16, 4)))
        for name, part, guid in zip(names_of(box, seat), tree.nics, guids, strict=True)
    )
    boot = uuid(f"{host} boot")
    return Identity(host=Host(name=host, boot_id=boot, machine_id=digits(host, 32)), gpus=gpus, nics=nics)


def gids(seat: Seat, nic: int) -> tuple[GidReading, ...]:
    """Link-local and IPv4 addresses of a RoCE port, each as v1 and v2."""
    local = f"fe80:0000:0000:0000:0a00:27ff:fe{seat.number:02x}:{nic:04x}"
    mapped = f"0000:0000:0000:0000:0000:ffff:0a{0x30 + nic:02x}:{seat.number:02x}0b"
    both = [(address, kind) for address in (local, mapped) for kind in ("IB/RoCE v1", "RoCE v2")]
    front = both[:2] * (seat.gid_shift // 2)
    return tuple(
        GidReading(index=index, digits=address, type=kind, netdev=f"rail{nic}")
        for index, (address, kind) in enumerate([*front, *both])
    )


def port(box: Box, seat: Seat, nic: int) -> PortReading:
    """Subnet manager and addresses of the port of one NIC."""
    if box.nic.layer == "InfiniBand":
        local = GidReading(index=0, digits=f"fe80:0000:0000:0000:{digits(seat.name, 4)}:00ff:fe00:{nic:04x}")
        return PortReading(lid=20 + nic, sm_lid=1, gids=(local,))
    return PortReading(lid=0, sm_lid=0, gids=gids(seat, nic))


def ports(box: Box, seat: Seat) -> tuple[tuple[NicNetwork, ...], tuple[PortState, ...]]:
    """Ports of all NICs."""
    return parted((nic, (port(box, seat, nic),)) for nic in range(box.nics))


def network(box: Box, seat: Seat) -> Network:
    """Ports and network devices."""
    front = Netdev(
        name=seat.interface, kind="physical", layer="ethernet", state="up", mtu=1500, speed_gbps=25
    )
    lo = Netdev(name="lo", kind="loopback", layer="loopback", state="unknown")
    return Network(nics=ports(box, seat)[0], netdevs=(lo, front))


def state(box: Box, seat: Seat) -> State:
    """The job's processes have started on GPUs that nobody else uses; PCIe sleeps at its lowest speed."""
    tree = tree_of(box)
    pids = {gpu: seat.first_pid + n for n, gpu in enumerate(seat.places)}
    used = 600 << 20
    return State(
        gpus=tuple(
            GpuState(
                gpu=gpu,
                memory_used_bytes=used if gpu in pids else 0,
                memory_reserved_bytes=500 << 20,
                processes=(Process(pid=pids[gpu], memory_bytes=used, name="python3"),) if gpu in pids else (),
            )
            for gpu in range(box.gpus)
        ),
        ports=ports(box, seat)[1],
        addresses=(("127.0.0.1/8", "::1/128"), (f"{seat.address}/16",)),
        pci=tuple(PciLink(node=part.id, width=16, speed_gts=2.5) for part in (*tree.gpus, *tree.nics)),
        clock=Clock(synchronised=True, error_seconds=2e-5, most_error_seconds=0.003),
    )


def software(box: Box, seat: Seat) -> Software:
    """Versions; a board with NVSwitches runs the fabric manager of the driver's version."""
    driver = "570.172.08"
    switched = box.links > 0 and box.bonds is None
    known = Software(
        driver=driver,
        cuda="12.8",
        cuda_runtime="12.8",
        nccl="2.27.5",
        engine=seat.engine,
        engine_version={"vllm": "0.24.0"}.get(seat.engine),
        torch="2.9.0",
        fabric_manager=driver if switched else None,
        open_driver=True,
    )
    return msgspec.structs.replace(known, **seat.software)


def claims(seat: Seat) -> tuple[RankClaim, ...]:
    """What the processes find in their environment."""
    return tuple(
        RankClaim(
            rank=rank,
            world=seat.world,
            size=seat.size,
            local_rank=local,
            node_rank=seat.number,
            gpu=gpu,
            pid=seat.first_pid + local,
            family="torchrun",
        )
        for local, (rank, gpu) in enumerate(zip(seat.ranks, seat.places, strict=True))
    )


def node(box: Box, seat: Seat, **parts: Any) -> FullSnapshot:
    """One node; keywords replace parts of its snapshot."""
    names = names_of(box, seat)
    meeting = {"MASTER_ADDR": seat.master, "MASTER_PORT": "29500"} if seat.master else {}
    own = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": seat.interface}
    if seat.limits.scope == "host":
        own["SLURM_JOB_GPUS"] = ",".join(map(str, seat.places))
    shown = FullSnapshot(
        schema=SCHEMA,
        run="7421",
        taken_at="2026-02-28T23:59:30Z",
        sources=(Source(name="topocheck probe", kind="topocheck probe"),),
        coverage=Coverage(gpus="all", links="all", nics="all", ranks="all" if seat.ranks else None),
        identity=identity(box, seat),
        hardware=hardware(box, seat),
        environment=own | meeting | dict(seat.variables),
        fabric=(OWN,) if box.fabric else (),
        ranks=claims(seat),
        software=software(box, seat),
        limits=seat.limits,
        verbs=Verbs(
            scope=seat.limits.scope,
            devices=tuple(
                VerbsDevice(name=f"uverbs{n}", nic=nic, openable=True) for n, nic in enumerate(names)
            ),
            library=True,
            providers=(box.nic.provider,),
            peer_memory="nvidia_peermem",
            dma_buf=True,
        ),
        model=WEIGHTS,
        network=network(box, seat),
        state=state(box, seat),
    )
    return msgspec.structs.replace(shown, **parts)


def nodes(box: Box, *names: str, each: int | None = None, **seat: Any) -> list[FullSnapshot]:
    """Equal nodes of one job, ranks in blocks of `each` (all GPUs unless given)."""
    count = box.gpus if each is None else each
    size = count * len(names)
    meet = Seat(names[0]).address if len(names) > 1 else "127.0.0.1"
    made = []
    for number, name in enumerate(names):
        ranks = tuple(range(count * number, count * (number + 1)))
        place = Seat(name, number, ranks=ranks, size=size, master=meet)
        made.append(node(box, replace(place, **seat)))
    return made


def launched(each: int, count: int, tensor: int, pipeline: int = 1) -> FullSnapshot:
    """Script and first lines of vLLM: one torchrun a node, `each` processes on each of `count` nodes."""
    script = [
        ("launcher", "serve.py", "srun torchrun"),
        ("processes-per-node", "launcher", "1"),
        ("processes-per-node", "agent", f"{each}"),
        ("nodes", "launcher", f"{count}"),
        ("gpus-per-node", "launcher", f"{each}"),
    ]
    in_force = [
        ("size", "tensor", f"{tensor}"),
        ("size", "pipeline", f"{pipeline}"),
        ("rendezvous", "dist-init", f"{Seat('').address if count > 1 else '127.0.0.1'}:29501"),
    ]
    told = [("job.sbatch", line, fact) for line, fact in enumerate(script, 1)]
    told += [("engine.log", line, fact) for line, fact in enumerate(in_force, 1)]
    facts = tuple(
        JobFact(
            kind=kind,
            name=name,
            value=value,
            engine="vllm" if source == "engine.log" else None,
            at=At(source=source, line=line),
        )
        for source, line, (kind, name, value) in told
    )
    return FullSnapshot(schema=SCHEMA, identity=Identity(host=Host()), job=facts)
