"""Step 3 of a chunk's way: a later generation takes over the highest votes of a quorum.

A `Proposer` is one attempt with one generation that no other attempt has. It collects promises,
chooses once and writes. A failed attempt is abandoned and repeated under a new generation; it never
chooses again.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from paxosblock.protocol.chunk_log import acknowledged_before
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.invariants import invariant, invariants
from paxosblock.protocol.messages import LastVote, Nack, NextGS, RecoveryVote, RecoveryWrite
from paxosblock.protocol.quorum import recovery_quorum
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    LEAP_MAX,
    NO_GENERATION,
    BlockId,
    ChunkName,
    Durability,
    Generation,
    Reason,
    ReplicaState,
    StorageId,
)


class RecoveryKind(enum.Enum):
    """The purpose of a recovery generation."""

    SEAL = "seal"
    """End the block: a quorum of the config votes, then the KV records the length (K5)."""
    REBUILD = "rebuild"
    """Let the same writer go on with other members: ALL targets vote, then K7."""
    APPEND = "append"
    """Open a finalized block for a new writer: no phase 1, ALL targets vote, then K7."""
    LEARN = "learn"
    """Find out what became of a block since a backup: each storage that has a replica is asked
    (K14)."""


class Phase(enum.Enum):
    """The step that the proposer is at."""

    PROMISING = "promising"
    WRITING = "writing"
    DECIDED = "decided"
    ABANDONED = "abandoned"


class Choice(msgspec.Struct, frozen=True, gc=False):
    """The log a proposer writes: chosen once (P2, I4). A LEARN tells its `epoch`, too."""

    accepted_generation: Generation
    length: int
    size_bytes: int
    tail: tuple[ChunkName, ...]
    holders: tuple[StorageId, ...]
    epoch: Generation = NO_GENERATION


class Proposer(msgspec.Struct, frozen=True, gc=False):
    """One recovery attempt. `members` is the config of `base`; `targets` get the chosen log.

    `given_up` are members that, on an operator's word, this one attempt does not wait for (P2). In
    a LEARN, `members` are at first all that are asked, then those that hold the chosen log.
    """

    block: BlockId
    generation: Generation
    kind: RecoveryKind
    base: Generation
    members: tuple[StorageId, ...]
    targets: tuple[StorageId, ...]
    window: int
    durability: Durability
    given_up: tuple[StorageId, ...] = ()
    phase: Phase = Phase.PROMISING
    replies: tuple[LastVote, ...] = ()
    choice: Choice | None = None
    votes: tuple[StorageId, ...] = ()
    refusals: tuple[Nack, ...] = ()
    finalized_generation: Generation = NO_GENERATION

    @property
    def epoch(self) -> Generation:
        """The writer epoch the written log belongs to (P3)."""
        return self.base if self.kind is RecoveryKind.SEAL else self.generation

    @property
    def votes_needed(self) -> int:
        """P4: a quorum, or all members left, seals; ALL targets must vote to install a config."""
        if self.kind is RecoveryKind.SEAL:
            return min(recovery_quorum(len(self.members)), len(self.targets))
        return len(self.targets)


def seal(record: BlockRecord, given_up: tuple[StorageId, ...] = ()) -> Proposer:
    """P1 for a SEAL, with the record as K2 left it.

    `given_up`: an operator says that these members will not answer (P2), and accepts what that may
    cost. Agreement holds whichever members are named, because the KV decides one length (K5). A
    strong member that answers has every acknowledged chunk, because a write needs the votes of all.
    Chunks that only members given up have may be lost: those that weak members lost, and those that
    were read but never acknowledged. So the recovery does not write to the members given up, and
    the writer may no longer end the block (K6).
    """
    holds = invariants(record, given_up)
    holds(record.forced or not given_up, "K2 who gives members up says so in the record")
    left = tuple(member for member in record.members if member not in given_up)
    holds(bool(left), "P2 not every member is given up")
    gone = tuple(member for member in record.members if member in given_up)
    return replace(_proposer(record, RecoveryKind.SEAL, left), given_up=gone)


def rebuild(record: BlockRecord, targets: tuple[StorageId, ...]) -> Proposer:
    """P1 for a REBUILD, with the record as K3 left it; `targets` is the config to install."""
    return _proposer(record, RecoveryKind.REBUILD, targets)


def append(record: BlockRecord, targets: tuple[StorageId, ...]) -> Proposer:
    """P1 for an APPEND, with the record as K4 left it: its length is chosen without phase 1."""
    choice = Choice(
        accepted_generation=record.finalized_generation,
        length=record.length,
        size_bytes=record.size_bytes,
        tail=(),
        holders=record.members,
    )
    return replace(
        _proposer(record, RecoveryKind.APPEND, targets),
        phase=Phase.WRITING,
        choice=choice,
        finalized_generation=record.finalized_generation,
    )


def learn(record: BlockRecord, witnesses: tuple[StorageId, ...]) -> Proposer:
    """P1 for a LEARN, with the record as K14 left it: `witnesses` may all have a replica.

    The members are not known, so no quorum of them: each witness has to answer. A witness without a
    replica must not make one, so the question names a base other than 0: then D3 makes none.
    """
    asked = _proposer(record, RecoveryKind.LEARN, ())
    return replace(asked, members=witnesses, base=record.generation)


def learn_nothing(record: BlockRecord, witnesses: tuple[StorageId, ...]) -> Proposer:
    """P1 for a LEARN of a block that no storage has, on an operator's word.

    `witnesses` are members that the backup names. Each makes an empty replica with this promise, as
    D3 does for base 0. So what is still on its way to it comes too late, and as a write needs the
    votes of all members, nothing is acknowledged any more, however few are asked. If a Create came
    to one of them first, its log is what is learned.
    """
    holds = invariants(record, witnesses)
    holds(record.may_be_empty, "K14 no chunk of the block was ever decided")
    holds(bool(witnesses), "K14 one member at least has to answer")
    asked = _proposer(record, RecoveryKind.LEARN, ())
    return replace(asked, members=witnesses, base=FIRST_GENERATION)


def _proposer(record: BlockRecord, kind: RecoveryKind, targets: tuple[StorageId, ...]) -> Proposer:
    return Proposer(
        block=record.block,
        generation=record.generation,
        kind=kind,
        base=record.writer_generation,
        members=record.members,
        targets=targets,
        window=record.window,
        durability=record.durability,
    )


def requests(proposer: Proposer) -> tuple[tuple[StorageId, NextGS | RecoveryWrite], ...]:
    """P1, P4: the messages to send, or send again, each with its target; none after the attempt."""
    match proposer.phase:
        case Phase.PROMISING:
            asked = NextGS(
                proposer.block,
                proposer.generation,
                proposer.base,
                proposer.window,
                proposer.durability,
            )
            answered = _answered(proposer)
            return tuple((member, asked) for member in proposer.members if member not in answered)
        case Phase.WRITING:
            write = recovery_write(proposer)
            return tuple(
                (target, write) for target in proposer.targets if target not in proposer.votes
            )
        case _:
            return ()


def recovery_write(proposer: Proposer) -> RecoveryWrite:
    """P3: the one proposal of this generation."""
    choice = proposer.choice
    if choice is None:
        raise ValueError("nothing is chosen yet")
    return RecoveryWrite(
        block=proposer.block,
        generation=proposer.generation,
        base=proposer.base,
        epoch=proposer.epoch,
        length=choice.length,
        size_bytes=choice.size_bytes,
        tail=choice.tail,
        chosen_generation=choice.accepted_generation,
        members=proposer.members,
        holders=choice.holders,
        window=proposer.window,
        durability=proposer.durability,
        finalized_generation=proposer.finalized_generation,
    )


def on_last_vote(proposer: Proposer, reply: LastVote) -> Proposer:
    """P2: collect the answer, and choose once the answers suffice. Late answers change nothing."""
    ours = reply.block == proposer.block and reply.generation == proposer.generation
    known = any(reply.storage == other.storage for other in proposer.replies)
    if proposer.phase is not Phase.PROMISING or not ours or known:
        return proposer
    if reply.storage not in proposer.members:
        return proposer
    proposer = replace(proposer, replies=(*proposer.replies, reply))
    if not acceptable(proposer):
        return proposer
    invariant(proposer.choice is None, "I4 one choice per generation", proposer, reply)
    if proposer.kind is RecoveryKind.LEARN:
        return _learned(proposer)
    return replace(proposer, choice=choose(proposer), phase=Phase.WRITING)


def _answered(proposer: Proposer) -> tuple[StorageId, ...]:
    """Return the members that have told what they have; in a LEARN, also that they have nothing."""
    told = tuple(reply.storage for reply in proposer.replies)
    if proposer.kind is not RecoveryKind.LEARN:
        return told
    nothing = (Reason.NO_REPLICA, Reason.CORRUPT)
    return told + tuple(each.storage for each in proposer.refusals if each.reason in nothing)


def _learned(proposer: Proposer) -> Proposer:
    """P2, P3 for a LEARN: the log of the highest accepted generation, which begins an epoch at all
    that have accepted it. Only their logs are known to agree; others keep nothing.
    """
    best = best_vote(proposer.replies)
    found, highest = best.registers, best.registers.accepted_generation
    voters = tuple(r for r in proposer.replies if r.registers.accepted_generation == highest)
    holders = tuple(sorted(reply.storage for reply in voters))
    choice = Choice(
        accepted_generation=highest,
        length=best.length,
        size_bytes=best.size_bytes,
        tail=best.tail,
        holders=tuple(r.storage for r in voters if r.length == best.length),
        epoch=found.epoch,
    )
    finalized = found.state is ReplicaState.FINALIZED
    return replace(
        proposer,
        phase=Phase.WRITING,
        choice=choice,
        base=highest,
        members=holders,
        targets=holders,
        finalized_generation=highest if finalized else NO_GENERATION,
    )


def acceptable(proposer: Proposer) -> bool:
    """P2: True if the answers are a quorum that proves absence as well as presence.

    A weak answer counts for the promise and for the chunks it names, but does not show that others
    are absent. So one strong answer is needed, unless a later generation already decided or no
    member is left to ask.
    """
    replies = proposer.replies
    if proposer.kind is RecoveryKind.LEARN:
        return bool(replies) and set(_answered(proposer)).issuperset(proposer.members)
    if proposer.given_up:
        heard = {*proposer.given_up, *(reply.storage for reply in replies)}
        if replies and heard.issuperset(proposer.members):
            return True
    if len(replies) < recovery_quorum(len(proposer.members)):
        return False
    decided_before = max(reply.registers.accepted_generation for reply in replies) > proposer.base
    strong = any(not reply.registers.weak for reply in replies)
    everybody = len(replies) == len(proposer.members)
    return decided_before or strong or everybody


def choose(proposer: Proposer) -> Choice:
    """P2: the highest accepted generation first, then the longest log of that generation."""
    best = best_vote(proposer.replies)
    highest = best.registers.accepted_generation
    voters = tuple(r for r in proposer.replies if r.registers.accepted_generation == highest)
    known = acknowledged_before(best.length - 1, proposer.window)
    for reply in voters:
        invariant(
            reply.registers.weak or reply.length >= known,
            "I4 a strong replica is at most a window behind",
            proposer,
            reply,
        )
    acknowledged = max(reply.acknowledged_count for reply in proposer.replies)
    invariant(best.length >= acknowledged, "I4 L >= every acknowledged count", proposer, best)
    return Choice(
        accepted_generation=highest,
        length=best.length,
        size_bytes=best.size_bytes,
        tail=best.tail,
        holders=tuple(r.storage for r in voters if r.length == best.length),
    )


def best_vote(replies: Sequence[LastVote]) -> LastVote:
    """P2: the answer with the longest log of the highest accepted generation; needs one answer."""
    return max(replies, key=lambda reply: (reply.registers.accepted_generation, reply.length))


def on_recovery_vote(proposer: Proposer, vote: RecoveryVote) -> Proposer:
    """P4: DECIDED with a quorum (SEAL) or with all targets (REBUILD, APPEND)."""
    if proposer.phase is not Phase.WRITING or proposer.choice is None:
        return proposer
    ours = vote.block == proposer.block and vote.generation == proposer.generation
    fresh = vote.storage in proposer.targets and vote.storage not in proposer.votes
    if not ours or not fresh or vote.length != proposer.choice.length:
        return proposer
    votes = (*proposer.votes, vote.storage)
    phase = Phase.DECIDED if len(votes) >= proposer.votes_needed else Phase.WRITING
    return replace(proposer, votes=votes, phase=phase)


def on_nack(proposer: Proposer, nack: Nack) -> Proposer:
    """P7: stop if a higher generation is under way; the shell then reads the record.

    Any other refusal is kept for people who read the log; the member may answer better when asked
    again.
    """
    if nack.block != proposer.block or nack.generation != proposer.generation:
        return proposer
    if proposer.phase not in (Phase.PROMISING, Phase.WRITING):
        return proposer
    overtaken = nack.reason in (Reason.FENCED, Reason.STALE)
    if overtaken and nack.max_generation > proposer.generation:
        return replace(proposer, phase=Phase.ABANDONED)
    others = tuple(other for other in proposer.refusals if other.storage != nack.storage)
    proposer = replace(proposer, refusals=(*others, nack))
    promising = proposer.phase is Phase.PROMISING
    if promising and proposer.kind is RecoveryKind.LEARN and acceptable(proposer):
        return _learned(proposer)
    return proposer


def step_towards(
    question: NextGS | RecoveryWrite, answer: LastVote | RecoveryVote | Nack
) -> NextGS | None:
    """P7: the next promise to ask a member for that is too far below `question`, by its `answer` to
    that or to the step before; None: it can be asked `question` itself.
    """
    if isinstance(answer, Nack) and answer.reason is not Reason.FENCED:
        return None
    promised = answer.max_generation if isinstance(answer, Nack) else answer.generation
    if question.generation <= promised + LEAP_MAX:
        return None
    step = Generation(promised + LEAP_MAX)
    return NextGS(question.block, step, question.base, question.window, question.durability)
