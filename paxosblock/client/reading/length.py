"""The length of a file right now: records for finalized blocks, a quorum read for the last."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from typing import Final

from paxosblock.api.datanode import Answer, Envelope, Watch
from paxosblock.api.file_pages import GET_FILE, FileView, GetFile
from paxosblock.api.namenode import NO_FILE, BlockView, FileStatus
from paxosblock.api.snapshot_calls import is_in_snapshot
from paxosblock.client.reading.block_reader import Extent, finalized_extent, unfinalized_extent
from paxosblock.client.session.backoff import Backoff
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.errors import InvalidRequestError, PaxosBlockError, UnavailableError
from paxosblock.protocol import read as reading
from paxosblock.protocol.messages import Read, ReadReply
from paxosblock.protocol.read import QuorumRead, ReadProgress
from paxosblock.protocol.types import BlockState, Durability, StorageId

ASK_AGAIN_MS: Final = 1000
"""Milliseconds that a lagging member may take to reach what others have shown."""
OPEN_PATIENCE_S: Final = 2.0
"""Seconds that `open` waits for the length of a last block before it gives what is finalized:
longer than a recovery takes, shorter than a person likes to wait for bytes that are there."""


class Consistency(enum.Enum):
    """The way to read the length of a block under construction; both are linearizable."""

    QUORUM = "quorum"
    """R2: a majority of the members suffices."""
    ALL = "all"
    """R1, the seed's own: all members must answer."""


def consistency_of(name: str | Consistency) -> Consistency:
    """Return the consistency called `name`. Raises InvalidRequestError when there is none."""
    try:
        return Consistency(name)
    except ValueError:
        names = " or ".join(repr(each.value) for each in Consistency)
        raise InvalidRequestError(f"consistency {name!r}: write {names}") from None


@dataclass(frozen=True, slots=True)
class ReadableFile:
    """A file at one moment after the call began: the part of it that may be read.

    `decided_bytes` is its length as far as that is decided. `undecided` says why the length of the
    last block is not known, "" when it is known. `extents` are its first page of blocks and its
    last block, as far as they are decided; others begin at `next_place`, None when there are none.
    """

    status: FileStatus
    extents: tuple[Extent, ...]
    decided_bytes: int
    next_place: int | None = None
    undecided: str = ""


async def readable_file(
    session: SharedSession,
    path: str,
    consistency: Consistency,
    patience_s: float | None = None,
    *,
    file_id: int = NO_FILE,
) -> ReadableFile:
    """Look at a file, linearizably (K10, R2): the records are read after the call began.

    Waits `patience_s` for the length of the last block, None: the client's `retry_for_s`. It may be
    undecided even then, for too few of its replicas answer. With a `file_id` it is the file of that
    id, whatever it is called.

    Raises:
        NotFoundError, IsDirectoryError: there is no file at `path`.
    """
    backoff = Backoff(session.config.retry_for_s if patience_s is None else patience_s)
    while True:
        found = await _find_readable(session, path, consistency, file_id)
        if not found.undecided or backoff.exhausted:
            return found
        await backoff.pause()


async def whole_file(session: SharedSession, path: str, consistency: Consistency) -> ReadableFile:
    """`readable_file` for callers that need the whole file.

    Raises:
        UnavailableError: the length was not decided within the client's `retry_for_s`.
        NotFoundError, IsDirectoryError: as `readable_file`.
    """
    found = await readable_file(session, path, consistency)
    if found.undecided:
        raise length_undecided(path, found.undecided, found.decided_bytes)
    return found


def length_undecided(path: str, why: str, decided_bytes: int) -> UnavailableError:
    """Return the error for a reader that asks for more than is decided."""
    return UnavailableError(
        f"'{path}': only the first {decided_bytes} bytes can be read: {why}",
        path=path,
        decided_bytes=decided_bytes,
    )


async def _find_readable(
    session: SharedSession, path: str, consistency: Consistency, file_id: int
) -> ReadableFile:
    request = GetFile(path, file_id=file_id, host=session.config.host, decrypts=True)
    view = await session.namenodes.call(GET_FILE, request)
    last, following = view.last_block, view.next_place
    extents = tuple(await decided(session, view))
    if last is None:
        return ReadableFile(view.status, (), 0)
    tail = await _last_extent(session, last, consistency)
    if tail is not None:
        if not extents or extents[-1].block != tail.block:
            extents = (*extents, tail)
        return ReadableFile(view.status, extents, tail.end, following)
    return ReadableFile(view.status, extents, last.offset, following, _why_undecided(last, path))


