"""What the processes of the job claim and show, and what is stated about the job as a whole."""

from __future__ import annotations

from typing import Literal

from topocheck.snapshot.record import At, Record

__all__ = [
    "CommRank",
    "Edge",
    "FamilyDisagreement",
    "JobFact",
    "LogFact",
    "NestedLaunch",
    "NodeClaim",
    "Observed",
    "RankClaim",
]


class RankClaim(Record, frozen=True, kw_only=True):
    """What one process of the job says about itself in its environment."""

    rank: int
    """Global rank in its world."""
    world: str = ""
    """Name of the world in a plan with several; empty for the only one."""
    size: int | None = None
    """World size it was given."""
    local_rank: int | None = None
    """Local rank it was given."""
    node_rank: int | None = None
    """Node rank it was given."""
    gpu: int | None = None
    """Ordinal in `identity.gpus` of the device that it will use, resolved by UUID."""
    pid: int | None = None
    """Process id on the host, if known."""
    family: str | None = None
    """Launcher family that the numbers come from: torchrun, slurm, openmpi ..."""
    at: At | None = None
    """Where it was read; None means the rank probe of this node."""


class NodeClaim(Record, frozen=True, kw_only=True):
    """What a launcher says about this node where it numbers nodes or pods, and not the job's processes.

    Such a number is no rank: engines make ranks of it by formulas of their own.
    """

    node_rank: int
    """Index of the node, or of the pod, among those that the launcher numbers."""
    nodes: int | None = None
    """How many there are."""
    local_size: int | None = None
    """Processes that are to be started on each of them."""
    world: str = ""
    """What the index counts in, where the launcher has several: a group of pods, a child job."""
    family: str | None = None
    """Launcher family that the numbers come from: lws, indexed_job, torchrun, slurm ..."""
    at: At | None = None
    """Where it was read; None means the rank probe of this node."""


class FamilyDisagreement(Record, frozen=True, kw_only=True):
    """Two launcher families that number one process differently: one of them numbers something else."""

    what: Literal["rank", "local_rank", "size"]
    """Which number."""
    family: str
    """Launcher family that the claim of the process is taken from: torchrun, script, slurm ..."""
    variable: str
    """Its variable."""
    value: int
    """What it holds."""
    other_family: str
    """The other family."""
    other_variable: str
    """Its variable."""
    other_value: int
    """What that one holds."""
    pid: int | None = None
    """Process id on the host, if known."""
    at: At | None = None
    """Where it was read; None means the rank probe of this node."""


class NestedLaunch(Record, frozen=True, kw_only=True):
    """A launcher whose agents another one started, as a process that both left their variables in sees it."""

    family: str
    """The inner launcher, whose processes are the job's."""
    processes: int
    """Processes that each of its agents starts."""
    outer: str
    """The launcher that started the agents."""
    tasks: int
    """Agents that it started on this node."""
    at: At | None = None
    """Where it was read; None means the rank probe of this node."""


class CommRank(Record, frozen=True, kw_only=True):
    """One membership: a process is rank `rank` of one communicator. Ranks are the communicator's own."""

    comm: str
    """commId, or a name made of host, pids and size where the log has none."""
    size: int | None = None
    """Number of ranks of the communicator."""
    rank: int
    """Rank inside the communicator."""
    gpu: int | None = None
    """Ordinal in `identity.gpus`."""
    cuda: int | None = None
    """CUDA device number in the process."""
    pid: int | None = None
    """Process id in the log line."""
    phase: Literal["start", "complete", "destroyed", "seen"] = "seen"
    """How far initialisation got, by the last line seen."""
    clique_size: int | None = None
    """cliqueSize of an active MNNVL clique; None if MNNVL is off or not shown."""
    clique: str | None = None
    """cliqueId of that clique."""
    at: At | None = None
    """Where it was read."""


class Edge(Record, frozen=True, kw_only=True):
    """One connection between two ranks of a communicator, seen by the process at one end."""

    src: int
    """Sending rank, inside the communicator."""
    dst: int
    """Receiving rank, inside the communicator."""
    via: Literal["P2P", "SHM", "NET", "COLLNET", "NVLS"]
    """Transport class."""
    how: str = ""
    """The transport as the log spells it: P2P/CUMEM, NET/IB/0/GDRDMA."""
    network: str | None = None
    """For NET the plugin: IB, Socket, AWS Libfabric."""
    gdr: bool | None = None
    """For NET whether GPUDirect RDMA is used."""
    side: Literal["send", "receive"] | None = None
    """Which end logged it, for NET."""
    src_dev: str | None = None
    """Device of the sender as printed: bus id or NVML index by version."""
    dst_dev: str | None = None
    """Device of the receiver as printed."""
    comm: str | None = None
    """Communicator it belongs to; None is unattributed and accuses nobody."""
    pid: int | None = None
    """Process that logged it."""
    at: At | None = None
    """Where it was read."""


