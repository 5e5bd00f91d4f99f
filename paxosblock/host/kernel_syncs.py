"""`fdatasync` by the kernel itself, beside the event loop: no thread of ours waits for the disk.

A waiting thread costs two thread switches and the interpreter's lock for each sync, and each sync
that runs beside others needs a thread of its own. Linux takes the request (`io_submit` with
IOCB_CMD_FDSYNC, since 4.18), lets a thread of its own wait, and wakes the loop by an eventfd. So a
disk that is slow, or hangs, holds up only the callers that wait for it. See `man 2 io_submit`.

Python has no name for these calls of Linux, nor for `sync_file_range`, which `write_out` calls.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import struct
import sys
import threading
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from paxosblock.errors import PaxosBlockError, StorageError

SYNCS_AT_ONCE: Final = 16
"""Syncs of one disk under way at a time: the journal of its file system makes many of them one
step."""

Done = Callable[[OSError | None], None]
"""Called once the file is on stable storage, or with why it may not be."""

_FDSYNC: Final = 3  # IOCB_CMD_FDSYNC
_BY_EVENTFD: Final = 1  # IOCB_FLAG_RESFD
_X86_64: Final = (206, 207, 209, 208)
_GENERIC: Final = (0, 1, 2, 4)
_NUMBERS: Final = {"x86_64": _X86_64, "aarch64": _GENERIC, "riscv64": _GENERIC}
"""The numbers of io_setup, io_destroy, io_submit and io_getevents, by machine."""

_WRITE: Final = 2  # SYNC_FILE_RANGE_WRITE
_WAIT_AFTER: Final = 4  # SYNC_FILE_RANGE_WAIT_AFTER
_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)
_sync_file_range: Final[Any] = getattr(_LIBRARY, "sync_file_range", None)
if _sync_file_range is not None:  # Linux has it
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    _sync_file_range.restype = ctypes.c_int


def write_out(file: int) -> None:
    """Return once the disk has all that was written to `file`, a descriptor. Blocks.

    Neither the file's length nor the place of its bytes is durable after that.

    Raises:
        OSError: the disk did not take it; a later `fdatasync` of the descriptor need not say so.
    """
    if _sync_file_range is None:
        os.fdatasync(file)
    elif _sync_file_range(file, 0, 0, _WRITE | _WAIT_AFTER):
        raise _last_error()


_EVENT: Final = struct.Struct("=QQqq")
"""`struct io_event`: what the request had as `data`, its address, and two results."""


class _Request(ctypes.Structure):
    """`struct iocb` of linux/aio_abi.h, as it is where the lowest byte comes first."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("file", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("event_file", ctypes.c_uint32),
    )


class KernelSyncs:
    """Syncs of files that are under way in the kernel. Belongs to the running event loop."""

    def __init__(self) -> None:
        """Begin with none.

        Raises:
            OSError: this system cannot do that: it is not Linux, or another kind of machine, a
                sandbox forbids it, or too many processes do the same.
        """
        numbers = _NUMBERS.get(platform.machine()) if sys.maxsize > 1 << 32 else None
        if sys.platform != "linux" or numbers is None:
            raise OSError(f"no asynchronous fdatasync on {sys.platform}, {platform.machine()}")
        setup, self._destroy, self._submit, self._getevents = map(ctypes.c_long, numbers)
        # None of these calls waits, so the interpreter's lock is kept: PyDLL, not CDLL.
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        if self._call(setup, ctypes.c_long(SYNCS_AT_ONCE), ctypes.byref(self._context)):
            raise _last_error()
        self._event_file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._request = _Request(
            opcode=_FDSYNC, flags=_BY_EVENTFD, event_file=self._event_file
        )  # the kernel copies it with each submission
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._events = ctypes.create_string_buffer(SYNCS_AT_ONCE * _EVENT.size)
        self._none, self._one, self._all = map(ctypes.c_long, (0, 1, SYNCS_AT_ONCE))
        self._under_way: dict[int, Done] = {}
        self._numbers = count(1)
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._event_file, self._wake)

    def begin(self, file: int, done: Done) -> bool:
        """Begin to bring what was written to `file`, a descriptor, to stable storage.

        `file` stays open until `done` is called, on the event loop. False: the kernel did not take
        it, and `done` will not be called.
        """
        if self._closed or len(self._under_way) >= SYNCS_AT_ONCE:
            return False
        number = next(self._numbers)
        self._request.data, self._request.file = number, file
        if self._call(self._submit, self._context, self._one, self._requests) != 1:
            return False
        self._under_way[number] = done
        return True

    def close(self) -> None:
        """Begin nothing more. What is under way comes to its end while the loop runs."""
        self._closed = True
        self._leave()

    def _leave(self) -> None:
        if self._closed and not self._under_way:
            self._loop.remove_reader(self._event_file)
            self._call(self._destroy, self._context)
            os.close(self._event_file)

    def _wake(self) -> None:
        ended = self._ended()
        self._leave()
        for done, error in ended:
            try:
                done(error)
            except Exception as failure:  # of one of them; the others have ended, too
                message = "a sync has ended, and what waited for it failed"
                self._loop.call_exception_handler({"message": message, "exception": failure})

    def _ended(self) -> list[tuple[Done, OSError | None]]:
        os.eventfd_read(self._event_file)
        limits = self._none, self._all
        found = self._call(self._getevents, self._context, *limits, self._events, None)
        if found < 0:
            raise _last_error()
        ended: list[tuple[Done, OSError | None]] = []
        for number, _, result, _ in _EVENT.iter_unpack(self._events.raw[: found * _EVENT.size]):
            error = OSError(-result, os.strerror(-result)) if result < 0 else None
            ended.append((self._under_way.pop(number), error))
        return ended


class SyncGuard:
    """The syncs of one file, or of files that fail together: one at a time, and none after one that
    failed.

    The system reports only once that it dropped bytes: a second `fdatasync` would succeed.
    """

    __slots__ = ("_mutex", "failure")

    def __init__(self) -> None:
        self.failure: PaxosBlockError | None = None
        """The reason that nothing more can be made durable."""
        self._mutex = threading.Lock()

    def run(self, step: Callable[[], None]) -> None:
        """Do `step`, which syncs, and blocks.

        Raises:
            StorageError: this sync or an earlier one failed.
        """
        with self._mutex:
            if self.failure is not None:
                raise self.failure
            try:
                step()
            except PaxosBlockError as error:
                self.failure = error
                raise
            except Exception as error:
                self.failure = StorageError(f"cannot sync: {error!r}")
                raise

    def begin(
        self,
        file: int,
        kernel: KernelSyncs,
        synced: Callable[[], None],
        done: Callable[[PaxosBlockError | None], None],
    ) -> bool:
        """Let the kernel sync `file`. Then the event loop calls `synced` if it is durable, and
        `done` with what `run` would raise.

        Return False, and call nothing, if `run` has to do it: another sync runs now, one failed
        before, or the kernel refuses.
        """
        if not self._mutex.acquire(blocking=False):
            return False

        def ended(error: OSError | None) -> None:
            if error is not None:
                self.failure = StorageError.of("cannot sync", error)
                self.failure.__cause__ = error
            else:
                synced()
            self._mutex.release()
            done(self.failure)

        if self.failure is None and kernel.begin(file, ended):
            return True
        self._mutex.release()
        return False


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
