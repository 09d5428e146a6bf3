"""What the probe must read of a described machine, from the description alone.

The words and numbers of NVML's enumerations are written out here a second time, on purpose.
"""

from __future__ import annotations

from nvml_machine import Machine

from topocheck.snapshot import (
    At,
    Fabric,
    GpuId,
    GpuShape,
    GpuState,
    MigDevice,
    NvLink,
    PeerAccess,
    Platform,
    Process,
)

__all__ = ["fabrics", "identity", "links", "peers", "shape", "state"]

P2P = {"0": "OK", "1": "CNS", "2": "GNS", "3": "TNS", "4": "DISABLED", "5": "NS", "6": "U"}
THROTTLE = {
    "0x0": (),
    "0x1": ("gpu_idle",),
    "0x4": ("sw_power_cap",),
    "0x24": ("sw_power_cap", "sw_thermal_slowdown"),
}
HEALTH = {"0": None, "1": "Healthy", "2": "Unhealthy", "3": "Limited Capacity"}
COMPUTE_MODES = {"0": "Default", "3": "Exclusive_Process"}
FAR_ENDS = {"0": "gpu", "2": "switch"}


def number(value: str | None) -> int | None:
    """A number of the description."""
    return None if value is None else int(value, 0)


def bus(value: str | None) -> str | None:
    """A PCI address of the description as topocheck writes it."""
    if value is None or value.startswith("FFFFFFFF"):
        return None
    return f"{int(value[:8], 16):04x}{value[8:].lower()}"


def identity(machine: Machine, gpu: int) -> GpuId:
    """One GPU's identity."""
    facts, places = machine.facts, range(8)
    mig = (facts.get((gpu, "mig")) or "0")[0] == "1"
    return GpuId(
        uuid=facts[gpu, "uuid"],
        bus=bus(facts[gpu, "bus"]),
        nvml=gpu,
        scope="unknown",
        serial=facts.get((gpu, "serial")),
        module=number(facts.get((gpu, "module"))) or None,
        minor=number(facts.get((gpu, "minor"))),
        platform=platform(facts.get((gpu, "platform"))),
        mig=tuple(
            MigDevice(
                uuid=facts[gpu, f"slice.{place}.uuid"],
                name=facts[gpu, f"slice.{place}.name"],
                gpu_instance=int(facts[gpu, f"slice.{place}.gpu_instance"]),
                compute_instance=int(facts[gpu, f"slice.{place}.compute_instance"]),
            )
            for place in places
            if mig and (gpu, f"slice.{place}.uuid") in facts
        ),
    )


def platform(value: str | None) -> Platform | None:
    """Place in the rack."""
    if value is None:
        return None
    guid, chassis, *numbers = value.split()
    slot, tray, host, peer_type, module = map(int, numbers)
    return Platform(
        chassis=bytes.fromhex(chassis).decode(),
        slot=slot,
        tray=tray,
        host=host,
        peer_type=peer_type,
        module=module,
        guid=guid,
    )


def shape(machine: Machine, gpu: int, *, links: tuple[NvLink, ...] | None, nvswitch: bool | None) -> GpuShape:
    """One GPU's shape; whether its silence about links proves anything is the caller's to say."""
    facts = machine.facts
    nodes = facts.get((gpu, "nodes"))
    mig = facts.get((gpu, "mig"))
    return GpuShape(
        model=facts[gpu, "name"],
        memory_bytes=int(facts[gpu, "memory"].split()[0]),
        sm=int(facts[gpu, "capability"].replace(".", "")),
        numa=int(nodes) if nodes is not None and nodes.isdigit() else None,
        links=links,
        nvswitch=nvswitch,
        mig=None if mig is None else mig[0] == "1",
        cpu_affinity=facts.get((gpu, "cpus")),
        memory_affinity=nodes,
        own_numa=number(facts.get((gpu, "own_numa"))),
    )


def links(machine: Machine, gpu: int) -> tuple[NvLink, ...]:
    """The links that the description has of one GPU."""
    count = next(link for link in range(65) if (gpu, f"link.{link}.version") not in machine.facts)
    return tuple(one_link(machine, gpu, link) for link in range(count))


