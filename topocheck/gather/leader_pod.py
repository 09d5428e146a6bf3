"""The uid of a group's leader: the only thing that differs when LeaderWorkerSet makes the group again.

No variable gives it to a worker (lws 060ab4da: labels hold the leader's name and a hash of it), so that a
worker asks the API server, with the account that its pod has.
"""

from __future__ import annotations

import http.client
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import msgspec

from topocheck.errors import TopocheckError, UndecidedError, UsageError

__all__ = ["ACCOUNT", "NAME", "authority", "leader_uid"]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts the token of the pod's account, and the authority that signs for the API server."""
NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
"""Names of objects."""
MOST_BYTES = 4 << 20
TIMEOUT_S = 20.0


class Meta(msgspec.Struct, frozen=True):
    """What is needed of an object's metadata."""

    uid: str


class Pod(msgspec.Struct, frozen=True):
    """What is needed of a pod."""

    metadata: Meta


def leader_uid(env: Mapping[str, str], account: Path = ACCOUNT) -> str | None:
    """Uid of the leader of this pod's group; None for a pod of no group, or without the manifest's variables.

    Raises UsageError where the API server does not give it, and UndecidedError where it is away.
    """
    if env.get("TOPOCHECK_LEADER_UID"):
        return env["TOPOCHECK_LEADER_UID"]
    if not env.get("TOPOCHECK_GROUP_KEY"):
        return None
    if env.get("LWS_WORKER_INDEX") == "0":
        return env.get("TOPOCHECK_POD_UID")
    name, space = env.get("TOPOCHECK_LEADER", ""), env.get("TOPOCHECK_NAMESPACE", "")
    if not NAME.fullmatch(name) or not NAME.fullmatch(space):
        raise UsageError(
            "TOPOCHECK_LEADER and TOPOCHECK_NAMESPACE do not name this group's leader: take the variables of "
            "`topocheck manifest --for leaderworkerset`"
        )
    return uid_of(name, space, env, account)


def authority(env: Mapping[str, str]) -> str:
    """Host and port of the API server, by the variables that the kubelet sets in every container."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT_HTTPS", "443")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def uid_of(name: str, space: str, env: Mapping[str, str], account: Path) -> str:
    """Uid of a pod. Raises UsageError in the words of what failed, UndecidedError for what may pass."""
    url = f"https://{authority(env)}/api/v1/namespaces/{space}/pods/{name}"
    try:
        token = (account / "token").read_text(encoding="ascii").strip()
        trust = ssl.create_default_context(cafile=str(account / "ca.crt"))
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )
        with opener.open(asked, timeout=TIMEOUT_S) as answer:
            return msgspec.json.decode(answer.read(MOST_BYTES), type=Pod).metadata.uid
    except urllib.error.HTTPError as error:
        raise refused(name, error.code) from None
    except (OSError, ValueError, http.client.HTTPException, msgspec.MsgspecError) as error:
        kind = UndecidedError if may_pass(error) else UsageError
        raise kind(
            f"the leader {name} cannot be asked for at the API server ({error}): which run this is stays open"
        ) from None


def refused(name: str, code: int) -> TopocheckError:
    """An answer that shows no pod."""
    words = f"the API server does not show the leader {name}: HTTP {code}"
    if code == 429 or code >= 500:
        return UndecidedError(f"{words}: it has too much to do, or a part of it is away: start again")
    hint = "give its account the right to get pods" if code == 403 else "is the group being removed?"
    return UsageError(f"{words}: {hint}")


def may_pass(error: Exception) -> bool:
    """The server is away, or left in the middle. Files of the account and certificates stay as they are."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return False
    away = (urllib.error.URLError, ConnectionError, TimeoutError, http.client.HTTPException)
    return isinstance(error, away)
