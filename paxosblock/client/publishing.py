"""Files are written under hidden names, and appear under their own when they are complete.

Files that are published together are published by one replicated transaction. The files of a dead
process are removed with its staging directory, which has a time to live.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.transaction import Concat, MakeDirectory, Operation, Rename
from paxosblock.base.paths import STAGING
from paxosblock.base.replacement import WriteOptions
from paxosblock.client.append_mode import Addition, until_free
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import (
    ExistsError,
    IsDirectoryError,
    NotFoundError,
    PaxosBlockError,
)
from paxosblock.protocol.types import Durability

_log = logging.getLogger(__name__)


class Publish(enum.Enum):
    """The way in which a complete file gets its name."""

    REPLACE = "wb"
    CREATE = "xb"
    APPEND = "ab"


class StagedFile:
    """A file that is being written, or was, and has not got its name yet."""

    def __init__(
        self,
        area: StagingArea,
        writer: AsyncFileWriter | Addition,
        target: str,
        how: Publish,
        present: FileStatus | None,
    ) -> None:
        """`present` is the file that had the name `target` when this was made."""
        self.writer = writer
        self.target = target
        self.discarded = False
        self.area = area
        self._how = how
        self._present = present

    @property
    def offset(self) -> int:
        """Return where in the target its first byte will be."""
        appends = self._how is Publish.APPEND and self._present is not None
        return self._present.size if appends and self._present is not None else 0

    @property
    def _path(self) -> str:
        """Its hidden name; "" while it has none."""
        hidden = self.writer.hidden if isinstance(self.writer, Addition) else self.writer
        return "" if hidden is None else hidden.status.path

    @property
    def addition(self) -> Addition | None:
        """Return the bytes for the last block of the target; None if it has a hidden name."""
        return self.writer if isinstance(self.writer, Addition) and not self._path else None

    @property
    def joins(self) -> bool:
        """True if it is put behind the bytes that are there."""
        return self._how is Publish.APPEND and self._present is not None

    def operations(self) -> list[Operation]:
        """Return the operations that give it its name. It must be closed, if only just before."""
        if self.joins:
            return [Concat(self.target, (self._path,))]
        parent = self.target.rpartition("/")[0]
        replaces = self._how is Publish.REPLACE
        made: list[Operation] = [MakeDirectory(parent)] if parent else []
        return [*made, Rename(self._path, self.target, replaces, as_new=True)]

    async def complete(
        self, write_rest: Callable[[], Awaitable[object]] | None = None, *, publishes: bool
    ) -> None:
        """Write the rest of it, if there is any, and publish it; or only close it, if a transaction
        publishes it. Raises as `write_rest` and `publish`; it is given up then.
        """
        try:
            await self.area.renew()
            if write_rest is not None:
                await write_rest()
            if publishes:
                await publish([self])
            else:
                await self.writer.close()
        except BaseException:
            if not self.discarded:
                await self.discard()
            raise

    async def discard(self) -> None:
        """Give it up, written or not. An error is logged: the staging directory ends by itself."""
        self.discarded = True
        await self.writer.abort()
        if self._path:
            await self.area.remove(self._path)


class StagingArea:
    """The staging directory of one client."""

    def __init__(self, client: AsyncClient, ttl_s: float) -> None:
        """`ttl_s`: seconds for which unpublished files stay after this process died."""
        self.client = client
        self._ttl_s = ttl_s
        self.directory = f"{STAGING}/{uuid.uuid4().hex}"
        self._renew_at = 0.0

    async def create(
        self,
        target: str,
        how: Publish,
        *,
        alone: bool = False,
        replication: int | None = None,
        block_size: int | None = None,
        durability: Durability | str | None = None,
        chunk_size: int | None = None,
        window: int | None = None,
        permission: int = 0o666,
        umask: int | None = None,
        options: WriteOptions | None = None,
    ) -> StagedFile:
        """Begin a file that will be published as `target`. Tuning: as `AsyncClient.create`.

        Args:
            alone: it will be published by itself, so a little of it may go into the target's last
                block.

        Raises:
            IsDirectoryError: the target is a directory.
            ExistsError: it is there, and `how` is CREATE.
            NotDirectoryError: something above it is a file.
        """
        present = await self._present(target, how)

        async def hide() -> AsyncFileWriter:
            await self.renew()
            return await self.client.create(
                f"{self.directory}/{uuid.uuid4().hex}",
                parent_must_exist=True,
                replication=replication,
                block_size=block_size,
                durability=durability,
                chunk_size=chunk_size,
                window=window,
                permission=permission,
                umask=umask,
                options=options,
                zone_of=target,
            )

        as_it_is = (replication, block_size, durability) == (None, None, None)
        if alone and as_it_is and how is Publish.APPEND and present is not None:
            size = chunk_size or self.client.config.chunk_size
            opened = partial(
                self.client.append,
                target,
                chunk_size=size,
                window=window,
                options=options,
            )
            addition = Addition(present, opened, hide, chunk_size=size)
            return StagedFile(self, addition, target, how, present)
        return StagedFile(self, await hide(), target, how, present)

    async def remove(self, path: str) -> None:
        """Delete one hidden name; an error is only logged."""
        try:
            await self.client.delete(path)
        except PaxosBlockError as error:
            _log.warning("'%s' is left to its time to live: %s", path, error)

    async def close(self) -> None:
        """Remove the directory with all unpublished files."""
        if self._renew_at:
            try:
                await self.client.delete(self.directory, recursive=True)
            except PaxosBlockError as error:
                _log.warning("'%s' is left to its time to live: %s", self.directory, error)

    async def _present(self, target: str, how: Publish) -> FileStatus | None:
        try:
            present = await self.client.stat(target)
        except NotFoundError:
            return None
        if present.kind is Kind.DIRECTORY:
            raise IsDirectoryError(f"'{target}' is a directory", path=target)
        if how is Publish.CREATE:
            raise ExistsError(f"'{target}' exists already", path=target)
        return present

    async def renew(self) -> None:
        """Let the directory live for its full time again once a quarter of that has passed.

        This is also done before a file is closed, as its lease then no longer protects it.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._renew_at:
            await self.client.mkdirs(self.directory, permission=0o700, ttl_s=self._ttl_s)
            self._renew_at = now + self._ttl_s / 4


