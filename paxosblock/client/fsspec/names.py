"""The half of the file system that needs no bytes: listings, facts, directories, moves, deletes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from glob import has_magic
from typing import Any

from fsspec.asyn import sync_wrapper

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.transaction import AssertAbsent, Delete, MakeDirectory, Operation, Rename
from paxosblock.base.path import STAGING
from paxosblock.client.fsspec.base import ClusterFileSystem
from paxosblock.client.fsspec.info import Info, info_of, ukey_of
from paxosblock.client.names.walk import base_name, join
from paxosblock.client.reading.locations import BlockLocation
from paxosblock.errors import (
    IsDirectoryError,
    NotDirectoryError,
    NotFoundError,
)

_MISSING = (NotFoundError, NotDirectoryError)


class NameVerbs(ClusterFileSystem):
    """Each method makes a call or two; several changes at once are one transaction."""

    # -- facts ----------------------------------------------------------------------------------

    async def _info(self, path: str, **kwargs: Any) -> Info:
        """`name`, `size`, `type`, `created`, `mtime` and more; see `info_of`."""
        return info_of(await self._status(path))

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self.own_path(path)
        entries = await (await self._client()).list(path)
        infos = [info_of(entry) for entry in entries if entry.path != STAGING]
        return infos if detail else [info["name"] for info in infos]

    async def _exists(self, path: str, **kwargs: Any) -> bool:
        return await (await self._client()).exists(self.own_path(path))

    async def _isfile(self, path: str) -> bool:
        return await self._kind(path) is Kind.FILE

    async def _isdir(self, path: str) -> bool:
        return await self._kind(path) is Kind.DIRECTORY

    async def _walk(
        self,
        path: str,
        maxdepth: int | None = None,
        *,
        on_error: str | Callable[[Exception], None] = "omit",
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Leave out a directory that is gone; but raise if no NameNode answers."""
        heard = _raise_unless_missing if on_error == "omit" else on_error
        async for found in super()._walk(path, maxdepth, on_error=heard, **kwargs):
            yield found

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, **kwargs: Any
    ) -> Any:
        found = await super()._find(path, maxdepth, withdirs, **kwargs)
        if isinstance(found, dict) and {} in found.values():
            return {name: await self._info(name) for name in found}  # `path` is a file
        return found

    async def _du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Sizes in bytes, from the listings alone."""
        found = await self._find(path, maxdepth, withdirs, detail=True, **kwargs)
        sizes = {name: info["size"] for name, info in found.items()}
        return sum(sizes.values()) if total else sizes

    async def _created(self, path: str) -> datetime:
        """Return when the file or directory was made."""
        return datetime.fromtimestamp((await self._status(path)).created_ms / 1000, UTC)

    async def _modified(self, path: str) -> datetime:
        """Return when its content last changed."""
        return datetime.fromtimestamp((await self._status(path)).modified_ms / 1000, UTC)

    async def _ukey(self, path: str) -> str:
        """Return a value that differs when the content may differ."""
        return ukey_of(await self._status(path))

    async def _checksum(self, path: str) -> int:
        """Return `ukey` as a number, as fsspec does; it is not made from the bytes."""
        return int(await self._ukey(path), 16)

    async def _locations(
        self, path: str, offset: int = 0, length: int | None = None
    ) -> list[BlockLocation]:
        """List the blocks of a file and the DataNodes of each; see `AsyncClient.locations`."""
        return await (await self._client()).locations(self.own_path(path), offset, length)

    # -- changes --------------------------------------------------------------------------------

    async def _mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a directory. Raises FileExistsError if it is there, FileNotFoundError if its parent
        is not, unless `create_parents`."""
        path = self.own_path(path)
        if create_parents:
            await (await self._client()).transact([AssertAbsent(path), MakeDirectory(path)])
        else:
            await (await self._client()).mkdirs(path, parents=False)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and its parents. Raises FileExistsError if it is there, unless
        `exist_ok`."""
        if exist_ok:
            await (await self._client()).mkdirs(self.own_path(path))
        else:
            await self._mkdir(path)

    async def _rmdir(self, path: str) -> None:
        """Delete an empty directory. Raises OSError when it is not empty, or no directory."""
        status = await self._status(path)
        if status.kind is not Kind.DIRECTORY:
            raise NotDirectoryError(f"'{status.path}' is no directory", path=status.path)
        await (await self._client()).delete(status.path)

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        await self._delete([await self._status(path)], recursive=False)

    async def _rm(
        self,
        path: str | list[str],
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Delete files, and directories when `recursive`: all of them in one step.

        Raises:
            FileNotFoundError, IsADirectoryError: one is not there, or is a directory without
                `recursive`; nothing was deleted.
        """
        if maxdepth is not None and recursive:
            paths = reversed(await self._expand_path(path, recursive=True, maxdepth=maxdepth))
            operations: list[Operation] = [Delete(each) for each in paths]
            await (await self._client()).transact(operations)
            return
        paths = await self._named(path)
        found = await asyncio.gather(*(self._status(each) for each in paths))
        await self._delete(found, recursive)

    async def _delete(self, found: Iterable[FileStatus], recursive: bool) -> None:
        for each in found:
            if each.kind is Kind.DIRECTORY and not recursive:
                raise IsDirectoryError(f"'{each.path}' is a directory", path=each.path)
        operations: list[Operation] = [Delete(each.path, recursive) for each in found]
        await (await self._client()).transact(operations)

    async def _mv(
        self,
        path1: str | list[str],
        path2: str | list[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Move files or directories, in one step and without copying a byte.

        Files that are at the new places are replaced. A single source goes into `path2` when that
        is a directory, or to it when not; several always go into it.

        Raises:
            FileNotFoundError, FileExistsError: no source, or a directory is at the new place;
                nothing was moved.
        """
        sources = await self._named(path1)
        targets = await self._targets(sources, path2)
        operations: list[Operation] = []
        for source, target in zip(sources, targets, strict=True):
            parent = target.rpartition("/")[0]
            if source != target:
                operations += [MakeDirectory(parent)] if parent else []
                operations.append(Rename(source, target, overwrite=True))
        if operations:
            await (await self._client()).transact(operations)

    async def _targets(self, sources: list[str], path2: str | list[str]) -> list[str]:
        if not isinstance(path2, str):
            return [self.own_path(each) for each in path2]
        into = len(sources) > 1 or path2.endswith("/") or await self._isdir(path2)
        path2 = self.own_path(path2)
        if not into:
            return [path2]
        return [join(path2, base_name(each)) for each in sources]

    async def _set_replication(self, path: str, replication: int) -> None:
        """Set how many replicas a file has; the name is the one that fsspec's WebHDFS has."""
        await (await self._client()).set_replication(self.own_path(path), replication)

    async def _truncate(self, path: str, length: int) -> None:
        """Cut a file to its first `length` bytes; fsspec itself has no name for that."""
        await (await self._client()).truncate(self.own_path(path), length)

    # fsspec derives synchronous names only for its own list of verbs.
    created = sync_wrapper(_created)
    modified = sync_wrapper(_modified)
    ukey = sync_wrapper(_ukey)
    checksum = sync_wrapper(_checksum)
    locations = sync_wrapper(_locations)
    rmdir = sync_wrapper(_rmdir)
    mv = sync_wrapper(_mv)
    set_replication = sync_wrapper(_set_replication)
    truncate = sync_wrapper(_truncate)

    async def _status(self, path: str) -> FileStatus:
        return await (await self._client()).stat(self.own_path(path))

    async def _named(self, path: str | list[str]) -> list[str]:
        """Return the paths; one that names nothing may be a pattern."""
        if isinstance(path, str):
            path = self.own_path(path)
            literal = not has_magic(path) or await self._exists(path)
            return [path] if literal else await self._globbed(path)
        return [name for each in path for name in await self._named(each)]

    async def _globbed(self, pattern: str) -> list[str]:
        found: list[str] = await self._glob(pattern)
        if not found:
            raise NotFoundError(f"'{pattern}' matches nothing", path=pattern)
        return found

    async def _kind(self, path: str) -> Kind | None:
        try:
            return (await self._status(path)).kind
        except _MISSING:
            return None


def _raise_unless_missing(error: Exception) -> None:
    if not isinstance(error, _MISSING):
        raise error
