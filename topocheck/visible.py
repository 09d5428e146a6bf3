"""What is wrong with a list of visible devices.

CUDA stops in silence at the first entry that names no device, and hides what follows (CUDA C++ programming
guide, environment variables).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from topocheck.snapshot import GpuId

__all__ = ["LISTS", "list_faults", "needs_the_list"]

LISTS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that hold such lists."""

INDEX = re.compile(r"\+?[0-9]{1,9}")


def list_faults(listed: str, gpus: Sequence[GpuId], *, whole: bool) -> Iterator[str]:
    """Faults of a list, in words. `gpus` are those that the process could see; all of them if `whole`."""
    entries = [entry.strip() for entry in listed.split(",")]
    if not listed.strip() or entries[0] in ("-1", "NoDevFiles", "none", "void"):
        yield "hides every GPU"
        return
    seen: dict[str, int] = {}
    for place, entry in enumerate(entries):
        fault = entry_fault(entry, gpus, whole=whole)
        if fault:
            left = ",".join(entries[place + 1 :])
            yield f"{fault}" + (f": {left[:60]} behind it is hidden too" if left else "")
            return
        named = entry.lstrip("+0") or "0" if INDEX.fullmatch(entry) else entry.lower()
        if named in seen:
            yield f"names {entry[:60]} twice: CUDA then shows no device at all"
            return
        seen[named] = place


def needs_the_list(listed: str, gpus: Sequence[GpuId]) -> bool:
    """Some entry is none of these GPUs, so that only the whole list of GPUs tells whether it names one."""
    for entry in (entry.strip() for entry in listed.split(",")):
        if INDEX.fullmatch(entry) and int(entry) >= len(gpus):
            return True
        if entry.startswith(("GPU-", "gpu-")):
            uuids = [gpu.uuid.lower() for gpu in gpus if gpu.uuid is not None]
            if not any(uuid.startswith(entry.lower()) for uuid in uuids):
                return True
    return False


def entry_fault(entry: str, gpus: Sequence[GpuId], *, whole: bool) -> str:
    """Why an entry names no device; empty if it names one, or nothing shows that it does not."""
    if INDEX.fullmatch(entry):
        beyond = whole and int(entry) >= len(gpus)
        return (
            f"names device {int(entry)}, and {len(gpus)} can be seen (0..{len(gpus) - 1})" if beyond else ""
        )
    if entry.startswith(("GPU-", "gpu-")):
        uuids = [gpu.uuid for gpu in gpus]
        known = [uuid for uuid in uuids if uuid is not None and uuid.lower().startswith(entry.lower())]
        if len(known) > 1:
            return f"names {entry[:60]}, which {len(known)} GPUs begin with"
        return (
            f"names {entry[:60]}, which is no GPU here" if whole and None not in uuids and not known else ""
        )
    if entry.startswith("MIG-"):
        return ""
    return f"ends at {entry[:60]!r}, which names no device" if entry else "ends at an empty entry"
