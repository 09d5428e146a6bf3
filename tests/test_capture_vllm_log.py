"""vLLM's start-up log: what was asked for, what is in force, which ranks run, what Ray gave."""

from __future__ import annotations

import pytest
from engine_evidence import anything, case, facts, fixture, hosts, members, named, notes, one, read, sound
from hypothesis import given, settings

from topocheck.probes.capture.vllm_log import parse

RANK = "world_size=8 rank={} local_rank={} distributed_init_method={} backend=nccl"


def test_arguments_are_requests_and_the_engine_line_is_in_force() -> None:
    reading = fixture(parse, "vllm-mp-two-nodes.log")
    assert named(reading, "requested-size") == {"tensor": "2", "pipeline": "2"}
    assert named(reading, "size") == {"tensor": "2", "pipeline": "2", "decode_context": "1"}
    assert facts(reading, "engine-version") == ["0.24.0"]
    assert facts(reading, "nodes") == ["2"]
    assert facts(reading, "layers") == ["31,30"]
    assert named(reading, "rendezvous") == {"master": "10.8.0.11", "dist-init": "10.8.0.11:29501"}
    options = named(reading, "option")
    assert (options["--max-num-seqs"], options["--distributed-executor-backend"]) == ("96", "mp")
    assert notes(reading) == []


def test_the_lines_of_workers_give_ranks_devices_and_coordinates() -> None:
    reading = fixture(parse, "vllm-mp-two-nodes.log")
    comm = "engine:vllm tcp://10.8.0.11:29501"
    found = members(reading)
    assert found.keys() == {(None, comm, 0), (None, comm, 1)}
    assert [(member.size, member.cuda, member.pid) for member in found.values()] == [(4, 0, 751), (4, 1, 752)]
    assert named(reading, "coordinates") == {"0": "data 0, pipeline 0, context 0, tensor 0"}
    assert facts(reading, "rank-coordinate") == ["0", "0", "1"]
    software = hosts(reading)[None].software
    assert (software.engine, software.engine_version, software.nccl) == ("vllm", "0.24.0", "2.27.3")


def test_a_data_size_of_one_in_the_engine_line_says_nothing() -> None:
    line = "INFO 01-02 03:04:05 [core.py:58] Initializing a V1 LLM engine (v0.11.2) with config: model='m', "
    dense = one(parse, line + "data_parallel_size=1, tensor_parallel_size=2, use_async=True")
    mixture = one(parse, line + "data_parallel_size=4, tensor_parallel_size=2, use_async=True")
    assert named(dense, "size") == {"tensor": "2"}
    assert named(mixture, "size") == {"data": "4", "tensor": "2"}


def test_ray_reserves_fewer_gpus_than_tp_is_wide_and_the_nodes_may_have_more() -> None:
    reading = fixture(parse, "vllm-ray-reserved.log")
    first, second = "c0ffee00" * 7, "facade00" * 7
    nodes = hosts(reading)
    assert named(reading, "reserved-gpus") == {first: "2", second: "2"}
    assert [len(nodes[node].identity.gpus) for node in (first, second)] == [2, 2]
    assert {nodes[node].coverage.gpus for node in (first, second)} == {"part"}
    assert named(reading, "requested-size") == {"tensor": "4"}
    assert named(reading, "bundles") == {"10.8.0.21": "4"}


def test_a_worker_of_ray_is_on_the_host_of_its_address() -> None:
    reading = fixture(parse, "vllm-ray-reserved.log")
    comm = "engine:vllm tcp://10.8.0.21:40111"
    assert members(reading).keys() == {("10.8.0.22", comm, 2), ("10.8.0.22", comm, 3)}
    assert list(named(reading, "group-spans-nodes")) == ["tensor"]


def test_two_replicas_are_two_torch_worlds() -> None:
    text = "\n".join(
        f"(Worker pid={pid}) INFO 01-02 03:04:05 [parallel_state.py:1] "
        + RANK.format(0, 0, f"tcp://h:{port}")
        for pid, port in ((11, 29500), (12, 29600))
    )
    assert {comm for _, comm, _ in members(one(parse, text))} == {
        "engine:vllm tcp://h:29500",
        "engine:vllm tcp://h:29600",
    }


