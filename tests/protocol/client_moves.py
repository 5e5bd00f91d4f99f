"""Moves of clients: writers send, fail, learn and close; readers ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from msgspec.structs import replace

from paxosblock.protocol import read as reading
from paxosblock.protocol import write as writing
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import Created, Grant, Read, ReadReply, Vote, Write
from paxosblock.protocol.read import QuorumRead, ReadProgress
from paxosblock.protocol.types import Durability
from paxosblock.protocol.write import Writer, WriterState
from tests.protocol import oracle
from tests.protocol.datanode_moves import answered
from tests.protocol.world import (
    BLOCK,
    Answer,
    Cell,
    CloseRequest,
    Letter,
    Model,
    Move,
    Reader,
    RebuildRequest,
    World,
    chunk_crc,
    chunk_size,
    content,
)

DONE = "done"
Sent = tuple[Writer, Write]
R_FIN = "R-fin"
"""The mode of a reader that opens a finalized block, and looks at its record again."""


def writer_moves(model: Model, world: World) -> Iterator[Move]:
    """W2, W4, W6: what a writer does on its own."""
    for number, cell in enumerate(world.writers):
        writer = cell.value
        if writer.can_send and writer.sent < model.config.chunks:
            yield _send(model, world, number, writing.send)
        elif _may_go_with_create(model, writer):
            yield _send(model, world, number, writing.send_with_create)
        if model.config.close and writer.can_close:
            request = CloseRequest(number, writer.generation, writer.sent)
            closing = _with_writer(model, world, number, writing.close(writer))
            mail = closing.mail | model.post(request)
            yield Move("W6", ("closes with", writer.sent), closing._replace(mail=mail))
        if world.budget.value.rebuilds:
            failed = writing.on_failure(writer)
            if failed is not writer:
                asked = _with_writer(model, world, number, failed)
                mail = asked.mail | model.post(RebuildRequest(number, writer.generation))
                yield Move("W4", ("asks for a rebuild",), asked._replace(mail=mail))


def _with_writer(model: Model, world: World, number: int, writer: Writer) -> World:
    writers = (*world.writers[:number], model.cell(writer), *world.writers[number + 1 :])
    return world._replace(writers=writers)


def _may_go_with_create(model: Model, writer: Writer) -> bool:
    """True if the first chunk may be on its way beside Create, and come before it, too."""
    opening = writer.state is WriterState.OPENING and not writer.sent
    return model.config.write_with_create and opening


def _send(model: Model, world: World, number: int, send: Callable[..., Sent]) -> Move:
    before = world.writers[number].value
    crc = chunk_crc(before.generation, before.sent)
    how = {"sync": True} if model.config.hsync else {}
    writer, message = send(before, chunk_size(crc), crc, **how)
    to = tuple(model.index(member) for member in writer.members)
    history = oracle.note_sent(world.history.value, before.generation, crc)
    after = _with_writer(model, world, number, writer)._replace(
        mail=world.mail | model.post(message, to), history=model.cell(history)
    )
    rule = "W2" if before.state is WriterState.OPEN else "W1-write"
    return Move(rule, ("sends", message), after)


def vote_moves(model: Model, world: World) -> Iterator[Move]:
    """W1, W3: a writer takes the replies that let it go on, all at once.

    Replies stay in the mail until then: that it has read some of them changes nothing for others.
    """
    for number, cell in enumerate(world.writers):
        writer = cell.value
        replies = tuple(
            letter.message
            for _, letter in model.mail_of(world)
            if isinstance(letter.message, Created | Vote)
        )
        model.doing = ("writer", number, "takes", replies)
        for after in model.once(_went_on, model, cell, replies):
            history = world.history.value
            if after.value.acknowledged > writer.acknowledged:
                epoch = writer.generation
                chunks = oracle.sent_in(history, epoch)[: after.value.acknowledged]
                history = oracle.note_promised_to_user(history, chunks, epoch, "acknowledged")
            opened = writer.state is WriterState.OPENING
            words = ("has all votes up to", after.value.acknowledged)
            next_world = _with_writer(model, world, number, after.value)
            yield Move(
                "W1" if opened else "W3",
                words,
                next_world._replace(history=model.cell(history)),
            )


def _went_on(
    model: Model, cell: Cell[Writer], replies: tuple[Created | Vote, ...]
) -> tuple[Cell[Writer], ...]:
    """The writer after all replies up to each chunk, where that lets it open or acknowledge."""
    results: list[Cell[Writer]] = []
    for top in range(model.config.chunks):
        writer = cell.value
        for reply in replies:
            if isinstance(reply, Created):
                writer = writing.on_created(writer, reply)
            elif reply.index <= top:
                oracle.demand(writing.vote_is_sound(writer, reply), "I5 unsound vote", reply)
                writer = writing.on_vote(writer, reply)
        went_on = writer.acknowledged > cell.value.acknowledged
        if went_on or (writer.state, cell.value.state) == (WriterState.OPEN, WriterState.OPENING):
            after = model.cell(_normal(writer))
            results += [] if after in results else [after]
    return tuple(results)


def _normal(writer: Writer) -> Writer:
    """Votes beyond the acknowledged chunks are still in the mail; they need not be here too."""
    synced = tuple(min(count, writer.acknowledged) for count in writer.synced)
    voted = (writer.acknowledged,) * len(writer.members)
    return replace(writer, voted=voted, synced=synced)


def answer_moves(model: Model, world: World, letter: Letter) -> Iterator[Move]:
    """W5: a Grant reaches the writer. W7: it learns the length (checked; it need not stop)."""
    message = letter.message
    for number in letter.to:
        cell = world.writers[number]
        model.doing = (message, "reaches writer", number)
        if isinstance(message, Answer) and _lost_acknowledged(world, cell.value, message):
            continue  # I5 is the writer's alarm, and it is right
        after = model.once(heard, model, cell, message)
        if isinstance(message, Answer):
            model.fired["W7"] += after is not cell
        elif after is not cell:
            yield Move("W5", (message,), _with_writer(model, world, number, after.value))


def _lost_acknowledged(world: World, writer: Writer, answer: Answer) -> bool:
    """An operator gave up members that had not lost votes, and kept one that had."""
    return world.history.value.lossy and answer.length < writer.acknowledged


def heard(model: Model, cell: Cell[Writer], message: Grant | Answer) -> Cell[Writer]:
    """The writer after an answer of the NameNode."""
    before = cell.value
    if isinstance(message, Grant):
        after = writing.on_grant(before, message)
    else:
        after = writing.on_finalized(before, message.length, ours=message.ours)
    return cell if after == before else model.cell(after)


def is_counted(model: Model, cell: Cell[Writer], bit: int) -> bool:
    """True if the reply in letter `bit` changes nothing at this writer, now and later."""
    writer, reply = cell.value, model.letter(bit).message
    assert isinstance(reply, Created | Vote)
    if isinstance(reply, Created):
        return writer.state is not WriterState.OPENING
    return reply.generation <= writer.generation and writing.on_vote(writer, reply) == writer


def reader_moves(model: Model, world: World) -> Iterator[Move]:
    """2.6: a reader begins, asks one member, or concludes."""
    for place, cell in enumerate(world.readers):
        reader = cell.value
        if reader.phase == DONE:
            continue
        if reader.phase in ("idle", "again"):
            yield from _begin(model, world, place)
        elif reader.record is not None:
            yield from _read_finalized(model, world, place, reader.record)
        elif reader.quorum is not None:
            yield from _ask(model, world, place, reader.quorum)
        break  # readers take turns; that two overlap changes nothing a check could see


def _with_reader(model: Model, world: World, place: int, reader: Reader) -> World:
    readers = (*world.readers[:place], model.cell(reader), *world.readers[place + 1 :])
    return world._replace(readers=readers)


def _begin(model: Model, world: World, place: int) -> Iterator[Move]:
    """K10: the reader gets the record. A reader that starts over keeps the floor it had."""
    reader, record = world.readers[place].value, world.record.value
    floor = reader.floor if reader.phase == "again" else len(world.history.value.must)
    if record.finalized:
        after = Reader(reader.mode, "asking", floor, record=record)
    elif reader.mode == R_FIN:
        return
    elif reader.mode == "R3":
        yield from _read_relaxed(model, world, place, record)
        return
    else:
        quorum = reading.quorum_read if reader.mode == "R2" else reading.all_replica_read
        after = Reader(reader.mode, "asking", floor, quorum=quorum(record))
    yield Move("K10", (reader.mode, "begins"), _with_reader(model, world, place, after))


def _asked(model: Model, world: World, at: int) -> tuple[World, ReadReply | None]:
    """D6 at one storage; a read that counts is on stable storage first (sync)."""
    sync = model.config.durability is Durability.MEMORY
    outcome = model.once(answered, model, at, world.disks[at], model.post(Read(BLOCK, sync)), ())
    disks = (*world.disks[:at], outcome.disk, *world.disks[at + 1 :])
    reply = outcome.reply
    return world._replace(disks=disks), reply if isinstance(reply, ReadReply) else None


def _ask(model: Model, world: World, place: int, read: QuorumRead) -> Iterator[Move]:
    reader = world.readers[place].value
    for storage in reading.to_ask(read):
        model.doing = (reader.mode, "asks", storage)
        asked, reply = _asked(model, world, model.index(storage))
        if reply is None:
            continue
        after = reading.on_read_reply(read, reply)
        if after is read:
            continue
        words = (reader.mode, "asks", storage, "->", reply)
        if after.progress is ReadProgress.STALE_RECORD:
            again = Reader(reader.mode, "again", reader.floor)
            yield Move(f"{reader.mode}-stale", words, _with_reader(model, asked, place, again))
        elif after.progress is ReadProgress.DONE:
            yield _concluded(model, asked, place, after, words)
        else:
            answers = tuple(sorted(after.answers))
            bad, restarted = tuple(sorted(after.bad)), tuple(sorted(after.restarted))
            asking_on = replace(after, answers=answers, bad=bad, restarted=restarted)
            going_on = replace(reader, quorum=asking_on)
            yield Move("D6", words, _with_reader(model, asked, place, going_on))


def _concluded(
    model: Model, world: World, place: int, read: QuorumRead, words: tuple[object, ...]
) -> Move:
    reader, history = world.readers[place].value, world.history.value
    sent = oracle.sent_in(history, read.writer_generation)
    oracle.demand(read.goal <= len(sent), "a read returned chunks that were never sent", read.goal)
    history = oracle.note_read(history, sent[: read.goal], reader.floor, read.writer_generation)
    after = _with_reader(model, world, place, Reader(reader.mode, DONE))
    words = (*words, "and returns", read.goal, "chunks")
    return Move(reader.mode, words, after._replace(history=model.cell(history)))


def relaxed_length(record: BlockRecord, reply: ReadReply) -> int | None:
    """R3: chunks that will never be lost, from one strong member; None when it may not say."""
    strong = not reply.registers.weak and reply.storage in record.members
    if not strong or reply.registers.epoch < record.writer_generation:
        return None
    return reply.acknowledged_count


def _read_relaxed(model: Model, world: World, place: int, record: BlockRecord) -> Iterator[Move]:
    """R3: one strong member, as far as everybody is known to have voted."""
    for storage in record.members:
        at = model.index(storage)
        asked, reply = _asked(model, world, at)
        length = None if reply is None else relaxed_length(record, reply)
        replica = asked.disks[at].value.replica
        if length is None or replica is None:
            continue
        chunks = content(replica.log)[:length]
        oracle.demand(len(chunks) == length, "R3 returned chunks that are not here", storage)
        history = oracle.note_promised_to_user(
            world.history.value, chunks, int(record.writer_generation), "read (R3)"
        )
        after = _with_reader(model, asked, place, Reader("R3", DONE))
        words = ("R3 asks", storage, "and returns", length)
        yield Move("R3", words, after._replace(history=model.cell(history)))


def _read_finalized(model: Model, world: World, place: int, record: BlockRecord) -> Iterator[Move]:
    """R-fin: any member that says it holds the version returns exactly what was opened."""
    reader = world.readers[place].value
    decided = {fgs: chunks for fgs, _, chunks in world.history.value.decided}
    seen = reader.again or record
    version = reading.version_now(reading.finalized_version(record), seen)
    assert version is not None, "a reader stops where the block was cut"
    for storage in seen.members:
        at = model.index(storage)
        asked, reply = _asked(model, world, at)
        replica = asked.disks[at].value.replica
        if reply is None or replica is None or not reading.holds(version, reply):
            continue
        model.doing = ("reads the finalized block from", storage)
        chunks = content(replica.log)[: record.length]
        expected = decided[record.finalized_generation]
        oracle.demand(chunks == expected, "a finalized read is wrong", storage, chunks, expected)
        after = _with_reader(model, asked, place, Reader(reader.mode, DONE))
        yield Move("R-fin", ("reads the finalized block from", storage), after)
    if reader.mode == R_FIN and seen != world.record.value:
        yield _looks_again(model, world, place, record)


def _looks_again(model: Model, world: World, place: int, opened: BlockRecord) -> Move:
    """R-fin: who finds none any more gets the record again, and hears that the block was cut."""
    reader, now = world.readers[place].value, world.record.value
    if reading.version_now(reading.finalized_version(opened), now) is not None:
        after = _with_reader(model, world, place, replace(reader, again=now))
        return Move("R-fin-again", ("looks at the record again",), after)
    model.doing = ("a reader is told that the block was cut",)
    fgs = opened.finalized_generation
    since = [len(chunks) for at, _, chunks in world.history.value.decided if at >= fgs]
    cut = any(later < earlier for earlier, later in pairwise(since))
    oracle.demand(cut, "a reader is told of a cut, and there was none", opened, now)
    after = _with_reader(model, world, place, Reader(reader.mode, DONE))
    return Move("R-fin-cut", ("hears that the block was cut",), after)
