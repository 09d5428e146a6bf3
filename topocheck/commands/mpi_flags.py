"""Flags of mpirun and mpiexec: Open MPI (ompi 8efebee7, prrte 52d5e4bb) and Hydra (mpich 6a79bf65)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from topocheck.commands.documents import read_file
from topocheck.commands.flags import Table, Taken, take
from topocheck.commands.launch import Starter, Stated
from topocheck.commands.wrappers import Peeled, tool
from topocheck.launchers.hostfile import HostSlots, merged, parse_hosts_option, parse_hydra, parse_openmpi

__all__ = ["TABLE", "peel_mpi"]

TABLE = Table(
    values={
        "processes": "-np -n -c --np --n",
        "processes_per_node": "-npernode --npernode -N -ppn --ppn -perhost --perhost -ranks-per-proc",
        "hosts": "-H -host --host -hosts --hosts",
        "hostfile": "-hostfile --hostfile -machinefile --machinefile -f --default-hostfile",
        "rankfile": "-rf --rankfile -rankfile",
        "map-by": "-map-by --map-by",
        "rank-by": "-rank-by --rank-by",
        "bind-to": "-bind-to --bind-to",
        "export": "-x",
    },
    switches={
        "by-node": "-bynode --bynode",
        "": "--allow-run-as-root -allow-run-as-root -tag-output --tag-output -timestamp-output "
        "--timestamp-output -v -q --oversubscribe -oversubscribe --display-map -display-map "
        "--report-bindings -report-bindings -nolocal --nolocal -l -prepend-rank "
        "--display-allocation --verbose --bind-to-core --merge-stderr-to-stdout -genvall -envall "
        "-byslot --byslot",
    },
    ignored="-wdir --wdir -wd -path --path --prefix -prefix -output-filename --output-filename "
    "-bootstrap --launcher -launcher -iface --timeout --tune -tune --cpu-set --display --output "
    "--stdin -genvlist -envlist",
    pairs="-mca --mca -gmca --gmca --prtemca --pmixmca",
)
HYDRA_FLAGS = ("-hosts", "-ppn", "-perhost", " -f")
"""Ends of the flags that Hydra alone has."""
HYDRA_VARIABLES = ("-genv", "-env")
"""Hydra's way to set a variable: name and value are two words, or one with `=`."""


def peel_mpi(words: Sequence[str], folder: Path | None) -> Peeled | None:
    """The command that mpirun starts; None if the first word is no such launcher.

    Of several programs (`prog : prog`) the processes in all are not known from the first.
    """
    name = tool(words[0])
    if name.partition(".")[0] not in {"mpirun", "mpiexec", "orterun", "prterun"}:
        return None
    environment, rest = _hydra_variables(words[1:])
    taken = take(rest, TABLE, program=True, of=name)
    for key, value in taken.given:
        if key == "export" and "=" in value.text:
            variable, _, text = value.text.partition("=")
            environment[variable] = text
    program, several = taken.rest, ":" in taken.rest
    if several:
        program = program[: program.index(":")]
        taken.stated.pop("processes", None)
    return Peeled(program, environment=environment, starter=_starter(name, taken, folder))


def _starter(name: str, taken: Taken, folder: Path | None) -> Starter:
    stated = dict(taken.stated)
    listed, file = stated.pop("hosts", None), stated.pop("hostfile", None)
    hosts: tuple[HostSlots, ...] = ()
    origins = tuple(
        stated.origin for stated in (listed, file, taken.stated.get("processes_per_node")) if stated
    )
    hydra = name.endswith("hydra") or any(origin.endswith(HYDRA_FLAGS) for origin in origins)
    if listed is not None:
        hosts = _listed(listed.text, hydra=hydra)
    elif file is not None and folder is not None and not file.unresolved:
        hosts = _read(file.text, folder, hydra=hydra)
    processes, each = stated.pop("processes", None), stated.pop("processes_per_node", None)
    each = each or _mapped(stated.get("map-by"))
    if processes is None and each is None and hosts and all(host.slots is not None for host in hosts):
        total = sum(host.slots or 0 for host in hosts)
        processes = Stated(f"{total}", f"slots of {len(hosts)} hosts", given=False)
    return Starter(
        name=name,
        nodes=_nodes(hosts, processes, each),
        processes=processes,
        processes_per_node=each,
        hosts=hosts,
        options={key: value for key, value in stated.items() if key != "export"},
        unknown=tuple(taken.unknown),
    )


def _listed(text: str, *, hydra: bool) -> tuple[HostSlots, ...]:
    """Hosts of -H or -hosts; none where it is no list that can be read, a variable for instance."""
    try:
        return tuple(merged(parse_hosts_option(text), neighbours=hydra))
    except ValueError:
        return ()


def _read(path: str, folder: Path, *, hydra: bool) -> tuple[HostSlots, ...]:
    """Hosts of a file. Raises InputError with the line of what is none."""
    text = read_file(path, folder)
    if not hydra and ("slots" in text or ":" not in text):
        return tuple(merged(parse_openmpi(text, path)))
    return tuple(parse_hydra(text, path))


def _mapped(value: Stated | None) -> Stated | None:
    """Processes a node out of `ppr:8:node`."""
    parts = [] if value is None else value.text.lower().split(":")
    if value is None or parts[:1] != ["ppr"] or parts[2:3] != ["node"]:
        return None
    return Stated(parts[1], value.origin)


def _nodes(hosts: Sequence[HostSlots], processes: Stated | None, each: Stated | None) -> Stated | None:
    """Hosts that get processes, where the list and the number of processes leave no choice."""
    if not hosts:
        return None
    number = len({host.host for host in hosts})
    origin = f"a list of {number} host{'s' * (number > 1)}"
    if each is not None and (processes is None or processes.number is None):
        return Stated(f"{number}", origin, given=False)
    wanted = None if processes is None else processes.number
    slots = [host.slots for host in hosts]
    known = [count for count in slots if count is not None]
    if wanted is None or len(known) < len(slots) or wanted <= sum(known[:-1]):
        return None
    return Stated(f"{number}", origin, given=False)


def _hydra_variables(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    environment: dict[str, str] = {}
    rest: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        if word not in HYDRA_VARIABLES:
            rest.append(word)
            place += 1
            continue
        name, sign, value = (words[place + 1] if place + 1 < len(words) else "").partition("=")
        if not sign:
            value = words[place + 2] if place + 2 < len(words) else ""
        environment[name] = value
        place += 2 if sign else 3
    return environment, rest
