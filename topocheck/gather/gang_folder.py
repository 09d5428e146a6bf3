"""The folder in which NVSentinel's preflight shows a check its gang: wait until the whole gang is in it.

The kubelet brings a ConfigMap's mount up to date about once a minute, all files at once: a link is changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from topocheck.errors import InputError, UndecidedError
from topocheck.launchers.gang import EXPECTED, GANG_ID, PEERS, Gang, gang_variables, is_complete, parse_gang
from topocheck.launchers.variables import number_of

__all__ = ["read_gang", "with_gang"]

FOLDER, TIMEOUT = "GANG_CONFIG_DIR", "GANG_TIMEOUT_SECONDS"
TIMEOUT_S, LONGEST_S = 600, 86_400
"""How long a gang may take to come together where the webhook does not say it: its own default."""
POLL_S, PROGRESS_S = 1.0, 10.0
MOST_BYTES = 1 << 20
"""A ConfigMap holds no more."""


def read_gang(folder: Path) -> Gang | None:
    """What the folder shows now; None before the ConfigMap is there. Raises InputError."""
    files: dict[str, str] = {}
    for key in (EXPECTED, PEERS, GANG_ID):
        try:
            with (folder / key).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InputError(error.strerror or str(error), path=f"{folder}/{key}") from None
        if len(data) > MOST_BYTES:
            raise InputError("is larger than a ConfigMap can be", path=f"{folder}/{key}")
        files[key] = data.decode("utf-8", "replace")
    return parse_gang(files, str(folder)) if EXPECTED in files else None


def with_gang(
    env: Mapping[str, str],
    least: int,
    tell: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
) -> Mapping[str, str]:
    """The environment with what the whole gang shows; unchanged in a pod of none.

    `least` is how many pods the job has at least. Raises InputError for a folder that cannot be read, and
    UndecidedError if the gang is not whole in time.
    """
    if not env.get(FOLDER):
        return env
    limit = float(min(number_of(env.get(TIMEOUT, "")) or TIMEOUT_S, LONGEST_S))
    start = told = time.monotonic()
    while True:
        gang, now = read_gang(Path(env[FOLDER])), time.monotonic()
        if gang is not None and is_complete(gang, env, least):
            return {**env, **gang_variables(gang, env)}
        if now - start >= limit:
            raise UndecidedError(
                f"no verdict: the gang is not whole after {limit:.0f} s: {state(gang, least)}"
            )
        if now - told >= PROGRESS_S:
            told = now
            tell(f"waiting for the gang: {state(gang, least)}; {limit - (now - start):.0f} s left")
        pause(min(POLL_S, limit))


def state(gang: Gang | None, least: int) -> str:
    """`2 of 4 pods are in its list (llm-0, llm-1)`."""
    if gang is None:
        return "its ConfigMap is not there"
    names = ", ".join(peer.pod for peer in gang.peers[:6]) or "none"
    more = ", ..." if len(gang.peers) > 6 else ""
    wanted = max(gang.expected, least)
    return f"{len(gang.peers)} of {wanted} pods are in its list ({names}{more})"
