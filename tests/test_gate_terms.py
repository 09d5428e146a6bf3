"""Policy, baseline and version are the same on all nodes, or the gate does not open."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from gate_node import plan_of, view, waiting
from shell import COMMAND

from topocheck.answer import Declared
from topocheck.baseline import parse_baseline
from topocheck.checklist import Gate
from topocheck.cli.launched import launched
from topocheck.errors import UsageError
from topocheck.gate import Decision, Waiting, pass_gate
from topocheck.gather.folder_store import FolderStore
from topocheck.gather.seal import sealed
from topocheck.planfile import parse_plan
from topocheck.policy import read_site
from topocheck.question import difference, question

POLICY = "policy: {severity: {ID001: warning, ID010: warning, PP001: warning}}\n"


def asking(node: int, nodes: int, declared: Declared | None = None, timeout_s: float = 10) -> Waiting:
    """What a gate of the made job asks."""
    asked = waiting("r1", node, nodes, timeout_s)
    return asked if declared is None else replace(asked, declared=declared)


def gate(store: Path, node: int, asked: Waiting) -> Decision:
    """Pass it; the entry says what was asked, as the command's does."""
    shown = msgspec.structs.replace(view("r1", node, asked.expected), asked=asked.question)
    return pass_gate(FolderStore(store, "r1"), sealed(msgspec.json.encode(shown), shown.token or ""), asked)


def together(store: Path, asked: Sequence[Waiting]) -> list[Decision]:
    """All gates at once."""
    with ThreadPoolExecutor(len(asked)) as pool:
        return list(pool.map(lambda node: gate(store, node, asked[node]), range(len(asked))))


def with_policy(folder: Path, nodes: int, text: str = POLICY) -> Declared:
    """The made job's plan, and a policy file."""
    path = folder / "policy.yaml"
    path.write_text(text)
    return Declared(parse_plan(plan_of(nodes), "plan.yaml"), site=read_site(str(path)))


def test_nodes_that_were_asked_the_same_from_other_places_agree(tmp_path: Path) -> None:
    asked = []
    for node in range(2):
        (tmp_path / f"{node}").mkdir()
        asked.append(asking(node, 2, with_policy(tmp_path / f"{node}", 2)))
    store = tmp_path / "store"
    store.mkdir()
    found = together(store, asked)
    assert {decision.exit_code for decision in found} == {0}, found[0].report.sentence


def test_a_node_with_another_policy_keeps_all_gates_shut_and_is_named(tmp_path: Path) -> None:
    asked = [asking(node, 3) for node in range(3)]
    asked[1] = asking(1, 3, with_policy(tmp_path, 3))
    store = tmp_path / "store"
    store.mkdir()
    found = together(store, asked)
    assert {(decision.exit_code, decision.report.exit_reason) for decision in found} == {
        (3, "nodes_disagree")
    }
    assert {decision.report.sentence for decision in found} == {
        "node-1: the policy there is another than that of 2 of 3 gates: give all nodes the same"
    }
    assert FolderStore(store, "r1").verdict() is None


def test_a_verdict_over_another_plan_is_not_adopted(tmp_path: Path) -> None:
    assert {
        decision.exit_code for decision in together(tmp_path, [asking(node, 2) for node in range(2)])
    } == {0}
    other = Declared(parse_plan(plan_of(2).replace("boundary: any", "boundary: rdma"), "plan.yaml"))
    with pytest.raises(UsageError, match="the plan of this node is not the one that it was given over"):
        gate(tmp_path, 0, asking(0, 2, other))


def test_a_question_is_told_apart_by_contents_alone(tmp_path: Path) -> None:
    plan, policy = Declared(parse_plan(plan_of(2), "plan.yaml")), with_policy(tmp_path, 2)
    elsewhere = Declared(parse_plan(plan_of(2), "/elsewhere/plan.yaml"))
    base = question(plan, Gate(), 2)
    assert base == question(elsewhere, Gate(), 2)
    assert difference(base, question(policy, Gate(), 2)) == "policy"
    assert difference(base, question(plan, Gate(), 3)) == "number of nodes"
    assert difference(base, question(policy, Gate(fail_on="warning"), 2)) == "plan and policy"
    assert difference(base, base.replace("topocheck ", "topocheck 9")) == "version of topocheck"
    assert difference(base, "") != ""


