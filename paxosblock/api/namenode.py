"""Calls to the NameNode about files, blocks and leases (`api/reports.py` has those of DataNodes).

Each call is a request struct, an answer struct and a `Method` that names them.
"""

from __future__ import annotations

import enum

import msgspec

from paxosblock.api.capability import Signed
from paxosblock.api.encryption import DataKey
from paxosblock.api.methods import Done, Method, Once
from paxosblock.api.transaction import Operation, TransactionOutcome
from paxosblock.base.paths import is_path
from paxosblock.base.rack import FAR_AWAY
from paxosblock.base.replacement import Failed
from paxosblock.base.units import MIB
from paxosblock.errors import ProtocolError
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import (
    NO_WRITER,
    BlockId,
    Durability,
    Generation,
    StorageId,
    WriterId,
)

NO_BLOCK = BlockId(0)
NO_FILE = 0


class Kind(enum.Enum):
    """The kind of thing that a path names."""

    FILE = "file"
    DIRECTORY = "directory"


class FileStatus(msgspec.Struct, frozen=True):
    """A file or directory as `stat` and `list` show it.

    While a file is `open` (being written), `size` counts the bytes of its finalized blocks only; a
    reader learns the rest from the DataNodes. Times are seconds since the epoch. A directory and
    all below it are deleted at `expires_s`, 0 for never. `truncations` counts how often the file
    was truncated: while it stays the same, bytes that were read once do not change. With `has_acl`
    there are entries that the permission does not tell (`Client.get_acl_status`). `encrypted`: it
    is in an encryption zone, and clients encrypt what DataNodes hold of it.
    """

    path: str
    kind: Kind
    file_id: int
    size: int
    replication: int
    block_size: int
    durability: Durability
    open: bool
    modified_s: float
    created_s: float
    owner: str
    group: str
    permission: int
    expires_s: float = 0
    truncations: int = 0
    has_acl: bool = False
    encrypted: bool = False

    def __post_init__(self) -> None:
        # Programs make names of local files of these, and a NameNode may be a stranger's.
        if not is_path(self.path):
            raise ValueError(f"{self.path!r} is no path")

    @property
    def name(self) -> str:
        """The last part of `path`; "" for the root."""
        return self.path.rpartition("/")[2]


class BlockMember(Signed, frozen=True, omit_defaults=True):
    """One storage of a block's configuration; `address` is that of its DataNode, "" while unknown.

    `rack` is that of the DataNode, "" while unknown; `distance` is its distance from the client
    (`rack.distance`). The `capability` (`capability.py`) lets the caller read the block there, or
    write it; b"" if the DataNodes ask for none.
    """

    storage: StorageId
    node: str
    address: str
    live: bool
    rack: str = ""
    distance: int = FAR_AWAY
    capability: bytes = b""


class BlockView(msgspec.Struct, frozen=True):
    """A block's record (linearizable) with its members' addresses (soft state).

    The block starts at byte `offset` of its file. `complete` says that at least min_replication
    members reported the finalized version. `shortfall` tells the writer of a block that was just
    placed why it has fewer members than were asked for, `trouble` a reader how long a block has
    been under recovery, and why. To each of its chunks encryption adds `added_bytes`, which the
    record's length in bytes counts, and `offset` does not; a client that may read or write the
    block gets its `key` then. A file of a snapshot has the first `shown_bytes` of the block.
    """

    record: BlockRecord
    members: tuple[BlockMember, ...]
    offset: int = 0
    complete: bool = False
    shortfall: str = ""
    trouble: str = ""
    added_bytes: int = 0
    key: DataKey | None = None
    shown_bytes: int | None = None


# --- namespace -----------------------------------------------------------------------------------


class Unmasked(msgspec.Struct, frozen=True, array_like=True):
    """The permission that was asked for, and the client's `umask`: the bits that are left out of
    it, unless default entries of the directory above decide.
    """

    permission: int
    umask: int


class MakeDirectories(msgspec.Struct, frozen=True):
    """`mkdir`; with `parents`, make missing ancestors and accept an existing directory.

    With `ttl_s`, the directory lives that many seconds from now on, even if it already existed. The
    owner is the caller, unless a superuser names another one. The `permission` is `unmasked` less
    its umask; with None it is as it is meant to be.
    """

    path: str
    parents: bool = True
    permission: int = 0o755
    owner: str = ""
    ttl_s: float | None = None
    once: Once | None = None
    unmasked: Unmasked | None = None


