"""What moved between two looks, whichever they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from build import TWO, comm, full, gpus, inventory, log, nics, pair, paired, placed, running, snap
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.diff import compare
from topocheck.difference import Difference
from topocheck.placed import placement_report
from topocheck.snapshot import FullSnapshot, GpuId, NicId, Software
from topocheck.whereabouts import Whereabouts, add_observed, reported_whereabouts, whereabouts_of

OTHERS = gpus("node-x")
"""GPUs of another board."""


def look(snapshots: Sequence[FullSnapshot], text: str = TWO, name: str = "look") -> Whereabouts:
    """One look by evidence and plan."""
    placement = placed(text, *snapshots)
    return whereabouts_of(name, placement.inventory.machines, [placement])


def recorded(snapshots: Sequence[FullSnapshot], text: str = TWO) -> Whereabouts:
    """The same by the report of it."""
    return reported_whereabouts("report.json", [("", placement_report(placed(text, *snapshots), []))])


def between(before: Sequence[FullSnapshot], after: Sequence[FullSnapshot]) -> Difference:
    found = compare(look(before), look(after))
    by_report = compare(recorded(before), recorded(after))
    assert told(by_report) == told(found)
    assert by_report.exit_code == found.exit_code
    return found


def told(found: Difference) -> list[tuple[str, str, str, str]]:
    return [(change.kind, change.about, change.before, change.after) for change in found.changes]


def renewed(view: FullSnapshot, **parts: Any) -> FullSnapshot:
    """The same node with other parts of its identity."""
    return msgspec.structs.replace(view, identity=msgspec.structs.replace(view.identity, **parts))


def with_nics(view: FullSnapshot, *guids: str | None) -> FullSnapshot:
    return renewed(view, nics=tuple(NicId(name=f"mlx5_{n}", guid=guid) for n, guid in enumerate(guids)))


# Nothing moved.


def test_the_same_evidence_moved_nothing() -> None:
    found = between(pair(), pair())
    assert (told(found), found.exit_code, found.complete) == ([], 0, True)
    assert found.sentence == "nothing moved: 8 ranks, 8 GPUs, 2 nodes compared"
    assert found.basis == "claimed"


def test_a_report_and_the_evidence_it_was_made_of_agree() -> None:
    for evidence in (pair(), running(), [*pair(), *running()]):
        found = compare(recorded(evidence), look(evidence))
        assert (told(found), found.exit_code) == ([], 0)


def test_nodes_that_were_started_anew_did_not_move() -> None:
    found = between(pair(), [snap("node-a", range(4), boot="later"), snap("node-b", range(4, 8))])
    assert (found.exit_code, found.notes) == (0, ["node-a was started anew"])


def test_a_host_with_another_name_and_the_same_gpus_did_not_move() -> None:
    renamed = renewed(pair()[0], host=msgspec.structs.replace(pair()[0].identity.host, name="pod-7"))
    plan = TWO.replace("node-a", "pod-7")
    found = compare(look(pair()), look([renamed, pair()[1]], plan))
    assert (told(found), found.notes) == ([], ["node-a is called pod-7 now: its GPUs are the same"])


def test_names_match_by_their_first_label() -> None:
    long = [
        renewed(view, host=msgspec.structs.replace(view.identity.host, name=f"{name}.cluster.example"))
        for name, view in zip(("node-a", "node-b"), pair(), strict=True)
    ]
    assert compare(look(pair()), look(long)).exit_code == 0


# What moved.


def test_ranks_on_another_node_are_told_together() -> None:
    found = between(pair(), [snap("node-a", range(4, 8)), snap("node-b", range(4))])
    assert told(found) == [
        ("rank", "ranks 0..3", "node-a", "node-b"),
        ("rank", "ranks 4..7", "node-b", "node-a"),
    ]
    assert (found.exit_code, found.sentence) == (1, "moved or changed: 8 ranks")


def test_a_rank_on_another_gpu_of_its_node_is_told() -> None:
    first, second = pair()
    swapped = tuple(
        msgspec.structs.replace(claim, gpu={0: 1, 1: 0}.get(claim.gpu or 0, claim.gpu))
        for claim in first.ranks
    )
    found = between(pair(), [msgspec.structs.replace(first, ranks=swapped), second])
    names = [gpu.uuid for gpu in first.identity.gpus]
    assert told(found) == [
        ("rank", "rank 0", f"GPU 0 ({names[0]})", f"GPU 1 ({names[1]})"),
        ("rank", "rank 1", f"GPU 1 ({names[1]})", f"GPU 0 ({names[0]})"),
    ]


def test_a_spare_node_takes_ranks_over() -> None:
    spare = TWO.replace("node-b", "node-c")
    found = compare(look(pair()), look([pair()[0], snap("node-c", range(4, 8))], spare))
    assert told(found) == [("rank", "ranks 4..7", "node-b", "node-c")]
    assert [lack.about for lack in found.lacks] == [["node-b"]]
    assert found.exit_code == 1


def test_an_exchanged_card_is_one_change_and_moves_no_rank() -> None:
    first, second = pair()
    cards = list(first.identity.gpus)
    cards[2] = msgspec.structs.replace(cards[2], uuid="GPU-77777777-0000-0000-0000-000000000000")
    found = between(pair(), [renewed(first, gpus=tuple(cards)), second])
    assert told(found) == [
        ("gpu", "GPU 2 at 0000:3b:00.0", f"{first.identity.gpus[2].uuid}", f"{cards[2].uuid}")
    ]


def test_a_card_in_another_slot_is_told_by_its_uuid() -> None:
    first, second = pair()
    a, b, *rest = first.identity.gpus
    moved = (msgspec.structs.replace(a, uuid=b.uuid), msgspec.structs.replace(b, uuid=a.uuid), *rest)
    found = between(pair(), [renewed(first, gpus=moved), second])
    assert [(change.kind, change.about) for change in found.changes if change.kind == "gpu"] == [
        ("gpu", f"{a.uuid}"),
        ("gpu", f"{b.uuid}"),
    ]


def test_another_machine_under_a_nodes_name_is_told_once() -> None:
    first, second = pair()
    found = between(pair(), [renewed(first, gpus=OTHERS), second])
    assert [(change.kind, change.about) for change in found.changes] == [("node", "node-a")]


def test_fewer_nvlinks_are_told_by_the_gpu_that_has_them() -> None:
    def weak(a: int, b: int) -> str:
        return "NV12" if 2 in (a, b) else "NV18"

    found = between(pair(), pair(links=weak))
    assert told(found) == [("link", "GPU 2 to 3 others", "NV18", "NV12")]
    assert (found.changes[0].nodes, found.changes[0].count) == (["node-a"], 3)


def test_one_version_on_many_nodes_is_one_change() -> None:
    def driven(version: str) -> list[FullSnapshot]:
        return [msgspec.structs.replace(view, software=Software(driver=version)) for view in pair()]

    found = between(driven("570.86.15"), driven("575.57.08"))
    assert told(found) == [("version", "driver", "570.86.15", "575.57.08")]
    assert (found.changes[0].nodes, found.changes[0].count) == (["node-a", "node-b"], 2)


def test_a_name_that_stands_for_another_nic_is_told() -> None:
    two = nics(2)
    before = [with_nics(view, "a1", "a2") for view in pair(ports=two)]
    after = [with_nics(before[0], "a2", "a1"), before[1]]
    assert told(between(before, after)) == [("nic", "mlx5_0", "a1", "a2"), ("nic", "mlx5_1", "a2", "a1")]


def test_a_nic_that_is_gone_is_told_only_where_the_list_is_whole() -> None:
    before = [with_nics(view, "a1", "a2") for view in pair(ports=nics(2))]
    after = [with_nics(pair(ports=nics(1))[0], "a1"), before[1]]
    assert told(between(before, after)) == [("nic", "mlx5_1", "there", "gone")]
    cut = [msgspec.structs.replace(after[0], coverage=full(nics="part", ranks="all")), before[1]]
    found = between(before, cut)
    assert (told(found), [lack.what for lack in found.lacks], found.exit_code) == ([], ["NICs"], 3)


def test_a_rank_that_is_new_is_told() -> None:
    small = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n"
    found = compare(look([snap("node-a", range(4), size=4)], small), look(pair()))
    assert told(found) == [("rank", "ranks 4..7", "none", "node-b")]


# What is not known.


def test_a_node_that_is_not_shown_now_is_unknown() -> None:
    found = between(pair(), pair()[:1])
    assert (found.exit_code, found.moved, found.complete) == (3, False, False)
    assert {lack.what for lack in found.lacks} == {"anything", "where ranks lie"}


def test_links_that_are_not_shown_now_are_unknown() -> None:
    found = between(pair(), pair(hardware=snap(links=None, nvlinks=[None] * 4).hardware))
    assert [lack.what for lack in found.lacks if lack.what == "links"] == ["links"]


def test_a_version_that_is_not_shown_now_is_unknown() -> None:
    def of(nccl: str | None) -> list[FullSnapshot]:
        software = Software(driver="570.86.15", nccl=nccl)
        return [msgspec.structs.replace(view, software=software) for view in pair()]

    found = between(of("2.21.5"), of(None))
    assert (told(found), [lack.what for lack in found.lacks], found.exit_code) == ([], ["versions"], 3)
    assert between(of(None), of("2.21.5")).exit_code == 0


def test_nothing_in_common_is_unknown() -> None:
    assert compare(Whereabouts("a"), Whereabouts("b")).exit_code == 3
    assert compare(look(pair()), Whereabouts("b")).exit_code == 3


def test_a_prediction_shows_no_place() -> None:
    found = compare(look([snap("node-a"), snap("node-b")]), look(pair()))
    assert (found.compared.ranks, found.basis) == (0, "")
    assert [lack.what for lack in found.lacks] == ["where ranks lie"]


def test_claims_before_and_a_log_now_are_held_together_and_said_so() -> None:
    found = compare(look(pair()), look(running()))
    assert (found.basis, found.compared.ranks, told(found)) == ("claimed, then observed", 8, [])


def test_the_largest_communicator_stands_for_a_job_of_unknown_size() -> None:
    known = inventory(*running())
    found = whereabouts_of("nccl.log", known.machines, [])
    add_observed(found, known)
    assert len(found.ranks["observed"]) == 8
    two = inventory(
        log("node-a", comm("0xaa", range(4), size=4)),
        log("node-b", comm("0xbb", range(4), host="node-b", size=4)),
    )
    found = whereabouts_of("nccl.log", two.machines, [])
    add_observed(found, two)
    assert "several worlds" in found.notes[0]


def test_two_hosts_of_one_name_stay_two() -> None:
    twins = [snap("node-a", boot="one"), renewed(snap("node-a", boot="two"), gpus=OTHERS)]
    known = inventory(*twins)
    assert list(whereabouts_of("twins", known.machines, []).nodes) == ["node-a", "node-a (two)"]


def test_a_matrix_that_differs_names_the_pairs() -> None:
    found = between(pair(), pair(links=paired))
    assert ("link", "GPU 0 to 1, GPU 0 to 3, GPU 1 to 2 and 1 more", "NV18", "PHB") in told(found)


@given(st.permutations(range(8)), st.permutations(range(8)))
@settings(max_examples=50, deadline=None)
def test_ranks_moved_are_those_whose_seats_differ(before: list[int], after: list[int]) -> None:
    def job(ranks: list[int]) -> list[FullSnapshot]:
        return [snap("node-a", ranks[:4]), snap("node-b", ranks[4:])]

    found = compare(look(job(before)), look(job(after)))
    count = sum(change.count for change in found.changes)
    assert count == sum(before.index(rank) != after.index(rank) for rank in range(8))
    assert found.exit_code == (1 if count else 0)


@pytest.mark.parametrize("bare", ["uuid", "bus"])
def test_gpus_without_a_common_name_are_not_held_to_differ(bare: str) -> None:
    def stripped(view: FullSnapshot) -> FullSnapshot:
        cards = tuple(GpuId(**{name: getattr(gpu, name) for name in (bare,)}) for gpu in view.identity.gpus)
        return renewed(view, gpus=cards)

    found = compare(look(pair()), look([stripped(view) for view in pair()]))
    assert [change for change in found.changes if change.kind in ("gpu", "rank")] == []
