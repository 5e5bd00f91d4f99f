"""Moves of the NameNode: generations are allocated, proposers learn, the KV decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import cast

from msgspec.structs import replace

from paxosblock.protocol import finalize, recovery, write
from paxosblock.protocol.finalize import BlockRecord, Refused, Why
from paxosblock.protocol.messages import Delete, LastVote, Nack, NextGS, RecoveryVote
from paxosblock.protocol.recovery import Phase, Proposer, RecoveryKind
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    NO_GENERATION,
    Durability,
    ReplicaState,
    StorageId,
)
from tests.protocol import oracle
from tests.protocol.world import (
    BLOCK,
    WRITERS,
    Answer,
    Cell,
    CloseRequest,
    History,
    Model,
    Move,
    RebuildRequest,
    World,
    member_indexes,
    size_of,
)


def namenode_moves(model: Model, world: World) -> Iterator[Move]:
    """K2, K4, K8 and the proposers: what the NameNode does by itself."""
    budget = world.budget.value
    if budget.seals:
        yield from _seal(model, world)
    if budget.forces:
        yield from _force(model, world)
    if budget.appends:
        yield from _append(model, world)
    if budget.truncates:
        yield from _truncate(model, world)
    if budget.restores:
        yield from _restore(model, world)
    if world.record.value.restored:
        if budget.learns:
            yield from _learn(model, world)
            yield from _learn_nothing(model, world)
    elif world.record.value.finalized:
        yield from _replicate(model, world)
        if budget.leaves:
            yield from _leave(model, world)
    yield from proposer_moves(model, world)


def _seal(model: Model, world: World) -> Iterator[Move]:
    """K11: a client calls FinalizeBlock(b), which starts a proposer or tells the length."""
    record = finalize.allocate_seal(world.record.value)
    if isinstance(record, Refused):
        if record.why is Why.RESTORED:
            return
        model.fired["K11"] += 1
        told, decided = record.record.length, world.history.value.decided[-1][2]
        oracle.demand(told == len(decided), "K11 a wrong length is told", told, decided)
        return
    seals = world.budget.value.seals - 1
    yield _started(model, world, record, recovery.seal(record), "K2", seals=seals)


def _force(model: Model, world: World) -> Iterator[Move]:
    """K2 with any members given up, whether they answer or not: an operator may be wrong."""
    record = finalize.allocate_seal(world.record.value, forced=True)
    if isinstance(record, Refused):
        return
    lossy = world.history.value.lossy or model.config.durability is Durability.MEMORY
    history = model.cell(replace(world.history.value, forced=True, lossy=lossy))
    for count in range(1, len(record.members)):
        for given_up in combinations(record.members, count):
            proposer = recovery.seal(record, given_up)
            forces = world.budget.value.forces - 1
            move = _started(model, world, record, proposer, "P2-force", forces=forces)
            yield move._replace(world=move.world._replace(history=history))


def _append(model: Model, world: World) -> Iterator[Move]:
    record = finalize.allocate_append(world.record.value)
    if isinstance(record, Refused):
        return
    for targets in model.config.targets:
        appends = world.budget.value.appends - 1
        proposer = recovery.append(record, _names(model, targets))
        yield _started(model, world, record, proposer, "K4", appends=appends)


def _restore(model: Model, world: World) -> Iterator[Move]:
    """A backup is made, and later brought back: all NameNodes are new, and know nothing of what was
    proposed. Messages and writers are still on their way."""
    backup = world.backup.value
    if backup is None:
        made = world._replace(backup=cast("Cell[BlockRecord | None]", world.record))
        yield Move("K14-backup", ("a backup is made",), made)
        return
    if world.record is world.backup and not world.proposers and model.config.created:
        return  # nothing happened since
    after = world._replace(
        record=model.cell(finalize.bring_back(backup)),
        proposers=(),
        backup=model.cell(None),
        history=model.cell(oracle.note_restored(world.history.value)),
        budget=model.cell(replace(world.budget.value, restores=world.budget.value.restores - 1)),
    )
    yield Move("K14-restore", ("the backup is brought back",), after)


def _learn(model: Model, world: World) -> Iterator[Move]:
    """K14: those who have a replica are asked."""
    record = finalize.allocate_learning(world.record.value, NO_GENERATION)
    assert not isinstance(record, Refused)
    pairs = zip(model.storages, world.disks, strict=True)
    there = tuple(name for name, cell in pairs if cell.value.sound is not None)
    for size in range(1 if model.config.deaf else max(1, len(there)), len(there) + 1):
        for some in combinations(there, size):
            proposer = recovery.learn(record, some)
            learns = world.budget.value.learns - 1
            yield _started(model, world, record, proposer, "K14-learn", learns=learns)


def _learn_nothing(model: Model, world: World) -> Iterator[Move]:
    """K14 by an operator's word: no storage has anything, and any members are given up."""
    record = finalize.allocate_learning(world.record.value, NO_GENERATION)
    assert not isinstance(record, Refused)
    if not record.may_be_empty or any(cell.value.replica is not None for cell in world.disks):
        return
    for size in range(1, len(record.members) + 1):
        for some in combinations(record.members, size):
            proposer = recovery.learn_nothing(record, some)
            learns = world.budget.value.learns - 1
            yield _started(model, world, record, proposer, "K14-nothing", learns=learns)


