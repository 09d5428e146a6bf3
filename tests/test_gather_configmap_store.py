"""Entries and one verdict in ConfigMaps, over HTTPS, whatever the API server does."""

from __future__ import annotations

import base64
import gzip
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from api_server import ApiServer, Fault, account, now, served
from gate_pod import env_of, soon
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real import require

from topocheck.errors import UndecidedError, UsageError
from topocheck.gather.configmap import Place, digest
from topocheck.gather.configmap_store import ConfigMapStore
from topocheck.gather.store import Entry, Refused

NAME = "node-1-0a1b2c3d.t0of1"
VERDICT = Place("r1", "verdict").object_name
JOB = {"JOB_UID": "3f1d-job", "TOPOCHECK_JOB_NAME": "train"}
POD = {"TOPOCHECK_NAMESPACE": "prod", "POD_NAME": "train-0-x7k2p", "TOPOCHECK_POD_UID": "77-pod"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("openssl")
    return account(tmp_path_factory.mktemp("account"))


@pytest.fixture
def server(folder: Path) -> Iterator[ApiServer]:
    with served(folder) as state:
        yield state


@pytest.fixture
def store(server: ApiServer, folder: Path) -> Iterator[Callable[..., ConfigMapStore]]:
    made: list[ConfigMapStore] = []

    def make(
        run: str = "r1", *, space: str | None = None, patience_s: float = 20, **more: Any
    ) -> ConfigMapStore:
        env = env_of(server.url.rpartition(":")[2]) | more.pop("env", {})
        where = more.pop("account", folder)
        found = ConfigMapStore(space, run, env, account=where, patience_s=patience_s, pause=soon, **more)
        made.append(found)
        return found

    yield make
    for one in made:
        one.close()


Make = Callable[..., ConfigMapStore]


def failing(*faults: Fault, verb: str | None = None) -> Callable[[str, str], Fault | None]:
    """These faults, one for each request of that verb, and then none."""
    left = list(faults)
    return lambda asked, _: left.pop(0) if left and verb in (None, asked) else None


def labels(run: str, kind: str = "entry") -> dict[str, str]:
    return {
        "app.kubernetes.io/managed-by": "topocheck",
        "topocheck/run": digest(run),
        "topocheck/kind": kind,
    }


def packed(data: bytes) -> dict[str, str]:
    return {"packed.json.gz": base64.b64encode(data).decode()}


# What is written


def test_an_entry_is_a_configmap_with_its_run_and_name_and_comes_back(server: ApiServer, store: Make) -> None:
    store().publish(NAME, b'{"a": 1}')
    ((_, name), found) = next(iter(server.objects.items()))
    assert name == f"topocheck-{digest('r1')}-{digest(NAME)}"
    assert len(name) <= 63
    assert found["metadata"]["labels"] == labels("r1")
    assert found["metadata"]["annotations"] == {"topocheck/run": "r1", "topocheck/entry": NAME}
    assert gzip.decompress(base64.b64decode(found["binaryData"]["packed.json.gz"])) == b'{"a": 1}'
    assert store().names() == [NAME]
    assert store().entry(NAME) == Entry(NAME, b'{"a": 1}')
    assert store().entry("nobody.t0of1") is None


@given(
    run=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,199}", fullmatch=True),
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,230}", fullmatch=True),
    data=st.binary(max_size=200),
)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_run_and_any_name_make_names_that_kubernetes_takes(
    server: ApiServer, store: Make, run: str, name: str, data: bytes
) -> None:
    one = store(run)
    one.publish(name, data)
    assert one.entry(name) == Entry(name, data)
    assert name in one.names()
    one.close()


def test_an_entry_of_the_same_name_is_replaced(server: ApiServer, store: Make) -> None:
    store().publish(NAME, b"first")
    store().publish(NAME, b"second")
    assert store().entry(NAME) == Entry(NAME, b"second")
    assert len(server.objects) == 1


