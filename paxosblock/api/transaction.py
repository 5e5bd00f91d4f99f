"""Changes of the namespace that happen together or not at all: what `Client.transact` takes.

::

    fs.transact(
        [
            AssertAbsent("/table/day=7"),
            Rename("/table/_staging/day=7", "/table/day=7"),
            Marker("/table/_SUCCESS"),
        ],
        once=("loader", 7),
    )

Each operation sees the effects of those before it in the list.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from paxosblock.base.acl_entries import AclEntry, acl_of
from paxosblock.base.paths import AnyPath, text_of

OPERATIONS_MAX = 4096
"""Operations of one transaction."""
NAMES_MADE_MAX = 32_768
"""Names in the paths of directories and markers that one transaction makes, all together."""
BLOCKS_MOVED_MAX = 4096
"""Blocks that the concats of one transaction move and its truncates cut off, all together."""
RECORDS_MAX = 6 * OPERATIONS_MAX
"""Records of the catalog that one transaction changes: two for a marker, three for a directory that
is made and for a file or block that is moved, five for a file that another one replaces."""


class _Operation(msgspec.Struct, frozen=True):
    """Paths may be given as `pathlib` has them, and are kept as text."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, os.PathLike):
                msgspec.structs.force_setattr(self, name, text_of(value))


class AssertAbsent(_Operation, frozen=True, tag=True):
    """There is nothing at `path`."""

    path: str

    if TYPE_CHECKING:

        def __init__(self, path: AnyPath) -> None: ...


class AssertFile(_Operation, frozen=True, tag=True):
    """A closed file is there; with this id, this size in bytes, and truncated this many times
    (see `FileStatus`), where they are given.
    """

    path: str
    file_id: int | None = None
    size: int | None = None
    truncations: int | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            path: AnyPath,
            file_id: int | None = None,
            size: int | None = None,
            truncations: int | None = None,
        ) -> None: ...


class AssertDirectory(_Operation, frozen=True, tag=True):
    """A directory is there; with this id (see `FileStatus`), where it is given."""

    path: str
    file_id: int | None = None

    if TYPE_CHECKING:

        def __init__(self, path: AnyPath, file_id: int | None = None) -> None: ...


class MakeDirectory(_Operation, frozen=True, tag=True):
    """Make a directory and those above it; an existing one is fine.

    `implicit` ones are there for what is in them, as are those that the creation of a file makes:
    a `Delete` that prunes removes them when they are empty. To make a directory that is there
    without saying `implicit` keeps it from that, and so does whatever is said of the directory
    itself: rights, attributes, a time to live, another name.
    """

    path: str
    implicit: bool = False

    if TYPE_CHECKING:

        def __init__(self, path: AnyPath, implicit: bool = False) -> None: ...


class Rename(_Operation, frozen=True, tag=True):
    """Move a closed file, or a directory; `overwrite` replaces a file that is there.

    To replace a directory, delete it in the operation before. A file of the caller's that is moved
    `as_new` gets the group of its directory and what its default entries give, as if it had been
    made there.
    """

    source: str
    destination: str
    overwrite: bool = False
    as_new: bool = False

    if TYPE_CHECKING:

        def __init__(
            self,
            source: AnyPath,
            destination: AnyPath,
            overwrite: bool = False,
            as_new: bool = False,
        ) -> None: ...


class Concat(_Operation, frozen=True, tag=True):
    """Move the blocks of the closed files `sources`, in order, to the end of the closed `target`.

    No byte is copied. The sources are gone afterwards; readers of a source go on reading.
    """

    target: str
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "sources", tuple(map(text_of, self.sources)))

    if TYPE_CHECKING:

        def __init__(self, target: AnyPath, sources: Iterable[AnyPath]) -> None: ...


class Truncate(_Operation, frozen=True, tag=True):
    """Cut a closed file to its first `size` bytes; its present size changes nothing.

    A reader that has the file open gets a TruncatedError and reads no further.
    """

    path: str
    size: int

    if TYPE_CHECKING:

        def __init__(self, path: AnyPath, size: int) -> None: ...


