"""The demands on the caller of a call that names no path, before anything is done for it.

Calls by path are checked where the path is walked (`catalog/permissions.py`). A call by the id of a
file or block is the writer's, or a reader's: the ids are no secret.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paxosblock.api.namenode import NO_FILE, Transact
from paxosblock.errors import NotFoundError
from paxosblock.namenode.catalog import blocks
from paxosblock.namenode.catalog.draft import block_entry, inode_of
from paxosblock.namenode.catalog.permissions import Action, Actor, allowed, check_superuser
from paxosblock.namenode.catalog.records import FileInode
from paxosblock.namenode.kv.interface import View
from paxosblock.protocol.types import NO_WRITER, BlockId

May = Callable[[View, Any, Actor], None]
"""Raises PermissionDeniedError unless the actor, who is no superuser, may call so."""


def of_superuser(when: Callable[[Any], bool] = lambda _: True) -> May:
    """Demand a superuser, of all requests or of those for which `when` is true."""

    def may(_: View, request: Any, actor: Actor) -> None:
        if when(request):
            check_superuser(actor)

    return may


def of_writer(file_of: Callable[[Any], int]) -> May:
    """Demand a user who may write the file that `file_of` finds in a request."""

    def may(view: View, request: Any, actor: Actor) -> None:
        blocks.check_may_write(view, file_of(request), actor)

    return may


def of_writers(view: View, request: Transact, actor: Actor) -> None:
    """Demand a user who may write each file that a transaction closes."""
    for each in request.all_closes:
        blocks.check_may_write(view, each.file_id, actor)


def of_block_writer(view: View, request: Any, actor: Actor) -> None:
    """Demand a user who may write the file of a block. One without a file is of all users."""
    block: BlockId = request.block
    if (entry := block_entry(view, block)) is not None:
        blocks.check_may_write(view, entry.file, actor)


def of_block_reader(view: View, request: Any, actor: Actor) -> None:
    """Demand a user who may read the file of a block, or write it; if they ask as its writer, one
    who may write it: they are shown a block that they may write. One without a file is of all
    users, one whose file was deleted of none: its bytes are there until they are swept, or as long
    as the past shows them, which is read by paths.

    Raises:
        NotFoundError: the file was deleted.
        PermissionDeniedError: the actor may not.
    """
    block: BlockId = request.block
    entry = block_entry(view, block)
    if entry is None or entry.file == NO_FILE:
        return
    inode = inode_of(view, entry.file)
    if not isinstance(inode, FileInode):
        raise NotFoundError(f"block {block}: its file was deleted", block=block)
    if request.writer != NO_WRITER:
        blocks.check_may_write(view, entry.file, actor)
    elif not (inode.owner == actor.user or allowed(inode, Action.WRITE, actor)):
        blocks.check_may_read(view, inode, blocks.path(view, entry), actor)
