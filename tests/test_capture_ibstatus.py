"""`ibstatus`: ports in the kernel's words."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from torn_text import read, texts

from topocheck.probes.capture.ibstatus import parse
from topocheck.probes.capture.text import read_text

CAPTURES = Path(__file__).parent / "captures"
CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
needs_cases = pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
LISTING = (CAPTURES / "ibstatus.txt").read_text(encoding="utf-8")


def test_ports_states_and_local_ids_are_read() -> None:
    (reading,) = parse(read(LISTING))
    (snapshot,) = reading.snapshots
    assert (snapshot.identity.host.name, snapshot.coverage.nics) == ("gpu-34", "all")
    ports = [nic.ports[0] for nic in snapshot.hardware.nics]
    assert [(port.state, port.physical, port.rate_gbps) for port in ports] == [
        ("ACTIVE", "LinkUp", 400.0),
        ("ACTIVE", "LinkUp", None),  # SDR on a link that is up
        ("DOWN", "Disabled", 40.0),
    ]
    assert [nic.kind for nic in snapshot.hardware.nics] == [None, None, "bond"]
    assert [port.lid for port in snapshot.state.ports] == [31, 32, 0]
    assert [nic.ports[0].sm_lid for nic in snapshot.network.nics] == [2, 2, 0]


def test_holes_in_the_numbers_prove_nothing() -> None:
    assert parse(read(LISTING))[0].snapshots[0].coverage.nics == "all"  # mlx5_3 and mlx5_9 under the command
    assert parse(read(LISTING.split("\n", 1)[1]))[0].snapshots[0].coverage.nics == "part"


def test_two_ports_of_one_device_are_one_device() -> None:
    text = LISTING.replace("mlx5_9' port 1", "mlx5_3' port 2")
    nics = parse(read(text))[0].snapshots[0].hardware.nics
    assert [(nic.name, [port.port for port in nic.ports]) for nic in nics] == [
        ("mlx5_3", [1, 2]),
        ("mlx5_bond_1", [1]),
    ]


def test_a_port_that_is_cut_is_unknown_and_not_down() -> None:
    (reading,) = parse(read(LISTING[: LISTING.index("state:")]))
    (snapshot,) = reading.snapshots
    assert [(nic.name, nic.ports) for nic in snapshot.hardware.nics] == [("mlx5_3", ())]
    assert snapshot.coverage.nics == "part"
    assert [note.kind for note in reading.notes] == ["cut"]


def test_a_machine_without_rdma_devices_has_none() -> None:
    text = "Fatal error:  device '*': sys files not found (/sys/class/infiniband/*/ports)\n"
    (snapshot,) = parse(read("root@cpu-1:~# ibstatus\n" + text))[0].snapshots
    assert (snapshot.identity.nics, snapshot.coverage.nics) == ((), "all")


@settings(max_examples=60, deadline=None)
@given(texts("ibstatus.txt"))
def test_any_text_is_read(text: str) -> None:
    for reading in parse(read(text)):
        (snapshot,) = reading.snapshots
        names = [nic.name for nic in snapshot.hardware.nics]
        assert len(set(names)) == len(names)


@needs_cases
def test_the_shared_listings_read_as_their_truth_says() -> None:
    (snapshot,) = parse(read_text(CASES / "C42-ibstatus-down.txt"))[0].snapshots
    assert [nic.name for nic in snapshot.hardware.nics] == ["mlx5_11", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5"]
    ports = [nic.ports[0] for nic in snapshot.hardware.nics]
    assert {(port.state, port.physical) for port in ports} == {("DOWN", "Disabled")}
    assert [port.layer for port in ports].count("Ethernet") == 1
    assert snapshot.coverage.nics == "part"
    (snapshot,) = parse(read_text(CASES / "C37-ibstatus-openfail.txt"))[0].snapshots
    (nic,) = snapshot.hardware.nics
    assert (nic.kind, nic.ports[0].state, nic.ports[0].rate_gbps) == ("bond", "ACTIVE", 25.0)