def test_an_entry_that_changes_while_it_is_replaced_is_replaced_all_the_same(
    server: ApiServer, store: Make
) -> None:
    store().publish(NAME, b"first")
    others = [1, 2, 3]

    def touch(verb: str, name: str) -> None:
        if verb == "update" and others:
            others.pop()
            with server.lock:
                server.version += 1
                server.objects["prod", name]["metadata"]["resourceVersion"] = str(server.version)

    server.before = touch
    store().publish(NAME, b"second")
    assert [verb for verb, _ in server.asked].count("update") == 4
    assert store().entry(NAME) == Entry(NAME, b"second")


@pytest.mark.parametrize("when", ["get", "update"])
def test_an_entry_that_goes_while_it_is_replaced_is_created_again(
    server: ApiServer, store: Make, when: str
) -> None:
    store().publish(NAME, b"first")
    gone: list[str] = []

    def remove(verb: str, name: str) -> None:
        if verb == when and not gone:
            gone.append(name)
            with server.lock:
                server.objects.pop(("prod", name), None)

    server.before = remove
    store().publish(NAME, b"second")
    assert store().entry(NAME) == Entry(NAME, b"second")


def test_an_entry_that_others_write_all_the_time_is_given_up_in_words(server: ApiServer, store: Make) -> None:
    store().publish(NAME, b"first")
    server.fault = lambda verb, _: Fault("status", 409) if verb == "update" else None
    with pytest.raises(UsageError, match=f"{server.url}: configmap topocheck-.* two nodes one host"):
        store().publish(NAME, b"second")


def test_what_a_configmap_cannot_hold_is_refused_before_it_is_sent(server: ApiServer, store: Make) -> None:
    with pytest.raises(UsageError, match=r"a ConfigMap holds 1,048,576: use a folder"):
        store().publish(NAME, os.urandom(1 << 20))
    with pytest.raises(UsageError, match=r"node-1-0a1b2c3d.t0of1 has 17,825,792 bytes"):
        store().publish(NAME, b" " * (17 << 20))
    with pytest.raises(UsageError, match=r"the verdict has"):
        store().decide(os.urandom(1 << 20))
    assert server.asked == []
    store().publish(NAME, os.urandom((1 << 20) - 1000))  # what fits, the server takes


# One verdict


def test_of_many_verdicts_at_once_one_is_in_force_for_all(server: ApiServer, store: Make) -> None:
    ready = threading.Barrier(16)

    def decide(number: int) -> bytes:
        one = store()
        ready.wait(60)
        return one.decide(b"verdict %d" % number)

    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(decide, range(16)))
    assert len(found) == 1
    assert {store().verdict()} == found
    assert [one["immutable"] for one in server.verdicts()] == [True]


def test_a_verdict_whose_answer_was_lost_is_adopted_as_it_was_made(server: ApiServer, store: Make) -> None:
    assert store().verdict() is None
    server.fault = failing(Fault("lost"), Fault("cut"), verb="create")
    assert store().decide(b"mine") == b"mine"
    assert len(server.verdicts()) == 1
    assert store().decide(b"other") == b"mine"


def test_a_conflict_without_a_verdict_is_no_verdict(server: ApiServer, store: Make) -> None:
    """A quota that others use at the same time is answered 409 too."""
    server.fault = failing(*[Fault("status", 409)] * 3, verb="create")
    assert store().decide(b"mine") == b"mine"
    server.objects.clear()
    server.fault = lambda verb, _: Fault("status", 409) if verb == "create" else None
    with pytest.raises(UsageError, match="is gone again and again"):
        store().decide(b"mine")


def test_a_verdict_that_somebody_else_put_there_is_refused(server: ApiServer, store: Make) -> None:
    server.put(VERDICT, labels={"app": "else"})
    with pytest.raises(UsageError, match="is none that topocheck made: remove it"):
        store().verdict()
    notes = {"topocheck/run": "r0"}
    server.put(VERDICT, labels=labels("r1", "verdict"), annotations=notes)
    with pytest.raises(UsageError, match="is of run 'r0'"):
        store().decide(b"mine")


