"""Files that mend a job: applied to the evidence they came from, what asked for them holds."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from build import AT, GB200, TWO, answer, claims, completed, inventory, pair, paired, placed, plan, snap
from hypothesis import given, settings
from hypothesis import strategies as st
from made_devices import mixed
from made_path import told
from made_selection import choosing, netted
from shell import topocheck

from topocheck.answer import Declared
from topocheck.answer import answer as answered
from topocheck.ask import Ask
from topocheck.checklist import Gate
from topocheck.cli.fixes import write_fixes
from topocheck.cli.main import run
from topocheck.errors import UsageError
from topocheck.fixes import MARK, fixes_of
from topocheck.nodeorder import proven_order
from topocheck.placement import Placement
from topocheck.plan import Plan
from topocheck.remedy import Devices, Exclude, NodeOrder, Variable, joined, spread
from topocheck.report import Report, ReportedFinding
from topocheck.rule import Finding, rule, the
from topocheck.rules import RULES
from topocheck.snapshot import FullSnapshot, Netdev
from topocheck.verify import run_rules

FOUR = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n"
RACK = """\
engine: vllm
parallel: {tensor: 8, pipeline: 2}
nodes: [t1, t2, t3, t4]
policy: {tensor_domain: nvlink}
"""


def judged(declared: str | Plan, *snapshots: FullSnapshot) -> Report:
    """What `topocheck verify --write-fixes` makes files of."""
    given = plan(declared) if isinstance(declared, str) else declared
    return answered(Declared(given), inventory(*snapshots), [], Gate(), at=AT, whole=True, fixes=True)


def files(declared: str | Plan, *snapshots: FullSnapshot) -> dict[str, str]:
    """Files by name."""
    return fixes_of(judged(declared, *snapshots)).files


def sourced(script: str, host: str, env: Mapping[str, str]) -> dict[str, str]:
    """Environment of a process on a host that has sourced env.sh."""
    program = f"uname() {{ echo '{host}'; }}\n{script}\nexec env -0"
    done = subprocess.run(
        ["/bin/sh", "-c", program], capture_output=True, check=True, env={**env, "PATH": "/usr/bin:/bin"}
    )
    pairs = (entry.partition(b"=")[::2] for entry in done.stdout.split(b"\0") if entry)
    found = {name.decode(): value.decode() for name, value in pairs}
    return {
        name: value for name, value in found.items() if name not in {"PATH", "PWD", "SHLVL", "_", "OLDPWD"}
    }


def mended(script: str, snapshots: Sequence[FullSnapshot]) -> list[FullSnapshot]:
    """The same nodes after their processes have sourced env.sh."""
    return [
        msgspec.structs.replace(
            shown, environment=sourced(script, shown.identity.host.name or "", shown.environment)
        )
        for shown in snapshots
    ]


def started(hostfile: str, snapshots: Mapping[str, FullSnapshot]) -> list[FullSnapshot]:
    """The same nodes with ranks where a launcher puts them by this hostfile."""
    found, rank = [], 0
    for place, line in enumerate(hostfile.splitlines()):
        name, _, slots = line.partition(" slots=")
        ranks = range(rank, rank + int(slots))
        rank += int(slots)
        own = claims(ranks, size=sum(map(int, re.findall(r"slots=(\d+)", hostfile))), node_rank=place)
        found.append(msgspec.structs.replace(snapshots[name], ranks=own))
    return found


CYCLIC = (snap("node-a", (0, 2, 4, 6)), snap("node-b", (1, 3, 5, 7)))


def test_ranks_that_were_dealt_out_lie_right_by_the_hostfile_that_is_written() -> None:
    before = judged(TWO, *CYCLIC)
    assert {rule.id for rule in before.rules if rule.verdict == "fail"} >= {"TP001", "ID010"}
    made = fixes_of(before).files
    assert made["hostfile"] == "node-a slots=4\nnode-b slots=4\n"
    assert made["rankfile"].splitlines()[3:5] == ["rank 3=node-a slot=3", "rank 4=node-b slot=0"]
    after = judged(TWO, *started(made["hostfile"], {s.identity.host.name or "": s for s in CYCLIC}))
    assert {answer(after, rule).verdict for rule in ("TP001", "ID010")} == {"pass"}
    assert "TP001 TP group 0" in made["README.txt"]


def trays(*racks: str) -> list[FullSnapshot]:
    """Trays t1, t2 ... of four GPUs, each in the rack named, ranks in blocks."""
    return [
        snap(
            f"t{n + 1}",
            range(4 * n, 4 * n + 4),
            model=GB200,
            size=4 * len(racks),
            fabric=completed(rack * 32),
        )
        for n, rack in enumerate(racks)
    ]


def test_trays_of_one_rack_come_beside_each_other() -> None:
    shown = trays("a", "b", "a", "b")
    assert answer(judged(RACK, *shown), "TP001").verdict == "fail"
    hosts = files(RACK, *shown)["hostfile"]
    assert hosts == "t1 slots=4\nt3 slots=4\nt2 slots=4\nt4 slots=4\n"
    ordered = plan(RACK, nodes=("t1", "t3", "t2", "t4"))
    after = judged(ordered, *started(hosts, {s.identity.host.name or "": s for s in shown}))
    assert {answer(after, rule).verdict for rule in ("TP001", "ID010")} == {"pass"}


@pytest.mark.parametrize(
    ("declared", "snapshots"),
    [
        (RACK, trays("a", "b", "c", "d")),
        ("engine: vllm\nparallel: {tensor: 8}\nnodes: [node-a, node-b]\n", pair()),
        (TWO, [CYCLIC[0]]),
        (TWO.replace("vllm", "vllm\nlauncher: ray"), CYCLIC),
    ],
)
def test_an_order_that_does_not_help_is_not_written(declared: str, snapshots: list[FullSnapshot]) -> None:
    assert "hostfile" not in files(declared, *snapshots)


def test_an_order_that_breaks_something_else_is_not_given() -> None:
    @rule("ZZ001", "t2 comes second", over=the, severity="error")
    def second(ask: Ask, asked: Placement) -> Iterator[Finding]:
        ask.know()
        if asked.nodes[1].name != "t2":
            yield Finding(message="m", fix="f", cause="c", subjects=("t2",))

    placement = placed(RACK, *trays("a", "b", "a", "b"))
    tensor = [known for known in RULES if known.id == "TP001"]
    order = proven_order(placement, run_rules(tensor, placement), tensor)
    assert order == NodeOrder(nodes=("t1", "t3", "t2", "t4"), ranks=(4, 4, 4, 4))
    asked = [*tensor, second]
    assert proven_order(placement, run_rules(asked, placement), asked) is None


def test_gpus_are_given_in_the_order_in_which_every_pair_has_nvlink() -> None:
    tensor = "engine: vllm\nparallel: {tensor: 2, pipeline: 2}\nnodes: [node-a]\n"
    shown = snap("node-a", range(4), size=4, links=paired, model="NVIDIA A40", switch=None)
    made = files(tensor, shown)
    env = sourced(made["env.sh"], "node-a", {})
    assert env == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0,2,1,3"}
    gpus = [int(gpu) for gpu in env["CUDA_VISIBLE_DEVICES"].split(",")]
    moved = tuple(
        msgspec.structs.replace(claim, gpu=gpus[place])
        for place, claim in enumerate(claims(range(4), size=4))
    )
    after = judged(tensor, msgspec.structs.replace(shown, ranks=moved))
    assert answer(after, "TP002").verdict == "pass"
    assert "TP002" in made["README.txt"]


def three(**of_first: str) -> list[FullSnapshot]:
    """Three nodes whose processes list their variables; keywords are the first one's."""
    job = {"NCCL_DEBUG": "INFO"}
    return [
        snap(f"node-{name}", range(4 * n, 4 * n + 4), size=12, environment=job | (of_first if n == 0 else {}))
        for n, name in enumerate("abc")
    ]


