"""ConfigMaps of one Kubernetes namespace as the store of gates: for a job whose nodes share no folder.

The verdict is created once: creating it again is answered 409 (AlreadyExists), whoever does it. An entry is
replaced only as it was when it was read (its resourceVersion), else 409 (Conflict).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import httpx2
import msgspec
from lightkube.core.exceptions import ConfigError
from lightkube.resources.core_v1 import ConfigMap

from topocheck.errors import UsageError
from topocheck.gather.api_server import PATIENCE_S, StatusError, connected, refusal
from topocheck.gather.configmap import ALL, Place, Shown, digest, made, shown
from topocheck.gather.folder_store import MOST_ENTRIES
from topocheck.gather.leader_pod import ACCOUNT, NAME
from topocheck.gather.pod_owner import Owner, Owners, owners
from topocheck.gather.store import Entry, Refused

__all__ = ["ConfigMapStore"]

Answer = TypeVar("Answer")

PAGE = 250
"""Objects of one answer to a list."""
TRIES = 10
"""How often something is begun again that another writes at the same time."""
REQUESTS_PER_S, OBJECTS_PER_S = 100, 20_000
"""What all gates of a run together ask of the server while they wait: the more they are, the less each."""
LONGEST_POLL_S, LONGEST_LIST_S = 5.0, 10.0
MOST_REMOVED = 500
"""Objects of older runs that are removed at a time; most go with their owners."""


class ConfigMapStore:
    """Entries, verdict and remark of one run in one namespace."""

    def __init__(
        self,
        namespace: str | None,
        run: str,
        env: Mapping[str, str],
        *,
        account: Path = ACCOUNT,
        patience_s: float = PATIENCE_S,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Namespace None is the pod's own. Raises UsageError for one that is none, and without account."""
        self._client = connected(env, account, patience_s=patience_s, pause=pause)
        own: str = self._client.namespace
        self.namespace = namespace or own
        if not NAME.fullmatch(self.namespace) or len(self.namespace) > 63:
            raise UsageError(f"--store k8s:{self.namespace[:80]}: expected the name of a namespace")
        self.run = run
        # Garbage collection takes an owner in another namespace for one that is gone.
        same = self.namespace == (env.get("TOPOCHECK_NAMESPACE") or own)
        self._owners = owners(env) if same else Owners(None, None)
        self._pause = pause
        self._names: Sequence[str] = ()
        self._listed = self._polled = float("-inf")

    def publish(self, name: str, data: bytes) -> None:
        """Create the entry, or replace what this node left before."""
        self._put(Place(self.run, "entry", name), data, self._owners.entry)

    def names(self) -> Sequence[str]:
        """Entries by name, in order; in a large job as they were some seconds ago."""
        count, now = len(self._names), time.monotonic()
        if now - self._listed >= min(LONGEST_LIST_S, count * count / OBJECTS_PER_S):
            found = (one.entry_of(self.run) for one in self._list(Place(self.run, "entry").labels))
            self._names, self._listed = sorted({name for name in found if name is not None}), now
        return self._names

    def entry(self, name: str) -> Entry | Refused | None:
        """One entry, unless it is of another run, too large or damaged."""
        data = self._data(Place(self.run, "entry", name))
        return data if isinstance(data, Refused) or data is None else Entry(name, data)

    def verdict(self) -> bytes | None:
        """The verdict of this run. Raises UsageError for one that somebody else put there."""
        wait = self._polled + min(LONGEST_POLL_S, len(self._names) / REQUESTS_PER_S) - time.monotonic()
        if wait > 0:
            self._pause(wait)
        self._polled = time.monotonic()
        return self._verdict()

    def decide(self, data: bytes) -> bytes:
        """Create the verdict: the first is created, and all others read what it says."""
        place = Place(self.run, "verdict")
        new = made(place, data, namespace=self.namespace, owner=self._owners.verdict)
        for _ in self._tries():
            if self._asked("create", partial(self._client.create, new), 409) is not None:
                return data
            found = self._verdict()
            if found is not None:
                return found
        raise UsageError(f"{self._words(place)}: is gone again and again: somebody removes it")

    def remarked(self) -> bytes | None:
        """The remark. One of somebody else's or a damaged one is none: then each gate finds it out."""
        data = self._data(Place(self.run, "remark"))
        return None if isinstance(data, Refused) else data

    def remark(self, data: bytes) -> None:
        """Create the remark, or replace the one that is there."""
        self._put(Place(self.run, "remark"), data, self._owners.verdict)

    def clean(self, days: float) -> int:
        """Remove what other runs left that made nothing for so many days."""
        newest: dict[str, datetime] = {}
        objects: dict[str, list[str]] = {}
        for found in self._list(ALL):
            if found.run and found.made_at and found.run != digest(self.run):
                newest[found.run] = max(found.made_at, newest.get(found.run, found.made_at))
                objects.setdefault(found.run, []).append(found.object_name)
        now = datetime.now(timezone.utc)
        old = [run for run, last in newest.items() if (now - last).total_seconds() > days * 86_400]
        gone = (name for run in sorted(old) for name in sorted(objects[run]))
        for name in islice(gone, MOST_REMOVED):
            question = partial(self._client.delete, ConfigMap, name, namespace=self.namespace)
            self._asked("delete", question, 404)
        return len(old)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _put(self, place: Place, data: bytes, owner: Owner | None) -> None:
        """Create an object, or replace it as it was when it was read."""
        fill = partial(made, place, data, namespace=self.namespace, owner=owner)
        new = fill()
        for _ in self._tries():
            if self._asked("create", partial(self._client.create, new), 409) is not None:
                return
            there = self._there(place)
            if there is None:
                continue
            if reason := there.foreign(place):
                raise UsageError(f"{self._words(place)}: {reason}: remove it: kubectl delete configmap")
            newer = fill(version=there.version)
            if self._asked("update", partial(self._client.replace, newer), 404, 409) is not None:
                return
        raise UsageError(f"{self._words(place)}: is written by others all the time: are two nodes one host?")

    def _verdict(self) -> bytes | None:
        place = Place(self.run, "verdict")
        data = self._data(place)
        if isinstance(data, Refused):
            raise UsageError(f"{self._words(place)}: {data.reason}: remove it: kubectl delete configmap")
        return data

    def _data(self, place: Place) -> bytes | Refused | None:
        """What lies there; why it is refused; None if nothing does."""
        there = self._there(place)
        return None if there is None else there.data(place)

    def _there(self, place: Place) -> Shown | None:
        question = partial(self._client.get, ConfigMap, place.object_name, namespace=self.namespace)
        found = self._asked("get", question, 404)
        return None if found is None else shown(found)

    def _list(self, labels: Mapping[str, str]) -> Sequence[Shown]:
        """All objects with these labels, without what they hold, from one state of the server."""
        for _ in self._tries():
            found = self._asked("list", partial(self._pages, labels), 410)
            if found is not None:
                return found
        raise UsageError(f"{self._server}: its list of configmaps expires each time before it is read")

    def _pages(self, labels: Mapping[str, str]) -> Sequence[Shown]:
        found: list[Shown] = []
        pages: Iterable[ConfigMap] = self._client.list(
            ConfigMap, namespace=self.namespace, chunk_size=PAGE, labels=dict(labels)
        )
        for one in pages:
            found.append(shown(one))
            if len(found) > MOST_ENTRIES:
                raise UsageError(
                    f"{self._server}: shows more than {MOST_ENTRIES:,} entries, which no job has"
                )
        return found

    def _asked(self, verb: str, question: Callable[[], Answer], *fine: int) -> Answer | None:
        """The answer; None for a refusal with one of these codes. Raises UsageError for all others."""
        try:
            return question()
        except StatusError as error:
            if error.code in fine:
                return None
            raise refusal(error, verb, self.namespace) from None
        except httpx2.HTTPStatusError as error:
            status = StatusError(error.response.status_code, self._server, b"")
            raise refusal(status, verb, self.namespace) from None
        except (ConfigError, OSError) as error:
            raise UsageError(f"{self._server}: this account's token cannot be read: {error}") from None
        except (httpx2.HTTPError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UsageError(
                f"{self._server}: answers what no Kubernetes API server does ({str(error)[:200]}): is the "
                "address right?"
            ) from None

    def _tries(self) -> Iterator[int]:
        """Some tries, with pauses in between that differ from gate to gate."""
        for number in range(TRIES):
            if number:
                self._pause(random.SystemRandom().uniform(0, min(2.0, 0.05 * 2**number)))
            yield number

    def _words(self, place: Place) -> str:
        return f"{self._server}: configmap {place.object_name} in namespace {self.namespace}"

    @property
    def _server(self) -> str:
        return self._client.config.cluster.server
