"""Answers watchers of names from the entries that are applied here: any NameNode can.

Nothing is made of the entries until a watcher asks. While any wait, a task reads each entry once
for all of them, as soon as it is applied, and tells those that it concerns: what all of an audience
are told is encoded once.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import Final

import msgspec
from msgspec import Raw

from paxosblock.api.watching import POLL_MAX_S, NameChange, NameChanges, WatchNames
from paxosblock.base.encoding import encode
from paxosblock.base.units import MIB
from paxosblock.errors import (
    GapError,
    InvalidRequestError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.namenode.audiences import Answer, AudienceKind, Audiences
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.changes import Decided
from paxosblock.namenode.catalog.name_changes import ChangeReader, TracedChange
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.catalog.records import decode_cluster
from paxosblock.namenode.kv.interface import KeyValueStore, Recent, View

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
TOLD_AT_ONCE: Final = 100
"""Watchers that are told before others get a turn: each takes some 20 us of it, or more."""
ANSWERS_KEPT: Final = 16
"""Answers that are kept for others who ask the same before anything else is known."""


class _Reply(msgspec.Struct, frozen=True):
    """An answer, and whether it tells anything: a change, or that more may be known behind it."""

    answer: Answer
    tells: bool


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
        self._audiences = Audiences()
        self._answers: dict[tuple[AudienceKind, int, int], _Reply] = {}
        """Answers by who asked behind which position, as long as nothing more is read."""
        self.events = 0
        """Changes that watchers were told, one for each of them."""
        self.gaps = 0
        """Times that a watcher was told of a gap."""
        self._following: asyncio.Task[None] | None = None
        self._end: asyncio.TimerHandle | None = None

    @property
    def watchers(self) -> int:
        """Return how many wait at this moment."""
        return self._audiences.waiting

    async def close(self) -> None:
        """End the work; watchers that wait get an error."""
        self._audiences.refuse(UnavailableError("this NameNode ends"))
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        self._forget()

    async def answer(self, request: WatchNames, actor: Actor) -> Answer:
        """Return changes that `actor` may see, as soon as there are any; none after `wait_s`.

        It needs no task of its own (`InlineCoroutine`).

        Raises:
            GapError: not all of them are known here.
            InvalidRequestError: nothing has that revision yet.
            NotReadyError: too many wait.
            UnavailableError: this NameNode cannot show anything at the moment.
        """
        try:
            answer = await self._answer(request, actor)
        except GapError:
            self.gaps += 1
            raise
        self.events += len(answer.value.changes)
        return answer

    async def _answer(self, request: WatchNames, actor: Actor) -> Answer:
        view = self._store.view()
        if request.after is None or request.after > view.revision:
            view = await self._store.read_barrier()
        timeline = _timeline(view)
        if request.after is None:
            return _encoded(NameChanges(view.revision, timeline))
        if request.timeline not in (0, timeline):
            raise GapError(f"revision {request.after} is of a time before a backup was restored")
        if request.after > view.revision:
            raise InvalidRequestError(
                f"revision {request.after} is in the future: the last one is {view.revision}"
            )
        loop = asyncio.get_running_loop()
        until_s = loop.time() + min(request.wait_s, POLL_MAX_S)
        kind = AudienceKind(request.path, actor, timeline)
        after, skip = request.after, request.skip
        while True:
            await self._read_on(after)
            found = self._found(kind, after, skip)
            if found.tells or loop.time() >= until_s:
                return found.answer
            after, skip = found.answer.value.revision, found.answer.value.skip
            self._follow_on()
            told = await self._audiences.wait(kind, after, until_s)
            self._rest_if_idle()
            if told is not None:
                return told

    # -- reading entries -------------------------------------------------------------------------

    async def _read_on(self, after: int) -> None:
        """Read all that is applied by now, so that all changes behind `after` are known.

        Raises:
            GapError: entries behind it are no longer there.
        """
        reader = self._reader
        if reader is not None and not self._reading.locked():
            recent = self._store.recent
            if self._since <= after and recent.oldest <= reader.revision == recent.latest:
                self._check_known(after)
                return
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
        self._answers.clear()
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
        self._answers.clear()
        for traced in changes:
            self._bytes += _size_bytes(traced.change)
            self._audiences.concern(traced.change)
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

    def _found(self, kind: AudienceKind, after: int, skip: int) -> _Reply:
        """Return what is known behind a position for one who asks."""
        asked = kind, after, skip
        found = self._answers.get(asked)
        if found is None:
            found = self._collect(kind, after, skip)
            if len(self._answers) >= ANSWERS_KEPT:
                self._answers.clear()
            self._answers[asked] = found
        return found

    def _collect(self, kind: AudienceKind, after: int, skip: int) -> _Reply:
        changes, found, size_bytes = self._changes, list[NameChange](), 0
        start = bisect_right(changes, after, key=_revision)
        place = start
        while place < len(changes) and changes[place].change.revision == after + 1:
            if place - start >= skip:
                break
            place += 1
        last = min(len(changes), place + LOOKED_AT)
        while place < last and len(found) < CHANGES_MAX and size_bytes < ANSWER_BYTES:
            told = changes[place].told(kind.path, kind.actor)
            if told is not None:
                found.append(told)
                size_bytes += _size_bytes(told)
            place += 1
        more = place < len(changes)
        if more:
            after = changes[place].change.revision - 1
            skip = place - bisect_right(changes, after, key=_revision)
        else:
            read = self._reader.revision if self._reader is not None else after
            after, skip = max(after, read), skip if read <= after else 0
        answer = NameChanges(after, kind.timeline, tuple(found), skip)
        return _Reply(_encoded(answer), more or bool(found))

    # -- waiting ---------------------------------------------------------------------------------

    def _follow_on(self) -> None:
        """Let entries be read as soon as they are applied, as a watcher waits."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        if self._following is None:
            self._following = asyncio.create_task(self._follow(), name="change feed")

    def _rest_if_idle(self) -> None:
        """Keep nothing more after a while, if no watcher waits."""
        if not self.watchers:
            self._end = asyncio.get_running_loop().call_later(KEPT_IDLE_S, self._forget)

    async def _follow(self) -> None:
        """Read what is applied, and tell it, while any watcher waits."""
        try:
            while self.watchers:
                if self._reader is None:
                    raise UnavailableError("reading the entries was given up")
                after = self._reader.revision
                await self._store.wait_entry(after + 1)
                if self.watchers:
                    await self._read_on(after)
                    await self._tell()
        except PaxosBlockError as error:
            self._audiences.refuse(error)
        finally:
            self._following = None

    async def _tell(self) -> None:
        """Tell those whom something concerns that was read, a part of them in each turn."""
        due, count = self._audiences.due, 0
        while due:
            audience = due[0]
            try:
                await self._read_on(audience.after)
            except GapError as error:
                due.popleft().refuse(error)
                continue
            due.popleft()
            found = self._found(audience.kind, audience.after, 0)
            if not found.tells:
                audience.after = found.answer.value.revision
                self._audiences.join(audience)
                continue
            for told in tuple(audience.waiting):
                if not told.done():
                    told.set_result(found.answer)
                count += 1
                if count % TOLD_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _forget(self) -> None:
        """Keep nothing more, as there is no watcher."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        self._reader = None
        self._changes, self._bytes, self._since, self._dropped = [], 0, 0, 0
        self._answers.clear()


def _encoded(answer: NameChanges) -> Answer:
    return Decided(answer, Raw(encode(answer)))


def _timeline(view: View) -> int:
    found = view.get(keys.CLUSTER)
    if not found.exists:
        raise UnavailableError("the cluster is just starting: it has no root directory yet")
    return decode_cluster(found.value).block_tag


def _revision(traced: TracedChange) -> int:
    return traced.change.revision


def _size_bytes(change: NameChange) -> int:
    return CHANGE_BYTES + len(change.path) + len(change.source)
