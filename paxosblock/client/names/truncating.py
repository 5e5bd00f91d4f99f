"""Transactions that truncate files inside a chunk.

NameNodes cut between chunks only, and carry no user data. So the client has the file cut before the
chunk, and what is to stay of it appended, in the same transaction: it writes those bytes into a
hidden file, and a concat moves the block of that file. A block that a snapshot shows is not cut at
all: the file is cut before it, and what is to stay of the block is appended. That is guarded: if
the file is not as it was when they were read, all begins again.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from paxosblock.api.namenode import (
    CREATE,
    DELETE,
    MKDIRS,
    TRANSACT,
    ApplicationVersion,
    CreateFile,
    DeletePath,
    FileStatus,
    FirstBlock,
    MakeDirectories,
    Transact,
)
from paxosblock.api.transaction import AssertFile, Concat, Operation, TransactionOutcome, Truncate
from paxosblock.base.paths import STAGING
from paxosblock.base.units import MIB
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.client.reading.length import Consistency, readable_file
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import (
    DirectoryNotEmptyError,
    InvalidRequestError,
    Outcome,
    PaxosBlockError,
    PermissionDeniedError,
)
from paxosblock.protocol.types import WriterId

TTL_S: Final = 600.0
"""Seconds for which the hidden file stays when its client dies: longer than it takes."""
PIECE_BYTES: Final = 4 * MIB
"""Bytes of a block that a snapshot shows that are copied at once."""
ATTEMPTS: Final = 10
"""Times that another client may change the file meanwhile."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _InsideChunk:
    """A NameNode's answer to a Truncate: that chunk, or block, begins at byte `boundary`."""

    path: str
    file_id: int
    boundary: int


async def transact(
    session: SharedSession, operations: Sequence[Operation], application: ApplicationVersion | None
) -> TransactionOutcome:
    """Send the operations; with each Truncate inside a chunk, the bytes of that chunk that stay.

    Raises: as `AsyncClient.transact`, and as reading and writing those bytes.
    """
    request = session.transaction((), application)
    for left in reversed(range(ATTEMPTS)):
        async with contextlib.AsyncExitStack() as hidden:
            plan = _TruncatePlan(operations, [(operation,) for operation in operations])
            try:
                return await _sent(session, plan, request, hidden)
            except PaxosBlockError as error:
                if not (left and plan.may_be_old(error)):
                    plan.count_as_given(error)
                    raise
    raise AssertionError("the last attempt returns or raises")


async def _sent(
    session: SharedSession,
    plan: _TruncatePlan,
    request: Transact,
    hidden: contextlib.AsyncExitStack,
) -> TransactionOutcome:
    while True:
        try:
            operations = tuple(step for steps in plan.steps for step in steps)
            return await session.namenodes.call_once(
                TRANSACT, replace(request, operations=operations)
            )
        except InvalidRequestError as error:
            inside = _inside_chunk(error)
            if inside is None:
                raise
            place = plan.place_of(error)
        plan.brings = True
        plan.steps[place] = await _in_two(session, inside, plan.length_of(place), hidden)


@dataclass(slots=True)
class _TruncatePlan:
    """The operations as they were `given`, and the `steps` that each becomes; `brings`: bytes that
    were read belong to one."""

    given: Sequence[Operation]
    steps: list[tuple[Operation, ...]]
    brings: bool = False

    def place_of(self, error: PaxosBlockError) -> int:
        """Return the place of the operation that was refused, -1 if it was none of them."""
        left = int(error.details.get("operation", 0))
        for place, steps in enumerate(self.steps):
            if 0 < left <= len(steps):
                return place
            left -= len(steps)
        return -1

    def length_of(self, place: int) -> int:
        """Return the length to which an operation truncates. Of its steps the first may be refused,
        too: a snapshot that was taken meanwhile shows the block that it cuts. What the others were
        to append is no longer all that is to stay."""
        given = self.given[place]
        assert isinstance(given, Truncate), "nothing else is inside a chunk"
        return given.size

    def may_be_old(self, error: PaxosBlockError) -> bool:
        """True if what was read, and was to be appended, may be of another state of the file."""
        place = self.place_of(error)
        ours = place < 0 or len(self.steps[place]) > 1
        refused = error.outcome is Outcome.NEVER and not error.retriable
        return self.brings and ours and refused

    def count_as_given(self, error: PaxosBlockError) -> None:
        """Let an error count the operations as they were given."""
        place, count = self.place_of(error), len(self.steps)
        if place >= 0 and self.brings:
            text = error.message.partition(": ")[2]
            error.message = text if count == 1 else f"operation {place + 1} of {count}: {text}"
            error.details["operation"] = place + 1


def _inside_chunk(error: InvalidRequestError) -> _InsideChunk | None:
    details = error.details
    if "boundary" not in details:
        return None
    return _InsideChunk(str(details["path"]), int(details["file"]), int(details["boundary"]))


async def _in_two(
    session: SharedSession, inside: _InsideChunk, length: int, hidden: contextlib.AsyncExitStack
) -> tuple[Operation, ...]:
    """Return what does the same as a Truncate to a length, with the file as it is now."""
    path, boundary = inside.path, inside.boundary
    found = await readable_file(session, path, Consistency.QUORUM, file_id=inside.file_id)
    status = found.status
    async with AsyncFileReader(session, path, found, Consistency.QUORUM) as file:
        kept = range(boundary, length)
        source = await _written(session, file, kept, status, hidden)
    return (
        AssertFile(path, status.file_id, status.size, status.truncations),
        Truncate(path, boundary),
        Concat(path, (source,)),
    )


async def _written(
    session: SharedSession,
    file: AsyncFileReader,
    kept: range,
    like: FileStatus,
    hidden: contextlib.AsyncExitStack,
) -> str:
    """Write the bytes that are kept of a file into one block of a hidden file, with the durability
    of the file `like`, in as few chunks as there can be."""
    directory, writer = f"{STAGING}/{uuid.uuid4().hex}", WriterId(uuid.uuid4().hex)
    above = MakeDirectories(directory, True, 0o700, ttl_s=TTL_S)
    await session.namenodes.call_once(MKDIRS, above)
    hidden.push_async_callback(_remove, session, directory)
    request = CreateFile(
        f"{directory}/kept",
        writer,
        overwrite=False,
        replication=like.replication,
        block_size=max(like.block_size, len(kept)),
        durability=like.durability,
        parent_must_exist=True,
        first=FirstBlock(session.config.window, session.config.host),
        zone_of=like.path,
    )
    made = await session.namenodes.call_once(CREATE, request)
    async with AsyncFileWriter(
        session,
        made.status,
        writer,
        chunk_size=len(kept),
        window=session.config.window,
        first=made.first,
    ) as out:
        for start in kept[::PIECE_BYTES]:
            await out.write(await file.pread(start, min(PIECE_BYTES, kept.stop - start)))
    return request.path


async def _remove(session: SharedSession, directory: str) -> None:
    """Delete the hidden directory, and that of all hidden names, if no other client needs it."""
    for request in (DeletePath(directory, recursive=True), DeletePath(STAGING)):
        try:
            await session.namenodes.call_once(DELETE, request)
        except (DirectoryNotEmptyError, PermissionDeniedError):
            pass  # the directory of all hidden names is of all users
        except PaxosBlockError as error:
            _log.warning("'%s' is left to its time to live: %s", directory, error)
