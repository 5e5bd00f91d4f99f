"""The namespace behaves as a dict of paths does: random operations against a plain model."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from paxosblock.api.namenode import DeletePath, Kind, ListDirectory, MakeDirectories, RenamePath
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.catalog import keys, tree
from paxosblock.namenode.catalog.records import ROOT_ID
from paxosblock.namenode.kv.interface import prefix_range
from paxosblock.protocol.types import WriterId
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import create_request, new_catalog

NAMES = st.sampled_from(["a", "b", "c", "ab"])
PATHS = st.lists(NAMES, min_size=0, max_size=4).map(lambda names: "/" + "/".join(names))

ROOT = "/"


class Model:
    """Paths of directories and files. An operation returns False when it must be refused."""

    def __init__(self) -> None:
        self.directories = {ROOT}
        self.files: dict[str, str] = {}

    def parents(self, path: str) -> list[str]:
        """Paths above `path`, the root first."""
        names = path.split("/")[1:-1]
        return [ROOT, *("/" + "/".join(names[:n]) for n in range(1, len(names) + 1))]

    def below(self, path: str) -> list[str]:
        """Everything under a directory."""
        stem = path.rstrip("/") + "/"
        return [p for p in (*self.directories, *self.files) if p.startswith(stem) and p != path]

    def blocked(self, path: str) -> bool:
        """True if a file is on the way."""
        return any(parent in self.files for parent in self.parents(path))

    def mkdirs(self, path: str, parents: bool) -> bool:
        if path in self.files or self.blocked(path):
            return False
        if path in self.directories:
            return parents
        if not parents and self.parents(path)[-1] not in self.directories:
            return False
        self.directories |= {path, *self.parents(path)}
        return True

    def create(self, path: str, writer: str, overwrite: bool, parent_must_exist: bool) -> bool:
        if path in self.directories or self.blocked(path):
            return False
        if parent_must_exist and self.parents(path)[-1] not in self.directories:
            return False
        if path in self.files and self.files[path] != writer and not overwrite:
            return False
        self.directories |= set(self.parents(path))
        self.files[path] = writer
        return True

    def delete(self, path: str, recursive: bool) -> bool:
        if path == ROOT or self.blocked(path):
            return False
        if path in self.directories and self.below(path) and not recursive:
            return False
        for gone in (path, *(self.below(path) if path in self.directories else ())):
            self.directories.discard(gone)
            self.files.pop(gone, None)
        return True

    def rename(self, source: str, target: str, overwrite: bool) -> bool:
        if ROOT in (source, target) or self.blocked(source):
            return False
        if source not in self.files and source not in self.directories:
            return False
        if source == target:
            return True
        if target.startswith(source + "/") or self.blocked(target):
            return False
        if self.parents(target)[-1] not in self.directories or target in self.directories:
            return False
        if target in self.files and not (overwrite and source in self.files):
            return False
        self._move(source, target)
        return True

    def _move(self, source: str, target: str) -> None:
        for path in (source, *(self.below(source) if source in self.directories else ())):
            moved = target + path.removeprefix(source)
            if path in self.files:
                self.files[moved] = self.files.pop(path)
            else:
                self.directories.remove(path)
                self.directories.add(moved)


class NamespaceMachine(RuleBasedStateMachine):
    """Runs each operation on the catalog and on the model; both must agree whether it worked."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = MemoryStore()
        self.catalog = self.loop.run_until_complete(new_catalog(self.store))
        self.model = Model()

    def teardown(self) -> None:
        self.loop.close()

    def works(self, operation: Coroutine[Any, Any, object]) -> bool:
        try:
            self.loop.run_until_complete(operation)
        except PaxosBlockError:
            return False
        return True

    @rule(path=PATHS, parents=st.booleans())
    def mkdirs(self, path: str, parents: bool) -> None:
        operation = self.catalog.make_directories(MakeDirectories(path, parents))
        assert self.works(operation) == self.model.mkdirs(path, parents)

    @rule(
        path=PATHS,
        writer=st.sampled_from(["ann", "bob"]),
        overwrite=st.booleans(),
        must=st.booleans(),
    )
    def create(self, path: str, writer: str, overwrite: bool, must: bool) -> None:
        request = create_request(
            path, WriterId(writer), overwrite=overwrite, parent_must_exist=must
        )
        expected = self.model.create(path, writer, overwrite, must)
        assert self.works(self.catalog.create(request)) == expected

    @rule(path=PATHS, recursive=st.booleans())
    def delete(self, path: str, recursive: bool) -> None:
        operation = self.catalog.delete(DeletePath(path, recursive))
        assert self.works(operation) == self.model.delete(path, recursive)

    @rule(source=PATHS, destination=PATHS, overwrite=st.booleans())
    def rename(self, source: str, destination: str, overwrite: bool) -> None:
        operation = self.catalog.rename(RenamePath(source, destination, overwrite))
        assert self.works(operation) == self.model.rename(source, destination, overwrite)

    @rule()
    def sweep(self) -> None:
        self.loop.run_until_complete(self.catalog.sweep())

    @invariant()
    def the_tree_is_the_models_tree(self) -> None:
        directories, files = self.loop.run_until_complete(self.walk(ROOT))
        assert directories | {ROOT} == self.model.directories
        assert files == set(self.model.files)

    @invariant()
    def every_record_is_named_and_nothing_else_is(self) -> None:
        there, garbage = self.numbers(b"i"), self.numbers(b"g")
        entries = [key for key, _ in self.store.machine.scan(*keys.ENTRIES)]
        named = [self.named_by(key) for key in entries]
        assert sorted(named) == sorted(there - {ROOT_ID})
        assert self.numbers(b"e") <= there | garbage
        assert self.numbers(b"o") | self.numbers(b"t") <= there

    def named_by(self, key: bytes) -> int:
        """The id that an entry names."""
        target = tree.child(self.store.machine, keys.number_of(key), keys.name_in(key))
        assert target is not None
        return target.number

    def numbers(self, letter: bytes) -> set[int]:
        """The ids in the keys that begin with a letter."""
        found = self.store.machine.scan(*prefix_range(letter))
        return {keys.number_of(key) for key, _ in found}

    async def walk(self, path: str) -> tuple[set[str], set[str]]:
        directories: set[str] = set()
        files: set[str] = set()
        for entry in (await self.catalog.list(ListDirectory(path))).entries:
            assert await self.catalog.status(entry.path) == entry
            if entry.kind is Kind.FILE:
                files.add(entry.path)
            else:
                below = await self.walk(entry.path)
                directories |= {entry.path, *below[0]}
                files |= below[1]
        return directories, files


TestNamespace = NamespaceMachine.TestCase
TestNamespace.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
