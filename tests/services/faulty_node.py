"""A real node whose calls of the disk are late or fail, as a file says that may change meanwhile.

    python -m tests.services.faulty_node CONTROL paxosblock datanode --id ...

A test that starts its nodes with `FaultyCluster` says what goes wrong, and when it is over:

    cluster.break_disk(cluster.datanodes[0], Fault(SYNCS, error="EIO", path="/rbw/"))
    wait_until(lambda: cluster.met(cluster.datanodes[0]), what="the node to meet the fault")
    cluster.mend_disk(cluster.datanodes[0])

Only what Python code of the node calls as `os.write` and so on is met. Reads through `Path` and
what libraries in C do are not.
"""

from __future__ import annotations

import errno
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from paxosblock import LocalCluster
from paxosblock.local.cluster_folder import Member
from paxosblock.local.node_process import Node
from tests.waiting import wait_until

WRITES: Final = ("write", "pwrite", "writev", "pwritev")
SYNCS: Final = ("fsync", "fdatasync")
READS: Final = ("pread", "preadv")
CALLS: Final = (*WRITES, *SYNCS, *READS, "open", "ftruncate", "posix_fallocate", "rename", "unlink")
"""All that can be met, by their names in `os`."""


class Fault(msgspec.Struct, frozen=True):
    """What happens to some calls of the disk."""

    calls: tuple[str, ...]
    """Which of `CALLS`."""
    path: str = ""
    """A part of the absolute path of the file; "" is in all of them."""
    error: str = ""
    """Name of the errno that it fails with, such as "EIO"; "": it does what it should."""
    delay_s: float = 0.0
    """How late it is in seconds, unless the fault is over before."""
    times: int = 0
    """How many calls are met after the faults were told last; 0: all."""
    partly: bool = False
    """A write that fails has put half of its bytes into the file."""

    def concerns(self, call: str, path: str) -> bool:
        return call in self.calls and self.path in path


_FAULTS: Final = msgspec.json.Decoder(tuple[Fault, ...])
_OPEN: Final = open  # not `os.open`, and not to be met


class FaultyDisk:
    """In the node: the faults of its control file. Any thread may call."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._seen: tuple[int, int] | None = None
        self._faults: tuple[Fault, ...] = ()
        self._left: dict[Fault, int] = {}
        self._lock = threading.Lock()

    def wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call as the node is to find it in `os`."""

        def faulty(file: Any, *args: Any, **kwargs: Any) -> Any:
            fault = self._meet(name, file)
            if fault is not None:
                self._wait(fault)
                if fault.error:
                    if fault.partly and name in ("write", "pwrite"):
                        data = memoryview(args[0])
                        call(file, data[: len(data) // 2], *args[1:])
                    number = getattr(errno, fault.error)
                    raise OSError(number, os.strerror(number))
            return call(file, *args, **kwargs)

        return faulty

    def _meet(self, call: str, file: Any) -> Fault | None:
        with self._lock:
            self._read_again()
            if not self._faults:
                return None
            path = _path(file)
            for fault in self._faults:
                if fault.concerns(call, path) and self._left[fault] != 0:
                    self._left[fault] -= 1
                    with _OPEN(met_file(self._control), "a") as met:
                        met.write(f"{call} {path}\n")
                    return fault
            return None

    def _wait(self, fault: Fault) -> None:
        end = time.monotonic() + fault.delay_s

        def is_over() -> bool:
            with self._lock:
                self._read_again()
                return fault not in self._faults or time.monotonic() >= end

        wait_until(is_over, timeout_s=fault.delay_s + 60)

    def _read_again(self) -> None:
        """What is there now, if it has changed. Costs one `stat` otherwise."""
        try:
            found = os.stat(self._control)
            seen = (found.st_ino, found.st_mtime_ns)
            if seen == self._seen:
                return
            self._seen, self._faults = seen, _FAULTS.decode(self._control.read_bytes())
        except FileNotFoundError:
            self._seen, self._faults = None, ()
        self._left = {fault: fault.times or -1 for fault in self._faults}


def _path(file: int | str | os.PathLike[str]) -> str:
    if not isinstance(file, int):
        return os.path.abspath(file)
    try:
        return os.readlink(f"/proc/self/fd/{file}")
    except OSError:
        return ""  # closed: the call itself will say so


def met_file(control: Path) -> Path:
    """Where the node tells which calls were met, one in each line."""
    return control.with_suffix(".met")


class FaultyCluster(LocalCluster):
    """A cluster with disks that fail when the test says so; all its nodes are real ones."""

    def command(self, member: Member) -> list[str]:
        command = super().command(member)
        module = command.index("paxosblock")
        launcher = ["tests.services.faulty_node", str(self._control(member.name))]
        return [*command[:module], *launcher, *command[module:]]

    def break_disk(self, node: Node, *faults: Fault) -> None:
        """From the next call on these are the node's faults, whether or not it runs; the first one
        that concerns a call counts. What was met before is forgotten."""
        control = self._control(node.name)
        met_file(control).unlink(missing_ok=True)
        draft = control.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(faults))
        draft.rename(control)

    def mend_disk(self, node: Node) -> None:
        """From the next call on all goes well, and what is late ends at once."""
        self._control(node.name).unlink(missing_ok=True)

    def met(self, node: Node) -> list[str]:
        """Which calls met a fault, oldest first: the name in `os`, a space, the file's path."""
        try:
            return met_file(self._control(node.name)).read_text().splitlines()
        except FileNotFoundError:
            return []

    def _control(self, name: str) -> Path:
        return self.path / f"{name}.faults"


if __name__ == "__main__":
    _disk = FaultyDisk(Path(sys.argv.pop(1)))
    for _name in CALLS:
        setattr(os, _name, _disk.wrapped(_name, getattr(os, _name)))
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
