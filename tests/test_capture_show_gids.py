"""`show_gids`: GID tables with tabs, blanks, empty cells and cuts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from torn_text import read, texts

from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.show_gids import parse
from topocheck.probes.capture.text import read_text
from topocheck.snapshot import PortNetwork

CAPTURES = Path(__file__).parent / "captures"
CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
TABLES = (CAPTURES / "show-gids.txt").read_text(encoding="utf-8")
V1, V2 = "IB/RoCE v1", "RoCE v2"


def ports(reading: Reading) -> dict[str, PortNetwork]:
    (snapshot,) = reading.snapshots
    return {snapshot.identity.nics[nic.nic].name: port for nic in snapshot.network.nics for port in nic.ports}


def digits(reading: Reading) -> dict[str, tuple[str, ...]]:
    (snapshot,) = reading.snapshots
    return {snapshot.identity.nics[port.nic].name: port.gids or () for port in snapshot.state.ports}


def entries(port: PortNetwork) -> list[tuple[int, str | None, str | None]]:
    return [(gid.index, gid.type, gid.netdev) for gid in port.gids or ()]


def test_each_prompt_has_its_table() -> None:
    first, second = parse(read(TABLES))
    assert [reading.snapshots[0].identity.host.name for reading in (first, second)] == ["pod-x", "pod-y"]
    assert entries(ports(first)["mlx5_7"]) == [(0, V1, "net2"), (3, V2, "net2")]
    assert entries(ports(second)["mlx5_7"]) == [(2, V2, "net2")]


def test_empty_cells_shift_nothing() -> None:
    first = parse(read(TABLES))[0]
    port = ports(first)["mlx5_8"]
    assert (port.port, entries(port)) == (2, [(1, V2, None)])
    assert [gid.family for gid in port.gids or ()] == ["ipv6"]
    assert digits(first)["mlx5_8"] == ("fd00:0000:0000:0000:0000:0000:0000:0001",)


def test_a_table_below_its_header_is_whole_and_a_cut_row_makes_it_a_part() -> None:
    first, second = parse(read(TABLES))
    assert [port.gids_cut for port in ports(first).values()] == [False, False]
    assert [port.gids_cut for port in ports(second).values()] == [True]
    assert [note.kind for note in second.notes] == ["cut"]


@pytest.mark.parametrize(
    ("old", "new"),
    [("DEV\tPORT", "dev\tport"), ("n_gids_found=3", "n_gids_found=9"), ("n_gids_found=3", "...")],
)
def test_a_table_that_may_lack_entries_is_a_part(old: str, new: str) -> None:
    text = TABLES[: TABLES.index("root@pod-y")].replace("# show_gids", "# cat gids").replace(old, new)
    (reading,) = parse(read(text))
    assert all(port.gids_cut for port in ports(reading).values())


def test_one_index_with_two_entries_is_a_contradiction() -> None:
    text = TABLES[: TABLES.index("root@pod-y")].replace("mlx5_7\t1\t3", "mlx5_7\t1\t0")
    assert "contradictory" in {note.kind for note in parse(read(text))[0].notes}


@pytest.mark.parametrize("text", ["DEV PORT INDEX GID IPv4 VER DEV\n", "mlx5_0 1 0 fe80:: v2\n"])
def test_what_is_no_entry_is_left_alone(text: str) -> None:
    assert parse(read(text)) == []


@settings(max_examples=60, deadline=None)
@given(texts("show-gids.txt"))
def test_any_text_is_read(text: str) -> None:
    for reading in parse(read(text)):
        for name, port in ports(reading).items():
            assert all(gid.type in {V1, V2} for gid in port.gids or ())
            assert len(port.gids or ()) <= len(digits(reading)[name])
            assert {len(gid) for gid in digits(reading)[name]} == {39}


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_the_shared_tables_read_as_their_truth_says() -> None:
    first, second = parse(read_text(CASES / "C40-show-gids-two-pods.txt"))
    assert [reading.snapshots[0].identity.host.name for reading in (first, second)] == ["pod-a", "pod-b"]
    assert entries(ports(first)["mlx5_4"]) == [(4, V1, "net1"), (5, V2, "net1")]
    assert entries(ports(second)["mlx5_4"]) == [(6, V1, "net1"), (7, V2, "net1")]
    (reading,) = parse(read_text(CASES / "C41-show-gids-indented.txt"))
    for name, tail in (("mlx5_0", "0048"), ("mlx5_1", "0049")):
        port = ports(reading)[name]
        listed = zip(port.gids or (), digits(reading)[name], strict=True)
        usable = [gid.index for gid, own in listed if gid.type == V2 and own.endswith(tail)]
        assert (usable, len(port.gids or ()), port.gids_cut) == ([3], 4, False)
