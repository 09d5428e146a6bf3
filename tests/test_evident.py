"""The plan that evidence itself shows: what is taken, what is refused, and what no rule then compares."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from build import AT, comm, inventory, log, pair, snap
from checkout import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from shell import topocheck
from stating import Fact, launch, said

from topocheck.answer import Declared
from topocheck.checklist import Gate
from topocheck.cli.verify import check
from topocheck.errors import UsageError
from topocheck.evident import evident
from topocheck.formula import ranks_of_sizes
from topocheck.placement import Placement, place
from topocheck.plan import Model, Parallel, Plan
from topocheck.rules import RULES
from topocheck.snapshot import FullSnapshot, NodeClaim
from topocheck.verify import RuleResult, run_rules

ENGINE = ("engine", "", "vllm")
SIZES = ("size", "tensor", "4"), ("size", "pipeline", "2")
LOG = said(
    ENGINE, ("engine-version", "", "0.33.0"), *SIZES, ("nodes", "", "2"), source="vllm.log", engine="vllm"
)
TRAINING = ("engine", "", "megatron"), ("size", "tensor", "4"), ("size", "pipeline", "1")
CASES = ROOT.parent / "shared" / "data" / "cases"


def shown(*views: FullSnapshot, nodes: Any = None) -> Plan:
    return evident(inventory(*views), nodes)[0]


def sentence(*views: FullSnapshot, nodes: Any = None) -> str:
    with pytest.raises(UsageError) as refused:
        evident(inventory(*views), nodes)
    words = str(refused.value)
    assert "\n" not in words
    return words


def judged(*views: FullSnapshot) -> tuple[Placement, dict[str, RuleResult]]:
    found = inventory(*views)
    plan, origin = evident(found)
    placement = place(plan, found, origin)
    return placement, {result.rule.id: result for result in run_rules(RULES, placement)}


def vllm(*facts: Fact, source: str = "vllm.log") -> FullSnapshot:
    return said(*facts, source=source, engine="vllm")


# what is taken


def test_every_value_is_taken_and_says_its_line() -> None:
    plan, origin = evident(inventory(LOG))
    assert plan == Plan(
        engine="vllm", engine_version="0.33.0", parallel=Parallel(tensor=4, pipeline=2), nodes=2
    )
    assert origin.said == (
        "no plan was given: engine, sizes and nodes are those that the evidence shows",
        "engine vllm: vllm.log:1",
        "tensor 4: vllm.log:3, in force",
        "pipeline 2: vllm.log:4, in force",
        "engine version 0.33.0: vllm.log:2",
        "data 1, vLLM's default",
        "nodes 2: vllm.log:5",
    )


def test_sizes_in_force_go_before_those_that_were_asked_for() -> None:
    asked = launch(ENGINE, ("requested-size", "tensor", "8"), ("requested-size", "data", "2"), engine="vllm")
    assert shown(LOG, asked).parallel == Parallel(tensor=4, pipeline=2, data=2)
    assert shown(asked, nodes=2).parallel == Parallel(tensor=8, data=2)


def test_other_engines_words_and_axes_are_left_out() -> None:
    other = said(("size", "tensor", "16"), engine="sglang")
    assert shown(LOG, other, vllm(("size", "moe_data", "2"))).parallel == Parallel(tensor=4, pipeline=2)


def test_the_data_size_of_a_training_follows_from_its_world() -> None:
    def world(*facts: Fact) -> tuple[Any, int | None]:
        plan, origin = evident(inventory(said(*TRAINING, ("nodes", "", "2"), *facts, engine="megatron")))
        return plan.parallel.data, origin.world

    assert world(("world", "", "16")) == (4, 16)
    assert world(("world", "", "16"), ("size", "data", "4")) == (4, None)
    assert world(("processes-per-node", "agent", "8"), ("nodes", "agent", "2")) == (4, 16)
    assert world(("processes", "launcher", "8")) == (2, 8)


def test_claims_of_processes_fix_the_data_size_of_any_engine() -> None:
    views = [snap("node-a", range(4)), snap("node-b", range(4, 8))]
    one = vllm(ENGINE, ("size", "tensor", "4"), ("size", "pipeline", "1"), ("nodes", "", "2"))
    assert shown(one, *views).parallel.data == 2


def test_model_order_and_layers_are_taken_where_they_are_stated() -> None:
    told = said(
        *TRAINING,
        ("nodes", "", "2"),
        ("world", "", "8"),
        ("model-size", "layers", "32"),
        ("model-size", "heads", "32"),
        ("layers", "", "Et*16|t*16L"),
        ("option", "--use-tp-pp-dp-mapping", "True"),
        engine="megatron",
    )
    plan = shown(told)
    assert (plan.model, plan.order, plan.layers) == (
        Model(layers=32, heads=32),
        "tp-cp-ep-pp-dp",
        "Et*16|t*16L",
    )


def test_what_vllm_logs_of_its_split_is_no_request() -> None:
    """It may be a draft model's."""
    assert shown(LOG, vllm(("layers", "", "15,17"))).layers is None
    assert shown(LOG, vllm(("option", "VLLM_PP_LAYER_PARTITION", "15,17"))).layers == "15,17"


