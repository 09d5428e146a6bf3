"""What a captured file is, by what is in it.

Every parser looks at the whole text and takes what it is sure of, for one file may hold the output of
several tools. A file that nobody recognises is an error.
"""

from __future__ import annotations

import msgspec

from topocheck.errors import CaptureError
from topocheck.probes.capture import (
    collect_env,
    deepspeed_log,
    df_shm,
    environment_listing,
    fabric_listing,
    fabricmanager_log,
    failure_lines,
    gpu_list,
    gpu_order,
    gpu_query,
    hostfile,
    hwloc_xml,
    ibnetdiscover,
    ibstat,
    ibstatus,
    ibv_devinfo,
    kernel_modules,
    kube_clique,
    launch_command,
    lspci_text,
    manifest,
    megatron_log,
    mpi_ranks,
    nccl_log,
    nccl_tests,
    nccl_topology,
    node_labels,
    nvlink_status,
    peer_matrix,
    process_titles,
    progress_lines,
    ray_list,
    ray_status,
    sglang_log,
    show_gids,
    slurm_script,
    smi_query,
    smi_xml,
    topo_matrix,
    topology_conf,
    topology_yaml,
    torch_log,
    trtllm_log,
    ulimit,
    vllm_log,
    worker_list,
)
from topocheck.probes.capture.reading import Parser, Reading
from topocheck.probes.capture.text import parse_text
from topocheck.snapshot import FullSnapshot, ProbeFault

__all__ = ["PARSERS", "read_capture"]

PARSERS: tuple[Parser, ...] = (
    nccl_topology.parse,
    smi_xml.parse,
    hwloc_xml.parse,
    smi_query.parse,
    topo_matrix.parse,
    peer_matrix.parse,
    gpu_list.parse,
    gpu_query.parse,
    nvlink_status.parse,
    gpu_order.parse,
    fabric_listing.parse,
    fabricmanager_log.parse,
    kube_clique.parse,
    node_labels.parse,
    topology_conf.parse,
    topology_yaml.parse,
    ibnetdiscover.parse,
    ibstat.parse,
    ibstatus.parse,
    ibv_devinfo.parse,
    show_gids.parse,
    lspci_text.parse,
    kernel_modules.parse,
    ulimit.parse,
    df_shm.parse,
    nccl_tests.parse,
    nccl_log.parse,
    collect_env.parse,
    environment_listing.parse,
    process_titles.parse,
    worker_list.parse,
    vllm_log.parse,
    sglang_log.parse,
    trtllm_log.parse,
    megatron_log.parse,
    deepspeed_log.parse,
    torch_log.parse,
    failure_lines.parse,
    progress_lines.parse,
    launch_command.parse,
    slurm_script.parse,
    manifest.parse,
    hostfile.parse,
    ray_list.parse,
    ray_status.parse,
    mpi_ranks.parse,
)
"""All parsers, those of whole-file formats first."""


def read_capture(data: bytes, source: str) -> list[Reading]:
    """Everything that any parser takes from one file. Raises CaptureError if that is nothing."""
    text = parse_text(data, source)
    readings = [blamed(reading, source) for parse in PARSERS for reading in parse(text)]
    if not readings:
        raise CaptureError(
            "holds nothing that topocheck recognises",
            path=source,
            fix="give output of nvidia-smi (topo -m, -L, -q, nvlink -s), ibstat, show_gids or lspci -vvv, an "
            "NCCL_DEBUG=INFO log, an NCCL topology file, a log of the engine's start, a list of environment "
            "variables, or snapshots of topocheck probe",
        )
    return readings


def blamed(reading: Reading, source: str) -> Reading:
    """Contradictions inside a text become faults of its snapshots, so that a rule can report them."""
    faults = tuple(
        ProbeFault(
            part=reading.kind,
            kind="contradictory",
            path=source if note.line is None else f"{source}:{note.line}",
            reason=note.text,
        )
        for note in reading.notes
        if note.kind == "contradictory"
    )
    if not faults:
        return reading
    snapshots: tuple[FullSnapshot, ...] = tuple(
        msgspec.structs.replace(snapshot, faults=snapshot.faults + faults) for snapshot in reading.snapshots
    )
    return Reading(reading.kind, snapshots, reading.lines, reading.facts, reading.notes)
