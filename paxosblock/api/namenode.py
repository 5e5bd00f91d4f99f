"""Calls to the NameNode about files, blocks and leases (`api/reports.py`: what DataNodes report).

Each call is a request struct, an answer struct and a `Method` that names them.
"""

from __future__ import annotations

import enum

import msgspec

from paxosblock.api.methods import Done, Method, Once
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import (
    NO_WRITER,
    BlockId,
    Durability,
    Generation,
    StorageId,
    WriterId,
)
from paxosblock.rack import FAR_AWAY
from paxosblock.replacement import Failed
from paxosblock.transaction import Operation, TransactionOutcome

NO_BLOCK = BlockId(0)
NO_FILE = 0


class Kind(enum.Enum):
    """The kind of thing that a path names."""

    FILE = "file"
    DIRECTORY = "directory"


class FileStatus(msgspec.Struct, frozen=True):
    """A file or directory as `stat` and `list` show it.

    `length` counts finalized blocks only while `open` (the file is being written); a reader learns
    the rest from the DataNodes. Times are milliseconds since the epoch; `expires_ms` is when a
    directory and all below it will be deleted, 0 for never. `truncations` is how often a file was
    truncated: as long as it stays, bytes that were read once are what they were.
    """

    path: str
    kind: Kind
    file_id: int
    length: int
    replication: int
    block_size: int
    durability: Durability
    open: bool
    modified_ms: int
    created_ms: int
    owner: str
    group: str
    permission: int
    expires_ms: int = 0
    truncations: int = 0

    @property
    def name(self) -> str:
        """The last part of `path`; "" for the root."""
        return self.path.rpartition("/")[2]


class Member(msgspec.Struct, frozen=True):
    """One storage of a block's config and where it is reached; `address` is "" while unknown.

    `rack` is its DataNode's, "" while unknown; `distance` is how far that is from the client
    (`rack.distance`).
    """

    storage: StorageId
    node: str
    address: str
    live: bool
    rack: str = ""
    distance: int = FAR_AWAY


class BlockView(msgspec.Struct, frozen=True):
    """A block's record (linearizable) with its members' addresses (soft state).

    `offset` is where the block starts in its file, in bytes. `complete` says that at least
    min_replication members reported the finalized version. `shortfall` says in words, for the
    writer of a block that was just placed, why it has fewer members than were asked for.
    """

    record: BlockRecord
    members: tuple[Member, ...]
    offset: int = 0
    complete: bool = False
    shortfall: str = ""


# --- namespace -----------------------------------------------------------------------------------


class MakeDirectories(msgspec.Struct, frozen=True):
    """`mkdir`; with `parents` missing ancestors are made and an existing directory is fine.

    With `ttl_s` the directory lives that many seconds from now on, even if it existed already.
    """

    path: str
    parents: bool = True
    permission: int = 0o755
    owner: str = ""
    ttl_s: float | None = None
    once: Once | None = None


class FirstBlock(msgspec.Struct, frozen=True):
    """A wish for the block that a file begins with; `window` and `host` are as in AddBlock."""

    window: int
    host: str = ""


class CreateFile(msgspec.Struct, frozen=True):
    """Make an empty file that `writer` may write; its lease starts.

    With `first` a block is made ahead with it (`AddBlock`), for a file that is written at once: it
    becomes the file's when CloseFile says how it ends.
    """

    path: str
    writer: WriterId
    overwrite: bool
    replication: int
    block_size: int
    durability: Durability
    parent_must_exist: bool = False
    permission: int = 0o644
    owner: str = ""
    once: Once | None = None
    first: FirstBlock | None = None


class CreatedFile(msgspec.Struct, frozen=True):
    """A file that was made, and the block made ahead with it.

    None: nobody asked for one, or there are too few DataNodes now. AddBlock says which.
    """

    status: FileStatus
    first: BlockView | None = None


class AppendFile(msgspec.Struct, frozen=True):
    """Open a closed file again, for `writer` to add blocks at its end; its lease starts.

    With a `window` the NameNode begins at once to open the last block again for it, if that was
    written with such a window and has fewer than `chunks`: `ReopenBlock` is to follow.
    """

    path: str
    writer: WriterId
    window: int = 0
    chunks: int = 0


class Appendable(msgspec.Struct, frozen=True):
    """A file that was opened again, and its last block: `previous` of the first `AddBlock`."""

    status: FileStatus
    last: BlockId


