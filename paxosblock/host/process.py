"""Operating-system processes of nodes: starting, recognising, signalling and ending them.

A process is named by its number *and* its start, so that an old pid file never means the next
process with the same number. Linux only: `/proc`, pidfd and `PR_SET_PDEATHSIG`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paxosblock.errors import StorageError

_PR_SET_PDEATHSIG = 1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, for ever: its number, its start in clock ticks after boot, and the boot."""

    pid: int
    started: int
    boot: str

    @property
    def alive(self) -> bool:
        """True if it still runs (a stopped process does, one that only waits to be reaped not)."""
        return identify(self.pid) == self

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False when the process is gone. Never reaches another process."""
        with _pidfd(self) as descriptor:
            if descriptor is None:
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
            return True

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended; False when it still runs after `timeout_s`."""
        with _pidfd(self) as descriptor:
            if descriptor is None:
                return True
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            return bool(poll.poll(timeout_s * 1000))


def identify(pid: int) -> ProcessId | None:
    """Return the process that has this number now; None if there is none or it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may contain anything; what follows it is plain: proc(5).
    state, *fields = stat[stat.rindex(")") + 2 :].split()
    # The first thread of a process may be gone while another still holds its files and their locks.
    threads = int(fields[16])
    if state in "ZX" and threads <= 1:
        return None
    return ProcessId(pid, int(fields[18]), boot_id())


@cache
def boot_id() -> str:
    """Names the time since this machine was started: what was in memory before is lost.

    Raises:
        StorageError: the system does not say it.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError as error:
        raise StorageError.of(_BOOT_ID, error) from error


@contextlib.contextmanager
def _pidfd(process: ProcessId) -> Iterator[int | None]:
    """Yield a descriptor of this very process, checked after it was opened, or None."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor if process.alive else None
    finally:
        os.close(descriptor)


@cache
def _spawner() -> ThreadPoolExecutor:
    # PR_SET_PDEATHSIG fires when the *thread* that started the child ends. So one thread, which
    # lives as long as this process, starts all of them, whichever thread asks for it.
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="paxosblock-spawner")


class Child:
    """A process that this one started; only the parent may ask how it ended."""

    def __init__(
        self, pid: int, waitpid: Callable[[int, int], tuple[int, int]] = os.waitpid
    ) -> None:
        """`waitpid` asks the parent, if that is another process."""
        self.pid = pid
        self._waitpid = waitpid
        self._code: int | None = None

    def exit_code(self, *, wait: bool = False) -> int | None:
        """Return its exit code, negative for a signal; None while it runs and `wait` is False."""
        if self._code is None:
            pid, status = self._waitpid(self.pid, 0 if wait else os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def spawn(command: Sequence[str], log: Path) -> Child:
    """Start `command` with its output appended to `log`, in a session of its own, so that a
    Ctrl-C at the terminal ends only the program that started it.

    No process has to wait for it: it may outlive this process, unless it calls `die_with`.

    Raises:
        StorageError: the log cannot be written or the command cannot be run.
    """
    try:
        return Child(_spawner().submit(_spawn, command, log).result())
    except OSError as error:
        raise StorageError.of(f"cannot start {command[0]}", error) from error


def _spawn(command: Sequence[str], log: Path) -> int:
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.fspath(log), append, 0o640),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(command[0], list(command), os.environ, file_actions=files, setsid=True)


def die_with(parent: int) -> None:
    """Ask the kernel to SIGKILL this process when the process `parent`, which started it, ends.

    Even a stopped process dies. If `parent` has ended already, this exits at once.
    """
    import ctypes  # noqa: PLC0415 - only nodes of a throw-away cluster pay for it

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise StorageError(f"prctl: {os.strerror(ctypes.get_errno())}")
    # The parent may have ended before the kernel knew what to do then.
    if os.getppid() != parent:
        sys.exit(1)
