"""What `topocheck probe` imports: it runs once in every process of a job."""

from __future__ import annotations

import sys

import pytest
from shell import topocheck

SLOW = {"jinja2", "networkx", "rich", "yaml", "pynvml", "pydantic", "numpy"}
"""Libraries that cost tens of milliseconds each; the driver's binding belongs to the driver's process."""
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


def imported(*options: str, env: dict[str, str] | None = None) -> set[str]:
    """Modules that a run that ends well imported, and the top-level names of them."""
    ran = topocheck("probe", *options, command=LISTING, env=env)
    assert ran.code == 0, ran.err
    modules = ran.last.split()[1:]
    return {*modules, *(name.partition(".")[0] for name in modules)}


@pytest.mark.parametrize("options", [[], ["--redact"], ["--processes"], ["--only", "identity"]])
def test_a_probe_imports_no_library_of_others(options: list[str]) -> None:
    assert not imported(*options) & SLOW


def test_without_a_driver_no_process_is_started_for_it() -> None:
    found = imported(env={"LD_LIBRARY_PATH": ""})
    if "topocheck.probes.node.nvml" in found:
        pytest.skip("this machine has a driver")
    assert not found & {"subprocess", "topocheck.probes.node.child"}


def test_only_probes_that_are_asked_are_imported() -> None:
    found = imported("--only", "identity")
    assert "topocheck.probes.node.identity" in found
    assert not {f"topocheck.probes.node.{name}" for name in ("net", "nics", "verbs", "software")} & found


def test_one_of_many_processes_imports_little() -> None:
    env = {"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8"}
    found = imported(env=env)
    assert not {f"topocheck.probes.node.{name}" for name in ("net", "nics", "verbs", "software")} & found


def test_what_renders_and_verifies_stays_away() -> None:
    found = imported()
    assert not {
        name
        for name in found
        if name.startswith(("topocheck.render", "topocheck.rules", "topocheck.placement"))
    }
