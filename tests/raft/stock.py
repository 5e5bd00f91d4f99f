"""Stock raftos 0.2.6 in the same virtual time and on the same network.

Three shims make it run at all on today's Python: a `Node` that does not call the broken
constructor (P1), a serializer (P2) and the exception it expects in `asyncio.futures` (P5). Its
files are real ones; a log in JSON keeps S1 from hiding the rest.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from raftos.conf import config
from raftos.serializers import JSONSerializer
from raftos.server import Node
from raftos.state import Leader, State
from raftos.storage import Log

from tests.raft.virtual_time import VirtualTimeLoop

SETTINGS = {"heartbeat_interval": 0.05, "step_down_missed_heartbeats": 5}
Address = tuple[str, int]


@dataclass(slots=True)
class Wires:
    """The network: delays of 0.5 to 3 ms, `cut` members, and late messages if wanted."""

    loop: VirtualTimeLoop
    rng: random.Random
    late: float = 0.0
    cut: set[Address] = field(default_factory=set)
    nodes: dict[Address, StockNode] = field(default_factory=dict)

    def send(self, sender: Address, peer: Address, data: dict[str, Any]) -> None:
        late = self.rng.random() < self.late
        delay = self.rng.uniform(0, 1) if late else self.rng.uniform(0.0005, 0.003)
        self.loop.call_later(delay, self._arrive, sender, peer, json.dumps(data))

    def _arrive(self, sender: Address, peer: Address, data: str) -> None:
        if not self.cut & {sender, peer}:
            self.nodes[peer].request_handler({**json.loads(data), "sender": sender})


class WatchedLog(Log):  # type: ignore[misc]  # raftos has no types
    """raftos' own log; counts the applied entries that it is told to erase."""

    applied: ClassVar[int] = 0
    erased: ClassVar[Counter[str]] = Counter()

    def erase_from(self, index: int) -> None:
        self.erased["applied entries"] += index <= WatchedLog.applied
        super().erase_from(index)


class StockNode(Node):  # type: ignore[misc]  # raftos has no types
    """raftos' node, role and storage as they are, on `Wires`."""

    def __init__(self, address: Address, wires: Wires) -> None:
        self.host, self.port = address
        self.address, self.wires, self.loop = address, wires, wires.loop
        self.cluster = [(f"n{n}", 1) for n in range(3) if f"n{n}" != self.host]
        with mock.patch("raftos.state.Log", WatchedLog):
            self.state = type(f"State_{self.host}", (State,), {})(self)
        wires.nodes[address] = self
        self.state.start()

    async def send(self, data: dict[str, Any], destination: Any) -> None:
        if isinstance(destination, str):
            host, _, port = destination.partition(":")
            destination = host, int(port)
        self.wires.send(self.address, destination, data)

    def leads(self) -> bool:
        return isinstance(self.state.state, Leader)


class StockCluster:
    """Three stock members and writers that wait for each answer at most a second."""

    def __init__(self, loop: VirtualTimeLoop, seed: int, late: float) -> None:
        self.loop = loop
        self.rng = random.Random(seed)
        self.wires = Wires(loop, random.Random(seed), late)
        WatchedLog.applied, WatchedLog.erased = 0, Counter()
        for number in range(3):
            StockNode((f"n{number}", 1), self.wires)
        self.counts: Counter[str] = Counter()

    async def write(self, name: str, until: float) -> None:
        number = 0
        while self.loop.now < until:
            await self.loop.pass_time(self.rng.uniform(0.001, 0.03))
            leaders = [node for node in self.wires.nodes.values() if node.leads()]
            if not leaders:
                continue
            number += 1
            try:
                async with asyncio.timeout(1.0):
                    await leaders[0].state.set_value(name, f"{name}-{number}")
                self.counts["answered"] += 1
            except TimeoutError:
                self.counts["hung"] += 1

    async def watch(self, until: float) -> None:
        """Note how far the cluster has applied: what is erased of that had been promised."""
        while self.loop.now < until:
            await self.loop.pass_time(0.002)
            applied = max(node.state.log.last_applied for node in self.wires.nodes.values())
            WatchedLog.applied = max(WatchedLog.applied, applied)

    async def cut_off_leaders(self, until: float) -> None:
        while self.loop.now < until:
            await self.loop.pass_time(self.rng.uniform(0.3, 0.9))
            self.wires.cut = {node.address for node in self.wires.nodes.values() if node.leads()}
            await self.loop.pass_time(self.rng.uniform(0.3, 1.0))
            self.wires.cut = set()


async def run(cluster: StockCluster, clients: int, cut_off: bool) -> Counter[str]:
    """Three seconds of writes; then, without faults, whether any write still gets through."""
    work = [cluster.write(f"c{n}", 3.0) for n in range(clients)]
    work.append(cluster.watch(3.0))
    if cut_off:
        work.append(cluster.cut_off_leaders(3.0))
    await asyncio.gather(*work)
    cluster.wires.late = 0.0
    before = cluster.counts["answered"]
    await cluster.write("last", cluster.loop.now + 3.0)
    cluster.counts["wedged"] = int(cluster.counts["answered"] == before)
    cluster.counts["erased"] = WatchedLog.erased["applied entries"]
    return cluster.counts


@contextmanager
def shims(folder: Path, seed: int) -> Iterator[None]:
    """Patch what stock code needs to run here; all of it is taken back."""
    before = dict(vars(config))
    config.configure({**SETTINGS, "log_path": str(folder), "serializer": JSONSerializer})
    errors = mock.patch("asyncio.futures.InvalidStateError", asyncio.InvalidStateError, create=True)
    with errors, mock.patch("raftos.state.random", random.Random(seed)):
        try:
            yield
        finally:
            vars(config).update(before)


def simulate_stock(
    folder: Path, seed: int, *, clients: int = 1, late: float = 0.0, cut_off: bool = False
) -> Counter[str]:
    """Run one seed; the counts tell what went wrong: "erased", "hung", "wedged", "errors"."""
    loop = VirtualTimeLoop()
    asyncio.set_event_loop(loop)
    try:
        with shims(folder, seed):
            counts = loop.run_until_complete(run(StockCluster(loop, seed, late), clients, cut_off))
            counts["errors"] = len(loop.lost)
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            return counts
    finally:
        asyncio.set_event_loop(None)
        loop.close()
