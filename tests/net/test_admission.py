"""The connections that a node takes, and those that give way."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest

from paxosblock.errors import UnavailableError
from paxosblock.net.port.admission import (
    CLOSED_TOGETHER,
    SEARCH_AGAIN_S,
    SPARE_COUNT,
    UNPROVEN_MIN,
    Admission,
    Caps,
    Rank,
    Slot,
)
from paxosblock.net.port.refusals import Refusal, Refusals


@dataclass
class Connection:
    """A holder; `used` it was last."""

    slot: Slot
    used: int = 0
    asked: bool = True
    in_wait: bool = True
    closed: bool = False
    looks: int = 0

    @property
    def idle(self) -> bool:
        self.looks += 1
        return self.in_wait

    @property
    def idle_rank(self) -> tuple[Rank, float]:
        return Rank.USED if self.asked else Rank.UNUSED, self.used

    def dismiss(self) -> None:
        assert self.in_wait or not self.slot.proven
        self.closed = True


class Node:
    """An admission and the connections to it."""

    def __init__(self, caps: Caps) -> None:
        self.refusals = Refusals()
        self.now_s = 0.0
        self.admission = Admission(caps, self.refusals, lambda: self.now_s)

    def connect(
        self, address: str, used: int = 0, *, asked: bool = True, idle: bool = True
    ) -> Connection:
        connection = self.begin(address)
        connection.used, connection.asked, connection.in_wait = used, asked, idle
        connection.slot.prove()
        return connection

    def begin(self, address: str) -> Connection:
        """A connection that has proven nothing, of which something is under way."""
        slot = self.admission.admit(address)
        assert slot is not None
        slot.holder = connection = Connection(slot, in_wait=False)
        return connection

    def refused(self, address: str) -> bool:
        """True if one more connection finds no place when it proves itself; it is closed then."""
        slot = self.admission.admit(address)
        assert slot is not None
        try:
            slot.prove()
        except UnavailableError:
            return True
        finally:
            slot.release()
        return False

    def count(self, why: Refusal) -> int:
        return self.refusals.counts[why]


async def test_the_longest_idle_connections_of_an_address_make_room_for_its_next_one() -> None:
    node = Node(Caps(node=100, address=40))
    old = [node.connect("a", used=each) for each in range(40)]
    other = node.connect("b", used=-1)
    new = node.connect("a", used=99)
    assert [each.closed for each in old] == [each < CLOSED_TOGETHER for each in range(40)]
    assert [other.closed, new.closed, new.slot.spare] == [False] * 3
    assert node.count(Refusal.IDLE) == CLOSED_TOGETHER


async def test_connections_on_which_no_request_ever_came_go_first() -> None:
    node = Node(Caps(node=100, address=4))
    useful = [node.connect("a", used=each) for each in range(2)]
    silent = [node.connect("a", used=9, asked=False) for _ in range(2)]
    node.connect("a")
    assert [each.closed for each in silent] == [True, True]
    # All idle ones went: no more are closed together than that, but no fewer either.
    assert [each.closed for each in useful] == [True, True]


async def test_who_holds_most_connections_makes_room_for_others() -> None:
    node = Node(Caps(node=40, address=30))
    crowd = [node.connect("many") for _ in range(30)]
    few = [node.connect("few") for _ in range(10)]
    assert not node.connect("new").slot.spare
    assert sum(each.closed for each in crowd) == CLOSED_TOGETHER
    assert not any(each.closed for each in few)


async def test_what_is_in_use_is_never_closed_and_a_few_more_get_one_request_each() -> None:
    node = Node(Caps(node=8, address=8))
    busy = [node.connect("a", idle=False) for _ in range(8)]
    spare = [node.connect(f"b{each}", idle=False) for each in range(SPARE_COUNT)]
    assert all(each.slot.spare for each in spare)
    assert node.refused("c")
    assert node.count(Refusal.NODE_FULL) == 1
    assert not any(each.closed for each in busy)
    spare[0].slot.release()
    spare[0].slot.release()  # twice counts once
    assert node.connect("c").slot.spare
    assert node.refused("c")


async def test_a_flood_while_all_are_in_use_does_not_search_for_idle_ones_each_time() -> None:
    node = Node(Caps(node=12, address=8))
    busy = [node.connect(each, idle=False) for each in "aaaaaaaabbbb"]
    for _ in range(SPARE_COUNT + 1000):
        for address in "ac":
            waiting = node.begin(address)
            with suppress(UnavailableError):
                waiting.slot.prove()
    assert max(each.looks for each in busy) == 1
    assert node.count(Refusal.ADDRESS_FULL) + node.count(Refusal.NODE_FULL) == 2000 + SPARE_COUNT
    busy[0].in_wait = busy[-1].in_wait = True
    node.now_s += SEARCH_AGAIN_S
    assert not node.connect("a", idle=False).slot.spare
    assert not node.connect("c", idle=False).slot.spare
    assert [each.closed for each in busy] == [True, *[False] * 10, True]


async def test_an_address_at_its_cap_is_refused_while_others_are_not() -> None:
    node = Node(Caps(node=100, address=3))
    for _ in range(3 + SPARE_COUNT):
        node.connect("a", idle=False)
    assert node.refused("a")
    assert node.count(Refusal.ADDRESS_FULL) == 1
    assert not node.connect("b").slot.spare


async def test_what_is_released_counts_no_more() -> None:
    node = Node(Caps(node=2, address=2))
    links = [node.connect("peer", idle=False) for _ in range(2)]
    for link in links:
        link.slot.release()
    assert node.admission.count == 0
    assert not node.connect("client").slot.spare


@pytest.mark.parametrize(
    ("wanted", "descriptors", "caps"),
    [
        ((8192, 4096), 15_000, Caps(8192, 4096)),
        ((8192, 4096), 768, Caps(655, 492)),
        ((100, 4096), 15_000, Caps(100, 75)),
        ((8192, 10), 15_000, Caps(8192, 10)),
        ((8192, 4096), 10, Caps(1, 1)),
    ],
)
def test_caps_stay_within_the_descriptors_and_leave_a_quarter_to_other_addresses(
    wanted: tuple[int, int], descriptors: int, caps: Caps
) -> None:
    assert Caps.within(*wanted, descriptors) == caps
    assert caps.node == 1 or caps.node + SPARE_COUNT + caps.unproven <= descriptors


# --- those that have proven nothing --------------------------------------------------------------


async def test_strangers_take_no_place_of_those_who_proved_themselves() -> None:
    node = Node(Caps(node=40, address=40))
    useful = [node.connect("a") for _ in range(40)]
    strangers = [node.begin("a") for _ in range(1000)]
    assert not any(each.closed for each in useful)
    assert [each.closed for each in strangers] == [
        each < 1000 - UNPROVEN_MIN for each in range(1000)
    ]
    assert node.count(Refusal.UNPROVEN) == 1000 - UNPROVEN_MIN
    assert node.admission.unproven_count == UNPROVEN_MIN
    assert node.admission.count == 40 + UNPROVEN_MIN


async def test_strangers_give_way_where_most_of_them_are() -> None:
    node = Node(Caps(node=40, address=40))
    slow = node.begin("a client far away")
    crowd = [node.begin("many") for _ in range(100)]
    assert not slow.closed
    slow.slot.prove()
    assert sum(each.closed for each in crowd) == 100 - (UNPROVEN_MIN - 1)


async def test_who_proves_himself_is_no_stranger_any_more() -> None:
    node = Node(Caps(node=100, address=100))
    for _ in range(100):
        node.begin("a").slot.prove()
    assert node.admission.unproven_count == 0
    assert node.count(Refusal.UNPROVEN) == 0


async def test_what_was_accepted_in_this_turn_cannot_be_closed_yet() -> None:
    node = Node(Caps(node=40, address=40))
    accepted = [node.admission.admit("a") for _ in range(UNPROVEN_MIN)]
    assert node.admission.admit("a") is None
    assert node.count(Refusal.NODE_FULL) == 1
    assert accepted[3] is not None
    accepted[3].holder = known = Connection(accepted[3])
    assert node.admission.admit("a") is not None
    assert known.closed


async def test_strangers_go_first_when_descriptors_run_out() -> None:
    node = Node(Caps(node=40, address=40))
    idle = [node.connect("a") for _ in range(20)]
    strangers = [node.begin("b") for _ in range(CLOSED_TOGETHER)]
    node.admission.make_room()
    assert all(each.closed for each in strangers)
    assert not any(each.closed for each in idle)
    node.admission.make_room()
    assert sum(each.closed for each in idle) == CLOSED_TOGETHER


async def test_one_that_stays_gets_no_place_for_one_request() -> None:
    node = Node(Caps(node=1, address=1))
    busy = node.connect("a", idle=False)
    late = node.begin("a")
    with pytest.raises(UnavailableError, match="as many connections as it takes"):
        late.slot.prove(stays=True)
    assert not late.slot.proven
    late.slot.prove()
    assert late.slot.spare
    for each in (late, busy):
        each.slot.release()
    assert node.admission.count == 0
