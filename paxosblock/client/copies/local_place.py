"""Files of this machine, as a copy reads and writes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO, Final, ParamSpec, TypeVar

from paxosblock.api.namenode import Kind
from paxosblock.base.checksum import Buffer
from paxosblock.base.units import MIB
from paxosblock.client.copies.copy_steps import CopyOptions
from paxosblock.client.copies.places import (
    UNKNOWN_SIZE,
    CopyEntry,
    KeptFacts,
    draft_of,
    facts_of,
    in_the_way,
    same_state,
)
from paxosblock.errors import InvalidRequestError, IsDirectoryError, PaxosBlockError
from paxosblock.host.user import name_of_group, name_of_user

PIECE_BYTES: Final = 4 * MIB

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run it on another thread. When this is cancelled it waits for the thread, so that what is
    tidied up afterwards stays so."""
    running = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        raise


class LocalSource:
    """A local file that is being read."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self._file = file
        self._stat = os.fstat(file.fileno())
        self.found = _found(path, self._stat)

    async def pieces(self) -> AsyncIterator[Buffer]:
        """See `OpenSource`."""
        while piece := await self.read(PIECE_BYTES):
            yield piece

    async def read(self, size: int) -> bytes:
        """See `OpenSource`."""
        return await in_thread(self._file.read, size)

    async def check_unchanged(self) -> None:
        """See `OpenSource`."""
        if not same_state(self._stat, os.fstat(self._file.fileno())):
            path = self.found.path
            raise InvalidRequestError(f"'{path}': was changed while it was copied", path=path)


class LocalFile:
    """A local file that is being written."""

    missing = (0, 0, "")

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    async def write(self, data: Buffer) -> object:
        """See `NewFile`."""
        return await in_thread(self._file.write, data)


class LocalPlace:
    """The files of this machine."""

    small_writing = None

    async def find(self, path: str) -> CopyEntry | None:
        """See `CopyPlace`; a link is what it leads to."""
        try:
            return _found(path, await in_thread(os.stat, path))
        except FileNotFoundError:
            return None

    async def listed(self, path: str) -> list[CopyEntry]:
        """See `CopyPlace`."""
        return await in_thread(_listed, path)

    @contextlib.asynccontextmanager
    async def opened(self, path: str) -> AsyncIterator[LocalSource]:
        """See `CopyPlace`."""
        with await in_thread(open, path, "rb") as file:
            yield LocalSource(path, file)

    async def kept(self, found: CopyEntry, letters: str) -> KeptFacts:
        """See `CopyPlace`."""
        return facts_of(found.facts, letters)

    async def make(self, path: str, present: CopyEntry | None, *, parents: bool) -> None:
        """See `CopyPlace`."""
        if present is not None:
            await self.remove(present)
        if parents:
            await in_thread(os.makedirs, path)
        else:
            await in_thread(os.mkdir, path)

    @contextlib.asynccontextmanager
    async def writing(
        self, path: str, present: CopyEntry | None, kept: KeptFacts, how: CopyOptions
    ) -> AsyncIterator[LocalFile]:
        """See `CopyPlace`."""
        draft = Path(draft_of(path))
        try:
            file = await in_thread(open, draft, "wb")
        except OSError as error:  # name the user's file in the error, not our draft
            raise type(error)(error.errno, error.strerror, path) from error
        try:
            with file:
                yield LocalFile(file)
            await in_thread(_publish, draft, path, present, kept, how)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    async def keep(self, path: str, kept: KeptFacts) -> None:
        """See `CopyPlace`."""
        await in_thread(_keep, path, kept, path)

    async def remove(self, found: CopyEntry) -> None:
        """See `CopyPlace`; of a link the link goes."""
        await in_thread(_remove, found.path)

    def note(self, error: BaseException | None) -> None:
        """See `CopyPlace`."""


def _found(path: str, status: os.stat_result) -> CopyEntry:
    kind = Kind.DIRECTORY if stat.S_ISDIR(status.st_mode) else Kind.FILE
    refused: PaxosBlockError | None = None
    if kind is Kind.FILE and not stat.S_ISREG(status.st_mode):
        # Opening a pipe would wait for its writer.
        text = f"'{path}': is neither a file nor a directory"
        refused = InvalidRequestError(text, path=path)
    return CopyEntry(path, kind, status.st_size, status.st_mtime, status, refused)


def _listed(path: str) -> list[CopyEntry]:
    found = []
    for name in sorted(os.listdir(path)):
        entry = os.path.join(path, name)
        try:
            each = _found(entry, os.stat(entry))
        except OSError as error:
            each = CopyEntry(entry, Kind.FILE, UNKNOWN_SIZE, refused=error)
        if each.kind is Kind.DIRECTORY and os.path.islink(entry):
            # It is not followed: it might lead round in a circle.
            refused = IsDirectoryError(f"'{entry}': is a directory", path=entry)
            each = CopyEntry(entry, Kind.FILE, UNKNOWN_SIZE, refused=refused)
        found.append(each)
    return found


def _publish(
    draft: Path, path: str, present: CopyEntry | None, kept: KeptFacts, how: CopyOptions
) -> None:
    _keep(str(draft), kept, path)
    if not (how.overwrite or how.sync) and os.path.lexists(path):
        raise in_the_way(path)
    if present is not None and present.kind is Kind.DIRECTORY:
        _remove(path)
    draft.replace(path)


def _keep(path: str, kept: KeptFacts, named: str) -> None:
    """Give a file these; errors tell of `named`, which it is or will be."""
    if kept.permission is not None:
        os.chmod(path, stat.S_IMODE(kept.permission))
    try:
        if kept.owner and kept.owner != name_of_user(os.stat(path).st_uid):
            shutil.chown(path, user=kept.owner)
        if kept.group and kept.group != name_of_group(os.stat(path).st_gid):
            shutil.chown(path, group=kept.group)
    except (LookupError, PermissionError) as error:
        whose = f"{kept.owner}:{kept.group}"
        text = f"'{named}': cannot be given to {whose} on this machine: {error}"
        raise InvalidRequestError(text, path=named) from error
    if kept.modified_s is not None:
        os.utime(path, (kept.modified_s, kept.modified_s))


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
