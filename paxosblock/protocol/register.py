"""Step 2 of a chunk's way: a DataNode answers. One write-once register per chunk and generation.

`answer(storage, replica, request)` is the whole acceptor. It changes nothing: it returns the
replica as it would be, the effect that must be on disk first, and the reply. The shell makes the
effect durable, adopts the new replica, and only then sends the reply, in this order; between
`answer` and the adoption it lets nothing else touch the replica.
"""

from __future__ import annotations

from typing import assert_never

import msgspec
from msgspec.structs import replace

from paxosblock.protocol.effects import (
    AdoptLog,
    AppendChunk,
    DropReplica,
    Effect,
    StoreMetadata,
    SyncChunks,
)
from paxosblock.protocol.invariants import invariant
from paxosblock.protocol.log import ChunkLog
from paxosblock.protocol.messages import (
    Create,
    Created,
    Delete,
    Deleted,
    Finalize,
    Finalized,
    LastVote,
    Nack,
    NextGS,
    Read,
    ReadReply,
    RecoveryVote,
    RecoveryWrite,
    Reply,
    Request,
    Short,
    Vote,
    Write,
)
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    NO_GENERATION,
    BlockId,
    ChunkName,
    Durability,
    Generation,
    Reason,
    ReplicaState,
    StorageId,
)


class Replica(msgspec.Struct, frozen=True, gc=False):
    """The registers of one block at one storage (PROTOCOL.md 1).

    `accepted_generation` is the vote for every chunk of `log` at once: accepting a recovery's log
    votes for all of it. `base_length` chunks were on stable storage when it was accepted.
    `restarted` and `acknowledged_count` are volatile; everything else survives a crash.
    """

    block: BlockId
    max_generation: Generation
    accepted_generation: Generation
    epoch: Generation
    base_length: int
    state: ReplicaState
    log: ChunkLog
    window: int
    durability: Durability
    weak: bool = False
    restarted: bool = False
    finalized_generation: Generation = NO_GENERATION
    finalized_length: int = 0
    acknowledged_count: int = 0

    @property
    def length(self) -> int:
        """Number of chunks voted for; the seed's ChunkID is one less."""
        return len(self.log)

    def check(self) -> None:
        """I1: what holds of every replica at any time."""
        invariant(self.max_generation >= self.accepted_generation, "I1 MaxGS >= accepted")
        invariant(self.accepted_generation >= self.epoch, "I1 accepted >= epoch")
        invariant(self.base_length <= self.length, "I1 base_length <= length")
        if self.state is ReplicaState.FINALIZED:
            invariant(self.accepted_generation == self.finalized_generation, "I1 FINALIZED")
            invariant(self.length == self.finalized_length, "I1 FINALIZED length")

    def check_follows(self, before: Replica) -> None:
        """I1, I2: what holds between two successive states of a replica."""
        self.check()
        invariant(self.max_generation >= before.max_generation, "I1 MaxGS never falls")
        invariant(self.accepted_generation >= before.accepted_generation, "I1 accepted never falls")
        if self.accepted_generation == before.accepted_generation:
            invariant(self.log.starts_with(before.log), "I2 a register is written once")


class Step(msgspec.Struct, frozen=True, gc=False):
    """What one request does: the replica afterwards, the effect to make durable, the reply."""

    replica: Replica | None
    reply: Reply
    effect: Effect | None = None


def answer(
    storage: StorageId,
    replica: Replica | None,
    request: Request,
    supplied: tuple[ChunkName, ...] = (),
) -> Step:
    """Answer `request` at `storage`, which holds `replica`.

    `supplied` names the chunks the shell has fetched because `wanted` asked for them. Their bytes
    were checked against the names.
    """
    match request:
        case Write():
            return _write(storage, replica, request)
        case Read():
            return _read(storage, replica, request)
        case Create():
            return _create(storage, replica, request)
        case NextGS():
            return _next_gs(storage, replica, request)
        case RecoveryWrite():
            return _recovery_write(storage, replica, request, supplied)
        case Finalize():
            return _finalize(storage, replica, request, supplied)
        case Delete():
            return _delete(storage, replica, request)
        case _ as never:
            assert_never(never)


