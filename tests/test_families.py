"""Launchers that number one process differently, launchers that start launchers: from variables to rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from build import TWO, answer, inventory, pair, report, running, snap, text_of
from engine_evidence import one, read
from hypothesis import given, settings
from hypothesis import strategies as st
from stating import said

from topocheck.gather.decoder import SnapshotDecoder
from topocheck.launchers import LAUNCHERS
from topocheck.launchers.numbering import NUMBERED_BY, disagreements, nested, variable_of
from topocheck.launchers.resolve import MPI_FAMILIES, RANK_FAMILIES, resolve
from topocheck.probes.capture.environment_listing import parse
from topocheck.probes.node.pseudonyms import redacted
from topocheck.probes.node.ranks import claim
from topocheck.probes.node.visibility import Visible
from topocheck.snapshot import At, FamilyDisagreement, FullSnapshot, NestedLaunch, NodeClaim

SRUN = {
    "SLURM_PROCID": "6",
    "SLURM_LOCALID": "2",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}
SCRIPT = {"RANK": "3", "LOCAL_RANK": "2", "WORLD_SIZE": "8"}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "6",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "1",
    "RANK": "5",
    "LOCAL_RANK": "1",
    "GROUP_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
}
MEGATRON = TWO.replace("vllm", "megatron").replace("pipeline: 2", "pipeline: 2, data: 1")
TENSORRT = TWO.replace("vllm", "tensorrt_llm")
FOUR = Visible((0, 1, 2, 3))


def seen_in(env: dict[str, str], host: str = "node-a", **parts: Any) -> FullSnapshot:
    """A healthy node, with what a process of this environment sees of its launchers."""
    found = claim(env, FOUR, name="this process", pid=41)
    return msgspec.structs.replace(
        snap(host, range(4) if host == "node-a" else range(4, 8), **parts),
        disagreements=found.disagreements,
        nested=found.nested,
    )


def of(rule: str, *views: FullSnapshot, text: str = MEGATRON) -> Any:
    return answer(report(text, *views), rule)


# from the environment


def test_numbers_of_two_launchers_that_differ_are_told_with_their_variables() -> None:
    (odd,) = claim(SRUN | SCRIPT, FOUR, name="process 12", pid=12).disagreements
    assert odd == FamilyDisagreement(
        what="rank",
        family="script",
        variable="RANK",
        value=3,
        other_family="slurm",
        other_variable="SLURM_PROCID",
        other_value=6,
        pid=12,
    )


def test_equal_numbers_and_another_world_are_no_disagreement() -> None:
    same = SCRIPT | {"RANK": "6"}
    assert claim(SRUN | same, FOUR, name="this process").disagreements == ()
    spawned = SRUN | SCRIPT | {"WORLD_SIZE": "64"}
    assert claim(spawned, FOUR, name="this process").disagreements == ()


def test_numbers_that_leaked_from_the_batch_step_are_no_launcher_s() -> None:
    leaked = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_JOB_ID": "7"}
    for env in (leaked | SCRIPT, leaked | TORCHRUN):
        found = claim(env, FOUR, name="this process")
        assert (found.disagreements, found.nested) == ((), ())
        assert found.rank is not None


def test_a_launcher_under_a_launcher_is_told_with_its_counts() -> None:
    assert claim(SRUN | TORCHRUN, FOUR, name="this process").nested == (
        NestedLaunch(family="torchrun", processes=4, outer="slurm", tasks=4),
    )
    assert claim(TORCHRUN, FOUR, name="this process").nested == ()
    assert claim(SRUN, FOUR, name="this process").nested == ()


def test_every_family_that_numbers_processes_has_its_variables() -> None:
    assert set(NUMBERED_BY) == {*RANK_FAMILIES, *MPI_FAMILIES, "slurm"}
    known = {name for launcher in LAUNCHERS.values() for name in launcher.variables}
    named = {name for family in NUMBERED_BY.values() for names in family.values() for name in names}
    assert named <= known


EVERY = sorted({name for launcher in LAUNCHERS.values() for name in launcher.variables})


@given(st.dictionaries(st.sampled_from(EVERY), st.sampled_from(["0", "1", "2", "8", "x", ""]), max_size=14))
@settings(max_examples=150, deadline=None)
def test_any_environment_gives_disagreements_that_its_variables_bear_out(env: dict[str, str]) -> None:
    found = resolve(env)
    for odd in disagreements(found, env, at=lambda _: None):
        assert odd.value != odd.other_value
        assert env[odd.variable] == str(odd.value)
        assert env[odd.other_variable] == str(odd.other_value)
        assert variable_of(env, odd.family, odd.what) == odd.variable
    for launch in nested(found):
        assert launch.tasks * launch.processes == found.processes_here


def listing(env: dict[str, str]) -> str:
    return "root@node-a:/# env\n" + "".join(f"{name}={value}\n" for name, value in env.items())


def test_a_listing_of_variables_tells_the_same_with_its_lines() -> None:
    (snapshot,) = one(parse, listing(SRUN | SCRIPT)).snapshots
    (odd,) = snapshot.disagreements
    assert (odd.variable, odd.other_variable, odd.at) == ("RANK", "SLURM_PROCID", At(source="x.log", line=8))
    assert snapshot.ranks == ()
    (snapshot,) = one(parse, listing(SRUN | TORCHRUN)).snapshots
    assert [(launch.tasks, launch.processes) for launch in snapshot.nested] == [(4, 4)]


def test_a_listing_of_a_pod_tells_its_index() -> None:
    env = {"LWS_WORKER_INDEX": "1", "LWS_GROUP_SIZE": "2", "LWS_LEADER_ADDRESS": "serve-0.serve.prod"}
    (snapshot,) = one(parse, listing(env)).snapshots
    assert snapshot.node_claim == NodeClaim(
        node_rank=1, nodes=2, world="serve-0", family="lws", at=At(source="x.log", line=2)
    )


def test_listings_of_several_processes_run_together_tell_nothing_of_one() -> None:
    both = listing(SRUN | SCRIPT) + "RANK=4\nSLURM_PROCID=7\n"
    (snapshot,) = one(parse, both).snapshots
    assert (snapshot.disagreements, snapshot.nested) == ((), ())


@given(st.dictionaries(st.sampled_from(EVERY), st.text("0123456789xX,()", max_size=6), max_size=12))
@settings(max_examples=50, deadline=None)
def test_any_listing_is_read(env: dict[str, str]) -> None:
    for reading in read(parse, listing(env)):
        for snapshot in reading.snapshots:
            assert all(odd.at is not None for odd in snapshot.disagreements)


def test_snapshots_hand_them_on_and_pseudonyms_leave_them() -> None:
    made = msgspec.structs.replace(seen_in(SRUN | SCRIPT), nested=seen_in(SRUN | TORCHRUN).nested)
    assert redacted(made, b"key").disagreements == made.disagreements
    read = SnapshotDecoder().decode(msgspec.json.encode(made))
    assert (read.disagreements, read.nested) == (made.disagreements, made.nested)
    assert b"disagreements" not in msgspec.json.encode(snap())


def test_what_processes_saw_is_kept_under_the_name_of_their_host_or_without_one() -> None:
    odd = seen_in(SRUN | SCRIPT)
    nameless = msgspec.structs.replace(odd, identity=snap(None, boot=None).identity)
    assert [host for host, _ in inventory(odd, nameless).launches] == ["node-a", "this node"]


# ID006


def test_an_engine_that_reads_rank_is_told_both_variables_and_what_to_unset() -> None:
    found = of("ID006", seen_in(SRUN | SCRIPT), snap("node-b", range(4, 8)))
    [only] = found.findings
    assert "RANK is 3 (RANK set by a script) and SLURM_PROCID is 6 (Slurm srun)" in only.message
    assert "in a process on node-a. Megatron-Core goes by RANK" in only.message
    assert only.fix.startswith("unset RANK where the job starts, or set it from SLURM_PROCID")
    assert only.subjects == ["process 41 on node-a"]
    assert "RANK=3" in text_of(found)


def test_an_engine_that_goes_by_mpi_is_told_that_the_claims_are_ranks() -> None:
    message = of("ID006", seen_in(MPIRUN | SCRIPT), text=TENSORRT).findings[0].message
    assert (
        "TensorRT-LLM goes by OMPI_COMM_WORLD_RANK, and the ranks claimed here are the other ones" in message
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_that_starts_its_ranks_itself_reads_neither(engine: str) -> None:
    text = TWO.replace("vllm", engine)
    assert of("ID006", seen_in(SRUN | SCRIPT), text=text).findings == []
    external = said(("option", "--distributed-executor-backend", "external_launcher"), engine="vllm")
    assert bool(of("ID006", seen_in(SRUN | SCRIPT), external, text=text).findings) == (engine == "vllm")


def test_disagreements_are_one_finding_with_a_count() -> None:
    views = [seen_in(SRUN | SCRIPT), seen_in(SRUN | SCRIPT, "node-b")]
    [only] = of("ID006", *views).findings
    assert only.count == 2
    assert "(1 more number differs)" in only.message


def test_a_waiver_of_a_host_covers_all_numbers_that_differ_there() -> None:
    env = SRUN | SCRIPT | {"LOCAL_RANK": "3"}
    [only] = of("ID006", seen_in(env)).findings
    assert len(only.evidence) > 2
    assert (only.count, len(only.subjects)) == (1, 1)


def test_a_running_job_is_asked_too_and_without_a_disagreement_nothing_changes() -> None:
    quiet = [msgspec.structs.replace(view, ranks=()) for view in pair()]
    assert of("ID006", *running(), *quiet).verdict == "not-applicable"
    odd = msgspec.structs.replace(seen_in(SRUN | SCRIPT), ranks=())
    assert of("ID006", *running(), odd).verdict == "fail"
    assert of("EV004", odd).findings == []


# ID012


def test_launchers_that_processes_see_inside_launchers_are_told_or_acquitted() -> None:
    found = of("ID012", seen_in(SRUN | TORCHRUN), seen_in(SRUN | TORCHRUN, "node-b"))
    [only] = found.findings
    assert (
        "Slurm srun starts 4 tasks on node-a, node-b and torchrun starts 4 processes in each" in only.message
    )
    assert "16 processes for 4 GPUs a node" in only.message
    agents = (
        SRUN | TORCHRUN | {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
    )
    assert of("ID012", seen_in(agents)).verdict == "pass"
    assert of("ID012", seen_in(TORCHRUN)).verdict == "unknown"


def test_a_product_that_the_gpus_hold_is_none_too_many() -> None:
    half = SRUN | TORCHRUN | {"SLURM_STEP_TASKS_PER_NODE": "2(x2)", "LOCAL_WORLD_SIZE": "2"}
    assert of("ID012", seen_in(half)).verdict == "pass"
