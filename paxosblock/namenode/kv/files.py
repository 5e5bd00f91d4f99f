"""Names of the files of a store, and ways to write them whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paxosblock.base.checksum import Buffer
from paxosblock.errors import StorageError
from paxosblock.host import disk as disks
from paxosblock.host.disk import Disk, is_gone

_DRAFT = ".tmp"


def numbered(folder: Path, kind: str, index: int) -> Path:
    """Return the path of the `kind` file that begins, or ends, with log entry `index`."""
    return folder / f"{kind}-{index:020d}"


def numbers(names: Iterable[str], kind: str) -> list[int]:
    """Return the indexes of the `kind` files among `names`, in order; other names are ignored."""
    stem = f"{kind}-"
    tails = (name.removeprefix(stem) for name in names if name.startswith(stem))
    return sorted(int(tail) for tail in tails if len(tail) == 20 and tail.isdecimal())


def publish(disk: Disk, path: Path, pieces: Iterable[Buffer]) -> int:
    """Do `disk.publish` with a draft in the same folder."""
    return disks.publish(disk, draft_of(path), path, pieces)


def remove_drafts(disk: Disk, folder: Path) -> None:
    """Remove the files that a crash left half written. One that another thread writes at this
    moment may be whole by then, or fail: an empty folder that asks to be let in (seed.py) is asked
    to try again."""
    for name in disk.names(folder):
        if name.endswith(_DRAFT):
            try:
                disk.remove(folder / name)
            except StorageError as error:
                if not is_gone(error):
                    raise


def draft_of(path: Path) -> Path:
    """Return the path that the file `path` has until it is whole."""
    return path.with_name(path.name + _DRAFT)
