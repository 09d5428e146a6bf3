"""What one node shows: the evidence, as frozen typed data.

A Snapshot is one JSON document a node; a stream of them has one document a line. Its parts are
kept apart on purpose: `hardware` is the shape of the node without any identity, and stays raw
bytes until somebody asks, because thousands of nodes share a few dozen shapes; `identity` names
the parts by the same ordinals; `state` is what changes by itself.

None means "not known", never zero. Whether absence may be concluded is said by `Coverage`.
The text under each field is what `topocheck schema snapshot` prints.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "SCHEMA",
    "At",
    "Clock",
    "CommRank",
    "Coverage",
    "Edge",
    "Fabric",
    "FullSnapshot",
    "Gid",
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
    "NcclFile",
    "Netdev",
    "NicId",
    "NicShape",
    "NicState",
    "NodeClaim",
    "NvLink",
    "Observed",
    "PciLink",
    "PciNode",
    "PeerAccess",
    "Platform",
    "Port",
    "PortState",
    "ProbeFault",
    "Process",
    "RankClaim",
    "Snapshot",
    "Software",
    "Source",
    "State",
    "Verbs",
    "VerbsDevice",
]

SCHEMA = "topocheck.snapshot/1"

Extent = Literal["all", "part"]
Scope = Literal["host", "container", "task", "unknown"]


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of all evidence: immutable, compact in JSON, tolerant of fields from newer probes."""


class At(Record, frozen=True, kw_only=True):
    """Where a fact was read."""

    source: str
    """Name of a source of this snapshot: a file as the user gave it, or a probe and its path."""
    line: int | None = None
    """Line in that source, counted from 1; None where the source has no lines."""


class Source(Record, frozen=True, kw_only=True):
    """One input that contributed to this snapshot."""

    name: str
    """File name as the user gave it, or the probe's name."""
    kind: str
    """What it was recognised as, for instance `nvidia-smi topo -m` or `nccl log`."""
    digest: str | None = None
    """`sha256:` and the hex digest of its bytes; None for a live probe."""


class Coverage(Record, frozen=True, kw_only=True):
    """May one conclude from absence? `all` says yes, `part` no, None that nothing was looked at."""

    gpus: Extent | None = None
    """The list of GPUs of the node."""
    links: Extent | None = None
    """NVLink and PCIe relations between the GPUs."""
    nics: Extent | None = None
    """The list of RDMA devices and their ports."""
    ranks: Extent | None = None
    """The ranks of the job on this node."""
    observed: Extent | None = None
    """The log lines or processes of the running job."""


class Host(Record, frozen=True, kw_only=True):
    """Which machine this is. A host is its boot id; a name is a label."""

    name: str | None = None
    """Host name as the machine or the log says it; untrusted text."""
    boot_id: str | None = None
    """/proc/sys/kernel/random/boot_id: the same for all containers of one running kernel."""
    machine_id: str | None = None
    """/etc/machine-id; cloned images share it, so it never identifies alone."""
    aliases: tuple[str, ...] = ()
    """Further names: Kubernetes node name, FQDN, address, the label the user gave."""


class MigDevice(Record, frozen=True, kw_only=True):
    """One slice of a GPU in MIG mode."""

    uuid: str | None = None
    """`MIG-` and 8-4-4-4-12 hex digits."""
    name: str | None = None
    """Product name with the profile: `NVIDIA H100 80GB HBM3 MIG 1g.10gb`."""
    gpu_instance: int | None = None
    """GPU instance id on its GPU."""
    compute_instance: int | None = None
    """Compute instance id inside the GPU instance."""


