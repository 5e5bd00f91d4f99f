"""All of a database is read in a process of its own, which ends with it.

RocksDB's binding holds the interpreter, and a NameNode's event loop with it: for some milliseconds
when it opens a database, and nearly all the time that every key of it is read.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from paxosblock.errors import (
    ConfigError,
    CorruptionError,
    NoSpaceError,
    PaxosBlockError,
    StorageError,
    UnavailableError,
)
from paxosblock.host.disk import OsDisk

_KINDS: Final = {
    kind.__name__: kind for kind in (ConfigError, CorruptionError, NoSpaceError, StorageError)
}
_NICE: Final = 10
"""The NameNode that waits for it, and its neighbours, come first."""


def check_apart(path: Path) -> int:
    """Read every key of the database at `path`, which nobody has open, and change nothing of it;
    return the entry that it is after. Blocks for long.

    Raises:
        ConfigError: a later version wrote it.
        CorruptionError: it is damaged, or not whole.
        NoSpaceError: there is no memory, or no descriptor, for another process.
        StorageError: the disk refuses.
        UnavailableError: the process ended before it had an answer, so nothing is known of the
            database. It may be read again.
    """
    command = (sys.executable, "-m", __name__, str(path))
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise NoSpaceError(f"{path}: cannot start a process that reads it: {error}") from error
    kind, _, words = done.stdout.strip().partition(" ")
    if kind in _KINDS:
        raise _KINDS[kind](words)
    if done.returncode != 0:
        raise UnavailableError(
            f"{path}: the process that reads it {_end(done)}; nothing is known of what it read"
        )
    return int(kind)


def _end(done: subprocess.CompletedProcess[str]) -> str:
    """Return how a process ended that could not say it."""
    if done.returncode < 0:
        return f"was ended by signal {-done.returncode} ({signal.strsignal(-done.returncode)})"
    last = "".join(done.stderr.splitlines()[-1:])
    return f"ended with code {done.returncode} {last}".rstrip()


def _main(path: Path) -> str:
    from paxosblock.namenode.kv.rocks_table import RocksTable  # noqa: PLC0415 - it imports this

    os.nice(_NICE)
    try:
        with closing(RocksTable(OsDisk(), path, read_only=True)) as table:
            table.check()
            return str(table.revision)
    except PaxosBlockError as error:
        return f"{error.code} {error}"


if __name__ == "__main__":
    sys.stdout.write(_main(Path(sys.argv[1])))
