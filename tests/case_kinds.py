"""Kinds of fault that people reported and no collected input shows, each as a job of our own.

Values are made. Where the fault was seen in text, the fixture is such a text and goes through its parser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from boxes import GB200, HGX_H100, RTX4090
from build import FOUR, TWO, claims, gpus, pair, snap
from healthy import nodes
from made_limits import ticking
from made_occupancy import left_over, using
from made_versions import PLAN as ON_FOUR
from made_versions import nodes as on_four
from msgspec.structs import replace as changed

from topocheck.probes.capture import gpu_list, nccl_log, slurm_script, topo_matrix
from topocheck.probes.capture.reading import Parser
from topocheck.probes.capture.text import parse_text
from topocheck.snapshot import (
    SCHEMA,
    At,
    Fabric,
    FullSnapshot,
    Host,
    Identity,
    JobFact,
    NcclFile,
)

__all__ = ["MADE", "ON_FOUR", "RAY", "REFUSED", "Job", "on_ray", "read", "without_verbs"]

Job = tuple[str, Sequence[FullSnapshot]]
"""Plan and evidence."""


def read(parse: Parser, text: str, host: str | None = None) -> list[FullSnapshot]:
    """What a parser makes of a text, given as one of a host if it is named."""
    readings = parse(parse_text(text.encode(), "capture.txt"))
    found = [snapshot for reading in readings for snapshot in reading.snapshots]
    assert found
    return [named(view, host) for view in found] if host else found


def named(view: FullSnapshot, host: str) -> FullSnapshot:
    """The same of this host."""
    return changed(view, identity=changed(view.identity, host=Host(name=host)))


def stated(*facts: tuple[str, str, str]) -> FullSnapshot:
    """What a vLLM command or log states: (kind, name, value)."""
    job = tuple(
        JobFact(kind=kind, name=name, value=value, engine="vllm", at=At(source="engine.log", line=line))
        for line, (kind, name, value) in enumerate(facts, 1)
    )
    return FullSnapshot(schema=SCHEMA, identity=Identity(host=Host()), job=job)


# C03: the driver's node is not in Ray's placement group.

IDS = {letter: letter * 56 for letter in "abcd"}
CLUSTER = [
    (kind, IDS[letter], value)
    for place, letter in enumerate("abcd", 1)
    for kind, value in (("cluster-node", f"10.44.0.{place}"), ("cluster-node-gpus", "2"))
]
RAY = "engine: vllm\nengine_version: {}\nlauncher: ray\nparallel: {{tensor: 4}}\nnodes: 2\n"
REFUSED = """\
INFO 03-10 08:00:09 llm_engine.py:72] Initializing an LLM engine (v0.7.2) with config: model='m'
ValueError: Ray does not allocate any GPUs on the driver node.Driver IP: 10.44.0.1, worker IPs: \
['10.44.0.3', '10.44.0.3', '10.44.0.4', '10.44.0.4'].Consider adjusting the Ray placement group or running \
the driver on a GPU node.
"""


def on_ray(*reserved: str, driver: str = "10.44.0.1") -> FullSnapshot:
    """A cluster of four nodes with two GPUs each, the bundles, and where the workers meet the driver."""
    bundles = [("reserved-gpus", IDS[letter], "2") for letter in reserved]
    return stated(*CLUSTER, ("rendezvous", "dist-init", f"tcp://{driver}:4100"), *bundles)


def driver_outside() -> Job:
    """Bundles on the third and fourth node, the driver on the first."""
    return RAY.format("0.7.2"), [on_ray("c", "d")]


# C07: two sources of the node order; ranks dealt out in turn.


def by_two_orders() -> Job:
    """Launched in the order that Slurm's topology gave, ranks counted in that of the host list."""
    first, second = pair()
    return TWO, [
        changed(first, ranks=claims(range(4, 8), node_rank=0)),
        changed(second, ranks=claims(range(4), node_rank=1)),
    ]


def cyclic() -> Job:
    """--distribution=cyclic: every second rank."""
    return TWO, [snap("node-a", (0, 2, 4, 6)), snap("node-b", (1, 3, 5, 7))]


# C12: the launcher takes visible indexes for slots of the machine.


def beyond_the_cgroup() -> Job:
    """Slurm gave GPUs 4-7, the cgroup shows them as 0-3, and the script exports the machine's numbers."""
    listed = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    return FOUR, [snap("node-a", range(4), size=4, environment=listed)]


