"""Puts the parts of one NameNode together, and so shows which part needs which."""

from __future__ import annotations

import random
import secrets
import uuid
from collections.abc import Callable

from paxosblock.api.capability import BlockKey
from paxosblock.api.file_pages import PAGE_BLOCKS
from paxosblock.config import NameNodeConfig
from paxosblock.host.user import claimed_user
from paxosblock.namenode.alarms import Alarms
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.acceptors import Acceptors, RpcAcceptors
from paxosblock.namenode.blocks.block_reports import Reports
from paxosblock.namenode.blocks.block_views import BlockViews
from paxosblock.namenode.blocks.cutter import Cutter
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.finalizer import Finalizer
from paxosblock.namenode.blocks.history import History
from paxosblock.namenode.blocks.learner import Learner
from paxosblock.namenode.blocks.leftovers import Leftovers
from paxosblock.namenode.blocks.rebuilder import Rebuilder
from paxosblock.namenode.blocks.recoverer import TURN_S as RECOVERIES_S
from paxosblock.namenode.blocks.recoverer import Recoverer
from paxosblock.namenode.blocks.registrar import Registrar
from paxosblock.namenode.blocks.reopener import Reopener, Targets
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.blocks.replication import balancer, safe_mode
from paxosblock.namenode.blocks.replication.balancer import Balancer
from paxosblock.namenode.blocks.replication.copies import Copies, CopyLimits
from paxosblock.namenode.blocks.replication.leaving_nodes import LeavingNodes
from paxosblock.namenode.blocks.replication.monitor import Monitor
from paxosblock.namenode.blocks.replication.need_assessor import NeedAssessor
from paxosblock.namenode.blocks.replication.reducer import Reducer
from paxosblock.namenode.blocks.replication.safe_mode import SafeMode
from paxosblock.namenode.blocks.replication.storage_states import Patience
from paxosblock.namenode.blocks.runner import Runner
from paxosblock.namenode.blocks.signer import Signer
from paxosblock.namenode.blocks.survey import Surveyor
from paxosblock.namenode.catalog.catalog import Catalog, wall_clock_ms
from paxosblock.namenode.catalog.ids import TAG_BITS
from paxosblock.namenode.catalog.records import FileInode
from paxosblock.namenode.change_feed import ChangeFeed
from paxosblock.namenode.closer import Closer
from paxosblock.namenode.counting import RecentCounts
from paxosblock.namenode.housekeeper import Housekeeper
from paxosblock.namenode.kv.interface import KeyValueStore
from paxosblock.namenode.leadership import Leadership
from paxosblock.namenode.leases import Leases
from paxosblock.namenode.moments import Moments
from paxosblock.namenode.table_scrubber import TableScrubber
from paxosblock.namenode.token_desk import TokenDesk
from paxosblock.namenode.users import Users
from paxosblock.namenode.zone_keys import TURN_S as ZONE_KEYS_S
from paxosblock.namenode.zone_keys import ZoneKeys
from paxosblock.net.calls.rpc import RpcClient

WARM_UP_HEARTBEATS = 2
"""DataNodes need this long after a start to notice and to register."""


