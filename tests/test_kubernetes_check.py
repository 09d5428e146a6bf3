"""What manifests show to be wrong is found at its line, and a sound manifest is left in peace."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shell import topocheck

from topocheck.errors import InputError
from topocheck.kubernetes.check import report
from topocheck.manifestreport import ManifestReport
from topocheck.schema import schema_for

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"

GROUP = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: chat
  annotations:
    leaderworkerset.sigs.k8s.io/exclusive-topology: cloud.example/domain
spec:
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        containers:
        - name: engine
          command: [vllm, serve, m, -tp, "8", -pp, "2", --nnodes, $(LWS_GROUP_SIZE)]
          args: [--node-rank, $(LWS_WORKER_INDEX)]
          securityContext: {capabilities: {add: [IPC_LOCK]}}
          resources: {limits: {nvidia.com/gpu: 8, rdma/hca: 1}}
          volumeMounts:
          - {name: shm, mountPath: /dev/shm}
        volumes:
        - {name: shm, emptyDir: {medium: Memory}}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completionMode: Indexed
  parallelism: 2
  template:
    spec:
      containers:
      - name: main
        command: [sglang, serve, --tp, "8", --pp, "2", --nnodes, "2", --node-rank, $(JOB_COMPLETION_INDEX)]
        securityContext: {privileged: true}
        resources: {limits: {nvidia.com/gpu: 8}}
        volumeMounts: [{name: shm, mountPath: /dev/shm}]
"""


def checked(text: str) -> ManifestReport:
    return report([("job.yaml", text)])


def found(text: str) -> list[tuple[str, str, int]]:
    return [(one.rule, one.severity, one.line) for one in checked(text).findings]


@pytest.mark.parametrize("text", [GROUP, JOB])
def test_a_sound_manifest_has_no_finding(text: str) -> None:
    answer = checked(text)
    assert (answer.findings, answer.notes, answer.exit_code) == ([], [], 0)
    [job] = answer.jobs
    assert (job.pods, job.gpus, job.ranks) == (2, 16, 16)


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        (GROUP, '-tp, "8", -pp, "2"', '-tp, "16"', [("TP001", "error", 14)]),
        (GROUP, "gpu: 8", "gpu: 4", [("TP001", "error", 14), ("ID015", "error", 15)]),
        (GROUP, '-tp, "8"', '-tp, "4"', [("GR005", "warning", 15)]),
        (GROUP, "$(LWS_GROUP_SIZE)", '"4"', [("ID015", "error", 14)]),
        (GROUP, "$(LWS_WORKER_INDEX)", '"0"', [("ID007", "error", 15)]),
        (GROUP, "$(LWS_WORKER_INDEX)", "$(JOB_COMPLETION_INDEX)", [("ID007", "error", 15)]),
        (GROUP, "leaderworkerset.sigs.k8s.io/exclusive", "my/other", [("PP006", "warning", 1)]),
        (GROUP, "mountPath: /dev/shm", "mountPath: /data", [("ENV005", "error", 13)]),
        (GROUP, "IPC_LOCK", "NET_RAW", [("ENV004", "warning", 13)]),
        (GROUP, ", rdma/hca: 1", "", [("NET009", "warning", 13)]),
        (JOB, "completionMode: Indexed", "suspend: false", [("ID007", "error", 11)]),
        (JOB, "$(JOB_COMPLETION_INDEX)", "$(LWS_WORKER_INDEX)", [("ID007", "error", 11)]),
        (JOB, "parallelism: 2", "parallelism: 4", [("GR005", "warning", 11), ("ID015", "error", 11)]),
    ],
)
def test_one_fault_is_one_finding_at_its_line(
    text: str, old: str, new: str, expected: list[tuple[str, str, int]]
) -> None:
    assert old in text
    assert found(text.replace(old, new)) == expected
    assert all(one.fix and one.message for one in checked(text.replace(old, new)).findings)


def test_the_fix_of_a_split_tp_group_names_the_sizes() -> None:
    [finding] = checked(GROUP.replace('-tp, "8", -pp, "2"', '-tp, "16"')).findings
    assert "tensor 8 x pipeline 2" in finding.fix
    assert "the 8 GPUs of a pod" in finding.message