THREE = "engine: vllm\nparallel: {tensor: 4, pipeline: 3}\nnodes: [node-a, node-b, node-c]\n"
NET = Netdev(name="ens5", kind="physical", state="up"), ("10.51.0.7/24",)


@pytest.mark.parametrize(
    ("rule", "declared", "snapshots"),
    [
        ("ID009", FOUR, mixed()),
        ("TP006", TWO, told(NCCL_P2P_DISABLE="1")),
        ("ENV001", THREE, three(NCCL_ALGO="Ring")),
        ("ENV001", THREE, three(NCCL_P2P_LEVEL="PHB")),
        ("ENV002", TWO, told(NCCL_P2P_LEVEL="nvl")),
        ("ENV002", TWO, told(NCCL_SHM_DISABLE="false")),
        ("NET005", TWO, choosing("mlx5_0,mlx5_1")),
        ("NET005", TWO, choosing("mlx5_0, mlx5_2")),
        ("NET005", TWO, choosing("=mlx5_77")),
        ("NET006", TWO, netted(of_first=(NET,))),
    ],
)  # fmt: skip
def test_the_variables_that_are_written_mend_what_asked_for_them(
    rule: str, declared: str, snapshots: list[FullSnapshot]
) -> None:
    before = judged(declared, *snapshots)
    assert answer(before, rule).verdict == "fail"
    made = fixes_of(before).files
    after = judged(declared, *mended(made["env.sh"], snapshots))
    assert answer(after, rule).verdict == "pass", made["env.sh"]
    assert f"  - {rule} " in made["README.txt"]


