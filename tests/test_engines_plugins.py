"""Engines of other packages: found by their entry point, used as topocheck's own, named where broken."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import topocheck
from topocheck.cli.main import run
from topocheck.engines import ENGINES, find
from topocheck.engines.plugins import third_party
from topocheck.errors import LayoutError, PlanError
from topocheck.planfile import parse_plan
from topocheck.plugins import read_offers

PROGRAM = """\
from topocheck.engines.engine import Engine, Option, all_sizes, as_launched, axes_of, block_slots
from topocheck.engines.layers import check_split, contiguous, even_counts
from topocheck.engines.layout import Layout
from topocheck.engines.modules import language_model

AXES = ("pipeline", "tensor")


def layout(sizes, version, order):
    return Layout("ourengine", version, axes_of(all_sizes("Our engine", sizes, AXES), AXES))


def split(layers, stages, override, version, options):
    check_split("Our engine", layers, stages, options, ("first_layers",))
    first = options.get("first_layers")
    rest = even_counts(layers, stages) if first is None else [first, *even_counts(layers - first, stages - 1)]
    return contiguous(rest, "Our engine: by itself")


ENGINE = Engine(
    name="ourengine", title="Our engine", sizes=AXES, newest="1.0", layout=layout, split=split,
    options=(Option("first_layers", "number"),), slots=block_slots, modules=language_model, gpus=as_launched,
)
OTHER = Engine(name="other", title="x", sizes=(), newest="1", layout=layout, split=split, slots=block_slots)
NOTHING = 7
"""
PLAN = "engine: ourengine\nparallel: {tensor: 2, pipeline: 2}\nnodes: [a, b]\nmodel: {layers: 9}\n"


def install(folder: Path, package: str, points: str, program: str = PROGRAM) -> None:
    """A package as an installer leaves it: a module, and metadata with its entry points."""
    module = package.replace("-", "_")
    (folder / f"{module}.py").write_text(program)
    metadata = folder / f"{module}-2.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.5\n")
    (metadata / "entry_points.txt").write_text(f"[topocheck.engines]\n{points}\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python searches for packages."""
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    read_offers.cache_clear()
    third_party.cache_clear()
    yield tmp_path
    read_offers.cache_clear()
    third_party.cache_clear()
    for name in set(sys.modules) - known:
        if not name.startswith("topocheck"):
            del sys.modules[name]


def test_a_plan_may_name_an_engine_of_another_package(
    packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, "our-package", "ourengine = our_package:ENGINE")
    (packages / "plan.yaml").write_text(PLAN + "layers: {first_layers: 3}\n")
    assert run(["plan", "--json", str(packages / "plan.yaml")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [rank["node"] for rank in found["ranks"]] == ["a", "a", "b", "b"]
    assert found["stages"] == [
        {"stage": 0, "layers": [[0, 3]], "modules": ["embedding"]},
        {"stage": 1, "layers": [[3, 9]], "modules": ["final_norm", "head"]},
    ]
    assert run(["plan", "--node-ranks", str(packages / "plan.yaml")]) == 0
    assert "--node-rank=1" in capsys.readouterr().out


def test_it_is_checked_as_strictly_as_topochecks_own(packages: Path) -> None:
    install(packages, "our-package", "ourengine = our_package:ENGINE")
    for text, said in (
        ("parallel: {data: 2}", "plan.yaml:4: Our engine has no size 'data': it takes pipeline, tensor"),
        ("order: pp", "Our engine takes no order"),
        (
            "layers: {first_layer: 3}",
            "Our engine's layer split has no option 'first_layer': did you mean 'first_layers'?",
        ),
    ):
        with pytest.raises(PlanError) as caught:
            parse_plan(f"engine: ourengine\nnodes: 1\n\n{text}\n", "plan.yaml")
        assert said in str(caught.value)


def test_it_is_suggested_for_a_misspelt_name(packages: Path) -> None:
    install(packages, "our-package", "ourengine = our_package:ENGINE")
    with pytest.raises(PlanError, match="unknown engine 'ourengin': did you mean 'ourengine'"):
        parse_plan("engine: ourengin\nnodes: 1\n", "plan.yaml")
    assert find("ourengine").title == "Our engine"
    with pytest.raises(LayoutError, match="did you mean 'ourengine'"):
        find("ourengines")


def test_looking_one_up_lists_it_nowhere(packages: Path) -> None:
    install(packages, "our-package", "ourengine = our_package:ENGINE")
    before = list(ENGINES)
    assert ENGINES["ourengine"].name == "ourengine"
    assert list(ENGINES) == before
    assert "ourengine" not in ENGINES
    with pytest.raises(KeyError):
        ENGINES["theirengine"]


@pytest.mark.parametrize(
    ("points", "program", "said"),
    [
        ("ourengine = missing:ENGINE", PROGRAM, "cannot be loaded (ModuleNotFoundError: No module named"),
        ("ourengine = our_package:ABSENT", PROGRAM, "cannot be loaded (AttributeError: "),
        ("ourengine = our_package:ENGINE", "raise RuntimeError('first\\nsecond')", "(RuntimeError: first)"),
        ("ourengine = our_package:ENGINE", "raise SystemExit(0)", "(SystemExit: 0)"),
        ("ourengine = our_package:NOTHING", PROGRAM, "is no Engine: our_package:NOTHING is a int"),
        ("ourengine = our_package:OTHER", PROGRAM, "calls itself 'other'"),
    ],
)  # fmt: skip
def test_a_broken_one_is_one_sentence_with_its_package(
    points: str, program: str, said: str, packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, "our-package", points, program)
    (packages / "plan.yaml").write_text(PLAN)
    assert run(["plan", str(packages / "plan.yaml")]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert "plan.yaml:1: engine 'ourengine' of package our-package 2.5 " in told.err
    assert said in told.err


def test_two_packages_of_one_name_are_told(packages: Path) -> None:
    install(packages, "our-package", "ourengine = our_package:ENGINE")
    install(packages, "their-package", "ourengine = their_package:ENGINE")
    with pytest.raises(LayoutError, match=r"offered twice, by package our-package 2.* and package their-"):
        third_party("ourengine")


def test_topochecks_own_engines_cannot_be_replaced(packages: Path) -> None:
    install(packages, "our-package", "vllm = our_package:OTHER")
    assert ENGINES["vllm"].title == "vLLM"
    assert parse_plan("engine: vllm\nnodes: 1\n", "plan.yaml").engine == "vllm"


def test_what_is_installed_is_not_read_for_topochecks_own_engines() -> None:
    script = (
        "import sys; from topocheck.planfile import parse_plan; "
        "parse_plan('engine: vllm\\nnodes: 1\\n', 'p'); print('importlib.metadata' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", PATHS + script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


PATHS = f"import sys; sys.path[:] = {[str(Path(topocheck.__file__).parents[1]), *sys.path]!r}; "
"""Without site, whose finders of editable packages may read metadata themselves."""