def test_the_last_remark_is_in_force_and_a_strangers_is_none(server: ApiServer, store: Make) -> None:
    assert store().remarked() is None
    store().remark(b"first")
    store().remark(b"second")
    assert store().remarked() == b"second"
    assert (store().verdict(), store().names()) == (None, [])
    place = Place("r1", "remark")
    server.put(place.object_name, labels=labels("r1", "remark"), annotations={"topocheck/run": "r0"})
    assert store().remarked() is None
    with pytest.raises(UsageError, match="is of run 'r0': remove it"):
        store().remark(b"third")


FAULTS = st.builds(
    Fault,
    kind=st.sampled_from(["drop", "lost", "cut", "status", "status"]),
    code=st.sampled_from([409, 429, 500, 502, 503, 504]),
    retry_after=st.sampled_from([None, "0", "later"]),
)


@given(faults=st.lists(st.one_of(st.none(), FAULTS), max_size=40))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_mixture_of_faults_gives_two_verdicts(
    server: ApiServer, store: Make, faults: list[Fault | None]
) -> None:
    server.objects.clear()
    left = list(faults)
    server.fault = lambda *_: left.pop(0) if left else None

    def gate(number: int) -> bytes | None:
        one = store(patience_s=2)
        try:
            one.publish(f"node-{number}", b"%d" % number)
            return one.verdict() or one.decide(b"verdict %d" % number)
        except UsageError:
            return None
        finally:
            one.close()

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(gate, range(4))) - {None}
    server.fault = failing()
    assert len(found) <= 1
    if found:
        assert {store().verdict()} == found


# Lists


def test_a_list_is_read_page_by_page_and_without_what_entries_hold(server: ApiServer, store: Make) -> None:
    names = sorted(f"node-{number}.t0of1" for number in range(12))
    for name in names:
        store().publish(name, b"x")
    server.put("other", labels={"app": "else"})
    server.page = 5
    assert store().names() == names
    assert len(server.accepted) == 3
    assert all("as=PartialObjectMetadataList" in accept for accept in server.accepted)


def test_a_list_that_expires_between_two_pages_is_begun_again(server: ApiServer, store: Make) -> None:
    for number in range(12):
        store().publish(f"node-{number}", b"x")
    server.page, server.expiring = 5, 2
    assert len(store().names()) == 12
    server.expiring = 1000
    with pytest.raises(UsageError, match="expires each time"):
        store().names()


def test_a_list_names_this_runs_entries_and_nothing_else(server: ApiServer, store: Make) -> None:
    store("r0").publish(NAME, b"other run")
    store().publish("good.t0of1", b"x")
    store().decide(b"verdict")
    place = Place("r1", "entry", "good.t0of1")
    forged: list[tuple[str, dict[str, str]]] = [
        ("elsewhere", {"topocheck/run": "r1", "topocheck/entry": "good.t0of1"}),
        (Place("r1", "entry", "../x").object_name, {"topocheck/run": "r1", "topocheck/entry": "../x"}),
        (Place("r1", "entry", "a").object_name, {"topocheck/run": "r0", "topocheck/entry": "a"}),
        (Place("r1", "entry", "").object_name, {"topocheck/run": "r1"}),
        ("no-notes", {}),
    ]
    for name, notes in forged:
        server.put(name, labels=labels("r1"), annotations=notes)
    assert store().names() == ["good.t0of1"]
    assert ("prod", place.object_name) in server.objects


