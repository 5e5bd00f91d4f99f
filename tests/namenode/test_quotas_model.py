"""Random lives of a tree with quotas, several changes at once, through the shipped state machine:
after each round every counter is what a count of its own finds, whoever led meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, cast

import pytest
from msgspec import UNSET

from paxosblock.api.care import SetReplication
from paxosblock.api.namenode import (
    NO_BLOCK,
    AddBlock,
    AppendFile,
    CloseFile,
    CreateFile,
    DeletePath,
    FileStatus,
    FinalizeBlock,
    FirstBlock,
    MakeDirectories,
    RenamePath,
    ReopenBlock,
    Transact,
)
from paxosblock.api.quota import QuotaUsage, SetQuota
from paxosblock.api.transaction import (
    Concat,
    Delete,
    MakeDirectory,
    Marker,
    Operation,
    Rename,
    Truncate,
)
from paxosblock.errors import NotFoundError, PaxosBlockError, QuotaExceededError
from paxosblock.namenode.catalog import creating, keys, namespace, quotas, tree
from paxosblock.namenode.catalog.creating import Made, Placed
from paxosblock.namenode.catalog.draft import block_entry, in_one, inode_of
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import ITSELF
from paxosblock.namenode.catalog.records import (
    ROOT_ID,
    BlockEntry,
    DirectoryInode,
    FileInode,
    Quota,
    decode_place,
)
from paxosblock.namenode.kv.codec import decode_edit, encode_edit
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit, View
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.protocol.recovery import Proposer
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, Durability, WriterId
from tests.memory_table import MemoryTable
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import ANN, MEMBERS, TAG, NamedCatalog

Step = Callable[[], Awaitable[None]]
BLOCK_CHUNKS: Final = 5
NAMES: Final = ("a", "b", "c")
ROUNDS: Final = 40
AT_ONCE: Final = 6


class LoggedStore(MemoryStore):
    """Decodes its entries from the bytes of a log; of some it does not say what became of them."""

    def __init__(self, random: Random) -> None:
        super().__init__(yielding=True)
        self.random = random
        self.troubled = True

    async def commit(self, edit: Edit) -> Committed | Conflict:
        self.fail_after = self.troubled and self.random.random() < 0.02
        self.fail_before = self.troubled and self.random.random() < 0.02
        entry = encode_edit(edit)
        return await super().commit(decode_edit(entry))


@dataclass(frozen=True)
class Found:
    """The result of a count of all names below a directory."""

    names: int
    space: int


def counted(view: View, directory: int) -> Found:
    """Count by the blocks themselves: whole those that a writer was given last."""
    names, space = 1, 0
    for key, found in list(view.scan(*keys.entries(directory))):
        target = tree.unpack_target(found.value)
        assert keys.name_in(key)
        if target.is_directory:
            below = counted(view, target.number)
            names, space = names + below.names, space + below.space
        else:
            names, space = names + 1, space + _room(view, target.number)
    return Found(names, space)


def _room(view: View, number: int) -> int:
    file = inode_of(view, number)
    assert isinstance(file, FileInode)
    places = [
        (keys.place_sequence(key), _block(view, decode_place(found.value).block))
        for key, found in view.scan(*keys.places(number))
    ]
    room = sum(entry.user_bytes for _, entry in places)
    if file.open and places and places[-1][0] >= file.appended_from:
        room += file.block_size - places[-1][1].user_bytes
    if file.reserved != NO_BLOCK:
        assert file.open
        room += file.block_size
    return room * file.replication


def _block(view: View, block: BlockId) -> BlockEntry:
    entry = block_entry(view, block)
    assert entry is not None
    return entry


def directories(view: View) -> dict[int, DirectoryInode]:
    """All directories that a way from the root leads to."""
    found: dict[int, DirectoryInode] = {}
    left = [ROOT_ID]
    while left:
        number = left.pop()
        inode = inode_of(view, number)
        assert isinstance(inode, DirectoryInode)
        found[number] = inode
        for _, value in view.scan(*keys.entries(number)):
            target = tree.unpack_target(value.value)
            if target.is_directory:
                left.append(target.number)
    return found


def tree_of(view: View) -> dict[str, tuple[int, ...]]:
    """Each path, with what users see of it."""
    found: dict[str, tuple[int, ...]] = {}
    for number in directories(view):
        inode = inode_of(view, number)
        assert inode is not None
        above = tree.path_of(view, inode)
        assert above is not None
        found[above] = (number,)
        for key, value in view.scan(*keys.entries(number)):
            target = tree.unpack_target(value.value)
            file = inode_of(view, target.number)
            if isinstance(file, FileInode):
                blocks = [place.block for place in tree.last_places(view, file.number, 1000)]
                path = f"{above.rstrip('/')}/{keys.name_in(key)}"
                found[path] = (file.number, file.length, file.replication, file.open, *blocks)
    return found


@dataclass
class Life:
    """One life: a store, and the NameNodes that lead one after the other."""

    random: Random
    store: LoggedStore = field(init=False)
    catalogs: list[NamedCatalog] = field(default_factory=list)
    refused: int = 0
    done: int = 0
    limited: int = 0
    """Changes of limits in this round."""
    before: dict[Quota, Found] = field(default_factory=dict)
    """The limits of the round before, and what was there."""

    def __post_init__(self) -> None:
        self.store = LoggedStore(self.random)

    async def lead(self) -> None:
        """Let another NameNode take over, on the map that a checkpoint brings."""
        table = MemoryTable(cast("MemoryTable", self.store.machine._table).snapshot())
        self.store.machine = ReplicatedMachine(table)
        self.catalogs.append(NamedCatalog(self.store))
        self.store.troubled = False
        await self.catalogs[-1].start(TAG, "cluster-1")
        self.store.troubled = True

    @property
    def catalog(self) -> NamedCatalog:
        """The catalog of a NameNode that leads, or of the one before, which did so until now."""
        return self.random.choice(self.catalogs[-2:])

    # -- what may happen ---------------------------------------------------------------------------

    def path(self) -> str:
        """Some path, deep more often than not."""
        return "/" + "/".join(self.random.choice(NAMES) for _ in range(self.random.randint(1, 4)))

    def there(self, *, files: bool) -> str:
        """A path that is there, if one is."""
        found = [p for p, what in tree_of(self.store.machine).items() if (len(what) > 1) is files]
        return self.random.choice(found) if found else self.path()

    def closed(self) -> str:
        """A closed file that is there, one with bytes if one is."""
        found = [p for p, what in tree_of(self.store.machine).items() if what[3:4] == (False,)]
        full = [path for path in found if self.inode_at(path).length]
        return self.random.choice(full or found or [self.path()])

    def inode_at(self, path: str) -> FileInode:
        found = tree.find_inode(self.store.machine, path, ITSELF)
        if not isinstance(found, FileInode):
            raise NotFoundError(path)
        return found

    async def make(self) -> None:
        await self.catalog.make_directories(MakeDirectories(self.path()))

    async def create(self) -> None:
        random = self.random
        first = FirstBlock(2) if random.random() < 0.5 else None
        placed = None if first is None else Placed(await self.catalog.next_block(), MEMBERS)
        request = CreateFile(
            self.path(),
            ANN,
            random.random() < 0.5,
            random.randint(1, 3),
            BLOCK_CHUNKS * CHUNK_BYTES,
            Durability.DISK,
            first=first,
        )

        def decide(draft: Any, request: CreateFile, context: Context) -> Made:
            return creating.create(draft, request, context, placed)

        await self.catalog.decide(Made, in_one(decide), request, 8)

    async def write(self) -> None:
        """Go on with a file, in whatever state it is."""
        random, catalog = self.random, self.catalog
        file = self.inode_at(self.there(files=True))
        if not file.open:
            await self.append(file)
            return
        unfinished = await catalog.unfinished(file.number)
        length = random.randint(0, BLOCK_CHUNKS)
        if unfinished:
            record = unfinished[0].record
            if record.writer_generation != FIRST_GENERATION:
                return
            if file.reserved == NO_BLOCK and random.random() < 0.5:
                request = AddBlock(file.number, ANN, record.block, window=2, ahead=True)
                await catalog.add_block(request, await catalog.next_block(), MEMBERS)
                return
            following = file.reserved if random.random() < 0.5 else NO_BLOCK
            await catalog.finalize_by_writer(self.ends(record.block, length, following))
            return
        places = tree.last_places(self.store.machine, file.number, 1)
        previous = places[0].block if places else NO_BLOCK
        match random.randrange(4):
            case 0 if file.reserved and not places:
                ends = self.ends(file.reserved, length, NO_BLOCK)
                await catalog.close_file(CloseFile(file.number, ANN, ends))
            case 1:
                await catalog.close_file(CloseFile(file.number, ANN))
            case _:
                ahead = random.random() < 0.4
                request = AddBlock(file.number, ANN, previous, window=2, ahead=ahead)
                await catalog.add_block(request, await catalog.next_block(), MEMBERS)

    def ends(self, block: BlockId, length: int, following: BlockId) -> Any:
        size = length * CHUNK_BYTES
        return FinalizeBlock(block, ANN, FIRST_GENERATION, length, size, following)

    async def append(self, file: FileInode) -> None:
        path = tree.path_of(self.store.machine, file)
        assert path is not None
        writer = WriterId(f"ann-{self.random.random()}")
        opened = await self.catalog.append(AppendFile(path, writer))
        if opened.last != NO_BLOCK and self.random.random() < 0.7:
            request = ReopenBlock(file.number, writer, opened.last, 2, 1, BLOCK_CHUNKS)
            entry = (await self.catalog.block_entries((opened.last,)))[0]
            assert entry is not None
            allocated = await self.catalog.allocate_append(request, entry.record)
            if allocated is not None:
                await self.catalog.install_append(request, _accepted(allocated))
        if self.random.random() < 0.5:
            await self.recover(file.number)

    async def recover(self, number: int) -> None:
        """Close a file whose writer is gone, as the NameNode does."""
        file = await self.catalog.holder(number)
        if file is None:
            return
        fenced = await self.catalog.fence_writer(number, file.writer)
        for entry in await self.catalog.unfinished(number):
            allocated = await self.catalog.allocate_seal(entry.record.block)
            if not isinstance(allocated, BlockEntry):
                return  # another recovery was quicker
            length = max(allocated.record.base_length, self.random.randint(0, BLOCK_CHUNKS))
            await self.catalog.finalize_by_recovery(
                entry.record.block,
                allocated.record.writer_generation,
                allocated.record.generation,
                length,
                length * CHUNK_BYTES,
            )
        await self.catalog.close_file(CloseFile(number, (fenced or file).writer))

    async def take_over(self) -> None:
        await self.recover(self.inode_at(self.there(files=True)).number)

    async def rename(self) -> None:
        source = self.there(files=self.random.random() < 0.4)
        await self.catalog.rename(RenamePath(source, self.path(), self.random.random() < 0.5))

    async def delete(self) -> None:
        path = self.there(files=self.random.random() < 0.5)
        await self.catalog.delete(DeletePath(path, self.random.random() < 0.7))

    async def replicate(self) -> None:
        request = SetReplication(self.there(files=True), self.random.randint(1, 4))
        decide = in_one(namespace.set_replication)
        await self.catalog.decide(FileStatus, decide, request)

    async def transact(self) -> None:
        await self.do(*(self.operation() for _ in range(self.random.randint(1, 3))))

    async def join(self) -> None:
        target, source = self.closed(), self.closed()
        await self.do(Concat(target, (source,)))

    async def do(self, *operations: Operation) -> None:
        replication = self.random.randint(1, 3)
        request = Transact(operations, replication, BLOCK_CHUNKS * CHUNK_BYTES, Durability.DISK)
        await self.catalog.transact(request)

    def operation(self) -> Operation:
        random, file = self.random, self.closed()
        match random.randrange(7):
            case 0:
                return MakeDirectory(self.path(), implicit=random.random() < 0.5)
            case 1:
                return Marker(self.path())
            case 2:
                return Delete(file, recursive=True, prune=random.random() < 0.7)
            case 3:
                return Rename(self.there(files=random.random() < 0.5), self.path(), overwrite=True)
            case 4:
                return Concat(file, (self.closed(),))
            case 5:
                return Delete(self.there(files=False), recursive=random.random() < 0.7)
            case _:
                return Truncate(file, random.randint(0, 3) * CHUNK_BYTES)

    async def set_quota(self) -> None:
        random = self.random
        self.limited += 1
        names = random.choice([None, -1, random.randint(1, 12)])
        space = random.choice([None, -1, random.randint(0, 30) * CHUNK_BYTES * BLOCK_CHUNKS])
        path = self.there(files=False)
        if path == "/" and names == -1:
            names = quotas.ROOT_NAMES_MAX
        request = SetQuota(path, names, space)

        def decide(draft: Any, request: SetQuota, context: Context) -> QuotaUsage:
            return quotas.set_limits(draft, request, context.actor)

        await self.catalog.decide(QuotaUsage, in_one(decide), request)

    async def sweep(self) -> None:
        await self.catalog.sweep()

    def step(self) -> Step:
        kinds = [self.make, self.create, self.write, self.write, self.write, self.rename]
        kinds += [self.delete, self.replicate, self.transact, self.set_quota, self.sweep]
        kinds += [self.create, self.take_over, self.rename, self.join]
        return self.random.choice(kinds)

    # -- what must be so ---------------------------------------------------------------------------

    async def tried(self, step: Step) -> bool:
        """True if a quota refused it."""
        try:
            await step()
        except QuotaExceededError:
            self.refused += 1
            return True
        except PaxosBlockError:
            return False
        self.done += 1
        return False

    async def round(self) -> None:
        """Several changes at once, or one alone: if that is refused, it changed nothing."""
        self.limited = 0
        if self.random.random() < 0.1:
            await self.lead()
        if self.random.random() < 0.6:
            await asyncio.gather(*(self.tried(self.step()) for _ in range(AT_ONCE)))
        else:
            before = tree_of(self.store.machine)
            step = self.step()
            if await self.tried(step) and step != self.write:  # to append takes several steps
                assert tree_of(self.store.machine) == before, step
        self.check()

    def check(self) -> None:
        view = self.store.machine
        there = directories(view)
        before, self.before = self.before, {}
        for number, directory in there.items():
            quota = directory.quota
            if quota is UNSET or not quota.counted:
                continue
            found = Found(*quotas.totals(quotas.totals_in(view), directory))
            assert found == counted(view, number), tree.path_of(view, directory)
            self.before[quota] = found
            if (once := before.get(quota)) is not None and self.limited < 2:
                assert quota.names_max < 0 or found.names <= max(quota.names_max, once.names)
                assert quota.space_max < 0 or found.space <= max(quota.space_max, once.space)
        # No counter is left behind by a directory that is gone.
        of = {keys.number_of(key) for key, _ in view.scan(*keys.COUNTERS)}
        inodes = {number for number in of if inode_of(view, number) is not None}
        garbage = {keys.number_of(key) for key, _ in view.scan(*keys.GARBAGE)}
        assert of == inodes
        assert view.has_counters == bool(of)
        assert garbage.isdisjoint(there)


def _accepted(entry: BlockEntry) -> Proposer:
    """The proposer of an APPEND that all members accepted, as far as K7 looks at it."""

    class Accepted:
        base = entry.record.writer_generation
        generation = entry.record.generation
        targets = entry.record.members

    return cast("Proposer", Accepted())


@pytest.mark.parametrize("seed", range(25))
async def test_each_counter_is_what_is_there(seed: int) -> None:
    life = Life(Random(seed))
    await life.lead()
    for _ in range(ROUNDS):
        await life.round()
    assert life.done
    life.store.troubled = False
    while await life.catalog.sweep() is not None:
        pass
    life.check()
