"""Looks at a table after the driver of a job was killed, and the promises that they break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Share(StrEnum):
    """The share of some rows that is there."""

    NONE = "none"
    SOME = "some"
    ALL = "all"
    TWICE = "some twice"


@dataclass(frozen=True, slots=True)
class Seen:
    """The table that a reader finds at one moment."""

    rows: Counter[int]
    unreadable: tuple[str, ...] = ()
    """Files of the table that are not whole."""
    success: bool = False
    """There is a file `_SUCCESS`."""
    hidden: tuple[str, ...] = ()
    """Names that readers pass over, but that one."""
    uploads: int = 0
    """Uploads in parts of S3 that go on."""

    def share(self, ids: Iterable[int]) -> Share:
        """Return how many of these rows there are."""
        found = Counter(self.rows[each] for each in ids)
        if any(count > 1 for count in found):
            return Share.TWICE
        if not found[1]:
            return Share.NONE
        return Share.SOME if found[0] else Share.ALL


@dataclass(frozen=True, slots=True)
class Killed:
    """A job whose driver was killed, and which another one did again."""

    replaces: bool
    """It overwrites a table, else it adds to it."""
    old: range
    new: range
    before: Seen
    """The table after the kill."""
    after: Seen
    """The table when the job had run again."""


def broken(killed: Killed, *, at_once: bool, adopts: bool = False) -> Iterator[str]:
    """Yield each promise that was not kept; `at_once` and `adopts` are those of `Committer`."""
    for when, seen in ("killed", killed.before), ("run again", killed.after):
        for name in seen.unreadable:
            yield f"{when}: {name} is not whole"
    yield from _after_the_kill(killed, at_once=at_once)
    yield from _run_again(killed, adopts=adopts)


def _after_the_kill(killed: Killed, *, at_once: bool) -> Iterator[str]:
    seen = killed.before
    old, new = seen.share(killed.old), seen.share(killed.new)
    if Share.TWICE in (old, new):
        yield f"killed: rows are there twice: {old} of the old ones, {new} of the new ones"
    if not killed.replaces and old is not Share.ALL:
        yield f"killed: {old} of the rows that were there"
    if at_once:
        if new is Share.SOME:
            yield "killed: a part of the job is seen"
        if killed.replaces and (old, new) not in (
            (Share.ALL, Share.NONE),
            (Share.NONE, Share.ALL),
        ):
            yield f"killed: {old} of the table before, {new} of the one after"
    elif killed.replaces and seen.success and Share.ALL not in (old, new):
        yield f"killed: _SUCCESS with {old} of the table before, {new} of the one after"


def _run_again(killed: Killed, *, adopts: bool) -> Iterator[str]:
    seen = killed.after
    if not seen.success:
        yield "run again: no _SUCCESS"
    if killed.replaces:
        wanted = Counter(killed.new)
        if seen.hidden:
            yield f"run again: left behind: {', '.join(seen.hidden)}"
    else:
        wanted = Counter(killed.old) + Counter(killed.new)
        wanted.update({each: killed.before.rows[each] for each in killed.new})
        wanted = +wanted
    most = wanted
    if adopts and not killed.replaces:
        most = Counter(killed.old) + Counter(killed.new) + Counter(killed.new)
    missing, more = wanted - seen.rows, seen.rows - most
    if missing or more:
        yield f"run again: {missing.total()} rows are missing, {more.total()} are too many"