class Platform(Record, frozen=True, kw_only=True):
    """Where a GPU sits in its rack (nvmlDeviceGetPlatformInfo, Blackwell and newer)."""

    chassis: str | None = None
    """Serial number of the chassis; in version 1 of the structure the GUID of the rack, in hex digits."""
    slot: int | None = None
    """Slot in the chassis, switch trays counted."""
    tray: int | None = None
    """Index among the compute trays."""
    host: int | None = None
    """Index of the node inside the slot."""
    peer_type: int | None = None
    """Kind of NVLink peer as the platform codes it, for instance switch present or not."""
    module: int | None = None
    """GPU inside the node, as the platform counts."""
    guid: str | None = None
    """InfiniBand GUID of the GPU, hex digits."""


class GpuId(Record, frozen=True, kw_only=True):
    """One GPU of the node; its place in the list is its ordinal."""

    uuid: str | None = None
    """`GPU-` and 8-4-4-4-12 hex digits, as NVML and nvidia-smi -L print it."""
    bus: str | None = None
    """PCI address in lower case with a domain of at least four digits: `0000:1b:00.0`."""
    nvml: int | None = None
    """NVML index in the scope named by `scope`; containers renumber it."""
    scope: Scope = "unknown"
    """Whose numbering `nvml` is."""
    model: str | None = None
    """Product name, where the source of the identity shows it."""
    serial: str | None = None
    """Board serial; None on boards without one."""
    module: int | None = None
    """Position on the baseboard from 1, which is not the order of indexes; None off a baseboard."""
    minor: int | None = None
    """N of /dev/nvidiaN: the host's number, in a container too."""
    platform: Platform | None = None
    """Place in the rack, where the platform tells."""
    mig: tuple[MigDevice, ...] = ()
    """Slices, where MIG mode is on."""
    hive: str | None = None
    """XGMI hive (AMD), 16 hex digits; GPUs of one hive reach each other without PCIe."""


class NicId(Record, frozen=True, kw_only=True):
    """One RDMA device of the node; its place in the list is its ordinal."""

    name: str
    """Kernel name, for instance `mlx5_0`; not stable over reboots."""
    bus: str | None = None
    """PCI address of its function."""
    guid: str | None = None
    """Node GUID, 16 hex digits in groups of four."""
    card: str | None = None
    """System image GUID in the same form: ports and functions of one card share it."""


class Identity(Record, frozen=True, kw_only=True):
    """Names of everything in `hardware`, by the same ordinals."""

    host: Host
    """The machine."""
    gpus: tuple[GpuId, ...] = ()
    """GPUs in the order of `hardware.gpus`."""
    nics: tuple[NicId, ...] = ()
    """RDMA devices in the order of `hardware.nics`."""


class Fabric(Record, frozen=True, kw_only=True):
    """The NVLink fabric as some GPUs of the node report it; GPUs that agree share one entry."""

    gpus: tuple[int, ...] = ()
    """Ordinals in `identity.gpus`; () is all GPUs of the node."""
    unnamed: bool = False
    """It is of some GPU of the node and the text does not show of which; `gpus` is () then too."""
    cluster_uuid: str | None = None
    """Cluster UUID, 32 hex digits in the order of nvidia-smi, dashes removed;
    all zero means no domain beyond this host."""
    clique: int | None = None
    """Clique id; means nothing without the cluster UUID."""
    state: str | None = None
    """State in nvidia-smi's word: Completed, In Progress, Not Started, Not Supported."""
    status: str | None = None
    """Status in nvidia-smi's words; meaningful only when the state is Completed."""
    health_mask: int | None = None
    """Health, two bits a field: 0 not supported, 1 true, 2 false."""
    health: str | None = None
    """Health in one word, where the driver sums it up: Healthy, Unhealthy, Limited Capacity."""
    at: At | None = None
    """Where it was read."""


class NvLink(Record, frozen=True, kw_only=True):
    """One NVLink of one GPU."""

    link: int
    """Link number on this GPU."""
    active: bool | None = None
    """Up (active or asleep); None where the driver did not say."""
    remote: Literal["gpu", "switch", "cpu"] | None = None
    """What the other end is; None where it is hidden (virtual machines, NVL72)."""
    peer: int | None = None
    """Ordinal of the GPU at the other end, if it is a GPU of this node."""
    version: int | None = None
    """nvmlDeviceGetNvLinkVersion: an enum, 5 is NVLink 3.1."""