def _replicate(model: Model, world: World) -> Iterator[Move]:
    """K12: a storage that is no member is told to become a copy; once it is one, it is a member."""
    record, budget = world.record.value, world.budget.value
    for at, name in enumerate(model.storages):
        if name in record.members:
            continue
        replica = world.disks[at].value.replica
        if (
            replica is not None
            and replica.registers.finalized_generation == record.finalized_generation
        ):
            if replica.registers.state is ReplicaState.FINALIZED:
                grown = finalize.add_replica(record, name, replica.registers.finalized_generation)
                assert isinstance(grown, BlockRecord)
                grown.check_follows(record)
                # Their order says nothing, and a renamed world has them in order.
                grown = replace(grown, members=tuple(sorted(grown.members)))
                yield Move("K12", ("adds", name), world._replace(record=model.cell(grown)))
        elif budget.copies:
            beginning = NO_GENERATION
            if model.config.continues:
                beginning = max(record.cut_generation, FIRST_GENERATION)
            message = finalize.finalize_message(record, beginning=beginning)
            asked = world._replace(
                mail=world.mail | model.post(message, (at,)),
                budget=model.cell(replace(budget, copies=budget.copies - 1)),
            )
            yield Move("K12-copy", ("a copy is wanted at", name), asked)


def _leave(model: Model, world: World) -> Iterator[Move]:
    """K13: any member leaves, as soon as enough others have reported the decided version.

    It is told to delete what it holds at once (D7), besides what its reports lead to.
    """
    record = world.record.value
    for leaving in record.members:
        whole = tuple(
            member
            for member in record.members
            if member != leaving and _has_reported(model, world, member)
        )
        left = finalize.remove_replica(
            record, leaving, record.finalized_generation, whole, model.config.wanted
        )
        if isinstance(left, Refused):
            continue
        left.check_follows(record)
        told = model.post(Delete(BLOCK, record.finalized_generation), (model.index(leaving),))
        after = world._replace(
            record=model.cell(left),
            history=model.cell(oracle.note_same(world.history.value, left)),
            mail=world.mail | told | _finalize_letter(model, left),
            budget=model.cell(replace(world.budget.value, leaves=world.budget.value.leaves - 1)),
        )
        yield Move("K13", (leaving, "leaves;", whole, "have it"), after)


def _has_reported(model: Model, world: World, member: StorageId) -> bool:
    """True if `member` may have said Finalized, whatever was promised or accepted, or damaged,
    since: the report that the NameNode goes by may be old.
    """
    replica = world.disks[model.index(member)].value.replica
    decided = world.record.value.finalized_generation
    return replica is not None and replica.registers.finalized_generation == decided


