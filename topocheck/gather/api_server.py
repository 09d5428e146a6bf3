"""The Kubernetes API server, as a pod reaches it: patient with trouble that passes, and never believed.

lightkube (1.0) speaks with it and reads the token again when it is refused (401): the kubelet rotates it. It
does not ask again, and takes answers of any size: both are done here, below it.
"""

from __future__ import annotations

import itertools
import random
import re
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx2
import msgspec
import yaml
from lightkube import Client, KubeConfig, SingleConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.models import Cluster, User
from lightkube.core.exceptions import ConfigError

from topocheck.errors import UndecidedError, UsageError
from topocheck.gather.leader_pod import authority

__all__ = ["PATIENCE_S", "StatusError", "connected", "refusal"]

PATIENCE_S = 60.0
"""How long one question is asked again: a control plane that is upgraded is away for less."""
FIRST_S, LONGEST_S = 0.1, 5.0
"""Shortest and longest pause before a question is asked again."""
MOST_ANSWER = 32 << 20
"""Bytes of one answer: an object of 1 MiB in base64, or a page of names, has far less."""
TIMEOUT = httpx2.Timeout(10.0, connect=5.0)
PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Too much to do, or a part of the control plane away."""
NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Of a list the metadata alone (Kubernetes 1.15): who counts entries does not read them."""
UNREADABLE = re.compile(r"[^\x20-\x7e]+")
BAD_CONFIG = (
    ConfigError,
    httpx2.InvalidURL,
    OSError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
    yaml.YAMLError,
)
"""What lightkube raises for a kubeconfig that is none."""


class Status(msgspec.Struct, frozen=True):
    """What an API server says of a question that it refuses (meta/v1 Status)."""

    reason: str | None = None
    message: str | None = None


class StatusError(Exception):
    """An answer that is a refusal."""

    def __init__(self, code: int, url: str, body: bytes) -> None:
        try:
            status = msgspec.json.decode(body, type=Status)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            status = Status()
        self.code = code
        self.url = url
        self.message = UNREADABLE.sub(" ", status.message or "").strip()[:300]
        super().__init__(f"HTTP {code}: {self.message}")


class Patient(httpx2.BaseTransport):
    """Sends requests again while trouble may pass, and reads no answer that is too large."""

    def __init__(
        self, inner: httpx2.BaseTransport, url: str, patience_s: float, pause: Callable[[float], None]
    ) -> None:
        self._inner = inner
        self._url = url
        self._patience_s = patience_s
        self._pause = pause

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer. Raises StatusError for a refusal, UndecidedError where none comes.

        Raises UsageError for a server that cannot be asked at all.
        """
        request.headers["Accept-Encoding"] = "identity"  # so that no answer grows while it is unpacked
        if request.method == "GET" and request.url.path.endswith("/configmaps"):
            request.headers["Accept"] = NAMES_ONLY
        end = time.monotonic() + self._patience_s
        for again in itertools.count():
            asked_s = 0.0
            try:
                code, body, asked_s = self._once(request, end)
                if code not in PASSING:
                    return self._taken(request, code, body)
                trouble = str(StatusError(code, self._url, body))
            except httpx2.TransportError as error:
                trouble = self._passing(error)
            pause = asked_s + min(LONGEST_S, FIRST_S * 2**again) * random.SystemRandom().uniform(0.5, 1)
            if time.monotonic() + pause >= end:
                wait = f"; it asks to wait {asked_s:.0f} s" if asked_s else ""
                raise UndecidedError(
                    f"{self._url}: the API server gave no answer within {self._patience_s:.0f} s "
                    f"({trouble}{wait}): see whether this node reaches it (kubectl get --raw /readyz, "
                    "network policies), and start again"
                )
            self._pause(pause)
        raise AssertionError  # counting has no end

    def _passing(self, error: httpx2.TransportError) -> str:
        """What broke, if it may pass. Raises UsageError for what stays."""
        text = UNREADABLE.sub(" ", str(error))[:200] or type(error).__name__
        if isinstance(error, (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol)):
            # Its text may show the token.
            raise UsageError(f"{self._url}: cannot be asked: its address or this account's token is none")
        if "CERTIFICATE_VERIFY_FAILED" in text:
            raise UsageError(
                f"{self._url}: is signed by nobody whom this account's ca.crt names ({text}): is it this "
                "cluster's API server?"
            )
        return text

    def _once(self, request: httpx2.Request, end: float) -> tuple[int, bytes, float]:
        """Code, body, and how many seconds to wait before the next try, as the server asks."""
        answer = self._inner.handle_request(request)
        try:
            body = bytearray()
            for part in answer.iter_raw():
                body += part
                if len(body) > MOST_ANSWER:
                    raise UsageError(f"{self._url}: answers with more than {MOST_ANSWER >> 20} MiB")
                if time.monotonic() > end:
                    raise httpx2.ReadTimeout("its answer does not end")
        finally:
            answer.close()
        asked = answer.headers.get("Retry-After", "")
        return answer.status_code, bytes(body), float(asked) if re.fullmatch(r"[0-9]{1,6}", asked) else 0.0

    def _taken(self, request: httpx2.Request, code: int, body: bytes) -> httpx2.Response:
        """An answer for lightkube, which sees a 401 to read its token again."""
        if code == 401:
            return httpx2.Response(code, headers={"Content-Type": "text/plain"}, request=request)
        if code >= 300:
            raise StatusError(code, self._url, body)
        return httpx2.Response(
            code, headers={"Content-Type": "application/json"}, content=body, request=request
        )

    def close(self) -> None:
        """Close all connections."""
        self._inner.close()


def connected(
    env: Mapping[str, str],
    account: Path,
    *,
    patience_s: float = PATIENCE_S,
    pause: Callable[[float], None] = time.sleep,
) -> Client:
    """A client with the pod's account, else with KUBECONFIG. Raises UsageError where neither can be used."""
    config = configured(env, account)
    try:
        trust: ssl.SSLContext = verify_cluster(
            config.cluster, config.user or User(), config.abs_file, trust_env=False
        )
        inner = httpx2.HTTPTransport(verify=trust, trust_env=False)
        patient = Patient(inner, config.cluster.server, patience_s, pause)
        return Client(
            config._replace(user=config.user or User()),
            timeout=TIMEOUT,
            field_manager="topocheck",
            trust_env=False,
            transport=patient,
        )
    except BAD_CONFIG as error:
        raise UsageError(
            f"the API server's certificates cannot be read: {error or type(error).__name__}"
        ) from None


