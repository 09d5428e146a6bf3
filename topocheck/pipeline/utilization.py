"""Utilisation of GPUs as tools print it, and what each of their figures is a share of.

`utilization.gpu` of nvidia-smi (NVML's nvmlDeviceGetUtilizationRates, DCGM field 203) is the part of the
sample period in which any kernel ran: one busy SM of 132 makes it 100 %. DCGM's SM activity (field 1002)
is the part of time in which an SM had a warp, averaged over the SMs. The first is occupancy, the second
nearer to effective use; neither says what waiting was for.

Three forms are read: `nvidia-smi --query-gpu=...,utilization.gpu --format=csv`, the Prometheus text of
dcgm-exporter, and `dcgmi dmon -e 203,1002`. N/A is absence and is left out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from topocheck.errors import CaptureError

__all__ = ["Reading", "parse_utilization"]

Kind = Literal["kernel", "sm"]

EXPORTED: Mapping[str, tuple[Kind, float]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("kernel", 100.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm", 1.0),
}
"""Metric of dcgm-exporter -> what it is, and its value for all the time."""
MONITORED: Mapping[str, tuple[Kind, float]] = {"GPUTL": ("kernel", 100.0), "SMACT": ("sm", 1.0)}
"""Column of dcgmi dmon -> the same."""
METRIC = re.compile(
    rf"(?P<name>{'|'.join(EXPORTED)})\{{[^{{}}]{{0,2000}}\}}\s+(?P<value>[0-9.eE+-]{{1,30}})(?:\s|$)"
)
ROW = re.compile(r"GPU\s+[0-9]{1,4}\s")
NUMBER = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,12})?(?:[eE][-+]?[0-9]{1,2})?")
ABSENT = ("N/A", "[N/A]", "[NOT SUPPORTED]", "[UNKNOWN ERROR]", "")


@dataclass(frozen=True, slots=True)
class Reading:
    """Mean of one figure over all its samples."""

    kind: Kind
    """kernel: some kernel ran. sm: an SM had a warp."""
    share: float
    samples: int
    tool: str
    """Tool and field: nvidia-smi utilization.gpu, DCGM_FI_PROF_SM_ACTIVE."""


def parse_utilization(text: str, source: str) -> list[Reading]:
    """Means of all figures in a text. Raises CaptureError for none, and for what cannot be aligned."""
    samples: dict[tuple[Kind, str], list[float]] = {}
    for kind, tool, share in [*_exported(text, source), *_monitored(text, source), *_queried(text, source)]:
        samples.setdefault((kind, tool), []).append(share)
    if not samples:
        raise CaptureError(
            "holds no utilisation of a GPU",
            path=source,
            fix="give nvidia-smi --query-gpu=index,utilization.gpu --format=csv, dcgmi dmon -e 203,1002, or "
            "the text of dcgm-exporter",
        )
    return [
        Reading(kind, sum(shares) / len(shares), len(shares), tool)
        for (kind, tool), shares in samples.items()
    ]


def _exported(text: str, source: str) -> Iterator[tuple[Kind, str, float]]:
    """Metrics of dcgm-exporter."""
    for line, words in enumerate(text.splitlines(), 1):
        if (match := METRIC.match(words)) is not None:
            kind, whole = EXPORTED[match["name"]]
            yield kind, match["name"], _share(match["value"], whole, source, line)


def _monitored(text: str, source: str) -> Iterator[tuple[Kind, str, float]]:
    """Rows of dcgmi dmon under their header `#Entity   GPUTL   SMACT`."""
    columns: list[str] = []
    for line, words in enumerate(text.splitlines(), 1):
        if words.lstrip("# ").startswith("Entity"):
            columns = words.lstrip("# ").split()[1:]
        elif columns and ROW.match(words):
            cells = words.split()[2:]
            if len(cells) != len(columns):
                problem = f"has {len(cells)} values under {len(columns)} columns"
                raise CaptureError(problem, path=source, line=line, fix="capture it again")
            for column, cell in zip(columns, cells, strict=True):
                if column in MONITORED and cell.upper() not in ABSENT:
                    kind, whole = MONITORED[column]
                    yield kind, f"dcgmi dmon {column}", _share(cell, whole, source, line)


def _queried(text: str, source: str) -> Iterator[tuple[Kind, str, float]]:
    """Rows of nvidia-smi --query-gpu under a header with `utilization.gpu [%]`."""
    place = width = 0
    for line, words in enumerate(text.splitlines(), 1):
        if not place and "utilization.gpu" not in words:
            continue
        cells = [cell.strip() for cell in next(csv.reader([words]), [])]
        found = [i for i, cell in enumerate(cells, 1) if cell.startswith("utilization.gpu")]
        if found:
            place, width = found[0], len(cells)
        elif words.strip() and len(cells) != width:
            problem = f"has {len(cells)} cells under {width} columns"
            raise CaptureError(problem, path=source, line=line, fix="capture it again")
        elif words.strip() and cells[place - 1].upper() not in ABSENT:
            share = _share(cells[place - 1].removesuffix("%").strip(), 100.0, source, line)
            yield "kernel", "nvidia-smi utilization.gpu", share


def _share(words: str, whole: float, source: str, line: int) -> float:
    """A figure as a share. Raises CaptureError for no number, and for more than all the time."""
    value = float(words) / whole if NUMBER.fullmatch(words) else 2.0
    if value > 1:
        raise CaptureError(f"{words[:40]!r} is no share of {whole:g}", path=source, line=line)
    return value