def rebuild_moves(model: Model, world: World, request: RebuildRequest) -> Iterator[Move]:
    """K3: a writer's Rebuild arrives; P6: so does a copy, or a late one of a stale writer."""
    grants = _grants(model, world.record.value, (request,))
    if grants & ~world.mail:
        yield Move("P6-again", (request, "is granted"), world._replace(mail=world.mail | grants))
    if not world.budget.value.rebuilds:
        return
    record = finalize.allocate_rebuild(
        world.record.value, WRITERS[request.writer], request.generation
    )
    if isinstance(record, Refused):
        return
    for targets in model.config.targets:
        proposer = recovery.rebuild(record, _names(model, targets))
        rebuilds = world.budget.value.rebuilds - 1
        yield _started(model, world, record, proposer, "K3", rebuilds=rebuilds)


def _grants(model: Model, record: BlockRecord, requests: Iterable[RebuildRequest]) -> int:
    """P6: the mail bits of the Grants for the clients that asked, all of them."""
    grants = 0
    for asked in requests:
        granted = finalize.granted(record, WRITERS[asked.writer], asked.generation)
        if not isinstance(granted, Refused):
            grants |= model.post(granted, (asked.writer,))
    return grants


def _names(model: Model, targets: tuple[int, ...]) -> tuple[StorageId, ...]:
    return tuple(model.storages[at] for at in targets)


def _started(
    model: Model, world: World, record: BlockRecord, proposer: Proposer, rule: str, **spent: int
) -> Move:
    record.check_follows(world.record.value)
    words = (
        "allocates generation",
        record.generation,
        "for",
        proposer.kind.value,
        proposer.targets,
    )
    after = world._replace(
        record=model.cell(record),
        proposers=(*world.proposers, model.cell(proposer)),
        mail=world.mail | _sends(model, proposer),
        budget=model.cell(replace(world.budget.value, **spent)),
    )
    return Move(rule, words, after)


def _sends(model: Model, proposer: Proposer) -> int:
    """P1, P3: the mail bits of what the proposer sends now; all get the same message."""
    sent = recovery.requests(proposer)
    if not sent:
        return 0
    message = sent[0][1]
    oracle.demand(all(other == message for _, other in sent), "two proposals of one generation")
    model.fired["P1" if isinstance(message, NextGS) else "P3"] += 1
    return model.post(message, tuple(model.index(target) for target, _ in sent))


def proposer_moves(model: Model, world: World) -> Iterator[Move]:
    """P2, P4, K5, K7: a proposer takes the replies that let it act, all at once.

    Replies stay in the mail until then: that it has read some of them changes nothing for others.
    """
    for place, cell in enumerate(world.proposers):
        if cell.value.phase is Phase.PROMISING:
            yield from _chooses(model, world, place)
        else:
            yield from _decides(model, world, cell)


def _chooses(model: Model, world: World, place: int) -> Iterator[Move]:
    """P2 with every set of LastVotes that is just enough."""
    before = world.proposers[place]
    replies = tuple(
        sorted(
            (
                letter.message
                for _, letter in model.mail_of(world)
                if isinstance(letter.message, LastVote)
                and letter.message.generation == before.value.generation
            ),
            key=lambda reply: reply.storage,
        )
    )
    model.doing = ("the proposer of", before.value.generation, "chooses from", replies)
    for after in model.once(_choices, model, before, replies):
        proposers = (*world.proposers[:place], after, *world.proposers[place + 1 :])
        mail = world.mail | _sends(model, after.value)
        words = ("the proposer of", before.value.generation, "chooses", after.value.choice)
        yield Move("P2", words, world._replace(proposers=proposers, mail=mail))


def _choices(
    model: Model, before: Cell[Proposer], replies: tuple[LastVote, ...]
) -> tuple[Cell[Proposer], ...]:
    chosen: list[Cell[Proposer]] = []
    for size in range(1, len(replies) + 1):
        for some in combinations(replies, size):
            proposer = before.value
            for reply in some[:-1]:
                proposer = recovery.on_last_vote(proposer, reply)
            if proposer.phase is not Phase.PROMISING:
                continue
            proposer = recovery.on_last_vote(proposer, some[-1])
            if proposer.phase is Phase.WRITING:
                after = model.cell(replace(proposer, replies=()))
                chosen += [] if after in chosen else [after]
    return tuple(chosen)


