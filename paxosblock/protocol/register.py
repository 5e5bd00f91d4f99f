"""Step 2 of a chunk's way: a DataNode answers. Each chunk has a write-once register per generation.

`answer(storage, replica, request)` is the whole acceptor. It changes nothing: it returns the new
replica, the effect, and the reply. The shell carries the effect out, adopts the new replica, and
sends the reply once what it claims is on stable storage (PROTOCOL.md 5); between `answer` and the
adoption it lets nothing else touch the replica.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec
from msgspec.structs import replace

from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.effects import (
    AdoptLog,
    AppendChunk,
    DropReplica,
    Effect,
    StoreMetadata,
    SyncChunks,
)
from paxosblock.protocol.invariants import invariants
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
    LEAP_MAX,
    NO_GENERATION,
    BlockId,
    ChunkName,
    Durability,
    Generation,
    Reason,
    Registers,
    ReplicaState,
    StorageId,
)


class Replica(msgspec.Struct, frozen=True, gc=False):
    """One block at one storage: its registers, and the names of the chunks it voted for.

    `restarted` and `acknowledged_count` are volatile; everything else survives a crash.
    """

    block: BlockId
    registers: Registers
    log: ChunkLog
    restarted: bool = False
    acknowledged_count: int = 0

    @property
    def length(self) -> int:
        """Number of chunks voted for; the seed's ChunkID is one less."""
        return len(self.log)

    def having(self, **registers: Any) -> Replica:
        """Return this replica with the named registers set to these values."""
        return replace(self, registers=replace(self.registers, **registers))

    def check(self, *led_by: object) -> None:
        """I1: check the rules for every replica; it was made from the values `led_by`."""
        holds = invariants(self, *led_by)
        now = self.registers
        holds(now.max_generation >= now.accepted_generation, "I1 MaxGS >= accepted")
        holds(now.accepted_generation >= now.epoch, "I1 accepted >= epoch")
        holds(now.base_length <= self.length, "I1 base_length <= length")
        if now.state is ReplicaState.FINALIZED:
            holds(now.accepted_generation == now.finalized_generation, "I1 FINALIZED")
            holds(self.length == now.finalized_length, "I1 FINALIZED length")

    def check_follows(self, earlier: Replica, *led_by: object) -> None:
        """I1, I2: check the rules for this replica, which was made from `earlier` and `led_by`."""
        self.check(earlier, *led_by)
        holds = invariants(self, earlier, *led_by)
        now, before = self.registers, earlier.registers
        holds(now.max_generation >= before.max_generation, "I1 MaxGS never falls")
        holds(now.accepted_generation >= before.accepted_generation, "I1 accepted never falls")
        if now.accepted_generation == before.accepted_generation:
            holds(self.log.starts_with(earlier.log), "I2 a register is written once")


class Transition(msgspec.Struct, frozen=True, gc=False):
    """The result of one request: the replica afterwards, the effect, the reply."""

    replica: Replica | None
    reply: Reply
    effect: Effect | None = None


