"""Step 5, the shell: fetches the bytes of one block from whichever replica can serve them.

Every chunk's checksum is verified before its bytes are given to a caller. A replica that fails, is
slow or is damaged is left for the next one; a damaged one is reported to the NameNode.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Any, Final

from paxosblock.api.datanode import ReadBytes, Run
from paxosblock.api.encryption import DataKey
from paxosblock.api.file_pages import GET_FILE, FileView, GetFile
from paxosblock.api.namenode import (
    GET_BLOCK,
    REPORT_BAD_REPLICA,
    BadReplica,
    BlockMember,
    BlockRequest,
    BlockView,
    FileStatus,
)
from paxosblock.api.snapshot_calls import is_in_snapshot
from paxosblock.base.checksum import crc32c
from paxosblock.base.chunk_cipher import ADDED_BYTES, ChunkCipher, user_bytes
from paxosblock.base.even_run import EvenRun
from paxosblock.base.jitter import JITTER
from paxosblock.base.units import MIB
from paxosblock.client.session.backoff import Backoff
from paxosblock.client.session.lent_files import LentFile
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.client.session.transport import FRESH_MAX
from paxosblock.errors import (
    AccessDeniedError,
    CorruptionError,
    NotFoundError,
    PaxosBlockError,
    ProtocolError,
    TruncatedError,
    UnavailableError,
)
from paxosblock.net.wire import HEADER_BYTES, FrameKind, Header, record_start
from paxosblock.protocol.chunk_log import ENTRY_BYTES, read_entries
from paxosblock.protocol.messages import Nack
from paxosblock.protocol.read import (
    QuorumRead,
    Version,
    finalized_version,
    unfinalized_version,
    version_now,
)
from paxosblock.protocol.types import BlockId, ChunkIndex, Reason, StorageId

_log = logging.getLogger(__name__)

REPORT_S: Final = 1.0
"""Seconds that a read waits for the NameNode to hear of a bad replica."""

BORROW_BYTES: Final = MIB
"""A file is worth its cost when a block was asked for so much, a whole chunk for each request."""

LENT_STEP_BYTES: Final = 2 * MIB
"""About so much is read from a file before anything else has its turn: a fraction of a
millisecond."""

MOST_CHUNKS: Final = 500
"""Chunks that are read from a file at once: the system takes 1,024 buffers."""

SLOW_AFTER_S: Final = 2.0
"""A replica that has not served a request by then is left for another one."""


_RECORD_HEADER: Final = memoryview(bytearray(HEADER_BYTES))
"""The place of all headers of records, which no reader looks at: the name of a chunk tells more."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The readable part of one block: `size_bytes` of `version`, from `offset` of the file on.

    They are bytes of user data; with a `key` its chunks are encrypted, each `added_bytes` longer.
    """

    block: BlockId
    version: Version
    offset: int
    size_bytes: int
    members: tuple[BlockMember, ...]
    added_bytes: int = 0
    key: DataKey | None = None

    @property
    def end(self) -> int:
        """Offset in the file of the first byte after it."""
        return self.offset + self.size_bytes


def finalized_extent(view: BlockView) -> Extent:
    """Return all of a finalized block (R-fin)."""
    record = view.record
    version = finalized_version(record)
    return _extent(view, version, record.length, record.size_bytes)


def unfinalized_extent(view: BlockView, read: QuorumRead) -> Extent:
    """Return as much of a block under construction as a quorum read found (R2)."""
    version = unfinalized_version(read)
    return _extent(view, version, read.goal, read.goal_bytes)


def _extent(view: BlockView, version: Version, length: int, size_bytes: int) -> Extent:
    """Return the first `length` chunks of a block, which have `size_bytes` at DataNodes; fewer, if
    the file is one of a snapshot, and had fewer then."""
    block, added = view.record.block, view.added_bytes
    size_bytes = user_bytes(size_bytes, length, added)
    if view.shown_bytes is not None:
        size_bytes = min(size_bytes, view.shown_bytes)
    return Extent(block, version, view.offset, size_bytes, view.members, added, view.key)


async def page_of(
    session: SharedSession, file: FileStatus, *, place: int = 0, offset: int | None = None
) -> FileView:
    """Fetch a page of the blocks of a file looked at before, wherever it was moved since.

    Raises:
        NotFoundError: the file was deleted, or joined to another.
        TruncatedError: it was truncated since `file` was told.
    """
    request = GetFile(file.path, place, offset, file.file_id, session.config.host, decrypts=True)
    view = await session.namenodes.call(GET_FILE, request)
    check_same(file, view.status)
    return view


def check_same(before: FileStatus, now: FileStatus) -> None:
    """Raise TruncatedError if a file was truncated between two looks at it."""
    if now.truncations != before.truncations:
        raise _truncated(before)


def taken_back(path: str, size_bytes: int) -> TruncatedError:
    """Return the error for a reader that got `size_bytes` of a file that, uncut, has fewer now
    (I10).
    """
    return TruncatedError(
        f"'{path}': no longer has the {size_bytes} bytes that were read: a recovery by force gave "
        "some of them up",
        path=path,
    )


def _truncated(file: FileStatus) -> TruncatedError:
    return TruncatedError(f"'{file.path}': was truncated after it was opened", path=file.path)


class BlockReader:
    """Reads ranges of one extent. Several fetches may run at once."""

    def __init__(
        self, session: SharedSession, extent: Extent, file: FileStatus | None = None
    ) -> None:
        """`file` is the one that was opened, if the block was found through a file."""
        self.extent = extent
        self._file = file
        key = extent.key
        self._cipher = None if key is None else ChunkCipher(key.key, extent.block)
        self.chunk_bytes = session.config.chunk_size
        """Size of the chunks, as far as it is known: requests that fit it fetch nothing twice."""
        self.at_once = False
        """True if the bytes asked for last came without a wait, from a lent file."""
        self._session = session
        self._asked_bytes = 0
        self._corrupt: dict[StorageId, CorruptionError] = {}
        self._gone: set[StorageId] = set()
        """Members that have no replica of this version any more, as they said themselves."""
        self._order = JITTER.sample(extent.members, len(extent.members))

    async def fetch(self, start: int, into: memoryview) -> None:
        """Fill `into` with the block's bytes from `start` on; all of it lies in the extent.

        Raises:
            AccessDeniedError: the replicas refuse even with the capabilities of fresh views.
            CorruptionError: every replica is damaged; all were reported.
            UnavailableError: no replica served the bytes within the client's `retry_for_s`.
            NotFoundError: the block was deleted meanwhile.
            TruncatedError: it was cut, or cut off from its file.
        """
        target, loop = _Target(self.extent.block, start, into), asyncio.get_running_loop()
        begun_s = loop.time()
        error = await self._try_all(target)
        if error is None:
            return
        backoff = Backoff(self._session.config.retry_for_s - (loop.time() - begun_s))
        refreshed = denied = 0
        while error is not None:
            if isinstance(error, AccessDeniedError) and (denied := denied + 1) > FRESH_MAX:
                raise error
            if self._order and all(member.storage in self._corrupt for member in self._order):
                raise error
            if backoff.exhausted:
                raise UnavailableError(
                    f"block {self.extent.block}: no replica serves it: {error}",
                    block=self.extent.block,
                ) from error
            # If members have left, the record says which ones replaced them, and the view brings
            # fresh capabilities; no need to wait for that.
            if refreshed or not isinstance(error, _GoneError | AccessDeniedError):
                await backoff.pause()
            await self._refresh()
            refreshed += 1
            error = await self._try_all(target)

    async def fetch_once(self, start: int, into: memoryview) -> None:
        """Like `fetch`, from the members that the extent names and no others, each asked once.

        Raises:
            CorruptionError: the replica asked last is damaged; all damaged ones were reported.
            PaxosBlockError: it did not serve the bytes, for the reason that the error says.
        """
        error = await self._try_all(_Target(self.extent.block, start, into))
        if error is not None:
            raise error

    async def _try_all(self, target: _Target) -> PaxosBlockError | None:
        """Ask one replica after the other; None when the target is complete, else why not."""
        error: PaxosBlockError | None = None
        fetching = self._session.reading.fetching
        for member in self._candidates():
            fetching[member.address] += 1
            try:
                await self._fetch_from(member, target)
            except CorruptionError as corruption:
                error = corruption
                await self._report(member, corruption)
            except _GoneError as gone:  # which says nothing against its DataNode
                error = gone
                self._gone.add(member.storage)
            except AccessDeniedError as denied:  # nor does this
                error = denied
            except PaxosBlockError as failure:
                error = failure
                self._session.reading.suspect(member.address)
                _log.info("block %d: %s: %s", target.block, member.storage, failure)
            else:
                return None
            finally:
                fetching[member.address] -= 1
        return error or UnavailableError(f"block {target.block} has no replica to read")

    def _candidates(self) -> list[BlockMember]:
        """Return the sound members: those without a mark against them come first, then the nearer
        ones, then one whose file is lent, then those that have the least to send to this client at
        this moment.

        So requests that run side by side go to different replicas, their processors and disks; and
        those that come one after the other to the same, which has what it needs in memory.
        """
        reading, lent, gone = self._session.reading, self._session.lent, self._gone
        sound = [member for member in self._order if member.storage not in self._corrupt]
        return sorted(
            sound,
            key=lambda at: (
                at.storage in gone,
                reading.is_suspected(at.address),
                not at.live,
                at.distance,
                lent.known((at.storage, self.extent.block, self.extent.version)) is None,
                reading.fetching[at.address],
            ),
        )

    async def _fetch_from(self, member: BlockMember, target: _Target) -> None:
        timeout_s = min(SLOW_AFTER_S, self._session.config.rpc_timeout_s)
        await self._fetch_lent(member, target, timeout_s)
        self.at_once = target.complete
        if target.complete:
            return
        connection = await self._session.reading.get(member.address)
        while not target.complete:
            exact = self._cipher is None and target.left < self.chunk_bytes
            sink = self._sink(target, exact=exact)
            request = ReadBytes(
                target.block,
                member.storage,
                self.extent.version,
                target.position,
                target.left,
                exact,
                member.capability,
                sink.added_bytes,
            )
            await connection.fetch(request, sink, timeout_s)
            if not sink.advanced:
                raise ProtocolError(f"{member.address} serves no more of block {target.block}")
            if not exact:  # else these may be parts
                self.chunk_bytes = sink.chunk_bytes or self.chunk_bytes

    def _sink(self, target: _Target, *, exact: bool = False) -> _Sink:
        cipher = self._cipher
        if cipher is None:
            return _Sink(target, self.extent.version, exact=exact)
        # Of an encrypted chunk all is needed to check any of it.
        return _DecryptingSink(target, self.extent.version, cipher)

    async def _fetch_lent(self, member: BlockMember, target: _Target, timeout_s: float) -> None:
        """Read as much as there is in the file of a replica on this machine, if that is lent and
        its bytes are in the system's memory."""
        lent, key = self._session.lent, (member.storage, target.block, self.extent.version)
        file = lent.known(key)
        if file is None:
            self._asked_bytes += max(target.left, self.chunk_bytes)
            if self._asked_bytes < BORROW_BYTES or not lent.may_borrow(member.address):
                return
            connection = await self._session.reading.get(member.address)
            file = await lent.borrow(connection, member, key, timeout_s)
        while file is not None:
            try:
                if not self._read_lent(file, target):
                    return
            except PaxosBlockError as error:
                # It was cut and written again, or it is damaged: its DataNode knows which.
                _log.info("block %d: the lent file of %s: %s", target.block, member.storage, error)
                lent.forget(key)
                return
            if target.complete:
                return
            await asyncio.sleep(0)  # others have their turn
            file = lent.known(key)

    def _read_lent(self, file: LentFile, target: _Target) -> bool:
        """Take the next chunks from a file; False if it does not give any at once."""
        sink, log = self._sink(target), file.log
        end = min(target.stop, target.position + LENT_STEP_BYTES)
        first = log.index_at(target.position, sink.added_bytes)
        stop = min(log.index_at(end - 1, sink.added_bytes), len(log) - 1, first + MOST_CHUNKS) + 1
        if first >= stop:
            return False
        start = log.start_of(first)
        size_bytes = log.start_of(stop) - start
        header = Header(
            FrameKind.RUN,
            payload_length=size_bytes,
            block=target.block,
            index=ChunkIndex(first),
        )
        names = log.entries(first, stop)
        sink.reply_received(Run(first, start, names), 1)
        payload = sink.payload_buffer(header)
        if payload is None:
            payload = self._session.lent.buffers.take(size_bytes)
        parts, begin = list[memoryview](), 0
        for end, _ in read_entries(names):
            parts += (_RECORD_HEADER, payload[begin : end - start])
            begin = end - start
        if not file.read(parts, record_start(log, first)):
            return False
        sink.chunk_received(header, payload)
        if sink.chunk_bytes:
            self.chunk_bytes = sink.chunk_bytes
        return sink.advanced

    async def _report(self, member: BlockMember, error: CorruptionError) -> None:
        """Tell the NameNode, once for each replica; the read goes on whether it hears or not."""
        if member.storage in self._corrupt:
            return
        self._corrupt[member.storage] = error
        _log.warning("block %d: bad replica at %s: %s", self.extent.block, member.storage, error)
        report = BadReplica(self.extent.block, member.storage, str(error))
        try:
            await self._session.namenodes.call(REPORT_BAD_REPLICA, report, retry_for_s=REPORT_S)
        except PaxosBlockError as failure:
            _log.warning("block %d: not reported: %s", self.extent.block, failure)

    async def _refresh(self) -> None:
        """Get the record again: the block may have been finalized, or have other members."""
        old = self.extent
        if self._file is not None and is_in_snapshot(self._file.path):
            view = await self._of_snapshot(self._file)  # the block may be in another file now
        else:
            view = await self._of_block()
        version = version_now(old.version, view.record)
        if version is None:
            if self._file is not None:
                raise _truncated(self._file)
            raise TruncatedError(f"block {old.block}: was cut after it was opened", block=old.block)
        self.extent = replace(old, version=version, members=view.members)
        self._order = JITTER.sample(view.members, len(view.members))
        self._gone.clear()

    async def _of_block(self) -> BlockView:
        request = BlockRequest(self.extent.block, host=self._session.config.host)
        try:
            return await self._session.namenodes.call(GET_BLOCK, request)
        except NotFoundError:
            if self._file is not None:
                await page_of(self._session, self._file, offset=self.extent.offset)
            raise

    async def _of_snapshot(self, file: FileStatus) -> BlockView:
        page = await page_of(self._session, file, offset=self.extent.offset)
        found = (view for view in page.blocks if view.record.block == self.extent.block)
        view = next(found, None)
        if view is None:
            raise ProtocolError(f"'{file.path}': a snapshot shows another block than before")
        return view


