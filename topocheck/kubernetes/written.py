"""Manifests as text: every value that a template prints is quoted, so none can become structure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml
from jinja2 import Environment

from topocheck.kubernetes.wanted import FIELDS, Kind, Wanted
from topocheck.quotedtemplates import quoted_templates

__all__ = ["container", "extras", "failure_policy", "manifest", "quoted", "volumes"]

ENDLESS = 1 << 30
"""Width at which YAML breaks lines: never."""
BREAKS = re.compile("[\r\x85\u2028\u2029]")
"""What YAML takes for the end of a line, besides a line feed."""


class Ready(str):
    """Text that is YAML already, made by a template here."""

    __slots__ = ()


def quoted(value: Any) -> Any:
    """A value as YAML in one line: text in double quotes, whatever is in it."""
    if isinstance(value, Ready):
        return value
    if isinstance(value, (bool, int)):
        return json.dumps(value)
    if isinstance(value, str):
        return yaml.safe_dump(value, default_style='"', width=ENDLESS).removesuffix("\n")
    return yaml.safe_dump(value, default_flow_style=True, width=ENDLESS, sort_keys=False).removesuffix("\n")


def lines_at(text: str, indent: int) -> Ready:
    """Text of a template, indented."""
    return Ready("\n".join(" " * indent + line if line else "" for line in text.rstrip("\n").split("\n")))


def literal(text: str, indent: int) -> Ready:
    """Printable text of many lines as a block, in which nothing has a meaning.

    Text that a block cannot hold as it is stands in quotes.
    """
    ends_once = text.endswith("\n") and not text.endswith("\n\n") and text != "\n"
    if not ends_once or yaml.reader.Reader.NON_PRINTABLE.search(text) or BREAKS.search(text):
        return Ready(f" {quoted(text)}")
    return Ready(f" |2\n{lines_at(text, indent)}")


@cache
def templates() -> Environment:
    """Templates whose every value passes `quoted`."""
    environment = quoted_templates(quoted)
    environment.filters.update(at=lines_at, literal=literal)
    return environment


def rendered(name: str, **values: Any) -> Ready:
    """One template."""
    return Ready(templates().get_template(f"gate_{name}.yaml.j2").render(values))


def container(kind: Kind, wanted: Wanted, resources: Mapping[str, Any] | None = None, env: Any = ()) -> Ready:
    """The init container, an entry of a list. `env` are entries of the main container that it shares."""
    asked = {wanted.resource: wanted.gpus} if wanted.gpus else {}
    extended = dict(asked if resources is None else resources)
    fields = FIELDS[kind]
    return rendered("container", wanted=wanted, extended=extended, fields=fields, env=list(env))


def volumes(wanted: Wanted) -> Ready:
    """Volumes of the init container: the plan, and where gates meet."""
    return rendered("volumes", wanted=wanted)


def failure_policy() -> Ready:
    """A podFailurePolicy: what cannot be better next time ends the Job."""
    return rendered("failure_policy")


def extras(kind: Kind, wanted: Wanted, account: str | None = None, namespace: str | None = None) -> Ready:
    """Objects beside the job: the plan, and the rights of the gate: to look at its leader, to ConfigMaps."""
    given = account or f"{wanted.name}-topocheck"
    return rendered("objects", kind=kind, wanted=wanted, account=given, made=account is None, space=namespace)


def manifest(kind: Kind, wanted: Wanted) -> str:
    """A whole manifest of one kind."""
    spec = rendered(
        "pod_spec",
        kind=kind,
        wanted=wanted,
        container=container(kind, wanted),
        volumes=volumes(wanted),
    )
    job = rendered(
        kind.replace("-", "_"), kind=kind, wanted=wanted, pod=spec, failure_policy=failure_policy()
    )
    return f"{rendered('head', kind=kind, wanted=wanted)}{extras(kind, wanted)}---\n{job}"
