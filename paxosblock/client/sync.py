"""`Client`: the same as `AsyncClient`, for programs that do not run on asyncio."""

from __future__ import annotations

import builtins
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, Self, TypeVar

from paxosblock.api.namenode import BlockView, FileStatus, Listing, Member
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.background import BackgroundLoop
from paxosblock.client.block_verbs import AsyncDataNode
from paxosblock.client.check import BlockCheck
from paxosblock.client.chunks import Buffer
from paxosblock.client.length import Consistency
from paxosblock.client.locations import BlockLocation
from paxosblock.client.sync_files import FileReader, FileWriter
from paxosblock.config import ClientConfig
from paxosblock.protocol.messages import LastVote, Vote
from paxosblock.protocol.types import BlockId, ChunkIndex, Durability, Generation
from paxosblock.transaction import Operation, TransactionOutcome

P = ParamSpec("P")
T = TypeVar("T")

_INHERITED: list[object] = []
"""What a forked process must not clean up."""


class Client:
    """A client of one cluster: `with Client(url) as fs`.

    It may be used from several threads; one file object at a time from one. After a fork the child
    process gets connections of its own, but cannot use files that were opened before.

    Every method raises a `PaxosBlockError`, as its namesake of `AsyncClient` describes.
    """

    def __init__(
        self, cluster: str | Iterable[str] | None = None, config: ClientConfig | None = None
    ) -> None:
        """Nothing is connected yet. Arguments and errors: as `AsyncClient`."""
        self._client = AsyncClient(cluster, config)
        self._background = BackgroundLoop()
        self._end = weakref.finalize(self, _stop, self._background, self._client)

    def __repr__(self) -> str:
        return f"<Client paxosblock://{','.join(self._client.addresses)}>"

    @property
    def config(self) -> ClientConfig:
        """The settings in use."""
        return self._client.config

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; also done when the program ends."""
        _stop(self._background, self._client)
        self._end.detach()  # not before: an interrupt must not leave what nobody ends any more

    @property
    def _fs(self) -> AsyncClient:
        """The client behind this one, a new one after a fork."""
        if self._background.forked:
            # Sockets and loop are shared with the parent: leave them alone, for ever.
            _INHERITED.append((self._background, self._client))
            self._end.detach()
            self._client = AsyncClient(self._client.addresses, self._client.config)
            self._background = BackgroundLoop()
            self._end = weakref.finalize(self, _stop, self._background, self._client)
        return self._client

    def _run(
        self, call: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self._background.run(call, *args, **kwargs)

    def _iterate(self, pieces: AsyncIterator[T]) -> Iterator[T]:
        try:
            while True:
                try:
                    piece = self._run(_next, pieces)
                except StopAsyncIteration:
                    return
                yield piece
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None and self._background.usable:
                self._run(close)

    # -- files ----------------------------------------------------------------------------------

    def create(
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
    ) -> FileWriter:
        """Make a file and write it: `with fs.create(path) as out` (see `AsyncClient.create`)."""
        file = self._run(
            self._fs.create,
            path,
            overwrite=overwrite,
            replication=replication,
            block_size=block_size,
            durability=durability,
            chunk_size=chunk_size,
            window=window,
            parent_must_exist=parent_must_exist,
            permission=permission,
        )
        return FileWriter(self, self._background, file)

    def append(
        self, path: str, *, chunk_size: int | None = None, window: int | None = None
    ) -> FileWriter:
        """Go on with a closed file, in a new block (see `AsyncClient.append`)."""
        file = self._run(self._fs.append, path, chunk_size=chunk_size, window=window)
        return FileWriter(self, self._background, file)

    def open(self, path: str, *, consistency: Consistency | str = Consistency.QUORUM) -> FileReader:
        """Read a file: `with fs.open(path) as f` (see `AsyncClient.open`)."""
        file = self._run(self._fs.open, path, consistency=consistency)
        return FileReader(self, self._background, file)

    def follow(self, path: str, offset: int = 0) -> Iterator[bytes]:
        """The bytes of a file as they are written, until it is closed (`AsyncClient.follow`)."""
        return self._iterate(self._fs.follow(path, offset))

    def wait_longer(self, path: str, length: int, timeout_s: float) -> bool:
        """Wait until a file has more than `length` bytes (see `AsyncClient.wait_longer`)."""
        return self._run(self._fs.wait_longer, path, length, timeout_s)

    def take_over(self, path: str) -> int:
        """Fence the writer of a file, close it, return its length (`AsyncClient.take_over`)."""
        return self._run(self._fs.take_over, path)

    def locations(
        self, path: str, offset: int = 0, length: int | None = None
    ) -> builtins.list[BlockLocation]:
        """Return where the blocks of a file are (see `AsyncClient.locations`)."""
        return self._run(self._fs.locations, path, offset, length)

    # -- names ----------------------------------------------------------------------------------

    def stat(self, path: str) -> FileStatus:
        """What a path names. `length` counts only finalized blocks while the file is `open`."""
        return self._run(self._fs.stat, path)

    def exists(self, path: str) -> bool:
        """True if there is a file or directory at `path`."""
        return self._run(self._fs.exists, path)

    def list(self, path: str) -> builtins.list[FileStatus]:
        """The entries of a directory in order of name; of a file: the file itself."""
        return self._run(self._fs.list, path)

    def scan(self, path: str) -> Iterator[FileStatus]:
        """Yield the entries of `list` one by one."""
        return self._iterate(self._fs.scan(path))

    def pages(self, path: str, *, one_state: bool = True) -> Iterator[Listing]:
        """Yield the pages of a directory as it was at one time (see `AsyncClient.pages`)."""
        return self._iterate(self._fs.pages(path, one_state=one_state))

    def page(self, path: str, after: str = "", limit: int = 1000) -> Listing:
        """Return one page, with the time line of the namespace (`AsyncClient.page`)."""
        return self._run(self._fs.page, path, after, limit)

    def walk(self, path: str) -> Iterator[FileStatus]:
        """Yield every file and directory below `path` (see `AsyncClient.walk`)."""
        return self._iterate(self._fs.walk(path))

    def glob(self, pattern: str) -> builtins.list[FileStatus]:
        """Files and directories that match a pattern, in order (see `AsyncClient.glob`)."""
        return self._run(self._fs.glob, pattern)

    def mkdirs(
        self,
        path: str,
        *,
        parents: bool = True,
        permission: int = 0o755,
        ttl_s: float | None = None,
    ) -> FileStatus:
        """Make a directory and, with `parents`, those above (see `AsyncClient.mkdirs`)."""
        return self._run(self._fs.mkdirs, path, parents=parents, permission=permission, ttl_s=ttl_s)

    def rename(self, source: str, destination: str, *, overwrite: bool = False) -> FileStatus:
        """Move a file or directory in one step (see `AsyncClient.rename`)."""
        return self._run(self._fs.rename, source, destination, overwrite=overwrite)

    def delete(self, path: str, *, recursive: bool = False) -> bool:
        """Delete a file or directory; whether there was one (see `AsyncClient.delete`)."""
        return self._run(self._fs.delete, path, recursive=recursive)

    def concat(self, target: str, sources: Sequence[str]) -> FileStatus:
        """Move the blocks of closed files to the end of another (see `AsyncClient.concat`)."""
        return self._run(self._fs.concat, target, sources)

    # -- transactions ---------------------------------------------------------------------------

    def transact(
        self,
        ops: Sequence[Operation],
        *,
        transaction: tuple[str, int] | None = None,
        keep_for_s: float | None = None,
    ) -> TransactionOutcome:
        """Apply all operations in one step, or none of them (see `AsyncClient.transact`)."""
        return self._run(self._fs.transact, ops, transaction=transaction, keep_for_s=keep_for_s)

    def transaction_status(self, app_id: str) -> int | None:
        """The last version that was applied (see `AsyncClient.transaction_status`)."""
        return self._run(self._fs.transaction_status, app_id)

    # -- blocks without files, the seed's verbs -------------------------------------------------

    def add_block(
        self,
        replication: int | None = None,
        durability: Durability | str | None = None,
        window: int | None = None,
    ) -> BlockView:
        """AddBlock(): a new block that belongs to no file (see `AsyncClient.add_block`)."""
        return self._run(self._fs.add_block, replication, durability, window)

    def delete_block(self, block: BlockId) -> bool:
        """Delete a block that belongs to no file (see `AsyncClient.delete_block`)."""
        return self._run(self._fs.delete_block, block)

    def finalize_block(self, block: BlockId, length: int | None = None) -> BlockView:
        """FinalizeBlock(b, length) or FinalizeBlock(b) (see `AsyncClient.finalize_block`)."""
        return self._run(self._fs.finalize_block, block, length)

    def get_block(self, block: BlockId) -> BlockView:
        """GetBlock(b): its record and where its members are reached."""
        return self._run(self._fs.get_block, block)

    def check_block(self, block: BlockId) -> BlockCheck:
        """Read and compare every replica of a finalized block (see `AsyncClient.check_block`)."""
        return self._run(self._fs.check_block, block)

    def datanode(self, member: Member) -> DataNode:
        """`write`, `read` and `next_gs` on the DataNode of one member of a block's view."""
        datanode = self._fs.datanode(member)
        return DataNode(self, self._background, datanode)