class _GoneError(UnavailableError):
    """A storage has no replica of this version any more; others may."""


class _Target:
    """Bytes of a block that a caller waits for; those from `position` on are still missing."""

    def __init__(self, block: BlockId, start: int, into: memoryview) -> None:
        self.block = block
        self.start = start
        self.stop = start + len(into)
        self.position = start
        self.into = into

    @property
    def left(self) -> int:
        """Bytes that are missing."""
        return self.stop - self.position

    @property
    def complete(self) -> bool:
        """True if nothing is missing."""
        return self.position >= self.stop

    def place(self, offset: int, size_bytes: int) -> memoryview | None:
        """Return where a chunk at `offset` of the block belongs, if all of it is wanted."""
        if offset < self.position or offset + size_bytes > self.stop:
            return None
        return self.into[offset - self.start : offset - self.start + size_bytes]

    def accept(self, offset: int, payload: memoryview) -> None:
        """Take a verified chunk; copy what is not in its place yet."""
        end = offset + len(payload)
        if self.place(offset, len(payload)) is None and end > self.position:
            stop = min(end, self.stop)
            wanted = payload[self.position - offset : stop - offset]
            self.into[self.position - self.start : stop - self.start] = wanted
        self.position = max(self.position, min(end, self.stop))


class _Sink:
    """Takes the run of chunks of one reply, each chunk verified."""

    added_bytes = 0
    """Bytes of each chunk that are no user data."""

    def __init__(self, target: _Target, version: Version, *, exact: bool = False) -> None:
        self.chunk_bytes = 0
        """The size of the longest chunk that came, or part of one if the request was `exact`."""
        self._exact = exact
        self._target = target
        self._version = version
        self._begin = target.position
        self._run = Run(0, 0, b"")
        self._even = EvenRun(0, 0, b"")
        self._size_bytes = 0

    @property
    def advanced(self) -> bool:
        """True if the reply brought any byte that was wanted."""
        return self._target.position > self._begin

    def reply_received(self, reply: Any, count: int) -> None:
        """`Run`: where the first chunk belongs, and the names of all."""
        if isinstance(reply, Nack) and reply.reason in {Reason.NO_REPLICA, Reason.STALE}:
            raise _GoneError(f"{reply.storage} has block {reply.block} no more", block=reply.block)
        if not isinstance(reply, Run) or count != (1 if reply.names else 0):
            raise ProtocolError(f"{count} frames follow {reply}")
        names, even = reply.names, EvenRun.of(reply.names, reply.offset)
        try:
            ends = [end for end, _ in read_entries(names[even.chunks * ENTRY_BYTES :])]
        except ValueError as error:
            raise ProtocolError(f"a run of chunks has no names: {error}") from error
        begins_right = 0 <= reply.offset - self.added_bytes * reply.first <= self._target.position
        begins_right &= bool(reply.first) or not reply.offset or self._exact
        in_version = 0 <= reply.first <= self._version.length - len(names) // ENTRY_BYTES
        ends = [reply.offset + even.chunks * even.size_bytes, *ends]
        if not begins_right or not in_version or ends != sorted(ends):
            raise ProtocolError(f"{reply} is no answer to {self._version}")
        self._run, self._even, self._size_bytes = reply, even, ends[-1] - reply.offset

    def payload_buffer(self, header: Header) -> memoryview | None:
        """Straight to its final place, when it is wanted as a whole."""
        self._check(header)
        return self._target.place(self._run.offset, header.payload_length)

    def chunk_received(self, header: Header, payload: memoryview) -> None:
        """The run, in its place or in a buffer lent by the connection."""
        self._check(header)
        run, even = self._run, self._even
        if even.chunks and not even.is_good(payload):  # a step for each tells which one is not
            even = even._replace(chunks=0)
        longest, begin = even.size_bytes, even.chunks * even.size_bytes
        rest = read_entries(run.names[even.chunks * ENTRY_BYTES :])
        for index, (end, crc) in enumerate(rest, run.first + even.chunks):
            stop = end - run.offset
            if crc32c(payload[begin:stop]) != crc:
                raise CorruptionError(
                    f"chunk {index} of block {header.block} does not match its checksum",
                    block=header.block,
                    index=index,
                )
            longest, begin = max(longest, stop - begin), stop
        self.chunk_bytes = longest
        self._target.accept(run.offset, payload)

    def _check(self, header: Header) -> None:
        """Check that what comes is the run that was announced."""
        came = header.kind, header.block, header.index, header.payload_length
        if came != (FrameKind.RUN, self._target.block, self._run.first, self._size_bytes):
            raise CorruptionError(
                f"a {header.kind.name} of {header.payload_length} bytes from chunk {header.index} "
                f"of block {header.block} on came for {self._size_bytes} bytes from chunk "
                f"{self._run.first} of block {self._target.block} on"
            )


