"""Topocheck as a check of NVSentinel's preflight: its Helm values, its gang folder, its exit codes.

The folders here have the shape in which the kubelet mounts the gang's ConfigMap; no server is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from shell import topocheck

from topocheck.cli.gate import names_of
from topocheck.errors import InputError, TopocheckError, UsageError
from topocheck.gather.gang_folder import read_gang, with_gang
from topocheck.kubernetes.preflight import Check, checked, values
from topocheck.launchers import claims
from topocheck.launchers.gang import Peer, parse_gang
from topocheck.launchers.runid import NAME, checked_id, run_of
from topocheck.planfile import parse_plan

PEERS = "w-0;10.4.0.7;0;topocheck\nw-1;10.4.1.9;1;topocheck\n"
SHUT = "engine: vllm\nparallel: {tensor: 3}\nnodes: 1\nmodel: {heads: 32}\n"
OPEN = "engine: vllm\nparallel: {tensor: 1}\nnodes: 1\npolicy: {optional: [ID003]}\n"
UNDECIDED = "engine: vllm\nparallel: {tensor: 1}\nnodes: 1\n"
"""Here is no GPU: what a required rule asks of one stays open."""


def mounted(folder: Path, peers: str = PEERS, expected: str = "2", gang: str = "volcano-team-a-job") -> Path:
    """The ConfigMap as the kubelet mounts it: links through one that is exchanged."""
    data = {
        "expected_count": expected,
        "gang_id": gang,
        "master_addr": "10.4.0.7",
        "master_port": "29500",
        "peers": peers,
    }
    real = folder / f"..{len(list(folder.iterdir())) if folder.exists() else 0}"
    real.mkdir(parents=True)
    for key, text in data.items():
        (real / key).write_text(text)
        if not (folder / key).is_symlink():
            (folder / key).symlink_to(Path("..data") / key)
    aside = folder / "..data_tmp"
    aside.symlink_to(real.name)
    aside.rename(folder / "..data")
    return folder


def pod(folder: Path, name: str = "w-1", address: str = "10.4.1.9", **more: str) -> dict[str, str]:
    """What the webhook sets in a check of a gang."""
    given = {"GANG_ID": "volcano-team-a-job", "GANG_CONFIG_DIR": str(folder), "GANG_TIMEOUT_SECONDS": "1"}
    return {**given, "POD_NAME": name, "POD_IP": address, "MASTER_PORT": "29500", **more}


def ganged(env: Mapping[str, str], least: int = 2) -> Mapping[str, str]:
    return with_gang(env, least, lambda _: None, lambda _: None)


def test_a_whole_gang_gives_a_run_id_its_size_and_the_names_of_its_pods(tmp_path: Path) -> None:
    env = ganged(pod(mounted(tmp_path)))
    run = run_of(env)
    assert (run.nodes, run.source) == (2, "uid of the gang of pods")
    assert run.id is not None
    assert run.id.startswith("volcano-team-a-job-")
    assert names_of(parse_plan("engine: vllm\nnodes: 2\nparallel: {tensor: 2}\n", "p"), env) == ["w-0", "w-1"]


def test_all_pods_of_a_gang_have_one_run_id_and_pods_made_again_have_another(tmp_path: Path) -> None:
    first = checked_id(None, ganged(pod(mounted(tmp_path / "a"))))
    assert checked_id(None, ganged(pod(mounted(tmp_path / "b"), "w-0", "10.4.0.7"))) == first
    new_names, new_addresses = PEERS.replace("w-", "x-"), PEERS.replace("10.4", "10.5")
    renamed = checked_id(None, ganged(pod(mounted(tmp_path / "c", new_names), "x-1")))
    moved = checked_id(None, ganged(pod(mounted(tmp_path / "d", new_addresses), address="10.5.1.9")))
    again = checked_id(None, ganged(pod(mounted(tmp_path / "e"), VOLCANO_JOB_VERSION="1")))
    assert len({first, renamed, moved, again}) == 4


def test_the_order_of_the_lines_and_an_older_form_of_them_change_nothing(tmp_path: Path) -> None:
    first = ganged(pod(mounted(tmp_path / "a")))["TOPOCHECK_GANG"]
    older = "\n w-1;10.4.1.9;1 \nw-0;10.4.0.7;0"
    assert ganged(pod(mounted(tmp_path / "b", older)))["TOPOCHECK_GANG"] == first


def test_the_rank_of_the_list_is_no_node_rank_of_the_job(tmp_path: Path) -> None:
    """It is the place of the pod's name in the alphabet, where w-10 stands before w-2."""
    peers = "".join(f"w-{n};10.4.0.{n};{sorted(map(str, range(11))).index(str(n))}\n" for n in range(11))
    env = pod(mounted(tmp_path, peers, "11"), "w-10", "10.4.0.10", JOB_COMPLETION_INDEX="10")
    [claim] = claims(ganged(env, 11))
    assert claim.node_rank == 10
    gang = read_gang(tmp_path)
    assert gang is not None
    assert Peer("w-10", "10.4.0.10", 2) in gang.peers


