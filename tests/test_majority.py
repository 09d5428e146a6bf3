"""Most against few: who differs, and whether most say which is right."""

from __future__ import annotations

from build import placed, snap

from topocheck.machine import Machine
from topocheck.majority import Split, split
from topocheck.snapshot import Software

PLAN = "engine: vllm\nparallel: {tensor: 4, pipeline: %d}\nnodes: %d\n"


def of(*drivers: str | None) -> Split[str]:
    """Nodes with these drivers; None does not show it."""
    views = [snap(f"node-{n}", (), software=Software(driver=driver)) for n, driver in enumerate(drivers)]
    return split(placed(PLAN % (len(drivers), len(drivers)), *views), driver_of)


def driver_of(machine: Machine) -> str | None:
    return machine.software.driver


def names(split_: Split[str]) -> list[str]:
    return [str(node) for node in split_.odd]


def test_few_are_odd_where_most_agree() -> None:
    found = of("a", "b", "a")
    assert found.usual
    assert names(found) == ["node-1"]
    assert found.told("the driver") == "the driver is b on node-1, and a on the other 2 nodes"


def test_two_nodes_have_no_majority() -> None:
    found = of("a", "b")
    assert not found.usual
    assert names(found) == ["node-0", "node-1"]
    assert "no majority says which is right: a on node-0, b on node-1" in found.told("the driver")


def test_three_of_six_are_no_majority() -> None:
    assert not of("a", "a", "a", "b", "b", "c").usual


def test_the_silent_are_told_apart_and_never_equal() -> None:
    found = of("a", None, "a")
    assert (names(found), [str(node) for node in found.silent]) == ([], ["node-1"])


def test_nobody_who_speaks_is_nobody_who_differs() -> None:
    found = of(None, None)
    assert (found.usual, found.odd, len(found.silent)) == (False, (), 2)


def test_nodes_stand_in_the_plans_order() -> None:
    found = of("b", "a", "b", "a", "a")
    assert [[str(node) for node in nodes] for _, nodes in found.groups] == [
        ["node-1", "node-3", "node-4"],
        ["node-0", "node-2"],
    ]


def test_many_nodes_are_counted_and_not_all_named() -> None:
    found = of(*["a"] * 30, *["b"] * 12)
    assert "and 4 more" in found.told("the driver")
    assert "the other 30 nodes" in found.told("the driver")
