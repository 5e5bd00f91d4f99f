"""Answers of the members of blocks that cannot be ended, for an operator who may force that."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from paxosblock.api.lease_call import (
    AskedMember,
    MemberAnswer,
    StuckBlock,
)
from paxosblock.api.namenode import BlockMember
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.recoverer import Recoverer
from paxosblock.namenode.blocks.runner import Heard
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import LastVote, Nack
from paxosblock.protocol.quorum import recovery_quorum
from paxosblock.protocol.recovery import best_vote


class Surveyor:
    """Combines the answers that a recovery got with the places of the members."""

    def __init__(
        self, recoverer: Recoverer, datanodes: DataNodes, clock_s: Callable[[], float]
    ) -> None:
        """Judge by `clock_s` which DataNodes are alive."""
        self._recoverer = recoverer
        self._datanodes = datanodes
        self._clock_s = clock_s

    def stuck(self, entries: Iterable[BlockEntry], block_size: int) -> tuple[StuckBlock, ...]:
        """Show blocks of a file that are not ended; none is longer than `block_size`."""
        return tuple(self._block(entry.record, block_size) for entry in entries)

    def _block(self, record: BlockRecord, block_size: int) -> StuckBlock:
        now_s = self._clock_s()
        heard = self._recoverer.heard(record.block)
        votes = [vote for vote in heard.values() if isinstance(vote, LastVote)]
        best = best_vote(votes) if votes else None
        size_bytes = best.size_bytes if best else 0
        # A strong member has all its votes, and an acknowledged chunk has every member's vote.
        certain = any(not vote.registers.weak for vote in votes)
        return StuckBlock(
            block=record.block,
            needed=recovery_quorum(len(record.members)),
            members=tuple(
                _asked_member(self._datanodes.member(storage, now_s), heard.get(storage))
                for storage in record.members
            ),
            length=best.length if best else 0,
            size_bytes=size_bytes,
            at_risk_bytes=0 if certain else max(0, block_size - size_bytes),
        )


def _asked_member(member: BlockMember, heard: Heard | None) -> AskedMember:
    match heard:
        case LastVote():
            return AskedMember(
                member,
                MemberAnswer.WEAK if heard.registers.weak else MemberAnswer.STRONG,
                generation=heard.registers.accepted_generation,
                length=heard.length,
                size_bytes=heard.size_bytes,
            )
        case Nack():
            return AskedMember(member, MemberAnswer.REFUSED, heard.reason.value)
        case PaxosBlockError():
            return AskedMember(member, MemberAnswer.UNREACHABLE, str(heard))
        case None:
            return AskedMember(member, MemberAnswer.UNREACHABLE, "it does not answer")