def test_with_one_gpu_a_pod_a_tp_group_across_pods_is_a_warning() -> None:
    text = GROUP.replace("gpu: 8", "gpu: 1").replace('-tp, "8", -pp, "2"', '-tp, "2"')
    assert ("TP001", "warning", 14) in found(text)
    assert checked(text).exit_code == 0


def test_a_variable_of_the_users_own_is_no_borrowed_index() -> None:
    own = "          env:\n          - {name: JOB_COMPLETION_INDEX, value: x}\n          args:"
    text = GROUP.replace("          args:", own).replace("$(LWS_WORKER_INDEX)", "$JOB_COMPLETION_INDEX")
    assert found(text) == []


def test_a_jobset_of_several_child_jobs_counts_each_from_zero() -> None:
    inner = "".join(f"      {line}\n" for line in JOB.partition("spec:\n")[2].splitlines())
    head = (
        "kind: JobSet\nmetadata: {annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: a/b}}\nspec:\n"
    )
    entry = "  replicatedJobs:\n  - name: w\n    replicas: 2\n    template:\n      spec:\n"
    text = f"{head}{entry}{inner}".replace("parallelism: 2", "parallelism: 1")
    [finding] = checked(text).findings
    assert (finding.rule, finding.severity) == ("ID007", "error")
    assert "job-global-index" in finding.fix


def test_gpus_that_no_pod_shows_are_not_zero() -> None:
    answer = checked(JOB.replace("resources: {limits: {nvidia.com/gpu: 8}}", "tty: false"))
    assert (answer.findings, answer.jobs[0].gpus) == ([], None)
    assert "ranks were not held against them" in answer.notes[0]


def test_a_job_that_starts_nothing_known_says_so() -> None:
    assert "no engine" in checked("kind: Pod\nspec: {containers: [{command: [sleep, '1']}]}\n").notes[0]


def test_an_excerpt_is_not_accused_of_what_its_rest_may_hold() -> None:
    cut = (
        GROUP.replace("workerTemplate", "leaderTemplate")
        .replace("IPC_LOCK", "x")
        .replace("{name: shm, m", "{name: shm, x")
    )
    assert {rule for rule, _, _ in found(cut)} <= {"TP001", "ID007", "ID015", "GR005"}
    assert any("no worker template" in note for note in checked(cut).notes)


def test_a_group_seen_in_the_field_splits_its_tp_group() -> None:
    path = CASES / "C56-lws-sglang.yaml"
    if not path.is_file():
        pytest.skip("the cases are not beside this checkout")
    assert {rule for rule, _, _ in found(path.read_text())} == {"TP001"}


