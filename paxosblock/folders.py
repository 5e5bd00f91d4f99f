"""Folders that outlive a power cut, their room, and the lock that lets one process use one."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from paxosblock import descriptors

OF_A_NAMENODE: Final = ("kv", "raft")
OF_A_VOLUME: Final = ("VERSION", "current", "rbw")
"""What tells whose a folder is: the other role must not write into it."""


def lacks_room(error: OSError) -> bool:
    """True if the system refused for lack of room: on the disk, in a quota, or for one more file.

    Nothing is wrong with the disk.
    """
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return full or descriptors.is_shortage(error)


def make_folder(folder: Path) -> None:
    """Create the folder and those above it, each durably, unless they are there.

    A folder that vanished with the power would come back as another, empty one.

    Raises:
        OSError: the system refuses.
    """
    if not folder.is_dir():
        if not folder.parent.exists():
            make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Return once all creations, renames and removals in the folder are durable.

    Raises:
        OSError: the system refuses.
    """
    file = descriptors.opening(os.open, folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        descriptors.close(file)


def lock(path: Path) -> int:
    """Lock the file, made if it is not there, until it is closed or the process ends.

    Returns: its descriptor.

    Raises:
        BlockingIOError: another process has locked it.
        OSError: the system refuses.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file