class Delete(_Operation, frozen=True, tag=True):
    """Delete a file, or a directory (with what is in it when `recursive`).

    With `file_id`, delete the file with this id, even while it is being written, and no other: if
    it is not there the operation is refused. `prune` deletes with it each directory above that is
    implicit (see `MakeDirectory`) and empty then, as far as the caller may; of a directory with
    something in it, which is refused otherwise, it makes an implicit one.
    """

    path: str
    recursive: bool = False
    must_exist: bool = False
    file_id: int | None = None
    prune: bool = False

    if TYPE_CHECKING:

        def __init__(
            self,
            path: AnyPath,
            recursive: bool = False,
            must_exist: bool = False,
            file_id: int | None = None,
            prune: bool = False,
        ) -> None: ...


class Marker(_Operation, frozen=True, tag=True):
    """Make an empty closed file, and the directories above it; replaces a closed file."""

    path: str

    if TYPE_CHECKING:

        def __init__(self, path: AnyPath) -> None: ...


class SetPermission(_Operation, frozen=True, tag=True):
    """Give a file or directory other permission bits, up to 0o1777."""

    path: str
    permission: int

    if TYPE_CHECKING:

        def __init__(self, path: AnyPath, permission: int) -> None: ...


class SetOwner(_Operation, frozen=True, tag=True):
    """Give a file or directory another owner, group, or both; "" leaves what is there."""

    path: str
    owner: str = ""
    group: str = ""

    if TYPE_CHECKING:

        def __init__(self, path: AnyPath, owner: str = "", group: str = "") -> None: ...


class SetAttributes(_Operation, frozen=True, tag=True):
    """Give a file or directory these attributes, beside those that it has; None removes one."""

    path: str
    attributes: dict[str, bytes | None]

    if TYPE_CHECKING:

        def __init__(self, path: AnyPath, attributes: Mapping[str, bytes | None]) -> None: ...


class SetTimes(_Operation, frozen=True, tag=True):
    """Say when a file or directory was changed last, in seconds since the epoch."""

    path: str
    modified_s: float

    if TYPE_CHECKING:

        def __init__(self, path: AnyPath, modified_s: float) -> None: ...


class AclChange(enum.Enum):
    """A change of an access control list, by HDFS's name for it.

    Entries that give access and default entries are told apart: a change of the ones leaves the
    others as they are. The mask is worked out from the entries, unless it is named.
    """

    SET = "setAcl"
    """Replace all entries by those that are given."""
    MODIFY = "modifyAclEntries"
    """Add the entries that are given, or replace those for the same user or group."""
    REMOVE_ENTRIES = "removeAclEntries"
    """Remove the entries that are named."""
    REMOVE_DEFAULT = "removeDefaultAcl"
    """Remove all default entries of a directory."""
    REMOVE = "removeAcl"
    """Remove all entries, so that the permission bits alone count."""


class ChangeAcl(_Operation, frozen=True, tag=True):
    """Change the access control list of a file or directory; a text is read by `parse_acl`."""

    path: str
    change: AclChange
    entries: tuple[AclEntry, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "entries", acl_of(self.entries))

    if TYPE_CHECKING:

        def __init__(
            self, path: AnyPath, change: AclChange, entries: str | Iterable[AclEntry] = ()
        ) -> None: ...


Operation = (
    AssertAbsent
    | AssertFile
    | AssertDirectory
    | MakeDirectory
    | Rename
    | Concat
    | Truncate
    | Delete
    | Marker
    | SetPermission
    | SetOwner
    | SetAttributes
    | SetTimes
    | ChangeAcl
)
"""One step of a transaction."""


class TransactionOutcome(msgspec.Struct, frozen=True):
    """The outcome of a transaction that was not refused.

    `applied` is False when this version of the application, or a later one, had been applied
    before: then nothing was done. `version` is the last one applied; 0 where the transaction has
    no application.
    """

    applied: bool
    version: int
