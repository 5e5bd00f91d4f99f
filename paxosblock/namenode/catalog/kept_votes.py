"""The votes that decisions about blocks came from, kept for `explain`.

The change of the catalog that is a decision (K5, K7, K14) carries them, so that they are there
exactly if the decision is, after a restart and at the next leader too. The votes and refusals of a
recovery that had no quorum are kept with the generation of its next try (K2), or by a change of
their own if it gives up. Nothing depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import astuple

from paxosblock.api.status import VoteLine
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.draft import Draft, Reads
from paxosblock.namenode.catalog.records import KeptVotes, decode_kept_votes, encode
from paxosblock.protocol.types import BlockId

Grounds = tuple[VoteLine, ...]
"""The steps that led to a decision, oldest first, with the decision itself as the last one."""

OPENED: Final = "opened again"
"""The decision K7 of an APPEND. A block that is opened again and again has the votes of the last
time, and the number of those before: a log that is appended to line by line has thousands."""
NO_QUORUM: Final = "no quorum"
"""The end of a try to recover a block that too few members granted. There may be thousands, as the
block is tried again until its members are back, so these too have the votes of the last one."""
_REPEATED: Final = (OPENED, NO_QUORUM)
OF_BLOCK: Final = 8
"""Decisions about one block that are remembered."""
EVENT: Final = VoteLine.__struct_fields__.index("event")
OF_ALL: Final = 10_000
"""Decisions that are remembered, of all blocks; a few more until the next look at them."""


def keep_with_change(draft: Draft, block: BlockId, grounds: Grounds) -> None:
    """Let the change that is a decision carry its grounds. A decision that changes nothing, as it
    was taken before, carries none."""
    if grounds and draft.changes:
        keep(draft, block, grounds)


def keep(draft: Draft, block: BlockId, grounds: Grounds) -> None:
    """Keep a decision with its grounds."""
    decision, lines = grounds[-1], tuple(astuple(line) for line in grounds)
    before = list(draft.scan(*keys.kept_votes_of(block), OF_BLOCK, reverse=True))
    repeated, since = 0, None
    if before and decision.event in _REPEATED:
        latest = decode_kept_votes(before[0][1].value)
        if latest.lines[-1][EVENT] == decision.event:
            repeated, since = latest.repeated + 1, latest.since or latest.lines[-1]
            draft.delete(before.pop(0)[0])
    for key, _ in before[OF_BLOCK - 1 :]:
        draft.delete(key)
    kept = KeptVotes(decision.time_ms, lines, repeated, since)
    draft.put(keys.kept_votes(block, decision.generation), encode(kept))


def of_block(reads: Reads, block: BlockId) -> tuple[VoteLine, ...]:
    """Return the steps that led to the decisions about a block, oldest first."""
    lines: list[VoteLine] = []
    for _, found in reads.scan(*keys.kept_votes_of(block)):
        kept = decode_kept_votes(found.value)
        if kept.since is not None:
            times = "once" if kept.repeated == 1 else f"{kept.repeated} times"
            since = VoteLine(*kept.since)
            lines.append(msgspec.structs.replace(since, detail=f"{times} before the next line"))
        lines += (VoteLine(*line) for line in kept.lines)
    return tuple(lines)


def forget(draft: Draft, some: Iterable[bytes]) -> None:
    """Forget decisions, by their keys."""
    for key in some:
        draft.delete(key)


def old_ones(times_ms: dict[bytes, int], before_ms: int) -> list[bytes]:
    """Return which keys should go, by the times of their decisions: those from before `before_ms`,
    and the oldest of too many."""
    by_age = sorted(times_ms, key=times_ms.__getitem__)
    too_many = len(by_age) - OF_ALL
    return [
        key for place, key in enumerate(by_age) if place < too_many or times_ms[key] < before_ms
    ]
