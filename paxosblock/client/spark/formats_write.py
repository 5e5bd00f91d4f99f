"""Arrow batches as the bytes of files, forward only and with bounded memory.

Nothing here touches single rows: pyarrow writes whole batches, and text is one buffer of a batch.
"""

from __future__ import annotations

from typing import Final, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from paxosblock.client.spark.arrow_types import columns
from paxosblock.client.spark.source_options import FileFormat, SparkOptions
from paxosblock.errors import ConfigError, InvalidRequestError

CODECS: Final = {
    FileFormat.PARQUET: ("snappy", "none", "gzip", "zstd", "lz4", "brotli"),
    FileFormat.ARROW: ("zstd", "lz4", "none"),
    FileFormat.CSV: ("none", "gzip", "zstd"),
    FileFormat.TEXT: ("none", "gzip", "zstd"),
    FileFormat.BINARY: ("none",),
}
"""Values of `compression`; the first is used where the user says nothing.

For Arrow that is zstd: it costs the task more than lz4 does, but each byte that it saves need not
be sent, nor checked and stored by every replica.
"""

_EXTENSIONS: Final = {
    FileFormat.PARQUET: ".parquet",
    FileFormat.ARROW: ".arrows",
    FileFormat.CSV: ".csv",
    FileFormat.TEXT: ".txt",
    FileFormat.BINARY: ".bin",
}
CODEC_EXTENSIONS: Final = {"gzip": ".gz", "zstd": ".zst"}
"""Endings of files that are compressed as a whole."""
_WHOLE_FILES: Final = frozenset({FileFormat.CSV, FileFormat.TEXT})
"""Formats whose files are compressed as a whole, from outside."""


class Output(Protocol):
    """The target of pyarrow's writes, with only what it calls; an `io` object will do."""

    @property
    def closed(self) -> bool:
        """False."""

    def write(self, data: bytes, /) -> int:
        """Append `data`; return its length."""

    def flush(self) -> None:
        """pyarrow calls it before the end."""

    def close(self) -> None:
        """Some formats call it at the end."""


class BatchWriter(Protocol):
    """Writes the batches of one file, which is whole once it is closed."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Append the rows of `batch`, which has the schema that the writer was made for."""

    def close(self) -> None:
        """Write what is left; the stream below stays open."""


def codec_of(options: SparkOptions) -> str:
    """Return the codec to use.

    Raises:
        ConfigError: the format does not have it.
    """
    known = CODECS[options.file_format]
    codec = {"": known[0], "uncompressed": "none"}.get(options.compression, options.compression)
    if codec not in known:
        raise ConfigError(
            f"option 'compression' = {options.compression!r}: "
            f"{options.file_format.value} files know {', '.join(known)}"
        )
    return codec


def extension_of(options: SparkOptions) -> str:
    """Return the ending of the names of files, with the dot; it shows format and codec."""
    extension = _EXTENSIONS[options.file_format]
    if options.file_format in _WHOLE_FILES:
        extension += CODEC_EXTENSIONS.get(codec_of(options), "")
    return extension


def format_of(name: str) -> FileFormat | None:
    """Return the format that a file's name shows; None if it shows none."""
    for codec_extension in CODEC_EXTENSIONS.values():
        name = name.removesuffix(codec_extension)
    found = [each for each, extension in _EXTENSIONS.items() if name.endswith(extension)]
    return found[0] if found else None


def check_schema(schema: pa.Schema, options: SparkOptions) -> None:
    """Refuse, before any task starts, what no file of this format and codec can hold.

    Raises:
        ConfigError: the format does not have the codec.
        InvalidRequestError: columns that the format cannot have; the message names one.
    """
    codec_of(options)
    if not schema.names:
        raise InvalidRequestError("there are no columns")
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise InvalidRequestError(f"there are several columns {name!r}")
    if options.file_format in _SINGLE_COLUMN:
        _check_single_column(schema, options.file_format)
        return
    for field in schema:
        try:
            open_writer(_Nowhere(), pa.schema([field]), options).close()
        except (pa.ArrowException, ValueError, TypeError) as error:
            kind = columns(pa.schema([field]))[field.name]
            raise InvalidRequestError(
                f"column {field.name!r}: {options.file_format.value} files cannot hold {kind}"
            ) from error


