"""Parquet and Arrow files: which of their parts a split reads."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from paxosblock.client.blocking.sync import FileReader
from paxosblock.client.spark.arrow_frames import ArrowOffset, last_place, opening
from paxosblock.client.spark.splits import Split
from paxosblock.errors import InvalidRequestError

ARROW_FILE_MAGIC = b"ARROW1"
MOST_ROWS = 1 << 16
"""Rows of a batch that is given to Spark."""

Keeps = Callable[[pq.RowGroupMetaData], bool]
"""True if a row group may hold a row that is wanted."""


class Ranges(io.RawIOBase):
    """A file for readers that know which bytes they need: each range is fetched as a whole, from
    several replicas at once, and nothing after it."""

    def __init__(self, file: FileReader, size: int) -> None:
        """Only the first `size` bytes of the file are there."""
        self._file = file
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Return where the next `read` begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to `offset` from the start, the position or the end; return the new position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next `size` bytes, fewer only at the end."""
        left = max(0, self._size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._file.pread(self._position, wanted)
        self._position += len(data)
        return data


def as_arrow_file(file: FileReader, size: int) -> pa.NativeFile:
    """Return the first `size` bytes of a file for pyarrow's readers."""
    return pa.PythonFile(Ranges(file, size), mode="r")


# -- parquet --------------------------------------------------------------------------------------


def parquet_schema(file: FileReader) -> pa.Schema:
    """Read it from the footer. Raises pa.ArrowInvalid when it is no parquet file."""
    return pq.read_schema(as_arrow_file(file, file.size))


def parquet_batches(
    file: FileReader, split: Split, columns: list[str], keeps: Keeps
) -> Iterator[pa.RecordBatch]:
    """Yield `columns` of the row groups whose middle is in the split, one row group at a time."""
    parquet = pq.ParquetFile(as_arrow_file(file, split.end), pre_buffer=True)
    found = parquet.schema_arrow.names
    wanted = None if columns == found else [name for name in columns if name in found]
    for index in range(parquet.metadata.num_row_groups):
        group = parquet.metadata.row_group(index)
        if split.holds(_middle(group)) and keeps(group):
            yield from parquet.iter_batches(
                MOST_ROWS, row_groups=[index], columns=wanted, use_threads=False
            )


def _middle(group: pq.RowGroupMetaData) -> float:
    """Hadoop's rule, which gives every row group to exactly one split."""
    chunks = [group.column(at) for at in range(group.num_columns)]
    if not chunks:
        return 0.0
    # Some writers that have no dictionary say that its page is at 0.
    start: int = min(
        min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
        for chunk in chunks
    )
    size: int = sum(chunk.total_compressed_size for chunk in chunks)
    return start + size / 2


# -- Arrow IPC ------------------------------------------------------------------------------------


def arrow_file_schema(file: FileReader) -> pa.Schema:
    """Read it from an Arrow file or from the first stream. Raises pa.ArrowInvalid when it is
    neither.
    """
    source = as_arrow_file(file, file.size)
    if is_arrow_file(file):
        return pa.ipc.open_file(source).schema
    return pa.ipc.open_stream(source).schema


def arrow_batches(file: FileReader, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow file that belong to the split if its bytes are divided evenly;
    for streams, the batches of the split's own messages (see `arrow_splits`).
    """
    if is_arrow_file(file):
        reader = pa.ipc.open_file(as_arrow_file(file, split.end))
        count = reader.num_record_batches
        for index in range(count):
            if split.holds((index + 0.5) / count * split.end):
                yield reader.get_batch(index)
        return
    prefix = b"" if split.is_first else opening(file.pread, split.begin, split.start)
    part = _Part(prefix, file, split.start, split.stop)
    source = pa.PythonFile(part, mode="r")
    while part.left:
        yield from pa.ipc.open_stream(source)


def arrow_splits(
    file: FileReader, begin: ArrowOffset, end: int, split_bytes: int
) -> Iterator[tuple[ArrowOffset, int]]:
    """Return parts of the streams in a file that can be read alone, each from a place to an offset.

    Args:
        end: the offset at which a message ends.

    Raises:
        InvalidRequestError: no message ends there, or the file has something else than streams.
    """
    at = begin
    while at.offset < end:
        stop = last_place(file.pread, at, split_bytes, end)
        if stop == at:
            raise InvalidRequestError(
                f"'{file.name}': the Arrow message at byte {at.offset} is not whole", path=file.name
            )
        yield at, stop.offset
        at = stop


class _Part(io.RawIOBase):
    """A stream of `prefix` and then the bytes [start, stop) of a file."""

    def __init__(self, prefix: bytes, file: FileReader, start: int, stop: int) -> None:
        self._prefix = prefix
        self._file = file
        self._stop = stop
        file.seek(start)

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return len(self._prefix) + self._stop - self._file.tell()

    def readable(self) -> bool:
        """True."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next `size` bytes, fewer only at the end."""
        wanted = self.left if size is None or size < 0 else min(size, self.left)
        head, self._prefix = self._prefix[:wanted], self._prefix[wanted:]
        data = self._file.read(wanted - len(head))
        return head + data if head else data


def is_arrow_file(file: FileReader) -> bool:
    """True if it is an Arrow file, which has an index; not a stream."""
    return file.pread(0, len(ARROW_FILE_MAGIC)) == ARROW_FILE_MAGIC
