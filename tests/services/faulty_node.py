"""A real node whose calls of the disk are late or fail, as a file says that may change meanwhile.

    python -m tests.services.faulty_node CONTROL paxosblock datanode --id ...

A test that starts its nodes with `FaultyCluster` says what goes wrong, and when it is over:

    cluster.break_disk(cluster.datanodes[0], Fault(SYNCS, error="EIO", path="/rbw/"))
    wait_until(lambda: cluster.met(cluster.datanodes[0]), what="the node to meet the fault")
    cluster.mend_disk(cluster.datanodes[0])

Only what Python code of the node calls as `os.write` and so on is met, its syncs by the kernel
and its write-out. Reads through `Path` and what libraries in C do are not.
"""

from __future__ import annotations

import asyncio
import errno
import os
import runpy
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from paxosblock import LocalCluster
from paxosblock.host import kernel_syncs
from paxosblock.host.kernel_syncs import Done, KernelSyncs
from paxosblock.local.cluster_folder import NodeEntry
from paxosblock.local.node_process import Node
from tests.disks.faults import Fault, FaultPlan

CALLS: Final = {
    **dict.fromkeys(("write", "pwrite", "writev", "pwritev", "posix_fallocate"), "write"),
    **dict.fromkeys(("fsync", "fdatasync"), "sync"),
    **dict.fromkeys(("pread", "preadv"), "read"),
    "open": "open",
    "ftruncate": "truncate",
    "rename": "rename",
    "unlink": "remove",
}
"""All that can be met: what a name in `os` is called in a fault."""


_FAULTS: Final = msgspec.json.Decoder(tuple[Fault, ...])
_FDATASYNC: Final = os.fdatasync
_OPEN: Final = open  # not `os.open`, and not to be met


class FaultyDisk:
    """In the node: the faults of its control file. Any thread may call."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._seen: tuple[int, int] | None = None
        self._plan = FaultPlan(self._look)

    def wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call as the node is to find it in `os`."""

        def faulty(file: Any, *args: Any, **kwargs: Any) -> Any:
            fault = self._meet(name, file)
            if fault is not None:
                if fault.partly and name in ("write", "pwrite"):
                    data = memoryview(args[0])
                    call(file, data[: len(data) // 2], *args[1:])
                self._suffer(fault)
            return call(file, *args, **kwargs)

        return faulty

    def syncs(self, begin: Callable[..., bool]) -> Callable[..., bool]:
        """`KernelSyncs.begin` as the node is to find it: what is met is done in a thread."""

        def faulty(kernel: KernelSyncs, file: int, done: Done) -> bool:
            fault = self._meet("fdatasync", file)
            if fault is None:
                return begin(kernel, file, done)

            def late(loop: asyncio.AbstractEventLoop) -> None:
                error = None
                try:
                    self._suffer(fault)
                    _FDATASYNC(file)
                except OSError as failure:
                    error = failure
                with suppress(RuntimeError):  # the node ended meanwhile
                    loop.call_soon_threadsafe(done, error)

            threading.Thread(target=late, args=(asyncio.get_running_loop(),), daemon=True).start()
            return True

        return faulty

    def _meet(self, name: str, file: int | str | os.PathLike[str]) -> Fault | None:
        fault = self._plan.meet(CALLS[name], lambda: _path(file))
        if fault is not None:
            with _OPEN(met_file(self._control), "a") as met:
                met.write(f"{name} {_path(file)}\n")
        return fault

    def _suffer(self, fault: Fault) -> None:
        self._plan.wait(fault)
        if fault.error:
            number = getattr(errno, fault.error)
            raise OSError(number, os.strerror(number))

    def _look(self, plan: FaultPlan) -> None:
        """Tell the plan what is in the file now, if it has changed. Costs one `stat` otherwise."""
        try:
            found = os.stat(self._control)
            seen = (found.st_ino, found.st_mtime_ns)
            if seen == self._seen:
                return
            self._seen = seen
            plan.tell(*_FAULTS.decode(self._control.read_bytes()))
        except FileNotFoundError:
            self._seen = None
            plan.tell()


def _path(file: int | str | os.PathLike[str]) -> str:
    if not isinstance(file, int):
        return os.path.abspath(file)
    try:
        return os.readlink(f"/proc/self/fd/{file}")
    except OSError:
        return ""  # closed: the call itself will say so


def met_file(control: Path) -> Path:
    """Return the file in which the node tells which calls were met, one in each line."""
    return control.with_suffix(".met")


class FaultyCluster(LocalCluster):
    """A cluster with disks that fail when the test says so; all its nodes are real ones."""

    def command(self, member: NodeEntry) -> list[str]:
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
        """Return the calls that met a fault, oldest first: name in `os`, space, the file's path."""
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
    kernel_syncs.write_out = _disk.wrapped("fdatasync", kernel_syncs.write_out)
    KernelSyncs.begin = _disk.syncs(KernelSyncs.begin)  # type: ignore[method-assign]  # as those of os
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