def wanted(storage: StorageId, replica: Replica | None, request: RecoveryWrite | Finalize) -> range:
    """Which chunks the shell must fetch from a holder before it lets `answer` take `request`.

    Empty when the replica can answer with what it has, be it a refusal.
    """
    if replica is not None and _generation_of(request) < replica.max_generation:
        return range(0)
    if replica is not None and replica.accepted_generation == _generation_of(request):
        return range(0)
    return range(_kept(storage, replica, request), request.length)


def heals(dead: Replica | None, request: Request) -> bool:
    """D9: True if `request` may put a full copy in the place of a replica whose bytes are damaged.

    `dead` tells what was promised and accepted, None: nobody knows, its metadata is damaged, too.
    """
    match request:
        case Finalize():
            # K5, K6, K8 and K9 decide under a generation above all that were ever allocated: what
            # was promised before is void. Only K4 allocates one above it afterwards.
            return dead is None or request.finalized_generation >= dead.max_generation
        case RecoveryWrite() if dead is not None:
            # A later writer may have gone on from the log of a recovery that was accepted: what was
            # voted for since would be forgotten.
            promised, accepted = dead.max_generation, dead.accepted_generation
            return request.generation >= promised and request.generation > accepted
        case _:
            return False


def restarted(replica: Replica, *, same_boot: bool) -> Replica:
    """D8: the replica as it is loaded when its process starts again.

    An rbw replica becomes rwr. It is weak when the machine itself crashed (`same_boot` is False)
    and votes of its generation were not on stable storage before they were sent.
    """
    if replica.state is not ReplicaState.RBW:
        return replace(replica, acknowledged_count=0)
    lost = not same_boot and replica.durability is Durability.MEMORY
    return replace(replica, restarted=True, weak=replica.weak or lost, acknowledged_count=0)


def _generation_of(request: RecoveryWrite | Finalize) -> Generation:
    if isinstance(request, Finalize):
        return request.finalized_generation
    return request.generation


def _extends(
    storage: StorageId, replica: Replica | None, request: RecoveryWrite | Finalize
) -> bool:
    """True if the replica's own log may be kept: it belongs to the epoch the request builds on."""
    if replica is None or replica.state is ReplicaState.TEMPORARY:
        return False
    if isinstance(request, Finalize):
        return replica.accepted_generation >= request.epoch
    return storage in request.members and replica.accepted_generation >= request.base


def _kept(storage: StorageId, replica: Replica | None, request: RecoveryWrite | Finalize) -> int:
    if replica is None or not _extends(storage, replica, request):
        return 0
    return min(replica.length, request.length)


def _nack(
    storage: StorageId,
    replica: Replica | None,
    block: BlockId,
    generation: Generation,
    reason: Reason,
) -> Step:
    """Refuse, changing nothing."""
    if replica is None:
        none = NO_GENERATION
        return Step(None, Nack(block, generation, storage, reason, none, none, 0))
    return Step(
        replica,
        Nack(
            block,
            generation,
            storage,
            reason,
            replica.max_generation,
            replica.accepted_generation,
            replica.length,
        ),
    )


def _create(storage: StorageId, replica: Replica | None, request: Create) -> Step:
    """D1. A repeated Create is answered again as long as nothing else was promised."""
    if replica is None:
        empty = _empty(request.block, FIRST_GENERATION, request.window, request.durability)
        return Step(empty, Created(request.block, storage), StoreMetadata())
    if replica.max_generation == replica.accepted_generation == FIRST_GENERATION:
        return Step(replica, Created(request.block, storage))
    return _nack(storage, replica, request.block, FIRST_GENERATION, Reason.FENCED)


def _empty(
    block: BlockId, max_generation: Generation, window: int, durability: Durability
) -> Replica:
    return Replica(
        block=block,
        max_generation=max_generation,
        accepted_generation=FIRST_GENERATION,
        epoch=FIRST_GENERATION,
        base_length=0,
        state=ReplicaState.RBW,
        log=ChunkLog(),
        window=window,
        durability=durability,
    )


