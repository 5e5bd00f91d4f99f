"""The part of `AsyncClient` that is about names: what paths name, and changes of that."""

from __future__ import annotations

import builtins
import uuid
from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from paxosblock.api.care import SET_REPLICATION, SetReplication
from paxosblock.api.namenode import (
    APPLICATION,
    CONCAT,
    DELETE,
    LIST,
    MKDIRS,
    RENAME,
    STAT,
    TRANSACT,
    ApplicationRequest,
    ApplicationVersion,
    ConcatFiles,
    DeletePath,
    FileStatus,
    ListDirectory,
    Listing,
    MakeDirectories,
    PathRequest,
    Rename,
    Transact,
)
from paxosblock.api.transaction import Operation, TransactionOutcome, Truncate
from paxosblock.base.path import AnyPath, text_of
from paxosblock.client.names.walk import glob, pages, walk
from paxosblock.client.session.core import ClientCore
from paxosblock.errors import InvalidRequestError, NotDirectoryError, NotFoundError
from paxosblock.host.user import current_user


class AsyncNames:
    """Asks the NameNodes of the cluster. Made as an `AsyncClient`."""

    _core: ClientCore

    # -- names ----------------------------------------------------------------------------------

    async def stat(self, path: AnyPath) -> FileStatus:
        """Look a path up. `length` counts only finalized blocks while the file is `open`."""
        return await self._core.namenodes.call(STAT, PathRequest(text_of(path)))

    async def exists(self, path: AnyPath) -> bool:
        """True if there is a file or directory at `path`."""
        try:
            await self.stat(path)
        except (NotFoundError, NotDirectoryError):
            return False
        return True

    async def list(self, path: AnyPath) -> builtins.list[FileStatus]:
        """Return the entries of a directory in order of name; for a file, the file itself.

        They are the entries at one time, even where there are too many for one answer, unless names
        in the directory change faster than it can be listed.
        """
        return [entry async for entry in self.scan(path)]

    async def scan(self, path: AnyPath) -> AsyncIterator[FileStatus]:
        """Yield the entries of `list` one by one."""
        async for page in self.pages(path):
            for entry in page.entries:
                yield entry

    def pages(self, path: AnyPath, *, one_state: bool = True) -> AsyncIterator[Listing]:
        """Yield the pages of a directory, which say since when each entry has been there.

        Args:
            one_state: the pages show the directory as it was at one time: they come when the last
                is there, and it is listed anew if its names changed meanwhile. If they change
                faster than it can be listed, the pages differ in `changed`. Without this each page
                comes as soon as it is there, and shows a time of its own.

        Raises:
            NotFoundError: nothing is at `path`.
        """
        return pages(self, text_of(path), one_state=one_state)

    async def page(self, path: AnyPath, after: str = "", limit: int = 1000) -> Listing:
        """Return a page: entries after the name `after`, each with the change that put it there."""
        request = ListDirectory(text_of(path), after, limit)
        return (await self._core.namenodes.call(LIST, request)).of(request.path)

    def walk(self, path: AnyPath) -> AsyncIterator[FileStatus]:
        """Yield every file and directory below `path`, a directory before what is in it, each as
        `list` shows it, in order of name; of a file, the file itself.

        A directory that is deleted or moved meanwhile is left out, with what was not seen yet.

        Raises:
            NotFoundError: nothing is at `path`.
        """
        return walk(self, text_of(path))

    async def glob(self, pattern: AnyPath) -> builtins.list[FileStatus]:
        """Files and directories that match a pattern of `*`, `?` and `[...]` in each name, and of
        `**` for any number of directories; in order of path."""
        return [entry async for entry in glob(self, text_of(pattern))]

    async def mkdirs(
        self,
        path: AnyPath,
        *,
        parents: bool = True,
        permission: int = 0o755,
        ttl_s: float | None = None,
    ) -> FileStatus:
        """Make a directory. With `parents` those above are made, too, and an existing one is fine.

        Args:
            ttl_s: its time to live in seconds, counted anew by each call: when it is over, the
                directory is deleted with all that is in it, but not while a file below is being
                written. Renaming the directory ends it.

        Raises:
            InvalidRequestError: a time to live that is not a time.
            ExistsError, NotFoundError: without `parents`: it exists, or the one above does not.
            OutcomeUnknownError: nobody answered for `retry_for`; it may have been made.
        """
        request = MakeDirectories(text_of(path), parents, permission, current_user(), ttl_s)
        return await self._core.namenodes.call_once(
            MKDIRS, lambda once: replace(request, once=once)
        )

    async def rename(
        self, source: AnyPath, destination: AnyPath, *, overwrite: bool = False
    ) -> FileStatus:
        """Move a file or directory in one step; `overwrite` replaces a file that is there.

        Raises:
            NotFoundError, ExistsError: no source; or a destination that is there already.
            OutcomeUnknownError: nobody answered for `retry_for`; it may have been moved.
        """
        request = Rename(text_of(source), text_of(destination), overwrite)
        return await self._core.namenodes.call_once(
            RENAME, lambda once: replace(request, once=once)
        )

    async def delete(self, path: AnyPath, *, recursive: bool = False) -> bool:
        """Delete a file, or a directory (with all that is in it when `recursive`).

        Returns whether there was anything to delete.

        Raises:
            DirectoryNotEmptyError: the directory has entries and `recursive` is not set.
            OutcomeUnknownError: nobody answered for `retry_for`; it may have been deleted.
        """
        request = DeletePath(text_of(path), recursive)
        answer = await self._core.namenodes.call_once(
            DELETE, lambda once: replace(request, once=once)
        )
        return answer.existed

    async def concat(self, target: AnyPath, sources: Sequence[AnyPath]) -> FileStatus:
        """Move the blocks of closed files, in order, to the end of the closed file `target`.

        No byte is copied. The sources are gone afterwards. Readers of a source go on reading,
        unless it has so many blocks that they must still ask for some: they get NotFoundError then.

        Raises:
            NotFoundError, IsDirectoryError: one of them is not a file.
            LeaseError: one of them is being written.
            InvalidRequestError: no source, a file twice, or more than BLOCKS_MOVED_MAX blocks.
            OutcomeUnknownError: nobody answered for `retry_for`; it may have been done.
        """
        request = ConcatFiles(text_of(target), tuple(map(text_of, sources)))
        return await self._core.namenodes.call_once(
            CONCAT, lambda once: replace(request, once=once)
        )

    async def set_replication(self, path: AnyPath, replication: int) -> FileStatus:
        """Let a file ask for another number of replicas of each block; return what it is then.

        Finalized blocks get replicas, or lose some, soon after; future blocks are placed
        accordingly. The one that a writer has open keeps its members until it is finalized.

        Raises:
            NotFoundError, IsDirectoryError: there is no file at `path`.
            InvalidRequestError: not from 1 to REPLICATION_MAX (`paxosblock.api.care`).
            OutcomeUnknownError: nobody answered for `retry_for`; it may have been done.
        """
        request = SetReplication(text_of(path), replication)
        return await self._core.namenodes.call_once(
            SET_REPLICATION, lambda once: replace(request, once=once)
        )

    # -- transactions ---------------------------------------------------------------------------

    async def transact(
        self,
        ops: Sequence[Operation],
        *,
        transaction: tuple[str, int] | None = None,
        keep_for_s: float | None = None,
    ) -> TransactionOutcome:
        """Apply all operations (such as `paxosblock.Rename`) in one step, or none of them.

        Args:
            ops: each sees the effects of those before it; OPERATIONS_MAX and RECORDS_MAX at most.
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
        from paxosblock.client.names import truncating  # noqa: PLC0415 - readers need none of it

        config, application = self._core.config, None
        if transaction is not None:
            application = ApplicationVersion(*transaction, uuid.uuid4().hex, keep_for_s)
        request = Transact(
            (),
            config.replication,
            config.block_size_bytes,
            config.durability,
            current_user(),
            application,
        )

        async def send(operations: tuple[Operation, ...]) -> TransactionOutcome:
            return await self._core.namenodes.call_once(
                TRANSACT, lambda once: replace(request, operations=operations, once=once)
            )

        return await truncating.transact(self._core, ops, send)

    async def truncate(self, path: AnyPath, length: int) -> FileStatus:
        """Cut a closed file to its first `length` bytes, in one step; return its new status.

        A reader of it reads the old bytes, or gets TruncatedError, never a mixture. If a file
        has more than BLOCKS_MOVED_MAX blocks to lose, some go earlier, in steps of their own.

        Raises:
            InvalidRequestError: a negative length, or one that is greater than the file's.
            NotFoundError, IsDirectoryError: there is no file at `path`.
            LeaseError: it is being written (`take_over` ends that).
            NotReadyError: no DataNode says where the chunks of the block that is to be cut lie.
            OutcomeUnknownError: nobody answered for `retry_for`; it may have been done.
        """
        path = text_of(path)
        while True:
            try:
                await self.transact([Truncate(path, length)])
            except InvalidRequestError as error:
                first = error.details.get("cut_first")
                if first is None:
                    raise
                await self.transact([Truncate(path, int(first))])
            else:
                return await self.stat(path)

    async def transaction_status(self, app_id: str) -> int | None:
        """Return the last applied version of an application, None when none is remembered."""
        request = ApplicationRequest(app_id)
        return (await self._core.namenodes.call(APPLICATION, request)).version
