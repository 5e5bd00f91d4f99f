"""The choice of members for a block, or the next one of its file, after some failed."""

from __future__ import annotations

from dataclasses import replace

from paxosblock.base.replacement import Failed
from paxosblock.errors import NoSpaceError
from paxosblock.namenode.blocks.placement import Candidate, Wish, place
from paxosblock.protocol.types import StorageId


def members_after(
    wish: Wish, candidates: tuple[Candidate, ...], failed: Failed
) -> tuple[StorageId, ...]:
    """Return the members that are left, and those that the policy adds to them.

    Members that are left need no room: they had it when the block was added.

    Raises:
        NoSpaceError: there are fewer than the policy needs; the message tells why others are not
            taken.
    """
    kept = tuple(each for each in candidates if each.storage in failed.left)
    count = failed.policy.missing(wish.replication, len(failed.left), flushed=failed.flushed)
    added: tuple[StorageId, ...] = ()
    why = ""
    if count:
        try:
            added = place(replace(wish, replication=count, min_replication=1), candidates, kept)
        except NoSpaceError as error:
            why = f": {error}"
    found = len(failed.left) + len(added)
    needed = max(wish.needed, failed.policy.needed(wish.replication, failed.before))
    if found < needed:
        name = failed.policy.replacement.value
        raise NoSpaceError(
            f"policy '{name}' needs {needed} DataNodes, and there are {found}{why}",
            found=found,
            needed=needed,
        )
    return (*failed.left, *added)


def members_of_next(
    wish: Wish, candidates: tuple[Candidate, ...], failed: Failed
) -> tuple[StorageId, ...]:
    """Return the members of the block that follows a block that failed and was sealed.

    Raises: as `members_after`.
    """
    there = tuple(each for each in candidates if each.storage in failed.left)
    try:
        left = place(replace(wish, replication=max(1, len(there)), min_replication=1), there)
    except NoSpaceError:
        left = ()  # they are full, dead or leaving by now
    return members_after(wish, candidates, replace(failed, left=left))