class GpuShape(Record, frozen=True, kw_only=True):
    """One GPU without its identity."""

    model: str | None = None
    """Product name as NVML gives it."""
    memory_bytes: int | None = None
    """Total memory."""
    sm: int | None = None
    """CUDA compute capability without its dot: 90 is 9.0."""
    numa: int | None = None
    """NUMA node; None where the machine says -1 or N/A."""
    pci: str | None = None
    """Id of its node in the PCI tree of this snapshot."""
    links: tuple[NvLink, ...] | None = None
    """All NVLinks that the board has; () is proven to have none, None is not known."""
    nvlinks: int | None = None
    """Number of active links, where only the number is known."""
    nvswitch: bool | None = None
    """The links lead to NVSwitches."""
    mig: bool | None = None
    """MIG mode is on; None on boards without it."""
    cpu_affinity: str | None = None
    """CPUs near it as the driver says, `0-31,64-95`; in virtual machines often all of them."""
    memory_affinity: str | None = None
    """NUMA nodes near it as the driver says, `0` or `0-1`."""
    own_numa: int | None = None
    """NUMA node that its own memory is (Grace)."""


class Port(Record, frozen=True, kw_only=True):
    """One port of an RDMA device."""

    port: int = 1
    """Port number, counted from 1."""
    state: str | None = None
    """Logical state in the kernel's word: ACTIVE, DOWN, INIT, ARMED."""
    physical: str | None = None
    """Physical state in the kernel's word: LinkUp, Disabled, Polling."""
    layer: str | None = None
    """InfiniBand or Ethernet."""
    rate_gbps: float | None = None
    """Rate in Gbit/s; meaningless unless the port is up."""


class NicShape(Record, frozen=True, kw_only=True):
    """One RDMA device without its identity."""

    name: str
    """Kernel name; repeated here because NCCL selects devices by name."""
    kind: str | None = None
    """`rdma`, `bond`, `efa`, `slingshot` ..., by evidence and not by name."""
    numa: int | None = None
    """NUMA node."""
    pci: str | None = None
    """Id of its node in the PCI tree of this snapshot."""
    ports: tuple[Port, ...] = ()
    """Its ports as the probe or the capture found them."""
    model: str | None = None
    """Chip as the driver names it (hca_type): MT4129."""
    board: str | None = None
    """Board as the driver names it (board_id), a product and no serial: MT_0000000838."""
    firmware: str | None = None
    """Firmware version."""
    virtual: bool | None = None
    """A virtual function of a card that it shares."""


class PciNode(Record, frozen=True, kw_only=True):
    """One node of the PCI tree: a root complex, a bridge or a device."""

    id: str
    """Name inside this snapshot; equal machines have equal names."""
    parent: str | None = None
    """Id of the node above; None for a root complex."""
    kind: str | None = None
    """`root`, `bridge`, `gpu`, `nic` or `nvswitch`, by PCI class and vendor."""
    numa: int | None = None
    """NUMA node; of a root complex that of all its devices."""
    max_width: int | None = None
    """Lanes that it can drive; a link has those of its narrower end."""
    max_speed_gts: float | None = None
    """GT/s for each lane that it can drive."""
    acs: tuple[str, ...] | None = None
    """Access control that is on at a bridge, in lspci's words (ReqRedir sends peer traffic through the
    root complex); () is none."""
    iommu: str | None = None
    """Type of its IOMMU group: `identity` leaves peer traffic alone, `DMA` and `DMA-FQ` translate."""