# nodes


def test_nodes_are_those_that_a_launcher_tells_its_pods() -> None:
    claims = [
        msgspec.structs.replace(
            snap(f"node-{index}"), node_claim=NodeClaim(node_rank=index, nodes=2, family="lws", world="s-0")
        )
        for index in range(2)
    ]
    assert shown(vllm(ENGINE, *SIZES), *claims).nodes == 2


def test_nodes_are_those_on_which_all_ranks_are_shown() -> None:
    seen = [log("node-a", comm("0x1", range(4))), log("node-b", comm("0x1", range(4, 8), host="node-b"))]
    plan, origin = evident(inventory(vllm(ENGINE, *SIZES), *seen))
    assert (plan.nodes, origin.nodes_seen) == (2, True)
    assert origin.said[-1] == "nodes 2: all ranks are on node-a, node-b"
    assert "the number of nodes" in sentence(vllm(ENGINE, *SIZES), seen[0])


def test_an_executor_that_stays_on_one_node_is_one_node() -> None:
    mp = ("option", "--distributed-executor-backend", "mp")
    assert shown(vllm(ENGINE, *SIZES, mp)).nodes == 1
    assert "the number of nodes" in sentence(vllm(ENGINE, *SIZES, mp, ("node-rank", "", "1")))
    assert "the number of nodes" in sentence(vllm(ENGINE, *SIZES, mp, ("requested-size", "data", "2")))
    assert "the number of nodes" in sentence(vllm(ENGINE, *SIZES, (*mp[:2], "ray")))
    assert shown(vllm(ENGINE, ("size", "tensor", "1"), ("size", "pipeline", "1"))).nodes == 1


def test_sglang_stays_on_one_node_unless_a_command_counts_nodes_by_a_variable() -> None:
    sizes = ("engine", "", "sglang"), ("requested-size", "tensor", "8")
    assert shown(said(*sizes, engine="sglang")).nodes == 1
    hidden = ("unresolved", "--nnodes", "$LWS_GROUP_SIZE")
    assert "the number of nodes" in sentence(said(*sizes, hidden, engine="sglang"))
    assert shown(said(*sizes, hidden, ("nodes", "LeaderWorkerSet", "2"), engine="sglang")).nodes == 2


def test_nodes_that_are_given_stand_for_what_is_missing() -> None:
    assert shown(vllm(ENGINE, *SIZES), nodes=2).nodes == 2
    assert shown(vllm(ENGINE, *SIZES), nodes=["node-a", "node-b"]).nodes == ("node-a", "node-b")


# what is refused


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([("engine", "", "sglang")], "vllm.log:1 says engine vllm and b.log:1 says engine sglang"),
        ([("size", "tensor", "8")], "vllm.log:3 says tensor 4 and b.log:1 says tensor 8"),
        ([("nodes", "", "4")], "vllm.log:5 says nodes 2 and b.log:1 says nodes 4"),
        ([("engine-version", "", "0.19.1")], "says engine version 0.33.0 and b.log:1 says"),
    ],
)
def test_two_minds_are_refused_with_both_places(facts: list[Fact], words: str) -> None:
    assert words in sentence(LOG, vllm(*facts, source="b.log"))


def test_two_sizes_that_were_asked_for_count_only_where_none_is_in_force() -> None:
    asked = [vllm(("requested-size", "tensor", f"{size}"), source=f"{size}.sh") for size in (2, 8)]
    assert shown(LOG, *asked).parallel.tensor == 4
    assert "2.sh:1 says tensor 2 and 8.sh:1 says tensor 8" in sentence(vllm(ENGINE), *asked)


