"""Healthy set-ups, each whole: no rule accuses them, and those that matter there have something to pass on.

Every set-up says which rules have to pass; a warning that belongs to the machine is named, and nothing else may
be found. The thin machines of `test_traps` ask single rules; these go through all of them as verify does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

import msgspec
import pytest
from build import AT, edge, inventory, log, plan
from healthy import (
    BARE_METAL,
    DGX1V,
    GB10,
    GB200,
    GH200,
    H100_NVL,
    HGX_A100_EPYC,
    HGX_H100,
    HGX_H200_ROCE,
    L40S,
    RTX4090,
    Box,
    Nic,
    Root,
    Seat,
    launched,
    node,
    nodes,
)
from msgspec.structs import replace as changed

from topocheck.answer import Declared, answer
from topocheck.checklist import Gate
from topocheck.probes.capture import vllm_log
from topocheck.probes.capture.text import parse_text
from topocheck.report import Report
from topocheck.rules import RULES
from topocheck.snapshot import (
    CommRank,
    Fabric,
    FullSnapshot,
    Hardware,
    Library,
    MigDevice,
    NcclFile,
    NicShape,
    Port,
)

TWO = ("gpu-1", "gpu-2")
DENSE = Path(__file__).resolve().parent / "models" / "dense.json"
SIZES = "{layers: 80, hidden: 8192, heads: 64, kv_heads: 8}"

KNOWN = {"EV001", "EV004", "ID001", "ID002", "ID003", "ID004", "ID008", "ID011", "ID012", "ID015", "OBS001"}
"""What any job with whole evidence shows: who is where, and that it is so."""
ALIKE = {"ID005", "ID006", "ID007", "ID010", "ENV001", "ENV006", "VER001", "VER002", "VER003", "VER005", "VER007"}
"""What nodes of one job have in common."""
GROUP = {"ID013", "TP001", "TP003", "TP005", "TP006", "TP007", "ENV002", "ENV005", "CAP001"}
"""What a tensor group needs."""
NVLINK = {"TP002", "TP004", "TP008", "NV001", "NV005"}
"""The same where NVLink joins its members."""
NETWORK = {"NET001", "NET002", "NET003", "NET005", "NET006", "NET007", "NET008", "NET009", "NET010", "ENV004"}
"""What leaves a node."""
STAGES = {"PP001", "PP002", "PP003", "PP004"}
"""What a pipeline over nodes needs."""
ONE_NODE = KNOWN | GROUP
SEVERAL = KNOWN | ALIKE | GROUP | NETWORK


@dataclass(frozen=True)
class SetUp:
    """A healthy job."""

    plan: str
    evidence: Sequence[FullSnapshot]
    passing: set[str]
    """Rules that have to pass."""
    warns: frozenset[str] = frozenset()
    """Rules whose warning belongs to the machine."""
    undecided: frozenset[str] = frozenset()
    """Required rules that nothing before launch, or of this kind, can decide."""


def vllm(tensor: int, pipeline: int, hosts: Sequence[str] = TWO, **keys: str) -> str:
    """A plan with named nodes and further keys."""
    more = {"model": SIZES} | keys
    lines = [f"{key}: {value}\n" for key, value in more.items()]
    head = f"engine: vllm\nparallel: {{tensor: {tensor}, pipeline: {pipeline}}}\nnodes: [{', '.join(hosts)}]\n"
    return head + "".join(lines)


def boxes(box: Box, tensor: int, pipeline: int, hosts: Sequence[str] = TWO, **seat: object) -> list[FullSnapshot]:
    """Nodes of a job that fills them, and its launch."""
    each = tensor * pipeline // len(hosts)
    return [*nodes(box, *hosts, each=each, **seat), launched(each, len(hosts), tensor, pipeline)]


def every(views: Sequence[FullSnapshot], change: Callable[[FullSnapshot], FullSnapshot]) -> list[FullSnapshot]:
    """The same nodes changed; what is no node stays."""
    return [change(view) if view.hardware != Hardware() else view for view in views]


def hgx() -> SetUp:
    """Two HGX H100 with a rail for each GPU."""
    workload = "{max_sequences: 64, input_tokens: 3072, output_tokens: 1024, max_batched_tokens: 8192, "
    keys = {"model": str(DENSE), "workload": workload + "gpu_memory_utilization: 0.9}"}
    passing = SEVERAL | NVLINK | STAGES | {"PP005", "PP007", "CAP002", "NV002", "NV004", "NET012", "GR005"}
    return SetUp(vllm(8, 2, **keys), boxes(HGX_H100, 8, 2), passing | {"ID014", "ID016", "ENV003", "VER004"})


def dgx1v() -> SetUp:
    """Hybrid cube mesh: four of seven peers over NVLink, by design."""
    evidence = boxes(DGX1V, 8, 1, TWO[:1])
    passing = ONE_NODE | {"NV001", "NV005", "TP004"}
    return SetUp(vllm(8, 1, TWO[:1]), evidence, passing, warns=frozenset({"TP002", "TP008"}))


def bridged() -> SetUp:
    """H100 NVL: twelve of eighteen links, in pairs."""
    return SetUp(vllm(2, 4), boxes(H100_NVL, 2, 4), SEVERAL | NVLINK | STAGES)


def geforce() -> SetUp:
    """Boards without NVLink and without peer access, and the variable that says so."""
    hosts, variables = TWO[:1], {"NCCL_P2P_DISABLE": "1"}
    evidence = boxes(RTX4090, 4, 2, hosts, variables=variables)
    return SetUp(vllm(4, 2, hosts), evidence, ONE_NODE | {"TP004"}, warns=frozenset({"TP008"}))


def l40s() -> SetUp:
    """Boards without NVLink whose peer access is there and switched off."""
    evidence = boxes(L40S, 4, 4, variables={"NCCL_P2P_DISABLE": "1"})
    return SetUp(vllm(4, 4), evidence, SEVERAL | STAGES | {"TP004", "TP008"})


RACK = Fabric(
    cluster_uuid="7c" * 16,
    clique=32766,
    state="Completed",
    status="Success",
    health_mask=0xAA,
    health="Healthy",
)


def in_rack(view: FullSnapshot) -> FullSnapshot:
    """A tray of the rack."""
    return changed(view, fabric=(RACK,))


def nvl72_stages() -> SetUp:
    """A stage boundary that needs no RDMA: both trays lie in one NVLink domain, and have one Ethernet NIC."""
    tray = replace(
        GB200,
        roots=tuple(replace(root, nics=int(place == 0)) for place, root in enumerate(GB200.roots)),
        nic=Nic("Ethernet", rate_gbps=200, model="MT41692"),
    )
    evidence = every(boxes(tray, 4, 2), in_rack)
    passing = KNOWN | ALIKE | GROUP | NVLINK | {"PP001", "PP002", "PP003", "NV002"}
    return SetUp(vllm(4, 2), evidence, passing)


def nvl72_tensor() -> SetUp:
    """TP over two trays is right there, and declared."""
    text = vllm(8, 1, policy="{tensor_domain: nvlink}")
    passing = KNOWN | ALIKE | GROUP | {"NV001", "NV002", "NV005", "TP004", "TP008"}
    return SetUp(text, every(boxes(GB200, 8, 1), in_rack), passing, undecided=frozenset({"TP002"}))


def pods() -> SetUp:
    """Containers that may lock 64 KiB, and hold CAP_IPC_LOCK."""
    limits = changed(
        BARE_METAL, scope="container", memlock_bytes=64 << 10, ipc_lock=True, container="c4" * 32
    )
    return SetUp(vllm(8, 2), boxes(HGX_H100, 8, 2, limits=limits), SEVERAL | NVLINK | STAGES)


def own_names() -> SetUp:
    """Each node calls its NICs, interface and GID by its own names and numbers, and selects the same."""
    names = tuple(f"roce_rail{n}" for n in range(8))
    seats = [
        {"interface": "eth0", "nics": tuple(f"mlx5_{n}" for n in range(8)), "gid_shift": 0},
        {"interface": "ens5", "nics": names, "gid_shift": 2},
    ]
    evidence: list[FullSnapshot] = []
    for number, seat in enumerate(seats):
        variables = {"NCCL_IB_HCA": f"={','.join(seat['nics'])}", "NCCL_IB_GID_INDEX": f"{3 + seat['gid_shift']}"}
        evidence.append(nodes(HGX_H200_ROCE, *TWO, variables=variables, **seat)[number])
    passing = SEVERAL | NVLINK | STAGES | {"NET004"}
    return SetUp(vllm(8, 2), [*evidence, launched(8, 2, 8, 2)], passing)


def loopback() -> SetUp:
    """One node whose processes meet at 127.0.0.1."""
    evidence = boxes(HGX_H100, 8, 1, TWO[:1])
    assert evidence[0].environment["MASTER_ADDR"] == "127.0.0.1"
    return SetUp(vllm(8, 1, TWO[:1]), evidence, ONE_NODE | NVLINK | {"NV002", "NV004"})


def ray_head() -> SetUp:
    """KubeRay: the head has no GPU, no NIC of the fabric and no rank."""
    head = node(replace(HGX_H100, roots=(Root(0, 0),), fabric=False, links=0), Seat("head", 9))
    return SetUp(vllm(8, 2), [*boxes(HGX_H100, 8, 2), head], SEVERAL | NVLINK | STAGES)


def epyc() -> SetUp:
    """Four NUMA nodes a socket, and an IOMMU that passes devices through (iommu=pt)."""
    assert HGX_A100_EPYC.iommu == "identity"
    return SetUp(vllm(8, 2), boxes(HGX_A100_EPYC, 8, 2), SEVERAL | NVLINK | STAGES | {"NV004"})


def two_replicas() -> SetUp:
    """Two servers with TP 4 on one node, each with GPUs of its own."""
    views = [
        node(
            HGX_H100,
            Seat(
                "gpu-1",
                ranks=tuple(range(4)),
                size=4,
                gpus=tuple(range(first, first + 4)),
                first_pid=4100 + 100 * first,
                master="127.0.0.1",
                variables={"CUDA_VISIBLE_DEVICES": ",".join(str(first + n) for n in range(4))},
            ),
        )
        for first in (0, 4)
    ]
    return SetUp(vllm(4, 1, TWO[:1], worlds="2"), views, (ONE_NODE | NVLINK) - {"ID012", "OBS001"})


def dense() -> SetUp:
    """Dense data parallelism of vLLM: ranks begin at 0 in each replica, two of which share a node."""
    text = vllm(4, 1).replace("pipeline: 1", "data: 4") + "engine_version: 0.24.0\n"
    views = [
        node(
            HGX_H100,
            Seat(
                name,
                ranks=tuple(range(4)),
                size=4,
                world=f"dp{2 * number + half}",
                gpus=tuple(range(4 * half, 4 * half + 4)),
                first_pid=4100 + 100 * half,
            ),
        )
        for number, name in enumerate(TWO)
        for half in range(2)
    ]
    return SetUp(text, views, (ONE_NODE | NVLINK) - {"ID012", "OBS001"})


def seen_groups() -> SetUp:
    """A running vLLM job: one communicator for each group, with ranks of its own, and the engine's lines."""
    started = [
        log(
            name,
            [
                *members("tcp://10.20.0.11:29501", range(8 * number, 8 * number + 8), size=16, gpu=False),
                *members(f"0x70{number}", range(8), size=8),
                *[one for n in range(8) for one in members(f"0x9{n}", [number], size=2, first=n)],
            ],
            edges=[
                *[edge(n, (n + 1) % 8, "P2P/CUMEM", comm=f"0x70{number}", host=name) for n in range(8)],
                *[
                    edge(number, 1 - number, f"NET/IB/{n}/GDRDMA", comm=f"0x9{n}", host=name, pid=4100 + n)
                    for n in range(8)
                ],
            ],
            count=8,
        )
        for number, name in enumerate(TWO)
    ]
    shown = boxes(HGX_H100, 8, 2)
    logs = [
        changed(view, identity=changed(view.identity, gpus=tuple(changed(g, uuid=None) for g in own.identity.gpus)))
        for view, own in zip(started, shown, strict=False)
    ]
    running = {"OBS002", "OBS003", "OBS006", "OBS008", "OBS009"}
    passing = (SEVERAL | NVLINK | STAGES | running) - {"CAP001"}
    return SetUp(vllm(8, 2), [*shown, *logs], passing)


