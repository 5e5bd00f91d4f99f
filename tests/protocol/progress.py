"""No state is stuck: left alone, every sufficient set of members can end the block.

Each check runs a whole fresh recovery, with the shipped code, from the state at hand, in every
quorum that may have to do it alone; its result must hold everything acknowledged and read. A read
that is left alone ends, or waits for a member that the writer still writes to.
"""

from __future__ import annotations

from itertools import combinations

from paxosblock.protocol import finalize, recovery, register
from paxosblock.protocol import read as reading
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.messages import (
    Finalize,
    Finalized,
    LastVote,
    Read,
    ReadReply,
    RecoveryVote,
    RecoveryWrite,
    Reply,
    Request,
)
from paxosblock.protocol.read import ReadProgress
from paxosblock.protocol.recovery import Phase, Proposer
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import NO_GENERATION, ChunkName, ReplicaState, StorageId
from tests.protocol.oracle import demand
from tests.protocol.world import (
    BLOCK,
    Cell,
    Content,
    Disk,
    History,
    Model,
    Reader,
    World,
    content,
    member_indexes,
    recovery_quorum,
    size_of,
)

Replicas = dict[StorageId, Replica | None]


def check(model: Model, world: World) -> None:
    """Demand that the block of `world` can be ended (or, once it is, be made whole), and read."""
    record = world.record.value
    if record.restored:
        model.once(_can_be_learned, model, world.record, world.disks, world.history)
        return
    places = member_indexes(model, record)
    disks = tuple(world.disks[at] for at in places)
    for reader in world.readers:
        if reader.value.quorum is not None:
            model.once(_read_waits_for_writes_only, model, reader, world.disks)
        elif reader.value.record is not None and record.finalized:
            model.once(_read_goes_on, model, reader, world.record, world.disks, world.history)
    if record.finalized:
        model.once(_can_be_made_whole, model, world.record, disks, world.history)
        return
    for size in (recovery_quorum(len(places)), len(places)):
        for alive in combinations(range(len(places)), size):
            chosen = tuple(disks[at] for at in alive)
            if any(disk.value.dead for disk in chosen):
                continue  # it answers no NextGS; the others are asked without it
            model.once(_can_be_sealed, model, world.record, alive, chosen, world.history)


def _can_be_sealed(
    model: Model,
    record_cell: Cell[BlockRecord],
    alive: tuple[int, ...],
    disks: tuple[Cell[Disk], ...],
    history: Cell[History],
) -> None:
    before = record_cell.value
    names = tuple(before.members[at] for at in alive)
    replicas = {n: cell.value.replica for n, cell in zip(names, disks, strict=True)}
    if not _may_decide(before, replicas):
        return
    record = finalize.allocate_seal(before)
    assert not isinstance(record, Refused)
    model.doing = ("a fresh recovery by", names)
    proposer = _promised(recovery.seal(record), replicas)
    demand(proposer.phase is Phase.WRITING, "stuck: a quorum cannot choose", names, replicas)
    proposer = _voted(proposer, replicas)
    demand(proposer.phase is Phase.DECIDED, "stuck: a quorum cannot vote", names, replicas)
    choice = proposer.choice
    assert choice is not None
    ended = finalize.finalize_by_recovery(
        record, proposer.base, proposer.generation, choice.length, choice.size_bytes
    )
    demand(not isinstance(ended, Refused), "stuck: the decision is refused", ended)
    must: Content = () if history.value.lossy else history.value.must
    for replica in replicas.values():
        if replica is not None and replica.registers.accepted_generation == proposer.generation:
            kept = content(replica.log)[: len(must)] == must
            demand(kept, "a fresh recovery loses acknowledged or read chunks", must, replica)


def _can_be_learned(
    model: Model,
    record_cell: Cell[BlockRecord],
    disks: tuple[Cell[Disk], ...],
    history: Cell[History],
) -> None:
    """K14: a member that is left with a replica can tell what became of the block, and all of them
    together have every acknowledged chunk."""
    there = {
        name: cell.value.sound
        for name, cell in zip(model.storages, disks, strict=True)
        if cell.value.sound is not None
    }
    for size in range(1, len(there) + 1):
        for some in combinations(there, size):
            chunks = _learned(model, record_cell.value, dict(there), some)
            must = history.value.must
            # Who was asked too little may have written what it found.
            all_told = size == len(there) and not (history.value.lossy or model.config.deaf)
            kept = not all_told or history.value.rolled_back or chunks[: len(must)] == must
            demand(kept, "a fresh LEARN loses acknowledged chunks", must, chunks)


def _learned(
    model: Model, before: BlockRecord, there: dict[StorageId, Replica], some: tuple[StorageId, ...]
) -> Content:
    record = finalize.allocate_learning(before, NO_GENERATION)
    assert not isinstance(record, Refused)
    replicas: Replicas = {name: there[name] for name in some}
    model.doing = ("a fresh LEARN asks", some)
    proposer = _promised(recovery.learn(record, some), replicas)
    demand(proposer.phase is Phase.WRITING, "stuck: nothing is learned", some, replicas)
    proposer = _voted(proposer, replicas)
    demand(proposer.phase is Phase.DECIDED, "stuck: nobody votes for it", some, replicas)
    choice = proposer.choice
    assert choice is not None
    learned = finalize.learn(
        record,
        proposer.generation,
        proposer.targets,
        length=choice.length,
        size_bytes=choice.size_bytes,
        epoch=choice.epoch,
    )
    assert not isinstance(learned, Refused)
    learned.check_follows(record)
    logs = {content(replica.log) for name in proposer.targets if (replica := replicas[name])}
    demand(len(logs) == 1, "members learned different logs", logs)
    return logs.pop()


