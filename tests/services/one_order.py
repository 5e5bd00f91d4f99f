"""Is there one order of all changes of names that explains watchers, lists and the past?

Watchers tell the order. What was listed, in the present or in the past, must be a state of it: the
one after a revision where that is known, as of a list, else any one, as of a snapshot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NoReturn

from paxosblock.api.watching import NameChange
from tests.namenode.names_model import WatchedNames

Ids = dict[str, int]
"""The files and directories that are in a folder, by name."""


@dataclass(frozen=True, slots=True)
class Look:
    """A folder at a revision of the catalog; None: at one moment that is not known."""

    folder: str
    ids: Ids
    revision: int | None
    how: str


@dataclass(slots=True)
class Heard:
    """All that a watcher of a path heard, who began behind a revision, when nothing was there."""

    path: str
    since: int
    changes: list[NameChange] = field(default_factory=list)


def mistakes(heard: Sequence[Heard], looks: Iterable[Look]) -> list[str]:
    """Tell where watchers, who heard everything, and looks contradict each other."""
    first, *others = heard
    found = [
        f"watchers heard different things: {one.changes[place : place + 2]}, {first_heard}"
        for one in others
        for place, first_heard in _differences(one.changes, first.changes)
    ]
    try:
        states = _states(first)
    except AssertionError as error:
        return [*found, f"a watcher heard what cannot be: {error}"]
    for look in looks:
        revisions, ids = states[look.folder]
        if look.revision is None:
            explained = look.ids in ids
        else:
            explained = look.ids == ids[bisect_right(revisions, look.revision) - 1]
        if not explained:
            found.append(f"{look.how} of {look.folder} shows {look.ids}")
    return found


def _differences(
    one: list[NameChange], other: list[NameChange]
) -> list[tuple[int, list[NameChange]]]:
    """The first place at which two lists differ, if there is any, with what the other has there."""
    if one == other:
        return []
    pairs = enumerate(zip(one, other, strict=False))
    place = next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(one), len(other)))
    return [(place, other[place : place + 2])]


def _states(heard: Heard) -> defaultdict[str, tuple[list[int], list[Ids]]]:
    """The states of each folder, with the revisions at which they begin."""
    states: defaultdict[str, tuple[list[int], list[Ids]]] = defaultdict(lambda: ([0], [{}]))
    names = WatchedNames(heard.path, {}, heard.since)
    for revision, changes in groupby(heard.changes, attrgetter("revision")):
        at_once = list(changes)
        names.take(at_once, _from_elsewhere)
        for folder in {change.path.rpartition("/")[0] for change in at_once}:
            revisions, ids = states[folder]
            revisions.append(revision)
            ids.append(
                {
                    path.rpartition("/")[2]: known.file_id
                    for path, known in names.names.items()
                    if path.rpartition("/")[0] == folder
                }
            )
    return states


def _from_elsewhere(revision: int, path: str) -> NoReturn:
    raise AssertionError(f"{path} came from elsewhere at {revision}")
