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
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
    FileStatus,
    FirstBlock,
    MakeDirectories,
    Transact,
    Unmasked,
)
from paxosblock.api.transaction import Delete, MakeDirectory, Operation, Rename
from paxosblock.base.checksum import Buffer
from paxosblock.base.paths import STAGING, AnyPath, text_of
from paxosblock.base.replacement import WriteOptions
from paxosblock.base.units import MIB
from paxosblock.client.session.lease_keeper import new_writer
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.client.writing.block_writer import BlockFailed, BlockWriter
from paxosblock.client.writing.chunks import Chunk, chunk_of
from paxosblock.client.writing.file_writer import ABORT_FOR_S, AsyncFileWriter, closing
from paxosblock.client.writing.next_block import is_small
from paxosblock.client.writing.whole_blocks import written_together
from paxosblock.errors import Outcome, PaxosBlockError
from paxosblock.protocol.types import SMALL_BYTES_MAX, Durability, StorageId

FILES_TOGETHER: Final = 24
"""Files of a batch: the NameNode decides about so many in one turn, and answers others then."""
BYTES_TOGETHER: Final = 4 * MIB
"""A batch that has so many bytes gets no further file."""
BATCHES_AT_ONCE: Final = 4
HIDDEN_FOR_S: Final = 3600.0
"""Seconds after which the files of a client that died are removed."""

_log = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True)
class WholeFile:
    """The path of a new file, and all of its bytes; `then` happens in the step that publishes it,
    behind the rename to its path.
    """

    path: str
    content: Buffer
    like: MadeLike
    then: Sequence[Operation] = ()
    publication: Callable[[FileStatus], Sequence[Operation]] | None = None
    """Asked with the hidden file for what publishes it, in place of that rename and the directories
    above."""

    @property
    def size(self) -> int:
        """Return its length in bytes."""
        return memoryview(self.content).nbytes


def whole_file(
    like: MadeLike,
    publication: Callable[[str, FileStatus], Sequence[Operation]] | None,
    path: AnyPath,
    content: Buffer,
) -> WholeFile:
    """Return a file as `AsyncClient.put_many` takes its parts."""
    at = text_of(path)
    published = None if publication is None else partial(publication, at)
    return WholeFile(at, content, like, publication=published)


@dataclass(frozen=True, slots=True)
class PutReplicas:
    """The members of the block of a file: how many it has and was meant to have, and why fewer."""

    fewest: int
    wanted: int
    shortfall: str


def are_full(files: int, size: int) -> bool:
    """Return whether so many files, and bytes, get no further file to be published with them."""
    return files >= FILES_TOGETHER or size >= BYTES_TOGETHER


def batches(files: Iterable[WholeFile]) -> Iterator[list[WholeFile]]:
    """Yield the files, as many together as are published together."""
    rest = iter(files)
    for first in rest:
        batch, size = [first], first.size
        while not are_full(len(batch), size) and (more := list(islice(rest, 1))):
            batch += more
            size += more[0].size
        yield batch


async def put_many(session: SharedSession, files: Iterable[WholeFile]) -> int:
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
            under_way.add(asyncio.create_task(_counted(session, batch)))
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


async def _counted(session: SharedSession, files: Sequence[WholeFile]) -> int:
    return len(await put_together(session, files, parents=True))


async def put_together(
    session: SharedSession, files: Sequence[WholeFile], *, parents: bool
) -> list[PutReplicas]:
    """Write and publish files in one step, with the directories above them if `parents`.

    The caller sees to it that they are not too many (`are_full`), and that one umask is that of
    all.

    Raises:
        PaxosBlockError: none of them is published, or with an outcome that is not known all may be.
    """
    return await _Batch(session, files, parents=parents).put()


class _Made:
    """A file of a batch that was made under a hidden name."""

    def __init__(self, file: WholeFile, asked: CreateFile, made: CreatedFile) -> None:
        self.file = file
        self.asked = asked
        self.status = made.status
        self.first = made.first
        """The block that was made with it, until that was tried."""
        self.failed: tuple[StorageId, ...] = ()
        """Members of that block that failed."""
        self.end: CloseFile | None = None
        """The request that closes it, once it is written."""
        self._writer: AsyncFileWriter | None = None

    @property
    def replicas(self) -> PutReplicas:
        """Return the members of its block."""
        wanted, writer = self.status.replication, self._writer
        if writer is None:  # it has the block that was made with it, which has all
            return PutReplicas(wanted, wanted, "")
        return PutReplicas(writer.fewest_replicas, wanted, writer.shortfall)

    def whole(self, session: SharedSession) -> tuple[BlockWriter, Chunk] | None:
        """Return its only chunk, if that is a short one, and the writer of its block."""
        like, first = self.file.like, self.first
        longest = min(like.chunk_size, self.status.block_size, SMALL_BYTES_MAX)
        if first is None or self.file.size > longest:
            return None
        chunk = chunk_of(memoryview(self.file.content).cast("B"))
        if not is_small([chunk], first.added_bytes):
            return None
        return BlockWriter(first, self.asked.writer, session.namenodes, session.writing), chunk

    def begin(self, session: SharedSession) -> AsyncFileWriter:
        """Return a writer for a file that is not `whole`."""
        like = self.file.like
        self._writer = AsyncFileWriter(
            session, self.status, self.asked.writer,
            chunk_size=like.chunk_size, window=like.window, first=self.first,
            options=like.options, failed=self.failed,
        )  # fmt: skip
        return self._writer