class LinkMatrix(Record, frozen=True, kw_only=True):
    """Classes between devices as `nvidia-smi topo -m` prints them, or as NVML tells. Not a PCI tree.

    A cell is NV and the number of links, PIX, PXB, PHB, NODE, SYS, or None if the row was not shown.
    """

    gpus: tuple[tuple[str | None, ...], ...] = ()
    """Square over `hardware.gpus`; the diagonal is `X`."""
    nics: tuple[tuple[str | None, ...], ...] = ()
    """One row a GPU, one column an entry of `hardware.nics`."""


class PeerAccess(Record, frozen=True, kw_only=True):
    """Peer access between two GPUs as the driver reports it."""

    a: int
    """Ordinal of the reading GPU."""
    b: int
    """Ordinal of the GPU that is read."""
    status: str
    """OK, or NVML's reason: CNS, GNS, TNS, NS, U, DISABLED."""
    nvlink: str | None = None
    """The same for access by NVLink; hidden far ends do not hide it."""


class Hardware(Record, frozen=True, kw_only=True):
    """The shape of a node: equal for equal machines, no identity, no counters."""

    gpus: tuple[GpuShape, ...] = ()
    """GPUs by ordinal."""
    nics: tuple[NicShape, ...] = ()
    """RDMA devices by ordinal."""
    pci: tuple[PciNode, ...] = ()
    """PCI tree, parents before children; () if not read."""
    matrix: LinkMatrix | None = None
    """Table of link classes, if such a table was captured."""
    peers: tuple[PeerAccess, ...] = ()
    """Peer access as reported; pairs that were not asked are absent."""


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
    launcher                    name: program, value: launchers in front of it, outermost first: `srun torchrun`
    pods                        name: role in a manifest, value: number of its pods in one copy of the job
    replicas                    name: kind of manifest, value: copies of the whole job, each its own world
    cluster-nodes, cluster-gpus name: resource manager, value: number that it offers, to this job or another
    cluster-node                name: id or address of a node that the resource manager knows
    unresolved                  name: flag, after its launcher, value: what only the shell knows, `$NNODES`
    rendezvous                  name: subsystem (master, dist-init, dp-master, gloo), value: address[:port]
    layers                      value: layers of each stage, `15,15,16,15`
    option                      name: variable or flag that a rule may look at, value: its value
    rank                        name: host if known, value: a global rank that announced itself
    node-ranks                  name: node rank, value: the global ranks on that node, `0,1,2,3`
    rank-coordinate             name: axis, value: a coordinate that some rank bears (log prefix, process title)
    coordinates                 name: global rank, value: where the engine put it, `pipeline 1, tensor 3`
    process                     name: pid, value: its coordinates by its title, `pipeline 1, tensor 3`
    device                      name: coordinates, value: index of the physical GPU that they drive
    nvlink-domain               name: global rank, value: cluster UUID and clique of its GPU's NVLink fabric,
                                32 hex digits, a dot and a number; all zero means none beyond the host
    group-spans-nodes           name: axis, value: the engine's own words
    reserved-gpus               name: node, value: number of GPUs that the scheduler gave the job there
    bundles                     name: node that one is pinned to, value: number of Ray bundles waited for
    gpu-models                  value: distinct models in one node, `A, B`
    unsupported-gpu             name: model, value: `sm_120`, which the job's PyTorch was not built for
    store-clients               value: `2/8`, clients that had joined when a rendezvous store gave up
    device-error                name: host if known, value: a rank whose device number is invalid
    refused                     value: the engine's own words when it refused to start
    abort                       value: the line by which initialisation ended
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


class Software(Record, frozen=True, kw_only=True):
    """Versions in force on the node."""

    driver: str | None = None
    """GPU driver."""
    cuda: str | None = None
    """CUDA version that the driver supports."""
    nvml: str | None = None
    """NVML library."""
    cuda_runtime: str | None = None
    """CUDA version that the job's libraries are of."""
    nccl: str | None = None
    """NCCL that the job loads."""
    engine: str | None = None
    """Engine name."""
    engine_version: str | None = None
    """Engine version."""
    torch: str | None = None
    """PyTorch version."""
    hypervisor: str | None = None
    """What the machine is a virtual machine of, `unnamed` where it does not say; None if it shows none."""
    fabric_manager: str | None = None
    """NVIDIA's fabric manager, which has to be of the driver's version."""
    open_driver: bool | None = None
    """The NVIDIA kernel module is the open one, which can share GPU memory as dma-buf."""


