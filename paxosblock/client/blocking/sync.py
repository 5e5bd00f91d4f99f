"""`Client`: the same as `AsyncClient`, for programs that do not run on asyncio.

Made by `make generate` from the asynchronous classes: change those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from paxosblock.api.namenode import BlockMember, BlockView, FileStatus, Listing
from paxosblock.api.ownership import AclStatus
from paxosblock.api.quota import QuotaUsage
from paxosblock.api.snapshot_calls import SnapshotDifference, SnapshotStatus
from paxosblock.api.status import ClusterRoom
from paxosblock.api.subtree import KEYS_MAX, ContentSummary, KeyListing, Summed
from paxosblock.api.transaction import Operation, TransactionOutcome
from paxosblock.api.user_tokens import ListedToken, TokenIssued, TokenRight
from paxosblock.api.watching import NameChange, NameChanges
from paxosblock.base.acl_entries import AclEntry
from paxosblock.base.checksum import Buffer
from paxosblock.base.paths import AnyPath
from paxosblock.base.replacement import WriteOptions
from paxosblock.client.block_verbs import AsyncBlockVerbs
from paxosblock.client.blocking.sync_base import ClientBase, Mirror
from paxosblock.client.blocking.sync_files import FileReaderBase, FileWriterBase
from paxosblock.client.check import BlockCheck
from paxosblock.client.copies.copy_steps import AT_ONCE, CopyStep, CopySummary, Sync
from paxosblock.client.datanode_verbs import AsyncDataNode
from paxosblock.client.names.as_of import When
from paxosblock.client.reading.file_checksum import FileChecksum
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.client.reading.length import Consistency
from paxosblock.client.reading.locations import BlockLocation
from paxosblock.protocol.messages import LastVote, ReadReply, Vote
from paxosblock.protocol.types import BlockId, ChunkIndex, Durability, Generation

if TYPE_CHECKING:
    from paxosblock.client.writing.file_writer import AsyncFileWriter
    from paxosblock.client.writing.receipt import FlushReceipt


class Client(ClientBase):
    """A client of one cluster: `with Client(url) as fs`.

    It may be used from several threads; one file object at a time from one. After a fork the child
    process gets connections of its own, but cannot use files that were opened before.

    Every method raises a `PaxosBlockError`; see `paxosblock.errors` for what each one tells.
    """

    @property
    def blocks(self) -> BlockVerbs:
        """The seed's own verbs, for blocks that belong to no file."""
        there = self._async.blocks
        return BlockVerbs(self, self._background, there)

    # -- files ----------------------------------------------------------------------------------

    def create(
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
    ) -> FileWriter:
        """Make a file and write it: `with fs.create(path) as out`.

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
        there = self._run(
            self._async.create,
            path,
            overwrite=overwrite,
            replication=replication,
            block_size=block_size,
            durability=durability,
            chunk_size=chunk_size,
            window=window,
            parent_must_exist=parent_must_exist,
            permission=permission,
            umask=umask,
            options=options,
            zone_of=zone_of,
        )
        return FileWriter(self, self._background, there)

    def append(
        self,
        path: AnyPath,
        *,
        chunk_size: int | None = None,
        window: int | None = None,
        new_block: bool = False,
        options: WriteOptions | None = None,
    ) -> FileWriter:
        """Go on with a closed file: `with fs.append(path) as out`.

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
        there = self._run(
            self._async.append,
            path,
            chunk_size=chunk_size,
            window=window,
            new_block=new_block,
            options=options,
        )
        return FileWriter(self, self._background, there)

    def open(
        self,
        path: AnyPath,
        mode: str = "rb",
        *,
        consistency: Consistency | str = Consistency.QUORUM,
        at: When | None = None,
    ) -> FileReader:
        """Read a file: `with fs.open(path) as f`.

        All that was acknowledged to any writer before this call is there, even if the file is still
        being written. If too few replicas of its last block answer for two seconds, only what is
        finalized can be read, and `undecided` of the reader says so (see `FileReader`).

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
        there = self._run(self._async.open, path, mode, consistency=consistency, at=at)
        return FileReader(self, self._background, there)

    def follow(
        self, path: AnyPath, offset: int = 0, *, past_close: bool = False
    ) -> Iterator[bytes]:
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
        return self._iterate(self._async.follow(path, offset, past_close=past_close))

    def wait_longer(self, path: AnyPath, size: int, timeout_s: float) -> bool:
        """Wait until a file has more than `size` bytes; False when it takes `timeout_s` or more.

        This is for programs that look at a file now and then; the members of its last block are
        asked to answer when they have more. Raises NotFoundError as `follow` does.
        """
        return self._run(self._async.wait_longer, path, size, timeout_s)

    def take_over(self, path: AnyPath) -> int:
        """Fence the writer of a file, close the file and return its size in bytes.

        Nothing that was acknowledged is lost; the old writer hears a FencedError. A file that is
        closed already stays as it is. (HDFS: recoverLease)
        """
        return self._run(self._async.take_over, path)

    def locations(
        self, path: AnyPath, offset: int = 0, size: int | None = None
    ) -> list[BlockLocation]:
        """Locate the blocks of a file that hold its bytes from `offset` on, at most `size`.

        Raises:
            InvalidRequestError: a negative offset or size.
            NotFoundError, IsDirectoryError: there is no file at `path`.
            UnavailableError: too few replicas of the last block answer to tell its length.
        """
        return self._run(self._async.locations, path, offset, size)

    # -- names ----------------------------------------------------------------------------------

    def stat(self, path: AnyPath, *, at: When | None = None) -> FileStatus:
        """Look a path up. `size` counts only finalized blocks while the file is `open`. `at`: as it
        was then, as for `open`; `path` of the answer is the one at which that is read."""
        return self._run(self._async.stat, path, at=at)

    def exists(self, path: AnyPath, *, at: When | None = None) -> bool:
        """True if there is a file or directory at `path`, or was `at` a time, as for `open`. It is
        not known, a NotFoundError, where no history of then is kept."""
        return self._run(self._async.exists, path, at=at)

    def ls(self, path: AnyPath, *, at: When | None = None) -> list[FileStatus]:
        """Return the entries of a directory in order of name; for a file, the file itself. `at`:
        as it was then, as for `open`; they have the paths at which that is read.

        They are the entries at one time, even where there are too many for one answer, unless names
        in the directory change faster than it can be listed.
        """
        return self._run(self._async.ls, path, at=at)

    def pages(self, path: AnyPath, after: str = "", *, one_state: bool = True) -> Iterator[Listing]:
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
        return self._iterate(self._async.pages(path, after, one_state=one_state))

    def walk(
        self, path: AnyPath, *, one_state: bool = False, at: When | None = None
    ) -> Iterator[FileStatus]:
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
        return self._iterate(self._async.walk(path, one_state=one_state, at=at))

    def content_summary(self, path: AnyPath, *, at: When | None = None) -> ContentSummary:
        """Count the files, directories and bytes at and below `path`, all at one moment; `at`: as
        it was then, as for `open`.

        Raises:
            NotFoundError: nothing is at `path`.
            PermissionDeniedError: a directory there may not be read.
        """
        return self._run(self._async.content_summary, path, at=at)

    def content_summaries(self, path: AnyPath, *, at: When | None = None) -> list[Summed]:
        """Return a `content_summary` of each entry of a directory, all at one moment, in order of
        name; for a file, of the file itself. `at` and what is raised are as there."""
        return self._run(self._async.content_summaries, path, at=at)

    def room(self) -> ClusterRoom:
        """Return the room of the cluster: the sum of the volumes of all live DataNodes."""
        return self._run(self._async.room)

    def list_keys(
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
        return self._run(
            self._async.list_keys,
            path,
            prefix=prefix,
            after=after,
            delimiter=delimiter,
            limit=limit,
        )

    def glob(self, pattern: AnyPath, *, at: When | None = None) -> list[FileStatus]:
        """Files and directories that match a pattern of `*`, `?`, `[a-z]`, `[!a]` and `{a,b}`, as
        Hadoop's, and of `**` for any number of directories; in order of path.

        A backslash takes the meaning of the next sign away. `at`: as it was then, as for `ls`.

        Raises:
            InvalidRequestError: braces or brackets that are not closed; `at` is no time.
            NotFoundError: no history of then is kept.
        """
        return self._run(self._async.glob, pattern, at=at)

    def mkdirs(
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
        return self._run(
            self._async.mkdirs,
            path,
            parents=parents,
            permission=permission,
            umask=umask,
            ttl_s=ttl_s,
        )

    def rename(
        self, source: AnyPath, destination: AnyPath, *, overwrite: bool = False
    ) -> FileStatus:
        """Move a file or directory in one step; `overwrite` replaces a file that is there.

        Raises:
            NotFoundError, ExistsError: no source; or a destination that is there already.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been moved.
        """
        return self._run(self._async.rename, source, destination, overwrite=overwrite)

    def delete(self, path: AnyPath, *, recursive: bool = False) -> bool:
        """Delete a file, or a directory (with all that is in it when `recursive`).

        Returns whether there was anything to delete.

        Raises:
            DirectoryNotEmptyError: the directory has entries and `recursive` is not set.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been deleted.
        """
        return self._run(self._async.delete, path, recursive=recursive)

    def concat(self, target: AnyPath, sources: Sequence[AnyPath]) -> FileStatus:
        """Move the blocks of closed files, in order, to the end of the closed file `target`.

        No byte is copied. The sources are gone afterwards. Readers of a source go on reading,
        unless it has so many blocks that they must still ask for some: they get NotFoundError then.

        Raises:
            NotFoundError, IsDirectoryError: one of them is not a file.
            LeaseError: one of them is being written.
            InvalidRequestError: no source, a file twice, or more than BLOCKS_MOVED_MAX blocks.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        return self._run(self._async.concat, target, sources)

    def set_replication(self, path: AnyPath, replication: int) -> FileStatus:
        """Let a file ask for another number of replicas of each block; return what it is then.

        Finalized blocks get replicas, or lose some, soon after; future blocks are placed
        accordingly. The one that a writer has open keeps its members until it is finalized.

        Raises:
            NotFoundError, IsDirectoryError: there is no file at `path`.
            InvalidRequestError: not from 1 to REPLICATION_MAX (`paxosblock.api.care`).
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        return self._run(self._async.set_replication, path, replication)

    def set_quota(
        self, path: AnyPath, *, names: int | None = None, space: int | None = None
    ) -> QuotaUsage:
        """Limit names and room of a directory (None: as it is, -1: no limit). Raises as `stat`."""
        return self._run(self._async.set_quota, path, names=names, space=space)

    def quota_usage(self, path: AnyPath) -> QuotaUsage:
        """Return the limits of what is at `path`, and what is used of them. Raises as `stat`."""
        return self._run(self._async.quota_usage, path)

    def set_permission(self, path: AnyPath, permission: int) -> FileStatus:
        """Give a file or directory other permission bits; return what it is then.

        Args:
            permission: from 0 to 0o1777; 0o1000 is the sticky bit.

        Raises:
            NotFoundError: there is nothing at `path`.
            InvalidRequestError: other bits.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        return self._run(self._async.set_permission, path, permission)

    def check_access(
        self, path: AnyPath, *, read: bool = False, write: bool = False, execute: bool = False
    ) -> None:
        """Return if the user may do all of this with a file or directory, as it is now.

        Raises:
            NotFoundError: there is nothing at `path`.
            PermissionDeniedError: the user may not do one of these, or not get there.
        """
        return self._run(self._async.check_access, path, read=read, write=write, execute=execute)

    def set_owner(
        self, path: AnyPath, owner: str | None = None, group: str | None = None
    ) -> FileStatus:
        """Give a file or directory another owner, group, or both; return what it is then.

        Raises:
            NotFoundError: there is nothing at `path`.
            InvalidRequestError: neither is given, or no user or group can be called so.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        return self._run(self._async.set_owner, path, owner, group)

    def set_attributes(
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
        return self._run(self._async.set_attributes, path, attributes, exist=exist)

    def get_attributes(
        self, path: AnyPath, *names: str, at: When | None = None
    ) -> dict[str, bytes]:
        """Return attributes of a file or directory: those of these names that it has, or all; `at`:
        those that it had then, as for `open`.

        Raises:
            NotFoundError: there is nothing at `path`.
            InvalidRequestError: no attribute is called so.
        """
        return self._run(self._async.get_attributes, path, *names, at=at)

    def stat_with_attributes(
        self, path: AnyPath, *names: str, at: When | None = None
    ) -> tuple[FileStatus, dict[str, bytes]]:
        """Return what is at a path and, of the same moment, attributes of it: as `stat` and
        `get_attributes`, in one call, and raising as the latter."""
        return self._run(self._async.stat_with_attributes, path, *names, at=at)

    def set_times(self, path: AnyPath, modified_s: float) -> FileStatus:
        """Say when a file or directory was changed last; return what it is then.

        Args:
            modified_s: seconds since the epoch, kept to the millisecond.

        Raises:
            NotFoundError: there is nothing at `path`.
            InvalidRequestError: a time that is not from 1970 to 9999.
            OutcomeUnknownError: no NameNode answered for `retry_for_s`; it may have been done.
        """
        return self._run(self._async.set_times, path, modified_s)

    # -- tokens of users ------------------------------------------------------------------------

    def issue_token(
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
        return self._run(
            self._async.issue_token,
            for_s,
            rights,
            purpose=purpose,
            user=user,
            groups=groups,
            again=again,
        )

    def tokens(self) -> tuple[ListedToken, ...]:
        """Return the user's tokens that have not ended; for a superuser those of all users."""
        return self._run(self._async.tokens)

    def revoke_token(self, serial: int) -> None:
        """Let no node believe a token any more.

        Raises:
            NotFoundError: there is none of this user's with that serial that has not ended.
            AccessDeniedError: the client came with another token, without the right `ADMIN`.
        """
        return self._run(self._async.revoke_token, serial)

    # -- access control lists -------------------------------------------------------------------

    def get_acl_status(self, path: AnyPath, *, at: When | None = None) -> AclStatus:
        """Return who may do what with a file or directory; `at`: who might then, as for `open`.
        Raises NotFoundError."""
        return self._run(self._async.get_acl_status, path, at=at)

    def set_acl(self, path: AnyPath, entries: str | Iterable[AclEntry]) -> FileStatus:
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
        return self._run(self._async.set_acl, path, entries)

    def modify_acl_entries(self, path: AnyPath, entries: str | Iterable[AclEntry]) -> FileStatus:
        """Add entries to an access control list, or replace those for the same users.

        The mask becomes what all these users may do together, unless an entry says what it is.
        Arguments and errors are those of `set_acl`.
        """
        return self._run(self._async.modify_acl_entries, path, entries)

    def remove_acl_entries(self, path: AnyPath, entries: str | Iterable[AclEntry]) -> FileStatus:
        """Remove entries of an access control list, which a text names without permissions:
        "user:bob,default:group:dev". Errors are those of `set_acl`.
        """
        return self._run(self._async.remove_acl_entries, path, entries)

    def remove_default_acl(self, path: AnyPath) -> FileStatus:
        """Remove all default entries of a directory. Errors are those of `set_acl`."""
        return self._run(self._async.remove_default_acl, path)

    def remove_acl(self, path: AnyPath) -> FileStatus:
        """Remove an access control list, so that the permission bits alone count. Errors are those
        of `set_acl`.
        """
        return self._run(self._async.remove_acl, path)

    # -- transactions ---------------------------------------------------------------------------

    def transact(
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
        return self._run(self._async.transact, ops, once=once, keep_for_s=keep_for_s)

    def truncate(self, path: AnyPath, size: int) -> FileStatus:
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
        return self._run(self._async.truncate, path, size)

    def checksum(self, path: AnyPath, *, at: When | None = None) -> FileChecksum:
        """Return the checksum of a file as HDFS has it: the MD5 of the MD5s of its blocks' CRC32Cs
        of 512 bytes each. All bytes are read, and checked on the way. `at` is as for `open`.

        Raises:
            NotFoundError, IsDirectoryError: there is no file at `path`.
            TruncatedError: it was truncated meanwhile.
        """
        return self._run(self._async.checksum, path, at=at)

    def transaction_status(self, app_id: str) -> int | None:
        """Return the last applied version of an application, None when none is remembered."""
        return self._run(self._async.transaction_status, app_id)

    def put_many(
        self,
        files: Mapping[str, Buffer]
        | Mapping[os.PathLike[str], Buffer]
        | Iterable[tuple[AnyPath, Buffer]],
        *,
        overwrite: bool = False,
        replication: int | None = None,
        block_size: int | None = None,
        durability: Durability | str | None = None,
        chunk_size: int | None = None,
        window: int | None = None,
        permission: int = 0o666,
        umask: int | None = None,
        options: WriteOptions | None = None,
        publication: Callable[[str, FileStatus], Sequence[Operation]] | None = None,
    ) -> int:
        """Write many small files, and the directories above them; return how many there were.

        They are written in batches, a few at a time, of up to 24 files; a batch costs the NameNode
        two changes, and all of its files appear under their names in one step. So each file is
        there with all of its bytes or not at all, whatever fails.

        Args:
            files: the bytes of each, by its path; a path comes once. What yields them is asked for
                more on the client's event loop when there is room: it must not call a `Client`.
            overwrite: replace files that are there.
            publication: gets the path of each and its status under a hidden name, and tells what
                `transact` does in place of a rename to the path and of the directories above.

            The rest is as for `create`.

        Raises:
            ExistsError: a file is there and `overwrite` is not set; none of its batch is published.
            OutcomeUnknownError, DeadlineError: all files of a batch are published, or none.
            PaxosBlockError: as `create`, the writer and `transact` raise it. After any error no
                further batch begins, and `published` of its `details` counts the files that are
                known to be published.
        """
        return self._run(
            self._async.put_many,
            files,
            overwrite=overwrite,
            replication=replication,
            block_size=block_size,
            durability=durability,
            chunk_size=chunk_size,
            window=window,
            permission=permission,
            umask=umask,
            options=options,
            publication=publication,
        )

    def upload(
        self,
        local: str | os.PathLike[str],
        path: AnyPath,
        *,
        overwrite: bool = False,
        preserve: str = "",
        sync: Sync | None = None,
        directly: bool = False,
        at_once: int = AT_ONCE,
        replication: int | None = None,
        durability: Durability | str | None = None,
        options: WriteOptions | None = None,
        told: Callable[[CopyStep], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> CopySummary:
        """Copy a local file, or a directory with all that is in it, to be what is at `path`.

        Each file appears under its name when it is complete. A directory that is there gets what is
        in the local one, beside what it has. Links to directories are not followed.

        Args:
            overwrite: replace files that are there.
            preserve: letters of what copies keep, as of `hdfs dfs -cp -p`: t, times; o, owner and
                group; p, permission; and a, access control list, x, attributes, of files of the
                cluster.
            sync: copy only what differs; `overwrite` goes without saying.
            directly: write to the names themselves, so that others can follow files as they grow.
            at_once: files, or batches of small ones, that are under way side by side.
            replication, durability, options: as for `create`.
            told: hears of each file and directory, and of errors, on the client's event loop: it
                must not call a `Client`. Without it the first error is raised when all is done.
            progress: hears, there too, of bytes that were copied, 0 where something else was done.

        Raises:
            FileNotFoundError, OSError: there is no such local file, or it cannot be read.
            ExistsError: a file is there that may not be replaced, or it would have to be a
                directory.
            IsDirectoryError: a directory is there where a file should be.
            InvalidRequestError: with `sync`, a local file was changed while it was copied.
            Others: as `create` and `transact`.
        """
        return self._run(
            self._async.upload,
            local,
            path,
            overwrite=overwrite,
            preserve=preserve,
            sync=sync,
            directly=directly,
            at_once=at_once,
            replication=replication,
            durability=durability,
            options=options,
            told=told,
            progress=progress,
        )

    def download(
        self,
        path: AnyPath,
        local: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        preserve: str = "",
        sync: Sync | None = None,
        at_once: int = AT_ONCE,
        told: Callable[[CopyStep], None] | None = None,
        progress: Callable[[int], None] | None = None,
        at: When | None = None,
    ) -> CopySummary:
        """Copy a file, or a directory with all that is in it, to this machine, to be `local`.

        Arguments and errors are those of `upload`, with the places exchanged; and those of `open`.
        """
        return self._run(
            self._async.download,
            path,
            local,
            overwrite=overwrite,
            preserve=preserve,
            sync=sync,
            at_once=at_once,
            told=told,
            progress=progress,
            at=at,
        )

    def copy(
        self,
        source: AnyPath,
        path: AnyPath,
        *,
        overwrite: bool = False,
        preserve: str = "",
        sync: Sync | None = None,
        directly: bool = False,
        at_once: int = AT_ONCE,
        told: Callable[[CopyStep], None] | None = None,
        progress: Callable[[int], None] | None = None,
        at: When | None = None,
    ) -> CopySummary:
        """Copy a file, or a directory with all that is in it, within the cluster, to be `path`.

        Bytes go through this client. A copy has the replication, block size and durability of its
        original. Arguments and errors are those of `upload`, and of `open`; the directory above
        `path` must be there, and a directory cannot be copied into itself.
        """
        return self._run(
            self._async.copy,
            source,
            path,
            overwrite=overwrite,
            preserve=preserve,
            sync=sync,
            directly=directly,
            at_once=at_once,
            told=told,
            progress=progress,
            at=at,
        )

    # -- snapshots ------------------------------------------------------------------------------

    def create_snapshot(self, path: AnyPath, name: str = "") -> str:
        """Take a snapshot of a directory; return the path, `path/.snapshot/name`, at which what is
        below it now can be read. `name` "": HDFS's name for this time. Nothing is copied, and what
        is deleted from now on keeps its room. Of a file that is being written it shows what the
        last close left, and blocks that others follow.

        Raises NotFoundError, NotDirectoryError, ExistsError, PermissionDeniedError.
        """
        return self._run(self._async.create_snapshot, path, name)

    def delete_snapshot(self, path: AnyPath, name: str) -> None:
        """Delete a snapshot of a directory. Raises NotFoundError, PermissionDeniedError."""
        return self._run(self._async.delete_snapshot, path, name)

    def rename_snapshot(self, path: AnyPath, name: str, new_name: str) -> None:
        """Rename a snapshot. Raises NotFoundError, ExistsError, PermissionDeniedError."""
        return self._run(self._async.rename_snapshot, path, name, new_name)

    def list_snapshots(self, path: AnyPath) -> tuple[SnapshotStatus, ...]:
        """Return the snapshots of a directory, the oldest first. Raises NotFoundError."""
        return self._run(self._async.list_snapshots, path)

    def snapshot_diff(
        self, path: AnyPath, before: str, later: str = ""
    ) -> list[SnapshotDifference]:
        """Return what differs in a directory between two of its snapshots, in HDFS's order; "" is
        what is there now.

        Raises NotFoundError, NotDirectoryError, PermissionDeniedError.
        """
        return self._run(self._async.snapshot_diff, path, before, later)

    def kept_room(self, path: AnyPath, name: str) -> int:
        """Return the bytes on DataNodes that would be free if a snapshot went: all replicas of
        blocks that nothing shows but it, as far as what was deleted has been swept, behind the
        scenes. Raises NotFoundError, PermissionDeniedError."""
        return self._run(self._async.kept_room, path, name)

    # -- history --------------------------------------------------------------------------------

    def as_of(self, at: When) -> str:
        """Return the path below which the whole cluster is read as it was at a time, where the
        NameNodes keep a history: `fs.open(fs.as_of("2h") + "/table/part-0")`. It names a revision,
        so all that is read there is of one moment.

        Args:
            at: as for `open`; what was changed in the second before may be in it.

        Raises:
            NotFoundError: no history is kept, or it begins later.
            InvalidRequestError: it is no time, or has not come yet.
        """
        return self._run(self._async.as_of, at)

    def undelete(self, path: AnyPath) -> FileStatus:
        """Bring back what was removed last under a path, with all that was below it, where the
        NameNodes keep a history. Nothing is copied, however much it is.

        Raises:
            NotFoundError: nothing of this name was removed in the history that is kept, or the
                directory above is not there.
            ExistsError: something is there.
            InvalidRequestError: no history is kept; or it was renamed, its blocks are in another
                file, it was being written, or a quota would have to count it first.
            PermissionDeniedError: it was another user's, or the directory above is not writable.
        """
        return self._run(self._async.undelete, path)

    def watch(
        self, path: AnyPath, *, after: int | None = None, listed: bool = False
    ) -> Iterator[NameChange]:
        """Yield each change of names at `path` and below it, once and in order, without end.

        Changes with one revision happened at one moment: who keeps a copy of the names takes away
        first what was removed or renamed, the deepest first. A program that lists something
        (`Listing` and `KeyListing` tell the revision) and watches `after` that revision misses
        nothing and hears nothing twice, whichever NameNodes fail meanwhile. Nothing need be at
        `path`. What the user may not list is not told.

        Args:
            after: the revision behind which to begin; None: what is changed from the first step of
                the iteration on.
            listed: yield first what is there, as `ChangeKind.LISTED`; a gap is then a change of
                the kind `GAP`, behind which all that is there is listed again.

        Raises:
            GapError: changes behind `after` are no longer known: list again, and go on from there.
            InvalidRequestError: `after` is no revision yet; `after` and `listed` are both given.
            UnavailableError: no NameNode answered for `retry_for_s`.
        """
        return self._iterate(self._async.watch(path, after=after, listed=listed))

    def changes(
        self, path: AnyPath, after: NameChanges | int | None = None, *, wait_s: float = 0.0
    ) -> NameChanges:
        """Return some of the changes that `watch` yields, for a program that asks now and then.

        Args:
            after: the answer, or the revision, behind which to go on; None: tell only the place
                behind all changes that were made before this call.
            wait_s: how long to wait for a change if there is none yet; at most half of the
                client's `rpc_timeout_s`.

        Raises:
            GapError: changes behind `after` are no longer known: list again, and go on from there.
            InvalidRequestError: `after` is no revision yet.
            UnavailableError: no NameNode answered for `retry_for_s`.
        """
        return self._run(self._async.changes, path, after, wait_s=wait_s)


class BlockVerbs(Mirror[AsyncBlockVerbs]):
    """Blocks without files: `AddBlock`, `FinalizeBlock` and `GetBlock` of the seed, at `fs.blocks`.

    The client may write and finalize the blocks that it adds. Its lease is kept as those of files
    are: the NameNode ends the blocks of a client that is gone.
    """

    def add(
        self,
        replication: int | None = None,
        durability: Durability | str | None = None,
        window: int | None = None,
    ) -> BlockView:
        """AddBlock(): a new block that belongs to no file; this client may write it (K1, W1).

        When this client is gone and its lease is over, the NameNode ends the block with what was
        acknowledged. The block stays until `delete`. Every member has an empty replica when this
        returns (see `datanode` for writing). What is None is taken from the client's settings.

        Raises:
            NoSpaceError: too few DataNodes.
            UnavailableError: a member took no replica; the block is finalized, empty.
            OutcomeUnknownError: no NameNode answered in time; an unused block may be there.
        """
        return self._run(self._async.add, replication, durability, window)

    def delete(self, block: BlockId) -> bool:
        """Delete a block that belongs to no file, ended or not; False when there is none (any
        more).

        Raises InvalidRequestError when it belongs to a file.
        """
        return self._run(self._async.delete, block)

    def finalize(self, block: BlockId, length: int | None = None) -> BlockView:
        """FinalizeBlock(b, length in chunks) by its writer, or FinalizeBlock(b): a recovery (K6,
        K11). The view's record has the length that was decided.

        Raises:
            FencedError: a recovery decided another length, or the block has another writer.
            InvalidRequestError: not all members say that they hold exactly that many chunks.
        """
        return self._run(self._async.finalize, block, length)

    def get(self, block: BlockId) -> BlockView:
        """GetBlock(b): its record, linearizable, and the addresses of its members (K10).

        Raises NotFoundError when there is no such block.
        """
        return self._run(self._async.get, block)

    def check(self, block: BlockId) -> BlockCheck:
        """Read and compare the whole of every replica of a finalized block, of a file or not.

        Damaged replicas are reported to the NameNode, which has them copied again from sound ones.

        Raises:
            NotFoundError: there is no such block.
            NotReadyError: its length is not decided yet.
        """
        return self._run(self._async.check, block)

    def datanode(self, member: BlockMember) -> DataNode:
        """`write`, `read` and `next_gs` on the DataNode of one member of a block's view."""
        there = self._async.datanode(member)
        return DataNode(self, self._background, there)


class DataNode(Mirror[AsyncDataNode]):
    """`Write`, `Read` and `NextGS` of the seed, to one DataNode; see `fs.blocks.datanode`."""

    @property
    def member(self) -> BlockMember:
        """Return the storage, and where it is reached."""
        return self._async.member

    def write(
        self,
        block: BlockId,
        generation: Generation,
        index: ChunkIndex,
        data: Buffer,
        *,
        sync: bool = False,
    ) -> Vote:
        """Write(b, gs, c, data): propose one chunk to this DataNode alone, and return its vote.

        The chunk is acknowledged when every member has voted for the same bytes. A repeated write
        of the same bytes gets the same vote (D2).

        Raises:
            FencedError: a higher generation was promised.
            AccessDeniedError: no capability to write the block came with this member.
            InvalidRequestError: not the next chunk, or too long for one.
            CorruptionError: the chunk has other bytes already.
            DeadlineError, OutcomeUnknownError: no vote came; there may be one.
        """
        return self._run(self._async.write, block, generation, index, data, sync=sync)

    def state(self, block: BlockId) -> ReadReply:
        """Return the registers of the replica. Raises NotFoundError when there is none here."""
        return self._run(self._async.state, block)

    def read(
        self, block: BlockId, offset: int = 0, max_length: int = -1
    ) -> tuple[Generation, bytes]:
        """Read(b, offset, max_length): the highest generation promised, and bytes of the replica.

        What one replica holds is a vote, not a decision: only a reader that asks a quorum
        (`Client.open`) knows what will stay. A replica that may have lost votes reports none.

        Raises:
            InvalidRequestError: a negative offset.
            NotFoundError: there is no replica here.
            CorruptionError: its bytes do not match their checksum; the NameNode hears of it.
            UnavailableError, DeadlineError: no answer.
        """
        return self._run(self._async.read, block, offset, max_length)

    def next_gs(self, block: BlockId, generation: Generation) -> LastVote:
        """NextGS(b, gs): make the replica promise a generation, and return its last vote.

        This fences the block's writer. It is what the NameNode does in a recovery. Only the
        NameNode may allocate generations, so a caller that invents one gets in the way of the next
        recovery.

        Raises:
            FencedError: it promised a higher one already.
        """
        return self._run(self._async.next_gs, block, generation)


class FileReader(FileReaderBase):
    """A file as it was when it was opened; made by `Client.open`.

    Its length is linearizable: everything that was flushed before `open` was called is there. What
    is written later is not (see `Client.follow`). While its length is `undecided`, `size` waits for
    it, and so does what needs it, for the client's `retry_for_s`; then it raises UnavailableError.

    Iterating gives lines, as with any Python file; `pieces` gives the bytes as they come.
    """

    _async: AsyncFileReader

    @property
    def undecided(self) -> str:
        """Return why the file's length is not known, "" when it is known."""
        return self._async.undecided

    @property
    def decided_size(self) -> int:
        """Return how many bytes can be read for sure: `size`, unless the length is `undecided`."""
        return self._async.decided_size

    def decide(self, offset: int | None = None) -> int:
        """Return the length of the file in bytes; wait for it if it is `undecided`. With an
        `offset`, wait only until it is decided whether the file has that byte.

        Raises:
            UnavailableError: too few replicas of the last block answered for `retry_for_s`.
            NotFoundError: the file was deleted or replaced meanwhile.
        """
        return self._run(self._async.decide, offset)

    def pread(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` on, fewer only at the end; the position stays.

        Raises:
            InvalidRequestError: a negative offset or size.
            Others: as `read`; a range whose end is `undecided` gives nothing.
        """
        return self._run(self._async.pread, offset, size)


class FileWriter(FileWriterBase):
    """A file that this client writes; made by `Client.create` and `Client.append`.

    What was written is safe once `hflush`, `hsync` or `close` has returned. `write` may return
    while its chunk is still on its way to the other thread: an error of it is raised by the next
    call. Leaving `with` by an exception calls `abort`, which drops what was not flushed.
    """

    _async: AsyncFileWriter

    @property
    def acknowledged(self) -> int:
        """Bytes of the file that no failure can take away."""
        return self._async.acknowledged

    @property
    def fewest_replicas(self) -> int:
        """Members of the block that has the fewest; what was asked for while there is no block.

        A file is written with fewer than that when the cluster has no more DataNodes for it; as
        soon as it has, the file goes on in a new block, or its block is rebuilt with them.
        """
        return self._async.fewest_replicas

    @property
    def shortfall(self) -> str:
        """Return why the block that has the fewest members got no more; "" when none was short."""
        return self._async.shortfall

    def hflush(self) -> FlushReceipt:
        """Wait until all replicas voted for everything written: every reader will see it (W3).

        Raises: as `write`.
        """
        return self._run(self._async.hflush)

    def hsync(self) -> FlushReceipt:
        """Like `hflush`, and everything written is on stable storage at all replicas.

        With durability `memory` the last chunk asks for it; if nothing is buffered, an empty chunk
        does. Blocks that were closed before count once a majority of their members finalized
        them, which implies stable storage. A block that a recovery ended counts at once: the
        recovery's quorum had it on stable storage before its length was decided (D4).

        Raises: as `write`.
        """
        return self._run(self._async.hsync)
