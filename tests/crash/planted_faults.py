"""Faults that random crashes must find, each planted in the shipped code for a `with`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from paxosblock.datanode.store import load
from paxosblock.journal import record_log
from paxosblock.journal.durable_mark import DurableTo
from paxosblock.journal.record_log import LogSegment, RecordLog
from tests.lives.world import Changes, changed


def _believes_names() -> Changes:
    """A start does not sync the folders of which it believes the names."""
    return ((load, "REPLICA_FOLDERS", ()),)


def _counts_too_much() -> Changes:
    """A sync of the log of small replicas counts what was appended while it was under way."""
    note = RecordLog._note_synced

    def note_all(self: RecordLog, segment: LogSegment, to: DurableTo) -> None:
        note(self, segment, DurableTo(to.segment, segment.end, self.highest))

    return ((RecordLog, "_note_synced", note_all),)


def _has_no_mark() -> Changes:
    """A start does not look how far the log of small replicas was durable."""
    return ((record_log, "read_mark", lambda *_: None),)


def _forgets_losses() -> Changes:
    """A start that finds that records of the log were lost does not note it in `VERSION`."""
    return ((load, "forget", lambda *_: None),)


FAULTS: Final[dict[str, Callable[[], Changes]]] = {
    "a loss of records is not noted": _forgets_losses,
    "a start believes names that are not synced": _believes_names,
    "a sync counts what was appended meanwhile": _counts_too_much,
    "the mark of the log is not looked at": _has_no_mark,
}
"""By name; each gives what to change."""


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant the fault of this name; None: none."""
    with changed(() if name is None else FAULTS[name]()):
        yield
