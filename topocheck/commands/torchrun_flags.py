"""Flags of torchrun (torch/distributed/run.py of torch 2.13.0) and torch.distributed.launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topocheck.commands.flags import Table, from_variables, join_address, take
from topocheck.commands.launch import Starter, Stated
from topocheck.commands.wrappers import Peeled, tool

__all__ = ["TABLE", "peel_torchrun"]

TABLE = Table(
    values={
        "nodes": "--nnodes",
        "processes_per_node": "--nproc-per-node",
        "node_rank": "--node-rank",
        "master": "--master-addr",
        "master-port": "--master-port",
        "rdzv-endpoint": "--rdzv-endpoint",
        "rdzv-backend": "--rdzv-backend",
        "rdzv-conf": "--rdzv-conf",
    },
    switches={
        "standalone": "--standalone",
        "": "-m --module --no-python --run-path --use-env --virtual-local-rank",
    },
    ignored="--rdzv-id --max-restarts --monitor-interval --start-method --event-log-handler --role "
    "--log-dir -r --redirects -t --tee --local-ranks-filter --local-addr --logs-specs "
    "--numa-binding --signals-to-handle",
    variables={
        "nodes": "PET_NNODES",
        "processes_per_node": "PET_NPROC_PER_NODE",
        "node_rank": "PET_NODE_RANK",
        "master": "PET_MASTER_ADDR",
        "master-port": "PET_MASTER_PORT",
        "rdzv-endpoint": "PET_RDZV_ENDPOINT",
        "rdzv-backend": "PET_RDZV_BACKEND",
    },
    dashes="either",
    abbreviated=True,
)
MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic.launch"})
STATIC = "static"


def peel_torchrun(words: Sequence[str], environment: Mapping[str, str]) -> Peeled | None:
    """The script that torchrun starts; None if the first word is not torchrun."""
    if tool(words[0]) != "torchrun" and words[0] not in MODULES:
        return None
    taken = take(words[1:], TABLE, program=True, of="torchrun")
    stated = {**dict(from_variables(TABLE, environment)), **taken.stated}
    join_address(stated, "master", "master-port")
    if "standalone" in stated:
        stated["nodes"] = Stated("1", "--standalone")
    rendezvous = {}
    master = stated.pop("rdzv-endpoint", None) or stated.pop("master", None)
    if master is not None and "standalone" not in stated:
        rendezvous["master"] = master
    starter = Starter(
        name="torchrun",
        nodes=_fixed(stated.pop("nodes", Stated("1", "torchrun's default", given=False))),
        processes_per_node=stated.pop("processes_per_node", Stated("1", "torchrun's default", given=False)),
        node_rank=_static_node_rank(stated),
        rendezvous=rendezvous,
        options={name: value for name, value in stated.items() if name in {"rdzv-backend", "standalone"}},
        unknown=tuple(taken.unknown),
    )
    return Peeled(taken.rest, starter=starter)


def _fixed(nodes: Stated) -> Stated:
    """`2:2` as `2`."""
    least, _, most = nodes.text.partition(":")
    return Stated(least, nodes.origin, nodes.given) if least == most else nodes


def _static_node_rank(stated: dict[str, Stated]) -> Stated | None:
    """--node-rank; a dynamic rendezvous (c10d, etcd) ignores it and orders the nodes itself."""
    rank, backend = stated.pop("node_rank", None), stated.get("rdzv-backend")
    return rank if backend is None or backend.text == STATIC else None