def others_gpus() -> Job:
    """Slurm gave GPUs 4-7, and the processes run on 0-3."""
    known = tuple(changed(gpu, minor=n) for n, gpu in enumerate(gpus("node-a", 8)))
    view = snap("node-a", range(4), count=8, size=4, environment={"SLURM_JOB_GPUS": "4,5,6,7"})
    return FOUR, [changed(view, identity=changed(view.identity, gpus=known))]


# C17: srun starts torchruns, each of which starts processes.

NESTED = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 train.py
"""


def nested() -> Job:
    """Eight tasks a node, eight processes in each."""
    return "engine: torch\nparallel: {data: 16}\nnodes: 2\n", read(slurm_script.parse, NESTED)


# C20: tensor parallelism over MIG slices.

SLICES = """\
user@gpu-7:~$ nvidia-smi -L
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-71717171-0a0a-0b0b-0c0c-000000000001)
  MIG 3g.40gb     Device  0: (UUID: MIG-21212121-3434-5656-7878-000000000001)
  MIG 3g.40gb     Device  1: (UUID: MIG-21212121-3434-5656-7878-000000000002)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-71717171-0a0a-0b0b-0c0c-000000000002)
  MIG 3g.40gb     Device  0: (UUID: MIG-21212121-3434-5656-7878-000000000003)
  MIG 3g.40gb     Device  1: (UUID: MIG-21212121-3434-5656-7878-000000000004)
"""


def sliced() -> Job:
    """TP 2 where both GPUs are cut."""
    return "engine: vllm\nparallel: {tensor: 2}\nnodes: 1\n", read(gpu_list.parse, SLICES)


# C26: a bridge that does not sit well.

LESSER = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tSYS\tSYS\t0-15\t0
GPU1\tNV4\t X \tSYS\tSYS\t0-15\t0
GPU2\tSYS\tSYS\t X \tNV3\t16-31\t1
GPU3\tSYS\tSYS\tNV3\t X \t16-31\t1
"""


def lesser_bridge() -> Job:
    """One pair with three lanes where the other one has four."""
    return "engine: vllm\nparallel: {tensor: 2, pipeline: 2}\nnodes: 1\n", read(topo_matrix.parse, LESSER)


# C29: peer access that only a patched driver grants.


def patched() -> Job:
    """Two GeForce boards on one host bridge, peer access OK."""
    return "engine: vllm\nparallel: {tensor: 2}\nnodes: 1\n", nodes(
        replace(RTX4090, peers=True), "gpu-1", each=2
    )


# C38: libibverbs is not in the image.

NO_VERBS = """\
{0}:4100:4200 [0] NCCL INFO Bootstrap : Using eth0:10.45.0.{1}<0>
{0}:4100:4200 [0] NCCL INFO Failed to open libibverbs.so[.1]
{0}:4100:4200 [0] NCCL INFO NET/Socket : Using [0]eth0:10.45.0.{1}<0>
{0}:4100:4200 [0] NCCL INFO Using network Socket
{0}:4100:4200 [0] NCCL INFO ncclCommInitRank comm 0x55aa rank {2} nranks {3} cudaDev 0 nvmlDev 0 busId 1b000 \
commId 0x77bb - Init COMPLETE
"""


def without_verbs(hosts: int = 2) -> Job:
    """A stage on each of so many hosts."""
    names = [f"pod-{n}" for n in range(hosts)]
    logs = [read(nccl_log.parse, NO_VERBS.format(name, n + 1, n, hosts)) for n, name in enumerate(names)]
    text = f"engine: vllm\nparallel: {{pipeline: {hosts}}}\nnodes: [{', '.join(names)}]\n"
    return text, [view for views in logs for view in views]


# C44: NICs by other names and places on each node, and what the filter makes of them.

HCAS = {"NCCL_IB_HCA": "^=mlx5_8,^=mlx5_14"}
TWO_BY_EIGHT = "engine: vllm\nparallel: {tensor: 8, pipeline: 2}\nnodes: [gpu-1, gpu-2]\n"


def misread_filter() -> Job:
    """Marks that count once, at the front, repeated in the list."""
    return TWO_BY_EIGHT, nodes(HGX_H100, "gpu-1", "gpu-2", variables=HCAS)


