"""Claims as columns: every claim is there once, in its world, with the machine's own GPU ordinals."""

from __future__ import annotations

from topocheck.claims import UNKNOWN, ClaimColumns, enter, tied
from topocheck.snapshot import At, RankClaim


def test_claims_of_several_machines_stand_one_after_the_other() -> None:
    worlds: dict[str, ClaimColumns] = {}
    place = At(source="log", line=7)
    first = (RankClaim(rank=0, size=4, local_rank=0, node_rank=0, gpu=1, pid=10), RankClaim(rank=1, size=4))
    second = (RankClaim(rank=10**30, size=8, node_rank=1, gpu=0, at=place),)
    assert enter(worlds, first, 5) == (0,)
    assert enter(worlds, second, 6) == (1,)
    columns = worlds[""]
    assert columns.rank == [0, 1, 10**30]
    assert columns.machine == [5, 5, 6]
    assert columns.gpu == [1, UNKNOWN, 0]
    assert columns.local_rank == [0, UNKNOWN, UNKNOWN]
    assert list(columns.pid) == [10, UNKNOWN, UNKNOWN]
    assert columns.sizes == {4: 0, 8: 10**30}
    assert columns.at == {2: place}
    assert len(columns) == 3


def test_claims_of_several_worlds_are_kept_apart() -> None:
    worlds: dict[str, ClaimColumns] = {}
    mixed = (
        RankClaim(rank=0, world="prefill", node_rank=3),
        RankClaim(rank=0, world="decode", node_rank=4),
        RankClaim(rank=1, world="prefill", node_rank=3),
    )
    assert enter(worlds, mixed, 0) == (3, 4)
    assert {name: columns.rank for name, columns in worlds.items()} == {"prefill": [0, 1], "decode": [0]}


def test_ordinals_of_a_view_become_those_of_the_machine() -> None:
    claims = (RankClaim(rank=0, gpu=0), RankClaim(rank=1, gpu=1), RankClaim(rank=2))
    assert [claim.gpu for claim in tied(claims, [4, 1])] == [4, 1, None]
