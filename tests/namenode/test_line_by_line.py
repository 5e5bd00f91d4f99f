"""A file that gets a line after the other: only who has to is told of each version (P5)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from paxosblock.api.namenode import (
    APPEND,
    CLOSE_FILE,
    AppendFile,
    CloseFile,
    FinalizeBlock,
    ReopenBlock,
)
from paxosblock.namenode.blocks.queues import QueuedQuestion, Queues
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import Finalize
from paxosblock.protocol.types import Durability, StorageId, WriterId
from tests.namenode.cluster import CHUNK_BYTES, Network
from tests.namenode.scene import MEMBERS, Scene
from tests.namenode.test_reopening import (
    CHUNKS,
    closed_file,
    is_finalized,
    record_of,
    reopened,
    write_on,
    written,
)
from tests.waiting import wait_until_async

NEXT = WriterId("next")
"""The writer that appends after Bob."""


@dataclass
class Held:
    """The questions that are for later, until the test asks them."""

    questions: list[tuple[StorageId, QueuedQuestion]]

    async def ask(self, network: Network) -> list[bool]:
        """For each, True if there is nothing more to ask."""
        questions, self.questions = self.questions, []
        return [await _ask(network, *each) for each in questions]


async def _ask(network: Network, storage: StorageId, question: QueuedQuestion) -> bool:
    message = question.message()
    return message is None or question.heard(await network.ask(storage, message))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Held:
    held, add = Held([]), Queues.add

    def hold(
        queues: Queues, storage: StorageId, question: QueuedQuestion, pause_s: float = 0.0
    ) -> None:
        if pause_s:
            held.questions.append((storage, question))
        else:
            add(queues, storage, question)

    monkeypatch.setattr(Queues, "add", hold)
    return held


async def with_a_line(scene: Scene) -> BlockRecord:
    """A closed file whose block was opened again and has a chunk more; what the close decided."""
    asked = await written(scene)
    record = await reopened(scene, asked)
    write_on(scene, record, CHUNKS + 1)
    scene.network.asked.clear()
    size = (CHUNKS + 1) * CHUNK_BYTES
    end = FinalizeBlock(asked.block, asked.writer, record.writer_generation, CHUNKS + 1, size)
    await scene.service.call(CLOSE_FILE, CloseFile(asked.file_id, asked.writer, end))
    return await record_of(scene, asked.block)


def told(scene: Scene) -> list[StorageId]:
    return [storage for storage, each in scene.network.asked if isinstance(each, Finalize)]


async def test_the_close_tells_as_many_members_as_it_waits_for_and_the_others_later(
    scene: Scene, later: Held
) -> None:
    block = (await with_a_line(scene)).block
    (first,) = told(scene)
    assert [each for each in MEMBERS if is_finalized(scene, block, each)] == [first]
    assert len(later.questions) == 2
    assert await later.ask(scene.network) == [True, True]
    assert is_finalized(scene, block)


async def test_who_was_to_be_told_later_is_not_if_the_block_is_open_again_and_takes_part(
    scene: Scene, later: Held
) -> None:
    before = await with_a_line(scene)
    opened = await scene.service.call(APPEND, AppendFile("/f", NEXT, 2, 8))
    scene.network.asked.clear()
    assert await later.ask(scene.network) == [True, True]
    assert not told(scene)
    asked = ReopenBlock(opened.status.file_id, NEXT, opened.last, 2, CHUNK_BYTES, 8)
    record = await reopened(scene, asked)
    assert sorted(record.members) == [*MEMBERS]
    write_on(scene, record, CHUNKS + 2)
    held = [scene.acceptor(each).replicas[before.block].length for each in MEMBERS]
    assert held == [CHUNKS + 2] * 3


async def test_all_are_told_if_nothing_comes_of_the_append(scene: Scene, later: Held) -> None:
    before = await with_a_line(scene)
    opened = await scene.service.call(APPEND, AppendFile("/f", NEXT, 2, 8))
    await scene.service.call(CLOSE_FILE, CloseFile(opened.status.file_id, NEXT))
    assert (await record_of(scene, before.block)).finalized_generation > before.generation, "K9"
    await wait_until_async(lambda: is_finalized(scene, before.block))


async def test_members_of_a_block_that_was_written_at_once_are_told_at_once(
    scene: Scene, later: Held
) -> None:
    await closed_file(scene, "/at-once")
    assert not later.questions


async def test_what_votes_did_not_sync_does_not_wait(scene: Scene, later: Held) -> None:
    record = await with_a_line(scene)
    later.questions.clear()
    scene.network.asked.clear()
    scene.node.finalizer.withhold(record)
    scene.node.finalizer.spread(replace(record, durability=Durability.MEMORY), 1)
    await wait_until_async(lambda: is_finalized(scene, record.block))
    assert not later.questions
