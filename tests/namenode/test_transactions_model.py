"""Random transactions against a plain model of a tree: all or nothing, whatever fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from paxosblock.api.namenode import (
    ApplicationVersion,
    CloseFile,
    FileStatus,
    Kind,
    ListDirectory,
    Transact,
)
from paxosblock.api.path_attributes import GetAttributes
from paxosblock.api.transaction import (
    AssertAbsent,
    AssertDirectory,
    AssertFile,
    Concat,
    Delete,
    MakeDirectory,
    Marker,
    Operation,
    Rename,
    SetAttributes,
    SetOwner,
    SetPermission,
    TransactionOutcome,
    Truncate,
)
from paxosblock.errors import OutcomeUnknownError, PaxosBlockError
from paxosblock.namenode.catalog import attributes, keys
from paxosblock.namenode.catalog.draft import inode_of
from paxosblock.namenode.catalog.permissions import ITSELF
from paxosblock.namenode.catalog.records import decode_entry, decode_place
from paxosblock.protocol.types import Durability
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    ANN,
    BOB,
    add_block,
    blocks_of,
    closed_file,
    create_request,
    finalize_request,
    new_catalog,
)

T = TypeVar("T")

PATHS = ["/a", "/b", "/c", "/d", "/d/a", "/d/b", "/d/e", "/d/e/a", "/a/b"]


class Refused(Exception):
    """The model does not do this."""

    def __init__(self, wanted: CloseFile | None = None) -> None:
        super().__init__(wanted)
        self.wanted = wanted


@dataclass
class File:
    """Contents stand for blocks: each chunk count is one block, 0 one that is not ended yet."""

    blocks: list[int] = field(default_factory=list)
    open: bool = False

    @property
    def length(self) -> int:
        return sum(self.blocks) * CHUNK_BYTES


@dataclass(frozen=True)
class Rights:
    """Owner, group, mode and attributes that a user set; None for what was left as it was made."""

    owner: str | None = None
    group: str | None = None
    mode: int | None = None
    attributes: dict[str, bytes] = field(default_factory=dict)

    def are_those_of(self, status: FileStatus) -> bool:
        there = (status.owner, status.group, status.permission)
        wanted = (self.owner, self.group, self.mode)
        default = ("", "", 0o755 if status.kind is Kind.DIRECTORY else 0o644)
        return there == tuple(
            made if given is None else given for given, made in zip(wanted, default, strict=True)
        )


class Tree:
    """Paths, and what is there: a `File`, or None for a directory."""

    def __init__(self) -> None:
        self.at: dict[str, File | None] = {"/": None}
        self.rights: dict[str, Rights] = {}
        """Of those paths whose owner, group or mode was changed."""
        self.implicit: set[str] = set()
        """Directories that were made on the way to something else."""

    def refuse_if(self, condition: bool) -> None:
        if condition:
            raise Refused

    def above(self, path: str) -> list[str]:
        names = path.split("/")[1:-1]
        return ["/", *("/" + "/".join(names[:end]) for end in range(1, len(names) + 1))]

    def below(self, path: str) -> list[str]:
        return [each for each in self.at if each.startswith(path + "/")]

    def check_way(self, path: str) -> None:
        """No file stands on the way."""
        self.refuse_if(any(isinstance(self.at.get(each), File) for each in self.above(path)))

    def closed(self, path: str) -> File:
        found = self.at.get(path)
        if not isinstance(found, File) or found.open:
            raise Refused
        return found

    def make_way(self, path: str, *, implicit: bool = True) -> None:
        self.check_way(path)
        for each in self.above(path):
            if each not in self.at:
                self.make_directory(each, implicit=implicit)

    def make_directory(self, path: str, *, implicit: bool) -> None:
        if path not in self.at:
            self.make(path, None)
            if implicit:
                self.implicit.add(path)
        elif not implicit:
            self.implicit.discard(path)

    def make(self, path: str, entry: File | None) -> None:
        """Make a new entry, which has the group of the directory above."""
        self.at[path] = entry
        self.gone(path)
        if (group := self.of(self.above(path)[-1]).group) is not None:
            self.rights[path] = Rights(group=group)

    def do(self, operation: Operation) -> None:
        """Change the tree, or raise Refused (and leave it in any state)."""
        match operation:
            case AssertAbsent() | AssertFile() | AssertDirectory():
                self.check(operation)
            case MakeDirectory(path, implicit):
                self.make_way(path, implicit=implicit)
                self.refuse_if(isinstance(self.at.get(path), File))
                self.make_directory(path, implicit=implicit)
            case Rename(source, destination, overwrite):
                self.rename(source, destination, overwrite)
            case Concat(target, sources):
                self.concat(target, sources)
            case Truncate(path, length):
                self.truncate(path, length)
            case Delete():
                self.delete(operation)
            case Marker(path):
                self.make_way(path)
                if path in self.at:
                    self.closed(path)
                self.make(path, File())
            case SetPermission(path, mode):
                self.refuse_if(path not in self.at)
                self.rights[path] = replace(self.of(path), mode=mode)
                self.implicit.discard(path)
            case SetAttributes(path, wanted):
                self.refuse_if(path not in self.at)
                before = self.of(path)
                after = {k: v for k, v in (before.attributes | wanted).items() if v is not None}
                self.rights[path] = replace(before, attributes=after)
                if after != before.attributes:
                    self.implicit.discard(path)
            case SetOwner(path, owner, group):
                self.refuse_if(path not in self.at)
                before = self.of(path)
                self.rights[path] = replace(
                    before, owner=owner or before.owner, group=group or before.group
                )
                self.implicit.discard(path)

    def close(self, path: str, chunks: int | None) -> None:
        """Close an open file, whose last block has `chunks` then; None: that is not said."""
        file = self.at[path]
        assert file is not None
        self.refuse_if(chunks is None and bool(file.blocks))
        self.at[path] = File([chunks] if chunks else [])

    def check(self, wanted: AssertAbsent | AssertFile | AssertDirectory) -> None:
        match wanted:
            case AssertAbsent(path):
                self.refuse_if(path in self.at)
            case AssertFile(path, _, length):
                self.refuse_if(length not in (None, self.closed(path).length))
            case AssertDirectory(path):
                self.refuse_if(path not in self.at or isinstance(self.at[path], File))

    def of(self, path: str) -> Rights:
        return self.rights.get(path, Rights())

    def gone(self, path: str) -> None:
        self.rights.pop(path, None)
        self.implicit.discard(path)

    def rename(self, source: str, destination: str, overwrite: bool) -> None:
        self.refuse_if(source not in self.at)
        if isinstance(self.at[source], File):
            self.closed(source)
        if source == destination:
            return
        self.refuse_if(destination.startswith(source + "/"))
        parent = self.above(destination)[-1]
        self.refuse_if(parent not in self.at or isinstance(self.at[parent], File))
        if destination in self.at:
            both_files = isinstance(self.at[source], File) and isinstance(
                self.at[destination], File
            )
            self.refuse_if(not (overwrite and both_files))
        self.gone(destination)
        self.implicit.discard(source)
        for each in [source, *self.below(source)]:
            moved = destination + each.removeprefix(source)
            self.at[moved] = self.at.pop(each)
            if each in self.rights:
                self.rights[moved] = self.rights.pop(each)
            if each in self.implicit:
                self.implicit.remove(each)
                self.implicit.add(moved)

    def concat(self, target: str, sources: tuple[str, ...]) -> None:
        self.refuse_if(not sources or len({target, *sources}) <= len(sources))
        into = self.closed(target)
        for source in sources:
            into.blocks += self.closed(source).blocks
            del self.at[source]
            self.gone(source)

    def truncate(self, path: str, length: int) -> None:
        file = self.closed(path)
        self.refuse_if(not 0 <= length <= file.length or bool(length % CHUNK_BYTES))
        left, kept = length // CHUNK_BYTES, []
        for block in file.blocks:
            kept += [min(block, left)] if left else []
            left -= min(block, left)
        file.blocks = kept

    def delete(self, wanted: Delete) -> None:
        path, there = wanted.path, wanted.path in self.at
        self.check_way(path)
        self.refuse_if(wanted.must_exist and not there)
        if self.below(path) and not wanted.recursive:
            self.refuse_if(not wanted.prune)
            self.implicit.add(path)
            return
        for each in [path, *self.below(path)]:
            self.at.pop(each, None)
            self.gone(each)
        if wanted.prune and there:
            self.prune(path)

    def prune(self, path: str) -> None:
        for each in reversed(self.above(path)):
            if each not in self.implicit or self.below(each):
                return
            self.at.pop(each)
            self.gone(each)


def some_operation(random: Random, tree: Tree) -> Operation:
    """An operation, mostly on what is there."""
    files = [path for path, found in tree.at.items() if found and not found.open]
    there = [path for path in tree.at if path != "/"]
    some = random.choice(random.choice([files or PATHS, there or PATHS, PATHS]))
    match random.randrange(14):
        case 13:
            name = random.choice(["user.a", "user.b", "trusted.c"])
            return SetAttributes(some, {name: random.choice([None, b"", b"1"])})
        case 11:
            return SetPermission(some, random.choice([0, 0o750, 0o1777]))
        case 12:
            owner = random.choice(["", "ann", "bob"])
            return SetOwner(some, owner, random.choice(["", "staff", "dev"]))
        case 0:
            return AssertAbsent(random.choice(PATHS))
        case 1:
            size = random.choice([None, 0, CHUNK_BYTES])
            checks: list[Operation] = [AssertFile(some, size=size), AssertDirectory(some)]
            return random.choice(checks)
        case 2:
            return MakeDirectory(random.choice(PATHS), random.random() < 0.5)
        case 3:
            return Rename(some, random.choice(PATHS), random.random() < 0.5)
        case 4:
            return Concat(some, tuple(random.sample(PATHS, random.randint(1, 2))))
        case 7 | 8 if len(files) > 1:
            target, *sources = random.sample(files, random.randint(2, min(3, len(files))))
            return Concat(target, tuple(sources))
        case 5:
            recursive, must_exist, prune = (random.random() < 0.5 for _ in range(3))
            return Delete(some, recursive, must_exist, prune=prune)
        case 9 | 10 if files:
            path = random.choice(files)
            return Truncate(path, random.randrange(-1, 8) * CHUNK_BYTES + random.choice([0, 0, 1]))
        case _:
            return Marker(random.choice(PATHS))


class TransactMachine(RuleBasedStateMachine):
    """Runs each transaction on the catalog and on the model; both must end with the same tree."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = MemoryStore()
        self.catalog = self.run_now(new_catalog(self.store))
        self.tree = Tree()
        self.version = -1

    def teardown(self) -> None:
        self.loop.close()

    def run_now(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        for path, blocks in (("/a", [1, 2]), ("/b", [3]), ("/d/a", []), ("/d/b", [1])):
            self.write(path, blocks, 1)

    @rule(
        path=st.sampled_from(PATHS),
        blocks=st.lists(st.integers(1, 3), max_size=3),
        opened=st.integers(0, 2),
    )
    def write(self, path: str, blocks: list[int], opened: int) -> None:
        """A file that stays open has one block, which is not ended, or none."""
        stays_open = opened == 0
        tree = deepcopy(self.tree)
        try:
            tree.refuse_if(path in tree.at)
            tree.make_way(path)
        except Refused:
            return
        tree.make(path, File([0] * bool(blocks) if stays_open else blocks, stays_open))
        self.tree = tree
        if stays_open:
            file = self.run_now(self.catalog.create(create_request(path)))
            if blocks:
                self.run_now(add_block(self.catalog, file.number))
        else:
            self.run_now(closed_file(self.catalog, path, *blocks))

    @rule(random=st.randoms(use_true_random=True))
    def transact(self, random: Random) -> None:
        """With a failure of the store before or after it applied, the request is sent again."""
        tree, refused = deepcopy(self.tree), False
        closes: list[CloseFile] = []
        for _ in range(random.choice([1, 1, 3])):
            close = self.some_close(random, tree)
            if isinstance(close, Refused):
                close, refused = close.wanted, True
            closes += () if close is None else (close,)
        operations: list[Operation] = []
        while len(operations) < random.randint(1, 6):
            operation, after = some_operation(random, tree), deepcopy(tree)
            try:
                after.do(operation)
            except Refused:
                if random.random() < 0.9:
                    continue  # so that most are applied
                refused = True
            else:
                tree = after
            operations.append(operation)
        fails = random.choice(["", "before", "after"])
        self.apply(tuple(operations), tuple(closes), None if refused else tree, fails)

    def some_close(self, random: Random, tree: Tree) -> CloseFile | Refused | None:
        """The close of an open file, if there is one, which the model does."""
        opened = [path for path, found in tree.at.items() if found and found.open]
        if not opened or random.random() < 0.3:
            return None
        path = random.choice(opened)
        number = self.run_now(self.catalog.status(path)).file_id
        entries = self.run_now(blocks_of(self.catalog, number))
        chunks = random.choice([None, 0, 1, 2]) if entries else None
        last = None if chunks is None else finalize_request(entries[0], chunks)
        wrong = random.choice(["", "", "", "writer", "size"])
        size = (chunks or 0) * CHUNK_BYTES + (wrong == "size")
        close = CloseFile(number, BOB if wrong == "writer" else ANN, last, size=size)
        try:
            tree.refuse_if(bool(wrong))
            tree.close(path, chunks)
        except Refused:
            return Refused(close)
        return close

    def apply(
        self,
        operations: tuple[Operation, ...],
        closes: tuple[CloseFile, ...],
        tree: Tree | None,
        fails: str,
    ) -> None:
        """`tree` is what the model makes of it; None: it refuses."""
        version = self.version + 1
        application = ApplicationVersion("app", version, f"attempt-{version}")
        first = closes[0] if closes else None
        request = Transact(
            operations, 3, 1 << 20, Durability.DISK,
            application=application, close=first, closes=closes[1:],
        )  # fmt: skip
        outcome = self.send(request, fails)
        if tree is None:
            assert outcome is None, f"done, although the model refuses: {closes} {operations}"
            return
        assert outcome == TransactionOutcome(True, version), f"refused: {closes} {operations}"
        self.tree, self.version = tree, version

    def send(self, request: Transact, fails: str) -> TransactionOutcome | None:
        self.store.fail_before, self.store.fail_after = fails == "before", fails == "after"
        for _ in range(2):
            try:
                return self.run_now(self.catalog.transact(request))
            except OutcomeUnknownError:
                continue
            except PaxosBlockError:
                return None
            finally:
                self.store.fail_before = self.store.fail_after = False
        raise AssertionError("one failure was planted, not two")

    @rule()
    def sweep(self) -> None:
        self.run_now(self.catalog.sweep())

    @invariant()
    def the_tree_is_the_models_tree(self) -> None:
        assert self.run_now(self.walk("/")) == {
            path: found and (found.blocks, found.length, found.open)
            for path, found in self.tree.at.items()
            if path != "/"
        }

    @invariant()
    def each_has_the_owner_the_group_and_the_mode_that_it_was_given(self) -> None:
        for path in self.tree.at:
            status = self.run_now(self.catalog.status(path))
            assert self.tree.of(path).are_those_of(status), path

    @invariant()
    def each_has_the_attributes_that_it_was_given(self) -> None:
        for path in self.tree.at:
            found = attributes.show(self.store.view(), GetAttributes(path), ITSELF)
            assert found.attributes == self.tree.of(path).attributes, path

    @invariant()
    def no_attribute_outlives_what_it_is_of(self) -> None:
        counts = Counter(keys.number_of(key) for key, _ in self.store.machine.scan(b"y", b"z"))
        for number, count in counts.items():
            inode = inode_of(self.store.view(), number)
            assert inode is not None
            assert inode.attributes == count

    @invariant()
    def every_block_hangs_on_the_file_that_it_names_and_on_no_other(self) -> None:
        places = {
            decode_place(found.value).block: (keys.number_of(key), keys.place_sequence(key))
            for key, found in self.store.machine.scan(b"f", b"g")
        }
        entries = [decode_entry(found.value) for _, found in self.store.machine.scan(*keys.BLOCKS)]
        assert places == {entry.record.block: (entry.file, entry.sequence) for entry in entries}
        files = {keys.number_of(key) for key, _ in self.store.machine.scan(b"g", b"j")}
        assert {file for file, _ in places.values()} <= files

    @invariant()
    def every_place_tells_how_many_bytes_are_before_it(self) -> None:
        sizes: dict[int, int] = {}
        for key, found in self.store.machine.scan(b"f", b"g"):
            file, place = keys.number_of(key), decode_place(found.value)
            assert place.offset == sizes.get(file, 0)
            entry = decode_entry(self.store.machine.get(keys.block(place.block)).value)
            sizes[file] = place.offset + entry.record.size_bytes

    async def walk(self, path: str) -> dict[str, tuple[list[int], int, bool] | None]:
        found: dict[str, tuple[list[int], int, bool] | None] = {}
        for entry in (await self.catalog.list(ListDirectory(path))).entries:
            if entry.kind is Kind.DIRECTORY:
                found |= {entry.path: None, **await self.walk(entry.path)}
            else:
                blocks = [
                    each.record.length for each in await blocks_of(self.catalog, entry.file_id)
                ]
                found[entry.path] = (blocks, entry.size, entry.open)
        return found


TestTransact = TransactMachine.TestCase
TestTransact.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
