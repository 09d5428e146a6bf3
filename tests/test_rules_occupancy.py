"""CAP001: who holds memory of the job's GPUs is named; the job itself is not accused."""

from __future__ import annotations

import msgspec
from build import TWO, answer, pair, report, text_of
from made_occupancy import GIB, left_over, using

from topocheck.snapshot import FullSnapshot, GpuState, JobFact, Process, State


def verdict(*evidence: FullSnapshot) -> str:
    return answer(report(TWO, *evidence), "CAP001").verdict


def test_a_little_memory_of_somebody_else_is_no_fault() -> None:
    assert verdict(*using(Process(pid=7, memory_bytes=100 << 20))) == "pass"


def test_memory_without_a_visible_process_is_in_use_all_the_same() -> None:
    made = pair()
    gpus = tuple(GpuState(gpu=n, memory_used_bytes=40 * GIB if n == 1 else 0, processes=()) for n in range(4))
    views = [msgspec.structs.replace(view, state=State(gpus=gpus)) for view in made]
    found = answer(report(TWO, *views), "CAP001")
    assert found.verdict == "fail"
    assert "by no process that is visible here" in text_of(found)


def test_memory_beside_the_jobs_own_process_is_somebody_elses_though_none_is_listed() -> None:
    found = answer(report(TWO, *using(used=60 * GIB)), "CAP001")
    assert found.verdict == "fail"
    assert "59.5 GiB" in text_of(found)
    assert "by no process that is visible here" in text_of(found)


def test_a_process_of_another_container_has_no_pid_here() -> None:
    found = answer(report(TWO, *using(Process(pid=0, memory_bytes=30 * GIB))), "CAP001")
    assert "of another container" in text_of(found)


def test_a_gpu_that_the_job_does_not_take_may_be_used() -> None:
    plan = "engine: vllm\nparallel: {tensor: 2}\nnodes: [node-a]\n"
    view, _ = using(left_over, gpu=3)
    view = msgspec.structs.replace(view, ranks=view.ranks[:2])
    ranks = tuple(msgspec.structs.replace(claim, size=2) for claim in view.ranks)
    assert answer(report(plan, msgspec.structs.replace(view, ranks=ranks)), "CAP001").verdict == "pass"


def test_processes_that_may_be_the_jobs_own_are_not_accused() -> None:
    views = []
    for view in using(left_over):
        ranks = tuple(msgspec.structs.replace(claim, pid=None) for claim in view.ranks)
        views.append(msgspec.structs.replace(view, ranks=ranks))
    assert verdict(*views) == "unknown"


def test_a_gpu_of_which_nothing_is_shown_is_not_free() -> None:
    first, second = using()
    gpus = (GpuState(gpu=0, ecc=True), *first.state.gpus[1:])
    assert verdict(msgspec.structs.replace(first, state=State(gpus=gpus)), second) == "unknown"


def test_the_engines_own_line_is_enough() -> None:
    words = (
        "Free memory on device (19.8/79.1 GiB) is less than desired GPU memory utilization (0.9, 71.2 GiB)."
    )
    first, second = using()
    line = JobFact(kind="refused", value=words, engine="vllm")
    found = answer(report(TWO, msgspec.structs.replace(first, job=(line,)), second), "CAP001")
    assert found.verdict == "fail"
    assert "19.8/79.1 GiB" in text_of(found)


def test_two_occupied_gpus_are_one_finding() -> None:
    first, second = using(left_over)
    state = first.state
    gpus = tuple(
        msgspec.structs.replace(gpu, processes=(left_over,), memory_used_bytes=70 * GIB) for gpu in state.gpus
    )
    found = answer(report(TWO, msgspec.structs.replace(first, state=State(gpus=gpus)), second), "CAP001")
    assert len(found.findings) == 1
    assert found.findings[0].count == 4


def test_one_node_whose_claims_have_no_pids_is_not_accused_for_the_pids_of_another() -> None:
    first, second = using(left_over)
    ranks = tuple(msgspec.structs.replace(claim, pid=None) for claim in first.ranks)
    assert verdict(msgspec.structs.replace(first, ranks=ranks), second) == "unknown"