@pytest.mark.parametrize("text", ["", "a: b\n", "kind: Service\n", "kind: [\n", "\0"])
def test_what_holds_no_job_is_unreadable_input(text: str, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(text)
    assert topocheck("verify-manifest", tmp_path / "m.yaml").code == 2


@given(st.lists(st.sampled_from([*GROUP.splitlines(), *JOB.splitlines(), "---", "- a", "x: &a", "*a"])))
@settings(max_examples=50, deadline=None)
def test_any_lines_are_checked_or_refused_in_words(lines: list[str]) -> None:
    try:
        answer = checked("\n".join(lines))
    except InputError:
        return
    assert answer.exit_code in (0, 1)


def test_the_command_line_gives_words_json_and_exit_codes(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(GROUP.replace("$(LWS_WORKER_INDEX)", '"0"'))
    done = topocheck("verify-manifest", bad.name, cwd=tmp_path)
    assert done.code == 1
    assert done.out.startswith("bad.yaml:15: error ID007: all 2 pods of the worker template take node rank 0")
    assert "fix: write $(LWS_WORKER_INDEX) for it" in done.out
    assert done.last.startswith("FAIL: 1 error, 0 warnings in 1 job")
    done = topocheck("verify-manifest", "--json", bad.name, cwd=tmp_path)
    document = json.loads(done.out)
    jsonschema.validate(document, schema_for("manifest"))
    assert (done.code, document["exit_code"], document["findings"][0]["line"]) == (1, 1, 15)


COPIES = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - name: engine
        command: [vllm, serve, m, -tp, "8", --nnodes, "1", --node-rank, "0"]
        resources: {limits: {nvidia.com/gpu: 8}}
        volumeMounts:
        - {name: shm, mountPath: /dev/shm/}
"""


def test_copies_of_a_job_in_one_pod_are_each_held_against_their_own_pod() -> None:
    found = report([("copies.yaml", COPIES)])
    assert found.findings == []
    assert [job.gpus for job in found.jobs] == [8]
    few = report([("copies.yaml", COPIES.replace("gpu: 8", "gpu: 4"))])
    assert ("ID015", "8 ranks are declared, and the pods have 4 GPUs") in [
        (one.rule, one.message) for one in few.findings
    ]


def test_pods_that_may_be_one_job_or_several_are_not_held_against_ranks() -> None:
    found = report([("copies.yaml", COPIES.replace(', --nnodes, "1", --node-rank, "0"', ""))])
    assert found.findings == []
    assert "over how many pods the command runs is open" in found.notes[0]


def test_gpus_of_a_pod_are_unknown_where_one_container_asks_for_no_number() -> None:
    more = "      - name: other\n        resources: {limits: {nvidia.com/gpu: many}}\n"
    assert [job.gpus for job in report([("copies.yaml", COPIES + more)]).jobs] == [None]


@pytest.mark.parametrize("pods", ["4" * 5000, "\u00b2", "[1]"])
def test_a_parallelism_that_is_no_number_is_none(pods: str) -> None:
    text = f"""\
kind: JobSet
spec:
  replicatedJobs:
  - replicas: 2
    template:
      spec:
        parallelism: {pods}
        template:
          spec:
            containers:
            - command: [vllm, serve, m, --nnodes, "4", --node-rank, $(JOB_COMPLETION_INDEX)]
"""
    found = report([("set.yaml", text)])
    assert [one for one in found.findings if "pods" in one.message or "child job" in one.message] == []
    assert [job.pods for job in found.jobs] == [None]


def engine_job(name: str, tensor: int, *, pods: int = 1, nodes: str = "", gpus: int = 8) -> str:
    """One replicated job of a JobSet that serves with so many GPUs a pod."""
    more = f', --nnodes, "{nodes}", --node-rank, $(JOB_COMPLETION_INDEX)' if nodes else ""
    return f"""\
  - name: {name}
    template:
      spec:
        parallelism: {pods}
        completionMode: Indexed
        template:
          spec:
            containers:
            - name: engine
              command: [vllm, serve, m, --tensor-parallel-size, "{tensor}"{more}]
              resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}
"""


def told_of(*jobs: str) -> tuple[set[tuple[str, str]], list[str]]:
    """Rules and messages about sizes, and notes, of a JobSet of these jobs."""
    found = report([("set.yaml", "kind: JobSet\nspec:\n  replicatedJobs:\n" + "".join(jobs))])
    sized = {(one.rule, one.message) for one in found.findings if one.rule in ("ID015", "GR005", "TP001")}
    return sized, found.notes


def test_two_engines_of_one_jobset_are_held_against_their_own_gpus() -> None:
    assert told_of(engine_job("prefill", 8), engine_job("decode", 8)) == (set(), [])
    found, _ = told_of(engine_job("prefill", 8), engine_job("decode", 8, gpus=4))
    assert {rule for rule, _ in found} == {"ID015", "TP001"}
    wide, _ = told_of(engine_job("prefill", 16, pods=2, nodes="2"), engine_job("decode", 4, gpus=8))
    assert ("GR005", "4 ranks are declared, and the pods have 8 GPUs: 4 stay idle") in wide


def test_two_jobs_whose_commands_run_over_all_pods_are_one_world() -> None:
    found, notes = told_of(engine_job("first", 16, nodes="2"), engine_job("rest", 16, nodes="2"))
    assert notes == []
    assert [rule for rule, _ in found] == ["TP001"]


def test_an_engine_whose_pods_nothing_tells_is_not_held_against_any() -> None:
    found, notes = told_of(engine_job("prefill", 8, pods=2), engine_job("decode", 8))
    assert found == set()
    assert "over which pods prefill runs is open" in notes[0]
