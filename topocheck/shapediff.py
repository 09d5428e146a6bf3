"""What tells one hardware shape from another, in words: who looks for the odd node out reads this.

Shapes are compared by ordinal, RDMA devices by name. Only what both show is compared: what one of the two
does not show is told as that, never as a difference of the machines.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from topocheck.hardware import Shape
from topocheck.ranges import first, fold
from topocheck.snapshot import NicShape

__all__ = ["differences", "layer_of", "rate_of", "state_of"]

MOST = 12
"""Differences that are told of one shape."""
ELSE = "details that no table shows: PCI tree, peer access, firmware"


def differences(usual: Shape, odd: Shape) -> list[str]:
    """What `odd` has otherwise than `usual`, the gravest first; empty if it is the same shape."""
    if usual is odd or usual.raw == odd.raw:
        return []
    told = [*_gpus(usual, odd), *_links(usual, odd), *_nics(usual, odd), *_near(usual, odd)]
    told = told or list(_details(usual, odd))
    more = len(told) - MOST
    return told[:MOST] + ([f"and {more} more difference{'s' * (more > 1)}"] if more > 0 else [])


def _gpus(usual: Shape, odd: Shape) -> Iterator[str]:
    """Number of GPUs, and what each of them is."""
    if usual.gpus != odd.gpus:
        yield f"{_plural(odd.gpus, 'GPU')}, not {usual.gpus}"
    pairs = list(zip(usual.hardware.gpus, odd.hardware.gpus, strict=False))
    both = range(len(pairs))

    def told(what: Callable[[Shape, int], Hashable], words: str) -> Iterator[str]:
        return _each(((what(usual, gpu), what(odd, gpu), gpu) for gpu in both), words)

    yield from told(lambda shape, gpu: shape.hardware.gpus[gpu].model, "{who} {verb} {now}, not {was}")
    yield from told(
        lambda shape, gpu: _gib(shape.hardware.gpus[gpu].memory_bytes), "{who} with {now} GiB, not {was}"
    )
    yield from told(lambda shape, gpu: shape.nvlinks(gpu), "{who} with {now} active NVLinks, not {was}")
    yield from told(lambda shape, gpu: shape.hardware.gpus[gpu].numa, "{who} on NUMA node {now}, not {was}")
    yield from told(
        lambda shape, gpu: _switch(shape.hardware.gpus[gpu].mig), "{who} with MIG {now}, not {was}"
    )


def _links(usual: Shape, odd: Shape) -> Iterator[str]:
    """Classes of the pairs of GPUs; one GPU whose links all differ alike is told once."""
    changed: dict[tuple[str, str], list[tuple[int, int]]] = {}
    silent = 0
    size = min(usual.gpus, odd.gpus)
    for b in range(size):
        for a in range(b):
            was, now = usual.link(a, b), odd.link(a, b)
            silent += was is not None and now is None
            if was is not None and now is not None and str(was) != str(now):
                changed.setdefault((str(was), str(now)), []).append((a, b))
    for (was_kind, now_kind), pairs in changed.items():
        yield f"{_pairs(pairs)} over {now_kind}, not {was_kind}"
    if silent:
        yield f"the link of {_plural(silent, 'pair')} of GPUs not shown"


def _pairs(pairs: Sequence[tuple[int, int]]) -> str:
    """Pairs by their common end if they have one."""
    common = set(pairs[0]).intersection(*pairs)
    if len(pairs) > 1 and common:
        return f"GPU {common.pop()} to {len(pairs)} others"
    return first([f"GPU {a} to GPU {b}" for a, b in pairs], 4)


def _nics(usual: Shape, odd: Shape) -> Iterator[str]:
    """RDMA devices that are gone, new, or of another kind, rate or state."""
    old = {nic.name: nic for nic in usual.hardware.nics}
    new = {nic.name: nic for nic in odd.hardware.nics}
    if gone := [name for name in old if name not in new]:
        yield f"{first(gone, 4)} not there" if new else "no RDMA device shown"
    if more := [name for name in new if name not in old]:
        yield f"{first(more, 4)} in addition" if old else f"RDMA devices shown: {first(more, 4)}"
    both = [name for name in old if name in new]

    def told(what: Callable[[NicShape], Hashable], words: str) -> Iterator[str]:
        return _each(((what(old[name]), what(new[name]), name) for name in both), words)

    yield from told(state_of, "{who} {now}, not {was}")
    yield from told(rate_of, "{who} at {now:g} Gb/s, not {was:g}")
    yield from told(layer_of, "{who} on {now}, not {was}")
    yield from told(lambda nic: nic.board or nic.model, "{who} {verb} {now}, not {was}")
    yield from told(lambda nic: nic.firmware, "{who} with firmware {now}, not {was}")
    yield from told(lambda nic: nic.numa, "{who} on NUMA node {now}, not {was}")


def _near(usual: Shape, odd: Shape) -> Iterator[str]:
    """GPUs whose nearest RDMA devices are others, of those that both shapes have."""
    both = {nic.name for nic in usual.hardware.nics} & {nic.name for nic in odd.hardware.nics}

    def near(shape: Shape, gpu: int) -> tuple[str, str] | None:
        found = shape.nearest_nics(gpu, among=both) if both else None
        return None if found is None else (found[0], first(sorted(nic.name for nic in found[1]), 4))

    for gpu in range(min(usual.gpus, odd.gpus)):
        was, now = near(usual, gpu), near(odd, gpu)
        if was is not None and now is not None and was != now:
            yield f"nearest to GPU {gpu}: {now[1]} ({now[0]}), not {was[1]} ({was[0]})"


def _details(usual: Shape, odd: Shape) -> Iterator[str]:
    """What is left: the parts of the shape that no line above looks at."""
    parts = {
        "the PCI tree": (usual.hardware.pci, odd.hardware.pci),
        "peer access between GPUs": (usual.hardware.peers, odd.hardware.peers),
        "the table of links as it was captured": (usual.hardware.matrix, odd.hardware.matrix),
        "single NVLinks": tuple([gpu.links for gpu in shape.hardware.gpus] for shape in (usual, odd)),
        "what is shown of the GPUs": (usual.hardware.gpus, odd.hardware.gpus),
        "what is shown of the RDMA devices": (usual.hardware.nics, odd.hardware.nics),
    }
    yield next((f"otherwise in {name}" for name, (was, now) in parts.items() if was != now), ELSE)


def _each(values: Iterable[tuple[Hashable, Hashable, int | str]], words: str) -> Iterator[str]:
    """One sentence for each pair of values, with all that have it; a value that is not known is none."""
    found: dict[tuple[Hashable, Hashable], list[int | str]] = {}
    for was, now, who in values:
        if was is not None and now is not None and was != now:
            found.setdefault((was, now), []).append(who)
    for (was, now), members in found.items():
        verb = "is" if len(members) == 1 else "are"
        yield words.format(who=_who(members), verb=verb, was=was, now=now)


def _who(members: Sequence[int | str]) -> str:
    """`GPU 3`, `GPUs 0..3`, `mlx5_0, mlx5_1`."""
    numbers = [member for member in members if isinstance(member, int)]
    if numbers:
        return f"GPU{'s' if len(numbers) > 1 else ''} {fold(numbers)}"
    return first(map(str, members), 4)


def layer_of(nic: NicShape) -> str | None:
    """InfiniBand or Ethernet, `both` where its ports differ; None if no port says."""
    layers = {port.layer for port in nic.ports if port.layer is not None}
    return "both" if len(layers) > 1 else next(iter(layers), None)


def rate_of(nic: NicShape) -> float | None:
    """Gbit/s of its active ports together; None if no port is shown to be active with its rate."""
    rates = [port.rate_gbps for port in nic.ports if port.state == "ACTIVE" and port.rate_gbps]
    return sum(rates) if rates else None


def state_of(nic: NicShape) -> str | None:
    """State of its ports in the kernel's word, all that occur; None unless every port shows one."""
    states = [port.state for port in nic.ports]
    known = [state for state in states if state is not None]
    return ", ".join(dict.fromkeys(known)) if known and len(known) == len(states) else None


def _gib(size: int | None) -> int | None:
    """Bytes as whole GiB: a few pages more or less are no difference."""
    return None if size is None else round(size / (1 << 30))


def _switch(state: bool | None) -> str | None:
    return None if state is None else "on" if state else "off"


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
