"""`python -m benchmarks.peers.guard PARENT FOLDER COMMAND...`: run a peer that ends with us.

If the process that starts a peer is killed before it can stop it, the kernel stops the peer.
"""

from __future__ import annotations

import os
import sys

from paxosblock.host.process import die_with


def main() -> None:
    """Become the command, in its folder, for as long as the process `PARENT` lives."""
    parent, folder, *command = sys.argv[1:]
    die_with(int(parent))
    os.chdir(folder)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