def test_a_rank_that_its_world_cannot_have_is_contradictory() -> None:
    reading = one(parse, RANK.format(8, 0, "env://"))
    assert members(reading) == {}
    assert notes(reading) == [(1, "contradictory")]


def test_arguments_that_are_cut_lose_their_last_value() -> None:
    reading = one(
        parse, "INFO [u.py:1] non-default args: {'pipeline_parallel_size': 2, 'tensor_parallel_size': 1"
    )
    assert named(reading, "requested-size") == {"pipeline": "2"}
    assert notes(reading) == [(1, "cut")]


@pytest.mark.parametrize(
    "words",
    [
        "A 1, B 2. Please make sure to set `CUDA_DEVICE_ORDER=PCI_BUS_ID` to avoid unexpected behavior.",
        "\nA 1, B 2\nPlease make sure to set `CUDA_DEVICE_ORDER=PCI_BUS_ID`",
    ],
)
def test_mixed_models_mean_that_the_device_order_is_not_that_of_the_bus(words: str) -> None:
    reading = one(
        parse, f"WARNING 06-17 14:15:03 [cuda.py:435] Detected different devices in the system: {words}"
    )
    assert facts(reading, "gpu-models") == ["A 1, B 2"]
    assert named(reading, "option") == {"CUDA_DEVICE_ORDER": "not PCI_BUS_ID"}


def test_headless_nodes_name_the_head() -> None:
    reading = one(
        parse,
        "INFO 01-02 03:04:05 [serve.py:7] Launching vLLM (v0.33.0) headless multiproc executor, with head "
        "node address 10.0.0.9:29501 for torch.distributed process group.\n"
        "INFO 01-02 03:04:05 [serve.py:8] Launching 2 data parallel engine(s) in headless mode, with head "
        "node address tcp://10.0.0.9:13345.\n"
        "INFO 01-02 03:04:05 [p.py:9] Inferred data_parallel_rank 1 from node_rank 3\n",
    )
    assert named(reading, "rendezvous") == {"master": "10.0.0.9:29501", "dp-master": "10.0.0.9:13345"}
    assert facts(reading, "node-rank") == ["3"]


def test_debug_lines_of_sglang_and_lines_of_nccl_are_left_alone() -> None:
    other = "[2026-01-02 03:04:05 TP1] " + RANK.format(1, 1, "tcp://h:1")
    assert read(parse, other + "\nh:1:1 [0] NCCL INFO vLLM is using nccl==2.1") == []


@settings(max_examples=50, deadline=None)
@given(anything("vllm-mp-two-nodes.log", "vllm-ray-reserved.log", "nccl-2.30.log"))
def test_any_text_is_read_soundly(text: str) -> None:
    assert all(sound(reading) for reading in read(parse, text))


def test_c02_reads_as_its_truth_says() -> None:
    reading = case(parse, "C02-vllm-ray-tp2-1gpu-nodes.log")
    assert named(reading, "requested-size") == {"tensor": "2"}
    assert set(facts(reading, "reserved-gpus")) == {"1"}
    names = {host[:8]: len(snapshot.identity.gpus) for host, snapshot in hosts(reading).items() if host}
    assert names == {"aaaaaaaa": 1, "bbbbbbbb": 1}


def test_c05_c19_c50_c61_read_as_their_truth_says() -> None:
    assert named(case(parse, "C05-vllm-collectenv-tail.txt"), "rendezvous") == {
        "dist-init": "127.0.0.1:29555"
    }
    gloo = case(parse, "C50-vllm-gloo-loopback.log")
    assert members(gloo).keys() == {(None, "engine:vllm tcp://10.0.7.7:34773", 0)}
    assert facts(gloo, "world") == ["16"]
    for name in ("C19-gpu-order-lists.txt", "C61-collectenv-new-mixed.txt"):
        models = "NVIDIA GeForce RTX 5090, NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 3090"
        assert facts(case(parse, name), "gpu-models") == [models]
