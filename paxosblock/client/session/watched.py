"""The data streams that files are written through: a DataNode that hangs is noticed and left.

While a block is written, or an answer awaited, the DataNode is asked for beats (`beats.py`). If it
is silent for longer than `hung_after`, its connection is taken for lost, and its writers go on as
if the node had been killed. A node with a slow disk still beats, and `BlockWriter` says for how
long its votes are waited for; if its disk hangs, the beats say that, too, and `hung` judges.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar

from paxosblock.client.session.patience import AdaptiveTimeout, RunningClock
from paxosblock.client.session.transport import DataConnection, DataConnections, VoteListener
from paxosblock.config import BEATS_PER_SILENCE, ClientConfig
from paxosblock.errors import (
    DeadlineError,
    OutcomeUnknownError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.streams.beats import arrived_bytes, beat_wish
from paxosblock.net.streams.stream_calls import ChunkSink
from paxosblock.net.wire import Header
from paxosblock.protocol.quorum import recovery_quorum
from paxosblock.protocol.types import BlockId

K = TypeVar("K")

_log = logging.getLogger(__name__)

TICKS_PER_BEAT: Final = 2
LONGEST_SILENCES: Final = 5
"""A node whose beats are measured to come irregularly may be silent for so much longer."""
CONNECTING_ENDS_S: Final = 60.0
"""A try to connect ends then, whatever the clock says by which others are judged."""
STANDING_SHARE: Final = 0.75
"""Share of `disk_hung_after` for which a disk must stand; it is told with the next beat only."""
QUICK_VOTES_SHARE: Final = 0.5
"""Share of `vote_timeout` that a DataNode has whose votes came fast so far."""


class WritingConnections(DataConnections):
    """`DataConnections` that take a DataNode that hangs for one that is lost."""

    def __init__(self, config: ClientConfig, access: Access = OPEN) -> None:
        """Uses `connect_timeout`, `hung_after` and `vote_timeout`."""
        super().__init__(config.connect_timeout_s, access)
        self.beat_every_s = config.hung_after_s / BEATS_PER_SILENCE
        self.clock = RunningClock(self.beat_every_s / TICKS_PER_BEAT)
        self._disk_hung_after_s = config.disk_hung_after_s
        self.votes = AdaptiveTimeout(
            QUICK_VOTES_SHARE * config.vote_timeout_s, config.vote_timeout_s
        )
        """The wait for the vote of a DataNode that lives."""
        hung_s = config.hung_after_s
        self._silence = defaultdict[str, AdaptiveTimeout](
            lambda: AdaptiveTimeout(hung_s, LONGEST_SILENCES * hung_s)
        )
        self._connecting_s = defaultdict[str, AdaptiveTimeout](
            lambda: AdaptiveTimeout(hung_s, config.connect_timeout_s)
        )

    async def _connect(self, address: str) -> DataConnection:
        """Connect: a node that hangs takes no connection either, and the next try waits longer."""
        patience = self._connecting_s[address]
        connection = WatchedConnection(address, self, self._silence[address])
        within_s = patience.seconds
        try:
            await self.clock.within(within_s, connection.connect(CONNECTING_ENDS_S))
        except TimeoutError:
            patience.back_off()
            raise UnavailableError(f"{address} did not answer within {within_s:.3g} s") from None
        except UnavailableError:
            patience.back_off()
            raise
        patience.observe(0.0)
        return connection

    async def close(self) -> None:
        """As `DataConnections.close`; a file that its writer left open keeps no clock running."""
        await super().close()
        self.clock.stop()

    def hung(
        self,
        late: Mapping[K, DataConnection | None],
        answered_count: int,
        member_count: int,
        waited_s: float,
    ) -> tuple[K, ...]:
        """W4: return those of the `late` members of a block to go on without, as their disks hang.

        They were waited for so long by the clock. None, unless enough of the others have answered
        for the recovery that follows: where all disks stand, it would only wait for them, too.
        """
        least_s = self._disk_hung_after_s
        patient_s = max(least_s, self.votes.usual_s) + self.clock.allowance_s
        if waited_s < patient_s or answered_count < recovery_quorum(member_count):
            return ()
        stands_s = STANDING_SHARE * least_s
        return tuple(
            member
            for member, connection in late.items()
            if connection is not None and connection.disk_stands_s >= stands_s
        )

    async def errors(
        self, asked: Sequence[tuple[str, Awaitable[None]]]
    ) -> list[PaxosBlockError | None]:
        """Ask all members of a block at once, each with its address; return what went wrong.

        Those with disks that hang are given up as by `hung`.
        """
        asking = {asyncio.ensure_future(ask): address for address, ask in asked}
        begun_s = self.clock.now_s

        def judge() -> None:
            late = {at: self._open.get(asking[at]) for at in asking if not at.done()}
            good = sum(at.done() and not at.cancelled() and not at.exception() for at in asking)
            for task in self.hung(late, good, len(asking), self.clock.now_s - begun_s):
                task.cancel()

        self.clock.watch(judge, judge)
        try:
            answers = await asyncio.gather(*asking, return_exceptions=True)
        finally:
            self.clock.unwatch(judge)
        errors: list[PaxosBlockError | None] = []
        for address, answer in zip(asking.values(), answers, strict=True):
            if isinstance(answer, asyncio.CancelledError):
                errors.append(DeadlineError(f"a disk of {address} hangs", peer=address))
            elif answer is None or isinstance(answer, PaxosBlockError):
                errors.append(answer)
            else:
                raise answer
        return errors


class WatchedConnection(DataConnection):
    """The data stream to one DataNode, with an ear on whether it lives."""

    def __init__(self, address: str, pool: WritingConnections, silence: AdaptiveTimeout) -> None:
        """`silence` is how long this DataNode may be silent before it counts as hung."""
        super().__init__(address, pool.access)
        self._pool = pool
        self._clock = pool.clock
        self._silence = silence
        self._watching = False
        self._calls_under_way = 0
        self._heard_at = 0.0
        self._beat_at = 0.0
        self._arrived_bytes = 0
        self._sent_before = 0
        """Bytes that were sent when the last beat came."""

    def listen(self, block: BlockId, listener: VoteListener) -> None:
        """As `DataConnection.listen`; from now on the DataNode must give signs of life."""
        super().listen(block, listener)
        self._watch()

    async def _call(
        self,
        request: object,
        timeout_s: float,
        sink: ChunkSink | None = None,
        *,
        soon: bool = False,
    ) -> Any:
        self._calls_under_way += 1
        try:
            self._watch()
            reply = await super()._call(request, timeout_s, sink, soon=soon)
            self._heard_at = self._clock.now_s
            return reply
        finally:
            self._calls_under_way -= 1

    def vote_received(self, header: Header, payload: memoryview) -> None:
        """As `DataConnection.vote_received`; a sign of life."""
        self._heard_at = self._clock.now_s
        super().vote_received(header, payload)

    def beat_received(self, header: Header) -> None:
        """Note a sign of life, unless what was sent before the last beat does not arrive.

        A DataNode that owes answers may have stopped to read for a while.
        """
        sent = self._channel.connection.sent_bytes
        arrived = arrived_bytes(header, sent)
        reads = arrived > self._arrived_bytes or arrived >= self._sent_before
        self._arrived_bytes, self._sent_before = arrived, sent
        self.disk_stands_s = header.request / 1000
        if reads or header.index:
            self._heard_at = self._clock.now_s
        self._silence.observe(self._clock.now_s - self._beat_at)
        self._beat_at = self._clock.now_s

    def connection_lost(self, error: PaxosBlockError) -> None:
        """As `DataConnection.connection_lost`."""
        self._clock.unwatch(self)
        super().connection_lost(error)

    def _watch(self) -> None:
        if not self._watching and not self.closed:
            self._watching = True
            self._heard_at = self._beat_at = self._clock.now_s
            self._channel.connection.send(beat_wish(self._pool.beat_every_s))
            self._clock.watch(self, self._judge)

    def _judge(self) -> None:
        if not self._listeners and not self._calls_under_way:
            self._watching = False
            self._channel.connection.send(beat_wish(0))
            self._clock.unwatch(self)
            return
        silent_s = self._clock.now_s - self._heard_at
        if silent_s > self._silence.seconds + self._clock.allowance_s:
            error = OutcomeUnknownError(
                f"{self.address} hangs or is out of reach: silent for {silent_s:.2g} s",
                peer=self.address,
            )
            _log.info("DataNode left: %s", error)
            self._channel.connection.abort(error)
