"""Statements of an NCCL log that are neither ranks nor connections: the closed vocabulary of LogFact.

| kind | value | from |
|---|---|---|
| `nccl-version` | `2.27.5+cuda12.9` | `NCCL version ...` |
| `network` | `IB`, `Socket`, `NCCL RDMA Plugin v8` | `Using network`, `Assigned NET plugin` |
| `hca` | `mlx5_0:1/IB`, one a device in NCCL's order, with `/SHARP` or `:rail:plane` | `NET/IB : Using` |
| `nic-fused` | `mlx5_0+mlx5_1` | `Made virtual device` of several ports |
| `oob` | `eth0:10.0.0.1`, the address of RDMA's own bootstrap | `; OOB` |
| `socket-interface` | `eth0:10.0.0.1`, one an interface | `NET/Socket : Using`, `Bootstrap : Using` |
| `no-rdma-device` | | `NET/IB : No device found` |
| `no-verbs` | library | `Failed to open libibverbs` |
| `device-open-failed` | device, else `ibv_open_device` | `Unable to open device`, the failed call |
| `verbs-call-failed` | `ibv_create_cq`, the call; warnings alone | `Call to ibv_... failed` |
| `plugin-missing` | file names that NCCL tried, else empty | `NET/Plugin` |
| `plugin-loaded` | name of the plugin, without its API version | `NET/Plugin`, `P2P plugin` |
| `ofi-no-provider` | the message | `NET/OFI` |
| `ofi-platform` | `P4d`: Amazon's machine that the plugin for libfabric runs on | `NET/OFI Running on` |
| `ofi-provider` | `efa`, `tcp;ofi_rxm`: libfabric's provider that it chose | `NET/OFI Selected Provider` |
| `gdr-enabled`, `gdr-disabled` | HCA name, or `GPU ca000 / HCA 0 (distance 7 > 4)` | `GPU Direct RDMA` |
| `p2p-disabled` | `GPUs 2 and 3`, `NVLINK GPUs 2 and 3`: NVML indices | `P2P is disabled between` |
| `duplicate-gpu` | `rank 2 rank 0 bus 0000:01:00.0`; empty in 2.30, which names no rank | warning |
| `mnnvl-failed` | the message | `MNNVL ... is available but not` |
| `topo-device-missing` | `dev 1`: in NCCL_TOPO_FILE or NCCL_GRAPH_FILE, not in the machine | `XML Import` |
| `env` | `NAME=VALUE`, names of NCCL, UCX and FI alone | `set by environment to`, `set to` |
| `env-invalid` | `NAME=VALUE`: a number was expected, NCCL uses its default | `Invalid value` |
| `hostid` | value of NCCL_HOSTID | `set by environment to` |
| `ring-size` | `16`; `20+` where the order may not be printed whole | ring order, by nccl_statements |
| `mpi-rank` | rank in MPI_COMM_WORLD of the process `pid` | tag `[1,4]<stdout>:`, by nccl_statements |
| `abort` | text of a warning that was returned as an error (`-> 5`) | by nccl_statements |
| `warn` | text of any other warning that gave no fact above | by nccl_statements |
"""

from __future__ import annotations

import re
from collections.abc import Callable

from topocheck.probes.capture.bus import parse_bus

__all__ = ["Fact", "is_return", "parse_duplicate", "parse_facts"]

Fact = tuple[str, str]
"""Kind and value."""

ALLOWED = re.compile(r"(?:NCCL|UCX|FI)_[A-Z0-9_]{1,80}")
"""Variables that may be taken from a log; others may hold secrets."""