class DataNode:
    """What the seed asks of one DataNode; see `AsyncDataNode` for what each verb raises."""

    def __init__(self, owner: Client, background: BackgroundLoop, datanode: AsyncDataNode) -> None:
        self._owner = owner
        self._background = background
        self._datanode = datanode

    @property
    def member(self) -> Member:
        """The storage, and where it is reached."""
        return self._datanode.member

    def write(
        self,
        block: BlockId,
        generation: Generation,
        index: ChunkIndex,
        data: Buffer,
        *,
        sync: bool = False,
    ) -> Vote:
        """Write(b, gs, c, data): propose one chunk to this DataNode alone."""
        return self._background.run(self._datanode.write, block, generation, index, data, sync=sync)

    def read(
        self, block: BlockId, offset: int = 0, max_length: int = -1
    ) -> tuple[Generation, bytes]:
        """Read(b, offset, max_length): the highest generation promised, and bytes."""
        return self._background.run(self._datanode.read, block, offset, max_length)

    def next_gs(self, block: BlockId, generation: Generation) -> LastVote:
        """NextGS(b, gs): make the replica promise a generation; this fences the block's writer."""
        return self._background.run(self._datanode.next_gs, block, generation)


async def _next(pieces: AsyncIterator[T]) -> T:
    return await anext(pieces)


def _stop(background: BackgroundLoop, client: AsyncClient) -> None:
    background.stop(client.close)
