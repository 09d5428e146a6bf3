"""Which of the hosts seen a view is of: by boot id, else by name.

A name joins evidence that has no boot id. NCCL cuts host names at their first dot, so a first label
stands for the full name, as long as only one host has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.snapshot import Host

__all__ = ["HostNames", "names_of", "short_name"]


class HostNames:
    """Boot ids and names of all hosts, each with the number of its machine."""

    def __init__(self) -> None:
        self._by_boot: dict[str, int] = {}
        self._by_name: dict[str, int] = {}
        self._by_label: dict[str, int] = {}
        """First labels of full names."""
        self._booted: set[int] = set()
        self._pairs: dict[tuple[str, int, int], None] = {}
        self._asked: set[str] = set()
        """Names of evidence that has no boot id."""

    def find(self, host: Host) -> int | None:
        """Machine that this host is; None if it is a new one."""
        if host.boot_id is None:
            self._asked.update(names_of(host))
        elif host.boot_id in self._by_boot:
            return self._by_boot[host.boot_id]
        for name in names_of(host):
            index = self.named(name)
            if index is not None and (host.boot_id is None or index not in self._booted):
                return index
        return None

    def named(self, name: str) -> int | None:
        """Machine of this name: exactly, or the only one that one of the two names cuts at its first dot."""
        if name in self._by_name:
            return self._by_name[name]
        label = short_name(name)
        if label == name:
            return self._by_label.get(name)
        return None if label in self._by_label else self._by_name.get(label)

    def only(self, name: str) -> int | None:
        """The one machine of this name, else of its first label; None if several have it."""
        label = short_name(name)
        found = {self._by_name.get(name)} - {None}
        if not found:
            found, name = {self._by_name.get(label), self._by_label.get(label)} - {None}, label
        return found.pop() if len(found) == 1 and name not in {each for each, _, _ in self._pairs} else None

    def register(self, index: int, host: Host) -> None:
        """Note a machine under everything that it is called."""
        if host.boot_id is not None:
            self._by_boot[host.boot_id] = index
            self._booted.add(index)
        for name in names_of(host):
            label = short_name(name)
            if (other := self._by_name.setdefault(name, index)) != index:
                self._pairs[name, other, index] = None
            if label != name and (other := self._by_label.setdefault(label, index)) != index:
                self._pairs[label, other, index] = None

    @property
    def ambiguous(self) -> list[tuple[str, int, int]]:
        """(name, machine, machine): a name of two hosts by which other evidence was joined to one of them.

        Two machines that merely have one name are two machines: their boot ids tell them apart.
        """
        return [pair for pair in self._pairs if pair[0] in self._asked]

    def part(self, hosts: Sequence[Host]) -> HostNames:
        """The same of some machines only, numbered as they are given."""
        found = HostNames()
        found._asked = self._asked
        for index, host in enumerate(hosts):
            found.register(index, host)
        return found

    def renumber(self, new: Sequence[int]) -> None:
        """Machine n is now new[n]."""
        for numbers in (self._by_boot, self._by_name, self._by_label):
            numbers.update({key: new[index] for key, index in numbers.items()})
        self._booted = {new[index] for index in self._booted}
        pairs = [(name, min(new[a], new[b]), max(new[a], new[b])) for name, a, b in self._pairs]
        self._pairs = dict.fromkeys(sorted(pairs))


def names_of(host: Host) -> tuple[str, ...]:
    """Every name that a host goes by."""
    own = (host.name,) if host.name else ()
    return (*own, *filter(None, host.aliases)) if host.aliases else own


def short_name(name: str) -> str:
    """First label of a host name; an address has none and stays whole."""
    label, _, _ = name.partition(".")
    return name if label.isdigit() else label
