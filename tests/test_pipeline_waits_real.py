"""A real pipeline over gloo, watched by the torch profiler: an injected fault is named as what it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pipeline_job import Fault, run_pipeline
from shell import topocheck

FINDINGS: dict[Fault, list[tuple[str, str]]] = {
    "healthy": [],
    "slow stage": [("neighbour", "stage 1")],
    "slow link": [("boundary", "stage 1 -> 2")],
    "starved": [("work", "stage 0")],
}


@pytest.mark.parametrize("fault", FINDINGS)
def test_a_fault_of_a_real_pipeline_is_named_as_what_it_is(fault: Fault, tmp_path: Path) -> None:
    run_pipeline(fault, tmp_path / "traces")
    ran = topocheck("waits", tmp_path / "traces", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert [(one["kind"], one["where"]) for one in found["findings"]] == FINDINGS[fault], ran.out
    assert [stage["rank"] for stage in found["stages"]] == [0, 1, 2]
    assert [stage["units"] for stage in found["stages"]] == [12] * 3


def test_annotated_computing_and_packed_traces_are_read(tmp_path: Path) -> None:
    traces = run_pipeline("slow stage", tmp_path / "traces", annotate=True, suffix=".gz", units=6)
    assert [path.suffix for path in traces] == [".gz"] * 3
    found = json.loads(topocheck("waits", *traces, "--json").out)
    assert [(one["kind"], one["where"]) for one in found["findings"]] == FINDINGS["slow stage"]
    times = [stage["unit_ns"] / 1e6 for stage in found["stages"]]
    assert times[1] > 2 * max(times[0], times[2])
