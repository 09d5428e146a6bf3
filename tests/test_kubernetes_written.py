"""Manifests that Kubernetes takes, in which nothing that a user gives can become structure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from api_server import ALL_VERBS
from hypothesis import given, settings
from hypothesis import strategies as st
from shell import topocheck

from topocheck.errors import UsageError
from topocheck.gather.pod_owner import owners
from topocheck.kubernetes.wanted import FIELDS, KINDS, Kind, Wanted, checked
from topocheck.kubernetes.written import manifest

KUBERNETES = "1.35"
PLAN = "engine: vllm\nparallel: {tensor: 8, pipeline: 2}\nnodes: 2\n"
SPEC = {
    "Pod": ("spec",),
    "Job": ("spec", "template", "spec"),
    "JobSet": ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec"),
    "LeaderWorkerSet": ("spec", "leaderWorkerTemplate", "workerTemplate", "spec"),
}
FIELD = re.compile(
    r"metadata\.(?:name|namespace|uid|(?:labels|annotations)\['[a-z0-9./-]+'\])|spec\.nodeName"
)
"""What the downward API gives in variables; labels and annotations one by one."""


def wanted(**changed: Any) -> Wanted:
    values = {"name": "llm", "image": "registry.example/topocheck:1", "plan": PLAN, "nodes": 2, "gpus": 8}
    return Wanted(**{**values, **changed})


def job_of(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The job's object, and the spec of its pods."""
    job = next(document for document in yaml.safe_load_all(text) if document["kind"] in SPEC)
    spec = job
    for key in SPEC[job["kind"]]:
        spec = spec[key]
    return job, spec


def built_in(document: dict[str, Any]) -> dict[str, Any]:
    """What of an object Kubernetes has a schema for: a custom resource holds a Job or a pod template."""
    if document["kind"] == "JobSet":
        inner = document["spec"]["replicatedJobs"][0]["template"]
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "child"}, **inner}
    if document["kind"] == "LeaderWorkerSet":
        template = document["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        return {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": "worker"},
            "template": template,
        }
    return document


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_passes_the_strict_schema(kind: Kind) -> None:
    nodes = 1 if kind == "pod" else 2
    documents = list(yaml.safe_load_all(manifest(kind, wanted(nodes=nodes, command=("vllm", "serve", "m")))))
    assert len(documents) >= 2
    for document in documents:
        kubernetes_validate.validate(built_in(document), KUBERNETES, strict=True)


