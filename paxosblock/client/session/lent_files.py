"""Files of replicas that DataNodes on this machine have lent to this client.

What is read from one counts only after it was compared with the names of its chunks, which came
by the DataNode's stream (PROTOCOL.md, R-lent). Nothing here waits for a disk: what the system does
not have in memory is for the DataNode to read, which knows what to do when a disk is slow.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from paxosblock.api.datanode import BorrowReplica, LentReplica, Offer
from paxosblock.api.namenode import BlockMember
from paxosblock.client.session.transport import DataConnection
from paxosblock.errors import AccessDeniedError, PaxosBlockError
from paxosblock.net import lending
from paxosblock.net.streams.buffers import BufferPool
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.read import Version
from paxosblock.protocol.types import BlockId, StorageId

FILES_MAX: Final = 64
"""Files that are open; the one that was not used for longest is closed for another."""
KNOWN_MAX: Final = 4096
"""Replicas that are known as lent, or as not lent."""
KEPT_S: Final = 60.0
"""Seconds after which a file is closed, and borrowed again if it is still read: so long a client
may read what its user may not read any more, and a deleted file takes room on the disk."""
BUFFERS_MAX: Final = 4
_NO_WAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)

_log = logging.getLogger(__name__)

Key = tuple[StorageId, BlockId, Version]


class LentFile:
    """The open file of a replica, and the names of its chunks."""

    def __init__(self, file: int, names: bytes) -> None:
        """Raises ValueError if these are no names."""
        self.log = ChunkLog.from_bytes(names)
        self._file = file

    def read(self, into: Sequence[memoryview], position: int) -> bool:
        """Fill buffers with what the file has from `position` on, unchecked; False unless the
        system has all of it in memory."""
        try:
            return os.preadv(self._file, into, position, _NO_WAIT) == sum(map(len, into))
        except OSError:  # it would wait, or the file system cannot tell
            return False

    def close(self) -> None:
        """Give it back."""
        os.close(self._file)


def take_file(offer: Offer, names: bytes) -> LentFile:
    """Return the file that is offered. Blocks for a moment.

    Raises:
        UnavailableError: it does not come.
        ValueError: the names are none.
    """
    file = lending.take(offer)
    try:
        return LentFile(file, names)
    except ValueError:
        os.close(file)
        raise


class LentFiles:
    """All that a client has been lent. Used on one event loop."""

    def __init__(self, *, wanted: bool) -> None:
        """Borrow nothing unless it is `wanted`."""
        self._wanted = wanted
        self.buffers = BufferPool(BUFFERS_MAX)
        """For chunks that are wanted in part, or encrypted."""
        self._known: OrderedDict[Key, tuple[LentFile | None, float]] = OrderedDict()
        """The file, None: it is not lent; and until when that counts."""
        self._open: OrderedDict[Key, LentFile] = OrderedDict()
        self._borrowing: dict[Key, asyncio.Task[LentFile | None]] = {}
        self._lends_none: dict[str, float] = {}
        """Addresses of DataNodes that lend nothing, or nothing that can be taken here, and until
        when they are not asked again."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def known(self, key: Key) -> LentFile | None:
        """Return the file of a replica if it is here."""
        file = self._open.get(key)
        if file is not None:
            self._open.move_to_end(key)
        return file

    def may_borrow(self, address: str) -> bool:
        """True unless it is known that the DataNode at an address lends nothing to this client."""
        if not self._wanted or self._closed:
            return False
        return asyncio.get_running_loop().time() >= self._lends_none.get(address, 0.0)

    async def borrow(
        self,
        connection: DataConnection,
        member: BlockMember,
        key: Key,
        timeout_s: float,
    ) -> LentFile | None:
        """Return the file of a replica of the DataNode at the other end; None if the client
        must read it by the stream, for whatever reason."""
        if not connection.stream.is_local:
            return None
        if key in self._known:
            return self._known[key][0]
        # All callers that ask meanwhile share one try.
        trying = self._borrowing.get(key)
        if trying is None:
            trying = asyncio.create_task(self._try(connection, member, key, timeout_s))
            self._borrowing[key] = trying
            trying.add_done_callback(lambda _: self._borrowing.pop(key, None))
        return await asyncio.shield(trying)

    async def _try(
        self, connection: DataConnection, member: BlockMember, key: Key, timeout_s: float
    ) -> LentFile | None:
        storage, block, version = key
        file, lends_none = None, False
        try:
            request = BorrowReplica(block, storage, version, member.capability)
            answer = await connection.borrow(request, timeout_s)
            if isinstance(answer, LentReplica):
                file = await asyncio.to_thread(take_file, answer.offer, answer.names)
            else:
                lends_none = answer.never
        except AccessDeniedError as error:  # the stream will say so, too, and what to do about it
            _log.info("block %d: not lent: %s", block, error)
        except (PaxosBlockError, ValueError) as error:
            # A DataNode of an earlier version has ended the connection, or the network of its
            # machine is not that of this process: this is not to be tried for each block.
            _log.info("%s lends nothing: %s", connection.address, error)
            lends_none = True
        if lends_none:
            self._lends_none[connection.address] = asyncio.get_running_loop().time() + KEPT_S
        if self._closed and file is not None:
            file.close()
            return None
        self._keep(key, file)
        return file

    def forget(self, key: Key) -> None:
        """Read this replica by the stream for a while: its file is not what it was."""
        self._keep(key, None)

    def _keep(self, key: Key, file: LentFile | None) -> None:
        until_s = asyncio.get_running_loop().time() + KEPT_S
        self._drop(key)
        self._known[key] = file, until_s
        if file is not None:
            self._open[key] = file
            if len(self._open) > FILES_MAX:
                self._drop(next(iter(self._open)))
        if len(self._known) > KNOWN_MAX:
            self._drop(next(iter(self._known)))
        self._set_timer()

    def _drop(self, key: Key) -> None:
        self._known.pop(key, None)
        file = self._open.pop(key, None)
        if file is not None:
            file.close()

    def _set_timer(self) -> None:
        if self._timer is None and self._known and not self._closed:
            _, until_s = next(iter(self._known.values()))  # the one that was noted first
            self._timer = asyncio.get_running_loop().call_at(until_s, self._end_old)

    def _end_old(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        while self._known:
            key, (_, until_s) = next(iter(self._known.items()))
            if until_s > now_s:
                break
            self._drop(key)
        self._set_timer()

    async def close(self) -> None:
        """Close all files, and borrow no more. The connections are closed before, so that no try
        waits for an answer."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*self._borrowing.values(), return_exceptions=True)
        for key in tuple(self._known):
            self._drop(key)
