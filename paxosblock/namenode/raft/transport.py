"""What the engine asks of a network between members, whichever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from paxosblock.namenode.raft.messages import Message

Deliver = Callable[[str, Message], None]
"""Called in the event loop with the address of the member that sent the message."""


class Transport(Protocol):
    """Messages between members: they may be lost, repeated or late, never forged."""

    def start(self, deliver: Deliver) -> None:
        """Begin to deliver what the other members send to this one."""

    def send(self, peer: str, message: Message) -> None:
        """Send without waiting. What cannot be sent is lost: the engine sends it again."""

    async def close(self) -> None:
        """Deliver nothing more, and release what is open."""