def _write(storage: StorageId, replica: Replica | None, request: Write) -> Step:
    """D2: vote for the next chunk of the writer's generation."""
    if replica is None:
        return _nack(storage, None, request.block, request.generation, Reason.NO_REPLICA)
    if not _takes_writes(replica, request.generation):
        return _nack(storage, replica, request.block, request.generation, Reason.FENCED)
    if request.index > replica.length:
        return _nack(storage, replica, request.block, request.generation, Reason.GAP)
    sync = request.sync or replica.durability is Durability.DISK
    vote = Vote(request.block, request.generation, request.index, storage, sync)
    acknowledged = max(replica.acknowledged_count, request.acknowledged_count)
    if request.index == replica.length:
        name = ChunkName(request.index, request.size_bytes, request.crc)
        log = replica.log.append(request.size_bytes, request.crc)
        return Step(
            replace(replica, log=log, acknowledged_count=acknowledged),
            vote,
            AppendChunk(name, sync),
        )
    held = replica.log[request.index]
    if (held.size_bytes, held.crc) != (request.size_bytes, request.crc):
        return _nack(storage, replica, request.block, request.generation, Reason.CORRUPT)
    after = replace(replica, acknowledged_count=acknowledged)
    return Step(after, vote, SyncChunks() if sync else None)


def _takes_writes(replica: Replica, generation: Generation) -> bool:
    return (
        replica.max_generation == generation
        and replica.accepted_generation == generation
        and replica.state is ReplicaState.RBW
        and not replica.weak
        and not replica.restarted
    )


def _next_gs(storage: StorageId, replica: Replica | None, request: NextGS) -> Step:
    """D3: promise the generation durably, then tell the last vote."""
    block, generation = request.block, request.generation
    if replica is None:
        if request.base != FIRST_GENERATION:
            # Members of a later config voted for their whole log, durably: it was lost.
            return _nack(storage, None, block, generation, Reason.NO_REPLICA)
        replica = _empty(block, FIRST_GENERATION, request.window, request.durability)
    elif replica.state is ReplicaState.TEMPORARY:
        return _nack(storage, replica, block, generation, Reason.NO_REPLICA)
    elif generation < replica.max_generation:
        reason = (
            Reason.STALE
            if replica.state is ReplicaState.FINALIZED and generation < replica.finalized_generation
            else Reason.FENCED
        )
        return _nack(storage, replica, block, generation, reason)
    elif generation == replica.max_generation:
        return Step(replica, _last_vote(storage, replica, generation))
    promised = replace(replica, max_generation=generation)
    return Step(promised, _last_vote(storage, promised, generation), StoreMetadata())


def _last_vote(storage: StorageId, replica: Replica, generation: Generation) -> LastVote:
    return LastVote(
        block=replica.block,
        generation=generation,
        storage=storage,
        accepted_generation=replica.accepted_generation,
        epoch=replica.epoch,
        length=replica.length,
        size_bytes=replica.log.size_bytes,
        weak=replica.weak,
        state=replica.state,
        acknowledged_count=replica.acknowledged_count,
        tail=replica.log.tail(replica.window),
    )


def _recovery_write(
    storage: StorageId,
    replica: Replica | None,
    request: RecoveryWrite,
    supplied: tuple[ChunkName, ...],
) -> Step:
    """D4: accept the log of a later generation, cutting whatever is beyond it."""
    block, generation = request.block, request.generation
    if replica is not None:
        if generation < replica.max_generation:
            return _nack(storage, replica, block, generation, Reason.FENCED)
        if generation == replica.accepted_generation:
            if replica.base_length != request.length:
                return _nack(storage, replica, block, generation, Reason.CORRUPT)
            return Step(replica, RecoveryVote(block, generation, request.length, storage))
    log = _merged(storage, replica, request, supplied)
    if isinstance(log, Reason):
        return _nack(storage, replica, block, generation, log)
    accepted, effect = _adopted(storage, replica, request, log)
    return Step(accepted, RecoveryVote(block, generation, request.length, storage), effect)


def _merged(
    storage: StorageId,
    replica: Replica | None,
    request: RecoveryWrite | Finalize,
    supplied: tuple[ChunkName, ...],
) -> ChunkLog | Reason:
    """The log `request` decides: what is kept of ours and what was supplied; or why not."""
    keep = _kept(storage, replica, request)
    missing = tuple(name for name in supplied if keep <= name.index < request.length)
    if tuple(name.index for name in missing) != tuple(range(keep, request.length)):
        return Reason.GAP
    own = ChunkLog() if replica is None else replica.log.truncate(keep) if keep else ChunkLog()
    log = own.extend(missing)
    tail = request.tail if isinstance(request, RecoveryWrite) else ()
    # I3: one log of one epoch. A difference is never merged, it is an alarm.
    if log.size_bytes != request.size_bytes or log.tail(len(tail)) != tail:
        return Reason.CORRUPT
    return log