class Limits(Record, frozen=True, kw_only=True):
    """Limits of the process that was looked at."""

    scope: Scope = "unknown"
    """Whose limits these are."""
    memlock_bytes: int | None = None
    """RLIMIT_MEMLOCK; -1 is unlimited."""
    ipc_lock: bool | None = None
    """CAP_IPC_LOCK is effective."""
    shm_bytes: int | None = None
    """Size of /dev/shm."""
    nofile: int | None = None
    """RLIMIT_NOFILE."""
    shm_free_bytes: int | None = None
    """Free part of /dev/shm."""
    memory_bytes: int | None = None
    """Memory that its cgroups allow; -1 is unlimited."""
    hugepages_bytes: int | None = None
    """Huge pages that are set aside on the machine, whole pool."""
    container: str | None = None
    """Container that it runs in, 64 hex digits."""


class VerbsDevice(Record, frozen=True, kw_only=True):
    """One /dev/infiniband/uverbsN: what a process opens to use an RDMA device."""

    name: str
    """uverbsN; empty where only the RDMA device is shown."""
    nic: str | None = None
    """Kernel name of its RDMA device."""
    openable: bool | None = None
    """The process that was looked at can open it; None where that was not tried."""
    reason: str = ""
    """The system's words where it cannot."""


class Library(Record, frozen=True, kw_only=True):
    """A shared library found by its file name; it was not loaded."""

    name: str
    """File name: libnccl-net-ofi.so."""
    folder: str
    """Where it lies."""
    searched: bool = True
    """The loader looks there: LD_LIBRARY_PATH, ld.so.conf or a standard folder."""


class Verbs(Record, frozen=True, kw_only=True):
    """What the process that was looked at has to work with for RDMA and GPUDirect."""

    scope: Scope = "unknown"
    """Whose view this is."""
    devices: tuple[VerbsDevice, ...] = ()
    """Device nodes that are there."""
    library: bool | None = None
    """libibverbs.so.1 can be loaded, as NCCL does; None where that was not tried."""
    providers: tuple[str, ...] = ()
    """Drivers of libibverbs that are installed: mlx5, efa."""
    peer_memory: str | None = None
    """Kernel module that gives NICs access to GPU memory: nvidia_peermem or nv_peer_mem; empty if all
    modules were listed and neither is loaded."""
    dma_buf: bool | None = None
    """Kernel and NVIDIA driver can share GPU memory as dma-buf instead; None without such a driver."""
    plugins: tuple[Library, ...] = ()
    """Network plugins of NCCL and RCCL, and libfabric."""


class NcclFile(Record, frozen=True, kw_only=True):
    """A file by which NCCL is told something that the environment does not show."""

    path: str
    """Where NCCL looks."""
    kind: Literal["settings", "topology", "graph"]
    """nccl.conf, a topology file or a graph file."""
    exists: bool = True
    """It is there; None of what it should say holds if it is not."""
    settings: dict[str, str] = {}
    """Variables that it sets where the environment does not, by allow-list."""


class Process(Record, frozen=True, kw_only=True):
    """A process that holds memory on a GPU."""

    pid: int
    """Process id on the host; 0 is another pid namespace."""
    memory_bytes: int | None = None
    """Memory it holds."""
    name: str | None = None
    """Command name; untrusted text."""


