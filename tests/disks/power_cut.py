"""Files in memory, as a power cut leaves them.

What is durable is only what was synced: a file's bytes by `sync`, a name, or that it is gone, by
`sync_folder` of its own folder. Of everything else any part may be there: each write whole, torn,
missing or garbled, each truncation and each change of a name done or not, in any combination. A
file that changes its folder is in one of them until one is synced, and then that one says nothing
of the other: synced where it was and not where it is, it may be lost.
"""

from __future__ import annotations

import enum
import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

Files = dict[Path, bytes]


@dataclass(frozen=True, slots=True)
class Wrote:
    """Bytes were handed over."""

    offset: int
    data: bytes

    def applied(self, content: bytes) -> bytes:
        """The content after it; what lies between the end and the offset is zeros."""
        before = content[: self.offset].ljust(self.offset, b"\0")
        return before + self.data + content[self.offset + len(self.data) :]


@dataclass(frozen=True, slots=True)
class Cut:
    """The file was truncated."""

    size: int

    def applied(self, content: bytes) -> bytes:
        return content[: self.size]


Change = Wrote | Cut


@dataclass(slots=True, eq=False)
class File:
    """A file whatever its name: `data` is what is read, `durable` what survives, and of the
    `changes` since then any part may."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    changes: list[Change] = field(default_factory=list)
    settled: int = 0
    """Number of changes that are durable."""

    @property
    def changed(self) -> int:
        """Number of changes so far."""
        return self.settled + len(self.changes)

    def change(self, change: Change) -> None:
        self.changes.append(change)
        if isinstance(change, Cut):
            del self.data[change.size :]
            return
        if change.offset > len(self.data):
            self.data += bytes(change.offset - len(self.data))
        self.data[change.offset : change.offset + len(change.data)] = change.data

    def settle(self) -> None:
        """All of it is durable."""
        self.settled = self.changed
        self.durable, self.changes = bytes(self.data), []

    def settle_first(self, changed: int) -> None:
        """So many of its changes are durable, and of those since then any part may be."""
        if changed >= self.changed:
            self.settle()
            return
        count = max(0, changed - self.settled)
        for change in self.changes[:count]:
            self.durable = change.applied(self.durable)
        del self.changes[:count]
        self.settled += count


@dataclass(frozen=True)
class Named:
    """`source` (None: nothing, it is a new file) is called `target` (None: removed)."""

    source: Path | None
    target: Path | None
    file: File

    def happen(self, names: dict[Path, File]) -> None:
        if self.source is not None and names.get(self.source) is self.file:
            del names[self.source]
        if self.target is not None:
            names[self.target] = self.file

    @cached_property
    def folders(self) -> tuple[str, str]:
        """The folders that it leaves and comes to; "" for none."""
        return _folder(self.source), _folder(self.target)

    def synced(self, folder: str) -> tuple[Named | None, Named | None]:
        """Return what of it is durable once `folder` is synced, and what is still pending."""
        leaves, comes = (each == folder for each in self.folders)
        if not leaves and not comes:
            return None, self
        gone, there = Named(self.source, None, self.file), Named(None, self.target, self.file)
        if comes and not leaves and self.source is not None:
            return there, gone
        if leaves and not comes and self.target is not None:
            return gone, there
        return self, None


def _folder(path: Path | None) -> str:
    """Return it as `str(path.parent)` does, in a tenth of the time."""
    return "" if path is None else str(path).rpartition("/")[0]


class Fate(enum.Enum):
    """The outcome of a change that was not synced."""

    DONE = "done"
    MISSING = "missing"
    TORN = "torn"
    """The first half of what was written is there."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The durable and the pending changes at some point; `note` is what a test wrote down."""

    names: dict[Path, File]
    renames: tuple[Named, ...]
    contents: dict[File, tuple[bytes, tuple[Change, ...]]]
    note: object = None

    def states(self, at_most: int, seed: int) -> Iterator[Files]:
        """Yield what may be on the disk when the power fails here: every combination of fates.

        All of them when there are not more than `at_most`, else so many at random, of which one is
        "nothing but what was synced" and one "all of it".
        """
        changes = [change for _, pending in self.contents.values() for change in pending]
        choices = [(*Fate,) if isinstance(one, Wrote) else (*Fate,)[:2] for one in changes]
        choices += [(*Fate,)[:2]] * len(self.renames)
        for fates in _chosen(choices, at_most, seed):
            yield self._left(iter(fates[: len(changes)]), fates[len(changes) :])

    def _left(self, fates: Iterator[Fate], renames: tuple[Fate, ...]) -> Files:
        contents = {}
        for file, (durable, changes) in self.contents.items():
            contents[file] = durable
            for change, fate in zip(changes, fates, strict=False):
                contents[file] = _after(contents[file], change, fate)
        return self._named((fate is Fate.DONE for fate in renames), contents)

    def _named(self, happened: Iterator[bool], contents: Mapping[File, bytes]) -> Files:
        names = dict(self.names)
        for rename, did in zip(self.renames, happened, strict=True):
            if did:
                rename.happen(names)
        return {path: contents[file] for path, file in names.items()}

    def tears(self, chance: random.Random) -> Iterator[Files]:
        """Yield what may be left: every subset of the names, and one file at a time torn at each of
        its bytes, with zeros or garbage behind, or whole pieces of it missing.
        """
        whole = {file: _all(*content) for file, content in self.contents.items()}
        for happened in itertools.product((False, True), repeat=len(self.renames)):
            yield self._named(iter(happened), whole)
            for file, (durable, changes) in self.contents.items():
                for content in _torn(durable, changes, chance) if changes else ():
                    yield self._named(iter(happened), {**whole, file: content})

    def one_of_many(self, rng: random.Random) -> Files:
        """One state at random, with some bits of what was not synced flipped."""
        happened = [rng.random() < 0.5 for _ in self.renames]
        if rng.random() < 0.5:  # in the order in which they were made, as most file systems do it
            happened.sort(reverse=True)
        left = {file: _garbled(*content, rng) for file, content in self.contents.items()}
        return self._named(iter(happened), left)


