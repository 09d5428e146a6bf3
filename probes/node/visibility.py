"""Which GPUs a process sees, and in which order: its CUDA devices 0, 1, 2 ... as ordinals of the node's list.

Local ranks are places in that order. CUDA's rules are those of its programming guide (environment
variables) and of what it does beside: it stops in silence at the first entry that is no device. AMD's are
ROCr's (amd_filter_device.cpp) and, on what that leaves, HIP's (rocdevice.cpp, Device::init).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from topocheck.snapshot import GpuId

__all__ = ["Visible", "container_gpus", "visible_gpus"]

CUDA, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
HIP, ROCR = "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
CONTAINER = "NVIDIA_VISIBLE_DEVICES"
MPS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
"""Set for the clients of an MPS server, whose own list of devices comes first."""

STRTOL = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)")
"""What C's strtol takes of a text: `0abc` is 0."""
C_NUMBER = re.compile(r"\+?(?:0X(?P<hexadecimal>[0-9A-F]+)|0(?P<octal>[0-7]+)|(?P<decimal>0|[1-9][0-9]*))")
"""What C's strtol with base 0 takes to the end, in capitals."""
OLD_MIG = re.compile(r"MIG-(GPU-[^/]+)/([0-9]+)/([0-9]+)")
"""GPU, GPU instance and compute instance, as drivers before 470 name slices."""
MOST_DIGITS = 9
"""A longer number is beyond any list of devices."""
NOBODY = frozenset[int]()

Kind = Literal["index", "gpu", "mig"]


class Visible(msgspec.Struct, frozen=True, gc=False):
    """The devices of a process."""

    gpus: tuple[int, ...] | None
    """Ordinals in `identity.gpus` by device number; None if that cannot be told."""
    reason: str = ""
    """Why it cannot, or what of the list does not count."""

    def device(self, number: int) -> int | None:
        """Ordinal of a device; None if there is none of that number."""
        return self.gpus[number] if self.gpus is not None and 0 <= number < len(self.gpus) else None


def visible_gpus(
    env: Mapping[str, str], gpus: Sequence[GpuId], sliced: Collection[int] = NOBODY, *, amd: bool = False
) -> Visible:
    """Devices of a process that may open exactly these GPUs, by its environment.

    `sliced` are the ordinals of GPUs in MIG mode. `amd` says that the GPUs are AMD's.
    """
    if amd:
        return amd_devices(env, gpus)
    listed = env.get(CUDA)
    if listed is None:
        return counted(env, gpus, sliced)
    return cuda_devices(env, listed.split(","), gpus, sliced)


def container_gpus(env: Mapping[str, str], gpus: Sequence[GpuId]) -> Visible:
    """GPUs that a container was given, among those of its host: NVIDIA_VISIBLE_DEVICES counts as the host.

    For a process that is looked at from outside. Inside its container NVML shows these GPUs alone.
    """
    listed = env.get(CONTAINER, "")
    if listed == "all":
        return Visible(tuple(range(len(gpus))))
    if listed == "none":
        return Visible((), f"{CONTAINER}=none")
    if listed in ("", "void"):
        return Visible(None, f"{CONTAINER} does not say which GPUs its container was given")
    places = {gpu.nvml: ordinal for ordinal, gpu in enumerate(gpus) if gpu.scope == "host"}
    named = {gpu.uuid: ordinal for ordinal, gpu in enumerate(gpus)}
    found = []
    for entry in listed.split(","):
        number = int(entry) if re.fullmatch(f"[0-9]{{1,{MOST_DIGITS}}}", entry) else None
        ordinal = named.get(entry) if number is None else places.get(number)
        if ordinal is None:
            return Visible(None, f"{CONTAINER}: {entry[:60]!r} is none of the node's GPUs")
        found.append(ordinal)
    return Visible(tuple(sorted(dict.fromkeys(found))))  # a container counts them in the order of its host


def counted(env: Mapping[str, str], gpus: Sequence[GpuId], sliced: Collection[int]) -> Visible:
    """All GPUs, in CUDA's order, for entries that are indexes and for no list at all."""
    server = next((name for name in MPS if name in env), None)
    if server is not None:
        return Visible(None, f"{server} is set: the MPS server's list of devices comes before this one's")
    if sliced:
        return Visible(None, "a GPU is in MIG mode: which devices CUDA counts hangs on its slices")
    if any(gpu.uuid is None and gpu.bus is None for gpu in gpus):
        return Visible(None, "a GPU could not be read: whether CUDA counts it is not known")
    if env.get(ORDER) == "PCI_BUS_ID" or len(gpus) < 2:
        return Visible(by_bus(gpus))
    models = {gpu.model for gpu in gpus}
    if len(models) == 1 and None not in models:
        return Visible(by_bus(gpus))
    known = "are of several models" if len(models - {None}) > 1 else "may be of several models"
    return Visible(None, f"the GPUs {known} and {ORDER} is not PCI_BUS_ID: CUDA puts the fastest first")


def by_bus(gpus: Sequence[GpuId]) -> tuple[int, ...]:
    """Ordinals by PCI address; in the order of the list, which is NVML's, where an address is missing."""
    places = [tuple(int(part, 16) for part in re.split("[:.]", gpu.bus)) for gpu in gpus if gpu.bus]
    if len(places) < len(gpus):
        return tuple(range(len(gpus)))
    return tuple(sorted(range(len(gpus)), key=lambda ordinal: (places[ordinal], ordinal)))