class _Nowhere:
    """Takes the header and the end of a file that is only made to show that they can be written."""

    closed = False

    def write(self, data: bytes, /) -> int:
        return len(data)

    def flush(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is open."""


_SINGLE_COLUMN: Final = {FileFormat.TEXT: pa.string(), FileFormat.BINARY: pa.binary()}


def _check_single_column(schema: pa.Schema, file_format: FileFormat) -> None:
    wanted = _SINGLE_COLUMN[file_format]
    if schema.types != [wanted]:
        found = ", ".join(f"{name} {kind}" for name, kind in columns(schema).items())
        raise InvalidRequestError(
            f"{file_format.value} files hold one column of type {wanted}, not ({found})"
        )


def open_writer(out: Output, schema: pa.Schema, options: SparkOptions) -> BatchWriter:
    """Return a writer of one file into `out`.

    At most `row_group_bytes` and one batch are held (parquet), or one batch (the others).
    """
    sink, codec = pa.PythonFile(out, mode="w"), codec_of(options)
    match options.file_format:
        case FileFormat.PARQUET:
            writer = pq.ParquetWriter(sink, schema, compression=codec)
            return RowGroups(writer, schema, options.row_group_bytes)
        case FileFormat.ARROW:
            # A task has one core, so threads would only take turns.
            ipc = pa.ipc.IpcWriteOptions(
                compression=None if codec == "none" else codec, use_threads=False
            )
            return cast("BatchWriter", pa.ipc.new_stream(sink, schema, options=ipc))
        case FileFormat.CSV:
            stream = _compressing(sink, codec)
            lines = pyarrow.csv.WriteOptions(include_header=options.header, delimiter=options.sep)
            return _Ending(pyarrow.csv.CSVWriter(stream, schema, write_options=lines), stream)
        case FileFormat.TEXT:
            stream = _compressing(sink, codec)
            return _Ending(_Lines(stream), stream)
        case FileFormat.BINARY:
            return _Bytes(sink)


class RowGroups:
    """Parquet: batches are collected until they make a row group that is worth one."""

    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema, limit_bytes: int) -> None:
        """At most `limit_bytes` and one batch are held, in bytes of Arrow."""
        self._writer = writer
        self._schema = schema
        self._limit = limit_bytes
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Append the rows of `batch`."""
        self._batches.append(batch)
        self._size += batch.nbytes
        if self._size >= self._limit:
            self.flush()

    def close(self) -> None:
        """Write what is left, and the footer."""
        self.flush()
        self._writer.close()

    def flush(self) -> None:
        """Make a row group of the batches that are held."""
        if self._batches:
            table = pa.Table.from_batches(self._batches, self._schema)
            self._batches, self._size = [], 0
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))


class _Lines:
    """Text: a line per row, an empty one for null, as Spark's own text files."""

    def __init__(self, sink: pa.NativeFile) -> None:
        self._sink = sink

    def write_batch(self, batch: pa.RecordBatch) -> None:
        lines = pc.binary_join_element_wise(
            batch.column(0), "", "\n", null_handling="replace", null_replacement=""
        )
        self._sink.write(_values(lines))

    def close(self) -> None:
        """Do nothing: every line has its end already."""


class _Bytes:
    """Binary: the values one after the other; a null adds nothing."""

    def __init__(self, sink: pa.NativeFile) -> None:
        self._sink = sink

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._sink.write(_values(batch.column(0).drop_null()))

    def close(self) -> None:
        """Nothing is held back."""


def _values(array: pa.Array) -> pa.Buffer:
    """Return all values of a string or binary array in one piece, where they lie (Arrow's
    variable-size binary layout: 32-bit offsets, then the bytes)."""
    _, offsets, values = array.buffers()
    if not len(array) or values is None:
        return pa.py_buffer(b"")
    starts = memoryview(offsets).cast("B").cast("i")
    start, end = starts[array.offset], starts[array.offset + len(array)]
    return values.slice(start, end - start)


def _compressing(sink: pa.NativeFile, codec: str) -> pa.NativeFile:
    return sink if codec == "none" else pa.CompressedOutputStream(sink, codec)


class _Ending:
    """A writer, and its stream with an end of its own, such as the checksum of a gzip file."""

    def __init__(self, writer: BatchWriter, stream: pa.NativeFile) -> None:
        self._writer = writer
        self._stream = stream

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
        self._stream.close()
