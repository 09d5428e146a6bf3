"""README and program say the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from topocheck.cli.main import COMMANDS, run
from topocheck.engines import ENGINES
from topocheck.gather.files import arguments, gather
from topocheck.inventory import Inventory
from topocheck.plan import Policy
from topocheck.planfile import parse_plan
from topocheck.report import GapReport, InputReport, PlacementReport, Report, ReportedFinding, RuleReport
from topocheck.rules import RULES

HERE = Path(__file__).parent
README = (HERE.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE))
PLANS = re.findall(r"^```yaml\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
CALLS = [
    call
    for text in (*BLOCKS, *INLINE)
    for call in re.findall(r"topocheck ([a-z]+)((?: (?:--?)?[\w./=-]+)*)", text)
]


def block_after(comment: str) -> str:
    """The fenced block that stands right under an HTML comment."""
    found = re.search(rf"^<!-- {comment} -->\n```bash\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    assert found is not None, comment
    return found[1]


def table(head: str) -> dict[str, str]:
    """First and second cell of each row of the table whose first heading is `head`."""
    body = README.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return {row.split("|")[1].strip(): row.split("|")[2].strip() for row in body}


def words(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def helped(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run([command, "--help"]) == 0
    return capsys.readouterr().out


def test_the_readme_names_commands_at_all() -> None:
    assert {command for command, _ in CALLS} >= {"verify", "plan", "import", "rules", "explain", "schema"}


@pytest.mark.parametrize(("command", "rest"), sorted(set(CALLS)))
def test_every_command_and_option_named_exists(
    command: str, rest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command in COMMANDS
    for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest):
        assert re.search(rf"(?<![\w-]){option}\b", helped(command, capsys)), option


@pytest.mark.parametrize("words_", [w for w in INLINE if re.match(r"--?[a-z]", w) and "query" not in w])
def test_every_option_named_alone_exists_in_a_command_of_its_section(
    words_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    option = re.escape(words_.split(maxsplit=1)[0])
    named = ("verify", "plan", "run", "bubble")
    assert any(re.search(rf"(?<![\w-]){option}\b", helped(name, capsys)) for name in named)


def test_there_are_two_set_up_commands_of_one_line_each() -> None:
    without_network = block_after("wheelhouse").splitlines()
    lines = [line for line in README.splitlines() if "pip install" in line and line not in without_network]
    assert lines == [
        "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/topocheck demo",
        block_after("test command").rstrip("\n"),
    ]
    assert block_after("test command").endswith("&& .venv/bin/pytest\n")


def test_the_name_of_another_project_is_never_installed() -> None:
    assert not re.search(
        r"install[^\n`|]*\btopocheck(?!-placement)\b(?! demo)", README.replace(".venv/bin/topocheck", "")
    )


@pytest.mark.parametrize("text", PLANS)
def test_the_plans_shown_are_plans(text: str) -> None:
    plan = parse_plan(text, "plan.yaml")
    assert plan.nodes


def test_the_plan_with_comments_names_every_engine() -> None:
    line = next(line for line in README.splitlines() if line.startswith("engine: megatron"))
    assert {name.strip() for name in line.partition("#")[2].split(",")} == set(ENGINES)


def test_the_policy_table_has_every_key() -> None:
    assert {key.strip("`") for key in table("policy key")} == set(Policy.__struct_fields__)


def test_the_json_table_names_keys_that_the_report_has() -> None:
    types: dict[str, type[msgspec.Struct]] = {
        "`rules[]`": RuleReport,
        "`rules[].findings[]`": ReportedFinding,
        "`gaps[]`": GapReport,
        "`inputs[]`": InputReport,
        "`placement`": PlacementReport,
    }
    rows = table("key")
    for key, struct in types.items():
        assert words(rows[key]) <= set(struct.__struct_fields__), key
    tops = [key for key in rows if key not in types]
    assert {name for key in tops for name in words(key)} <= set(Report.__struct_fields__)


def test_the_exit_codes_are_those_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    told = capsys.readouterr().out
    codes = table("exit")
    assert list(codes) == ["0", "1", "2", "3", "130"]
    assert all(re.search(rf"\b{code}\b", told) for code in codes)


def test_the_scenarios_named_are_those_of_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--list"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert {name.strip("`") for name in table("scenario")} <= listed


def test_rules_named_exist() -> None:
    known = {rule.id for rule in RULES}
    named = set(re.findall(r"\b(?:EV|ID|TP|PP|NV|NET|ENV|OBS)\d{3}\b", README))
    assert named <= known
    assert named


def test_the_report_shown_is_what_verify_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = re.search(r"^```console\n\$ topocheck (.*?)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    assert shown is not None
    (tmp_path / "plan.yaml").write_text(PLANS[0])
    shutil.copy(HERE / "captures" / "nccl-vllm-tp8-pp2.log", tmp_path / "nccl.log")
    monkeypatch.chdir(tmp_path)
    assert run(shown[1].split()) == 1
    assert capsys.readouterr().out.startswith(shown[2])


def test_an_option_comes_from_a_variable_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "TOPOCHECK_VERIFY_FAIL_ON" in README
    monkeypatch.setenv("TOPOCHECK_VERIFY_FAIL_ON", "nonsense")
    (tmp_path / "plan.yaml").write_text(PLANS[0])
    assert run(["verify", "--plan", str(tmp_path / "plan.yaml")]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_the_capture_recipe_gives_whole_evidence(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(NVIDIA_SMI)
    tool.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-euc", block_after("capture")], cwd=tmp_path, env=environment, check=True)
    (text,) = tmp_path.glob("*.txt")
    inventory = Inventory()
    (read,) = gather(arguments([f"gpu-01={text}"]), inventory)
    (machine,) = inventory.machines
    assert read.hosts == ["gpu-01"]
    assert (machine.coverage.gpus, machine.coverage.links, len(machine.gpus)) == ("all", "all", 2)
    assert machine.shape is not None
    assert str(machine.shape.link(0, 1)) == "NV4"
    assert machine.shape.peer(0, 1) == "OK"
    assert machine.shape.nvlinks(0) == 4


NVIDIA_SMI = r"""#!/bin/bash
gpu() { echo "GPU $1: NVIDIA A40 (UUID: GPU-0e3a6b5c-92d4-4b1a-b6f8-1f20c7a95d3$1)"; }
links() { for n in 0 1 2 3; do printf '\t Link %s: 14.062 GB/s\n' $n; done; }
case "$*" in
  "-L") gpu 0; gpu 1 ;;
  "topo -m")
    printf '\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n'
    printf 'GPU0\t X \tNV4\tPIX\t0-15\t0\t\tN/A\nGPU1\tNV4\t X \tPIX\t0-15\t0\t\tN/A\n'
    printf 'NIC0\tPIX\tPIX\t X \t\t\t\t\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n\n' ;;
  "topo -p2p r") printf ' \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n\nLegend:\n\n  X    = Self\n' ;;
  "nvlink -s") gpu 0; links; gpu 1; links ;;
  *) exit 1 ;;
esac
"""
"""Answers of two bridged GPUs to the queries of the recipe."""
