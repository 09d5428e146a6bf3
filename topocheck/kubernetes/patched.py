"""A gate put into a manifest: lines are added, and every line that was there stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from topocheck.commands.documents import parse_documents
from topocheck.errors import InputError
from topocheck.kubernetes.wanted import FIELDS, GATE, KIND_OF, Kind, Wanted, checked
from topocheck.kubernetes.written import container, extras, failure_policy, lines_at, volumes
from topocheck.launchers.allowed import allowed

__all__ = ["Patched", "patched"]

LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
ADDED = {"initContainers", "volumes", "serviceAccountName", "podFailurePolicy"}
"""Keys that a gate may bring with it."""
VOLUMES = ("topocheck-plan", "topocheck-gates")
TEMPLATES: Mapping[str, Sequence[str]] = {
    "Pod": ("spec",),
    "Job": ("spec", "template", "spec"),
    "JobSet": ("spec", "replicatedJobs", "*", "template", "spec", "template", "spec"),
    "LeaderWorkerSet": ("spec", "leaderWorkerTemplate", "+Template", "spec"),
}
"""Kind of object -> path to the specs of its pods; `*` is each entry of a list, `+Template` the two roles."""
PAIRS = {"+Template": ("leaderTemplate", "workerTemplate")}
REFUSED = (yaml.YAMLError, ValueError, KeyError, AttributeError, TypeError)
"""What PyYAML raises for a tag whose value is none of it: KeyError of `!!bool maybe`, for instance."""
OWN = ("LWS_", "TOPOCHECK_", "JOB_COMPLETION_INDEX")
"""Variables of the main container that the gate's own launcher sets anew."""


@dataclass(frozen=True, slots=True)
class Patched:
    """A manifest with a gate."""

    text: str
    kind: Kind
    """Kind of the job that was found in it."""
    notes: Sequence[str]
    """What the reader ought to know."""


@dataclass(frozen=True, slots=True)
class Place:
    """One mapping of the manifest: as YAML wrote it, and what it holds."""

    node: yaml.MappingNode
    data: dict[str, Any]

    @property
    def line(self) -> int:
        """Line where it starts, from 1."""
        return int(self.node.start_mark.line) + 1

    def get(self, name: str) -> tuple[yaml.Node, yaml.Node] | None:
        """Key and value of an entry that stands in this very mapping."""
        found = (pair for pair in self.node.value if getattr(pair[0], "value", None) == name)
        return next(found, None)


@dataclass(frozen=True, slots=True)
class Insert:
    """Lines that go in front of one of the manifest's."""

    line: int
    """Counted from 0."""
    text: str


def patched(text: str, source: str, wanted: Wanted) -> Patched:
    """The manifest with a gate in every pod of its job, and the objects that the gate needs behind it.

    Raises InputError with the line: for no YAML, for no job or several, for one that has a gate, and where
    the manifest's form leaves no line to add one to.
    """
    parse_documents(text, source)  # refuses what is no YAML, or would never end
    try:
        roots = list(yaml.compose_all(text, Loader=LOADER))
        data = list(yaml.load_all(text, Loader=LOADER))
    except REFUSED as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise InputError("is not plain YAML (a tag, a key that is no text)", path=source, line=line) from None
    job = only_job(roots, data, source)
    kind = KIND_OF[job.data["kind"]]
    meta = job.data.get("metadata")
    space, own = (meta.get("namespace"), meta.get("name")) if isinstance(meta, dict) else (None, None)
    wanted = checked(wanted if wanted.name else replace(wanted, name=str(own or "job")))
    specs = pod_specs(job, source)
    accounts = [place.data.get("serviceAccountName") for place in specs]
    account = account_of(accounts, source, job.line) if wanted.has_account(kind) else None
    inserts = [insert for place in specs for insert in into_pod(place, kind, wanted, source)]
    if wanted.has_account(kind) and account is None:
        own = f'serviceAccountName: "{wanted.name}-topocheck"'
        inserts += [in_front(place, "containers", own, source) for place in specs]
    if kind in ("indexed-job", "jobset"):
        inserts += [insert for place in job_specs(job) for insert in into_job(place, source)]
    beside = extras(kind, wanted, account, space if isinstance(space, str) else None)
    whole = f"{inserted(text, inserts)}---\n{beside}"
    check_kept(data, whole, source)
    whole = whole.replace("\n", "\r\n") if "\r\n" in text else whole
    return Patched(whole, kind, tuple(notes(job, wanted, specs)))


