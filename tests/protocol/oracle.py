"""An outside observer: what it notes and demands (the properties of every exploration).

Nothing here uses a rule of the code under test: quorums, prefixes and lengths are worked out again
from what the logs say.
"""

from __future__ import annotations

from msgspec.structs import replace

from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import RecoveryWrite
from paxosblock.protocol.types import BlockState, Durability, ReplicaState
from paxosblock.protocol.write import Writer, WriterState
from tests.protocol.world import (
    Cell,
    Content,
    Disk,
    History,
    Model,
    Violation,
    World,
    content,
    member_indexes,
    recovery_quorum,
    size_of,
)


def demand(condition: bool, text: str, *facts: object) -> None:
    """Raise Violation unless `condition`."""
    if not condition:
        raise Violation(f"{text}: {', '.join(map(str, facts))}" if facts else text)


def comparable(one: Content, other: Content) -> bool:
    """True if one of the two is a prefix of the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def sent_in(history: History, epoch: int) -> Content:
    """All chunks of the writer epoch `epoch`."""
    return dict(history.sent)[epoch]


def note_sent(history: History, epoch: int, crc: int) -> History:
    """The writer of `epoch` proposed one more chunk."""
    sent = tuple((e, (*log, crc)) if e == epoch else (e, log) for e, log in history.sent)
    return replace(history, sent=sent)


def note_promised_to_user(history: History, chunks: Content, epoch: int, what: str) -> History:
    """A prefix was acknowledged or returned: it must be there from now on.

    When the epoch has been finalized meanwhile, the prefix must be part of what was decided then.
    Nothing is demanded once the restored catalog was learned from some storages only.
    """
    if history.rolled_back:
        return history
    for _, decided_epoch, decided in history.decided:
        if decided_epoch == epoch:
            lost = decided[: len(chunks)] != chunks
            kept = history.lossy or not lost
            demand(kept, f"{what} chunks are not in the finalized block", chunks, decided)
            return history
    demand(comparable(history.must, chunks), f"{what} disagrees with", chunks, history.must)
    return replace(history, must=max(history.must, chunks, key=len))


def note_voted_by_all(model: Model, world: World) -> History:
    """A chunk is decided in the instant the last member votes for it, acknowledged or not."""
    record, history = world.record.value, world.history.value
    if record.finalized:
        return history
    lengths = []
    for at in member_indexes(model, record):
        replica = world.disks[at].value.replica
        if replica is None or replica.registers.accepted_generation != record.writer_generation:
            return history
        lengths.append(replica.length)
    chunks = sent_in(history, record.writer_generation)[: min(lengths)]
    return note_promised_to_user(history, chunks, record.writer_generation, "voted by all")


def note_accepted(
    history: History, request: RecoveryWrite, chunks: Content, is_member: bool
) -> History:
    """A replica accepted a recovery's log: everybody who accepts that generation has the same."""
    generation = request.generation
    accepted = dict(history.accepted)
    known = accepted.setdefault(generation, chunks)
    demand(known == chunks, f"generation {generation} has two logs", known, chunks)
    votes = {g: (base, count) for g, base, count in history.votes}
    votes[generation] = (request.base, votes.get(generation, (0, 0))[1] + is_member)
    history = replace(
        history,
        accepted=tuple(sorted(accepted.items())),
        votes=tuple(sorted((g, base, count) for g, (base, count) in votes.items())),
    )
    versions = {(epoch, chunks) for _, epoch, chunks in history.decided}
    if len(versions) <= 1 and not history.forced:
        _demand_agreement(history, len(request.members))
    return history


def _demand_agreement(history: History, members: int) -> None:
    """Paxos, before the user truncates: what a generation decided is what later ones write.

    It is decided once so many of the base config voted that every recovery meets one of them.
    Later generations of the same base write the same log; those of a later epoch may extend it.
    """
    accepted = dict(history.accepted)
    for earlier, _, count in history.votes:
        if count + recovery_quorum(members) <= members:
            continue
        log = accepted[earlier]
        for later, base, _ in history.votes:
            other = accepted[later] if base < earlier else accepted[later][: len(log)]
            facts = (earlier, log, later, other)
            demand(later < earlier or other == log, "generations disagree", *facts)


def note_installed(history: History, generation: int, length: int) -> History:
    """K7: a new epoch starts with the log its members accepted and everything acknowledged."""
    chunks = dict(history.accepted).get(generation)
    demand(chunks is not None, f"generation {generation} was installed but accepted by nobody")
    assert chunks is not None
    demand(len(chunks) == length, "installed length differs from the log", chunks, length)
    kept = chunks[: len(history.must)] == history.must
    demand(kept, "a new epoch lacks acknowledged or read chunks", history.must, chunks)
    return replace(history, sent=(*history.sent, (generation, chunks)))


def note_finalized(
    history: History, record: BlockRecord, chunks: Content, writers: tuple[Cell[Writer], ...]
) -> History:
    """K5, K6: the block is `chunks` from now on."""
    demand(
        (len(chunks), size_of(chunks)) == (record.length, record.size_bytes),
        "the record's length differs from the chunks that were decided",
        chunks,
        record.length,
        record.size_bytes,
    )
    kept = history.lossy or chunks[: len(history.must)] == history.must
    demand(kept, "the finalized block lacks acknowledged or read chunks", history.must, chunks)
    for epoch in (entry for entry in history.decided if entry[1] == record.writer_generation):
        demand(False, "one epoch was finalized twice", epoch)
    for cell in writers:
        writer = cell.value
        closes = writer.state is WriterState.CLOSING and not history.lossy
        if closes and writer.generation == record.writer_generation:
            demand(len(chunks) == writer.sent, "a closing writer did not get its length", chunks)
    return _decide(history, record, chunks)


