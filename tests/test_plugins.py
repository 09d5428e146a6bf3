"""What other packages add: the example package as an installer leaves it, and packages that are broken."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evidence import PLAN, snapshot, stream
from hypothesis import given, settings
from hypothesis import strategies as st
from shell import Ran, topocheck

from topocheck.cli.main import run
from topocheck.plugins import Offer, offers, read_entries, read_offers
from topocheck.rulebook import rulebook
from topocheck.rules import RULES

EXAMPLE = Path(__file__).parent / "example"
PROGRAM = """\
from topocheck.rule import Finding, rule, the

def over(placement):
    {over}

@rule("ACME001", "nothing is wrong", over=over, severity="error")
def check(ask, placement):
    ask.know()
    {body}
    yield from ()

RULES = [check]
"""


def program(body: str = "pass", over: str = "return the(placement)", name: str = "ACME001") -> str:
    """A module with one rule."""
    return PROGRAM.replace("{body}", body).replace("{over}", over).replace("ACME001", name)


def install(folder: Path, points: str, module: str = "", package: str = "acme-checks") -> None:
    """A package as an installer leaves it: a module, and metadata with its entry points."""
    name = package.replace("-", "_")
    (folder / f"{name}.py").write_text(module)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n\nName: no\n")
    (metadata / "entry_points.txt").write_text(points)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python searches for packages."""
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    read_offers.cache_clear()
    yield tmp_path
    read_offers.cache_clear()
    for name in set(sys.modules) - known:
        if not name.startswith("topocheck"):
            del sys.modules[name]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed by pip into a folder of its own."""
    if importlib.util.find_spec("pip") is None or importlib.util.find_spec("setuptools") is None:
        pytest.skip("pip or setuptools is not installed")
    source, target = tmp_path_factory.mktemp("source") / "example", tmp_path_factory.mktemp("target")
    shutil.copytree(EXAMPLE, source)  # building leaves files in it
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", target, source],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return target


def with_example(installed: Path, *arguments: str | Path) -> Ran:
    """A run in an environment that has the example package."""
    return topocheck(*arguments, env={"PYTHONPATH": str(installed)})


def machine(root: Path, text: str | None) -> Path:
    """A recorded machine whose controller wrote this."""
    (root / "run/acme").mkdir(parents=True)
    if text is not None:
        (root / "run/acme/coolant").write_text(text)
    return root


def job(folder: Path, *degrees: float | None) -> tuple[str, ...]:
    """A healthy job whose nodes have these facts of the example's probe; arguments of verify."""
    told = [{} if one is None else {"plugins": {"acme-coolant": {"inlet_celsius": one}}} for one in degrees]
    (folder / "plan.yaml").write_text(PLAN)
    (folder / "nodes.jsonl").write_text(stream(*(snapshot(n, **facts) for n, facts in enumerate(told))))
    return "verify", "--plan", str(folder / "plan.yaml"), str(folder / "nodes.jsonl")


def reported(ran: Ran, rule: str) -> dict[str, Any]:
    """What a JSON report says of one rule."""
    found: dict[str, Any] = next(one for one in json.loads(ran.out)["rules"] if one["id"] == rule)
    return found


def test_the_example_is_listed_with_its_package(installed: Path) -> None:
    ran = with_example(installed, "rules")
    assert ran.code == 0
    assert "ACME\n  ACME001* warning  the coolant is cool enough (package acme-checks 1.0)\n" in ran.out
    (told,) = json.loads(with_example(installed, "rules", "--select", "ACME", "--json").out)
    assert (told["id"], told["package"]) == ("ACME001", "acme-checks 1.0")


def test_the_example_is_explained_by_its_page(installed: Path) -> None:
    ran = with_example(installed, "explain", "acme001")
    assert ran.code == 0
    assert ran.out.startswith("## ACME001 the coolant is cool enough\n\nSeverity: warning; required")
    assert "Package: acme-checks 1.0" in ran.out
    assert "ACME's handbook, chapter 7." in ran.out


