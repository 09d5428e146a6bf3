"""A Kubernetes API server for tests: ConfigMaps and pods over real HTTPS, and every trouble on order.

It answers as kube-apiserver does where gates rest on it: AlreadyExists and Conflict (409), pages whose
continue tokens expire (410), metadata alone on demand, roles (403), tokens (401), validation (422), immutable
objects.
"""

from __future__ import annotations

import base64
import http.server
import json
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["ALL_VERBS", "ApiServer", "Fault", "account", "served"]

SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
LABEL_KEY = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
PATH = re.compile(r"/api/v1/namespaces/([^/]+)/(configmaps|pods)(?:/([^/]+))?")
VERBS = {"POST": "create", "PUT": "update", "DELETE": "delete", "PATCH": "patch"}
ALL_VERBS = frozenset({"create", "delete", "get", "list", "update"})
"""What the store needs in all: the manifests' Role has these verbs, and no more."""
MOST = 1 << 20


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request."""

    kind: str
    """`status`, `drop` (before anything is done), `lost` (done, and the answer lost), `cut`, `garbage`."""
    code: int = 503
    retry_after: str | None = None
    body: bytes = b""


@dataclass
class ApiServer:
    """State of the server. Tests read and change it while it runs, under `lock`."""

    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict, repr=False)
    pods: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=lambda: {"prod"})
    tokens: set[str] = field(default_factory=lambda: {"right"})
    verbs: set[str] = field(default_factory=lambda: set(ALL_VERBS))
    """What the role allows on configmaps."""
    fault: Callable[[str, str], Fault | None] = lambda *_: None
    """Asked for each request with its verb and the object's name."""
    before: Callable[[str, str], None] = lambda *_: None
    """Called for each request that is allowed, before it is done and without the lock."""
    expiring: int = 0
    """How many continue tokens are refused yet."""
    page: int = 500
    """Most objects of a page, whatever is asked for."""
    asked: list[tuple[str, str]] = field(default_factory=list, repr=False)
    """Verb and name of each request."""
    accepted: list[str] = field(default_factory=list, repr=False)
    """Accept of each list."""
    url: str = ""
    version: int = 100
    lock: threading.RLock = field(default_factory=threading.RLock)

    def put(self, name: str, space: str = "prod", **metadata: Any) -> dict[str, Any]:
        """Put an object there without asking anybody."""
        with self.lock:
            self.version += 1
            made = {"name": name, "namespace": space, "resourceVersion": str(self.version)}
            made |= {"creationTimestamp": now(), "uid": f"uid-{self.version}"} | metadata
            thing = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": made}
            self.objects[space, name] = thing
            return thing

    def verdicts(self) -> list[dict[str, Any]]:
        """Objects that are verdicts."""
        with self.lock:
            return [one for (_, name), one in self.objects.items() if name.endswith("-verdict")]