def test_a_list_without_end_is_refused(
    server: ApiServer, store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topocheck.gather.configmap_store.MOST_ENTRIES", 10)
    for number in range(12):
        server.put(f"o{number:02}", labels=labels("r1"))
    with pytest.raises(UsageError, match="more than 10 entries, which no job has"):
        store().names()


def test_gates_of_a_large_job_ask_seldom(server: ApiServer, store: Make) -> None:
    for number in range(500):
        name = f"n{number}"
        server.put(
            Place("r1", "entry", name).object_name,
            labels=labels("r1"),
            annotations={"topocheck/run": "r1", "topocheck/entry": name},
        )
    waits: list[float] = []
    one = store()
    one._pause = waits.append  # noqa: SLF001 - how long it would wait
    assert (len(one.names()), len(one.names())) == (500, 500)
    assert [verb for verb, _ in server.asked].count("list") == 2  # two pages, once
    assert (one.verdict(), one.verdict()) == (None, None)
    assert len(waits) == 1
    assert 4 < waits[0] <= 5


# What is there is a stranger's


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"binaryData": packed(gzip.compress(b"x" * (17 << 20)))}, "unpacks to more than 16 MiB"),
        ({"binaryData": packed(gzip.compress(b"text")[:-3])}, "is cut"),
        ({"binaryData": packed(b"\x1f\x8b\x08garbage")}, "is damaged"),
        ({"binaryData": {"packed.json.gz": "***"}}, "holds no packed.json.gz"),
        ({"binaryData": {"packed.json.gz": 7}}, "holds no packed.json.gz"),
        ({"binaryData": {}}, "holds no packed.json.gz"),
        ({"binaryData": None, "data": {"packed.json.gz": "x"}}, "holds no packed.json.gz"),
        ({"labels": {}}, "is none that topocheck made"),
        ({"annotations": {"topocheck/run": "r0", "topocheck/entry": NAME}}, "is of run 'r0'"),
        ({"annotations": {"topocheck/run": "r1", "topocheck/entry": "x"}}, "is another entry"),
        ({"labels": labels("r1", "verdict")}, "is another entry"),
        ({"labels": labels("r2")}, "is of run 'r1'"),
        ({"labels": None, "annotations": None}, "is none that topocheck made"),
    ],
)
def test_an_entry_that_is_none_is_refused_with_the_reason(
    server: ApiServer, store: Make, change: dict[str, Any], words: str
) -> None:
    store().publish(NAME, b"good")
    (there,) = server.objects.values()
    for key, value in change.items():
        (there["metadata"] if key in ("labels", "annotations") else there)[key] = value
    assert store().entry(NAME) == Refused(NAME, words)


def test_an_object_of_somebody_else_is_not_written_over(server: ApiServer, store: Make) -> None:
    server.put(Place("r1", "entry", NAME).object_name, labels={"app": "else"})
    with pytest.raises(UsageError, match="is none that topocheck made: remove it"):
        store().publish(NAME, b"x")
    assert {verb for verb, _ in server.asked} == {"create", "get"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"null",
        b"[]",
        b'{"items": 7}',
        b'{"items": [7]}',
        b'{"items": [{"metadata": {"labels": 7}}]}',
        b'{"metadata": {"labels": [1]}}',
        b'{"metadata": {"creationTimestamp": "soon"}}',
        b"\xff\xfe",
        b'{"a":' * 3000,
        b'{"items": [{"metadata": null}, {"metadata": {"labels": {"topocheck/run": 7}}}]}',
    ],
)
def test_an_answer_that_is_no_api_servers_is_one_sentence(
    server: ApiServer, store: Make, body: bytes
) -> None:
    server.fault = lambda *_: Fault("garbage", body=body or b" ")
    questions: list[Callable[[ConfigMapStore], object]] = [
        lambda one: one.names(),
        lambda one: one.entry(NAME),
        lambda one: one.verdict(),
        lambda one: one.clean(1),
    ]
    for question in questions:
        assert_answer_of_nothing(server, partial(question, store()))


def assert_answer_of_nothing(server: ApiServer, question: Callable[[], object]) -> None:
    """One sentence, or nothing found."""
    try:
        found = question()
    except UsageError as error:
        assert server.url in str(error)  # noqa: PT017 - some bodies are answers, of nothing
    else:
        assert found in ([], 0) or isinstance(found, Refused)


@given(st.binary(max_size=300))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_of_an_answer_are_an_answer_or_one_sentence(
    server: ApiServer, store: Make, body: bytes
) -> None:
    server.fault = lambda *_: Fault("garbage", body=body or b" ")
    one = store()
    for question in (one.names, lambda: one.entry(NAME)):
        assert_answer_of_nothing(server, question)
    one.close()