def test_the_facts_of_its_probe_reach_its_rule(installed: Path, tmp_path: Path) -> None:
    root = machine(tmp_path / "root", "inlet 44.5\n")
    shown = json.loads(with_example(installed, "probe", "--root", root).out)
    assert shown["plugins"] == {"acme-coolant": {"inlet_celsius": 44.5}}
    told = shown["plugins"]["acme-coolant"]["inlet_celsius"]
    ran = with_example(installed, *job(tmp_path, told, 21.0), "--json", "-")
    found = reported(ran, "ACME001")
    assert (found["verdict"], found["package"]) == ("fail", "acme-checks 1.0")
    assert (found["passed"], found["failed"]) == (1, 1)
    assert found["findings"][0]["message"].startswith("the coolant enters node-a with 44.5 C")


def test_a_node_of_which_its_probe_said_nothing_keeps_its_rule_undecided(
    installed: Path, tmp_path: Path
) -> None:
    ran = with_example(installed, *job(tmp_path, 21.0, None), "--json", "-")
    report = json.loads(ran.out)
    assert reported(ran, "ACME001")["verdict"] == "unknown"
    (gap,) = [one for one in report["gaps"] if one["rules"] == ["ACME001"]]
    assert (gap["need"], gap["about"]) == ("facts of the probe acme-coolant", ["node-b"])
    assert gap["supply"].startswith("topocheck probe on every node, with the package of that probe")
    assert report["exit_code"] == 3


def test_without_the_package_its_facts_are_left_alone(tmp_path: Path) -> None:
    ran = topocheck(*job(tmp_path, 44.5, 44.5), "--json", "-")
    assert "ACME001" not in ran.out
    assert '"error": 0' in ran.out


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [(None, "absent", "No such file or directory"), ("warm", "broken", "expected `inlet` and a number")],
)
def test_its_probe_says_itself_what_it_cannot_read(
    text: str | None, kind: str, reason: str, installed: Path, tmp_path: Path
) -> None:
    ran = with_example(installed, "probe", "--root", machine(tmp_path, text), "--only", "acme-coolant")
    shown = json.loads(ran.out)
    assert "plugins" not in shown
    assert shown["faults"] == [
        {"part": "plugins.acme-coolant", "kind": kind, "path": "/run/acme/coolant", "reason": reason}
    ]