def test_nodes_without_a_majority_or_without_a_value_that_is_meant_get_no_line() -> None:
    assert "env.sh" not in files(TWO, *told(NCCL_ALGO="Ring"))
    assert "NCCL_P2P_LEVEL" not in files(TWO, *told(NCCL_P2P_LEVEL="close")).get("env.sh", "")
    two = (NET, (Netdev(name="ib0", kind="physical", state="up"), ("10.51.0.9/24",)))
    assert "env.sh" not in files(TWO, *netted(of_first=two))


def short(name: str, ranks: range, **more: Any) -> FullSnapshot:
    """A node one of whose GPUs lacks links."""
    return snap(name, ranks, nvlinks=(18, 12, 18, 18), links=None, switch=True, **more)


def test_a_node_whose_gpu_lacks_links_is_left_out() -> None:
    made = files(TWO, snap("node-a", range(4)), short("node-b", range(4, 8)))
    assert made["exclude.txt"] == "node-b\n"
    assert "1 of 2 are left" in made["README.txt"]


def test_where_every_node_is_accused_leaving_nodes_out_is_no_way() -> None:
    found = fixes_of(judged(TWO, short("node-a", range(4)), short("node-b", range(4, 8))))
    assert found.files == {}
    assert found.notes == ["no exclude.txt: every node is accused, and leaving nodes out is no way"]


def test_the_odd_node_out_is_left_out_where_most_are_alike() -> None:
    others = [snap(f"node-{name}", range(4 * n, 4 * n + 4), size=12) for n, name in enumerate("ab")]
    odd = snap("node-c", range(8, 12), size=12, count=8, numa=[None] * 8)
    assert files(THREE, *others, odd)["exclude.txt"] == "node-c\n"
    two = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: [node-a, node-c]\n"
    known = msgspec.structs.replace(odd, ranks=claims(range(4, 8)))
    assert answer(judged(two, snap("node-a", range(4)), known), "VER007").verdict == "fail"
    assert "exclude.txt" not in files(two, snap("node-a", range(4)), known)


