"""Captures of hardware are taken by their own parser and by no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from topocheck.probes.capture.recognise import read_capture

CAPTURES = Path(__file__).parent / "captures"

KINDS = {
    "smi-q.txt": "nvidia-smi -q",
    "smi-q-grep.txt": "nvidia-smi -q",
    "smi-q-x.xml": "nvidia-smi -q -x",
    "fabric-boxes.txt": "fabric listing",
    "fabric-wait.log": "fabric listing",
    "clique-columns.txt": "nvidia.com/gpu.clique",
    "clique-labels.txt": "nvidia.com/gpu.clique",
    "ibstat.txt": "ibstat",
    "ibstatus.txt": "ibstatus",
    "ibv-devinfo-v.txt": "ibv_devinfo",
    "show-gids.txt": "show_gids",
    "lspci-vvv.txt": "lspci",
    "hwloc.xml": "hwloc XML",
    "gpu-orders.txt": "GPU order",
    "fabricmanager.log": "fabric manager log",
    "fabricmanager-journal.txt": "fabric manager log",
}
OTHERS = sorted(path.name for path in CAPTURES.iterdir() if path.name not in KINDS)


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_a_capture_of_hardware_is_taken_by_one_parser(name: str, kind: str) -> None:
    found = read_capture((CAPTURES / name).read_bytes(), name)
    assert {reading.kind for reading in found} - {"failure lines"} == {kind}


@pytest.mark.parametrize("name", OTHERS)
def test_other_captures_are_left_to_their_parsers(name: str) -> None:
    found = {reading.kind for reading in read_capture((CAPTURES / name).read_bytes(), name)}
    mine = set(KINDS.values()) | {"kernel modules", "limits", "df /dev/shm", "shared memory failure"}
    allowed = {"topo-partial.txt": {"ibstat"}, "clique-node.yaml": {"nvidia.com/gpu.clique"}}
    assert found & mine == allowed.get(name, set())
