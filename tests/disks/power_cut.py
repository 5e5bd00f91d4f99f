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
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
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

    def apply(self, content: bytearray) -> None:
        """Change `content` to what `applied` returns, without a copy of it."""
        if self.offset > len(content):
            content += bytes(self.offset - len(content))
        content[self.offset : self.offset + len(self.data)] = self.data


@dataclass(frozen=True, slots=True)
class Cut:
    """The file was truncated."""

    size: int

    def applied(self, content: bytes) -> bytes:
        return content[: self.size]

    def apply(self, content: bytearray) -> None:
        """Cut `content` itself."""
        del content[self.size :]


Change = Wrote | Cut


class File:
    """A file whatever its name: `data` is what is read, `durable` what survives, and of the
    `changes` since then any part may."""

    __slots__ = ("_durable", "_durable_bytes", "changes", "data", "path", "settled")

    def __init__(self, durable: bytes = b"") -> None:
        """So much is in it, for sure."""
        self.data = bytearray(durable)
        self.changes: list[Change] = []
        self.settled = 0
        """Number of changes that are durable."""
        self.path: Path | None = None
        """The name that it got last."""
        self._durable = bytearray(durable)
        self._durable_bytes: bytes | None = durable

    @property
    def durable(self) -> bytes:
        """The bytes that survive."""
        if self._durable_bytes is None:
            self._durable_bytes = bytes(self._durable)
        return self._durable_bytes

    @property
    def durable_size(self) -> int:
        """Return the number of bytes that survive."""
        return len(self._durable)

    @property
    def changed(self) -> int:
        """Number of changes so far."""
        return self.settled + len(self.changes)

    def change(self, change: Change) -> None:
        self.changes.append(change)
        change.apply(self.data)

    def settle(self) -> None:
        """All of it is durable."""
        self.settled = self.changed
        self._durable, self.changes = bytearray(self.data), []
        self._durable_bytes = None

    def settle_first(self, changed: int) -> None:
        """So many of its changes are durable, and of those since then any part may be."""
        count = max(0, changed - self.settled)
        for change in self.changes[:count]:
            change.apply(self._durable)
            self._durable_bytes = None
        self.settled += len(self.changes[:count])
        del self.changes[:count]


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


class Pending:
    """Changes of names that no sync has made durable, in their order.

    By their folders, too: a simulated disk has hundreds that no sync ever concerns, such as the old
    names of files that came from a folder whose loss would not matter.
    """

    def __init__(self) -> None:
        """None yet."""
        self._all: dict[int, Named] = {}
        self._in: dict[str, list[int]] = {}
        self._made = 0

    def __iter__(self) -> Iterator[Named]:
        return iter(self._all.values())

    def add(self, change: Named) -> None:
        """Note the newest one."""
        self._made += 1
        self._all[self._made] = change
        for folder in {*change.folders} - {""}:
            self._in.setdefault(folder, []).append(self._made)

    def sync(self, folder: str, durable: dict[Path, File]) -> None:
        """Let what a sync of a folder says happen to the `durable` names."""
        for number in self._in.pop(folder, ()):
            if (change := self._all.get(number)) is None:
                continue
            done, left = change.synced(folder)
            if done is not None:
                done.happen(durable)
            if left is None:
                del self._all[number]
            else:
                self._all[number] = left

    def drop(self, folder: Path) -> None:
        """Forget those within a folder, which is emptied."""
        for number, change in tuple(self._all.items()):
            if any(Path(one).is_relative_to(folder) for one in change.folders if one):
                del self._all[number]


class Names(dict[Path, File]):
    """The names of a disk; it knows what is in each folder, however deep, without a look at all."""

    def __init__(self, names: Mapping[Path, File]) -> None:
        """Begin with a copy of these."""
        super().__init__()
        self._below: dict[str, Counter[str]] = {}
        for path, file in names.items():
            self[path] = file

    def __setitem__(self, path: Path, file: File) -> None:
        if path not in self:
            for folder, child in _way(str(path)):
                self._below.setdefault(folder, Counter())[child] += 1
        super().__setitem__(path, file)
        file.path = path

    def __delitem__(self, path: Path) -> None:
        super().__delitem__(path)
        for folder, child in _way(str(path)):
            below = self._below[folder]
            below[child] -= 1
            if not below[child]:
                del below[child]

    def within(self, folder: str) -> list[str]:
        """Return the first part of each path within a folder, once."""
        return [*self._below.get(folder, ())]


@lru_cache(maxsize=1 << 14)
def _way(path: str) -> tuple[tuple[str, str], ...]:
    """Return each folder above a path, and the next part of the path in it."""
    way = []
    while path:
        path, _, child = path.rpartition("/")
        way.append((path, child))
    return tuple(way)


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
