"""Policy and waivers are read as written, from a plan or a file of their own, or refused with their line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import PlanError
from topocheck.plan import Plan, Policy, PolicyFile, Waiver
from topocheck.planfile import SPECIAL, parse_plan, parse_policy, read_policy
from topocheck.schema import schema_for

SMALL = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\n"
WHOLE = """\
policy:
  only: [TP, PP003]
  skip: [ENV007]
  expect_nics: 8
  expect_nvlinks: 18
  expect_rails: [mlx5_0, "mlx5_1:1"]
  used_memory: 0.1
  clock_error_s: 2.5
waivers:
  - rule: NV001
    nodes: [gpu-0*, "n[01-04]"]
    ranks: [0..7, 12]
    group: TP 3
    world: decode
    reason: bridge ordered, ticket 4711
    owner: net@site
    expires: 2026-12-31
  - {rule: TP001, nodes: "*", ranks: 5, reason: "2", owner: ops, expires: "2027-01-01"}
"""
BORNE = "rule: NV001, reason: r, owner: o, expires: 2026-12-31"


def read(text: str) -> PolicyFile | PlanError:
    try:
        return parse_policy(text, "site.yaml")[0]
    except PlanError as error:
        return error


def refusal(text: str) -> str:
    with pytest.raises(PlanError) as caught:
        parse_policy(text, "site.yaml")
    return str(caught.value)


def test_every_key_is_read() -> None:
    stated, given = parse_policy(WHOLE, "site.yaml")
    assert stated.policy == Policy(
        only=("TP", "PP003"),
        skip=("ENV007",),
        expect_nics=8,
        expect_nvlinks=18,
        expect_rails=("mlx5_0", "mlx5_1:1"),
        used_memory=0.1,
        clock_error_s=2.5,
    )
    assert given == {
        "only",
        "skip",
        "expect_nics",
        "expect_nvlinks",
        "expect_rails",
        "used_memory",
        "clock_error_s",
    }
    first, second = stated.waivers
    assert first == Waiver(
        rule="NV001",
        nodes=("gpu-0*", "n[01-04]"),
        ranks=("0..7", "12"),
        group="TP 3",
        world="decode",
        reason="bridge ordered, ticket 4711",
        owner="net@site",
        expires="2026-12-31",
    )
    assert (second.nodes, second.ranks, second.expires) == (("*",), ("5",), "2027-01-01")


def test_a_plan_and_a_file_take_the_same_words() -> None:
    plan = parse_plan(SMALL + WHOLE, "plan.yaml")
    stated, _ = parse_policy(WHOLE, "site.yaml")
    assert (plan.policy, plan.waivers) == (stated.policy, stated.waivers)


def test_a_key_that_is_given_as_its_default_is_given() -> None:
    assert parse_policy("policy: {boundary: rdma}\n", "p")[1] == {"boundary"}
    assert parse_policy("waivers: [{" + BORNE + "}]\n", "p")[1] == frozenset()


def test_every_field_of_a_waiver_has_a_reader() -> None:
    plain = {name for name, kind in Waiver.__annotations__.items() if kind in ("str", "str | None")}
    read = {name for kind, name in SPECIAL if kind is Waiver}
    assert plain | read == set(Waiver.__struct_fields__)
    assert {kind for kind, name in SPECIAL if name == "waivers"} == {Plan, PolicyFile}


@pytest.mark.parametrize("lack", ["rule", "reason", "owner", "expires"])
def test_a_waiver_without_reason_owner_or_expiry_is_refused(lack: str) -> None:
    given = ", ".join(part for part in BORNE.split(", ") if not part.startswith(lack))
    message = refusal(f"waivers:\n- {{{given}}}\n")
    assert message.startswith(f"site.yaml:2: no '{lack}' in waivers[0]: write for instance '{lack}: ")


@pytest.mark.parametrize(
    ("scope", "problem"),
    [
        ("nodes: []", "the list for waivers[0].nodes is empty: fill it in or leave it out"),
        (
            "nodes: 7",
            'expected a name or pattern of nodes for waivers[0].nodes, got the number 7: write "7" in',
        ),
        ("nodes: 'n[a]'", "'n[a]' brackets of the host list hold something other than numbers and ranges"),
        ("nodes: 'n[1-200000]'", "waivers[0].nodes name more than 100,000 nodes one by one: say it with pat"),
        ("ranks: 0-7", "'0-7' is no range of ranks: write 0..7"),
        ("ranks: 010", "'010' is no range of ranks: write for instance 0..7"),
        ("ranks: 1:20", "'1:20' is no range of ranks: write 1..20"),
        ("ranks: 2.0", "expected ranks for waivers[0].ranks, got the fraction 2.0: write for instance 0..7"),
        ("ranks: {0..7, 12}", "expected ranks for waivers[0].ranks, got keys and values: write for instance"),
        ("group: 3", "expected a group for waivers[0].group, got the number 3: write its kind and number"),
        ("group: rack 3", "'rack 3' is no group: "),
        ("world: no", 'expected text for waivers[0].world, got the yes/no value no: write "no" in quotes'),
        ("node: a", "unknown key 'node' in waivers[0]: did you mean 'nodes'?"),
        ("until: 2026-01-01", "unknown key 'until' in waivers[0]: known keys are rule, nodes"),
    ],
)
def test_a_scope_that_cannot_be_meant_is_refused(scope: str, problem: str) -> None:
    assert refusal(f"waivers:\n- {{{BORNE}, {scope}}}\n").startswith(f"site.yaml:2: {problem}")


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("2026-2-3", "'2026-2-3' is no day: write year-month-day, for instance 2026-12-31"),
        ("2026-02-30", "'2026-02-30' is no day of the calendar: "),
        ("2026-12-31T00:00:00Z", "'2026-12-31T00:00:00Z' is no day: "),
        ("2026-12-31 00:00:00", "'2026-12-31 00:00:00' is no day: "),
        ("20261231", "expected a day for waivers[0].expires, got the number 20261231: "),
        ("31.12.2026", "'31.12.2026' is no day: "),
        ("never", "'never' is no day: "),
        ("~", "expected a day for waivers[0].expires, got the empty value ~: "),
        ("", "expected a day for waivers[0].expires, got nothing: "),
        ("[2026-12-31]", "expected a day for waivers[0].expires, got a list: "),
    ],
)
def test_a_day_that_yaml_or_people_read_otherwise_is_refused(written: str, problem: str) -> None:
    text = f"waivers:\n- rule: NV001\n  reason: r\n  owner: o\n  expires: {written}\n"
    assert refusal(text).startswith(f"site.yaml:5: {problem}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "site.yaml: is empty: a policy file has the keys policy and waivers, as a plan has them"),
        ("- a", "site.yaml:1: expected keys and values, got a list: a policy file has the keys"),
        ("engine: vllm", "site.yaml:1: unknown key 'engine': a policy file has the keys policy and waivers"),
        ("tensor_domain: any", "site.yaml:1: unknown key 'tensor_domain': it belongs under 'policy'"),
        (
            "waivers: {rule: NV001}",
            "site.yaml:1: expected a list for waivers, got keys and values: write each",
        ),
        ("waivers: [NV001]", "site.yaml:1: expected keys and values for waivers[0], got the text"),
        (
            "waivers: [{rule: NV}]",
            "site.yaml:1: 'NV' in waivers[0].rule is no single rule: write for instance",
        ),
        ("waivers:\n- nodes: *\n", "site.yaml:2: is not valid YAML"),
        (f"waivers: [{{{BORNE}}}, {{{BORNE}}}]", "site.yaml:1: waivers[1] stands there twice: remove one"),
        (
            "policy: {expect_rails: [mlx5 0]}",
            "site.yaml:1: 'mlx5 0' in policy.expect_rails is no RDMA device",
        ),
        ("policy: {expect_rails: [a, a]}", "site.yaml:1: 'a' stands twice in policy.expect_rails"),
        ("policy: {expect_nics: 0}", "site.yaml:1: expected a whole number from 1 to"),
        ("policy: {only: TP}", "site.yaml:1: expected a list for policy.only"),
        (
            "policy: {used_memory: 5%}",
            "site.yaml:1: expected a number above 0 and below 1 for policy.used_memo",
        ),
    ],
)
def test_a_file_that_is_no_policy_is_refused(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


def test_a_star_without_quotes_is_told_what_it_needs() -> None:
    assert refusal("waivers:\n- rule: NV001\n  nodes: *gpu\n").endswith(
        "put text that starts with * in quotes"
    )


def test_many_waivers_are_bounded() -> None:
    one = "- {rule: NV001, nodes: 'n[1-60000]', reason: r, owner: %s, expires: 2026-12-31}\n"
    assert "waivers together name more than 100,000" in refusal("waivers:\n" + one % "a" + one % "b")
    few = "- {rule: NV001, reason: r, owner: o%s, expires: 2026-12-31}\n"
    assert "1000 are the most" in refusal("waivers:\n" + "".join(few % n for n in range(1001)))


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(WHOLE)
    assert read_policy(path) == parse_policy(WHOLE, str(path))
    with pytest.raises(PlanError, match="cannot be read"):
        read_policy(tmp_path / "none.yaml")


def test_what_is_read_fits_the_schemas() -> None:
    def dates_as_text(loader: Any, node: yaml.ScalarNode) -> Any:
        return loader.construct_scalar(node)

    class Loader(yaml.SafeLoader):
        """Dates stay the text that they are in JSON."""

    Loader.add_constructor("tag:yaml.org,2002:timestamp", dates_as_text)
    for kind, text in (("policy", WHOLE), ("plan", SMALL + WHOLE)):
        validator = jsonschema.Draft202012Validator(schema_for(kind))  # type: ignore[arg-type]
        validator.validate(yaml.load(text, Loader))  # noqa: S506 - a SafeLoader
        assert not validator.is_valid({"waivers": [{"rule": "NV001", "reason": "r", "owner": "o"}]})


TRAPS = (
    "",
    "010",
    "on",
    "~",
    "2.0",
    "&a ",
    "*a",
    "!!int ",
    "[",
    "{",
    "\t",
    "? ",
    "<<: ",
    "\n---\n",
    '"',
    "n[1-9]",
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A policy file with one span of its text replaced."""
    start = draw(st.integers(0, len(WHOLE)))
    end = draw(st.integers(start, min(len(WHOLE), start + 12)))
    return WHOLE[:start] + draw(st.one_of(st.sampled_from(TRAPS), st.text(max_size=6))) + WHOLE[end:]


@given(st.one_of(st.text(), mutated(), st.permutations(WHOLE.splitlines(keepends=True)).map("".join)))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_policy_or_one_sentence(text: str) -> None:
    outcome = read(text)
    if isinstance(outcome, PlanError):
        assert str(outcome).isprintable()
        assert outcome.problem
    else:
        assert all(waiver.reason and waiver.owner and waiver.expires for waiver in outcome.waivers)
