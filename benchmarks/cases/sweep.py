"""What does it cost a NameNode to look at every block, as its monitor of replicas does?

The parts of a NameNode run in this process, without a network: a catalog of so many finalized
blocks of closed files, ten in each, whose three replicas were all reported, so that none is
missing. The monitor's own walk goes over all of them once, at the pace of the first walk after a
start. It shows the walk's processor time, the same in a minute at the pace of every later walk, and
the longest turn of the event loop meanwhile, in processor time. The goal is a second in a minute.

It shows the same for one look for the blocks that hold up a DataNode that is leaving (it has a
replica of three blocks in five), for `fsck /`, and for some turns of the balancer, which looks for
blocks of the fullest storage and finds none that may be moved. No turn should take longer than 20
ms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

from benchmarks.host import resident_bytes
from benchmarks.suite import LEADER, Bench, case
from paxosblock.api.care import AdminState, Balance
from paxosblock.api.datanode import FindChunk
from paxosblock.api.fsck_call import CheckFiles, FsckCursor
from paxosblock.api.reports import ALL_BLOCKS, REGISTER, Register, StorageReport
from paxosblock.base.units import GIB, MIB
from paxosblock.config import NameNodeConfig
from paxosblock.host.stall import StallWatch
from paxosblock.namenode.blocks.acceptors import Question
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.blocks.replication.balancer import Balancer
from paxosblock.namenode.blocks.replication.monitor import WALKED_PER_S, WALKED_PER_S_AT_FIRST
from paxosblock.namenode.calls import Service
from paxosblock.namenode.catalog import keys, tree
from paxosblock.namenode.catalog.records import (
    ROOT_ID,
    BlockEntry,
    FileInode,
    NodeRecord,
    Place,
    encode,
)
from paxosblock.namenode.kv.interface import Committed, Edit, KeyValueStore
from paxosblock.namenode.membership import engine_of
from paxosblock.namenode.name_node import NameNode
from paxosblock.namenode.operators import check_files
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import (
    BlockId,
    BlockState,
    Durability,
    Generation,
    StorageId,
    WriterId,
)

DATANODES: Final = 5
REPLICATION: Final = 3
BLOCKS_OF_A_FILE: Final = 10
FILES_AT_ONCE: Final = 200
FIRST_FILE: Final = 1 << 20
DECIDED: Final = Generation(1)
FULLEST: Final = StorageId("s0")
BALANCER_TURNS: Final = 20
AN_HOUR_S: Final = 3600.0
CONFIG: Final = NameNodeConfig(datanode_stale_after_s=AN_HOUR_S, datanode_dead_after_s=AN_HOUR_S)
"""Nobody sends heartbeats here."""


class NobodyAnswers:
    """`Acceptors` that never answer: no replica is missing, and the balancer's copies stay under
    way."""

    async def ask(self, storage: StorageId, question: Question, **_: object) -> NoReturn:
        """Wait for ever."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError(f"{storage} answers {question}")

    async def ask_all(self, storage: StorageId, questions: Sequence[Question]) -> NoReturn:
        """Wait for ever."""
        await self.ask(storage, questions[0])
        raise AssertionError(f"{storage} answers")

    async def process_at(self, address: str) -> NoReturn:
        """Never called."""
        raise AssertionError(f"{address} is asked who it is")

    async def find_chunk(self, question: FindChunk) -> NoReturn:
        """Never called."""
        raise AssertionError(f"{question.storage} is asked {question}")


def members_of(block: BlockId) -> tuple[StorageId, ...]:
    """Return the storages of a block, in turn."""
    return tuple(StorageId(f"s{(block + place) % DATANODES}") for place in range(REPLICATION))


