"""ID: the launch gives every process the number, the peers and the GPUs that are its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pytest
from build import (
    FOUR,
    TWO,
    answer,
    at,
    claims,
    comm,
    full,
    gpus,
    log,
    pair,
    placed,
    report,
    running,
    snap,
    text_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from stating import launch, of, said

from topocheck.agents import agents, misnumbered
from topocheck.allocation import given_on
from topocheck.rendezvous import is_loopback
from topocheck.report import RuleReport
from topocheck.snapshot import FullSnapshot, RankClaim

FREE = TWO.replace("[node-a, node-b]", "2")
WIDE = "engine: torch\nparallel: {data: 8}\nnodes: 2\n"
REPLICAS = "engine: vllm\nparallel: {tensor: 4, data: 2}\nnodes: 2\n"
MEGATRON = "engine: megatron\nparallel: {tensor: 4, pipeline: 2, data: 1}\nnodes: [node-a, node-b]\n"


def node(
    name: str, ranks: Iterable[int], node_rank: int | None, local: Sequence[int] | None = None
) -> FullSnapshot:
    """A node whose processes claim these ranks; local ranks in order unless given."""
    numbers = list(ranks)
    held = claims(numbers, node_rank=node_rank)
    if local is not None:
        held = tuple(msgspec.structs.replace(c, local_rank=n) for c, n in zip(held, local, strict=True))
    return msgspec.structs.replace(snap(name, numbers), ranks=held)


def rule(name: str, *views: FullSnapshot, text: str = FREE) -> RuleReport:
    return answer(report(text, *views), name)


# ID006


def test_a_block_launch_in_the_order_of_the_node_ranks_agrees() -> None:
    assert rule("ID006", node("node-a", range(4), 0), node("node-b", range(4, 8), 1)).verdict == "pass"
    assert rule("ID006", node("node-a", range(4, 8), 1), node("node-b", range(4), 0)).verdict == "pass"


def test_blocks_against_the_node_ranks_are_one_finding_that_names_both_nodes() -> None:
    found = rule("ID006", node("node-a", range(4), 1), node("node-b", range(4, 8), 0))
    [only] = found.findings
    assert only.count == 2
    assert "node rank 0 on node-b has ranks 4..7" in only.message
    assert "node-a (ranks 0..3)" in only.subjects


def test_unequal_nodes_are_no_contradiction() -> None:
    views = [node("n0", range(6), 0), node("n1", range(6, 10), 1), node("n2", range(10, 12), 2)]
    text = "engine: torch\nparallel: {data: 12}\nnodes: 3\n"
    assert rule("ID006", *views, text=text).verdict == "pass"
    middle = [node("n0", range(2), 0), node("n1", range(2, 6), 1), node("n2", range(6, 12), 2)]
    assert rule("ID006", *middle, text=text).verdict == "pass"


def test_deepspeeds_local_ranks_of_unequal_nodes_are_no_contradiction() -> None:
    views = [node("n0", range(6), 0), node("n1", range(6, 10), 1, [2, 3, 0, 1])]
    text = "engine: deepspeed\nparallel: {data: 10}\nnodes: 2\n"
    assert rule("ID006", *views, text=text).verdict == "pass"


@pytest.mark.parametrize("run", [1, 2, 4])
def test_ranks_that_are_dealt_in_turn_are_no_contradiction(run: int) -> None:
    on = [[r for r in range(8) if r // run % 2 == n] for n in range(2)]
    whole = [node("node-a", on[0], 0), node("node-b", on[1], 1)]
    assert rule("ID006", *whole, text=WIDE).verdict == "pass"
    excerpt = [
        msgspec.structs.replace(view, ranks=view.ranks[-run:], coverage=full(ranks="part")) for view in whole
    ]
    assert rule("ID006", *excerpt, text=WIDE).verdict == "pass"


def test_slurms_own_list_of_hosts_gives_any_order() -> None:
    views = [node("node-a", range(4), 1), node("node-b", range(4, 8), 0)]
    told = [msgspec.structs.replace(view, environment={"SLURM_DISTRIBUTION": "arbitrary"}) for view in views]
    assert rule("ID006", *told).verdict == "pass"


def test_the_first_or_last_block_on_the_wrong_node_shows_without_the_other_nodes() -> None:
    text = "engine: torch\nparallel: {data: 32}\nnodes: 4\n"
    early = rule("ID006", node("node-x", range(8), 2), text=text)
    late = rule("ID006", node("node-x", range(24, 32), 1), text=text)
    assert "starts at rank 2 or later" in text_of(early)
    assert "2 more of the 4 nodes hold ranks after these" in text_of(late)
    assert rule("ID006", node("node-x", range(8, 16), 1), text=text).verdict == "pass"


def test_a_local_rank_twice_is_told_and_not_that_of_two_pods_of_one_host() -> None:
    found = rule("ID006", node("node-a", range(4), 0, [0, 1, 1, 2]), node("node-b", range(4, 8), 1))
    assert "several processes on node-a hold local ranks 1" in text_of(found)
    pods = [node("node-a", [0, 1], 0), node("node-a", [2, 3], 1), node("node-b", range(4, 8), 2)]
    assert rule("ID006", *pods).verdict == "pass"
    containers = node("node-a", range(4), None, [0, 1, 0, 1])
    assert rule("ID006", containers, node("node-b", range(4, 8), None)).verdict == "pass"


def test_a_process_that_is_seen_twice_is_one() -> None:
    views = [node("node-a", range(4), 0), node("node-b", range(4, 8), 1)]
    assert rule("ID006", *views, *views).verdict == "pass"
    assert [len(agent.numbers) for agent in agents(placed(FREE, *views, *views))] == [4, 4]


def test_ranks_beyond_the_world_are_not_also_a_wrong_order() -> None:
    text = "engine: torch\nparallel: {data: 4}\nnodes: 2\n"
    found = report(text, node("node-a", range(4), 0), node("node-b", range(4, 8), 1))
    assert answer(found, "ID001").verdict == "fail"
    assert answer(found, "ID006").findings == []


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_any_block_launch_agrees_and_a_rotated_one_does_not(sizes: list[int], turn: int) -> None:
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    ranks = [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    turn %= len(sizes)
    numbers = [(place + turn) % len(sizes) for place in range(len(sizes))]
    views = [node(f"n{place}", ranks[place], numbers[place]) for place in range(len(sizes))]
    text = f"engine: torch\nparallel: {{data: {sum(sizes)}}}\nnodes: {len(sizes)}\n"
    assert bool(misnumbered(placed(text, *views))) == bool(turn)


# ID007


def test_node_ranks_of_each_node_pass_and_nodes_without_are_unknown() -> None:
    assert rule("ID007", node("node-a", range(4), 0), node("node-b", range(4, 8), 1)).verdict == "pass"
    assert rule("ID007", node("node-a", range(4), 0), snap("node-b", range(4, 8))).verdict == "unknown"
    assert rule("ID007").verdict == "unknown"


def test_a_node_rank_twice_names_its_nodes_and_is_not_told_as_disorder_too() -> None:
    found = report(FREE, node("node-a", range(4), 0), node("node-b", range(4, 8), 0))
    assert "node rank 0 is on node-a, node-b" in text_of(answer(found, "ID007"))
    assert answer(found, "ID006").findings == []


def test_a_node_rank_beyond_the_nodes_is_told_unless_nodes_are_shared_by_agents() -> None:
    far = rule("ID007", node("node-a", range(4), 0), node("node-b", range(4, 8), 2))
    assert "node ranks 2 exist and the plan has 2 nodes" in text_of(far)
    pods = [
        *(node("node-a", [2 * n, 2 * n + 1], n) for n in range(2)),
        *(node("node-b", [2 * n, 2 * n + 1], n) for n in (2, 3)),
    ]
    assert rule("ID007", *pods).verdict == "pass"
    assert rule("ID007", node("node-b", [6, 7], 3)).findings == []


def test_node_ranks_of_another_world_do_not_clash() -> None:
    other = tuple(msgspec.structs.replace(c, world="decode") for c in claims(range(4), node_rank=0))
    views = [node("node-a", range(4), 0), msgspec.structs.replace(snap("node-b"), ranks=other)]
    assert rule("ID007", *views).findings == []


def test_commands_with_one_node_rank_accuse_only_named_hosts() -> None:
    bare = [launch(("node-rank", "", "0"), source=f"{n}.sh") for n in "ab"]
    assert rule("ID007", *bare).findings == []
    named = [said(("node-rank", "", "0"), source=f"{n}.log", host=f"host-{n}") for n in "ab"]
    assert "node rank 0 is on host-a, host-b" in text_of(rule("ID007", *named))
    good = [said(("node-rank", "", f"{n}"), source=f"{n}.log", host=f"host-{n}") for n in range(2)]
    assert rule("ID007", *good).findings == []


def test_a_template_with_a_constant_node_rank_counts_its_pods() -> None:
    def template(role: str, rank: int, pods: int, line: int) -> FullSnapshot:
        return launch(("node-rank", role, f"constant {rank}"), ("pods", role, f"{pods}"), line=line)

    leader, two = template("leader", 0, 1, 1), template("worker", 1, 2, 2)
    three = FREE.replace("nodes: 2", "nodes: 4").replace("tensor: 4", "tensor: 8")
    assert "all pods of worker are started with node rank 1" in text_of(
        rule("ID007", leader, two, text=three)
    )
    assert rule("ID007", leader, template("worker", 1, 1, 2)).findings == []
    assert "leader, worker alike" in text_of(rule("ID007", leader, template("worker", 0, 1, 2)))
    alone = launch(("node-rank", "worker", "constant 0"), ("pods", "worker", "3"), ("nodes", "", "1"))
    assert rule("ID007", alone).findings == []


def test_workers_beside_a_leader_are_the_nodes_but_one() -> None:
    worker = launch(("node-rank", "worker", "constant 1"))
    assert rule("ID007", worker).findings == []
    assert rule("ID007", worker, text=FREE.replace("nodes: 2", "nodes: 4")).verdict == "fail"


# ID012

SRUN = ("launcher", "train.py", "srun torchrun")
EIGHT = ("processes-per-node", "agent", "4")


def test_srun_of_torchrun_multiplies_and_torchrun_alone_does_not() -> None:
    def tasks(count: int) -> tuple[str, str, str]:
        return "processes-per-node", "launcher", f"{count}"

    assert of("ID012", launch(SRUN, tasks(4), EIGHT)).verdict == "fail"
    assert of("ID012", launch(SRUN, tasks(1), EIGHT)).verdict == "pass"
    assert of("ID012", launch(("launcher", "train.py", "torchrun"), EIGHT)).verdict == "pass"
    assert of("ID012", launch(("launcher", "train.py", "srun"), tasks(4))).verdict == "pass"


def test_what_srun_says_goes_before_its_batch_script() -> None:
    batch = said(("launcher", "", "sbatch"), ("processes-per-node", "launcher", "4"))
    own = launch(SRUN, EIGHT, ("processes-per-node", "launcher", "1"), line=9)
    assert of("ID012", batch, own).verdict == "pass"
    assert of("ID012", batch, launch(SRUN, EIGHT, line=9)).verdict == "fail"
    assert of("ID012", batch, launch(("launcher", "train.py", "torchrun"), EIGHT, line=9)).verdict == "pass"
    assert of("ID012", batch, launch(SRUN, EIGHT, source="other.sh")).verdict == "unknown"


def test_tasks_over_nodes_are_tasks_a_node() -> None:
    total = ("processes", "launcher", "8"), ("nodes", "launcher", "2")
    assert "4 tasks a node" in text_of(of("ID012", launch(SRUN, EIGHT, *total)))
    few = ("processes", "launcher", "2"), ("nodes", "launcher", "2")
    assert of("ID012", launch(SRUN, EIGHT, *few)).verdict == "pass"


def test_numbers_that_only_the_shell_knows_leave_the_launchers_open() -> None:
    assert of("ID012", launch(SRUN, EIGHT)).verdict == "unknown"
    assert of("ID012", launch(SRUN, ("processes-per-node", "launcher", "4"))).verdict == "unknown"
    assert of("ID012").verdict == "unknown"


def test_a_product_that_the_gpus_hold_is_none_too_many() -> None:
    half = launch(SRUN, ("processes-per-node", "launcher", "2"), ("processes-per-node", "agent", "2"))
    assert of("ID012", half).verdict == "pass"


# ID014


def test_loopback_where_ranks_of_several_nodes_meet_is_told() -> None:
    for name in ("master", "dist-init", "gloo"):
        found = of("ID014", launch(("rendezvous", name, "127.0.0.1:29500")))
        assert found.verdict == "fail"
        assert f"{name} 127.0.0.1:29500" in text_of(found)
    assert of("ID014", launch(("rendezvous", "master", "10.0.0.1:29500"))).verdict == "pass"


def test_the_host_that_fell_back_is_named() -> None:
    found = of("ID014", said(("rendezvous", "gloo", "127.0.0.1"), host="10.0.7.8"))
    assert "gloo on 10.0.7.8 127.0.0.1" in text_of(found)


def test_a_replica_inside_one_node_may_meet_at_its_own_address() -> None:
    line = ("world", "", "4"), ("rendezvous", "dist-init", "127.0.0.1:41001")
    meet_elsewhere = launch(("rendezvous", "dp-master", "10.0.0.1:13345"), source="head.log")
    assert of("ID014", launch(*line), meet_elsewhere, text=REPLICAS).verdict == "pass"
    assert of("ID014", launch(*line), text=REPLICAS).verdict == "unknown"
    wide = ("world", "", "8"), line[1]
    assert of("ID014", launch(*wide), text=REPLICAS).verdict == "fail"
    assert of("ID014", launch(line[1]), text=REPLICAS).verdict == "unknown"
    assert of("ID014", launch(line[1], ("nodes", "", "1"))).findings == []


def test_the_size_of_a_world_is_taken_from_its_members_where_its_line_does_not_repeat_it() -> None:
    method = "engine:vllm tcp://127.0.0.1:41002"
    views = [
        log("node-a", comm(method, range(4), size=4)),
        launch(("rendezvous", "dist-init", "127.0.0.1:41002")),
    ]
    assert answer(report(REPLICAS, *views), "ID014").findings == []
    wide = log("node-a", comm(method, range(4), size=8))
    assert answer(report(REPLICAS, wide, views[1]), "ID014").verdict == "fail"
    for size, verdict in ((4, "unknown"), (8, "fail")):
        loose = log(None, comm(method, range(4), size=size))
        assert answer(report(REPLICAS, loose, views[1]), "ID014").verdict == verdict


def test_the_master_of_data_parallelism_matters_where_data_groups_cross() -> None:
    line = launch(("rendezvous", "dp-master", "127.0.0.1:13345"))
    assert of("ID014", line, text=REPLICAS).verdict == "fail"
    assert of("ID014", line).findings == []


def environment(name: str, ranks: Iterable[int], **variables: str) -> FullSnapshot:
    return snap(name, ranks, environment=variables)


def meet(first: dict[str, str], second: dict[str, str], text: str = MEGATRON) -> RuleReport:
    """ID014 with these environments of node-a and node-b."""
    views = environment("node-a", range(4), **first), environment("node-b", range(4, 8), **second)
    return answer(report(text, *views), "ID014")


def test_the_first_node_may_call_itself_localhost_and_no_other_may() -> None:
    here, there = {"MASTER_ADDR": "localhost"}, {"MASTER_ADDR": "node-a"}
    assert meet(here, there).verdict == "pass"
    assert meet(here, here).verdict == "fail"
    assert "MASTER_ADDR on node-b localhost" in text_of(meet(there, here))
    assert meet(here, {}).verdict == "unknown"


def test_master_addr_names_the_host_of_rank_0() -> None:
    right, wrong = {"MASTER_ADDR": "node-a"}, {"MASTER_ADDR": "node-b"}
    assert meet(right, right).verdict == "pass"
    assert "rank 0, which opens the store, is on node-a" in text_of(meet(wrong, wrong))
    assert "names several hosts: node-a, node-b" in text_of(meet(right, wrong))
    agent = {"MASTER_ADDR": "node-b", "TORCHELASTIC_RUN_ID": "7"}
    assert meet(agent, agent).verdict == "pass"


def test_names_that_nothing_ties_to_a_host_are_unknown_and_not_two_hosts() -> None:
    assert meet({"MASTER_ADDR": "10.0.0.1"}, {"MASTER_ADDR": "job-master-0"}).verdict == "unknown"
    assert meet({"MASTER_ADDR": "10.0.0.1"}, {"MASTER_ADDR": "10.0.0.1"}).verdict == "pass"
    assert meet({"MASTER_ADDR": "node-a.cluster.local"}, {"MASTER_ADDR": "node-a"}).findings == []


def test_an_engine_that_does_not_read_master_addr_is_not_judged_by_it() -> None:
    assert meet({"MASTER_ADDR": "localhost"}, {"MASTER_ADDR": "localhost"}, TWO).verdict == "unknown"


@pytest.mark.parametrize(
    ("address", "loops"),
    [
        ("127.0.0.1:29500", True),
        ("tcp://localhost:1", True),
        ("[::1]:29500", True),
        ("::1", True),
        ("127.9.9.9", True),
        ("10.0.0.1:29500", False),
        ("[fd00::1]:29500", False),
        ("fd00::127:1", False),
        ("localhost.example.org", False),
        ("node-127", False),
        ("", False),
    ],
)
def test_an_address_is_loopback_by_its_host_alone(address: str, loops: bool) -> None:
    assert is_loopback(address) is loops


@given(st.text(max_size=60))
@settings(max_examples=50, deadline=None)
def test_any_text_is_an_address_or_none(text: str) -> None:
    assert is_loopback(text) in {True, False}
    assert is_loopback(f"tcp://127.0.0.1:{text}") or ":" in text or "/" in text or "[" in text


# ID016


def gives(given: dict[str, str], ranks: Iterable[int] = range(4), **identity: object) -> RuleReport:
    """ID016 with node-a given this; minor numbers are the ordinals unless told."""
    view = snap("node-a", ranks, environment=given)
    minors = identity.get("minors", range(4))
    parts = tuple(
        msgspec.structs.replace(gpu, minor=minor)
        for gpu, minor in zip(view.identity.gpus, minors, strict=True)  # type: ignore[call-overload]
    )
    whole = msgspec.structs.replace(view.identity, gpus=parts)
    return answer(report(FOUR, msgspec.structs.replace(view, identity=whole)), "ID016")


def test_gpus_inside_the_allocation_pass_and_others_are_someone_elses() -> None:
    assert gives({"SLURM_JOB_GPUS": "0,1,2,3"}).verdict == "pass"
    assert gives({"SLURM_STEP_GPUS": "0-3"}).verdict == "pass"
    found = gives({"SLURM_JOB_GPUS": "2,3,4,5"})
    assert [finding.severity for finding in found.findings] == ["error"]
    assert "ranks 0, 1 on node-a" in text_of(found)
    assert "minor number 0, 1" in text_of(found)


def test_minor_numbers_go_before_indexes() -> None:
    assert gives({"SLURM_JOB_GPUS": "4,5,6,7"}, minors=[5, 4, 7, 6]).verdict == "pass"


def test_an_nvml_index_alone_is_a_warning_unless_more_gpus_are_used_than_given() -> None:
    bare = [None] * 4
    assert gives({"SLURM_JOB_GPUS": "0,1,2,3"}, minors=bare).verdict == "pass"
    found = gives({"SLURM_JOB_GPUS": "4,5,6,7"}, minors=bare)
    assert [finding.severity for finding in found.findings] == ["warning"]
    assert "NVML index" in text_of(found)
    few = gives({"SLURM_JOB_GPUS": "0,1"}, minors=bare)
    assert [finding.severity for finding in few.findings] == ["error"]


def test_the_gpus_of_job_and_step_are_the_jobs() -> None:
    assert gives({"SLURM_JOB_GPUS": "0,1,2,3", "SLURM_STEP_GPUS": "0"}).verdict == "pass"


def test_uuids_of_a_container_are_compared_as_they_are() -> None:
    mine = ",".join(gpu.uuid or "" for gpu in gpus("node-a"))
    assert gives({"NVIDIA_VISIBLE_DEVICES": mine}).verdict == "pass"
    assert gives({"NVIDIA_VISIBLE_DEVICES": "GPU-0"}).verdict == "fail"
    assert gives({"NVIDIA_VISIBLE_DEVICES": "all"}).verdict == "unknown"


def test_nodes_with_one_list_of_uuids_do_not_have_one_set_of_gpus() -> None:
    mine = ",".join(gpu.uuid or "" for gpu in gpus("node-a"))
    views = pair()
    copied = [msgspec.structs.replace(view, environment={"NVIDIA_VISIBLE_DEVICES": mine}) for view in views]
    found = rule("ID016", *copied)
    assert found.verdict == "fail"
    assert "ranks 4..7 on node-b" in text_of(found)


@pytest.mark.parametrize("text", ["", "a", "0,x", "3-1", "0-99999", "-1", "0,,1"])
def test_a_list_that_is_none_gives_nothing(text: str) -> None:
    assert gives({"SLURM_JOB_GPUS": text}).verdict == "unknown"


def test_an_allocation_is_unknown_with_mig_and_asked_of_nobody_before_the_launch() -> None:
    view = snap("node-a", range(4), environment={"SLURM_JOB_GPUS": "9"})
    sliced = tuple(msgspec.structs.replace(g, mig=({"uuid": "MIG-1"},)) for g in view.identity.gpus)
    whole = msgspec.structs.replace(view.identity, gpus=sliced)
    assert answer(report(FOUR, msgspec.structs.replace(view, identity=whole)), "ID016").verdict == "unknown"
    before = snap("node-a", environment={"SLURM_JOB_GPUS": "9"})
    assert answer(report(FOUR, before), "ID016").verdict == "not-applicable"


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=10))
@settings(max_examples=50, deadline=None)
def test_any_variables_are_an_allocation_or_none(first: str, second: str, count: str) -> None:
    told = {"SLURM_JOB_GPUS": first, "NVIDIA_VISIBLE_DEVICES": second, "SLURM_GPUS_ON_NODE": count}
    given_here = given_on(placed(FOUR, snap("node-a", environment=told)).nodes[0])
    assert all(0 <= number < 1024 for number in given_here.numbers)


def test_a_running_job_is_judged_by_what_its_log_shows() -> None:
    told = snap("node-a", environment={"SLURM_JOB_GPUS": "7"})
    minor = tuple(msgspec.structs.replace(gpu, minor=n) for n, gpu in enumerate(told.identity.gpus))
    told = msgspec.structs.replace(told, identity=msgspec.structs.replace(told.identity, gpus=minor))
    found = answer(report(TWO, told, *running()), "ID016")
    assert found.verdict == "fail"
    assert "ranks 0..3 on node-a" in text_of(found)
    assert answer(report(TWO, *running()), "ID016").verdict == "unknown"


def test_claims_of_unknown_place_are_read_where_they_were_made() -> None:
    held = tuple(
        RankClaim(rank=rank, local_rank=rank - 4, node_rank=0, at=at("node-b", 3)) for rank in range(4, 8)
    )
    views = [pair()[0], msgspec.structs.replace(snap("node-b"), ranks=held)]
    found = rule("ID006", *views)
    assert "node-b.log:3" in text_of(found)
