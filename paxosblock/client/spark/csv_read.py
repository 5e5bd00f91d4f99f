"""CSV: turns lines into columns, and guesses the types of a file's columns."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.types as kinds

from paxosblock.client.spark.lines import NEWLINE, whole_lines
from paxosblock.client.spark.source_options import SparkOptions
from paxosblock.client.spark.splits import Split
from paxosblock.errors import InvalidRequestError


def csv_batches(
    split: Split, pieces: Iterable[memoryview | bytes], target: pa.Schema, options: SparkOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split in the types of `target`, by position; an empty field is null.

    Raises:
        InvalidRequestError: a quoted value goes over several lines and `multiLine` is not set.
        pa.ArrowInvalid: a line has another number of fields, or a value is not of its type.
    """
    skips_header = options.header and split.start == 0
    for lines in whole_lines(split, pieces):
        if lines.count(b'"') % 2:
            # Every quote has its counterpart on the same line; otherwise a value was cut in two.
            raise InvalidRequestError(
                f"'{split.path}': a quoted value has a line end in it, or lacks its second quote; "
                "files with line ends in values need the option multiLine=true",
                path=split.path,
            )
        rows = lines.partition(NEWLINE)[2] if skips_header else lines
        skips_header = False
        if rows.strip():
            yield from _table(rows, target.names, target, options).to_batches()


def csv_batches_of_file(
    file: pa.NativeFile, target: pa.Schema, options: SparkOptions
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a file whose quoted values may hold line ends. Raises pa.ArrowInvalid."""
    read = pc.ReadOptions(
        use_threads=False, column_names=target.names, skip_rows=1 if options.header else 0
    )
    reader = pc.open_csv(
        file, read, _syntax(options, len(target.names)), _conversion(_types(target))
    )
    yield from reader


def csv_schema(sample: bytes, options: SparkOptions) -> pa.Schema:
    """Return the names and types of the columns in a file that begins with the whole lines
    `sample`.

    Without a header they are called `_c0`, `_c1`, ... like Spark's. Raises pa.ArrowInvalid.
    """
    table = _table(sample, None, pa.schema([]), options)
    names = table.column_names if options.header else [f"_c{at}" for at in range(table.num_columns)]
    return pa.schema(
        [(name, _settled(column.type)) for name, column in zip(names, table.schema, strict=True)]
    )


def first_fields(sample: bytes, options: SparkOptions) -> list[str] | None:
    """Return the fields of the first line; None when a quoted value of it goes on in the next."""
    line = sample.partition(NEWLINE)[0].removesuffix(b"\r").decode(errors="replace")
    if line.count('"') % 2:
        return None
    return next(csv.reader([line], delimiter=options.sep), None) or [""]


def check_csv(sample: bytes, target: pa.Schema, options: SparkOptions) -> None:
    """Read the whole lines that a file begins with. Raises pa.ArrowInvalid when they do not fit."""
    rows = sample.partition(NEWLINE)[2] if options.header else sample
    if rows.strip():
        _table(rows, target.names, target, options)


def _settled(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column that looks like `kind` in a sample."""
    return pa.string() if kinds.is_null(kind) or kinds.is_time(kind) else kind


def _table(
    rows: bytes, names: list[str] | None, target: pa.Schema, options: SparkOptions
) -> pa.Table:
    read = pc.ReadOptions(
        use_threads=False,
        block_size=len(rows) + 1,  # as one block, so that it is not cut at a line end inside quotes
        column_names=names,
        autogenerate_column_names=names is None and not options.header,
    )
    columns = len(names or ["", ""])
    return pc.read_csv(
        pa.BufferReader(rows), read, _syntax(options, columns), _conversion(_types(target))
    )


def _types(target: pa.Schema) -> dict[str, pa.DataType]:
    return {column.name: column.type for column in target}


def _syntax(options: SparkOptions, columns: int) -> pc.ParseOptions:
    # In a file with one column an empty line is a null.
    return pc.ParseOptions(
        delimiter=options.sep,
        newlines_in_values=options.multi_line,
        ignore_empty_lines=columns > 1,
    )


def _conversion(types: dict[str, pa.DataType]) -> pc.ConvertOptions:
    """Options by which an empty field is a null and "" an empty string, as the sink writes them."""
    return pc.ConvertOptions(
        column_types=types,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
