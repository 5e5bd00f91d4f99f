"""The call by which an operator ends the writing of a file, by force if too few members answer."""

from __future__ import annotations

import enum

import msgspec

from paxosblock.api.methods import Method
from paxosblock.api.namenode import BlockMember, FileStatus
from paxosblock.protocol.types import NO_GENERATION, BlockId, Generation, StorageId


class GiveUp(msgspec.Struct, frozen=True):
    """An operator's word that these members of a block, not all, will not answer (P2)."""

    block: BlockId
    members: tuple[StorageId, ...]


class RecoverLease(msgspec.Struct, frozen=True):
    """A TakeOver that may give members up, and reports their answers if a block cannot be ended.

    `empty` are blocks of a backup that no storage has, on an operator's word (K14).
    """

    path: str
    give_up: tuple[GiveUp, ...] = ()
    empty: tuple[BlockId, ...] = ()


class MemberAnswer(enum.Enum):
    """The answer of a member to a recovery that asked for its last vote."""

    STRONG = "strong"
    """It knows all its votes."""
    WEAK = "weak"
    """It may have lost votes when its machine lost power."""
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    NOTHING = "nothing"
    """It has nothing of a block that a backup brought back."""


class AskedMember(msgspec.Struct, frozen=True):
    """A member of a block that is not ended, and the log that it reported, if any.

    `generation` is the one it accepted, `length` counts chunks; `reason` says why it gave no vote.
    """

    member: BlockMember
    answer: MemberAnswer
    reason: str = ""
    generation: Generation = NO_GENERATION
    length: int = 0
    size_bytes: int = 0

    @property
    def voted(self) -> bool:
        """True if the member told its last vote."""
        return self.answer in (MemberAnswer.STRONG, MemberAnswer.WEAK)


class StuckBlock(msgspec.Struct, frozen=True):
    """A block that could not be ended.

    `needed` members must answer, including a strong one, or else all. If the members that did not
    answer are given up, the block ends with `length` chunks of `size_bytes` in all; acknowledged
    chunks behind these are lost, at most `at_risk_bytes`.

    If a backup brought it back (`restored`) and no storage has anything of it, it may end empty,
    unless `unsure` says why that cannot be told. `unheard` are DataNodes that are not heard: what
    they have of it would be lost.
    """

    block: BlockId
    needed: int
    members: tuple[AskedMember, ...]
    length: int
    size_bytes: int
    at_risk_bytes: int
    restored: bool = False
    unsure: str = ""
    unheard: tuple[str, ...] = ()

    @property
    def may_be_empty(self) -> bool:
        """True if an operator may end it without anything in it."""
        return self.restored and not self.unsure

    @property
    def silent(self) -> tuple[StorageId, ...]:
        """The members that gave no vote."""
        return tuple(each.member.storage for each in self.members if not each.voted)


class LeaseRecovery(msgspec.Struct, frozen=True):
    """The file now: closed, or with `stuck` blocks and a `reason` that says what was tried."""

    status: FileStatus
    stuck: tuple[StuckBlock, ...] = ()
    reason: str = ""


RECOVER_LEASE = Method("recover_lease", RecoverLease, LeaseRecovery)