def _adopted(
    storage: StorageId,
    replica: Replica | None,
    request: RecoveryWrite | Finalize,
    log: ChunkLog,
) -> tuple[Replica, AdoptLog]:
    """The replica that has accepted `log` as `request` says, and what must be durable for it."""
    generation, keep = _generation_of(request), _kept(storage, replica, request)
    decided = isinstance(request, Finalize)
    acknowledged = 0 if replica is None else min(replica.acknowledged_count, request.length)
    after = Replica(
        block=request.block,
        max_generation=generation,
        accepted_generation=generation,
        epoch=request.epoch,
        base_length=request.length,
        state=ReplicaState.FINALIZED if decided else ReplicaState.RBW,
        log=log,
        window=request.window,
        durability=request.durability,
        finalized_generation=request.finalized_generation,
        finalized_length=0 if request.finalized_generation < 0 else request.length,
        acknowledged_count=acknowledged,
    )
    return after, AdoptLog(keep, log.slice(keep, request.length))


def _finalize(
    storage: StorageId,
    replica: Replica | None,
    request: Finalize,
    supplied: tuple[ChunkName, ...],
) -> Step:
    """D5: become the decided version, or say how much is missing."""
    block, generation = request.block, request.finalized_generation
    done = Finalized(block, generation, storage, request.length)
    if replica is not None:
        if generation < replica.max_generation:
            return _nack(storage, replica, block, generation, Reason.STALE)
        if generation == replica.accepted_generation:
            if (replica.state, replica.length) == (ReplicaState.FINALIZED, request.length):
                return Step(replica, done)
            return _nack(storage, replica, block, generation, Reason.CORRUPT)
    log = _merged(storage, replica, request, supplied)
    if log is Reason.GAP:
        return _short(storage, replica, request)
    if isinstance(log, Reason):
        return _nack(storage, replica, block, generation, log)
    finalized, effect = _adopted(storage, replica, request, log)
    return Step(finalized, done, effect)


def _short(storage: StorageId, replica: Replica | None, request: Finalize) -> Step:
    """D5 when chunks are missing: fence the replica, so that it can only grow into this version."""
    block, generation = request.block, request.finalized_generation
    if replica is None:
        return _nack(storage, None, block, generation, Reason.NO_REPLICA)
    if not _extends(storage, replica, request):
        return _nack(storage, replica, block, generation, Reason.STALE)
    short = Short(block, generation, storage, replica.length)
    if replica.max_generation == generation:
        return Step(replica, short)
    return Step(replace(replica, max_generation=generation), short, StoreMetadata())


def _read(storage: StorageId, replica: Replica | None, request: Read) -> Step:
    """D6: tell the registers. With `sync`, what is told is on stable storage first."""
    if replica is None:
        return _nack(storage, None, request.block, NO_GENERATION, Reason.NO_REPLICA)
    reply = ReadReply(
        block=replica.block,
        storage=storage,
        max_generation=replica.max_generation,
        accepted_generation=replica.accepted_generation,
        epoch=replica.epoch,
        state=replica.state,
        weak=replica.weak,
        restarted=replica.restarted,
        length=replica.length,
        size_bytes=replica.log.size_bytes,
        acknowledged_count=replica.acknowledged_count,
        finalized_generation=replica.finalized_generation,
        finalized_length=replica.finalized_length,
    )
    unsynced = replica.state is ReplicaState.RBW and replica.durability is Durability.MEMORY
    return Step(replica, reply, SyncChunks() if request.sync and unsynced else None)


def _delete(storage: StorageId, replica: Replica | None, request: Delete) -> Step:
    """D7: the NameNode vouches that this storage is no member."""
    if replica is None:
        return Step(None, Deleted(request.block, storage))
    if replica.max_generation > request.up_to_generation:
        return _nack(storage, replica, request.block, request.up_to_generation, Reason.FENCED)
    return Step(None, Deleted(request.block, storage), DropReplica())
