"""`AsyncClient`: a cluster's files and blocks, for programs that run on asyncio."""

from __future__ import annotations

import builtins
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Self

from paxosblock.api.namenode import (
    APPEND,
    APPLICATION,
    CONCAT,
    CREATE,
    DELETE,
    LIST,
    MKDIRS,
    RENAME,
    STAT,
    TAKE_OVER,
    TRANSACT,
    AppendFile,
    ApplicationRequest,
    ApplicationVersion,
    BlockView,
    ConcatFiles,
    CreateFile,
    DeletePath,
    FileStatus,
    ListDirectory,
    Listing,
    MakeDirectories,
    Member,
    PathRequest,
    Rename,
    TakeOver,
    Transact,
)
from paxosblock.client.block_verbs import AsyncDataNode, BlockVerbs
from paxosblock.client.check import BlockCheck, check_block
from paxosblock.client.choices import check_sizes, durability_of
from paxosblock.client.file_reader import AsyncFileReader
from paxosblock.client.file_writer import AsyncFileWriter
from paxosblock.client.follow import follower, wait_longer
from paxosblock.client.length import OPEN_PATIENCE_S, Consistency, consistency_of, snapshot
from paxosblock.client.locations import BlockLocation, locations
from paxosblock.client.session import Session
from paxosblock.client.url import cluster_addresses
from paxosblock.client.walk import glob, pages, walk
from paxosblock.config import ClientConfig, load_config
from paxosblock.errors import NotDirectoryError, NotFoundError
from paxosblock.protocol.types import BlockId, Durability, WriterId
from paxosblock.transaction import Operation, TransactionOutcome
from paxosblock.user import current_user