@pytest.mark.parametrize(
    ("peers", "expected", "least"),
    [
        ("", "0", 2),  # a skeleton: the controller knows nothing yet
        (PEERS, "0", 2),
        (PEERS, "3", 2),
        (PEERS, "2", 3),  # the least that is scheduled together, and the job has more
        (PEERS.replace("w-1", "old-1"), "2", 2),  # of the launch before: this pod is not among them
        (PEERS.replace("1.9", "9.9"), "2", 2),  # of the launch before: another address
    ],
)
def test_a_gang_that_is_not_whole_is_waited_for_and_then_undecided(
    tmp_path: Path, peers: str, expected: str, least: int
) -> None:
    with pytest.raises(TopocheckError, match="the gang is not whole after 1 s") as caught:
        ganged(pod(mounted(tmp_path, peers, expected)), least)
    assert caught.value.exit_code == 3


def test_a_folder_that_fills_while_the_gate_waits_is_seen(tmp_path: Path) -> None:
    one = PEERS.partition("\n")[0]
    steps = iter([(one, "0"), (one, "2"), (PEERS, "2")])
    env = pod(tmp_path / "late", GANG_TIMEOUT_SECONDS="60")

    def pause(_: float) -> None:
        mounted(tmp_path / "late", *next(steps))

    found = with_gang(env, 2, lambda _: None, pause)
    assert found["TOPOCHECK_GANG_SIZE"] == "2"


def test_a_pod_of_no_gang_keeps_its_environment() -> None:
    env = {"POD_NAME": "a", "TOPOCHECK_POD_UID": "77"}
    assert ganged(env) is env
    assert run_of(env).id == "77"
    assert run_of({**env, "GANG_ID": "g"}).id is None


def test_launches_that_look_alike_are_refused_in_the_hosts_network(tmp_path: Path) -> None:
    env = pod(mounted(tmp_path), HOST_IP="10.4.1.9")
    with pytest.raises(UsageError, match="give --run-id"):
        ganged(env)
    assert ganged({**env, "TOPOCHECK_CONTROLLER_UID": "1c"})["TOPOCHECK_GANG"]  # a Job's pods have new names
    assert ganged({**env, "VOLCANO_JOB_VERSION": "0"})["TOPOCHECK_GANG"]


