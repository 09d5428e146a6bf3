"""`ibstat`: devices, ports, and what a cut leaves of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from torn_text import read, texts

from topocheck.probes.capture.ibstat import parse
from topocheck.probes.capture.text import read_text
from topocheck.snapshot import NicId, Port, PortNetwork, PortState

CAPTURES = Path(__file__).parent / "captures"
CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
LISTING = (CAPTURES / "ibstat.txt").read_text(encoding="utf-8")


def test_devices_and_ports_are_read_in_the_kernels_words() -> None:
    (reading,) = parse(read(LISTING))
    (snapshot,) = reading.snapshots
    assert (snapshot.identity.host.name, snapshot.coverage.nics) == ("gpu-33", "all")
    assert snapshot.identity.nics[0] == NicId(
        name="mlx5_0", guid="5a5a:0300:0000:00a1", card="5a5a:0300:0000:00a0"
    )
    first, second = snapshot.hardware.nics
    assert (first.model, first.kind, first.firmware) == ("MT4131", "rdma", "40.45.1020")
    assert first.ports == (
        Port(port=1, state="ACTIVE", physical="LinkUp", layer="InfiniBand", rate_gbps=800.0),
    )
    assert [(port.port, port.state, port.layer) for port in second.ports] == [
        (1, "INIT", "InfiniBand"),
        (2, "DOWN", "Ethernet"),
    ]
    assert snapshot.network.nics[0].ports == (PortNetwork(sm_lid=2, has_lid=True),)
    assert [(port.sm_lid, port.has_lid) for port in snapshot.network.nics[1].ports] == [(0, True), (0, False)]
    assert snapshot.state.ports[0] == PortState(nic=0, lid=31)


def test_a_link_at_sdr_has_an_unknown_rate() -> None:
    (reading,) = parse(read(LISTING))
    assert reading.snapshots[0].hardware.nics[1].ports[0].rate_gbps is None
    assert [(note.line, note.kind) for note in reading.notes] == [(19, "ignored")]


@pytest.mark.parametrize("ends", ["Port 1:", "State: Active", "Rate: 800", "Number of ports: 1"])
def test_a_device_that_is_cut_is_unknown_and_not_down(ends: str) -> None:
    (reading,) = parse(read(LISTING[: LISTING.index(ends) + len(ends)]))
    (snapshot,) = reading.snapshots
    assert snapshot.coverage.nics == "part"
    assert "DOWN" not in {port.state for nic in snapshot.hardware.nics for port in nic.ports}
    assert [note.kind for note in reading.notes] == ["cut"]


def test_a_device_with_fewer_ports_than_it_says_is_cut() -> None:
    text = LISTING[: LISTING.index("\tPort 2:")]
    assert parse(read(text))[0].snapshots[0].coverage.nics == "part"


@pytest.mark.parametrize("command", ["ibstat mlx5_0", "ibstat | head -40", "ibstat -s"])
def test_a_listing_of_some_devices_is_a_part(command: str) -> None:
    text = LISTING.replace("# ibstat", f"# {command}")
    assert parse(read(text))[0].snapshots[0].coverage.nics == "part"


def test_a_listing_without_its_command_is_a_part() -> None:
    assert parse(read(LISTING.split("\n", 1)[1]))[0].snapshots[0].coverage.nics == "part"


def test_a_device_that_is_listed_twice_is_a_contradiction() -> None:
    text = "ibstat\n" + LISTING.split("\n", 1)[1].replace("mlx5_2", "mlx5_0")
    assert "contradictory" in {note.kind for note in parse(read(text))[0].notes}


@settings(max_examples=60, deadline=None)
@given(texts("ibstat.txt"))
def test_any_text_is_read(text: str) -> None:
    for reading in parse(read(text)):
        (snapshot,) = reading.snapshots
        count = len(snapshot.identity.nics)
        assert count == len(snapshot.hardware.nics)
        assert all(nic.nic < count for nic in snapshot.network.nics)
        assert all(port.nic < count for port in snapshot.state.ports)


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_the_shared_listing_reads_as_its_truth_says() -> None:
    (reading,) = parse(read_text(CASES / "C43-ibstat-topo-partial.txt"))
    (snapshot,) = reading.snapshots
    assert [nic.name for nic in snapshot.identity.nics] == ["mlx5_5"]
    (nic,) = snapshot.hardware.nics
    assert nic.model == "MT4129"
    assert nic.ports == (
        Port(port=1, state="ACTIVE", physical="LinkUp", layer="InfiniBand", rate_gbps=400.0),
    )
    assert snapshot.coverage.nics == "part"  # dots stand above it
