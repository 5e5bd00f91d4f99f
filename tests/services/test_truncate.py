"""Truncating with real processes: every length, readers and followers of before, kills."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.methods import Method
from paxosblock.api.namenode import TRANSACT
from paxosblock.api.transaction import (
    AssertFile,
    Concat,
    Operation,
    Rename,
    TransactionOutcome,
    Truncate,
)
from paxosblock.client.async_client import AsyncClient
from paxosblock.config import ClientConfig
from paxosblock.errors import (
    InvalidRequestError,
    NotFoundError,
    PaxosBlockError,
    TruncatedError,
)
from paxosblock.protocol.types import BlockId
from tests.files import read
from tests.waiting import wait_until

DATA = random.Random(3).randbytes(100)
MORE = random.Random(4).randbytes(100)
CONFIG = ClientConfig(retry_for_s=20.0, rpc_timeout_s=5.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, 1, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def fs(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.url, CONFIG) as fs:
        yield fs


def make(fs: Client, path: str, data: bytes = DATA, chunk_size: int = 10) -> None:
    """A file of three chunks a block, unless `chunk_size` says otherwise."""
    with fs.create(path, chunk_size=chunk_size, block_size=30, overwrite=True) as out:
        out.write(data)


def blocks_of(fs: Client, path: str) -> list[BlockId]:
    return [each.block for each in fs.locations(path)]


def only_new_replicas_serve(cluster: LocalCluster, fs: Client, path: str) -> None:
    """Wait until all members of the last block hold what was decided of it."""
    (block,) = [fs.blocks.get(each) for each in blocks_of(fs, path)[-1:]]

    def told() -> bool:
        found = fs.blocks.check(block.record.block)
        return all(
            fs.blocks.datanode(member).state(block.record.block).registers.accepted_generation
            == block.record.finalized_generation
            for member in block.members
        ) and all(each.health.value == "sound" for each in found.replicas)

    wait_until(told, what="all members to hold the shorter version")


def test_every_length_from_the_present_one_down_to_nothing(fs: Client) -> None:
    make(fs, "/all")
    for length in (100, 99, 90, 61, 60, 45, 31, 30, 29, 10, 9, 1, 0):
        status = fs.truncate("/all", length)
        assert (status.size, read(fs, "/all")) == (length, DATA[:length])
    assert fs.truncate("/all", 0).size == 0
    assert not fs.exists("/.staging"), "nothing hidden is left"


def test_what_stays_of_a_chunk_is_a_block_of_its_own(fs: Client) -> None:
    make(fs, "/own")
    before = blocks_of(fs, "/own")
    fs.truncate("/own", 45)
    after = blocks_of(fs, "/own")
    assert (after[:2], len(after)) == (before[:2], 3)
    fs.truncate("/own", 40)
    assert blocks_of(fs, "/own") == before[:2]


def test_blocks_of_other_chunks_are_cut_where_their_own_chunks_begin(fs: Client) -> None:
    make(fs, "/joined", DATA[:20])
    make(fs, "/seven", DATA[20:48], chunk_size=7)
    make(fs, "/one", DATA[48:60], chunk_size=1)
    fs.concat("/joined", ["/seven", "/one"])
    for length in (59, 50, 41, 34, 33, 15):
        fs.truncate("/joined", length)
        assert read(fs, "/joined") == DATA[:length]


def test_downwards_and_up_again_by_append_in_one_file(fs: Client) -> None:
    make(fs, "/log")
    expected, rng = DATA, random.Random(5)
    for _ in range(10):
        length = rng.randrange(len(expected) + 1)
        fs.truncate("/log", length)
        piece = MORE[: rng.randrange(1, 25)]
        with fs.append("/log", chunk_size=rng.choice([3, 10])) as out:
            out.write(piece)
        expected = expected[:length] + piece
        assert read(fs, "/log") == expected


def test_a_transaction_cuts_inside_a_chunk_of_a_file_that_it_renames(fs: Client) -> None:
    make(fs, "/from")
    make(fs, "/tail", MORE[:30])
    fs.transact([Rename("/from", "/to"), Truncate("/to", 45), Concat("/to", ("/tail",))])
    assert read(fs, "/to") == DATA[:45] + MORE[:30]
    with pytest.raises(NotFoundError, match="operation 2 of 2: '/none': no such file"):
        fs.transact([Truncate("/to", 33), Rename("/none", "/x")])
    assert read(fs, "/to") == DATA[:45] + MORE[:30], "all or nothing"


def test_a_reader_of_before_gets_what_it_opened_or_an_error_also_when_the_file_grew_again(
    cluster: LocalCluster, fs: Client
) -> None:
    make(fs, "/reader")
    with fs.open("/reader") as file:
        assert file.read(5) == DATA[:5]
        fs.truncate("/reader", 40)
        only_new_replicas_serve(cluster, fs, "/reader")
        with fs.append("/reader", chunk_size=10) as out:
            out.write(MORE[:60])
        with pytest.raises(TruncatedError, match="'/reader': was truncated after it was opened"):
            file.read()
        assert file.tell() == 5
    assert read(fs, "/reader") == DATA[:40] + MORE[:60]


def test_a_reader_of_very_many_blocks_that_asks_for_more_of_them_is_told(fs: Client) -> None:
    """A page of blocks that was not asked for yet is of the file as it is now."""
    with fs.create("/pages", chunk_size=1, block_size=1, replication=1) as out:
        out.write(bytes(70))
    with fs.open("/pages") as file:
        fs.truncate("/pages", 65)
        with fs.append("/pages", chunk_size=5) as out:
            out.write(b"other")
        with pytest.raises(TruncatedError):
            file.pread(64, 6)


def test_a_follower_hears_that_the_file_was_truncated(fs: Client) -> None:
    make(fs, "/followed")
    with fs.append("/followed", chunk_size=10) as out:
        following = fs.follow("/followed", 90)
        assert bytes(next(following)) == DATA[90:]
        out.write(MORE[:10])
        out.hflush()
        assert bytes(next(following)) == MORE[:10]
    fs.truncate("/followed", 20)
    with fs.append("/followed", chunk_size=10) as out:
        out.write(bytes(100))
        out.hflush()
        with pytest.raises(TruncatedError):
            next(following)


def test_a_guard_tells_a_file_that_was_truncated_and_grew_to_the_same_length(fs: Client) -> None:
    make(fs, "/guarded")
    seen = fs.stat("/guarded")
    fs.truncate("/guarded", 50)
    with fs.append("/guarded") as out:
        out.write(MORE[:50])
    now = fs.stat("/guarded")
    assert (now.size, now.truncations) == (seen.size, seen.truncations + 1)
    fs.transact([AssertFile("/guarded", now.file_id, now.size, now.truncations)])
    with pytest.raises(ValueError, match="'/guarded': was truncated meanwhile"):
        fs.transact([AssertFile("/guarded", seen.file_id, seen.size, seen.truncations)])


def test_a_datanode_that_was_away_while_a_block_was_cut_comes_back_and_is_told(
    cluster: LocalCluster, fs: Client
) -> None:
    make(fs, "/away", DATA[:30])
    away = cluster.datanodes[0]
    away.kill()
    fs.truncate("/away", 20)
    assert read(fs, "/away") == DATA[:20]
    away.start()
    cluster.wait_registered()
    only_new_replicas_serve(cluster, fs, "/away")
    assert read(fs, "/away") == DATA[:20]


async def test_bytes_that_were_read_before_somebody_changed_the_file_are_not_appended(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as long as before, and its chunks begin where they did: all begins again."""
    async with AsyncClient(cluster.url, CONFIG) as fs, AsyncClient(cluster.url, CONFIG) as rival:
        async with fs.create("/raced", chunk_size=10, block_size=30) as out:
            await out.write(DATA)
        sent: list[int] = []
        send = fs._session.namenodes.call_once

        async def after_the_rival(method: Method[Any, Any], request: Any) -> Any:
            if method is TRANSACT:
                sent.append(len(request.operations))
            if sent == [1, 3] and method is TRANSACT:
                await rival.truncate("/raced", 40)
                async with rival.append("/raced", chunk_size=10) as out:
                    await out.write(MORE[:60])
            return await send(method, request)

        monkeypatch.setattr(fs._session.namenodes, "call_once", after_the_rival)
        await fs.truncate("/raced", 45)
        async with await fs.open("/raced") as file:
            assert await file.read() == DATA[:40] + MORE[:5]
        assert sent == [1, 3, 1, 3]