def records_of(number: int, blocks: list[BlockId]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the catalog's entries for a closed file in / and its blocks."""
    size_bytes = 100
    writer = WriterId("benchmark")
    inode = FileInode(
        number, 1, f"f{number}", 0, 0, "", "", 0o644, REPLICATION, MIB, Durability.DISK, writer,
        open=False, length=size_bytes * len(blocks),
    )  # fmt: skip
    yield keys.inode(number), encode(inode)
    yield keys.entry(ROOT_ID, inode.name), tree.pack_target(inode)
    for place, block in enumerate(blocks):
        yield keys.place(number, place), encode(Place(block, place * size_bytes))
        record = BlockRecord(
            block=block,
            state=BlockState.FINALIZED,
            generation=DECIDED,
            writer_generation=Generation(0),
            members=members_of(block),
            writer=writer,
            window=1,
            durability=Durability.DISK,
            finalized_generation=DECIDED,
            length=1,
            size_bytes=size_bytes,
        )
        yield keys.block(block), encode(BlockEntry(record, number, place))


async def fill(store: KeyValueStore, node: NameNode, count: int) -> list[BlockId]:
    """Put so many blocks into the catalog."""
    blocks = [await node.catalog.next_block() for _ in range(count)]
    files = [blocks[at : at + BLOCKS_OF_A_FILE] for at in range(0, count, BLOCKS_OF_A_FILE)]
    for start in range(0, len(files), FILES_AT_ONCE):
        numbered = enumerate(files[start : start + FILES_AT_ONCE], FIRST_FILE + start)
        puts = tuple(put for number, some in numbered for put in records_of(number, some))
        assert isinstance(await store.commit(Edit(puts=puts)), Committed)
    return blocks


COUNTS: Final = (10**5, 3 * 10**5, 10**6)
USUAL: Final = 10**5
TURN_GOAL_MS: Final = 20.0


@case("sweep", room_bytes=2 * GIB)
async def sweep(bench: Bench) -> None:
    """What does it cost a NameNode to look at every block, as its monitor of replicas does?"""
    for count in bench.sizes(COUNTS, USUAL, 200):
        await _look_at_all(bench, bench.folder / f"sweep-{count}", count)


async def _look_at_all(bench: Bench, folder: Path, count: int) -> None:
    """Fill a catalog, report everything, walk once, and let the others look."""
    at = (float(count), "blocks")
    store = engine_of(CONFIG, folder / "namenode", "benchmark").store
    await store.start()
    node = NameNode("benchmark", CONFIG, store, time.monotonic, lambda _: NobodyAnswers())
    await node.catalog.start(1, "benchmark")
    service, room = Service(node), 1 << 40
    for number in range(DATANODES):
        used = room // (number + 2)
        storages = (StorageReport(StorageId(f"s{number}"), room, room - used, used),)
        request = Register(f"dn{number}", f"dn{number}:9864", "run", storages)
        await service.call(REGISTER, request)
    empty_bytes = resident_bytes()
    blocks = await fill(store, node, count)
    filled_bytes = resident_bytes()
    for block in blocks:
        for storage in members_of(block):
            node.replicas.note(block, storage, DECIDED)
    reported_bytes = resident_bytes()
    for number in range(DATANODES):
        node.datanodes.reported(StorageId(f"s{number}")).add(ALL_BLOCKS)
    used_s = await measured(bench, at, "walk over all", node.monitor.walk())
    for pace, name in ((WALKED_PER_S_AT_FIRST, "the first"), (WALKED_PER_S, "every later")):
        share = used_s / count * pace * 60
        bench.emit(f"at the pace of {name} walk", share, "s in a minute", at=at)
    leaves = NodeRecord(AdminState.DECOMMISSIONED, "dn0:9864", (StorageId("s0"),))
    node.datanodes.admin.take([("dn0", leaves)], time.monotonic(), 0)
    await measured(bench, at, "look for what holds up a DataNode", node.leaving.walk())
    node.datanodes.admin.take([], time.monotonic(), 0)
    await measured(bench, at, "fsck /", check_all(node))
    between = between_versions(blocks)
    what = f"{BALANCER_TURNS} turns of the balancer"
    await measured(bench, at, what, balance(node, between))
    await node.background.close()
    await store.close()
    for what, grown in (
        ("memory of a block", filled_bytes - empty_bytes),
        ("memory of its replicas", reported_bytes - filled_bytes),
    ):
        bench.emit(what, max(0, grown) / count, "bytes", at=at)


async def measured(
    bench: Bench, at: tuple[float, str], what: str, work: Awaitable[object]
) -> float:
    """Emit what some work takes; return the seconds of processor."""
    stall = StallWatch()
    stall.start()
    await asyncio.sleep(0)
    stall.take_busy()
    begun_s, used_s = time.perf_counter(), time.process_time()
    await work
    used_s, took_s = time.process_time() - used_s, time.perf_counter() - begun_s
    turn_s = stall.take_busy()
    stall.stop()
    bench.emit(what, took_s, "s", at=at, processor_s={LEADER: used_s / at[0]}, per="block")
    bench.emit(f"{what}: longest turn", turn_s * 1e3, "ms", at=at, goal=TURN_GOAL_MS)
    return used_s


async def check_all(node: NameNode) -> None:
    """`fsck /`, page by page."""
    cursor: FsckCursor | None = None
    while (cursor := (await check_files(node, CheckFiles("/", cursor))).next) is not None:
        pass


def between_versions(blocks: list[BlockId]) -> Replicas:
    """Return what was reported of the blocks of the fullest storage, had they a version since."""
    found = Replicas()
    for block in blocks:
        if (storage := members_of(block)[0]) == FULLEST:
            found.note(block, storage, Generation(DECIDED - 1))
    return found


async def balance(node: NameNode, between: Replicas) -> None:
    """Let the balancer look for moves in vain: no replica has the version decided last."""
    balancer = Balancer(
        catalog=node.catalog,
        datanodes=node.datanodes,
        replicas=between,
        copies=node.copies,
        reducer=node.reducer,
        holds=lambda: False,
        is_behind=lambda: False,
        bandwidth_bytes_per_s=GIB,
        heartbeat_s=1.0,
        clock_s=time.monotonic,
    )
    for _ in range(BALANCER_TURNS):
        balancer.ask(Balance("benchmark", 0.01))
        await balancer.turn()