def test_all_of_many_equal_nodes_are_named_though_the_report_lists_some() -> None:
    names = [f"n{n:03}" for n in range(300)]
    declared = plan("engine: megatron\nparallel: {tensor: 4, data: 301}\nnodes: 2\n", nodes=("sound", *names))
    shown = [snap("sound", range(4), size=1204)]
    shown += [short(name, range(4 * n + 4, 4 * n + 8), size=1204) for n, name in enumerate(names)]
    assert files(declared, *shown)["exclude.txt"].split() == names


def test_what_a_waiver_bears_asks_for_nothing() -> None:
    waiver = "waivers: [{rule: NV001, nodes: [node-b], reason: known, owner: me, expires: '2027-01-01'}]\n"
    both = snap("node-a", range(4)), short("node-b", range(4, 8))
    assert "exclude.txt" in files(TWO, *both)
    assert "exclude.txt" not in files(TWO + waiver + "policy: {skip: [VER007]}\n", *both)


def test_several_worlds_have_no_order_and_the_rest() -> None:
    own = "parallel: {tensor: 4}, nodes:"
    worlds = f"engine: vllm\nworlds:\n  a: {{{own} [node-a]}}\n  b: {{{own} [node-b]}}\n"
    made = files(worlds, snap("node-a", range(4), size=4), short("node-b", range(4), size=4))
    assert made["exclude.txt"] == "node-b\n"
    assert "hostfile" not in made


def found(*remedies: Any, place: int = 0, report: Report | None = None) -> Report:
    """A report one of whose findings has these remedies."""
    whole = report or judged(TWO, *pair())
    finding = ReportedFinding(
        message="it\nis `wrong` $(here)",
        severity="error",
        subjects=["x"],
        count=1,
        evidence=[],
        fix="",
        cause="c",
        remedies=list(remedies),
    )
    rules = list(whole.rules)
    rules[place] = msgspec.structs.replace(rules[place], findings=[finding])
    return msgspec.structs.replace(whole, rules=rules)


def test_two_findings_that_want_different_things_are_left_to_the_reader() -> None:
    one = found(Variable(name="NCCL_ALGO", value="Ring"))
    both = found(Variable(name="NCCL_ALGO", value=None), place=1, report=one)
    script = fixes_of(both).files["env.sh"]
    assert "# NCCL_ALGO: different values are asked for (Ring, unset): decide by hand" in script
    assert sourced(script, "node-a", {"NCCL_ALGO": "Tree"}) == {"NCCL_ALGO": "Tree"}
    own = found(Variable(name="NCCL_ALGO", value="Tree", nodes=("node-b",)), place=1, report=one)
    assert "decide by hand" in fixes_of(own).files["env.sh"]


@pytest.mark.parametrize(
    ("host", "value"),
    [("node-a", "1"), ("node-a.example.org", "1"), ("node-b", None), ("node-ax", None), ("x.node-a", None)],
)
def test_a_line_is_for_the_hosts_that_it_names(host: str, value: str | None) -> None:
    script = fixes_of(found(Variable(name="NCCL_A", value="1", nodes=("node-a",)))).files["env.sh"]
    assert sourced(script, host, {}).get("NCCL_A") == value
    full = fixes_of(found(Variable(name="NCCL_A", value="1", nodes=("node-a.example.org",)))).files["env.sh"]
    assert sourced(full, "node-a", {}) == {"NCCL_A": "1"}


@given(st.text(alphabet="ab$`'\"\\;|& (){}*?#!~é<>\n\x1b\u202e", max_size=12))
@settings(max_examples=50, deadline=None)
def test_any_value_is_passed_on_as_it_is_or_not_at_all(value: str) -> None:
    script = fixes_of(found(Variable(name="NCCL_A", value=value))).files["env.sh"]
    env = sourced(script, "node-a", {})
    assert env == ({"NCCL_A": value} if value.isprintable() else {})


