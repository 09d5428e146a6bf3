"""Traces of several ranks as one pipeline: which ranks follow each other, and what each did to which unit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from topocheck.errors import InputError
from topocheck.pipeline.trace import MOST_STAGE_UNITS, Key, StageTrace, Trace, Unit, assembled
from topocheck.pipeline.trace_blocks import Block, Moved, cut, occupying
from topocheck.pipeline.trace_ids import TOLERANCE_NS, Ids, name_blocks
from topocheck.pipeline.trace_torch import Profile, joined

__all__ = ["chains_of", "put_together"]


def chains_of(profiles: Sequence[Profile]) -> list[tuple[int, ...]]:
    """Ranks of each pipeline, first stage first, by who sends to whom.

    Raises InputError where ranks of a pipeline were not given, or do not follow each other in one line.
    """
    known = {profile.rank: profile for profile in profiles}
    sends: defaultdict[int, set[int]] = defaultdict(set)
    near: defaultdict[int, set[int]] = defaultdict(set)
    for profile in profiles:
        for transfer in profile.transfers:
            if transfer.side is None or len(transfer.peers) != 1:
                continue
            (peer,) = transfer.peers
            source, target = (profile.rank, peer) if transfer.side == "send" else (peer, profile.rank)
            sends[source].add(target)
            near[source].add(target)
            near[target].add(source)
    chains, left = [], set(near)
    while left:
        members = _reached(min(left), near)
        left -= members
        missing = sorted(members - known.keys())
        if missing:
            beside = min(rank for rank in near[missing[0]] if rank in known)
            raise InputError(
                f"rank {beside} sends to or receives from rank {missing[0]}, whose trace is not given",
                path=known[beside].source,
                fix="give the traces of all stages",
            )
        chains.append(_line(members, sends, near, known[min(members)].source))
    if not chains:
        raise InputError(_silence(profiles), path=profiles[0].source, fix=_cure(profiles))
    return chains


def _silence(profiles: Sequence[Profile]) -> str:
    """Why no pipeline shows."""
    if any(profile.transfers for profile in profiles):
        return "has sends and receives, and none says which rank is on the other side"
    return "has no send or receive between ranks"


def _cure(profiles: Sequence[Profile]) -> str:
    if any(profile.transfers for profile in profiles):
        return "profile with record_shapes=True, or give the ranks of the stages: --ranks 0,1"
    return "profile some iterations of a pipeline of two stages or more, on the rank of each stage"


def _reached(start: int, near: dict[int, set[int]]) -> set[int]:
    """All ranks that a rank reaches."""
    found, ahead = {start}, [start]
    while ahead:
        for rank in near[ahead.pop()] - found:
            found.add(rank)
            ahead.append(rank)
    return found


def _line(
    members: set[int], sends: dict[int, set[int]], near: dict[int, set[int]], source: str
) -> tuple[int, ...]:
    """Ranks in the order of their stages. Raises InputError where they make no line and no ring."""
    ends = [rank for rank in sorted(members) if len(near[rank]) < 2]
    if any(len(near[rank]) > 2 for rank in members):
        raise InputError(
            f"{len(members)} ranks send to each other in more than one line",
            path=source,
            fix="give the ranks of one pipeline, first stage first: --ranks 0,4",
        )
    # What only sends is the first stage; where gradients or tokens come back, it is the lower rank.
    first = next((rank for rank in ends if not any(rank in sends[other] for other in members)), None)
    line = [min(ends or members) if first is None else first]
    while len(line) < len(members):
        after = [rank for rank in near[line[-1]] if rank not in line]
        forward = [rank for rank in after if rank in sends[line[-1]]] or after
        line.append(min(forward))
    return tuple(line)


def put_together(profiles: Iterable[Profile], chains: Sequence[Sequence[int]] | None = None) -> Trace:
    """One pipeline out of traces of its ranks. `chains` are the pipelines of the job, where they are known.

    The first one of which all ranks are given is taken. Raises InputError.
    """
    known: dict[int, Profile] = {}
    for profile in profiles:
        other = known.setdefault(profile.rank, profile)
        if other is not profile:
            raise InputError(
                f"is of rank {profile.rank}, and so is {other.source}",
                path=profile.source,
                fix="give one trace of each rank",
            )
    found = chains_of(list(known.values())) if chains is None else [tuple(chain) for chain in chains]
    ranks = next((chain for chain in found if known.keys() >= set(chain)), None)
    if ranks is None:
        missing = next(rank for rank in found[0] if rank not in known)
        raise InputError(
            f"holds no rank {missing}: stages are the ranks {', '.join(map(str, found[0][:16]))}",
            path=next(iter(known.values())).source,
            fix="give the traces of all stages of one pipeline",
        )
    chosen = [known[rank] for rank in ranks]
    notes = [*_about_others(found, ranks, known), *_about_transfers(chosen)]
    blocks = [cut(profile, ranks)[:MOST_STAGE_UNITS] for profile in chosen]
    clocks = [profile.host or profile.source for profile in chosen]
    ids = name_blocks(blocks, clocks)
    stages = [
        StageTrace(
            stage=stage,
            clock=clocks[stage],
            host=profile.host,
            rank=profile.rank,
            source=profile.source,
            units=tuple(_units(stage, blocks[stage], ids)),
            occupied=() if stage else tuple(joined(occupying(profile, ranks))),
        )
        for stage, profile in enumerate(chosen)
    ]
    notes += [*ids.notes, *_about_passes(stages)]
    return assembled("torch", stages, tolerance_ns=TOLERANCE_NS, notes=notes)


def _about_passes(stages: Sequence[StageTrace]) -> Iterator[str]:
    """Passes are told apart by their transfers alone."""
    if any(unit.backward for stage in stages for unit in stage.units):
        yield (
            "what comes back to an earlier stage counts as backward; computing between two transfers may be "
            "of both passes, and is drawn as one"
        )


def _about_others(
    chains: Sequence[Sequence[int]], ranks: Sequence[int], known: dict[int, Profile]
) -> Iterator[str]:
    rest = len(known.keys() - set(ranks))
    if rest:
        more = "1 more rank is" if rest == 1 else f"{rest} more ranks are"
        yield (
            f"the pipeline of ranks {', '.join(map(str, ranks[:16]))} is shown; {more} given "
            "(--ranks chooses another)"
        )


def _about_transfers(profiles: Sequence[Profile]) -> Iterator[str]:
    """Transfers that cannot be used."""
    transfers = [transfer for profile in profiles for transfer in profile.transfers]
    sideless = sum(transfer.side is None for transfer in transfers)
    if sideless:
        yield (
            f"{sideless} send/receive kernels do not say which of the two they are (batch_isend_irecv): "
            "waiting in them stays unknown"
        )
    nobody = sum(not transfer.peers and transfer.side is not None for transfer in transfers)
    if nobody:
        yield f"{nobody} transfers name no other side: profile with record_shapes=True"


def _units(stage: int, blocks: Sequence[Block], ids: Ids) -> Iterator[Unit]:
    """Blocks of a stage as units: two, the second without work, where it received one and sent another."""
    for index, block in enumerate(blocks):
        start = block.pieces[0][0] if block.pieces else _moment(block)
        end = block.pieces[-1][1] if block.pieces else start
        received = _key(block.received, ids.inputs[stage][index], stage - 1)
        sent = _key(block.sent, ids.outputs[stage][index], stage + 1)
        if not block.pieces and not (received or sent):
            continue
        known = received or sent or (f"{stage}.{index}", False)
        one = Unit(
            unit=known[0],
            stage=stage,
            backward=known[1],
            compute_start_ns=start,
            compute_end_ns=end,
            holes=block.holes,
        )
        if block.received is not None:
            moved = block.received
            one = msgspec.structs.replace(
                one, receive_from=moved.peer, receive_start_ns=moved.start, receive_end_ns=moved.end
            )
        if block.sent is None or sent is None:
            yield one
            continue
        if sent != known:
            yield one
            one = Unit(unit=sent[0], stage=stage, backward=sent[1], compute_start_ns=end, compute_end_ns=end)
        # What was still computed when sending began is no part of the transfer.
        yield msgspec.structs.replace(
            one,
            send_to=block.sent.peer,
            send_start_ns=max(block.sent.start, end),
            send_end_ns=max(block.sent.end, end),
        )


def _moment(block: Block) -> int:
    """When a block without work passed."""
    if block.received is not None:
        return block.received.end
    return block.sent.start if block.sent is not None else 0


def _key(moved: Moved | None, name: str | None, forward: int) -> Key | None:
    """Id and direction of a transfer, which is forward with one peer: what else comes back is backward."""
    return None if moved is None or name is None else (name, moved.peer != forward)
