"""A gate is added to a manifest, and every line that was there stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from shell import topocheck

from topocheck.errors import InputError, TopocheckError
from topocheck.kubernetes.patched import Patched, patched
from topocheck.kubernetes.wanted import Wanted

PLAN = "engine: vllm\nparallel: {tensor: 8, pipeline: 2}\nnodes: 2\n"
WANTED = Wanted(name="", image="registry.example/topocheck:1", plan=PLAN, nodes=2, gpus=8)

GROUP = """\
# the chat model, see the runbook
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: chat, namespace: prod}   # of the second team
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec: &pod
        # a model is fetched first
        initContainers:
        - name: fetch
          image: registry.example/fetch:1
        containers:
        - name: engine
          image: registry.example/vllm:1
          env:
          - {name: NCCL_IB_HCA, value: mlx5}
          - {name: HF_TOKEN, value: secret}
          - {name: RANK_OF_POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
          resources: {limits: {nvidia.com/gpu: 8, rdma/hca: 2, memory: 1Ti}}
        volumes:
        - {name: shm, emptyDir: {medium: Memory}}
    workerTemplate:
      spec: *pod
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  parallelism: 2
  backoffLimit: 4
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: registry.example/train:1
"""
SET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: train
spec:
  replicatedJobs:
  - name: driver
    template:
      spec:
        template:
          spec:
            containers: [{name: main, image: registry.example/a:1}]
  - name: worker
    template:
      spec:
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            containers:
            - name: main
              image: registry.example/train:1
"""
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec:\n  containers:\n  - {name: m, image: a/b:1}\n"
ALL = {"group": GROUP, "job": JOB, "set": SET, "pod": POD}


def put(text: str, **changed: Any) -> Patched:
    values = {name: getattr(WANTED, name) for name in WANTED.__slots__}
    return patched(text, "job.yaml", Wanted(**{**values, **changed}))


def is_subsequence(lines: list[str], of: list[str]) -> bool:
    rest = iter(of)
    return all(line in rest for line in lines)


@pytest.mark.parametrize("name", ALL)
def test_every_line_stays_and_keeps_its_order(name: str) -> None:
    after = put(ALL[name]).text
    assert is_subsequence(ALL[name].splitlines(), after.splitlines())


@pytest.mark.parametrize("name", ALL)
def test_without_the_gate_it_says_what_it_said(name: str) -> None:
    before = yaml.safe_load(ALL[name])
    after = next(yaml.safe_load_all(put(ALL[name]).text))
    assert taken_out(after) == before


def taken_out(value: Any) -> Any:
    """Without containers and volumes of a gate, and without the keys that came with them."""
    if isinstance(value, list):
        return [taken_out(one) for one in value if not is_a_gates(one)]
    if not isinstance(value, dict):
        return value
    rest = {name: taken_out(one) for name, one in value.items()}
    new = {"initContainers", "volumes"}
    gone = {name for name in rest.keys() & new if not rest[name]} | {"serviceAccountName", "podFailurePolicy"}
    return {name: one for name, one in rest.items() if name not in gone}


def is_a_gates(entry: Any) -> bool:
    return isinstance(entry, dict) and str(entry.get("name", "")).startswith("topocheck")


def test_the_gate_comes_first_and_once_where_two_roles_share_a_spec() -> None:
    text = put(GROUP).text
    group = yaml.safe_load(text.partition("---\n")[0])
    roles = group["spec"]["leaderWorkerTemplate"]
    spec = roles["leaderTemplate"]["spec"]
    assert [one["name"] for one in spec["initContainers"]] == ["topocheck", "fetch"]
    assert roles["workerTemplate"]["spec"] == spec
    assert text.count("name: topocheck\n") == 1


def test_the_gate_gets_devices_and_network_variables_of_the_main_container_and_no_secret() -> None:
    text = put(GROUP).text
    gate = yaml.safe_load(text.partition("---\n")[0])["spec"]["leaderWorkerTemplate"]["leaderTemplate"][
        "spec"
    ]
    gate = gate["initContainers"][0]
    extended = {name: count for name, count in gate["resources"]["limits"].items() if "/" in name}
    assert extended == {"nvidia.com/gpu": 8, "rdma/hca": 2}
    assert {"name": "NCCL_IB_HCA", "value": "mlx5"} in gate["env"]
    assert "HF_TOKEN" not in {entry["name"] for entry in gate["env"]}


def test_objects_beside_the_job_lie_in_its_namespace_and_pass_the_strict_schema() -> None:
    _, *beside = yaml.safe_load_all(put(GROUP).text)
    assert [one["kind"] for one in beside] == ["ConfigMap", "ServiceAccount", "Role", "RoleBinding"]
    for one in beside:
        assert one["metadata"]["namespace"] == "prod"
        kubernetes_validate.validate(one, "1.35", strict=True)


def test_an_account_that_the_pods_have_is_kept_and_gets_the_right() -> None:
    text = GROUP.replace("        containers:", "        serviceAccountName: robot\n        containers:")
    job, *beside = yaml.safe_load_all(put(text).text)
    spec = job["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    assert spec["serviceAccountName"] == "robot"
    assert beside[-1]["subjects"] == [{"kind": "ServiceAccount", "name": "robot", "namespace": "prod"}]
    assert "ServiceAccount" not in [one["kind"] for one in beside]


@pytest.mark.parametrize("name", ["group", "job", "set"])
def test_gates_that_meet_in_configmaps_get_an_account_and_every_line_stays(name: str) -> None:
    found = put(ALL[name], configmaps=True)
    assert is_subsequence(ALL[name].splitlines(), found.text.splitlines())
    job, *beside = yaml.safe_load_all(found.text)
    assert taken_out(job) == yaml.safe_load(ALL[name])
    kinds = [one["kind"] for one in beside]
    assert kinds == ["ConfigMap", "ServiceAccount", "Role", "RoleBinding"]
    for one in beside:
        kubernetes_validate.validate(one, "1.35", strict=True)
    account = beside[1]["metadata"]["name"]
    assert found.text.count(f'serviceAccountName: "{account}"') == (2 if name == "set" else 1)
    assert "topocheck-gates" not in found.text
    assert any("ConfigMaps" in note for note in found.notes)


def test_pods_without_a_token_are_told_that_their_gates_need_one() -> None:
    mute = JOB.replace("restartPolicy", "automountServiceAccountToken: false\n      restartPolicy")
    assert any("automountServiceAccountToken" in note for note in put(mute, configmaps=True).notes)
    assert not any("automountServiceAccountToken" in note for note in put(JOB, configmaps=True).notes)


def test_pods_of_one_job_with_different_accounts_are_refused() -> None:
    two = SET.replace(
        "            containers: [", "            serviceAccountName: a\n            containers: ["
    )
    assert "serviceAccountName: a" in two
    with pytest.raises(InputError, match="its pods have different service accounts"):
        put(two, configmaps=True)


def test_a_job_gets_its_failure_policy_and_is_told_of_its_backoff_limit() -> None:
    found = put(JOB)
    job = next(yaml.safe_load_all(found.text))
    kubernetes_validate.validate(job, "1.35", strict=True)
    assert job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == "topocheck"
    assert any("backoffLimit 4" in note for note in found.notes)


def test_a_failure_policy_of_its_own_and_pods_that_restart_in_place_are_left_alone() -> None:
    own = JOB.replace("  template:", "  podFailurePolicy: {rules: []}\n  template:", 1)
    assert next(yaml.safe_load_all(put(own).text))["spec"]["podFailurePolicy"] == {"rules": []}
    again = JOB.replace("Never", "OnFailure")
    assert "podFailurePolicy" not in next(yaml.safe_load_all(put(again).text))["spec"]


def test_line_ends_and_other_documents_stay_as_they_are() -> None:
    text = f"---\nkind: Secret\nstringData: {{a: b}}\n---\n{POD}---\nkind: Service\n".replace("\n", "\r\n")
    after = put(text).text
    assert after.count("\n") == after.count("\r\n")
    kinds = [one["kind"] for one in yaml.safe_load_all(after)]
    assert kinds == ["Secret", "Pod", "Service", "ConfigMap"]


def test_a_list_as_kubectl_prints_it_is_taken() -> None:
    inner = "".join(f"  {line}\n" for line in POD.splitlines()).replace("  api", "- api", 1)
    after = put(f"apiVersion: v1\nkind: List\nitems:\n{inner}").text
    pod = next(yaml.safe_load_all(after))["items"][0]
    assert pod["spec"]["initContainers"][0]["name"] == "topocheck"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Pod\nspec: {containers: [{name: a}]}\n", "block style"),
        ("kind: Pod\nspec:\n  containers:\n  - name: topocheck\n", "has a gate already"),
        ("kind: Pod\nspec:\n  initContainers: [{name: a}]\n  containers:\n  - name: b\n", "line of its own"),
        ("kind: Pod\nmetadata: {}\n", "no pod template"),
        ("kind: Deployment\n", "holds no Pod"),
        (f"{POD}---\n{POD}", "several jobs"),
        ("kind: Pod\nspec: !!python/object:os.system {}\n", "plain YAML"),
        ("kind: Pod\nspec: [\n", "not valid YAML"),
        ("a: &a [x]\nkind: Pod\nspec: {<<: *a}\n", "job.yaml"),
        ("kind: Pod\nmetadata: {name: 'a\n\n  b'}\nspec:\n  containers:\n  - name: b\n", "--name"),
    ],
)
def test_what_cannot_be_patched_is_said_with_its_place(text: str, words: str) -> None:
    with pytest.raises(TopocheckError, match=words):
        put(text)


