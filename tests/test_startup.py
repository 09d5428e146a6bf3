"""What a command imports: one that starts fast is one that is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from evidence import PLAN, PLAN_OF_ONE, TOPOLOGY, snapshot, stream
from shell import topocheck

SLOW = {"ClusterShell", "jinja2", "msgspec", "networkx", "rich", "yaml"}
"""Libraries that cost tens of milliseconds each."""
BEHIND_THE_PLAN = ("topocheck.placement", "topocheck.inventory", "topocheck.hardware", "topocheck.commands")
"""What evidence and launch commands need."""
LISTING = (
    sys.executable,
    "-c",
    """
import sys
from topocheck.cli.main import run
code = run(sys.argv[1:])
print("MODULES", *sys.modules, file=sys.stderr)
sys.exit(code)
""",
)


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in a folder with plans and evidence; runs inherit it."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "one.yaml").write_text(PLAN_OF_ONE)
    (tmp_path / "nodes.jsonl").write_text(stream(snapshot(0), snapshot(1)))
    (tmp_path / "topo.txt").write_text(TOPOLOGY)
    monkeypatch.chdir(tmp_path)


def imported(*arguments: str) -> set[str]:
    """Top-level names and modules that a run that ends well imported."""
    ran = topocheck(*arguments, command=LISTING)
    assert ran.code == 0, ran.err
    modules = ran.last.split()
    assert modules[0] == "MODULES"
    return {*modules, *(name.partition(".")[0] for name in modules)}


def test_the_version_imports_no_library_but_that_of_the_command_line() -> None:
    found = imported("--version")
    assert "click" in found
    assert not found & SLOW
    assert {name for name in found if name.startswith("topocheck.")} <= {
        "topocheck.cli",
        "topocheck.cli.leaving",
        "topocheck.cli.main",
        "topocheck.cli.streams",
        "topocheck.errors",
    }


def test_help_of_a_command_imports_that_command_alone() -> None:
    found = imported("verify", "--help")
    assert "topocheck.cli.verify" in found
    assert "topocheck.cli.plan" not in found


def test_verify_in_text_imports_no_renderer_of_other_formats() -> None:
    found = imported("verify", "--plan", "plan.yaml", "nodes.jsonl")
    assert "topocheck.render.terminal" in found
    assert not found & {"jinja2", "rich", "topocheck.render.html", "topocheck.render.json_report"}


def test_verify_imports_the_graph_library_only_for_a_shape_that_needs_a_graph() -> None:
    """A captured table answers pairs itself; links listed one by one, or a PCI tree, need the graph."""
    assert "networkx" not in imported("verify", "--plan", "one.yaml", "topo.txt")


def test_json_imports_no_template_engine() -> None:
    assert not imported("verify", "--plan", "plan.yaml", "--json", "-", "nodes.jsonl") & {"jinja2", "rich"}


def test_nothing_imports_the_driver_library_where_evidence_is_given() -> None:
    assert "pynvml" not in imported("verify", "--plan", "plan.yaml", "nodes.jsonl")


HUGE = (
    "engine: megatron\nparallel: {tensor: 8, pipeline: 8, data: 16}\nnodes: n[000-127]\nmodel: {layers: 64}\n"
)
"""A job of 1,024 ranks."""


@pytest.mark.parametrize("form", ["--all", "--json", "--hostfile", "--node-ranks", "--srun"])
def test_plan_imports_neither_graphs_nor_evidence_nor_what_reads_commands(form: str, tmp_path: Path) -> None:
    (tmp_path / "huge.yaml").write_text(HUGE)
    found = imported("plan", form, "huge.yaml")
    assert "topocheck.declared" in found
    assert not found & {"jinja2", "networkx", "rich"}
    assert not {name for name in found if name.startswith(BEHIND_THE_PLAN)}


def test_plan_of_a_command_needs_no_plan_file() -> None:
    found = imported("plan", "--nodes", "2", "--", "vllm", "serve", "m", "-tp", "8")
    assert "topocheck.commands.command" in found
    assert not found & {"networkx", "topocheck.planfile", "topocheck.placement"}