class GpuState(Record, frozen=True, kw_only=True):
    """What changes by itself on one GPU."""

    gpu: int
    """Ordinal in `identity.gpus`."""
    memory_used_bytes: int | None = None
    """Memory in use without the driver's reserve."""
    memory_reserved_bytes: int | None = None
    """The driver's reserve; None with drivers before 510, which count it as used."""
    processes: tuple[Process, ...] | None = None
    """Processes on it; None where nobody looked."""
    compute_mode: str | None = None
    """nvidia-smi's word: Default, Exclusive_Thread, Prohibited, Exclusive_Process."""
    mig_pending: bool | None = None
    """MIG mode will be on after the next reset."""
    ecc: bool | None = None
    """Error correction is on."""
    ecc_corrected: int | None = None
    """Corrected memory errors since the driver was loaded."""
    ecc_uncorrected: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    rows_remapped: int | None = None
    """Memory rows replaced by spare ones, ever."""
    remap_pending: bool | None = None
    """A row waits for a reset to be replaced."""
    remap_failed: bool | None = None
    """A row could not be replaced: the board has to be."""
    throttle: tuple[str, ...] | None = None
    """Why clocks are lowered, in nvidia-smi's words (hw_slowdown, sw_power_cap, gpu_idle); () is not."""
    nvlink_megabytes_per_s: tuple[int | None, ...] | None = None
    """Raw one-way rate of each NVLink: 26562 is a nominal 25 GB/s; None for a link that is down."""


class Gid(Record, frozen=True, kw_only=True):
    """One entry of a port's GID table that is set."""

    index: int
    """Place in the table, what NCCL_IB_GID_INDEX counts."""
    gid: str
    """Eight groups of four hex digits; `0000:0000:0000:0000:0000:ffff:` and an IPv4 address for RoCE."""
    type: str | None = None
    """`IB/RoCE v1` or `RoCE v2`; None where the driver does not say."""
    netdev: str | None = None
    """Network device whose address it is."""


class PortState(Record, frozen=True, kw_only=True):
    """What subnet manager, addresses and traffic make of one port."""

    port: int = 1
    """Port number, counted from 1."""
    lid: int | None = None
    """Local id that the subnet manager gave; 0 is none."""
    sm_lid: int | None = None
    """Local id of the subnet manager; 0 is none, as always with Ethernet."""
    gids: tuple[Gid, ...] | None = None
    """GIDs that are set; None if the table was not read."""
    gids_cut: bool = False
    """More GIDs may be set than are listed."""
    counters: dict[str, int] = {}
    """Traffic and errors since the driver was loaded, by the kernel's names; data in words of 4 bytes."""


class NicState(Record, frozen=True, kw_only=True):
    """What changes by itself on one RDMA device."""

    nic: int
    """Ordinal in `identity.nics`."""
    ports: tuple[PortState, ...] = ()
    """Its ports."""


class Netdev(Record, frozen=True, kw_only=True):
    """One network device in the network namespace that was looked at."""

    name: str
    """Kernel name: eth0."""
    kind: str | None = None
    """`physical`, `bond`, `bridge`, `vlan`, `loopback` or `virtual`, by evidence and not by name."""
    layer: str | None = None
    """`ethernet`, `infiniband` or `loopback`, by hardware type."""
    state: str | None = None
    """operstate in the kernel's word: up, down, unknown (loopback and some tunnels)."""
    mtu: int | None = None
    """Largest packet in bytes."""
    speed_gbps: float | None = None
    """Speed; None while down and for devices that have none."""
    addresses: tuple[str, ...] | None = None
    """IPv4 and IPv6 addresses with prefix length, `192.0.2.7/24`; None if not known."""
    master: str | None = None
    """Bond or bridge that it is a member of."""
    members: tuple[str, ...] = ()
    """Members of a bond."""
    bus: str | None = None
    """PCI address of its function."""


class PciLink(Record, frozen=True, kw_only=True):
    """The link from a node of the PCI tree upwards as it is now; idle GPUs lower its speed."""

    node: str
    """Id in `hardware.pci`."""
    width: int | None = None
    """Lanes in use."""
    speed_gts: float | None = None
    """GT/s for each lane."""


