"""A machine that was made after the first of its sort is what it would be without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from build import completed, fact, inventory, log, snap

from topocheck.demo.job import healthy_nodes, snapshot_of
from topocheck.inventory import Inventory
from topocheck.likeness import OWN, look
from topocheck.machine import Machine
from topocheck.snapshot import (
    Clock,
    Fabric,
    FullSnapshot,
    GpuState,
    Limits,
    NcclFile,
    NodeClaim,
    ProbeFault,
    Process,
    RankClaim,
    Software,
    State,
    Verbs,
)

GIB = 1 << 30


def node(name: str, **parts: Any) -> FullSnapshot:
    """A node on whose GPUs its ranks are."""
    first = 4 * "abcdefgh".index(name)
    return running(snap(f"node-{name}", range(first, first + 4), size=32), **parts)


def running(view: FullSnapshot, **parts: Any) -> FullSnapshot:
    """The node while its ranks run."""
    claims = tuple(msgspec.structs.replace(claim, pid=70 + n) for n, claim in enumerate(view.ranks))
    on = tuple(
        GpuState(
            gpu=claim.gpu or 0,
            memory_used_bytes=GIB,
            processes=(Process(pid=claim.pid or 0, memory_bytes=GIB),),
        )
        for claim in claims
    )
    fields = {"ranks": claims, "state": State(gpus=on, clock=Clock(synchronised=True))}
    return msgspec.structs.replace(view, **(fields | parts))


def swapped(view: FullSnapshot) -> FullSnapshot:
    """Two ranks are on each other's GPU, and their claims come in the order of the GPUs that they are on."""
    a, b, *others = view.ranks
    gpus = tuple(
        msgspec.structs.replace(
            gpu, processes=(Process(pid={70: 71, 71: 70}.get(70 + gpu.gpu, 70 + gpu.gpu), memory_bytes=GIB),)
        )
        for gpu in view.state.gpus
    )
    return msgspec.structs.replace(
        view, ranks=(b, a, *others), state=msgspec.structs.replace(view.state, gpus=gpus)
    )


def turned(view: FullSnapshot) -> FullSnapshot:
    """Its claims come in another order."""
    a, b, *others = view.ranks
    return msgspec.structs.replace(view, ranks=(b, a, *others))


def busy_twice(view: FullSnapshot) -> FullSnapshot:
    """One GPU is listed once more, with a process that is not the job's."""
    other = GpuState(gpu=0, memory_used_bytes=GIB, processes=(Process(pid=9, memory_bytes=GIB),))
    return msgspec.structs.replace(
        view, state=msgspec.structs.replace(view.state, gpus=(*view.state.gpus, other))
    )


ODD = {
    "versions": node("c", software=Software(driver="550.1")),
    "limits": node("c", limits=Limits(scope="task", memlock_bytes=65536)),
    "container": node("c", limits=Limits(scope="container", container="c" * 64)),
    "verbs": node("c", verbs=Verbs(scope="task", library=False)),
    "variables": node("c", environment={"NCCL_P2P_DISABLE": "1"}),
    "own variables": node("c", own_environments=({"A": "1"}, {"A": "2"})),
    "clock": node("c", state=State(clock=Clock(synchronised=True, error_seconds=7.0))),
    "no state": node("c", state=State()),
    "no ranks": node("c", ranks=()),
    "fabric": node("c", fabric=completed()),
    "another fabric": node("c", fabric=(Fabric(state="In Progress"),)),
    "file": node("c", files=(NcclFile(path="/etc/nccl.conf", kind="settings", exists=False),)),
    "fault": node("c", faults=(ProbeFault(part="gpus", kind="absent", path="nvml"),)),
    "node claim": node("c", node_claim=NodeClaim(node_rank=2)),
    "run": node("c", run="4711"),
    "time": node("c", taken_at="2026-01-31T12:00:00Z"),
    "fewer GPUs": running(snap("node-c", range(8, 11), size=32, count=3)),
    "links": running(snap("node-c", range(8, 12), size=32, nvlinks=[18, 18, 12, 18])),
    "swapped": swapped(node("c")),
    "listed twice": busy_twice(node("c")),
    "source": running(snap("node-c", range(8, 12), size=32, source="other")),
    "log": log("node-c", facts=[fact("hca", "mlx5_0:1/IB", host="node-c")]),
    "another world": node("c", ranks=(RankClaim(rank=0, world="b"),)),
}


def told(machine: Machine) -> dict[str, Any]:
    """All that is kept of a machine, but for the objects that it shares."""
    found = msgspec.structs.asdict(machine) | {"look": machine.look == OWN}
    shape = found.pop("shape")
    return found | {"hardware": shape and shape.hardware}


def looks_are_true(found: Inventory) -> Iterator[bool]:
    """Whether what rules see of each machine is what is to be seen."""
    return (machine.look == look(machine) for machine in found.machines)


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("first", [node("a"), turned(node("a"))], ids=["in order", "turned"])
def test_a_machine_is_the_same_after_others_as_alone(first: FullSnapshot, name: str) -> None:
    odd = ODD[name]
    both = [first, node("b"), odd, node("d")]
    found, alone = inventory(*both), inventory(odd)
    assert told(found.machines[2]) == told(alone.machines[0])
    assert all(looks_are_true(found))
    again = inventory(odd, *both[:2], node("d"))
    assert [told(machine) for machine in again.machines[1:]] == [
        told(machine) for machine in (*found.machines[:2], found.machines[3])
    ]
    assert all(looks_are_true(again))


def test_a_second_view_of_the_first_machine_changes_no_other() -> None:
    more = snap(
        "node-a", software=Software(driver="550.1"), faults=(ProbeFault(part="x", kind="absent", path="y"),)
    )
    found = inventory(node("a"), more, node("b"))
    assert found.machines[0].software.driver == "550.1"
    assert found.machines[1].software.driver is None
    assert not found.machines[1].faults
    assert all(looks_are_true(found))


def test_machines_of_one_sort_share_what_is_equal() -> None:
    one, two = inventory(*map(snapshot_of, healthy_nodes()[:2])).machines
    assert one.look is two.look
    assert one.sources is two.sources
    assert one.host != two.host
    assert one.gpus != two.gpus
    assert one.nics != two.nics