def only_job(roots: Sequence[Any], data: Sequence[Any], source: str) -> Place:
    """The one object that has pods of a job. Raises InputError for none, and for several."""
    found = [
        Place(node, value)
        for root, content in zip(roots, data, strict=True)
        for node, value in objects(root, content)
        if isinstance(value, dict) and isinstance(kind := value.get("kind"), str) and kind in KIND_OF
    ]
    if not found:
        raise InputError(
            "holds no Pod, Job, JobSet or LeaderWorkerSet", path=source, fix="give the job's manifest"
        )
    if len(found) > 1:
        fix = "give each a file of its own"
        raise InputError("holds several jobs", path=source, line=found[1].line, fix=fix)
    return found[0]


def objects(node: Any, data: Any) -> Iterator[tuple[yaml.MappingNode, Any]]:
    """An object, or those of a List."""
    if isinstance(node, yaml.MappingNode) and isinstance(data, dict):
        pair = Place(node, data).get("items")
        if pair is None or not isinstance(pair[1], yaml.SequenceNode):
            yield node, data
        else:
            yield from zip(pair[1].value, data["items"], strict=True)


def pod_specs(job: Place, source: str) -> list[Place]:
    """Specs of the job's pods, one that several templates share once."""
    found = {id(p.node): p for p in down(job, TEMPLATES[job.data["kind"]])}
    if not found:
        raise InputError("shows no pod template", path=source, line=job.line)
    return list(found.values())


def job_specs(job: Place) -> list[Place]:
    """Specs of the Job itself, or of a JobSet's child jobs."""
    path = TEMPLATES[job.data["kind"]][:-2]
    return list({id(p.node): p for p in down(job, path)}.values())


def down(place: Place, path: Sequence[str]) -> Iterator[Place]:
    """Mappings at the end of a path."""
    if not path:
        yield place
        return
    for name in PAIRS.get(path[0], path[:1]):
        pair, value = place.get(name), place.data.get(name)
        if pair is not None and len(path) > 1 and path[1] == "*" and isinstance(pair[1], yaml.SequenceNode):
            for node, entry in zip(pair[1].value, value or (), strict=True):
                if isinstance(node, yaml.MappingNode) and isinstance(entry, dict):
                    yield from down(Place(node, entry), path[2:])
        elif pair is not None and isinstance(pair[1], yaml.MappingNode) and isinstance(value, dict):
            yield from down(Place(pair[1], value), path[1:])


def account_of(accounts: Sequence[Any], source: str, line: int) -> str | None:
    """The service account that all pods have; None if none has one."""
    if any(account != accounts[0] for account in accounts):
        raise InputError(
            "its pods have different service accounts",
            path=source,
            line=line,
            fix="give them the same",
        )
    return accounts[0] if isinstance(accounts[0], str) else None


def into_pod(place: Place, kind: Kind, wanted: Wanted, source: str) -> Iterator[Insert]:
    """The init container, as the first, and its volumes."""
    named = [*listed(place.data, "initContainers"), *listed(place.data, "containers")]
    taken = [entry.get("name") for entry in (*named, *listed(place.data, "volumes"))]
    if any(name in taken for name in (GATE, *VOLUMES)):
        raise InputError(
            "has a gate already", path=source, line=place.line, fix="patch the manifest without it"
        )
    main = next(iter(listed(place.data, "containers")), {})
    gate = container(kind, wanted, extended(main), shared(main, kind))
    yield into_list(place, "initContainers", gate, source)
    yield into_list(place, "volumes", volumes(wanted), source)