@given(st.text(alphabet="ab$`'\"\\;|& (){}*?#!~é<>\n\x1b\u202e", min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_no_name_of_a_host_or_variable_is_a_command(name: str) -> None:
    report = found(
        Variable(name="NCCL_A", value="1", nodes=(name, "node-a")),
        Variable(name=name, value="1"),
        Devices(nodes=(name,), gpus=(1, 0)),
        Exclude(nodes=(name, "node-a")),
        NodeOrder(nodes=(name, "node-b"), ranks=(4, 4)),
    )
    made = fixes_of(report).files
    assert set(sourced(made["env.sh"], "node-a", {})) <= {"NCCL_A", name}
    assert made["exclude.txt"] == "node-a\n" or re.fullmatch("[ab]+", name)
    for text in made.values():
        assert all(line.isprintable() for line in text.splitlines())


def test_remedies_that_differ_in_their_nodes_alone_are_one() -> None:
    one, two = Exclude(nodes=("a",)), Exclude(nodes=("b", "a"))
    job = Variable(name="X", value="1")
    assert joined((one, job, two, job)) == (Exclude(nodes=("a", "b")), job)
    assert spread((one, job), "a", ["c", "d"]) == (Exclude(nodes=("a", "c", "d")), job)


def test_the_folder_is_whole_and_that_of_an_earlier_run_gives_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "fixes"
    write_fixes(found(Exclude(nodes=("node-b",))), str(folder))
    assert {entry.name for entry in folder.iterdir()} == {"README.txt", "exclude.txt"}
    assert (folder / "README.txt").read_text().startswith(MARK)
    write_fixes(found(Variable(name="NCCL_A", value="1")), str(folder))
    assert {entry.name for entry in folder.iterdir()} == {"README.txt", "env.sh"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["fixes"]
    write_fixes(judged(TWO, *pair()), str(folder))
    assert "nothing to fix by files" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["notes.txt", "README.txt", "exclude.txt"])
def test_a_folder_of_somebody_else_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine\n")
    with pytest.raises(UsageError, match="it is there and holds other files"):
        write_fixes(found(Exclude(nodes=("node-b",))), str(tmp_path))
    assert (tmp_path / name).read_text() == "mine\n"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_place_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine\n")
    assert run(["verify", "--write-fixes", str(tmp_path / "file"), str(tmp_path / "file")]) == 2
    assert "holds other files" in capsys.readouterr().err
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        write_fixes(found(Exclude(nodes=("node-b",))), str(tmp_path / "absent" / "fixes"))


def test_the_exit_code_and_the_last_line_stay_what_they_are(tmp_path: Path) -> None:
    assert topocheck("demo", "tp-split", cwd=tmp_path).code == 1
    given = ("verify", "--plan", "topocheck-demo-tp-split/plan.yaml", "topocheck-demo-tp-split/evidence")
    ran = topocheck(*given, "--write-fixes", "fixes", cwd=tmp_path)
    assert ran.code == 1
    assert ran.err.splitlines()[0] == "topocheck: fixes: README.txt, hostfile, rankfile"
    assert ran.last.startswith("FAIL: ")
    assert topocheck("demo", "healthy", cwd=tmp_path).code == 0
    healthy = [part.replace("tp-split", "healthy") for part in given]
    ran = topocheck(*healthy, "--write-fixes", "other", cwd=tmp_path)
    assert ran.code == 0
    assert ran.err.startswith("topocheck: nothing to fix by files: no file was written to other\n")
    assert not (tmp_path / "other").exists()


def test_the_json_report_has_the_remedies_as_data() -> None:
    report = judged(TWO, snap("node-a", range(4)), short("node-b", range(4, 8)))
    decoded = msgspec.json.decode(msgspec.json.encode(report), type=Report)
    (finding,) = answer(decoded, "NV001").findings
    assert finding.remedies == [Exclude(nodes=("node-b",))]
