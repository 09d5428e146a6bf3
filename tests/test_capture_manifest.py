"""A manifest says how many pods a job has and what they start; what it leaves out is not known."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_facts import facts, one, text

from topocheck.errors import CaptureError
from topocheck.probes.capture.manifest import parse
from topocheck.probes.capture.text import read_text

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
CAPTURES = Path(__file__).parent / "captures"


def test_a_leader_worker_set_shows_both_templates() -> None:
    reading = one(parse(read_text(CAPTURES / "manifest-lws.yaml")))
    assert facts([reading], "nodes", "replicas", "pods", "gpus-per-node", "node-rank") == [
        ("nodes", "LeaderWorkerSet", "4"),
        ("replicas", "LeaderWorkerSet", "3"),
        ("pods", "leader", "1"),
        ("node-rank", "leader", "constant 0"),
        ("gpus-per-node", "leader", "8"),
        ("pods", "worker", "3"),
        ("node-rank", "worker", "constant 1"),
        ("gpus-per-node", "worker", "8"),
    ]
    assert facts([reading], "requested-size") == [
        ("requested-size", "tensor", "8"),
        ("requested-size", "pipeline", "4"),
    ]
    assert ("unresolved", "--nnodes", "$LWS_GROUP_SIZE") in facts([reading])
    assert ("rendezvous", "master", "10.4.0.1") in facts([reading])
    assert reading.notes == ()


def test_variables_are_kept_by_an_allow_list() -> None:
    found = facts(parse(read_text(CAPTURES / "manifest-lws.yaml")), "option")
    assert ("option", "NCCL_SOCKET_IFNAME", "net1") in found
    assert "hunter2" not in str(found)


def test_an_init_container_starts_no_job() -> None:
    assert "torchrun" not in str(facts(parse(read_text(CAPTURES / "manifest-lws.yaml"))))


def test_the_other_kinds_show_their_pods() -> None:
    reading = one(parse(read_text(CAPTURES / "manifest-jobs.yaml")))
    assert facts([reading], "nodes") == [
        ("nodes", "Job", "2"),
        ("nodes", "agent", "2"),
        ("nodes", "PyTorchJob", "4"),
        ("nodes", "MPIJob", "2"),
        ("nodes", "JobSet", "8"),
    ]
    assert facts([reading], "pods") == [
        ("pods", "worker", "2"),
        ("pods", "master", "1"),
        ("pods", "worker", "3"),
        ("pods", "launcher", "1"),
        ("pods", "workers", "8"),
        ("pods", "head", "1"),
        ("pods", "gpus", "4"),
    ]
    assert facts([reading], "processes", "processes-per-node") == [
        ("processes-per-node", "agent", "4"),
        ("processes-per-node", "agent", "8"),
        ("processes", "launcher", "8"),
    ]
    assert facts([reading], "engine") == [("engine", "", "tensorrt_llm"), ("engine", "", "sglang")]
    assert ("unresolved", "torchrun --node-rank", "$(JOB_COMPLETION_INDEX)") in facts([reading])


def test_a_missing_worker_template_is_noted_and_gives_no_node_rank() -> None:
    lines = (CAPTURES / "manifest-lws.yaml").read_text().split("    workerTemplate:")[0]
    reading = one(parse(text(lines)))
    assert ("pods", "worker", "3") in facts([reading])
    assert facts([reading], "node-rank") == [("node-rank", "leader", "constant 0")]
    assert [note.kind for note in reading.notes] == ["cut"]


def test_what_is_not_shown_is_not_zero() -> None:
    pod = text(
        "apiVersion: v1", "kind: Pod", "spec:", "  containers:", "  - {name: x, command: [vllm, serve, m]}"
    )
    assert facts(parse(pod), "gpus-per-node") == []
    assert facts(parse(pod), "pods", "engine") == [("pods", "pod", "1"), ("engine", "", "vllm")]


def test_other_yaml_is_left_alone() -> None:
    assert parse(text("apiVersion: v1", "kind: Service", "spec: {}")) == []
    assert parse(text("a: 1", "kind of: Job")) == []


def test_damaged_yaml_is_an_error_with_its_line() -> None:
    with pytest.raises(CaptureError, match=r"x:5: a Kubernetes manifest is not valid YAML"):
        parse(text("$ cat job.yaml", "apiVersion: batch/v1", "kind: Job", "spec: {a: [1", "x: }"))


def test_the_case_is_read_as_its_truth_says() -> None:
    path = CASES / "C56-lws-sglang.yaml"
    if not path.is_file():
        pytest.skip("the shared cases are not here")
    found = facts(parse(read_text(path)))
    assert ("nodes", "LeaderWorkerSet", "2") in found
    assert ("requested-size", "tensor", "16") in found
    assert ("node-rank", "leader", "constant 0") in found
    assert ("option", "GLOO_SOCKET_IFNAME", "eth0") in found
    assert ("unresolved", "--nnodes", "$LWS_GROUP_SIZE") in found
    assert ("unresolved", "--dist-init-addr", "$LWS_LEADER_ADDRESS:20000") in found
    assert {name for kind, name, _ in found if kind == "node-rank"} == {"leader"}
    assert not [fact for fact in found if fact[0] in {"gpus-per-node", "rendezvous"}]


LINES = [
    *(CAPTURES / "manifest-jobs.yaml").read_text().split("\n"),
    *(CAPTURES / "manifest-lws.yaml").read_text().split("\n"),
]


@given(st.lists(st.sampled_from(LINES), max_size=30), st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=80, deadline=None)
def test_any_lines_are_a_manifest_or_one_error(lines: list[str], start: int, end: int) -> None:
    for content in (lines, LINES[start : start + end]):
        try:
            readings = parse(text("\n".join(content)))
        except CaptureError as error:
            readings, said = [], str(error)
            assert said.startswith("x")
        assert all(reading.lines for reading in readings)
