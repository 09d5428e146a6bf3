"""What changes by itself on a made server: memory, counters, addresses, the clock.

Numbers are derived from the host's name: they differ from host to host and are the same each time.
"""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.demo.server import Server, guid_of, made_hex, pci_tree
from topocheck.portreading import GidReading, PortReading, parted
from topocheck.snapshot import (
    Clock,
    GpuState,
    Netdev,
    Network,
    PciLink,
    Process,
    State,
)

__all__ = ["network_of", "state_of"]

NVLINK_MEGABYTES = 26562
"""Nominal 25 GB/s one way."""
CONTEXT_BYTES = 550 << 20
"""What a CUDA context takes before the job allocates anything."""
TRAFFIC = ("port_xmit_data", "port_rcv_data", "port_xmit_wait")
ERRORS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "symbol_error",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_sequence",
    "packet_seq_err",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "rp_cnp_handled",
)
"""Counters by the kernel's names; a healthy port has none of the errors."""


def network_of(server: Server, host: str, address: str) -> Network:
    """Ports and network devices of a healthy server, the same whatever its name and address."""
    return Network(nics=parted(readings(server, host, address))[0], netdevs=netdevs(server))


def state_of(server: Server, host: str, address: str, pids: Sequence[int] = ()) -> State:
    """State of a healthy server at this address. `pids` are of processes on GPU 0, 1 ..., just started."""
    tree = pci_tree(server)
    devices = {name for name, _ in (*tree.gpus, *tree.nics)}
    return State(
        gpus=tuple(gpu_state(server, gpu, pids[gpu : gpu + 1]) for gpu in range(server.gpus)),
        ports=parted(readings(server, host, address))[1],
        addresses=addresses(server, address),
        pci=tuple(
            PciLink(node=node.id, width=16, speed_gts=32.0) for node in tree.nodes if node.id in devices
        ),
        clock=Clock(synchronised=True, error_seconds=1e-05, most_error_seconds=0.002),
    )


def gpu_state(server: Server, gpu: int, pids: Sequence[int]) -> GpuState:
    """A healthy GPU, idle but for CUDA contexts."""
    processes = tuple(Process(pid=pid, memory_bytes=CONTEXT_BYTES, name="python3") for pid in pids)
    return GpuState(
        gpu=gpu,
        memory_used_bytes=CONTEXT_BYTES * len(processes),
        memory_reserved_bytes=600 << 20,
        processes=processes,
        compute_mode="Default",
        mig_pending=False,
        ecc=True,
        ecc_corrected=0,
        ecc_uncorrected=0,
        rows_remapped=0,
        remap_pending=False,
        remap_failed=False,
        throttle=("gpu_idle",),
        nvlink_megabytes_per_s=tuple(
            None if (gpu, link) in server.dark else NVLINK_MEGABYTES for link in range(server.links)
        ),
    )


def readings(server: Server, host: str, address: str) -> list[tuple[int, Sequence[PortReading]]]:
    """The port of each RDMA device."""
    return [(nic, (port(server, host, nic, address),)) for nic in range(server.nics)]


def port(server: Server, host: str, nic: int, address: str) -> PortReading:
    """A healthy port: under a subnet manager on the compute fabric, with RoCE on the others."""
    traffic = {name: int(made_hex(f"{host} {nic} {name}", 10), 16) for name in TRAFFIC}
    counters = traffic | dict.fromkeys(ERRORS, 0)
    if nic < server.gpus:
        gid = GidReading(index=0, digits=f"fe80:0000:0000:0000:{guid_of(host, nic)}", type="IB/RoCE v1")
        lid = 1 + int(made_hex(f"{host} {nic} lid", 3), 16)
        return PortReading(lid=lid, sm_lid=1, gids=(gid,), counters=counters)
    return PortReading(lid=0, sm_lid=0, gids=roce_gids(nic, address), counters=counters)


def roce_gids(nic: int, address: str) -> tuple[GidReading, ...]:
    """Both RoCE types of the link-local and of the IPv4 address."""
    parts = [int(part) for part in address.split(".")]
    mapped = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*parts)
    found = [f"fe80:0000:0000:0000:ba3f:d2ff:fe00:{nic:04x}", mapped]
    types = ("IB/RoCE v1", "RoCE v2")
    return tuple(
        GidReading(index=index, digits=found[index // 2], type=types[index % 2], netdev=f"storage{nic}")
        for index in range(4)
    )


def netdevs(server: Server) -> tuple[Netdev, ...]:
    """Loopback, the interface of the rendezvous, IP over InfiniBand and storage."""
    compute = [
        Netdev(
            name=f"ib{nic}",
            kind="physical",
            layer="infiniband",
            state="up",
            mtu=4092,
            speed_gbps=server.rate_gbps,
        )
        for nic in range(server.gpus)
    ]
    storage = [
        Netdev(name=f"storage{nic}", kind="physical", layer="ethernet", state="up", mtu=9000, speed_gbps=100)
        for nic in range(server.gpus, server.nics)
    ]
    return (
        Netdev(name="lo", kind="loopback", layer="loopback", state="unknown"),
        Netdev(name="eth0", kind="physical", layer="ethernet", state="up", mtu=1500, speed_gbps=25),
        *compute,
        *storage,
    )


def addresses(server: Server, address: str) -> tuple[tuple[str, ...] | None, ...]:
    """Addresses of each of those; those of storage are not known."""
    first, second, *_ = address.split(".")
    rest = address.removeprefix(f"{first}.{second}.")
    compute = [(f"{first}.{int(second) + 100 + nic}.{rest}/16",) for nic in range(server.gpus)]
    storage = [None for _ in range(server.gpus, server.nics)]
    return ("127.0.0.1/8",), (f"{address}/16",), *compute, *storage
