"""Job: copy files from any file system that fsspec knows into the cluster, in parallel.

Every copy is read back and compared before any reader sees it, and appears in one step. A job that
fails half way leaves only whole files; the next run with `update` copies the rest.
"""

from __future__ import annotations

import enum
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from fsspec.core import url_to_fs

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.transaction import Concat, Operation, Rename
from paxosblock.api.user_tokens import TokenRight
from paxosblock.base.units import GIB
from paxosblock.client.blocking.sync import Client
from paxosblock.client.names.walk import base_name, join
from paxosblock.client.spark.job_token import LONG_JOB_S, job_token
from paxosblock.client.spark.jobs.copying import (
    CopiedPart,
    CopyWork,
    Part,
    Source,
    in_one_line,
)
from paxosblock.client.spark.jobs.job_folder import unfinished_folder
from paxosblock.client.spark.jobs.spread import Spark, Watch, nobody, spread
from paxosblock.config import ClientConfig, load_config
from paxosblock.errors import (
    ConfigError,
    InvalidRequestError,
    IsDirectoryError,
    NotFoundError,
    PaxosBlockError,
)

PART_BYTES: Final = GIB
"""A longer file is copied in parts by several tasks; `concat` joins them."""


class Existing(enum.Enum):
    """The fate of a file that is at the destination already."""

    SKIP = "skip"
    """It stays as it is."""
    UPDATE = "update"
    """It is replaced when its length differs from the source's."""
    OVERWRITE = "overwrite"
    """It is replaced."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that was not copied, and the reason."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The result of `distcp`. `seconds` are those of the job, including the start of Spark if there
    was one.
    """

    source: str
    target: str
    copied: int
    skipped: int
    bytes_copied: int
    seconds: float
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class _FileToCopy:
    """One file to copy."""

    source: str
    target: str
    size: int | None
    overwrite: bool

    def parts(self, number: int) -> Iterator[Part]:
        starts = range(0, self.size or 1, PART_BYTES)
        for index, start in enumerate(starts):
            end = None if self.size is None else min(start + PART_BYTES, self.size)
            yield Part(
                source=self.source,
                target=self.target,
                number=number,
                index=index,
                parts=len(starts),
                start=start,
                end=end,
                whole_size=self.size,
                overwrite=self.overwrite,
            )