def test_empty_variables_of_labels_that_a_pod_lacks_claim_nothing() -> None:
    names = ("JOB_COMPLETION_INDEX", "JOBSET_NAME", "JOB_INDEX", "LWS_WORKER_INDEX", "LWS_GROUP_SIZE")
    assert claims(dict.fromkeys(names, "")) == []
    [claim] = claims({**dict.fromkeys(names, ""), "JOB_COMPLETION_INDEX": "3"})
    assert (claim.family, claim.node_rank, claim.notes) == ("indexed_job", 3, ())


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"peers": "w-0;10.0.0.1"}, "f/peers:1: expected pod;address;rank"),
        ({"peers": "w-0;10.0.0.1;0\nw-1;;1"}, "f/peers:2: expected pod;address;rank"),
        ({"peers": "w-0;10.0.0.1;-1"}, "f/peers:1: "),
        ({"peers": "w;10.0.0.1;0\nw;10.0.0.2;1"}, "a pod is named twice"),
        ({"expected_count": "two"}, "f/expected_count: expected a number of pods, found 'two'"),
    ],
)
def test_a_list_that_cannot_be_read_is_an_error_with_its_line(files: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_gang(files, "f")
    assert said in str(caught.value)


@given(st.dictionaries(st.sampled_from(["peers", "expected_count", "gang_id"]), st.text(max_size=60)))
@settings(max_examples=50, deadline=None)
def test_any_text_is_a_gang_or_an_error_in_words(files: dict[str, str]) -> None:
    try:
        gang = parse_gang(files, "f")
    except InputError:
        return
    assert len({peer.pod for peer in gang.peers}) == len(gang.peers)


@given(st.text(max_size=300))
@settings(max_examples=50, deadline=None)
def test_any_gang_id_gives_a_run_id_that_names_a_file(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    gang = text.encode("utf-8", "replace").decode()
    found = ganged(pod(mounted(tmp_path_factory.mktemp("gang"), gang=gang)))["TOPOCHECK_GANG"]
    assert NAME.fullmatch(found)


@pytest.mark.parametrize(
    ("plan", "code", "word"), [(OPEN, 0, "OPEN"), (SHUT, 1, "SHUT"), (UNDECIDED, 2, "UNDECIDED")]
)
def test_exit_codes_are_the_three_of_the_contract(tmp_path: Path, plan: str, code: int, word: str) -> None:
    (tmp_path / "plan.yaml").write_text(plan)
    (tmp_path / "gates").mkdir()
    env = pod(mounted(tmp_path / "gang", "w-1;10.4.1.9;0\n", "1"))
    options = ["--plan", str(tmp_path / "plan.yaml"), "--store", f"file:{tmp_path}/gates", "--timeout", "30"]
    done = topocheck("gate", *options, "--exit-codes", "preflight", env=env)
    assert done.code == code, done.err
    assert f"topocheck gate: {word}" in done.last
    [run] = (tmp_path / "gates").iterdir()
    assert run.name.startswith("volcano-team-a-job-")
    assert topocheck("gate", *options, env=env).code == {2: 3}.get(code, code)


def test_a_gang_that_never_is_whole_ends_with_2_and_names_who_is_there(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(OPEN)
    env = pod(mounted(tmp_path / "gang", PEERS, "3"))
    options = ["--plan", str(tmp_path / "plan.yaml"), "--exit-codes", "preflight"]
    done = topocheck("gate", *options, env=env)
    assert done.code == 2
    assert "2 of 3 pods are in its list (w-0, w-1)" in done.last


def check_of(text: str) -> dict[str, Any]:
    [entry] = yaml.safe_load(text)["preflight"]["initContainers"]
    return dict(entry)


def test_the_values_hold_a_container_that_kubernetes_takes() -> None:
    """What the chart makes of an entry: repository and tag in one word, its own keys taken out."""
    done = topocheck("manifest", "--for", "nvsentinel", "--image", "r.example:5000/topocheck:1.2")
    assert done.code == 0, done.err
    entry = check_of(done.out)
    own = {"defaultEnabled", "inheritUserEnv", "inheritUserVolumeMounts"}
    assert entry["image"] == {"repository": "r.example:5000/topocheck", "tag": "1.2"}
    image = ":".join(entry["image"].values())
    container = {key: value for key, value in entry.items() if key not in own} | {"image": image}
    spec = {"initContainers": [container], "containers": [{"name": "main", "image": "m:1"}]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    kubernetes_validate.validate(document, "1.35", strict=True)
    assert entry["defaultEnabled"] is False
    assert entry["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_its_gate_takes_the_options_that_the_values_give_it(tmp_path: Path) -> None:
    [gate, *options] = check_of(values(Check(image="t:1", timeout_s=30)))["args"]
    places = {"/etc/topocheck/plan.yaml": str(tmp_path / "plan.yaml"), "file:/gates": f"file:{tmp_path}"}
    (tmp_path / "plan.yaml").write_text(SHUT)
    words = [
        f"{name}={places.get(value, value)}" for name, _, value in (one.partition("=") for one in options)
    ]
    assert topocheck(gate, *words, "--run-id", "here-1").code == 1


@pytest.mark.parametrize("image", ["topocheck", "r.example:5000/topocheck", "a b:1", "", "x:", 'x:"\n'])
def test_an_image_that_the_chart_cannot_name_is_refused(image: str) -> None:
    with pytest.raises(UsageError, match="expected an image with its tag"):
        checked(Check(image=image, timeout_s=1))
