"""The places of files: the needs that a copy has of this machine and of the cluster."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.base.acl_entries import Acl
from paxosblock.base.checksum import Buffer
from paxosblock.base.paths import NAME_BYTES_MAX
from paxosblock.client.copies.copy_steps import CopyOptions
from paxosblock.errors import ExistsError, PaxosBlockError
from paxosblock.host.user import name_of_group, name_of_user

COPYING: Final = "._COPYING_"
"""Ends the name of a file that is not complete yet, as with hdfs."""
UNKNOWN_SIZE: Final = -1
_STATE: Final = ("st_dev", "st_ino", "st_size", "st_mtime_ns")


@dataclass(frozen=True, slots=True)
class CopyEntry:
    """A file or directory of a place.

    `size` is UNKNOWN_SIZE for one that is being written, or cannot be looked at. `refused` is why
    it cannot be copied.
    """

    path: str
    kind: Kind
    size: int
    modified_s: float = 0
    facts: FileStatus | os.stat_result | None = None
    refused: PaxosBlockError | OSError | None = None


@dataclass(frozen=True, slots=True)
class KeptFacts:
    """The facts that a copy keeps of its original; None or "" is not kept."""

    modified_s: float | None = None
    permission: int | None = None
    owner: str = ""
    group: str = ""
    acl: Acl | None = None
    attributes: Mapping[str, bytes] | None = None


class OpenSource(Protocol):
    """A file that is being read; `found` is what was known of it when it was opened."""

    found: CopyEntry

    def pieces(self) -> AsyncIterator[Buffer]:
        """Yield its bytes."""

    async def read(self, size: int) -> Buffer:
        """Return the next `size` bytes, fewer only at the end."""

    async def check_unchanged(self) -> None:
        """Raise if what was read may be a mixture of two states of the file."""


class NewFile(Protocol):
    """A file that is being written; the replicas of a `CopyStep`."""

    async def write(self, data: Buffer) -> object:
        """Append `data`."""

    @property
    def missing(self) -> tuple[int, int, str]:
        """Return `replicas`, `replication` and `shortfall` once it was written."""


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A file whose bytes have all been read, to be written to `path`; what it keeps, and how."""

    path: str
    content: Buffer
    kept: KeptFacts
    how: CopyOptions


class SmallWriting(Protocol):
    """Writes small files together, of up to `most_bytes` each."""

    @property
    def most_bytes(self) -> int: ...

    def are_full(self, files: int, size: int) -> bool:
        """Return whether so many files, and bytes, get no further file."""

    async def write(self, files: Sequence[SmallFile]) -> Sequence[tuple[int, int, str]]:
        """Write files, which appear in one step, and return what `NewFile.missing` is of each."""


class CopyPlace(Protocol):
    """This machine, or a cluster; `small_writing` is None where files are written one by one."""

    @property
    def small_writing(self) -> SmallWriting | None: ...

    async def find(self, path: str) -> CopyEntry | None:
        """Return what is at a path."""

    async def listed(self, path: str) -> list[CopyEntry]:
        """Return what is in a directory, by name."""

    def opened(self, path: str) -> AbstractAsyncContextManager[OpenSource]:
        """Read a file."""

    async def kept(self, found: CopyEntry, letters: str) -> KeptFacts:
        """Return what `letters` name of a file or directory, as `hdfs dfs -cp -p[topax]`."""

    async def make(self, path: str, present: CopyEntry | None, *, parents: bool) -> None:
        """Make a directory, in the place of a file that is `present`; with those above it."""

    def writing(
        self, path: str, present: CopyEntry | None, kept: KeptFacts, how: CopyOptions
    ) -> AbstractAsyncContextManager[NewFile]:
        """Write a file, which appears when all of it was written; `present` is what was there."""

    async def keep(self, path: str, kept: KeptFacts) -> None:
        """Give these to a directory."""

    async def remove(self, found: CopyEntry) -> None:
        """Delete it, with all that is in it."""

    def note(self, error: BaseException | None) -> None:
        """Hear how a step ended, so that only one of many waits for a cluster that is gone."""


def draft_of(path: str) -> str:
    """Return the name of a file until it is complete; a long name gets a short one."""
    directory, slash, name = path.rpartition("/")
    encoded = os.fsencode(name)
    if len(encoded) > NAME_BYTES_MAX - len(COPYING):
        name = hashlib.blake2b(encoded, digest_size=16).hexdigest()
    return f"{directory}{slash}{name}{COPYING}"


def same_state(one: os.stat_result, other: os.stat_result) -> bool:
    """True if a file was not changed between these two looks at it."""
    return all(getattr(one, name) == getattr(other, name) for name in _STATE)


def in_the_way(path: str) -> ExistsError:
    """Return the error for a file that must not be replaced."""
    return ExistsError(f"'{path}': file exists (overwrite=True replaces it)", path=path)


def facts_of(facts: FileStatus | os.stat_result | None, letters: str) -> KeptFacts:
    """Return what `letters` name of a file, as far as its status tells it."""
    times, rights, owners = "t" in letters, bool(set("pa") & set(letters)), "o" in letters
    if isinstance(facts, os.stat_result):
        return KeptFacts(
            facts.st_mtime if times else None,
            facts.st_mode if rights else None,
            name_of_user(facts.st_uid) if owners else "",
            name_of_group(facts.st_gid) if owners else "",
        )
    if facts is None:
        return KeptFacts()
    return KeptFacts(
        facts.modified_s if times else None,
        facts.permission if rights else None,
        facts.owner if owners else "",
        facts.group if owners else "",
    )