def note_truncated(history: History, record: BlockRecord) -> History:
    """K8: the user cut the block."""
    chunks = history.decided[-1][2][: record.length]
    demand(size_of(chunks) == record.size_bytes, "truncate recorded a wrong size", chunks)
    return _decide(history, record, chunks)


def note_same(history: History, record: BlockRecord) -> History:
    """K13: a member left; the block is what it was, under another finalized generation."""
    _, epoch, chunks = history.decided[-1]
    same = (len(chunks), size_of(chunks), epoch)
    now = (record.length, record.size_bytes, record.writer_generation)
    demand(now == same, "a member that leaves changes the block", now, same)
    return _decide(history, record, chunks)


def note_restored(history: History) -> History:
    """A backup was brought back: recoveries of the time since agree among themselves only."""
    return replace(history, forced=True, restored=True)


def note_learned(history: History, record: BlockRecord, everybody: bool) -> History:
    """K14: the block is what the LEARN chose, in a new epoch, with all that was acknowledged or
    read if everybody was asked who had a replica."""
    chunks = dict(history.accepted)[record.writer_generation]
    demand(
        (len(chunks), size_of(chunks)) == (record.length, record.size_bytes),
        "the record's length differs from the chunks that were learned",
        chunks,
    )
    if everybody and not history.rolled_back:
        kept = history.lossy or chunks[: len(history.must)] == history.must
        demand(kept, "what was learned lacks acknowledged chunks", history.must, chunks)
    else:
        history = replace(history, rolled_back=True)
    history = replace(history, sent=(*history.sent, (int(record.writer_generation), chunks)))
    return _decide(history, record, chunks)


def _decide(history: History, record: BlockRecord, chunks: Content) -> History:
    entry = (int(record.finalized_generation), int(record.writer_generation), chunks)
    return replace(history, must=chunks, decided=(*history.decided, entry))


def note_read(history: History, chunks: Content, floor: int, epoch: int) -> History:
    """R1, R2: a linearizable read returned `chunks`; `floor` were visible before it began."""
    demand(len(chunks) >= floor, "a read returned less than was visible before", chunks, floor)
    return note_promised_to_user(history, chunks, epoch, "read")


def check(model: Model, world: World) -> None:
    """All properties of one state."""
    for at, disk in enumerate(world.disks):
        model.once(_check_replica, at, disk, world.history, model)
    model.once(_check_members, model, world.record, world.disks, world.history)


def _check_replica(at: int, cell: Cell[Disk], history_cell: Cell[History], model: Model) -> None:
    """Log matching, and byte-equality of all finalized replicas of one generation."""
    replica, history = cell.value.sound, history_cell.value
    if replica is None:
        return
    replica.check()
    chunks, name = content(replica.log), model.storages[at]
    demand(replica.log.size_bytes == size_of(chunks), "a log counts its bytes wrongly", name)
    epochs = [epoch for epoch, _ in history.sent if epoch <= replica.registers.accepted_generation]
    sent = sent_in(history, max(epochs))
    if history.restored and replica.registers.epoch > max(epochs):
        sent = dict(history.accepted)[replica.registers.epoch]  # of a LEARN that is not decided
    demand(comparable(chunks, sent), f"{name} mixes the logs of two epochs", chunks, sent)
    if replica.registers.state is ReplicaState.FINALIZED:
        decided = {fgs: log for fgs, _, log in history.decided}
        known = decided.get(replica.registers.accepted_generation)
        demand(chunks == known, f"I7 {name} is FINALIZED with other chunks", chunks, known)


def _check_members(
    model: Model,
    record_cell: Cell[BlockRecord],
    disks: tuple[Cell[Disk], ...],
    history_cell: Cell[History],
) -> None:
    record, history = record_cell.value, history_cell.value
    if record.restored:
        return  # it tells what was
    held = [disks[at].value for at in member_indexes(model, record)]
    members = [disk.sound for disk in held]
    epoch = record.writer_generation
    if record.state is not BlockState.FINALIZED:
        for replica in members:
            early = (
                replica is not None
                and replica.registers.state is ReplicaState.FINALIZED
                and replica.registers.accepted_generation >= epoch
            )
            demand(not early, "I6 a member is FINALIZED before the record is", replica)
        return
    decided = history.decided[-1][2]
    holders = 0
    for replica in members:
        if (
            replica is None
            or not epoch <= replica.registers.accepted_generation <= record.generation
        ):
            continue
        chunks = content(replica.log)
        in_line = replica.registers.accepted_generation <= record.finalized_generation
        if in_line and len(chunks) >= len(decided):
            demand(chunks[: len(decided)] == decided, "I7 wrong prefix", chunks, decided)
        holders += chunks[: len(decided)] == decided
    durable = record.durability is Durability.DISK and not history.forced
    needed = recovery_quorum(len(members)) if durable else 1
    needed -= sum(disk.dead for disk in held)
    demand(holders >= needed, "too few members hold the finalized block", holders, decided)