def test_the_strict_schema_refuses_a_field_that_nobody_knows() -> None:
    _, spec = job_of(manifest("pod", wanted(nodes=1)))
    spec["initContainers"][0]["privileged"] = True
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gate_keeps_to_the_restricted_pod_standard(kind: Kind) -> None:
    _, spec = job_of(manifest(kind, wanted(nodes=1 if kind == "pod" else 2)))
    gate = spec["initContainers"][0]
    assert gate["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    kinds = {key for volume in spec["volumes"] for key in volume} - {"name"}
    assert kinds <= {"configMap", "persistentVolumeClaim", "emptyDir"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_the_gate_asks_for_the_devices_of_the_container_behind_it(kind: Kind) -> None:
    _, spec = job_of(manifest(kind, wanted(nodes=1 if kind == "pod" else 2)))
    gate, main = spec["initContainers"][0], spec["containers"][0]
    assert gate["resources"]["limits"]["nvidia.com/gpu"] == main["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert {"cpu", "memory"} <= gate["resources"]["requests"].keys()


@pytest.mark.parametrize("kind", KINDS)
def test_every_variable_comes_from_a_field_that_the_downward_api_has(kind: Kind) -> None:
    assert all(FIELD.fullmatch(path) for _, path in FIELDS[kind])
    names = [name for name, _ in FIELDS[kind]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", ["indexed-job", "jobset"])
def test_exit_codes_of_the_gate_end_the_job_and_name_its_container(kind: Kind) -> None:
    job, spec = job_of(manifest(kind, wanted()))
    inner = built_in(job)["spec"]
    [rule] = inner["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["containerName"] == spec["initContainers"][0]["name"]
    assert rule["onExitCodes"]["values"] == [1, 2]
    assert spec["restartPolicy"] == "Never"  # else the API server refuses a podFailurePolicy
    assert inner["backoffLimit"] == 0


def test_a_jobset_whose_gate_is_shut_is_not_started_again() -> None:
    job, _ = job_of(manifest("jobset", wanted()))
    [rule] = job["spec"]["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])


def test_a_group_may_ask_for_its_leader_and_for_nothing_else() -> None:
    documents = {one["kind"]: one for one in yaml.safe_load_all(manifest("leaderworkerset", wanted()))}
    assert documents["Role"]["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    account = documents["RoleBinding"]["subjects"][0]["name"]
    assert account == documents["ServiceAccount"]["metadata"]["name"]
    assert job_of(manifest("leaderworkerset", wanted()))[1]["serviceAccountName"] == account


@pytest.mark.parametrize("kind", ["indexed-job", "jobset", "leaderworkerset"])
def test_gates_that_meet_in_configmaps_have_the_rights_that_they_use_and_no_volume(kind: Kind) -> None:
    text = manifest(kind, wanted(configmaps=True))
    documents = list(yaml.safe_load_all(text))
    for document in documents:
        kubernetes_validate.validate(built_in(document), KUBERNETES, strict=True)
    spec = job_of(text)[1]
    assert "--store=k8s:" in spec["initContainers"][0]["args"]
    assert "persistentVolumeClaim" not in text
    assert [mount["name"] for mount in spec["initContainers"][0]["volumeMounts"]] == ["topocheck-plan"]
    named = {one["kind"]: one for one in documents}
    rules = {rule["resources"][0]: set(rule["verbs"]) for rule in named["Role"]["rules"]}
    assert rules.pop("configmaps") == ALL_VERBS
    assert rules == ({"pods": {"get"}} if kind == "leaderworkerset" else {})
    assert spec["serviceAccountName"] == named["ServiceAccount"]["metadata"]["name"]
    assert named["RoleBinding"]["subjects"][0]["name"] == spec["serviceAccountName"]


def test_a_pod_alone_meets_nobody_in_configmaps_either() -> None:
    assert manifest("pod", wanted(nodes=1, configmaps=True)) == manifest("pod", wanted(nodes=1))


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("indexed-job", {"TOPOCHECK_JOB_NAME", "JOB_UID"}),
        ("jobset", {"JOBSET_NAME", "JOBSET_UID"}),
        ("leaderworkerset", {"TOPOCHECK_LEADER", "POD_NAME", "TOPOCHECK_POD_UID"}),
    ],
)
def test_name_and_uid_of_the_owner_of_what_gates_leave_are_handed_on(kind: Kind, names: set[str]) -> None:
    env = dict.fromkeys(names, "x1") | {"TOPOCHECK_GROUP_KEY": "", "TOPOCHECK_LEADER_UID": "x1"}
    assert names <= {name for name, _ in FIELDS[kind]}
    env["TOPOCHECK_GROUP_KEY"] = "k" if kind == "leaderworkerset" else ""
    found = owners(env).verdict
    assert found is not None
    assert found.kind == {"indexed-job": "Job", "jobset": "JobSet", "leaderworkerset": "Pod"}[kind]


def test_a_pod_alone_has_no_store_and_several_pods_have_one() -> None:
    alone, several = manifest("pod", wanted(nodes=1)), manifest("indexed-job", wanted())
    assert "--store" not in alone
    assert "persistentVolumeClaim" not in alone
    assert "--store=file:/gates" in job_of(several)[1]["initContainers"][0]["args"]


@pytest.mark.parametrize(
    "hostile",
    [
        {"name": "a\nb"},
        {"name": "a: b"},
        {"name": "A"},
        {"name": "-a"},
        {"name": "a" * 41},
        {"image": "a b"},
        {"image": "a\nprivileged: true"},
        {"image": '"'},
        {"main_image": "{{ 7 * 7 }}"},
        {"claim": "../../x"},
        {"resource": "nvidia.com/gpu: 8\nx"},
        {"topology": "a b"},
        {"command": ("a\0b",)},
        {"command": ("\udc80",)},
    ],
)
def test_a_name_that_kubernetes_refuses_is_refused(hostile: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        checked(wanted(**hostile))


@given(
    words=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=4),
    kind=st.sampled_from(KINDS),
)
@settings(max_examples=50, deadline=None)
def test_any_word_of_a_command_stays_that_word(words: list[str], kind: Kind) -> None:
    shaped = wanted(nodes=1 if kind == "pod" else 2)
    plain, _ = job_of(manifest(kind, shaped))
    asked = Wanted(**{**{name: getattr(shaped, name) for name in shaped.__slots__}, "command": tuple(words)})
    job, spec = job_of(manifest(kind, asked))
    assert spec["containers"][0].pop("command", []) == words
    assert job == plain


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
@settings(max_examples=80, deadline=None)
def test_any_text_of_a_plan_arrives_as_it_is(text: str) -> None:
    documents = list(yaml.safe_load_all(manifest("pod", wanted(plan=text, nodes=1))))
    assert documents[0]["data"] == {"plan.yaml": text}
    assert [document["kind"] for document in documents] == ["ConfigMap", "Pod"]


def test_the_command_line_takes_configmaps_and_no_other_store(tmp_path: Path) -> None:
    done = topocheck("manifest", "--for", "jobset", "--store", "k8s:")
    assert (done.code, "--store=k8s:" in done.out) == (0, True), done.err
    (tmp_path / "m.yaml").write_text(done.out)
    assert topocheck("verify-manifest", tmp_path / "m.yaml").code == 0
    for store in ("k8s:else", "file:/gates"):
        done = topocheck("manifest", "--for", "jobset", "--store", store)
        assert (done.code, f"--store {store}: expected k8s:" in done.last) == (2, True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_prints_one_of_each_kind(kind: Kind, tmp_path: Path) -> None:
    done = topocheck("manifest", "--for", kind, "--", "vllm", "serve", "$(MODEL)", "--x={a: b}")
    assert done.code == 0, done.err
    assert job_of(done.out)[1]["containers"][0]["command"] == ["vllm", "serve", "$(MODEL)", "--x={a: b}"]
    (tmp_path / "m.yaml").write_text(done.out)
    assert topocheck("verify-manifest", tmp_path / "m.yaml").code == 0


def test_a_pod_of_two_nodes_and_an_open_number_of_nodes_are_refused(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    assert "choose another kind" in topocheck("manifest", "--for", "pod", "--plan", plan).last
    plan.write_text(PLAN.replace("nodes: 2", "nodes: {min: 2, max: 4}"))
    done = topocheck("manifest", "--for", "jobset", "--plan", plan)
    assert (done.code, "write the number of pods" in done.last) == (2, True)
