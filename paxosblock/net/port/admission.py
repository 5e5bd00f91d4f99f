"""Limits the connections of a node, and chooses which ones to close when more come.

Every connection begins among the unproven ones, a small pool of their own, and leaves it when it
proves something: the access secret, or, where there is none, that it sends whole requests. When the
pool is full, the one that has been there longest is closed, at the address that has the most; it
does not matter what it does. So strangers take a place from strangers only, and a newcomer that
proves itself at once is let in.

A connection that has proven something has a slot, counted for the node and for the address it comes
from. If no slot is free, connections that wait for their next request give up theirs: at the
address that has the most, first those that never had a request, then those that have waited
longest, then those that have sent only a part of a request. So a client that only holds connections
open keeps no other out.

When all are in use, a few more are let in for one request each: NameNodes and DataNodes must be
heard. A link between NameNodes no longer counts once it has proven that it is one.
"""

from __future__ import annotations

import enum
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from paxosblock.errors import UnavailableError
from paxosblock.net.port.refusals import Refusal, Refusals

SPARE_COUNT: Final = 32
"""Connections beyond the cap that are let in for one request each."""
UNPROVEN_MIN: Final = 16
"""Connections that may have proven nothing, at least: an eighth of the cap, where that is more. A
program that begins a thousand connections at once has most of them in the pool for a moment."""
CLOSED_TOGETHER: Final = 16
"""Idle connections to close at a time, so that not every new one needs a search."""
SEARCH_AGAIN_S: Final = 0.1
"""Seconds without another search after one found no idle connection. Otherwise a flood of new ones
while all are in use would keep the event loop busy, and cost a NameNode its leadership."""
_ANYWHERE: Final = ""


