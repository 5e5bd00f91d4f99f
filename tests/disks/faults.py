"""Faults of a disk, in words that mean the same of a simulated and of a real one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from tests.waiting import wait_until

WRITES: Final = ("write",)
SYNCS: Final = ("sync",)
CALLS: Final = ("open", "read", "write", "truncate", "sync", "rename", "remove")
"""All that can be met. `open` is to make and to lock a file, too, and `sync` one of a folder."""


class Fault(msgspec.Struct, frozen=True):
    """A fault that some calls of a disk meet."""

    calls: tuple[str, ...]
    """Names in `CALLS`."""
    path: str = ""
    """A part of the absolute path of the file; "" is in all of them."""
    error: str = ""
    """Name of the errno that it fails with, such as "EIO"; "": it does what it should."""
    delay_s: float = 0.0
    """The call is late by this, in seconds, unless the fault is over before."""
    times: int = 0
    """Number of calls that are met after the faults were told last; 0: all."""
    partly: bool = False
    """A write that fails has put half of its bytes into the file."""

    def concerns(self, call: str, path: str) -> bool:
        return call in self.calls and self.path in path


HELD: Final = 60.0
"""Seconds of a delay that is meant to last until the fault is over."""


class FaultPlan:
    """The faults of one disk; the first one that concerns a call counts. Any thread may use it."""

    def __init__(self, look: Callable[[FaultPlan], None] | None = None) -> None:
        """`look` is called before anything is decided: whoever tells the faults may be late."""
        self._look = look
        self._faults: tuple[Fault, ...] = ()
        self._left: dict[Fault, int] = {}
        self._lock = threading.RLock()
        self.waiting = 0
        """Calls that are late now."""

    def tell(self, *faults: Fault) -> None:
        """From the next call on these are the faults; what is late for another one ends at once."""
        with self._lock:
            self._faults = faults
            self._left = {fault: fault.times or -1 for fault in faults}

    @property
    def idle(self) -> bool:
        """True if no call meets anything, and none that comes now will."""
        return self._look is None and not self._faults

    def meet(self, call: str, path: Callable[[], str]) -> Fault | None:
        """Return the fault that this call meets, after its delay; the caller lets the call fail."""
        with self._lock:
            self._see()
            if not self._faults:
                return None
            where = path()
            for fault in self._faults:
                if fault.concerns(call, where) and self._left[fault] != 0:
                    self._left[fault] -= 1
                    break
            else:
                return None
        return fault

    def wait(self, fault: Fault) -> None:
        """Be as late as the fault says."""
        if not fault.delay_s:
            return
        end = time.monotonic() + fault.delay_s

        def is_over() -> bool:
            with self._lock:
                self._see()
                return fault not in self._faults or time.monotonic() >= end

        self.waiting += 1
        try:
            wait_until(is_over, timeout_s=fault.delay_s + 60)
        finally:
            self.waiting -= 1

    def _see(self) -> None:
        if self._look is not None:
            self._look(self)