FILES_TOGETHER_MAX = 256
"""Files that one request makes, or ends."""


class FirstBlock(msgspec.Struct, frozen=True):
    """The request for a file's first block; `window` and `host` are as in AddBlock. `size` is how
    many bytes it will get, where that is known: 0 stands for as many as a block may have."""

    window: int
    host: str = ""
    size: int = 0


class CreateFile(msgspec.Struct, frozen=True):
    """Make an empty file that `writer` may write, and start its lease.

    With `first`, a block is made ahead (`AddBlock`), for a file that is written at once. CloseFile
    makes that block a part of the file when it says how the block ends. Owner and permission
    are as in MakeDirectories. It is encrypted as a file made at the path `zone_of` would be: its
    own, or one where it will be moved, or joined to what is there. "" comes from clients that
    cannot encrypt.
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
    unmasked: Unmasked | None = None
    zone_of: str = ""


class CreatedFile(msgspec.Struct, frozen=True):
    """A file that was made, and the block made ahead with it.

    The block is None if it was not asked for or there are too few DataNodes; AddBlock then says
    why.
    """

    status: FileStatus
    first: BlockView | None = None


class CreateFiles(msgspec.Struct, frozen=True):
    """Make all files in one step, or none: each as by CreateFile, whose `once` counts for nothing.

    `directory`, which must have a time to live, is made first, or lives on for that time.
    """

    files: tuple[CreateFile, ...]
    directory: MakeDirectories | None = None
    once: Once | None = None


class CreatedFiles(msgspec.Struct, frozen=True):
    """The files that were made, in the order of the request."""

    files: tuple[CreatedFile, ...]


class AppendFile(msgspec.Struct, frozen=True):
    """Open a closed file again, for `writer` to add blocks at its end, and start its lease.

    With a `window`, the NameNode at once begins to open the last block again, if that was written
    with the same window and has fewer than `chunks` chunks; the writer then sends `ReopenBlock`.
    `encrypts`: the client is of a version that does so where it is needed.
    """

    path: str
    writer: WriterId
    window: int = 0
    chunks: int = 0
    encrypts: bool = False


class Appendable(msgspec.Struct, frozen=True):
    """A file that was opened again, and its last block, the `previous` of the first `AddBlock`."""

    status: FileStatus
    last: BlockId


class PathRequest(msgspec.Struct, frozen=True):
    """A call about one path."""

    path: str


class ListDirectory(msgspec.Struct, frozen=True):
    """Ask for at most `limit` entries of a directory in order of name, beginning behind `after`."""

    path: str
    after: str = ""
    limit: int = 1000


class Listing(msgspec.Struct, frozen=True):
    """One page of entries; `more` says that another follows. A file is listed as itself.

    `revision` is the last change of the namespace that the page shows; an entry that appears in the
    directory later was linked after it. `linked` has for each entry the change that gave it this
    name (made it or moved it here), not changes of the file. `changed` is the last change to the
    names in the `directory`: pages with the same `directory` id and the same `changed` show one
    state of it.
    """

    entries: tuple[FileStatus, ...]
    more: bool
    revision: int = 0
    linked: tuple[int, ...] = ()
    directory: int = 0
    changed: int = 0

    @property
    def next_after(self) -> str | None:
        """The `after` to ask for the next page with; None on the last page."""
        return self.entries[-1].name if self.more and self.entries else None

    @property
    def state(self) -> tuple[int, int]:
        """The directory, and the last change to its names: equal on all pages of one state."""
        return self.directory, self.changed

    def of(self, path: str) -> Listing:
        """Return this page, as the answer to a question about `path`.

        Raises:
            ProtocolError: an entry is neither what `path` names nor directly in it.
        """
        for entry in self.entries:
            if entry.path != path and entry.path != f"{path.rstrip('/')}/{entry.name}":
                raise ProtocolError(f"{entry.path!r} is not in {path!r}, which was listed")
        return self


class RenamePath(msgspec.Struct, frozen=True):
    """Move a file or directory; `overwrite` replaces an existing file (atomically)."""

    source: str
    destination: str
    overwrite: bool = False
    once: Once | None = None


class DeletePath(msgspec.Struct, frozen=True):
    """Delete a file, or a directory (with everything in it if `recursive`).

    With a `file_id`, delete only that file or directory: another one at the path stays.
    """

    path: str
    recursive: bool = False
    once: Once | None = None
    file_id: int = NO_FILE


class Deletion(msgspec.Struct, frozen=True):
    """The answer to a deletion: true if there was something to delete."""

    existed: bool


class TakeOver(msgspec.Struct, frozen=True):
    """Fence the writer of a file, finalize its last block, close it (HDFS: recoverLease)."""

    path: str


class ConcatFiles(msgspec.Struct, frozen=True):
    """Move the blocks of closed files to the end of a closed file, which deletes the sources."""

    target: str
    sources: tuple[str, ...]
    once: Once | None = None


# --- transactions --------------------------------------------------------------------------------


class ApplicationVersion(msgspec.Struct, frozen=True):
    """Makes a transaction idempotent: applied only if `version` is the highest of `app_id` so far.

    `attempt` names one request of the caller: a copy of that request is answered as applied. The
    version is remembered for `keep_for_s` seconds, or for ever if that is None.
    """

    app_id: str
    version: int
    attempt: str
    keep_for_s: float | None = None


class Transact(msgspec.Struct, frozen=True):
    """Apply all operations in one step, or none. The rest is for files and directories made, which
    have all bits that such can have, less those of the `umask`.

    `close` ends the writing of a file in the same step, before the first operation, which finds it
    closed: the answer comes when its blocks are complete, as that of `CloseFile` does. `closes` are
    further ones, for which earlier NameNodes refuse what names an open file.
    """

    operations: tuple[Operation, ...]
    replication: int
    block_size: int
    durability: Durability
    owner: str = ""
    application: ApplicationVersion | None = None
    once: Once | None = None
    umask: int | None = None
    close: CloseFile | None = None
    closes: tuple[CloseFile, ...] = ()

    @property
    def all_closes(self) -> tuple[CloseFile, ...]:
        """Return what ends the writing of files, in order."""
        return self.closes if self.close is None else (self.close, *self.closes)


class ApplicationRequest(msgspec.Struct, frozen=True):
    """Ask for the last version of an application that was applied."""

    app_id: str


class ApplicationAnswer(msgspec.Struct, frozen=True):
    """The last version applied; None if there was none, or it has been forgotten."""

    version: int | None


# --- files being written, blocks -----------------------------------------------------------------


class Excluded(msgspec.Struct, frozen=True):
    """A storage that failed this writer `ago_s` seconds ago.

    Its DataNode is not chosen while it is `resting`, nor until the NameNode has heard from it since
    the failure; after that it is chosen only if there are too few others. A DataNode that has
    registered since is a new process, and is chosen like any other.
    """

    storage: StorageId
    ago_s: float
    resting: bool = False


class AddBlock(msgspec.Struct, frozen=True):
    """K1: add a block to a file; `file_id` NO_FILE makes a block without a file, for embedders.

    `previous` is the file's last block as the writer knows it (NO_BLOCK for the first): a repeated
    request after a lost reply gets the block that was added then. `host` is the writer's machine,
    "" if it is near no DataNode: the first replica goes to a DataNode there, if there is one.
    `after` is the failed block before this one, if the writer has a policy for that; else None.

    A block made `ahead` becomes a part of the file when FinalizeBlock of the block before it says
    so. A file has one such block at a time; the next AddBlock, or the close of the file, drops it.
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
    """K4, K7: let the writer of a file go on in `block`, the file's last one, which is finalized.

    The block is left alone unless it has room for a chunk of `size_bytes` and has fewer than
    `chunks` chunks. A repeated request is answered with the config that the first one installed.
    Other fields are as in AddBlock.
    """

    file_id: int
    writer: WriterId
    block: BlockId
    window: int
    size_bytes: int
    chunks: int
    excluded: tuple[Excluded, ...] = ()


