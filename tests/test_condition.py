"""What changes by itself is reduced to what rules ask of, and equal hosts keep it once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec
import pytest

from topocheck.condition import GidFacts, NodeState, reduced
from topocheck.snapshot import (
    Clock,
    Condition,
    Gid,
    GpuCondition,
    Netdev,
    NicCondition,
    PortCondition,
    Process,
    RankClaim,
)

GIB = 1 << 30


def view(condition: Condition, *pids: int, kept: dict[Hashable, Any] | None = None) -> NodeState:
    claims = [RankClaim(rank=rank, pid=pid) for rank, pid in enumerate(pids)]
    found = reduced(condition, claims, {} if kept is None else kept)
    assert found is not None
    return found


def test_a_view_that_says_nothing_is_none() -> None:
    assert reduced(Condition(), [], {}) is None


def test_a_gpu_with_the_jobs_own_process_alone_is_idle() -> None:
    own = Process(pid=71, memory_bytes=40 * GIB)
    gpu = GpuCondition(gpu=3, memory_used_bytes=40 * GIB, processes=(own,))
    found = view(Condition(gpus=(gpu,)), 71)
    assert (found.idle, found.busy) == ((3,), ())


def test_a_foreign_process_stays_and_the_jobs_own_is_left_out() -> None:
    gpu = GpuCondition(
        gpu=0,
        memory_used_bytes=GIB + 5,
        processes=(Process(pid=71, memory_bytes=5), Process(pid=9, name="zombie")),
    )
    found = view(Condition(gpus=(gpu,)), 71)
    assert found.idle == ()
    assert found.busy == (
        GpuCondition(gpu=0, memory_used_bytes=GIB, processes=(Process(pid=9, name="zombie"),)),
    )


@pytest.mark.parametrize(("held", "left"), [(GIB, 39 * GIB), (None, None), (40 * GIB, 0)])
def test_memory_that_the_jobs_own_process_does_not_hold_is_somebody_elses(
    held: int | None, left: int | None
) -> None:
    gpu = GpuCondition(gpu=0, memory_used_bytes=40 * GIB, processes=(Process(pid=71, memory_bytes=held),))
    found = view(Condition(gpus=(gpu,)), 71)
    assert found.idle == ((0,) if left == 0 else ())
    assert [one.memory_used_bytes for one in found.busy] == ([] if left == 0 else [left])


def test_memory_without_a_process_is_kept_unless_it_is_little() -> None:
    little = GpuCondition(gpu=0, memory_used_bytes=4 << 20, processes=())
    much = GpuCondition(gpu=1, memory_used_bytes=30 * GIB, processes=())
    found = view(Condition(gpus=(little, much)))
    assert (found.idle, found.busy) == ((0,), (much,))


def test_a_gpu_on_whose_processes_nobody_looked_is_not_idle() -> None:
    gpu = GpuCondition(gpu=0, memory_used_bytes=0)
    assert view(Condition(gpus=(gpu,))).busy == (gpu,)


def test_gids_of_equal_hosts_are_kept_once_whatever_their_addresses() -> None:
    def host(last: str) -> Condition:
        gids = (
            Gid(
                index=2, gid=f"fe80:0000:0000:0000:ba3f:d2ff:fe00:00{last}", type="IB/RoCE v1", netdev="eth2"
            ),
            Gid(index=3, gid=f"0000:0000:0000:0000:0000:ffff:0a00:01{last}", type="RoCE v2", netdev="eth2"),
        )
        devices = (Netdev(name="eth2", state="up", mtu=9000, addresses=(f"10.0.1.{int(last, 16)}/24",)),)
        port = PortCondition(lid=0, sm_lid=0, gids=msgspec.Raw(msgspec.json.encode(gids)))
        return Condition(nics=(NicCondition(nic=0, ports=(port,)),), netdevs=devices)

    kept: dict[Hashable, Any] = {}
    first, second = view(host("0a"), kept=kept), view(host("0b"), kept=kept)
    assert first.ports is second.ports
    assert first.netdevs is second.netdevs
    assert first.ports[0].gids == (
        GidFacts(2, "IB/RoCE v1", "eth2", mapped=False, link_local=True),
        GidFacts(3, "RoCE v2", "eth2", mapped=True, link_local=False),
    )
    assert (first.addresses, second.addresses) == ((("10.0.1.10/24",),), (("10.0.1.11/24",),))
    assert first.netdevs[0].addresses is None


def test_gids_under_a_subnet_manager_are_let_go() -> None:
    gid = Gid(index=0, gid="fe80:0000:0000:0000:0c42:a103:00aa:0001")
    table = msgspec.Raw(msgspec.json.encode((gid,)))
    port = PortCondition(lid=17, sm_lid=1, gids=table)
    found = view(Condition(nics=(NicCondition(nic=4, ports=(port,)),)))
    assert (found.ports[0].nic, found.ports[0].sm_lid, found.ports[0].gids) == (4, 1, None)


def test_a_gid_table_of_a_stream_is_read_where_no_subnet_manager_gave_an_id() -> None:
    gid = Gid(index=3, gid="0000:0000:0000:0000:0000:ffff:0a00:010a", type="RoCE v2", netdev="eth0")
    table = msgspec.Raw(msgspec.json.encode((gid,)))
    ports = PortCondition(port=1, lid=0, gids=table), PortCondition(port=2, lid=0)
    found = view(Condition(nics=(NicCondition(nic=0, ports=ports),)))
    assert found.ports[0].gids == ((3, "RoCE v2", "eth0", True, False),)
    assert found.ports[1].gids is None
    odd = PortCondition(lid=0, gids=msgspec.Raw(b'[{"gid":"x"}]'))
    with pytest.raises(msgspec.ValidationError, match="index"):
        view(Condition(nics=(NicCondition(nic=0, ports=(odd,)),)))


def test_the_clock_is_kept_as_it_is() -> None:
    clock = Clock(synchronised=False, error_seconds=16.0)
    assert view(Condition(clock=clock)).clock == clock
