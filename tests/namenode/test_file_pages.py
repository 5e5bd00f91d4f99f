"""Pages of a file: together the whole, whatever happens between them, and cheap at any size."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from paxosblock.api.file_pages import GET_FILE, PAGE_BLOCKS, GetFile
from paxosblock.api.namenode import (
    NO_BLOCK,
    AppendFile,
    CloseFile,
    ConcatFiles,
    DeletePath,
    ListDirectory,
    MakeDirectories,
    RenamePath,
)
from paxosblock.errors import CorruptionError, InvalidRequestError, IsDirectoryError, NotFoundError
from paxosblock.namenode.catalog import catalog as catalog_module
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.blocks import FilePage
from paxosblock.namenode.catalog.records import decode_place
from paxosblock.namenode.catalog.tree import Located
from paxosblock.namenode.kv.interface import Versioned
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.protocol.types import BlockId, WriterId
from tests.loops import turns_beside
from tests.memory_table import MemoryTable
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    ANN,
    NamedCatalog,
    add_block,
    blocks_of,
    closed_file,
    create_request,
    file_with_blocks,
    finalize,
    new_catalog,
    new_scene,
    sweep_everything,
)

LENGTHS = (0, 0, 2, 1, 0, 3, 1, 1, 0)


def shown(blocks: tuple[Located, ...]) -> list[tuple[BlockId, int, int]]:
    """Block, offset and length in bytes."""
    return [(each.entry.record.block, each.offset, each.entry.record.size_bytes) for each in blocks]


async def all_pages(catalog: NamedCatalog, path: str, limit: int) -> list[FilePage]:
    """The pages of a file, the first by its path and the others by its id."""
    pages = [await catalog.file_page(GetFile(path), limit)]
    number = pages[0].status.file_id
    while (place := pages[-1].page.next_place) is not None:
        pages.append(await catalog.file_page(GetFile(path, place, file_id=number), limit))
    return pages


@pytest.mark.parametrize("limit", [1, 2, 4, 9, 10])
async def test_pages_together_are_the_file_and_all_but_the_last_tell_its_last_block(
    limit: int,
) -> None:
    catalog = await new_catalog()
    file = await file_with_blocks(catalog, "/f", *LENGTHS)
    pages = await all_pages(catalog, "/f", limit)
    found = [block for page in pages for block in shown(page.page.blocks)]
    sizes = [length * CHUNK_BYTES for length in LENGTHS]
    offsets = [0, *itertools.accumulate(sizes)][:-1]
    ids = [entry.record.block for entry in await blocks_of(catalog, file.number)]
    assert found == list(zip(ids, offsets, sizes, strict=True))
    assert all(len(page.page.blocks) == limit for page in pages[:-1])
    for page in pages[:-1]:
        assert page.last is not None
        assert shown((page.last,)) == found[-1:]
    assert pages[-1].last is None


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_page_from_an_offset_begins_with_the_block_that_holds_it(limit: int) -> None:
    catalog = await new_catalog()
    file = await file_with_blocks(catalog, "/f", *LENGTHS)
    size_bytes = sum(LENGTHS) * CHUNK_BYTES
    for offset in range(size_bytes):
        request = GetFile("", offset=offset, file_id=file.number)
        _, begin, size = shown((await catalog.file_page(request, limit)).page.blocks)[0]
        assert begin <= offset < begin + size
    last = (await blocks_of(catalog, file.number))[-1].record.block
    for offset in (size_bytes, size_bytes + 1000):
        page = (await catalog.file_page(GetFile("/f", offset=offset), limit)).page
        assert shown(page.blocks) == [(last, size_bytes, 0)]


async def test_an_offset_in_the_block_that_is_being_written_gives_that_block() -> None:
    catalog = await new_catalog()
    file = await file_with_blocks(catalog, "/f", 2, 1)
    last = (await blocks_of(catalog, file.number))[-1].record.block
    entry = await add_block(catalog, file.number, last)
    for offset in (30, 31):
        (found,) = (await catalog.file_page(GetFile("/f", offset=offset), 3)).page.blocks
        assert (found.offset, found.entry) == (30, entry)


async def test_blocks_that_were_joined_begin_where_the_bytes_before_them_end() -> None:
    catalog = await new_catalog()
    for path, lengths in (("/f", (2, 1)), ("/g", (1, 0, 3)), ("/h", (2, 2))):
        await closed_file(catalog, path, *lengths, 1)
    await catalog.concat(ConcatFiles("/f", ("/g", "/h")))
    page = (await catalog.file_page(GetFile("/f"))).page
    found = [each.entry.record.length for each in page.blocks]
    assert found == [2, 1, 1, 1, 0, 3, 1, 2, 2, 1]
    ends = itertools.accumulate(length * CHUNK_BYTES for length in found)
    assert [each.offset for each in page.blocks] == [0, *ends][:-1]


async def test_the_pages_of_a_file_that_was_moved_are_found_by_its_id() -> None:
    catalog = await new_catalog()
    number = await closed_file(catalog, "/f", 1, 1)
    await catalog.rename(RenamePath("/f", "/g"))
    await closed_file(catalog, "/f", 3)
    page = await catalog.file_page(GetFile("/f", 1, file_id=number))
    assert (page.status.path, page.status.file_id) == ("/g", number)
    assert [block.offset for block in page.page.blocks] == [CHUNK_BYTES]
    await catalog.delete(DeletePath("/g"))
    with pytest.raises(NotFoundError, match=f"file {number}: no such file"):
        await catalog.file_page(GetFile("/f", 1, file_id=number))


async def test_a_directory_has_no_pages() -> None:
    catalog = await new_catalog()
    await catalog.make_directories(MakeDirectories("/d"))
    with pytest.raises(IsDirectoryError):
        await catalog.file_page(GetFile("/d"))
    with pytest.raises(NotFoundError):
        await catalog.file_page(GetFile("/none"))


async def test_a_page_that_begins_nowhere_is_refused() -> None:
    scene = await new_scene()
    await scene.create("/f")
    for request in (GetFile("/f", -1), GetFile("/f", 1 << 32), GetFile("/f", offset=-1)):
        with pytest.raises(InvalidRequestError):
            await scene.service.call(GET_FILE, request)
    far = GetFile("/f", (1 << 32) - 1)
    assert (await scene.service.call(GET_FILE, far)).blocks == ()
    await scene.close()


async def test_the_length_of_an_open_file_is_the_sum_of_its_decided_blocks() -> None:
    catalog = await new_catalog()
    await closed_file(catalog, "/f", 2, 0, 1)
    opened = await catalog.append(AppendFile("/f", WriterId("bob")))
    file, last, size_bytes = opened.status.file_id, opened.last, 30
    for length in (1, 0, 2):
        entry = await add_block(catalog, file, last, WriterId("bob"))
        assert (await catalog.status("/f")).size == size_bytes
        await finalize(catalog, entry, length, WriterId("bob"))
        last, size_bytes = entry.record.block, size_bytes + length * CHUNK_BYTES
        (listed,) = (await catalog.list(ListDirectory("/f"))).entries
        assert (await catalog.status("/f")).size == listed.size == size_bytes
    closed = await catalog.close_file(CloseFile(file, WriterId("bob")))
    assert closed.inode.length == size_bytes == 60


class CountingMachine(ReplicatedMachine):
    """Counts the records that are read."""

    reads = 0

    def get(self, key: bytes) -> Versioned:
        self.reads += 1
        return super().get(key)

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        for found in super().scan(start, end, limit, reverse):
            self.reads += 1
            yield found


async def reads_of(steps: int) -> dict[str, int]:
    """Records that each operation reads where the file has `steps` blocks."""
    store = MemoryStore()
    machine = store.machine = CountingMachine(MemoryTable())
    catalog = await new_catalog(store)
    file = await file_with_blocks(catalog, "/d/f", *(1 for _ in range(steps)))
    last = (await blocks_of(catalog, file.number))[-1].record.block
    found: dict[str, int] = {}

    def note(name: str) -> None:
        found[name], machine.reads = machine.reads, 0

    note("before")
    await catalog.status("/d/f")
    note("stat")
    await catalog.list(ListDirectory("/d"))
    note("list")
    entry = await add_block(catalog, file.number, last)
    note("add a block")
    assert await catalog.unfinished(file.number) == (entry,)
    note("unfinished")
    await finalize(catalog, entry, 1)
    note("finalize")
    await catalog.close_file(CloseFile(file.number, ANN))
    note("close")
    await catalog.append(AppendFile("/d/f", WriterId("bob")))
    note("append")
    await catalog.file_page(GetFile("/d/f"))
    note("page")
    await catalog.delete(DeletePath("/d/f"))
    note("delete")
    del found["before"]
    return found


async def test_no_operation_reads_more_of_a_file_of_many_blocks() -> None:
    assert await reads_of(PAGE_BLOCKS) == await reads_of(8 * PAGE_BLOCKS)


async def test_the_block_of_an_offset_is_found_without_looking_at_all() -> None:
    store = MemoryStore()
    machine = store.machine = CountingMachine(MemoryTable())
    catalog = await new_catalog(store)
    await file_with_blocks(catalog, "/f", *(1 for _ in range(1000)))
    machine.reads = 0
    page = await catalog.file_page(GetFile("/f", offset=123 * CHUNK_BYTES), 1)
    assert page.page.blocks[0].entry.sequence == 123
    assert machine.reads < 30


@pytest.mark.parametrize("count", [0, 5, 6, 7])
async def test_all_open_files_are_found_a_slice_at_a_time(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "SLICE_KEYS", 3)
    catalog = await new_catalog()
    files = [(await catalog.create(create_request(f"/{number}"))) for number in range(count)]
    found, turns = await turns_beside(catalog.open_files())
    assert found == tuple(files)
    assert turns >= count // 3
    assert (await catalog.counts()).open_files == count


# --- readers beside writers ----------------------------------------------------------------------


@dataclass
class File:
    """A file as the model knows it: its decided blocks and their lengths in chunks."""

    number: int
    path: str
    writer: WriterId | None
    blocks: list[tuple[BlockId, int]] = field(default_factory=list)
    is_gone: bool = False

    def spans(self) -> list[tuple[BlockId, int, int]]:
        """Block, offset and length in bytes of each block that has bytes."""
        ends = list(itertools.accumulate(length * CHUNK_BYTES for _, length in self.blocks))
        sizes = [(block, length * CHUNK_BYTES) for block, length in self.blocks]
        spans = [(b, end - size, size) for (b, size), end in zip(sizes, ends, strict=True)]
        return [span for span in spans if span[2]]


@dataclass
class Reader:
    """A reader that opened a file when it had these blocks."""

    file: File
    spans: list[tuple[BlockId, int, int]]
    place: int = 0
    seen: list[tuple[BlockId, int, int]] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(size for _, _, size in self.spans)


class PagesMachine(RuleBasedStateMachine):
    """Readers ask for pages while files grow, are closed, joined, moved and deleted."""

    files = Bundle("files")
    readers = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.catalog = self.loop.run_until_complete(new_catalog())
        self.count = 0
        self.all: list[File] = []

    def teardown(self) -> None:
        self.loop.close()

    def name(self) -> str:
        self.count += 1
        return f"/{self.count}"

    @rule(target=files)
    def create(self) -> File:
        path = self.name()
        writer = WriterId(path)
        inode = self.loop.run_until_complete(self.catalog.create(create_request(path, writer)))
        self.all.append(File(inode.number, path, writer))
        return self.all[-1]

    @rule(file=files, lengths=st.lists(st.integers(0, 2), min_size=1, max_size=6))
    def write(self, file: File, lengths: list[int]) -> None:
        if file.writer is not None and not file.is_gone:
            for length in lengths:
                self.loop.run_until_complete(self._write(file, file.writer, length))

    async def _write(self, file: File, writer: WriterId, length: int) -> None:
        previous = file.blocks[-1][0] if file.blocks else NO_BLOCK
        entry = await add_block(self.catalog, file.number, previous, writer)
        await finalize(self.catalog, entry, length, writer)
        file.blocks.append((entry.record.block, length))

    @rule(file=files)
    def close(self, file: File) -> None:
        if file.writer is None or file.is_gone:
            return
        ids = tuple(block for block, _ in file.blocks)
        run = self.loop.run_until_complete
        gone = [
            *run(self.catalog.drop_empty(file.number, file.writer, ids)),
            *run(self.catalog.close_file(CloseFile(file.number, file.writer))).dropped,
        ]
        left = {entry.record.block for entry in gone}
        assert all(not length for block, length in file.blocks if block in left)
        file.blocks = [each for each in file.blocks if each[0] not in left]
        file.writer = None

    @rule(file=files)
    def append(self, file: File) -> None:
        if file.writer is None and not file.is_gone:
            file.writer = WriterId(self.name())
            self.loop.run_until_complete(self.catalog.append(AppendFile(file.path, file.writer)))

    @rule(into=files, source=files)
    def concat(self, into: File, source: File) -> None:
        states = (into.writer, source.writer, into.is_gone, source.is_gone)
        if into is source or states != (None, None, False, False):
            return
        self.loop.run_until_complete(self.catalog.concat(ConcatFiles(into.path, (source.path,))))
        into.blocks += source.blocks
        source.is_gone = True

    @rule(file=files)
    def rename(self, file: File) -> None:
        if not file.is_gone:
            before, file.path = file.path, self.name()
            self.loop.run_until_complete(self.catalog.rename(RenamePath(before, file.path)))

    @rule(file=consumes(files))
    def delete(self, file: File) -> None:
        if not file.is_gone:
            self.loop.run_until_complete(self.catalog.delete(DeletePath(file.path)))
            file.is_gone = True
        self.loop.run_until_complete(sweep_everything(self.catalog))

    @rule(target=readers, file=files)
    def open(self, file: File) -> object:
        return multiple() if file.is_gone else Reader(file, file.spans())

    @rule(reader=readers, fraction=st.floats(0, 1, exclude_max=True), limit=st.integers(1, 4))
    def read(self, reader: Reader, fraction: float, limit: int) -> None:
        """Check that a reader finds, at a byte of the file that it opened, what was there then."""
        if not reader.spans:
            return
        offset = int(fraction * reader.size_bytes)
        found = self._page(reader, GetFile("", offset=offset, file_id=reader.file.number), limit)
        if found is not None:
            below = [span for span in found if span[1] < reader.size_bytes]
            assert any(begin <= offset < begin + size for _, begin, size in below)
            assert set(below) <= set(reader.spans)

    @rule(reader=readers, limit=st.integers(1, 4))
    def go_on(self, reader: Reader, limit: int) -> None:
        """The pages of a file one after the other, with anything between them, are the whole."""
        request = GetFile("", reader.place, file_id=reader.file.number)
        found = self._page(reader, request, limit)
        if found is None:
            return
        reader.seen += [span for span in found if span[1] < reader.size_bytes]
        assert reader.seen == reader.spans[: len(reader.seen)]
        page = self.loop.run_until_complete(self.catalog.file_page(request, limit)).page
        if page.next_place is None:
            assert reader.seen == reader.spans
            reader.place, reader.seen = 0, []
        else:
            reader.place = page.next_place

    def _page(
        self, reader: Reader, request: GetFile, limit: int
    ) -> list[tuple[BlockId, int, int]] | None:
        asked = self.catalog.file_page(request, limit)
        if reader.file.is_gone:
            with pytest.raises(NotFoundError):
                self.loop.run_until_complete(asked)
            return None
        blocks = self.loop.run_until_complete(asked).page.blocks
        return [span for span in shown(blocks) if span[2]]

    @invariant()
    def every_length_is_the_sum_of_the_blocks(self) -> None:
        for file in self.all:
            if not file.is_gone:
                status = self.loop.run_until_complete(self.catalog.status(file.path))
                assert status.size == sum(size for _, _, size in file.spans())


TestPages = PagesMachine.TestCase
TestPages.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_a_place_of_an_earlier_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(CorruptionError, match=r"of an earlier version, .* into a new cluster"):
        decode_place(keys.pack_number((5 << 32) + 7))
