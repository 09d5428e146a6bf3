"""PyTorch's own logs and those of its launchers."""

from __future__ import annotations

from collections import Counter

from engine_evidence import (
    CAPTURES,
    anything,
    case,
    claims,
    facts,
    fixture,
    hosts,
    members,
    named,
    notes,
    one,
    read,
    sound,
)
from hypothesis import given, settings

from topocheck.probes.capture.torch_log import parse

BLOCK = (
    "[default] Rendezvous complete for workers. Result:\n  restart_count={start}\n  group_rank={node}\n"
    "  local_ranks=[0, 1]\n  global_ranks=[{first}, {second}]\n  global_world_sizes=[4, 4]\n"
)


def agent(node: int, start: int = 0) -> str:
    return BLOCK.format(start=start, node=node, first=2 * node, second=2 * node + 1)


def test_an_agents_block_places_its_ranks() -> None:
    reading = fixture(parse, "torchrun-agents.log")
    assert claims(reading) == {
        0: ("train-0", 0, 0, None),
        1: ("train-0", 1, 0, None),
        2: ("train-1", 0, 1, None),
        3: ("train-1", 1, 1, None),
    }
    assert named(reading, "node-ranks") == {"0": "0,1", "1": "2,3"}
    assert named(reading, "rendezvous") == {"master": "train-0:29400"}
    assert set(facts(reading, "world")) == {"4"}
    assert members(reading).keys() == {("train-1", "engine:torch", 3)}


def test_blocks_of_two_nodes_without_names_place_nothing() -> None:
    reading = one(parse, agent(0) + agent(1))
    assert claims(reading) == {}
    assert named(reading, "node-ranks") == {"0": "0,1", "1": "2,3"}
    assert [kind for _, kind in notes(reading)] == ["ignored"]
    assert claims(one(parse, agent(1))) == {2: (None, 0, 1, None), 3: (None, 1, 1, None)}


def test_a_restart_replaces_what_was_before() -> None:
    reading = one(parse, agent(0) + agent(1, start=1))
    assert claims(reading).keys() == {2, 3}
    assert named(reading, "node-ranks") == {"1": "2,3"}


def test_a_block_that_is_cut_gives_no_ranks() -> None:
    text = (CAPTURES / "torchrun-agents.log").read_text(encoding="utf-8")
    reading = one(parse, text[: text.index("  role_ranks")])
    assert claims(reading) == {}
    assert [kind for _, kind in notes(reading)] == ["cut"]


def test_every_announcement_of_lightning_counts() -> None:
    line = "initializing {}: GLOBAL_RANK: {}, MEMBER: {}/4\n"
    reading = one(
        parse, line.format("ddp", 1, 2) + line.format("distributed", 1, 2) + line.format("ddp", 0, 3)
    )
    assert facts(reading, "rank") == ["1", "1"]
    assert facts(reading, "world") == ["4"]
    assert notes(reading) == [(3, "contradictory")]


def test_a_local_rank_of_lightning_is_no_rank() -> None:
    reading = one(parse, "LOCAL_RANK: 1 - CUDA_VISIBLE_DEVICES: [0, 1]")
    assert facts(reading, "rank") == []
    assert named(reading, "option") == {"CUDA_VISIBLE_DEVICES": "0,1"}


def test_meshes_of_torchtitan_old_and_new() -> None:
    new = one(
        parse, "Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=4"
    )
    old = one(parse, "[titan] - Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]")
    assert named(new, "size") == {
        "pipeline": "2",
        "data_replicate": "1",
        "data_shard": "4",
        "context": "1",
        "tensor": "2",
        "expert": "4",
    }
    assert named(old, "size") == {"data_shard": "4", "tensor": "2"}
    assert facts(old, "engine") == ["torchtitan"]


def test_the_state_of_accelerate_is_a_rank() -> None:
    reading = one(
        parse,
        "Distributed environment: MULTI_GPU  Backend: nccl\nNum processes: 8\nProcess index: 5\n"
        "Local process index: 1\nDevice: cuda:1\n",
    )
    (member,) = members(reading).values()
    assert (member.comm, member.rank, member.size, member.cuda) == ("engine:accelerate", 5, 8, 1)


def test_torchs_own_tag_is_the_rank_and_the_address_its_host() -> None:
    reading = one(
        parse,
        "(Worker pid=7, ip=10.3.0.2) [rank6]:[W socket.cpp:1] Using the loopback address as fallback.\n"
        "INFO 01-02 03:04:05 [p.py:1] world_size=8 rank=0\n",
    )
    (member,) = members(reading).values()
    assert (member.rank, member.size, member.pid) == (6, 8, 7)
    assert named(reading, "rendezvous") == {"gloo": "127.0.0.1"}
    observed = hosts(reading)["10.3.0.2"].observed
    assert observed is not None
    assert [fact.kind for fact in observed.facts] == ["gloo-loopback"]


@settings(max_examples=50, deadline=None)
@given(anything("torchrun-agents.log", "vllm-mp-two-nodes.log"))
def test_any_text_is_read_soundly(text: str) -> None:
    assert all(sound(reading) for reading in read(parse, text))


def test_c08_reads_as_its_truth_says() -> None:
    reading = case(parse, "C08-lightning-dup-ranks.log")
    assert Counter(facts(reading, "rank")) == {"0": 2, "1": 2, "2": 2, "3": 2}
    assert facts(reading, "world") == ["8"]


def test_c05_c35_c50_c61_read_as_their_truth_says() -> None:
    assert facts(case(parse, "C05-vllm-collectenv-tail.txt"), "store-clients") == ["2/8"]
    ray = case(parse, "C35-ray-gb200-44.txt")
    assert {key[0]: (key[2], member.size) for key, member in members(ray).items()} == {"10.0.0.105": (13, 44)}
    gloo = case(parse, "C50-vllm-gloo-loopback.log")
    assert {(host, rank, member.size) for (host, _, rank), member in members(gloo).items()} == {
        ("10.0.7.8", 8, 16),
        ("10.0.7.8", 9, 16),
    }
    mixed = case(parse, "C61-collectenv-new-mixed.txt")
    assert named(mixed, "unsupported-gpu") == {"NVIDIA GeForce RTX 5090": "sm_120"}
