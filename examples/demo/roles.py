"""The demo's other processes: `python -m examples.demo.roles follow|write URL PATH [FILE]`.

Each prints one JSON object per line, which is all that the demo learns from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Final

from paxosblock.base.units import MIB
from paxosblock.client import Client
from paxosblock.errors import PaxosBlockError
from paxosblock.host.process import die_with

FLUSHED_BYTES: Final = MIB
"""The writer flushes after so many bytes."""


def follow(url: str, path: str) -> None:
    """Read a file from its first byte while it is written, until it is closed."""
    digest, length = hashlib.sha256(), 0
    with Client(url) as client:
        for piece in client.follow(path):
            if not length:
                _tell(length=len(piece))
            digest.update(piece)
            length += len(piece)
    _tell(length=length, digest=digest.hexdigest())


def write(url: str, path: str, source: str) -> None:
    """Write a file and tell every length that was acknowledged, until somebody kills this."""
    with (
        Client(url) as client,
        client.create(path, overwrite=True) as out,
        open(source, "rb") as file,
    ):
        while piece := file.read(FLUSHED_BYTES):
            out.write(piece)
            _tell(length=out.hflush().size)
        sys.stdin.read()


def _tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main() -> None:
    """Play the role that the command line names."""
    die_with(os.getppid())
    role, url, path, *source = sys.argv[1:]
    try:
        if role == "follow":
            follow(url, path)
        else:
            write(url, path, *source)
    except PaxosBlockError as error:
        sys.exit(f"{role}: {error}")


if __name__ == "__main__":
    main()