def listed(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Entries of a list of mappings."""
    found = data.get(name)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def extended(main: Mapping[str, Any]) -> dict[str, Any]:
    """Devices that the main container asks for: the kubelet gives the same ones to both in turn."""
    resources = main.get("resources")
    limits = resources.get("limits") if isinstance(resources, dict) else None
    found = limits.items() if isinstance(limits, dict) else ()
    return {name: count for name, count in found if isinstance(name, str) and "/" in name}


def shared(main: Mapping[str, Any], kind: Kind) -> list[dict[str, Any]]:
    """Variables of the main container that tell of placement: a rank, a network's choice."""
    own = {name for name, _ in FIELDS[kind]}
    return [
        entry
        for entry in listed(main, "env")
        if isinstance(name := entry.get("name"), str)
        and allowed(name)
        and name not in own
        and not name.startswith(OWN)
        and name != "NVIDIA_DRIVER_CAPABILITIES"
    ]


def into_job(place: Place, source: str) -> Iterator[Insert]:
    """What ends a Job whose gate is shut; Kubernetes takes it where pods are not restarted in place."""
    spec = place.data.get("template", {}).get("spec", {})
    if "podFailurePolicy" not in place.data and spec.get("restartPolicy") == "Never":
        yield in_front(place, "template", failure_policy(), source)


def into_list(place: Place, name: str, text: str, source: str) -> Insert:
    """In front of the first entry of a list, or with a key of its own."""
    pair = place.get(name)
    if pair is None:
        return in_front(place, "containers", f"{name}:\n{lines_at(text, 2)}", source)
    value = pair[1]
    if not isinstance(value, yaml.SequenceNode) or value.flow_style or not value.value:
        fix = "write its entries each on a line of its own, or remove the key"
        raise InputError(
            f"{name} is no list of lines", path=source, line=pair[0].start_mark.line + 1, fix=fix
        )
    return Insert(value.start_mark.line, lines_at(text, value.start_mark.column))


def in_front(place: Place, name: str, text: str, source: str) -> Insert:
    """In front of a key that is there, as deep as it."""
    pair = place.get(name)
    if pair is None or place.node.flow_style:
        fix = "write the pod's spec in block style, with its own containers"
        raise InputError(f"has no {name} on a line of its own", path=source, line=place.line, fix=fix)
    mark = pair[0].start_mark
    return Insert(mark.line, lines_at(text, mark.column))


def inserted(text: str, inserts: Sequence[Insert]) -> str:
    """The text with all of them."""
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    for insert in sorted(inserts, key=lambda one: one.line, reverse=True):
        lines.insert(insert.line, insert.text)
    return "\n".join(lines) + "\n"


def kept(before: Any, after: Any) -> bool:
    """Everything that was there is there, and what is there besides is a gate's."""
    if isinstance(before, dict) and isinstance(after, dict):
        added = after.keys() - before.keys() <= ADDED
        return added and all(name in after and kept(value, after[name]) for name, value in before.items())
    if isinstance(before, list) and isinstance(after, list):
        more = max(0, len(after) - len(before))
        gates = all(isinstance(one, dict) and one.get("name") in (GATE, *VOLUMES) for one in after[:more])
        rest = after[more:]
        return gates and len(rest) == len(before) and all(map(kept, before, rest))
    return type(before) is type(after) and (before == after or str(before) == str(after) == "nan")


def check_kept(data: Sequence[Any], whole: str, source: str) -> None:
    """Read the result again. Raises InputError where it does not hold what was given."""
    try:
        after = list(yaml.load_all(whole, Loader=LOADER))[: len(data)]
    except REFUSED:
        after = []
    if not kept(list(data), after):
        fix = "give it as kubectl get -o yaml prints it"
        raise InputError("its form is none that lines can be added to", path=source, fix=fix)


def notes(job: Place, wanted: Wanted, pods: Sequence[Place]) -> Iterator[str]:
    """What the manifest does that the gate has to live with."""
    for place in job_specs(job) if job.data["kind"] in ("Job", "JobSet") else ():
        limit = place.data.get("backoffLimit", 6)
        if limit:
            yield (
                f"backoffLimit {limit}: a pod that is started again alone finds the verdict of before. "
                "Write backoffLimit: 0, so that the job starts again as a whole"
            )
    if wanted.shares:
        yield "gates meet in ConfigMaps of the job's namespace: the image needs the extra `kubernetes`"
        if any(place.data.get("automountServiceAccountToken") is False for place in pods):
            yield "automountServiceAccountToken: false: without a token no gate reaches the API server"
    elif not wanted.alone:
        yield (
            f"gates meet in the claim {wanted.claim}, which all nodes must be able to write (ReadWriteMany), "
            "as user 65532"
        )