@dataclass(frozen=True, slots=True)
class Caps:
    """Connections of the whole node, and of one address, at a time."""

    node: int
    address: int

    @classmethod
    def within(cls, node: int, address: int, descriptors: int) -> Caps:
        """Return the given caps, limited to `descriptors`; no address gets more than three
        quarters.

        The spare ones and the unproven ones, too, must fit.
        """
        usable = descriptors - SPARE_COUNT
        most = max(1, min(node, usable - max(UNPROVEN_MIN, usable // 9)))
        return cls(most, max(1, min(address, most - most // 4)))

    @property
    def unproven(self) -> int:
        """Connections beside those that may have proven nothing."""
        return max(UNPROVEN_MIN, self.node // 8)


class Rank(enum.IntEnum):
    """The order in which connections with nothing under way are closed."""

    UNUSED = 0
    """It never had a request."""
    USED = 1
    HALF = 2
    """A part of a request has come, which its peer would have to send again."""


class Holder(Protocol):
    """The holder of a slot, which may be asked for it."""

    @property
    def idle(self) -> bool:
        """True while nothing is under way for it: it waits for its next request, or its rest."""

    @property
    def idle_rank(self) -> tuple[Rank, float]:
        """The connections with the lowest ranks are closed first."""

    def dismiss(self) -> None:
        """Close it; it is idle, or has proven nothing."""


class Slot:
    """The place of one connection, until it is released."""

    __slots__ = ("_admission", "address", "holder", "proven", "spare")

    def __init__(self, admission: Admission | None, address: str) -> None:
        """Begin among those that have proven nothing. Without an admission it is not counted."""
        self._admission = admission
        self.address = address
        self.proven = False
        self.spare = False
        """True if it is for one request only."""
        self.holder: Holder | None = None

    def prove(self, *, stays: bool = False) -> None:
        """Count it as one of those that have proven something; may be called twice.

        `stays`: a place for one request is of no use to it.

        Raises:
            UnavailableError: all places are in use.
        """
        if self._admission is not None and not self.proven:
            self._admission.prove(self, stays=stays)

    def release(self) -> None:
        """Stop counting it; may be called twice."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.released(self)


class _Slots:
    """Slots by their addresses, the oldest of each first."""

    def __init__(self) -> None:
        self.count = 0
        self.of: dict[str, dict[Slot, None]] = {}

    def add(self, slot: Slot) -> None:
        self.of.setdefault(slot.address, {})[slot] = None
        self.count += 1

    def remove(self, slot: Slot) -> None:
        self.count -= 1
        own = self.of[slot.address]
        del own[slot]
        if not own:
            del self.of[slot.address]


class Admission:
    """The slots of one node."""

    def __init__(
        self, caps: Caps, refusals: Refusals, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Start without connections."""
        self._caps = caps
        self._refusals = refusals
        self._clock_s = clock_s
        self._none_idle_s: dict[str, float] = {}
        """The times at which a search of an address, or of all, found no idle connection."""
        self._unproven = _Slots()
        self._proven = _Slots()
        self._spare_count = 0

    @property
    def count(self) -> int:
        """All connections."""
        return self._unproven.count + self._proven.count + self._spare_count

    @property
    def unproven_count(self) -> int:
        """Connections that have proven nothing yet."""
        return self._unproven.count

    def admit(self, address: str) -> Slot | None:
        """Return a slot for a new connection from `address`; None if it must be refused."""
        if self._unproven.count >= self._caps.unproven and not self._close_unproven():
            self._refusals.count(Refusal.NODE_FULL, address)
            return None
        slot = Slot(self, address)
        self._unproven.add(slot)
        return slot

    def prove(self, slot: Slot, *, stays: bool) -> None:
        """Move a slot to those that have proven something: only `Slot.prove` calls this."""
        address = slot.address
        if len(self._proven.of.get(address, ())) >= self._caps.address:
            why, has_room = Refusal.ADDRESS_FULL, self._make_room(address)
        elif self._proven.count >= self._caps.node:
            why, has_room = Refusal.NODE_FULL, self._make_room_anywhere()
        else:
            why, has_room = Refusal.NODE_FULL, True
        if has_room:
            self._proven.add(slot)
        elif not stays and self._spare_count < SPARE_COUNT:
            self._spare_count += 1
            slot.spare = True
        else:
            self._refusals.count(why, address)
            raise UnavailableError("the node has as many connections as it takes; try again")
        self._unproven.remove(slot)
        slot.proven = True

    def make_room(self) -> None:
        """Close some connections, if there are any, because something else ran out: those that
        proved nothing, then idle ones."""
        closed = 0
        while closed < CLOSED_TOGETHER and self._close_unproven():
            closed += 1
        if closed < CLOSED_TOGETHER and self._proven.count:
            self._make_room_anywhere()

    def released(self, slot: Slot) -> None:
        """Take the slot back: only `Slot.release` calls this."""
        if not slot.proven:
            self._unproven.remove(slot)
        elif slot.spare:
            self._spare_count -= 1
        else:
            self._proven.remove(slot)
            if slot.address not in self._proven.of:
                self._none_idle_s.pop(slot.address, None)

    def _close_unproven(self) -> bool:
        """Close the oldest that proved nothing, where most of them are; False: there is none."""
        crowd = max(self._unproven.of.values(), key=len, default={})
        for slot in crowd:
            if (holder := slot.holder) is not None:  # one was accepted in this turn of the loop
                slot.release()
                holder.dismiss()
                self._refusals.count(Refusal.UNPROVEN, slot.address)
                return True
        return False

    def _make_room_anywhere(self) -> bool:
        """Begin with addresses that have many; return True if a connection was closed."""
        if self._searched_in_vain(_ANYWHERE):
            return False
        slots = self._proven.of
        crowds = sorted(slots, key=lambda each: len(slots[each]), reverse=True)
        found = any(self._make_room(crowd) for crowd in crowds)
        if not found:
            self._none_idle_s[_ANYWHERE] = self._clock_s()
        return found

    def _searched_in_vain(self, where: str) -> bool:
        """True if a search here found no idle connection a moment ago."""
        before_s = self._none_idle_s.get(where)
        return before_s is not None and self._clock_s() < before_s + SEARCH_AGAIN_S

    def _make_room(self, address: str) -> bool:
        """Close idle connections of the address; return False if it has none."""
        if self._searched_in_vain(address):
            return False
        holders = ((slot.holder, slot) for slot in self._proven.of[address])
        idle = [(holder, slot) for holder, slot in holders if holder is not None and holder.idle]
        going = heapq.nsmallest(CLOSED_TOGETHER, idle, key=lambda each: each[0].idle_rank)
        for holder, slot in going:
            slot.release()
            holder.dismiss()
        if going:
            self._refusals.count(Refusal.IDLE, address, len(going))
        else:
            self._none_idle_s[address] = self._clock_s()
        return bool(going)
