"""One task of `compact`: write the content of several files into one."""

from __future__ import annotations

import contextlib
import enum
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from paxosblock.base.checksum import crc32c
from paxosblock.base.units import MIB
from paxosblock.client.blocking.sync import Client, FileReader, FileWriter
from paxosblock.client.spark.formats_write import RowGroups
from paxosblock.client.spark.job_token import JobToken
from paxosblock.client.spark.jobs.copying import in_one_line, size_and_crc
from paxosblock.client.spark.jobs.job_folder import unfinished
from paxosblock.errors import CorruptionError, InvalidRequestError

ROW_GROUP_BYTES: Final = 64 * MIB
"""Arrow bytes in a row group of the merged file; the small ones come with small groups."""
BATCH_ROWS: Final = 10_000


class MergeFormat(enum.Enum):
    """The content of the files, which decides how two become one. The value is what users write."""

    PARQUET = "parquet"
    ARROW = "arrow"
    """IPC streams: one behind the other."""
    CSV = "csv"
    """Lines; with `header`, the first one of each file but the first is left out."""
    TEXT = "text"


SUFFIXES: Final = {
    ".parquet": MergeFormat.PARQUET,
    ".arrow": MergeFormat.ARROW,
    ".arrows": MergeFormat.ARROW,
    ".csv": MergeFormat.CSV,
    ".txt": MergeFormat.TEXT,
    ".log": MergeFormat.TEXT,
}


@dataclass(frozen=True, slots=True)
class Small:
    """A file to be merged, as it was when it was listed."""

    path: str
    file_id: int
    length: int
    truncations: int


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one directory that become one."""

    directory: str
    number: int
    format: MergeFormat
    members: tuple[Small, ...]

    @property
    def weight(self) -> int:
        """Bytes to read."""
        return sum(member.length for member in self.members)


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a group: the file `temporary`, or the reason why there is none."""

    group: Group
    temporary: str
    length: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class MergeWork:
    """The merging of the groups of one job; called with a share of them in each task."""

    namenodes: tuple[str, ...]
    token: JobToken
    job: str
    header: bool | None

    def __call__(self, groups: Sequence[Group]) -> Iterator[Merged]:
        """Merge them one after the other; one that fails does not stop the others."""
        with self.token.client(self.namenodes) as fs:
            for group in groups:
                # Every attempt has its own name: one that Spark gave up may still be writing.
                name = f"{group.number}.{uuid.uuid4().hex}"
                temporary = f"{unfinished(group.directory, self.job)}/{name}"
                try:
                    yield Merged(group, temporary, self._merge(fs, group, temporary))
                except Exception as error:
                    yield Merged(group, temporary, error=in_one_line(error))

    def _merge(self, fs: Client, group: Group, temporary: str) -> int:
        rows = crc = 0
        with contextlib.ExitStack() as opened:
            files = [opened.enter_context(fs.open(member.path)) for member in group.members]
            with fs.create(temporary, parent_must_exist=True) as out:
                match group.format:
                    case MergeFormat.PARQUET:
                        rows = _merge_parquet(files, out)
                    case MergeFormat.ARROW:
                        _expect_same_stream(files)
                        crc = _merge_bytes(files, out, lines=False, header=False)
                    case MergeFormat.CSV | MergeFormat.TEXT:
                        is_csv = group.format is MergeFormat.CSV
                        if is_csv and self.header is None:
                            _expect_no_header(files)
                        header = is_csv and bool(self.header)
                        crc = _merge_bytes(files, out, lines=True, header=header)
        with fs.open(temporary) as merged:
            if group.format is MergeFormat.PARQUET:
                _expect_rows(merged, rows)
            else:
                _expect_crc(merged, crc)
            return out.tell()


def _merge_parquet(files: Sequence[FileReader], out: FileWriter) -> int:
    """Write the rows of all files in order; return how many there are."""
    sources = [parquet.ParquetFile(file) for file in files]
    schema = sources[0].schema_arrow
    for file, source in zip(files, sources, strict=True):
        if not source.schema_arrow.equals(schema):
            raise InvalidRequestError(
                f"'{file.name}': its schema is not that of '{files[0].name}'", path=file.name
            )
    with parquet.ParquetWriter(out, schema, compression=_codec(sources)) as writer:
        groups = RowGroups(writer, schema, ROW_GROUP_BYTES)
        for source in sources:
            for batch in source.iter_batches(BATCH_ROWS):
                groups.write_batch(batch)
        groups.flush()
    return sum(source.metadata.num_rows for source in sources)


def _codec(sources: Sequence[parquet.ParquetFile]) -> str:
    """Return the codec of the first column that has any rows."""
    for source in sources:
        if source.metadata.num_row_groups and source.metadata.num_columns:
            codec = source.metadata.row_group(0).column(0).compression
            return "none" if codec == "UNCOMPRESSED" else str(codec)
    return "snappy"


def _expect_same_stream(files: Sequence[FileReader]) -> None:
    schemas = []
    for file in files:
        try:
            schemas.append(pa.ipc.open_stream(file).schema)
        except pa.ArrowInvalid as error:
            raise InvalidRequestError(
                f"'{file.name}': is no Arrow IPC stream: {error}", path=file.name
            ) from error
        file.seek(0)
        if not schemas[-1].equals(schemas[0]):
            raise InvalidRequestError(
                f"'{file.name}': its schema is not that of '{files[0].name}'", path=file.name
            )


def _expect_no_header(files: Sequence[FileReader]) -> None:
    """Refuse what may be a header: written as a row, a header would be lost among the rows."""
    first_lines = {_first_line(file) for file in files}
    if len(first_lines) == 1 and (line := first_lines.pop()):
        raise InvalidRequestError(
            f"all of its csv files begin with {line.decode(errors='replace')!r}: say --header if "
            "that names the columns, --no-header if it is a row"
        )
    for file in files:
        file.seek(0)


def _first_line(file: FileReader) -> bytes:
    return file.readline().rstrip(b"\r\n")


def _merge_bytes(files: Sequence[FileReader], out: FileWriter, *, lines: bool, header: bool) -> int:
    """Write the files one after the other; return the CRC32C of what was written.

    With `lines`, a file whose last line has no end gets one. With `header`, all must begin with the
    same line, which is written once.
    """
    crc, last, first_line = 0, b"\n", b""
    for number, file in enumerate(files):
        if lines and last != b"\n":
            out.write(b"\n")
            crc = crc32c(b"\n", crc)
        if header and number:
            if _first_line(file) != first_line:
                raise InvalidRequestError(
                    f"'{file.name}': its header is not that of '{files[0].name}'", path=file.name
                )
        elif header:
            first_line = _first_line(file)
            file.seek(0)
        for piece in file.pieces():
            out.write(piece)
            crc = crc32c(piece, crc)
            last = bytes(piece[-1:])
    return crc


def _expect_rows(merged: FileReader, expected: int) -> None:
    """Read all of a parquet file back."""
    found = sum(batch.num_rows for batch in parquet.ParquetFile(merged).iter_batches(BATCH_ROWS))
    if found != expected:
        raise CorruptionError(f"'{merged.name}': has {found} rows, its sources had {expected}")


def _expect_crc(merged: FileReader, expected: int) -> None:
    if size_and_crc(merged)[1] != expected:
        raise CorruptionError(f"'{merged.name}': was not read back as it was written")
