"""Moves of a DataNode: a request arrives, its process or its machine crashes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from paxosblock.api.reports import Register, StorageReport
from paxosblock.errors import NotReadyError
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.catalog.records import ProcessRecord
from paxosblock.protocol import register
from paxosblock.protocol.effects import AdoptLog, AppendChunk, Effect, SyncChunks
from paxosblock.protocol.messages import (
    Create,
    Created,
    Delete,
    Deleted,
    Finalize,
    LastVote,
    Nack,
    NextGS,
    Read,
    RecoveryVote,
    RecoveryWrite,
    Reply,
    Request,
    Short,
    Vote,
    Write,
)
from paxosblock.protocol.types import NO_GENERATION, ChunkName, Reason, ReplicaState, StorageId
from tests.protocol import oracle
from tests.protocol.world import BLOCK, Cell, Disk, Letter, Model, Move, World, content

REQUESTS = (Create, Write, NextGS, RecoveryWrite, Finalize, Delete)
_RULES: dict[type, str] = {
    Create: "D1",
    Write: "D2",
    NextGS: "D3",
    RecoveryWrite: "D4",
    Finalize: "D5",
    Read: "D6",
    Delete: "D7",
}
Chunks = tuple[ChunkName, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A storage after a request; `mail` is the bit of the reply if a client awaits it."""

    disk: Cell[Disk]
    reply: Reply
    mail: int
    rule: str


def synced_after(disk: Disk, after: register.Replica | None, effect: Effect | None) -> int:
    """Return how many chunks are on stable storage once `effect` is done."""
    if after is None:
        return 0
    match effect:
        case AdoptLog() | SyncChunks() | AppendChunk(sync=True):
            return after.length
        case _:
            return min(disk.synced, after.length)


def answered(model: Model, at: int, cell: Cell[Disk], bit: int, got: Chunks) -> Outcome:
    """The request in letter `bit` at one storage: answer, check, make durable, adopt."""
    disk, request = cell.value, model.letter(bit).message
    assert isinstance(request, Request)
    if disk.dead and not register.heals(disk.replica, request, disk.epoch):
        refused = _refusal(model.storages[at])
        return Outcome(cell, refused, 0, f"{_RULES[type(request)]}-corrupt")
    seen = disk.replica if isinstance(request, Delete) else disk.sound
    step = register.answer(model.storages[at], seen, request, got)
    if seen is not None and step.replica is not None:
        step.replica.check_follows(seen)
    if disk.dead:
        if step.effect is None and not isinstance(step.reply, Deleted):
            return Outcome(cell, step.reply, 0, "D9-no-copy")
        synced = synced_after(disk, step.replica, step.effect)
        healed = Disk(step.replica, synced, copy=disk.copy)
        voted = model.post(step.reply) if isinstance(step.reply, RecoveryVote) else 0
        return Outcome(model.cell(healed), step.reply, voted, "D9")
    after = replace(
        disk, replica=step.replica, synced=synced_after(disk, step.replica, step.effect)
    )
    rule = _rule(disk, after, request, step.reply, got)
    awaited = isinstance(step.reply, Created | Vote | LastVote | RecoveryVote)
    mail = model.post(step.reply) if awaited else 0
    return Outcome(model.cell(after), step.reply, mail, rule)


def _refusal(storage: StorageId) -> Nack:
    none = NO_GENERATION
    return Nack(BLOCK, none, storage, Reason.CORRUPT, none, none, 0)


def _rule(disk: Disk, after: Disk, request: Request, reply: Reply, got: Chunks) -> str:
    """Rule number and variant, to count what an exploration reached."""
    rule = _RULES[type(request)]
    if isinstance(reply, Nack):
        return f"{rule}-{reply.reason.value}"
    if isinstance(reply, Short):
        return f"{rule}-short"
    if disk.replica is None:
        return f"{rule}-none"
    accepted = disk.replica.registers.accepted_generation
    if isinstance(request, Finalize) and 0 <= request.beginning <= accepted < request.epoch:
        return f"{rule}-goes-on"
    if disk == after:
        return f"{rule}-again"
    return f"{rule}-fetch" if got else rule


def request_moves(model: Model, world: World, bit: int) -> Iterator[Move]:
    """The letter arrives at each storage it is for."""
    letter = model.letter(bit)
    request = letter.message
    assert isinstance(request, REQUESTS)
    for at in letter.to:
        for got in _supplies(model, world, at, bit, request):
            name = model.storages[at]
            model.doing = (request, "arrives at", name)
            outcome = model.once(answered, model, at, world.disks[at], bit, got)
            after = _delivered(model, world, at, request, outcome)
            if after is None:
                model.fired[outcome.rule] += 1
            else:
                yield Move(outcome.rule, (name, ":", request, "->", outcome.reply), after)


