"""The call that asks the NameNode for the blocks of a file: a page at a time."""

from __future__ import annotations

import msgspec

from paxosblock.api.methods import Method
from paxosblock.api.namenode import NO_FILE, BlockView, FileStatus

PAGE_BLOCKS = 64
"""Blocks of a file in one answer: a page takes the NameNode about a millisecond, so a dozen
requests at once keep nobody else waiting for long."""


class GetFile(msgspec.Struct, frozen=True):
    """Ask for a file and at most `PAGE_BLOCKS` of its blocks (HDFS: getBlockLocations).

    They begin at `place`, or with the block that holds byte `offset`, the last block if the file
    ends before. With a `file_id` it is the file of that id, whatever it is called by now, so that
    all pages are of one file. `host` is the machine of the client: the answer has each member's
    distance from it.
    """

    path: str
    place: int = 0
    offset: int | None = None
    file_id: int = NO_FILE
    host: str = ""


class FileView(msgspec.Struct, frozen=True):
    """A file and a page of its blocks in order.

    `next_place` is `place` of the request for the next page, None when this is the last one; `last`
    is then the file's last block, the only one that may not be finalized.
    """

    status: FileStatus
    blocks: tuple[BlockView, ...]
    next_place: int | None = None
    last: BlockView | None = None

    @property
    def last_block(self) -> BlockView | None:
        """The last block of the file, None when it has none."""
        if self.last is not None:
            return self.last
        return self.blocks[-1] if self.blocks else None


GET_FILE = Method("get_file", GetFile, FileView)
