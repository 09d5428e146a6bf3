"""Environment variables: the allow-list alone, by listing, and nothing that is no listing."""

from __future__ import annotations

import pytest
from engine_evidence import CAPTURES, anything, case, named, notes, one, read
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.environment_listing import parse
from topocheck.probes.capture.text import read_text

HUSH = "hunter2"


def variables(text: str) -> dict[str, str]:
    (snapshot,) = one(parse, text).snapshots
    return snapshot.environment


def test_each_listing_is_of_its_own_host() -> None:
    first, second = parse(read_text(CAPTURES / "environment-two-pods.txt"))
    (a,), (b,) = first.snapshots, second.snapshots
    assert (a.identity.host.name, b.identity.host.name) == ("job-a", "job-b")
    assert a.environment == {
        "NCCL_IB_HCA": '"mlx5_2"',  # env prints values as they are: these quotes are in it
        "NCCL_SOCKET_IFNAME": "eth4",
        "MASTER_ADDR": "job-a",
        "MASTER_PORT": "29611",
    }
    assert b.environment == {"NCCL_IB_HCA": "mlx5_3", "NCCL_SOCKET_IFNAME": "eth4"}
    assert first.notes == ()
    assert named(first, "rendezvous") == {"master": "job-a:29611"}


def test_a_file_of_assignments_is_a_listing() -> None:
    text = "# of the pod\nNCCL_DEBUG=INFO\nexport NCCL_IB_HCA='mlx5_1' # rail 1\nUNKNOWN_TO_US=1\n"
    assert variables(text) == {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5_1"}


def test_the_section_of_collect_env_ends_at_its_blank_line() -> None:
    text = (CAPTURES / "collect-env-sections.txt").read_text(encoding="utf-8")
    assert variables(text + "\nNCCL_NET=Socket\n") == {"NCCL_DEBUG": "INFO", "VLLM_HOST_IP": "10.6.0.2"}
    assert named(one(parse, text), "option") == {"VLLM_HOST_IP": "10.6.0.2"}


def test_a_dict_of_variables_is_a_listing() -> None:
    assert variables("runtime_env env_vars: {'NCCL_DEBUG': 'INFO', 'MY_TOKEN': 'x'}") == {
        "NCCL_DEBUG": "INFO"
    }
    assert read(parse, "resources {'GPU': 4.0, 'node:10.0.0.1': 1.0}") == []


def test_two_values_contradict_each_other_and_the_same_value_does_not() -> None:
    reading = one(parse, "NCCL_DEBUG=INFO\nNCCL_DEBUG=WARN\nNCCL_NET=IB\nNCCL_NET=IB \n")
    assert notes(reading) == [(2, "contradictory")]
    (snapshot,) = reading.snapshots
    assert snapshot.environment["NCCL_DEBUG"] == "INFO"


def test_listings_of_several_processes_keep_what_they_share() -> None:
    one_process = "RANK={0}\nLOCAL_RANK={0}\nCUDA_VISIBLE_DEVICES={0}\nMASTER_ADDR=h\nWORLD_SIZE=2\n"
    reading = one(parse, "$ srun env | sort\n" + one_process.format(0) + one_process.format(1))
    (snapshot,) = reading.snapshots
    assert snapshot.environment == {"MASTER_ADDR": "h", "WORLD_SIZE": "2"}
    assert [kind for _, kind in notes(reading)] == ["ignored"]


def test_the_host_is_the_one_that_the_variables_name_but_not_the_submitting_shells() -> None:
    def host(text: str) -> str | None:
        return one(parse, text).snapshots[0].identity.host.name

    assert host("HOSTNAME=pod-3\nNCCL_DEBUG=INFO\n") == "pod-3"
    assert host("HOSTNAME=login\nSLURM_JOB_NODELIST=n[1-2]\n") is None
    assert host("HOSTNAME=login\nSLURMD_NODENAME=n2\n") == "n2"


def test_values_that_a_shell_computes_are_not_shown() -> None:
    reading = one(parse, "export NCCL_DEBUG=INFO\nexport MASTER_ADDR=$(hostname)\nexport NCCL_NET=$NET\n")
    assert reading.snapshots[0].environment == {"NCCL_DEBUG": "INFO"}
    assert notes(reading) == [(2, "ignored"), (3, "ignored")]


@pytest.mark.parametrize(
    "text",
    [
        "node-a:1:1 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5_0\nNCCL_DEBUG=INFO torchrun x.py\n",
        "#!/bin/bash\n#SBATCH --nodes=2\nsource env.sh\nexport NCCL_DEBUG=INFO\nsrun python train.py\n",
        "RANK=0 STAGE=0 LAYERS=5 [0, 5) STAGE_PARAMS=1\n",
        "| NCCL_DEBUG=INFO | 1 |\n|---|---|\n",
        "HOME=/root\nPATH=/bin\n",
        "NCCL_DEBUG=INFO vllm serve /m\n",
    ],
)
def test_a_line_that_happens_to_be_there_is_no_listing(text: str) -> None:
    assert read(parse, text) == []


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["NCCL_NET", "RANK", "MY_SECRET", "NCCL_API_KEY", "UCX_AUTH_TOKEN", "FI_PASSWORD", "OPENAI_KEY"]
        ),
        min_size=1,
    ),
    st.sampled_from(["{}={}", "export {}={}", 'declare -x {}="{}"', "{{'{}': '{}'}}"]),
)
def test_no_secret_is_ever_taken(names: list[str], form: str) -> None:
    lines = [form.format(name, "x" if name in {"NCCL_NET", "RANK"} else HUSH) for name in names]
    for reading in read(parse, "\n".join(lines)):
        assert HUSH not in repr(reading)


@settings(max_examples=50, deadline=None)
@given(anything("environment-two-pods.txt", "collect-env-sections.txt", "nccl-2.30.log"))
def test_any_text_is_read_and_gives_clean_values(text: str) -> None:
    for reading in read(parse, text):
        (snapshot,) = reading.snapshots
        assert all(value == value.strip() for value in snapshot.environment.values())


def test_c05_reads_as_its_truth_says() -> None:
    reading = case(parse, "C05-vllm-collectenv-tail.txt")
    (snapshot,) = reading.snapshots
    assert snapshot.environment == {
        "NCCL_SOCKET_IFNAME": "ib0",
        "NCCL_IB_HCA": "mlx5_0",
        "NCCL_IB_DISABLE": "0",
        "VLLM_HOST_IP": "10.0.10.1",
    }
    assert reading.notes == ()


@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [
        ("inputs/env-gid-index-4.txt", "NCCL_IB_GID_INDEX", "4"),
        ("inputs/env-hca-mlx5_3-4.txt", "NCCL_IB_HCA", "mlx5_3,mlx5_4"),
        ("C45-nccl-gdr-disabled.log", "NCCL_NET_GDR_LEVEL", "SYS"),
    ],
)
def test_the_shared_listings_read_as_they_stand(name: str, variable: str, value: str) -> None:
    (snapshot,) = case(parse, name).snapshots
    assert snapshot.environment[variable] == value
