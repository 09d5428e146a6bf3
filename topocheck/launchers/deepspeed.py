"""The deepspeed launcher.

Facts from DeepSpeed 0.19.6: deepspeed/launcher/launch.py (ranks, variables), launcher/runner.py
(hostfile, --include, --exclude).
"""

from __future__ import annotations

import binascii
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from topocheck.errors import LayoutError
from topocheck.hostlist import MAX_NODES
from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.order import block
from topocheck.launchers.variables import Variables, number_of

__all__ = ["LAUNCHER", "Slots", "is_worker", "local_ranks", "parse_world_info", "select"]

Slots = Mapping[str, Sequence[int]]
"""GPU indexes that are used on each host, hosts in hostfile order."""


def is_worker(env: Environment) -> bool:
    """launch.py sets these three, and no other launcher sets CROSS_RANK with LOCAL_SIZE."""
    return all(name in env for name in ("RANK", "CROSS_RANK", "LOCAL_SIZE"))


def claim(env: Environment) -> Claim | None:
    """A process of launch.py."""
    if not is_worker(env):
        return None
    read = Variables(env)
    return read.claim(
        "deepspeed",
        rank=read.number("RANK"),
        local_rank=read.needed("LOCAL_RANK"),
        node_rank=read.number("CROSS_RANK"),
        size=read.needed("WORLD_SIZE"),
        local_size=read.number("LOCAL_SIZE"),
        nodes=read.number("CROSS_SIZE"),
    )


def local_ranks(nodes: Sequence[int]) -> list[int]:
    """LOCAL_RANK is the global rank modulo the processes of the node, not the place on the node.

    With unequal nodes the two differ: after a node of 6, one of 4 gets 2, 3, 0, 1.
    """
    here = Counter(nodes)
    return [rank % here[node] for rank, node in enumerate(nodes)]


URL_SAFE = str.maketrans("-_", "+/")
"""Base64 for URLs as the common one."""


def parse_world_info(text: str) -> dict[str, tuple[int, ...]]:
    """Value of `--world_info`: JSON of host -> GPU indexes, in URL-safe base64.

    Raises ValueError with a sentence about what is wrong.
    """
    try:
        value = msgspec.json.decode(binascii.a2b_base64(text.strip().translate(URL_SAFE)))
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError("the world info is not JSON in base64") from error
    if not isinstance(value, dict) or not all(_are_indexes(slots) for slots in value.values()):
        raise ValueError("the world info is not a table of hosts and their lists of GPU indexes")
    return {host: tuple(slots) for host, slots in value.items()}


def _are_indexes(slots: object) -> bool:
    return isinstance(slots, list) and all(type(slot) is int and slot >= 0 for slot in slots)


def select(slots: Mapping[str, int], include: str = "", exclude: str = "") -> dict[str, tuple[int, ...]]:
    """GPUs that `--include` or `--exclude` leave of a hostfile, hosts in hostfile order.

    `worker-0@worker-1:0,2` is all of worker-0 and two of worker-1. Raises LayoutError in the launcher's
    terms: both given, a host or a slot that the hostfile does not have.
    """
    if include and exclude:
        raise LayoutError("deepspeed takes --include or --exclude, not both")
    if sum(slots.values()) > MAX_NODES:
        raise LayoutError(f"the hostfile has more than {MAX_NODES:,} slots")
    every = {host: tuple(range(count)) for host, count in slots.items()}
    if not include and not exclude:
        return every
    named = _filter(every, include or exclude)
    if include:
        return {host: named[host] for host in every if host in named}
    left = {host: tuple(s for s in every[host] if s not in named.get(host, ())) for host in every}
    return {host: kept for host, kept in left.items() if kept}


def _filter(every: Slots, text: str) -> dict[str, tuple[int, ...]]:
    named: dict[str, tuple[int, ...]] = {}
    for item in text.split("@"):
        host, colon, listed = item.strip().partition(":")
        if host not in every:
            raise LayoutError(f"deepspeed: hostname {host[:80]!r} is not in the hostfile")
        wanted = listed.split(",") if colon else [str(slot) for slot in every[host]]
        chosen = set(named.get(host, ()))
        for text_slot in wanted:
            slot = number_of(text_slot.strip())
            if slot is None or slot not in every[host]:
                have = f"its slots are 0..{len(every[host]) - 1}" if every[host] else "it has none"
                raise LayoutError(f"deepspeed: no slot {text_slot[:20]!r} on host {host}: {have}")
            chosen.add(slot)
        named[host] = tuple(sorted(chosen))
    return named


LAUNCHER = Launcher(
    name="deepspeed",
    title="deepspeed launcher",
    variables=("CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE"),
    claim=claim,
    rank_nodes=block,
    local_ranks=local_ranks,
)
