"""A DataNode put together: volumes, acceptor, reader, reporter, scrubbers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from paxosblock.api.datanode import (
    Answer,
    Answers,
    AskProcess,
    Envelope,
    Envelopes,
    FindChunk,
    FindReplica,
    FoundChunk,
    ListReplicas,
    Process,
    ReplicaList,
)
from paxosblock.api.insight import (
    ChangedSetting,
    DataNodeStatus,
    DataNodeStatusRequest,
    NodeSettings,
    ShowSettings,
    VolumeStatus,
)
from paxosblock.api.reports import StorageReport, Timeline
from paxosblock.config import DataNodeConfig, changed_settings
from paxosblock.datanode.acceptor import Acceptor
from paxosblock.datanode.block import Block
from paxosblock.datanode.counters import CopiedBytes, DataNodeCounters
from paxosblock.datanode.lender import Lender
from paxosblock.datanode.own_keys import OwnKeys, OwnTokens
from paxosblock.datanode.replica_reads import Reader
from paxosblock.datanode.reporter import Reporter, summarize
from paxosblock.datanode.scrubber import Scrubber
from paxosblock.datanode.served_stream import ServedStream
from paxosblock.datanode.store.disk_format import SHIPPED, SmallLimits
from paxosblock.datanode.store.identity import read_identity
from paxosblock.datanode.stream_rights import StreamRights, admit_call
from paxosblock.datanode.transfer import Transfer
from paxosblock.datanode.volumes.disk_probe import DiskProbe
from paxosblock.datanode.volumes.first_reads import read_all
from paxosblock.datanode.volumes.hung_disk import LostVolume
from paxosblock.datanode.volumes.remover import Remover
from paxosblock.datanode.volumes.throttle import Throttle
from paxosblock.datanode.volumes.volume import Volume, open_volume
from paxosblock.datanode.volumes.volume_snapshot import refuse_half_rolled_back
from paxosblock.errors import (
    ConfigError,
    CorruptionError,
    NotFoundError,
    PaxosBlockError,
    StorageError,
)
from paxosblock.host.disk import OF_A_NAMENODE, Disk, is_broken
from paxosblock.host.logs import facts
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.caller import CALLER
from paxosblock.net.port.node_roles import UNPROVEN, Roles
from paxosblock.protocol.read import holds
from paxosblock.protocol.types import BlockId, StorageId

_log = logging.getLogger(__name__)


class DataNode:
    """One node; call `load` before it answers anything, `start` when it can be reached."""

    def __init__(
        self,
        node: str,
        opened: tuple[Sequence[Volume], Sequence[LostVolume]],
        namenodes: Sequence[str],
        client: RpcClient,
        config: DataNodeConfig,
        *,
        roles: Roles = UNPROVEN,
    ) -> None:
        """Use `open_volumes` for `opened`. Closes the volumes, not `client`. `roles` tells which
        callers are nodes."""
        self.name, self.roles = node, roles
        self._config = config
        volumes, self._lost = opened
        self.volumes = tuple(volumes)
        self._entering = asyncio.Lock()
        self._hung_after_s = config.volume_hung_after_s
        kept, hung_s = config.reserved_space_bytes, self._hung_after_s
        self._looks = tuple(
            DiskProbe(volume, reserved_bytes=kept, hung_after_s=hung_s) for volume in self.volumes
        )
        self.keys = OwnKeys(self._ask_for_keys) if config.block_tokens else None
        self.tokens = OwnTokens(self._ask_for_keys)
        self._reporter = Reporter(
            node, namenodes, self, client, config, keys=self.keys, tokens=self.tokens
        )
        self._transfer = Transfer(
            pace=Throttle(config.copy_bandwidth_bytes_per_s, self._serves_clients),
            reserved_bytes=kept,
            access=client.access,
        )
        self.acceptor = Acceptor(self.volumes, self._transfer, self._reporter, reserved_bytes=kept)
        self.reader = Reader(
            self.acceptor,
            max_read_bytes=config.max_read_bytes,
            copies=Throttle(config.copy_bandwidth_bytes_per_s, self._serves_clients),
        )
        self.lender = Lender(self.acceptor)
        self.counters = DataNodeCounters(
            self.acceptor,
            self.volumes,
            rooms=lambda: (look.last for look in self._looks if look.last is not None),
            copied=lambda: CopiedBytes(self._transfer.copied_bytes, self.reader.copied_bytes),
            left_out=len(self._lost),
        )
        self._scrubbers = tuple(
            Scrubber(
                volume,
                self.acceptor,
                period_s=config.scrub_period_s,
                bytes_per_s=config.scrub_bandwidth_bytes_per_s,
            )
            for volume in self.volumes
            if config.scrub_period_s
        )
        self._removers = tuple(
            Remover(volume, config.delete_bandwidth_bytes_per_s) for volume in self.volumes
        )
        self._upkeep: list[asyncio.Task[None]] = []

    def _ask_for_keys(self) -> None:
        self._reporter.beat_soon()

    def _serves_clients(self) -> bool:
        return any(volume.serves_clients for volume in self.volumes)

    async def load(self) -> None:
        """Find every replica, and load those that may have to be mended; `start` lets the others be
        read."""
        await self.acceptor.load(self._hung_after_s)
        _log.info("replicas found", extra=facts(blocks=self.acceptor.count))

    def start(self, address: str) -> None:
        """Begin to read what is unread, to scrub, to remove, and to report to the NameNodes that
        this is at `address`."""
        self._reporter.start(address)
        reads = [self._read_all(volume) for volume in self.volumes]
        scrubs = [scrubber.run() for scrubber in self._scrubbers]
        removals = [remover.run() for remover in self._removers]
        self._upkeep = [asyncio.create_task(work) for work in (*reads, *scrubs, *removals)]

    async def _read_all(self, volume: Volume) -> None:
        await read_all(volume)
        self._reporter.look_again()

    async def close(self) -> None:
        """Stop lending, scrubbing and reporting, let steps under way end, release the volumes."""
        if self.lender.door is not None:
            self.lender.door.close()
            self.lender.door = None
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        await self._reporter.close()
        await self.acceptor.close()
        await self._transfer.close()
        for look in self._looks:
            look.close()
        await asyncio.gather(*(asyncio.to_thread(volume.close) for volume in self.volumes))

    def busy(self) -> str:
        """Return the folders of the volumes with a step under way; "" if there are none."""
        each = zip(self.volumes, self._looks, strict=True)
        return ", ".join(
            str(volume.folder) for volume, look in each if volume.working or look.under_way
        )

    @property
    def failure(self) -> str:
        """Return the error of a node whose volumes have all failed; "" while one works."""
        if all(volume.failed for volume in self.volumes):
            return "no volume is left: " + "; ".join(volume.failed for volume in self.volumes)
        return ""

    @property
    def volume_states(self) -> dict[str, str]:
        """Return for each volume "ok" or why it is not used. One that never opened is named by its
        folder."""
        lost = {str(each.folder): each.reason for each in self._lost}
        return {each.storage: each.failed or each.hung or "ok" for each in self.volumes} | lost

    async def wait_failure(self) -> PaxosBlockError:
        """Return the error that ends this node, once every volume has failed or no NameNode accepts
        it.
        """
        failed = asyncio.create_task(self._wait_volumes())
        refused = asyncio.create_task(self._reporter.wait_refusal())
        try:
            await asyncio.wait((failed, refused), return_when=asyncio.FIRST_COMPLETED)
            return refused.result() if refused.done() else StorageError(self.failure)
        finally:
            failed.cancel()
            refused.cancel()

    async def _wait_volumes(self) -> None:
        for volume in self.volumes:
            await volume.over.wait()

    @property
    def cluster(self) -> str:
        """The cluster it belongs to; "" before it was ever registered."""
        return next(filter(None, (volume.identity.cluster for volume in self.volumes)), "")

    async def enter(self, cluster: str) -> None:
        """Belong to `cluster`, which a NameNode named: every volume keeps that for ever.

        Raises:
            ConfigError: this node belongs to another one already.
            NoSpaceError: a volume cannot keep it for lack of room.
        """
        async with self._entering:
            if self.cluster and cluster != self.cluster:
                raise ConfigError(
                    f"its cluster is {cluster}, but this DataNode is of cluster {self.cluster}"
                )
            for volume in self.volumes:
                with contextlib.suppress(StorageError):  # only this volume is lost
                    await volume.enter(cluster)

    def timelines(self) -> tuple[Timeline, ...]:
        """Return the timelines of the volumes that ever had a snapshot, for a NameNode; of one that
        failed none is needed, and it can note no more that it was taken in."""
        identities = (volume.identity for volume in self.volumes if not volume.failed)
        return tuple(
            Timeline(each.storage, each.timeline, each.before)
            for each in identities
            if each.timeline or each.before
        )

    async def be_taken_in(self) -> None:
        """Answer from now on: a NameNode knows the volumes in their timelines.

        Raises:
            NoSpaceError: a volume cannot keep that for lack of room.
        """
        async with self._entering:
            for volume in self.volumes:
                with contextlib.suppress(StorageError):  # only this volume is lost
                    await volume.be_taken_in()

    # -- what it holds --------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        """Return every block."""
        return self.acceptor.blocks()

    def behind(self, block: BlockId, storage: StorageId) -> Iterator[tuple[BlockId, Block | None]]:
        """Yield the greater ids than `block`, in order, until the next await; each with its block,
        if that is at `storage`."""
        return self.acceptor.behind(block, storage)

    def has_read(self, storage: StorageId) -> bool:
        """True if all that the start found at a storage was read, so that it can be reported."""
        (volume,) = (each for each in self.volumes if each.storage == storage)
        return volume.all_read.is_set() and not volume.failed

    @property
    def open_count(self) -> int:
        """Number of replicas that are being written."""
        return self.acceptor.open_count

    def find(self, block: BlockId, storage: StorageId) -> Block | None:
        """Return the block if its replica is at `storage`."""
        return self.acceptor.find(block, storage)

    async def storages(self) -> tuple[StorageReport, ...]:
        """Return the volumes and their room, without waiting for one that hangs."""
        reports = await asyncio.gather(*(look.report() for look in self._looks))
        return (*reports, *(lost.report(self.name) for lost in self._lost))

    # -- control calls and streams --------------------------------------------------------------

    async def accept(self, envelope: Envelope) -> Answer:
        """`ACCEPT`: one protocol message."""
        self.acceptor.check_inside()
        await admit_call(self.keys, envelope)
        return await self.acceptor.take(envelope)

    async def accept_all(self, envelopes: Envelopes) -> Answers:
        """`ACCEPT_ALL`: several protocol messages."""
        self.acceptor.check_inside()
        await admit_call(self.keys, *envelopes.each)
        return Answers(await self.acceptor.take_all(envelopes.each))

    async def list_replicas(self, _: ListReplicas) -> ReplicaList:
        """`LIST_REPLICAS`: everything this node holds, once all was read."""
        for volume in self.volumes:
            await volume.all_read.wait()
        summaries = map(summarize, self.blocks())
        return ReplicaList(self.name, tuple(found for found in summaries if found is not None))

    async def find_replica(self, wanted: FindReplica) -> ReplicaList:
        """`FIND_REPLICA`: what one storage holds of one block, if it does."""
        await admit_call(self.keys, wanted)
        await self.acceptor.ready(wanted.block)
        block = self.find(wanted.block, wanted.storage)
        summary = None if block is None else summarize(block)
        return ReplicaList(self.name, () if summary is None else (summary,))

    async def find_chunk(self, wanted: FindChunk) -> FoundChunk:
        """`FIND_CHUNK`: where the chunk with a byte of a finalized version begins.

        Raises:
            NotFoundError: it does not hold that version.
        """
        self.acceptor.check_inside()
        await admit_call(self.keys, wanted)
        await self.acceptor.ready(wanted.block)
        block = self.find(wanted.block, wanted.storage)
        state = None if block is None else block.state()
        if block is None or state is None or not holds(wanted.version, state):
            text = f"storage {wanted.storage}: does not hold this version of block {wanted.block}"
            raise NotFoundError(text, block=wanted.block)
        assert block.replica is not None, "it has a state"
        log = block.replica.log.truncate(wanted.version.length)
        index = log.index_at(wanted.offset, wanted.added_bytes)
        return FoundChunk(index, log.start_of(index), log.size_bytes)

    async def status(self, _: DataNodeStatusRequest) -> DataNodeStatus:
        """`DATANODE_STATUS`: the volumes and streams of this node, for people."""
        copied = CopiedBytes(self._transfer.copied_bytes, self.reader.copied_bytes)
        each = zip(self.volumes, self._looks, strict=True)
        return DataNodeStatus(
            node=self.name,
            cluster=self.cluster,
            failure=self.failure,
            volumes=(
                *(_volume_status(volume, look.last) for volume, look in each),
                *(
                    VolumeStatus(StorageId(""), str(lost.folder), lost.reason)
                    for lost in self._lost
                ),
            ),
            namenodes=self._reporter.namenodes,
            streams=self.counters.streams,
            blocks=self.acceptor.count,
            open_blocks=self.open_count,
            votes=self.counters.votes,
            copied_in_bytes=copied.received,
            copied_out_bytes=copied.sent,
        )

    async def settings(self, _: ShowSettings) -> NodeSettings:
        """`SHOW_SETTINGS`: those that differ from the default."""
        changed = (ChangedSetting(*each) for each in changed_settings(self._config))
        return NodeSettings(self._config.section, tuple(changed))

    async def process(self, _: AskProcess) -> Process:
        """`PROCESS`: tell a NameNode which process answers here, when another process of this name
        asks it for its place."""
        return Process(self.name, self._reporter.incarnation)

    def new_stream(self) -> ServedStream:
        """Return the handler of a new data stream, that of the present caller."""
        rights = None if self.keys is None else StreamRights(self.keys, self.acceptor.is_open)
        caller = CALLER.get()
        allow = None if caller.token is None else partial(self.tokens.allow, caller.token)
        check_role = partial(self.roles.check, caller)
        return ServedStream(
            self.acceptor,
            self.reader,
            self.counters,
            rights,
            lender=self.lender,
            check_role=check_role,
            check_token=allow,
        )


def _volume_status(volume: Volume, room: StorageReport | None) -> VolumeStatus:
    scrubbed = volume.scrubbed
    return VolumeStatus(
        storage=volume.storage,
        folder=str(volume.folder),
        state=volume.failed or volume.hung or "ok",
        capacity_bytes=room.capacity_bytes if room else 0,
        used_bytes=room.used_bytes if room else 0,
        free_bytes=room.free_bytes if room else 0,
        deleted_bytes=room.deleted_bytes if room else 0,
        scrubbed_ms=scrubbed.whole_ms,
        scrub_ends_ms=scrubbed.ends_ms,
        scrubbed_bytes=scrubbed.read_bytes,
        damaged=scrubbed.damaged,
        all_read=volume.all_read.is_set(),
    )


def check_volumes(disk: Disk, folders: Iterable[Path]) -> None:
    """Look at all folders of a node before anything is written into one of them.

    Raises:
        ConfigError: one is the folder of a NameNode, a later version wrote its identity, or a
            rollback of it was interrupted.
    """
    for folder in folders:
        for name in OF_A_NAMENODE:
            with contextlib.suppress(OSError):  # opening a broken disk reports it
                if (folder / name).exists():
                    raise ConfigError(
                        f"{folder} is the folder of a NameNode: a DataNode needs one of its own"
                    )
        try:
            if folder.is_dir():
                is_new = read_identity(disk, folder) is None
                refuse_half_rolled_back(disk, folder)
                if is_new:
                    _check_apart(disk, folder)
        except OSError:  # opening a broken disk or a damaged identity reports it
            continue


def _check_apart(disk: Disk, folder: Path) -> None:
    """Raise ConfigError for a new volume in a folder that holds another one, or is in one: it may
    be that of a node that runs."""
    around = [*folder.absolute().parents, *(each for each in folder.iterdir() if each.is_dir())]
    for other in around:
        with contextlib.suppress(OSError):  # some other VERSION
            if read_identity(disk, other) is not None:
                raise ConfigError(
                    f"{folder} and {other}, which is a volume already, are one in the other: a "
                    "volume needs a folder of its own"
                )


def open_volumes(
    disk: Disk,
    folders: Sequence[Path],
    node: str,
    config: DataNodeConfig,
    boot: str,
    *,
    upgrade: bool = False,
    hung: Sequence[LostVolume] = (),
    limits: SmallLimits = SHIPPED,
) -> tuple[list[Volume], list[LostVolume]]:
    """Open all folders or none, except that a volume whose disk is broken or `hung`, or whose
    identity is damaged, is left out while another one works.

    With `upgrade` each gets a snapshot unless it has one. The logs of small replicas have these
    `limits`. Raises as `open_volume`.
    """
    answering = [folder for folder in folders if folder not in {each.folder for each in hung}]
    check_volumes(disk, answering)
    threads = config.sync_threads_per_volume
    volumes: list[Volume] = []
    lost = list(hung)
    try:
        for folder in answering:
            try:
                volumes.append(
                    open_volume(
                        disk,
                        folder,
                        node,
                        boot=boot,
                        sync_threads=threads,
                        upgrade=upgrade,
                        limits=limits,
                    )
                )
            except (StorageError, CorruptionError) as error:
                # Anything else is a mistake of an operator, and it is better to say so at once.
                if isinstance(error, StorageError) and not is_broken(error):
                    raise
                _log.error("volume left out", extra=facts(folder=folder, reason=error))
                lost.append(LostVolume(folder, str(error)))
        clusters = {each.identity.cluster: each.folder for each in volumes if each.identity.cluster}
        if len(clusters) > 1:
            owners = ", ".join(f"{folder} of {cluster}" for cluster, folder in clusters.items())
            raise ConfigError(f"these volumes are of several clusters: {owners}")
        if not volumes:
            raise StorageError("no volume can be used: " + "; ".join(one.reason for one in lost))
    except PaxosBlockError:
        for volume in volumes:
            with contextlib.suppress(StorageError):
                volume.close()
        raise
    return volumes, lost