class Reopened(msgspec.Struct, frozen=True):
    """The block as it was granted to the writer; None if it is left alone, for the reason `why`."""

    view: BlockView | None
    why: str = ""


class FinalizeBlock(msgspec.Struct, frozen=True):
    """K6: FinalizeBlock(b, length) by the writer of `generation`; `length` in chunks.

    `following` is a block made ahead (`AddBlock`), which becomes the next block in the same step.
    """

    block: BlockId
    writer: WriterId
    generation: Generation
    length: int
    size_bytes: int
    following: BlockId = NO_BLOCK


class BlockRequest(msgspec.Struct, frozen=True):
    """A call about one block by `writer` ("" for a reader) on the machine `host`."""

    block: BlockId
    writer: WriterId = NO_WRITER
    host: str = ""


class DeleteBlock(msgspec.Struct, frozen=True):
    """Delete a block that belongs to no file, whether or not it is ended."""

    block: BlockId
    once: Once | None = None


class CloseFile(msgspec.Struct, frozen=True):
    """End the writing of a file; the answer comes when every block is complete.

    `last` ends the last block in the same step (K6); it is None if that block is ended already. For
    a file without blocks it may be the block made with the file (`CreateFile.first`). `unsent` is
    that block if its writer sent nothing of it to any member: it leaves the file. If the file
    is closed but too few members have reported the block, the answer is an error; the file stays
    closed, and the request may be repeated. With a `size`, a file of another one is not closed.
    """

    file_id: int
    writer: WriterId
    last: FinalizeBlock | None = None
    unsent: BlockId = NO_BLOCK
    size: int | None = None


