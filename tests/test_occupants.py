"""What is seen of all GPUs of a host at once is what is seen of each."""

from __future__ import annotations

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck import occupants as module
from topocheck.occupants import LITTLE_BYTES, Occupants, Strayed, at_once, occupants
from topocheck.snapshot import GpuCondition, Process, RankClaim

GIB = 1 << 30
Seat = tuple[int | None, int | None]


def gpu(ordinal: int, *pids: int, used: int | None = GIB, held: int | None = GIB) -> GpuCondition:
    """A GPU with these processes."""
    processes = tuple(Process(pid=pid, memory_bytes=held) for pid in pids)
    return GpuCondition(gpu=ordinal, memory_used_bytes=used, processes=processes)


def claims(*seats: Seat) -> list[RankClaim]:
    """Claims of these processes to these GPUs."""
    return [RankClaim(rank=rank, pid=pid, gpu=seat) for rank, (pid, seat) in enumerate(seats)]


def test_each_rank_on_its_gpu_is_seen_at_once() -> None:
    found = at_once([gpu(0, 10), gpu(1, 11)], claims((11, 1), (10, 0)))
    assert found == Occupants(idle=(0, 1), matched=(1, 0))


def test_ranks_that_changed_places_are_named() -> None:
    found = occupants([gpu(0, 11), gpu(1, 10)], claims((10, 0), (11, 1)))
    assert found.strayed == (Strayed(1, 1, (0,), 11), Strayed(0, 0, (1,), 10))
    assert found.idle == (0, 1)


def test_a_foreign_process_makes_a_gpu_busy() -> None:
    found = occupants([gpu(0, 10, 99), gpu(1, 11)], claims((10, 0), (11, 1)))
    assert found.idle == (1,)
    assert [busy.gpu for busy in found.busy] == [0]


PIDS = st.sampled_from([1, 2, 3, 4])
SIZES = st.sampled_from([None, 0, LITTLE_BYTES, LITTLE_BYTES + 1, GIB])
PROCESSES = st.none() | st.lists(st.builds(Process, pid=PIDS, memory_bytes=SIZES), max_size=2).map(tuple)
GPUS = st.lists(
    st.builds(GpuCondition, gpu=st.integers(0, 3), memory_used_bytes=SIZES, processes=PROCESSES), max_size=3
)
CLAIMS = st.lists(st.tuples(st.none() | PIDS, st.none() | st.integers(0, 3)), max_size=3)


@settings(max_examples=400, deadline=None)
@given(GPUS, CLAIMS)
def test_both_ways_of_looking_agree(
    gpus: list[GpuCondition], seats: list[tuple[int | None, int | None]]
) -> None:
    asked = claims(*seats)
    with mock.patch.object(module, "at_once", return_value=None):
        expected = occupants(gpus, asked)
    assert occupants(gpus, asked) == expected
