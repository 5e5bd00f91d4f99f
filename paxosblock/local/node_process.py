"""One node as a real process, which a test or demo may end in any way that a machine can fail."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

from paxosblock.errors import DeadlineError, ExistsError, UnavailableError
from paxosblock.host.process import Child, identify, spawn
from paxosblock.local.cluster_folder import (
    ClusterFolder,
    LogPlace,
    NodeEntry,
    last_words,
    why_ended,
)
from paxosblock.net.calls import control

START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0
SILENT_FOR_S: Final = 2.0
_POLL_FIRST_S: Final = 0.005
_POLL_MOST_S: Final = 0.05
_POLL_GROWTH: Final = 1.2
"""A look may call several nodes: the longer a wait takes, the rarer are the looks, which leaves the
processors to the nodes."""
_ADDRESS_FILE: Final = "address"


class Node:
    """A member of a local cluster, and its process if it runs."""

    spawn: ClassVar[Callable[[Sequence[str], Path], Child]] = staticmethod(spawn)
    """Starts the process of each. Tests fork theirs from one that has imported everything."""

    def __init__(
        self,
        folder: ClusterFolder,
        member: NodeEntry,
        command: Callable[[NodeEntry], list[str]],
        answers: Callable[[str], bool] = control.healthy,
    ) -> None:
        """`command` returns the command line that runs a member; `answers` tells whether a node
        does that at host:port."""
        self.member = member
        self._answers = answers
        self._folder = folder
        self._command = command
        self._child: Child | None = None
        self._process = folder.read_process(member.name)
        self._log_start = LogPlace(0, 0)
        self.tell_waiting: Callable[[str], None] | None = None
        """Hears what `start` waits for, once that takes two seconds."""

    def __repr__(self) -> str:
        state = "not running" if self.pid is None else f"process {self.pid}"
        return f"<Node {self.name} at {self.address}, {state}>"

    @property
    def name(self) -> str:
        """Such as "datanode-0"."""
        return self.member.name

    @property
    def address(self) -> str:
        """host:port; the port is 0 until the node was started once and stays the same then."""
        return self.member.listen

    @property
    def pid(self) -> int | None:
        """The number of its process; None if it does not run."""
        return self._process.pid if self._process is not None and self._process.alive else None

    @property
    def alive(self) -> bool:
        """True if its process exists; a paused one does."""
        return self.pid is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process that this object started, negative for a signal."""
        # One that has ended need not be reaped yet: its other threads may still be ending.
        return None if self._child is None else self._child.exit_code(wait=not self.alive)

    @property
    def log(self) -> Path:
        """The file that its output goes to."""
        return self._folder.log(self.name)

    @property
    def volumes(self) -> tuple[Path, ...]:
        """The folders in which it keeps its files."""
        return self._folder.volumes(self.member)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start it in the same folders, on the same port, and wait until it is ready.

        Raises:
            UnavailableError: it ended instead; the message quotes its last line.
            DeadlineError: it was not ready in time. It is left running.
            ExistsError: it runs already.
        """
        self.launch()
        self.wait_ready(timeout_s)

    def launch(self) -> None:
        """Start its process and do not wait."""
        if self.alive:
            raise ExistsError(f"{self.name} is running already, as process {self.pid}")
        for volume in self.volumes:
            (volume / _ADDRESS_FILE).unlink(missing_ok=True)
        self._log_start = LogPlace.end_of(self.log)
        self._child = Node.spawn(self._command(self.member), self.log)
        self._process = identify(self._child.pid)
        if self._process is not None:
            self._folder.write_process(self.name, self._process)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the process that was launched answers; raises as `start`."""
        missing = f"{self.name} is not ready, see {self.log}"
        wait_until(self._ready, timeout_s, missing, self.tell_waiting)
        self.member = replace(self.member, listen=self._real_address())

    def kill(self) -> None:
        """Send SIGKILL, an end like a crash's; return when the process has ended."""
        self._signal(signal.SIGKILL)
        self._ended(STOP_TIMEOUT_S)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Send SIGTERM; return False if it did not end within `timeout_s` and was killed."""
        self.ask_to_stop()
        return self.wait_stopped(timeout_s)

    def ask_to_stop(self) -> None:
        """Send SIGTERM, which reaches a paused node too, and do not wait."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def wait_stopped(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Wait for the end of a node that was asked to stop; return as `stop`."""
        if self._ended(timeout_s):
            return True
        self.kill()
        return False

    def pause(self) -> None:
        """Send SIGSTOP: it stays connected and says nothing, like a machine that hangs."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def log_tail(self) -> str:
        """Return the last lines that its latest process wrote."""
        return last_words(self.log, self._log_start)

    @property
    def why_down(self) -> str:
        """The reason for which its latest process has ended, as its log tells; "" while it runs,
        and before it was started for the first time."""
        if self.alive or not self.log.exists():
            return ""
        return why_ended(self.log_tail().rpartition("\n")[2])

    @property
    def _address_file(self) -> Path:
        """Return the file in the first volume, or in the first one that the node could open."""
        files = [volume / _ADDRESS_FILE for volume in self.volumes]
        return next(filter(Path.exists, files), files[0])

    def _real_address(self) -> str:
        return self._address_file.read_text().strip()

    def _ready(self) -> bool:
        if not self.alive:
            raise self._death()
        return self._address_file.exists() and self._answers(self._real_address())

    def _death(self) -> UnavailableError:
        words = self.log_tail()
        last_line = words.splitlines()[-1] if words else "it said nothing"
        error = UnavailableError(f"{self.name} did not start: {last_line}", log=str(self.log))
        error.add_note(words)
        return error

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send(number)

    def _ended(self, timeout_s: float) -> bool:
        if self._process is not None and not self._process.wait(timeout_s):
            return False
        if self._child is not None:
            self._child.exit_code(wait=True)
        self._folder.forget_process(self.name)
        return True


def wait_until(
    condition: Callable[[], bool],
    timeout_s: float,
    otherwise: str,
    tell: Callable[[str], None] | None = None,
) -> None:
    """Return once `condition` holds; raise DeadlineError with `otherwise` after `timeout_s`, and
    `tell` that before, once, if it takes two seconds.
    """
    begun, pause_s = time.monotonic(), _POLL_FIRST_S
    while not condition():
        waited_s = time.monotonic() - begun
        if waited_s > timeout_s:
            raise DeadlineError(f"{otherwise} (after {timeout_s:g} s)")
        if tell is not None and waited_s > SILENT_FOR_S:
            tell(otherwise)
            tell = None
        time.sleep(pause_s)
        pause_s = min(pause_s * _POLL_GROWTH, _POLL_MOST_S)