DEVICE = re.compile(r"\[\d{1,4}\] ?([^\s,{}=\[\]]{1,100}:\d[^\s,{}\[\]]{0,100})")
INTERFACE = re.compile(r"([^\s:<>\[\]]{1,64}):([0-9A-Fa-f.:]{1,60}(?:%[\w.-]{1,64})?)<")
DUPLICATE = re.compile(
    r"Duplicate GPU detected : rank (\d{1,9}) and rank (\d{1,9}) both on CUDA device ([0-9a-f]{1,13})"
)
ENVIRONMENT = re.compile(
    r"(?P<name>[A-Z][A-Z0-9_]{1,90}) (?:set(?: by environment)?|environment variable) to (?P<value>.*)"
)
INVALID = re.compile(r"Invalid value (?P<value>\S{1,100}) for (?P<name>\S{1,90}), using default")
GDR = re.compile(
    r"GPU Direct RDMA (?P<state>Enabled|Disabled) for (?:HCA \d{1,9} '(?P<hca>[^']{1,100})'"
    r"|(?P<pair>GPU \S{1,40} / HCA \S{1,40}|GPU/\S{1,40} \(rank \d{1,9}\) - NET/\S{1,40})"
    r"(?:.{0,100}?(?P<distance>distance \d{1,9} \S{1,2} \d{1,9}))?)"
)
RETURN = re.compile(r"\S{1,200}:\d{1,6}(?: \([^()\s]{1,100}\))? -> (?P<result>\d{1,3})(?: [\[(].*)?$")

IN_PROGRESS = 7
"""ncclInProgress: a result that is no error."""

NO_PROVIDER = (
    "find any optimal provider",
    "No eligible providers",
    "Unable to find a protocol that worked",
    "fi_getinfo() call failed",
    "Failed to initialize any provider",
)
"""How the plugin for libfabric says that it found no network."""


def parse_facts(level: str, message: str) -> list[Fact]:
    """The facts in one message, in its order; [] for most messages."""
    for needle, parse in PARSERS:
        if needle in message:
            facts = parse(message)
            if facts:
                return facts
    if level == "WARN":
        match = re.search(r"Call to (ibv_\w{1,60}) failed", message)
        return [failed_call(match[1])] if match else []
    return []


def is_return(message: str) -> bool:
    """`init.cc:903 -> 5`: a function handed an error to its caller."""
    match = RETURN.match(message)
    return match is not None and int(match["result"]) not in {0, IN_PROGRESS}


def parse_duplicate(message: str) -> tuple[int, int, str] | None:
    """Rank of the writer, rank of the other and the PCI address that both have; up to 2.29."""
    match = DUPLICATE.search(message)
    bus = parse_bus(match[3]) if match else None
    return (int(match[1]), int(match[2]), bus) if match and bus else None


def failed_call(call: str) -> Fact:
    """A call into libibverbs that failed; one that opens the device is told apart."""
    return ("device-open-failed" if call == "ibv_open_device" else "verbs-call-failed", call)


def _parse_version(message: str) -> list[Fact]:
    match = re.match(r"NCCL version (\d{1,3}\.\d{1,3}\.[\w.+-]{1,60})", message)
    return [("nccl-version", match[1])] if match else []


def _parse_network(message: str) -> list[Fact]:
    match = re.match(
        r"(?:Using (?:internal )?network|Assigned NET plugin) (.{1,100}?)(?: to comm)?$", message
    )
    return [("network", match[1])] if match else []


def _parse_devices(message: str) -> list[Fact]:
    listed, _, oob = message.partition("OOB ")
    facts = [("hca", device) for device in DEVICE.findall(listed)]
    return facts + [("oob", f"{name}:{address}") for name, address in INTERFACE.findall(oob)]


def _parse_interfaces(message: str) -> list[Fact]:
    return [("socket-interface", f"{name}:{address}") for name, address in INTERFACE.findall(message)]


def _parse_fused(message: str) -> list[Fact]:
    match = re.search(r"Made virtual device \[\d{1,4}\] name=(\S{1,200})", message)
    return [("nic-fused", match[1])] if match and "+" in match[1] else []


def _parse_open_failed(message: str) -> list[Fact]:
    match = re.search(r"Unable to open device (\S{1,100})", message)
    return [("device-open-failed", match[1])] if match else []


def _parse_no_verbs(message: str) -> list[Fact]:
    return [("no-verbs", "libibverbs")] if "libibverbs" in message else []


def _parse_plugin(message: str) -> list[Fact]:
    """`NET/Plugin`: loaded or not. The symbols of other API versions that it lacks are no fault."""
    match = re.search(r"Loaded net plugin (.{1,100}?)(?: \(v\d{1,3}\))?$", message)
    if match:
        return [("plugin-loaded", match[1])]
    if not re.search("No plugin found|Could not find|Plugin load", message):
        return []
    match = re.search(r"(?:found|load) \(([^()]{1,200})\)", message)
    match = match or re.search(r"Could not find:? ?(.{1,300}?)\.?(?: Using .*)?$", message)
    return [("plugin-missing", match[1] if match else "")]