def test_an_alias_bomb_ends_soon() -> None:
    rows = "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 12))
    with pytest.raises(InputError, match="aliases"):
        put(f"b0: &b0 [x]\n{rows}kind: Pod\n")


@given(
    st.lists(st.sampled_from([*JOB.splitlines(), *GROUP.splitlines(), "---", "- a", "\tb", "x: &a", "*a"])),
)
@settings(max_examples=50, deadline=None)
def test_any_lines_are_patched_or_refused_in_words(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        found = put(text)
    except TopocheckError:
        return
    assert is_subsequence(text.splitlines(), found.text.splitlines())


def test_the_command_line_patches_a_file(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "job.yaml").write_text(JOB)
    done = topocheck("manifest", "--patch", tmp_path / "job.yaml", "--plan", tmp_path / "plan.yaml")
    assert (done.code, done.out) == (0, put(JOB, image="topocheck:0.1.0").text)
    assert "backoffLimit 4" in done.err
    done = topocheck(
        "manifest", "--for", "pod", "--patch", tmp_path / "job.yaml", "--plan", tmp_path / "plan.yaml"
    )
    assert (done.code, "of kind indexed-job" in done.last) == (2, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kind: Job", "kind: [Job]"),
        ("kind: Job", "kind: Job\nodd: !!bool maybe"),
        ("kind: Job", "kind: Job\nodd: !!timestamp noon"),
    ],
)
def test_odd_yaml_is_refused_in_words(old: str, new: str) -> None:
    with pytest.raises(InputError, match=r"holds no Pod|not plain YAML"):
        patched(JOB.replace(old, new, 1), "job.yaml", WANTED)


def test_names_that_are_lists_are_no_gate() -> None:
    odd = GROUP.replace("name: fetch", "name: [fetch]")
    assert "topocheck-plan" in patched(odd, "group.yaml", WANTED).text
    account = GROUP.replace("spec: &pod", "spec: &pod\n        serviceAccountName: [a]")
    with pytest.raises(InputError, match=r"its form is none that lines can be added to"):
        patched(account, "group.yaml", WANTED)