async def publish(
    files: Sequence[StagedFile],
    *,
    before: Sequence[Operation] = (),
    after: Sequence[Operation] = (),
) -> None:
    """Close these files of one staging area, and give them their names in one transaction: all or
    none. One that is alone, and still open, is closed in that same step.

    Args:
        before: what must be so, such as `AssertFile`, or be done first; not for an addition.
        after: what is done with the names that they have then, such as `SetAttributes`.

    Raises:
        ExistsError, NotFoundError, LeaseError: a file or directory at a target forbids it. Nothing
            was published, and the files are gone.
        PaxosBlockError: as the writers' `close`, and as the operations. Nothing was published.
        OutcomeUnknownError, DeadlineError: no answer came; all or none are published.
    """
    if not files:
        return
    try:
        await _publish(files, before, after)
    except BaseException:
        # This is also right if the outcome is unknown: published files are no longer in the area.
        await discard(files)
        raise


async def _publish(
    files: Sequence[StagedFile], before: Sequence[Operation], after: Sequence[Operation]
) -> None:
    named = dict.fromkeys(operation for file in files for operation in file.operations())
    operations = [*before, *named, *after]
    first = files[0]
    if len(files) == 1 and not first.joins and not first.writer.closed:
        await first.writer.close(then=operations)
        return
    for file in files:
        await file.writer.close()
    client = first.area.client
    if len(files) == 1 and (addition := first.addition) is not None:
        await addition.append()
    elif any(file.joins for file in files):
        await until_free(lambda: client.transact(operations))
    else:
        await client.transact(operations)


async def discard(files: Sequence[StagedFile]) -> None:
    """Give these files up."""
    await asyncio.gather(*(file.discard() for file in files))