class AsyncClient:
    """A client of one cluster.

    Make it inside a running event loop and use it there; it opens connections when they are
    needed, and closes them with `close` or at the end of `async with`. A file that is still being
    written then is left to its lease: the NameNode closes it with what was acknowledged.

    Every method raises a `PaxosBlockError`; see `paxosblock.errors` for what each one tells.
    """

    def __init__(
        self, cluster: str | Iterable[str] | None = None, config: ClientConfig | None = None
    ) -> None:
        """Nothing is connected yet.

        Args:
            cluster: `paxosblock://host:port[,host:port]`, or addresses of NameNodes; None takes
                the environment variable PAXOSBLOCK_NAMENODES.
            config: None takes the environment's PAXOSBLOCK_CLIENT_* over the defaults.

        Raises:
            ConfigError: the cluster is not told, or not understood.
        """
        self.addresses = cluster_addresses(cluster)
        self.config = load_config(ClientConfig) if config is None else config
        self._session = Session.to(self.addresses, self.config)
        self._blocks = BlockVerbs(self._session, new_writer())

    def __repr__(self) -> str:
        return f"<AsyncClient paxosblock://{','.join(self.addresses)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Files that are open fail when they are used again."""
        await self._session.close()

    # -- files ----------------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        *,
        overwrite: bool = False,
        replication: int | None = None,
        block_size: int | None = None,
        durability: Durability | str | None = None,
        chunk_size: int | None = None,
        window: int | None = None,
        parent_must_exist: bool = False,
        permission: int = 0o644,
    ) -> AsyncFileWriter:
        """Make a file and write it: `async with await fs.create(path) as out`.

        Args:
            overwrite: replace a file that is there.
            replication: DataNodes that get each block.
            block_size, chunk_size: in bytes; a chunk is what the DataNodes vote on.
            durability: "disk" (a vote means stable storage) or "memory" (of several machines).
            window: chunks that may be under way; 1 is the seed's own protocol.
            parent_must_exist: do not make missing directories. When the directory is deleted
                while the file is being written, the writer is fenced (FencedError).

            What is None is taken from the client's configuration.

        Raises:
            ExistsError: the file exists and `overwrite` is not set.
            LeaseError: somebody else is writing it.
            InvalidRequestError: a number or a name makes no sense.
        """
        config = self.config
        block_size = config.block_size_bytes if block_size is None else block_size
        chunk_size = config.chunk_size_bytes if chunk_size is None else chunk_size
        window = config.window if window is None else window
        check_sizes(block_size, chunk_size, window)
        writer = new_writer()
        request = CreateFile(
            path,
            writer,
            overwrite,
            config.replication if replication is None else replication,
            block_size,
            config.durability if durability is None else durability_of(durability),
            parent_must_exist,
            permission,
            current_user(),
        )
        status = await self._session.namenodes.call_once(
            CREATE, lambda once: replace(request, once=once)
        )
        return AsyncFileWriter(
            self._session, status, writer, chunk_size_bytes=chunk_size, window=window
        )

    async def append(
        self, path: str, *, chunk_size: int | None = None, window: int | None = None
    ) -> AsyncFileWriter:
        """Go on with a closed file, in a new block: `async with await fs.append(path) as out`.

        Blocks have any length, so the last one stays as it is. Arguments: as `create`; the rest was
        settled when the file was made.

        Raises:
            NotFoundError, IsDirectoryError: there is no file at `path`.
            LeaseError: somebody is writing it.
            InvalidRequestError: a number makes no sense.
        """
        chunk_size = self.config.chunk_size_bytes if chunk_size is None else chunk_size
        window = self.config.window if window is None else window
        check_sizes(self.config.block_size_bytes, chunk_size, window)
        writer = new_writer()
        opened = await self._session.namenodes.call(APPEND, AppendFile(path, writer))
        return AsyncFileWriter(
            self._session,
            opened.status,
            writer,
            chunk_size_bytes=chunk_size,
            window=window,
            previous=opened.last,
        )

    async def open(
        self, path: str, *, consistency: Consistency | str = Consistency.QUORUM
    ) -> AsyncFileReader:
        """Read a file: `async with await fs.open(path) as f`.

        All that was acknowledged to any writer before this was called is there, also if the file
        is still being written. If too few replicas of its last block answer for two seconds, what
        is finalized is served: `undecided` of the reader tells (see `AsyncFileReader`).

        Args:
            consistency: how the length of a last block under construction is read: "quorum" (R2)
                or "all" (R1, the seed's read: every replica must answer).

        Raises:
            NotFoundError, IsDirectoryError: there is no file at `path`.
        """
        how = consistency_of(consistency)
        patience_s = min(OPEN_PATIENCE_S, self.config.retry_for_s)
        found = await snapshot(self._session, path, how, patience_s)
        return AsyncFileReader(self._session, path, found, how)

    def follow(self, path: str, offset: int = 0) -> AsyncIterator[bytes]:
        """The bytes of a file from `offset` on, as they are written, until it is closed.

        What is delivered is linearizable: it is acknowledged, or will be kept all the same. Blocks
        that follow and DataNodes that fail make no difference.

        Raises:
            NotFoundError: there is no such file, or it was deleted or replaced meanwhile.
            InvalidRequestError: a negative offset.
        """
        return follower(self._session, path, offset).run()

    async def wait_longer(self, path: str, length: int, timeout_s: float) -> bool:
        """Wait until a file has more than `length` bytes; False when it takes `timeout_s` or more.

        For programs that look at a file now and then; the members of its last block are asked to
        answer when they have more. Raises NotFoundError as `follow` does.
        """
        return await wait_longer(self._session, path, length, timeout_s)

    async def take_over(self, path: str) -> int:
        """Fence the writer of a file, close the file and return its length in bytes.

        Nothing that was acknowledged is lost; the old writer hears a FencedError. A file that is
        closed already stays as it is. (HDFS: recoverLease)
        """
        status = await self._session.namenodes.call(TAKE_OVER, TakeOver(path))
        return status.length

    async def locations(
        self, path: str, offset: int = 0, length: int | None = None
    ) -> builtins.list[BlockLocation]:
        """Where the blocks of a file are that hold its bytes from `offset` on, at most `length`.

        Raises:
            InvalidRequestError: a negative offset or length.
            NotFoundError, IsDirectoryError: there is no file at `path`.
            UnavailableError: too few replicas of the last block answer to tell its length.
        """
        return await locations(self._session, path, offset, length)

    # -- names ----------------------------------------------------------------------------------

    async def stat(self, path: str) -> FileStatus:
        """What a path names. `length` counts only finalized blocks while the file is `open`."""
        return await self._session.namenodes.call(STAT, PathRequest(path))

    async def exists(self, path: str) -> bool:
        """True if there is a file or directory at `path`."""
        try:
            await self.stat(path)
        except (NotFoundError, NotDirectoryError):
            return False
        return True

    async def list(self, path: str) -> builtins.list[FileStatus]:
        """The entries of a directory in order of name; of a file: the file itself.

        As they were at one time, also where there are too many for one answer, unless names in the
        directory change faster than it can be listed.
        """
        return [entry async for entry in self.scan(path)]

    async def scan(self, path: str) -> AsyncIterator[FileStatus]:
        """Yield the entries of `list` one by one."""
        async for page in self.pages(path):
            for entry in page.entries:
                yield entry

    def pages(self, path: str, *, one_state: bool = True) -> AsyncIterator[Listing]:
        """Yield the pages of a directory, which tell since when each entry is there.

        Args:
            one_state: the pages show the directory as it was at one time: they come when the last
                is there, and it is listed anew when its names changed meanwhile. When they change
                faster than it can be listed, the pages differ in `changed`. Without this each page
                comes by itself, and is of a time of its own.

        Raises:
            NotFoundError: nothing is at `path`.
        """
        return pages(self, path, one_state=one_state)

    async def page(self, path: str, after: str = "", limit: int = 1000) -> Listing:
        """Return one page: the entries behind the name `after`, and since when each is there."""
        return await self._session.namenodes.call(LIST, ListDirectory(path, after, limit))

    def walk(self, path: str) -> AsyncIterator[FileStatus]:
        """Yield every file and directory below `path`, a directory before what is in it, each as
        `list` shows it, in order of name; of a file, the file itself.

        A directory that is deleted or moved meanwhile is left out, with what was not seen yet.

        Raises:
            NotFoundError: nothing is at `path`.
        """
        return walk(self, path)

    async def glob(self, pattern: str) -> builtins.list[FileStatus]:
        """Files and directories that match a pattern of `*`, `?` and `[...]` in each name, and of
        `**` for any number of directories; in order of path."""
        return [entry async for entry in glob(self, pattern)]

    async def mkdirs(
        self,
        path: str,
        *,
        parents: bool = True,
        permission: int = 0o755,
        ttl_s: float | None = None,
    ) -> FileStatus:
        """Make a directory. With `parents` also those above, and one that exists is fine.

        Args:
            ttl_s: its time to live in seconds, counted anew by each call: when it is over, the
                directory is deleted with all that is in it, but not while a file below is being
                written. Renaming the directory ends it.

        Raises:
            InvalidRequestError: a time to live that is no time.
            ExistsError, NotFoundError: without `parents`: it exists, or the one above does not.
            OutcomeUnknownError: nobody answered for `retry_for`; it may have been made.
        """
        request = MakeDirectories(path, parents, permission, current_user(), ttl_s)
        return await self._session.namenodes.call_once(
            MKDIRS, lambda once: replace(request, once=once)
        )

    async def rename(self, source: str, destination: str, *, overwrite: bool = False) -> FileStatus:
        """Move a file or directory in one step; `overwrite` replaces a file that is there.

        Raises:
            NotFoundError, ExistsError: no source; or a destination that is there already.
            OutcomeUnknownError: nobody answered for `retry_for`; it may have been moved.
        """
        return await self._session.namenodes.call_once(
            RENAME, lambda once: Rename(source, destination, overwrite, once)
        )

    async def delete(self, path: str, *, recursive: bool = False) -> bool:
        """Delete a file, or a directory (with all that is in it when `recursive`).

        Returns whether there was anything to delete.

        Raises:
            DirectoryNotEmptyError: the directory has entries and `recursive` is not set.
            OutcomeUnknownError: nobody answered for `retry_for`; it may have been deleted.
        """
        answer = await self._session.namenodes.call_once(
            DELETE, lambda once: DeletePath(path, recursive, once)
        )
        return answer.existed

    async def concat(self, target: str, sources: Sequence[str]) -> FileStatus:
        """Move the blocks of closed files, in order, to the end of the closed file `target`.

        No byte is copied. The sources are gone afterwards. Who reads one goes on reading, unless it
        has so many blocks that some must still be asked for: NotFoundError then.

        Raises:
            NotFoundError, IsDirectoryError: one of them is no file.
            LeaseError: one of them is being written.
            InvalidRequestError: no source, a file twice, or more than BLOCKS_MOVED_MAX blocks.
            OutcomeUnknownError: nobody answered for `retry_for`; it may have been done.
        """
        return await self._session.namenodes.call_once(
            CONCAT, lambda once: ConcatFiles(target, tuple(sources), once)
        )

    # -- transactions ---------------------------------------------------------------------------

    async def transact(
        self,
        ops: Sequence[Operation],
        *,
        transaction: tuple[str, int] | None = None,
        keep_for_s: float | None = None,
    ) -> TransactionOutcome:
        """Apply all operations (`paxosblock.transaction`) in one step, or none of them.

        Args:
            ops: each sees the effects of those before it; at most OPERATIONS_MAX.
            transaction: (application id, version). Versions of an application only go up: one that
                is not above the last is not applied. So a transaction that is repeated, by the
                client after a lost answer or by a program after a restart, is applied once.
            keep_for_s: seconds after which the application's version is forgotten, counted from
                its last transaction that was applied; None: never.

        Raises:
            PaxosBlockError: what the first operation that cannot be done raises by itself; its
                text tells which one it is. Nothing was done.
            InvalidRequestError: no operations or too many; a version below 0.
            OutcomeUnknownError, DeadlineError: nobody answered for `retry_for`; it may have been
                applied.
        """
        config, application = self.config, None
        if transaction is not None:
            application = ApplicationVersion(*transaction, uuid.uuid4().hex, keep_for_s)
        request = Transact(
            tuple(ops),
            config.replication,
            config.block_size_bytes,
            config.durability,
            current_user(),
            application,
        )
        return await self._session.namenodes.call_once(
            TRANSACT, lambda once: replace(request, once=once)
        )

    async def transaction_status(self, app_id: str) -> int | None:
        """The last version of an application that was applied, None when none is remembered."""
        request = ApplicationRequest(app_id)
        return (await self._session.namenodes.call(APPLICATION, request)).version

    # -- blocks without files, the seed's verbs -------------------------------------------------

    async def add_block(
        self,
        replication: int | None = None,
        durability: Durability | str | None = None,
        window: int | None = None,
    ) -> BlockView:
        """AddBlock(): a new block that belongs to no file; this client may write it.

        When this client is gone, and its lease over, the NameNode ends the block with what was
        acknowledged. It stays until `delete_block`.

        Every member has an empty replica when this returns (see `datanode` for writing).

        Raises:
            NoSpaceError: too few DataNodes.
            UnavailableError: a DataNode took no replica; the block is finalized, empty.
        """
        config = self.config
        return await self._blocks.add(
            config.replication if replication is None else replication,
            config.durability if durability is None else durability_of(durability),
            config.window if window is None else window,
        )

    async def finalize_block(self, block: BlockId, length: int | None = None) -> BlockView:
        """FinalizeBlock(b, length in chunks) by its writer, or FinalizeBlock(b): a recovery.

        The view's record tells the length that was decided.

        Raises:
            FencedError: a recovery decided another length, or the block has another writer.
            InvalidRequestError: not all replicas hold exactly so many chunks.
        """
        return await self._blocks.finalize(block, length)

    async def delete_block(self, block: BlockId) -> bool:
        """Delete a block that belongs to no file; False when there is none (any more).

        Raises InvalidRequestError when it belongs to a file.
        """
        return await self._blocks.delete(block)

    async def get_block(self, block: BlockId) -> BlockView:
        """GetBlock(b): its record, linearizable, and where its members are reached.

        Raises NotFoundError when there is no such block.
        """
        return await self._blocks.get(block)

    async def check_block(self, block: BlockId) -> BlockCheck:
        """Read and compare the whole of every replica of a finalized block.

        Damaged replicas are reported to the NameNode, which has them copied again from sound ones.

        Raises:
            NotFoundError: there is no such block.
            NotReadyError: its length is not decided yet.
        """
        return await check_block(self._session, block)

    def datanode(self, member: Member) -> AsyncDataNode:
        """`write`, `read` and `next_gs` on the DataNode of one member of a block's view."""
        return self._blocks.datanode(member)


def new_writer() -> WriterId:
    """The name of one instance of a writer, never reused."""
    return WriterId(uuid.uuid4().hex)
