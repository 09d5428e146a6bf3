"""A snapshot that can be shown to strangers: names and numbers of machines replaced, their relations kept.

Each identity becomes the same pseudonym everywhere, in the snapshots of all nodes that use one key, so
that whatever is equal stays equal and a checklist over them says the same. Addresses keep the subnets
that they share. What is the same for everybody (loopback, link-local, all zero) stays as it is.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Callable
from typing import Any

import msgspec

from topocheck.snapshot import FullSnapshot, Host, ProbeFault

__all__ = ["Pseudonyms", "redacted"]

KEPT = frozenset({"schema", "token", "end", "run", "taken_at", "coverage", "hardware", "software"})
"""Parts without identities. Versions look like addresses."""

HEX = "[0-9a-fA-F]"
UUID = re.compile(rf"(?<![0-9a-zA-Z]){HEX}{{8}}(?:-{HEX}{{4}}){{3}}-{HEX}{{12}}(?![0-9a-zA-Z])")
LONG = re.compile(rf"(?<![0-9a-zA-Z])(?:{HEX}{{64}}|{HEX}{{32}}|(?<=GPU-){HEX}{{16}})(?![0-9a-zA-Z])")
"""Ids without dashes: of containers, machines and clusters, and the UUID of an AMD GPU."""
GUID = re.compile(rf"(?<![\w:]){HEX}{{4}}(?::{HEX}{{4}}){{3}}(?![\w:])")
MAC = re.compile(rf"(?<![\w:]){HEX}{{2}}(?::{HEX}{{2}}){{5}}(?![\w:])")
IPV4 = re.compile(r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.]|-[0-9])")
IPV6 = re.compile(rf"(?<![\w:])(?:{HEX}{{1,4}}|:)(?::{HEX}{{0,4}}){{2,8}}(?![\w:]|\.[0-9])")
HOME = re.compile(r"(?<![\w.])/home/([^/\s]+)")

CLOSED = frozenset({"kind", "part", "phase", "scope", "side", "state", "via", "layer", "family"})
"""Fields whose text is one of a few words: a host may be called like one of them."""
SERIALS = frozenset({"serial", "chassis", "guid", "hive"})
"""Fields whose whole text is an identity."""
HOST_VARIABLES = re.compile(
    r"(?:^|_)(?:ADDR|ADDRESS|ADDRESSES|ENDPOINT|HOST|HOSTNAME|HOSTS|HOSTID|IP|IPADDR|IPS|NODELIST|NODENAME)(?:_|$)"
    r"|^(?:SLURM_TOPOLOGY_ADDR|NODE_NAME|POD_NAME|NCCL_COMM_ID)$"
)
"""Variables that name machines of the job, this one or others."""
NAME = re.compile(r"(?<![\w.-])[A-Za-z_][\w-]*(?:\.[\w-]+)*(?![\w.-])")
SAME_EVERYWHERE = frozenset({"localhost", "localdomain", "http", "https", "tcp", "file", "none", "auto"})
LEFT_OUT = "left out by --redact, which cannot tell what in it names a machine"
SHORTEST_NAME = 3
"""Host names below this length are replaced as names alone: inside other text they would hit words."""


class Pseudonyms:
    """Pseudonyms by one key."""

    def __init__(self, key: bytes) -> None:
        """Take the key; who has it can find out whether an identity is a certain one."""
        self._key = key

    def digits(self, text: str, count: int) -> str:
        """Hexadecimal digits in the place of `text`, 128 at most."""
        return hmac.new(self._key, text.lower().encode(), hashlib.blake2b).hexdigest()[:count]

    def same_form(self, text: str) -> str:
        """Other digits in the same form; all zero stays, since it means none."""
        plain = re.sub("[^0-9a-fA-F]", "", text)
        if not plain.strip("0"):
            return text
        digits = iter(self.digits(plain, len(plain)))
        return "".join(next(digits) if char in "0123456789abcdefABCDEF" else char for char in text)

    def label(self, name: str) -> str:
        """One label of a host name, or another name."""
        return name if name.lower() in SAME_EVERYWHERE else f"h-{self.digits(name, 8)}"

    def host(self, name: str) -> str:
        """A host name; that of a domain keeps its first label apart, by which machines are joined."""
        first, dot, domain = name.partition(".")
        return self.label(first) + (f".d-{self.digits(domain, 8)}" if dot else "")

    def ipv4(self, text: str) -> str:
        """An IPv4 address; the first eight bits stay, and those that two addresses share stay shared."""
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:
            return text
        if address.is_loopback or address.is_link_local or address.is_unspecified:
            return text
        return str(ipaddress.IPv4Address(self._walk(int(address), 32, 8)))

    def ipv6(self, text: str) -> str:
        """An IPv6 address or a GID; one of IPv4 stays one, link-local stays link-local."""
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            return text
        mapped = address.ipv4_mapped
        if mapped is not None:
            new = ipaddress.IPv6Address(f"::ffff:{self.ipv4(str(mapped))}")
        elif address.is_loopback or address.is_unspecified:
            return text
        else:
            new = ipaddress.IPv6Address(self._walk(int(address), 128, 64 if address.is_link_local else 16))
        return new.exploded if len(text) == len(new.exploded) else str(new)

    def _walk(self, number: int, bits: int, kept: int) -> int:
        """Turn each bit or not by what stands before it, so that equal beginnings stay equal."""
        found = number >> bits - kept
        for place in range(kept, bits):
            before = number >> bits - place
            turned = int(self.digits(f"{bits}/{place}/{before:x}", 1), 16) & 1
            found = found << 1 | (number >> bits - place - 1 & 1) ^ turned
        return found

    def text(self, text: str) -> str:
        """Any text, with what looks like an identity in it replaced."""
        for pattern, replaced in (
            (UUID, self.same_form),
            (LONG, self.same_form),
            (GUID, self.same_form),
            (MAC, self.same_form),
            (IPV6, self.ipv6),
            (IPV4, self.ipv4),
        ):
            text = pattern.sub(lambda found, replaced=replaced: replaced(found[0]), text)  # type: ignore[misc]
        return HOME.sub(lambda found: f"/home/{self.label(found[1])}", text)


def redacted(snapshot: FullSnapshot, key: bytes) -> FullSnapshot:
    """The snapshot under pseudonyms, without the facts of other packages' probes."""
    pseudonyms, snapshot = Pseudonyms(key), without_plugins(snapshot)
    document = msgspec.to_builtins(snapshot)
    names = known_names(snapshot.identity.host, pseudonyms)
    known = re.compile(
        "|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in sorted(names, key=len, reverse=True))
        or r"(?!)"
    )

    def replaced(text: str) -> str:
        return pseudonyms.text(known.sub(lambda found: pseudonyms.host(found[0]), text))

    for part, content in document.items():
        if part not in KEPT:
            document[part] = walk(content, replaced, pseudonyms)
    host = snapshot.identity.host
    document["identity"]["host"] |= {
        name: value
        for name, value in {
            "name": host.name and named(pseudonyms, host.name),
            "aliases": [named(pseudonyms, alias) for alias in host.aliases],
        }.items()
        if value
    }
    environment, *own = (
        {name: variable(name, value, replaced, pseudonyms) for name, value in variables.items()}
        for variables in (snapshot.environment, *snapshot.own_environments)
    )
    if environment:
        document["environment"] = environment
    if own:
        document["own_environments"] = own
    return msgspec.convert(document, FullSnapshot)


