"""SGLang's start-up log: broken arguments are joined, prefixes are coordinates that run."""

from __future__ import annotations

from engine_evidence import anything, case, facts, fixture, members, named, notes, one, read, sound
from hypothesis import given, settings

from topocheck.probes.capture.sglang_log import parse


def coordinates(text: str) -> set[tuple[str, str]]:
    (snapshot,) = one(parse, text).snapshots
    return {(fact.name, fact.value) for fact in snapshot.job if fact.kind == "rank-coordinate"}


def test_arguments_broken_in_a_word_are_joined_without_a_blank() -> None:
    reading = fixture(parse, "sglang-wrapped.log")
    assert named(reading, "requested-size") == {
        "tensor": "8",
        "pipeline": "2",
        "attention_data": "4",  # enable_dp_attention: DP lies inside TP
        "expert": "8",
    }
    assert named(reading, "rendezvous") == {"dist-init": "10.9.0.1:5757"}
    assert (facts(reading, "nodes"), facts(reading, "node-rank")) == (["2"], ["1"])
    assert named(reading, "option")["--watchdog-timeout"] == "300"
    assert notes(reading) == [(1, "repaired")]


def test_a_dict_of_resolved_values_has_attention_sizes_of_its_own() -> None:
    reading = one(parse, "[2026-01-02 03:04:05] server_args={'tp_size': 8, 'dp_size': 1, 'attn_dp_size': 2}")
    assert named(reading, "requested-size") == {"tensor": "8", "data": "1", "attention_data": "2"}


def test_axes_of_a_prefix_stand_in_any_order() -> None:
    assert coordinates("[2026-01-02 03:04:05 DP1 TP3 EP3 PP0] Load weight begin.") == {
        ("data", "1"),
        ("tensor", "3"),
        ("expert", "3"),
        ("pipeline", "0"),
    }
    assert coordinates("[2026-01-02 03:04:05.123 PP1 ATTN_CP0 MOE_DP2 TP3] x") == {
        ("pipeline", "1"),
        ("context", "0"),
        ("moe_data", "2"),
        ("tensor", "3"),
    }


def test_a_bound_scheduler_tells_its_physical_gpu() -> None:
    reading = fixture(parse, "sglang-wrapped.log")
    assert named(reading, "device") == {"attention_data 3, tensor 7, expert 7, pipeline 1": "5"}


def test_debug_lines_give_global_ranks() -> None:
    reading = one(
        parse,
        "[2026-01-02 03:04:05 TP1] world_size=2 rank=1 local_rank=5 "
        "distributed_init_method=tcp://h:1 backend=nccl",
    )
    (member,) = members(reading).values()
    assert (member.comm, member.size, member.rank, member.cuda) == ("engine:sglang tcp://h:1", 2, 1, 5)


def test_times_of_other_programs_are_not_sglang() -> None:
    text = "[2026-01-02 03:04:05,123] [INFO] [launch.py:1:main] nnodes=2\n[2026-01-02 03:04:05] hello\n"
    assert read(parse, text) == []


@settings(max_examples=50, deadline=None)
@given(anything("sglang-wrapped.log"))
def test_any_text_is_read_soundly(text: str) -> None:
    assert all(sound(reading) for reading in read(parse, text))


def test_c60_reads_as_its_truth_says() -> None:
    reading = case(parse, "C60-sglang-serverargs-wrapped.log")
    assert named(reading, "requested-size") == {"tensor": "16", "data": "1", "expert": "1"}
    assert (facts(reading, "nodes"), facts(reading, "node-rank")) == (["2"], ["0"])
    assert named(reading, "rendezvous") == {"dist-init": "10.0.1.53:5000"}
    options = named(reading, "option")
    assert (options["--base-gpu-id"], options["--watchdog-timeout"]) == ("0", "300")
    assert sorted(map(int, facts(reading, "rank-coordinate"))) == [2, 5, 6, 9]
    assert facts(reading, "abort") == []