def _read_waits_for_writes_only(
    model: Model, reader: Cell[Reader], disks: tuple[Cell[Disk], ...]
) -> None:
    read = reader.value.quorum
    assert read is not None
    model.doing = ("a read is left alone",)
    for member in read.members:
        replica = disks[model.index(member)].value.sound
        if replica is None:
            continue
        reply = register.answer(member, replica, Read(BLOCK)).reply
        assert isinstance(reply, ReadReply)
        read = reading.on_read_reply(read, reply)
    if read.progress is not ReadProgress.WAITING:
        return
    waiting = [disks[model.index(member)].value.replica for member in reading.to_ask(read)]
    demand(bool(waiting), "stuck: a read waits for nobody", read)
    for replica in waiting:
        hopeless = replica is not None and replica.restarted
        demand(not hopeless, "stuck: a read waits for who takes no Write", read, replica)


def _read_goes_on(
    model: Model,
    reader: Cell[Reader],
    record_cell: Cell[BlockRecord],
    disks: tuple[Cell[Disk], ...],
    history: Cell[History],
) -> None:
    """A reader of a finalized block, of the same chunks as now, need not ask for its record again:
    every member it knows of that is FINALIZED with them serves, whoever has left since."""
    opened, record = reader.value.record, record_cell.value
    decided = {fgs: (epoch, chunks) for fgs, epoch, chunks in history.value.decided}
    assert opened is not None
    if decided[opened.finalized_generation] != decided[record.finalized_generation]:
        return
    _, expected = decided[record.finalized_generation]
    model.doing = ("a read of the finalized block goes on",)
    for member in opened.members:
        replica = disks[model.index(member)].value.sound
        if replica is None or member not in record.members:
            continue
        now = replica.registers
        if now.state is ReplicaState.FINALIZED and content(replica.log) == expected:
            reply = register.answer(member, replica, Read(BLOCK)).reply
            assert isinstance(reply, ReadReply)
            serves = reading.holds(reading.finalized_version(opened), reply)
            demand(serves, "stuck: a member refuses who opened the block before", member, now)


def _may_decide(record: BlockRecord, replicas: Replicas) -> bool:
    """Section 2.9, written again: a strong member, or a later vote, or everybody."""
    held = [replica for replica in replicas.values() if replica is not None]
    if len(replicas) == len(record.members):
        return True
    later = any(
        replica.registers.accepted_generation > record.writer_generation for replica in held
    )
    return later or len(held) < len(replicas) or any(not replica.registers.weak for replica in held)


def _promised(proposer: Proposer, replicas: Replicas) -> Proposer:
    for name, request in recovery.requests(proposer):
        if name in replicas:
            reply = _step(replicas, name, request)
            if isinstance(reply, LastVote):
                proposer = recovery.on_last_vote(proposer, reply)
    return proposer


def _voted(proposer: Proposer, replicas: Replicas) -> Proposer:
    for name, request in recovery.requests(proposer):
        if name in replicas and isinstance(request, RecoveryWrite):
            missing = register.wanted(name, replicas[name], request)
            reply = _step(replicas, name, request, _fetched(replicas, request, missing))
            if isinstance(reply, RecoveryVote):
                proposer = recovery.on_recovery_vote(proposer, reply)
    return proposer


def _fetched(replicas: Replicas, request: RecoveryWrite, missing: range) -> tuple[ChunkName, ...]:
    accepted = (request.chosen_generation, request.generation)
    for holder in request.holders if missing else ():
        replica = replicas.get(holder)
        if replica is not None and replica.registers.accepted_generation in accepted:
            return replica.log.slice(missing.start, missing.stop)
    return ()


def _step(
    replicas: Replicas, name: StorageId, request: Request, got: tuple[ChunkName, ...] = ()
) -> Reply:
    step = register.answer(name, replicas[name], request, got)
    replicas[name] = step.replica
    return step.reply


def _can_be_made_whole(
    model: Model,
    record_cell: Cell[BlockRecord],
    disks: tuple[Cell[Disk], ...],
    history: Cell[History],
) -> None:
    """Every member of a FINALIZED block can become FINALIZED with the decided chunks."""
    record = record_cell.value
    decided = history.value.decided[-1][2]
    replicas = {n: c.value.sound for n, c in zip(record.members, disks, strict=True)}
    model.doing = ("Finalize is sent to all members again",)
    promised = [
        r.registers.max_generation for r in (c.value.replica for c in disks) if r is not None
    ]
    if max(promised, default=0) > record.finalized_generation:
        again = finalize.truncate(record, record.length, size_of(decided))  # K9
        assert not isinstance(again, Refused)
        record = again
    request = finalize.finalize_message(record)
    waiting = tuple(replicas)
    while waiting:
        done = tuple(name for name in waiting if _finalized(replicas, name, request, decided))
        demand(bool(done), "stuck: members cannot be made whole", waiting, replicas)
        waiting = tuple(name for name in waiting if name not in done)


def _finalized(replicas: Replicas, name: StorageId, request: Finalize, decided: Content) -> bool:
    missing = register.wanted(name, replicas[name], request)
    got: tuple[ChunkName, ...] = ()
    for replica in replicas.values() if missing else ():
        if (
            replica is not None
            and replica.registers.finalized_generation == request.finalized_generation
        ):
            got = replica.log.slice(missing.start, missing.stop)
    reply = _step(replicas, name, request, got)
    replica = replicas[name]
    if not isinstance(reply, Finalized) or replica is None:
        return False
    demand(content(replica.log) == decided, "Finalize makes other chunks", replica, decided)
    return True
