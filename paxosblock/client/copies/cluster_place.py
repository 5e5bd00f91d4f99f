"""Files of a cluster, as a copy reads and writes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final, Protocol, Self

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.ownership import AclStatus
from paxosblock.api.transaction import (
    AclChange,
    AssertFile,
    ChangeAcl,
    Delete,
    MakeDirectory,
    Operation,
    Rename,
    SetAttributes,
    SetOwner,
    SetPermission,
    SetTimes,
    TransactionOutcome,
)
from paxosblock.base.checksum import Buffer
from paxosblock.base.modes import OF_FILES, PERMISSION_MAX
from paxosblock.base.paths import STAGING
from paxosblock.base.replacement import WriteOptions
from paxosblock.client.copies.copy_steps import CopyOptions
from paxosblock.client.copies.places import (
    UNKNOWN_SIZE,
    CopyEntry,
    KeptFacts,
    SmallFile,
    draft_of,
    facts_of,
)
from paxosblock.client.opening import Opening
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.client.session.shared_session import SharedSession, durability_of
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.client.writing.many_files import MadeLike, WholeFile, are_full, put_together
from paxosblock.config import ClientConfig
from paxosblock.errors import LeaseError, NotDirectoryError, NotFoundError, PaxosBlockError
from paxosblock.protocol.types import Durability

IN_VAIN_S: Final = 0.5
"""Seconds for which a copy tries each later file once it waited in vain."""
TAKES_BACK_S: Final = 10.0
"""Seconds for which it tries to remove a file that did not become complete."""


class CopyClient(Protocol):
    """The calls of an `AsyncClient` that are needed here."""

    @property
    def config(self) -> ClientConfig: ...

    def within(self, seconds: float) -> Self: ...

    async def stat(self, path: str) -> FileStatus: ...

    async def ls(self, path: str) -> list[FileStatus]: ...

    async def mkdirs(self, path: str, *, parents: bool = True) -> FileStatus: ...

    async def delete(self, path: str) -> bool: ...

    async def transact(self, ops: Sequence[Operation]) -> TransactionOutcome: ...

    async def get_acl_status(self, path: str) -> AclStatus: ...

    async def get_attributes(self, path: str) -> dict[str, bytes]: ...

    def open(self, path: str) -> Opening[AsyncFileReader]: ...

    def create(
        self,
        path: str,
        *,
        overwrite: bool = False,
        replication: int | None = None,
        block_size: int | None = None,
        durability: Durability | str | None = None,
        parent_must_exist: bool = False,
        options: WriteOptions | None = None,
    ) -> Opening[AsyncFileWriter]: ...


class ClusterSource:
    """A file of the cluster that is being read, as it was when it was opened."""

    def __init__(self, reader: AsyncFileReader) -> None:
        self._reader = reader
        self.found = replace(_found(reader.status), size=reader.size)

    def pieces(self) -> AsyncIterator[Buffer]:
        """See `OpenSource`."""
        return self._reader.pieces()

    async def read(self, size: int) -> Buffer:
        """See `OpenSource`."""
        return await self._reader.read(size)

    async def check_unchanged(self) -> None:
        """Return: its reader never mixes two states of a file."""


class ClusterFile:
    """A file of the cluster that is being written."""

    def __init__(self, writer: AsyncFileWriter) -> None:
        self._writer = writer

    async def write(self, data: Buffer) -> object:
        """See `NewFile`."""
        return await self._writer.write(data)

    @property
    def missing(self) -> tuple[int, int, str]:
        """See `NewFile`."""
        writer = self._writer
        return writer.fewest_replicas, writer.status.replication, writer.shortfall


class ClusterBatches:
    """Writes small files of a copy together, those that have one chunk."""

    def __init__(self, session: SharedSession) -> None:
        self._session = session

    @property
    def most_bytes(self) -> int:
        """See `SmallWriting`."""
        return self._session.config.chunk_size

    def are_full(self, files: int, size: int) -> bool:
        """See `SmallWriting`."""
        return are_full(files, size)

    async def write(self, files: Sequence[SmallFile]) -> list[tuple[int, int, str]]:
        """See `SmallWriting`; a directory above that is not there is not made."""
        whole = [
            WholeFile(each.path, each.content, self._like(each.how),
                      kept_operations(each.path, each.kept))
            for each in files
        ]  # fmt: skip
        put = await put_together(self._session, whole, parents=False)
        return [(each.fewest, each.wanted, each.shortfall) for each in put]

    def _like(self, how: CopyOptions) -> MadeLike:
        config = self._session.config
        return MadeLike(
            how.overwrite,
            how.replication or config.replication,
            how.block_size or config.block_size,
            config.durability if how.durability is None else durability_of(how.durability),
            config.chunk_size,
            config.window,
            OF_FILES,
            config.umask,
            how.options,
        )


class ClusterPlace:
    """The files of a cluster."""

    def __init__(self, client: CopyClient, session: SharedSession) -> None:
        """Make it of a client, and of what that shares with its files."""
        self._client = client
        self._session = session
        self._in_vain = False

    @property
    def _patience_s(self) -> float:
        patience_s = self._client.config.retry_for_s
        return min(IN_VAIN_S, patience_s) if self._in_vain else patience_s

    @property
    def _fs(self) -> CopyClient:
        return self._client.within(self._patience_s) if self._in_vain else self._client

    @property
    def small_writing(self) -> ClusterBatches:
        """See `CopyPlace`."""
        return ClusterBatches(self._session.within(self._patience_s))

    def note(self, error: BaseException | None) -> None:
        """See `CopyPlace`."""
        if error is None:
            self._in_vain = False
        elif isinstance(error, PaxosBlockError) and error.retriable:
            self._in_vain = True

    async def find(self, path: str) -> CopyEntry | None:
        """See `CopyPlace`."""
        try:
            return _found(await self._fs.stat(path))
        except NotFoundError:
            return None

    async def listed(self, path: str) -> list[CopyEntry]:
        """See `CopyPlace`; the hidden names of files that are not published yet are left out."""
        entries = await self._fs.ls(path)
        if any(entry.path == path for entry in entries):
            raise NotDirectoryError(f"'{path}': is no directory any more", path=path)
        return [_found(entry) for entry in entries if entry.path != STAGING]

    @contextlib.asynccontextmanager
    async def opened(self, path: str) -> AsyncIterator[ClusterSource]:
        """See `CopyPlace`; the length must be decided, so that no copy is shorter than the file."""
        async with self._fs.open(path) as reader:
            await reader.decide()
            yield ClusterSource(reader)

    async def kept(self, found: CopyEntry, letters: str) -> KeptFacts:
        """See `CopyPlace`."""
        kept, status = facts_of(found.facts, letters), found.facts
        if "a" in letters and isinstance(status, FileStatus) and status.has_acl:
            kept = replace(kept, acl=(await self._fs.get_acl_status(found.path)).acl)
        if "x" in letters:
            kept = replace(kept, attributes=await self._fs.get_attributes(found.path))
        return kept

    async def make(self, path: str, present: CopyEntry | None, *, parents: bool) -> None:
        """See `CopyPlace`."""
        if present is None:
            await self._fs.mkdirs(path, parents=parents)
        else:
            await self._fs.transact([*_gone(present), MakeDirectory(path)])

    @contextlib.asynccontextmanager
    async def writing(
        self, path: str, present: CopyEntry | None, kept: KeptFacts, how: CopyOptions
    ) -> AsyncIterator[ClusterFile]:
        """See `CopyPlace`."""
        if how.directly:
            async with self._begun(path, how) as out:
                yield ClusterFile(out)
            if operations := kept_operations(path, kept):
                await self._fs.transact([AssertFile(path, out.status.file_id), *operations])
            return
        draft = draft_of(path)
        begun = asyncio.ensure_future(self._begun_anew(draft, replace(how, overwrite=True)))
        try:
            await asyncio.wait((begun,))  # which does not cancel it when this is
            out = begun.result()
            async with out:
                yield ClusterFile(out)
                # Not a file that another copy has begun since.
                ours = AssertFile(draft, out.status.file_id)
                given = kept_operations(draft, kept)
                moved: list[Operation] = [Rename(draft, path, how.overwrite)]
                if how.sync is not None:
                    moved = _replaced(path, draft, present)
                await out.close(then=[ours, *given, *moved])
        except BaseException as error:
            self.note(error)
            await self._take_back(begun)
            raise

    async def _take_back(self, begun: asyncio.Future[AsyncFileWriter]) -> None:
        """Delete a file that did not become complete, if it was made."""
        patience_s = min(TAKES_BACK_S, self._fs.config.retry_for_s)
        with contextlib.suppress(PaxosBlockError):
            out = await begun
            # It may still be open: a file whose last bytes found no place cannot be closed.
            await out.abort()
            await self._fs.within(patience_s).transact(
                [Delete(out.status.path, file_id=out.status.file_id)]
            )

    def _begun(self, path: str, how: CopyOptions) -> Opening[AsyncFileWriter]:
        return self._fs.create(
            path,
            overwrite=how.overwrite,
            replication=how.replication,
            block_size=how.block_size,
            durability=how.durability,
            parent_must_exist=True,
            options=how.options,
        )

    async def _begun_anew(self, draft: str, how: CopyOptions) -> AsyncFileWriter:
        """Begin the file that gets its name at the end. What another copy has begun there goes, as
        with hdfs: one that was killed keeps its lease for a minute, and one at work ends with an
        error.
        """
        try:
            return await self._begun(draft, how)
        except LeaseError:
            await self._fs.delete(draft)
            return await self._begun(draft, how)

    async def keep(self, path: str, kept: KeptFacts) -> None:
        """See `CopyPlace`."""
        if operations := kept_operations(path, kept):
            await self._fs.transact(operations)

    async def remove(self, found: CopyEntry) -> None:
        """See `CopyPlace`."""
        await self._fs.transact(_gone(found))


def kept_operations(path: str, kept: KeptFacts) -> list[Operation]:
    """Return what gives these to a file or directory."""
    wanted: list[Operation] = []
    if kept.modified_s is not None:
        wanted.append(SetTimes(path, kept.modified_s))
    if kept.permission is not None:
        wanted.append(SetPermission(path, kept.permission & PERMISSION_MAX))
    if kept.acl:
        wanted.append(ChangeAcl(path, AclChange.SET, kept.acl))
    if kept.attributes:
        wanted.append(SetAttributes(path, dict(kept.attributes)))
    if kept.owner or kept.group:
        wanted.append(SetOwner(path, kept.owner, kept.group))
    return wanted


def _found(status: FileStatus) -> CopyEntry:
    size = UNKNOWN_SIZE if status.open else status.size
    return CopyEntry(status.path, status.kind, size, status.modified_s, status)


def _gone(found: CopyEntry) -> list[Operation]:
    """Return what deletes just what was found: not a file that has taken its name since."""
    if isinstance(found.facts, FileStatus) and found.kind is Kind.FILE:
        return [Delete(found.path, file_id=found.facts.file_id)]
    return [Delete(found.path, recursive=True)]


def _replaced(path: str, draft: str, present: CopyEntry | None) -> list[Operation]:
    """Let a draft take the place of what it was compared with, and of nothing else."""
    if present is None:
        return [Rename(draft, path)]
    if present.kind is Kind.DIRECTORY:
        return [*_gone(present), Rename(draft, path)]
    expected = AssertFile(path)
    if isinstance(status := present.facts, FileStatus):
        expected = AssertFile(path, status.file_id, status.size, status.truncations)
    return [expected, Rename(draft, path, overwrite=True)]