def other_names() -> Job:
    """One list for all nodes, and a node that calls its devices otherwise."""
    own = {"NCCL_IB_HCA": "=mlx5_0,mlx5_3,mlx5_5,mlx5_8"}
    first = nodes(
        HGX_H100,
        "gpu-1",
        "gpu-2",
        variables=own,
        nics=tuple(f"mlx5_{n}" for n in (0, 3, 5, 8, 9, 10, 11, 12)),
    )
    second = nodes(
        HGX_H100, "gpu-1", "gpu-2", variables=own, nics=tuple(f"mlx5_{n}" for n in (0, 1, 4, 5, 6, 7, 9, 10))
    )
    return TWO_BY_EIGHT, [first[0], second[1]]


def stale_file() -> Job:
    """An image that still has the nccl.conf of another machine."""
    first, second = nodes(HGX_H100, "gpu-1", "gpu-2")
    conf = NcclFile(path="/etc/nccl.conf", kind="settings", settings={"NCCL_IB_HCA": "=mlx5_0,mlx5_1"})
    return TWO_BY_EIGHT, [first, changed(second, files=(conf,))]


def fewer_nics() -> Job:
    """A node that shows six of eight."""
    first, second = nodes(HGX_H100, "gpu-1", "gpu-2")
    shape = changed(second.hardware, nics=second.hardware.nics[:6])
    less = changed(second, hardware=shape, identity=changed(second.identity, nics=second.identity.nics[:6]))
    network = changed(less.network, nics=less.network.nics[:6])
    state = changed(less.state, ports=tuple(port for port in less.state.ports if port.nic < 6))
    return TWO_BY_EIGHT, [first, changed(less, network=network, state=state)]


# C54: versions.


def other_driver() -> Job:
    """535.171.04 beside 535.161.07."""
    return ON_FOUR, on_four(driver="535.161.07")


def other_nccl() -> Job:
    """Another NCCL in one image."""
    return ON_FOUR, on_four(nccl="2.18.1")


def other_engine() -> Job:
    """Another vLLM in one image."""
    return ON_FOUR, on_four(engine_version="0.4.0")


# C55: the node rank is missing, or the same everywhere.


def constant_node_rank() -> Job:
    """A script with --node_rank=0 for all nodes."""
    views = [changed(view, ranks=claims(range(4), node_rank=0)) for view in pair()]
    return TWO, views


# C59: what an earlier job left on the GPUs.


def left_behind() -> Job:
    """70 GiB of a process that is twelve days old."""
    return TWO, using(left_over)


# C62: clocks.


def drifting() -> Job:
    """Two seconds."""
    return TWO, ticking(error_seconds=2.0)


def far_apart() -> Job:
    """A quarter of an hour."""
    return TWO, ticking(error_seconds=900.0)


# C67: a GPU without links in a rack whose fabric says that all is well.

WELL = Fabric(cluster_uuid="9e" * 16, clique=32766, state="Completed", status="Success", health_mask=0xAA)
TRAYS = "engine: vllm\nparallel: {tensor: 8}\nnodes: [tray-1, tray-2]\npolicy: {tensor_domain: nvlink}\n"


def unlinked() -> Job:
    """Rank 5: its links are there and none is active."""
    first, second = (changed(view, fabric=(WELL,)) for view in nodes(GB200, "tray-1", "tray-2"))
    dark = tuple(changed(link, active=False) for link in second.hardware.gpus[1].links or ())
    shapes = tuple(changed(gpu, links=dark) if n == 1 else gpu for n, gpu in enumerate(second.hardware.gpus))
    return TRAYS, [first, changed(second, hardware=changed(second.hardware, gpus=shapes))]


# C68: two devices have swapped their names.


def swapped() -> Job:
    """After a reboot mlx5_0 is where mlx5_1 was, on one host."""
    names = ("mlx5_1", "mlx5_0", *(f"mlx5_{n}" for n in range(2, 8)))
    first, _ = nodes(HGX_H100, "gpu-1", "gpu-2")
    _, second = nodes(HGX_H100, "gpu-1", "gpu-2", nics=names)
    return TWO_BY_EIGHT, [first, second]


MADE: dict[str, Callable[[], Job]] = {
    made.__name__: made
    for made in (
        driver_outside,
        by_two_orders,
        cyclic,
        beyond_the_cgroup,
        others_gpus,
        nested,
        sliced,
        lesser_bridge,
        patched,
        without_verbs,
        misread_filter,
        other_names,
        stale_file,
        fewer_nics,
        other_driver,
        other_nccl,
        other_engine,
        constant_node_rank,
        left_behind,
        drifting,
        far_apart,
        unlinked,
        swapped,
    )
}
