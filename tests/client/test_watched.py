"""A DataNode that hangs is told from one whose disk is slow, in virtual time; no socket is used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from paxosblock.client.session.patience import AdaptiveTimeout, RunningClock
from paxosblock.client.session.watched import WatchedConnection, WritingConnections
from paxosblock.config import ClientConfig
from paxosblock.errors import OutcomeUnknownError, PaxosBlockError
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.wire import HEADER_BYTES, FrameKind, Header
from paxosblock.protocol.messages import Nack
from paxosblock.protocol.types import BlockId, ChunkIndex
from tests.net.streams import feed
from tests.raft.virtual_time import VirtualTimeLoop

BLOCK = BlockId(7)
HUNG_S = 0.6
BEAT_S = HUNG_S / 4
LATEST_S = HUNG_S + BEAT_S


class NodeEnd(asyncio.Transport):
    """Takes down the bytes that the client sends to a node, instead of sending them."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self

    def setsockopt(self, *_: int) -> None:
        """It passes for the socket, too."""

    def getpeername(self) -> tuple[str, int]:
        return ("127.0.0.1", 1)

    getsockname = getpeername

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def abort(self) -> None:
        self.aborted = True

    @property
    def wishes(self) -> list[int]:
        """The pace in milliseconds of each BEAT frame that came."""
        frames, at = [], 0
        while at < len(self.sent):
            header = Header.unpack(self.sent, at)
            at += header.frame_length
            frames.append(header)
        return [int(header.index) for header in frames if header.kind is FrameKind.BEAT]