class Clock(Record, frozen=True, kw_only=True):
    """The clock as the kernel keeps it (adjtimex(2))."""

    synchronised: bool | None = None
    """A time service keeps it in step."""
    error_seconds: float | None = None
    """Estimated error; means nothing unless synchronised."""
    most_error_seconds: float | None = None
    """Largest possible error; means nothing unless synchronised."""


class State(Record, frozen=True, kw_only=True):
    """Counters, memory, processes, addresses, health: what changes by itself."""

    gpus: tuple[GpuState, ...] = ()
    """By GPU; a GPU that was not asked is absent."""
    nics: tuple[NicState, ...] = ()
    """By RDMA device; one that was not asked is absent."""
    netdevs: tuple[Netdev, ...] = ()
    """Network devices of the namespace."""
    pci: tuple[PciLink, ...] = ()
    """PCI links whose width or speed is known."""
    clock: Clock | None = None
    """The clock; None if not asked."""


class ProbeFault(Record, frozen=True, kw_only=True):
    """A part that could not be read, and why. Absent, refused and unsupported stay apart."""

    part: str
    """Which part of the snapshot is missing because of it: gpus, links, nics, ranks ..."""
    kind: Literal["absent", "not-permitted", "not-supported", "timeout", "broken", "contradictory"]
    """Why."""
    path: str
    """What was read: a path or a call."""
    reason: str = ""
    """The system's own words."""


class Snapshot(Record, frozen=True, kw_only=True):
    """One node as it showed itself once. `hardware`, `environment` and `state` are decoded on demand."""

    schema: str
    """`topocheck.snapshot/` and the major version; never left out."""
    token: str | None = None
    """A random word that no other snapshot has."""
    run: str | None = None
    """Run id of the launch that it belongs to."""
    taken_at: str | None = None
    """RFC 3339 time in UTC."""
    sources: tuple[Source, ...] = ()
    """Inputs that it was made from."""
    coverage: Coverage = Coverage()
    """From what absence may be concluded."""
    identity: Identity
    """Names of host, GPUs and NICs."""
    hardware: msgspec.Raw = msgspec.Raw(b"{}")
    """Shape of the node (`Hardware`)."""
    environment: msgspec.Raw = msgspec.Raw(b"{}")
    """Variables that all ranks of the node share, by allow-list."""
    fabric: tuple[Fabric, ...] = ()
    """NVLink fabric of the node; usually one entry."""
    ranks: tuple[RankClaim, ...] = ()
    """What the processes of the job claim."""
    node_claim: NodeClaim | None = None
    """What the launcher says of this node, where no process of the job says it with its rank."""
    software: Software = Software()
    """Versions."""
    limits: Limits = Limits()
    """Limits."""
    verbs: Verbs | None = None
    """Means of RDMA; None where nobody looked."""
    files: tuple[NcclFile, ...] = ()
    """Files that NCCL reads."""
    state: msgspec.Raw = msgspec.Raw(b"{}")
    """What changes by itself (`State`)."""
    observed: Observed | None = None
    """What the running job showed; None where nothing of it was looked at."""
    job: tuple[JobFact, ...] = ()
    """Statements about the whole job found here."""
    faults: tuple[ProbeFault, ...] = ()
    """What could not be read."""
    end: str | None = None
    """The token once more. Launchers cut long lines and mix the pieces of several processes: of a line that
    begins as one snapshot and ends as another the two differ."""


class FullSnapshot(Snapshot, frozen=True, kw_only=True):
    """A Snapshot with every part decoded: the published form, and the floor of the benchmark."""

    hardware: Hardware = Hardware()  # type: ignore[assignment]  # the same JSON, decoded
    """Shape of the node."""
    environment: dict[str, str] = {}  # type: ignore[assignment]
    """Variables that all ranks of the node share, by allow-list."""
    state: State = State()  # type: ignore[assignment]
    """What changes by itself."""