def distcp(
    spark: Spark,
    source: str,
    namenodes: Sequence[str],
    target: str,
    *,
    existing: Existing = Existing.SKIP,
    storage_options: Mapping[str, object] | None = None,
    watch: Watch = nobody,
    config: ClientConfig | None = None,
) -> CopyReport:
    """Copy the file or directory at the fsspec URL `source` to `target` in the cluster.

    The content of a directory goes into `target`, which is made. A file goes into `target` if that
    is a directory. `watch` is told how many bytes there are to copy, and how many have been copied.

    Args:
        namenodes: "host:port" of each NameNode.
        existing: what happens to files that are there already.
        storage_options: for fsspec, such as credentials; they travel to the tasks.
        config: of the driver's client; None: as the environment says, like that of tasks. A driver
            that proves who it is gets them a token.

    Raises:
        NotFoundError: there is no `source`.
        ConfigError: fsspec does not know its protocol, or not with these options.
        IsDirectoryError: a directory is where a file should go, or the other way round.
        UnavailableError: no NameNode answers.
    """
    begin, job = time.monotonic(), uuid.uuid4().hex
    options = dict(storage_options or {})
    found = _list_source(source, options)
    config = config or load_config(ClientConfig)
    with Client(namenodes, config) as fs:
        target = _place_of(fs, found, target)
        files, skipped = _choose(fs, found, target, existing)
        home = target if found.is_directory else str(PurePosixPath(target).parent)
        with unfinished_folder(fs, home, job) as folder:
            for directory in sorted(_directories(found, target, files)):
                fs.mkdirs(directory)
            parts = [part for number, file in enumerate(files) for part in file.parts(number)]
            token = job_token(fs, config, TokenRight.READ | TokenRight.WRITE, LONG_JOB_S)
            origin = Source(found.protocol, options)
            work = CopyWork(tuple(namenodes), token, origin, job, folder)
            copied = spread(spark, parts, lambda part: part.weight, work, watch)
            failures = _finish(fs, work, copied)
    return CopyReport(
        source=source,
        target=target,
        copied=len(files) - len(failures),
        skipped=skipped,
        bytes_copied=sum(part.size_bytes for part in copied),
        seconds=time.monotonic() - begin,
        failures=tuple(failures),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """The source: paths below `root` ("" is the root itself), sizes of the files."""

    protocol: str
    root: str
    is_directory: bool
    files: Mapping[str, int | None]
    directories: tuple[str, ...]


def _list_source(url: str, options: dict[str, object]) -> _Found:
    try:
        source, root = url_to_fs(url, **options)
    except (ValueError, ImportError, TypeError) as error:
        raise ConfigError(f"{url!r}: {in_one_line(error)}") from error
    protocol = source.protocol if isinstance(source.protocol, str) else source.protocol[0]
    try:
        top: dict[str, Any] = source.info(root)
        if top["type"] != "directory":
            return _Found(protocol, root, False, {"": top.get("size")}, ())
        below: dict[str, dict[str, Any]] = source.find(root, withdirs=True, detail=True)
    except FileNotFoundError as error:
        raise NotFoundError(f"'{url}': no such file or directory", path=url) from error
    except PaxosBlockError:
        raise
    except OSError as error:
        raise InvalidRequestError(f"'{url}': {in_one_line(error)}", path=url) from error
    names = {path.removeprefix(root).strip("/"): info for path, info in below.items()}
    return _Found(
        protocol,
        root,
        True,
        {name: info.get("size") for name, info in names.items() if info["type"] != "directory"},
        tuple(name for name, info in names.items() if info["type"] == "directory" and name),
    )


def _place_of(fs: Client, found: _Found, target: str) -> str:
    """Return the target of the source: a single file goes into a directory that exists, under its
    name.
    """
    try:
        kind = fs.stat(target).kind
    except NotFoundError:
        return target
    if kind is Kind.DIRECTORY and not found.is_directory:
        return join(target, base_name(found.root))
    if kind is Kind.FILE and found.is_directory:
        raise IsDirectoryError(f"'{target}': is a file, and the source is a directory", path=target)
    return target


def _choose(
    fs: Client, found: _Found, target: str, existing: Existing
) -> tuple[list[_FileToCopy], int]:
    """Return the files to copy, and how many are left as they are."""
    present = _present(fs, target)
    files: list[_FileToCopy] = []
    for name, size in sorted(found.files.items()):
        path = _below(target, name)
        there = present.get(path)
        if there is not None and there.kind is Kind.DIRECTORY:
            raise IsDirectoryError(f"'{path}': is a directory, and in the source a file", path=path)
        if there is None or _is_replaced(there, size, existing):
            files.append(_FileToCopy(_below(found.root, name), path, size, there is not None))
    return files, len(found.files) - len(files)


def _is_replaced(there: FileStatus, size: int | None, existing: Existing) -> bool:
    match existing:
        case Existing.SKIP:
            return False
        case Existing.UPDATE:
            return there.open or there.size != size
        case Existing.OVERWRITE:
            return True


def _present(fs: Client, target: str) -> dict[str, FileStatus]:
    try:
        return {entry.path: entry for entry in fs.walk(target)}
    except NotFoundError:
        return {}


def _directories(found: _Found, target: str, files: Sequence[_FileToCopy]) -> set[str]:
    """Return the directories that must exist before the first file does, including empty ones of
    the source.
    """
    return {_below(target, name) for name in found.directories} | {
        str(PurePosixPath(file.target).parent) for file in files
    }


def _below(root: str, name: str) -> str:
    """Return the path of `name` in a listing of `root`; the root itself is called ""."""
    return join(root, name) if name else root


def _finish(fs: Client, work: CopyWork, copied: Sequence[CopiedPart]) -> list[Failure]:
    """Join the files that were copied in parts; return a line for each file that failed."""
    files: dict[int, dict[int, CopiedPart]] = {}
    for done in copied:
        files.setdefault(done.part.number, {})[done.part.index] = done
    failures = []
    for _, parts in sorted(files.items()):
        first = parts[0].part
        errors = [done.error for done in parts.values() if done.error]
        if not errors and first.parts > 1:
            errors = _join_parts(fs, work, parts)
        if errors:
            failures.append(Failure(first.source, errors[0]))
    return failures


def _join_parts(fs: Client, work: CopyWork, parts: Mapping[int, CopiedPart]) -> list[str]:
    head, *rest = (parts[index].temporary for index in range(parts[0].part.parts))
    whole: list[Operation] = [
        Concat(head, tuple(rest)),
        Rename(head, parts[0].part.target, overwrite=parts[0].part.overwrite),
    ]
    try:
        work.publish(fs, parts[0].part.number, whole)
    except PaxosBlockError as error:
        return [in_one_line(error)]
    return []
