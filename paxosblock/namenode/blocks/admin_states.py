"""The DataNodes that an operator asked to leave, as placement and replication need them.

The catalog keeps them durably; here times are those of the clock for DataNodes, which does not go
back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paxosblock.api.care import AdminState
from paxosblock.namenode.catalog.records import NodeRecord
from paxosblock.protocol.types import StorageId


@dataclass(frozen=True, slots=True)
class _Known:
    record: NodeRecord
    until_s: float

    def state(self, now_s: float) -> AdminState:
        return AdminState.IN_SERVICE if now_s >= self.until_s else self.record.admin


class AdminStates:
    """The DataNodes that are not simply in service. Times are seconds on the node's clock."""

    def __init__(self) -> None:
        """Start with all in service."""
        self._known: dict[str, _Known] = {}
        self._storages: dict[StorageId, str] = {}

    def __bool__(self) -> bool:
        """True if any node has another state."""
        return bool(self._known)

    def take(self, records: Iterable[tuple[str, NodeRecord]], now_s: float, now_ms: int) -> None:
        """Replace all states by the catalog's.

        `now_ms` is the time by the clock in which maintenance ends, `now_s` the same moment here.
        """
        self._known = {name: _Known(r, _until_s(r, now_s, now_ms)) for name, r in records}
        self._storages = {
            storage: name
            for name, known in self._known.items()
            for storage in known.record.storages
        }

    def state(self, node: str, now_s: float) -> AdminState:
        """Return the state of a DataNode now, whether it is otherwise known or not."""
        known = self._known.get(node)
        return AdminState.IN_SERVICE if known is None else known.state(now_s)

    def node_of(self, storage: StorageId) -> str | None:
        """Return the DataNode that had this storage when its state was set."""
        return self._storages.get(storage)

    def records(self, now_s: float) -> Iterator[tuple[str, NodeRecord]]:
        """Yield the nodes that are to leave, with their records."""
        for name, known in self._known.items():
            if known.state(now_s) is not AdminState.IN_SERVICE:
                yield name, known.record


def _until_s(record: NodeRecord, now_s: float, now_ms: int) -> float:
    return now_s + (record.expires_ms - now_ms) / 1000 if record.expires_ms else math.inf
