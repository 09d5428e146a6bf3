"""ENV: limits count where they are the job's own, and clocks where somebody compares times."""

from __future__ import annotations

import msgspec
import pytest
from build import TWO, answer, fact, pair, report, running, snap, text_of
from made_limits import GIB, KIB, limited, ticking

from topocheck.snapshot import Coverage, Limits


def verdict(rule: str, *evidence: object, plan: str = TWO) -> str:
    return answer(report(plan, *evidence), rule).verdict  # type: ignore[arg-type]


def test_a_pod_that_may_lock_what_it_wants_passes_with_a_small_limit() -> None:
    assert verdict("ENV004", *limited(memlock_bytes=64 * KIB, ipc_lock=True)) == "pass"


def test_a_small_limit_without_a_word_of_the_capability_is_unknown() -> None:
    assert verdict("ENV004", *limited(memlock_bytes=64 * KIB, ipc_lock=None)) == "unknown"


def test_a_finite_but_large_limit_is_a_warning() -> None:
    found = answer(report(TWO, *limited(memlock_bytes=16 * GIB)), "ENV004")
    assert [finding.severity for finding in found.findings] == ["warning"]


@pytest.mark.parametrize("memlock", [-1, 64 * KIB])
def test_limits_of_somebody_elses_shell_say_nothing(memlock: int) -> None:
    shell = Limits(scope="unknown", memlock_bytes=memlock, ipc_lock=False)
    assert verdict("ENV004", *(msgspec.structs.replace(view, limits=shell) for view in pair())) == "unknown"


def test_limits_of_a_host_count_where_the_job_itself_told_them() -> None:
    limits = Limits(scope="host", memlock_bytes=64 * KIB, ipc_lock=False)
    told = [msgspec.structs.replace(view, limits=limits) for view in pair()]
    seen = [msgspec.structs.replace(view, ranks=(), limits=limits) for view in told]
    assert verdict("ENV004", *told) == "fail"
    assert verdict("ENV004", *seen) == "unknown"


def test_a_node_without_rdma_locks_nothing() -> None:
    bare = [
        snap(name, ranks, ports=(), coverage=Coverage(gpus="all", links="all", nics="all"))
        for name, ranks in (("node-a", range(4)), ("node-b", range(4, 8)))
    ]
    assert verdict("ENV004", *bare) == "pass"


def test_a_segment_that_was_refused_is_an_error_whatever_the_size() -> None:
    first, second = running()
    observed = first.observed
    assert observed is not None
    line = fact("shm-failed", "9637888 /dev/shm/nccl-Fx1", host="node-a")
    first = msgspec.structs.replace(
        first, observed=msgspec.structs.replace(observed, facts=(*observed.facts, line))
    )
    found = answer(report(TWO, first, second), "ENV005")
    assert found.verdict == "fail"
    assert "9.191 MiB" in text_of(found)


def test_shared_memory_that_old_jobs_fill_is_to_be_emptied() -> None:
    found = answer(report(TWO, *limited(shm_free_bytes=1 << 20)), "ENV005")
    assert [finding.severity for finding in found.findings] == ["error"]
    assert "old jobs" in found.findings[0].fix


def test_half_a_gibibyte_is_a_warning() -> None:
    found = answer(report(TWO, *limited(shm_bytes=GIB // 2, shm_free_bytes=GIB // 2)), "ENV005")
    assert [finding.severity for finding in found.findings] == ["warning"]


def test_a_limit_of_policy_tells_equal_nodes_apart() -> None:
    plan = f"{TWO}policy: {{clock_error_s: 0.1}}\n"
    first, second = ticking(error_seconds=0.05)
    worse = msgspec.structs.replace(second, state=ticking(error_seconds=0.5)[0].state)
    assert verdict("ENV006", first, worse, plan=plan) == "fail"


def test_a_clock_that_is_kept_and_shows_no_error_is_unknown() -> None:
    assert verdict("ENV006", *ticking(error_seconds=None)) == "unknown"


@pytest.mark.parametrize(
    ("seconds", "severities"),
    [(0.5, []), (1.0, []), (1.5, ["warning"]), (30.0, ["warning"]), (31.0, ["error"])],
)
def test_a_clock_that_may_be_wrong_is_a_warning_above_1_s_and_an_error_above_30(
    seconds: float, severities: list[str]
) -> None:
    found = answer(report(TWO, *ticking(error_seconds=seconds)), "ENV006")
    assert [finding.severity for finding in found.findings] == severities
