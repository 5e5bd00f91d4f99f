"""A writer that says what it was promised, in a process of its own, to be killed.

Writes the content of its path to a file with random sizes, flushes now and then, and prints a line
`acknowledged N` after each flush that returned: from then on no reader may miss a byte below N.
"""

from __future__ import annotations

import argparse
import random
import sys

from paxosblock import Client
from paxosblock.protocol.types import Durability
from tests.services.content import content


def main() -> None:
    """Parse the command line and write until the file is long enough, then close it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("path")
    parser.add_argument("--seed", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--durability", choices=[d.value for d in Durability], required=True)
    options = parser.parse_args()
    with Client(options.url) as fs:
        write(fs, options.path, options.seed, options.size, options.durability)


def write(fs: Client, path: str, seed: str, size: int, durability: str) -> None:
    """Write `size` bytes of the content of `path`, flushing at random."""
    rng = random.Random(seed)
    out = fs.create(path, durability=durability)
    say("created")
    written = 0
    while written < size:
        step = min(size - written, rng.choice((1, 100, 4096, 50_000, 300_000)))
        out.write(content(path, written, written + step))
        written += step
        if rng.random() < 0.5:
            receipt = out.hsync() if rng.random() < 0.2 else out.hflush()
            assert receipt.length <= written
            say(f"acknowledged {written}")
    out.close()
    say(f"closed {written}")


def say(line: str) -> None:
    """One line to whoever started us, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