class Scene:
    """A client's connection, and the node at its other end as the test plays it."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self.loop = loop
        self.pool = WritingConnections(ClientConfig(hung_after_s=HUNG_S))
        silence = self.pool._silence["node:1"]
        self.stream = WatchedConnection("node:1", self.pool, silence)
        self.connection = FrameConnection(self.stream._channel, "node:1")
        self.stream._channel.connection = self.connection
        self.node = NodeEnd()
        self.connection.connection_made(self.node)
        self.votes = 0
        self.lost: PaxosBlockError | None = None

    def on_vote(self, header: Header) -> None:
        self.votes += 1

    def on_nack(self, nack: Nack) -> None:
        raise AssertionError(nack)

    def on_lost(self, error: PaxosBlockError) -> None:
        self.lost = error

    async def passes(self, seconds: float) -> None:
        """Time passes, and the node says nothing."""
        await self.loop.pass_time(seconds)

    def send(self, size: int = 100) -> None:
        """The client sends a chunk."""
        payload = bytes(size)
        self.stream.send(Header.of(FrameKind.CHUNK, payload, block=BLOCK).pack(), payload)

    def vote(self) -> None:
        feed(self.connection, Header(FrameKind.VOTE, block=BLOCK).pack())

    def beat(self, *, owed: int = 0, arrived: int | None = None) -> None:
        """The node sends a beat; it has heard everything unless the test says how much."""
        heard = len(self.node.sent) if arrived is None else arrived
        frame = Header(FrameKind.BEAT, index=ChunkIndex(owed), acknowledged=heard).pack()
        feed(self.connection, frame)

    async def beats_for(self, seconds: float, *, owed: int = 0, arrived: int | None = None) -> None:
        """The node beats as it was asked to."""
        for _ in range(round(seconds / BEAT_S)):
            await self.passes(BEAT_S)
            self.beat(owed=owed, arrived=arrived)


@contextmanager
def virtual_time() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    try:
        yield loop
    finally:
        loop.close()
    assert loop.lost == []


def play(story: Any) -> None:
    """Run `story` with a connection that a block is written through."""
    with virtual_time() as loop:

        async def run() -> None:
            scene = Scene(loop)
            scene.stream.listen(BLOCK, scene)
            await story(scene)

        loop.run_until_complete(run())


def told(story: Any) -> Any:
    """A test that plays its story."""

    def test() -> None:
        play(story)

    test.__doc__ = story.__doc__
    return test


@told
async def test_a_node_that_hangs_is_left_when_it_was_silent_for_too_long(scene: Scene) -> None:
    await scene.beats_for(3.0)
    scene.send()
    await scene.passes(HUNG_S - BEAT_S)
    assert not scene.node.aborted
    await scene.passes(LATEST_S - (HUNG_S - BEAT_S))
    assert scene.node.aborted
    scene.connection.connection_lost(None)
    assert isinstance(scene.lost, OutcomeUnknownError)
    assert "node:1 hangs or is out of reach: silent for 0." in str(scene.lost)


@told
async def test_a_node_that_hung_before_is_given_no_more_time_for_that(scene: Scene) -> None:
    """Beats that come late tell that a node is busy; beats that do not come tell nothing."""
    silence = scene.pool._silence["node:1"]
    await scene.beats_for(3.0)
    await scene.passes(LATEST_S)
    assert scene.node.aborted
    assert silence.seconds == HUNG_S


@told
async def test_a_client_that_is_closed_looks_at_no_clock_although_a_block_was_left_open(
    scene: Scene,
) -> None:
    looks: list[float] = []
    scene.pool.clock.watch(scene, lambda: looks.append(scene.loop.time()))
    await scene.beats_for(BEAT_S)
    assert looks
    await scene.pool.close()
    looks.clear()
    await scene.passes(LATEST_S)
    assert looks == []


@told
async def test_an_idle_writer_hears_of_a_node_that_hangs_too(scene: Scene) -> None:
    await scene.passes(LATEST_S)
    assert scene.node.aborted


@told
async def test_a_node_that_beats_may_owe_votes_for_long(scene: Scene) -> None:
    scene.send()
    await scene.beats_for(30.0, owed=1)
    assert not scene.node.aborted


@told
async def test_a_node_that_does_not_read_because_it_owes_answers_is_alive(scene: Scene) -> None:
    arrived = len(scene.node.sent)
    scene.send()
    await scene.beats_for(30.0, owed=128, arrived=arrived)
    assert not scene.node.aborted


@told
async def test_beats_alone_do_not_help_when_nothing_arrives_at_the_node(scene: Scene) -> None:
    """A cut of one direction: the way back is whole."""
    await scene.beats_for(3.0)
    arrived = len(scene.node.sent)
    scene.send()
    await scene.beats_for(HUNG_S + 2 * BEAT_S, arrived=arrived)
    assert scene.node.aborted


@told
async def test_a_slow_way_to_the_node_is_progress(scene: Scene) -> None:
    """Megabytes take long, and the vote comes after the last of them."""
    arrived = len(scene.node.sent)
    scene.send(4_000_000)
    while arrived < 4_000_000:
        await scene.beats_for(BEAT_S, arrived=arrived)
        arrived += 20_000
    assert not scene.node.aborted


@told
async def test_votes_are_signs_of_life(scene: Scene) -> None:
    for _ in range(50):
        await scene.passes(HUNG_S / 2)
        scene.vote()
    assert scene.votes == 50
    assert not scene.node.aborted


@told
async def test_a_client_that_stood_still_does_not_blame_the_node(scene: Scene) -> None:
    """Stopped, or its loop kept busy: whatever came meanwhile is still to be read."""
    scene.send()
    await scene.beats_for(3.0)
    for _ in range(20):
        scene.loop.now += 100.0
        await scene.passes(BEAT_S / 4)
        assert not scene.node.aborted
        scene.beat()
        await scene.passes(BEAT_S)
    assert not scene.node.aborted
    await scene.passes(LATEST_S)
    assert scene.node.aborted


@told
async def test_a_client_that_is_always_busy_leaves_a_node_that_hangs_all_the_same(
    scene: Scene,
) -> None:
    """Every tick of its clock comes late; between two of them it reads what has come."""
    for _ in range(100):
        scene.loop.now += 2 * BEAT_S
        scene.beat()
        await scene.passes(BEAT_S / 100)
    assert not scene.node.aborted
    for _ in range(20):
        scene.loop.now += 2 * BEAT_S
        await scene.passes(BEAT_S / 100)
    assert scene.node.aborted


@told
async def test_on_a_busy_machine_a_node_may_be_late_as_we_are(scene: Scene) -> None:
    """Our own turns come late, for want of a processor: those of the node do, too."""
    tick_s = scene.pool.clock.tick_s
    while scene.pool.clock.now_s < scene.stream._heard_at + LATEST_S:
        scene.loop.now += 2 * tick_s
        await scene.passes(tick_s / 50)
    assert not scene.node.aborted, "it was silent for longer than a node of an idle machine may"
    await scene.passes(3 * LATEST_S)
    assert scene.node.aborted


@told
async def test_a_node_whose_beats_come_irregularly_is_given_more_time(scene: Scene) -> None:
    for number in range(40):
        await scene.passes(BEAT_S if number % 2 else HUNG_S - BEAT_S)
        scene.beat()
    await scene.passes(LATEST_S)
    assert not scene.node.aborted
    await scene.passes(5 * HUNG_S)
    assert scene.node.aborted


@told
async def test_beats_are_asked_for_only_while_somebody_waits_for_the_node(scene: Scene) -> None:
    assert scene.node.wishes == [round(BEAT_S * 1000)]
    scene.stream.ignore(BLOCK)
    await scene.passes(BEAT_S)
    assert scene.node.wishes == [round(BEAT_S * 1000), 0]
    await scene.passes(100.0)
    assert not scene.node.aborted
    scene.stream.listen(BLOCK, scene)
    assert scene.node.wishes == [round(BEAT_S * 1000), 0, round(BEAT_S * 1000)]
    await scene.passes(HUNG_S - BEAT_S)
    assert not scene.node.aborted


@told
async def test_more_bytes_than_a_beat_can_count_are_told_apart(scene: Scene) -> None:
    before = (1 << 32) - HEADER_BYTES
    scene.connection.sent_bytes = before
    scene.beat(arrived=before)
    scene.send(1000)
    await scene.passes(BEAT_S)
    scene.beat(arrived=(before + 1000) & 0xFFFFFFFF)
    assert scene.stream._arrived_bytes == before + 1000


def test_patience_follows_what_was_measured_between_its_bounds() -> None:
    patience = AdaptiveTimeout(0.5, 10.0)
    assert patience.seconds == 0.5
    for _ in range(100):
        patience.observe(0.01)
    assert patience.seconds == 0.5
    for _ in range(100):
        patience.observe(2.0)
    assert 2.0 <= patience.seconds < 2.5
    for took_s in (1.0, 3.0) * 50:
        patience.observe(took_s)
    assert 5.0 < patience.seconds < 8.0
    patience.observe(1000.0)
    assert patience.seconds == 10.0


def test_patience_doubles_in_vain_until_something_comes() -> None:
    patience = AdaptiveTimeout(0.5, 3.0)
    seen = []
    for _ in range(5):
        seen.append(patience.seconds)
        patience.back_off()
    assert seen == [0.5, 1.0, 2.0, 3.0, 3.0]
    patience.observe(0.01)
    assert patience.seconds == 0.5


def test_a_try_to_connect_is_not_given_up_for_the_time_in_which_we_stood_still() -> None:
    with virtual_time() as loop:
        clock = RunningClock(0.1)

        async def run() -> None:
            answer = loop.create_future()
            trying = asyncio.create_task(clock.within(0.6, answer))
            await loop.pass_time(0.3)
            for _ in range(3):
                loop.now += 100.0
                await loop.pass_time(0.15)
            assert not trying.done()
            answer.set_result("connected")
            assert await trying == "connected"
            silent = asyncio.create_task(clock.within(0.6, loop.create_future()))
            await loop.pass_time(10.0)
            with pytest.raises(TimeoutError):
                await silent

        loop.run_until_complete(run())


@pytest.mark.parametrize("stop_s", [1.0, 86_400.0])
def test_a_clock_stands_while_its_process_does_not_run(stop_s: float) -> None:
    with virtual_time() as loop:
        clock, judged = RunningClock(0.1), list[float]()

        async def run() -> None:
            clock.watch("me", lambda: judged.append(clock.now_s))
            await loop.pass_time(1.05)
            assert judged == pytest.approx([0.1 * n for n in range(1, 11)])
            loop.now += stop_s
            await loop.pass_time(0.01)
            assert len(judged) == 10, "nobody is judged by the tick that comes late"
            assert clock.now_s == pytest.approx(1.1)
            await loop.pass_time(0.1)
            assert judged[10:] == pytest.approx([1.2])
            clock.unwatch("me")
            await loop.pass_time(1.0)
            assert len(judged) == 11

        loop.run_until_complete(run())