def answer(
    storage: StorageId,
    replica: Replica | None,
    request: Request,
    supplied: tuple[ChunkName, ...] = (),
) -> Transition:
    """Answer `request` at `storage`, which holds `replica`.

    `supplied` names the chunks that the shell has fetched because `wanted` asked for them; the
    shell has checked their bytes against the names.
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
    """Return the chunks the shell must fetch from a holder before it lets `answer` take `request`.

    The range is empty if the replica can answer, even with a refusal, from the chunks it has.
    """
    if replica is not None:
        generation, registers = generation_of(request), replica.registers
        if generation < registers.max_generation or generation == registers.accepted_generation:
            return range(0)
    return range(_kept(storage, replica, request), request.length)


def heals(dead: Replica | None, request: Request, epoch: Generation = FIRST_GENERATION) -> bool:
    """D9: True if `request` may replace a replica whose bytes are damaged by a full copy, or delete
    it.

    `dead` has what the replica promised and accepted; it is None if the metadata is damaged, too.
    Then the file's name still gives the `epoch` of the log.
    """
    match request:
        case Finalize():
            # K5, K6, K8, K9 and K13 decide under a generation above all that were ever allocated,
            # so earlier promises are void. Only K4 allocates a higher generation afterwards, and a
            # member that votes in the epoch it begins has accepted that epoch's log before.
            decided = request.finalized_generation
            return decided > epoch if dead is None else decided >= dead.registers.max_generation
        case Delete():
            promised = epoch if dead is None else dead.registers.max_generation
            return promised <= request.up_to_generation
        case RecoveryWrite() if dead is not None:
            # A later writer may have gone on from the log that this replica accepted of a recovery;
            # a full copy would forget the votes since then.
            registers, generation = dead.registers, request.generation
            return registers.max_generation <= generation > registers.accepted_generation
        case _:
            return False


def nack(
    storage: StorageId,
    block: BlockId,
    generation: Generation,
    reason: Reason = Reason.NO_REPLICA,
    replica: Replica | None = None,
) -> Nack:
    """Return a refusal, with the registers and length of the replica if there is one."""
    if replica is None:
        return Nack(block, generation, storage, reason, NO_GENERATION, NO_GENERATION, 0)
    now = replica.registers
    promised, accepted = now.max_generation, now.accepted_generation
    return Nack(block, generation, storage, reason, promised, accepted, replica.length)


def generation_of(request: Request) -> Generation:
    """Return the generation that `request` is about; a refusal names it."""
    match request:
        case Write() | NextGS() | RecoveryWrite():
            return request.generation
        case Finalize():
            return request.finalized_generation
        case Delete():
            return request.up_to_generation
        case Create():
            return FIRST_GENERATION
        case Read():
            return NO_GENERATION
        case _ as never:
            assert_never(never)


def restarted(replica: Replica, *, same_boot: bool) -> Replica:
    """D8: return the replica as its process loads it after a restart.

    An rbw replica becomes rwr. It is weak if the machine itself crashed (`same_boot` is False) and
    votes of its generation were sent before they were on stable storage.
    """
    registers, forgetful = replica.registers, replace(replica, acknowledged_count=0)
    if registers.state is not ReplicaState.RBW:
        return forgetful
    lost = not same_boot and registers.durability is Durability.MEMORY
    return replace(forgetful, restarted=True).having(weak=registers.weak or lost)


def _extends(
    storage: StorageId, replica: Replica | None, request: RecoveryWrite | Finalize
) -> bool:
    """True if the replica's own log may be kept: it belongs to the epoch the request builds on."""
    if replica is None or replica.registers.state is ReplicaState.TEMPORARY:
        return False
    accepted = replica.registers.accepted_generation
    if isinstance(request, Finalize):
        # Only what was decided goes on: the log of an APPEND that was given up may be another one.
        decided = replica.registers.state is ReplicaState.FINALIZED
        continued = decided and NO_GENERATION < request.beginning <= accepted
        return continued or accepted >= request.epoch
    return storage in request.members and accepted >= request.base


def _kept(storage: StorageId, replica: Replica | None, request: RecoveryWrite | Finalize) -> int:
    if replica is None or not _extends(storage, replica, request):
        return 0
    return min(replica.length, request.length)


def _refused(
    storage: StorageId, replica: Replica | None, request: Request, reason: Reason
) -> Transition:
    """Refuse, changing nothing."""
    return Transition(
        replica, nack(storage, request.block, generation_of(request), reason, replica)
    )


def _create(storage: StorageId, replica: Replica | None, request: Create) -> Transition:
    """D1: make an empty replica. A repeated Create gets the same answer before another promise."""
    if replica is None:
        empty = _empty(request.block, FIRST_GENERATION, request.window, request.durability)
        return Transition(
            empty, Created(request.block, storage), StoreMetadata(small=request.small)
        )
    registers = replica.registers
    if registers.max_generation == registers.accepted_generation == FIRST_GENERATION:
        return Transition(replica, Created(request.block, storage))
    return _refused(storage, replica, request, Reason.FENCED)


def _empty(
    block: BlockId, max_generation: Generation, window: int, durability: Durability
) -> Replica:
    registers = Registers(
        max_generation=max_generation,
        accepted_generation=FIRST_GENERATION,
        epoch=FIRST_GENERATION,
        base_length=0,
        state=ReplicaState.RBW,
        window=window,
        durability=durability,
    )
    return Replica(block, registers, ChunkLog())


