"""Processes that append records to one file in turn, cut it, and take it from each other.

    python -m tests.services.chaos.appenders URL PATH NAME SEED

A record is one flushed chunk of `RECORD_BYTES`, so it is there as a whole or not at all. Each line
on standard output tells what was done, or is about to be. `Log` holds what all of them told against
the file: a record that was acknowledged at some place is there, unless the file was cut at or
before that place since. Cuts are numbered by how often the file had been cut then, so it is known
whether one whose appender was killed in its midst came about.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from paxosblock import Client
from paxosblock.api.transaction import AssertFile, Truncate
from paxosblock.errors import LeaseError, NotReadyError, Outcome, PaxosBlockError
from tests.fork_server import Program
from tests.services.chaos.writers import PATIENCE_S
from tests.waiting import wait_until

RECORD_BYTES: Final = 64
RECORDS_MOST: Final = 30
CUT_CHANCE: Final = 0.05
TAKE_OVER_AFTER: Final = 20
"""Refusals of a lease after which an appender takes the file over: its writer may be dead."""
STOP: Final = "stop"


class Word(msgspec.Struct, frozen=True):
    """One line of an appender: `record` is at place `place`, or the file is cut to that many.

    `cuts` is how often the file had been cut when the record's writer opened it, or will have been
    with this cut. `asked_s` is the time of `time.monotonic`, which all processes share. `done` is
    None of a cut that is only asked for, and False of one that will never be.
    """

    place: int
    cuts: int
    asked_s: float
    done: bool | None
    record: str | None = None


def record(name: str, number: int) -> bytes:
    """A record: whose, which, and a checksum."""
    body = f"{name} {number}"
    return f"{body} {zlib.crc32(body.encode()):08x}".encode().ljust(RECORD_BYTES - 1) + b"\n"


def main() -> None:
    """Append and cut until a line comes on standard input."""
    url, path, name, seed = sys.argv[1:]
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    rng, numbers = random.Random(seed), itertools.count(1)
    with Client(url) as fs:
        while not ended.wait(rng.uniform(0, 0.05)):
            if rng.random() < CUT_CHANCE:
                until_it_may(fs, path, lambda: cut(fs, path, rng))
            else:
                until_it_may(fs, path, lambda: append(fs, path, name, numbers, rng))
        while not until_it_may(fs, path, lambda: append(fs, path, name, numbers, rng)):
            pass  # the last of all is not cut by any appender


def until_it_may(fs: Client, path: str, work: Callable[[], None]) -> bool:
    """Do it once no other is at the file; take it from one who may be dead. True if done."""
    for refused in itertools.count(1):
        try:
            work()
        except (LeaseError, NotReadyError):
            if refused % TAKE_OVER_AFTER == 0:
                take_over(fs, path)
        except PaxosBlockError as error:
            sys.stderr.write(f"{error!r}\n")
            return False
        else:
            return True
    raise AssertionError("there is always another try")


def append(fs: Client, path: str, name: str, numbers: Iterator[int], rng: random.Random) -> None:
    """Append some records, each with a number of its own."""
    with fs.append(path) as out:
        for number in islice(numbers, rng.randint(1, RECORDS_MOST)):
            place, asked_s = out.tell() // RECORD_BYTES, time.monotonic()
            out.write(record(name, number))
            out.hflush()
            cuts, told = out.status.truncations, record(name, number).decode().strip()
            say(Word(place, cuts, asked_s, done=True, record=told))


def cut(fs: Client, path: str, rng: random.Random) -> None:
    """Cut the file to some of its records, sometimes to none, unless another one is quicker."""
    status = fs.stat(path)
    count = status.size // RECORD_BYTES
    if not count:
        return
    place = rng.choice((0, count // 2, max(0, count - rng.randint(1, 5))))
    asked = Word(place, status.truncations + 1, time.monotonic(), done=None)
    say(asked)
    as_it_was = AssertFile(path, truncations=status.truncations)
    try:
        fs.transact([as_it_was, Truncate(path, place * RECORD_BYTES)])
    except PaxosBlockError as error:
        if error.outcome is Outcome.NEVER:
            say(msgspec.structs.replace(asked, done=False))
        raise
    say(msgspec.structs.replace(asked, done=True))


def take_over(fs: Client, path: str) -> None:
    """Let no appender wait for a writer that is dead."""
    try:
        fs.take_over(path)
    except PaxosBlockError as error:
        sys.stderr.write(f"{error!r}\n")


def say(word: Word) -> None:
    """One line to the process that started us, at once."""
    sys.stdout.write(msgspec.json.encode(word).decode() + "\n")
    sys.stdout.flush()


class Appender:
    """A process, and what it told."""

    def __init__(self, url: str, path: str, name: str, seed: int, folder: Path) -> None:
        """Start it; `folder` gets what it says on standard error."""
        self.words: list[Word] = []
        command = [sys.executable, "-m", "tests.services.chaos.appenders", url, path, name]
        with (folder / f"{name}.stderr").open("w") as errors:
            self._process = Program(
                [*command, str(seed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ,
            )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def end(self, *, kill: bool) -> None:
        """End it, in the middle of whatever it does if it is to be killed."""
        if kill:
            self._process.kill()
        else:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{STOP}\n")
            self._process.stdin.flush()
        self._process.wait(PATIENCE_S)
        self._listener.join(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _listen(self) -> None:
        decoder = msgspec.json.Decoder(Word)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # or it was killed in the middle of it
                self.words.append(decoder.decode(line))


@dataclass
class Log:
    """A file, and the appenders that share it."""

    url: str
    path: str
    folder: Path
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    _appenders: list[Appender] = field(default_factory=list)
    _ended: list[Appender] = field(default_factory=list)

    def start(self, count: int) -> None:
        """Let so many appenders begin; the file is there."""
        for _ in range(count):
            number = len(self._appenders) + len(self._ended)
            name = f"{self.path.strip('/').replace('/', '-')}-{number}"
            seed = self.rng.randrange(1 << 30)
            self._appenders.append(Appender(self.url, self.path, name, seed, self.folder))

    def kill_one(self) -> None:
        """Kill an appender and start another one."""
        appender = self._appenders.pop(self.rng.randrange(len(self._appenders)))
        appender.end(kill=True)
        self._ended.append(appender)
        self.counts["appenders killed"] += 1
        self.start(1)

    def wait_progress(self) -> None:
        """Wait until a record is acknowledged that was begun after now."""
        now_s = time.monotonic()

        def went_on() -> bool:
            return any(word.asked_s > now_s for word in self._words() if word.record)

        wait_until(went_on, PATIENCE_S, f"a record appended to {self.path}")

    def end(self, *, kill: bool = False) -> None:
        """End all appenders."""
        while self._appenders:
            appender = self._appenders.pop()
            appender.end(kill=kill)
            self._ended.append(appender)

    def end_well(self, fs: Client) -> None:
        """See that they go on, end them, and check the file; nothing where there are none."""
        if self._appenders:
            self.wait_progress()
            self.end()
            self.check(fs)

    def check(self, fs: Client) -> int:
        """Compare the file with what was told; none may be at it. Return how many records it has.

        Raises:
            AssertionError: a record is lost, torn, twice or out of order, or was cut off.
        """
        assert not self._appenders, "nobody is at it"
        fs.take_over(self.path)
        with fs.open(self.path) as file:
            data = file.read()
        assert len(data) % RECORD_BYTES == 0, f"{self.path} has {len(data)} bytes"
        found = [line.strip() for line in data.decode().splitlines()]
        last: Counter[str] = Counter()
        for line in found:
            name, number, crc = line.split()
            assert crc == f"{zlib.crc32(f'{name} {number}'.encode()):08x}", f"torn: {line}"
            assert int(number) > last[name], f"{line} comes behind number {last[name]}"
            last[name] = int(number)
        words = list(self._words())
        cuts = _cuts(words, fs.stat(self.path).truncations)
        for word in words:
            if word.record is not None and not any(_undoes(cut, word) for cut in cuts):
                there = found[word.place] if word.place < len(found) else "nothing"
                assert there == word.record, f"place {word.place}: {there}, not {word.record}"
                self.counts["records verified"] += 1
        self.counts["cuts"] += len(cuts)
        self.counts["cuts without an end"] += sum(cut.done is None for cut in cuts)
        return len(found)

    def _words(self) -> list[Word]:
        appenders = (*self._ended, *self._appenders)
        return [word for appender in appenders for word in tuple(appender.words)]


def _cuts(words: list[Word], count: int) -> list[Word]:
    """Return the cuts that came about of a file that was cut `count` times.

    One whose end no writer told is there with `done` None, if no other has its number.
    """
    last = {(word.cuts, word.asked_s): word for word in words if word.record is None}
    done = {word.cuts: word for word in last.values() if word.done}
    assert max(done, default=0) <= count, f"cut {count} times, but cut {max(done)} was acknowledged"
    open_ = (word for word in last.values() if word.done is None)
    return [
        *done.values(),
        *(word for word in open_ if word.cuts <= count and word.cuts not in done),
    ]


def _undoes(cut: Word, word: Word) -> bool:
    """True if a cut took a record away: it came later, and went that far."""
    return cut.cuts > word.cuts and cut.place <= word.place


if __name__ == "__main__":
    main()