def nack_moves(model: Model, world: World, nack: Nack) -> Iterator[Move]:
    """P7: a refusal reaches the proposer (explored only where the config asks for it)."""
    for place, cell in enumerate(world.proposers):
        after = recovery.on_nack(cell.value, nack)
        if after.phase is not cell.value.phase:
            rest = (*world.proposers[:place], *world.proposers[place + 1 :])
            yield Move("P7", (nack, "stops its proposer"), world._replace(proposers=rest))


def _decides(model: Model, world: World, cell: Cell[Proposer]) -> Iterator[Move]:
    """K5 or K7, some time after enough votes came in."""
    proposer = cell.value
    for _, letter in model.mail_of(world):
        if isinstance(letter.message, RecoveryVote):
            proposer = recovery.on_recovery_vote(proposer, letter.message)
    if proposer.phase is not Phase.DECIDED:
        return
    model.fired["P4"] += 1
    rest = tuple(other for other in world.proposers if other is not cell)
    record = _compare_and_set(world.record.value, proposer)
    model.doing = ("the proposer of", proposer.generation, "records its choice")
    if isinstance(record, Refused):
        return
    record.check_follows(world.record.value)
    if proposer.kind is RecoveryKind.SEAL:
        after = _finalized(model, world._replace(proposers=rest), record, proposer.generation)
        yield Move("K5", ("records length", record.length), after)
        return
    if proposer.kind is RecoveryKind.LEARN:
        yield Move(
            "K14",
            ("learns", record.members, record.length),
            _learned(model, world, record, rest, proposer),
        )
        return
    model.fired["P6"] += 1
    history = oracle.note_installed(world.history.value, proposer.generation, record.base_length)
    writers, mail = world.writers, world.mail
    if proposer.kind is RecoveryKind.APPEND:
        appender = write.granted_writer(finalize.grant(record), record.window)
        writers = (*writers, model.cell(appender))
        mail |= model.post(finalize.grant(record), (WRITERS.index(record.writer),))
    asked = (letter.message for _, letter in model.mail_of(world))
    mail |= _grants(model, record, (each for each in asked if isinstance(each, RebuildRequest)))
    after = world._replace(
        record=model.cell(record),
        proposers=rest,
        writers=writers,
        history=model.cell(history),
        mail=mail,
    )
    yield Move("K7", ("installs", record.members, "at", record.base_length), after)


def _learned(
    model: Model,
    world: World,
    record: BlockRecord,
    rest: tuple[Cell[Proposer], ...],
    proposer: Proposer,
) -> World:
    """The world after K14. Everybody was asked if no other member has accepted as much."""
    accepted = {
        name: cell.value.replica.registers.accepted_generation
        for name, cell in zip(model.storages, world.disks, strict=True)
        if cell.value.replica is not None and name not in proposer.targets
    }
    chosen = proposer.choice
    assert chosen is not None
    everybody = not model.config.deaf or all(
        each < chosen.accepted_generation for each in accepted.values()
    )
    history = oracle.note_learned(world.history.value, record, everybody)
    return world._replace(
        record=model.cell(record),
        proposers=rest,
        history=model.cell(history),
        mail=world.mail | _finalize_letter(model, record),
    )


def _compare_and_set(record: BlockRecord, proposer: Proposer) -> BlockRecord | Refused:
    choice = proposer.choice
    assert choice is not None
    base, generation = proposer.base, proposer.generation
    match proposer.kind:
        case RecoveryKind.SEAL:
            return finalize.finalize_by_recovery(
                record, base, generation, choice.length, choice.size_bytes
            )
        case RecoveryKind.REBUILD:
            return finalize.install_rebuild(
                record, base, generation, proposer.targets, choice.length
            )
        case RecoveryKind.LEARN:
            return finalize.learn(
                record,
                generation,
                proposer.targets,
                length=choice.length,
                size_bytes=choice.size_bytes,
                epoch=choice.epoch,
            )
        case RecoveryKind.APPEND:
            appender = WRITERS[WRITERS.index(record.writer) + 1]
            return finalize.install_append(record, base, generation, proposer.targets, appender)


