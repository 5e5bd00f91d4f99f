"""The calls of a client that copy whole files and directories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, cast

from paxosblock.api.namenode import FileStatus
from paxosblock.api.transaction import Operation
from paxosblock.base.checksum import Buffer
from paxosblock.base.paths import AnyPath, text_of
from paxosblock.base.replacement import WriteOptions
from paxosblock.client.copies.copy_steps import (
    AT_ONCE,
    CopyOptions,
    CopyStep,
    CopySummary,
    Sync,
)
from paxosblock.client.names.as_of import When, as_of
from paxosblock.client.session.shared_session import durability_of
from paxosblock.protocol.types import Durability

if TYPE_CHECKING:
    from paxosblock.client.copies.cluster_place import CopyClient
    from paxosblock.client.copies.copy_run import CopyRun
    from paxosblock.client.session.shared_session import SharedSession


class AsyncCopies:
    """The part of an `AsyncClient` that copies, and writes whole files."""

    _session: SharedSession

    if TYPE_CHECKING:

        def _sizes(
            self, block_size: int | None, chunk_size: int | None, window: int | None
        ) -> tuple[int, int, int]: ...

    async def put_many(
        self,
        files: Mapping[str, Buffer]
        | Mapping[os.PathLike[str], Buffer]
        | Iterable[tuple[AnyPath, Buffer]],
        *,
        overwrite: bool = False,
        replication: int | None = None,
        block_size: int | None = None,
        durability: Durability | str | None = None,
        chunk_size: int | None = None,
        window: int | None = None,
        permission: int = 0o666,
        umask: int | None = None,
        options: WriteOptions | None = None,
        publication: Callable[[str, FileStatus], Sequence[Operation]] | None = None,
    ) -> int:
        """Write many small files, and the directories above them; return how many there were.

        They are written in batches, a few at a time, of up to 24 files; a batch costs the NameNode
        two changes, and all of its files appear under their names in one step. So each file is
        there with all of its bytes or not at all, whatever fails.

        Args:
            files: the bytes of each, by its path; a path comes once. What yields them is asked for
                more on the client's event loop when there is room: it must not call a `Client`.
            overwrite: replace files that are there.
            publication: gets the path of each and its status under a hidden name, and tells what
                `transact` does in place of a rename to the path and of the directories above.

            The rest is as for `create`.

        Raises:
            ExistsError: a file is there and `overwrite` is not set; none of its batch is published.
            OutcomeUnknownError, DeadlineError: all files of a batch are published, or none.
            PaxosBlockError: as `create`, the writer and `transact` raise it. After any error no
                further batch begins, and `published` of its `details` counts the files that are
                known to be published.
        """
        from paxosblock.client.writing import many_files  # noqa: PLC0415 - for writers

        config = self._session.config
        sizes = self._sizes(block_size, chunk_size, window)
        like = many_files.MadeLike(
            overwrite,
            config.replication if replication is None else replication,
            sizes[0],
            config.durability if durability is None else durability_of(durability),
            *sizes[1:],
            permission,
            config.umask if umask is None else umask,
            options,
        )
        pairs = files.items() if isinstance(files, Mapping) else files
        # An iterable of pairs might be a mapping whose keys are pairs, to a type checker.
        named = cast("Iterable[tuple[AnyPath, Buffer]]", pairs)
        whole = partial(many_files.whole_file, like, publication)
        return await many_files.put_many(self._session, starmap(whole, named))

    async def upload(
        self,
        local: str | os.PathLike[str],
        path: AnyPath,
        *,
        overwrite: bool = False,
        preserve: str = "",
        sync: Sync | None = None,
        directly: bool = False,
        at_once: int = AT_ONCE,
        replication: int | None = None,
        durability: Durability | str | None = None,
        options: WriteOptions | None = None,
        told: Callable[[CopyStep], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> CopySummary:
        """Copy a local file, or a directory with all that is in it, to be what is at `path`.

        Each file appears under its name when it is complete. A directory that is there gets what is
        in the local one, beside what it has. Links to directories are not followed.

        Args:
            overwrite: replace files that are there.
            preserve: letters of what copies keep, as of `hdfs dfs -cp -p`: t, times; o, owner and
                group; p, permission; and a, access control list, x, attributes, of files of the
                cluster.
            sync: copy only what differs; `overwrite` goes without saying.
            directly: write to the names themselves, so that others can follow files as they grow.
            at_once: files, or batches of small ones, that are under way side by side.
            replication, durability, options: as for `create`.
            told: hears of each file and directory, and of errors, on the client's event loop: it
                must not call a `Client`. Without it the first error is raised when all is done.
            progress: hears, there too, of bytes that were copied, 0 where something else was done.

        Raises:
            FileNotFoundError, OSError: there is no such local file, or it cannot be read.
            ExistsError: a file is there that may not be replaced, or it would have to be a
                directory.
            IsDirectoryError: a directory is there where a file should be.
            InvalidRequestError: with `sync`, a local file was changed while it was copied.
            Others: as `create` and `transact`.
        """
        how = CopyOptions(
            overwrite,
            directly,
            preserve,
            at_once=at_once,
            sync=sync,
            replication=replication,
            durability=durability,
            options=options,
        )
        here, there = os.fspath(local), text_of(path)
        run = self._copy_run(how, told, progress, from_local=True)
        return await run.run(here, there)

    async def download(
        self,
        path: AnyPath,
        local: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        preserve: str = "",
        sync: Sync | None = None,
        at_once: int = AT_ONCE,
        told: Callable[[CopyStep], None] | None = None,
        progress: Callable[[int], None] | None = None,
        at: When | None = None,
    ) -> CopySummary:
        """Copy a file, or a directory with all that is in it, to this machine, to be `local`.

        Arguments and errors are those of `upload`, with the places exchanged; and those of `open`.
        """
        how = CopyOptions(overwrite, preserve=preserve, at_once=at_once, sync=sync)
        run = self._copy_run(how, told, progress, to_local=True)
        return await run.run(as_of(path, at), os.fspath(local))

    async def copy(
        self,
        source: AnyPath,
        path: AnyPath,
        *,
        overwrite: bool = False,
        preserve: str = "",
        sync: Sync | None = None,
        directly: bool = False,
        at_once: int = AT_ONCE,
        told: Callable[[CopyStep], None] | None = None,
        progress: Callable[[int], None] | None = None,
        at: When | None = None,
    ) -> CopySummary:
        """Copy a file, or a directory with all that is in it, within the cluster, to be `path`.

        Bytes go through this client. A copy has the replication, block size and durability of its
        original. Arguments and errors are those of `upload`, and of `open`; the directory above
        `path` must be there, and a directory cannot be copied into itself.
        """
        how = CopyOptions(overwrite, directly, preserve, False, at_once, sync)
        return await self._copy_run(how, told, progress).run(as_of(source, at), text_of(path))

    def _copy_run(
        self,
        how: CopyOptions,
        told: Callable[[CopyStep], None] | None,
        progress: Callable[[int], None] | None,
        *,
        from_local: bool = False,
        to_local: bool = False,
    ) -> CopyRun:
        # A program that copies nothing imports none of it.
        from paxosblock.client.copies.cluster_place import ClusterPlace  # noqa: PLC0415 - see above
        from paxosblock.client.copies.copy_run import CopyRun  # noqa: PLC0415 - see above
        from paxosblock.client.copies.local_place import LocalPlace  # noqa: PLC0415 - see above

        cluster, local = ClusterPlace(cast("CopyClient", self), self._session), LocalPlace()
        return CopyRun(
            local if from_local else cluster, local if to_local else cluster, how, told, progress
        )
