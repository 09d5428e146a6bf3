"""Which variables may leave a machine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.launchers import LAUNCHERS
from topocheck.launchers.allowed import PREFIXES, SECRET, VARIABLES, allowed

SECRETS = [
    "AWS_SECRET_ACCESS_KEY",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "SLURM_JWT",
    "VLLM_API_KEY",
    "WANDB_API_KEY",
    "RAY_REDIS_PASSWORD",
    "MUNGE_KEY",
    "NCCL_AUTH_TOKEN",
    "UCX_SECRET",
    "FI_OPX_JWT",
    "NCCL_PROXY_PASSWORD",
    "FI_API_KEY",
    "OMPI_MCA_orte_precondition_transports",
    "PMIX_SERVER_URI2",
    "PATH",
    "LD_PRELOAD",
    "",
]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_or_a_stranger_stays_where_it_is(name: str) -> None:
    assert not allowed(name)


@pytest.mark.parametrize(
    "name",
    [
        "RANK",
        "SLURM_STEP_GPUS",
        "CUDA_VISIBLE_DEVICES",
        "NCCL_IB_HCA",
        "NCCL_IB_PKEY",
        "UCX_IB_PKEY",
        "UCX_TLS",
        "UCX_NET_DEVICES",
        "FI_PROVIDER",
        "NCCL_MNNVL_ENABLE",
        "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME",
        "VLLM_PP_LAYER_PARTITION",
        "LWS_LEADER_ADDRESS",
        "PET_NODE_RANK",
    ],
)
def test_what_decides_placement_and_paths_is_kept(name: str) -> None:
    assert allowed(name)


def test_every_variable_of_every_launcher_is_kept_and_none_looks_like_a_secret() -> None:
    for launcher in LAUNCHERS.values():
        assert all(allowed(name) for name in launcher.variables)
    assert [name for name in VARIABLES if SECRET.search(name.upper())] == []


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["", *PREFIXES, "SLURM_", "VLLM_", "RAY_", "OMPI_MCA_"]),
    st.from_regex(r"[A-Z_]{0,12}", fullmatch=True),
    st.sampled_from(
        ["_TOKEN", "_KEY", "_SECRET", "PASSWORD", "_token", "_Password", "_API_KEY", "_TOKEN_FILE"]
    ),
)
def test_no_name_that_ends_like_a_secret_is_ever_kept(prefix: str, middle: str, end: str) -> None:
    assert not allowed(prefix + middle + end)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_a_name_that_is_on_no_list_is_not_kept(name: str) -> None:
    assert not allowed(name) or name in VARIABLES or name.startswith(PREFIXES)
