"""Start-up logs among the inputs, read for what only a record asks of them: sizes in force, memory taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from topocheck.errors import InputError
from topocheck.inputfile import read_bytes
from topocheck.pipeline.memorylog import StartUp, parse_start_up
from topocheck.pipeline.microbatches import InForce, parse_in_force
from topocheck.report import InputReport

__all__ = ["start_logs"]

KINDS = ("vllm log", "sglang log", "tensorrt-llm log", "megatron log")
MOST_LOGS = 16
"""Logs that are read: each worker's own says the same of its stage."""
MOST_BYTES = 16 << 20


def start_logs(
    inputs: Sequence[InputReport], places: Mapping[str, str]
) -> tuple[list[tuple[str, InForce, StartUp]], list[str]]:
    """What engines' logs say beside what was gathered, with their files, and notes on those left out.

    `places` says where those lie that do not lie under their names. A stream and a file inside another cannot
    be read again, and say nothing.
    """
    found, notes = [], []
    for one in [each for each in inputs if each.kind in KINDS][:MOST_LOGS]:
        place = places.get(one.name, one.name)
        if not Path(place).is_file():
            continue
        try:
            data = read_bytes(place, MOST_BYTES, "is larger than 16 MiB", name=one.name)
            text = data.decode("utf-8-sig", "replace")
            found.append((one.name, parse_in_force(text, one.name), parse_start_up(text)))
        except InputError as error:
            notes.append(f"left out of the record: {error}")
    return found, notes