def test_its_probe_can_be_left_out_and_one_of_many_processes_does_not_ask_it(
    installed: Path, tmp_path: Path
) -> None:
    root = machine(tmp_path, "inlet 21")
    assert "plugins" not in with_example(installed, "probe", "--root", root, "--skip", "acme-coolant").out
    assert "plugins" not in with_example(installed, "probe", "--root", root, "--only", "identity").out
    second = topocheck(
        "probe", env={"PYTHONPATH": str(installed), "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    )
    assert "acme" not in second.out
    misspelt = with_example(installed, "probe", "--only", "acme-colant")
    assert misspelt.code == 2
    assert "'acme-coolant'" in misspelt.err


def test_its_facts_are_not_shown_to_strangers(installed: Path, tmp_path: Path) -> None:
    ran = with_example(installed, "probe", "--root", machine(tmp_path, "inlet 21"), "--redact")
    shown = json.loads(ran.out)
    assert "plugins" not in shown
    (fault,) = [one for one in shown["faults"] if one["part"] == "plugins.acme-coolant"]
    assert (fault["kind"], fault["reason"][:20]) == ("not-permitted", "left out by --redact")


RULES_POINT = "[topocheck.rules]\nacme = acme_checks:RULES\n"
PROBE = "[topocheck.probes]\nacme = acme_checks:read\n"


@pytest.mark.parametrize(
    ("module", "kind", "said"),
    [
        ("def read(roots): raise ValueError('first\\nsecond')", "broken", "ValueError: first"),
        ("def read(roots): raise SystemExit(0)", "broken", "SystemExit: 0"),
        ("import os\ndef read(roots): os._exit(0)", "broken", "gave what cannot be read (Input data"),
        ("import os\ndef read(roots): os.abort()", "broken", "its process ended by SIGABRT"),
        ("import time\ndef read(roots): time.sleep(600)", "timeout", "did not return within 2 s; its"),
        ("def read(roots): return {}", "broken", "gave a dict and not the pair (facts, faults)"),
        ("def read(roots): return {1: {2}}, ['x']", "broken", "gave a fault that is no ProbeFault"),
        ("def read(roots): return object(), ()", "broken", "TypeError: Encoding objects of type object"),
        ("def read(roots): return 'x' * (1 << 21), ()", "broken", "gave more than 1 MiB"),
        ("def other(roots): pass", "broken", "cannot be loaded (AttributeError: "),
        ("raise RuntimeError('no licence')", "broken", "cannot be loaded (RuntimeError: no licence)"),
    ],
)  # fmt: skip
def test_a_probe_that_breaks_is_a_fault_and_hides_nothing_else(
    module: str, kind: str, said: str, tmp_path: Path
) -> None:
    install(tmp_path, PROBE, module)
    ran = topocheck("probe", "--timeout", "2", env={"PYTHONPATH": str(tmp_path), "LD_LIBRARY_PATH": ""})
    assert ran.code == 0
    shown = json.loads(ran.out)
    assert shown["identity"]["host"]["boot_id"]
    (fault,) = [one for one in shown["faults"] if one["part"] == "plugins.acme"]
    assert (fault["kind"], fault["path"]) == (kind, "probe 'acme' of package acme-checks 1.0")
    assert said in fault["reason"]


def test_what_a_probe_prints_is_not_in_the_snapshot(tmp_path: Path) -> None:
    install(tmp_path, PROBE, "print('hello')\ndef read(roots):\n    print('there')\n    return [1], ()")
    shown = json.loads(topocheck("probe", "--only", "acme", env={"PYTHONPATH": str(tmp_path)}).out)
    assert shown["plugins"] == {"acme": [1]}


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ("gpus = acme_checks:read", "topocheck has a probe of that name"),
        ("a = acme_checks:read\na = acme_checks:other", "acme-checks 1.0 offers a probe of that name"),
        ("a b = acme_checks:read", "the name must be of letters"),
    ],
)
def test_a_probe_of_a_name_that_is_taken_is_refused(points: str, said: str, tmp_path: Path) -> None:
    install(tmp_path, f"[topocheck.probes]\n{points}\n", "def read(roots): return 1, ()")
    ran = topocheck("probe", env={"PYTHONPATH": str(tmp_path), "LD_LIBRARY_PATH": ""})
    assert said in ran.out
    assert "gpus" not in json.loads(ran.out).get("plugins", {})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('first\\nsecond')", "ACME001 of package acme-checks 1.0 (ValueError: first ("),
        ("raise SystemExit(0)", "(SystemExit: 0 (check, "),
        ("yield 'wrong'", "a check gave a str and not a Finding"),
        ("yield Finding(message=None, fix='', cause='', subjects=())", "ValidationError: Expected `str`"),
        ("yield Finding(message='m', fix='', cause='', subjects='ab')", "ValidationError: Expected `array`"),
        ("ask.gap(None, [7], None)", "ValidationError: Expected `str`"),
    ],
)  # fmt: skip
def test_a_rule_that_breaks_is_named_and_contained(
    body: str, said: str, packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, RULES_POINT, program(body))
    outputs = ("-v", "--html", str(packages / "report.html"), "--json", str(packages / "report.json"))
    assert run([*job(packages, None, None), *outputs]) == 3
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.endswith("not the job's fault, and no pass\n")
    assert "Traceback" not in told.err + told.out
    report = json.loads((packages / "report.json").read_text())
    assert report["exit_reason"] == "internal_error"
    assert (report["counts"]["error"], report["counts"]["failed"]) == (1, 0)
    assert report["counts"]["passed"] > 10


@pytest.mark.parametrize(
    "over",
    ["return None", "return {0: []}", "return {0: [Bad()]}", "return NotApplicable(7)", "raise OSError"],
)
def test_subjects_that_are_none_break_that_rule_alone(over: str, packages: Path) -> None:
    found = "yield Finding(message='m', fix='', cause='', subjects=())"
    odd = "class Bad:\n    def __str__(self): raise KeyError(1)\n"
    install(packages, RULES_POINT, f"from topocheck.rule import NotApplicable\n{odd}{program(found, over)}")
    assert run([*job(packages, None, None), "--json", str(packages / "report.json")]) in {1, 3}
    rules = json.loads((packages / "report.json").read_text())["rules"]
    (own,) = [one for one in rules if one["package"]]
    assert own["verdict"] == ("fail" if "Bad" in over else "error")