def _delivered(
    model: Model, world: World, at: int, request: Request, outcome: Outcome
) -> World | None:
    disks = (*world.disks[:at], outcome.disk, *world.disks[at + 1 :])
    mail = world.mail | outcome.mail
    history = world.history
    if outcome.disk is world.disks[at]:
        return None if mail == world.mail else world._replace(mail=mail)
    after = world._replace(disks=disks, mail=mail)
    replica = outcome.disk.value.replica
    if isinstance(request, Delete) and replica is None and not outcome.disk.value.dead:
        name, record = model.storages[at], world.record.value
        member = name in record.members and not record.restored
        oracle.demand(not member, "D7 a member lost its replica", name)
    if isinstance(request, RecoveryWrite) and replica is not None:
        # Who is no member any more may be deleted and vote again: not another vote.
        counted = (request.members, world.record.value.members)
        is_member = all(model.storages[at] in members for members in counted)
        chunks = content(replica.log)
        history = model.cell(oracle.note_accepted(history.value, request, chunks, is_member))
    elif isinstance(outcome.reply, Vote):
        history = model.cell(oracle.note_voted_by_all(model, after))
    return after._replace(history=history)


def _supplies(
    model: Model, world: World, at: int, bit: int, request: Request
) -> tuple[Chunks, ...]:
    """Return what the shell may have fetched when it lets the request in: some holder's chunks.

    With no holder it lets it in with nothing.
    """
    if not isinstance(request, RecoveryWrite | Finalize):
        return ((),)
    missing = model.once(_wanted, model, at, world.disks[at], bit)
    if not missing:
        return ((),)
    found: list[Chunks] = []
    for other, cell in enumerate(world.disks):
        replica = cell.value.sound
        if other != at and replica is not None and _serves(model, other, replica, request):
            chunks = replica.log.slice(missing.start, missing.stop)
            if chunks not in found:
                found.append(chunks)
    return tuple(found) or ((),)


def _wanted(model: Model, at: int, cell: Cell[Disk], bit: int) -> range:
    request = model.letter(bit).message
    assert isinstance(request, RecoveryWrite | Finalize)
    disk = cell.value
    if disk.dead and not register.heals(disk.replica, request, disk.epoch):
        return range(0)
    return register.wanted(model.storages[at], disk.sound, request)


def _serves(
    model: Model, other: int, replica: register.Replica, request: RecoveryWrite | Finalize
) -> bool:
    if replica.length < request.length:
        return False
    accepted = replica.registers.accepted_generation
    if isinstance(request, Finalize):
        finalized = replica.registers.state is ReplicaState.FINALIZED
        return finalized and accepted == request.finalized_generation
    expected = (request.chosen_generation, request.generation)
    return model.storages[other] in request.holders and accepted in expected


def is_dead(
    model: Model, disks: tuple[Cell[Disk], ...], bit: int, forgetting: tuple[int, ...]
) -> bool:
    """True if a request will be refused for ever: every storage it is for has promised more, and
    none of them may forget that.
    """
    for at in model.letter(bit).to:  # a loop: this is asked for each letter of each world
        if at in forgetting or not model.once(_refuses, model, at, disks[at], bit):
            return False
    return True


def _refuses(model: Model, at: int, cell: Cell[Disk], bit: int) -> bool:
    replica, request = cell.value.replica, model.letter(bit).message
    if replica is None:
        return False
    if isinstance(request, RecoveryWrite | Finalize) and _wanted(model, at, cell, bit):
        return False
    reply = answered(model, at, cell, bit, ()).reply
    refused = isinstance(reply, Nack) and reply.reason in (Reason.FENCED, Reason.STALE)
    return refused and replica.registers.max_generation > _generation_of(request)


def _generation_of(request: object) -> int:
    match request:
        case Finalize(finalized_generation=generation) | Delete(up_to_generation=generation):
            return generation
        case Write(generation=generation) | NextGS(generation=generation):
            return generation
        case RecoveryWrite(generation=generation):
            return generation
        case _:
            return 0  # Create


def crash_moves(model: Model, world: World) -> Iterator[Move]:
    """D8: a process restarts, a machine loses power. D9: bytes, or metadata too, are damaged."""
    budget = world.budget.value
    for at, cell in enumerate(world.disks):
        replica = cell.value.replica
        if replica is None or cell.value.dead:
            continue
        if budget.damages:
            after = replace(cell.value, dead=True)
            yield _crashed(model, world, at, "D9-damage", after, damages=budget.damages - 1)
        if budget.unreadable:
            after = Disk(None, dead=True, epoch=replica.registers.epoch)
            yield _crashed(model, world, at, "D9-unread", after, unreadable=budget.unreadable - 1)
        if replica.registers.state is not ReplicaState.RBW:
            continue
        if budget.restarts and not replica.restarted:
            after = replace(cell.value, replica=register.restarted(replica, same_boot=True))
            yield _crashed(model, world, at, "D8-restart", after, restarts=budget.restarts - 1)
        if budget.power_cuts:
            kept = max(replica.registers.base_length, cell.value.synced)
            for length in range(kept, replica.length + 1):
                left = replace(replica, log=replica.log.truncate(length))
                left = register.restarted(left, same_boot=False)
                after = replace(cell.value, replica=left, synced=length)
                left_budget = budget.power_cuts - 1
                yield _crashed(model, world, at, "D8-power", after, power_cuts=left_budget)


