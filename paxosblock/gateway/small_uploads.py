"""Small files that requests of one user bring at once, and that are written together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from paxosblock.api.namenode import FileStatus
from paxosblock.api.transaction import Operation
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.gathered_files import GatheredFiles
from paxosblock.protocol.types import SMALL_BYTES_MAX

SMALL_UPLOAD_BYTES: Final = SMALL_BYTES_MAX
"""Most bytes of one."""
BATCHES_AT_ONCE: Final = 2
"""The fewer there are, the more files wait for the next one and share its two changes."""


@dataclass(frozen=True, slots=True)
class SmallUpload:
    """A file for `path`, at most SMALL_UPLOAD_BYTES; `publication` gets its status under a hidden
    name, and tells what publishes it."""

    path: str
    content: bytes
    publication: Callable[[FileStatus], Sequence[Operation]]


class SmallUploads:
    """Writes the small files of one user that come at the same time in one step."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._gathered = GatheredFiles(self._write, BATCHES_AT_ONCE)

    async def put(self, file: SmallUpload) -> bool:
        """Write and publish a file; return False if it must be written by itself, as one of those
        that came with it was refused.

        Raises:
            PaxosBlockError: no NameNode answers, or the outcome is not known.
        """
        return await self._gathered.put(file, len(file.content))

    async def close(self) -> None:
        """End what is under way; what is not published is given up."""
        await self._gathered.close()

    async def _write(self, files: Sequence[SmallUpload]) -> bool:
        at = {each.path: each for each in files}
        if len(at) < len(files):
            return False  # none of two for one path is the later one

        def publication(path: str, hidden: FileStatus) -> Sequence[Operation]:
            return at[path].publication(hidden)

        contents = {path: each.content for path, each in at.items()}
        await self._client.put_many(contents, publication=publication)
        return True