def _parse_p2p_plugin(message: str) -> list[Fact]:
    match = re.match(r"P2P plugin (\S{1,100})", message)
    return [("plugin-loaded", match[1])] if match else []


def _parse_gdr(message: str) -> list[Fact]:
    match = GDR.search(message)
    if not match:
        return []
    kind = "gdr-" + match["state"].lower()
    far = f" ({match['distance']})" if kind == "gdr-disabled" and match["distance"] else ""
    return [(kind, match["hca"] or match["pair"] + far)]


def _parse_p2p_disabled(message: str) -> list[Fact]:
    match = re.search(r"between (NVLINK )?connected (GPUs \d{1,4} and \d{1,4})", message)
    return [("p2p-disabled", (match[1] or "") + match[2])] if match else []


def _parse_duplicate(message: str) -> list[Fact]:
    found = parse_duplicate(message)
    if found:
        return [("duplicate-gpu", f"rank {found[0]} rank {found[1]} bus {found[2]}")]
    return [("duplicate-gpu", "")] if "Multiple Ranks are using the same GPU" in message else []


def _parse_environment(message: str) -> list[Fact]:
    match = ENVIRONMENT.search(message)
    if not match or not ALLOWED.fullmatch(match["name"]):
        return []
    value = match["value"].strip().removesuffix(".")
    facts = [("env", f"{match['name']}={value}")]
    return [*facts, ("hostid", value)] if match["name"] == "NCCL_HOSTID" else facts


def _parse_invalid(message: str) -> list[Fact]:
    match = INVALID.search(message)
    known = match is not None and ALLOWED.fullmatch(match["name"])
    return [("env-invalid", f"{match['name']}={match['value']}")] if match and known else []


def _parse_missing_device(message: str) -> list[Fact]:
    match = re.search(r"XML Import Channel : (dev \S{1,40}) not found", message)
    return [("topo-device-missing", match[1])] if match else []


def _parse_ofi(message: str) -> list[Fact]:
    if any(words in message for words in NO_PROVIDER):
        return [("ofi-no-provider", message)]
    match = re.search(r"NET/OFI Selected [Pp]rovider is ([\w;-]{1,40})", message)
    return [("ofi-provider", match[1])] if match else []


def _parse_platform(message: str) -> list[Fact]:
    """The plugin names the platform, and in the same line may say what it sets because of it."""
    match = re.search(r"NET/OFI Running on ([\w.-]{1,40}) platform", message)
    found = [("ofi-platform", match[1])] if match else []
    return found + _parse_environment(message) if found else []


PARSERS: tuple[tuple[str, Callable[[str], list[Fact]]], ...] = (
    ("NCCL version ", _parse_version),
    ("Using network ", _parse_network),
    ("Using internal network ", _parse_network),
    ("Assigned NET plugin ", _parse_network),
    ("NET/IB : Using ", _parse_devices),
    ("NET/IB : No device found", lambda _: [("no-rdma-device", "")]),
    ("NET/Socket : Using ", _parse_interfaces),
    ("Bootstrap : Using ", _parse_interfaces),
    ("Bootstrap: Using ", _parse_interfaces),
    ("Made virtual device ", _parse_fused),
    ("Unable to open device ", _parse_open_failed),
    ("Failed to open lib", _parse_no_verbs),
    ("NET/Plugin", _parse_plugin),
    ("P2P plugin ", _parse_p2p_plugin),
    ("GPU Direct RDMA ", _parse_gdr),
    ("P2P is disabled between ", _parse_p2p_disabled),
    ("using the same GPU", _parse_duplicate),
    ("Duplicate GPU detected", _parse_duplicate),
    ("is available but not ", lambda message: [("mnnvl-failed", message)] if "MNNVL" in message else []),
    ("XML Import Channel", _parse_missing_device),
    ("Invalid value ", _parse_invalid),
    ("NET/OFI Running on ", _parse_platform),
    (" environment ", _parse_environment),
    ("_IB_HCA set to ", _parse_environment),
    ("_SOCKET_IFNAME set to ", _parse_environment),
    ("NET/OFI ", _parse_ofi),
)
"""What to look for first, and what parses a message that holds it."""
