"""Jobs of several worlds are judged world by world, and for what worlds do to each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import pytest
from build import AT, answer, comm, fact, inventory, log, paired, plan, snap
from hypothesis import given, settings
from hypothesis import strategies as st
from made_worlds import DENSE, POOLS, TWINS, accused, carrier, errors, judgement, of, pools, replica_log, told

from topocheck.ask import Ask
from topocheck.checklist import Gate
from topocheck.claims import united
from topocheck.errors import TwoJobsError
from topocheck.placement import Placement
from topocheck.plan import BASES
from topocheck.report import Report
from topocheck.rule import Finding, Rule, the
from topocheck.rules import RULES
from topocheck.snapshot import At, FamilyDisagreement, FullSnapshot, JobFact, NodeClaim
from topocheck.worldreport import worlds_report
from topocheck.worldwise import judge, worlds_in

HALVES = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: 4\nworlds: 2\n"
"""Two replicas of two nodes each, none of which has a name."""


def verdicts(found: Report) -> dict[str, str]:
    assert found.worlds
    return {world.name: world.verdict for world in found.worlds}


def stated(name: str | None, *facts: JobFact) -> FullSnapshot:
    """A file with statements about the job, given as one of a node if it has a name."""
    return msgspec.structs.replace(log(name), job=facts, observed=None)


def asked(axis: str, size: int, source: str = "run.sh") -> JobFact:
    """What a launch command asks for."""
    return JobFact(kind="requested-size", name=axis, value=str(size), engine="vllm", at=At(source=source))


# Healthy set-ups that accuse nobody.


def test_pools_of_different_sizes_pass() -> None:
    found = told(POOLS, *pools())
    assert (found.verdict, accused(found), verdicts(found)) == (
        "pass",
        [],
        {"prefill": "pass", "decode": "pass"},
    )
    assert found.job == (
        "2 worlds: prefill (vLLM, tensor 4: 4 ranks on 1 node); "
        "decode (vLLM, tensor 4 x pipeline 2: 8 ranks on 2 nodes)"
    )


def test_claims_that_name_no_world_are_of_the_world_of_their_host() -> None:
    hosts = (("node-a", range(4), 4), ("node-b", range(4), 8), ("node-c", range(4, 8), 8))
    found = told(POOLS, *(carrier(name, of("", ranks, size), count=4) for name, ranks, size in hosts))
    assert (found.verdict, accused(found)) == ("pass", [])


@pytest.mark.parametrize(
    "names", [("0", "1"), ("serve-2", "serve-10"), ("", "")], ids=["own", "pods", "none"]
)
def test_two_replicas_on_one_node_pass(names: tuple[str, str]) -> None:
    first, second = names
    found = told(TWINS, carrier("node-a", of(first, range(4), 4), of(second, range(4), 4, first=4)))
    assert (found.verdict, accused(found), found.phase) == ("pass", [], "claimed")
    assert verdicts(found) == {"0": "pass", "1": "pass"}


def test_two_replicas_on_one_node_are_predicted_side_by_side() -> None:
    found = told(TWINS, carrier("node-a"), whole=True)
    assert (found.verdict, found.phase) == ("pass", "predicted")
    assert found.worlds
    gpus = [[rank.gpu for rank in world.placement.ranks] for world in found.worlds if world.placement]
    assert [len(set(names)) for names in gpus] == [4, 4]
    assert not set(gpus[0]) & set(gpus[1])
    assert "worlds that share a node use its GPUs one after the other" in found.assumptions


@pytest.mark.parametrize("node", ["[node-a]", "1"], ids=["named", "unnamed"])
def test_dense_replicas_whose_ranks_repeat_pass(node: str) -> None:
    text = DENSE.replace("[node-a]", node)
    found = told(text, carrier("node-a"), replica_log("node-a", 0, 4))
    assert (found.verdict, accused(found), found.phase) == ("pass", [], "observed")
    assert verdicts(found) == {"dp0": "pass", "dp1": "pass"}


def test_dense_replicas_that_the_evidence_alone_shows_pass() -> None:
    text = "engine: vllm\nparallel: {tensor: 4, data: 2}\nnodes: 2\n"
    hosts = ("host-1", "host-2")
    found = told(text, *(snap(name) for name in hosts), *(replica_log(name, 0) for name in hosts))
    assert (errors(found), verdicts(found)) == ([], {"dp0": "pass", "dp1": "pass"})


def test_claims_of_dense_replicas_name_them() -> None:
    found = told(DENSE, carrier("node-a", of("dp0", range(4), 4), of("dp1", range(4), 4, first=4)))
    assert (found.verdict, accused(found)) == ("pass", [])


def test_replicas_over_nodes_are_told_apart_by_their_communicators() -> None:
    found = told(
        HALVES,
        log("h1", comm("0xaa", range(4), host="h1")),
        log("h2", comm("0xbb", range(4), host="h2")),
        log("h3", comm("0xbb", range(4, 8), host="h3")),
        log("h4", comm("0xaa", range(4, 8), host="h4")),
    )
    assert errors(found) == []
    assert (answer(found, "TP001").verdict, answer(found, "ID001").verdict) == ("pass", "pass")


def test_groups_of_pods_are_worlds_by_their_order() -> None:
    def pod(number: int) -> FullSnapshot:
        claim = NodeClaim(node_rank=number % 2, nodes=2, world=f"serve-{number // 2 + 9}", family="lws")
        return msgspec.structs.replace(snap(f"h{number}"), node_claim=claim)

    found = judgement(HALVES, *map(pod, range(4)))
    assert [[m.name for m in world.placement.inventory.machines] for world in found.worlds] == [
        ["h0", "h1"],
        ["h2", "h3"],
    ]


def test_a_communicator_between_worlds_is_of_none() -> None:
    connector = [
        log(name, comm("0xcc", [rank], host=name, size=2)) for rank, name in enumerate(("node-a", "node-b"))
    ]
    found = told(POOLS, *pools(), *connector)
    assert errors(found) == []
    assert "communicators between worlds, which are judged for none: 0xcc" in found.notes


def test_ranks_that_only_a_communicator_over_worlds_shows_are_not_predicted() -> None:
    """A job that runs otherwise than the plan says is no pass by the plan."""
    over = [
        log(name, comm("0xcc", ranks, host=name, size=8), count=4)
        for name, ranks in (("node-a", range(4)), ("node-b", range(4, 8)))
    ]
    found = told(POOLS, *over, snap("node-c"))
    assert [world.phase for world in found.worlds or ()] == ["observed", "observed"]
    assert [answer(found, rule).verdict for rule in ("ID001", "TP001")] == ["unknown", "unknown"]
    assert any(gap.need == "which world a communicator belongs to" for gap in found.gaps)


# Faults of one world accuse that world.


def test_only_the_world_whose_tensor_group_crosses_nodes_is_accused() -> None:
    found = told(
        POOLS,
        pools()[0],
        carrier("node-b", of("decode", [0, 1, 4, 5], 8), count=4),
        carrier("node-c", of("decode", [2, 3, 6, 7], 8), count=4),
    )
    assert found.verdict == "fail"
    assert verdicts(found) == {"prefill": "pass", "decode": "fail"}
    assert all(": " in line and "world decode: " in line for line in errors(found))
    assert found.sentence.startswith(
        "world decode: TP group 0 (ranks 0..3) crosses 2 nodes: node-b has ranks 0, 1"
    )


def test_a_rank_held_twice_inside_one_world_is_wrong() -> None:
    twice = of("decode", [4, 5, 6, 6], 8)
    twice = (*twice[:3], msgspec.structs.replace(twice[3], pid=1))
    found = told(POOLS, *pools()[:2], carrier("node-c", twice, count=4))
    assert [f.message[:46] for f in answer(found, "ID001").findings] == [
        "world decode: ranks 6 are held by more than on"
    ]
    assert verdicts(found)["prefill"] == "pass"


def test_a_missing_replica_is_unknown() -> None:
    found = told(POOLS, *pools()[1:])
    assert (found.verdict, found.exit_reason, errors(found)) == ("unknown", "nodes_missing", [])
    assert verdicts(found) == {"prefill": "unknown", "decode": "pass"}
    assert "node-a never reported" in found.sentence


def test_a_world_of_another_size_is_accused_by_its_name() -> None:
    found = told(POOLS, carrier("node-a", of("prefill", range(2), 2), count=4), *pools()[1:])
    said = [f.message for f in answer(found, "ID002").findings]
    assert said == ["world prefill: the job has a world of 2 ranks, the plan declares tensor 4 = 4"]


# What worlds do to each other.


@pytest.mark.parametrize("first", [0, 2, 3])
def test_a_gpu_that_serves_two_worlds_is_found(first: int) -> None:
    found = told(TWINS, carrier("node-a", of("0", range(4), 4), of("1", range(4), 4, first=first)))
    (finding,) = answer(found, "ID004").findings
    assert finding.message.startswith("worlds 0, 1: ")
    assert finding.count == 4 - first
    assert "rank 3 of world 0" in finding.subjects[-1]
    assert verdicts(found) == {"0": "fail", "1": "fail"}


def test_a_gpu_is_shared_by_worlds_only_where_both_show_it() -> None:
    """One of the two has no process yet: where it will run is an assumption."""
    found = told(TWINS, carrier("node-a", of("0", range(4), 4, first=4)))
    assert (found.verdict, errors(found)) == ("unknown", [])
    assert "ranks 0..3 of world 1" in next(g for g in found.gaps if "ID004" in g.rules).about


def test_one_machine_under_two_names_is_found_over_worlds() -> None:
    prefill, *decode = pools()
    same = msgspec.structs.replace(prefill.identity, gpus=decode[0].identity.gpus)
    found = told(POOLS, msgspec.structs.replace(prefill, identity=same), *decode)
    (finding,) = answer(found, "ID005").findings
    assert "appear on node-a and on node-b" in finding.message
    assert "world" not in finding.message


def test_a_host_fault_is_told_once_for_the_worlds_on_it() -> None:
    broken = carrier("node-a", of("0", range(4), 4), of("1", range(4), 4, first=4), boot=None)
    again = msgspec.structs.replace(snap("node-a", count=8, boot=None, model="NVIDIA A100"), ranks=())
    found = told(TWINS, broken, again)
    (finding,) = answer(found, "EV004").findings
    assert finding.message.startswith("worlds 0, 1: ")


def test_a_host_of_no_world_that_carries_ranks_is_wrong() -> None:
    found = told(POOLS, *pools(), carrier("node-z", of("", range(4), 4), count=4))
    assert errors(found) == ["EV001 node-z carries ranks of the job and no world of the plan has it"]


@pytest.mark.parametrize("others", [["node-a"], []])
def test_a_host_of_no_world_that_a_communicator_shows_is_wrong(others: list[str]) -> None:
    hosts = [*others, "node-z"]
    size = 4 * len(hosts)
    seen = [
        log(name, comm("0xcc", range(4 * n, 4 * n + 4), host=name, size=size), count=4)
        for n, name in enumerate(hosts)
    ]
    found = told(POOLS, *(snap(name) for name in ("node-a", "node-b", "node-c")), *seen)
    assert errors(found) == ["EV001 node-z carries ranks of the job and no world of the plan has it"]


def test_what_a_process_saw_of_its_launchers_follows_its_host_by_any_name() -> None:
    """A pod has a name of its own and the boot id of its host."""
    odd = FamilyDisagreement(
        what="rank",
        family="torchrun",
        variable="RANK",
        value=0,
        other_family="slurm",
        other_variable="SLURM_PROCID",
        other_value=4,
    )
    host, *rest = pools()
    boot = host.identity.host.boot_id
    pod = msgspec.structs.replace(snap("pod-7", count=4, boot=boot), disagreements=(odd,))
    found = judgement(POOLS.replace("engine: vllm", "engine: megatron"), host, pod, *rest)
    assert [host for host, _ in found.worlds[0].placement.inventory.launches] == ["pod-7"]
    assert found.worlds[1].placement.inventory.launches == []


def test_a_rule_that_broke_in_one_world_is_named_with_its_reason() -> None:
    """Beside a warning of another world, which leaves the gate open."""

    def check(ask: Ask, placement: Placement) -> Iterator[Finding]:
        ask.know()
        if placement.facts.name == "decode":
            raise RuntimeError("by nothing")
        yield Finding(message="so", fix="do", cause="so", subjects=("job",))

    odd = Rule(id="ZZ001", name="odd", severity="warning", required=False, over=the, check=check)
    parts, _ = worlds_in(plan(POOLS), known := inventory(*pools()))
    found = worlds_report(judge(plan(POOLS), parts, known, [odd]), [], at=AT, gate=Gate(), whole=False)
    assert (found.exit_code, found.exit_reason) == (3, "internal_error")
    assert "ZZ001 (world decode: RuntimeError: by nothing" in found.sentence


# What nothing ties to a world stays unknown.


def test_processes_that_nothing_ties_are_unknown_where_it_makes_a_difference() -> None:
    """Bridges join GPUs in pairs: another grouping of the same processes has other links."""
    hosts = carrier("node-a", of("", range(4), 4), of("", range(4), 4, first=4), links=paired)
    found = told(TWINS, hosts)
    assert (found.verdict, errors(found), found.phase) == ("unknown", [], "claimed")
    (gap,) = [gap for gap in found.gaps if gap.need == "which world processes are of that claim a rank"]
    assert (gap.about, gap.rules) == (["node-a"], ["ID001"])
    assert "name the nodes of each world" in gap.supply


def test_hosts_that_nothing_ties_are_unknown() -> None:
    hosts = [carrier(f"h{n}", of("", range(4 * (n % 2), 4 * (n % 2) + 4), 8), count=4) for n in range(4)]
    found = told(HALVES, *hosts)
    assert (found.verdict, errors(found)) == ("unknown", [])
    (gap,) = [gap for gap in found.gaps if gap.need == "which hosts are a world's"]
    assert (gap.about, gap.rules) == (["world 0", "world 1"], ["EV001"])
    assert "never reported" not in found.sentence


def test_equal_hosts_of_equal_worlds_are_interchangeable() -> None:
    assert told(HALVES, *(snap(f"h{n}") for n in range(4))).verdict == "pass"
    odd = [snap(f"h{n}", links=paired if n == 1 else None) for n in range(4)]
    assert told(HALVES, *odd).verdict == "unknown"


def test_a_file_of_no_world_accuses_none() -> None:
    found = told(POOLS, *pools(), stated(None, asked("tensor", 8)))
    assert errors(found) == []
    assert [gap.about for gap in found.gaps if gap.need == "which world a file speaks of"] == [["run.sh"]]
    named = told(POOLS, *pools(), stated("node-a", asked("tensor", 8, "node-a.log")))
    assert [line[:22] for line in errors(named)] == ["OBS001 world prefill: t"[:22]]


def test_statements_of_equal_worlds_are_of_all_of_them() -> None:
    found = told(TWINS, carrier("node-a"), stated(None, asked("tensor", 8)))
    assert [line[:23] for line in errors(found)] == ["OBS001 worlds 0, 1: the"]


def test_another_number_of_replicas_is_told_of_the_whole_job() -> None:
    assert errors(told(DENSE, carrier("node-a"), stated(None, asked("data", 2)))) == []
    found = errors(told(DENSE, carrier("node-a"), stated(None, asked("data", 4))))
    assert found == ["OBS001 the job's sizes are not the plan's: data 4 asked for, the plan says 2"]


# Joining the answers.


def test_many_worlds_with_one_cause_are_one_finding() -> None:
    text = "engine: vllm\nparallel: {tensor: 4}\nnodes: n[0-5]\nworlds: 6\n"
    crowded = [(*of("", range(3), 4), *of("", [3], 4, first=2)) for _ in range(6)]
    found = told(text, *(carrier(f"n{n}", held, count=4) for n, held in enumerate(crowded)))
    (finding,) = answer(found, "ID004").findings
    assert finding.message.startswith("world 0: ranks 2, 3 share GPU-")
    assert finding.message.endswith("; the like in worlds 1, 2, 3, 4, 5")
    assert finding.count == 6
    assert finding.subjects[5].startswith("ranks 2, 3 on GPU-")
    assert finding.subjects[5].endswith(" of n5 of world 5")


def test_worlds_that_lack_the_same_rank_are_told_together() -> None:
    text = "engine: vllm\nparallel: {tensor: 4}\nnodes: n[0-5]\nworlds: 6\n"
    (finding,) = answer(
        told(text, *(carrier(f"n{n}", of("", range(3), 4)) for n in range(6))), "ID001"
    ).findings
    assert finding.message.startswith("all 6 worlds: ranks 3 of 4 exist on no node")
    assert finding.count == 6


def test_the_worst_verdict_and_the_weakest_basis_are_the_whole_job_s() -> None:
    found = told(POOLS, *pools()[:1])
    assert found.phase == "predicted"
    rule = answer(found, "ID001")
    assert rule.basis == "predicted"
    assert BASES[0] == "predicted"
    assert answer(found, "EV001").verdict == "unknown"
    assert answer(found, "PP001").reason in ("", "world prefill: one pipeline stage")


def test_processes_of_several_worlds_under_a_plan_of_one_are_told() -> None:
    found = inventory(carrier("node-a", of("a", range(4), 8), of("b", range(4, 8), 8, first=4)))
    assert sorted(united(found.claims)[""].rank) == list(range(8))
    other = inventory(carrier("node-a", of("a", range(4), 4), of("b", range(4), 4, first=4)))
    with pytest.raises(TwoJobsError, match=r"several worlds \(a, b\), each with a rank 0.*`worlds: 2`"):
        united(other.claims)


def test_log_lines_of_a_shared_host_follow_their_process() -> None:
    quiet = replica_log("node-a", 0, 4)
    failing = replica_log(
        "node-a", 0, 4, facts=[fact("network", "Socket", pid=7001), fact("hca", "none", pid=9)]
    )
    for snapshot, kinds in ((quiet, [[], []]), (failing, [["hca", "network"], ["hca"]])):
        found = judgement(DENSE, carrier("node-a"), snapshot)
        assert [sorted(f.kind for f, _ in world.placement.seen.facts) for world in found.worlds] == kinds


Kind = Literal["named", "hosts", "logs"]


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.integers(1, 2), st.booleans()), min_size=2, max_size=4
    ),
    kind=st.sampled_from(["named", "hosts", "logs"]),
)
def test_healthy_worlds_accuse_nobody(sizes: list[tuple[int, int, bool]], kind: Kind) -> None:
    """Worlds of any sizes, each on nodes of its own; some have one more node of hardware and no ranks."""
    lines, evidence = ["engine: megatron", "worlds:"], []
    for number, (tensor, stages, idle) in enumerate(sizes):
        hosts = [f"{'pqrs'[number] * 3}{stage}" for stage in range(stages)]
        sizes_of_it = f"{{tensor: {tensor}, pipeline: {stages}}}"
        lines.append(f"  w{number}: {{parallel: {sizes_of_it}, nodes: [{', '.join(hosts)}]}}")
        for stage, host in enumerate(hosts):
            ranks, size = range(stage * tensor, (stage + 1) * tensor), tensor * stages
            if kind == "logs":
                evidence += [snap(host), log(host, comm(f"0x{number}", ranks, host=host, size=size))]
            else:
                evidence.append(
                    carrier(host, of(f"w{number}" if kind == "named" else "", ranks, size), count=4)
                )
        evidence += [snap(f"idle{number}")] if idle else []
    found = told("\n".join(lines) + "\n", *evidence)
    assert errors(found) == []
    assert found.exit_reason != "internal_error"
    assert {rule.id for rule in found.rules} == {rule.id for rule in RULES}


@settings(max_examples=50, deadline=None)
@given(
    held=st.lists(
        st.tuples(st.integers(-1, 5), st.integers(0, 7), st.sampled_from(["", "0", "1", "x"])), max_size=10
    ),
    text=st.sampled_from([TWINS, TWINS.replace("[node-a]", "1"), POOLS, HALVES]),
)
def test_any_claims_are_judged_and_never_break_a_rule(held: list[tuple[int, int, str]], text: str) -> None:
    made = tuple(
        msgspec.structs.replace(of(world, [rank], 4)[0], gpu=gpu, pid=number)
        for number, (rank, gpu, world) in enumerate(held)
    )
    found = told(text, carrier("node-a", made))
    assert found.exit_reason != "internal_error"
    assert [rule for rule in found.rules if rule.verdict == "error"] == []
