"""Job: make few large files of the many small ones of a directory, while others read it.

A directory changes in one transaction: a listing shows either the small files or the large ones.
The small ones are kept aside for a while, so a reader that has opened one goes on reading it.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.transaction import OPERATIONS_MAX, AssertFile, Operation, Rename
from paxosblock.api.user_tokens import TokenRight
from paxosblock.base.units import MIB
from paxosblock.client.blocking.sync import Client
from paxosblock.client.names.walk import base_name, join
from paxosblock.client.spark.job_token import LONG_JOB_S, job_token
from paxosblock.client.spark.jobs.copying import REMEMBERED_S, in_one_line
from paxosblock.client.spark.jobs.job_folder import unfinished_folder
from paxosblock.client.spark.jobs.merging import (
    SUFFIXES,
    Group,
    Merged,
    MergeFormat,
    MergeWork,
    Small,
)
from paxosblock.client.spark.jobs.spread import Spark, Watch, nobody, spread
from paxosblock.client.spark.listing import HIDDEN
from paxosblock.config import ClientConfig, load_config
from paxosblock.errors import (
    InvalidRequestError,
    NotDirectoryError,
    PaxosBlockError,
)

FILES_AT_ONCE: Final = OPERATIONS_MAX // 3
"""At most this many files of one directory, so that its change fits one transaction; the next run
takes the next ones."""


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """The files that are merged, and into what."""

    target_bytes: int = 128 * MIB
    """The approximate length of merged files, in bytes of the small ones."""
    small_bytes: int = 64 * MIB
    """Files shorter than this are merged."""
    recursive: bool = False
    """Compact the directories below, too, each on its own."""
    format: MergeFormat | None = None
    """The format of all files; None: the one that the ending of each name says, and other files are
    left alone."""
    header: bool | None = None
    """True if csv files begin with a line that names the columns. None: they do not, and files that
    all begin with the same line are refused."""
    keep_for_s: float = 3600.0
    """Seconds that the small files are kept aside."""

    def check(self) -> None:
        """Raise InvalidRequestError when a number makes no sense."""
        if not 0 < self.small_bytes <= self.target_bytes:
            raise InvalidRequestError(
                f"small files of up to {self.small_bytes} bytes cannot become files of "
                f"{self.target_bytes} bytes: the first must be at least 1, and not the larger one"
            )
        if self.keep_for_s <= 0:
            raise InvalidRequestError("the small files must be kept for some time")


@dataclass(frozen=True, slots=True)
class CompactedDirectory:
    """The result of one directory; with an `error` nothing was done."""

    path: str
    merged: int
    into: int
    size_bytes: int
    left_alone: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class CompactReport:
    """The result of `compact`. `seconds` are those of the job, including the start of Spark if
    there was one.
    """

    path: str
    directories: tuple[CompactedDirectory, ...]
    seconds: float

    @property
    def failed(self) -> bool:
        """True if some directory could not be compacted."""
        return any(directory.error for directory in self.directories)


def compact(
    spark: Spark,
    namenodes: Sequence[str],
    path: str,
    options: CompactOptions | None = None,
    watch: Watch = nobody,
    *,
    config: ClientConfig | None = None,
) -> CompactReport:
    """Merge the small files of the directory `path` of the cluster at `namenodes`.

    Files are taken in the order of their names; those that are being written, or whose names begin
    with "_" or ".", are left alone. `watch` is told how many bytes there are to merge, and how many
    have been merged. Without `config` the environment configures the driver, as it does tasks; as
    who proves who they are, it gets tasks a token.

    Raises:
        NotFoundError, NotDirectoryError: `path` is no directory.
        InvalidRequestError: the options make no sense.
        UnavailableError: no NameNode answers.
    """
    options = options or CompactOptions()
    options.check()
    begin, job = time.monotonic(), uuid.uuid4().hex
    config = config or load_config(ClientConfig)
    with Client(namenodes, config) as fs:
        if fs.stat(path).kind is not Kind.DIRECTORY:
            raise NotDirectoryError(f"'{path}': is a file; compact takes a directory", path=path)
        plans = list(_plan(fs, path, options))
        groups = [group for plan in plans for group in plan.groups]
        with contextlib.ExitStack() as folders:
            for plan in plans:
                if plan.groups:
                    folders.enter_context(unfinished_folder(fs, plan.path, job))
            token = job_token(fs, config, TokenRight.READ | TokenRight.WRITE, LONG_JOB_S)
            work = MergeWork(tuple(namenodes), token, job, options.header)
            merged = spread(spark, groups, lambda group: group.weight, work, watch)
            done = tuple(_publish(fs, plan, job, merged, options) for plan in plans)
    return CompactReport(path, done, time.monotonic() - begin)


@dataclass(frozen=True, slots=True)
class _CompactPlan:
    """A directory, the groups of its files, and how many files are in no group."""

    path: str
    groups: tuple[Group, ...]
    left_alone: int


def _plan(fs: Client, path: str, options: CompactOptions) -> Iterator[_CompactPlan]:
    directories = [path]
    if options.recursive:
        below = (entry for entry in fs.walk(path) if entry.kind is Kind.DIRECTORY)
        directories += [each.path for each in below if not _is_hidden(each.path[len(path) :])]
    for directory in sorted(directories):
        files = [entry for entry in fs.ls(directory) if entry.kind is Kind.FILE]
        visible = [file for file in files if not _is_hidden(file.name)]
        groups = tuple(_groups(directory, visible, options))
        yield _CompactPlan(directory, groups, len(visible) - sum(len(g.members) for g in groups))


def _is_hidden(path: str) -> bool:
    return any(name.startswith(HIDDEN) for name in path.split("/"))


def _groups(
    directory: str, files: Sequence[FileStatus], options: CompactOptions
) -> Iterator[Group]:
    """Group neighbours of one format, as many as fit a file; a file that stays single is in no
    group.
    """
    kinds: dict[MergeFormat, list[list[Small]]] = {}
    small_files = (file for file in files if not file.open and file.size < options.small_bytes)
    for file in itertools.islice(small_files, FILES_AT_ONCE):
        kind = options.format or SUFFIXES.get(PurePosixPath(file.path).suffix)
        if kind is None:
            continue
        small = Small(file.path, file.file_id, file.size, file.truncations)
        groups = kinds.setdefault(kind, [[]])
        if sum(each.length for each in groups[-1]) + file.size > options.target_bytes:
            groups.append([])
        groups[-1].append(small)
    worthwhile = [
        (kind, group) for kind, groups in kinds.items() for group in groups if len(group) > 1
    ]
    for number, (kind, group) in enumerate(worthwhile):
        yield Group(directory, number, kind, tuple(group))


def _publish(
    fs: Client, plan: _CompactPlan, job: str, merged: Sequence[Merged], options: CompactOptions
) -> CompactedDirectory:
    """Swap the small files of a directory for the large ones, all at once."""
    if not plan.groups:
        return CompactedDirectory(plan.path, 0, 0, 0, plan.left_alone)
    own = [each for each in merged if each.group.directory == plan.path]
    error = next((each.error for each in own if each.error), "")
    if not error:
        aside = join(plan.path, f"_compacted/{job}")
        try:
            fs.mkdirs(aside, ttl_s=options.keep_for_s)
            swap = [step for each in own for step in _swap(each, aside, job)]
            fs.transact(swap, once=(f"spark/compact/{job}{plan.path}", 0), keep_for_s=REMEMBERED_S)
        except PaxosBlockError as failure:
            error = in_one_line(failure)
    files = sum(len(each.group.members) for each in own)
    if error:
        return CompactedDirectory(plan.path, 0, 0, 0, plan.left_alone + files, error)
    size = sum(each.length for each in own)
    return CompactedDirectory(plan.path, files, len(own), size, plan.left_alone)


def _swap(merged: Merged, aside: str, job: str) -> Iterator[Operation]:
    members = merged.group.members
    for member in members:
        yield AssertFile(member.path, member.file_id, member.length, member.truncations)
        yield Rename(member.path, join(aside, base_name(member.path)))
    name = f"part-{merged.group.number:05d}-{job}{PurePosixPath(members[0].path).suffix}"
    yield Rename(merged.temporary, join(merged.group.directory, name))