class NameNode:
    """One NameNode on a started store, without the network (`namenode_server.py`)."""

    def __init__(
        self,
        name: str,
        config: NameNodeConfig,
        store: KeyValueStore,
        clock_s: Callable[[], float],
        acceptors: Callable[[DataNodes], Acceptors],
        *,
        listed: Callable[[], tuple[tuple[str, ...], int]] = lambda: ((), 0),
    ) -> None:
        """`clock_s` must not go back; `acceptors` gives access to the DataNodes passed to it;
        `listed` tells the NameNodes by address, and the entry of the log that says so."""
        self.store, self.listed, self.page_blocks = store, listed, PAGE_BLOCKS
        self.name, self.config, self.clock_s = name, config, clock_s
        self._started_s, self.background = clock_s(), Background()
        self.table_scrubber, self._in_any_role = TableScrubber(store), Background()
        self.alarms, self.history, self.moments = Alarms(), History(wall_clock_ms), Moments()
        self.users = Users(claimed_user(), config, clock_s)
        self.catalog, self.feed = self._make_catalog(), ChangeFeed(store)
        self.counts = RecentCounts(self.catalog, self.background, clock_s)
        self.tokens, self.zone_keys = TokenDesk(self.catalog), ZoneKeys(config, self.catalog.zone)
        self.leases = Leases(config.lease_soft_limit_s, config.lease_hard_limit_s)
        self.block_leases = Leases(config.lease_soft_limit_s, config.lease_hard_limit_s)
        self.replicas = Replicas(config.min_replication)
        self.safe_mode = SafeMode(
            config.safe_mode_threshold,
            config.safe_mode_extension_s,
            by_hand=lambda: self.catalog.in_safe_mode,
        )
        self.datanodes = DataNodes(
            config.datanode_stale_after_s, config.datanode_dead_after_s, dict(config.racks)
        )
        self.assessor = self._make_assessor()
        self.signer = self.datanodes.signer = self._make_signer()
        reach = acceptors(self.datanodes)
        self.registrar = Registrar(self.catalog, self.datanodes, reach, clock_s)
        self.finalizer = self._make_finalizer(reach)
        self.runner = Runner(
            reach,
            self.history,
            self.background,
            timeout_s=config.recovery_timeout_s,
            find=self.catalog.get_block,
        )
        self.recoverer = self._make_recoverer()
        self.views = self._make_views()
        self.rebuilder = self._make_rebuilder()
        self.reopener = self._make_reopener()
        self.learner = self._make_learner()
        self.cutter = Cutter(self.catalog, reach, self.finalizer, self.history)
        self.copies = self._make_copies(reach)
        self.reducer = self._make_reducer()
        self.monitor = self._make_monitor()
        self.balancer = self._make_balancer()
        self.surveyor = Surveyor(self.recoverer, self.datanodes, clock_s)
        self.closer = self._make_closer()
        self.leadership = Leadership(name, store, self._begin, self._end)
        self.reports = self._make_reports()
        self.leaving = self._make_leaving()
        self.housekeeper = self._make_housekeeper()

    @property
    def failure(self) -> str:
        """Return why the node no longer works; "" while it does."""
        failure = self.store.failure()
        return "" if failure is None else str(failure)

    @property
    def trouble(self) -> str:
        """Return why the node cannot do all that it should, for now or for good; "" if it can."""
        trouble = self.store.impaired()
        return self.failure or ("" if trouble is None else str(trouble))

    @property
    def warming_up(self) -> bool:
        """True if live DataNodes may still be unknown, because this process just started."""
        warm_up_s = WARM_UP_HEARTBEATS * self.config.heartbeat_interval_s
        return self.clock_s() - self._started_s < warm_up_s

    def is_held(self, file: FileInode) -> bool:
        """True if the writer of an open file still renews its lease."""
        return self.leases.is_live(file.writer, self.clock_s())

    def keys_for(self, datanode: str) -> tuple[BlockKey, ...]:
        """Return the keys by which a DataNode knows what was signed for it; none if nothing is."""
        return () if self.signer is None else self.signer.keys_for(datanode)

    async def start(self) -> None:
        """Serve whenever this NameNode leads; one that is alone serves when this returns."""
        self._in_any_role.repeat("table scrubber", self.table_scrubber.run, 0)
        if self.zone_keys.is_set:
            await self.zone_keys.refresh()
            self._in_any_role.repeat("master key", self.zone_keys.turn, ZONE_KEYS_S)
        await self.leadership.start()

    def look_at_file(self, number: int) -> None:
        """Let the monitor look at the blocks of a file soon."""

        async def look_at_blocks() -> None:
            async for page in self.catalog.block_pages(number):
                for entry in page:
                    self.monitor.look_at(entry.record.block)

        self.background.start(look_at_blocks(), f"look at file {number}")

    async def take_admin_states(self) -> None:
        """Learn from the catalog which DataNodes are to leave."""
        records = await self.catalog.node_records()
        self.datanodes.admin.take(records, self.clock_s(), self.catalog.now_ms())

    async def close(self) -> None:
        """End all work; the next start, or the next leader, takes it up."""
        await self.feed.close()
        await self._in_any_role.close()
        await self.leadership.close()

    async def _begin(self) -> None:
        """Learn the cluster, give open files and blocks fresh leases, and begin to keep house.

        DataNodes reported their blocks to this NameNode while it followed, but it only noted them.
        It asks for the reports once more, to act on them.
        """
        await self.catalog.start(secrets.randbelow((1 << TAG_BITS) - 1) + 1, str(uuid.uuid4()))
        files, without_file = await self.catalog.open_files(), await self.catalog.open_blocks()
        self.leases.restore(files, self.clock_s())
        self.block_leases.restore((), self.clock_s())
        for record in without_file:
            self.block_leases.open(record.writer, record.block, self.clock_s())
        if self.signer is not None:
            await self.signer.turn()
            self.background.repeat("block keys", self.signer.turn, self.signer.turn_s)
        await self.take_admin_states()
        await self.registrar.begin()
        self.finalizer.begin()
        self.datanodes.ask_for_reports()
        self.safe_mode.begin()
        await self._look_at_reports()
        self.background.repeat("safe mode", self._look_at_reports, self.config.heartbeat_interval_s)
        self.housekeeper.start(self.config.heartbeat_interval_s)
        self.leaving.changed()
        self.background.repeat("nodes that leave", self.leaving.turn, 0)
        self.monitor.start()
        leftovers = Leftovers(self.catalog, self.recoverer, self.reopener)
        self.background.start(leftovers.take_up(files, without_file), "leftovers")
        self.background.repeat("recoveries that gave up", self.recoverer.turn, RECOVERIES_S)
        self.background.repeat(
            "what became of a backup", self.learner.turn, self.config.heartbeat_interval_s
        )
        self.background.repeat("balancer", self.balancer.turn, balancer.TURN_S)

    async def _end(self) -> None:
        """End the work that only a leader does."""
        self.registrar.end()
        await self.background.close()
        self.moments.clear()
        self.monitor.clear()
        self.balancer.clear()
        self.recoverer.clear()
        self.learner.clear()

    async def _look_at_reports(self) -> None:
        """Let safe mode end once enough blocks are reported."""
        await safe_mode.note_progress(self.safe_mode, self.catalog, self.replicas, self.clock_s)
        if not self.safe_mode.holds:
            self.reports.resume()

    def _make_catalog(self) -> Catalog:
        return Catalog(
            self.store,
            self.is_held,
            superuser=self.users.superuser,
            supergroup=self.config.supergroup,
        )

    def _make_finalizer(self, reach: Acceptors) -> Finalizer:
        return Finalizer(
            catalog=self.catalog,
            acceptors=reach,
            datanodes=self.datanodes,
            replicas=self.replicas,
            history=self.history,
            alarms=self.alarms,
            background=self.background,
            told=lambda block: self.monitor.look_if_short(block),  # noqa: PLW0108 - made later
        )

    def _make_recoverer(self) -> Recoverer:
        return Recoverer(
            self.catalog,
            self.runner,
            self.history,
            self.background,
            timeout_s=self.config.recovery_timeout_s,
            finalized=self.finalizer.spread,
            lives=lambda storage: self.datanodes.lives(storage, self.clock_s()),
            jitter=random.Random(),
        )

    def _make_signer(self) -> Signer | None:
        config = self.config
        return Signer(self.catalog, config.block_key_interval_s) if config.block_tokens else None

    def _make_views(self) -> BlockViews:
        return BlockViews(
            self.datanodes,
            self.replicas,
            self.config.min_replication,
            self.clock_s,
            trouble=self.recoverer.trouble,
            key_of=self.zone_keys.of_block,
        )

    def _make_learner(self) -> Learner:
        return Learner(
            catalog=self.catalog,
            runner=self.runner,
            datanodes=self.datanodes,
            replicas=self.replicas,
            finalizer=self.finalizer,
            history=self.history,
            alarms=self.alarms,
            waits=lambda: self.safe_mode.waits,
            patient=lambda: self.catalog.in_safe_mode,
            timeout_s=self.config.recovery_timeout_s,
            clock_s=self.clock_s,
        )

    def _make_rebuilder(self) -> Rebuilder:
        return Rebuilder(
            self.catalog,
            self.runner,
            self.datanodes,
            self.history,
            self.background,
            timeout_s=self.config.recovery_timeout_s,
            jitter=random.Random(),
        )

    def _make_reopener(self) -> Reopener:
        return Reopener(
            catalog=self.catalog,
            runner=self.runner,
            finalizer=self.finalizer,
            history=self.history,
            background=self.background,
            targets=Targets(
                self.datanodes,
                self.replicas,
                self.config.min_replication,
                holds=lambda: self.safe_mode.holds,
                is_copied=lambda block: block in self.copies,
            ),
        )

    def _make_copies(self, reach: Acceptors) -> Copies:
        return Copies(
            catalog=self.catalog,
            datanodes=self.datanodes,
            replicas=self.replicas,
            finalizer=self.finalizer,
            acceptors=reach,
            history=self.history,
            background=self.background,
            limits=CopyLimits(self.config.copies_per_source, self.config.copies_per_target),
            ended=lambda block: self.monitor.look_at(block),  # noqa: PLW0108 - made later
            clock_s=self.clock_s,
        )

    def _make_monitor(self) -> Monitor:
        config = self.config
        return Monitor(
            catalog=self.catalog,
            datanodes=self.datanodes,
            replicas=self.replicas,
            finalizer=self.finalizer,
            copies=self.copies,
            alarms=self.alarms,
            background=self.background,
            holds=lambda: self.safe_mode.holds,
            assessor=self.assessor,
            looked=self.reducer.reduce,
            interval_s=config.heartbeat_interval_s,
            clock_s=self.clock_s,
        )

    def _make_reducer(self) -> Reducer:
        return Reducer(
            catalog=self.catalog,
            replicas=self.replicas,
            finalizer=self.finalizer,
            history=self.history,
            background=self.background,
            fullness=self.datanodes.fullness,
            holds=lambda: self.safe_mode.holds,
        )

    def _make_balancer(self) -> Balancer:
        return Balancer(
            catalog=self.catalog,
            datanodes=self.datanodes,
            replicas=self.replicas,
            copies=self.copies,
            reducer=self.reducer,
            holds=lambda: self.safe_mode.holds,
            is_behind=lambda: self.monitor.is_behind,
            bandwidth_bytes_per_s=self.config.balance_bandwidth_bytes_per_s,
            heartbeat_s=self.config.heartbeat_interval_s,
            clock_s=self.clock_s,
        )

    def _make_assessor(self) -> NeedAssessor:
        config = self.config
        return NeedAssessor(
            self.datanodes,
            self.replicas,
            Patience(config.replicate_after_s, config.datanode_dead_after_s, self._started_s),
            config.min_replication,
            self.clock_s,
        )

    def _make_reports(self) -> Reports:
        return Reports(
            catalog=self.catalog,
            datanodes=self.datanodes,
            replicas=self.replicas,
            finalizer=self.finalizer,
            alarms=self.alarms,
            judges=lambda: self.leadership.serves,
            holds=lambda: self.safe_mode.holds,
            copied=self.monitor.take_finished,
            taken=self.balancer.note_report,
        )

    def _make_leaving(self) -> LeavingNodes:
        return LeavingNodes(
            catalog=self.catalog,
            datanodes=self.datanodes,
            assessor=self.assessor,
            min_replication=self.config.min_replication,
            clock_s=self.clock_s,
        )

    def _make_closer(self) -> Closer:
        return Closer(
            catalog=self.catalog,
            leases=self.leases,
            recoverer=self.recoverer,
            finalizer=self.finalizer,
            replicas=self.replicas,
            background=self.background,
            min_replication=self.config.min_replication,
            wait_s=self.config.recovery_timeout_s,
        )

    def _make_housekeeper(self) -> Housekeeper:
        return Housekeeper(
            catalog=self.catalog,
            leases=self.leases,
            block_leases=self.block_leases,
            recoverer=self.recoverer,
            datanodes=self.datanodes,
            closer=self.closer,
            finalizer=self.finalizer,
            background=self.background,
            clock_s=self.clock_s,
            votes_kept_s=self.config.votes_kept_s,
            history_s=self.config.history_s,
        )


def over_rpc(client: RpcClient, timeout_s: float) -> Callable[[DataNodes], Acceptors]:
    """Reach DataNodes through control calls; each waits at most `timeout_s`."""
    return lambda datanodes: RpcAcceptors(client, datanodes, timeout_s)