async def decided(session: SharedSession, view: FileView) -> list[Extent]:
    """Return what is decided of a page of a file: finalized blocks, and in a snapshot the bytes
    that its file had of a block that is being written again."""
    extents = [finalized_extent(each) for each in view.blocks if each.record.finalized]
    if len(extents) == len(view.blocks) or not is_in_snapshot(view.status.path):
        return extents
    read = [await _last_extent(session, each, Consistency.QUORUM) for each in view.blocks]
    return [extent for extent in read if extent is not None]


def _why_undecided(last: BlockView, path: str) -> str:
    why = "and too few of its replicas answer to tell its length"
    if last.record.state is BlockState.UNDER_RECOVERY:
        why = last.trouble or "and its length is not decided yet"
    state = last.record.state.value.replace("_", " ")
    return f"block {last.record.block} is {state}, {why}: `paxosblock explain {path}` shows more"


async def _last_extent(
    session: SharedSession, last: BlockView, consistency: Consistency
) -> Extent | None:
    """Return what may be read of the last block of a file, None when too few replicas answer."""
    if last.record.finalized:
        return finalized_extent(last)
    if last.record.state is BlockState.UNDER_CONSTRUCTION:
        read = await quorum_length(session, last, consistency)
        if read.progress is ReadProgress.DONE:
            return unfinalized_extent(last, read)
    return None


async def quorum_length(
    session: SharedSession,
    view: BlockView,
    consistency: Consistency = Consistency.QUORUM,
    *,
    known: int = -1,
    wait_ms: int = 0,
) -> QuorumRead:
    """R2 (or R1) of a block under construction.

    With `known` >= 0 members answer when they have more than `known` chunks, or after `wait_ms`.

    Returns:
        The read: DONE, or STALE_RECORD when the record must be read again, or still WAITING when
        too few members answer.
    """
    record = view.record
    if consistency is Consistency.ALL:
        read = reading.all_replica_read(record)
    else:
        read = reading.quorum_read(record)
    poll = _Poll(session, view, known, wait_ms)
    try:
        while read.progress is ReadProgress.WAITING:
            poll.ask(reading.to_ask(read), read.goal)
            if not poll.waiting:
                break
            for reply in await poll.answers():
                read = reading.on_read_reply(read, reply)
    finally:
        poll.cancel()
    return read


class _Poll:
    """Asks members for their state, several at a time. A member that fails is not asked again."""

    def __init__(self, session: SharedSession, view: BlockView, known: int, wait_ms: int) -> None:
        self._session = session
        self._view = view
        self._known = known
        self._wait_ms = wait_ms
        self._members = {member.storage: member for member in view.members}
        self._asking: dict[StorageId, asyncio.Task[Answer | None]] = {}
        self._silent: set[StorageId] = set()

    @property
    def waiting(self) -> bool:
        """True if an answer may still come."""
        return bool(self._asking)

    def ask(self, members: tuple[StorageId, ...], goal: int) -> None:
        """Ask those of `members` that are not being asked; `goal` is what they must reach."""
        for storage in members:
            if storage not in self._asking and storage not in self._silent:
                question = self._question(storage, goal)
                self._asking[storage] = asyncio.create_task(self._ask(storage, question))

    def _question(self, storage: StorageId, goal: int) -> Envelope | Watch:
        record = self._view.record
        read = Read(record.block, sync=record.durability is Durability.MEMORY)
        generation, member = record.writer_generation, self._members.get(storage)
        capability = b"" if member is None else member.capability
        if goal >= 0:
            return Watch(storage, read, generation, goal - 1, ASK_AGAIN_MS, capability)
        if self._known >= 0:
            return Watch(storage, read, generation, self._known, self._wait_ms, capability)
        return Envelope(storage, read, capability=capability)

    async def _ask(self, storage: StorageId, question: Envelope | Watch) -> Answer | None:
        waits_ms = question.wait_ms if isinstance(question, Watch) else 0
        timeout_s = self._session.config.rpc_timeout_s + waits_ms / 1000
        try:
            member = self._members.get(storage)
            connection = await self._session.reading.get("" if member is None else member.address)
            return await connection.ask(question, timeout_s)
        except PaxosBlockError:
            return None

    async def answers(self) -> list[ReadReply]:
        """Wait for at least one member to answer or fail."""
        await asyncio.wait(self._asking.values(), return_when=asyncio.FIRST_COMPLETED)
        finished = {at: task for at, task in self._asking.items() if task.done()}
        answers: list[ReadReply] = []
        for storage, task in finished.items():
            del self._asking[storage]
            answer = task.result()
            if isinstance(answer, ReadReply):
                answers.append(answer)
            else:
                self._silent.add(storage)
        return answers

    def cancel(self) -> None:
        """Stop waiting for the others."""
        for task in self._asking.values():
            task.cancel()
