"""A node on a machine that was started anew since the node ran last: it lost what was in memory.

    python -m tests.services.rebooted_node BOOT datanode ...

BOOT is a file with the name of this start of the machine, as the kernel tells it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from paxosblock.cli.main import main
from paxosblock.host import process

if __name__ == "__main__":
    process._BOOT_ID = Path(sys.argv.pop(1))
    main()
