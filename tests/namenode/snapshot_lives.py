"""Random lives of a catalog with snapshots, against a model that copies everything.

The catalog is the shipped one on the shipped state machine. What DataNodes would hold is a list of
chunks for each block, each chunk a number of its own: a chunk is lost when its block is removed, or
cut shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

from paxosblock.api.namenode import (
    NO_BLOCK,
    AppendFile,
    CloseFile,
    DeletePath,
    FileStatus,
    MakeDirectories,
    RenamePath,
    Transact,
)
from paxosblock.api.snapshot_calls import (
    AskKeptRoom,
    CreateSnapshot,
    DeleteSnapshot,
    RenameSnapshot,
    SnapshotStatus,
    Undelete,
)
from paxosblock.api.transaction import Concat, Operation, Truncate
from paxosblock.errors import InvalidRequestError, PaxosBlockError
from paxosblock.namenode.catalog import (
    history_window,
    kept_blocks,
    keys,
    snapshot_changes,
    snapshots,
    tree,
)
from paxosblock.namenode.catalog.draft import Reads, in_one, inode_of
from paxosblock.namenode.catalog.garbage import Swept
from paxosblock.namenode.catalog.permissions import ITSELF
from paxosblock.namenode.catalog.records import FileInode, decode_entry, decode_place
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.protocol import finalize as rules
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.types import BlockId, Durability, WriterId
from tests.memory_table import MemoryTable
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    MEMBERS,
    NamedCatalog,
    add_block,
    blocks_of,
    create_request,
    finalize,
    new_catalog,
)

DIRECTORIES = ("/a", "/b", "/a/c", "/b/c", "/a/c/d")
NAMES = ("x", "y", "z")
WINDOW_MS = 15_000
"""Each step takes a second."""
SNAPSHOT_NAMES = ("s1", "s2", "s3")


@dataclass
class File:
    """A file of the model: what of it is visible, and the places of its blocks."""

    chunks: list[int] = field(default_factory=list[int])
    blocks: list[BlockId] = field(default_factory=list[BlockId])
    open: bool = False


Copy = dict[str, File | None]
"""All that is below a directory, by the path from there on; None is a directory."""


@dataclass(frozen=True)
class Removed:
    """A name that went: by a deletion, or because what it named went elsewhere; with all below."""

    deleted: bool
    revision: int
    files: Copy
    numbers: dict[str, int]


class LoggedStore(MemoryStore):
    """A store that knows all edits, so that another member may apply them later."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Edit] = []
        self.base = self.snapshot()

    async def commit(self, edit: Edit) -> Committed | Conflict:
        self.log.append(edit)
        return await super().commit(edit)

    def snapshot(self) -> ReplicatedMachine:
        """The map of another member, which was sent to it, and which nothing changes here."""
        table = self.machine._table
        assert isinstance(table, MemoryTable)
        return ReplicatedMachine(MemoryTable(table.snapshot()))


