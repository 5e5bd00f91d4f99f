"""Making a file together with its first block."""

from __future__ import annotations

from dataclasses import dataclass

from paxosblock.api.namenode import CreateFile, FileStatus
from paxosblock.namenode.catalog import namespace, reserving, safe_mode, tree
from paxosblock.namenode.catalog.draft import Draft
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


def create(draft: Draft, request: CreateFile, context: Context, placed: Placed | None) -> Made:
    """Make a file and, in the same change, the block that is `placed` for it (K1).

    Raises:
        SafeModeError: an operator entered safe mode.
        Others: as `namespace.create`.
    """
    safe_mode.check_names_may_change(draft)
    inode = namespace.create(draft, request, context)
    status = tree.file_status(request.path, inode, length=0)  # it was made without a block
    first = reserving.reserved(draft, inode)  # an earlier copy of the request may have made it
    if first is None and placed is not None and request.first is not None:
        record = finalize.add_block(
            placed.block, placed.members, request.writer, request.first.window, inode.durability
        )
        first = reserving.reserve(draft, inode, record)
    return Made(status, first)
