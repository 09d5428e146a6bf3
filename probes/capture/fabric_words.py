"""The NVLink fabric of a GPU in nvidia-smi's words: state, status, domain, and its health field by field.

Drivers print more health fields from version to version. Each field is two bits of NVML's mask
(nvmlGpuFabricInfo_v3_t in nvml.h), so the words are put back into the mask that a probe would read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from topocheck.probes.capture.text import stated
from topocheck.snapshot import At, Fabric

__all__ = ["FABRIC_HEADINGS", "fabric_heading", "merge_fabrics", "parse_cluster_uuid", "parse_fabric"]

COMPLETED = "Completed"
STATES = ("Not Supported", "Not Started", "In Progress", COMPLETED)
"""NVML_GPU_FABRIC_STATE_*: `Not Supported` is a state that a GPU reports, and no missing answer."""

HEALTH = {
    "bandwidth": 0,
    "routerecoveryinprogress": 2,
    "routerecovery": 2,
    "routeunhealthy": 4,
    "accesstimeoutrecovery": 6,
    "partitionassigned": 12,
}
"""First bit of each field by its heading; the bandwidth field says whether bandwidth is degraded."""

ANSWERS = {"true": 1, "yes": 1, "degraded": 1, "false": 2, "no": 2, "full": 2}
"""NVML_GPU_FABRIC_HEALTH_MASK_*_TRUE and _FALSE."""

CONFIGURATION = 8
"""First bit of the field for an incorrect configuration, four bits wide: 1 is none."""
WRONG = (
    ("sysguid", 2),
    ("chassis", 3),
    ("partition", 4),
    ("nvlink", 5),
    ("f", 6),
    ("location", 7),
    ("state", 8),
)
"""Words of a reason, and its number; `f` is firmware, which is shortened to fw."""
OTHER_REASON = 15
"""A reason that this version has no number for."""

FABRIC_HEADINGS = frozenset(
    {
        "state",
        "status",
        "cliqueid",
        "clusteruuid",
        "summary",
        "healthsummary",
        "incorrectconfiguration",
        *HEALTH,
    }
)
"""Headings below `Fabric`, as `fabric_heading` spells them."""

UUID = re.compile(r"[0-9a-f]{32}")


def fabric_heading(text: str) -> str:
    """A heading in the one spelling: `CliqueId`, `Clique ID` and `cliqueId` are `cliqueid`."""
    return re.sub("[^a-z]", "", text.lower())


def parse_cluster_uuid(text: str) -> str | None:
    """32 hex digits in nvidia-smi's order, with or without dashes; None for anything else."""
    digits = text.strip().lower().replace("-", "")
    return digits if UUID.fullmatch(digits) else None


def parse_fabric(words: Mapping[str, str], at: At, gpus: tuple[int, ...] = ()) -> Fabric | None:
    """A fabric from its values by heading (`fabric_heading`); None where no state is given.

    The status counts only in the state Completed, as NVML defines it.
    """
    state = parse_state(words.get("state", ""))
    if state is None:
        return None
    clique = words.get("cliqueid", "").strip()
    return Fabric(
        gpus=gpus,
        cluster_uuid=parse_cluster_uuid(words.get("clusteruuid", "")),
        clique=int(clique) if re.fullmatch("[0-9]{1,10}", clique) else None,
        state=state,
        status=stated(words.get("status", "")) if state == COMPLETED else None,
        health_mask=parse_health(words),
        health=stated(words.get("summary") or words.get("healthsummary") or ""),
        at=at,
    )


def parse_state(text: str) -> str | None:
    """The state in nvidia-smi's own spelling; None for N/A."""
    text = text.strip()
    known = next((state for state in STATES if state.lower() == text.lower()), None)
    return known or stated(text)


def parse_health(words: Mapping[str, str]) -> int | None:
    """NVML's health mask from the health fields; None if none of them says anything."""
    mask = 0
    for heading, bit in HEALTH.items():
        mask |= ANSWERS.get(words.get(heading, "").strip().lower(), 0) << bit
    reason = (stated(words.get("incorrectconfiguration", "")) or "").lower()
    if reason:
        number = next((number for word, number in WRONG if word in reason), OTHER_REASON)
        mask |= (1 if reason in {"none", "false", "no"} else number) << CONFIGURATION
    return mask or None


def merge_fabrics(fabrics: Iterable[Fabric]) -> tuple[Fabric, ...]:
    """One entry for all GPUs that agree, with the line of the first."""
    alike: dict[Fabric, tuple[Fabric, list[int]]] = {}
    for fabric in fabrics:
        _, gpus = alike.setdefault(replace(fabric, gpus=(), at=None), (fabric, []))
        gpus += fabric.gpus
    return tuple(replace(first, gpus=tuple(gpus)) for first, gpus in alike.values())
