"""Files that the program did not close: published when dropped or at the end of the program, or
reported lost.

Any thread may happen to collect a dropped file, which may hold any lock, and may be the event
loop's own. So nothing here waits for ever, and publishing runs on the event loop by itself: the
thread that drops the file only waits for it, so that the file is then found under its name.
"""

from __future__ import annotations

import atexit
import dis
import gc
import io
import itertools
import logging
import sys
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, Protocol

from paxosblock.client.blocking.loop_thread import BackgroundCall, OtherLoop

WAIT_S: Final = 60.0
"""Seconds that a drop, and the program's end for all files, waits for a publication."""

_LEAVES: Final = dis.opmap["WITH_EXCEPT_START"]
"""The instruction that calls the `__exit__` of a `with` block which an exception ends."""

_log = logging.getLogger(__name__)


class Droppable(Protocol):
    """A file that knows what to do if the program did not close it."""

    @property
    def closed(self) -> bool:
        """True once it was closed, or given up."""

    def __del__(self) -> None:
        """Publish it, or say that it is lost; a closed file does nothing."""


_open: Final[weakref.WeakValueDictionary[int, Droppable]] = weakref.WeakValueDictionary()
"""Files that were opened for writing and are still there, in the order of their opening."""
_count: Final = itertools.count()
_kept: Final[dict[int, tuple[object, ...]]] = {}
"""The target that an open file writes to, by the identity of the file. The garbage collector ends
objects of a cycle in any order; a target that is kept here does not end before the file."""
_abandoned: Final[list[object]] = []
"""Objects that another process uses, or whose event loop has ended: their end must not be
reported."""
_under_way: Final[set[BackgroundCall[None]]] = set()
"""Publications of files, and files given up, under way on an event loop."""


def watch(file: Droppable, *below: object) -> None:
    """Deal with `file` when the program ends, unless it is closed or dropped before.

    Args:
        below: the objects that it writes to, which do not refer to it; kept until `release`.
    """
    number = next(_count)
    if not number:
        # Now that there is a connection: what is registered last runs first, before the connection
        # closes.
        atexit.register(_end_of_program)
    _open[number] = file
    _kept[id(file)] = below


def release(file: Droppable) -> None:
    """Forget a file that is closed, one way or another."""
    _kept.pop(id(file), None)


def abandon(*below: object) -> None:
    """Keep the target of a file, which can neither be closed here nor given up."""
    _abandoned.extend(below)


def error_since(before: BaseException | None) -> BaseException | None:
    """Return the exception that is being handled here, if it is newer than a file: the end of any
    `with` block handles one, too.

    Args:
        before: the exception that was being handled when the file was opened. It, and those that
            were being handled when it was raised, are older.
    """
    error = sys.exception()
    while before is not None and before is not error:
        before = before.__context__
    return error if before is None else None


def error_of_block(before: BaseException | None) -> BaseException | None:
    """Return the exception of `error_since` by which a `with` block is being left that calls this
    code; None in an `except` or `finally` clause, where the program itself says what it wants.
    """
    error = error_since(before)
    frame = sys._getframe(1) if error is not None else None
    while frame is not None and not _leaves_block(frame):
        frame = frame.f_back
    return None if frame is None else error


def _leaves_block(frame: FrameType) -> bool:
    """True if `frame` is calling the `__exit__` of a `with` block which an exception ends. (That of
    a class in C, as pyarrow's, has no frame of its own.) An `async with` awaits its `__aexit__`,
    which has one.
    """
    code, last = frame.f_code, frame.f_lasti
    return code.co_name == "__aexit__" or (last >= 0 and code.co_code[last] == _LEAVES)


def error_under_way(before: BaseException | None) -> BaseException | None:
    """Return the exception of `error_since`, or the one that ended the program."""
    # At a prompt the last error ended nothing.
    ended = _ending and not hasattr(sys, "ps1")
    ending = getattr(sys, "last_value", None) if ended else None
    error = error_since(before)
    return error if error is not None else None if ending is before else ending


def tell_lost(path: str, why: object) -> None:
    """Warn, once, that the bytes written for `path` are lost."""
    _log.warning("'%s' was not published, what was written is lost: %s", path, why)


def tell_closed(path: str, error: BaseException) -> None:
    """Warn that `path` is given up because of `error`, and how to avoid that."""
    tell_lost(
        path,
        f"a 'with' block that closes it was left by {error!r}; to publish it then, close it before",
    )


def run_on(
    runner: OtherLoop, path: str, work: Callable[[], Coroutine[Any, Any, None]]
) -> BackgroundCall[None]:
    """Start `work` on the event loop, from any thread; an error of it is reported as a loss of
    `path`.

    Raises:
        RuntimeError: the event loop is closed.
    """

    async def guarded() -> None:
        try:
            await work()
        except Exception as error:
            tell_lost(path, f"it was dropped without close(), and then: {error}")
        finally:
            _under_way.discard(running)

    running = runner.prepare(guarded)
    _under_way.add(running)
    try:
        running.launch()
    except RuntimeError:
        _under_way.discard(running)
        raise
    return running


def wait_for(runner: OtherLoop, path: str, running: BackgroundCall[None]) -> None:
    """Wait until `path` is published, or lost; not on the event loop's own thread.

    It does not wait for ever: this thread may hold a lock that the event loop needs.
    """
    if not runner.usable:
        return
    running.wait(WAIT_S)
    if not running.done:
        _log.warning("'%s' was dropped without close(), and is still being published", path)


_ending = False


def _end_of_program() -> None:
    """Deal with every file that is still open, the outermost first."""
    global _ending  # noqa: PLW0603 - a program ends once
    _ending = True
    give_up_at_s = time.monotonic() + WAIT_S
    files = [file for _, file in sorted(_open.items()) if not file.closed]
    if error_under_way(None) is None:
        _close_all(_wrappers_of(files))
    for file in reversed(files):
        file.__del__()
    for running in tuple(_under_way):
        running.wait(max(0.0, give_up_at_s - time.monotonic()))


def _wrappers_of(files: Iterable[object]) -> list[Any]:
    """Text layers, compressors and archives that write to `files`, the innermost first.

    Python drops them before what they write to, and they hold bytes that the file does not have
    yet.
    """
    found: list[Any] = list(files)
    held: list[Any] = list(found)
    known = {id(each) for each in held}
    count = len(found)
    while held:
        referrers = [each for each in gc.get_referrers(*held) if id(each) not in known]
        known |= {id(each) for each in referrers}
        wrappers = [each for each in referrers if _closes_itself(each)]
        found += wrappers
        # The attributes of an object may be a dict of their own.
        held = wrappers + [each for each in referrers if type(each) is dict]
    return found[count:]


def _closes_itself(each: object) -> bool:
    kind = type(each)
    return issubclass(kind, io.IOBase) or (hasattr(kind, "__del__") and hasattr(kind, "close"))


def _close_all(wrappers: list[Any]) -> None:
    for wrapper in reversed(wrappers):
        with suppress(Exception):  # the file below reports its own loss
            wrapper.close()
