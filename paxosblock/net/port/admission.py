"""Limits the connections of a node, and chooses which ones to close when more come.

Every connection has a slot, counted for the node and for the address it comes from. If no slot is
free, connections that wait for their next request give up theirs: at the address that has the most,
first those that never had a request, then those that have waited longest, then those of which only
a part of a request has come. So a client that only holds connections open keeps nobody out.

When all are in use, a few more are let in for one request each: only its first request shows that a
connection is a peer's or a DataNode's, which must be heard. A link between NameNodes no longer
counts once it has proven that it is one.
"""

from __future__ import annotations

import enum
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from paxosblock.net.port.refusals import Refusal, Refusals

SPARE_COUNT: Final = 32
"""Connections beyond the cap that are let in for one request each."""
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

        The spare ones, too, must fit.
        """
        most = max(1, min(node, descriptors - SPARE_COUNT))
        return cls(most, max(1, min(address, most - most // 4)))


class Rank(enum.IntEnum):
    """The order in which connections with nothing under way are closed."""

    UNUSED = 0
    """It never had a request, so it has proven nothing."""
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
        """Close it; it is idle."""


class Slot:
    """The place of one connection, until it is released."""

    __slots__ = ("_admission", "address", "holder", "spare")

    def __init__(self, admission: Admission | None, address: str, *, spare: bool = False) -> None:
        """A `spare` slot is for one request only. Without an admission it is not counted."""
        self._admission = admission
        self.address = address
        self.spare = spare
        self.holder: Holder | None = None

    def release(self) -> None:
        """Stop counting it; may be called twice."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.released(self)


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
        self._slots: dict[str, dict[Slot, None]] = {}
        self._count = 0
        self._spare_count = 0

    @property
    def count(self) -> int:
        """Connections that count."""
        return self._count + self._spare_count

    def admit(self, address: str) -> Slot | None:
        """Return a slot for a new connection from `address`; None if it must be refused."""
        own = self._slots.get(address, {})
        if len(own) >= self._caps.address:
            why, has_room = Refusal.ADDRESS_FULL, self._make_room(address)
        elif self._count >= self._caps.node:
            why, has_room = Refusal.NODE_FULL, self._make_room_anywhere()
        else:
            return self._take(address)
        if has_room:
            return self._take(address)
        if self._spare_count < SPARE_COUNT:
            self._spare_count += 1
            return Slot(self, address, spare=True)
        self._refusals.count(why, address)
        return None

    def make_room(self) -> None:
        """Close some idle connections, if there are any, because something else ran out."""
        if self._slots:
            self._make_room_anywhere()

    def released(self, slot: Slot) -> None:
        """Take the slot back: only `Slot.release` calls this."""
        if slot.spare:
            self._spare_count -= 1
            return
        self._count -= 1
        own = self._slots[slot.address]
        del own[slot]
        if not own:
            del self._slots[slot.address]
            self._none_idle_s.pop(slot.address, None)

    def _take(self, address: str) -> Slot:
        slot = Slot(self, address)
        self._slots.setdefault(address, {})[slot] = None
        self._count += 1
        return slot

    def _make_room_anywhere(self) -> bool:
        """Begin with addresses that have many; return True if a connection was closed."""
        if self._searched_in_vain(_ANYWHERE):
            return False
        crowds = sorted(self._slots, key=lambda each: len(self._slots[each]), reverse=True)
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
        holders = ((slot.holder, slot) for slot in self._slots[address])
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