class OpenBlock(msgspec.Struct, frozen=True):
    """A block that its writer has open; `short` if it has fewer members than were asked for."""

    block: BlockId
    short: bool = False
    excluded: tuple[Excluded, ...] = ()


class RenewLeases(msgspec.Struct, frozen=True):
    """Keep the leases of these writers; sent well within the soft limit.

    With `open_blocks` the writers ask which of these they should leave for another block.
    """

    writers: tuple[WriterId, ...]
    open_blocks: tuple[OpenBlock, ...] = ()


class Renewed(msgspec.Struct, frozen=True):
    """`lost` are the writers that no longer hold a lease, because they were fenced or closed.

    `roll` are open blocks whose writers should now begin another block: it would get more members
    (HDFS-6867), or as many, none of them on a DataNode that is asked to leave.
    """

    lost: tuple[WriterId, ...]
    roll: tuple[BlockId, ...] = ()


class BadReplica(msgspec.Struct, frozen=True):
    """The report of a reader or DataNode that bytes do not match their checksum."""

    block: BlockId
    storage: StorageId
    reason: str


MKDIRS = Method("mkdirs", MakeDirectories, FileStatus)
CREATE = Method("create", CreateFile, CreatedFile)
CREATE_FILES = Method("create_files", CreateFiles, CreatedFiles)
APPEND = Method("append", AppendFile, Appendable)
STAT = Method("stat", PathRequest, FileStatus, any_namenode=True)
LIST = Method("list", ListDirectory, Listing, any_namenode=True)
RENAME = Method("rename", RenamePath, FileStatus)
DELETE = Method("delete", DeletePath, Deletion)
CONCAT = Method("concat", ConcatFiles, FileStatus, request_bytes_max=16 * MIB)
TRANSACT = Method("transact", Transact, TransactionOutcome, request_bytes_max=64 * MIB)
APPLICATION = Method("application", ApplicationRequest, ApplicationAnswer, any_namenode=True)
TAKE_OVER = Method("take_over", TakeOver, FileStatus)
ADD_BLOCK = Method("add_block", AddBlock, BlockView)
REOPEN_BLOCK = Method("reopen_block", ReopenBlock, Reopened)
FINALIZE_BLOCK = Method("finalize_block", FinalizeBlock, BlockView)
SEAL_BLOCK = Method("seal_block", BlockRequest, BlockView)
DELETE_BLOCK = Method("delete_block", DeleteBlock, Deletion)
GET_BLOCK = Method("get_block", BlockRequest, BlockView)
CLOSE_FILE = Method("close_file", CloseFile, FileStatus)
RENEW_LEASES = Method("renew_leases", RenewLeases, Renewed, request_bytes_max=4 * MIB)
REPORT_BAD_REPLICA = Method("report_bad_replica", BadReplica, Done)
