"""All that is below a path, as it was at one moment: sums and listings, asked for in parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.snapshot_calls import (
    AskKeptRoom,
    DiffSnapshots,
    SnapshotDifference,
    SnapshotDifferences,
    SnapshotRoom,
)
from paxosblock.api.subtree import (
    NO_MOMENT,
    ContentSummary,
    ListSubtree,
    SubtreeListing,
    SubtreeSums,
    Summed,
    SumSubtree,
    Unread,
)
from paxosblock.errors import NotReadyError, PermissionDeniedError

TRIES: Final = 10
"""Times that a sum is begun because the NameNode that kept its moment no longer leads."""

AskSums = Callable[[SumSubtree], Awaitable[SubtreeSums]]
AskDifferences = Callable[[DiffSnapshots], Awaitable[SnapshotDifferences]]
AskRoom = Callable[[AskKeptRoom], Awaitable[SnapshotRoom]]
AskListing = Callable[[ListSubtree], Awaitable[SubtreeListing]]


async def content_summary(ask: AskSums, path: str) -> ContentSummary:
    """As `AsyncClient.content_summary`."""
    for _ in range(TRIES):
        found = await _sums(ask, path, each=False)
        if found is not None:
            return found[0].summary
    raise _gone(path)


async def content_summaries(ask: AskSums, path: str) -> list[Summed]:
    """As `AsyncClient.content_summaries`."""
    for _ in range(TRIES):
        found = await _sums(ask, path, each=True)
        if found is not None:
            return found
    raise _gone(path)


async def _sums(ask: AskSums, path: str, *, each: bool) -> list[Summed] | None:
    """Return the sums of all parts; None if their moment was gone before the last."""
    found: list[Summed] = []
    moment, after = NO_MOMENT, ""
    while True:
        part = await ask(SumSubtree(path, each, moment, after))
        if part.gone:
            return None
        for one in part.sums:
            if found and found[-1].status.path == one.status.path:
                found[-1] = Summed(one.status, found[-1].summary.plus(one.summary))
            else:
                found.append(one)
        moment, after = part.moment, part.after
        if not after:
            return found


async def below(
    ask: AskListing,
    path: str,
    *,
    unread: Callable[[Unread], None],
    later: Callable[[str], None],
) -> AsyncIterator[FileStatus]:
    """Yield what is at `path` and below it, a directory before what is in it.

    `unread` hears of directories that are left out, `later` of a path behind which entries are of
    another moment, because the first one was no longer kept.
    """
    moment, after = NO_MOMENT, ""
    while True:
        part = await ask(ListSubtree(path, moment, after))
        if part.gone:
            later(after)
            moment = NO_MOMENT
            continue
        for directory in part.unread:
            unread(directory)
        for entry in part.entries:
            yield entry
        moment, after = part.moment, part.after
        if not after:
            return


async def below_at_once(ask: AskListing, path: str) -> AsyncIterator[FileStatus]:
    """Yield as `below` what is below `path`; a file itself.

    Raises:
        PermissionDeniedError: a directory there may not be read.
        NotReadyError: the moment was no longer kept.
    """

    def refuse(directory: Unread) -> None:
        raise PermissionDeniedError(directory.reason, path=directory.path)

    def end(after: str) -> None:
        raise NotReadyError(f"'{path}': the state that was listed up to '{after}' is gone")

    async for entry in below(ask, path, unread=refuse, later=end):
        if entry.path != path or entry.kind is Kind.FILE:
            yield entry


async def snapshot_diff(
    ask: AskDifferences, path: str, before: str, later: str
) -> list[SnapshotDifference]:
    """As `AsyncClient.snapshot_diff`."""
    for _ in range(TRIES):
        found = list[SnapshotDifference]()
        moment, after = NO_MOMENT, ""
        while True:
            part = await ask(DiffSnapshots(path, before, later, moment, after))
            found += part.differences
            moment, after = part.moment, part.after
            if part.gone or not after:
                break
        if not part.gone:
            return found
    raise _gone(path)


async def kept_room(ask: AskRoom, path: str, name: str) -> int:
    """As `AsyncClient.kept_room`."""
    size_bytes, following = 0, (0, 0)
    while True:
        part = await ask(AskKeptRoom(path, name, *following))
        size_bytes += part.size_bytes
        if part.following is None:
            return size_bytes
        following = part.following


def _gone(path: str) -> NotReadyError:
    return NotReadyError(
        f"'{path}': another NameNode took the lead again and again while it was gone through",
        path=path,
    )
