"""What changes by itself is reduced to what rules ask of, and equal hosts keep it once."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw, ValidationError, json

from topocheck.condition import NodeState, reduced
from topocheck.networkfacts import NetworkFacts, PortFacts
from topocheck.snapshot import Clock, Condition, GpuCondition, Netdev, Process, RankClaim

GIB = 1 << 30
NOTHING = NetworkFacts()


def view(condition: Condition, *pids: int, network: NetworkFacts = NOTHING) -> NodeState:
    claims = [RankClaim(rank=rank, pid=pid) for rank, pid in enumerate(pids)]
    found = reduced(condition, claims, network, {})
    assert found is not None
    return found


def test_a_view_that_says_nothing_is_none() -> None:
    assert reduced(Condition(), [], NOTHING, {}) is None


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


def test_addresses_are_kept_as_bytes_and_told_by_network_device() -> None:
    network = NetworkFacts(netdevs=(Netdev(name="lo"), Netdev(name="eth2")))
    own = json.encode([None, ["10.0.1.10/24", "fe80::1/64"]])
    found = view(Condition(addresses=Raw(own)), network=network)
    assert found.netdevs is network.netdevs
    assert found.addresses == (None, ("10.0.1.10/24", "fe80::1/64"))
    assert view(Condition(), network=network).addresses == (None, None)
    assert view(Condition(addresses=Raw(b" [ ] ")), network=network).addresses == (None, None)


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        (b'[["10.0.1.10/24"]]', "`state.addresses` lists 1 and `network.netdevs` 2"),
        (b"[null,null,null]", "`state.addresses` lists 3 and `network.netdevs` 2"),
        (b'[["10.0.1.10/24"],[7]]', "str"),
        (b'["10.0.1.10/24",null]', "array"),
        (b"null", "array"),
        (b"{}", "array"),
    ],
)
def test_addresses_of_another_form_are_refused_when_they_are_read(addresses: bytes, words: str) -> None:
    network = NetworkFacts(netdevs=(Netdev(name="lo"), Netdev(name="eth2")))
    with pytest.raises(ValidationError, match=words):
        reduced(Condition(addresses=Raw(addresses)), [], network, {})


def test_ports_and_network_devices_alone_are_something() -> None:
    assert view(Condition(), network=NetworkFacts(netdevs=(Netdev(name="lo"),))).idle == ()
    port = PortFacts(0, 1, sm_lid=1, gids=None, cut=False)
    assert view(Condition(), network=NetworkFacts(ports=(port,))).ports == (port,)


def test_the_clock_is_kept_as_it_is() -> None:
    clock = Clock(synchronised=False, error_seconds=16.0)
    assert view(Condition(clock=clock)).clock == clock


@pytest.mark.parametrize(
    "text",
    [
        '[["10.0.0.2/16"],5]',
        '[5,["10.0.0.2/16"]]',
        '[["10.0.0.2/16",5],null]',
        '[["10.0.0.2/16"],[5]]',
        '[["10.0.0.2/16"],{}]',
        '[["10.0.0.2/16"]]',
        '[["10.0.0.2/16"],[ 5 ]]',
        '[["10.0.0.2/16"],false]',
    ],
)
def test_addresses_of_another_form_are_refused_whatever_was_read_before(text: str) -> None:
    kept: dict[Any, Any] = {}
    network = NetworkFacts(netdevs=(Netdev(name="lo"), Netdev(name="eth0")))
    for good in (
        '[["10.0.0.1/16"],null]',
        '[["10.0.0.1/16"],[]]',
        '[["10.0.0.1/16"],[ ]]',
        '[null,["::1/128"]]',
    ):
        for _ in range(2):
            state = reduced(Condition(addresses=Raw(good.encode())), (), network, kept)
            assert state is not None
            assert state.addresses == json.decode(good, type=tuple[tuple[str, ...] | None, ...])
    with pytest.raises(ValidationError):
        reduced(Condition(addresses=Raw(text.encode())), (), network, kept)
