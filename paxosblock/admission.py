"""How many connections a node bears, and which of them go when more come.

Every connection has a slot, counted for the node and for the address it comes from. When there is
no free one, the connections give theirs that wait for a next request: of the address that has the
most, those first on which none ever came, then those that wait longest. So who only holds
connections open keeps nobody out.

When all are in use, a few more are let in for one request each: a peer or a DataNode is known only
by what it says, and must be heard. A link between NameNodes counts no more once it has proven that
it is one.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final, Protocol

from paxosblock.refusals import Refusal, Refusals

SPARE_COUNT: Final = 32
"""Connections beyond the cap that are let in for one request each."""
CLOSED_TOGETHER: Final = 16
"""Idle connections that make room at a time, so that they are not searched for each new one."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Connections of the whole node, and of one address, at a time."""

    node: int
    address: int

    @classmethod
    def within(cls, node: int, address: int, descriptors: int) -> Caps:
        """The caps asked for, as far as `descriptors` go; no address gets more than three quarters.

        The spare ones, too, must fit.
        """
        most = max(1, min(node, descriptors - SPARE_COUNT))
        return cls(most, max(1, min(address, most - most // 4)))


class Holder(Protocol):
    """Who has a slot and may be asked for it."""

    @property
    def idle(self) -> bool:
        """True while it waits for a next request."""

    @property
    def idle_rank(self) -> tuple[bool, float]:
        """The lower, the sooner it goes."""

    def dismiss(self) -> None:
        """Close it; it is idle."""


class Slot:
    """The place of one connection, until it is released."""

    __slots__ = ("_admission", "address", "holder", "spare")

    def __init__(self, admission: Admission | None, address: str, *, spare: bool = False) -> None:
        """`spare`: good for one request only. Without an admission it counts nowhere."""
        self._admission = admission
        self.address = address
        self.spare = spare
        self.holder: Holder | None = None

    def release(self) -> None:
        """It counts no more; may be called twice."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.released(self)


class Admission:
    """The slots of one node."""

    def __init__(self, caps: Caps, refusals: Refusals) -> None:
        """No connection yet."""
        self._caps = caps
        self._refusals = refusals
        self._slots: dict[str, dict[Slot, None]] = {}
        self._count = 0
        self._spare_count = 0

    @property
    def count(self) -> int:
        """Connections that count."""
        return self._count + self._spare_count

    def admit(self, address: str) -> Slot | None:
        """Return a slot for a new connection from `address`, None when it must be refused."""
        own = self._slots.get(address, {})
        if len(own) >= self._caps.address:
            crowd, why = address, Refusal.ADDRESS_FULL
        elif self._count >= self._caps.node:
            crowd, why = (
                max(self._slots, key=lambda each: len(self._slots[each])),
                Refusal.NODE_FULL,
            )
        else:
            return self._take(address)
        if self._make_room(crowd) or (why is Refusal.NODE_FULL and self._make_room_anywhere()):
            return self._take(address)
        if self._spare_count < SPARE_COUNT:
            self._spare_count += 1
            return Slot(self, address, spare=True)
        self._refusals.count(why, address)
        return None

    def make_room(self) -> None:
        """Close some idle connections, if there are any: something else ran out."""
        if self._slots:
            self._make_room_anywhere()

    def released(self, slot: Slot) -> None:
        """For `Slot.release`."""
        if slot.spare:
            self._spare_count -= 1
            return
        self._count -= 1
        own = self._slots[slot.address]
        del own[slot]
        if not own:
            del self._slots[slot.address]

    def _take(self, address: str) -> Slot:
        slot = Slot(self, address)
        self._slots.setdefault(address, {})[slot] = None
        self._count += 1
        return slot

    def _make_room_anywhere(self) -> bool:
        """Those with many first; True if somebody gave way."""
        crowds = sorted(self._slots, key=lambda each: len(self._slots[each]), reverse=True)
        return any(self._make_room(crowd) for crowd in crowds)

    def _make_room(self, address: str) -> bool:
        """Close idle connections of the address; False when it has none."""
        holders = ((slot.holder, slot) for slot in self._slots[address])
        idle = [(holder, slot) for holder, slot in holders if holder is not None and holder.idle]
        going = heapq.nsmallest(CLOSED_TOGETHER, idle, key=lambda each: each[0].idle_rank)
        for holder, slot in going:
            slot.release()
            holder.dismiss()
        if going:
            self._refusals.count(Refusal.IDLE, address, len(going))
        return bool(going)