def test_an_answer_without_end_is_not_read_to_its_end(
    server: ApiServer, store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topocheck.gather.api_server.MOST_ANSWER", 1 << 20)
    server.fault = lambda *_: Fault("garbage", body=b" " * (2 << 20))
    with pytest.raises(UsageError, match="answers with more than 1 MiB"):
        store().entry(NAME)


# Owners


def owner_of(server: ApiServer, name: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = server.objects["prod", name]["metadata"].get("ownerReferences", [])
    return found


@pytest.mark.parametrize(
    ("env", "kind", "uid"),
    [
        (POD | JOB, "Job", "3f1d-job"),
        (POD | JOB | {"JOBSET_NAME": "set", "JOBSET_UID": "9-set"}, "JobSet", "9-set"),
        (
            POD
            | {
                "TOPOCHECK_GROUP_KEY": "k",
                "LWS_WORKER_INDEX": "1",
                "TOPOCHECK_LEADER": "chat-0",
                "TOPOCHECK_LEADER_UID": "5-leader",
            },
            "Pod",
            "5-leader",
        ),
        (POD | {"TOPOCHECK_GROUP_KEY": "k", "LWS_WORKER_INDEX": "0"}, "Pod", "77-pod"),
    ],
)
def test_what_gates_leave_is_their_jobs_or_their_leaders(
    server: ApiServer, store: Make, env: dict[str, str], kind: str, uid: str
) -> None:
    one = store(env=env)
    one.publish(NAME, b"x")
    one.decide(b"y")
    for name in (Place("r1", "entry", NAME).object_name, VERDICT):
        (found,) = owner_of(server, name)
        assert (found["kind"], found["uid"]) == (kind, uid)
        assert "blockOwnerDeletion" not in found  # which asks for a right on the owner


def test_a_pod_that_shows_no_job_owns_its_entry_and_not_the_verdict(server: ApiServer, store: Make) -> None:
    one = store(env=POD)
    one.publish(NAME, b"x")
    one.decide(b"y")
    (found,) = owner_of(server, Place("r1", "entry", NAME).object_name)
    assert found == {"apiVersion": "v1", "kind": "Pod", "name": "train-0-x7k2p", "uid": "77-pod"}
    assert owner_of(server, VERDICT) == []


def test_nothing_of_another_namespace_owns_anything(server: ApiServer, store: Make) -> None:
    """Garbage collection would remove at once what an owner in another namespace has."""
    server.namespaces.add("gates")
    one = store(space="gates", env=POD | JOB)
    one.publish(NAME, b"x")
    ((space, _), found) = next(iter(server.objects.items()))
    assert (space, found["metadata"].get("ownerReferences")) == ("gates", None)


@pytest.mark.parametrize("odd", [{"JOB_UID": "a b"}, {"TOPOCHECK_JOB_NAME": "A/b"}, {"JOB_UID": ""}])
def test_a_job_whose_name_or_uid_is_none_owns_nothing(
    server: ApiServer, store: Make, odd: dict[str, str]
) -> None:
    one = store(env=POD | JOB | odd)
    one.publish(NAME, b"x")
    assert owner_of(server, Place("r1", "entry", NAME).object_name)[0]["kind"] == "Pod"


# Cleaning


def test_old_runs_are_removed_and_this_one_and_others_things_are_not(server: ApiServer, store: Make) -> None:
    for run in ("r1", "old", "mixed"):
        store(run).publish(NAME, b"x")
        store(run).decide(b"y")
    for (_, name), one in server.objects.items():
        if digest("mixed") not in name or name.endswith("verdict"):
            one["metadata"]["creationTimestamp"] = now(9 * 86_400)
    server.put("precious", labels=labels("old"), creationTimestamp=now(9 * 86_400))
    server.page = 2
    assert store().clean(7) == 1
    left = {name for _, name in server.objects}
    assert not [name for name in left if digest("old") in name]
    assert len(left) == 5
    assert "precious" in left


def test_what_another_gate_removed_already_is_no_trouble(server: ApiServer, store: Make) -> None:
    store("old").publish(NAME, b"x")
    next(iter(server.objects.values()))["metadata"]["creationTimestamp"] = now(9 * 86_400)
    server.before = lambda verb, _: server.objects.clear() if verb == "delete" else None
    assert store().clean(7) == 1


# Trouble that passes, and trouble that stays


@pytest.mark.parametrize("kind", ["drop", "lost", "cut", "status"])
@pytest.mark.parametrize("code", [429, 500, 503])
def test_trouble_that_passes_is_waited_for(server: ApiServer, store: Make, kind: str, code: int) -> None:
    def troubled() -> ConfigMapStore:
        server.fault = failing(*[Fault(kind, code, retry_after="0")] * 3)
        return store()

    troubled().publish(NAME, b"x")
    assert troubled().names() == [NAME]
    assert troubled().entry(NAME) == Entry(NAME, b"x")
    assert troubled().verdict() is None
    assert troubled().decide(b"y") == b"y"
    assert troubled().clean(1) == 0


def test_a_server_that_is_throttled_is_given_the_time_that_it_asks_for(
    server: ApiServer, folder: Path
) -> None:
    waits: list[float] = []
    env = env_of(server.url.rpartition(":")[2])
    one = ConfigMapStore(None, "r1", env, account=folder, patience_s=30, pause=waits.append)
    server.fault = failing(Fault("status", 429, retry_after="3"), Fault("status", 429, retry_after="2"))
    assert one.verdict() is None
    assert [int(wait) for wait in waits] == [3, 2]
    server.fault = lambda *_: Fault("status", 429, retry_after="3600")
    with pytest.raises(UndecidedError, match=r"within 30 s \(HTTP 429: busy; it asks to wait 3600 s\): see"):
        one.verdict()
    one.close()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("status", 503), "HTTP 503: busy"),
        (Fault("status", 500, body=b'{"message": "etcd\\u001b[31m timed out"}'), r"etcd \[31m timed out"),
        (Fault("drop"), "without sending a response"),
        (Fault("cut"), "without sending complete"),
    ],
)
def test_trouble_that_stays_ends_in_one_sentence_with_the_address(
    server: ApiServer, store: Make, fault: Fault, words: str
) -> None:
    server.fault = lambda *_: fault
    with pytest.raises(UndecidedError, match=words) as caught:
        store(patience_s=0.3).publish(NAME, b"x")
    assert str(caught.value).startswith(f"{server.url}: the API server gave no answer within 0 s")
    assert "kubectl get --raw /readyz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_is_not_there_is_named(folder: Path) -> None:
    one = ConfigMapStore(None, "r1", env_of("1"), account=folder, patience_s=0.3, pause=soon)
    with pytest.raises(UndecidedError, match=r"https://127.0.0.1:1: the API server .*[Cc]onnection refused"):
        one.names()
    one.close()


