"""The call that asks the NameNode for the blocks of a file: a page at a time."""

from __future__ import annotations

import msgspec

from paxosblock.api.methods import Method
from paxosblock.api.namenode import NO_FILE, BlockView, FileStatus

PAGE_BLOCKS = 64
"""Blocks of a file in one answer: a page takes the NameNode about a millisecond, so a dozen
simultaneous requests do not keep others waiting for long."""


class GetFile(msgspec.Struct, frozen=True):
    """Ask for a file and at most `PAGE_BLOCKS` of its blocks (HDFS: getBlockLocations).

    The page begins at `place`, or with the block that has byte `offset` (the last block if the file
    ends before it). A `file_id` asks for the file of that id, even if it was renamed, so that all
    pages are of one file. `host` is the client's machine: the answer has each member's distance
    from it. `decrypts`: the client is of a version that does so where it is needed. `only_shows`:
    it reads nothing with the answer, which then has no keys.
    """

    path: str
    place: int = 0
    offset: int | None = None
    file_id: int = NO_FILE
    host: str = ""
    decrypts: bool = False
    only_shows: bool = False


class FileView(msgspec.Struct, frozen=True):
    """A file and a page of its blocks in order.

    `next_place` is the `place` to ask for the next page with, None on the last page; `last` is then
    the file's last block, the only one that may not be finalized.
    """

    status: FileStatus
    blocks: tuple[BlockView, ...]
    next_place: int | None = None
    last: BlockView | None = None

    @property
    def last_block(self) -> BlockView | None:
        """The last block of the file, None if the file has none."""
        if self.last is not None:
            return self.last
        return self.blocks[-1] if self.blocks else None


GET_FILE = Method("get_file", GetFile, FileView)