@pytest.mark.parametrize(
    ("views", "pieces"),
    [
        ([], "the engine, the sizes and the number of nodes"),
        ([snap()], "the engine, the sizes and the number of nodes"),
        ([vllm(ENGINE)], "the sizes and the number of nodes"),
        ([vllm(("requested-size", "tensor", "2"))], "other sizes than tensor 2 and the number of nodes"),
        ([vllm(ENGINE, *SIZES)], "the number of nodes"),
        ([said(*TRAINING, ("nodes", "", "2"), engine="megatron")], "the number of ranks"),
    ],
)
def test_what_is_missing_is_one_sentence_that_says_what_to_add(
    views: list[FullSnapshot], pieces: str
) -> None:
    words = sentence(*views)
    assert f"the evidence does not show {pieces}: add " in words
    assert words.endswith(
        "--plan FILE with three lines (engine: vllm; parallel: {tensor: 4, pipeline: 2}; nodes: 2)"
    )


def test_a_size_that_only_the_shell_knows_is_not_taken_for_one() -> None:
    command = launch(
        ENGINE, ("requested-size", "pipeline", "2"), ("unresolved", "--tp", "$TP"), engine="vllm"
    )
    hidden = launch(
        ENGINE,
        ("requested-size", "pipeline", "2"),
        ("unresolved", "-tp", "$TP"),
        engine="vllm",
        source="run.sh",
    )
    assert "run.sh:1 sets tensor to $TP, which only the shell that ran it knows" in sentence(hidden, nodes=2)
    assert shown(LOG, command).parallel.tensor == 4


def test_settings_in_a_file_that_was_not_read_may_hold_the_sizes() -> None:
    asked = launch(ENGINE, ("requested-size", "tensor", "4"), ("unread", "", "serve.yaml"), engine="vllm")
    assert "launch.sh:1 takes settings from serve.yaml" in sentence(asked, nodes=2)
    assert shown(LOG, asked).parallel.tensor == 4


# rules


def test_sizes_are_not_held_against_themselves() -> None:
    placement, found = judged(LOG, *pair())
    assert placement.assumptions[1] == "engine vllm: vllm.log:1"
    assert found["OBS001"].verdict == "not-applicable"
    assert found["OBS001"].reason == "the sizes come from this very evidence: nothing else states any"
    assert found["EV001"].verdict == found["ID001"].verdict == found["TP001"].verdict == "pass"
    assert found["ID002"].verdict == "pass"  # the processes claim a world of their own


def test_what_the_evidence_says_besides_is_compared() -> None:
    asked = vllm(("requested-size", "tensor", "8"), source="run.sh")
    found = judged(LOG, *pair(), asked)[1]["OBS001"]
    assert found.findings[0].subjects == ("tensor 8 asked for, the evidence says 4",)
    same = vllm(("requested-size", "tensor", "4"), source="run.sh")
    assert judged(LOG, *pair(), same)[1]["OBS001"].verdict == "pass"
    asked_only = vllm(
        ENGINE, ("requested-size", "tensor", "8"), ("nodes", "", "1"), ("rank-coordinate", "tensor", "7")
    )
    assert judged(asked_only)[1]["OBS001"].verdict == "unknown"
    beyond = msgspec.structs.replace(
        asked_only, job=(*asked_only.job[:-1], *vllm(("rank-coordinate", "tensor", "9")).job)
    )
    assert judged(beyond)[1]["OBS001"].verdict == "fail"


def test_a_data_size_that_follows_from_the_world_proves_nothing_about_the_world() -> None:
    facts = (*TRAINING, ("nodes", "", "2"), ("world", "", "8"))
    alone = judged(said(*facts, engine="megatron"))[1]["ID002"]
    assert alone.verdict == "not-applicable"
    assert "follows from the world size" in alone.reason
    other = said(("world", "", "16"), engine="megatron", source="b.log")
    with pytest.raises(UsageError, match=r"of 8 and b\.log:1 says a world size of 16"):
        judged(said(*facts, engine="megatron"), other)
    claimed = judged(said(*TRAINING, ("nodes", "", "2"), ("world", "", "16"), engine="megatron"), *pair())
    assert claimed[1]["ID002"].verdict == "fail"


def test_nodes_that_were_seen_prove_nothing_about_nodes_that_were_not() -> None:
    seen = [log("node-a", comm("0x1", range(4))), log("node-b", comm("0x1", range(4, 8), host="node-b"))]
    found = judged(vllm(ENGINE, *SIZES), *seen)[1]["EV001"]
    assert found.verdict == "not-applicable"
    assert "this very evidence" in found.reason


