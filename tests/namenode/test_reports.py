"""Full reports in pages: whatever is lost, late or told twice, what a storage holds is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from paxosblock.api.namenode import NO_BLOCK
from paxosblock.api.reports import ALL_BLOCKS, BLOCK_REPORT, LAST_BLOCK, BlockRange, BlockReport
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.blocks import block_reports
from paxosblock.namenode.blocks.block_reports import SLICE
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import Finalize
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import BlockId, StorageId
from tests.namenode.scene import Scene, finalize_request, new_scene
from tests.waiting import wait_until_async

S1 = StorageId("s1")
PAGE = 3


async def scene_with_blocks(count: int) -> tuple[Scene, tuple[BlockRecord, ...]]:
    """A NameNode, and a file of so many blocks that all members hold and have told of.

    From then on members take questions and never answer.
    """
    scene = await new_scene()
    file, previous, records = await scene.create("/f"), NO_BLOCK, []
    for _ in range(count):
        view = await scene.add_block(file, previous)
        scene.write(view, 1, 1, 1)
        entry = await scene.node.finalizer.finalize_by_writer(
            finalize_request(BlockEntry(view.record), 1)
        )
        previous = view.record.block
        records.append(entry.record)
    replicas = scene.node.replicas
    await wait_until_async(lambda: all(len(replicas.holders(record)) == 3 for record in records))
    scene.network.hung.update(scene.network.reach)
    scene.network.asked.clear()
    return scene, tuple(records)


@pytest.fixture
async def case() -> AsyncIterator[tuple[Scene, tuple[BlockRecord, ...]]]:
    """Five blocks, 1 to 5 in the order of their ids."""
    scene, records = await scene_with_blocks(5)
    yield scene, records
    await scene.close()


Case = tuple[Scene, tuple[BlockRecord, ...]]


def held(scene: Scene, storage: StorageId = S1) -> set[BlockId]:
    """The blocks that the NameNode believes to be at a storage."""
    return set(scene.node.replicas.blocks_of(storage, ALL_BLOCKS, 1_000_000))


def told_again(scene: Scene) -> set[BlockId]:
    """The blocks that S1 was told to finalize since."""
    asked = scene.network.asked
    return {each.block for at, each in asked if at == S1 and isinstance(each, Finalize)}


async def test_a_page_says_nothing_of_blocks_outside_its_range(case: Case) -> None:
    scene, records = case
    ids = [record.block for record in records]
    scene.acceptor("s1").replicas.clear()
    page = scene.written("s1", BlockRange(ids[0], ids[2]))
    await scene.service.call(BLOCK_REPORT, page)
    assert held(scene) == {ids[0], ids[3], ids[4]}
    await wait_until_async(lambda: told_again(scene) == {ids[1], ids[2]})


async def test_what_a_storage_has_answered_is_judged_once_without_the_catalog(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second report of it, one of another length and a full one are judged by the catalog."""
    scene, records = case
    catalog, asked = scene.node.catalog, list[int]()
    entries_of = catalog.block_entries

    async def block_entries(wanted: tuple[BlockId, ...]) -> tuple[BlockEntry | None, ...]:
        asked.append(len(wanted))
        return await entries_of(wanted)

    monkeypatch.setattr(catalog, "block_entries", block_entries)
    await scene.report("s1", full=False)
    assert (asked, held(scene)) == ([], {record.block for record in records})
    await scene.report("s1", full=False)
    assert asked == [len(records)]
    replicas = scene.acceptor("s2").replicas
    one = replicas[records[0].block]
    longer = one.having(finalized_length=2)
    replicas[one.block] = msgspec.structs.replace(longer, log=one.log.append(7, 7))
    await scene.report("s2", full=False)
    assert (asked[1:], scene.node.alarms.counts["I7"]) == ([1], 1)
    await scene.report("s3")
    assert asked[2:] == [len(records)]
    scene.node.finalizer.begin()
    await scene.report("s3", full=False)
    assert asked[3:] == [len(records)], "what was answered in an earlier term counts no more"


