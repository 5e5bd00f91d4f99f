"""`AsyncClient`: a cluster's files and blocks, for programs that run on asyncio."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Final, Self

from paxosblock.api import ownership, subtree, user_tokens
from paxosblock.api.care import SET_REPLICATION, SetReplication
from paxosblock.api.limits import MAX_CHUNK_BYTES
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
    AppendFile,
    ApplicationRequest,
    ApplicationVersion,
    ConcatFiles,
    CreateFile,
    DeletePath,
    FileStatus,
    FirstBlock,
    ListDirectory,
    Listing,
    MakeDirectories,
    PathRequest,
    RenamePath,
    TakeOver,
    Unmasked,
)
from paxosblock.api.ownership import AclStatus
from paxosblock.api.path_attributes import (
    GET_ATTRIBUTES,
    SET_ATTRIBUTES,
    GetAttributes,
    SetPathAttributes,
)
from paxosblock.api.quota import LIST_QUOTAS, SET_QUOTA, ListQuotas, QuotaUsage, SetQuota
from paxosblock.api.status import CLUSTER_STATUS, ClusterRoom, ClusterStatusRequest
from paxosblock.api.subtree import KEYS_MAX, ContentSummary, KeyListing, Summed
from paxosblock.api.transaction import AclChange, Operation, TransactionOutcome, Truncate
from paxosblock.api.user_tokens import ListedToken, TokenIssued, TokenRight
from paxosblock.base.acl_entries import Acl, AclEntry, acl_of, parse_acl
from paxosblock.base.paths import AnyPath, text_of
from paxosblock.base.replacement import WriteOptions
from paxosblock.client.block_verbs import AsyncBlockVerbs, BlocksWriter
from paxosblock.client.copies.copy_calls import AsyncCopies
from paxosblock.client.names.as_of import When, as_of
from paxosblock.client.names.below import below_at_once, content_summaries, content_summary
from paxosblock.client.names.snapshot_verbs import AsyncSnapshots
from paxosblock.client.names.url import cluster_addresses
from paxosblock.client.names.walk import glob, pages, walk
from paxosblock.client.names.watch_verbs import AsyncWatching
from paxosblock.client.opening import opening
from paxosblock.client.reading.file_checksum import FileChecksum, file_checksum
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.client.reading.follow import follower, wait_longer
from paxosblock.client.reading.length import (
    OPEN_PATIENCE_S,
    Consistency,
    consistency_of,
    readable_file,
)
from paxosblock.client.reading.locations import BlockLocation, locations
from paxosblock.client.session.lease_keeper import new_writer
from paxosblock.client.session.shared_session import SharedSession, durability_of
from paxosblock.config import ClientConfig, load_config, with_settings
from paxosblock.errors import InvalidRequestError, NotDirectoryError, NotFoundError
from paxosblock.protocol.types import Durability

if TYPE_CHECKING:
    from paxosblock.client.writing.file_writer import AsyncFileWriter

READ_MODES: Final = frozenset({"r", "rb"})


class AsyncClient(AsyncCopies, AsyncSnapshots, AsyncWatching):
    """A client of one cluster.

    Make it inside a running event loop and use it there; it opens connections when they are needed,
    and closes them with `close` or at the end of `async with`. A file that is still being written
    then ends with its lease: the NameNode closes it with what was acknowledged.

    Every method raises a `PaxosBlockError`; see `paxosblock.errors` for what each one means.
    """

    def __init__(
        self,
        cluster: str | Iterable[str] | None = None,
        config: ClientConfig | None = None,
        **settings: object,
    ) -> None:
        """Nothing is connected yet.

        Args:
            cluster: `paxosblock://host:port[,host:port]`, or addresses of NameNodes; None takes
                the environment variable PAXOSBLOCK_NAMENODES.
            config: None takes the environment's PAXOSBLOCK_CLIENT_* over the defaults.
            settings: attributes of `ClientConfig` that differ from `config`: `retry_for_s=5`.

        Raises:
            ConfigError: no cluster is named, or the name is not understood; a setting that does not
                exist, or a value that makes no sense.
        """
        self.addresses = cluster_addresses(cluster)
        config = load_config(ClientConfig) if config is None else config
        self._session = SharedSession.to(self.addresses, with_settings(config, settings))
        self._blocks_writer = BlocksWriter()

    def __repr__(self) -> str:
        return f"<AsyncClient paxosblock://{','.join(self.addresses)}>"

    @property
    def config(self) -> ClientConfig:
        """Return the settings in use."""
        return self._session.config

    @property
    def blocks(self) -> AsyncBlockVerbs:
        """The seed's own verbs, for blocks that belong to no file."""
        return AsyncBlockVerbs(self._session, self._blocks_writer)

    def within(self, seconds: float) -> Self:
        """Return this client with another time-out: `await fs.within(5).stat(path)`.

        Its calls, and those of files that are opened by it, try for so many seconds in place of the
        setting `retry_for_s`; then they raise. It has the same connections: to close one closes
        both.
        """
        same = copy(self)
        same._session = self._session.within(seconds)
        return same

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Files that are open fail when they are used again."""
        await self._session.close()

    # -- files ----------------------------------------------------------------------------------

    @opening
    async def create(
        self,
        path: AnyPath,
        *,
        overwrite: bool = False,
        replication: int | None = None,
        block_size: int | None = None,
        durability: Durability | str | None = None,
        chunk_size: int | None = None,
        window: int | None = None,
        parent_must_exist: bool = False,
        permission: int = 0o666,
        umask: int | None = None,
        options: WriteOptions | None = None,
        zone_of: AnyPath = "",
    ) -> AsyncFileWriter:
        """Make a file and write it: `async with fs.create(path) as out`.

        Args:
            overwrite: replace a file that is there.
            replication: DataNodes that get each block.
            block_size, chunk_size: in bytes; a chunk is what the DataNodes vote on.
            durability: "disk" (a vote means stable storage) or "memory" (of several machines).
            window: chunks that may be under way; 1 is the seed's own protocol.
            parent_must_exist: make no directory; if that of the file is deleted it is fenced.
            permission: its bits, less those of `umask`.
            options: how it goes on when a DataNode fails.
            zone_of: the path that it will be moved to, or joined to: if that is in an encryption
                zone, this file is encrypted with the zone's key. "" is `path`.

            Whatever is None is taken from the client's configuration.

        Raises:
            ExistsError: the file exists and `overwrite` is not set.
            LeaseError: another writer is writing it.
            InvalidRequestError: a number or a name makes no sense.
        """
        from paxosblock.client.writing import file_writer  # noqa: PLC0415 - for writers

        block_size, chunk_size, window = self._sizes(block_size, chunk_size, window)
        umask = self._session.config.umask if umask is None else umask
        writer = new_writer()
        request = CreateFile(
            text_of(path),
            writer,
            overwrite,
            self.config.replication if replication is None else replication,
            block_size,
            self.config.durability if durability is None else durability_of(durability),
            parent_must_exist,
            permission & ~umask,
            first=FirstBlock(window, self.config.host),
            unmasked=Unmasked(permission, umask),
            zone_of=text_of(zone_of or path),
        )
        made = await self._session.namenodes.call_once(CREATE, request)
        return file_writer.AsyncFileWriter(
            self._session, made.status, writer,
            chunk_size=chunk_size, window=window, first=made.first, options=options,
        )  # fmt: skip

    @opening
    async def append(
        self,
        path: AnyPath,
        *,
        chunk_size: int | None = None,
        window: int | None = None,
        new_block: bool = False,
        options: WriteOptions | None = None,
    ) -> AsyncFileWriter:
        """Go on with a closed file: `async with fs.append(path) as out`.

        Its last block is opened again if it has room, and most of its replicas are at hand. What is
        there stays readable, whatever happens meanwhile.

        Args:
            chunk_size: as in `create`; the rest was settled when the file was made.
            window: as in `create`; a block that was written with another one is left as it is.
            new_block: go on in a new block in any case.
            options: as in `create`.

        Raises:
            NotFoundError, IsDirectoryError: there is no file at `path`.
            LeaseError: another writer is writing it.
            InvalidRequestError: a number makes no sense.
        """
        from paxosblock.client.writing import file_writer  # noqa: PLC0415 - for writers

        _, chunk_size, window = self._sizes(None, chunk_size, window)
        writer = new_writer()
        most = self.config.max_chunks_per_block
        request = AppendFile(text_of(path), writer, 0 if new_block else window, most, encrypts=True)
        opened = await self._session.namenodes.call(APPEND, request)
        return file_writer.AsyncFileWriter(
            self._session,
            opened.status,
            writer,
            chunk_size=chunk_size,
            window=window,
            previous=opened.last,
            reopens=not new_block,
            options=options,
        )

    @opening
    async def open(
        self,
        path: AnyPath,
        mode: str = "rb",
        *,
        consistency: Consistency | str = Consistency.QUORUM,
        at: When | None = None,
    ) -> AsyncFileReader:
        """Read a file: `async with fs.open(path) as f`.

        All that was acknowledged to any writer before this call is there, even if the file is still
        being written. If too few replicas of its last block answer for two seconds, only what is
        finalized can be read, and `undecided` of the reader says so (see `AsyncFileReader`).

        Args:
            mode: "rb", or "r", which means the same; `create` and `append` write.
            consistency: how to read the length of a last block under construction: "quorum" (R2) or
                "all" (R1, the seed's read: every replica must answer).
            at: read it as it was then, where a history is kept: seconds since the epoch, a
                `datetime`, "2026-03-01T12:00", "2h" (ago), or a revision, "@4711".

        Raises:
            NotFoundError, IsDirectoryError: there is no file at `path`; or no history of then.
            InvalidRequestError: another mode; `at` is no time, or in the future.
        """
        if mode not in READ_MODES:
            raise InvalidRequestError(
                f"open({text_of(path)!r}, {mode!r}): open() reads bytes (mode 'rb'); "
                "create() makes a file and writes it, append() goes on with one"
            )
        how = consistency_of(consistency)
        patience_s = min(OPEN_PATIENCE_S, self.config.retry_for_s)
        path = as_of(path, at)
        found = await readable_file(self._session, path, how, patience_s)
        return AsyncFileReader(self._session, path, found, how)

    def follow(
        self, path: AnyPath, offset: int = 0, *, past_close: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield the bytes of a file from `offset` on, as they are written, until it is closed.

        With `past_close` it goes on after that, without end, as a writer may append to the file.
        What is delivered is linearizable: it is acknowledged, or will be kept anyway. New blocks
        and failing DataNodes make no difference.

        Raises:
            NotFoundError: there is no such file, or it was deleted or replaced meanwhile.
            TruncatedError: it was truncated meanwhile, or a recovery by force took back bytes that
                were delivered.
            InvalidRequestError: a negative offset.
        """
        return follower(self._session, text_of(path), offset, past_close=past_close).run()

    async def wait_longer(self, path: AnyPath, size: int, timeout_s: float) -> bool:
        """Wait until a file has more than `size` bytes; False when it takes `timeout_s` or more.

        This is for programs that look at a file now and then; the members of its last block are
        asked to answer when they have more. Raises NotFoundError as `follow` does.
        """
        return await wait_longer(self._session, text_of(path), size, timeout_s)

    async def take_over(self, path: AnyPath) -> int:
        """Fence the writer of a file, close the file and return its size in bytes.

        Nothing that was acknowledged is lost; the old writer hears a FencedError. A file that is
        closed already stays as it is. (HDFS: recoverLease)
        """
        status = await self._session.namenodes.call(TAKE_OVER, TakeOver(text_of(path)))
        return status.size

    async def locations(
        self, path: AnyPath, offset: int = 0, size: int | None = None
    ) -> list[BlockLocation]:
        """Locate the blocks of a file that hold its bytes from `offset` on, at most `size`.

        Raises:
            InvalidRequestError: a negative offset or size.
            NotFoundError, IsDirectoryError: there is no file at `path`.
            UnavailableError: too few replicas of the last block answer to tell its length.
        """
        return await locations(self._session, text_of(path), offset, size)

    # -- names ----------------------------------------------------------------------------------

    async def stat(self, path: AnyPath, *, at: When | None = None) -> FileStatus:
        """Look a path up. `size` counts only finalized blocks while the file is `open`. `at`: as it
        was then, as for `open`; `path` of the answer is the one at which that is read."""
        return await self._session.namenodes.call(STAT, PathRequest(as_of(path, at)))

    async def exists(self, path: AnyPath, *, at: When | None = None) -> bool:
        """True if there is a file or directory at `path`, or was `at` a time, as for `open`. It is
        not known, a NotFoundError, where no history of then is kept."""
        path = await self._then(path, at)
        try:
            await self.stat(path)
        except (NotFoundError, NotDirectoryError):
            return False
        return True

    async def ls(self, path: AnyPath, *, at: When | None = None) -> list[FileStatus]:
        """Return the entries of a directory in order of name; for a file, the file itself. `at`:
        as it was then, as for `open`; they have the paths at which that is read.

        They are the entries at one time, even where there are too many for one answer, unless names
        in the directory change faster than it can be listed.
        """
        return [entry async for page in self.pages(as_of(path, at)) for entry in page.entries]

    def pages(
        self, path: AnyPath, after: str = "", *, one_state: bool = True
    ) -> AsyncIterator[Listing]:
        """Yield what `ls` returns in pages of 1,000 entries, for directories of many names. Each
        page says since when each entry has been there.

        Args:
            after: begin behind this name.
            one_state: the pages show the directory as it was at one time: they come when the last
                is there, and it is listed again if its names changed meanwhile. If they change
                faster than it can be listed, the pages differ in `changed`. Without this each page
                comes as soon as it is there, and shows a time of its own.

        Raises:
            NotFoundError: nothing is at `path`.
        """

        async def ask(request: ListDirectory) -> Listing:
            return (await self._session.namenodes.call(LIST, request)).of(request.path)

        return pages(ask, text_of(path), after, one_state=one_state)

    def walk(
        self, path: AnyPath, *, one_state: bool = False, at: When | None = None
    ) -> AsyncIterator[FileStatus]:
        """Yield every file and directory below `path`, a directory before what is in it, each as
        `ls` shows it, in order of name. If `path` is a file, yield that file.

        A directory that is deleted or moved meanwhile is left out, with what was not seen yet.

        Args:
            one_state: yield all of it as it was at one moment. The NameNode that leads keeps that
                for 30 s after each part of some 2,000 names that it is asked for.
            at: as it was then, all at that moment, as for `open` and `ls`.

        Raises:
            NotFoundError: nothing is at `path`.
            PermissionDeniedError: a directory may not be read.
            NotReadyError: with `one_state`, the moment is no longer kept.
        """
        path = as_of(path, at)
        return below_at_once(self._list_subtree, path) if one_state else walk(self, path)

    async def content_summary(self, path: AnyPath, *, at: When | None = None) -> ContentSummary:
        """Count the files, directories and bytes at and below `path`, all at one moment; `at`: as
        it was then, as for `open`.

        Raises:
            NotFoundError: nothing is at `path`.
            PermissionDeniedError: a directory there may not be read.
        """
        return await content_summary(self._sum_subtree, as_of(path, at))

    async def content_summaries(self, path: AnyPath, *, at: When | None = None) -> list[Summed]:
        """Return a `content_summary` of each entry of a directory, all at one moment, in order of
        name; for a file, of the file itself. `at` and what is raised are as there."""
        return await content_summaries(self._sum_subtree, as_of(path, at))

    async def room(self) -> ClusterRoom:
        """Return the room of the cluster: the sum of the volumes of all live DataNodes."""
        request = ClusterStatusRequest(recent=True)
        status = await self._session.namenodes.call(CLUSTER_STATUS, request)
        return status.room

    async def _sum_subtree(self, request: subtree.SumSubtree) -> subtree.SubtreeSums:
        return await self._session.namenodes.call(subtree.SUM_SUBTREE, request)

    async def _list_subtree(self, request: subtree.ListSubtree) -> subtree.SubtreeListing:
        return await self._session.namenodes.call(subtree.LIST_SUBTREE, request)

    async def list_keys(
        self,
        path: AnyPath,
        *,
        prefix: str = "",
        after: str = "",
        delimiter: str = "",
        limit: int = KEYS_MAX,
    ) -> KeyListing:
        """List what is below a directory as a store of keys does, all at one moment: by the bytes
        of the paths from there on, without their first `/`.

        A directory that was asked for (`mkdirs`, `MakeDirectory`) has a key that ends with `/`;
        others are seen only by what is in them. With a `delimiter`, keys in which it follows
        the prefix are shown as one.

        Args:
            prefix: list keys that begin so.
            after: list keys that are greater; the `after` of the listing before.
            limit: most keys of the listing, 1 to 1,000.

        Raises:
            NotFoundError, NotDirectoryError: there is no such directory.
            PermissionDeniedError: a directory there may not be read.
        """
        request = subtree.ListKeys(text_of(path), prefix, after, delimiter, limit)
        return await self._session.namenodes.call(subtree.LIST_KEYS, request)

    async def glob(self, pattern: AnyPath, *, at: When | None = None) -> list[FileStatus]:
        """Files and directories that match a pattern of `*`, `?`, `[a-z]`, `[!a]` and `{a,b}`, as
        Hadoop's, and of `**` for any number of directories; in order of path.

        A backslash takes the meaning of the next sign away. `at`: as it was then, as for `ls`.

        Raises:
            InvalidRequestError: braces or brackets that are not closed; `at` is no time.
            NotFoundError: no history of then is kept.
        """
        return [entry async for entry in glob(self, await self._then(pattern, at))]

    async def mkdirs(
        self,
        path: AnyPath,
        *,
        parents: bool = True,
        permission: int = 0o777,
        umask: int | None = None,
        ttl_s: float | None = None,
    ) -> FileStatus:
        """Make a directory. With `parents` those above are made, too, and an existing one is fine.

        Args:
            permission: its bits, less those of the setting `umask`; those above that are made have
                the same, and all rights of their owner to go on.
            umask: in the place of the setting.
            ttl_s: its time to live in seconds, counted again by each call: when it is over, the
                directory is deleted with all that is in it, but not while a file below is being
                written. Renaming the directory ends it.

        Raises:
            InvalidRequestError: a time to live that is not a time.
            ExistsError, NotFoundError: without `parents`: it exists, or the one above does not.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been made.
        """
        umask = self._session.config.umask if umask is None else umask
        unmasked = Unmasked(permission, umask)
        request = MakeDirectories(
            text_of(path), parents, permission & ~umask, ttl_s=ttl_s, unmasked=unmasked
        )
        return await self._session.namenodes.call_once(MKDIRS, request)

    async def rename(
        self, source: AnyPath, destination: AnyPath, *, overwrite: bool = False
    ) -> FileStatus:
        """Move a file or directory in one step; `overwrite` replaces a file that is there.

        Raises:
            NotFoundError, ExistsError: no source; or a destination that is there already.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been moved.
        """
        request = RenamePath(text_of(source), text_of(destination), overwrite)
        return await self._session.namenodes.call_once(RENAME, request)

    async def delete(self, path: AnyPath, *, recursive: bool = False) -> bool:
        """Delete a file, or a directory (with all that is in it when `recursive`).

        Returns whether there was anything to delete.

        Raises:
            DirectoryNotEmptyError: the directory has entries and `recursive` is not set.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been deleted.
        """
        request = DeletePath(text_of(path), recursive)
        answer = await self._session.namenodes.call_once(DELETE, request)
        return answer.existed

    async def concat(self, target: AnyPath, sources: Sequence[AnyPath]) -> FileStatus:
        """Move the blocks of closed files, in order, to the end of the closed file `target`.

        No byte is copied. The sources are gone afterwards. Readers of a source go on reading,
        unless it has so many blocks that they must still ask for some: they get NotFoundError then.

        Raises:
            NotFoundError, IsDirectoryError: one of them is not a file.
            LeaseError: one of them is being written.
            InvalidRequestError: no source, a file twice, or more than BLOCKS_MOVED_MAX blocks.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        request = ConcatFiles(text_of(target), tuple(map(text_of, sources)))
        return await self._session.namenodes.call_once(CONCAT, request)

    async def set_replication(self, path: AnyPath, replication: int) -> FileStatus:
        """Let a file ask for another number of replicas of each block; return what it is then.

        Finalized blocks get replicas, or lose some, soon after; future blocks are placed
        accordingly. The one that a writer has open keeps its members until it is finalized.

        Raises:
            NotFoundError, IsDirectoryError: there is no file at `path`.
            InvalidRequestError: not from 1 to REPLICATION_MAX (`paxosblock.api.care`).
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        request = SetReplication(text_of(path), replication)
        return await self._session.namenodes.call_once(SET_REPLICATION, request)

    async def set_quota(
        self, path: AnyPath, *, names: int | None = None, space: int | None = None
    ) -> QuotaUsage:
        """Limit names and room of a directory (None: as it is, -1: no limit). Raises as `stat`."""
        request = SetQuota(text_of(path), names, space)
        return await self._session.namenodes.call_once(SET_QUOTA, request)

    async def quota_usage(self, path: AnyPath) -> QuotaUsage:
        """Return the limits of what is at `path`, and what is used of them. Raises as `stat`."""
        return (await self._session.namenodes.call(LIST_QUOTAS, ListQuotas(text_of(path)))).found[0]

    async def set_permission(self, path: AnyPath, permission: int) -> FileStatus:
        """Give a file or directory other permission bits; return what it is then.

        Args:
            permission: from 0 to 0o1777; 0o1000 is the sticky bit.

        Raises:
            NotFoundError: there is nothing at `path`.
            InvalidRequestError: other bits.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        request = ownership.SetPathPermission(text_of(path), permission)
        return await self._session.namenodes.call_once(ownership.SET_PERMISSION, request)

    async def check_access(
        self, path: AnyPath, *, read: bool = False, write: bool = False, execute: bool = False
    ) -> None:
        """Return if the user may do all of this with a file or directory, as it is now.

        Raises:
            NotFoundError: there is nothing at `path`.
            PermissionDeniedError: the user may not do one of these, or not get there.
        """
        request = ownership.CheckAccess(text_of(path), read, write, execute)
        await self._session.namenodes.call(ownership.CHECK_ACCESS, request)

    async def set_owner(
        self, path: AnyPath, owner: str | None = None, group: str | None = None
    ) -> FileStatus:
        """Give a file or directory another owner, group, or both; return what it is then.

        Raises:
            NotFoundError: there is nothing at `path`.
            InvalidRequestError: neither is given, or no user or group can be called so.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        request = ownership.SetPathOwner(text_of(path), owner or "", group or "")
        return await self._session.namenodes.call_once(ownership.SET_OWNER, request)

    async def set_attributes(
        self, path: AnyPath, attributes: Mapping[str, bytes | None], *, exist: bool | None = None
    ) -> FileStatus:
        """Give a file or directory attributes, beside those that it has; return what it is then.

        Attributes are named values that stay with a file through renames, appends and truncates,
        and go with it: HDFS's XAttrs.

        Args:
            attributes: by names that begin `user.`, or `trusted.` (superusers); None removes one.
            exist: True: nothing is done unless each is there already; False: unless none is.

        Raises:
            NotFoundError, ExistsError: nothing is at `path`; `exist` is not so.
            InvalidRequestError: other names; more than 32, 16 KiB in one, or 64 KiB in all.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        request = SetPathAttributes(text_of(path), dict(attributes), exist=exist)
        return await self._session.namenodes.call_once(SET_ATTRIBUTES, request)

    async def get_attributes(
        self, path: AnyPath, *names: str, at: When | None = None
    ) -> dict[str, bytes]:
        """Return attributes of a file or directory: those of these names that it has, or all; `at`:
        those that it had then, as for `open`.

        Raises:
            NotFoundError: there is nothing at `path`.
            InvalidRequestError: no attribute is called so.
        """
        _, attributes = await self.stat_with_attributes(path, *names, at=at)
        return attributes

    async def stat_with_attributes(
        self, path: AnyPath, *names: str, at: When | None = None
    ) -> tuple[FileStatus, dict[str, bytes]]:
        """Return what is at a path and, of the same moment, attributes of it: as `stat` and
        `get_attributes`, in one call, and raising as the latter."""
        request = GetAttributes(as_of(path, at), names)
        found = await self._session.namenodes.call(GET_ATTRIBUTES, request)
        return found.status, found.attributes

    async def set_times(self, path: AnyPath, modified_s: float) -> FileStatus:
        """Say when a file or directory was changed last; return what it is then.

        Args:
            modified_s: seconds since the epoch, kept to the millisecond.

        Raises:
            NotFoundError: there is nothing at `path`.
            InvalidRequestError: a time that is not from 1970 to 9999.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        request = ownership.SetPathTimes(text_of(path), modified_s)
        return await self._session.namenodes.call_once(ownership.SET_TIMES, request)

    # -- tokens of users ------------------------------------------------------------------------

    async def issue_token(
        self,
        for_s: float,
        rights: TokenRight = TokenRight.READ | TokenRight.WRITE,
        *,
        purpose: str = "",
        user: str = "",
        groups: Iterable[str] = (),
        again: bool = False,
    ) -> TokenIssued:
        """Make a token: who brings it is this client's user, with no more than these rights.

        A client that came with a token itself gets one that ends no later. One whose answer is lost
        is made again; the first stays in the list until it ends.

        Args:
            for_s: seconds for which it is good, at most seven days.
            purpose: what it is for, for the list.
            user: another user, if this one is a superuser.
            groups: those of the user's groups that it has; none: all.
            again: return one that was issued before, for the same purpose and with the same rights
                and groups, if it is good for at least half of that time.

        Raises:
            AccessDeniedError: the client came with a token that has fewer rights.
            PermissionDeniedError: another user, or a group that the user is not in.
            InvalidRequestError: a time or right that there cannot be, or too many tokens.
        """
        request = user_tokens.IssueToken(for_s, int(rights), purpose, user, tuple(groups), again)
        return await self._session.namenodes.call(user_tokens.ISSUE_TOKEN, request)

    async def tokens(self) -> tuple[ListedToken, ...]:
        """Return the user's tokens that have not ended; for a superuser those of all users."""
        return (
            await self._session.namenodes.call(user_tokens.LIST_TOKENS, user_tokens.ListTokens())
        ).tokens

    async def revoke_token(self, serial: int) -> None:
        """Let no node believe a token any more.

        Raises:
            NotFoundError: there is none of this user's with that serial that has not ended.
            AccessDeniedError: the client came with another token, without the right `ADMIN`.
        """
        await self._session.namenodes.call(
            user_tokens.REVOKE_TOKEN, user_tokens.RevokeToken(serial)
        )

    # -- access control lists -------------------------------------------------------------------

    async def get_acl_status(self, path: AnyPath, *, at: When | None = None) -> AclStatus:
        """Return who may do what with a file or directory; `at`: who might then, as for `open`.
        Raises NotFoundError."""
        request = PathRequest(as_of(path, at))
        return await self._session.namenodes.call(ownership.GET_ACL_STATUS, request)

    async def set_acl(self, path: AnyPath, entries: str | Iterable[AclEntry]) -> FileStatus:
        """Replace the access control list of a file or directory; return what it is then.

        Args:
            entries: as HDFS's `setfacl` reads them, such as
                "user::rwx,user:bob:r-x,group::r-x,other::---,default:group:dev:rwx". If all are
                default entries, or none, the list of the other kind stays. Entries of the owner,
                the group and others must be there; default ones are taken from these.

        Raises:
            NotFoundError: there is nothing at `path`.
            InvalidRequestError: HDFS takes no such list: more than 32 entries of a kind, two for
                the same, default ones of a file.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        return await self._change_acl(path, AclChange.SET, acl_of(entries))

    async def modify_acl_entries(
        self, path: AnyPath, entries: str | Iterable[AclEntry]
    ) -> FileStatus:
        """Add entries to an access control list, or replace those for the same users.

        The mask becomes what all these users may do together, unless an entry says what it is.
        Arguments and errors are those of `set_acl`.
        """
        return await self._change_acl(path, AclChange.MODIFY, acl_of(entries))

    async def remove_acl_entries(
        self, path: AnyPath, entries: str | Iterable[AclEntry]
    ) -> FileStatus:
        """Remove entries of an access control list, which a text names without permissions:
        "user:bob,default:group:dev". Errors are those of `set_acl`.
        """
        named = parse_acl(entries, permissions=False) if isinstance(entries, str) else entries
        return await self._change_acl(path, AclChange.REMOVE_ENTRIES, tuple(named))

    async def remove_default_acl(self, path: AnyPath) -> FileStatus:
        """Remove all default entries of a directory. Errors are those of `set_acl`."""
        return await self._change_acl(path, AclChange.REMOVE_DEFAULT)

    async def remove_acl(self, path: AnyPath) -> FileStatus:
        """Remove an access control list, so that the permission bits alone count. Errors are those
        of `set_acl`.
        """
        return await self._change_acl(path, AclChange.REMOVE)

    async def _change_acl(self, path: AnyPath, change: AclChange, entries: Acl = ()) -> FileStatus:
        request = ownership.ChangePathAcl(text_of(path), change, entries)
        return await self._session.namenodes.call_once(ownership.CHANGE_ACL, request)

    # -- transactions ---------------------------------------------------------------------------

    async def transact(
        self,
        ops: Sequence[Operation],
        *,
        once: tuple[str, int] | None = None,
        keep_for_s: float | None = None,
    ) -> TransactionOutcome:
        """Apply all operations (such as `paxosblock.Rename`) in one step, or none of them.

        Args:
            ops: each sees the effects of those before it; OPERATIONS_MAX and RECORDS_MAX at most.
            once: (application id, version). Versions of an application only go up: one that
                is not above the last is not applied. So a transaction that is repeated, by the
                client after a lost answer or by a program after a restart, is applied once.
            keep_for_s: seconds after which the application's version is forgotten, counted from
                its last transaction that was applied; None: never.

        Raises:
            PaxosBlockError: what the first operation that cannot be done raises by itself; its
                text tells which one it is. Nothing was done.
            InvalidRequestError: no operations or too many; a version below 0.
            OutcomeUnknownError, DeadlineError: no NameNode answered for `retry_for_s`; it may have
                been applied.
        """
        from paxosblock.client.names import truncating  # noqa: PLC0415 - readers need none of it

        application = None
        if once is not None:
            application = ApplicationVersion(*once, uuid.uuid4().hex, keep_for_s)
        return await truncating.transact(self._session, ops, application)

    async def truncate(self, path: AnyPath, size: int) -> FileStatus:
        """Cut a closed file to its first `size` bytes, in one step; return its new status.

        A reader of it reads the old bytes, or gets TruncatedError, never a mixture. If a file
        has more than BLOCKS_MOVED_MAX blocks to lose, some go earlier, in steps of their own.

        Raises:
            InvalidRequestError: a negative size, or one that is greater than the file's.
            NotFoundError, IsDirectoryError: there is no file at `path`.
            LeaseError: it is being written (`take_over` ends that).
            NotReadyError: no DataNode says where the chunks of the block that it must cut lie.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        path = text_of(path)
        while True:
            try:
                await self.transact([Truncate(path, size)])
            except InvalidRequestError as error:
                first = error.details.get("cut_first")
                if first is None:
                    raise
                await self.transact([Truncate(path, int(first))])
            else:
                return await self.stat(path)

    async def checksum(self, path: AnyPath, *, at: When | None = None) -> FileChecksum:
        """Return the checksum of a file as HDFS has it: the MD5 of the MD5s of its blocks' CRC32Cs
        of 512 bytes each. All bytes are read, and checked on the way. `at` is as for `open`.

        Raises:
            NotFoundError, IsDirectoryError: there is no file at `path`.
            TruncatedError: it was truncated meanwhile.
        """
        path = as_of(path, at)
        async with self.open(path) as file:
            places = await self.locations(path)
            ends = [place.offset + place.size for place in places]
            return await file_checksum(file.pieces(), ends, file.status.block_size)

    async def transaction_status(self, app_id: str) -> int | None:
        """Return the last applied version of an application, None when none is remembered."""
        request = ApplicationRequest(app_id)
        return (await self._session.namenodes.call(APPLICATION, request)).version

    def _sizes(
        self, block_size: int | None, chunk_size: int | None, window: int | None
    ) -> tuple[int, int, int]:
        """Return the three, as configured where they are None, once they are checked."""
        block_size = self.config.block_size if block_size is None else block_size
        chunk_size = self.config.chunk_size if chunk_size is None else chunk_size
        window = self.config.window if window is None else window
        check_sizes(block_size, chunk_size, window)
        return block_size, chunk_size, window


def check_sizes(block_size: int, chunk_size: int, window: int) -> None:
    """Raise InvalidRequestError for sizes (bytes) or a window (chunks) that no file can have."""
    if block_size < 1 or window < 1:
        raise InvalidRequestError(f"block size {block_size}, window {window}: at least 1 is needed")
    if not 1 <= chunk_size <= MAX_CHUNK_BYTES:
        raise InvalidRequestError(f"chunk size {chunk_size}: 1 to {MAX_CHUNK_BYTES} bytes")