KINDS = (
    "engine",
    "size",
    "requested-size",
    "nodes",
    "world",
    "layers",
    "order",
    "option",
    "unresolved",
    "unread",
)
WORDS = st.one_of(
    st.sampled_from(
        ["vllm", "megatron", "sglang", "torchtitan", "tensor", "pipeline", "data", "--tp", "1", "2", "4"]
    ),
    st.text(max_size=8),
)


@given(st.lists(st.tuples(st.sampled_from(KINDS), WORDS, WORDS), max_size=10), st.sampled_from([None, 2]))
@settings(max_examples=200, deadline=None)
def test_any_statements_are_a_plan_or_one_sentence(facts: list[Fact], nodes: int | None) -> None:
    found = inventory(*(said(fact, source=f"{n}.log") for n, fact in enumerate(facts)))
    try:
        plan, origin = evident(found, nodes)
    except UsageError:
        return
    assert ranks_of_sizes(plan) >= 1
    assert all(line.isprintable() for line in origin.said)
    assert origin.taken <= set(found.job)


# the command line

VLLM_LOG = """\
INFO 03-01 09:00:00 [api_server.py:1] vLLM API server version 0.11.2
INFO 03-01 09:00:01 [core.py:2] Initializing a V1 LLM engine (v0.11.2) with config: model='m', \
tensor_parallel_size=4, pipeline_parallel_size=1, data_parallel_size=1
INFO 03-01 09:00:02 [x.py:3] Defaulting to use mp for distributed inference
"""


def test_verify_without_a_plan_says_where_each_size_comes_from(tmp_path: Path) -> None:
    (tmp_path / "vllm.log").write_text(VLLM_LOG)
    ran = topocheck("verify", "--json", "-", "vllm.log", cwd=tmp_path)
    assert ran.code == 3, ran.err
    document = json.loads(ran.out)
    assert document["job"].startswith("vLLM 0.11.2, tensor 4: 4 ranks on 1 node")
    assert "tensor 4: vllm.log:2, in force" in document["assumptions"]


def test_verify_takes_the_plan_from_a_launch_command_too(tmp_path: Path) -> None:
    (tmp_path / "vllm.log").write_text(VLLM_LOG)
    command = ("--", "vllm", "serve", "m", "-tp", "2", "-pp", "2", "--distributed-executor-backend", "mp")
    ran = topocheck("verify", "--json", "-", "vllm.log", *command, cwd=tmp_path)
    assert ran.code == 1, ran.err
    document = json.loads(ran.out)
    assert "tensor 2: -tp" in document["assumptions"]
    sizes = next(rule for rule in document["rules"] if rule["id"] == "OBS001")
    assert sizes["findings"][0]["subjects"][0] == "tensor 4 in force, the plan says 2"
    ray = topocheck(
        "verify", "vllm.log", "--nodes", "2", "--", "vllm", "serve", "m", "-tp", "8", cwd=tmp_path
    )
    assert "8 ranks on 2 nodes" in ray.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--plan", "p.yaml", "--", "vllm", "serve", "m"), "either --plan or -- and a launch command"),
        (("--plan", "p.yaml", "--nodes", "2"), "in the file, write `nodes:`"),
        (("vllm.log", "--nodes", "0"), "--nodes 0: expected a number"),
        (("vllm.log", "--"), "there is no command after --"),
        ((), "verify needs a plan"),
        (("vllm.log", "--", "echo"), "launched by 'echo'"),
    ],
)
def test_what_cannot_be_one_plan_is_refused(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    (tmp_path / "vllm.log").write_text(VLLM_LOG)
    (tmp_path / "p.yaml").write_text("engine: vllm\nnodes: 1\n")
    ran = topocheck("verify", *arguments, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert re.fullmatch(r"topocheck: .*\n", ran.err)


@pytest.mark.skipif(not CASES.is_dir(), reason="the folder of recorded cases is not here")
def test_recorded_cases_without_a_plan_are_verified_or_refused_in_a_sentence() -> None:
    verified = set()
    for path in sorted(CASES.glob("C[0-9]*")):
        try:
            report = check(Declared(None), [str(path)], Gate(), at=AT, whole=False, digests=False)
        except UsageError as error:
            words = str(error)
            assert "\n" not in words, path
            continue
        verified.add(path.name[:3])
        assert report.assumptions[0].startswith("no plan was given"), path
    assert {"C56", "C60"} <= verified