class _DecryptingSink(_Sink):
    """Takes a run of encrypted chunks: the tag of each says that it is what a client wrote."""

    added_bytes = ADDED_BYTES

    def __init__(self, target: _Target, version: Version, cipher: ChunkCipher) -> None:
        super().__init__(target, version)
        self._cipher = cipher

    def payload_buffer(self, header: Header) -> memoryview | None:
        """Return None: into a buffer lent by the connection, and from there to its place."""
        self._check(header)
        return None

    def chunk_received(self, header: Header, payload: memoryview) -> None:
        """The run; only chunks with wanted bytes are decrypted."""
        self._check(header)
        run, target = self._run, self._target
        at, begin = 0, user_bytes(run.offset, run.first, ADDED_BYTES)
        for index, (end, _) in enumerate(read_entries(run.names), run.first):
            chunk = payload[at : end - run.offset]
            at, size = end - run.offset, len(chunk) - ADDED_BYTES
            if size < 0:
                raise CorruptionError(
                    f"chunk {index} of block {header.block} is too short to be encrypted",
                    block=header.block,
                    index=index,
                )
            if begin < target.stop and begin + size > target.position:
                place = target.place(begin, size)
                into = memoryview(bytearray(size)) if place is None else place
                self._cipher.decrypt_into(index, begin, chunk, into)
                target.accept(begin, into)
            begin, self.chunk_bytes = begin + size, max(self.chunk_bytes, size)
