"""What changes by itself: memory, processes, health, addresses, link speeds, the clock."""

from __future__ import annotations

import msgspec

from topocheck.snapshot.record import Record

__all__ = ["Clock", "GpuState", "PciLink", "PortState", "Process", "State"]


class Process(Record, frozen=True, kw_only=True):
    """A process that holds memory on a GPU."""

    pid: int
    """Process id on the host; 0 is another pid namespace."""
    memory_bytes: int | None = None
    """Memory it holds."""
    name: str | None = None
    """Command name; untrusted text."""
    age_seconds: int | None = None
    """How long it had run when it was looked at."""
    owner: str | None = None
    """User that it runs as, `uid 1000`."""


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


class PortState(Record, frozen=True, kw_only=True):
    """What is one port's own: addresses and traffic."""

    nic: int
    """Ordinal in `identity.nics`."""
    port: int = 1
    """Port number, counted from 1."""
    lid: int | None = None
    """Local id that the subnet manager gave; 0 is none."""
    gids: tuple[str, ...] | None = None
    """Digits of the GIDs that `network` lists of this port, in that order: eight groups of four hex digits;
    `0000:0000:0000:0000:0000:ffff:` and an IPv4 address for RoCE."""
    counters: dict[str, int] = msgspec.field(default_factory=dict)
    """Traffic and errors since the driver was loaded, by the kernel's names; data in words of 4 bytes."""


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
    ports: tuple[PortState, ...] = ()
    """By port of an RDMA device; one of which nothing of its own is known is absent."""
    addresses: tuple[tuple[str, ...] | None, ...] = ()
    """IPv4 and IPv6 addresses of each of `network.netdevs`, with prefix length, `192.0.2.7/24`; None if not
    known of one, () if of none."""
    pci: tuple[PciLink, ...] = ()
    """PCI links whose width or speed is known."""
    clock: Clock | None = None
    """The clock; None if not asked."""
