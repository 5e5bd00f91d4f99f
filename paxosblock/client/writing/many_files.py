"""Many small files together: a batch is made in one change, and published in another one.

The files of a batch are written under hidden names in a directory of its own. One transaction
closes them, gives each its name and removes the directory; that of a client which died goes when
its time to live is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from msgspec.structs import replace

from paxosblock.api.namenode import (
    CREATE_FILES,
    DELETE,
    TRANSACT,
    CloseFile,
    CreatedFile,
    CreateFile,
    CreateFiles,
    DeletePath,
    FirstBlock,
    MakeDirectories,
    Transact,
    Unmasked,
)
from paxosblock.api.transaction import Delete, MakeDirectory, Operation, Rename
from paxosblock.base.checksum import Buffer
from paxosblock.base.paths import STAGING
from paxosblock.base.replacement import WriteOptions
from paxosblock.base.units import MIB
from paxosblock.client.session.lease_keeper import new_writer
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.client.writing.file_writer import ABORT_FOR_S, AsyncFileWriter, closing
from paxosblock.errors import PaxosBlockError
from paxosblock.protocol.types import Durability

FILES_TOGETHER: Final = 24
"""Files of a batch: the NameNode decides about so many in one turn, and answers others then."""
BYTES_TOGETHER: Final = 4 * MIB
"""A batch that has so many bytes gets no further file."""
BATCHES_AT_ONCE: Final = 4
HIDDEN_FOR_S: Final = 3600.0
"""Seconds after which the files of a client that died are removed."""

_log = logging.getLogger(__name__)

NewFile = tuple[str, Buffer]
"""The path of a file, and all of its bytes."""


@dataclass(frozen=True, slots=True)
class MadeLike:
    """The settings of new files, as for `create`: sizes in bytes, a window in chunks."""

    overwrite: bool
    replication: int
    block_size: int
    durability: Durability
    chunk_size: int
    window: int
    permission: int
    umask: int
    options: WriteOptions | None


def batches(files: Iterable[NewFile]) -> Iterator[list[NewFile]]:
    """Yield the files, as many together as are published together."""
    rest = iter(files)
    for first in rest:
        batch, size = [first], memoryview(first[1]).nbytes
        while size < BYTES_TOGETHER and (more := list(islice(rest, 1))):
            batch += more
            size += memoryview(more[0][1]).nbytes
            if len(batch) == FILES_TOGETHER:
                break
        yield batch


async def put_many(session: SharedSession, files: Iterable[NewFile], like: MadeLike) -> int:
    """Write and publish files, a few batches at a time; return how many there were.

    Raises:
        PaxosBlockError: that of the first batch that failed; `published` of its details counts the
            files that were published by then. Batches that had begun have ended, too.
    """
    published, under_way = 0, set[asyncio.Task[int]]()
    try:
        for batch in batches(files):
            if len(under_way) == BATCHES_AT_ONCE:
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                failed = [task for task in done if task.exception() is not None]
                published += sum(task.result() for task in done if task not in failed)
                under_way.update(failed)
                if failed:
                    break
            under_way.add(asyncio.create_task(_Batch(session, batch, like).put()))
        ended = await asyncio.gather(*under_way, return_exceptions=True)
    except BaseException:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        raise
    published += sum(each for each in ended if isinstance(each, int))
    for error in ended:
        if isinstance(error, BaseException):
            if isinstance(error, PaxosBlockError):
                error.details["published"] = published
            raise error
    return published


class _Batch:
    """Files that are published together."""

    def __init__(self, session: SharedSession, files: Sequence[NewFile], like: MadeLike) -> None:
        self._session = session
        self._files = files
        self._like = like
        self._directory = f"{STAGING}/{uuid.uuid4().hex}"

    async def put(self) -> int:
        try:
            request = self._creation()
            created = await self._session.namenodes.call_once(CREATE_FILES, request)
            async with self._written(request, created.files) as closes:
                await self._session.namenodes.call_once(TRANSACT, self._publication(closes))
        except BaseException:
            await self._give_up()
            raise
        return len(self._files)

    def _creation(self) -> CreateFiles:
        like, host = self._like, self._session.config.host
        files = [
            CreateFile(
                f"{self._directory}/{number}",
                new_writer(),
                False,
                like.replication,
                like.block_size,
                like.durability,
                parent_must_exist=True,
                permission=like.permission & ~like.umask,
                first=FirstBlock(like.window, host, size) if size else None,
                unmasked=Unmasked(like.permission, like.umask),
                zone_of=path,
            )
            for number, (path, size) in enumerate(
                (path, memoryview(content).nbytes) for path, content in self._files
            )
        ]
        directory = MakeDirectories(self._directory, permission=0o700, ttl_s=HIDDEN_FOR_S)
        return CreateFiles(tuple(files), directory)

    @contextlib.asynccontextmanager
    async def _written(
        self, request: CreateFiles, created: Sequence[CreatedFile]
    ) -> AsyncIterator[list[CloseFile]]:
        """Write all files, and yield what ends them; then they are closed, or given up."""
        like = self._like
        writers = [
            AsyncFileWriter(
                self._session, made.status, asked.writer,
                chunk_size=like.chunk_size, window=like.window, first=made.first,
                options=like.options,
            )
            for asked, made in zip(request.files, created, strict=True)
        ]  # fmt: skip
        async with contextlib.AsyncExitStack() as stack:
            contents = (content for _, content in self._files)
            ends = [
                stack.enter_async_context(closing(writer, content))
                for writer, content in zip(writers, contents, strict=True)
            ]
            ended = await asyncio.gather(*ends, return_exceptions=True)
            for error in ended:
                if isinstance(error, BaseException):
                    raise error
            yield [each for each in ended if isinstance(each, CloseFile)]

    def _publication(self, closes: Sequence[CloseFile]) -> Transact:
        parents = dict.fromkeys(path.rpartition("/")[0] for path, _ in self._files)
        operations: list[Operation] = [
            MakeDirectory(each, implicit=True) for each in parents if each
        ]
        for number, (path, _) in enumerate(self._files):
            hidden = f"{self._directory}/{number}"
            operations.append(Rename(hidden, path, self._like.overwrite, as_new=True))
        operations.append(Delete(self._directory))
        request = self._session.transaction(operations)
        return replace(request, umask=self._like.umask, closes=tuple(closes))

    async def _give_up(self) -> None:
        """Remove what is hidden. If the files were published after all, nothing is there."""
        patience_s = min(ABORT_FOR_S, self._session.config.retry_for_s)
        request = DeletePath(self._directory, recursive=True)
        try:
            await self._session.within(patience_s).namenodes.call_once(DELETE, request)
        except PaxosBlockError as error:
            _log.warning("'%s' is left to its time to live: %s", self._directory, error)
