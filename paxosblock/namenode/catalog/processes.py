"""The process that answers for each DataNode: the last one that a leader took in (D10 in
PROTOCOL.md).

A NameNode that has just started, or begins to lead, knows by these records which process was there
before the one that registers: if that one lives, the other may work on a copy of its volumes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from paxosblock.errors import NotReadyError
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.draft import Draft, Reads
from paxosblock.namenode.catalog.records import ProcessRecord, decode_process, encode


class Entering(NamedTuple):
    """A process to record in the place of any of those that it `follows`."""

    node: str
    process: ProcessRecord
    follows: Collection[str]


def find(reads: Reads, node: str) -> ProcessRecord | None:
    """Return the process on record for a DataNode; None if there is none."""
    found = reads.get(keys.process(node))
    return decode_process(found.value) if found.exists else None


def nodes(reads: Reads) -> tuple[str, ...]:
    """Return the names of all DataNodes that ever were taken in."""
    return tuple(keys.node_name(key) for key, _ in reads.scan(*keys.PROCESSES))


def enter(draft: Draft, entering: Entering) -> None:
    """Record a process.

    Raises:
        NotReadyError: another one was recorded meanwhile.
    """
    if not _has_entered(draft, entering):
        raise NotReadyError(
            f"DataNode {entering.node}: another process of this name registered meanwhile",
            node=entering.node,
        )


def enter_where_possible(draft: Draft, each_entering: Iterable[Entering]) -> None:
    """Record processes, but those in whose place another one was recorded meanwhile."""
    for each in each_entering:
        _has_entered(draft, each)


def _has_entered(draft: Draft, entering: Entering) -> bool:
    known, process = find(draft, entering.node), entering.process
    if known is not None and known.incarnation not in {process.incarnation, *entering.follows}:
        return False
    if known != process:
        draft.put(keys.process(entering.node), encode(process))
    return True