def is_futile(record: BlockRecord, proposer: Proposer) -> bool:
    """P7: whether the proposer has sent all it ever will, and its CAS is refused for ever.

    The guards of K5 and K7 compare with what only grows: refused once is refused for good.
    """
    if proposer.phase not in (Phase.WRITING, Phase.DECIDED):
        return proposer.phase is Phase.ABANDONED
    return isinstance(_compare_and_set(record, proposer), Refused)


def gave_way(model: Model, record: BlockRecord, proposer: Proposer) -> None:
    """K11: who loses a compare-and-set reads the record, and finds why."""
    model.fired["K11-lost"] += 1
    overtaken = record.finalized or record.generation > proposer.generation
    oracle.demand(overtaken, "K11 a proposer lost, and to nobody", record, proposer)


def close_moves(model: Model, world: World, request: CloseRequest) -> Iterator[Move]:
    """K6: the writer's FinalizeBlock(b, g, L) arrives."""
    model.doing = (request, "reaches the NameNode")
    record = closed(world.record.value, world.history.value, request)
    if isinstance(record, Refused) or record is world.record.value:
        return
    record.check_follows(world.record.value)
    yield Move("K6", (request,), _finalized(model, world, record, None))


def closed(record: BlockRecord, history: History, request: CloseRequest) -> BlockRecord | Refused:
    """The record after K6."""
    chunks = oracle.sent_in(history, request.generation)[: request.length]
    return finalize.finalize_by_writer(
        record, WRITERS[request.writer], request.generation, request.length, size_of(chunks)
    )


def is_late(world: World, request: CloseRequest | RebuildRequest) -> bool:
    """True if a writer's request comes after its epoch, and the NameNode refuses it for that."""
    record = world.record.value
    if request.generation >= record.writer_generation:
        return False
    if isinstance(request, CloseRequest):
        return isinstance(closed(record, world.history.value, request), Refused)
    asked = WRITERS[request.writer], request.generation
    answers = finalize.allocate_rebuild(record, *asked), finalize.granted(record, *asked)
    return all(isinstance(each, Refused) for each in answers)


def _finalized(model: Model, world: World, record: BlockRecord, generation: int | None) -> World:
    """The world after K5 (by the voters of `generation`) or K6: Finalize and answers leave."""
    history = world.history.value
    if generation is None:
        chunks = oracle.sent_in(history, record.writer_generation)[: record.length]
    else:
        chunks = dict(history.accepted)[generation]
    history = oracle.note_finalized(history, record, chunks, world.writers)
    mail = world.mail | _finalize_letter(model, record)
    for number in range(len(world.writers)):
        ours = record.writer == WRITERS[number]
        mail |= model.post(Answer(number, record.length, ours), (number,))
    return world._replace(record=model.cell(record), history=model.cell(history), mail=mail)


def _finalize_letter(model: Model, record: BlockRecord) -> int:
    """P5: all members are told."""
    model.fired["P5"] += 1
    return model.post(finalize.finalize_message(record), member_indexes(model, record))


def _truncate(model: Model, world: World) -> Iterator[Move]:
    """K8 with every shorter length, K9 with the same."""
    before: History = world.history.value
    if not world.record.value.finalized:
        return
    chunks = before.decided[-1][2]
    for length in range(world.record.value.length + 1):
        record = finalize.truncate(world.record.value, length, size_of(chunks[:length]))
        if isinstance(record, Refused):
            continue
        record.check_follows(world.record.value)
        readers = tuple(
            model.cell(replace(cell.value, floor=min(cell.value.floor, length)))
            for cell in world.readers
        )
        truncates = world.budget.value.truncates - 1
        after = world._replace(
            record=model.cell(record),
            history=model.cell(oracle.note_truncated(before, record)),
            mail=world.mail | _finalize_letter(model, record),
            budget=model.cell(replace(world.budget.value, truncates=truncates)),
            readers=readers,
        )
        yield Move("K8" if length < len(chunks) else "K9", ("truncates to", length), after)
