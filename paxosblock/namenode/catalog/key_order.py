"""Listing what is below a directory as a store of keys does: by the bytes of the whole key.

A key is a path from that directory on, without its first `/`. A tree is read by name, and what is
in a directory `a` has keys that begin with `a/`: behind `a+`, `a-b/c` and `a.b`, before `a0`. So a
directory is held back until an entry comes whose name is greater.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

import msgspec

from paxosblock.api.namenode import NO_FILE, FileStatus
from paxosblock.api.subtree import ListedKey, ListKeys
from paxosblock.base import paths
from paxosblock.errors import PermissionDeniedError
from paxosblock.namenode.catalog import keys, permissions, tree
from paxosblock.namenode.catalog.draft import Reads
from paxosblock.namenode.catalog.permissions import Action, Actor
from paxosblock.namenode.catalog.records import DirectoryInode, inode_in

READ_AT_ONCE: Final = 200
"""Entries of a directory."""
PROBED_MAX: Final = 64
"""Directories that are read to find out if there is any key in one; more are taken for a yes."""

_SLASH: Final = paths.SEPARATOR


class _FoundKey(msgspec.Struct, frozen=True, gc=False):
    """An entry of a directory, or a number of keys (`number` NO_FILE) that are shown as one."""

    key: str
    number: int
    is_directory: bool = False


class KeyWalk:
    """The keys of one request, in order."""

    def __init__(self, reads: Reads, request: ListKeys, actor: Actor) -> None:
        """Begin; `reads` shows the same state until the end.

        Raises:
            NotFoundError, NotDirectoryError: there is no such directory.
            PermissionDeniedError: the actor may not come there.
        """
        self._reads, self._request, self._actor = reads, request, actor
        self._names = paths.split(request.path)
        self._top = tree.find_directory(reads, self._names, actor)

    def listed(self) -> Iterator[ListedKey | None]:
        """Yield the keys. None says that it went on without one, so that another may have its turn.

        Raises:
            PermissionDeniedError: the actor may not read a directory.
        """
        delimiter = self._request.delimiter
        if delimiter in ("", _SLASH):
            found = self._walk(apart=bool(delimiter))
        else:
            found = self._grouped(delimiter)
        for named in found:
            yield None if named is None else self._listed(named)

    def _grouped(self, delimiter: str) -> Iterator[_FoundKey | None]:
        prefix, last = self._request.prefix, ""
        for named in self._walk(apart=False):
            if named is None:
                yield None
                continue
            first, found, _ = named.key[len(prefix) :].partition(delimiter)
            if not found:
                yield named
                continue
            group = prefix + first + found
            shown = group != last and not self._request.after.startswith(group)
            yield _FoundKey(group, NO_FILE) if shown else None
            last = group

    def _walk(self, *, apart: bool) -> Iterator[_FoundKey | None]:
        """Yield the keys; with `apart`, a directory in place of all that is in it."""
        prefix, after = self._request.prefix, self._request.after
        stem = prefix[: prefix.rfind(_SLASH) + 1]
        if after > stem and not after.startswith(stem):
            return
        directory = self._find(stem)
        if directory is None:
            return
        if stem and stem == prefix > after and self._is_marker(directory):
            yield _FoundKey(stem, directory)
        levels = [self._entries(directory, stem, prefix)]
        while levels:
            named = next(levels[-1], None)
            if named is None:
                levels.pop()
            elif not named.is_directory:
                yield named
            elif apart:
                shown = not after.startswith(named.key) and self._has_any_key(named)
                yield _FoundKey(named.key, NO_FILE) if shown else None
            else:
                marker = named.key > after and self._is_marker(named.number)
                yield named if marker else None
                levels.append(self._entries(named.number, named.key, named.key))

    def _find(self, stem: str) -> int | None:
        """Return the directory of the keys that begin with `stem`; None if there is none."""
        number = self._top
        for name in stem.split(_SLASH)[:-1]:
            child = tree.child(self._reads, number, name)
            if child is None or not child.is_directory:
                return None
            number = child.number
        return number

    def _entries(self, directory: int, stem: str, prefix: str) -> Iterator[_FoundKey]:
        """Yield what of a directory begins with `prefix` and is behind where the request begins, or
        has something in it that may be: in the order of keys, that of a directory with its `/`."""
        self._check(directory, stem)
        start, after = prefix.removeprefix(stem), ""
        if self._request.after.startswith(stem):
            after = self._request.after.removeprefix(stem)
        held: list[tuple[str, int]] = []

        def hold(name: str, target: tree.Target) -> None:
            key = name + _SLASH
            if key > after or after.startswith(key):
                heappush(held, (key, target.number))

        begin = after.partition(_SLASH)[0]
        for length in range(max(1, len(start)), min(len(begin), paths.NAME_BYTES_MAX) + 1):
            # A directory `a` comes behind `a.b`, though its name comes first.
            name = begin[:length]
            target = tree.child(self._reads, directory, name) if name.startswith(start) else None
            if target is not None and target.is_directory:
                hold(name, target)
        found = tree.entries(self._reads, directory, READ_AT_ONCE, start=start, behind=begin)
        for name, target in found:
            while held and held[0][0] < name:
                key, number = heappop(held)
                yield _FoundKey(stem + key, number, is_directory=True)
            if target.is_directory:
                hold(name, target)
            elif name > after:
                yield _FoundKey(stem + name, target.number)
        while held:
            key, number = heappop(held)
            yield _FoundKey(stem + key, number, is_directory=True)

    def _is_marker(self, directory: int) -> bool:
        """True for a directory that was asked for: its key ends with its `/`."""
        return not self._inode(directory).implicit

    def _has_any_key(self, directory: _FoundKey) -> bool:
        """True if any key begins with that of the directory, or it takes too long to find out."""
        left = [directory.number]
        for _ in range(PROBED_MAX):
            if not left:
                return False
            number = left.pop()
            try:
                self._check(number, directory.key)
            except PermissionDeniedError:
                return True  # it is seen there, as by `ls`
            if self._is_marker(number):
                return True
            for _, found in self._reads.scan(*keys.entries(number), PROBED_MAX):
                target = tree.unpack_target(found.value)
                if not target.is_directory:
                    return True
                left.append(target.number)
        return bool(left)

    def _inode(self, directory: int) -> DirectoryInode:
        inode = inode_in(self._reads.get(keys.inode(directory)))
        assert isinstance(inode, DirectoryInode), "an entry holds the kind of what it names"
        return inode

    def _check(self, directory: int, stem: str) -> None:
        names = (*self._names, *stem.split(_SLASH)[:-1])
        permissions.check_at(self._reads, directory, Action.READ_EXECUTE, names, self._actor)

    def _listed(self, named: _FoundKey) -> ListedKey:
        if named.number == NO_FILE:
            return ListedKey(named.key)
        path = f"{self._request.path.rstrip(_SLASH)}/{named.key.rstrip(_SLASH)}"
        return ListedKey(named.key, self._status(path, named.number))

    def _status(self, path: str, number: int) -> FileStatus:
        inode = tree.load(self._reads.get(keys.inode(number)), path)
        return tree.status(self._reads, path, inode)
