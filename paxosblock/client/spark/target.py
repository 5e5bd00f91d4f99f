"""The checks on the driver, before a task starts, that there is a place for the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.user_tokens import TokenRight
from paxosblock.client.blocking.sync import Client, FileReader
from paxosblock.client.spark.arrow_types import columns
from paxosblock.client.spark.columnar_read import is_arrow_file
from paxosblock.client.spark.formats_read import arrow_schema_of, first_fields_of
from paxosblock.client.spark.formats_write import format_of
from paxosblock.client.spark.job_token import job_token
from paxosblock.client.spark.listing import HIDDEN
from paxosblock.client.spark.source_options import FileFormat, Layout, SparkOptions
from paxosblock.errors import (
    InvalidRequestError,
    IsDirectoryError,
    NotDirectoryError,
    NotFoundError,
)

_WITH_SCHEMA: Final = frozenset({FileFormat.PARQUET, FileFormat.ARROW})
_OF_LINES: Final = frozenset({FileFormat.TEXT, FileFormat.CSV})


def client_of(options: SparkOptions) -> Client:
    """Make a client of the cluster that the options name, for one process's part of a job.

    A task comes with the token of the job; the driver as its user, also at the end of a job.
    """
    config = options.client_config
    if TaskContext.get() is not None:
        config = options.token.settings(config)
    return Client(options.namenodes, config)


def with_token(
    fs: Client, options: SparkOptions, rights: TokenRight, lasts_s: float = 0.0
) -> SparkOptions:
    """Return the options for the tasks of a job. Arguments as of `job_token`."""
    return replace(options, token=job_token(fs, options.client_config, rights, lasts_s))


def check_target(fs: Client, options: SparkOptions, schema: pa.Schema, *, overwrite: bool) -> None:
    """Refuse a path where rows of this schema cannot be added (or put instead, with `overwrite`).

    In a directory it looks at the first visible file, which stands for the others.

    Raises:
        NotDirectoryError, IsDirectoryError: a file stands where a directory is meant, or a
            directory where a file is.
        InvalidRequestError: the root, or with `overwrite` an encryption zone; or files of another
            format or with other columns are there.
        PaxosBlockError: the cluster does not answer.
    """
    path, is_file = options.path, options.layout is Layout.APPEND
    if path == "/":
        raise InvalidRequestError("'/': rows go into a directory of their own, not into the root")
    try:
        status = fs.stat(path)
    except NotFoundError:
        return
    if is_file and status.kind is Kind.DIRECTORY:
        raise IsDirectoryError(
            f"'{path}': the layout 'append' writes one file; this is a directory"
        )
    if not is_file and status.kind is Kind.FILE:
        raise NotDirectoryError(f"'{path}': rows go into a directory; this is a file")
    if overwrite and status.encrypted and not fs.stat(path.rpartition("/")[0] or "/").encrypted:
        raise InvalidRequestError(
            f"'{path}': is an encryption zone, which mode 'overwrite' would replace by a plain "
            "directory: write to a directory in it"
        )
    existing = status if is_file else None if overwrite else _first_visible(fs, path)
    if existing is not None and existing.size:
        _check_same(fs, existing, options, schema)


def _first_visible(fs: Client, directory: str) -> FileStatus | None:
    pages = fs.pages(directory, one_state=False)
    files = (entry for page in pages for entry in page.entries if entry.kind is Kind.FILE)
    return next((file for file in files if not file.name.startswith(HIDDEN)), None)


def _check_same(fs: Client, existing: FileStatus, options: SparkOptions, schema: pa.Schema) -> None:
    wanted = options.file_format
    found = format_of(existing.name)
    if found not in {None, wanted}:
        raise InvalidRequestError(
            f"'{existing.path}' is there: {wanted.value} files cannot be added to "
            f"{found.value if found else 'others'}"
        )
    with fs.open(existing.path) as file:
        if options.layout is Layout.APPEND:
            _check_end(file, wanted)
        if wanted in _WITH_SCHEMA:
            _check_columns(columns(arrow_schema_of(file, options)), columns(schema), existing.path)
        if wanted is FileFormat.CSV:
            _check_fields(first_fields_of(file, options), schema.names, options, existing.path)


def _check_end(file: FileReader, file_format: FileFormat) -> None:
    """Check that appended bytes would neither go on with a line nor follow an index at the end."""
    if file_format is FileFormat.ARROW and is_arrow_file(file):
        raise InvalidRequestError(
            f"'{file.name}': an Arrow file ends with its index and cannot grow; a stream can"
        )
    if file_format in _OF_LINES and file.pread(file.size - 1, 1) != b"\n":
        raise InvalidRequestError(f"'{file.name}' does not end with a line end")


def _check_columns(there: dict[str, str], new: dict[str, str], path: str) -> None:
    if there != new or list(there) != list(new):
        raise InvalidRequestError(
            f"the columns differ from those of '{path}': {_difference(there, new)}"
        )


def _check_fields(
    there: list[str] | None, new: list[str], options: SparkOptions, path: str
) -> None:
    """Compare the fields: a csv file has no types, and names only in a header."""
    if there is not None and (there != new if options.header else len(there) != len(new)):
        found = ", ".join(there) if options.header else f"{len(there)} columns"
        raise InvalidRequestError(
            f"the columns differ from those of '{path}': its first line has {found}; "
            f"the new rows have {', '.join(new)}"
        )


def _difference(there: dict[str, str], new: dict[str, str]) -> str:
    """Return the first column that differs."""
    for name in [*new, *there]:
        if name not in there:
            return f"{name!r} is not there"
        if name not in new:
            return f"{name!r} is missing in the new rows"
        if there[name] != new[name]:
            return f"{name!r} is {there[name]} there and {new[name]} in the new rows"
    return f"they stand in the order {', '.join(there)} there"
