"""One ConfigMap that a gate leaves: what is written into it, and what one that is found there shows.

    topocheck-RUN-ENTRY     one for each gate: digests of the run's id and of the entry's name
    topocheck-RUN-verdict   immutable
    topocheck-RUN-remark    what is undecided; the last one is in force

The id and the name stand whole in annotations; labels are what lists are asked by.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import ConfigMap

from topocheck.errors import UsageError
from topocheck.gather.folder_store import ENTRY, unpacked
from topocheck.gather.pod_owner import Owner
from topocheck.gather.store import MOST_BYTES, Refused

__all__ = ["ALL", "Kind", "Place", "Shown", "digest", "made", "shown"]

Kind = Literal["entry", "remark", "verdict"]

MOST_PACKED = 1 << 20
"""Bytes of values that a ConfigMap may hold: 1 MiB (Kubernetes, validation.go: MaxSecretSize)."""
MANAGED, BY = "app.kubernetes.io/managed-by", "topocheck"
ALL: Mapping[str, str] = {MANAGED: BY}
"""Labels of everything that gates leave."""
RUN, KIND, NAME = "topocheck/run", "topocheck/kind", "topocheck/entry"
KEY = "packed.json.gz"


class Place(NamedTuple):
    """Where an entry, the remark or the verdict of a run lies."""

    run: str
    """Id of the run."""
    kind: Kind
    name: str = ""
    """Name of the entry."""

    @property
    def object_name(self) -> str:
        """Of letters that Kubernetes takes, and of 63 at most."""
        return f"{BY}-{digest(self.run)}-{digest(self.name) if self.kind == 'entry' else self.kind}"

    @property
    def labels(self) -> dict[str, str]:
        """By which all of this kind are found."""
        return {**ALL, RUN: digest(self.run), KIND: self.kind}

    @property
    def annotations(self) -> dict[str, str]:
        """What labels have no room for."""
        return {RUN: self.run, NAME: self.name} if self.kind == "entry" else {RUN: self.run}


class Shown(NamedTuple):
    """What an object of the server shows. Anybody may have put it there."""

    object_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    version: str | None
    """Of the object, which changes with each write."""
    made_at: datetime | None
    packed: bytes
    """Nothing where a list was asked for."""

    @property
    def run(self) -> str:
        """Digest of the run that it is of, by label and name; empty if the two do not agree."""
        found = self.labels.get(RUN, "")
        return found if re.fullmatch(rf"{BY}-{re.escape(found)}-[a-z0-9]+", self.object_name) else ""

    def entry_of(self, run: str) -> str | None:
        """Name of the run's entry that this is; None if it is none."""
        name = self.annotations.get(NAME, "")
        place = Place(run, "entry", name)
        right = ENTRY.fullmatch(name) and self.object_name == place.object_name
        return name if right and not self.foreign(place) else None

    def foreign(self, place: Place) -> str:
        """Why it is not what ought to lie there; empty if it is."""
        if any(self.labels.get(name) != value for name, value in ALL.items()):
            return "is none that topocheck made"
        if self.annotations.get(RUN) != place.run or self.run != digest(place.run):
            return f"is of run {self.annotations.get(RUN, '')[:80]!r}"
        if self.labels.get(KIND) != place.kind or self.annotations.get(NAME, "") != place.name:
            return "is another entry"
        return ""

    def data(self, place: Place) -> bytes | Refused:
        """What was left there, or why it is not used."""
        name = place.name or self.object_name
        reason = self.foreign(place) or ("" if self.packed else f"holds no {KEY}")
        return Refused(name, reason) if reason else unpacked(name, self.packed)


def shown(found: ConfigMap) -> Shown:
    """The object as it is taken here: what is of another type than it ought to be is not there."""
    meta, values = found.metadata or ObjectMeta(), found.binaryData
    text = values.get(KEY) if isinstance(values, dict) else None
    try:
        packed = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        packed = b""
    made_at = meta.creationTimestamp
    return Shown(
        object_name=meta.name or "",
        labels=texts(meta.labels),
        annotations=texts(meta.annotations),
        version=meta.resourceVersion,
        made_at=made_at if isinstance(made_at, datetime) and made_at.tzinfo else None,
        packed=packed,
    )


def made(
    place: Place, data: bytes, *, namespace: str, owner: Owner | None, version: str | None = None
) -> ConfigMap:
    """An object that holds the data. Raises UsageError for more than one may hold."""
    packed = gzip.compress(data, compresslevel=9, mtime=0)
    if len(packed) > MOST_PACKED or len(data) > MOST_BYTES:
        what = place.name or f"the {place.kind}"
        raise UsageError(
            f"{what} has {len(data):,} bytes, {len(packed):,} packed, and a ConfigMap holds {MOST_PACKED:,}: "
            "use a folder that all nodes share, --store file:/shared/gates"
        )
    meta = ObjectMeta(
        name=place.object_name,
        namespace=namespace,
        labels=place.labels,
        annotations=place.annotations,
        ownerReferences=None if owner is None else [reference(owner)],
        resourceVersion=version,
    )
    text = base64.b64encode(packed).decode()
    return ConfigMap(metadata=meta, binaryData={KEY: text}, immutable=place.kind == "verdict" or None)


def reference(owner: Owner) -> OwnerReference:
    """Not one that keeps the owner from going: an account needs a right to that (finalizers)."""
    return OwnerReference(apiVersion=owner.api, kind=owner.kind, name=owner.name, uid=owner.uid)


def texts(values: object) -> Mapping[str, str]:
    """Those of a mapping that are text."""
    found = values.items() if isinstance(values, dict) else ()
    return {name: value for name, value in found if isinstance(name, str) and isinstance(value, str)}


def digest(text: str) -> str:
    """What names and labels of Kubernetes have room for."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]