@pytest.mark.parametrize(
    ("value", "module", "said"),
    [
        ("missing:RULES", "", "rules 'acme' of package acme-checks 1.0 cannot be loaded (ModuleNot"),
        ("acme_checks:RULES", "raise SystemExit(0)", "cannot be loaded (SystemExit: 0)"),
        ("acme_checks:RULES", "RULES = 7", "is no sequence of rules: acme_checks:RULES is a int"),
        ("acme_checks:RULES", "RULES = [7]", "holds a int, which is no rule: make it with @rule"),
        ("acme_checks:RULES", program(name="acme-1"), "has a rule 'acme-1': ids are"),
        ("acme_checks:RULES", program().replace('"error"', "'bad'"), "needs a name and a severity"),
        ("acme_checks:RULES", program(name="TP001"),
         "rule TP001 of package acme-checks 1.0 is refused: topocheck itself has a rule of that id"),
        ("acme_checks:RULES", program() + "RULES *= 2",
         "rule ACME001 of package acme-checks 1.0 is refused: package acme-checks 1.0 has a rule of that id"),
    ],
)  # fmt: skip
def test_a_package_that_cannot_be_used_is_one_sentence_and_no_pass(
    value: str, module: str, said: str, packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, f"[topocheck.rules]\nacme = {value}\n", module)
    assert run(list(job(packages, None, None))) == 3
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert said in told.err
    assert "not the job's fault, and no pass" in told.err
    assert "Traceback" not in told.out
    assert run(["rules"]) == 3
    told = capsys.readouterr()
    assert told.out.count("TP001") == 1
    assert said in told.err
    assert run(["explain", "TP001"]) == 0
    assert run(["explain", "ACME009"]) == 2


def test_topochecks_own_rule_stays_where_another_package_takes_its_id(packages: Path) -> None:
    install(
        packages,
        RULES_POINT,
        program(name="TP001"),
    )
    book = rulebook()
    assert book.rules == RULES
    ((_, error),) = book.troubles
    assert "TP001" in str(error)


def test_a_rule_without_a_page_is_named_when_it_is_explained(
    packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, RULES_POINT, program())
    assert run(["explain", "ACME001"]) == 3
    assert "the page of ACME001, acme_checks.md beside acme_checks, is missing" in capsys.readouterr().err
    (packages / "acme_checks.md").write_text("# ACME\n\n## ACME001 nothing is wrong\n\nBody.\n")
    assert run(["explain", "ACME001"]) == 0
    assert "Body." in capsys.readouterr().out


def test_a_policy_may_leave_out_the_rule_of_another_package(
    packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, RULES_POINT, program("1 / 0"))
    arguments = job(packages, None, None)
    (packages / "plan.yaml").write_text(PLAN + "policy: {skip: [ACME]}\n")
    run(list(arguments))
    assert "ZeroDivisionError" not in "".join(capsys.readouterr())


def test_of_two_installations_of_one_package_the_first_counts(
    tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = tmp_path / "later"
    later.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(later)])
    install(packages, RULES_POINT)
    install(later, "[topocheck.rules]\nacme = acme_checks:OTHERS\n")
    assert offers("topocheck.rules") == (
        Offer("topocheck.rules", "acme", "acme_checks:RULES", "acme-checks 1.0"),
    )


def test_topochecks_own_entry_point_is_no_offer() -> None:
    assert all(not offer.value.startswith("topocheck.") for offer in offers("topocheck.rules"))


def test_what_is_installed_is_found_without_the_library_for_it(tmp_path: Path) -> None:
    install(tmp_path, "[topocheck.probes]\nacme = acme_checks:read\n", "def read(roots): return 1, ()")
    script = (
        "from topocheck.plugins import offers; "
        "print(len(offers('topocheck.probes')), 'importlib.metadata' in sys.modules)"
    )
    root = str(EXAMPLE.parents[1])
    paths = f"import sys; sys.path[:] = {[str(tmp_path), root, *sys.path]!r}; "
    done = subprocess.run(
        [sys.executable, "-S", "-c", paths + script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 False\n"


@given(st.text(alphabet="[]=:;#. \n\ratopocheckrules\x00é", max_size=200))
@settings(max_examples=50, deadline=None)
def test_any_metadata_is_read_or_passed_over(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("x-1.dist-info")
    (folder / "entry_points.txt").write_text("[topocheck.rules]\n" + text, encoding="utf-8")
    for offer in read_entries(str(folder)):
        assert offer.group.startswith("topocheck.")
        assert "\n" not in str(offer)
