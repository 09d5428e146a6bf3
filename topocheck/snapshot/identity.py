"""Names of the machine and its devices, and the NVLink fabric that they report."""

from __future__ import annotations

from topocheck.snapshot.record import At, Record, Scope

__all__ = ["Fabric", "GpuId", "Host", "Identity", "MigDevice", "NicId", "Platform"]


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
    mig: tuple[MigDevice, ...] | None = None
    """Slices, where MIG mode is on; () has none, None is not known."""
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