def cuda_devices(
    env: Mapping[str, str], entries: Sequence[str], gpus: Sequence[GpuId], sliced: Collection[int]
) -> Visible:
    """CUDA_VISIBLE_DEVICES: entries count up to the first that is no device or of another kind."""
    kind = kind_of(entries[0])
    numbering = counted(env, gpus, sliced) if kind == "index" else Visible(())
    if numbering.gpus is None and STRTOL.match(entries[0]) and not number_in(entries[0]) < 0:
        return numbering
    if kind != "index" and any(gpu.uuid is None for gpu in gpus):
        return Visible(None, f"{CUDA} names UUIDs, and those of the node's GPUs are not all known")
    if kind == "mig" and any(not gpus[ordinal].mig for ordinal in sliced):
        return Visible(None, f"{CUDA} names a MIG slice, and the slices of the GPUs are not all known")
    found: list[tuple[int, str]] = []
    stop = ""
    for entry in entries:
        device = named_device(entry, kind, numbering.gpus or (), gpus) if kind_of(entry) == kind else None
        if device is None:
            stop = f"{CUDA} ends before {entry[:60]!r}, which is no device"
            stop = stop if kind_of(entry) == kind else f"{CUDA} ends before {entry[:60]!r}, of another kind"
            break
        found.append(device)
    if len(set(found)) < len(found):
        return Visible((), f"{CUDA} names a device twice: CUDA then shows none")
    ordinals = tuple(ordinal for ordinal, _ in found)
    if kind == "gpu" and not set(sliced).isdisjoint(ordinals):
        return Visible(None, f"{CUDA} names a whole GPU that is in MIG mode")
    # One process uses one slice: CUDA shows the first, and no whole GPU beside it.
    return Visible(ordinals[:1] if kind == "mig" else ordinals, stop)


def kind_of(entry: str) -> Kind:
    """What an entry is meant as."""
    return "mig" if entry.startswith("MIG-") else "gpu" if entry.startswith("GPU-") else "index"


def number_in(entry: str) -> int:
    """The number that strtol reads; -1, which is no device, where it reads none."""
    found = STRTOL.match(entry)
    if found is None or len(found[1].lstrip("+-0")) > MOST_DIGITS:
        return -1
    return int(found[1])


def named_device(
    entry: str, kind: Kind, numbering: Sequence[int], gpus: Sequence[GpuId]
) -> tuple[int, str] | None:
    """Ordinal of the GPU and name of the device that one entry means; None if there is no such device."""
    if kind == "index":
        number = number_in(entry)
        return (numbering[number], "") if 0 <= number < len(numbering) else None
    named = ((ordinal, gpu.uuid or "") for ordinal, gpu in enumerate(gpus))
    devices = list(named if kind == "gpu" else slices(gpus))
    old = OLD_MIG.fullmatch(entry)
    wanted = "/".join(old.groups()) if old else entry
    found = [device for device in devices if device[1].startswith(wanted)]
    exact = [device for device in found if device[1] == wanted]
    found = exact or found
    return found[0] if len(found) == 1 else None


def slices(gpus: Sequence[GpuId]) -> Iterator[tuple[int, str]]:
    """MIG slices under both of their names."""
    for ordinal, gpu in enumerate(gpus):
        for part in gpu.mig or ():
            if part.uuid is not None:
                yield ordinal, part.uuid
            yield ordinal, f"{gpu.uuid}/{part.gpu_instance}/{part.compute_instance}"


def amd_devices(env: Mapping[str, str], gpus: Sequence[GpuId]) -> Visible:
    """What ROCR_VISIBLE_DEVICES leaves, and of that what HIP_VISIBLE_DEVICES names.

    HIP takes CUDA_VISIBLE_DEVICES where its own variable is empty; empty is no list to it, and to ROCr
    a list of nothing.
    """
    left = tuple(range(len(gpus)))
    reason = ""
    if ROCR in env:
        left, reason = rocr_devices(env[ROCR], gpus)
    name = HIP if env.get(HIP) else CUDA
    if not env.get(name):
        return Visible(left, reason)
    found: list[int] = []
    for entry in env[name].split(","):
        place = hip_place(entry, left, gpus)
        if place is None:
            reason = f"{name} ends before {entry[:60]!r}, which is no device"
            break
        if left[place] not in found:
            found.append(left[place])
    return Visible(tuple(found), reason)


def rocr_devices(listed: str, gpus: Sequence[GpuId]) -> tuple[tuple[int, ...], str]:
    """ROCR_VISIBLE_DEVICES: it ends before an entry that is no device, or one that is named already."""
    names = [(gpu.uuid or "").upper() for gpu in gpus]
    found: list[int] = []
    for entry in listed.split(",")[: len(gpus)] if listed else []:
        token = entry.strip().upper()
        if token.startswith("G"):
            matches = [n for n, name in enumerate(names) if len(token) >= 5 and name.startswith(token)]
            place = matches[0] if len(matches) == 1 else -1
        else:
            place = number_in_c(token)
        if not 0 <= place < len(gpus) or place in found:
            return tuple(found), f"{ROCR} ends before {entry[:60]!r}, which is no further device"
        found.append(place)
    return tuple(found), "" if listed else f"{ROCR} is empty: ROCr then shows none"


def number_in_c(token: str) -> int:
    """A number as C writes one, `0x1` and `07` too; -1, which is no device, for other text."""
    found = C_NUMBER.fullmatch(token)
    if found is None or len(token) > MOST_DIGITS:
        return -1
    bases = {"hexadecimal": 16, "octal": 8, "decimal": 10}
    return next(int(digits, bases[name]) for name, digits in found.groupdict().items() if digits)


def hip_place(entry: str, left: Sequence[int], gpus: Sequence[GpuId]) -> int | None:
    """Place among the GPUs that are left: a number spelled as HIP would, or a whole UUID."""
    for place, ordinal in enumerate(left):
        if entry == str(place) or (entry.startswith("GPU-") and entry == gpus[ordinal].uuid):
            return place
    return None
