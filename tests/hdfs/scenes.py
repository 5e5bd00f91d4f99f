"""Files whose writer is gone, with blocks in the states that HDFS names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paxosblock.api.namenode import (
    FINALIZE_BLOCK,
    GET_BLOCK,
    NO_BLOCK,
    STAT,
    BlockRequest,
    BlockView,
    FinalizeBlock,
    PathRequest,
)
from paxosblock.config import NameNodeConfig
from paxosblock.errors import DeadlineError
from paxosblock.namenode.blocks.acceptors import Heard, Question
from paxosblock.namenode.housekeeper import RETRY_S
from paxosblock.protocol.block_state import HdfsBlockState, hdfs_state
from paxosblock.protocol.messages import Finalize
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, StorageId
from tests.namenode.cluster import CHUNK_BYTES, Network
from tests.namenode.scene import ANN, Scene
from tests.waiting import wait_until_async

CONFIG = NameNodeConfig(recovery_timeout_s=1.0)
COMMITTED, COMPLETE = HdfsBlockState.COMMITTED, HdfsBlockState.COMPLETE
CONSTRUCTION, RECOVERY = HdfsBlockState.UNDER_CONSTRUCTION, HdfsBlockState.UNDER_RECOVERY


@dataclass
class DeafNetwork(Network):
    """Loses every Finalize of some blocks: these stay committed."""

    lost: set[BlockId] = field(default_factory=set)

    async def ask_all(self, storage: StorageId, questions: Sequence[Question]) -> list[Heard]:
        heard = list[Heard]()
        for each in questions:
            if isinstance(each, Finalize) and each.block in self.lost:
                heard.append(DeadlineError(f"{storage}: the question was lost"))
            else:
                heard += await super().ask_all(storage, (each,))
        return heard


Case = tuple[Scene, DeafNetwork]


async def add(case: Case, file: int, previous: BlockId, state: HdfsBlockState) -> BlockId:
    """Add a block of two chunks in one of HDFS's states."""
    scene, network = case
    view = await scene.add_block(file, previous)
    block = view.record.block
    scene.write(view, 2, 2, 2)
    if state is RECOVERY:
        await scene.node.catalog.allocate_seal(block)
    if state in (COMMITTED, COMPLETE):
        if state is COMMITTED:
            network.lost.add(block)
        request = FinalizeBlock(block, ANN, FIRST_GENERATION, 2, 2 * CHUNK_BYTES)
        await scene.service.call(FINALIZE_BLOCK, request)
        if state is COMPLETE:
            await wait_until_async(lambda: is_complete(scene, block))
    assert await named(scene, block) is state
    return block


async def view(scene: Scene, block: BlockId) -> BlockView:
    return await scene.service.call(GET_BLOCK, BlockRequest(block))


async def is_complete(scene: Scene, block: BlockId) -> bool:
    return (await view(scene, block)).complete


async def named(scene: Scene, block: BlockId) -> HdfsBlockState:
    record = (await view(scene, block)).record
    return hdfs_state(record, len(scene.node.replicas.whole(record)), 1)


async def file_of(case: Case, *states: HdfsBlockState, path: str = "/f") -> tuple[BlockId, ...]:
    """The blocks of a file whose writer is gone, in these states."""
    file, blocks = await case[0].create(path), [NO_BLOCK]
    for state in states:
        blocks.append(await add(case, file, blocks[-1], state))
    return tuple(blocks[1:])


async def closed_by_the_housekeeper(scene: Scene, blocks: int = 2, path: str = "/f") -> bool:
    """True once one of its tries has closed the file, with all that was in its blocks."""
    scene.clock.now += RETRY_S
    await scene.node.housekeeper.check_leases()
    return await closed_whole(scene, blocks, path)


async def closed_whole(scene: Scene, blocks: int = 2, path: str = "/f") -> bool:
    """True if the file is closed with all that was in its blocks."""
    status = await scene.service.call(STAT, PathRequest(path))
    return (status.open, status.size) == (False, blocks * 2 * CHUNK_BYTES)
