"""Nodes and actors as Ray lists them: ids, addresses, GPUs, and the ranks that actors' names tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_facts import facts, one, text

from topocheck.launchers.ray import actor_name
from topocheck.probes.capture.ray_list import parse
from topocheck.probes.capture.reading import Reading, Text

LIST = (Path(__file__).parent / "captures" / "ray-list.txt").read_text()
HEAD, OTHER = "c0ffee00" * 7, "0a11ce00" * 7


def ranks(reading: Reading) -> dict[int, str | None]:
    """Host of each rank."""
    return {
        claim.rank: snapshot.identity.host.name for snapshot in reading.snapshots for claim in snapshot.ranks
    }


def listed(nodes: list[dict[str, object]]) -> Text:
    return text(json.dumps(nodes))


def actors(*names: str, node: str = HEAD) -> Text:
    """A table of living actors, as Ray prints it."""
    rows = [
        f" {n}  {'01' * 16}  RayWorkerProc  ALIVE    02000000  {name}  {node}  {100 + n}  ns"
        for n, name in enumerate(names)
    ]
    return text("Table:", *rows)


def test_nodes_that_live_are_told_with_address_and_gpus() -> None:
    reading = one(parse(text(LIST)))
    assert facts([reading], "cluster-node") == [
        ("cluster-node", HEAD, "10.9.0.1"),
        ("cluster-node", OTHER, "10.9.0.2"),
    ]
    assert facts([reading], "cluster-node-gpus", "cluster-nodes", "cluster-gpus") == [
        ("cluster-node-gpus", HEAD, "2"),
        ("cluster-nodes", "ray", "2"),
        ("cluster-gpus", "ray", "4"),
        ("cluster-node-gpus", OTHER, "2"),
    ]
    assert [note.text for note in reading.notes] == ["1 nodes are dead"]


def test_workers_are_ranks_by_their_names_whatever_the_order_of_the_list() -> None:
    reading = one(parse(text(LIST)))
    assert ranks(reading) == {0: "10.9.0.1", 1: "10.9.0.1", 2: "10.9.0.2", 3: "10.9.0.2"}
    assert facts([reading], "option", "world") == [
        ("option", "--distributed-executor-backend", "ray"),
        ("world", "", "4"),
    ]
    assert {snapshot.coverage.ranks for snapshot in reading.snapshots if snapshot.ranks} == {"all"}


def test_a_list_of_actors_alone_has_the_ids_for_hosts() -> None:
    assert ranks(one(parse(actors("vllm_Worker_x_TP1", "vllm_Worker_x_TP0")))) == {0: HEAD, 1: HEAD}


@pytest.mark.parametrize("sizes", [(4, 2, 1), (2, 2, 2), (1, 3, 1), (1, 1, 1)])
def test_the_names_that_vllm_gives_lead_back_to_the_ranks(sizes: tuple[int, int, int]) -> None:
    named = dict(zip(("tensor", "pipeline", "context"), sizes, strict=True))
    world = sizes[0] * sizes[1] * sizes[2]
    names = [f"vllm_Worker_ab12{actor_name(named, rank)}" for rank in range(world)]
    reading = one(parse(actors(*names)))
    found = [claim for snapshot in reading.snapshots for claim in snapshot.ranks]
    assert {claim.rank: claim.pid for claim in found} == {rank: 100 + rank for rank in range(world)}


def test_sglangs_names_tell_the_rank_and_not_the_node() -> None:
    names = [
        f"sglang_scheduler_node10.9.0.1_dp0_pp{p}_tp{t}_pg0a1b2c3d_bundle{p}" for p in (0, 1) for t in (0, 1)
    ]
    reading = one(parse(actors(*names, node=OTHER)))
    assert ranks(reading) == dict.fromkeys(range(4), OTHER)
    assert facts([reading], "option") == [("option", "--use-ray", "true")]


@pytest.mark.parametrize(
    ("names", "note"),
    [
        (["vllm_Worker_x_TP0_PP0", "vllm_Worker_x_TP1_PP1"], "2 workers of 4"),
        (["vllm_Worker_x_TP0", "vllm_Worker_x_TP1", "vllm_Worker_y_TP0", "vllm_Worker_y_TP1"], "2 engines"),
    ],
)
def test_names_that_leave_the_ranks_open_make_no_ranks(names: list[str], note: str) -> None:
    reading = one(parse(actors(*names)))
    assert not ranks(reading)
    assert note in reading.notes[0].text


def test_json_says_the_same_as_the_table() -> None:
    nodes: list[dict[str, object]] = [
        {
            "node_id": HEAD,
            "node_ip": "10.9.0.1",
            "state": "ALIVE",
            "resources_total": {"CPU": 8.0, "GPU": 2.0},
        },
        {"node_id": OTHER, "node_ip": "10.9.0.2", "state": "ALIVE", "resources_total": {"CPU": 8.0}},
        {"node_id": "dead" * 14, "node_ip": "10.9.0.3", "state": "DEAD", "resources_total": {}},
    ]
    found = parse(listed(nodes))
    assert facts(found, "cluster-node-gpus") == [
        ("cluster-node-gpus", HEAD, "2"),
        ("cluster-node-gpus", OTHER, "0"),
    ]
    assert facts(found, "cluster-gpus") == [("cluster-gpus", "ray", "2")]


def test_resources_that_are_cut_leave_the_gpus_unknown() -> None:
    cut = LIST.split("GPU: 2.0")[0].rstrip().rsplit("\n", 1)[0]
    assert facts(parse(text(cut)), "cluster-node-gpus", "cluster-gpus") == []


@pytest.mark.parametrize(
    "line", ['[{"node_id": "a"', '[{"node_id": 5}]', '[{"actor_id": "x", "name": null}]', "[" * 9000]
)
def test_damaged_lists_are_read_as_far_as_they_go(line: str) -> None:
    assert facts(parse(text(line)), "cluster-node") == []


@given(st.lists(st.sampled_from([*LIST.split("\n"), "", "[{", f'[{{"node_id": "{HEAD}"}}]']), max_size=30))
@settings(max_examples=50, deadline=None)
def test_any_shuffle_of_such_lines_is_read_without_a_crash(lines: list[str]) -> None:
    for reading in parse(Text("x", tuple(lines))):
        assert reading.lines <= set(range(1, len(lines) + 1))


def test_dead_workers_still_count_for_the_size_of_the_world() -> None:
    shown = actors("vllm_Worker_x_TP0_PP0", "vllm_Worker_x_TP0_PP1")
    died = Text("x", tuple(line.replace("ALIVE", "DEAD ") if "PP1" in line else line for line in shown.lines))
    reading = one(parse(died))
    assert not ranks(reading)
    assert facts([reading], "world") == []
    assert reading.notes[0].text.startswith("1 workers of 2")


@pytest.mark.parametrize("gpus", [0.5, 7.5, True, -1, "2"])
def test_gpus_that_are_no_whole_number_are_not_known(gpus: object) -> None:
    node: dict[str, object] = {
        "node_id": HEAD,
        "node_ip": "10.9.0.1",
        "state": "ALIVE",
        "resources_total": {"GPU": gpus},
    }
    assert facts(parse(listed([node])), "cluster-node-gpus", "cluster-gpus") == []
    table = LIST.replace("GPU: 2.0", f"GPU: {gpus}") if isinstance(gpus, float) else ""
    assert facts(parse(text(table)), "cluster-node-gpus", "cluster-gpus") == []


def test_a_living_node_without_any_resource_has_unknown_gpus() -> None:
    node: dict[str, object] = {
        "node_id": HEAD,
        "node_ip": "10.9.0.1",
        "state": "ALIVE",
        "resources_total": {},
    }
    assert facts(parse(listed([node])), "cluster-node-gpus") == []


@pytest.mark.parametrize(("count", "known"), [(99, True), (100, False), (101, True)])
def test_a_list_of_as_many_rows_as_rays_limit_is_not_taken_for_whole(count: int, known: bool) -> None:
    names = [f"vllm_Worker_x_TP{n}" for n in range(count)]
    assert bool(ranks(one(parse(actors(*names))))) is known
    nodes: list[dict[str, object]] = [
        {"node_id": f"{n:056x}", "node_ip": "10.9.0.1", "state": "ALIVE"} for n in range(count)
    ]
    found = parse(listed(nodes))
    assert bool(facts(found, "cluster-nodes")) is known
    told = parse(text("$ ray list nodes --limit 5000 --format json", json.dumps(nodes)))
    assert facts(told, "cluster-nodes") == [("cluster-nodes", "ray", str(count))]