def _write(storage: StorageId, replica: Replica | None, request: Write) -> Transition:
    """D2: vote for the next chunk of the writer's generation."""
    if replica is None:
        return _refused(storage, None, request, Reason.NO_REPLICA)
    if not _takes_writes(replica, request.generation):
        return _refused(storage, replica, request, Reason.FENCED)
    length = replica.length
    if request.index > length:
        return _refused(storage, replica, request, Reason.GAP)
    sync = request.sync or replica.registers.durability is Durability.DISK
    vote = Vote(request.block, request.generation, request.index, storage, sync)
    acknowledged = max(replica.acknowledged_count, request.acknowledged_count)
    if request.index == length:
        name = ChunkName(request.index, request.size_bytes, request.crc)
        log = replica.log.append(request.size_bytes, request.crc)
        return Transition(
            replace(replica, log=log, acknowledged_count=acknowledged),
            vote,
            AppendChunk(name, sync),
        )
    held = replica.log[request.index]
    if (held.size_bytes, held.crc) != (request.size_bytes, request.crc):
        return _refused(storage, replica, request, Reason.CORRUPT)
    after = replace(replica, acknowledged_count=acknowledged)
    return Transition(after, vote, SyncChunks() if sync else None)


def _takes_writes(replica: Replica, generation: Generation) -> bool:
    registers = replica.registers
    return (
        registers.max_generation == generation
        and registers.accepted_generation == generation
        and registers.state is ReplicaState.RBW
        and not registers.weak
        and not replica.restarted
    )


def _next_gs(storage: StorageId, replica: Replica | None, request: NextGS) -> Transition:
    """D3: promise the generation durably, then tell the last vote."""
    block, generation = request.block, request.generation
    if replica is None:
        if request.base != FIRST_GENERATION:
            # Members of a later config voted for their whole log, durably, so this one lost it.
            return _refused(storage, None, request, Reason.NO_REPLICA)
        if generation > NO_GENERATION + LEAP_MAX:
            return _refused(storage, None, request, Reason.FENCED)
        replica = _empty(block, FIRST_GENERATION, request.window, request.durability)
    else:
        now = replica.registers
        if now.state is ReplicaState.TEMPORARY:
            return _refused(storage, replica, request, Reason.NO_REPLICA)
        if generation < now.max_generation:
            finalized = now.state is ReplicaState.FINALIZED
            stale = finalized and generation < now.finalized_generation
            reason = Reason.STALE if stale else Reason.FENCED
            return _refused(storage, replica, request, reason)
        if generation == now.max_generation:
            return Transition(replica, _last_vote(storage, replica, generation))
        if generation > now.max_generation + LEAP_MAX:
            return _refused(storage, replica, request, Reason.FENCED)
    promised = replica.having(max_generation=generation)
    return Transition(promised, _last_vote(storage, promised, generation), StoreMetadata())


def _last_vote(storage: StorageId, replica: Replica, generation: Generation) -> LastVote:
    return LastVote(
        block=replica.block,
        generation=generation,
        storage=storage,
        registers=replica.registers,
        length=replica.length,
        size_bytes=replica.log.size_bytes,
        acknowledged_count=replica.acknowledged_count,
        tail=replica.log.tail(replica.registers.window),
    )


def _recovery_write(
    storage: StorageId,
    replica: Replica | None,
    request: RecoveryWrite,
    supplied: tuple[ChunkName, ...],
) -> Transition:
    """D4: accept the log of a later generation, cutting off chunks beyond it."""
    block, generation = request.block, request.generation
    if replica is not None:
        now = replica.registers
        if not now.max_generation <= generation <= now.max_generation + LEAP_MAX:
            return _refused(storage, replica, request, Reason.FENCED)
        if generation == now.accepted_generation:
            if now.base_length != request.length:
                return _refused(storage, replica, request, Reason.CORRUPT)
            return Transition(replica, RecoveryVote(block, generation, request.length, storage))
    log = _merged(storage, replica, request, supplied)
    if isinstance(log, Reason):
        return _refused(storage, replica, request, log)
    accepted, effect = _adopted(storage, replica, request, log)
    return Transition(accepted, RecoveryVote(block, generation, request.length, storage), effect)


