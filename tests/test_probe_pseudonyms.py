"""Snapshots that can be shown to strangers."""

from __future__ import annotations

import ipaddress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.portreading import family_of
from topocheck.probes.node.pseudonyms import Pseudonyms, redacted
from topocheck.snapshot import (
    SCHEMA,
    At,
    Coverage,
    Fabric,
    FullSnapshot,
    Gid,
    GpuId,
    Hardware,
    Host,
    Identity,
    Limits,
    Netdev,
    Network,
    NicId,
    NicNetwork,
    NicShape,
    Platform,
    PortNetwork,
    PortState,
    ProbeFault,
    RankClaim,
    Software,
    State,
)

KEY = b"of this job"
BOOT = "0b6f3a52-8d3e-4b7a-9c11-00000000c0de"
ZERO = "0" * 32
SECRETS = (
    "gpu-17",
    "corp.example",
    "gpu-0",
    BOOT,
    "9f" * 16,
    "4711000815",
    "88aa77bb-3344-4555-8666-777788889999",
    "0a7f:bc12:45ef:d23b",
    "172.16.40",
    "fd12:3456",
    "ab:cd:ef",
    "7c" * 32,
    "alice",
    "chassis-9",
    "a1b2c3d4e5f60718293a4b5c6d7e8f90",
)


def snapshot(**environment: str) -> FullSnapshot:
    """A node with an identity in every place that may hold one."""
    return FullSnapshot(
        schema=SCHEMA,
        token="1f" * 8,
        run="run-7",
        coverage=Coverage(gpus="all"),
        identity=Identity(
            host=Host(
                name="gpu-17.corp.example",
                boot_id=BOOT,
                machine_id="9f" * 16,
                aliases=("gpu-17", "172.16.40.17"),
            ),
            gpus=(
                GpuId(
                    uuid="GPU-88aa77bb-3344-4555-8666-777788889999",
                    bus="0000:1b:00.0",
                    serial="4711000815",
                    platform=Platform(chassis="chassis-9", slot=3),
                ),
            ),
            nics=(NicId(name="mlx5_0", bus="0000:1c:00.0", guid="0a7f:bc12:45ef:d23b"),),
        ),
        hardware=Hardware(nics=(NicShape(name="mlx5_0", firmware="28.39.1002"),)),
        environment={"NCCL_DEBUG": "INFO", **environment},
        own_environments=({"NCCL_IB_HCA": "mlx5_0", "NCCL_SOCKET_IFNAME": "gpu-17.corp.example"}, {}),
        network=Network(
            nics=(
                NicNetwork(
                    nic=0,
                    ports=(
                        PortNetwork(gids=(Gid(index=0, family="link-local"), Gid(index=3, family="ipv4"))),
                    ),
                ),
            ),
            netdevs=(Netdev(name="eth0"), Netdev(name="lo")),
        ),
        fabric=(
            Fabric(cluster_uuid="a1b2c3d4e5f60718293a4b5c6d7e8f90", clique=4, state="Completed"),
            Fabric(cluster_uuid=ZERO, clique=0),
        ),
        ranks=(RankClaim(rank=0, at=At(source="/home/alice/env.gpu-17.txt", line=3)),),
        software=Software(driver="570.86.15", nvml="12.570.86.15"),
        limits=Limits(scope="container", container="7c" * 32),
        state=State(
            addresses=(
                ("172.16.40.17/24", "fd12:3456::17/64", "fe80::5/64"),
                ("127.0.0.1/8", "::1/128"),
            ),
            ports=(
                PortState(
                    nic=0,
                    gids=(
                        "fe80:0000:0000:0000:0a7f:bc12:45ef:d23b",
                        "0000:0000:0000:0000:0000:ffff:ac10:2811",
                    ),
                ),
            ),
        ),
        faults=(
            ProbeFault(part="network", kind="absent", path="/home/alice/x", reason="on gpu-17, 172.16.40.18"),
        ),
        end="1f" * 8,
    )