class LogFact(Record, frozen=True, kw_only=True):
    """One statement of a log that a rule may use, in a closed vocabulary."""

    kind: str
    """What is stated, for instance `network`, `duplicate-gpu`, `abort`, `gdr-disabled`, `hca`."""
    value: str = ""
    """The value stated."""
    pid: int | None = None
    """Process that stated it."""
    at: At | None = None
    """Where it was read."""


class Observed(Record, frozen=True, kw_only=True):
    """What the running job showed of itself on this node."""

    library: str | None = None
    """Communication library and version: `NCCL 2.29.7`."""
    comms: tuple[CommRank, ...] = ()
    """Memberships of the processes of this node."""
    edges: tuple[Edge, ...] = ()
    """Connections logged on this node."""
    facts: tuple[LogFact, ...] = ()
    """Further statements."""


class JobFact(Record, frozen=True, kw_only=True):
    """One statement about the whole job: a launch command, a script, a manifest or a start-up log made it.

    It speaks of the job whatever host it was found on. `kind` is from a closed vocabulary:

    engine, engine-version      value: name as in a plan; version
    requested-size, size        name: axis as in `parallel:`, value: number; asked for, and in force
    world, nodes                value: number of ranks, of nodes
    processes, processes-per-node, gpus-per-node, gpus-per-task, local-gpus   value: number; name: who is told
                                so, `launcher` (srun, mpirun: tasks), `agent` (torchrun, deepspeed: processes
                                that one task starts) or the role in a manifest
    node-rank                   value: number given on a command line, or `constant N` in a template whose
                                role is the name
    node-order                  value: host names in the launcher's order, separated by blanks
    host-slots, include         name: host, value: slots; list of GPU indexes selected on it
    launcher                    name: program, value: launchers in front, outermost first: `srun torchrun`
    pods                        name: role in a manifest, value: number of its pods in one copy of the job
    replicas                    name: kind of manifest, value: copies of the whole job, each its own world
    cluster-nodes, cluster-gpus name: resource manager, value: number that it offers, to this job or another
    cluster-node                name: id or address of a node that the resource manager knows, value: its
                                address where the name is an id
    cluster-node-gpus           name: id of such a node, value: number of GPUs that it offers
    unresolved                  name: flag, after its launcher, value: what only the shell knows, `$NNODES`
    rendezvous                  name: subsystem (master, dist-init, dp-master, gloo), value: address[:port]
    layers                      value: layers of each stage, `15,15,16,15`
    order                       value: order of the axes in the engine's own notation
    model-size                  name: key of `model:` in a plan, value: number
    unread                      value: file of settings that a command names and that was not read
    option                      name: variable or flag that a rule may look at, value: its value
    rank                        name: host if known, value: a global rank that announced itself
    node-ranks                  name: node rank, value: the global ranks on that node, `0,1,2,3`
    rank-coordinate             name: axis, value: a coordinate that some rank bears (log prefix, title)
    coordinates                 name: global rank, value: where the engine put it, `pipeline 1, tensor 3`
    process                     name: pid, value: its coordinates by its title, `pipeline 1, tensor 3`, or by
                                its launcher `local rank 3`
    device                      name: coordinates, value: index of the physical GPU that they drive
    nvlink-domain               name: global rank, value: cluster UUID and clique of its GPU's NVLink fabric,
                                32 hex digits, a dot and a number; all zero means none beyond the host
    switch-nodes                name: who says it, a slash and a switch, `slurm/leaf0`, value: its hosts with
                                blanks between
    switch-links                name: such a switch, value: others that it is joined to, in a tree those below
    group-spans-nodes           name: axis, value: the engine's own words
    reserved-gpus               name: node, value: number of GPUs that the scheduler gave the job there
    bundles                     name: node that one is pinned to, value: number of Ray bundles waited for
    gpu-models                  value: distinct models in one node, `A, B`
    unsupported-gpu             name: model, value: `sm_120`, which the job's PyTorch was not built for
    group-init                  name: coordinates of a rank, value: begin or end of the building of its groups
    free-memory                 name: coordinates of a rank, value: GB left on its GPU with the weights loaded
    kv-tokens                   value: tokens that the KV cache holds
    first-gpu                   name: a replica, value: number of its first GPU, base_gpu_id not counted
    store-clients               value: `2/8`, clients that had joined when a rendezvous store gave up
    device-error                name: host if known, value: a rank whose device number is invalid
    refused                     value: the engine's own words when it refused to start
    abort                       value: the line by which initialisation ended
    restart                     value: how many times the launcher started its workers again, or its words
    request-done, request-failed  name: path of the request, value: status by which the server answered it
    step-done                   value: number of a training step that ended
    """

    kind: str
    """What is stated."""
    name: str = ""
    """About which axis, host, subsystem or option."""
    value: str = ""
    """What it says."""
    engine: str | None = None
    """Engine whose words these are."""
    host: str | None = None
    """Host whose process said it, where the text names one."""
    at: At | None = None
    """Where it was read."""