def _merged(
    storage: StorageId,
    replica: Replica | None,
    request: RecoveryWrite | Finalize,
    supplied: tuple[ChunkName, ...],
) -> ChunkLog | Reason:
    """Return the log that `request` decides, made of kept and supplied chunks, or the reason to
    refuse."""
    keep = _kept(storage, replica, request)
    missing = tuple(name for name in supplied if keep <= name.index < request.length)
    if [name.index for name in missing] != list(range(keep, keep + len(missing))):
        return Reason.GAP
    if keep + len(missing) < request.length:
        return Reason.GAP
    own = ChunkLog() if replica is None else replica.log.truncate(keep) if keep else ChunkLog()
    log = own.extend(missing)
    tail = request.tail if isinstance(request, RecoveryWrite) else ()
    # I3: an epoch has one log. Logs that differ are never merged; they raise an alarm.
    if log.size_bytes != request.size_bytes or log.tail(len(tail)) != tail:
        return Reason.CORRUPT
    return log


def _adopted(
    storage: StorageId,
    replica: Replica | None,
    request: RecoveryWrite | Finalize,
    log: ChunkLog,
) -> tuple[Replica, AdoptLog]:
    """Return the replica that has accepted `log` as `request` says, and what must be durable for
    it."""
    generation, keep = generation_of(request), _kept(storage, replica, request)
    decided = isinstance(request, Finalize)
    acknowledged = 0 if replica is None else min(replica.acknowledged_count, request.length)
    registers = Registers(
        max_generation=generation,
        accepted_generation=generation,
        epoch=request.epoch,
        base_length=request.length,
        state=ReplicaState.FINALIZED if decided else ReplicaState.RBW,
        window=request.window,
        durability=request.durability,
        finalized_generation=request.finalized_generation,
        finalized_length=0 if request.finalized_generation < 0 else request.length,
    )
    after = Replica(request.block, registers, log, acknowledged_count=acknowledged)
    return after, AdoptLog(keep, log.slice(keep, request.length))


def _finalize(
    storage: StorageId,
    replica: Replica | None,
    request: Finalize,
    supplied: tuple[ChunkName, ...],
) -> Transition:
    """D5: become the decided version, or report how many chunks are here."""
    block, generation = request.block, request.finalized_generation
    done = Finalized(block, generation, storage, request.length)
    if replica is not None:
        now = replica.registers
        if generation < now.max_generation:
            return _refused(storage, replica, request, Reason.STALE)
        if generation == now.accepted_generation:
            if (now.state, replica.length) == (ReplicaState.FINALIZED, request.length):
                return Transition(replica, done)
            return _refused(storage, replica, request, Reason.CORRUPT)
    log = _merged(storage, replica, request, supplied)
    if log is Reason.GAP:
        return _short(storage, replica, request)
    if isinstance(log, Reason):
        return _refused(storage, replica, request, log)
    finalized, effect = _adopted(storage, replica, request, log)
    return Transition(finalized, done, effect)


def _short(storage: StorageId, replica: Replica | None, request: Finalize) -> Transition:
    """D5 when chunks are missing: fence the replica, so that it can only grow into this version."""
    block, generation = request.block, request.finalized_generation
    if replica is None:
        return _refused(storage, None, request, Reason.NO_REPLICA)
    if not _extends(storage, replica, request):
        return _refused(storage, replica, request, Reason.STALE)
    short = Short(block, generation, storage, replica.length)
    promised = replica.registers.max_generation
    if generation == promised or generation > promised + LEAP_MAX:
        return Transition(replica, short)
    return Transition(replica.having(max_generation=generation), short, StoreMetadata())


def _read(storage: StorageId, replica: Replica | None, request: Read) -> Transition:
    """D6: report the registers. With `sync`, the reported chunks are on stable storage first."""
    if replica is None:
        return _refused(storage, None, request, Reason.NO_REPLICA)
    reply = ReadReply(
        block=replica.block,
        storage=storage,
        registers=replica.registers,
        restarted=replica.restarted,
        length=replica.length,
        size_bytes=replica.log.size_bytes,
        acknowledged_count=replica.acknowledged_count,
    )
    now = replica.registers
    unsynced = now.state is ReplicaState.RBW and now.durability is Durability.MEMORY
    return Transition(replica, reply, SyncChunks() if request.sync and unsynced else None)


def _delete(storage: StorageId, replica: Replica | None, request: Delete) -> Transition:
    """D7: the NameNode vouches that this storage is no member."""
    if replica is None:
        return Transition(None, Deleted(request.block, storage))
    if replica.registers.max_generation > request.up_to_generation:
        return _refused(storage, replica, request, Reason.FENCED)
    return Transition(None, Deleted(request.block, storage), DropReplica())
