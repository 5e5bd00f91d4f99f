"""The members of a group, what a majority of them is, and which list of them counts. Without I/O.

A member has a *name*: its address, and for one that was added to a running cluster the token of its
folder behind it, `nn4:9870/5f0c...`. So a folder that comes to the address of another one is
another member: no vote and no entry that the first promised to keep is expected of it.

A list changes by an entry of the log (Ongaro's thesis, chapter 4, and his mend of 2015):

* A member goes by the newest list in its log as soon as it has appended it, committed or not; when
  that entry is cut, the list before it counts again.
* A change adds or removes one member. So a majority of the list before it and one of the list after
  it share a member, and no two leaders can be elected, one by each.
* A leader begins a change only when the list before is committed, and an entry of its own term.
  Without the second rule a change of an earlier leader, which few have heard of yet, and this one
  may be two steps apart.
* A leader does not remove itself: it hands over, and the next leader does it.
* One that is added has caught up before, while it was counted nowhere.

tests/raft/member_lists.py runs these very functions through every order of changes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec

from paxosblock.base.encoding import msgpack_decoder
from paxosblock.errors import CorruptionError

_TOKEN: Final = "/"


class Roster(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The members that elect a leader and confirm entries, by name."""

    voters: tuple[str, ...]

    def others(self, name: str) -> tuple[str, ...]:
        """Return the members but the one of this name."""
        return tuple(each for each in self.voters if each != name)

    def is_majority(self, names: Collection[str]) -> bool:
        """True if the voters among `names` are more than half of all."""
        return 2 * sum(voter in names for voter in self.voters) > len(self.voters)

    def at(self, address: str) -> str | None:
        """Return the name of the member at `address`; None if there is none."""
        return next((each for each in self.voters if address_of(each) == address), None)

    def with_one(self, name: str) -> Roster:
        """Return the list with this member, too."""
        return Roster((*self.voters, name))

    def without(self, name: str) -> Roster:
        """Return the list but for the member of this name."""
        return Roster(self.others(name))


_DECODER = msgpack_decoder(Roster)
_ENCODER = msgspec.msgpack.Encoder()


def encode_list(roster: Roster) -> bytes:
    """Return the list as bytes: the payload of its entry, and its value in the map."""
    return _ENCODER.encode(roster)


def decode_list(data: bytes) -> Roster:
    """Read a list.

    Raises:
        CorruptionError: the bytes are none.
    """
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptionError(f"not a list of members: {error}") from error


def address_of(name: str) -> str:
    """Return the host:port at which the member of this name listens."""
    return name.partition(_TOKEN)[0]


def name_of(address: str, token: str) -> str:
    """Return the name of a member that is added to a running cluster, with an empty folder that
    drew `token`."""
    return f"{address}{_TOKEN}{token}"


@dataclass(frozen=True, slots=True)
class ListEntry:
    """A list, and the index of its entry in the log; 0 of the one that a folder began with."""

    index: int
    roster: Roster


def later_of(known: ListEntry, found: ListEntry) -> ListEntry:
    """Return the list of the later entry; the one that is `known` if both are of the same, as an
    operator may have replaced that one by hand."""
    return found if found.index > known.index else known


class MemberLists:
    """The lists in the log of one member, from the last that is known to be committed on."""

    def __init__(self, first: ListEntry) -> None:
        """Begin with a list that is committed."""
        self._known = [first]
        self.is_changing = False
        """True while the newest list is not known to be committed; no property, as each entry that
        is committed asks for it."""

    @property
    def newest(self) -> ListEntry:
        """Return the list that counts."""
        return self._known[-1]

    @property
    def committed(self) -> ListEntry:
        """Return the last list that is known to be committed."""
        return self._known[0]

    def append(self, index: int, roster: Roster) -> None:
        """Go by the list of the entry at `index`, which was appended to the log."""
        assert index > self.newest.index, "entries are appended in order"
        self._known.append(ListEntry(index, roster))
        self.is_changing = True

    def cut_from(self, index: int) -> None:
        """Go by an earlier list again if those from `index` on are cut from the log."""
        assert index > self.committed.index, "a committed entry is never cut"
        while self.newest.index >= index:
            self._known.pop()
        self.is_changing = len(self._known) > 1

    def commit(self, index: int) -> None:
        """Forget the lists before the last one that is committed, as the entries up to `index`
        are."""
        while len(self._known) > 1 and self._known[1].index <= index:
            self._known.pop(0)
        self.is_changing = len(self._known) > 1

    def install(self, found: ListEntry, last_index: int) -> None:
        """Go by the list of another member's table, and those after it in the log, which ends with
        entry `last_index`."""
        first = later_of(self.committed, found)
        later = [each for each in self._known if first.index < each.index <= last_index]
        self._known = [first, *later]
        self.is_changing = bool(later)


def why_not_now(
    lists: MemberLists, wanted: Roster, *, leader: str, commit_index: int, first_of_term: int
) -> str | None:
    """Return why the leader may not append the list that is `wanted`; None if it may.

    Args:
        lists: those of its log.
        wanted: differs from the newest by one member.
        leader: its name.
        commit_index: the last entry that it knows to be committed.
        first_of_term: its first entry.
    """
    now = lists.newest
    assert len({*now.roster.voters} ^ {*wanted.voters}) == 1, "one member is added, or removed"
    if commit_index < first_of_term:
        return "the NameNode that leads has only begun to"
    if now.index > commit_index:
        return "another change of the list is under way"
    if leader not in wanted.voters:
        return "the NameNode that leads does not remove itself"
    return None
