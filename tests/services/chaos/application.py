"""A writer in a process of its own, which says what it was promised, to be killed.

    python -m tests.services.chaos.application URL PATH --pace 0.01
    python -m tests.services.chaos.application URL PATH --idle

Writes the content of its path with random sizes and flushes, every so often or, `--idle`, once for
each line on its standard input, and prints a `Told` after each flush: from then on no reader may
miss a byte below its length. Closes the file when its standard input ends.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Iterator

import msgspec

from paxosblock import Client
from paxosblock.api.namenode import NO_BLOCK
from paxosblock.client.blocking.sync import FileWriter
from paxosblock.errors import NoSpaceError
from paxosblock.protocol.types import BlockId, Durability, StorageId
from tests.services.content import content


class Told(msgspec.Struct, frozen=True):
    """One line: the first `length` bytes are acknowledged.

    Times are those of `time.monotonic`, which all processes share: when the last bytes were given
    away, and when they were acknowledged, in `block`, by the storages `members`. `closed`: so is
    the file.
    """

    length: int
    begun_s: float
    at_s: float
    block: BlockId = NO_BLOCK
    members: tuple[StorageId, ...] = ()
    closed: bool = False


def main() -> None:
    """Parse the command line and write until the end of standard input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("path")
    parser.add_argument("--durability", choices=[d.value for d in Durability], required=True)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--pace", type=float, help="seconds between two flushes")
    how.add_argument("--idle", action="store_true", help="write only when told")
    options = parser.parse_args()
    with Client(options.url) as fs:
        now = time.monotonic()
        out = fs.create(options.path, durability=options.durability)
        say(Told(0, now, time.monotonic()))
        turns = lines() if options.idle else beats(options.pace)
        write(out, options.path, turns)


def lines() -> Iterator[object]:
    """A turn for each line."""
    return iter(sys.stdin)


def beats(pace_s: float) -> Iterator[object]:
    """A turn every so often, until the input ends."""
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    while not ended.wait(pace_s):
        yield None


def write(out: FileWriter, path: str, turns: Iterator[object]) -> None:
    """Write a piece of the content and flush at each turn; then close.

    Where there is no room nothing is lost, and the next turn tries again.
    """
    rng = random.Random(path)
    written = goal = 0
    for _ in turns:
        if written == goal:
            goal += rng.choice((1, 100, 4096, 20_000))
        begun = time.monotonic()
        try:
            out.write(content(path, out.tell(), goal))
            receipt = out.hsync() if rng.random() < 0.2 else out.hflush()
        except NoSpaceError:
            continue
        written = goal
        assert receipt.size == written
        say(Told(written, begun, time.monotonic(), receipt.block, receipt.replicas))
    begun = time.monotonic()
    out.close()
    say(Told(written, begun, time.monotonic(), closed=True))


def say(told: Told) -> None:
    """One line to the process that started us, at once."""
    sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
