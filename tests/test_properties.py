"""What must hold for any job: no evidence is no pass, less proves no more, names and order do not count."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from build import (
    AT,
    FOUR,
    H100,
    L40S,
    TWO,
    fact,
    full,
    log,
    nics,
    pair,
    paired,
    placed,
    plan,
    report,
    running,
    snap,
    sockets,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from topocheck.checklist import Gate, build_report
from topocheck.placed import placement_report
from topocheck.plan import BASES, Basis
from topocheck.render.json_report import render
from topocheck.report import Report
from topocheck.rules import RULES
from topocheck.snapshot import Coverage, FullSnapshot, GpuState, Hardware, Host, Identity, State
from topocheck.verify import run_rules

PARTS = ("ranks", "hardware", "environment", "observed", "coverage", "fabric", "faults", "identity", "limits")
REQUIRED = {rule.id for rule in RULES if rule.required}
FEW = settings(max_examples=40, deadline=None)


def some_job(draw: Any) -> tuple[str, list[FullSnapshot]]:
    """A job of up to three nodes, well or not, claimed or seen running or neither."""
    tensor, pipeline, data = draw(st.sampled_from([(4, 2, 1), (8, 1, 1), (2, 2, 2), (1, 8, 1), (2, 4, 1)]))
    nodes = draw(st.sampled_from(["2", "[node-a, node-b]", "[node-b, node-a]", "3"]))
    text = (
        f"engine: vllm\nparallel: {{tensor: {tensor}, pipeline: {pipeline}, data: {data}}}\n"
        f"nodes: {nodes}\npolicy: {{tensor_domain: {draw(st.sampled_from(['node', 'any', 'nvlink']))}}}\n"
    )
    order = draw(st.permutations(range(8))) if draw(st.booleans()) else list(range(8))
    kind = {
        "links": draw(st.sampled_from([None, paired, sockets, lambda _a, _b: "NV18"])),
        "model": draw(st.sampled_from([H100, L40S, None])),
        "switch": draw(st.sampled_from([None, True])),
        "ports": draw(st.sampled_from([(), nics(), nics(state="DOWN"), nics(state=None)])),
        "near": draw(st.sampled_from(["PIX", "SYS", "NODE", None])),
        "coverage": draw(st.sampled_from([full(ranks="all"), full(gpus="part"), Coverage()])),
    }
    claimed = draw(st.booleans())
    views = [
        snap(name, order[first : first + 4] if claimed else (), **kind)
        for name, first in (("node-a", 0), ("node-b", 4))
    ]
    if draw(st.booleans()):
        views += running(draw(st.sampled_from(["NET/IB/0/GDRDMA", "NET/Socket/0", "P2P/MNNVL"])))
    return text, views


def verdicts(found: Report) -> dict[str, str]:
    return {rule.id: rule.verdict for rule in found.rules}


@given(
    st.sampled_from([1, 2, 3]),
    st.sampled_from(["tensor: 4", "pipeline: 4", "data: 4", "tensor: 2, pipeline: 2"]),
)
@FEW
def test_without_evidence_no_required_rule_passes_beyond_a_prediction_and_the_gate_stays_shut(
    nodes: int, sizes: str
) -> None:
    found = report(f"engine: vllm\nparallel: {{{sizes}}}\nnodes: {nodes}\n")
    assert found.exit_code in {1, 3}  # a size that fits no order of the nodes is wrong without any evidence
    assert found.counts.required_unknown > 0
    for rule in found.rules:
        if rule.required:
            assert rule.verdict != "pass" or rule.basis == "predicted"


def without(view: FullSnapshot, part: str) -> FullSnapshot:
    """The view without one of its parts; the host stays."""
    if part == "identity":
        bare = Identity(host=view.identity.host)
        return msgspec.structs.replace(
            view, identity=bare, hardware=Hardware(), ranks=(), observed=None, fabric=(), coverage=Coverage()
        )
    empty: dict[str, Any] = {
        "ranks": (),
        "hardware": Hardware(),
        "environment": {},
        "observed": None,
        "coverage": Coverage(),
        "fabric": (),
        "faults": (),
        "limits": type(view.limits)(),
    }
    return msgspec.structs.replace(view, **{part: empty[part]})


def proven(found: Report, rule: str, phase: Basis) -> bool:
    """It passes on the basis of that phase or a stronger one, or on none of any placement."""
    one = next(each for each in found.rules if each.id == rule)
    basis = one.basis or found.phase
    return one.verdict == "pass" and BASES.index(basis) >= BASES.index(phase)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_taking_evidence_away_proves_nothing_that_was_not_proven(data: st.DataObject) -> None:
    text, views = some_job(data.draw)
    whole = report(text, *views)
    place = data.draw(st.integers(0, len(views) - 1))
    if data.draw(st.booleans()):
        fewer: Sequence[FullSnapshot] = [view for n, view in enumerate(views) if n != place]
    else:
        part = data.draw(st.sampled_from(PARTS))
        fewer = [without(view, part) if n == place else view for n, view in enumerate(views)]
    less = report(text, *fewer)
    assume(less.phase == whole.phase)  # another column carries the verdicts else
    before = verdicts(whole)
    for rule in less.rules:
        if rule.required and before[rule.id] in {"unknown", "fail"}:
            assert not proven(less, rule.id, whole.phase), f"{rule.id} was {before[rule.id]}"


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_the_order_of_the_hosts_in_a_stream_changes_no_byte(data: st.DataObject) -> None:
    text, views = some_job(data.draw)
    hosts: dict[str | None, list[FullSnapshot]] = {}
    for view in views:
        hosts.setdefault(view.identity.host.name, []).append(view)
    order = data.draw(st.permutations(list(hosts)))
    turned = [view for name in order for view in hosts[name]]
    assert render(report(text, *views, whole=True)) == render(report(text, *turned, whole=True))


def renamed(view: FullSnapshot, names: dict[str, str]) -> FullSnapshot:
    host = view.identity.host
    new = Host(name=names[host.name or ""], boot_id=host.boot_id)
    return msgspec.structs.replace(view, identity=msgspec.structs.replace(view.identity, host=new))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_other_host_names_change_names_alone(data: st.DataObject) -> None:
    text, views = some_job(data.draw)
    names = data.draw(
        st.sampled_from([{"node-a": "rack-1", "node-b": "rack-2"}, {"node-a": "zz", "node-b": "q"}])
    )
    other = text
    for old, new in names.items():
        other = other.replace(old, f"<{new}>")
    other = other.replace("<", "").replace(">", "")
    plain, changed = report(text, *views), report(other, *[renamed(view, names) for view in views])
    assert verdicts(plain) == verdicts(changed)
    assert (plain.exit_code, plain.counts) == (changed.exit_code, changed.counts)
    if list(names.values()) == sorted(names.values()):
        told = render(plain)
        for old, name in names.items():
            told = (
                told.replace(f"{old}.json", f"{name}-json")
                .replace(f"{old}.log", f"{name}-log")
                .replace(old, name)
            )
        shown = render(changed)
        for old, name in names.items():
            shown = shown.replace(f"{old}.json", f"{name}-json").replace(f"{old}.log", f"{name}-log")
        assert told == shown


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_nodes_in_unknown_order_are_judged_alike_in_every_order_or_not_at_all(data: st.DataObject) -> None:
    _, views = some_job(data.draw)
    counts = data.draw(st.lists(st.integers(2, 4), min_size=2, max_size=3))
    hosts = [
        snap(f"n{n}", count=count, links=paired if count < 4 else sockets) for n, count in enumerate(counts)
    ]
    size = 4 * len(counts)
    text = f"engine: vllm\nparallel: {{tensor: 4, pipeline: {size // 4}}}\nnodes: "
    free = verdicts(report(f"{text}{len(counts)}\n", *hosts))
    named = [
        verdicts(report(f"{text}[{', '.join(f'n{n}' for n in order)}]\n", *hosts))
        for order in itertools.permutations(range(len(counts)))
    ]
    for rule, verdict in free.items():
        ordered = {each[rule] for each in named}
        assert verdict == "unknown" or ordered == {verdict}, rule
    assert views


BESIDE = [
    snap(None, boot=None, links=sockets, model=L40S),
    snap(None, boot=None, ports=nics(state="DOWN"), count=2),
    snap(None, boot=None, nvlinks=[0] * 4),
]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_file_without_a_host_changes_no_finding_of_a_job_of_several_nodes(data: st.DataObject) -> None:
    text, views = some_job(data.draw)
    alone = report(text, *views)
    beside = report(text, *views, *data.draw(st.lists(st.sampled_from(BESIDE), min_size=1, max_size=2)))
    assert alone.rules == beside.rules
    assert (alone.gaps, alone.exit_code) == (beside.gaps, beside.exit_code)


def test_a_log_without_a_host_accuses_nobody() -> None:
    seen = running("NET/Socket/0")[0].observed
    assert seen
    for view in (
        log(None, seen.comms),
        log(None, edges=seen.edges),
        log(None, facts=[fact("no-verbs"), fact("abort", "x"), fact("env", "NCCL_HOSTID=1")]),
    ):
        found = report(TWO, *pair(), view)
        assert [finding for rule in found.rules for finding in rule.findings] == []


@given(st.data())
@FEW
def test_evidence_given_twice_is_the_evidence(data: st.DataObject) -> None:
    text, views = some_job(data.draw)
    once, twice = report(text, *views), report(text, *views, *views)
    assert once.rules == twice.rules
    assert once.sentence == twice.sentence


RARE = 0.08
"""How many values are replaced."""

ODD: dict[type, list[Any]] = {
    bool: [True, False],
    int: [-1, 0, 7, 2**31, 2**63, 2**70, -(2**40)],
    float: [0.0, -1.0, 1e308],
    str: ["", "X", "\x1b[31m", "a" * 5000, "0", "NV99999999999"],
}


def scramble(value: Any, random_: random.Random) -> Any:
    """A document with some values replaced by odd ones of their kind."""
    if isinstance(value, dict):
        return {key: scramble(each, random_) for key, each in value.items()}
    if isinstance(value, list):
        return [scramble(each, random_) for each in value]
    odd = ODD.get(type(value), [])
    return (
        random_.choice([*odd, value[::-1] if isinstance(value, str) else value])
        if random_.random() < RARE
        else value
    )


@given(st.randoms(use_true_random=False), st.sampled_from([pair(), [*pair(), *running()], running()]))
@settings(max_examples=100, deadline=None)
def test_a_hostile_snapshot_is_refused_or_judged_and_breaks_no_rule(
    random_: random.Random, views: list[FullSnapshot]
) -> None:
    from topocheck.errors import TopocheckError  # noqa: PLC0415 - what may be raised
    from topocheck.gather.stream import decode_snapshot  # noqa: PLC0415 - the door
    from topocheck.inventory import Inventory  # noqa: PLC0415
    from topocheck.placement import place  # noqa: PLC0415

    found = Inventory()
    for view in views:
        text = json.dumps(scramble(json.loads(msgspec.json.encode(view)), random_)).encode()
        try:
            found.add(decode_snapshot(text, "x.json", 1))
        except (TopocheckError, msgspec.MsgspecError, OverflowError):
            continue
    try:
        placement = place(plan(TWO), found)
    except TopocheckError:
        return
    answers = run_rules(RULES, placement)
    assert [answer.reason for answer in answers if answer.broke] == []
    shown = build_report(placement, answers, [], at=AT, gate=Gate())
    assert render(msgspec.structs.replace(shown, placement=placement_report(placement, answers)))


def test_counters_of_a_node_change_no_verdict() -> None:
    busy = State(gpus=(GpuState(gpu=0, ecc_corrected=17, rows_remapped=1, throttle=("sw_power_cap",)),))
    changed = [msgspec.structs.replace(view, state=busy, taken_at=AT) for view in pair()]
    assert report(TWO, *pair()).rules == report(TWO, *changed).rules


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_a_job_of_one_node_stands_on_any_number_of_gpus_that_holds_it(count: int) -> None:
    found = report(FOUR.replace("tensor: 4", f"tensor: {count}"), snap(count=8))
    assert found.exit_code == 0
    assert placed(FOUR, snap(count=8)).phase == "predicted"
