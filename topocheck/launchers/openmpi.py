"""Open MPI: mpirun of 4 and 5.

Facts from the sources of ompi and prrte, and from runs of Open MPI 5.0 over several hosts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from topocheck.errors import LayoutError
from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.order import deal
from topocheck.launchers.variables import Variables, number_of

__all__ = ["LAUNCHER", "rank_nodes", "rankfile"]

PPR = re.compile(r"ppr:([0-9]{1,7}):node")


def claim(env: Environment) -> Claim | None:
    """A process of mpirun.

    OMPI_COMM_WORLD_NODE_RANK counts the processes of all jobs on the node; it is no node's index, and
    there is no variable that is.
    """
    if "OMPI_COMM_WORLD_RANK" not in env:
        return None
    read = Variables(env)
    rank = read.number("OMPI_COMM_WORLD_RANK")
    return read.claim(
        "openmpi",
        rank=rank,
        local_rank=read.needed("OMPI_COMM_WORLD_LOCAL_RANK"),
        size=read.needed("OMPI_COMM_WORLD_SIZE"),
        local_size=read.number("OMPI_COMM_WORLD_LOCAL_SIZE"),
        node_name=read.text("PMIX_HOSTNAME"),
    )


def rank_nodes(slots: Sequence[int], processes: int | None = None, policy: str | None = None) -> list[int]:
    """Node by rank for `--map-by slot` (the default), `node` and `ppr:N:node`.

    Node order is that of -H or the host file, a host named twice counting once with the sum of its slots.
    Raises LayoutError for more processes than slots, which Open MPI refuses, and for a policy whose
    order is not known here. Open MPI 5.0 itself fails to map some unequal hosts by node, those where a
    later host has two slots more than an earlier one; where it maps, it maps like this.
    """
    name = re.sub(r":(no)?oversubscribe$", "", (policy or "slot").strip().lower())
    ppr = PPR.fullmatch(name)
    if ppr:
        each = number_of(ppr[1]) or 0
        if any(count < each for count in slots):
            raise LayoutError(f"--map-by {name} asks for {each} processes on a node with fewer slots")
        return deal([each] * len(slots), processes)
    if name not in ("slot", "node"):
        raise LayoutError(f"where --map-by {name[:40]!r} puts ranks is not known: slot, node or ppr:N:node")
    return deal(slots, processes, run=1 if name == "node" else None)


def rankfile(hosts: Sequence[str], places: Sequence[int]) -> str:
    """Text for `--map-by rankfile:file=FILE` that puts rank r on hosts[r], bound to core places[r].

    A rankfile binds each rank to the cores it names. Where that is not wanted, name one host a line in a
    host file and use `--map-by seq --bind-to none`.
    """
    pairs = enumerate(zip(hosts, places, strict=True))
    return "".join(f"rank {rank}={host} slot={place}\n" for rank, (host, place) in pairs)


LAUNCHER = Launcher(
    name="openmpi",
    title="Open MPI",
    variables=(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_NODE_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_UNIVERSE_SIZE",
        "OMPI_VERSION",
        "OMPI_MCA_rmaps_base_mapping_policy",
        "OMPI_MCA_hwloc_base_binding_policy",
        "OMPI_MCA_btl",
        "OMPI_MCA_btl_tcp_if_include",
        "OMPI_MCA_btl_tcp_if_exclude",
        "OMPI_MCA_oob_tcp_if_include",
        "OMPI_MCA_pml",
        "PRTE_MCA_rmaps_default_mapping_policy",
        "PRTE_MCA_hwloc_default_binding_policy",
    ),
    claim=claim,
    rank_nodes=rank_nodes,
)