class FewAtOnce(AsyncClient):
    """Of a cluster where one transaction cuts two blocks at most."""

    steps: list[int]

    async def transact(self, ops: Sequence[Operation], **_: Any) -> TransactionOutcome:
        """Refuse what would cut more, as a NameNode does."""
        (cut,) = ops
        assert isinstance(cut, Truncate)
        behind = [each.offset for each in await self.locations(cut.path, cut.size)]
        if len(behind) > 2:
            raise InvalidRequestError("at most 2 blocks", cut_first=behind[-2])
        self.steps.append(cut.size)
        return await super().transact(ops)


async def test_a_file_with_very_many_blocks_behind_the_cut_is_cut_in_steps(
    cluster: LocalCluster,
) -> None:
    async with FewAtOnce(cluster.url, CONFIG) as fs:
        fs.steps = []
        async with await fs.create("/long", chunk_size=10, block_size=10) as out:
            await out.write(DATA[:70])
        assert (await fs.truncate("/long", 15)).size == 15
        assert fs.steps == [50, 30, 15]
        async with await fs.open("/long") as file:
            assert await file.read() == DATA[:15]


@dataclass
class Change:
    """A file before and after: an append shows any part of what it adds meanwhile."""

    before: bytes
    after: bytes

    def may_show(self, data: bytes) -> bool:
        between = data.startswith(self.before) and self.after.startswith(data)
        return between or data in (self.before, self.after)


