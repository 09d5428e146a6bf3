"""What Ray says of its cluster is about the cluster: nodes and GPUs, and no order of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_facts import facts, one, text

from topocheck.probes.capture.ray_status import parse
from topocheck.probes.capture.text import read_text

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
STATUS = """\
======== Autoscaler status: 2026-02-03 04:05:06.000001 ========
Node status
---------------------------------------------------------------
Active:
 1 node_0a1b2c3d4e5f60718293a4b5c6d7e8f901234567890abcdef1234567
 2 gpu_group
Idle:
 1 node_1a1b2c3d4e5f60718293a4b5c6d7e8f901234567890abcdef1234567
Pending:
 1 node_2a1b2c3d4e5f60718293a4b5c6d7e8f901234567890abcdef1234567
Recent failures:
 (no failures)

Resources
---------------------------------------------------------------
Total Usage:
 3.0/32.0 CPU
 1.0/8.0 GPU
 0.0/4.0 accelerator_type:H100
Demands:
 {'GPU': 1.0} * 4 (PACK): 1+ pending placement groups
"""


def test_a_status_counts_nodes_that_are_there_and_all_gpus() -> None:
    reading = one(parse(text(STATUS)))
    assert facts([reading], "cluster-nodes", "cluster-gpus") == [
        ("cluster-nodes", "ray", "4"),
        ("cluster-gpus", "ray", "8"),
    ]
    assert [name[:7] for _, name, _ in facts([reading], "cluster-node")] == ["node_0a", "node_1a"]
    assert reading.snapshots[0].identity.host.name is None


def test_resources_of_a_connection_count_nodes_by_their_keys() -> None:
    line = (
        "connected: {'GPU': 12.0, 'accelerator_type:B200': 3.0, 'node:10.2.0.1': 1.0, 'node:10.2.0.2': 1.0, "
    )
    line += "'node:10.2.0.3': 1.0, 'node:__internal_head__': 1.0, 'CPU': 96.0}"
    reading = one(parse(text("x", line)))
    assert facts([reading]) == [
        ("cluster-node", "10.2.0.1", ""),
        ("cluster-node", "10.2.0.2", ""),
        ("cluster-node", "10.2.0.3", ""),
        ("cluster-nodes", "ray", "3"),
        ("cluster-gpus", "ray", "12"),
    ]


def test_a_cut_dictionary_counts_nothing() -> None:
    reading = one(parse(text("{'GPU': 12.0, 'node:10.2.0.1': 1.0, 'node:10.2")))
    assert facts([reading]) == []
    assert reading.notes[0].kind == "cut"


def test_a_share_of_a_gpu_is_no_count() -> None:
    reading = one(parse(text(STATUS.replace("1.0/8.0 GPU", "0.0/7.5 GPU"))))
    assert facts([reading], "cluster-gpus") == []
    assert reading.notes[0].kind == "ignored"


def test_a_status_without_nodes_is_noted() -> None:
    reading = one(parse(text("======== Autoscaler status: 2026-02-03 ========", "Node status")))
    assert (facts([reading]), reading.notes[0].kind) == ([], "cut")


@pytest.mark.parametrize(
    ("case", "nodes", "gpus"), [("C06-ray-status-2x1gpu.txt", "2", "2"), ("C35-ray-gb200-44.txt", "11", "44")]
)
def test_the_cases_are_read_as_their_truth_says(case: str, nodes: str, gpus: str) -> None:
    if not (CASES / case).is_file():
        pytest.skip("the shared cases are not here")
    reading = one(parse(read_text(CASES / case)))
    assert facts([reading], "cluster-nodes", "cluster-gpus") == [
        ("cluster-nodes", "ray", nodes),
        ("cluster-gpus", "ray", gpus),
    ]
    assert len(facts([reading], "cluster-node")) == int(nodes)


@given(st.lists(st.sampled_from(STATUS.split("\n")), max_size=25), st.text("{}'node: 1.0GPU,", max_size=60))
@settings(max_examples=80, deadline=None)
def test_any_lines_are_a_status_or_none(lines: list[str], extra: str) -> None:
    for reading in parse(text("\n".join(lines), extra)):
        assert reading.lines or reading.notes
