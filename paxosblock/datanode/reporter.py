"""Tells every NameNode that this node lives, and what it holds.

Each NameNode has its own `_NameNodeLink`, so that one that is down or slow does not hold up the
others. One task of the link registers and sends heartbeats, another one reports: every replica,
page by page, and between the pages what changes, as it happens. A NameNode that has forgotten this
node asks for all of it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol, TypeVar

from paxosblock.api.datanode import ReplicaSummary
from paxosblock.api.methods import Method
from paxosblock.api.namenode import NO_BLOCK
from paxosblock.api.reports import (
    BLOCK_REPORT,
    HEARTBEAT,
    LAST_BLOCK,
    REGISTER,
    BlockRange,
    BlockReport,
    DeadReplica,
    Heartbeat,
    HeartbeatAnswer,
    Register,
    Registered,
    ReportAnswer,
    StorageReport,
    Timeline,
)
from paxosblock.base.jitter import JITTER
from paxosblock.config import DataNodeConfig
from paxosblock.datanode.block import Block
from paxosblock.datanode.own_keys import OwnKeys, OwnTokens
from paxosblock.errors import (
    ConfigError,
    InvalidRequestError,
    NotReadyError,
    PaxosBlockError,
)
from paxosblock.host.logs import facts
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.protocol.replica_state import hdfs_state
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, ReplicaState, StorageId

Q = TypeVar("Q")
A = TypeVar("A")

CALL_TIMEOUT_S: Final = 5.0
REPORT_TIMEOUT_S: Final = 60.0

GATHER_S: Final = 0.02
"""Seconds in which changes are gathered, to be reported together."""
HELD_MAX: Final = 1000
"""Blocks that are held until they are reported."""
REFUSES: Final = "NameNode refuses this DataNode"
_REFUSALS: Final = (InvalidRequestError, ConfigError)
SPREAD: Final = 0.1
"""The share of the pause between full reports that is random."""
LOOKED_AT_MAX: Final = 10_000
"""Blocks to look at for one page: most may be on another volume."""

_log = logging.getLogger(__name__)


class Holdings(Protocol):
    """The replicas to report (the acceptor and volumes of this node)."""

    def blocks(self) -> Iterable[Block]:
        """Return every block."""

    def behind(self, block: BlockId, storage: StorageId) -> Iterator[tuple[BlockId, Block | None]]:
        """Yield the greater ids than `block`, in order, until the next await; each with its block,
        if that is at `storage`."""

    def has_read(self, storage: StorageId) -> bool:
        """True if all that the start found at a storage was read, so that it can be reported."""

    @property
    def open_count(self) -> int:
        """Number of replicas that are being written."""

    def find(self, block: BlockId, storage: StorageId) -> Block | None:
        """Return the block if its replica is at `storage`."""

    async def storages(self) -> tuple[StorageReport, ...]:
        """Return the volumes and their room, without waiting for one that hangs."""

    @property
    def cluster(self) -> str:
        """The cluster that this node belongs to; "" before a NameNode named one."""

    async def enter(self, cluster: str) -> None:
        """Belong to `cluster`. Raises ConfigError if this node belongs to another one."""

    def timelines(self) -> tuple[Timeline, ...]:
        """Return the timelines of the volumes that ever had a snapshot."""

    async def be_taken_in(self) -> None:
        """Answer from now on: a NameNode knows the volumes in their timelines."""


def summarize(block: Block) -> ReplicaSummary | None:
    """Return a replica as it is reported; None if it is dead or gone."""
    state, replica = block.state(), block.replica
    if state is None or replica is None:
        return None
    last = replica.log[replica.length - 1] if replica.length else None
    return ReplicaSummary(block.volume.storage, state, hdfs_state(replica).value, last)


def reported(block: Block) -> ReplicaSummary | DeadReplica | None:
    """Return what block reports say about a block; None if nothing of it is here."""
    if not block.corrupt:
        return summarize(block)
    replica = block.replica
    promised = block.epoch if replica is None else replica.registers.max_generation
    return DeadReplica(block.id, promised, block.corrupt)


def _is_new(block: Block) -> bool:
    """True if a writer has made the replica, and nothing has been promised of it since."""
    if block.corrupt or block.replica is None:
        return False
    registers = block.replica.registers
    made = registers.state is ReplicaState.RBW and registers.max_generation == FIRST_GENERATION
    return made and not block.replica.restarted


class Reporter:
    """Reports to all NameNodes; the `ReplicaListener` of the blocks."""

    def __init__(
        self,
        node: str,
        namenodes: Sequence[str],
        holdings: Holdings,
        client: RpcClient,
        config: DataNodeConfig,
        *,
        keys: OwnKeys | None = None,
        tokens: OwnTokens | None = None,
    ) -> None:
        """Report from `start` on, under an incarnation that no other process has. `keys` and
        `tokens` learn what the NameNodes tell."""
        self.incarnation = uuid.uuid4().hex
        self._keys, self._tokens = keys, tokens
        self._sender = _Sender(
            node,
            self.incarnation,
            holdings,
            client,
            config,
            self._note_answer,
            self._follow,
            self._learn,
            lambda: 0 if tokens is None else tokens.at,
        )
        self._links = [_NameNodeLink(address, self._sender) for address in namenodes]
        self._listed_at = 0
        """The entry of the latest list of NameNodes that one of them told; 0: those that were named
        to this node, as their list has not changed since they began."""
        self._holdings = holdings
        self._refused = asyncio.Event()
        self._here = ""
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def namenodes(self) -> tuple[str, ...]:
        """Return the addresses of the NameNodes that it reports to."""
        return tuple(link.address for link in self._links)

    def start(self, address: str) -> None:
        """Begin to report; `address` is that of this node."""
        self._here = address
        for link in self._links:
            self._tasks[link.address] = asyncio.create_task(link.run(address))

    async def close(self) -> None:
        """Stop reporting."""
        tasks, self._tasks = self._tasks, {}
        ending = [*tasks.values(), *(link.asking for link in self._links if link.asking)]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def beat_soon(self) -> None:
        """Ask every NameNode now what a heartbeat would bring with its answer."""
        for link in self._links:
            link.beat_soon()

    def _learn(self, answer: Registered | HeartbeatAnswer) -> None:
        if self._keys is not None:
            self._keys.take(answer.keys)
        if self._tokens is not None:
            self._tokens.take(answer.tokens)

    def _follow(self, answer: HeartbeatAnswer) -> None:
        """Report to those NameNodes that are in the list, if it is a later one."""
        if answer.namenodes_at <= self._listed_at or not self._tasks:
            return
        self._listed_at = answer.namenodes_at
        known = {link.address for link in self._links}
        if known == {*answer.namenodes}:
            return
        _log.warning("NameNodes are others now", extra=facts(namenodes=answer.namenodes))
        for gone in known - {*answer.namenodes}:
            self._tasks.pop(gone).cancel()
        self._links = [link for link in self._links if link.address in answer.namenodes]
        for address in answer.namenodes:
            if address not in known:
                link = _NameNodeLink(address, self._sender)
                self._links.append(link)
                self._tasks[address] = asyncio.create_task(link.run(self._here))

    async def wait_refusal(self) -> ConfigError:
        """Return why this node has no cluster, once no NameNode accepts it and one refuses it.

        It belongs to another cluster, or works on a copy of its folders: waiting would not help.
        """
        await self._refused.wait()
        refusals = (f"{link.address}: {link.refusal}" for link in self._links if link.refusal)
        return ConfigError(f"{REFUSES}: {next(refusals)}")

    def _note_answer(self) -> bool:
        """Note that a link has an answer; return True if a NameNode accepts this process."""
        taken_in = any(link.taken_in for link in self._links)
        refused = any(link.refusal for link in self._links)
        if refused and not taken_in and all(link.asked for link in self._links):
            self._refused.set()
        return taken_in

    def replica_changed(self, block: BlockId, storage: StorageId) -> None:
        """A replica was made, finalized, deleted, or changed by a recovery."""
        found = self._holdings.find(block, storage)
        is_new = found is not None and _is_new(found)
        for link in self._links:
            if is_new:
                link.note_made(block, storage)
            else:
                link.note_changed(block, storage, found)

    def look_again(self) -> None:
        """Go on with the full reports: a storage was read."""
        for link in self._links:
            link.look_again()

    def replica_corrupt(self, block: BlockId, storage: StorageId, reason: str) -> None:
        """Report a replica as dead from now on."""
        self.replica_changed(block, storage)


@dataclass(frozen=True, slots=True)
class _Sender:
    """The parts that all links share."""

    node: str
    incarnation: str
    holdings: Holdings
    client: RpcClient
    config: DataNodeConfig
    on_answer: Callable[[], bool]
    """Called after each call, answered or not; True if any NameNode accepts this process."""
    on_list: Callable[[HeartbeatAnswer], None]
    """Called with what a NameNode says of the list of them."""
    on_keys: Callable[[Registered | HeartbeatAnswer], None]
    """Called with the keys that a NameNode tells."""
    tokens_at: Callable[[], int]
    """The number of what was told of tokens."""


class _NameNodeLink:
    """Everything that one NameNode was told and has yet to be told."""

    def __init__(self, address: str, sender: _Sender) -> None:
        self.address = address
        self.asked = False
        """Set once the NameNode answered, or did not answer in time."""
        self.taken_in = False
        """True if it accepted this process, and has not refused it since."""
        self.refusal: PaxosBlockError | None = None
        self._on_answer, self._on_list = sender.on_answer, sender.on_list
        self._on_keys, self._tokens_at = sender.on_keys, sender.tokens_at
        self._node = sender.node
        self._incarnation = sender.incarnation
        self._holdings = sender.holdings
        self._client = sender.client
        self._config = sender.config
        self._changed: dict[StorageId, dict[BlockId, Block | None]] = {}
        """Replicas to report. A block is held so that one at rest is not made again for that."""
        self._made: dict[BlockId, StorageId] = {}
        """Replicas that were made, and wait for the next heartbeat."""
        self._news = asyncio.Event()
        self._registered = asyncio.Event()
        self._storages: tuple[StorageReport, ...] = ()
        self._unreported: dict[StorageId, BlockId] = {}
        """Storages whose full report is under way, and the block after which it goes on."""
        self._next_full_s = 0.0
        self._number = 0
        self.asking: asyncio.Task[None] | None = None
        """A heartbeat out of turn."""
        self._answers = _OutageLog("NameNode answers", "NameNode does not answer")
        self._listens = _OutageLog("NameNode takes reports", "NameNode takes no reports")

    def note_changed(self, block: BlockId, storage: StorageId, found: Block | None) -> None:
        """Report this replica soon, which is that of the block `found`."""
        self._made.pop(block, None)
        changed = self._changed.setdefault(storage, {})
        changed[block] = found if len(changed) < HELD_MAX else None
        self._news.set()

    def note_made(self, block: BlockId, storage: StorageId) -> None:
        """Report this replica with the next heartbeat, unless it changes by then.

        No client or NameNode waits to hear of an empty replica, and that of a small file is
        finalized by then.
        """
        self._made[block] = storage

    def look_again(self) -> None:
        """Go on with a full report that waits for a storage to be read."""
        self._news.set()

    async def run(self, here: str) -> None:
        """Report for ever; after a failure try again in a heartbeat's time."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_beating(here))
            tasks.create_task(self._keep_reporting())

    # -- that this node lives -------------------------------------------------------------------

    async def _keep_beating(self, here: str) -> None:
        while True:
            try:
                if not self._registered.is_set() or not await self._beat():
                    await self._register(here)
                self._note_answer(None)
            except PaxosBlockError as error:
                self._note_answer(error)
            made, self._made = self._made, {}
            for block, storage in made.items():
                self.note_changed(block, storage, None)
            await asyncio.sleep(self._config.heartbeat_interval_s)

    def beat_soon(self) -> None:
        """Send a heartbeat now, unless the NameNode does not know this process yet."""
        if self._registered.is_set() and (self.asking is None or self.asking.done()):
            self.asking = asyncio.create_task(self._beat_out_of_turn())

    async def _beat_out_of_turn(self) -> None:
        with contextlib.suppress(PaxosBlockError):  # the next one tells of trouble
            await self._beat()

    def _note_answer(self, error: PaxosBlockError | None) -> None:
        self.asked = True
        if error is None:
            self.taken_in, self.refusal = True, None
        elif isinstance(error, _REFUSALS):
            self.taken_in, self.refusal = False, error
        # A node that no NameNode accepts ends, and its last line says so.
        if self._on_answer() or self.refusal is None:
            self._answers.note(self.address, error)

    async def _register(self, here: str) -> None:
        self._registered.clear()
        self._storages = await self._holdings.storages()
        cluster = self._holdings.cluster
        config = self._config
        request = Register(
            self._node,
            here,
            self._incarnation,
            self._storages,
            cluster,
            rack=config.rack,
            host=config.host,
            timelines=self._holdings.timelines(),
            heartbeat_s=config.heartbeat_interval_s,
        )
        answer = await self._call(REGISTER, request)
        self._on_keys(answer)
        if answer.cluster:
            await self._holdings.enter(answer.cluster)
        await self._holdings.be_taken_in()
        self._unreported.clear()
        self._changed.clear()  # the full report has it all
        self._made.clear()
        self._ask_for_all()
        self._registered.set()

    async def _beat(self) -> bool:
        """Send a heartbeat; return False if the NameNode does not know this process."""
        self._storages = await self._holdings.storages()
        beat = Heartbeat(
            self._node,
            self._incarnation,
            self._storages,
            self._holdings.open_count,
            self._tokens_at(),
        )
        answer = await self._call(HEARTBEAT, beat)
        self._on_list(answer)
        self._on_keys(answer)
        if answer.report:
            self._ask_for_all()
        return not answer.register

    def _ask_for_all(self) -> None:
        """Begin a full report, unless one is under way."""
        if not self._is_reporting:
            self._next_full_s = 0.0
            self._news.set()

    # -- what it holds --------------------------------------------------------------------------

    @property
    def _is_reporting(self) -> bool:
        """True while a full report is under way, or waits for a storage that answers to be read."""
        failed = {each.storage for each in self._storages if each.failed}
        return not failed.issuperset(self._unreported)

    async def _keep_reporting(self) -> None:
        while True:
            await self._registered.wait()
            try:
                await self._report_next()
                self._listens.note(self.address, None)
            except NotReadyError:
                self._registered.clear()  # the next heartbeat registers again
            except PaxosBlockError as error:
                self._listens.note(self.address, error)
                await asyncio.sleep(self._config.heartbeat_interval_s)

    async def _report_next(self) -> None:
        """Send changes first, for a NameNode may wait for them; then a page of a full report."""
        now_s = asyncio.get_running_loop().time()
        await self._report_news()
        if not self._is_reporting and now_s >= self._next_full_s:
            sound = (each.storage for each in self._storages if not each.failed)
            self._unreported = dict.fromkeys(sound, NO_BLOCK)
            self._next_full_s = now_s + _spread(self._config.block_report_interval_s)
        # A page says what is not there, too: nothing is said of a storage that is not read yet.
        storage = next(filter(self._holdings.has_read, self._unreported), None)
        if storage is not None:
            await self._report_page(storage, self._unreported[storage])
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._next_full_s):
                await self._news.wait()
        await asyncio.sleep(GATHER_S)

    async def _report_page(self, storage: StorageId, after: BlockId) -> None:
        """Report a page of a storage's replicas, and note where the NameNode wants the next one.

        A change to a replica in a page that was written already is noted, and follows.
        """
        summaries: list[ReplicaSummary | DeadReplica] = []
        behind, last = self._holdings.behind(after, storage), after
        for each, block in islice(behind, LOOKED_AT_MAX):
            last = each
            if block is not None and (summary := reported(block)) is not None:
                summaries.append(summary)
                if len(summaries) == self._config.block_report_page:
                    break
        if next(behind, None) is None:
            last = LAST_BLOCK
        answer = await self._report(storage, summaries, covers=BlockRange(after, last))
        again_s = asyncio.get_running_loop().time() + _spread(answer.again_after_s)
        self._next_full_s = max(self._next_full_s, again_s)
        if storage not in self._unreported:
            return  # a new report has begun, for a NameNode that forgot this node
        after = last if answer.up_to == LAST_BLOCK else answer.up_to
        self._unreported[storage] = after
        if after == LAST_BLOCK:
            del self._unreported[storage]

    async def _report_news(self) -> None:
        self._news.clear()
        for storage, changed in tuple(self._changed.items()):
            # Taken out first: a change during the call is noted again.
            ids = islice(changed, self._config.block_report_page)
            taken = {block: changed[block] for block in ids}
            for block in taken:
                del changed[block]
            try:
                if taken:
                    await self._report_changed(storage, list(taken))
            except PaxosBlockError:
                changed.update(taken)
                raise
            if changed:
                self._news.set()

    async def _report_changed(self, storage: StorageId, ids: list[BlockId]) -> None:
        summaries: list[ReplicaSummary | DeadReplica] = []
        deleted = []
        for block_id in ids:
            block = self._holdings.find(block_id, storage)
            summary = reported(block) if block is not None else None
            if summary is not None:
                summaries.append(summary)
            else:
                deleted.append(block_id)
        await self._report(storage, summaries, deleted=tuple(deleted))

    async def _report(
        self,
        storage: StorageId,
        summaries: list[ReplicaSummary | DeadReplica],
        *,
        covers: BlockRange | None = None,
        deleted: tuple[BlockId, ...] = (),
    ) -> ReportAnswer:
        """Send a page that was just written: nothing may be awaited between the two."""
        self._number += 1
        report = BlockReport(
            node=self._node,
            incarnation=self._incarnation,
            storage=storage,
            number=self._number,
            covers=covers,
            replicas=tuple(each for each in summaries if isinstance(each, ReplicaSummary)),
            deleted=deleted,
            dead=tuple(each for each in summaries if isinstance(each, DeadReplica)),
        )
        return await self._call(BLOCK_REPORT, report, REPORT_TIMEOUT_S)

    async def _call(self, method: Method[Q, A], request: Q, timeout_s: float = CALL_TIMEOUT_S) -> A:
        return await self._client.call(self.address, method.name, request, method.answer, timeout_s)


def _spread(pause_s: float) -> float:
    """Shorten a pause a little, so that nodes that began together report at different times."""
    return pause_s * JITTER.uniform(1 - SPREAD, 1)


class _OutageLog:
    """Logs one line when something begins to fail or works again, not one for every attempt."""

    def __init__(self, well: str, ill: str) -> None:
        self._well = well
        self._ill = ill
        self._said = well

    def note(self, address: str, error: PaxosBlockError | None) -> None:
        """Note an attempt that succeeded or failed."""
        refused = isinstance(error, _REFUSALS)
        words = self._well if error is None else REFUSES if refused else self._ill
        if words != self._said:
            self._said = words
            level = logging.ERROR if refused else logging.WARNING
            level = level if error is not None else logging.INFO
            _log.log(level, words, extra=facts(address=address, reason=error))