def one_link(machine: Machine, gpu: int, link: int) -> NvLink:
    """One link: field 165 is believed before nvmlDeviceGetNvLinkState."""
    facts = machine.facts
    state = facts.get((gpu, f"link.{link}.state"))
    up = state in {"1", "2"} if state else facts[gpu, f"link.{link}.enabled"] == "1"
    if not up:
        return NvLink(link=link, active=False)
    far = bus(facts.get((gpu, f"link.{link}.far")))
    at = {bus(facts[other, "bus"]): other for other in machine.gpus}
    remote = FAR_ENDS.get(facts[gpu, f"link.{link}.kind"])
    return NvLink(
        link=link,
        active=True,
        remote=remote,  # type: ignore[arg-type]  # one of the words of the type
        peer=at.get(far) if remote == "gpu" else None,
        version=int(facts[gpu, f"link.{link}.version"]),
    )


def rates(machine: Machine, gpu: int) -> tuple[int | None, ...] | None:
    """Raw rate of each link that is up."""
    facts = machine.facts
    found = tuple(
        number(facts.get((gpu, f"link.{link.link}.speed")) or facts.get((gpu, "common_speed")))
        if link.active
        else None
        for link in links(machine, gpu)
    )
    return found if any(found) else None


def state(machine: Machine, gpu: int, *, reserve_known: bool = True) -> GpuState:
    """One GPU's state."""
    facts = machine.facts
    _, used, reserved = map(int, facts[gpu, "memory"].split())
    mig, ecc = facts.get((gpu, "mig")), facts.get((gpu, "ecc"))
    rows = [int(word) for word in facts.get((gpu, "rows"), "").split()]
    return GpuState(
        gpu=gpu,
        memory_used_bytes=used if reserve_known else used + reserved,
        memory_reserved_bytes=reserved if reserve_known else None,
        processes=processes(facts.get((gpu, "processes"))),
        compute_mode=COMPUTE_MODES[facts[gpu, "compute_mode"]],
        mig_pending=None if mig is None else mig[-1] == "1",
        ecc=None if ecc is None else ecc == "1",
        ecc_corrected=number(facts.get((gpu, "ecc_corrected"))),
        ecc_uncorrected=number(facts.get((gpu, "ecc_uncorrected"))),
        rows_remapped=rows[0] + rows[1] if rows else None,
        remap_pending=rows[2] == 1 if rows else None,
        remap_failed=rows[3] == 1 if rows else None,
        throttle=THROTTLE[facts[gpu, "throttle"]],
        nvlink_megabytes_per_s=rates(machine, gpu),
    )


def processes(value: str | None) -> tuple[Process, ...] | None:
    """Processes on one GPU."""
    if value is None:
        return None
    pairs = [word.split(":") for word in value.split() if word != "none"]
    return tuple(
        Process(pid=int(pid), memory_bytes=None if size == "-" else int(size)) for pid, size in pairs
    )


def fabrics(machine: Machine) -> list[tuple[int, Fabric]]:
    """Fabric of each GPU that has one."""
    found = []
    for gpu in machine.gpus:
        value = machine.facts.get((gpu, "fabric"))
        if value is not None:
            uuid, _, clique, _, mask, summary = value.split()
            fabric = Fabric(
                cluster_uuid=uuid,
                clique=int(clique),
                state="Completed",
                status="Success",
                health_mask=int(mask, 0),
                health=HEALTH[summary],
                at=At(source="nvmlDeviceGetGpuFabricInfoV"),
            )
            found.append((gpu, fabric))
    return found


def peers(machine: Machine) -> tuple[PeerAccess, ...]:
    """Peer access of every pair, both directions."""
    return tuple(
        PeerAccess(
            a=a,
            b=b,
            status=P2P[machine.facts[a, f"pair.{b}.read"]],
            nvlink=P2P[machine.facts[min(a, b), f"pair.{max(a, b)}.nvlink"]],
        )
        for a in machine.gpus
        for b in machine.gpus
        if a != b
    )
