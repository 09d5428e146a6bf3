"""EV: is the evidence there, whole, and of one mind."""

from __future__ import annotations

import msgspec
from build import TWO, answer, full, gpus, log, pair, report, snap, text_of

from topocheck.snapshot import FullSnapshot, GpuId, Hardware, Host, Identity, ProbeFault, Software, Source

REFUSED = ProbeFault(part="links", kind="not-permitted", path="/sys/links", reason="denied")


def second(**parts: object) -> FullSnapshot:
    """A second view of node-a by name alone."""
    known = {
        "schema": "topocheck.snapshot/1",
        "sources": (Source(name="second.txt", kind="made"),),
        "identity": Identity(host=Host(name="node-a")),
    }
    return FullSnapshot(**(known | parts))  # type: ignore[arg-type]


def test_absent_nodes_are_unknown_and_all_of_them_are_one_gap() -> None:
    text = TWO.replace("[node-a, node-b]", "[node-a, node-b, node-c, node-d]").replace(
        "pipeline: 2", "pipeline: 4"
    )
    found = report(text, snap("node-a", range(4)), snap("idle"))
    ev = answer(found, "EV001")
    assert (ev.verdict, ev.passed, ev.unknown) == ("unknown", 1, 3)
    gap = next(gap for gap in found.gaps if gap.need == "any evidence of a node")
    assert gap.about == ["node-b", "node-c", "node-d"]
    assert "idle" in gap.supply


def test_a_host_with_ranks_that_the_plan_lacks_is_named_with_them_and_the_rest_is_still_judged() -> None:
    found = report(TWO, snap("node-a", range(4)), snap("node-x", range(4, 8)))
    assert "ranks 4..7" in text_of(answer(found, "EV001"))
    assert "node-x" in text_of(answer(found, "EV001"))
    assert answer(found, "TP001").verdict == "pass"


def test_a_spare_host_is_no_fault() -> None:
    found = report(TWO, *pair(), snap("spare"))
    assert answer(found, "EV001").verdict == "pass"
    assert found.exit_code == 0


def test_a_fault_that_hides_nothing_accuses_nobody() -> None:
    assert answer(report(TWO, *pair(faults=(REFUSED,))), "EV002").verdict == "pass"


def test_a_fault_is_blamed_for_what_it_hides_and_for_nothing_else() -> None:
    bare = snap(links=None, nvlinks=[None] * 4).hardware
    found = report(TWO, *pair(faults=(REFUSED,), hardware=bare))
    text = text_of(answer(found, "EV002"))
    assert "TP002" in text
    assert "NET003" not in text
    other = ProbeFault(part="sensors", kind="absent", path="/sys/class/hwmon")
    assert answer(report(TWO, *pair(faults=(other,), hardware=bare)), "EV002").verdict == "pass"


def test_sources_that_differ_are_one_finding_for_a_node() -> None:
    twins = tuple(msgspec.structs.replace(gpu, uuid=f"GPU-other-{n}") for n, gpu in enumerate(gpus()))
    view = second(identity=Identity(host=Host(name="node-a"), gpus=twins), software=Software(driver="1"))
    found = answer(report(TWO, *pair(software=Software(driver="2")), view), "EV004")
    [only] = found.findings
    assert "4 more facts differ" in only.message
    assert {evidence.source for evidence in only.evidence} == {"node-a.json", "second.txt"}


def test_a_source_that_contradicts_itself_is_a_finding() -> None:
    fault = ProbeFault(part="links", kind="contradictory", path="topo.txt", reason="0-1 is NV4 and SYS")
    found = report(TWO, *pair(faults=(fault,)))
    assert "topo.txt contradicts itself about node-a: 0-1 is NV4 and SYS" in text_of(answer(found, "EV004"))
    assert answer(found, "EV002").verdict == "pass"


def test_the_same_fact_in_other_words_is_no_contradiction() -> None:
    shapes = tuple(msgspec.structs.replace(gpu, model="H100 80GB HBM3") for gpu in snap().hardware.gpus)
    view = second(
        identity=Identity(host=Host(name="node-a"), gpus=gpus(bus=False)), hardware=Hardware(gpus=shapes)
    )
    assert answer(report(TWO, *pair(), view), "EV004").verdict == "pass"


def test_a_task_that_counts_its_gpu_as_0_contradicts_nobody() -> None:
    tasks = [
        log(
            "node-a",
            count=1,
            identity=Identity(
                host=Host(name="node-a"), gpus=(GpuId(uuid=gpus()[n].uuid, nvml=0, scope="task"),)
            ),
        )
        for n in range(4)
    ]
    found = report(TWO, *pair(), *tasks)
    assert answer(found, "EV004").verdict == "pass"


def test_a_node_that_shows_nothing_of_its_hardware_has_reported_all_the_same() -> None:
    bare = [snap(name, hardware=Hardware(), coverage=full(gpus="part")) for name in ("node-a", "node-b")]
    assert answer(report(TWO, *bare), "EV001").verdict == "pass"
