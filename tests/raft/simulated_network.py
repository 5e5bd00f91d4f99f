"""A network that drops, repeats, delays and cuts, as a seed says."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from paxosblock.namenode.raft import raft_messages
from paxosblock.namenode.raft.raft_messages import Deliver, Message
from tests.raft.virtual_time import Host, VirtualTimeLoop


@dataclass(slots=True)
class Weather:
    """Things that may happen to a message: probabilities, and delays in seconds."""

    lost: float = 0.0
    repeated: float = 0.0
    late: float = 0.0
    late_s: float = 3.0
    delay_s: tuple[float, float] = (0.0005, 0.003)


@dataclass(slots=True)
class Network:
    """Knows who hears whom. `on_send` sees every message first."""

    loop: VirtualTimeLoop
    rng: random.Random
    weather: Weather = field(default_factory=Weather)
    cut: set[tuple[str, str]] = field(default_factory=set)
    listeners: dict[str, Deliver] = field(default_factory=dict)
    on_send: Callable[[str, str, Message], None] = lambda sender, peer, message: None
    sent: int = 0

    def send(self, sender: str, peer: str, message: Message) -> None:
        self.sent += 1
        self.on_send(sender, peer, message)
        data, weather = raft_messages.encode(message), self.weather
        for _ in range(1 + (self.rng.random() < weather.repeated)):
            if self.rng.random() >= weather.lost:
                late = self.rng.random() < weather.late
                delay = self.rng.uniform(*((0, weather.late_s) if late else weather.delay_s))
                self.loop.in_world(delay, self._arrive, sender, peer, data)

    def _arrive(self, sender: str, peer: str, data: bytes) -> None:
        if (sender, peer) not in self.cut and peer in self.listeners:
            self.listeners[peer](sender, raft_messages.decode(data))

    def partition(self, group: set[str], everybody: tuple[str, ...]) -> None:
        """Cut what goes between `group` and the others."""
        for one in everybody:
            for other in everybody:
                if (one in group) != (other in group):
                    self.cut.add((one, other))

    def heal(self) -> None:
        self.cut.clear()
        self.weather = Weather()


@dataclass(slots=True)
class SimulatedTransport:
    """`Transport` of one process."""

    network: Network
    address: str
    host: Host
    dead: bool = False

    def start(self, deliver: Deliver) -> None:
        assert self.address not in self.network.listeners, "two processes of one member"

        def hear(sender: str, message: Message) -> None:
            if not self.dead:
                deliver(sender, message)

        def arrive(sender: str, message: Message) -> None:
            # As in the process, the task that reads the connection is woken first.
            self.host.call(sender, self.network.loop.call_soon, hear, sender, message)

        self.network.listeners[self.address] = arrive

    def know(self, members: Collection[str]) -> None:
        """Do nothing: everybody reaches everybody here."""

    def send(self, peer: str, message: Message) -> None:
        if not self.dead:
            self.network.send(self.address, peer, message)

    async def close(self) -> None:
        self.unplug()

    def unplug(self) -> None:
        """Send and hear nothing any more."""
        if not self.dead:
            self.dead = True
            self.network.listeners.pop(self.address, None)
