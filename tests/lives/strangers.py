"""Strangers, who do not know the secret of a simulated cluster, at the doors of its nodes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from paxosblock.api.datanode import (
    ACCEPT,
    ACCEPT_ALL,
    FIND_CHUNK,
    FIND_REPLICA,
    LIST_REPLICAS,
    PROCESS,
)
from paxosblock.errors import AccessDeniedError, PaxosBlockError
from paxosblock.namenode.calls import CALLS
from paxosblock.net.port.access import NONCE, PROOF, Access
from paxosblock.net.port.handshake import NONCE_BYTES, PROOF_BYTES
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.wire import Header

if TYPE_CHECKING:
    from tests.lives.network import Network

SECRET: Final = Access((b"the secret of nodes and users",))
OF_NAMENODES: Final = tuple(call.method.name for call in CALLS)
OF_DATANODES: Final = tuple(
    each.name for each in (ACCEPT, ACCEPT_ALL, FIND_CHUNK, FIND_REPLICA, LIST_REPLICAS, PROCESS)
)


def knock(address: str, rng: random.Random) -> None:
    """Come to the door of a node with no proof, a made-up one, or the node's own.

    Raises:
        AccessDeniedError: the door stays shut, as it should.
    """
    offered = {NONCE: rng.randbytes(NONCE_BYTES).hex()} if rng.random() < 0.7 else {}
    challenge = SECRET.challenge("/calls", offered, is_own=lambda _: True)
    if challenge is not None:
        proofs = bytes.fromhex(challenge.headers[PROOF]), rng.randbytes(PROOF_BYTES)
        if not challenge.met_by(rng.choice(proofs)):
            raise AccessDeniedError(f"{address} closed the connection")


async def try_door(network: Network, address: str, methods: tuple[str, ...]) -> None:
    """Ask for one of `methods`, as a process that the network takes for a stranger."""
    method = network.rng.choice(methods)
    try:
        said: object = await network.ask(address, method, b"\xc0")
    except PaxosBlockError as error:
        said = error
    network.promises.stranger(f"{method} of {address}", said)


class _Deaf:
    """Handles frames that come to a stranger who only wants a connection."""

    def payload_buffer(self, header: Header) -> memoryview | None:
        return None

    def frame_received(
        self, connection: FrameConnection, header: Header, frame: memoryview
    ) -> None: ...

    def payload_received(
        self, connection: FrameConnection, header: Header, payload: memoryview
    ) -> None: ...

    def connection_lost(self, connection: FrameConnection, error: PaxosBlockError) -> None: ...


async def try_stream(network: Network, address: str) -> None:
    """Ask for a data stream, over which a stranger could write chunks."""
    host, _, port = address.rpartition(":")
    try:
        said: object = await network.connect(host, int(port), _Deaf())
    except PaxosBlockError as error:
        said = error
    network.promises.stranger(f"a stream of {address}", said)
