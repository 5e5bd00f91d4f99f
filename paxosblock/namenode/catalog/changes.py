"""A change is decided on a draft, committed, and after a conflict decided again. One whose request
has a name is made once, however often the request is sent.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from msgspec import Raw, Struct

from paxosblock.api.methods import Once
from paxosblock.base.encoding import encode as encode_answer
from paxosblock.base.encoding import msgpack_decoder
from paxosblock.errors import InvalidRequestError, NotReadyError, PaxosBlockError
from paxosblock.namenode.catalog import keys, quotas
from paxosblock.namenode.catalog.draft import Draft, Reads, Slices
from paxosblock.namenode.catalog.records import Answered, decode_answered, encode
from paxosblock.namenode.kv.interface import Committed, KeyValueStore

ATTEMPTS = 100
"""Decisions of one operation before the caller is asked to try again later."""

CROWDED_AFTER: Final = 8
"""Decisions of one operation that others came before, until no other is made beside it."""

SLICE_WORK = 1000
"""Keys that a decision reads or changes before other tasks get a turn."""

SESSION_CHARS_MAX: Final = 64
SEQUENCE_MAX: Final = (1 << 63) - 1
REMEMBERED_MS: Final = 10 * 60_000
"""A session is forgotten this long after its deadline was set; a request moves the deadline when
less than half of that is left."""

BINARY: Final = b"\xc4\xc5\xc6"
"""First bytes of an answer in a record of an earlier version, which wrapped its msgpack in a
binary. No answer is itself a binary."""

T = TypeVar("T")


class _Asked(Struct, eq=False):
    """A decision that is made together with others."""

    decide: Callable[[Draft], Slices[Any]]
    answer: asyncio.Future[Any]
    """The result of the decision once it is committed, or `_Alone`."""


class _Alone(enum.Enum):
    """The answer that says that the decision must be made again, by itself."""

    ALONE = enum.auto()


class Changes:
    """Makes changes of one store, several at a time.

    While an edit is being committed, the changes asked for in one turn of the event loop form a
    group. They are decided one after the other on one draft, each as a part of it, and become one
    edit, because most of the cost of a small change is its entry in the log. A part that fails, or
    changes nothing, is removed from the draft and decided again by itself, because the draft's view
    may be old. If the edit conflicts, all its parts are decided again by themselves.
    """

    def __init__(self, store: KeyValueStore) -> None:
        """Use a started `store`."""
        self._store = store
        self._alone = asyncio.Lock()
        """Held for a decision that takes long: until it is committed no other change is decided."""
        self._committing = 0
        self._asked: list[_Asked] = []
        """The next group."""
        self._groups: set[asyncio.Task[None]] = set()

    async def make(self, decide: Callable[[Draft], Slices[T]]) -> T:
        """Decide, and commit what was decided.

        A decision that takes long is interrupted, so that the loop does not stand still. Then all
        others that change anything wait until it is committed, as they would overtake it again and
        again. So they do for one that others came before each time, such as the removal of a
        directory in which many work.
        """
        try:
            if not self._committing:
                return await self._until_committed(decide, certain=False)
            answer: T | _Alone = await self._along(decide)
            if isinstance(answer, _Alone):
                return await self._until_committed(decide, certain=True)
            return answer
        except (_LongError, _CrowdedError):
            async with self._alone:
                await asyncio.sleep(0)  # the interrupted decision has used up this turn
                return await self._until_committed(decide, certain=True, alone=True)

    async def _until_committed(
        self, decide: Callable[[Draft], Slices[T]], *, certain: bool, alone: bool = False
    ) -> T:
        """Decide again until no other change came first.

        The first try, unless it must be `certain`, decides on what is applied here, which saves a
        round among the NameNodes: if that is old, the edit is refused when it is applied.
        Nothing would refuse a result that changes nothing, such as an error, so only a linearizable
        view may lead to one.
        """
        view = await self._store.barrier() if certain else self._store.view()
        for attempt in range(ATTEMPTS):
            if not alone and attempt == CROWDED_AFTER:
                raise _CrowdedError
            if not alone and self._alone.locked():
                async with self._alone:
                    pass
            # From here to the end of the decision nothing else runs, or nothing else is applied.
            draft = Draft(view)
            try:
                if alone:
                    result = await _decided_in_turns(draft, decide(draft))
                else:
                    result = _decided(draft, decide(draft))
            except _OvertakenError:
                pass
            except PaxosBlockError:
                if certain:
                    raise
            else:
                if certain and not draft.changes:
                    return result
                if draft.changes and await self._commits(draft):
                    return result
            view, certain = await self._store.barrier(), True
        raise NotReadyError("the catalog is contended: others changed the same records each time")

    async def _commits(self, draft: Draft) -> bool:
        self._committing += 1
        try:
            edit = draft.to_edit()
            if draft.work >= SLICE_WORK:
                await asyncio.sleep(0)  # encoding takes long; the edit expects its reads
            return isinstance(await self._store.commit(edit), Committed)
        finally:
            self._committing -= 1

    # -- groups ----------------------------------------------------------------------------------

    def _along(self, decide: Callable[[Draft], Slices[T]]) -> asyncio.Future[T | _Alone]:
        """Add a decision to the group of this turn of the event loop."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T | _Alone] = loop.create_future()
        if not self._asked:
            loop.call_soon(self._decide_group)
        self._asked.append(_Asked(decide, answer))
        return answer

    def _decide_group(self) -> None:
        """Decide the group, as much as fits into one turn, and begin to commit it."""
        asked, self._asked = self._asked, []
        draft = Draft(self._store.view())
        made: list[tuple[asyncio.Future[Any], Any]] = []
        for place, each in enumerate(asked):
            if draft.work >= SLICE_WORK:
                self._asked = asked[place:]
                asyncio.get_running_loop().call_soon(self._decide_group)
                break
            if each.answer.done():  # the caller was cancelled
                continue
            if self._alone.locked():
                each.answer.set_result(_Alone.ALONE)
                continue
            draft.begin_part()
            try:
                result = _decided(draft, each.decide(draft))
            except PaxosBlockError:
                draft.undo_part()
                each.answer.set_result(_Alone.ALONE)
            except Exception as error:
                draft.undo_part()
                each.answer.set_exception(error)
            else:
                if draft.changes:
                    made.append((each.answer, result))
                else:
                    each.answer.set_result(_Alone.ALONE)
        if made:
            group = asyncio.get_running_loop().create_task(self._commit_group(draft, made))
            self._groups.add(group)
            group.add_done_callback(self._groups.discard)

    async def _commit_group(
        self, draft: Draft, made: list[tuple[asyncio.Future[Any], Any]]
    ) -> None:
        """Commit the group, and answer the callers that wait for its parts."""
        try:
            committed = await self._commits(draft)
        except InvalidRequestError:  # the edit is too long
            committed = False
        except Exception as error:
            for answer, _ in made:
                if not answer.done():
                    answer.set_exception(_another(error))
            return
        for answer, result in made:
            if not answer.done():
                answer.set_result(result if committed else _Alone.ALONE)