class PathRequest(msgspec.Struct, frozen=True):
    """A call about one path."""

    path: str


class ListDirectory(msgspec.Struct, frozen=True):
    """Entries of a directory in order of name, after `after`, at most `limit`."""

    path: str
    after: str = ""
    limit: int = 1000


class Listing(msgspec.Struct, frozen=True):
    """One page; `more` says that another follows. For a file it is the file itself.

    `revision` is the last change of the namespace that the page shows; whatever appears in the
    directory later was linked after it. `linked` gives for each entry the change that gave it this
    name (made it or moved it here), not changes of the file. Pages that agree in the id of the
    `directory` and in the last change of what names it has, `changed`, are parts of one state of
    it.
    """

    entries: tuple[FileStatus, ...]
    more: bool
    revision: int = 0
    linked: tuple[int, ...] = ()
    directory: int = 0
    changed: int = 0

    @property
    def next_after(self) -> str | None:
        """`after` of the request for the next page; None when this is the last one."""
        return self.entries[-1].name if self.more and self.entries else None


class Rename(msgspec.Struct, frozen=True):
    """Move a file or directory; `overwrite` replaces an existing file (atomically)."""

    source: str
    destination: str
    overwrite: bool = False
    once: Once | None = None


class DeletePath(msgspec.Struct, frozen=True):
    """Delete a file, or a directory (with what is in it when `recursive`).

    With a `file_id`, only if the path has that id: something else that is there by now stays.
    """

    path: str
    recursive: bool = False
    once: Once | None = None
    file_id: int = NO_FILE


class Deletion(msgspec.Struct, frozen=True):
    """True if there was anything to delete."""

    existed: bool


class TakeOver(msgspec.Struct, frozen=True):
    """Fence the writer of a file, finalize its last block, close it (HDFS: recoverLease)."""

    path: str


class ConcatFiles(msgspec.Struct, frozen=True):
    """Move the blocks of closed files to the end of a closed file; the sources are gone then."""

    target: str
    sources: tuple[str, ...]
    once: Once | None = None


# --- transactions --------------------------------------------------------------------------------


class ApplicationVersion(msgspec.Struct, frozen=True):
    """Makes a transaction idempotent: applied only if `version` is the highest of `app_id` so far.

    `attempt` names the caller's one request: a copy of it gets the answer that it was applied.
    `keep_for_s` is how long the version is remembered; None: for ever.
    """

    app_id: str
    version: int
    attempt: str
    keep_for_s: float | None = None


class Transact(msgspec.Struct, frozen=True):
    """Apply all operations in one step, or none. The rest is for the files and directories made."""

    operations: tuple[Operation, ...]
    replication: int
    block_size: int
    durability: Durability
    owner: str = ""
    application: ApplicationVersion | None = None
    once: Once | None = None


class ApplicationRequest(msgspec.Struct, frozen=True):
    """Ask for the version of an application that was applied last."""

    app_id: str


class ApplicationAnswer(msgspec.Struct, frozen=True):
    """The last version applied; None when none was, or it has been forgotten."""

    version: int | None


# --- files being written, blocks -----------------------------------------------------------------


class Excluded(msgspec.Struct, frozen=True):
    """A storage that failed this writer `ago_s` seconds ago.

    Its DataNode is left out until the NameNode has heard from it since then, and while it is
    `resting` in any case; after that it is taken where others are missing. One that has registered
    since then is a new process, and is taken like any other.
    """

    storage: StorageId
    ago_s: float
    resting: bool = False


class AddBlock(msgspec.Struct, frozen=True):
    """K1. `file_id` NO_FILE makes a block without a file, for embedders.

    `previous` is the file's last block as the writer knows it (NO_BLOCK for the first): a repeated
    request after a lost reply gets the block that was added then. `host` is the writer's machine:
    the first replica goes to a DataNode there, if there is one; "" for nowhere near. `after` is the
    block before, which failed, where the writer has a policy for that; None: like any other block.

    A block made `ahead` is the file's when FinalizeBlock of the block before it says so; there is
    one at a time, and without that it goes with the next AddBlock, or with the close of the file.
    """

    file_id: int
    writer: WriterId
    previous: BlockId
    window: int
    excluded: tuple[Excluded, ...] = ()
    replication: int = 3
    durability: Durability = Durability.DISK
    once: Once | None = None
    host: str = ""
    after: Failed | None = None
    ahead: bool = False


