"""Answers watchers of names from the entries that are applied here: any NameNode can.

Nothing is made of the entries until a watcher asks. While any wait, a task reads each entry once
for all of them, as soon as it is applied, and wakes those that it concerns.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from paxosblock.api.watching import (
    POLL_MAX_S,
    ChangeKind,
    NameChange,
    NameChanges,
    WatchNames,
)
from paxosblock.base import paths
from paxosblock.base.units import MIB
from paxosblock.errors import (
    GapError,
    InvalidRequestError,
    NotReadyError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.name_changes import ChangeReader, TracedChange
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.catalog.records import decode_cluster
from paxosblock.namenode.kv.interface import KeyValueStore, Recent, View

WATCHERS_MAX: Final = 10_000
"""Watchers that wait at one NameNode."""
CHANGES_MAX: Final = 1000
ANSWER_BYTES: Final = MIB
"""Changes of one answer, and bytes of their paths."""
LOOKED_AT: Final = 5000
"""Changes that are looked at for one answer."""
KEPT_BYTES: Final = 32 * MIB
"""Bytes of changes that are kept for watchers that ask next."""
CHANGE_BYTES: Final = 300
"""Bytes that a change takes beside its paths."""
READ_AT_ONCE: Final = 50
"""Entries that are read before others get a turn."""
KNOWN_MAX: Final = 20_000
"""Values that are kept beside those of the map at one moment; then a later moment is taken."""
KEPT_IDLE_S: Final = 60.0
"""Seconds without a watcher after which nothing is kept but the entries."""


class _WatchPoll:
    """A request that waits."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class ChangeFeed:
    """The changes that were made of recent entries, and the watchers that wait for more."""

    def __init__(self, store: KeyValueStore) -> None:
        """Read the entries of a `store`, which need not be started yet."""
        self._store = store
        self._reader: ChangeReader | None = None
        self._reading = asyncio.Lock()
        self._changes: list[TracedChange] = []
        self._bytes = 0
        self._since = 0
        """All changes after this revision, up to what was read, are in `_changes`."""
        self._dropped = 0
        """A revision up to which changes were dropped to make room."""
        self._polls: dict[str, set[_WatchPoll]] = {}
        self._waiting = 0
        self._following: asyncio.Task[None] | None = None
        self._end: asyncio.TimerHandle | None = None

    @property
    def watchers(self) -> int:
        """Return how many wait at this moment."""
        return self._waiting

    async def close(self) -> None:
        """End the work; watchers that wait get an error."""
        self._refuse(UnavailableError("this NameNode ends"))
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        self._forget()

    async def answer(self, request: WatchNames, actor: Actor) -> NameChanges:
        """Return changes that `actor` may see, as soon as there are any; none after `wait_s`.

        Raises:
            GapError: not all of them are known here.
            InvalidRequestError: nothing has that revision yet.
            NotReadyError: too many wait.
            UnavailableError: this NameNode cannot show anything at the moment.
        """
        view = self._store.view()
        if request.after is None or request.after > view.revision:
            view = await self._store.read_barrier()
        timeline = _timeline(view)
        if request.after is None:
            return NameChanges(view.revision, timeline)
        if request.timeline not in (0, timeline):
            raise GapError(f"revision {request.after} is of a time before a backup was restored")
        if request.after > view.revision:
            raise InvalidRequestError(
                f"revision {request.after} is in the future: the last one is {view.revision}"
            )
        loop = asyncio.get_running_loop()
        until_s = loop.time() + min(request.wait_s, POLL_MAX_S)
        after, skip = request.after, request.skip
        while True:
            await self._read_on(after)
            found, after, skip, more = self._collected(request.path, after, skip, actor)
            if found or more or loop.time() >= until_s:
                return NameChanges(after, timeline, tuple(found), skip)
            await self._wait(request.path, until_s)

    # -- reading entries -------------------------------------------------------------------------

    async def _read_on(self, after: int) -> None:
        """Read all that is applied by now, so that all changes behind `after` are known.

        Raises:
            GapError: entries behind it are no longer there.
        """
        async with self._reading:
            try:
                reader = self._begun(after)
                while reader.revision < (recent := self._store.recent).latest:
                    if reader.revision < recent.oldest:
                        reader = self._begun(after)
                    await self._read_some(reader, recent)
            except BaseException:
                self._reader = None  # a part of an entry may not be read: the next one reads it all
                raise
            if reader.known > KNOWN_MAX:
                reader.go_on_from(recent.values())
            self._check_known(after)  # some were dropped if there are too many

    def _check_known(self, after: int) -> None:
        known = max(self._store.recent.oldest, self._dropped)
        if after < known:
            raise GapError(
                f"the changes behind revision {after} are no longer known here, but only those"
                f" behind {known}: list what is there, and go on"
            )

    def _begun(self, after: int) -> ChangeReader:
        """Return a reader that has read no change behind `after` that is not kept."""
        self._check_known(after)
        recent, reader = self._store.recent, self._reader
        if reader is not None and self._since <= after and reader.revision >= recent.oldest:
            return reader
        values = recent.values() if after >= recent.latest else recent.before(after)
        reader = self._reader = ChangeReader(values)
        self._changes, self._bytes, self._since = [], 0, reader.revision
        return reader

    async def _read_some(self, reader: ChangeReader, recent: Recent) -> None:
        """Read some entries, with turns for others."""
        for _ in range(min(READ_AT_ONCE, recent.latest - reader.revision)):
            slices = reader.read(recent.payload(reader.revision + 1))
            while True:
                try:
                    next(slices)
                except StopIteration as end:
                    self._keep(end.value)
                    break
                await asyncio.sleep(0)
            if reader.revision < recent.oldest:
                return
        if reader.revision < recent.latest:
            await asyncio.sleep(0)

    def _keep(self, changes: list[TracedChange]) -> None:
        for traced in changes:
            self._bytes += _size_bytes(traced.change)
            for path in _concerned(traced.change, self._polls):
                for poll in self._polls[path]:
                    if not poll.woken.done():
                        poll.woken.set_result(None)
        self._changes += changes
        if self._bytes > KEPT_BYTES:
            self._drop()

    def _drop(self) -> None:
        """Drop the oldest changes, whole revisions, until three quarters of the room are taken."""
        count = 0
        while count < len(self._changes) and self._bytes > KEPT_BYTES * 3 // 4:
            revision = self._changes[count].change.revision
            while count < len(self._changes) and self._changes[count].change.revision == revision:
                self._bytes -= _size_bytes(self._changes[count].change)
                count += 1
            self._since = self._dropped = revision
        del self._changes[:count]

    def _collected(
        self, path: str, after: int, skip: int, actor: Actor
    ) -> tuple[list[NameChange], int, int, bool]:
        """Return changes behind a position, the position behind them, and whether more may be
        known."""
        changes, found, size_bytes = self._changes, list[NameChange](), 0
        start = bisect_right(changes, after, key=_revision)
        place = start
        while place < len(changes) and changes[place].change.revision == after + 1:
            if place - start >= skip:
                break
            place += 1
        last = min(len(changes), place + LOOKED_AT)
        while place < last and len(found) < CHANGES_MAX and size_bytes < ANSWER_BYTES:
            told = changes[place].told(path, actor)
            if told is not None:
                found.append(told)
                size_bytes += _size_bytes(told)
            place += 1
        if place < len(changes):
            revision = changes[place].change.revision
            return (
                found,
                revision - 1,
                place - bisect_right(changes, revision - 1, key=_revision),
                True,
            )
        read = self._reader.revision if self._reader is not None else after
        return found, max(after, read), skip if read <= after else 0, False

    # -- waiting ---------------------------------------------------------------------------------

    async def _wait(self, path: str, until_s: float) -> None:
        """Return once a change concerns `path`, or at that time."""
        if self._waiting >= WATCHERS_MAX:
            raise NotReadyError(f"{WATCHERS_MAX} watchers wait here")
        if self._end is not None:
            self._end.cancel()
            self._end = None
        poll = _WatchPoll(path)
        self._polls.setdefault(path, set()).add(poll)
        self._waiting += 1
        if self._following is None:
            self._following = asyncio.create_task(self._follow(), name="change feed")
        try:
            async with asyncio.timeout_at(until_s):
                await poll.woken
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1
            polls = self._polls[path]
            polls.discard(poll)
            if not polls:
                del self._polls[path]
            if not self._waiting:
                loop = asyncio.get_running_loop()
                self._end = loop.call_later(KEPT_IDLE_S, self._forget)

    async def _follow(self) -> None:
        """Read what is applied, while any watcher waits."""
        try:
            while self._waiting:
                if self._reader is None:
                    raise UnavailableError("reading the entries was given up")
                after = self._reader.revision
                await self._store.wait_entry(after + 1)
                if self._waiting:
                    await self._read_on(after)
        except PaxosBlockError as error:
            self._refuse(error)
        finally:
            self._following = None

    def _refuse(self, error: PaxosBlockError) -> None:
        for polls in self._polls.values():
            for poll in polls:
                if not poll.woken.done():
                    poll.woken.set_exception(error.reworded(error.message))

    def _forget(self) -> None:
        """Keep nothing more, as there is no watcher."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        self._reader = None
        self._changes, self._bytes, self._since, self._dropped = [], 0, 0, 0


def _timeline(view: View) -> int:
    found = view.get(keys.CLUSTER)
    if not found.exists:
        raise UnavailableError("the cluster is just starting: it has no root directory yet")
    return decode_cluster(found.value).block_tag


def _revision(traced: TracedChange) -> int:
    return traced.change.revision


def _size_bytes(change: NameChange) -> int:
    return CHANGE_BYTES + len(change.path) + len(change.source)


def _concerned(change: NameChange, watched: dict[str, set[_WatchPoll]]) -> Iterator[str]:
    """Yield those of the `watched` paths that a change concerns."""
    if not watched:
        return
    ends = {change.path, change.source} - {""}
    found: set[str] = set()
    for end in ends:
        path = end
        while path:
            if path in watched:
                found.add(path)
            path = path.rpartition("/")[0]
    if paths.ROOT in watched:
        found.add(paths.ROOT)
    if change.is_directory and change.kind in (ChangeKind.RENAMED, ChangeKind.REMOVED):
        found.update(path for path in watched if any(paths.is_below(path, each) for each in ends))
    yield from found
