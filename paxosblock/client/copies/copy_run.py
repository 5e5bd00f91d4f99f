"""Copies a file, or a directory with all that is in it, from one place to another.

Several files are under way at once, and each appears when it is complete. Small ones are written
together where the target can do that. What cannot be copied does not hold up the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from paxosblock.api.namenode import Kind
from paxosblock.base.paths import is_below
from paxosblock.client.copies.copy_steps import (
    CopyAction,
    CopyOptions,
    CopyStep,
    CopySummary,
    Progress,
    Sync,
    Told,
)
from paxosblock.client.copies.places import (
    COPYING,
    UNKNOWN_SIZE,
    CopyEntry,
    CopyPlace,
    OpenSource,
    SmallFile,
    SmallWriting,
    in_the_way,
)
from paxosblock.client.names.walk import base_name, join
from paxosblock.errors import (
    ExistsError,
    InvalidRequestError,
    IsDirectoryError,
    NotFoundError,
    Outcome,
    PaxosBlockError,
)

AHEAD: Final = 4
"""Tasks for each of those at once that are begun before the first is done: it may be long."""
_TIME_STEP_S: Final = 0.0015
"""Times that differ by less are the same: a cluster keeps milliseconds."""

_FAILURES: Final = (PaxosBlockError, OSError)


@dataclass(frozen=True, slots=True)
class _CopyJob:
    """A file to be copied, its target, and what is there."""

    found: CopyEntry
    target: str
    present: CopyEntry | None


class CopyRun:
    """One copy of a file or directory."""

    def __init__(
        self,
        source: CopyPlace,
        target: CopyPlace,
        how: CopyOptions,
        told: Told | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`told` hears of each file and directory in turn, a directory behind what is in it.
        Without it the first error is raised, when all the others are done."""
        self._source = source
        self._target = target
        self._how = how
        self._told = told
        self._progress = progress or _ignore
        self._first_error: PaxosBlockError | OSError | None = None
        self._sum = CopySummary()
        self._made: list[tuple[CopyEntry, str, CopyAction]] = []
        self._extras: list[CopyEntry] = []

    async def run(self, path: str, target: str) -> CopySummary:
        """Copy what is at `path`, to be what is at `target`.

        Raises:
            NotFoundError, FileNotFoundError: nothing is at `path`.
            PaxosBlockError, OSError: the first thing that could not be copied, unless it is `told`.
        """
        top = await self._source.find(path)
        if top is None:
            raise NotFoundError(f"'{path}': no such file or directory", path=path)
        present = await self._target.find(target)
        if present is not None and present.kind is not top.kind:  # even if `sync` deletes
            taken = _directory_there if present.kind is Kind.DIRECTORY else _file_there
            self._tell(CopyStep(CopyAction.COPIED, path, target, error=taken(target)))
        elif top.kind is Kind.FILE:
            self._tell(await self._copied(_CopyJob(top, target, present)))
        else:
            if self._source is self._target and is_below(target, path):
                text = f"'{path}': to '{target}': is a subdirectory of itself"
                raise InvalidRequestError(text, path=path)
            async with contextlib.aclosing(self._below(top, target, present)) as jobs:
                await self._copy_all(jobs)
            await self._finish()
        if self._first_error is not None:
            raise self._first_error
        return self._sum

    # -- directories ----------------------------------------------------------------------------

    async def _below(
        self, top: CopyEntry, target: str, present: CopyEntry | None
    ) -> AsyncGenerator[_CopyJob]:
        """Make the directories, and yield the files of each."""
        waiting = [(top, target, present)]
        while waiting:
            found, wanted, there = waiting.pop()
            try:
                inside = await self._source.listed(found.path)
                known = await self._made_directory(found, wanted, there)
            except _FAILURES as error:
                self._tell(CopyStep(CopyAction.MADE, found.path, wanted, error=error))
                continue
            self._progress(0)
            below = []
            for entry in inside:
                name = base_name(entry.path)
                if self._how.sync is not None and name.endswith(COPYING):
                    continue  # it is on its way itself
                job = _CopyJob(entry, join(wanted, name), known.pop(name, None))
                if entry.kind is Kind.DIRECTORY:
                    below.append((entry, job.target, job.present))
                else:
                    yield job
            waiting += reversed(below)
            self._extras += [each for name, each in known.items() if not name.endswith(COPYING)]

    async def _made_directory(
        self, found: CopyEntry, wanted: str, there: CopyEntry | None
    ) -> dict[str, CopyEntry]:
        """Make the directory if need be; return what is in it."""
        if there is not None and there.kind is Kind.DIRECTORY:
            self._made.append((found, wanted, CopyAction.KEPT))
            return {base_name(each.path): each for each in await self._target.listed(wanted)}
        if there is not None and not self._how.deletes:
            raise _file_there(wanted)
        if not self._how.dry_run:
            await self._target.make(wanted, there, parents=self._how.parents)
        self._made.append((found, wanted, CopyAction.MADE))
        return {}

    async def _finish(self) -> None:
        """Be done with the directories, then with what is only at the target."""
        for found, wanted, action in reversed(self._made):
            step = CopyStep(action, found.path, wanted)
            try:
                if self._how.preserve and not self._how.dry_run:
                    kept = await self._source.kept(found, self._how.preserve)
                    await self._target.keep(wanted, kept)
            except _FAILURES as error:
                step = replace(step, error=error)
            self._tell(step)
        if not self._how.deletes or self._sum.failed:
            return
        for each in self._extras:
            step = CopyStep(CopyAction.DELETED, "", each.path)
            try:
                if not self._how.dry_run:
                    await self._target.remove(each)
            except _FAILURES as error:
                step = replace(step, error=error)
            self._tell(step)

    # -- files ----------------------------------------------------------------------------------

    async def _copy_all(self, jobs: AsyncIterator[_CopyJob]) -> None:
        """Copy several at once; tell of them in their order. When this ends all have ended."""
        free = asyncio.Semaphore(self._how.at_once)

        async def copy(some: Sequence[_CopyJob]) -> list[CopyStep]:
            async with free:
                if self._target.small_writing is None or len(some) == 1:
                    return [await self._copied(job) for job in some]
                return await self._copied_together(some, self._target.small_writing)

        waiting = deque[asyncio.Task[list[CopyStep]]]()

        async def tell_next() -> None:
            await asyncio.wait((waiting[0],))  # which does not cancel it when this is
            for step in waiting.popleft().result():
                self._tell(step)

        try:
            async with contextlib.aclosing(self._gathered(jobs)) as gathered:
                async for some in gathered:
                    waiting.append(asyncio.create_task(copy(some)))
                    if len(waiting) == AHEAD * self._how.at_once:
                        await tell_next()
            while waiting:
                await tell_next()
        finally:
            for task in waiting:  # all at once, and each once: what it takes back then takes time
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _gathered(self, jobs: AsyncIterator[_CopyJob]) -> AsyncGenerator[list[_CopyJob]]:
        """Yield small files that follow each other together, and each other one by itself."""
        small_writing, some, size = self._target.small_writing, list[_CopyJob](), 0
        async for job in jobs:
            if small_writing is None or not self._fits(job, small_writing):
                if some:
                    yield some
                    some, size = [], 0
                yield [job]
                continue
            some.append(job)
            size += job.found.size
            if small_writing.are_full(len(some), size):
                yield some
                some, size = [], 0
        if some:
            yield some

    def _fits(self, job: _CopyJob, small_writing: SmallWriting) -> bool:
        """Return whether a file is written as others are, and replaces nothing but by name."""
        how, present = self._how, job.present
        if how.directly or how.dry_run or job.found.refused is not None:
            return False
        if present is not None and (how.sync or not how.overwrite or present.kind is not Kind.FILE):
            return False
        return 0 <= job.found.size <= small_writing.most_bytes

    async def _copied_together(
        self, jobs: Sequence[_CopyJob], small_writing: SmallWriting
    ) -> list[CopyStep]:
        """Copy small files in one step; return how that ended for each.

        Each goes by itself where one of them cannot be read or is refused, so that this holds up
        none of the others: only an outcome that is not known, or a cluster that does not answer, is
        that of all.
        """
        try:
            read = [await self._read_small(job, small_writing) for job in jobs]
            steps = await self._write_together(read, small_writing)
        except _FAILURES as error:
            if not isinstance(error, PaxosBlockError) or _is_refusal(error):
                return [await self._copied(job) for job in jobs]
            self._target.note(error)
            steps = [
                CopyStep(CopyAction.COPIED, job.found.path, job.target, error=error) for job in jobs
            ]
        else:
            self._source.note(None)
            self._target.note(None)
        for step in steps:
            self._progress(step.size)
        return steps

    async def _read_small(
        self, job: _CopyJob, small_writing: SmallWriting
    ) -> tuple[CopyEntry, SmallFile]:
        """Read all of a file. Raises InvalidRequestError if it is not small any more."""
        how, path = self._how, job.found.path
        async with self._source.opened(path) as file:
            found = file.found
            kept = await self._source.kept(found, how.preserve)
            content = await file.read(found.size + 1)
            if not len(content) <= found.size <= small_writing.most_bytes:
                raise InvalidRequestError(f"'{path}': grows", path=path)
            if how.sync is not None:
                await file.check_unchanged()
        return found, SmallFile(job.target, content, kept, how.as_original(found.facts))

    async def _write_together(
        self, read: Sequence[tuple[CopyEntry, SmallFile]], small_writing: SmallWriting
    ) -> list[CopyStep]:
        written = await small_writing.write([file for _, file in read])
        return [
            CopyStep(
                CopyAction.COPIED, entry.path, file.path, len(file.content),
                original=entry.facts, replicas=has, replication=asked, shortfall=why,
            )
            for (entry, file), (has, asked, why) in zip(read, written, strict=True)
        ]  # fmt: skip

    async def _copied(self, job: _CopyJob) -> CopyStep:
        """Copy a file; return how that ended."""
        try:
            step = await self._copy(job)
        except _FAILURES as error:
            self._source.note(error)
            self._target.note(error)
            step = CopyStep(CopyAction.COPIED, job.found.path, job.target, error=error)
        else:
            self._source.note(None)
            self._target.note(None)
        self._progress(0)
        return step

    async def _copy(self, job: _CopyJob) -> CopyStep:
        how, path = self._how, job.target
        if job.found.refused is not None:
            raise job.found.refused
        self._check_free(job)
        if how.sync is not None and await self._is_same(job, how.sync):
            self._progress(job.found.size)
            return CopyStep(CopyAction.SAME, job.found.path, path, job.found.size)
        if how.dry_run:
            return CopyStep(CopyAction.COPIED, job.found.path, path, max(0, job.found.size))
        size = 0
        async with self._source.opened(job.found.path) as file:
            kept = await self._source.kept(file.found, how.preserve)
            as_original = how.as_original(file.found.facts)
            async with self._target.writing(path, job.present, kept, as_original) as out:
                async for piece in file.pieces():
                    await out.write(piece)
                    size += len(piece)
                    self._progress(len(piece))
                if how.sync is not None:
                    await file.check_unchanged()
            has, asked, why = out.missing
        return CopyStep(
            CopyAction.COPIED, job.found.path, path, size,
            original=file.found.facts, replicas=has, replication=asked, shortfall=why,
        )  # fmt: skip

    def _check_free(self, job: _CopyJob) -> None:
        """Refuse a bad target before anything is copied."""
        if job.present is None:
            return
        if job.present.kind is Kind.DIRECTORY and not self._how.deletes:
            raise _directory_there(job.target)
        if not (self._how.overwrite or self._how.sync):
            raise in_the_way(job.target)

    async def _is_same(self, job: _CopyJob, sync: Sync) -> bool:
        """True if the target has the same bytes."""
        found, present = job.found, job.present
        if present is None or present.kind is not Kind.FILE or present.refused is not None:
            return False
        if UNKNOWN_SIZE not in {found.size, present.size}:
            if found.size != present.size:
                return False
            if sync.by_time and abs(found.modified_s - present.modified_s) < _TIME_STEP_S:
                return True
        async with (
            self._source.opened(found.path) as file,
            self._target.opened(job.target) as other,
        ):
            if file.found.size != other.found.size:
                return False
            return await self._are_equal(file, other)

    async def _are_equal(self, file: OpenSource, other: OpenSource) -> bool:
        async for piece in file.pieces():
            if await other.read(len(piece)) != piece:
                return False
            self._progress(0)
        await file.check_unchanged()
        await other.check_unchanged()
        return True

    def _tell(self, step: CopyStep) -> None:
        summary = self._sum
        if step.error is not None:
            summary.failed += 1
            self._first_error = self._first_error or (None if self._told else step.error)
        else:
            match step.action:
                case CopyAction.COPIED:
                    summary.copied += 1
                    summary.size += step.size
                case CopyAction.SAME:
                    summary.same += 1
                case CopyAction.DELETED:
                    summary.deleted += 1
        if self._told is not None:
            self._told(step)


def _is_refusal(error: PaxosBlockError) -> bool:
    """Return whether nothing was done, and the cluster answers others."""
    return error.outcome is Outcome.NEVER and not error.retriable


def _file_there(path: str) -> ExistsError:
    return ExistsError(f"'{path}': file exists", path=path)


def _directory_there(path: str) -> IsDirectoryError:
    return IsDirectoryError(f"'{path}': is a directory", path=path)


def _ignore(_: int) -> None:
    pass