def _another(error: Exception) -> Exception:
    """Return a copy of the error: each caller raises one of its own."""
    return error.reworded(error.message) if isinstance(error, PaxosBlockError) else error


def _decided(draft: Draft, slices: Slices[T]) -> T:
    """Decide in one turn, and return the result.

    Raises:
        _LongError: the decision takes longer; another call goes on with its `slices`.
        PaxosBlockError: the decision raises it.
    """
    before = draft.work
    while True:
        try:
            next(slices)
        except StopIteration as end:
            if draft.sums is not None:
                quotas.check(draft)
            result: T = end.value
            return result
        if draft.work - before >= SLICE_WORK:
            raise _LongError


async def _decided_in_turns(draft: Draft, slices: Slices[T]) -> T:
    """Decide with pauses, on one state as if in one turn, and return the result.

    Raises:
        _OvertakenError: something was applied in a pause.
        PaxosBlockError: the decision raises it.
    """
    while True:
        try:
            return _decided(draft, slices)
        except _LongError:
            await asyncio.sleep(0)
        if draft.overtaken:
            raise _OvertakenError


class _LongError(Exception):
    """A decision takes longer than one turn of the loop may."""


class _CrowdedError(Exception):
    """Other changes came before a decision again and again."""


class _OvertakenError(Exception):
    """The values that a decision has read may be old: begin again."""


# --- requests that are done once ------------------------------------------------------------------


class Decided(Struct, Generic[T], frozen=True):
    """The result of a call, and what is sent of it: its msgpack, if that is there already."""

    value: T
    sent: T | Raw


def decide_once(
    draft: Draft,
    once: Once | None,
    kind: type[T],
    now_ms: int,
    decision: Slices[T],
) -> Slices[Decided[T]]:
    """Decide a request; if one of this name was done before, return its first answer, a `kind`.

    The edit of a request also records, under the name of the client's session, which request it was
    and how it was answered; it expects that no other request was recorded meanwhile. So a copy that
    comes later, even to another leader after a fail-over, finds the record and changes nothing. A
    request that was refused, or had nothing to do, is not remembered: its copy is decided again.

    Raises:
        InvalidRequestError: the session has made a later request since.
        PaxosBlockError: `decision` raises it.
    """
    if once is None:
        value = yield from decision
        return Decided(value, value)
    before = _latest(draft, once)
    if before is not None and once.sequence <= before.sequence:
        return _first_answer(before, once, kind)
    value = yield from decision
    if not draft.changes:
        return Decided(value, value)
    encoded = Raw(encode_answer(value))
    _remember(draft, once, before, encoded, now_ms)
    return Decided(value, encoded)


def answered(reads: Reads, once: Once, kind: type[T]) -> T | None:
    """Return the first answer of a request, None if it was not done. Raises as `decide_once`."""
    before = _latest(reads, once)
    if before is None or before.sequence < once.sequence:
        return None
    return _first_answer(before, once, kind).value


def _latest(reads: Reads, once: Once) -> Answered | None:
    named = 0 < len(once.session) <= SESSION_CHARS_MAX and once.session.isascii()
    if not named or not 0 <= once.sequence <= SEQUENCE_MAX:
        raise InvalidRequestError(f"not the name of a request: {once}")
    found = reads.get(keys.session(once.session))
    return decode_answered(found.value) if found.exists else None


def _first_answer(before: Answered, once: Once, kind: type[T]) -> Decided[T]:
    if once.sequence < before.sequence:
        raise InvalidRequestError(
            f"request {once.sequence} comes late: session {once.session} has made "
            f"request {before.sequence} since"
        )
    encoded = before.answer
    if memoryview(encoded)[0] in BINARY:
        encoded = Raw(msgpack_decoder(bytes).decode(encoded))
    return Decided(msgpack_decoder(kind).decode(encoded), encoded)


def _remember(draft: Draft, once: Once, before: Answered | None, answer: Raw, now_ms: int) -> None:
    """Record the answer. The deadline is moved seldom, as that doubles what a request writes."""
    key = keys.session(once.session)
    expires_ms = before.expires_ms if before is not None else 0
    if expires_ms - now_ms < REMEMBERED_MS // 2:
        draft.move_deadline(key, expires_ms, now_ms + REMEMBERED_MS)
        expires_ms = now_ms + REMEMBERED_MS
    draft.put(key, encode(Answered(once.sequence, expires_ms, answer)))