def configured(env: Mapping[str, str], account: Path) -> SingleConfig:
    """Address, authority, token and namespace."""
    token, kubeconfig = account / "token", env.get("KUBECONFIG")
    try:
        if env.get("KUBERNETES_SERVICE_HOST") and token.exists():
            space = (account / "namespace").read_text(encoding="ascii").strip()
            cluster = Cluster(server=f"https://{authority(env)}", certificate_auth=str(account / "ca.crt"))
            user = User(token_file=str(token))
            found = KubeConfig.from_one(cluster=cluster, user=user, namespace=space).get()
        elif kubeconfig:
            found = KubeConfig.from_file(kubeconfig).get()
        else:
            raise UsageError(
                f"--store k8s: needs the pod's service account, and {token} is not there: write "
                "automountServiceAccountToken: true, or set KUBECONFIG outside of a pod"
            )
    except BAD_CONFIG as error:
        source = kubeconfig or account
        raise UsageError(
            f"{source}: shows no API server that can be used: {error or type(error).__name__}"
        ) from None
    if found is None:
        raise UsageError(f"{kubeconfig or account}: has no current context: kubectl config use-context NAME")
    return found


def refusal(error: StatusError, verb: str, namespace: str) -> UsageError:
    """A refusal in words: which right lacks and what gives it, or what the server says."""
    if error.code == 403 and (not error.message or "cannot" in error.message):
        return UsageError(
            f"{error.url}: this account may not {verb} configmaps in namespace {namespace} (HTTP 403): add "
            f'{{apiGroups: [""], resources: ["configmaps"], verbs: ["{verb}"]}} to the rules of its Role; '
            "topocheck manifest --store k8s: writes one"
        )
    if error.code == 401:
        return UsageError(
            f"{error.url}: does not accept this account's token (HTTP 401): is it of another cluster, or is "
            "its account gone?"
        )
    if error.code == 404:
        return UsageError(f"{error.url}: has no namespace {namespace} (HTTP 404): make it, or name another")
    said = f": {error.message}" if error.message else ""
    return UsageError(
        f"{error.url}: does not {verb} configmaps in namespace {namespace} (HTTP {error.code}){said}"
    )
