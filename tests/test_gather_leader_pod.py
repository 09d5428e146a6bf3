"""A worker of a group learns its leader's uid from the API server, over TLS, with its pod's account."""

from __future__ import annotations

import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from real import require

from topocheck.errors import UndecidedError, UsageError
from topocheck.gather.leader_pod import leader_uid

WORKER = {
    "TOPOCHECK_GROUP_KEY": "6f1e",
    "TOPOCHECK_NAMESPACE": "prod",
    "TOPOCHECK_LEADER": "chat-0",
    "TOPOCHECK_POD_UID": "11-worker",
    "LWS_WORKER_INDEX": "1",
}
PODS = {"/api/v1/namespaces/prod/pods/chat-0": {"metadata": {"name": "chat-0", "uid": "77-leader"}}}


class Answers(http.server.BaseHTTPRequestHandler):
    """An API server that knows one pod and one token."""

    def do_GET(self) -> None:
        pod = PODS.get(self.path)
        if self.path.endswith("/pods/cut"):
            return  # without an answer
        code = 403 if self.headers["Authorization"] != "Bearer right" else 404 if pod is None else 200
        code = 503 if self.path.endswith("/pods/busy") else code
        data = json.dumps(pod if code == 200 else {"kind": "Status"}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("openssl")
    folder = tmp_path_factory.mktemp("account")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=api"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "ca.crt"]
    subprocess.run(made, cwd=folder, capture_output=True, check=True)
    (folder / "token").write_text("right\n")
    return folder


@pytest.fixture(scope="module")
def env(account: Path) -> Iterator[dict[str, str]]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(account / "ca.crt", account / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    port = str(server.server_address[1])
    yield WORKER | {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT_HTTPS": port}
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_worker_gets_its_leaders_uid(env: dict[str, str], account: Path) -> None:
    assert leader_uid(env, account) == "77-leader"


def test_a_leader_knows_its_own(tmp_path: Path) -> None:
    assert leader_uid(WORKER | {"LWS_WORKER_INDEX": "0"}, tmp_path) == "11-worker"


def test_a_pod_of_no_group_asks_nobody(tmp_path: Path) -> None:
    assert leader_uid({"TOPOCHECK_POD_UID": "1"}, tmp_path) is None


def test_a_leader_that_is_gone_and_a_right_that_lacks_are_said(
    env: dict[str, str], account: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="HTTP 404"):
        leader_uid(env | {"TOPOCHECK_LEADER": "chat-1"}, account)
    (tmp_path / "ca.crt").write_bytes((account / "ca.crt").read_bytes())
    (tmp_path / "token").write_text("wrong")
    with pytest.raises(UsageError, match="the right to get pods"):
        leader_uid(env, tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"TOPOCHECK_LEADER": "busy"}, "HTTP 503: it has too much to do"),
        ({"TOPOCHECK_LEADER": "cut"}, "without response"),
        ({"KUBERNETES_SERVICE_PORT_HTTPS": "1"}, "refused"),
    ],
)
def test_a_server_that_is_away_leaves_it_undecided(
    env: dict[str, str], account: Path, changes: dict[str, str], words: str
) -> None:
    with pytest.raises(UndecidedError, match=words):
        leader_uid(env | changes, account)


def test_an_authority_that_did_not_sign_is_not_believed(
    env: dict[str, str], account: Path, tmp_path: Path
) -> None:
    other = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
    subprocess.run([*other, "-keyout", "k", "-out", "ca.crt"], cwd=tmp_path, capture_output=True, check=True)
    (tmp_path / "token").write_bytes((account / "token").read_bytes())
    with pytest.raises(UsageError, match="cannot be asked for"):
        leader_uid(env, tmp_path)


@pytest.mark.parametrize("name", ["", "../../secrets/x", "a/b", "A", "a?b", "a#b"])
def test_a_name_that_is_none_is_asked_for_nowhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="do not name this group's leader"):
        leader_uid(WORKER | {"TOPOCHECK_LEADER": name}, tmp_path)


def test_without_an_account_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which run this is stays open"):
        leader_uid(WORKER | {"KUBERNETES_SERVICE_HOST": "127.0.0.1"}, tmp_path)