class _Batch:
    """Files that are published together."""

    def __init__(
        self, session: SharedSession, files: Sequence[WholeFile], *, parents: bool
    ) -> None:
        self._session = session
        self._files = files
        self._parents = parents
        self._directory = f"{STAGING}/{uuid.uuid4().hex}"

    async def put(self) -> list[PutReplicas]:
        publishing = False
        try:
            request = self._creation()
            created = await self._session.namenodes.call_once(CREATE_FILES, request)
            made = [
                _Made(*each) for each in zip(self._files, request.files, created.files, strict=True)
            ]
            async with self._written(made) as closes:
                publishing = True
                publication = self._publication(made, closes)
                await self._session.namenodes.call_once(TRANSACT, publication)
        except BaseException as error:
            if isinstance(error, PaxosBlockError) and not publishing:
                error.with_outcome(Outcome.NEVER)
            await self._give_up()
            raise
        return [each.replicas for each in made]

    def _creation(self) -> CreateFiles:
        host = self._session.config.host
        files = [
            CreateFile(
                f"{self._directory}/{number}",
                new_writer(),
                False,
                file.like.replication,
                file.like.block_size,
                file.like.durability,
                parent_must_exist=True,
                permission=file.like.permission & ~file.like.umask,
                first=FirstBlock(file.like.window, host, file.size) if file.size else None,
                unmasked=Unmasked(file.like.permission, file.like.umask),
                zone_of=file.path,
            )
            for number, file in enumerate(self._files)
        ]
        directory = MakeDirectories(self._directory, permission=0o700, ttl_s=HIDDEN_FOR_S)
        return CreateFiles(tuple(files), directory)

    @contextlib.asynccontextmanager
    async def _written(self, made: Sequence[_Made]) -> AsyncIterator[list[CloseFile]]:
        """Write all files, and yield what ends them; then they are closed, or given up."""
        async with contextlib.AsyncExitStack() as stack:
            leases = self._session.leases
            for each in made:
                leases.keep_unheard(each.asked.writer)
                stack.callback(leases.drop, each.asked.writer)
            await self._write_whole(made)
            rest = [each for each in made if each.end is None]
            ends = [
                stack.enter_async_context(closing(each.begin(self._session), each.file.content))
                for each in rest
            ]
            ended = await asyncio.gather(*ends, return_exceptions=True)
            for error in ended:
                if isinstance(error, BaseException):
                    raise error
            for each, end in zip(rest, ended, strict=True):
                if isinstance(end, CloseFile):
                    each.end = end
            yield [each.end for each in made if each.end is not None]

    async def _write_whole(self, made: Sequence[_Made]) -> None:
        """Write the short ones into the blocks that were made with them. Where that fails the file
        has another block, which `begin` asks for."""
        short = [(each, whole) for each in made if (whole := each.whole(self._session))]
        together = [whole for _, whole in short]
        ends = await written_together(self._session.writing, together) if together else []
        for (each, _), end in zip(short, ends, strict=True):
            each.first = None
            if isinstance(end, BlockFailed):
                each.failed = end.failed
                _log.info("'%s': not in the block that was made with it: %s", each.file.path, end)
            else:
                each.end = CloseFile(
                    each.status.file_id, each.asked.writer, end, size=each.file.size
                )

    def _publication(self, made: Sequence[_Made], closes: Sequence[CloseFile]) -> Transact:
        operations: list[Operation] = []
        if self._parents:
            renamed = (file.path for file in self._files if file.publication is None)
            above = dict.fromkeys(path.rpartition("/")[0] for path in renamed)
            operations += [MakeDirectory(each, implicit=True) for each in above if each]
        for each in made:
            file, hidden = each.file, replace(each.status, size=each.file.size)
            if file.publication is not None:
                operations += file.publication(hidden)
                continue
            operations.append(Rename(hidden.path, file.path, file.like.overwrite, as_new=True))
            operations += file.then
        operations.append(Delete(self._directory))
        request = self._session.transaction(operations)
        return replace(request, umask=self._files[0].like.umask, closes=tuple(closes))

    async def _give_up(self) -> None:
        """Remove what is hidden. If the files were published after all, nothing is there."""
        patience_s = min(ABORT_FOR_S, self._session.config.retry_for_s)
        request = DeletePath(self._directory, recursive=True)
        try:
            await self._session.within(patience_s).namenodes.call_once(DELETE, request)
        except PaxosBlockError as error:
            _log.warning("'%s' is left to its time to live: %s", self._directory, error)