def members(
    name: str, ranks: Sequence[int], *, size: int, first: int = 0, gpu: bool = True
) -> list[CommRank]:
    """Processes of one node in one communicator, by the GPUs from `first` on."""
    return [
        CommRank(comm=name, size=size, rank=rank, gpu=n if gpu else None, pid=4100 + n, phase="complete")
        for n, rank in enumerate(ranks, first)
    ]


def virtual_functions() -> SetUp:
    """Virtual functions that each host numbers its own way."""
    box = replace(HGX_H200_ROCE, nic=Nic("Ethernet", rate_gbps=400, model="MT4126", virtual=True))
    names = [(0, 1, 3, 4, 5, 8, 9, 10), (2, 3, 4, 6, 7, 8, 11, 12)]
    views = [
        nodes(box, *TWO, nics=tuple(f"mlx5_{n}" for n in own))[number] for number, own in enumerate(names)
    ]
    return SetUp(vllm(8, 2), [*views, launched(8, 2, 8, 2)], SEVERAL | NVLINK | STAGES | {"NET004"})


def asleep() -> SetUp:
    """PCIe links of idle devices at their lowest speed."""
    evidence = boxes(HGX_H100, 8, 2)
    assert {link.speed_gts for link in evidence[0].state.pci} == {2.5}
    return SetUp(vllm(8, 2), evidence, SEVERAL | NVLINK | STAGES)


