"""A node as a whole: probes apart, their findings joined."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from nvml_machine import ask, machine
from rooted import machine as recorded
from rooted import roots_at

from topocheck.probes.node import probe
from topocheck.probes.node.amd import AmdGpus
from topocheck.probes.node.gpus import join_gpus
from topocheck.probes.node.pci import PciTree
from topocheck.probes.node.pci_function import PciFunction
from topocheck.probes.node.probe import LIGHT, PROBES, Request, read_node
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import (
    SCHEMA,
    Coverage,
    FullSnapshot,
    GpuId,
    GpuShape,
    Hardware,
    Host,
    Network,
    ProbeFault,
)

HGX = machine("hgx_h100")
RANK = {
    "TORCHELASTIC_RUN_ID": "x",
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
}
ABSENT = ProbeFault(part="gpus", kind="absent", path="libnvidia-ml.so.1", reason="No such file")


def read(roots: Roots, **asked: object) -> FullSnapshot:
    """One node, with much time."""
    return read_node(Request(roots=roots, timeout_s=60.0, **asked))  # type: ignore[arg-type]


def on(root: Path, env: Mapping[str, str]) -> Roots:
    """An eight-GPU machine on which a process of a job looks at itself."""
    return recorded("hgx-h100", root, env)


def test_a_recorded_machine_is_read_like_a_live_one(tmp_path: Path) -> None:
    found = read(on(tmp_path, {}))
    assert found.schema == SCHEMA
    assert found.coverage == Coverage(nics="all")
    assert len(found.hardware.nics) == len(found.identity.nics) > 8
    assert found.hardware.pci
    assert {nic.pci for nic in found.hardware.nics} <= {node.id for node in found.hardware.pci}
    assert [source.name for source in found.sources] == ["topocheck probe"]
    assert ("gpus", "absent") in {(fault.part, fault.kind) for fault in found.faults}


def test_every_snapshot_has_a_token_of_its_own(tmp_path: Path) -> None:
    roots = on(tmp_path, {})
    assert read(roots).token != read(roots).token


def test_the_first_process_tells_of_the_node_and_the_others_of_themselves(tmp_path: Path) -> None:
    first = read(on(tmp_path / "a", RANK | {"RANK": "0", "LOCAL_RANK": "0"}))
    other = read(on(tmp_path / "b", RANK))
    assert first.hardware.nics
    assert first.network.netdevs
    assert (other.hardware, other.verbs, other.files) == (Hardware(), None, ())
    assert (other.network, other.identity.nics) == (Network(), ())
    assert other.coverage == Coverage(ranks="part")
    assert [claimed.rank for claimed in (*first.ranks, *other.ranks)] == [0, 1]
    assert other.limits.memlock_bytes == first.limits.memlock_bytes
    assert other.environment == first.environment
    assert Request(roots=on(tmp_path / "c", RANK)).asked == LIGHT


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    found = read(on(tmp_path, {}), names=frozenset({"network"}))
    assert found.identity.host == Host()
    assert len(found.network.netdevs) == len(found.state.addresses) > 0
    assert (found.hardware, found.coverage, found.faults) == (Hardware(), Coverage(), found.faults)
    assert {fault.part for fault in found.faults} <= {"network"}


@pytest.mark.parametrize("name", PROBES)
def test_each_probe_can_be_left_out(name: str, tmp_path: Path) -> None:
    found = read(on(tmp_path, RANK | {"LOCAL_RANK": "0", "RANK": "0"}), names=frozenset(PROBES) - {name})
    assert msgspec.json.decode(msgspec.json.encode(found), type=FullSnapshot) == found
    assert not any(fault.kind == "broken" for fault in found.faults)


def test_without_the_tree_nics_are_listed_without_their_places(tmp_path: Path) -> None:
    found = read(on(tmp_path, {}), names=frozenset({"nics"}))
    assert found.coverage.nics == "all"
    assert {nic.pci for nic in found.hardware.nics} == {None}


def test_a_probe_that_breaks_is_named_and_hides_only_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(probe.READERS["nics"], function="no_such_function")
    monkeypatch.setitem(probe.READERS, "nics", broken)
    found = read(on(tmp_path, {}))
    faults = [fault for fault in found.faults if fault.kind == "broken"]
    assert [(fault.part, fault.path) for fault in faults] == [("nics", "probe nics")]
    assert "no_such_function" in faults[0].reason
    assert (found.coverage.nics, found.hardware.nics) == (None, ())
    assert found.hardware.pci


def test_a_folder_that_is_no_machine_gives_faults_and_nothing_else(tmp_path: Path) -> None:
    found = read(roots_at(tmp_path))
    assert found.coverage in (Coverage(), Coverage(nics="part"))
    assert {fault.kind for fault in found.faults} <= {"absent", "not-supported"}


def test_gpus_have_their_places_in_the_tree() -> None:
    reading = ask(HGX).reading
    bus = reading.ids[0].bus or ""
    tree = PciTree(places={bus: "root0/0/0"}, functions={bus: PciFunction(bus=bus, numa=1)})
    found = join_gpus(reading, None, tree, (), identity=False)
    assert found.shapes[0].pci == "root0/0/0"
    assert found.shapes[1].pci is None
    assert found.coverage == Coverage(gpus="all", links="all")


def test_identity_alone_is_enough_to_tell_devices_apart() -> None:
    ran, whole = ask(HGX, "--identity"), ask(HGX)
    assert ran.reading.ids == whole.reading.ids
    assert [shape.model for shape in ran.reading.shapes] == [shape.model for shape in whole.reading.shapes]
    assert len(ran.made) < len(whole.made) / 4
    found = join_gpus(ran.reading, None, None, (), identity=True)
    assert found.coverage == Coverage(gpus="all")
    assert {gpu.model for gpu in found.listed or ()} == {"NVIDIA H100 80GB HBM3"}


def test_slices_are_known_by_identity_alone() -> None:
    mig = machine("mig")
    found = join_gpus(ask(mig, "--identity").reading, None, None, (), identity=True)
    assert found.sliced == join_gpus(ask(mig).reading, None, None, (), identity=False).sliced
    assert found.sliced


AMD = AmdGpus(
    ids=(GpuId(uuid="GPU-1d3f0a1b2c3d4e51", bus="0000:03:00.0"),),
    shapes=(GpuShape(model="AMD Instinct MI300X", links=()),),
    whole=True,
)


def test_amds_gpus_stand_alone_or_not_at_all() -> None:
    """A processor with graphics beside NVIDIA's boards is none of the job's."""
    alone = join_gpus(None, AMD, None, (ABSENT,), identity=False)
    assert (alone.ids, alone.amd, alone.faults) == (AMD.ids, True, ())
    assert alone.coverage == Coverage(gpus="all", links="all")
    beside = join_gpus(ask(HGX).reading, AMD, None, (), identity=False)
    assert (len(beside.ids), beside.amd) == (8, False)
    assert [(fault.part, fault.kind) for fault in beside.faults] == [("gpus", "not-supported")]


def test_without_a_driver_nothing_is_known_about_gpus() -> None:
    found = join_gpus(None, AmdGpus(), None, (ABSENT,), identity=False)
    assert (found.listed, found.coverage, found.faults) == (None, Coverage(), (ABSENT,))
    assert join_gpus(None, None, None, (), identity=False).listed is None
