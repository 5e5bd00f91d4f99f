"""Timelines: what a storage promised before a rollback must not count together with what it
promises after it.

A DataNode that makes a snapshot of a volume begins a new timeline of its storage, and one that goes
back to it returns to the earlier timeline (FORMAT.md 7). It says nothing in a timeline before this
cluster has recorded that the storage is in it. So if the cluster has recorded only timelines in the
storage's own past, the storage has forgotten nothing that it ever promised or answered.
"""

from __future__ import annotations

from collections.abc import Sequence

from paxosblock.api.reports import Timeline
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.namenode.kv.interface import View


def enter(draft: Draft, node: str, entered: Sequence[Timeline]) -> None:
    """Record the timelines that the storages of DataNode `node` are in.

    Raises:
        InvalidRequestError: a storage is known in a timeline that is not in its past: it was rolled
            back and this cluster was not, or the other way round.
    """
    for each in entered:
        known = draft.get(keys.timeline(each.storage)).value.decode()
        if known == each.timeline:
            continue
        if known not in each.before:
            raise InvalidRequestError(
                f"DataNode {node}: storage {each.storage} was rolled back and this cluster was not,"
                " or the other way round: roll back the NameNodes and all DataNodes, or start with"
                " an empty folder in its place (`paxosblock help operations`, Upgrading)",
                node=node,
            )
        draft.put(keys.timeline(each.storage), each.timeline.encode())


def are_known(view: View, entered: Sequence[Timeline]) -> bool:
    """True if `view` knows each storage in its timeline, and that is the storage's first.

    A view may be old, and say nothing about what a storage heard in a later timeline. So it
    suffices only for storages that were accepted before and have forgotten nothing.
    """
    return all(
        not each.before and view.get(keys.timeline(each.storage)).value.decode() == each.timeline
        for each in entered
    )
