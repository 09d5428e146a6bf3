"""NVLink domains that reach over several hosts, and what proves one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from build import GB200, H100, RING, TWO, comm, completed, log, placed, snap

from topocheck.domain import domain_of, in_one_domain
from topocheck.snapshot import Fabric, FullSnapshot

RACK = "a" * 32


def tray(name: str = "node-a", **parts: Any) -> FullSnapshot:
    return snap(name, **({"model": GB200, "fabric": completed()} | parts))


def domain(*views: FullSnapshot) -> str | bool | None:
    return domain_of(placed(TWO, *views).nodes[0])


def joined(*views: FullSnapshot) -> bool | None:
    found = placed(TWO, *views)
    return in_one_domain(found, found.nodes[:2])


def test_four_fields_together_prove_a_domain() -> None:
    assert domain(tray()) == f"{RACK}.7"
    assert joined(tray(), tray("node-b")) is True


@pytest.mark.parametrize(
    "parts",
    [
        {"fabric": completed(state="In Progress")},
        {"fabric": completed(state=None)},
        {"fabric": (Fabric(cluster_uuid=RACK, state="Completed"),)},
        {"fabric": (Fabric(clique=7, state="Completed"),)},
        {"fabric": ()},
        {"model": None},
        {"fabric": (*completed(), *completed("b" * 32))},
    ],
)
def test_three_of_the_four_prove_nothing(parts: dict[str, Any]) -> None:
    assert domain(tray(**parts)) is None
    assert joined(tray(**parts), tray("node-b")) is None


@pytest.mark.parametrize("uuid", ["0" * 32, "00000000-0000-0000-0000-000000000000", ""])
def test_a_zero_uuid_is_no_domain_beyond_the_host(uuid: str) -> None:
    assert domain(tray(fabric=completed(uuid))) is False
    assert joined(tray(fabric=completed(uuid)), tray("node-b", fabric=completed(uuid))) is False


def test_a_model_that_cannot_span_hosts_has_no_domain_beyond_them() -> None:
    assert domain(tray(model=H100)) is False


def test_equal_clique_ids_of_two_racks_are_two_domains() -> None:
    assert joined(tray(), tray("node-b", fabric=completed("b" * 32))) is False
    assert joined(tray(), tray("node-b", fabric=completed(clique=8))) is False


@pytest.mark.parametrize("parts", [{"model": None}, {"state": None}])
def test_different_domains_are_told_apart_without_model_and_state(parts: dict[str, Any]) -> None:
    model = parts.get("model", GB200)
    fabrics = [completed(uuid, state=parts.get("state", "Completed")) for uuid in (RACK, "b" * 32)]
    views = [
        tray(name, model=model, fabric=fabric)
        for name, fabric in zip(("node-a", "node-b"), fabrics, strict=True)
    ]
    assert joined(*views) is False
    assert joined(views[0], tray("node-b", model=model, fabric=fabrics[0])) is None


def test_a_node_that_says_nothing_leaves_it_open() -> None:
    assert joined(tray()) is None
    assert joined(tray(), log("node-b")) is None


def clique(
    size: int | None = 8, ranks: Sequence[Sequence[int]] = (range(4), range(4, 8))
) -> list[FullSnapshot]:
    return [
        log(
            name,
            [
                msgspec.structs.replace(member, clique="d26", clique_size=size)
                for member in comm(RING, own, host=name)
            ],
        )
        for name, own in zip(("node-a", "node-b"), ranks, strict=True)
    ]


def test_nccls_own_clique_of_all_ranks_of_a_communicator_is_a_proof() -> None:
    assert joined(*clique()) is True


@pytest.mark.parametrize(
    "views", [clique(4), clique(None), clique(8, (range(4), range(4, 7))), clique(8, (range(4), range(3, 7)))]
)
def test_a_clique_that_is_smaller_or_a_communicator_that_is_not_whole_is_none(
    views: list[FullSnapshot],
) -> None:
    assert joined(*views) is None