def everything(one: ConfigMapStore) -> None:
    """Each verb once."""
    one.publish(NAME, b"y")
    one.names()
    one.verdict()
    one.clean(7)


@pytest.mark.parametrize("verb", ["create", "get", "list", "update", "delete"])
def test_a_right_that_lacks_is_named_with_the_rule_that_gives_it(
    server: ApiServer, store: Make, verb: str
) -> None:
    store("old").publish(NAME, b"x")
    next(iter(server.objects.values()))["metadata"]["creationTimestamp"] = now(9 * 86_400)
    store().publish(NAME, b"x")
    server.verbs.discard(verb)
    with pytest.raises(UsageError) as caught:
        everything(store())
    assert f"may not {verb} configmaps in namespace prod (HTTP 403)" in str(caught.value)
    assert f'{{apiGroups: [""], resources: ["configmaps"], verbs: ["{verb}"]}}' in str(caught.value)


def test_a_refusal_for_another_reason_is_told_as_the_server_tells_it(server: ApiServer, store: Make) -> None:
    body = json.dumps(
        {"kind": "Status", "message": "configmaps is forbidden: exceeded quota: small"}
    ).encode()
    server.fault = lambda *_: Fault("status", 403, body=body)
    with pytest.raises(UsageError, match=r"\(HTTP 403\): configmaps is forbidden: exceeded quota: small$"):
        store().publish(NAME, b"x")


