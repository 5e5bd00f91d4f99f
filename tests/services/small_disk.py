"""A real file system of a few megabytes, which a test fills to the last byte and empties again.

Root mounts one. Without that right, a process in a user namespace of its own mounts it, and its
files are reached through `/proc/PID/root`. A container that allows neither still has a `/dev/shm`
of its own, which is small.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from paxosblock.base.units import MIB

SIZE_BYTES = 48 * MIB
SHARED_MEMORY = Path("/dev/shm")
SHARED_MEMORY_MOST_BYTES = 256 * MIB
BALLAST_STEPS = (MIB, 4096, 1)


@dataclass(frozen=True)
class SmallDisk:
    """A folder that is all of a small file system, or shares it with no other writer."""

    folder: Path

    @property
    def free_bytes(self) -> int:
        """Return how much an ordinary process may still write."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self) -> None:
        """Take all the room there is, until the system says that none is left."""
        with (self.folder / "ballast").open("ab", buffering=0) as ballast:
            for step in BALLAST_STEPS:
                with contextlib.suppress(OSError):
                    while True:
                        ballast.write(b"\0" * step)
        assert self.free_bytes == 0

    def empty(self) -> None:
        """Give the room back."""
        (self.folder / "ballast").unlink()


@contextlib.contextmanager
def small_disk(scratch: Path) -> Iterator[SmallDisk | None]:
    """A small file system for the length of a `with`; None where the machine allows none.

    `scratch` is an empty folder to mount it on.
    """
    with ExitStack() as stack:
        folder = _mounted(stack, scratch) or _in_namespace(stack, scratch) or _shared_memory(stack)
        yield SmallDisk(folder) if folder else None


def _mount(folder: Path) -> list[str]:
    return ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "paxosblock-test", str(folder)]


def _mounted(stack: ExitStack, folder: Path) -> Path | None:
    try:
        done = subprocess.run(_mount(folder), capture_output=True, check=False)
    except FileNotFoundError:
        return None
    if done.returncode:
        return None
    stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
    return folder


def _in_namespace(stack: ExitStack, folder: Path) -> Path | None:
    """Mounted where only one process sees it, which lives as long as its input is open."""
    script = '"$@" && echo mounted && exec cat'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    try:
        holder = subprocess.Popen(
            [*command, *_mount(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return None
    stack.enter_context(holder)
    assert holder.stdout is not None
    if not holder.stdout.readline():
        return None
    return Path(f"/proc/{holder.pid}/root{folder}")


def _shared_memory(stack: ExitStack) -> Path | None:
    with contextlib.suppress(OSError):
        found = os.statvfs(SHARED_MEMORY)
        if found.f_blocks * found.f_frsize <= SHARED_MEMORY_MOST_BYTES:
            folder = Path(tempfile.mkdtemp(prefix="paxosblock-", dir=SHARED_MEMORY))
            stack.callback(shutil.rmtree, folder)
            return folder
    return None