def now(ago_s: float = 0) -> str:
    """A time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago_s))


class RefusalError(Exception):
    """A Status that is no success."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        self.status |= {"reason": reason, "message": message}


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    state: ApiServer

    def do_GET(self) -> None:
        self.answer()

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815 - names that http.server asks for

    def answer(self) -> None:
        """Do what is asked, or what goes wrong."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match = PATH.fullmatch(urlsplit(self.path).path)
        space, kind, name = match.groups() if match else ("", "", "")
        verb = VERBS.get(self.command, "get" if name else "list")
        if verb == "create" and kind == "configmaps":
            name = json.loads(body)["metadata"]["name"]
        with self.state.lock:
            self.state.asked.append((verb, name or ""))
            fault = self.state.fault(verb, name or "")
        if fault is not None and fault.kind in ("drop", "status", "garbage"):
            self.fail(fault)
            return
        code, document = self.outcome(verb, space, kind, name, body)
        if fault is not None:
            self.fail(fault)
            return
        self.send(code, json.dumps(document).encode())

    def outcome(self, verb: str, space: str, kind: str, name: str, body: bytes) -> tuple[int, Any]:
        """Code and document of the answer."""
        try:
            self.allow(verb, space, kind)
            self.state.before(verb, name)
            with self.state.lock:
                if kind == "pods":
                    return 200, found(self.state.pods, (space, name), "pods")
                return self.done(verb, space, name, json.loads(body) if body and verb != "delete" else None)
        except RefusalError as refusal:
            return refusal.code, refusal.status

    def allow(self, verb: str, space: str, kind: str) -> None:
        """Refuse an unknown token, and what no role allows."""
        if self.headers.get("Authorization", "").removeprefix("Bearer ") not in self.state.tokens:
            raise RefusalError(401, "Unauthorized", "Unauthorized")
        if kind == "configmaps" and verb not in self.state.verbs:
            who = (
                f'User "system:serviceaccount:{space}:gates" cannot {verb} resource "configmaps" in API group'
            )
            message = f'configmaps is forbidden: {who} "" in the namespace "{space}"'
            raise RefusalError(403, "Forbidden", message)

    def done(self, verb: str, space: str, name: str, given: Any) -> tuple[int, Any]:
        """What a request that is allowed does."""
        objects = self.state.objects
        if verb == "list":
            return 200, self.listed(space)
        if verb == "get":
            return 200, found(objects, (space, name), "configmaps")
        if verb == "delete":
            found(objects, (space, name), "configmaps")
            del objects[space, name]
            return 200, {"kind": "Status", "status": "Success"}
        validate(given, space)
        if verb == "create":
            if space not in self.state.namespaces:
                raise RefusalError(404, "NotFound", f'namespaces "{space}" not found')
            if given["metadata"].get("resourceVersion"):
                raise RefusalError(
                    400, "BadRequest", "resourceVersion should not be set on objects to be created"
                )
            if (space, name) in objects:
                raise RefusalError(409, "AlreadyExists", f'configmaps "{name}" already exists')
            made = self.state.put(name, space)
            return 201, write(made, given)
        old = found(objects, (space, name), "configmaps")
        if (
            given["metadata"].get("resourceVersion", old["metadata"]["resourceVersion"])
            != (old["metadata"]["resourceVersion"])
        ):
            raise RefusalError(409, "Conflict", f'Operation cannot be fulfilled on configmaps "{name}"')
        if old.get("immutable"):
            raise RefusalError(422, "Invalid", f'ConfigMap "{name}" is invalid: field is immutable')
        self.state.version += 1
        old["metadata"]["resourceVersion"] = str(self.state.version)
        return 200, write(old, given)

    def listed(self, space: str) -> dict[str, Any]:
        """One page of objects with the labels that are asked for."""
        query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        wanted = dict(part.split("=", 1) for part in query.get("labelSelector", "").split(",") if part)
        accept = self.headers.get("Accept", "")
        self.state.accepted.append(accept)
        start = ""
        if "continue" in query:
            if self.state.expiring:
                self.state.expiring -= 1
                raise RefusalError(410, "Expired", "The provided continue parameter is too old")
            start = base64.b64decode(query["continue"]).decode()
        fitting = [
            one
            for (where, name), one in sorted(self.state.objects.items())
            if where == space and name > start and wanted.items() <= one["metadata"].get("labels", {}).items()
        ]
        size = min(self.state.page, int(query.get("limit") or self.state.page))
        page, rest = fitting[:size], fitting[size:]
        meta: dict[str, Any] = {"resourceVersion": str(self.state.version)}
        if rest:
            meta["continue"] = base64.b64encode(page[-1]["metadata"]["name"].encode()).decode()
        if "PartialObjectMetadataList" in accept:
            page = [{"kind": "PartialObjectMetadata", "metadata": one["metadata"]} for one in page]
            return {"kind": "PartialObjectMetadataList", "metadata": meta, "items": page}
        return {"kind": "ConfigMapList", "metadata": meta, "items": page}

    def fail(self, fault: Fault) -> None:
        """Go wrong."""
        if fault.kind == "status":
            headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
            self.send(fault.code, fault.body or b'{"kind":"Status","message":"busy"}', **headers)
        elif fault.kind == "garbage":
            self.send(200, fault.body or b"<html>proxy</html>")
        else:
            if fault.kind == "cut":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
            self.close_connection = True

    def send(self, code: int, data: bytes, **headers: str) -> None:
        """One answer."""
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def found(objects: dict[tuple[str, str], dict[str, Any]], key: tuple[str, str], kind: str) -> dict[str, Any]:
    """One object."""
    if key not in objects:
        raise RefusalError(404, "NotFound", f'{kind} "{key[1]}" not found')
    return objects[key]


def validate(given: Any, space: str) -> None:
    """What the API server checks of a ConfigMap."""
    meta = given["metadata"]
    if given.get("kind") != "ConfigMap" or given.get("apiVersion") != "v1" or meta.get("namespace") != space:
        raise RefusalError(400, "BadRequest", "the object is none of this path")
    keys = [*meta.get("labels", {}), *meta.get("annotations", {})]
    right = SUBDOMAIN.fullmatch(meta["name"]) and all(map(LABEL_KEY.fullmatch, keys))
    right = right and all(map(LABEL_VALUE.fullmatch, meta.get("labels", {}).values()))
    for owner in meta.get("ownerReferences", ()):
        right = right and all(owner.get(name) for name in ("apiVersion", "kind", "name", "uid"))
    size = sum(len(base64.b64decode(value, validate=True)) for value in given.get("binaryData", {}).values())
    if not right or size > MOST:
        raise RefusalError(
            422, "Invalid", f'ConfigMap "{meta["name"]}" is invalid: must have at most {MOST} bytes'
        )


def write(there: dict[str, Any], given: Any) -> dict[str, Any]:
    """Put what was sent into the object."""
    for name in ("binaryData", "data", "immutable"):
        there.pop(name, None)
        if name in given:
            there[name] = given[name]
    for name in ("labels", "annotations", "ownerReferences"):
        there["metadata"].pop(name, None)
        if name in given["metadata"]:
            there["metadata"][name] = given["metadata"][name]
    return there


class Server(http.server.ThreadingHTTPServer):
    """Many connections, each with its own handshake; one that breaks is not the others'."""

    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_: object) -> None:
        """Clients are killed in tests: that is no trouble of the server."""


@contextmanager
def served(folder: Path) -> Iterator[ApiServer]:
    """A server whose certificate the account in the folder trusts."""
    state = ApiServer()
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"state": state}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    state.url = f"https://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def account(folder: Path) -> Path:
    """A pod's account as the kubelet lays it down, with the key of the server beside it."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=api"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "ca.crt"]
    subprocess.run(made, cwd=folder, capture_output=True, check=True)
    (folder / "token").write_text("right")
    (folder / "namespace").write_text("prod")
    return folder
