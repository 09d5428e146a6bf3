"""A plan written out, as `topocheck plan --json` prints it."""

from __future__ import annotations

import msgspec

__all__ = [
    "SCHEMA",
    "Declaration",
    "DeclaredJob",
    "DeclaredRank",
    "DeclaredStage",
    "DeclaredWorld",
]

SCHEMA = "topocheck.declared/1"


class DeclaredRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank where the launcher's order or the engine's formula puts it."""

    world: str | msgspec.UnsetType = msgspec.UNSET
    """Name of its world, where the plan has several: ranks start from 0 in each."""
    rank: int
    """Global rank in its world."""
    coordinates: dict[str, int]
    """Position along each axis, slowest first, then in the groups that divide an axis.

    tp tensor, pp pipeline, dp data, cp context, dcp decode context, ep expert, etp expert tensor, sp
    sequence, edp data parallelism of experts; dp_replicate, dp_shard, external_dp, attn_dp, attn_tp and
    moe_dp as the engines call them.
    """
    node: str | None
    """Name of its node; null if nothing says where it goes."""
    local_rank: int | None
    """Local rank on its node; null without a node."""
    gpu_index: int | None
    """Index of its GPU on that node, CUDA_VISIBLE_DEVICES unset; null without a node."""
    layers: list[tuple[int, int]] | None
    """Layers that it holds as [first, end), one range a chunk; null if the plan names no layers."""


class DeclaredStage(msgspec.Struct, frozen=True, kw_only=True):
    """What the ranks of one pipeline stage hold."""

    stage: int
    """Pipeline stage, from 0."""
    layers: list[tuple[int, int]] | None
    """Layers as [first, end), one range a chunk (virtual stage); null if the plan names no layers."""
    modules: list[str] | None
    """Besides layers: embedding, final_norm, head, loss, mtp, and embedding_copy for weights of the embedding
    that the head or the MTP of a later stage uses; null where the script alone says it."""


class DeclaredWorld(msgspec.Struct, frozen=True, kw_only=True):
    """One world written out, but for its ranks."""

    schema: str | msgspec.UnsetType = msgspec.UNSET
    """`topocheck.declared/` and the major version; only at the top of a document."""
    engine: str
    """Engine, as the plan names it."""
    engine_version: str | None
    """Version whose layout was used; null where all known versions agree."""
    world: int
    """Number of ranks."""
    sizes: dict[str, int]
    """Size of each axis, slowest first, by the names of coordinates."""
    nodes: list[str]
    """Nodes in order."""
    layer_rule: str | None
    """The rule or override that split the layers; null if the plan names no layers."""
    assumptions: list[str]
    """What was assumed or derived."""
    unplaced: str | None
    """Why nothing says on which node a rank is; null if something does."""
    groups: dict[str, list[list[int]]]
    """Ranks of each group: tp, pp and dp always, other kinds where a group has more than one rank.

    Besides the names of coordinates: groups over two axes (dp_cp, tp_cp, tp_pp, etp_ep, dp_shard_cp), and
    embedding, the first and last rank of each pipeline.
    """
    stages: list[DeclaredStage]
    """Pipeline stages in order."""


class Declaration(DeclaredWorld, frozen=True, kw_only=True):
    """A plan of one world written out."""

    schema: str
    """`topocheck.declared/` and the major version."""
    ranks: list[DeclaredRank]
    """Ranks in order."""


class DeclaredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A plan of several worlds written out."""

    schema: str
    """`topocheck.declared/` and the major version."""
    worlds: dict[str, DeclaredWorld]
    """Worlds by name."""
    ranks: list[DeclaredRank]
    """Ranks of all worlds, in the order of the worlds."""
