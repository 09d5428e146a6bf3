"""Kubernetes manifests of a job: how many pods of each role, what they start, and what they ask for.

Read are LeaderWorkerSet, JobSet, Job, PyTorchJob, MPIJob, RayCluster and RayJob, StatefulSet, Deployment
and Pod (API versions: lws 060ab4da, jobset 08dfbdfd, training-operator 1417bbc3, mpi-operator caa3c47f). A
resource that a manifest does not show is not known, not zero: a device plugin, a claim or an admission
hook may add it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from topocheck.commands import Launch, parse_script, parse_words
from topocheck.commands.documents import Node, parse_documents
from topocheck.errors import CaptureError, InputError
from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.launch_facts import state_launch
from topocheck.probes.capture.log_line import Line
from topocheck.probes.capture.manifest_kinds import KINDS, Role
from topocheck.probes.capture.prompt import sections
from topocheck.probes.capture.reading import Note, Reading, Text

__all__ = ["GPU", "KIND", "containers", "documents", "parse", "started", "variables"]

KIND = "kubernetes manifest"

START = re.compile(r"(?:apiVersion|kind|metadata|items):.*|---\s*")
OURS = re.compile(r"\s*(?:- )?kind:\s*[\"']?(?:" + "|".join(KINDS) + r")[\"']?\s*(?:#.*)?")
GPU = re.compile(r"(?:nvidia\.com/(?:gpu|mig-[\w.-]+)|amd\.com/gpu)")
USE = re.compile(r"\$\(([A-Za-z_]\w*)\)")
"""`$(NAME)` in command and args, which Kubernetes replaces by the container's own variables."""
MOST_ITEMS = 10_000


def parse(text: Text) -> list[Reading]:
    """Read every manifest of these kinds; [] if there is none. Raises CaptureError for damaged YAML."""
    if not any(OURS.fullmatch(line) for line in text.lines):
        return []
    evidence = JobEvidence(KIND, text.source)
    for section in sections(text):
        lines = text.lines[section.start - 1 : section.end]
        first = next((place for place, line in enumerate(lines) if START.fullmatch(line)), None)
        if first is not None and any(OURS.fullmatch(line) for line in lines):
            for document in documents(lines[first:], text.source, section.start + first):
                state_object(evidence, document)
    return evidence.readings()


def documents(lines: Sequence[str], source: str, first: int) -> Iterator[Node]:
    """Objects of a YAML stream; `kubectl get` puts several into a List."""
    try:
        found = parse_documents("\n".join(lines), source, first)
    except InputError as error:
        raise CaptureError(
            f"a Kubernetes manifest {error.problem}",
            path=source,
            line=error.line,
            fix="give the manifest as a file of its own, as kubectl get -o yaml prints it",
        ) from None
    for document in found:
        items = document.get("items")
        yield from items.items[:MOST_ITEMS] if items is not None and items.items else (document,)


def state_object(evidence: JobEvidence, document: Node) -> None:
    """One object: its shape, and what each role starts."""
    kind = document.at("kind") or ""
    if kind not in KINDS:
        return
    shape = KINDS[kind](document)
    evidence.engine = None
    where = Line(shape.line, "")
    if shape.nodes is not None:
        evidence.fact(where, "nodes", shape.nodes, kind)
    if shape.replicas is not None:
        evidence.fact(where, "replicas", shape.replicas, kind)
    if shape.processes_per_node is not None:
        evidence.fact(where, "processes-per-node", shape.processes_per_node, "agent")
    for role in shape.roles:
        state_role(evidence, role)
    evidence.notes += [Note(line, "cut", words) for line, words in shape.missing]
    if shape.entrypoint is not None and shape.entrypoint.text:
        line = Line(shape.entrypoint.line, "")
        for found in parse_script(shape.entrypoint.text):
            state_launch(evidence, line, found.launch)


def state_role(evidence: JobEvidence, role: Role) -> None:
    """The pods of one role. A node rank in its command is the same for all of them."""
    evidence.engine = None
    if role.pods is not None:
        evidence.fact(Line(role.line, ""), "pods", role.pods, role.name)
    for container in containers(role.template):
        state_gpus(evidence, container, role.name)
        environment = variables(container)
        for line, launch in started(container, environment):
            state_launch(evidence, Line(line, ""), launch, role=role.name)


def containers(template: Node | None) -> Sequence[Node]:
    """Containers of a pod template; those that run before it do not belong to the job."""
    found = None if template is None else template.get("spec", "containers")
    return () if found is None else found.items


def state_gpus(evidence: JobEvidence, container: Node, role: str) -> None:
    """GPUs that a pod asks for. No such entry says nothing."""
    for side in ("limits", "requests"):
        resources = container.get("resources", side)
        for name, value in resources.fields if resources is not None else ():
            count = value.text or ""
            if GPU.fullmatch(name) and count.isdecimal() and len(count) < 7:
                evidence.fact(Line(value.line, ""), "gpus-per-node", int(count), role)


def variables(container: Node) -> dict[str, str]:
    """Variables with a value of their own; one that comes from a field or a secret stays out."""
    entries = container.get("env")
    return {
        name: value
        for entry in (entries.items if entries is not None else ())
        if (name := entry.at("name")) and (value := entry.at("value")) is not None
    }


def started(container: Node, environment: dict[str, str]) -> Iterator[tuple[int, Launch]]:
    """(line, launch) of what a container runs: command and args are one list of words."""
    words: list[str] = []
    line = container.line
    for name in ("command", "args"):
        node = container.get(name)
        if node is not None:
            words += [
                USE.sub(lambda use: environment.get(use[1], use[0]), item.text or "") for item in node.items
            ]
            line = node.items[0].line if node.items else node.line
    if words:
        for launch in parse_words(words, environment):
            yield line, launch