def test_a_namespace_that_is_not_there_is_named(server: ApiServer, store: Make) -> None:
    with pytest.raises(UsageError, match="has no namespace nowhere"):
        store(space="nowhere").publish(NAME, b"x")


@pytest.mark.parametrize("space", ["../secrets", "A", "a b", "a" * 64, "-a"])
def test_a_namespace_that_is_no_name_is_refused(server: ApiServer, store: Make, space: str) -> None:
    with pytest.raises(UsageError, match="expected the name of a namespace"):
        store(space=space)
    assert server.asked == []


# Accounts


def copied(folder: Path, to: Path, content: str = "right") -> Path:
    for name in ("ca.crt", "namespace"):
        (to / name).write_bytes((folder / name).read_bytes())
    (to / "token").write_text(content)
    return to


def test_a_token_that_rotates_is_read_again(
    server: ApiServer, store: Make, folder: Path, tmp_path: Path
) -> None:
    one = store(account=copied(folder, tmp_path))
    one.publish(NAME, b"x")
    (tmp_path / "token").write_text("newer\n")
    server.tokens = {"newer"}
    assert one.entry(NAME) == Entry(NAME, b"x")
    assert one.names() == [NAME]


def test_a_token_that_nobody_knows_is_told_and_never_shown(
    server: ApiServer, store: Make, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"does not accept this account's token \(HTTP 401\)") as caught:
        store(account=copied(folder, tmp_path, "hush-hush")).names()
    assert "hush" not in str(caught.value)
    for odd in ("hush\nhush", "hush\u00e9", ""):
        (tmp_path / "token").write_text(odd)
        with pytest.raises(UsageError) as caught:
            store(account=tmp_path).names()
        assert "hush" not in str(caught.value)
    one = store(account=tmp_path)
    (tmp_path / "token").unlink()
    with pytest.raises(UsageError, match="token cannot be read"):
        one.names()


def test_a_server_that_the_accounts_authority_did_not_sign_gets_no_token(
    server: ApiServer, store: Make, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="is signed by nobody whom this account"):
        store(account=account(tmp_path)).publish(NAME, b"x")
    assert server.asked == []


def test_without_account_or_with_a_bad_one_it_is_said(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="automountServiceAccountToken: true, or set KUBECONFIG"):
        ConfigMapStore(None, "r1", env_of("1"), account=tmp_path)
    copied(folder, tmp_path)
    (tmp_path / "ca.crt").write_text("none")
    with pytest.raises(UsageError, match="certificates cannot be read"):
        ConfigMapStore(None, "r1", env_of("1"), account=tmp_path)
    (tmp_path / "namespace").unlink()
    with pytest.raises(UsageError, match="shows no API server that can be used"):
        ConfigMapStore(None, "r1", env_of("1"), account=tmp_path)


def test_a_kubeconfig_serves_outside_of_a_pod(server: ApiServer, folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(kubeconfig(server, folder))
    one = ConfigMapStore(None, "r1", {"KUBECONFIG": str(config)}, account=tmp_path, pause=soon)
    one.publish(NAME, b"x")
    assert one.names() == [NAME]
    one.close()


def kubeconfig(server: ApiServer, folder: Path) -> str:
    cluster = {"server": server.url, "certificate-authority": str(folder / "ca.crt")}
    return json.dumps(
        {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"tokenFile": str(folder / "token")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "prod"}}],
        }
    )


@pytest.mark.parametrize(
    "text",
    ["", "a: [", "[]", "7", "clusters: 7", "current-context: a\nclusters: []\ncontexts: []\nusers: []", "\0"],
)
def test_a_kubeconfig_that_is_none_is_one_sentence(tmp_path: Path, text: str) -> None:
    config = tmp_path / "config"
    config.write_text(text)
    with pytest.raises(UsageError, match="config"):
        ConfigMapStore(None, "r1", {"KUBECONFIG": str(config)}, account=tmp_path)
    with pytest.raises(UsageError, match="absent"):
        ConfigMapStore(None, "r1", {"KUBECONFIG": str(tmp_path / "absent")}, account=tmp_path)
