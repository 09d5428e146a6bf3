"""The schemas say what every field means, and fit the documents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from topocheck import report, snapshot
from topocheck.engines import ENGINES
from topocheck.errors import PlanError
from topocheck.planfile import parse_plan
from topocheck.schema import KINDS, Kind, schema_for, text

SNAPSHOT = snapshot.FullSnapshot(
    schema=snapshot.SCHEMA,
    identity=snapshot.Identity(host=snapshot.Host(name="blue-1"), gpus=(snapshot.GpuId(bus="0000:3d:00.0"),)),
    hardware=snapshot.Hardware(
        gpus=(snapshot.GpuShape(model="Some GPU", links=(snapshot.NvLink(link=0, active=True),)),),
        matrix=snapshot.LinkMatrix(gpus=(("X",),)),
    ),
    environment={"NCCL_DEBUG": "INFO"},
    ranks=(snapshot.RankClaim(rank=0, at=snapshot.At(source="env", line=3)),),
    observed=snapshot.Observed(edges=(snapshot.Edge(src=0, dst=1, via="NET", gdr=True),)),
)

REPORT = report.Report(
    schema=report.SCHEMA,
    tool="topocheck 1",
    at="2026-01-02T03:04:05Z",
    verdict="unknown",
    exit_code=3,
    exit_reason="evidence_missing",
    sentence="Not decided.",
    job="vLLM TP 4",
    phase="predicted",
    counts=report.Counts(
        passed=0,
        failed=0,
        unknown=1,
        not_applicable=0,
        error=0,
        errors=0,
        warnings=0,
        infos=0,
        waived=0,
        required_unknown=1,
    ),
    assumptions=[],
    rules=[],
    gaps=[report.GapReport(need="ranks", about=["q1"], count=1, supply="topocheck probe", rules=["ID001"])],
    inputs=[],
    notes=[],
)

PLANS = [
    "{engine: vllm, nodes: 2}",
    "{engine: vllm, parallel: {tensor: 4, pipeline: 2}, nodes: [a, b], layers: [4, 4]}",
    "{engine: vllm, nodes: 1, model: {layers: 8, experts: 0}}",
    "{engine: vllm, nodes: 'n[1-2]', engine_version: '0.33.0', layers: '4,4'}",
    "{engine: vllm, nodes: {min: 1, max: 2}, policy: {optional: [TP], severity: {TP: error}}}",
]

NO_PLANS = [
    "{engine: vllm}",
    "{engine: none, nodes: 1}",
    "{engine: vllm, nodes: 0}",
    "{engine: vllm, nodes: 1, order: null}",
    "{engine: vllm, nodes: 1, parallel: {tensr: 4}}",
    "{engine: vllm, nodes: 1, parallel: {tensor: 0}}",
    "{engine: vllm, nodes: 1, policy: {boundary: tcp}}",
]


def validator(kind: Kind) -> Any:
    return jsonschema.Draft202012Validator(schema_for(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_and_every_field_is_described(kind: Kind) -> None:
    definitions = schema_for(kind)["$defs"]
    assert definitions
    for name, definition in definitions.items():
        assert definition["description"], name
        assert definition["properties"], name
        for field, schema in definition["properties"].items():
            assert schema.get("description"), f"{name}.{field}"


def test_inherited_fields_keep_their_words_and_own_words_win() -> None:
    fields = schema_for("snapshot")["$defs"]["FullSnapshot"]["properties"]
    assert fields["taken_at"]["description"] == "RFC 3339 time in UTC."
    assert fields["hardware"]["description"] == "Shape of the node."


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_a_schema(kind: Kind) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_for(kind))
    assert schema_for(kind)["$id"] == f"urn:topocheck:{kind}:1"


@pytest.mark.parametrize(("kind", "document"), [("snapshot", SNAPSHOT), ("report", REPORT)])
def test_documents_fit_their_schema(kind: Kind, document: msgspec.Struct) -> None:
    plain = json.loads(msgspec.json.encode(document))
    validator(kind).validate(plain)
    for broken in ({**plain, "schema": 1}, {key: value for key, value in plain.items() if key != "schema"}):
        assert not validator(kind).is_valid(broken)


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_that_is_read_fits_the_schema(plan: str) -> None:
    parse_plan(plan, "plan.yaml")
    validator("plan").validate(yaml.safe_load(plan))


@pytest.mark.parametrize("plan", NO_PLANS)
def test_a_plan_that_is_refused_does_not_fit_the_schema(plan: str) -> None:
    with pytest.raises(PlanError):
        parse_plan(plan, "plan.yaml")
    assert not validator("plan").is_valid(yaml.safe_load(plan))


def test_a_plan_may_name_a_config_and_every_engine() -> None:
    validator("plan").validate({"engine": "vllm", "nodes": 1, "model": "config.json"})
    assert schema_for("plan")["$defs"]["Plan"]["properties"]["engine"]["enum"] == list(ENGINES)


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_the_same_in_every_process(kind: Kind) -> None:
    script = f"from topocheck.schema import text; print(text({kind!r}), end='')"
    for seed in ("1", "2"):
        for switch in ("-B", "-OO"):
            done = subprocess.run(
                [sys.executable, switch, "-c", script],
                env=os.environ | {"PYTHONHASHSEED": seed},
                text=True,
                capture_output=True,
                check=True,
            )
            assert done.stdout == text(kind)