class Life:
    """One life. `step` does something at random and checks; `end` ends all snapshots."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.store = LoggedStore()
        self.tree: dict[str, File | None] = {"/": None}
        self.numbers: dict[str, int] = {"/": 1}
        self.taken: dict[tuple[int, str], Copy] = {}
        self.held: dict[BlockId, list[int]] = {}
        self.chunks = count(1)
        self.writers = (WriterId(f"w{n}") for n in count())
        self.events: list[str] = []
        self.done: set[str] = set()
        self.window = seed % 3 == 1
        self.now_ms = 1_000_000
        self.copies: dict[int, Copy] = {}
        """With a window: the whole tree after each step, by the revision of the catalog."""
        self.removed: dict[tuple[int, str], Removed] = {}

    async def begin(self) -> None:
        self.catalog: NamedCatalog = await new_catalog(self.store)
        self.catalog._clock_ms = lambda: self.now_ms
        for path in DIRECTORIES:
            await self._mkdir(path)

    # -- steps ------------------------------------------------------------------------------------

    async def step(self) -> None:
        kinds = (
            *(self.write,) * 4,
            *(self.append,) * 2,
            *(self.truncate,) * 3,
            *(self.concat,) * 3,
            *(self.rename,) * 3,
            *(self.delete,) * 3,
            *(self.take,) * 2,
            self.end_one,
            self.rename_one,
            *(self.sweep,) * 3,
            self.restart,
            self.leave_open,
            self.close,
            *(self.undelete,) * 3,
        )
        kind = self.random.choice(kinds)
        self.now_ms += 1000
        if await kind():
            self.done.add(kind.__name__)
            self._note_copy()
            self.check()
        if self.window and await self.catalog.keep_history(WINDOW_MS):
            self._note_copy()

    def _note_copy(self) -> None:
        self.copies[self.store.view().revision] = {
            path.removeprefix("/"): found
            and File(list(found.chunks), list(found.blocks), found.open)
            for path, found in self.tree.items()
            if path != "/"
        }

    def _shown_copies(self) -> dict[int, Copy]:
        """Return the copies that the window shows, by revision."""
        horizon = kept_blocks.window(self.store.view())
        if horizon is None:
            return {}
        first = max((each for each in self.copies if each <= horizon), default=0)
        return {max(horizon, each): self.copies[each] for each in self.copies if each >= first}

    async def write(self) -> bool:
        path = self._some_name()
        if not self._may_be_written(path):
            return False
        await self._write(
            path, [self.random.randint(1, 3) for _ in range(self.random.randint(0, 3))]
        )
        return True

    async def append(self) -> bool:
        """Grow the last block, or add one."""
        path = self._some_file()
        if path is None:
            return False
        writer, file = next(self.writers), self._file(path)
        await self.catalog.append(AppendFile(path, writer))
        number = self.numbers[path]
        if file.blocks and self.random.random() < 0.6:
            block = file.blocks[-1]
            entry = await self.catalog.change_block(block, rules.allocate_append)
            assert not isinstance(entry, Refused)
            before = entry.record
            entry = await self.catalog.change_block(
                block,
                lambda record: rules.install_append(
                    record, before.writer_generation, before.generation, MEMBERS, writer
                ),
            )
            assert not isinstance(entry, Refused)
            new = self._fill(block, self.random.randint(1, 2))
            length = len(self.held[block])

            def ended(record: BlockRecord) -> BlockRecord | Refused:
                generation = record.writer_generation
                size = length * CHUNK_BYTES
                return rules.finalize_by_writer(record, writer, generation, length, size)

            assert not isinstance(await self.catalog.change_block(block, ended), Refused)
        else:
            last = file.blocks[-1] if file.blocks else NO_BLOCK
            entry = await add_block(self.catalog, number, last, writer)
            block, length = entry.record.block, self.random.randint(1, 3)
            new = self._fill(block, length)
            await finalize(self.catalog, entry, length, writer)
            file.blocks.append(block)
        file.chunks += new
        await self.catalog.close_file(CloseFile(number, writer))
        self.events.append(f"append {path} {new}")
        return True

    async def truncate(self) -> bool:
        path = self._some_file()
        if path is None or not self._file(path).chunks:
            return False
        file = self._file(path)
        length = self.random.randrange(len(file.chunks))
        self.events.append(f"truncate {path} {length}")
        operations: list[Operation] = [Truncate(path, length * CHUNK_BYTES)]
        hidden = "/kept"
        try:
            await self._transact(operations)
        except InvalidRequestError as error:  # as the client does it
            begins = int(error.details["boundary"])
            self.done.add("truncate a block that is shown")
            kept = file.chunks[begins // CHUNK_BYTES : length]
            await self._write(hidden, [len(kept)], kept)
            operations = [Truncate(path, begins), Concat(path, (hidden,))]
            await self._transact(operations)
            self.tree.pop(hidden)
            self.numbers.pop(hidden)
        file.chunks = file.chunks[:length]
        await self._note_blocks(path)
        self._cut()
        return True

    async def concat(self) -> bool:
        files = self._files()
        if len(files) < 2:
            return False
        target, source = self.random.sample(files, 2)
        await self._transact([Concat(target, (source,))])
        # Where nothing went to another file, the name comes back.
        self._note_removed(source, deleted=not self._file(source).blocks)
        self._file(target).chunks += self._file(source).chunks
        self._file(target).blocks += self._file(source).blocks
        self._remove(source)
        self.events.append(f"concat {source} to {target}")
        return True

    async def rename(self) -> bool:
        there = [path for path in self.tree if path not in ("/", "/kept")]
        if not there:
            return False
        source = self.random.choice(there)
        target = self._some_name()
        if self.random.random() < 0.3:
            target = self.random.choice(("/e", "/a/e", "/b/e"))
        try:
            await self.catalog.rename(RenamePath(source, target, overwrite=True))
        except PaxosBlockError:
            return False
        if source != target:
            self._note_removed(source, deleted=False)
            if target in self.tree:
                self.done.add("rename over")
                self._remove(target)
            for path in [each for each in self.tree if self._is_in(each, source)]:
                to = target + path.removeprefix(source)
                self.tree[to] = self.tree.pop(path)
                self.numbers[to] = self.numbers.pop(path)
        self.events.append(f"rename {source} to {target}")
        return True

    async def delete(self) -> bool:
        path = self.random.choice([each for each in self.tree if each != "/"] or ["/gone"])
        below = [each for each in self.tree if self._is_in(each, path)]
        has = {directory for directory, _ in self.taken}
        refused = any(self.numbers[each] in has for each in below)
        try:
            await self.catalog.delete(DeletePath(path, recursive=True))
        except InvalidRequestError:
            assert refused, f"{path} was not deleted"
            self.done.add("delete of what has snapshots")
            return True
        assert not refused, f"{path} was deleted, and has snapshots"
        self._note_removed(path, deleted=True)
        for each in below:
            self._remove(each)
        self.events.append(f"delete {path}")
        return True

    async def undelete(self) -> bool:
        """Bring back something that was removed, or see that it is refused."""
        if not self.removed:
            return False
        (above, name), removed = self.random.choice(sorted(self.removed.items(), key=str))
        parent = next((each for each, found in self.numbers.items() if found == above), None)
        if parent is None:
            return False
        path = f"{parent.rstrip('/')}/{name}"
        horizon = kept_blocks.window(self.store.view())
        top = removed.files.get("")
        possible = (
            path not in self.tree
            and removed.deleted
            and horizon is not None
            and removed.revision > horizon
            and not (isinstance(top, File) and top.open)
        )
        try:
            await self.catalog.decide(FileStatus, in_one(history_window.undelete), Undelete(path))
        except PaxosBlockError:
            assert not possible, f"{path} did not come back"
            self.done.add("undelete that is refused")
            return True
        assert possible, f"{path} came back"
        for below, file in removed.files.items():
            self.tree[path + below], self.numbers[path + below] = file, removed.numbers[below]
        del self.removed[above, name]
        self.done.add("undelete")
        self.events.append(f"undelete {path}")
        return True

    def _note_removed(self, path: str, *, deleted: bool) -> None:
        """Note that the entry at a path was removed by the last entry of the log."""
        if path not in self.tree:
            return
        parent, _, name = path.rpartition("/")
        below = [each for each in self.tree if self._is_in(each, path)]
        self.removed[self.numbers[parent or "/"], name] = Removed(
            deleted,
            self.store.view().revision,
            {each.removeprefix(path): self.tree[each] for each in below},
            {each.removeprefix(path): self.numbers[each] for each in below},
        )

    async def take(self) -> bool:
        path = self.random.choice([each for each, found in self.tree.items() if found is None])
        name = self.random.choice(SNAPSHOT_NAMES)
        directory = self.numbers[path]
        if (directory, name) in self.taken:
            return False
        create = in_one(snapshot_changes.create)
        await self.catalog.decide(SnapshotStatus, create, CreateSnapshot(path, name), 1)
        stem = path.rstrip("/")
        self.taken[directory, name] = {
            each.removeprefix(stem): found
            and File(list(found.chunks), list(found.blocks), found.open)
            for each, found in self.tree.items()
            if self._is_in(each, path) and each != path
        }
        self.events.append(f"snapshot {name} of {path}")
        return True

    async def end_one(self) -> bool:
        found = self._some_snapshot()
        if found is None:
            return False
        await self.end_snapshot(*found)
        return True

    async def end_snapshot(self, directory: int, name: str) -> None:
        """End a snapshot. If all was swept before, as much room as it was said to keep goes."""
        path = self._path_of(directory)
        swept = self.random.random() < 0.5
        if swept:
            await self.sweep_all()
        kept, before = self._kept_room(path, name), self._replica_bytes()
        self.events.append(f"end snapshot {name} of {path}")
        delete = in_one(snapshot_changes.delete)
        await self.catalog.decide(SnapshotStatus, delete, DeleteSnapshot(path, name))
        del self.taken[directory, name]
        if swept:
            await self.sweep_all()
            assert before - self._replica_bytes() == kept
            self.done.update({"a snapshot that keeps room"} if kept else ())

    def _kept_room(self, path: str, name: str) -> int:
        room, following = 0, (0, 0)
        while True:
            request = AskKeptRoom(path, name, *following)
            part = snapshots.kept_room(self.store.view(), request, ITSELF)
            room += part.size_bytes
            if part.following is None:
                return room
            following = part.following

    def _replica_bytes(self) -> int:
        """Return what the replicas of all finalized blocks take."""
        found = (
            decode_entry(value.value).record for _, value in self.store.view().scan(*keys.BLOCKS)
        )
        return sum(each.size_bytes * len(each.members) for each in found if each.finalized)

    async def rename_one(self) -> bool:
        found = self._some_snapshot()
        to = self.random.choice(SNAPSHOT_NAMES)
        if found is None or (found[0], to) in self.taken:
            return False
        request = RenameSnapshot(self._path_of(found[0]), found[1], to)
        await self.catalog.decide(SnapshotStatus, in_one(snapshot_changes.rename), request)
        self.taken[found[0], to] = self.taken.pop(found)
        self.events.append(f"rename snapshot {found[1]} to {to}")
        return True

    async def sweep(self) -> bool:
        if self.random.random() < 0.5:
            self._swept(await self.catalog.sweep())
            self.events.append("sweep a step")
        else:
            await self.sweep_all()
        return True

    async def sweep_all(self) -> None:
        """Sweep everything: no block stays that neither a file nor a snapshot shows."""
        while (swept := await self.catalog.sweep()) is not None:
            self._swept(swept)
        self.events.append("sweep")
        wanted = {block for file in self._all_files() for block in file.blocks}
        view = self.store.view()
        if view.get(keys.HISTORY).exists:
            assert not view.get(keys.ended_snapshot(kept_blocks.OF_WINDOW)).exists
        stays = self._records() - wanted
        assert not stays, f"blocks {stays} stay that nothing shows"

    async def restart(self) -> bool:
        """Go on from a checkpoint, as a member to which it was sent."""
        self.store.machine = self.store.snapshot()
        return True

    async def leave_open(self) -> bool:
        """Leave a file with its last block not ended."""
        path = self._some_name()
        if not self._may_be_written(path):
            return False
        await self._write(path, [1, 2], unended=True)
        return True

    async def close(self) -> bool:
        opened = [path for path, found in self.tree.items() if found and found.open]
        if not opened:
            return False
        path = self.random.choice(opened)
        number, file = self.numbers[path], self._file(path)
        inode = inode_of(self.store.view(), number)
        assert isinstance(inode, FileInode)
        last = (await blocks_of(self.catalog, number))[-1]
        length = self.random.randint(0, 2)
        file.chunks += self._fill(last.record.block, length)
        await finalize(self.catalog, last, length, inode.writer)
        await self.catalog.close_file(CloseFile(number, inode.writer))
        file.open = False
        await self._note_blocks(path)
        self.events.append(f"close {path}")
        return True

    async def end(self) -> None:
        """End all snapshots: nothing is left of them."""
        for directory, name in list(self.taken):
            await self.end_snapshot(directory, name)
            if self.random.random() < 0.5:
                await self.sweep_all()
                self.check()
        if self.window:
            await self.sweep_all()
            self.check()
            self.events.append("end the window")
            await self.catalog.keep_history(0)
        await self.sweep_all()
        self.check()
        left = [key for key, _ in self.store.machine if key[:1] in b"IFGWEHSgRTX"]
        assert not left, f"left of snapshots that ended: {left}"

    # -- checks -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare what each snapshot shows with what was there, byte by byte."""
        view = self.store.view()
        live = {path.removeprefix("/"): found for path, found in self.tree.items() if path != "/"}
        there = {path.removeprefix("/"): found for path, found in self._shown(view, 1, "")}
        assert there == {path: found and found.chunks for path, found in live.items()}
        for (directory, name), copy in self.taken.items():
            where = f"{self._path_of(directory).rstrip('/')}/.snapshot/{name}"
            past = snapshots.at(view, where, ITSELF)
            assert past is not view
            shown = dict(self._shown(past, directory, ""))
            wanted = {path: found and found.chunks for path, found in copy.items()}
            assert shown == wanted, f"snapshot {name} of {directory}: {shown}, not {wanted}"

        copies = self._shown_copies()
        for revision in self.random.sample(sorted(copies), min(4, len(copies))):
            reads = snapshots.at(view, f"/.snapshot/@{revision}", ITSELF)
            there = {path.removeprefix("/"): found for path, found in self._shown(reads, 1, "")}
            wanted = {path: found and found.chunks for path, found in copies[revision].items()}
            assert there == wanted, f"revision {revision}: {there}, not {wanted}"

    def follows(self, begin: ReplicatedMachine, entries: list[Edit]) -> None:
        """Another member that got a checkpoint and the entries behind it has the same map."""
        for edit in entries:
            slices = begin.apply_in_slices(begin.revision + 1, edit)
            for _ in slices:
                pass
        assert list(begin) == list(self.store.machine)
        assert begin._holds.newest == self.store.machine._holds.newest

    def _shown(
        self, reads: Reads, directory: int, stem: str
    ) -> Iterator[tuple[str, list[int] | None]]:
        for key, found in list(reads.scan(*keys.entries(directory))):
            path, target = f"{stem}/{keys.name_in(key)}", tree.unpack_target(found.value)
            assert reads.get(key) == found, "a range and a key show the same"
            if target.is_directory:
                yield path, None
                yield from self._shown(reads, target.number, path)
            else:
                yield path, self._read(reads, target.number)

    def _read(self, reads: Reads, number: int) -> list[int]:
        inode = inode_of(reads, number)
        assert isinstance(inode, FileInode), "an entry names what is there"
        length = tree.length(reads, inode)
        places = [decode_place(found.value) for _, found in reads.scan(*keys.places(number))]
        last = tree.last_places(reads, number, 1)
        assert list(last) == places[-1:], "the way back shows the same"
        ends = [*(place.offset for place in places), length][1:]
        chunks: list[int] = []
        for place, end in zip(places, ends, strict=True):
            size = (min(end, length) - place.offset) // CHUNK_BYTES
            if size > 0:
                held = self.held.get(place.block)
                assert held is not None, f"block {place.block} is gone"
                assert len(held) >= size, f"block {place.block} was cut"
                chunks += held[:size]
        return chunks

    def _records(self) -> set[BlockId]:
        return {
            decode_entry(found.value).record.block
            for _, found in self.store.view().scan(*keys.BLOCKS)
        }

    def _all_files(self) -> Iterator[File]:
        for copy in (self.tree, *self.taken.values(), *self._shown_copies().values()):
            yield from (file for file in copy.values() if file is not None)

    # -- parts of steps ---------------------------------------------------------------------------

    async def _mkdir(self, path: str) -> None:
        made = await self.catalog.make_directories(MakeDirectories(path))
        self.tree[path], self.numbers[path] = None, made.file_id

    async def _write(
        self, path: str, lengths: list[int], kept: list[int] | None = None, unended: bool = False
    ) -> None:
        writer, previous, file = next(self.writers), NO_BLOCK, File()
        inode = await self.catalog.create(create_request(path, writer, overwrite=True))
        for place, length in enumerate(lengths, 1):
            entry = await add_block(self.catalog, inode.number, previous, writer)
            previous = entry.record.block
            file.blocks.append(previous)
            self.held[previous] = []
            if unended and place == len(lengths):
                break
            if kept is None:
                file.chunks += self._fill(previous, length)
            else:
                self.held[previous] = list(kept)
                file.chunks += kept
            await finalize(self.catalog, entry, length, writer)
        file.open = unended
        if not unended:
            await self.catalog.close_file(CloseFile(inode.number, writer))
        if path in self.tree:
            self.done.add("overwrite")
            self._remove(path)
        self.tree[path], self.numbers[path] = file, inode.number
        self.events.append(f"write {path} {file.chunks} in {file.blocks}{' open' * unended}")

    async def _transact(self, operations: list[Operation]) -> None:
        await self.catalog.transact(Transact(tuple(operations), 3, 1 << 20, Durability.DISK))

    async def _note_blocks(self, path: str) -> None:
        entries = await blocks_of(self.catalog, self.numbers[path])
        self._file(path).blocks = [entry.record.block for entry in entries]

    def _fill(self, block: BlockId, length: int) -> list[int]:
        new = [next(self.chunks) for _ in range(length)]
        self.held.setdefault(block, []).extend(new)
        return new

    def _cut(self) -> None:
        """Let go of the chunks that K8 has cut off."""
        for _, found in self.store.view().scan(*keys.BLOCKS):
            record = decode_entry(found.value).record
            if record.finalized:
                del self.held.setdefault(record.block, [])[record.length :]

    def _swept(self, swept: Swept | None) -> None:
        for entry in swept.removed if swept else ():
            self.held.pop(entry.record.block, None)

    def _remove(self, path: str) -> None:
        del self.tree[path], self.numbers[path]

    def _is_in(self, path: str, directory: str) -> bool:
        return path == directory or path.startswith(directory.rstrip("/") + "/")

    def _path_of(self, number: int) -> str:
        return next(path for path, found in self.numbers.items() if found == number)

    def _file(self, path: str) -> File:
        file = self.tree[path]
        assert file is not None
        return file

    def _files(self) -> list[str]:
        return [path for path, found in self.tree.items() if found and not found.open]

    def _some_file(self) -> str | None:
        files = self._files()
        return self.random.choice(files) if files else None

    def _some_snapshot(self) -> tuple[int, str] | None:
        return self.random.choice(list(self.taken)) if self.taken else None

    def _some_name(self) -> str:
        above = [path for path, found in self.tree.items() if found is None]
        return f"{self.random.choice(above).rstrip('/')}/{self.random.choice(NAMES)}"

    def _may_be_written(self, path: str) -> bool:
        there = self.tree.get(path, False)
        return there is False or (isinstance(there, File) and not there.open)


async def live(seed: int, steps: int) -> set[str]:
    """Live a whole life; return what was done.

    Raises:
        AssertionError: something went wrong; the message has what was done.
    """
    life = Life(seed)
    await life.begin()
    begin, since = life.store.snapshot(), len(life.store.log)
    try:
        for step in range(steps):
            if step == steps // 2:
                begin, since = life.store.snapshot(), len(life.store.log)
            await life.step()
        await life.end()
        life.follows(begin, life.store.log[since:])
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(life.events)) from error
    return life.done
