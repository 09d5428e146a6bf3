"""torchrun, and everything that starts its elastic agent (`accelerate launch`, `torch.distributed.run`).

Facts from torch 2.13: distributed/elastic/agent/server/local_elastic_agent.py (variables of a worker),
agent/server/api.py (_assign_worker_ranks), rendezvous/dynamic_rendezvous.py (_NodeDesc),
rendezvous/static_tcp_rendezvous.py, distributed/run.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from topocheck.launchers.launcher import Claim, Environment, Launcher, Level
from topocheck.launchers.order import block
from topocheck.launchers.variables import Variables, number_of

__all__ = ["LAUNCHER", "Agent", "agent_claim", "agent_order", "is_worker", "node_rank_table"]

NAME = "torchrun"
WORKER = "TORCHELASTIC_RUN_ID"

Agent = tuple[str, int, int]
"""What the dynamic rendezvous sorts by: (address as text, pid, number of the handler in its process).

The address is `--local-addr`, else what socket.getfqdn() says on that node.
"""


def is_worker(env: Environment) -> bool:
    """The process was started by an elastic agent, so RANK and its companions are that agent's."""
    return WORKER in env


def claim(env: Environment) -> Claim | None:
    """A worker by RANK and its companions; before the launch, the agent by PET_NODE_RANK."""
    if not is_worker(env):
        return agent_claim(env, NAME, "node") if "PET_NODE_RANK" in env and "RANK" not in env else None
    read = Variables(env)
    worker = read.claim(
        NAME,
        rank=read.needed("RANK"),
        local_rank=read.needed("LOCAL_RANK"),
        node_rank=read.number("GROUP_RANK"),
        size=read.number("WORLD_SIZE"),
        local_size=read.number("LOCAL_WORLD_SIZE"),
        nodes=read.number("GROUP_WORLD_SIZE"),
    )
    if read.number("TORCHELASTIC_RESTART_COUNT"):
        read.note(
            "elastic", "the workers were restarted: nodes may have changed places since the first start"
        )
    if worker.local_rank == 0 and worker.local_size != 1 and "," not in env.get("CUDA_VISIBLE_DEVICES", ","):
        read.note("devices", "LOCAL_RANK 0 and one visible device: --virtual-local-rank makes it 0 for all")
    else:
        _check_rank(read, worker)
    return replace(worker, notes=tuple(read.notes))


def _check_rank(read: Variables, worker: Claim) -> None:
    """Note a RANK that does not follow from LOCAL_RANK.

    Ranks are counted node by node, so those of the first and of the last node are certain whatever other
    nodes start; in between only all nodes together tell.
    """
    if worker.rank is None or worker.local_rank is None or worker.node_rank is None:
        return
    if worker.node_rank == 0:
        first = 0
    elif worker.size is not None and worker.local_size is not None and worker.nodes == worker.node_rank + 1:
        first = worker.size - worker.local_size
    else:
        return
    if worker.rank != first + worker.local_rank:
        read.note(
            "contradictory", f"RANK {worker.rank} is not {first} + LOCAL_RANK {worker.local_rank}", "RANK"
        )


def agent_claim(env: Environment, family: str, level: Level) -> Claim:
    """An agent by the options that torchrun takes from PET_NODE_RANK, PET_NNODES, PET_NPROC_PER_NODE."""
    read = Variables(env)
    return read.claim(
        family,
        level,
        node_rank=read.number("PET_NODE_RANK"),
        nodes=_nodes(read),
        local_size=_processes(read),
    )


def _nodes(read: Variables) -> int | None:
    """`--nnodes` from the environment; None for a range such as `2:4`."""
    least, colon, most = read.env.get("PET_NNODES", "").partition(":")
    if not colon:
        return read.number("PET_NNODES")
    if number_of(least) is None or number_of(most) is None:
        read.note(
            "malformed", f"PET_NNODES is {read.env['PET_NNODES'][:40]!r}, which is no range", "PET_NNODES"
        )
    elif least != most:
        read.note("elastic", f"PET_NNODES is {least}:{most}, the number of nodes may change", "PET_NNODES")
    else:
        return number_of(most)
    return None


def _processes(read: Variables) -> int | None:
    """`--nproc-per-node` from the environment; `auto`, `gpu`, `cpu` count devices that are not known here."""
    name = next((name for name in ("PET_NPROC_PER_NODE", "PET_N_PROC_PER_NODE") if name in read.env), "")
    return None if read.env.get(name) in ("auto", "gpu", "cpu", "xpu") else read.number(name)


def agent_order(agents: Sequence[Agent]) -> list[int]:
    """Indexes into `agents` in the order of their group ranks under c10d and etcd-v2 rendezvous.

    Addresses compare as text, so `node-10` comes before `node-2`; --node-rank is ignored. Under static
    rendezvous the group rank is --node-rank and needs no sorting.
    """
    return sorted(range(len(agents)), key=lambda index: agents[index])


def node_rank_table(hosts: Sequence[str], nproc: int, port: int = 29500) -> list[tuple[str, str]]:
    """(host, options of torchrun on it) that give the hosts these node ranks, by static rendezvous."""
    common = f"--nproc-per-node={nproc} --rdzv-backend=static --master-addr={hosts[0]} --master-port={port}"
    return [(host, f"--nnodes={len(hosts)} --node-rank={rank} {common}") for rank, host in enumerate(hosts)]


LAUNCHER = Launcher(
    name=NAME,
    title="torchrun",
    variables=(
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "ROLE_RANK",
        "ROLE_NAME",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_WORLD_SIZE",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_USE_AGENT_STORE",
        "TORCH_ELASTIC_WORKER_IDENTICAL",
        "PET_NODE_RANK",
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_N_PROC_PER_NODE",
        "PET_RDZV_BACKEND",
        "PET_RDZV_ENDPOINT",
        "PET_RDZV_ID",
        "PET_RDZV_CONF",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
        "PET_LOCAL_ADDR",
        "PET_STANDALONE",
        "PET_MAX_RESTARTS",
        "PET_VIRTUAL_LOCAL_RANK",
    ),
    claim=claim,
    rank_nodes=block,
)
