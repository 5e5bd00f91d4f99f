"""One task of `distcp`: copy parts of files into the cluster, and verify each copy."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from fsspec import AbstractFileSystem, filesystem

from paxosblock.api.transaction import Operation, Rename
from paxosblock.base.checksum import crc32c
from paxosblock.base.units import MIB
from paxosblock.client.blocking.sync import Client, FileReader
from paxosblock.client.spark.job_token import JobToken
from paxosblock.errors import CorruptionError, PaxosBlockError

PIECE_BYTES: Final = 4 * MIB
"""Bytes to copy at a time."""
REMEMBERED_S: Final = 3600.0
"""Seconds that a file's publication is remembered: longer than a task may take to be repeated."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file system that fsspec knows, by its protocol and the options it is opened with."""

    protocol: str
    options: Mapping[str, object]

    def open(self) -> AbstractFileSystem:
        """Open the file system, in this process."""
        return filesystem(self.protocol, **self.options)


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes `start` to `end` of the source file `source`, which become those of `target`.

    `end` is None when the source does not tell its size; `whole_size` is None then, too. `number`
    is the file's in the job, and `parts` how many parts it has.
    """

    source: str
    target: str
    number: int
    index: int
    parts: int
    start: int
    end: int | None
    whole_size: int | None
    overwrite: bool

    @property
    def weight(self) -> int:
        """Bytes to copy; a small number for a file of unknown length."""
        return 1 if self.end is None else max(self.end - self.start, 1)


@dataclass(frozen=True, slots=True)
class CopiedPart:
    """The result of a part: its bytes are in the file `temporary`, or `error` has the reason.

    A file of one part is in its place already.
    """

    part: Part
    temporary: str
    size_bytes: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class CopyWork:
    """The copying of the parts of one job; called with a share of them in each task."""

    namenodes: tuple[str, ...]
    token: JobToken
    source: Source
    job: str
    folder: str
    """The folder of unfinished copies, in the cluster."""

    def __call__(self, parts: Sequence[Part]) -> Iterator[CopiedPart]:
        """Copy them one after the other; one that fails does not stop the others."""
        source = self.source.open()
        with self.token.client(self.namenodes) as fs:
            for part in parts:
                # Every attempt has its own name: one that Spark gave up may still be writing.
                temporary = f"{self.folder}/{part.number}.{part.index}.{uuid.uuid4().hex}"
                try:
                    yield CopiedPart(part, temporary, self._copy(source, fs, part, temporary))
                except Exception as error:
                    yield CopiedPart(part, temporary, 0, in_one_line(error))

    def _copy(self, source: AbstractFileSystem, fs: Client, part: Part, temporary: str) -> int:
        with (
            source.open(part.source, "rb") as reader,
            fs.create(temporary, parent_must_exist=True) as out,
        ):
            size, crc = _pour(reader, out, part)
        _verify(fs, temporary, size, crc)
        _expect_unchanged(source, part)
        if part.parts == 1:
            moved = Rename(temporary, part.target, overwrite=part.overwrite)
            self.publish(fs, part.number, [moved])
        return size

    def publish(self, fs: Client, number: int, changes: Sequence[Operation]) -> None:
        """Give the file of this number its name, once, however often it is asked for."""
        name = f"spark/distcp/{self.job}/{number}"
        fs.transact(changes, once=(name, 0), keep_for_s=REMEMBERED_S)


class _CopyTarget(Protocol):
    def write(self, data: bytes, /) -> int | None: ...


def _pour(reader: BinaryIO, out: _CopyTarget, part: Part) -> tuple[int, int]:
    """Copy the part; return its length in bytes and its CRC32C."""
    if part.start:
        reader.seek(part.start)
    size = crc = 0
    while part.end is None or part.start + size < part.end:
        left = PIECE_BYTES if part.end is None else part.end - part.start - size
        data = reader.read(min(PIECE_BYTES, left))
        if not data:
            break
        out.write(data)
        crc = crc32c(data, crc)
        size += len(data)
    if part.end is not None and part.start + size != part.end:
        raise ChangedError(f"ended after {part.start + size} of {part.whole_size} bytes")
    return size, crc


def _verify(fs: Client, path: str, size: int, crc: int) -> None:
    """Read the copy back from the DataNodes and compare it with the bytes of the source."""
    with fs.open(path) as file:
        found_size, found = size_and_crc(file)
    if (found_size, found) != (size, crc):
        raise CorruptionError(
            f"the copy has {found_size} bytes with CRC32C {found:08x}, "
            f"the source {size} with {crc:08x}"
        )


def size_and_crc(file: FileReader) -> tuple[int, int]:
    """Read the rest of a file; return its length in bytes and its CRC32C."""
    size = crc = 0
    for piece in file.pieces():
        size += len(piece)
        crc = crc32c(piece, crc)
    return size, crc


def _expect_unchanged(source: AbstractFileSystem, part: Part) -> None:
    source.invalidate_cache()
    size = source.info(part.source)["size"]
    if size != part.whole_size:
        raise ChangedError(f"had {part.whole_size} bytes and has {size} now")


class ChangedError(PaxosBlockError):
    """A source file changed while it was copied."""


def in_one_line(error: Exception) -> str:
    """Describe in one line an error that some library raised."""
    text = " ".join(str(error).split())
    return (
        text if isinstance(error, PaxosBlockError) and text else f"{type(error).__name__}: {text}"
    )