def azure() -> SetUp:
    """A virtual machine in which nothing is near anything, and the topology file that the cloud asks for."""
    alone = tuple(Root(n // 4, gpus=1, switch=False) for n in range(8))
    far = tuple(Root(n // 4, gpus=0, nics=1, switch=False) for n in range(8))
    path = "/opt/microsoft/ndv5-topo.xml"

    def cloud(view: FullSnapshot) -> FullSnapshot:
        return changed(
            view,
            environment=view.environment | {"NCCL_TOPO_FILE": path, "NCCL_IB_PCI_RELAXED_ORDERING": "1"},
            files=(NcclFile(path=path, kind="topology"),),
            software=changed(view.software, hypervisor="Microsoft Hyper-V"),
        )

    evidence = every(boxes(replace(HGX_H100, roots=alone + far), 8, 2), cloud)
    return SetUp(vllm(8, 2), evidence, (SEVERAL | NVLINK | STAGES | {"ENV003"}) - {"PP004"})


def slice_of_one() -> SetUp:
    """A replica of one rank on a MIG slice."""
    slices = tuple(MigDevice(uuid=f"MIG-0f0f0f0f-1111-2222-3333-{n:012}") for n in range(7))

    def cut(view: FullSnapshot) -> FullSnapshot:
        gpus = tuple(changed(gpu, mig=slices) for gpu in view.identity.gpus)
        return changed(view, identity=changed(view.identity, gpus=gpus))

    evidence = every(boxes(HGX_H100, 1, 1, TWO[:1], variables={"CUDA_VISIBLE_DEVICES": f"{slices[2].uuid}"}), cut)
    return SetUp(vllm(1, 1, TWO[:1]), evidence, KNOWN | {"CAP001", "NV001", "NV002"})


def superchips() -> SetUp:
    """GH200, one GPU a node and no NVLink switch around it: TP has to cross nodes."""
    evidence = every(boxes(GH200, 2, 1), lambda view: changed(view, fabric=(Fabric(state="Not Supported"),)))
    passing = (SEVERAL | {"NV002"}) - {"TP001", "TP007", "ENV005"}
    return SetUp(vllm(2, 1), evidence, passing, warns=frozenset({"TP001"}), undecided=frozenset({"TP002"}))


def sparks() -> SetUp:
    """Two DGX Spark joined by their two RoCE ports."""
    evidence = boxes(GB10, 2, 1, nics=("rocep1s0f0", "rocep1s0f1"))
    passing = (SEVERAL | {"NET004"}) - {"TP001", "TP007", "ENV005"}
    return SetUp(vllm(2, 1), evidence, passing, warns=frozenset({"TP001"}))


def efa() -> SetUp:
    """A fabric of another make, with the plugin that it needs."""
    box = replace(HGX_H100, nic=Nic(None, rate_gbps=100, kind="efa", model=None, provider="efa"))
    plugin = Library(name="libnccl-net.so", folder="/opt/amazon/ofi-nccl/lib")
    names = tuple(f"rdmap{n}s0" for n in range(8))

    def plugged(view: FullSnapshot) -> FullSnapshot:
        assert view.verbs is not None
        return changed(view, verbs=changed(view.verbs, plugins=(plugin,)))

    evidence = every(boxes(box, 8, 2, nics=names), plugged)
    return SetUp(vllm(8, 2), evidence, (SEVERAL | NVLINK | STAGES | {"NET011"}) - {"NET003", "NET007"})


def storage() -> SetUp:
    """Storage NICs, a bond of them, and a port without a cable beside the rails."""
    def more(view: FullSnapshot) -> FullSnapshot:
        up = Port(state="ACTIVE", physical="LinkUp", layer="Ethernet", rate_gbps=100)
        down = Port(state="DOWN", physical="Disabled", layer="Ethernet", rate_gbps=40)
        extra = tuple(
            NicShape(name=name, kind=kind, model="MT4125", ports=(port,), numa=0, pci=None)
            for name, kind, port in (("mlx5_bond_0", "bond", up), ("mlx5_8", "rdma", down))
        )
        return changed(view, hardware=changed(view.hardware, nics=(*view.hardware.nics, *extra)))

    variables = {"NCCL_IB_HCA": "=" + ",".join(f"mlx5_{n}" for n in range(8))}
    evidence = every(boxes(HGX_H100, 8, 2, variables=variables), more)
    return SetUp(vllm(8, 2), evidence, SEVERAL | NVLINK | {"PP001", "PP003"})


def one_gpu_a_task() -> SetUp:
    """Slurm with --gpus-per-task: each task sees one GPU and calls it 0, which may cost CUDA IPC."""
    views = []
    for number, whole in enumerate(nodes(HGX_H100, *TWO)):
        for local in range(8):
            gpu = changed(whole.identity.gpus[local], nvml=0, scope="task")
            shape = changed(whole.hardware, gpus=(whole.hardware.gpus[local],), peers=())
            state = changed(whole.state, gpus=(changed(whole.state.gpus[local], gpu=0),))
            claim = changed(whole.ranks[local], gpu=0, rank=8 * number + local)
            view = changed(whole, hardware=shape, state=state, ranks=(claim,))
            views.append(changed(view, identity=changed(whole.identity, gpus=(gpu,))))
    passing = (SEVERAL | STAGES | {"TP002", "NV001"}) - {"TP007", "ID012", "OBS001"}
    return SetUp(vllm(8, 2), views, passing, warns=frozenset({"TP007"}))


def two_pods() -> SetUp:
    """Two pods on one machine, a stage in each: one boot id, two host names, GPUs numbered anew in each."""
    views = []
    for number, (whole,) in enumerate([nodes(HGX_H100, "gpu-1", each=8)] * 2):
        own = slice(4 * number, 4 * number + 4)
        gpus = tuple(changed(gpu, nvml=n, scope="container") for n, gpu in enumerate(whole.identity.gpus[own]))
        peers = tuple(one for one in whole.hardware.peers if max(one.a, one.b) < 4)
        shape = changed(whole.hardware, gpus=whole.hardware.gpus[own], peers=peers)
        state = changed(
            whole.state, gpus=tuple(changed(gpu, gpu=n) for n, gpu in enumerate(whole.state.gpus[own]))
        )
        view = changed(
            whole,
            identity=changed(
                whole.identity, gpus=gpus, host=changed(whole.identity.host, name=f"pod-{number}", machine_id=None)
            ),
            hardware=shape,
            state=state,
            ranks=tuple(changed(claim, gpu=n) for n, claim in enumerate(whole.ranks[own])),
            limits=changed(BARE_METAL, scope="container", container=f"{number}d" * 32),
            environment={k: v for k, v in whole.environment.items() if k != "SLURM_JOB_GPUS"},
        )
        views.append(view)
    passing = (ONE_NODE | {"TP002", "NV001"}) - {"ID012", "OBS001", "TP007"}
    return SetUp(vllm(4, 2, TWO[:1]).replace("[gpu-1]", "1"), views, passing)


def spares() -> SetUp:
    """An odd number of nodes, and hot spares without ranks."""
    text = "engine: torch\nparallel: {data: 24}\nnodes: {min: 2, max: 5}\n"
    seat = {"engine": "torch", "software": {"engine_version": "2.9.0"}}
    working = nodes(HGX_H100, "gpu-1", "gpu-2", "gpu-3", **seat)
    idle = [node(HGX_H100, Seat(f"spare-{n}", 7 + n, **seat)) for n in range(2)]
    passing = (KNOWN | ALIKE | NETWORK) - {"ID010", "ID012", "OBS001"}
    return SetUp(text, [*working, *idle], passing)


def full_names() -> SetUp:
    """The plan has full names and the hosts know their first labels."""
    text = vllm(8, 2, [f"{name}.cluster.example.org" for name in TWO])
    return SetUp(text, boxes(HGX_H100, 8, 2), SEVERAL | NVLINK | STAGES)


WARNED = """\
INFO 06-02 09:14:01 [api_server.py:1977] vLLM API server version 0.12.0
WARNING 06-02 09:14:03 [ray_utils.py:332] Tensor parallel size (16) exceeds available GPUs (8). This may \
result in Ray placement group allocation failures. Consider reducing tensor_parallel_size to 8 or less, or \
ensure your Ray cluster has 16 GPUs available.
"""
"""vLLM takes the world for TP and one node for the cluster."""


def warned() -> SetUp:
    """A launch in which vLLM warns of a TP that nobody asked for."""
    parsed = vllm_log.parse(parse_text(WARNED.encode(), "vllm.log"))
    said = [snapshot for reading in parsed for snapshot in reading.snapshots]
    assert said
    return SetUp(vllm(8, 2), [*boxes(HGX_H100, 8, 2), *said], SEVERAL | NVLINK | STAGES)


SET_UPS: dict[str, Callable[[], SetUp]] = {
    made.__name__: made
    for made in (
        hgx,
        dgx1v,
        bridged,
        geforce,
        l40s,
        nvl72_stages,
        nvl72_tensor,
        pods,
        own_names,
        loopback,
        ray_head,
        epyc,
        two_replicas,
        dense,
        seen_groups,
        virtual_functions,
        asleep,
        azure,
        slice_of_one,
        superchips,
        sparks,
        efa,
        storage,
        one_gpu_a_task,
        two_pods,
        spares,
        full_names,
        warned,
    )
}


def verified(made: SetUp) -> Report:
    """What verify says."""
    return answer(Declared(plan(made.plan)), inventory(*made.evidence), [], Gate(), at=AT, whole=True)


@pytest.mark.parametrize("name", SET_UPS)
def test_a_healthy_set_up_is_accused_by_nobody_and_passes_what_matters(name: str) -> None:
    made = SET_UPS[name]()
    found = verified(made)
    said = [f"{rule.id} {f.severity} {f.message}" for rule in found.rules for f in rule.findings]
    assert [words for words in said if " error " in words] == []
    assert {words.split()[0] for words in said} == made.warns, said
    assert {rule.id: rule.verdict for rule in found.rules if rule.id in made.passing and rule.verdict != "pass"} == {}
    required = {rule.id for rule in found.rules if rule.required and rule.verdict == "unknown"}
    assert required == made.undecided
    assert found.exit_code == (3 if made.undecided else 0)


def test_every_rule_that_has_to_pass_somewhere_exists() -> None:
    asked = set().union(*(made().passing | made().warns for made in SET_UPS.values()))
    assert asked <= {rule.id for rule in RULES}


@pytest.mark.parametrize("name", ["hgx", "dense", "two_replicas"])
def test_the_order_of_the_evidence_changes_no_byte(name: str) -> None:
    made = SET_UPS[name]()
    orders = list(permutations(made.evidence))[:6]
    told = {msgspec.json.encode(verified(replace(made, evidence=order))) for order in orders}
    assert len(told) == 1
