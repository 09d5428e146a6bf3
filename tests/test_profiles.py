"""Profiles: chosen by what machines show, decide what they say, give way to the policy, and are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from build import (
    AT,
    GB200,
    H100,
    TWO,
    answer,
    claims,
    completed,
    inventory,
    meshed,
    nics,
    pair,
    paired,
    placed,
    plan,
    report,
    snap,
)
from rooted import MACHINES
from shell import topocheck

from topocheck.answer import Declared
from topocheck.answer import answer as answered
from topocheck.checklist import Gate
from topocheck.errors import PlanError
from topocheck.plan import ProfileChoice
from topocheck.planfile import parse_plan
from topocheck.profiles import PROFILES, profiles_of
from topocheck.snapshot import Fabric, FullSnapshot, GpuShape, NcclFile, NvLink, Software

ALONE = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n"
TRAYS = "engine: vllm\nparallel: {tensor: 8}\nnodes: [node-a, node-b]\n"
VM = Software(hypervisor="Some Cloud p9")
NVL4 = (Fabric(cluster_uuid="0" * 32, clique=0, state="Completed", status="Success"),)


def at_most(count: int, kind: str = "NV18") -> Any:
    """Every pair joined alike."""
    return lambda _a, _b: kind if count else "SYS"


def cube(a: int, b: int) -> str:
    """Hybrid cube mesh: quads are joined, and each GPU to one of the other quad."""
    return "NV2" if a // 4 == b // 4 else "NV1" if abs(a - b) == 4 else "SYS"


def shown(count: int, model: str | None, **parts: Any) -> FullSnapshot:
    """One node with so many GPUs of a model; links by switch unless said."""
    return snap("node-a", **({"count": count, "model": model, "numa": [None] * count} | parts))


def names(*snapshots: FullSnapshot, text: str = ALONE) -> list[str]:
    """Profiles in force on the first node."""
    placement = placed(text, *snapshots)
    return [one.profile.name for one in profiles_of(placement, placement.nodes[0])]


BARE: dict[str, Any] = {"links": lambda _a, _b: "SYS", "switch": None, "nvlinks": None}

KINDS: list[tuple[str, FullSnapshot]] = [
    ("hgx-h100", shown(8, H100)),
    ("hgx-h100", shown(8, "NVIDIA H20-3e")),
    ("hgx-h100", shown(8, H100, switch=None)),
    ("hgx-h100", shown(8, H100, switch=None, links=None, fabric=NVL4)),
    ("hgx-h200", shown(8, "NVIDIA H200")),
    ("hgx-b200", shown(8, "NVIDIA B200")),
    ("hgx-a100", shown(8, "NVIDIA A100-SXM4-80GB", switch=None, links=at_most(1, "NV12"))),
    ("hgx-4", shown(4, "NVIDIA A100-SXM4-40GB", switch=None, links=at_most(1, "NV4"))),
    ("dgx-1v", shown(8, "Tesla V100-SXM2-32GB", switch=False, links=cube)),
    ("nvl72", shown(4, GB200, fabric=completed())),
    ("gh200", shown(1, "NVIDIA GH200 480GB", switch=None)),
    ("gb10", shown(1, "NVIDIA GB10", switch=None)),
    ("bridged", shown(4, "NVIDIA A40", switch=None, links=paired)),
    ("bridged", shown(2, "NVIDIA H100 NVL", switch=None, links=at_most(1, "NV12"))),
    ("pcie", shown(4, "NVIDIA L40S", **BARE)),
    ("", shown(4, GB200, switch=None, links=at_most(1, "NV6"), fabric=NVL4)),
    ("", shown(4, "NVIDIA A40", **BARE)),
    ("", shown(8, None)),
    ("", shown(8, H100, switch=None, links=None)),
    ("", snap("node-a", count=2, models=[H100, None])),
    ("", snap("node-a", count=0)),
]


@pytest.mark.parametrize(("name", "machine"), KINDS, ids=[f"{n}-{name}" for n, (name, _) in enumerate(KINDS)])
def test_a_machine_is_what_it_shows(name: str, machine: FullSnapshot) -> None:
    assert names(machine) == ([name] if name else [])


@pytest.mark.parametrize("around", [["cloud-vm"], []])
def test_a_virtual_machine_that_hides_its_tree_has_a_profile_beside_that_of_its_boards(
    around: list[str],
) -> None:
    near = None if around else "PIX"
    assert names(shown(8, H100, near=near, software=VM)) == ["hgx-h100", *around]
    assert names(shown(8, H100, near="PHB", software=VM)) == ["hgx-h100", "cloud-vm"]
    assert names(shown(8, H100, near=None)) == ["hgx-h100"]
    assert names(shown(8, H100, near=None, ports=(), software=VM)) == ["hgx-h100"]


def test_real_captures_are_what_they_are_of(tmp_path: Path) -> None:
    if not MACHINES.exists():
        pytest.skip("captures of real machines are absent")
    (tmp_path / "plan.yaml").write_text("engine: torch\nnodes: [node-a]\n")
    for name, files in (
        ("hgx-b200", ["hgx-b200-8x-topo-m.txt", "hgx-b200-8x-L.txt", "hgx-b200-8x-nvlink-s.txt"]),
        ("hgx-h100", ["thamada-h100-sxm-8x-q.txt"]),
        ("pcie", ["telegraf-tesla-t4-q-x.xml"]),
    ):
        given = [f"node-a={MACHINES / 'nvidia_smi' / file}" for file in files]
        ran = topocheck("verify", "--plan", tmp_path / "plan.yaml", "--json", "-", *given)
        assert [one["name"] for one in json.loads(ran.out)["profiles"]] == [name]


def test_the_names_of_the_plan_are_those_of_the_profiles() -> None:
    assert set(get_args(ProfileChoice)) == {"auto", "none", *PROFILES}
    with pytest.raises(PlanError, match=r"plan.yaml:4: unknown value 'hgx-h10' .*did you mean 'hgx-h100'"):
        parse_plan(f"{ALONE}policy: {{profile: hgx-h10}}\n", "plan.yaml")


def test_a_policy_names_a_profile_or_none() -> None:
    machine = shown(8, H100)
    assert names(machine, text=f"{ALONE}policy: {{profile: pcie}}\n") == ["pcie"]
    assert names(machine, text=f"{ALONE}policy: {{profile: none}}\n") == []
    assert names(machine, text=f"{ALONE}policy: {{profile: auto}}\n") == ["hgx-h100"]
    assert names(text=f"{ALONE}policy: {{profile: gb10}}\n") == ["gb10"]


@pytest.mark.parametrize(
    ("count", "policy", "scope", "verdict"),
    [
        (7, "", "host", "fail"),
        (4, "", "host", "not-applicable"),
        (7, "policy: {profile: none}\n", "host", "not-applicable"),
        (7, "policy: {expect_gpus: 7}\n", "host", "pass"),
        (8, "policy: {expect_gpus: 7}\n", "host", "fail"),
        (7, "policy: {profile: nvl72}\n", "host", "fail"),
        (7, "", "container", "not-applicable"),
    ],
)
def test_a_board_that_shows_fewer_gpus_than_it_has_is_told(
    count: int, policy: str, scope: str, verdict: str
) -> None:
    machine = msgspec.structs.replace(shown(count, H100), ranks=claims(range(4), size=4))
    gpus = tuple(msgspec.structs.replace(gpu, scope=scope) for gpu in machine.identity.gpus)
    machine = msgspec.structs.replace(machine, identity=msgspec.structs.replace(machine.identity, gpus=gpus))
    found = answer(report(ALONE + policy, machine), "VER007")
    assert found.verdict == verdict
    if verdict == "fail":
        assert f"node-a shows {count} GPUs" in found.findings[0].message


def test_one_lost_gpu_in_a_job_of_many_nodes_is_told_once() -> None:
    text = "engine: vllm\nparallel: {tensor: 4, pipeline: 3}\nnodes: [node-a, node-b, node-c]\n"

    def subjects(*counts: int) -> list[list[str]]:
        nodes = [
            snap(f"node-{name}", range(4 * n, 4 * n + 4), count=count, numa=[None] * count, size=12)
            for n, (name, count) in enumerate(zip("abc", counts, strict=True))
        ]
        return [finding.subjects for finding in answer(report(text, *nodes), "VER007").findings]

    assert subjects(8, 7, 8) == [["node-b"]]
    assert subjects(7, 7, 7) == [["node-a", "node-b", "node-c"]]


@pytest.mark.parametrize(
    ("scopes", "accused"),
    [
        (("host", "container", "container"), ["node-a"]),
        (("container", "host", "host"), ["node-b", "node-c"]),
    ],
)
def test_a_container_that_sees_fewer_gpus_is_not_like_a_host_that_lost_one(
    scopes: tuple[str, ...], accused: list[str]
) -> None:
    text = "engine: vllm\nparallel: {tensor: 4, pipeline: 3}\nnodes: [node-a, node-b, node-c]\n"
    nodes = []
    for n, scope in enumerate(scopes):
        view = snap(f"node-{'abc'[n]}", range(4 * n, 4 * n + 4), count=7, numa=[None] * 7, size=12)
        gpus = tuple(msgspec.structs.replace(gpu, scope=scope) for gpu in view.identity.gpus)
        nodes.append(
            msgspec.structs.replace(view, identity=msgspec.structs.replace(view.identity, gpus=gpus))
        )
    assert [one.subjects for one in answer(report(text, *nodes), "VER007").findings] == [accused]


def trays(uuid: str = "a" * 32, other: str = "a" * 32, state: str = "Completed") -> list[FullSnapshot]:
    """Two trays of four GPUs and what they report of their domain."""
    first, second = (completed(one, state=state) for one in (uuid, other))
    return [
        snap("node-a", range(4), model=GB200, fabric=first),
        snap("node-b", range(4, 8), model=GB200, fabric=second),
    ]


@pytest.mark.parametrize(
    ("nodes", "policy", "verdict", "severities"),
    [
        (trays(), "", "fail", ["warning"]),
        (trays(), "policy: {profile: nvl72}\n", "pass", []),
        (trays(), "policy: {profile: none}\n", "fail", ["warning"]),
        (trays(), "policy: {tensor_domain: node}\n", "fail", ["error"]),
        (trays("a" * 32, "b" * 32), "", "fail", ["error"]),
        (trays(state="In Progress"), "policy: {profile: nvl72}\n", "unknown", []),
        (pair(), "", "fail", ["error"]),
        (pair(), "policy: {profile: nvl72}\n", "fail", ["error"]),
    ],
)
def test_a_tensor_group_may_span_the_trays_of_a_rack_and_not_hgx_boxes(
    nodes: list[FullSnapshot], policy: str, verdict: str, severities: list[str]
) -> None:
    found = answer(report(TRAYS + policy, *nodes), "TP001")
    assert (found.verdict, [finding.severity for finding in found.findings]) == (verdict, severities)


ONE: dict[str, Any] = {"count": 1, "size": 2, "nvlinks": [0], "switch": None, "links": None}


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("NVIDIA GH200 480GB", "GH200 alone on its node has no NVLink"),
        ("NVIDIA GB10", "NVIDIA GB10 has no NVLink"),
    ],
)
def test_superchips_alone_on_their_nodes_have_no_nvlink_to_ask_for(model: str, reason: str) -> None:
    text = "engine: vllm\nparallel: {tensor: 2}\nnodes: [node-a, node-b]\n"
    found = report(text, *[snap(f"node-{name}", [n], model=model, **ONE) for n, name in enumerate("ab")])
    assert {answer(found, rule).reason for rule in ("NV001", "TP002")} == {reason}
    assert [finding.severity for finding in answer(found, "TP001").findings] == ["warning"]
    assert not [rule.id for rule in found.rules for finding in rule.findings if finding.severity == "error"]


def test_one_gpu_of_a_board_in_a_virtual_machine_lacks_no_links() -> None:
    text = "engine: torch\nparallel: {data: 2}\nnodes: [node-a, node-b]\n"

    def lone(software: Software) -> list[FullSnapshot]:
        return [
            snap(f"node-{n}", [k], count=1, size=2, nvlinks=[0], near="PIX", software=software, fabric=NVL4)
            for k, n in enumerate("ab")
        ]

    assert answer(report(text, *lone(VM)), "NV001").verdict == "not-applicable"
    assert answer(report(text, *lone(Software())), "NV001").verdict == "fail"


def test_a_plan_may_say_that_boards_are_without_nvlink() -> None:
    cards = [snap("node-a", range(4), size=4, model="NVIDIA A100 80GB PCIe", **BARE)]
    assert answer(report(ALONE, *cards), "TP002").verdict == "fail"
    found = report(f"{ALONE}policy: {{profile: pcie}}\n", *cards)
    assert {answer(found, rule).verdict for rule in ("NV001", "TP002")} == {"not-applicable"}


def test_a_plan_may_say_what_boards_are_that_do_not_show_their_model() -> None:
    links = tuple(NvLink(link=n, active=n != 3, remote="switch") for n in range(18))
    shapes = tuple(GpuShape(links=links, nvswitch=True) for _ in range(4))
    machine = snap("node-a", range(4), size=4)
    hardware = msgspec.structs.replace(machine.hardware, gpus=shapes)
    machine = msgspec.structs.replace(machine, hardware=hardware)
    assert answer(report(ALONE, machine), "NV001").verdict == "pass"  # all are alike
    found = answer(report(f"{ALONE}policy: {{profile: hgx-h100}}\n", machine), "NV001")
    assert found.verdict == "fail"
    assert "17 active NVLinks of the 18" in found.findings[0].message


def hidden(down: int = 0, layer: str = "InfiniBand", **more: Any) -> list[FullSnapshot]:
    """Two virtual machines with four fabric devices and an Ethernet beside them; no distances are shown."""
    off = nics(5, "DOWN", layer)[4 - down : 4]
    ports = (*nics(4 - down, layer=layer), *off, *nics(6, "DOWN", "Ethernet")[5:])
    parts = {"near": None, "software": VM, "environment": {}, "ports": ports} | more
    return [snap("node-a", range(4), **parts), snap("node-b", range(4, 8), **parts)]


@pytest.mark.parametrize(
    ("nodes", "policy", "verdict"),
    [
        (hidden(), "", "pass"),
        (hidden(), "policy: {profile: none}\n", "unknown"),
        (hidden(down=1), "", "unknown"),
        (hidden(layer="Ethernet"), "", "unknown"),
    ],
)
def test_a_virtual_machine_is_given_the_devices_of_its_fabric(
    nodes: list[FullSnapshot], policy: str, verdict: str
) -> None:
    assert answer(report(TWO + policy, *nodes), "NET001").verdict == verdict


def test_distances_that_are_hidden_are_asked_of_the_vendors_file_and_not_of_the_machine() -> None:
    found = report(TWO, *hidden())
    for rule in ("PP004", "PP005"):
        assert answer(found, rule).verdict == "unknown"
    (supply,) = {gap.supply for gap in found.gaps if "PP004" in gap.rules or "PP005" in gap.rules}
    assert supply.startswith("the vendor's topology file of this virtual machine (NCCL_TOPO_FILE)")
    file = NcclFile(path="/opt/cloud/topo.xml", kind="topology")
    supplies = {gap.supply for gap in report(TWO, *hidden(files=(file,))).gaps if "PP004" in gap.rules}
    assert supplies == {"/opt/cloud/topo.xml, given as NODE=FILE: the machine itself hides its PCI tree"}
    stated = report(f"{TWO}policy: {{profile: cloud-vm}}\n", *hidden())
    for rule in ("PP004", "PP005"):
        assert answer(stated, rule).verdict == "not-applicable"
        assert answer(stated, rule).reason.startswith("policy.profile cloud-vm: a virtual machine")


def test_a_mixed_cluster_has_a_profile_for_each_kind_of_node() -> None:
    text = "engine: vllm\nparallel: {tensor: 4, pipeline: 3}\nnodes: [node-a, node-b, node-c]\n"
    nodes = [
        snap("node-a", range(4), size=12),
        snap("node-b", range(4, 8), size=12, model="NVIDIA L40S", **BARE),
        snap("node-c", range(8, 12), size=12),
    ]
    found = [(one.name, one.nodes, one.count) for one in report(text, *nodes).profiles]
    assert found == [("hgx-h100", ["node-a", "node-c"], 2), ("pcie", ["node-b"], 1)]


def test_the_profile_in_force_is_shown_with_what_it_decided(tmp_path: Path) -> None:
    assert topocheck("demo", "healthy", "--keep", "job", cwd=tmp_path).code == 0
    given = ("verify", "--plan", "job/plan.yaml", "job/evidence", "--html", "page.html")
    ran = topocheck(*given, "-v", cwd=tmp_path)
    words = " ".join(ran.out.split())
    assert "profile hgx-h100 (HGX H100, H800 or H20) on gpu-a; gpu-b, chosen by evidence" in words
    assert "8, 4, 2 or 1 GPUs on a node (VER007); 18 NVLinks a GPU, by design of its model (NV001)" in words
    assert "hgx-h100: HGX H100, H800 or H20</th><td>gpu-a; gpu-b</td>" in (tmp_path / "page.html").read_text()
    assert "profile" not in topocheck(*given[:4], cwd=tmp_path).out
    (one,) = json.loads(topocheck(*given[:4], "--json", "-", cwd=tmp_path).out)["profiles"]
    assert (one["name"], one["chosen"], one["count"]) == ("hgx-h100", "evidence", 2)


def test_what_the_policy_says_itself_is_not_what_a_profile_decides() -> None:
    said = "policy: {expect_gpus: 4, expect_nvlinks: 18, tensor_domain: nvlink, profile: nvl72}\n"
    (one,) = report(TRAYS + said, *trays()).profiles
    assert (one.name, one.chosen, one.decides) == ("nvl72", "plan", [])
    (by_evidence,) = report(TRAYS, *trays()).profiles
    assert "tensor_domain nvlink (TP001)" not in by_evidence.decides
    (other,) = report(f"{TRAYS}policy: {{profile: nvl72}}\n", *trays()).profiles
    assert other.decides == [
        "4, 2 or 1 GPUs on a node (VER007)",
        "18 NVLinks a GPU, by design of its model (NV001)",
        "tensor_domain nvlink (TP001)",
    ]


def test_worlds_of_one_job_share_their_profiles() -> None:
    own = "parallel: {tensor: 4}, nodes:"
    text = f"engine: vllm\nworlds:\n  a: {{{own} [node-a]}}\n  b: {{{own} [node-b]}}\n"
    nodes = inventory(snap("node-a", range(4), size=4), snap("node-b", range(4), size=4, links=meshed))
    found = answered(Declared(plan(text)), nodes, [], Gate(), at=AT, whole=False)
    assert [(one.name, one.nodes) for one in found.profiles] == [("hgx-h100", ["node-a", "node-b"])]
