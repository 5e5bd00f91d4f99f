"""Show the ways:  python -m tests.ways [mkdirs] [stat] [chunk] [pread] [take_over]

Prints files and calls of each, and for those that are named which functions they call.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import uvloop

from tests.ways.tracing import listed
from tests.ways.ways import length, shortest


def main() -> None:
    """Go each way, and print it."""
    with tempfile.TemporaryDirectory() as folder:
        found = uvloop.run(shortest(Path(folder), known={}))
    for name, way in found.items():
        files, calls = length(way)
        sys.stdout.write(f"{name}: {files} files, {calls} calls\n")
        if name in sys.argv[1:]:
            sys.stdout.write(listed(way))


if __name__ == "__main__":
    main()
