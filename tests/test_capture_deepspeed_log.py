"""DeepSpeed: its launcher prints the whole world, its engine the layers of each stage."""

from __future__ import annotations

from engine_evidence import anything, claims, facts, fixture, members, named, notes, one, read, sound
from hypothesis import given, settings

from topocheck.probes.capture.deepspeed_log import parse


def test_the_launcher_names_host_rank_and_device() -> None:
    reading = fixture(parse, "deepspeed-launch.log")
    assert claims(reading) == {
        0: ("calc1", 0, 0, 0),
        1: ("calc1", 1, 0, 1),
        2: ("calc1", 2, 0, 2),
        3: ("calc2", 1, 1, 6),  # LOCAL_RANK is the global rank modulo 2, not the position of the slot
        4: ("calc2", 0, 1, 4),
    }
    assert facts(reading, "node-order") == ["calc1 calc2"]
    assert named(reading, "include") == {"calc1": "0,1,2", "calc2": "4,6"}
    assert (facts(reading, "world"), facts(reading, "nodes")) == (["5"], ["2"])
    assert named(reading, "processes-per-node") == {"agent": "3"}


def test_layers_are_told_where_every_stage_was_seen() -> None:
    reading = fixture(parse, "deepspeed-launch.log")
    assert facts(reading, "layers") == ["7,6"]
    assert named(reading, "coordinates") == {"0": "pipeline 0", "3": "pipeline 1"}
    later = one(parse, "RANK=3 STAGE=1 LAYERS=6 [7, 13) STAGE_PARAMS=1 (0.0M)")
    assert facts(later, "layers") == []
    assert notes(later) == [(1, "cut")]


def test_a_second_start_replaces_the_first() -> None:
    first = "global_rank_mapping=defaultdict(<class 'list'>, {'a': [0, 1]})"
    second = "global_rank_mapping=defaultdict(<class 'list'>, {'b': [0, 1]})"
    assert {host for host, *_ in claims(one(parse, f"{first}\n{second}")).values()} == {"b"}


def test_settings_found_by_mpi_are_a_rank() -> None:
    reading = one(
        parse,
        "Discovered MPI settings of world_rank=3, local_rank=1, world_size=8, master_addr=10.1.1.1, "
        "master_port=29500",
    )
    (member,) = members(reading).values()
    assert (member.rank, member.size, member.cuda) == (3, 8, 1)
    assert named(reading, "rendezvous") == {"master": "10.1.1.1:29500"}


@settings(max_examples=50, deadline=None)
@given(anything("deepspeed-launch.log"))
def test_any_text_is_read_soundly(text: str) -> None:
    assert all(sound(reading) for reading in read(parse, text))