class Reading(threading.Thread):
    """Reads a file again and again; all it gets was true at one moment of the read."""

    def __init__(self, url: str, path: str, changes: list[Change]) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._url, self._path, self._changes = url, path, changes

    def run(self) -> None:
        with Client(self._url, CONFIG) as fs:
            while not self.over.is_set():
                first = len(self._changes) - 1
                try:
                    with fs.open(self._path) as file:
                        last = len(self._changes)
                        data = file.read(7) + file.read()
                except TruncatedError:
                    self.counts["truncated"] += 1
                    continue
                except PaxosBlockError as error:
                    self.wrong.append(repr(error))
                    continue
                self.counts["read"] += 1
                if not any(change.may_show(data) for change in self._changes[first:last]):
                    self.wrong.append(f"{data!r} between changes {first} and {last}")


def test_downwards_and_up_again_beside_readers_and_kills(cluster: LocalCluster, fs: Client) -> None:
    rng, path = random.Random(6), "/life"
    make(fs, path, b"")
    changes = [Change(b"", b"")]
    readers = [Reading(cluster.url, path, changes) for _ in range(2)]
    for reader in readers:
        reader.start()
    for step in range(24):
        before = changes[-1].after
        if step == 6:
            cluster.datanodes[1].kill()
        elif step == 12:
            cluster.datanodes[1].start()
        elif step == 18:
            cluster.namenode.kill()
            cluster.namenode.start()
        if step % 2:
            changes.append(Change(before, before[: rng.randrange(len(before) + 1)]))
            fs.truncate(path, len(changes[-1].after))
        else:
            piece = rng.randbytes(rng.randrange(1, 40))
            changes.append(Change(before, before + piece))
            with fs.append(path, chunk_size=rng.choice((3, 10))) as out:
                out.write(piece)
        assert read(fs, path) == changes[-1].after
    for reader in readers:
        reader.over.set()
        reader.join(60)
        assert reader.wrong == []
        assert reader.counts["read"]
    cluster.wait_registered()
