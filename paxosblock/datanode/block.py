"""One block at this node: the owner of its replica, its files, and the calls that wait for a
change.

`vote`, `read` and `control` are the ways in, and they keep one order: `answer` decides, the effect
is carried out, the new replica is adopted, the reply leaves. No other class assigns to a block's
fields.

A chunk takes the short way, all of it on the event loop: a `pwrite` to the page cache, then the
adoption. In disk mode the vote waits for the volume's group commit, and so does a read of the
registers (`unsynced`): the replica may be ahead of its disk, but no reply is. A control step
checks, makes durable and adopts in one blocking function in a thread of the volume, or by one
record on the event loop: no other step or vote comes in between (PROTOCOL.md 5), and writes are
fenced.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from paxosblock.api.datanode import Answer, Control
from paxosblock.base.checksum import crc32c
from paxosblock.datanode.store.disk_format import FetchedChunks, Loaded, Stored
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.volumes.group_commit import Done
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.errors import CorruptionError, NoSpaceError, PaxosBlockError, StorageError
from paxosblock.host.logs import facts, log_event
from paxosblock.net.wire import HEADER_BYTES, Flags, Header
from paxosblock.protocol.effects import (
    AdoptLog,
    AppendChunk,
    DropReplica,
    Effect,
    StoreMetadata,
    SyncChunks,
)
from paxosblock.protocol.messages import (
    Create,
    Delete,
    Deleted,
    Finalize,
    Nack,
    Read,
    ReadReply,
    RecoveryWrite,
    Reply,
    Vote,
    Write,
)
from paxosblock.protocol.register import (
    Replica,
    Transition,
    answer,
    generation_of,
    heals,
    nack,
    wanted,
)
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    NO_GENERATION,
    BlockId,
    Durability,
    Generation,
    Reason,
    Registers,
    ReplicaState,
    StorageId,
)

FORGOTTEN: Final = "it may have been here, and lost with records of the log of small replicas"
"""The reason why a replica is dead although nothing of it is here (D11)."""

_SYNC: Final = int(Flags.SYNC)
_log = logging.getLogger(__name__)


class ReplicaListener(Protocol):
    """Hears about replicas (the reporter). Called on the event loop."""

    def replica_changed(self, block: BlockId, storage: StorageId) -> None:
        """A replica was made, finalized, deleted, or changed by a recovery."""

    def replica_corrupt(self, block: BlockId, storage: StorageId, reason: str) -> None:
        """A replica is dead."""


class SentChunk(NamedTuple):
    """A chunk as it came: its header, and the whole frame."""

    header: Header
    frame: memoryview


class RecordedRequest(NamedTuple):
    """A step that was begun: its records are said, but may not be durable yet."""

    request: Control
    step: Transition
    file: OpenFile
    """It has the records; once that is durable the step may end."""
    files: Stored
    replica: Replica
    """The replica from then on: that of `step`, or with the chunk that went along."""
    reply: Reply


class Block:
    """The owner of the one replica of a block that this node may have."""

    __slots__ = (
        "__weakref__",
        "_counted_bytes",
        "_counted_open",
        "_listener",
        "_lock",
        "_reading",
        "_watchers",
        "copying",
        "corrupt",
        "epoch",
        "files",
        "id",
        "replica",
        "stepping",
        "synced",
        "volume",
    )

    def __init__(self, block: BlockId, volume: Volume, listener: ReplicaListener) -> None:
        """Start with nothing; `load` says what the disk holds."""
        self.id = block
        self.volume = volume
        self.replica: Replica | None = None
        self.files: Stored | None = None
        self._reading: tuple[Stored, OpenFile] | None = None
        """A file open for readers, if `files` has none open; closed with the next change."""
        self.corrupt = ""
        """The reason why the replica is dead, or "". If it is dead, `replica` holds only the
        promise."""
        self.epoch = FIRST_GENERATION  # of a dead replica whose promise is not known (D9)
        self.synced = 0
        """Chunks that are known to be on stable storage."""
        self._listener = listener
        self._watchers: list[asyncio.Future[None]] = []
        self._counted_bytes = 0
        self._counted_open = False
        self.copying = asyncio.Lock()
        """Held from the fetch of chunks for a recovery or finalization until it is answered."""
        self.stepping = False
        """True while a control step is under way; it always fences the writer."""
        self._lock = asyncio.Lock()

    def load(self, loaded: Loaded, *, at_rest: bool = False) -> None:
        """Begin with what the volume found. A replica `at_rest` is durable, and counted already."""
        self.replica, self.files = loaded.replica, loaded.files
        self.corrupt, self.epoch = loaded.corrupt, loaded.epoch
        if at_rest and self.replica is not None:
            log = self.replica.log
            self.synced, self._counted_bytes = len(log), self.volume.store.size_bytes(log)
        self.changed()

    def close(self) -> None:
        """Close its files, as soon as their last users are done; no step is under way."""
        self.close_for_readers()
        if self.files is not None and self.files.file is not None:
            self._retire(self.files.file)
            self.files = None

    def _retire(self, file: OpenFile) -> None:
        """Give up `file`; nothing of it need be written out any more."""
        self.volume.write_out.forget(file)
        file.retire()

    # -- what it is -----------------------------------------------------------------------------

    @property
    def vacant(self) -> bool:
        """True if there is nothing to remember."""
        return self.replica is None and self.corrupt in ("", FORGOTTEN)

    @property
    def unsynced(self) -> bool:
        """True if this replica has chunks that must not be reported before they are durable.

        In disk mode a chunk is adopted when the system has it, and reported to no reader, writer or
        NameNode before the disk has it.
        """
        replica = self.replica
        return (
            replica is not None
            and replica.registers.durability is Durability.DISK
            and replica.registers.state is ReplicaState.RBW
            and self.synced < replica.length
        )

    def nack(self, generation: Generation, reason: Reason) -> Nack:
        """Return a refusal with the facts of this replica."""
        return nack(self.volume.storage, self.id, generation, reason, self.replica)

    def state(self) -> ReadReply | None:
        """Return the registers as they are reported; None when there is no living replica."""
        known = None if self.corrupt else self.replica
        reply = answer(self.volume.storage, known, Read(self.id)).reply
        return reply if isinstance(reply, ReadReply) else None

    # -- chunks ---------------------------------------------------------------------------------

    def vote(self, header: Header, frame: memoryview, reply: Callable[[Vote | Nack], None]) -> None:
        """D2: vote for the chunk in `frame`, whose header is `header`.

        Args:
            frame: header and payload as they came; used during this call only.
            reply: gets the vote or the refusal, at once or when the chunk is durable.
        """
        refused = self._refuses_chunk(header, frame)
        if refused is not None:
            reply(self.nack(header.generation, refused))
            return
        step = answer(self.volume.storage, self.replica, _write_of(header))
        appends = isinstance(step.effect, AppendChunk)
        if appends and (refused := self._append(self.files, self.replica, step, frame)):
            reply(self.nack(header.generation, refused))
            return
        # Not before the bytes are in the file: a chunk that the file refused is not accepted (D2).
        self.replica = step.replica
        if appends:
            self._grew(len(frame))
        vote = step.reply
        assert isinstance(vote, Vote | Nack)

        def done(error: PaxosBlockError | None) -> None:
            # A volume that failed meanwhile may have dropped the bytes: no vote may claim them.
            failed = error is not None or self.volume.failed
            reply(self.nack(vote.generation, Reason.NO_REPLICA) if failed else vote)

        if isinstance(vote, Vote) and self._must_wait(vote, step.effect):
            self._sync(vote, done)
        elif appends:
            assert self.files is not None
            assert self.files.file is not None
            self.volume.write_out.wrote(self.files.file, len(frame), done)
        else:
            reply(vote)

    def _refuses_chunk(self, header: Header, frame: memoryview) -> Reason | None:
        """Reasons of this node to refuse, besides those of the acceptor."""
        if self.volume.failed:
            return Reason.NO_REPLICA
        if self.corrupt:
            return Reason.CORRUPT
        if self.stepping:
            return Reason.FENCED
        # Every DataNode checks the client's checksum, so that damage is blamed on the right node.
        if crc32c(frame[HEADER_BYTES:]) != header.payload_crc:
            return Reason.CORRUPT
        return None

    def _must_wait(self, vote: Vote, effect: Effect | None) -> bool:
        """True if the vote may only leave once its chunk is on stable storage (D2, W3)."""
        asked = isinstance(effect, SyncChunks) or (isinstance(effect, AppendChunk) and effect.sync)
        return asked and self.synced <= vote.index

    def _append(
        self, files: Stored | None, before: Replica | None, step: Transition, frame: memoryview
    ) -> Reason | None:
        after = step.replica
        assert before is not None
        assert after is not None
        assert files is not None
        assert files.file is not None, "a replica that takes writes has its file open"
        # I1, I2 in short; `check_follows` compares whole logs, which takes too long for a chunk.
        assert len(after.log) == len(before.log) + 1
        try:
            self.volume.serve()
            self.volume.store.append(files, before.log, frame)
        except NoSpaceError as error:
            _log.warning("chunk refused", extra=facts(block=self.id, reason=error))
            return Reason.NO_SPACE
        except StorageError as error:
            self.volume.fail(error)
            return Reason.NO_REPLICA
        return None

    def _sync(self, vote: Vote, done: Done) -> None:
        """Call `done` when all that `vote` claims is durable."""
        files = self.files
        assert files is not None
        assert files.file is not None

        def synced(error: PaxosBlockError | None) -> None:
            # A control step's sync may have failed before, and dropped what this sync cannot see.
            if error is None and not self.volume.failed:
                self._synced(files, vote.generation, vote.index + 1)
            elif error is not None:
                self.volume.fail(error)
            done(error)

        self.volume.commit.wait(files.file, synced)

    def _synced(self, files: Stored, generation: Generation, count: int) -> None:
        """Note what is durable in `files`: `count` chunks of the log accepted in `generation`."""
        replica, now = self.replica, self.files
        # A recovery since may have cut the log (D4): the same count then names other chunks.
        same_log = replica is not None and replica.registers.accepted_generation == generation
        if same_log and now is files:  # not deleted and made again
            self.synced = max(self.synced, count)

    # -- the registers --------------------------------------------------------------------------

    async def read(self, request: Read) -> ReadReply | Nack:
        """D6: return the registers; in disk mode, or if asked for, what they say is durable.

        Raises:
            StorageError: the volume has failed.
        """
        if self.replica is not None and self.corrupt:
            return self.nack(NO_GENERATION, Reason.CORRUPT)
        # The reply is made before the wait: chunks that come meanwhile may not be durable after it.
        step = answer(self.volume.storage, self.replica, request)
        if self.replica is not None and (step.effect is not None or self.unsynced):
            await self._make_durable(self.replica)
        assert isinstance(step.reply, ReadReply | Nack)
        return step.reply

    async def _make_durable(self, replica: Replica) -> None:
        """Wait until every chunk of `replica`, which is the one here now, is on stable storage.

        Raises:
            StorageError: the volume has failed.
        """
        files = self.files
        if self.synced >= replica.length or files is None:
            return
        if files.file is None:
            await self.volume.run(self.volume.store.sync, files)
        else:
            await self.volume.committed(files.file)
        self._synced(files, replica.registers.accepted_generation, replica.length)

    # -- control steps --------------------------------------------------------------------------

    async def settled(self) -> None:
        """Wait for the control step that is under way."""
        async with self._turn():
            pass

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Keep all other control steps out; one that was begun comes to its end before."""
        async with self._lock:
            while self.stepping:
                await self.wait_changed()
            yield

    def missing(self, request: RecoveryWrite | Finalize) -> range:
        """Return the chunks that must be fetched for `request`."""
        if self._refusal(request) is not None:
            return range(0)
        return wanted(self.volume.storage, self._seen(request), request)

    async def control(
        self, request: Control, draft: FetchedChunks | None, reserved_bytes: int
    ) -> Answer:
        """Answer a control request, with the chunks in `draft` if some were fetched for it.

        `reserved_bytes` are kept free on the volume when it makes a replica.

        Raises:
            NoSpaceError: the volume is full; nothing was changed.
            StorageError: the volume has failed.
        """
        async with self._turn():
            return await self._control(request, draft, reserved_bytes)

    async def replace_log(self, request: Finalize, draft: FetchedChunks) -> Answer | None:
        """D9 for a log that is not the decided one, which is in `draft`; None if the replica may no
        longer take that."""
        async with self._turn():
            if not self._may_end(request):
                return None
            self.mark_corrupt("its log is not the one that was decided")
            return await self._control(request, draft, 0)

    async def _control(
        self, request: Control, draft: FetchedChunks | None, reserved_bytes: int
    ) -> Answer:
        refused = self._refusal(request)
        if refused is not None:
            return refused
        if self.corrupt and isinstance(request, Delete):
            return await self._bury()
        before, old = self.replica, self.files
        step = self._consult(request, draft)
        if step.effect is not None or self.unsynced:
            self.stepping = True
            try:
                step = await self.volume.run(self._perform, request, draft, reserved_bytes)
            except CorruptionError as error:  # the files are as they were
                self.mark_corrupt(str(error))
                return self.nack(generation_of(request), Reason.CORRUPT)
            finally:
                self._stepped(old)
        self._tell(request, step, before)
        assert not isinstance(step.reply, Vote), "only a Write is voted for"
        return step.reply

    def _stepped(self, old: Stored | None) -> None:
        """Let others in after a step; give up the file that was open in `old`, if it is another."""
        self.stepping = False
        before = old.file if old is not None else None
        now = self.files.file if self.files is not None else None
        if before is not None and before is not now:
            self._retire(before)
        self.changed()

    def _tell(self, request: Control, step: Transition, before: Replica | None) -> None:
        """Tell the log and the listener of a step that is over."""
        usual = isinstance(request, _USUAL) and not isinstance(step.reply, Nack)
        level = logging.DEBUG if usual else logging.INFO
        if _log.isEnabledFor(level):
            about = facts(
                block=self.id,
                step=_text(request),
                reply=_text(step.reply),
                before=_text(before),
                after=_text(self.replica),
            )
            log_event(_log, "answered", about, level)
        if isinstance(step.effect, DropReplica):
            self.volume.deleted.set()
        if step.effect is not None:
            self._listener.replica_changed(self.id, self.volume.storage)

    def begin(
        self, request: Control, reserved_bytes: int, sent: SentChunk | None = None
    ) -> RecordedRequest | None:
        """Begin a control step that takes but a record of a file that replicas share; None:
        `control` has to take it. A chunk that was `sent` with Create becomes the record after it.

        No thread and no task takes part: this decides the step and appends its record in one turn
        of the event loop. No other step or vote comes in before `end`, which adopts the replica in
        another turn, and must come once the file is durable; only then the reply leaves.
        """
        long = self.replica is not None and self.replica.length > 1
        if self._lock.locked() or self.stepping or self.corrupt or long:
            return None
        step = self._consult(request, None)
        effect, after = step.effect, step.replica
        if effect is None or after is None:
            return None
        voted = None
        if sent is not None:
            voted = answer(self.volume.storage, after, _write_of(sent.header))
            if not isinstance(voted.effect, AppendChunk) or self._refuses_chunk(*sent):
                return None
        self._check_follows(request, step)
        room_bytes = reserved_bytes if isinstance(request, Create) else None
        said = self.volume.say(self.files, effect, after, room_bytes)
        if said is None:
            return None
        self.stepping, reply = True, step.reply
        if sent is not None and voted is not None and voted.replica is not None:
            if refused := self._append(said, after, voted, sent.frame):
                generation = sent.header.generation
                reply = nack(self.volume.storage, self.id, generation, refused, after)
            else:
                after, reply = voted.replica, voted.reply
        file = said.file or (None if self.files is None else self.files.file)
        assert file is not None, "it is open until the replica takes no more writes"
        return RecordedRequest(request, step, file, said, after, reply)

    def end(self, begun: RecordedRequest, error: PaxosBlockError | None) -> Reply:
        """End a step; return the reply, which may leave now. Raises `error`, if its records may not
        be durable."""
        before, old = self.replica, self.files
        try:
            if error is not None:
                raise error
            self._adopt(begun.files, begun.replica, begun.replica.length)
        finally:
            self._stepped(old)
        self._tell(begun.request, begun.step, before)
        return begun.reply

    def _may_end(self, request: Control) -> bool:
        """True if `request` may end this replica, if it is dead (D9)."""
        return heals(self.replica, request, self.epoch)

    def _seen(self, request: Control) -> Replica | None:
        """Return what the acceptor should see: to a full copy, a dead replica is none."""
        return None if self.corrupt and self._may_end(request) else self.replica

    def _refusal(self, request: Control) -> Nack | None:
        """Return why a dead replica does not answer (D9); None if the acceptor has to answer."""
        if not self.corrupt or self._may_end(request):
            return None
        return self.nack(generation_of(request), Reason.CORRUPT)

    def _consult(self, request: Control, draft: FetchedChunks | None) -> Transition:
        supplied = () if draft is None else draft.names
        return answer(self.volume.storage, self._seen(request), request, supplied)

    def _check_follows(self, request: Control, step: Transition) -> None:
        before, after = self.replica, step.replica
        if after is not None:
            if before is None or self.corrupt:
                after.check(request)
            else:
                after.check_follows(before, request)

    def _perform(
        self, request: Control, draft: FetchedChunks | None, reserved_bytes: int
    ) -> Transition:
        """Check, make durable, adopt: one blocking function in a thread of the volume."""
        step = self._consult(request, draft)
        before = self.replica
        self._check_follows(request, step)
        if isinstance(request, Create) and step.effect is not None:
            self.volume.check_room(reserved_bytes)
        # The reply tells the log, so its chunks are durable first. AdoptLog brings those that it
        # keeps to the disk itself, and DropReplica leaves none.
        if self.unsynced and not isinstance(step.effect, AdoptLog | DropReplica):
            assert self.files is not None
            self.volume.store.sync(self.files)
            self.synced = before.length if before is not None else 0
        if step.effect is not None:
            self._carry_out(step, draft)
        return step

    def _carry_out(self, step: Transition, draft: FetchedChunks | None) -> None:
        """Make the effect of a control request durable, then adopt the replica of `step`."""
        store, dead, effect, after = self.volume.store, self.corrupt, step.effect, step.replica
        assert not dead or isinstance(effect, AdoptLog), "a dead replica promises nothing"
        before, files = self.replica, self.files
        match effect:
            case StoreMetadata() if after is not None and files is None:
                files = store.create(after, small=effect.small)
            case StoreMetadata() if after is not None and files is not None:
                files = store.store_metadata(files, after)
            case AdoptLog() if after is not None:
                files = store.adopt(files, after, effect, draft)
            case DropReplica() if before is not None and files is not None:
                store.drop(files, before)
                files = None
            case _:
                raise AssertionError(f"{effect} is no effect of a control request")
        if dead:
            # Only now that the copy is durable: until then the dead files keep the promise (D9).
            store.purge(self.id, kept=files)
        length = 0 if after is None else after.length
        self._adopt(files, after, self.synced if isinstance(effect, StoreMetadata) else length)

    def _adopt(self, files: Stored | None, replica: Replica | None, synced: int) -> None:
        """Become `replica`; `synced` of its chunks are on stable storage.

        It is called in a thread of the volume while the event loop may read: it must never see the
        new replica's attributes beside the old replica, for which they may not be true.
        """
        self.files, self.replica = files, replica
        self.synced, self.corrupt, self.epoch = synced, "", FIRST_GENERATION

    async def _bury(self) -> Answer:
        """D7 for a dead replica: whatever it promised is void, for it is no longer a member."""
        await self.volume.run(self.volume.store.purge, self.id)
        if self.files is not None and self.files.file is not None:
            self._retire(self.files.file)
        self._adopt(None, None, 0)
        self.changed()
        self._listener.replica_changed(self.id, self.volume.storage)
        return Deleted(self.id, self.volume.storage)

    # -- watchers and readers -------------------------------------------------------------------

    def mark_corrupt(self, reason: str) -> None:
        """Note that the replica's bytes are not what was voted for: it is dead from here on."""
        if not self.corrupt:
            self.corrupt = reason
            _log.error("replica is dead", extra=facts(block=self.id, reason=reason))
            self._listener.replica_corrupt(self.id, self.volume.storage, reason)
            self.changed()

    def opened(self, files: Stored) -> OpenFile | None:
        """Return the file of `files` that is open for readers, if there is one."""
        return self._reading[1] if self._reading and self._reading[0] is files else None

    def open_for_readers(self, files: Stored, file: OpenFile) -> bool:
        """Keep `file`, that of `files`, open until the next change; False if that came first."""
        if self.files is not files or self._reading is not None:
            file.retire()
            return False
        self._reading = files, file
        return True

    def changed(self) -> None:
        """Count the replica and its bytes on the volume, and wake `wait_changed`."""
        self.close_for_readers()
        self.volume.note_damaged(self.id, self.files if self.corrupt else None)
        log = None if self.replica is None else self.replica.log
        size_bytes = 0 if log is None else self.volume.store.size_bytes(log)
        self.volume.used_bytes += size_bytes - self._counted_bytes
        self._counted_bytes = size_bytes
        is_open = self.replica is not None and self.replica.registers.state is ReplicaState.RBW
        self.volume.open_count += is_open - self._counted_open
        self._counted_open = is_open
        self._wake_watchers()

    def _grew(self, size_bytes: int) -> None:
        """As `changed`, when all that changed is one more record of the file."""
        self.close_for_readers()
        self.volume.used_bytes += size_bytes
        self._counted_bytes += size_bytes
        if self._watchers:
            self._wake_watchers()

    def _wake_watchers(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    def close_for_readers(self) -> None:
        """Close the file that is open for them, as soon as its last user is done."""
        if self._reading is not None:
            self._reading[1].retire()
            self._reading = None

    async def wait_changed(self) -> None:
        """Wait for the next append or control step."""
        watcher = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        try:
            await watcher
        finally:
            self._watchers = [one for one in self._watchers if one is not watcher]


def _write_of(header: Header) -> Write:
    """Return the request to vote for the chunk with this header."""
    chunk = (header.index, header.payload_length, header.payload_crc)
    sync = header.flags & _SYNC != 0
    return Write(header.block, header.generation, *chunk, header.acknowledged, sync)


# -- as logs show it ------------------------------------------------------------------------------


_TOLD_OF: Final = {
    "state.value": "state",
    "reason.value": "reason",
    "generation": "generation",
    "base": "base",
    "max_generation": "promised",
    "accepted_generation": "accepted",
    "epoch": "epoch",
    "finalized_generation": "finalized",
    "up_to_generation": "up_to",
    "length": "length",
    "weak": "weak",
}


_USUAL: Final = (Create, Finalize, Delete)
"""Steps of each block that is written and deleted; the log has the others at info."""


def _text(subject: Control | Reply | Replica | None) -> str:
    """Return a message or replica as a log shows it: its name and the numbers that matter."""
    if subject is None:
        return "nothing"
    template, numbers = _text_of(type(subject))
    return template % numbers(subject)


@functools.cache
def _text_of(kind: type) -> tuple[str, Callable[[object], object]]:
    """Return what logs show of the messages or replicas of this type: a template, and a function
    that finds its numbers. Otherwise a step would look for all of them four times.
    """
    places: list[tuple[type, str]] = [(kind, "")]
    if hasattr(kind, "registers"):
        places.append((Registers, "registers."))
    fields = {
        prefix + name: word
        for name, word in _TOLD_OF.items()
        for place, prefix in places
        if hasattr(place, name.removesuffix(".value"))
    }
    template = " ".join([kind.__name__, *(f"{word}=%s" for word in fields.values())])
    return template, attrgetter(*fields) if fields else lambda _: ()