def test_no_identity_is_left_and_everything_else_is() -> None:
    env = {
        "MASTER_ADDR": "gpu-00.corp.example",
        "SLURM_NODELIST": "gpu-[00,17]",
        "PET_RDZV_ENDPOINT": "gpu-00:29500",
        "VLLM_HOST_IP": "172.16.40.17",
        "NCCL_SOCKET_IFNAME": "eth0",
    }
    before = snapshot(**env)
    after = redacted(before, KEY)
    text = msgspec.json.encode(after).decode()
    assert [secret for secret in SECRETS if secret in text] == []
    kept = ("schema", "token", "end", "run", "coverage", "hardware", "software")
    assert [getattr(after, part) for part in kept] == [getattr(before, part) for part in kept]
    assert after.environment["NCCL_DEBUG"] == "INFO"
    assert after.environment["NCCL_SOCKET_IFNAME"] == "eth0"
    assert [list(own) for own in after.own_environments] == [["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"], []]
    assert after.own_environments[0]["NCCL_IB_HCA"] == "mlx5_0"
    assert after.environment["PET_RDZV_ENDPOINT"].endswith(":29500")
    assert [gpu.bus for gpu in after.identity.gpus] == ["0000:1b:00.0"]
    assert after.fabric[1].cluster_uuid == ZERO
    assert after.state.addresses[1] == before.state.addresses[1]
    assert after.network == before.network


def test_what_is_equal_stays_equal_wherever_it_stands() -> None:
    env = {"SLURM_NODELIST": "gpu-[00,17]", "SLURMD_NODENAME": "gpu-17", "MASTER_ADDR": "gpu-00"}
    after = redacted(snapshot(**env), KEY)
    host = after.identity.host
    first = (host.name or "").partition(".")[0]
    assert host.aliases[0] == first
    assert after.environment["SLURM_NODELIST"] == f"{after.environment['MASTER_ADDR']},{first}"
    assert after.environment["SLURMD_NODENAME"] == first
    assert f"env.{first}.txt" in (after.ranks[0].at or At(source="")).source
    address = host.aliases[1]
    assert (after.state.addresses[0] or ())[0] == f"{address}/24"
    gids = after.state.ports[0].gids or ()
    assert str(ipaddress.IPv6Address(gids[1]).ipv4_mapped) == address
    assert [family_of(digits) for digits in gids] == ["link-local", "ipv4"]


def test_one_key_gives_one_pseudonym_and_another_key_another() -> None:
    assert redacted(snapshot(), KEY) == redacted(snapshot(), KEY)
    assert redacted(snapshot(), KEY).identity != redacted(snapshot(), b"of another").identity


@pytest.mark.parametrize("name", ["all", "network", "absent", "container", "ACTIVE", "ipv4"])
def test_a_host_may_be_called_like_a_word_of_the_form(name: str) -> None:
    named = msgspec.structs.replace(snapshot(), identity=Identity(host=Host(name=name)))
    after = redacted(named, KEY)
    assert after.faults[0].kind == "absent"
    assert after.faults[0].part == "network"
    assert after.limits.scope == "container"
    assert after.network == snapshot().network
    assert after.identity.host.name != name


@pytest.mark.parametrize(
    "text",
    [
        "0000:1b:00.0",
        "12:00:00",
        "mlx5_0:1",
        "570.86.15",
        "::",
        "localhost",
        "127.0.0.1",
        "1.2.3.4.5",
        "999.1.1.1",
    ],
)
def test_what_is_no_identity_stays(text: str) -> None:
    assert Pseudonyms(KEY).text(text) == text


ADDRESSES = st.ip_addresses(v=4).filter(lambda a: not (a.is_loopback or a.is_link_local or a.is_unspecified))


@settings(max_examples=50, deadline=None)
@given(ADDRESSES, ADDRESSES)
def test_addresses_share_what_they_shared(a: ipaddress.IPv4Address, b: ipaddress.IPv4Address) -> None:
    names = Pseudonyms(KEY)
    new_a, new_b = (int(ipaddress.IPv4Address(names.ipv4(str(one)))) for one in (a, b))
    assert (32 - (new_a ^ new_b).bit_length()) == (32 - (int(a) ^ int(b)).bit_length())


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=20))
def test_any_text_is_redacted_to_a_snapshot(name: str, value: str, alias: str) -> None:
    some = FullSnapshot(
        schema=SCHEMA,
        identity=Identity(host=Host(name=name, aliases=(alias,))),
        environment={"MASTER_ADDR": value, "SLURM_NODELIST": value, "NCCL_IB_HCA": value},
        faults=(ProbeFault(part="x", kind="broken", path=value, reason=name),),
    )
    after = redacted(some, KEY)
    assert msgspec.convert(msgspec.to_builtins(after), FullSnapshot) == after