class ReopenBlock(msgspec.Struct, frozen=True):
    """K4, K7: let the writer of a file go on in `block`, its last one, which is finalized.

    It is left alone unless it has room for a chunk of `size_bytes`, and has fewer than `chunks`.
    The answer to a repeated request is what the first one installed. The rest is as in AddBlock.
    """

    file_id: int
    writer: WriterId
    block: BlockId
    window: int
    size_bytes: int
    chunks: int
    excluded: tuple[Excluded, ...] = ()


class Reopened(msgspec.Struct, frozen=True):
    """The block as it was granted to the writer; None: it is left alone, for the reason `why`."""

    view: BlockView | None
    why: str = ""


class FinalizeBlock(msgspec.Struct, frozen=True):
    """K6: FinalizeBlock(b, length) by the writer of `generation`; `length` in chunks.

    `following` is the block that was made ahead (`AddBlock`): it follows in the same step.
    """

    block: BlockId
    writer: WriterId
    generation: Generation
    length: int
    size_bytes: int
    following: BlockId = NO_BLOCK


class BlockRequest(msgspec.Struct, frozen=True):
    """A call about one block by `writer` ("" for a reader), on the machine `host`."""

    block: BlockId
    writer: WriterId = NO_WRITER
    host: str = ""


class DeleteBlock(msgspec.Struct, frozen=True):
    """Delete a block that belongs to no file, whether it is ended or not."""

    block: BlockId
    once: Once | None = None


class CloseFile(msgspec.Struct, frozen=True):
    """End the writing of a file; the answer comes when every block is complete.

    `last` ends its last block in the same step (K6), None where that is ended already. For a file
    that has no block yet it may be the one that was made with it (`CreateFile.first`). An error
    after that step, which says that too few members have reported the block, changes nothing: the
    file is closed, and the request may be repeated.
    """

    file_id: int
    writer: WriterId
    last: FinalizeBlock | None = None


class OpenBlock(msgspec.Struct, frozen=True):
    """A block of a file that its writer has open; `short`: with fewer members than it asked for."""

    block: BlockId
    short: bool = False
    excluded: tuple[Excluded, ...] = ()


class RenewLeases(msgspec.Struct, frozen=True):
    """Keep the leases of these writers; sent well within the soft limit.

    `open_blocks` asks which of them their writers should leave for another one.
    """

    writers: tuple[WriterId, ...]
    open_blocks: tuple[OpenBlock, ...] = ()


class Renewed(msgspec.Struct, frozen=True):
    """`lost` are writers among them that hold no lease any more: they were fenced or closed.

    `roll` are open blocks to be followed by another one now: that would get more members (HDFS-
    6867), or as many, none of them on a DataNode that is asked to leave.
    """

    lost: tuple[WriterId, ...]
    roll: tuple[BlockId, ...] = ()


class BadReplica(msgspec.Struct, frozen=True):
    """A reader or DataNode found bytes that do not match their checksum."""

    block: BlockId
    storage: StorageId
    reason: str


MKDIRS = Method("mkdirs", MakeDirectories, FileStatus)
CREATE = Method("create", CreateFile, CreatedFile)
APPEND = Method("append", AppendFile, Appendable)
STAT = Method("stat", PathRequest, FileStatus, any_namenode=True)
LIST = Method("list", ListDirectory, Listing, any_namenode=True)
RENAME = Method("rename", Rename, FileStatus)
DELETE = Method("delete", DeletePath, Deletion)
CONCAT = Method("concat", ConcatFiles, FileStatus)
TRANSACT = Method("transact", Transact, TransactionOutcome)
APPLICATION = Method("application", ApplicationRequest, ApplicationAnswer, any_namenode=True)
TAKE_OVER = Method("take_over", TakeOver, FileStatus)
ADD_BLOCK = Method("add_block", AddBlock, BlockView)
REOPEN_BLOCK = Method("reopen_block", ReopenBlock, Reopened)
FINALIZE_BLOCK = Method("finalize_block", FinalizeBlock, BlockView)
SEAL_BLOCK = Method("seal_block", BlockRequest, BlockView)
DELETE_BLOCK = Method("delete_block", DeleteBlock, Deletion)
GET_BLOCK = Method("get_block", BlockRequest, BlockView)
CLOSE_FILE = Method("close_file", CloseFile, FileStatus)
RENEW_LEASES = Method("renew_leases", RenewLeases, Renewed)
REPORT_BAD_REPLICA = Method("report_bad_replica", BadReplica, Done)