async def test_the_last_page_of_a_report_ends_what_is_asked_for(case: Case) -> None:
    scene, records = case
    middle = records[2].block
    scene.node.datanodes.ask_for_reports()
    first = await scene.service.call(
        BLOCK_REPORT, scene.written("s1", BlockRange(NO_BLOCK, middle))
    )
    assert (first.up_to, scene.node.datanodes.has_reported(S1)) == (middle, False)
    last = await scene.service.call(
        BLOCK_REPORT, scene.written("s1", BlockRange(middle, LAST_BLOCK))
    )
    assert (last.up_to, scene.node.datanodes.has_reported(S1)) == (LAST_BLOCK, True)


async def test_the_more_replicas_there_are_the_later_the_next_full_report_is_wanted(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, records = case
    monkeypatch.setattr(block_reports, "REPORTED_PER_S", 5)
    middle = records[2].block
    pages = (BlockRange(NO_BLOCK, middle), BlockRange(middle, LAST_BLOCK))
    answers = [await scene.service.call(BLOCK_REPORT, scene.written("s1", page)) for page in pages]
    assert [answer.again_after_s for answer in answers] == [0.0, 3 * len(records) / 5]


async def test_after_a_page_that_was_lost_the_report_goes_on_before_the_gap(case: Case) -> None:
    scene, records = case
    ids = [record.block for record in records]
    scene.node.datanodes.ask_for_reports()
    await scene.service.call(BLOCK_REPORT, scene.written("s1", BlockRange(NO_BLOCK, ids[1])))
    behind = await scene.service.call(
        BLOCK_REPORT, scene.written("s1", BlockRange(ids[3], LAST_BLOCK))
    )
    assert behind.up_to == ids[1]
    assert not scene.node.datanodes.has_reported(S1)


async def test_a_report_that_began_before_a_leader_did_has_to_begin_again(case: Case) -> None:
    scene, records = case
    middle = records[2].block
    await scene.service.call(BLOCK_REPORT, scene.written("s1", BlockRange(NO_BLOCK, middle)))
    scene.node.datanodes.ask_for_reports()
    answer = await scene.service.call(
        BLOCK_REPORT, scene.written("s1", BlockRange(middle, LAST_BLOCK))
    )
    assert answer.up_to == NO_BLOCK


async def test_a_page_under_way_when_a_leader_begins_does_not_count() -> None:
    scene, _ = await scene_with_blocks(1)
    scene.store.yielding = True
    taken = asyncio.create_task(scene.service.call(BLOCK_REPORT, scene.written("s1", ALL_BLOCKS)))
    await asyncio.sleep(0)
    scene.node.datanodes.ask_for_reports()
    assert (await taken).up_to == NO_BLOCK
    await scene.close()


async def test_a_change_is_not_undone_by_a_page_that_was_written_before_it() -> None:
    """The page is still being judged, slice by slice, when the change comes."""
    scene, records = await scene_with_blocks(SLICE + 1)
    lost = records[-1].block
    page = scene.written("s1", ALL_BLOCKS)
    del scene.acceptor("s1").replicas[lost]
    change = msgspec.structs.replace(scene.written("s1", None), replicas=(), deleted=(lost,))
    await asyncio.gather(
        scene.service.call(BLOCK_REPORT, page), scene.service.call(BLOCK_REPORT, change)
    )
    assert lost not in held(scene)
    await scene.close()


async def test_a_report_that_its_sender_gave_up_changes_nothing_any_more(case: Case) -> None:
    scene, records = case
    late = scene.written("s1", ALL_BLOCKS)
    scene.acceptor("s1").replicas.clear()
    await scene.service.call(BLOCK_REPORT, scene.written("s1", ALL_BLOCKS))
    await scene.service.call(BLOCK_REPORT, late)
    assert held(scene) == set()
    assert held(scene, StorageId("s2")) == {record.block for record in records}


async def test_a_page_of_another_range_than_it_says_is_refused(case: Case) -> None:
    scene, records = case
    page = scene.written("s1", ALL_BLOCKS)
    wrong = msgspec.structs.replace(page, covers=BlockRange(records[0].block, LAST_BLOCK))
    with pytest.raises(InvalidRequestError, match=r"storage s1: a report of the blocks .* another"):
        await scene.service.call(BLOCK_REPORT, wrong)
    nothing = msgspec.structs.replace(page, covers=BlockRange(records[0].block, records[0].block))
    with pytest.raises(InvalidRequestError, match="is of none"):
        await scene.service.call(BLOCK_REPORT, nothing)


class Pages(RuleBasedStateMachine):
    """One storage reports in pages of three, as `datanode/reporter.py` does, over a line that loses
    reports and answers, and brings some of them late. Its replicas come and go, and leaders change.
    """

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.scene, records = self.run(scene_with_blocks(9))
        self.acceptor = self.scene.acceptor("s1")
        self.all: dict[BlockId, Replica] = dict(self.acceptor.replicas)
        assert set(self.all) == {record.block for record in records}
        self.after = NO_BLOCK
        self.news: set[BlockId] = set()
        self.sent: list[BlockReport] = []

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def page(self) -> BlockReport:
        behind = sorted(block for block in self.acceptor.replicas if block > self.after)
        last = behind[PAGE - 1] if len(behind) > PAGE else LAST_BLOCK
        self.sent.append(self.scene.written("s1", BlockRange(self.after, last)))
        return self.sent[-1]

    def changes(self) -> BlockReport:
        report = self.scene.written("s1", None)
        found = {each.state.block for each in report.replicas} & self.news
        changed = tuple(each for each in report.replicas if each.state.block in found)
        deleted = tuple(sorted(self.news - found))
        self.sent.append(msgspec.structs.replace(report, replicas=changed, deleted=deleted))
        return self.sent[-1]

    def deliver(self, report: BlockReport) -> BlockId:
        up_to: BlockId = self.run(self.scene.service.call(BLOCK_REPORT, report)).up_to
        return up_to

    @rule(number=st.integers(0, 8))
    def replica_comes(self, number: int) -> None:
        block = sorted(self.all)[number]
        self.acceptor.replicas[block] = self.all[block]
        self.news.add(block)

    @rule(number=st.integers(0, 8))
    def replica_goes(self, number: int) -> None:
        block = sorted(self.all)[number]
        self.acceptor.replicas.pop(block, None)
        self.news.add(block)

    @rule(lost=st.sampled_from(["nothing", "report", "answer"]))
    def tell_changes(self, lost: str) -> None:
        report = self.changes()
        if lost == "report":
            return
        self.deliver(report)
        if lost == "nothing":
            self.news.clear()

    @rule(lost=st.sampled_from(["nothing", "nothing", "report", "answer"]))
    def tell_page(self, lost: str) -> None:
        report = self.page()
        if lost == "report":
            return
        up_to = self.deliver(report)
        assert report.covers is not None
        if lost == "nothing":
            after = report.covers.last if up_to == LAST_BLOCK else up_to
            self.after = NO_BLOCK if after == LAST_BLOCK else after

    @rule(which=st.integers(0, 30))
    def one_comes_late(self, which: int) -> None:
        if which < len(self.sent):
            self.deliver(self.sent[-1 - which])

    @rule()
    def another_leads(self) -> None:
        self.scene.node.datanodes.ask_for_reports()

    @invariant()
    def what_was_told_is_known(self) -> None:
        up_to = self.scene.node.datanodes.reported(S1).up_to
        told = {block for block in self.all if block <= up_to} - self.news
        assert held(self.scene) & told == set(self.acceptor.replicas) & told

    def teardown(self) -> None:
        if not hasattr(self, "scene"):
            return
        for _ in range(9):  # a full report ends, whatever was lost before
            self.tell_page("nothing")
        self.tell_changes("nothing")
        assert self.scene.node.datanodes.has_reported(S1)
        assert held(self.scene) == set(self.acceptor.replicas)
        self.run(self.scene.close())
        self.runner.close()


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
