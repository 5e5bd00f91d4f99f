"""Clients' views of blocks: records from the catalog, addresses and completeness from reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from paxosblock.api.capability import Right
from paxosblock.api.encryption import DataKey
from paxosblock.api.file_pages import FileView
from paxosblock.api.namenode import BlockMember, BlockView
from paxosblock.api.status import NodeStatus
from paxosblock.base.chunk_cipher import ADDED_BYTES
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.catalog.blocks import FilePage
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.namenode.catalog.tree import Located
from paxosblock.protocol.block_state import hdfs_state
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, BlockState, StorageId

READER: Final = int(Right.READ)
WRITER: Final = int(Right.READ | Right.WRITE)
FIRST_WRITER: Final = int(Right.READ | Right.WRITE | Right.CREATE)


class BlockViews:
    """Combines the durable records of blocks with the soft state of DataNodes."""

    def __init__(
        self,
        datanodes: DataNodes,
        replicas: Replicas,
        min_replication: int,
        clock_s: Callable[[], float],
        *,
        trouble: Callable[[BlockId], str],
        key_of: Callable[[BlockEntry], DataKey | None],
    ) -> None:
        """Judge by `clock_s` which DataNodes are alive; `trouble` tells why a recovery goes on, and
        `key_of` the key of an encrypted block for the present caller."""
        self._datanodes = datanodes
        self._replicas = replicas
        self._min_replication = min_replication
        self._clock_s = clock_s
        self._trouble = trouble
        self._key_of = key_of

    def block(
        self,
        entry: BlockEntry,
        offset: int = 0,
        host: str = "",
        *,
        to_writer: bool = False,
        with_key: bool = True,
    ) -> BlockView:
        """Return a block that starts at byte `offset` of its file, as seen from `host`; `to_writer`
        if it was granted to the one that asks. Where nothing is read or written with the answer it
        need not be `with_key`: blocks can be ended without the master key.

        Raises:
            AccessDeniedError, ConfigError: as `ZoneKeys.of_block`.
        """
        record, now_s = entry.record, self._clock_s()
        asker = self._datanodes.locate(host)
        recovers = record.state is BlockState.UNDER_RECOVERY
        member, signed = self._datanodes.member, self._signed(record, to_writer=to_writer)
        return BlockView(
            record=record,
            members=tuple(
                member(storage, now_s, asker, capability)
                for storage, capability in zip(record.members, signed, strict=True)
            ),
            offset=offset,
            complete=self._replicas.is_complete(record, self._min_replication),
            trouble=self._trouble(record.block) if recovers else "",
            added_bytes=ADDED_BYTES if entry.zone else 0,
            key=self._key_of(entry) if entry.zone and with_key else None,
        )

    def _signed(self, record: BlockRecord, *, to_writer: bool) -> Sequence[bytes]:
        """Return a capability for each member; one to write is for the record's own generation."""
        generation, rights = record.writer_generation, READER
        if to_writer and record.state is BlockState.UNDER_CONSTRUCTION:
            rights = FIRST_WRITER if generation == FIRST_GENERATION else WRITER
        return self._datanodes.all_signed(record.members, record.block, rights, generation)

    def member(self, storage: StorageId | None) -> BlockMember | None:
        """Return a storage as it is now."""
        return None if storage is None else self._datanodes.member(storage, self._clock_s())

    def file(self, found: FilePage, host: str = "", *, with_keys: bool = True) -> FileView:
        """Return a file and a page of its blocks, as seen from the machine `host`. Raises as
        `block`."""

        def show(located: Located) -> BlockView:
            view = self.block(located.entry, located.offset, host, with_key=with_keys)
            shown = located.shown_bytes
            return view if shown is None else replace(view, shown_bytes=shown)

        blocks = tuple(map(show, found.page.blocks))
        last = None if found.last is None else show(found.last)
        return FileView(found.status, blocks, found.page.next_place, last)

    def hdfs_state(self, entry: BlockEntry) -> str:
        """Return what HDFS would call the block."""
        holders = len(self._replicas.whole(entry.record))
        return hdfs_state(entry.record, holders, self._min_replication).value

    def datanodes(self) -> tuple[NodeStatus, ...]:
        """Return all DataNodes, for `cluster status`."""
        now_s = self._clock_s()
        return tuple(
            NodeStatus(
                node=node.node,
                address=node.address,
                state=self._datanodes.liveness(node, now_s).value,
                seconds_since_heartbeat=round(now_s - node.heard_s, 3),
                storages=tuple(node.storages.values()),
                open_blocks=node.open_blocks,
                blocks=self._replicas.count(node.storages),
                rack=node.location.rack,
            )
            for node in self._datanodes
        )
