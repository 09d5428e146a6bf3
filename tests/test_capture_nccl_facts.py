"""The statements of an NCCL log in their closed vocabulary."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture import nccl_facts
from topocheck.probes.capture.nccl_facts import is_return, parse_duplicate, parse_facts

FACTS = {
    "NCCL version 2.27.3+cuda12.9": [("nccl-version", "2.27.3+cuda12.9")],
    "Using network NCCL RDMA Plugin v8": [("network", "NCCL RDMA Plugin v8")],
    "Using internal network Socket": [("network", "Socket")],
    "Assigned NET plugin IB to comm": [("network", "IB")],
    "NET/IB : Using [0]mlx5_2:1/IB/SHARP [1]mlx5_9:2/RoCE [RO]; OOB ib1:10.6.0.2<0>": [
        ("hca", "mlx5_2:1/IB/SHARP"),
        ("hca", "mlx5_9:2/RoCE"),
        ("oob", "ib1:10.6.0.2"),
    ],
    "NET/IB : Using [0]={[0] mlx5_2:1/IB, [1] mlx5_3:1/IB} [2]mlx5_4:1:0:1/IB [RO]; OOB e0:fe80::1%e0<0>": [
        ("hca", "mlx5_2:1/IB"),
        ("hca", "mlx5_3:1/IB"),
        ("hca", "mlx5_4:1:0:1/IB"),
        ("oob", "e0:fe80::1%e0"),
    ],
    "NET/IB : Made virtual device [4] name=mlx5_2+mlx5_3 speed=400000 ndevs=2": [
        ("nic-fused", "mlx5_2+mlx5_3")
    ],
    "NET/IB : Made virtual device [0] name=mlx5_2 speed=200000 ndevs=1": [],
    "NET/Socket : Using [0]eno1:10.6.0.2<0> [1]veth7:fe80::2ff:1%veth7<0>": [
        ("socket-interface", "eno1:10.6.0.2"),
        ("socket-interface", "veth7:fe80::2ff:1%veth7"),
    ],
    "Bootstrap: Using bond0.225:10.6.0.2<0>": [("socket-interface", "bond0.225:10.6.0.2")],
    "NET/IB : No device found.": [("no-rdma-device", "")],
    "Failed to open libibverbs.so[.1]": [("no-verbs", "libibverbs")],
    "Failed to open libmlx5.so[.1]": [],
    "NET/IB : Unable to open device mlx5_bond_1": [("device-open-failed", "mlx5_bond_1")],
    "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation": [
        ("plugin-missing", "libnccl-net.so")
    ],
    "NET/Plugin: Could not find: libnccl-net-x.so libnccl-net.so. Using internal network plugin.": [
        ("plugin-missing", "libnccl-net-x.so libnccl-net.so")
    ],
    "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open": [
        ("plugin-missing", "libnccl-net.so")
    ],
    "NET/Plugin : No plugin found, using internal implementation": [("plugin-missing", "")],
    "NET/Plugin: Failed to find ncclNetPlugin_v6 symbol.": [],
    "PROFILER/Plugin: Could not find: libnccl-profiler.so. ": [],
    "NET/Plugin: Loaded net plugin AWS Libfabric (v8)": [("plugin-loaded", "AWS Libfabric")],
    "NET/Plugin: Loaded coll plugin SHARP (v5)": [],
    "P2P plugin IBext": [("plugin-loaded", "IBext")],
    "NET/OFI Couldn't find any optimal provider": [
        ("ofi-no-provider", "NET/OFI Couldn't find any optimal provider")
    ],
    "NET/OFI Selected Provider is efa": [("ofi-provider", "efa")],
    "NET/OFI Selected provider is tcp;ofi_rxm, fabric is 10.0.0.0/16 (found 4 nics)": [
        ("ofi-provider", "tcp;ofi_rxm")
    ],
    "NET/OFI Running on P4d platform, Setting NCCL_TOPO_FILE environment variable to /opt/p4d.xml": [
        ("ofi-platform", "P4d"),
        ("env", "NCCL_TOPO_FILE=/opt/p4d.xml"),
    ],
    "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_2'": [("gdr-enabled", "mlx5_2")],
    "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_2' (no module)": [("gdr-disabled", "mlx5_2")],
    "GPU Direct RDMA Disabled for GPU 9b000 / HCA 0 (distance 5 > 3)": [
        ("gdr-disabled", "GPU 9b000 / HCA 0 (distance 5 > 3)")
    ],
    "GPU Direct RDMA Enabled for GPU 3 / HCA 2f (distance 4 <= 5), read 1 mode Default": [
        ("gdr-enabled", "GPU 3 / HCA 2f")
    ],
    "GPU Direct RDMA Disabled for GPU/0-9000 (rank 1) - NET/0-0 ( using PXN via GPU/0-1, distance 9 > 6)": [
        ("gdr-disabled", "GPU/0-9000 (rank 1) - NET/0-0 (distance 9 > 6)")
    ],
    "P2P is disabled between NVLINK connected GPUs 2 and 3. This should not": [
        ("p2p-disabled", "NVLINK GPUs 2 and 3")
    ],
    "P2P is disabled between connected GPUs 2 and 3. You can": [("p2p-disabled", "GPUs 2 and 3")],
    "Duplicate GPU detected : rank 6 and rank 4 both on CUDA device 9b000": [
        ("duplicate-gpu", "rank 6 rank 4 bus 0000:9b:00.0")
    ],
    "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1": [
        ("duplicate-gpu", "")
    ],
    "XML Import Channel : dev 3 not found.": [("topo-device-missing", "dev 3")],
    "NCCL_IB_DISABLE set by environment to 1.": [("env", "NCCL_IB_DISABLE=1")],
    "NCCL_IB_HCA set to =mlx5_2:1": [("env", "NCCL_IB_HCA==mlx5_2:1")],
    "NCCL_SOCKET_IFNAME set by environment to bond0.225": [("env", "NCCL_SOCKET_IFNAME=bond0.225")],
    "NCCL_HOSTID set by environment to rack7": [("env", "NCCL_HOSTID=rack7"), ("hostid", "rack7")],
    "NET/OFI Running on P5, Setting NCCL_TOPO_FILE environment variable to /opt/p5.xml": [
        ("env", "NCCL_TOPO_FILE=/opt/p5.xml")
    ],
    "MY_TOKEN set by environment to s3cret": [],
    "NET/OFI Setting RDMAV_FORK_SAFE environment variable to 1.": [],
    "Invalid value yes for NCCL_P2P_DISABLE, using default 0.": [("env-invalid", "NCCL_P2P_DISABLE=yes")],
    "Comm config Blocking set to 1": [],
}


@pytest.mark.parametrize("message", FACTS)
def test_every_statement_gives_its_facts(message: str) -> None:
    assert parse_facts("INFO", message) == FACTS[message]


def test_a_refused_verbs_call_counts_as_a_warning_only() -> None:
    message = "Call to ibv_create_cq failed with error Cannot allocate memory errno 12"
    assert parse_facts("WARN", message) == [("verbs-call-failed", "ibv_create_cq")]
    assert parse_facts("INFO", message) == []
    assert parse_facts("WARN", "Call to ibv_open_device failed") == [
        ("device-open-failed", "ibv_open_device")
    ]


@pytest.mark.parametrize(
    ("message", "returned"),
    [
        ("init.cc:903 -> 5", True),
        ("misc/ibvwrap.cc:40 -> 2 (Cannot allocate memory)", True),
        ("group.cc:69 -> 3 [Async thread]", True),
        ("group.cc:79 (ncclAsyncJobMain) -> 5 [Async thread]", True),
        ("init.cc:903 -> 0", False),
        ("init.cc:903 -> 7", False),
        ("Ring 00 : 3 -> 0 -> 1", False),
    ],
)
def test_an_error_handed_to_the_caller_is_told_from_progress(message: str, returned: bool) -> None:
    assert is_return(message) is returned


def test_every_kind_is_in_the_table_of_the_module() -> None:
    table = set(
        re.findall(
            r"`([a-z0-9-]+)`",
            "\n".join(
                line.split(" | ")[0]
                for line in (nccl_facts.__doc__ or "").splitlines()
                if line.startswith("| `")
            ),
        )
    )
    assert {kind for facts in FACTS.values() for kind, _ in facts} <= table
    assert {"abort", "warn", "mpi-rank", "ring-size", "verbs-call-failed"} <= table


@settings(max_examples=50, deadline=None)
@given(st.text(), st.sampled_from(sorted(FACTS)), st.integers(0, 80), st.integers(0, 20))
def test_damaged_statements_never_fail(noise: str, message: str, place: int, cut: int) -> None:
    damaged = message[:place] + noise + message[place + cut :]
    for level in ("INFO", "WARN"):
        assert all(kind for kind, _ in parse_facts(level, damaged))
    parse_duplicate(damaged)
    is_return(damaged)