def without_plugins(snapshot: FullSnapshot) -> FullSnapshot:
    """Nobody but the package of a probe knows what of its facts names a machine: none of them is shown."""
    faults = tuple(
        ProbeFault(part=f"plugins.{name}", kind="not-permitted", path=f"probe {name}", reason=LEFT_OUT)
        for name in snapshot.plugins
    )
    return msgspec.structs.replace(snapshot, plugins={}, faults=(*snapshot.faults, *faults))


def known_names(host: Host, pseudonyms: Pseudonyms) -> set[str]:
    """Names by which this machine may be called in any text; addresses are known by their form."""
    every = (name for name in (host.name, *host.aliases) if name)
    names = {name for name in every if pseudonyms.text(name) == name}
    return {name for full in names for name in (full, full.partition(".")[0]) if len(name) >= SHORTEST_NAME}


def named(pseudonyms: Pseudonyms, name: str) -> str:
    """A name of a host, which may be an address."""
    replaced = pseudonyms.text(name)
    return replaced if replaced != name else pseudonyms.host(name)


def walk(content: Any, replaced: Callable[[str], str], pseudonyms: Pseudonyms, field: str = "") -> Any:
    """The same structure with its texts replaced; the names of its fields stay."""
    if isinstance(content, dict):
        return {name: walk(value, replaced, pseudonyms, name) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [walk(value, replaced, pseudonyms, field) for value in content]
    if not isinstance(content, str) or field in CLOSED:
        return content
    if field in SERIALS:
        new = replaced(content)
        return new if new != content else pseudonyms.digits(content, 16)
    return replaced(content)


def variable(name: str, value: str, replaced: Callable[[str], str], pseudonyms: Pseudonyms) -> str:
    """A variable's value; where it names machines, all its words are names."""
    if not HOST_VARIABLES.search(name):
        return replaced(value)
    if "[" in value and "NODELIST" in name:
        value = expanded(value)
    parts = (entry for entry in re.split(r"([\s,;\"'\[\]{}()]+)", value))
    return "".join(address_or_name(part, replaced, pseudonyms) for part in parts)


def expanded(value: str) -> str:
    """A host list without ranges: pseudonyms have no numbers to make ranges of."""
    from topocheck.hostlist import expand  # noqa: PLC0415 - only where a list is written short

    try:
        return ",".join(expand(value))
    except ValueError:
        return value


def address_or_name(text: str, replaced: Callable[[str], str], pseudonyms: Pseudonyms) -> str:
    """A machine with or without its port."""
    as_address = pseudonyms.text(text)
    if as_address != text or not re.search("[A-Za-z]", text) or "::" in text:
        return as_address
    return NAME.sub(lambda found: pseudonyms.host(found[0]), text)
