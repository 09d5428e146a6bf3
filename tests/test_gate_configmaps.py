"""Gates of several processes over one API server: one verdict, whoever is killed and whatever goes wrong."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from api_server import ApiServer, Fault, account, served
from gate_node import plan_of
from gate_pod import env_of, one, soon
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real import require
from shell import COMMAND, topocheck

from topocheck.errors import TopocheckError
from topocheck.gather.configmap import Place
from topocheck.gather.configmap_store import ConfigMapStore

POD = Path(__file__).with_name("gate_pod.py")
ENV = os.environ | {"PYTHONPATH": str(POD.parent)}
VERDICT = Place("r1", "verdict").object_name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("openssl")
    return account(tmp_path_factory.mktemp("account"))


@pytest.fixture
def server(folder: Path) -> Iterator[ApiServer]:
    with served(folder) as state:
        yield state


def port(server: ApiServer) -> str:
    return server.url.rpartition(":")[2]


def gates(
    server: ApiServer, folder: Path, nodes: int, timeout_s: float, *more: str, absent: int = 0
) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, POD, folder, port(server), str(node), str(nodes), str(timeout_s), *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENV,
        )
        for node in range(nodes - absent)
    ]


def ended(started: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    ends = [gate.communicate(timeout=90) for gate in started]
    return [(gate.returncode, *end) for gate, end in zip(started, ends, strict=True)]


def decided(server: ApiServer, folder: Path) -> bytes | None:
    store = ConfigMapStore(None, "r1", env_of(port(server)), account=folder)
    try:
        return store.verdict()
    finally:
        store.close()


@pytest.mark.parametrize(("more", "code"), [((), 0), (("broken",), 1)])
def test_all_gates_have_one_verdict(
    server: ApiServer, folder: Path, more: tuple[str, ...], code: int
) -> None:
    ends = ended(gates(server, folder, 3, 60, *more))
    assert {end[0] for end in ends} == {code}, ends
    assert len({end[1] for end in ends}) == 1
    assert len(server.verdicts()) == 1


def test_a_node_that_stays_away_leaves_it_undecided_and_is_not_published(
    server: ApiServer, folder: Path
) -> None:
    ends = ended(gates(server, folder, 3, 3, absent=1))
    assert {end[0] for end in ends} == {3}, ends
    assert server.verdicts() == []


def test_gates_that_decide_at_once_have_the_verdict_of_the_first(server: ApiServer, folder: Path) -> None:
    """Both have verified and found no verdict before either of them is let in."""
    both = threading.Barrier(2)

    def meet(verb: str, name: str) -> None:
        if verb == "create" and name == VERDICT:
            both.wait(30)

    server.before = meet
    server.fault = lambda verb, name: Fault("status", 404) if hides(server, verb, name) else None
    found = threads(server, folder, 2)
    assert len(set(found)) == 1
    assert [verb for verb, name in server.asked if name == VERDICT].count("create") == 2


def hides(server: ApiServer, verb: str, name: str) -> bool:
    """A verdict is not seen before two gates have asked to create one."""
    creates = [asked for asked in server.asked if asked == ("create", VERDICT)]
    return verb == "get" and name == VERDICT and len(creates) < 2


def threads(
    server: ApiServer, folder: Path, nodes: int, *, timeout_s: float = 60, patience_s: float = 20
) -> list[bytes]:
    """Verdicts of all gates that have one."""

    def gate(node: int) -> bytes:
        try:
            found = one(
                folder, port(server), node, nodes, timeout_s=timeout_s, patience_s=patience_s, pause=soon
            )
        except TopocheckError:
            return b""
        return b"" if found.exit_code not in (0, 1) else msgspec.json.encode(found)

    with ThreadPoolExecutor(nodes) as pool:
        return [verdict for verdict in pool.map(gate, range(nodes)) if verdict]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_gate_that_is_killed_while_it_decides_keeps_nobody_from_the_verdict(
    server: ApiServer, folder: Path, when: str
) -> None:
    """Killed as its verdict arrives at the server, which takes it or does not."""
    started: list[subprocess.Popen[str]] = []
    killed: list[subprocess.Popen[str]] = []

    def kill(verb: str, name: str) -> Fault | None:
        if (verb, name) != ("create", VERDICT) or killed:
            return None
        victim = next(gate for gate in started if str(gate.args[4]) == "0")  # type: ignore[index]
        killed.append(victim)
        victim.kill()
        victim.wait(30)
        return Fault("drop" if when == "before" else "lost")

    server.fault = kill
    started += gates(server, folder, 3, 60)
    ends = ended(started)
    assert len(killed) == 1
    assert {end[0] for end, gate in zip(ends, started, strict=True) if gate not in killed} == {0}, ends
    assert len(server.verdicts()) == 1


@pytest.mark.parametrize("seed", range(3))
def test_whoever_is_killed_nobody_gets_another_verdict(server: ApiServer, folder: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same rounds each time
    requests = chance.randint(4, 40)
    broken = ["broken"] if chance.random() < 0.4 else []
    reached = threading.Event()

    def count(_verb: str, _name: str) -> Fault | None:
        if len(server.asked) >= requests:
            reached.set()
        return Fault("lost") if chance.random() < 0.1 else None

    server.fault = count
    started = gates(server, folder, 4, 6, *broken)
    assert reached.wait(60)
    for victim in chance.sample(started, 2):
        victim.kill()
    codes = {end[0] for end in ended(started)} - {-9}
    assert codes <= {0, 1, 3}
    assert len(codes & {0, 1}) <= 1
    assert len(server.verdicts()) <= 1


FAULTS = st.builds(
    Fault,
    kind=st.sampled_from(["drop", "lost", "cut", "status", "status"]),
    code=st.sampled_from([403, 404, 409, 410, 429, 500, 503]),
    retry_after=st.sampled_from([None, "0"]),
)


@given(
    faults=st.lists(st.one_of(st.none(), FAULTS), max_size=60),
    hidden=st.sampled_from([False, True]),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_mixture_of_faults_gives_two_gates_different_verdicts(
    server: ApiServer, folder: Path, faults: list[Fault | None], hidden: bool
) -> None:
    """404 for what is there, 403 and 409 for nothing: a gate may fail by it, and never differ."""
    server.objects.clear()
    left = list(faults)
    server.fault = lambda *_: left.pop(0) if left else None
    server.expiring = 3 if hidden else 0
    server.page = 2 if hidden else 500
    found = threads(server, folder, 3, timeout_s=4, patience_s=2)
    assert len(set(found)) <= 1
    server.fault = lambda *_: None
    if found:
        assert decided(server, folder) == found[0]


# The command itself


@pytest.fixture
def outside(server: ApiServer, folder: Path, tmp_path: Path) -> dict[str, str]:
    """A kubeconfig, since the account of a pod lies where only a pod has it."""
    (tmp_path / "plan.yaml").write_text(plan_of(2))
    config = {
        "current-context": "c",
        "clusters": [
            {"name": "c", "cluster": {"server": server.url, "certificate-authority": str(folder / "ca.crt")}}
        ],
        "users": [{"name": "u", "user": {"tokenFile": str(folder / "token")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "prod"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    return {"KUBECONFIG": str(tmp_path / "config"), "KUBERNETES_SERVICE_HOST": ""}


def gate(
    tmp_path: Path, outside: dict[str, str], store: str, command: Sequence[str] = COMMAND
) -> tuple[int, str, str]:
    plan = tmp_path / "plan.yaml"
    options = ("--run-id", "r1", "--timeout", "1", "--store", store)
    done = topocheck("gate", "--plan", plan, *options, env=outside, command=command)
    return done.code, done.last, done.err


def test_the_command_meets_in_configmaps(server: ApiServer, outside: dict[str, str], tmp_path: Path) -> None:
    code, last, err = gate(tmp_path, outside, "k8s:")
    assert (code, "node 1 never reported" in last) == (3, True), err
    ((space, _), entry) = next(iter(server.objects.items()))
    assert (space, entry["metadata"]["annotations"]["topocheck/run"]) == ("prod", "r1")


def test_a_right_that_lacks_ends_the_command_with_2_and_the_rule(
    server: ApiServer, outside: dict[str, str], tmp_path: Path
) -> None:
    server.verbs.discard("create")
    server.namespaces.add("gates")
    code, last, err = gate(tmp_path, outside, "k8s:gates")
    assert code == 2, err
    assert "may not create configmaps in namespace gates (HTTP 403)" in last
    assert 'verbs: ["create"]' in last
    assert "Traceback" not in err


def test_old_runs_that_may_not_be_removed_change_no_verdict(
    server: ApiServer, folder: Path, outside: dict[str, str], tmp_path: Path
) -> None:
    """The gate that verified tells it, and ends as all others do."""
    (tmp_path / "plan.yaml").write_text("engine: vllm\nparallel: {tensor: 1}\nnodes: 1\n")
    old = ConfigMapStore(None, "r0", env_of(port(server)), account=folder)
    old.publish("x", b"y")
    old.close()
    next(iter(server.objects.values()))["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    server.verbs.discard("delete")
    code, _, err = gate(tmp_path, outside, "k8s:")
    assert code in (0, 1, 3)
    assert "what older runs left stays: " in err
    assert 'verbs: ["delete"]' in err


def test_without_the_library_it_is_one_sentence(outside: dict[str, str], tmp_path: Path) -> None:
    bare = "import sys; sys.modules['lightkube'] = None; from topocheck.cli.main import main; main()"
    code, last, err = gate(tmp_path, outside, "k8s:", command=(sys.executable, "-c", bare))
    assert code == 2, err
    assert "--store k8s:: lightkube is not installed" in last
    assert "extra `kubernetes`" in last
    assert "Traceback" not in err


def test_a_folder_needs_no_library_of_kubernetes(tmp_path: Path, outside: dict[str, str]) -> None:
    (tmp_path / "gates").mkdir()
    bare = "import sys; sys.modules['lightkube'] = None; from topocheck.cli.main import main; main()"
    code, _, err = gate(tmp_path, outside, f"file:{tmp_path / 'gates'}", command=(sys.executable, "-c", bare))
    assert code == 3, err


@pytest.mark.parametrize("url", ["k8s://prod", "k8s:prod/gates", "k8s:Prod", "s3:bucket"])
def test_a_store_that_is_none_is_refused(outside: dict[str, str], tmp_path: Path, url: str) -> None:
    code, last, _ = gate(tmp_path, outside, url)
    assert (code, f"--store {url}: expected" in last) == (2, True), last
