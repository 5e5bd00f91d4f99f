"""The present needs of blocks, computed in one place for all that look at them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.blocks.replication.needs import (
    Need,
    StorageState,
    StorageView,
    assess,
    may_be_back,
    of_restored,
)
from paxosblock.namenode.blocks.replication.storage_states import Patience, view_storages
from paxosblock.namenode.catalog.members import Demand
from paxosblock.protocol.types import StorageId


class NeedAssessor:
    """Combines the states of DataNodes and replicas."""

    def __init__(
        self,
        datanodes: DataNodes,
        replicas: Replicas,
        patience: Patience,
        min_live: int,
        clock_s: Callable[[], float],
    ) -> None:
        """Judge by `clock_s` which DataNodes are alive."""
        self._datanodes = datanodes
        self._replicas = replicas
        self._patience = patience
        self._min_live = min_live
        self._clock_s = clock_s

    @property
    def replicate_after_s(self) -> float:
        """Return the seconds that a dead DataNode has to come back before its blocks are copied."""
        return self._patience.replicate_after_s

    def view(self) -> StorageView:
        """Return the state of all storages now."""
        return view_storages(self._datanodes, self._clock_s(), self._patience, self._min_live)

    def need(self, demand: Demand, view: StorageView) -> Need:
        """Return what a block needs that is finalized, or of a backup."""
        record, replicas = demand.entry.record, self._replicas
        if record.restored:
            return self._need_of_restored(demand, view)
        whole, damaged = replicas.whole(record), replicas.damaged(record)
        need = assess(record, demand.wanted, whole, view, damaged)
        if not need.missing:
            return need
        known = [each for each in sorted(replicas.known(record.block)) if _may_tell(view, each)]
        return replace(need, elsewhere=tuple(known))

    def _need_of_restored(self, demand: Demand, view: StorageView) -> Need:
        """Return what is known of a block of a backup, also of one that was open then.

        That one is never missing, nor is one that was empty: if no storage has a replica, its file
        was deleted since, or it went when its file was closed, and all else of that file is there.
        """
        record, replicas = demand.entry.record, self._replicas
        known = replicas.known(record.block)
        may_have = tuple(
            each
            for each in sorted(known.union(record.members))
            if (_may_tell(view, each) if each in known else may_be_back(view.place(each)))
        )
        if not view.all_told:  # it may have moved since, to any of the others
            may_have = may_have or record.members
        if record.finalized:
            whole, damaged = replicas.whole(record), replicas.damaged(record)
            need = of_restored(assess(record, demand.wanted, whole, view, damaged), may_have)
            if record.length or need.sound:
                return need
        return Need(demand.wanted, elsewhere=may_have or record.members)


def _may_tell(view: StorageView, storage: StorageId) -> bool:
    """True unless a storage is lost, with whatever it held."""
    place = view.place(storage)
    return place.live or place.state is not StorageState.LOST
