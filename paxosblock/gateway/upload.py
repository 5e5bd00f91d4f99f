"""Takes the bytes of a request into a file, and lets no half of one be taken for a whole."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from paxosblock.api.transaction import AssertFile, Delete
from paxosblock.base.checksum import Buffer
from paxosblock.client.append_mode import Addition
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.publishing import Publish
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import ExistsError, NotFoundError, PaxosBlockError
from paxosblock.gateway.user_clients import UserClient

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that a request makes; None: as the gateway's settings say."""

    path: str
    overwrite: bool = False
    permission: int = 0o644
    umask: int = 0
    """The bits that are left out of `permission`, unless default entries of its directory decide.
    """
    replication: int | None = None
    block_size: int | None = None
    parent_must_exist: bool = False

    async def run(self, user: UserClient, body: AsyncIterator[bytes]) -> None:
        """Write it, and close it.

        A new file is there from the beginning, as in HDFS, and is gone if `body` breaks off. One
        that takes the place of another keeps a hidden name until it is complete, so that the old
        one stays if it breaks off.

        Raises:
            ExistsError: it is there, and `overwrite` is not set.
            PaxosBlockError: as `AsyncClient.create` and its writer, and what `body` raises.
        """
        try:
            writer = await self._create(user.fs)
        except ExistsError:
            if not self.overwrite:
                raise
            await self._replace(user, body)
        else:
            await self._write(user.fs, writer, body)

    async def _create(self, fs: AsyncClient) -> AsyncFileWriter:
        try:
            return await self._create_in_directory(fs)
        except NotFoundError:
            if self.parent_must_exist:
                raise
        # The umask of the file is not that of those directories: they may be for all to write into.
        await fs.mkdirs(self.path.rpartition("/")[0] or "/")
        return await self._create_in_directory(fs)

    async def _create_in_directory(self, fs: AsyncClient) -> AsyncFileWriter:
        return await fs.create(
            self.path,
            replication=self.replication,
            block_size=self.block_size,
            chunk_size=self._chunk_size(fs),
            parent_must_exist=True,
            permission=self.permission,
            umask=self.umask,
        )

    async def _write(
        self, fs: AsyncClient, writer: AsyncFileWriter, body: AsyncIterator[bytes]
    ) -> None:
        try:
            await fill(writer, body)
            await writer.close()
        except BaseException:
            await writer.abort()
            await _remove(fs, writer)
            raise

    async def _replace(self, user: UserClient, body: AsyncIterator[bytes]) -> None:
        staged = await user.staging.create(
            self.path,
            Publish.REPLACE,
            replication=self.replication,
            block_size=self.block_size,
            chunk_size=self._chunk_size(user.fs),
            permission=self.permission,
            umask=self.umask,
        )
        await staged.complete(partial(fill, staged.writer, body), publishes=True)

    def _chunk_size(self, fs: AsyncClient) -> int | None:
        """Return the bytes of a chunk, which has no more than a block; None: the usual ones."""
        if self.block_size is None:
            return None
        return min(self.block_size, fs.config.chunk_size)


async def append(user: UserClient, path: str, body: AsyncIterator[bytes]) -> None:
    """Write the bytes of a request behind those of a file. What came of them stays, if they break
    off, as in HDFS.

    Raises:
        PaxosBlockError: as `AsyncClient.append` and its writer, and what `body` raises.
    """
    async with user.fs.append(path) as writer:
        try:
            await fill(writer, body)
        except BaseException:
            await _kept(writer)
            raise


async def fill(writer: AsyncFileWriter | Addition, body: AsyncIterator[Buffer]) -> int:
    """Write all bytes that come, and return how many did. Raises as the writer's `write`, and what
    `body` raises."""
    size = 0
    async for piece in body:
        await writer.write(piece)
        size += len(piece)
    return size


async def _kept(writer: AsyncFileWriter) -> None:
    """Keep what came."""
    try:
        await writer.close()
    except PaxosBlockError as error:
        _log.warning("'%s': a part of an append may be lost: %s", writer.status.path, error)


async def _remove(fs: AsyncClient, writer: AsyncFileWriter) -> None:
    """Delete a file that was not completed, if it is still there as it was left. An error is
    logged: it is less than its writer wanted then, and was told so."""
    left, path = writer.status, writer.status.path
    # Without the answer to its close it may be complete, and since it ended another program may
    # have appended to it: bytes that were acknowledged stay.
    size = writer.tell() if left.open else left.size
    state = AssertFile(path, left.file_id, size, truncations=left.truncations)
    try:
        await fs.transact([state, Delete(path)])
    except PaxosBlockError as error:
        _log.warning("'%s': a part of a file is left: %s", path, error)
