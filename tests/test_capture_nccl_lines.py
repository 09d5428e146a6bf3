"""What NCCL's messages say about ranks and connections, from version 2.3 to 2.30."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.nccl_lines import (
    Seat,
    parse_clique,
    parse_fabric,
    parse_hop,
    parse_ring,
    parse_seat,
    seems_cut,
)

COMM = "comm 0x55d0 rank 3 nranks 8 cudaDev 1"
BUS = "0000:5e:00.0"

SEATS = {
    f"{COMM} nvmlDev 5 - Init COMPLETE": Seat(3, 8, "complete", "0x55d0", cuda=1, nvml=5),
    f"{COMM} busId 5e000 - Init COMPLETE": Seat(3, 8, "complete", "0x55d0", cuda=1, bus=BUS),
    f"{COMM} busId 5e000 commId 0x9a - Init COMPLETE": Seat(
        3, 8, "complete", "0x55d0", comm_id="0x9a", cuda=1, bus=BUS
    ),
    f"{COMM} nvmlDev 5 busId 5e000 commId 0x9a - Init START": Seat(
        3, 8, "start", "0x55d0", comm_id="0x9a", cuda=1, nvml=5, bus=BUS
    ),
    f"ncclCommInitRankScalable {COMM} nvmlDev 5 busId 5e000 commId 0x9a - Init START": Seat(
        3, 8, "start", "0x55d0", comm_id="0x9a", cuda=1, nvml=5, bus=BUS
    ),
    f"[Rank 3] ncclCommInitRank {COMM} nvmlDev 5 busId 1806000 commId 0x9a - Init START": Seat(
        3, 8, "start", "0x55d0", comm_id="0x9a", cuda=1, nvml=5, bus="0018:06:00.0"
    ),
    f"ncclCommSplit {COMM} nvmlDev 5 busId 5e000 parent 0x44 color 2 key 3 commId 0x9a - Init START": Seat(
        3, 8, "start", "0x55d0", comm_id="0x9a", parent="0x44", color=2, cuda=1, nvml=5, bus=BUS
    ),
    f"ncclCommSplit {COMM} nvmlDev 5 busId 5e000 parent 0x44 color 2 key 3- Init START": Seat(
        3, 8, "start", "0x55d0", parent="0x44", color=2, cuda=1, nvml=5, bus=BUS
    ),
    f"ncclCommSplit {COMM} nvmlDev 5 busId 5e000 parent 0x4 splitCount 4 color 2 key 3 - Init COMPLETE": Seat(
        3, 8, "complete", "0x55d0", parent="0x4", count=4, color=2, cuda=1, nvml=5, bus=BUS
    ),
    f"ncclCommSplit {COMM} nvmlDev 5 busId 5e000 parent 0x44 childCount 4 color 2 key 3- Init START": Seat(
        3, 8, "start", "0x55d0", parent="0x44", count=4, color=2, cuda=1, nvml=5, bus=BUS
    ),
    f"{COMM} busId 5e000 - Destroy COMPLETE": Seat(3, 8, "destroyed", "0x55d0", cuda=1, bus=BUS),
    f"{COMM} busId 5e000 - Abort COMPLETE": Seat(3, 8, "destroyed", "0x55d0", cuda=1, bus=BUS),
    "comm 0x55d0 rank 3 nRanks 8 nNodes 2 localRanks 4 localRank 3 MNNVL 0": Seat(3, 8, "seen", "0x55d0"),
    "Init timings - ncclCommInitRank: rank 3 nranks 8 total 2.00 (kernels 0.32)": Seat(3, 8),
    "Trees [0] 1/-1/-1->3->-1|-1->3->1/-1/-1 [1] 1/-1/-1->3->5": Seat(3),
    "Trees [0] -1->3->1/-1/-1 [1] 5->3->-1/-1/-1": Seat(3),
    "Ring 07 : 2 -> 3 -> 4": Seat(3),
    "Tree 0 : -1 -> 3 -> 1/-1/-1": Seat(3),
}


@pytest.mark.parametrize("message", SEATS)
def test_every_version_says_who_the_writer_is(message: str) -> None:
    assert parse_seat(message) == SEATS[message]


def test_a_comm_id_of_zero_is_none() -> None:
    seat = parse_seat(f"ncclCommSplit {COMM} nvmlDev 5 busId 5e000 commId 0x0 - Init START")
    assert seat is not None
    assert seat.comm_id is None


HOPS = {
    "Ring 00 : 2[2] -> 3[3] via P2P/IPC": (2, 3, "P2P", "P2P/IPC", None, None, None),
    "Ring 00 : 0 -> 1 [send] via NET/IB/2/GDRDMA": (0, 1, "NET", "NET/IB/2/GDRDMA", "send", "IB", True),
    "Channel 00 : 2[b000] -> 3[1c000] via P2P/direct pointer": (
        (2, 3, "P2P", "P2P/direct pointer", None, None, None)
    ),
    "Channel 00 : 2[b000] -> 3[1c000] via P2P/IPC/read": (2, 3, "P2P", "P2P/IPC/read", None, None, None),
    "Channel 00 : 2[b000] -> 3[1c000] via P2P/indirect/6[9b000]": (
        (2, 3, "P2P", "P2P/indirect/6[9b000]", None, None, None)
    ),
    "Channel 00 : 2[b000] -> 3[1c000] via direct shared memory": (
        (2, 3, "SHM", "direct shared memory", None, None, None)
    ),
    "Channel 00 : 2[2] -> 3[3] via SHM/direct/direct": (2, 3, "SHM", "SHM/direct/direct", None, None, None),
    "Channel 00 : 2[2] -> 3[3] via SHM/direct": (2, 3, "SHM", "SHM/direct", None, None, None),
    "Channel 01/0 : 2[2] -> 3[3] via P2P/CUMEM/read/CE": (
        (2, 3, "P2P", "P2P/CUMEM/read/CE", None, None, None)
    ),
    "Channel 01/0 : 2[2] -> 3[3] via P2P/MNNVL": (2, 3, "P2P", "P2P/MNNVL", None, None, None),
    "Channel 01/1 : 2[2] -> 3[3] [send] via NET/Socket/0": (
        (2, 3, "NET", "NET/Socket/0", "send", "Socket", False)
    ),
    "Channel 01/1 : 2[2] -> 3[3] [receive] via NET/AWS Libfabric/3/GDRDMA/Shared": (
        (2, 3, "NET", "NET/AWS Libfabric/3/GDRDMA/Shared", "receive", "AWS Libfabric", True)
    ),
    "Channel 01/1 : 2[2] -> 3[3] [send] via NET/NCCL RDMA Plugin v8/4(7)/GDRDMA": (
        (2, 3, "NET", "NET/NCCL RDMA Plugin v8/4(7)/GDRDMA", "send", "NCCL RDMA Plugin v8", True)
    ),
    "Channel 01/1 : 2[2] -> 3[3] [send] via NET/IB/4/GDRDMA(PCI)": (
        (2, 3, "NET", "NET/IB/4/GDRDMA(PCI)", "send", "IB", True)
    ),
    "2[b000] -> 3[1c000] [receive] via NET/IB/1": (2, 3, "NET", "NET/IB/1", "receive", "IB", False),
}


@pytest.mark.parametrize("message", HOPS)
def test_every_transport_is_read(message: str) -> None:
    hop = parse_hop(message)
    assert hop is not None
    assert (hop.src, hop.dst, hop.via, hop.how, hop.side, hop.network, hop.gdr) == HOPS[message]


@pytest.mark.parametrize(
    "message",
    [
        "Channel 00/0 : 0[0] -> 1[1] via NVL/0",
        "Channel 00/0 : 0[0] -> 1[1] via NVLink",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUM",
        "Channel 00/0 : 0[0] -> 1[1] via",
        "Channel 00/0 : 0[0] -> ",
    ],
)
def test_transports_that_nccl_does_not_have_and_cut_lines_are_no_connections(message: str) -> None:
    assert parse_hop(message) is None
    assert seems_cut(message)


def test_the_near_end_is_the_writers() -> None:
    sent = parse_hop("Channel 00 : 4[1a000] -> 9[6b000] [send] via NET/IB/0")
    received = parse_hop("Channel 00 : 4[1a000] -> 9[6b000] [receive] via NET/IB/0")
    unsaid = parse_hop("Ring 00 : 4 -> 9 via NET/IB/0")
    assert sent and received and unsaid  # noqa: PT018 - all three are lines of NCCL
    assert (sent.near, sent.near_bus) == (4, "0000:1a:00.0")
    assert (received.near, received.near_bus) == (9, "0000:6b:00.0")
    assert unsaid.near is None


@pytest.mark.parametrize(("bracket", "bus"), [("1e0", "0000:00:1e.0"), ("7", None), ("15", None)])
def test_an_index_in_the_bracket_is_no_bus_id(bracket: str, bus: str | None) -> None:
    hop = parse_hop(f"Channel 00 : 0[{bracket}] -> 1[2] via SHM/direct")
    assert hop is not None
    assert hop.near_bus == bus


def test_a_rccl_line_names_its_communicator() -> None:
    hop = parse_hop("Channel 02 : 0[c1000] -> 1[c6000] via P2P/direct pointer comm 0x7f30 nRanks 08")
    assert hop is not None
    assert (hop.how, hop.pointer) == ("P2P/direct pointer", "0x7f30")


OLD = "".join(f" {rank:3d}" for rank in range(20))


@pytest.mark.parametrize(
    ("message", "size"),
    [
        ("Channel 00/02 :    0   1", 2),
        ("Channel 01/24 :  0  3  2  1  4  5  6  7  8  9 10 11", 12),
        ("Ring 00 :    0   2   1", 3),
        ("Channel 00/32 :    0", 1),
        (f"Channel 00/02 : {OLD}", None),  # 20 is the most that NCCL up to 2.22 prints
        ("Channel 00/02 :  0" + "".join(f" {rank:2d}" for rank in range(1, 20)), 20),
        ("Channel 00/02 :   0   1   2   3 ...", None),
        ("Channel 00/02 :    0   1   3", None),  # cut
    ],
)
def test_a_ring_gives_a_size_only_if_it_is_whole(message: str, size: int | None) -> None:
    ring = parse_ring(message)
    assert ring is not None
    assert (ring.rank, ring.size) == (0, size)


def test_the_fabric_uuid_comes_back_in_the_order_of_nvidia_smi() -> None:
    fabric = parse_fabric(
        "MNNVL busId 0x1801000 fabric UUID 77665544332211aa.1 cliqueId 0x7ffe state 3 healthMask 0xaa"
    )
    assert fabric is not None
    assert (fabric.bus, fabric.clique, fabric.state) == ("0018:01:00.0", 32766, "Completed")
    assert fabric.uuid == "aa112233445566770100000000000000"
    assert fabric.health_mask == 0xAA


def test_a_clique_counts_when_it_is_active() -> None:
    on = parse_clique("MNNVL 1 cliqueId d26 cliqueSize 8 cliqueRank 6")
    off = parse_clique("MNNVL 0 cliqueId 0 cliqueSize 0 cliqueRank 0 ")
    assert on and off  # noqa: PT018 - both are lines of NCCL
    assert (on.active, on.id, on.size, off.active) == (True, "d26", 8, False)


@settings(max_examples=50, deadline=None)
@given(st.text(), st.sampled_from([*SEATS, *HOPS]), st.integers(0, 120), st.integers(0, 20))
def test_damaged_messages_never_fail(noise: str, message: str, place: int, cut: int) -> None:
    damaged = message[:place] + noise + message[place + cut :]
    for parse in (parse_seat, parse_hop, parse_ring, parse_fabric, parse_clique, seems_cut):
        parse(damaged)
