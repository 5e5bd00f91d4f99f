"""The DataNodes that an operator asked to leave, for good or for a while: one record each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paxosblock.api.care import AdminState, AdminStatus
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.draft import Draft, Reads
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.records import NodeRecord, decode_node, encode
from paxosblock.protocol.types import StorageId


@dataclass(frozen=True, slots=True)
class Known:
    """A DataNode as the NameNode knows it when an operator changes its state."""

    node: str
    address: str
    storages: tuple[StorageId, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """The state that a DataNode should have from now on, or for `for_s` seconds if not 0."""

    known: Known
    admin: AdminState
    for_s: float = 0


def set_admin_state(draft: Draft, change: Change, context: Context) -> AdminStatus:
    """Record the state of a node; a node in service has no record."""
    known, key = change.known, keys.node(change.known.node)
    found = draft.get(key)
    before = decode_node(found.value).expires_ms if found.exists else 0
    if change.admin is AdminState.IN_SERVICE:
        if found.exists:
            draft.delete(key)
            draft.move_deadline(key, before, 0)
        return AdminStatus(known.node, known.address, change.admin)
    until_ms = context.now_ms + round(change.for_s * 1000) if change.for_s else 0
    record = NodeRecord(change.admin, known.address, known.storages, until_ms)
    if not found.exists or decode_node(found.value) != record:
        draft.put(key, encode(record))
        draft.move_deadline(key, before, until_ms)
    return AdminStatus(known.node, known.address, change.admin, until_ms)


def records(reads: Reads) -> Iterator[tuple[str, NodeRecord]]:
    """Yield the DataNodes that have a record, by name."""
    for key, found in reads.scan(*keys.NODES):
        yield keys.node_name(key), decode_node(found.value)
