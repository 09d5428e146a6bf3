"""OBS005, OBS007: nothing moved, and the job works again."""

from __future__ import annotations

import msgspec
from build import TWO, answer, comm, members, pair, placed, report, results, running, snap, text_of
from made_recovery import RECOVERED, came_back, served
from made_worlds import POOLS, pools, told

from topocheck.report import RuleReport
from topocheck.snapshot import At, FullSnapshot, JobFact, Software
from topocheck.whereabouts import whereabouts_of


def obs007(*evidence: FullSnapshot, text: str = RECOVERED) -> RuleReport:
    return answer(report(text, *evidence), "OBS007")


def needs(*evidence: FullSnapshot, text: str = RECOVERED) -> list[str]:
    whole = report(text, *evidence)
    return [whole.gaps[index].need for index in answer(whole, "OBS007").gaps]


# OBS005.


def test_the_same_job_moved_nothing() -> None:
    found = answer(report(TWO, *pair(), since=pair()), "OBS005")
    assert (found.verdict, found.findings) == ("pass", [])


def test_each_kind_of_change_is_one_finding() -> None:
    first, second = pair(links=lambda a, b: "NV12" if 2 in (a, b) else "NV18")
    now = [msgspec.structs.replace(view, software=Software(driver="575.57.08")) for view in (first, second)]
    then = [msgspec.structs.replace(view, software=Software(driver="570.86.15")) for view in pair()]
    found = answer(report(TWO, *now, since=then), "OBS005")
    assert [finding.cause for finding in found.findings] == ["links changed", "versions changed"]
    assert "driver on node-a, node-b was 570.86.15, now 575.57.08" in text_of(found)


def test_more_evidence_than_before_is_no_move() -> None:
    found = answer(report(TWO, *pair(), *running(), since=pair()), "OBS005")
    assert found.verdict == "pass"


def test_a_node_that_reports_nothing_is_unknown() -> None:
    found = answer(report(TWO, *pair()[:1], since=pair()), "OBS005")
    assert (found.verdict, found.findings) == ("unknown", [])


def test_idle_nodes_that_were_seen_before_accuse_nobody() -> None:
    idle = snap("node-z")
    found = answer(report(TWO, *pair(), idle, since=[*pair(), idle]), "OBS005")
    assert found.findings == []


def test_worlds_are_held_against_their_own_ranks() -> None:
    known = placed(TWO, *pair())
    assert results(known)["OBS005"].verdict == "not-applicable"
    found = told(POOLS, *pools())
    assert answer(found, "OBS005").verdict == "not-applicable"


def test_an_earlier_look_of_other_nodes_is_unknown() -> None:
    known = placed(TWO, *pair())
    other = placed(TWO.replace("node-a, node-b", "node-x, node-y"), snap("node-x", range(4)))
    known.inventory.earlier = whereabouts_of("other", other.inventory.machines, [])
    assert results(known)["OBS005"].verdict == "unknown"


# OBS007.


def test_a_job_that_serves_again_passes() -> None:
    assert obs007(*came_back("0.33.0", "0.33.0", served())).verdict == "pass"


def test_a_health_check_is_no_request() -> None:
    assert needs(*came_back()) == ["a request that was completed since the restart"]


def test_requests_that_fail_are_a_finding() -> None:
    found = obs007(*came_back("0.33.0", "0.33.0", served("request-failed", "500")))
    assert (found.verdict, len(found.findings)) == ("fail", 1)
    assert "answers /v1/completions with 500" in text_of(found)


def test_a_request_that_failed_beside_one_that_did_not_is_none() -> None:
    both = served("request-failed", "500"), served()
    assert obs007(*came_back("0.33.0", "0.33.0", *both)).verdict == "pass"


def test_a_training_step_is_work_too() -> None:
    step = served()
    fact = JobFact(kind="step-done", value="120", engine="vllm", at=At(source="train.log", line=4))
    step = msgspec.structs.replace(step, job=(fact,))
    assert obs007(*came_back("0.33.0", "0.33.0", step)).verdict == "pass"


def test_a_rank_without_its_communicators_is_unknown() -> None:
    first, second = came_back("0.33.0", "0.33.0")
    assert "that a rank has its communicators again" in needs(first, served())
    assert "that a rank has its communicators again" not in needs(first, second, served())


def test_groups_of_every_kind_stand_for_the_world() -> None:
    versions = Software(engine="vllm", engine_version="0.33.0")
    world = running(more={})

    def grouped(*, pipelines: bool) -> list[FullSnapshot]:
        found = []
        for number, view in enumerate(world):
            host = view.identity.host.name or ""
            ring = comm("0xc0ffee", range(4 * number, 4 * number + 4), host=host, phase="start")
            tensor = members(f"0x7{number}", [(n, n) for n in range(4)], host=host, size=4)
            pairs = [one for n in range(4) for one in members(f"0x9{n}", [(number, n)], host=host, size=2)]
            seen = view.observed
            assert seen is not None
            comms = (*ring, *tensor, *(pairs if pipelines else ()))
            found.append(
                msgspec.structs.replace(
                    view, observed=msgspec.structs.replace(seen, comms=comms), software=versions
                )
            )
        return found

    assert obs007(*grouped(pipelines=True), served()).verdict == "pass"
    assert needs(*grouped(pipelines=False), served()) == ["that a rank has its communicators again"]


def test_a_restart_that_the_launcher_counts_is_asked_about() -> None:
    counted = pair(environment={"TORCHELASTIC_RESTART_COUNT": "1"})
    never = pair(environment={"TORCHELASTIC_RESTART_COUNT": "0"})
    assert obs007(*counted, text=TWO).verdict == "unknown"
    assert obs007(*never, text=TWO).verdict == "not-applicable"


def test_lines_of_unknown_time_do_not_count_unless_the_user_says_so() -> None:
    counted = pair(environment={"TORCHELASTIC_RESTART_COUNT": "1"})
    evidence = [*counted, *came_back("0.33.0", "0.33.0", served())]
    assert obs007(*evidence, text=TWO).verdict == "unknown"
    assert obs007(*evidence).verdict == "pass"


def test_a_job_that_was_never_restarted_is_not_asked() -> None:
    assert obs007(*running(), served(), text=TWO).verdict == "not-applicable"


def test_asking_keeps_no_evidence_out() -> None:
    assert answer(report(RECOVERED, *pair()), "EV003").verdict == "not-applicable"
