"""A program that reads all of a database, and ends: `python -m` this module, with its path.

RocksDB's binding holds the interpreter, and a NameNode's event loop with it: for some milliseconds
when it opens a database, and nearly all the time that every key of it is read. So
`rocks_table.check_apart` starts a process for it.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from paxosblock.errors import PaxosBlockError
from paxosblock.host.disk import OsDisk
from paxosblock.namenode.kv.rocks_table import RocksTable

_NICE: Final = 10
"""The NameNode that waits for it, and its neighbours, come first."""


def _main(path: Path) -> str:
    os.nice(_NICE)
    try:
        with closing(RocksTable(OsDisk(), path, read_only=True)) as table:
            table.check()
            return str(table.revision)
    except PaxosBlockError as error:
        return f"{error.code} {error}"


if __name__ == "__main__":
    sys.stdout.write(_main(Path(sys.argv[1])))
