"""Making a file together with its first block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paxosblock.api.namenode import NO_BLOCK, CreateFile, CreateFiles, FileStatus
from paxosblock.namenode.catalog import namespace, quotas, reserving, tree
from paxosblock.namenode.catalog.draft import Draft, Slices
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol import finalize
from paxosblock.protocol.types import BlockId, StorageId


@dataclass(frozen=True, slots=True)
class Placed:
    """A block that may be made: its id, and the members that would hold it."""

    block: BlockId
    members: tuple[StorageId, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """A file, and the block that was made ahead with it (`reserving`), if one was."""

    status: FileStatus
    first: BlockEntry | None


@dataclass(frozen=True, slots=True)
class MadeTogether:
    """Files that one change made, in the order of the request."""

    files: tuple[Made, ...]


def create_all(
    draft: Draft, request: CreateFiles, context: Context, placed: Sequence[Placed | None]
) -> Slices[MadeTogether]:
    """Make files, each as `create` does with the block that is `placed` for it; all or none.

    Raises:
        PaxosBlockError: as `namespace.make_directories` for the directory, as `create` for a file.
    """
    if request.directory is not None:
        namespace.check_names_may_change(draft)
        namespace.make_directories(draft, request.directory, context)
    made: list[Made] = []
    for each, place in zip(request.files, placed, strict=True):
        made.append(create(draft, each, context, place))
        yield
    return MadeTogether(tuple(made))


def create(draft: Draft, request: CreateFile, context: Context, placed: Placed | None) -> Made:
    """Make a file and, in the same change, the block that is `placed` for it (K1).

    Raises:
        SafeModeError: an operator entered safe mode.
        Others: as `namespace.create`.
    """
    namespace.check_names_may_change(draft)
    block = NO_BLOCK if placed is None else placed.block
    inode = namespace.create(draft, request, context, block)
    if inode.reserved == block != NO_BLOCK and draft.has_counters and quotas.lacks_space(draft):
        # As in HDFS: a quota of room lets empty files be made, and refuses the first block.
        inode, placed = reserving.without(draft, inode), None
    status = tree.file_status(request.path, inode, size=0)  # it was made without a block
    is_other = draft.has_counters and inode.reserved != block
    if (
        placed is None
        or request.first is None
        or inode.reserved not in (NO_BLOCK, block)
        or is_other
    ):
        return Made(status, reserving.reserved(draft, inode))  # made by an earlier copy, or by none
    # The table knows that at once, as no file has a greater number, and remembers it for the close,
    # when others may have.
    assert tree.last_block(draft, inode.number) is None, "it was just made"
    record = finalize.add_block(
        block, placed.members, request.writer, request.first.window, inode.durability
    )
    return Made(status, reserving.reserve(draft, inode, record))
