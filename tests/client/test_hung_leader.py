"""A leader that hangs, in virtual time: when the client looks for another one, and what that costs.

The connections are played, so that each instant is exact; tests/services has the real processes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pytest

from paxosblock.api.namenode import DELETE, DeletePath, Deletion
from paxosblock.api.status import NAMENODE_STATUS, NameNodeStatus
from paxosblock.client.session.namenodes import NameNodes
from paxosblock.errors import DeadlineError, NotLeaderError, UnavailableError
from paxosblock.net.calls.leader_search import ALIVE_FOR_S, LOOKS_EVERY_S, SILENT_AFTER_S
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.access import OPEN, Access
from tests.raft.virtual_time import VirtualTimeLoop

T = TypeVar("T")

A, B, C = "nn-a:1", "nn-b:1", "nn-c:1"
TIMEOUT_S = 10.0


@dataclass
class Network:
    """Three NameNodes as a client meets them: one that hangs, and two of which one leads later."""

    hung: str = A
    new_leader: str = B
    leads_from_s: float = 0.6
    hangs_until_s: float = float("inf")
    says_how_it_is: bool = False
    connects: bool = True
    asked: list[tuple[float, str]] = field(default_factory=list)
    questions: int = 0
    access: Access = OPEN

    def send(self, *question: Any) -> asyncio.Future[object]:
        """Play `RpcClient.send`."""
        return asyncio.ensure_future(self.call(*question))

    async def call(
        self, address: str, method: str, request: object, answer: object, timeout_s: float
    ) -> object:
        now_s = asyncio.get_running_loop().time()
        status = method == NAMENODE_STATUS.name
        self.questions += status
        if not status:
            self.asked.append((round(now_s, 3), address))
        if address == self.hung and not (status and self.says_how_it_is):
            await self._hang(timeout_s)
        if status:
            leads = address == self.new_leader and now_s >= self.leads_from_s
            return NameNodeStatus(address, "", leads, "", 2, 0, 0, {}, (), ())
        if address != self.hung and (address != self.new_leader or now_s < self.leads_from_s):
            raise NotLeaderError("it does not lead", leader="")
        return Deletion(existed=True)

    async def _hang(self, timeout_s: float) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self.connects:
            await pass_time(timeout_s / 2)
            raise UnavailableError("cannot be reached: timed out")
        await pass_time(min(timeout_s, self.hangs_until_s - now_s))
        if now_s + timeout_s <= self.hangs_until_s:
            raise DeadlineError(f"no answer in {timeout_s:g} s")


async def pass_time(seconds: float) -> None:
    """Let so much virtual time pass."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    await loop.pass_time(seconds)


def run(awaitable: Coroutine[Any, Any, T]) -> T:
    """Run it in virtual time; nothing may be left behind."""
    loop = VirtualTimeLoop()
    with contextlib.closing(loop):
        result = loop.run_until_complete(awaitable)
        assert not asyncio.all_tasks(loop)
        assert loop.lost == []
    return result


def delete(network: Network) -> tuple[bool, float]:
    """One call of a client whose first NameNode is the one that hangs; and how long it took."""

    async def ask() -> tuple[bool, float]:
        rpc = cast(RpcClient, network)
        namenodes = NameNodes([A, B, C], rpc, timeout_s=TIMEOUT_S, retry_for_s=30.0)
        answer = await namenodes.call(DELETE, DeletePath("/a"))
        return answer.existed, asyncio.get_running_loop().time()

    return run(ask())


@pytest.mark.parametrize("connects", [True, False])
@pytest.mark.parametrize("leads_from_s", [0.4, 0.6, 0.8])
def test_a_hung_leader_costs_little_more_than_the_election(
    leads_from_s: float, connects: bool
) -> None:
    network = Network(leads_from_s=leads_from_s, connects=connects)
    existed, took_s = delete(network)
    assert existed
    assert took_s <= max(leads_from_s + LOOKS_EVERY_S, 2 * SILENT_AFTER_S) + 0.001
    assert [address for _, address in network.asked] == [A, B]


def test_once_another_one_leads_a_hung_one_costs_two_short_silences() -> None:
    _, took_s = delete(Network(leads_from_s=0.0))
    assert took_s == pytest.approx(2 * SILENT_AFTER_S)


def test_while_nobody_leads_the_hung_one_is_waited_for_and_its_late_answer_counts() -> None:
    network = Network(leads_from_s=float("inf"), hangs_until_s=5.0)
    existed, took_s = delete(network)
    assert (existed, took_s) == (True, 5.0)
    assert [address for _, address in network.asked] == [A]


def test_one_that_says_how_it_is_may_take_its_time_and_is_asked_rarely() -> None:
    network = Network(leads_from_s=0.0, hangs_until_s=8.0, says_how_it_is=True)
    existed, took_s = delete(network)
    assert (existed, took_s) == (True, 8.0)
    assert network.questions <= 8.0 / ALIVE_FOR_S + 1
    assert [address for _, address in network.asked] == [A]
