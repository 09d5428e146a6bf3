"""What policy expects of the machines is held against them: NICs, rails, NVLinks, limits."""

from __future__ import annotations

import msgspec
import pytest
from build import TWO, answer, nics, pair, report, snap

from topocheck.report import RuleReport
from topocheck.snapshot import Clock, FullSnapshot, GpuState, State

ONE = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n"


def of(rule: str, policy: str, *views: FullSnapshot, text: str = TWO) -> RuleReport:
    return answer(report(f"{text}policy: {{{policy}}}\n", *views), rule)


def causes(found: RuleReport) -> list[tuple[str, list[str]]]:
    return [(finding.cause, finding.subjects) for finding in found.findings]


def unequal(first: int, second: int) -> list[FullSnapshot]:
    return [
        snap("node-a", range(4), ports=nics(first)),
        snap("node-b", range(4, 8), ports=nics(second)),
    ]


def test_fewer_nvlinks_than_expected_are_missing_and_more_than_the_model_has_are_not_asked() -> None:
    twelve = pair(nvlinks=[12, 12, 12, 12])
    assert of("NV001", "min_basis: claimed", *twelve).verdict == "fail"
    assert of("NV001", "expect_nvlinks: 12", *twelve).verdict == "pass"
    found = of("NV001", "expect_nvlinks: 16", *twelve)
    assert found.verdict == "fail"
    assert "12 active NVLinks of the 16 that policy.expect_nvlinks wants" in found.findings[0].message
    assert of("NV001", "expect_nvlinks: 18", *pair()).verdict == "pass"


def test_a_table_of_bonds_does_not_prove_the_number_that_is_expected() -> None:
    views = pair(nvlinks=[None] * 4)
    assert of("NV001", "min_basis: claimed", *views).verdict == "pass"
    assert of("NV001", "expect_nvlinks: 18", *views).verdict == "unknown"


def test_fewer_nics_than_expected_are_told_instead_of_the_difference() -> None:
    assert causes(of("NET010", "min_basis: claimed", *unequal(2, 1))) == [
        ("the set of NICs", ["node-a", "node-b"])
    ]
    found = of("NET010", "expect_nics: 2", *unequal(2, 1))
    assert causes(found) == [("NICs missing", ["node-b"])]
    assert (
        "node-b has 1 RDMA devices that the job may take, and the policy says expect_nics 2"
        in found.findings[0].message
    )
    assert causes(of("NET010", "expect_nics: 2", *unequal(1, 1))) == [("NICs missing", ["node-a", "node-b"])]
    assert (
        of("NET010", "expect_nics: 1", *unequal(1, 1)).verdict
        == of("NET010", "boundary: rdma", *unequal(1, 1)).verdict
    )


def test_one_node_is_asked_for_its_nics_only_if_policy_expects_some() -> None:
    view = snap("node-a", range(4), size=4, ports=nics(1))
    assert of("NET010", "boundary: rdma", view, text=ONE).verdict == "not-applicable"
    assert of("NET010", "expect_nics: 1", view, text=ONE).verdict == "pass"
    assert of("NET010", "expect_nics: 2", view, text=ONE).verdict == "fail"
    part = msgspec.structs.replace(view, coverage=msgspec.structs.replace(view.coverage, nics="part"))
    assert of("NET010", "expect_nics: 2", part, text=ONE).verdict == "unknown"


def test_a_rail_that_a_node_lacks_is_named() -> None:
    found = of("NET010", "expect_rails: [mlx5_0, mlx5_1]", *unequal(2, 1))
    assert causes(found) == [("rail missing", ["node-b"])]
    assert "no mlx5_1 among the RDMA devices" in found.findings[0].message


def test_the_ports_of_rails_are_those_that_the_job_needs() -> None:
    up, down = nics(3)[0], msgspec.structs.replace(nics(3, state="DOWN")[2], name="mlx5_2")
    ports = (up, nics(3)[1], down)
    views = [snap("node-a", range(4), ports=ports), snap("node-b", range(4, 8), ports=ports)]
    needs = of("NET001", "expect_rails: [mlx5_0, mlx5_1]", *views)
    assert needs.verdict == "pass"
    found = of("NET001", "expect_rails: [mlx5_0, mlx5_2]", *views)
    assert [name for _, subjects in causes(found) for name in subjects] == [
        "mlx5_2 of node-a",
        "mlx5_2 of node-b",
    ]
    assert "a rail of policy.expect_rails" in found.findings[0].message
    assert any(evidence.fact == "expect_rails mlx5_0,mlx5_2" for evidence in found.findings[0].evidence)


@pytest.mark.parametrize(("limit", "verdict"), [("0.5", "pass"), ("0.05", "fail")])
def test_memory_in_use_is_held_against_policy(limit: str, verdict: str) -> None:
    used = tuple(
        GpuState(gpu=n, memory_used_bytes=(20 << 30) if n == 1 else 0, processes=()) for n in range(4)
    )
    views = [
        msgspec.structs.replace(view, state=State(gpus=used))
        for view in (snap("node-a", count=4), snap("node-b", count=4))
    ]
    sized = [
        msgspec.structs.replace(
            view,
            hardware=msgspec.structs.replace(
                view.hardware,
                gpus=tuple(msgspec.structs.replace(gpu, memory_bytes=80 << 30) for gpu in view.hardware.gpus),
            ),
        )
        for view in views
    ]
    assert of("CAP001", f"used_memory: {limit}", *sized).verdict == verdict


@pytest.mark.parametrize(("limit", "verdict"), [("5", "pass"), ("2", "fail")])
def test_the_error_of_a_clock_is_held_against_policy(limit: str, verdict: str) -> None:
    clock = State(clock=Clock(synchronised=True, error_seconds=3.0))
    views = [msgspec.structs.replace(view, state=clock) for view in pair()]
    assert of("ENV006", f"clock_error_s: {limit}", *views).verdict == verdict
