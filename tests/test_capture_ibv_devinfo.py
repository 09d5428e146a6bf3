"""`ibv_devinfo`: devices that a process opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from torn_text import read, texts

from topocheck.probes.capture.ibv_devinfo import parse
from topocheck.probes.capture.text import read_text
from topocheck.snapshot import Gid, Verbs, VerbsDevice

CAPTURES = Path(__file__).parent / "captures"
CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
LISTING = (CAPTURES / "ibv-devinfo-v.txt").read_text(encoding="utf-8")


def test_a_verbose_listing_tells_rate_and_gids() -> None:
    (reading,) = parse(read(LISTING))
    (snapshot,) = reading.snapshots
    mellanox, amazon = snapshot.hardware.nics
    assert (mellanox.model, mellanox.board, mellanox.kind) == ("MT4129", "MT_0000000838", "rdma")
    (port,) = mellanox.ports
    assert (port.state, port.physical, port.layer, port.rate_gbps) == ("ACTIVE", "LinkUp", "Ethernet", 400.0)
    assert (amazon.kind, amazon.ports[0].layer) == ("efa", None)
    (shared,) = snapshot.network.nics[0].ports
    assert shared.gids == (
        Gid(index=0, family="link-local", type="IB/RoCE v1"),
        Gid(index=3, family="ipv4", type="RoCE v2"),
    )
    assert snapshot.state.ports[0].gids == (
        "fe80:0000:0000:0000:5a5a:03ff:fe00:00c1",
        "0000:0000:0000:0000:0000:ffff:c000:0211",
    )
    assert not shared.gids_cut
    assert reading.notes == ()


def test_devices_that_are_listed_can_be_opened_where_it_ran() -> None:
    (snapshot,) = parse(read(LISTING))[0].snapshots
    assert snapshot.identity.host.name == "trainer-0"
    assert snapshot.verbs == Verbs(
        scope="container",
        devices=tuple(VerbsDevice(name="", nic=nic, openable=True) for nic in ("mlx5_5", "rdmap0s1")),
    )


def test_a_container_lists_what_it_was_given_and_a_host_all() -> None:
    assert parse(read(LISTING))[0].snapshots[0].coverage.nics == "part"
    on_host = "root@gpu-39:~# ibv_devinfo -v\n" + LISTING.split("\n", 1)[1]
    assert parse(read(on_host))[0].snapshots[0].coverage.nics == "all"
    one = on_host.replace("ibv_devinfo -v", "ibv_devinfo -d mlx5_5")
    assert parse(read(one))[0].snapshots[0].coverage.nics == "part"


def test_no_device_is_a_view_without_devices_and_no_list_of_the_node() -> None:
    (snapshot,) = parse(read("kubectl exec pod-a -- ibv_devinfo\nNo IB devices found\n"))[0].snapshots
    assert snapshot.verbs == Verbs(scope="container", devices=())
    assert snapshot.coverage.nics is None
    assert parse(read("No IB devices found\n")) == []


def test_gids_of_a_cut_block_may_be_more() -> None:
    (reading,) = parse(
        read(LISTING[: LISTING.index("GID[  3]")].replace("phys_port_cnt:\t\t\t1", "phys_port_cnt:\t\t\t2"))
    )
    (shared,) = reading.snapshots[0].network.nics[0].ports
    assert shared.gids_cut
    assert [note.kind for note in reading.notes] == ["cut"]


@settings(max_examples=60, deadline=None)
@given(texts("ibv-devinfo-v.txt"))
def test_any_text_is_read(text: str) -> None:
    for reading in parse(read(text)):
        (snapshot,) = reading.snapshots
        assert len(snapshot.identity.nics) == len(snapshot.hardware.nics)


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_the_shared_piece_reads_as_its_truth_says() -> None:
    (reading,) = parse(read_text(CASES / "C42-ibv-devinfo-mixed.txt"))
    (snapshot,) = reading.snapshots
    whole, cut = snapshot.hardware.nics
    assert (whole.name, whole.firmware, whole.model) == ("mlx5_2", "28.42.1000", "MT4129")
    assert [(port.state, port.layer) for port in whole.ports] == [("ACTIVE", "Ethernet")]
    assert (cut.name, cut.firmware, cut.ports) == ("mlx5_3", "16.35.4030", ())  # unknown, not down
    assert snapshot.coverage.nics == "part"
    assert [note.line for note in reading.notes] == [1, 27]  # the headless block, the cut one