def forget_moves(model: Model, world: World) -> Iterator[Move]:
    """D11: the log of small replicas lost records; those of this block, if it had any. What no
    other replica has is lost, whatever the rule."""
    left = world.budget.value.forgets - 1
    for at, cell in enumerate(world.disks):
        replica = cell.value.replica
        if cell.value.dead or not _is_in_the_log(replica):
            continue
        others = (each.value.sound for each in world.disks if each is not cell)
        length = 0 if replica is None else replica.length
        if any(other is not None and other.length >= length for other in others):
            yield _crashed(model, world, at, "D11", Disk(None, dead=True), forgets=left)


def _is_in_the_log(replica: register.Replica | None) -> bool:
    """True also if there is none: it may have been."""
    if replica is None:
        return True
    now = replica.registers
    open_or_decided = now.accepted_generation == 0 or now.state is ReplicaState.FINALIZED
    of_the_first = now.epoch == 0 or not replica.length
    return now.max_generation == now.accepted_generation and open_or_decided and of_the_first


def copy_moves(model: Model, world: World) -> Iterator[Move]:
    """D10: a volume is copied while its DataNode lives, and a process with the copy registers."""
    left = world.budget.value.volume_copies
    for at, cell in enumerate(world.disks):
        disk, name = cell.value, model.storages[at]
        if left and disk.sound is not None and disk.copy is None:
            made = _with_disk(model, world, at, replace(disk, copy=disk.replica))
            spent = model.cell(replace(world.budget.value, volume_copies=left - 1))
            words = ("the volume of", name, "is copied:", disk.replica)
            yield Move("D10-copy", words, made._replace(budget=spent))
        if disk.copy is None:
            continue
        model.doing = ("a process with a copy of the volume of", name, "registers")
        if not model.once(_takes_the_place, name):
            model.fired["D10"] += 1
            continue
        # The one process now has the place of the other one: what came to that comes to it.
        forgotten = register.restarted(disk.copy, same_boot=True)
        after = Disk(forgotten, min(disk.synced, forgotten.length))
        words = ("a process with the copy answers for", name, "with", forgotten)
        yield Move("D10-amnesia", words, _with_disk(model, world, at, after))


def _takes_the_place(storage: StorageId) -> bool:
    """Return if a NameNode takes in a process that registers for a storage whose DataNode lives:
    one that heard of that a moment ago, or one that has just started and has its record."""
    first, copy = (
        Register("dn", f"dn:{port}", process, (StorageReport(storage, 1, 1, 0),))
        for port, process in ((1, "first"), (2, "copy"))
    )
    hears, has_started = DataNodes(3, 15), DataNodes(3, 15)
    hears.register(first, 0)
    recorded = ProcessRecord(first.address, first.incarnation)
    taken = 0
    for known, record in ((hears, None), (hears, recorded), (has_started, recorded)):
        with suppress(NotReadyError):
            known.register(copy, 1, recorded=record)
            taken += 1
    return taken > 0


def torn_moves(model: Model, world: World, letter: Letter) -> Iterator[Move]:
    """A crash in the middle of D4: the promise is on disk, the log is not adopted."""
    request, budget = letter.message, world.budget.value
    if not budget.torn or not isinstance(request, RecoveryWrite):
        return
    for at in letter.to:
        replica = world.disks[at].value.sound
        if replica is None or replica.registers.accepted_generation >= request.generation:
            continue
        if replica.registers.max_generation <= request.generation:
            promised = replica.having(max_generation=request.generation)
            promised = register.restarted(promised, same_boot=True)
            after = replace(world.disks[at].value, replica=promised)
            yield _crashed(model, world, at, "D8-torn", after, torn=budget.torn - 1)


def _crashed(model: Model, world: World, at: int, rule: str, after: Disk, **spent: int) -> Move:
    budget = model.cell(replace(world.budget.value, **spent))
    words = (model.storages[at], "crashes and comes back with", after.replica)
    return Move(rule, words, _with_disk(model, world, at, after)._replace(budget=budget))


def _with_disk(model: Model, world: World, at: int, disk: Disk) -> World:
    return world._replace(disks=(*world.disks[:at], model.cell(disk), *world.disks[at + 1 :]))