def _after(content: bytes, change: Change, fate: Fate) -> bytes:
    match change, fate:
        case _, Fate.MISSING:
            return content
        case Wrote(offset, data), Fate.TORN:
            return Wrote(offset, data[: len(data) // 2]).applied(content)
        case _:
            return change.applied(content)


def _all(durable: bytes, changes: tuple[Change, ...]) -> bytes:
    for change in changes:
        durable = change.applied(durable)
    return durable


def _chosen(choices: list[tuple[Fate, ...]], at_most: int, seed: int) -> Iterator[tuple[Fate, ...]]:
    total = 1
    for options in choices:
        total *= len(options)
    if total <= at_most:
        yield from itertools.product(*choices)
        return
    chance = random.Random(seed)
    yield (Fate.DONE,) * len(choices)
    yield (Fate.MISSING,) * len(choices)
    for _ in range(at_most - 2):
        yield tuple(chance.choice(options) for options in choices)


def _torn(durable: bytes, changes: tuple[Change, ...], chance: random.Random) -> Iterator[bytes]:
    versions = list(
        itertools.accumulate(changes, lambda one, change: change.applied(one), initial=durable)
    )
    now = versions.pop()
    for version in versions:
        yield version
        if version and len(version) == len(now):  # it was written over
            mixed = chance.randrange(len(version))
            yield now[:mixed] + version[mixed:]
            yield version[:mixed] + now[mixed:]
    kept, tail = now[: len(durable)], now[len(durable) :]
    for size in range(len(tail)):
        rest = len(tail) - size
        yield kept + tail[:size]
        yield kept + tail[:size] + bytes(rest)
        yield kept + tail[:size] + chance.randbytes(rest)
        yield kept + bytes(size) + tail[size:]
    for fates in itertools.product((False, True), repeat=min(len(changes), 6)):
        survived = (change for change, fate in zip(changes, fates, strict=False) if fate)
        yield _all(durable, tuple(survived)).ljust(len(now), b"\0")


def _garbled(durable: bytes, changes: tuple[Change, ...], rng: random.Random) -> bytes:
    if not changes:
        return durable
    whole = rng.random() < 0.5  # it all arrived, but perhaps not as it was
    count = len(changes) if whole else rng.randrange(len(changes))
    content = _all(durable, changes[:count])
    if count < len(changes) and isinstance(torn := changes[count], Wrote):
        content = Wrote(torn.offset, torn.data[: rng.randint(0, len(torn.data))]).applied(content)
    if len(content) > len(durable) and rng.random() < 0.5:
        at = rng.randrange(len(durable), len(content))
        return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
    return content
