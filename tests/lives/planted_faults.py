"""Faults that the lives must find, each planted in the shipped code for the length of a `with`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

from paxosblock.api.datanode import ReplicaSummary
from paxosblock.namenode.blocks import replicas, reports
from paxosblock.namenode.blocks.replicas import Finding, Verdict
from paxosblock.protocol.finalize import BlockRecord
from tests.lives.world import changed

Changes = tuple[tuple[ModuleType | type, str, object], ...]


def _deletes_at_members() -> Changes:
    """Some members that hold the decided version are told to drop it."""

    def judge(record: BlockRecord | None, ours: bool, summary: ReplicaSummary) -> Finding:
        found = replicas.judge(record, ours, summary)
        if record is not None and found.verdict is Verdict.HOLDS and record.block % 5 == 0:
            return Finding(Verdict.DELETE, "planted", record.finalized_generation)
        return found

    return ((reports, "judge", judge),)


FAULTS: Final = {
    "a member is told to delete": _deletes_at_members,
}
"""By name; each gives what to change."""


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant the fault of this name; None: none."""
    with changed(() if name is None else FAULTS[name]()):
        yield