def test_what_the_baseline_has_does_not_shut_the_gate(tmp_path: Path) -> None:
    def broken(store: Path, declared: Declared) -> Decision:
        asked = asking(0, 1, declared)
        shown = msgspec.structs.replace(view("r1", 0, 1), ranks=view("r1", 1, 2).ranks)
        store.mkdir()
        return pass_gate(
            FolderStore(store, "r1"), sealed(msgspec.json.encode(shown), shown.token or ""), asked
        )

    plan = Declared(parse_plan(plan_of(1), "plan.yaml"))
    first = broken(tmp_path / "a", plan)
    assert first.exit_code == 1
    baseline = parse_baseline(msgspec.json.encode(first.report), "report.json")
    second = broken(tmp_path / "b", plan._replace(baseline=baseline))
    assert second.exit_code != 1, second.report.sentence
    assert second.report.counts.known >= 1


@pytest.mark.parametrize(
    "words",
    [
        "vllm serve m --tensor-parallel-size 4 --pipeline-parallel-size 2 --nnodes 2 --node-rank {}",
        "python -m sglang.launch_server --tp 8 --nnodes 2 --node-rank {} --dist-init-addr a:1",
        "torchrun --nnodes 2 --node-rank {} pretrain_gpt.py --tensor-model-parallel-size 2",
    ],
)
def test_the_commands_of_two_nodes_ask_the_same(words: str) -> None:
    asked = {question(Declared(launched(words.format(node).split(), "2")[0]), Gate(), 2) for node in range(2)}
    assert len(asked) == 1


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A gate of a job of one node as a user starts it, with a rank that the plan does not have."""
    (folder / "plan.yaml").write_text("engine: megatron\nparallel: {tensor: 4}\nnodes: 1\n")
    (folder / "store").mkdir(exist_ok=True)
    env = {
        "PATH": "/usr/bin:/bin",
        "RANK": "7",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }
    return subprocess.run(
        [*COMMAND, "gate", "--plan", "plan.yaml", "--store", f"file:{folder}/store", *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_gate_takes_policy_and_baseline_as_verify_does(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("policy: {min_basis: claimed, severity: {ID001: warning}}\n")
    first = command(tmp_path, "--run-id", "try-1", "--json", "first.json")
    assert (first.returncode, "[ID001]" in first.stderr) == (1, True), first.stderr
    known = command(tmp_path, "--run-id", "try-2", "--baseline", "first.json")
    assert known.returncode == 3, known.stderr
    assert "known from the baseline" in known.stderr
    milder = command(tmp_path, "--run-id", "try-3", "--policy", "policy.yaml")
    assert "[ID001]" not in milder.stderr
    same = command(tmp_path, "--run-id", "try-1", "--policy", "policy.yaml")
    assert same.returncode == 2
    assert "answers another question: the policy of this node" in same.stderr
    again = command(tmp_path, "--run-id", "try-1")
    assert (again.returncode, again.stderr) == (1, first.stderr)


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--policy", "policy: {skipp: [TP001]}\n", "did you mean 'skip'"),
        ("--policy", "policy: {skip: [TP999]}\n", "there is no such rule"),
        ("--baseline", "{}", "is no report of topocheck"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, option: str, text: str, words: str
) -> None:
    (tmp_path / "file").write_text(text)
    done = command(tmp_path, "--run-id", "try-1", option, "file")
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_gates_of_one_node_that_have_no_store_are_told_before_they_wait(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("engine: megatron\nparallel: {tensor: 2}\nnodes: 1\n")
    ranks = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    done = subprocess.run(
        [*COMMAND, "gate", "--plan", "plan.yaml", "--run-id", "try-1", "--timeout", "30"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", **ranks},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "this node has several tasks, each with a gate of its own: give --store" in done.stderr


@pytest.mark.parametrize("run", ["../up", "a/b", ".hidden", "", "x" * 201, "a b"])
def test_a_run_id_that_is_no_name_of_a_file_is_refused(tmp_path: Path, run: str) -> None:
    done = command(tmp_path, "--run-id", run)
    assert done.returncode == 2
    assert "--run-id" in done.stderr
    assert list((tmp_path / "store").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.yaml", "store"]
