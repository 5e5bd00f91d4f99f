"""Messages between NameNodes on each node's own HTTP port: `GET /raft` with an Upgrade.

Every member calls every other one and only sends on the connections it made; answers come on the
connections that the others made. After the `101` come frames (secure_channel.py), one message each.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from paxosblock.base.units import MIB
from paxosblock.errors import (
    AccessDeniedError,
    ConfigError,
    DeadlineError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.namenode.raft import raft_messages
from paxosblock.namenode.raft.raft_messages import Deliver, Message
from paxosblock.namenode.raft.secure_channel import FROM, NONCE, PROOF, TO, Opener, Sealer
from paxosblock.net.calls.control import split_address
from paxosblock.net.port import upgrade, upgrade_server
from paxosblock.net.port.access_server import add_without_token
from paxosblock.net.port.admission import Rank, Slot
from paxosblock.net.port.handshake import (
    NONCE_BYTES,
    SECRET_BYTES_MIN,
    Handshake,
    header_bytes,
    nonce_of,
)

RAFT_PATH: Final = "/raft"
UPGRADE: Final = "paxosblock-raft/5"
UNSENT_BYTES_MAX: Final = 64 * MIB
"""A message is dropped while this much is unsent; the engine repeats those that matter."""

REASONS_MAX: Final = 100
"""Reasons for refusing a connection that are remembered, so that the log tells each once."""

CALL_AGAIN_S: Final = 0.1
HANDSHAKE_S: Final = 3.0
DEAD_AFTER_MS: Final = 3000
"""A connection whose bytes the peer does not acknowledge for this long is given up."""

_log = logging.getLogger(__name__)

_LINEAGE_PURPOSE = b"paxosblock lineage "


def key_of(secret: bytes, lineage: str) -> bytes:
    """Return the key by which the members of this lineage know each other: no folder of another
    lineage takes part (folder_admission.py)."""
    return hmac.digest(secret, _LINEAGE_PURPOSE + lineage.encode(), "sha256")


def check_secret(secret: bytes) -> None:
    """Raise ConfigError if a cluster's secret is too short."""
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(f"the cluster secret must have at least {SECRET_BYTES_MIN} bytes")


@dataclass(slots=True)
class TransportCounters:
    """Counts of what was refused or lost since the start."""

    connections_refused: int = 0
    messages_malformed: int = 0
    messages_dropped: int = 0


class HttpTransport:
    """The `Transport` of a NameNode."""

    def __init__(
        self,
        address: str,
        members: Sequence[str],
        secret: bytes,
        on_proven: Callable[[str], None] = lambda peer: None,
    ) -> None:
        """Connect nothing before `start`.

        Args:
            address: this NameNode's address.
            members: the addresses of all NameNodes.
            secret: the cluster's secret.
            on_proven: is called with the address of another member that has proven itself.

        Raises:
            ConfigError: the secret is too short.
        """
        check_secret(secret)
        self.counters = TransportCounters()
        self._address, self._secret = address, secret
        self._links = {peer: _PeerLink(self, peer) for peer in members if peer != address}
        self._receivers: set[_Receiver] = set()
        self._deliver: Deliver | None = None
        self._logged: set[str] = set()
        self.on_proven = on_proven

    def __repr__(self) -> str:
        up = [peer for peer, link in self._links.items() if link.up]
        return f"HttpTransport({self._address}, connected to {up})"

    def add_to(self, app: web.Application) -> None:
        """Add the route; messages that come before `start` are refused."""
        add_without_token(app, RAFT_PATH, self._upgrade)

    def know_by(self, key: bytes) -> None:
        """Know the other members by this key, before `start`: the secret and their lineage."""
        assert self._deliver is None, "no member is known by another key"
        self._secret = key

    def start(self, deliver: Deliver) -> None:
        self._deliver = deliver
        for link in self._links.values():
            link.start()

    def send(self, peer: str, message: Message) -> None:
        if not self._links[peer].send(raft_messages.encode(message)):
            self.counters.messages_dropped += 1

    async def close(self) -> None:
        self._deliver = None
        for link in self._links.values():
            await link.close()
        for receiver in tuple(self._receivers):
            receiver.abort()

    async def _upgrade(self, request: web.Request) -> web.StreamResponse:
        caller, called = request.headers.get(FROM, ""), request.headers.get(TO, "")
        nonce = nonce_of(request.headers.get(NONCE, ""))
        known = caller in self._links and called == self._address and nonce is not None
        meant = request.headers.get("Upgrade", "").lower() == UPGRADE
        transport = request.transport
        if self._deliver is None or transport is None:
            return upgrade_server.refusal(UnavailableError(f"{self._address} is not open yet"))
        if not known or not meant:
            self.refuse_connection(f"{caller or request.remote} is no other member")
            return web.Response(status=403, text="only NameNodes of this cluster speak here\n")
        assert nonce is not None, "checked with the names"
        handshake = Handshake(caller, called, nonce, os.urandom(NONCE_BYTES))
        receiver = _Receiver(self, caller, handshake.key(self._secret))
        self._receivers.add(receiver)
        answer = {
            "Upgrade": UPGRADE,
            NONCE: handshake.called_nonce.hex(),
            PROOF: handshake.proof(self._secret).hex(),
        }
        receiver.hold(upgrade_server.take_over(request, transport, receiver, answer))
        return web.Response(status=101)  # for the access log; it finds the connection gone

    # -- for links and receivers ------------------------------------------------------------------

    def introduction(self, peer: str, nonce: bytes) -> dict[str, str]:
        """Return the headers of the request for a connection to `peer`."""
        return {FROM: self._address, TO: peer, NONCE: nonce.hex()}

    def check_answer(self, peer: str, nonce: bytes, headers: Mapping[str, str]) -> Sealer:
        """Return the sealer of frames for `peer`, whose answer proves that it knows the secret.

        Raises:
            ProtocolError: the answer does not prove it.
        """
        called_nonce = nonce_of(headers.get(NONCE.lower(), ""))
        if called_nonce is None:
            raise ProtocolError(f"{peer} does not take messages of {self._address}")
        handshake = Handshake(self._address, peer, nonce, called_nonce)
        proof = header_bytes(headers.get(PROOF.lower(), ""))  # of text it takes ASCII only
        if not hmac.compare_digest(proof, handshake.proof(self._secret).hex().encode()):
            raise ProtocolError(f"{peer} does not know the cluster's secret")
        return Sealer(handshake.key(self._secret))

    def received(self, sender: str, body: bytes) -> None:
        """Hand a message to the engine.

        Raises:
            ProtocolError: the message is malformed.
        """
        message = raft_messages.decode(body)
        if self._deliver is not None:
            self._deliver(sender, message)

    def refuse_connection(self, why: str) -> None:
        """Count a stranger's connection; log each reason once, as it may try ten times a second."""
        self.counters.connections_refused += 1
        if why not in self._logged:
            if len(self._logged) >= REASONS_MAX:
                self._logged.clear()
            self._logged.add(why)
            _log.warning("%s refuses a connection: %s", self._address, why)

    def forget(self, receiver: _Receiver) -> None:
        """Drop the receiver of a connection that is gone."""
        self._receivers.discard(receiver)


class _Receiver(asyncio.Protocol):
    """The called end of a connection."""

    def __init__(self, owner: HttpTransport, caller: str, key: bytes) -> None:
        self._owner, self._caller = owner, caller
        self._opener = Opener(key)
        self.slot = Slot(None, "")
        """Its slot among the connections of clients, until the caller has proven to be a member."""
        self._transport: asyncio.BaseTransport | None = None
        self._patience: asyncio.TimerHandle | None = None

    # -- for the admission: one that has proven itself no longer counts there --------------------

    def hold(self, slot: Slot) -> None:
        """Hold this slot until the caller has proven to be a member."""
        self.slot = slot
        slot.holder = self

    @property
    def idle(self) -> bool:
        return True

    @property
    def idle_rank(self) -> tuple[Rank, float]:
        return Rank.UNUSED, 0.0

    def dismiss(self) -> None:
        """Close it, as it has proven nothing."""
        self.abort()

    # -- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._patience = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._give_up)

    def data_received(self, data: bytes) -> None:
        proven = self._opener.proven
        try:
            for body in self._opener.feed(data):
                self._owner.received(self._caller, body)
        except ProtocolError as error:
            self._refuse(str(error))
        if self._opener.proven and not proven:
            self._owner.on_proven(self._caller)
            self.slot.release()
            if self._patience is not None:
                self._patience.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self.slot.release()
        self._owner.forget(self)

    def abort(self) -> None:
        """Close at once."""
        if isinstance(self._transport, asyncio.Transport):
            self._transport.abort()
        elif self._transport is not None:
            self._transport.close()

    def _give_up(self) -> None:
        if not self._opener.proven:
            self._refuse("it sends nothing")

    def _refuse(self, why: str) -> None:
        if self._opener.proven:
            self._owner.counters.messages_malformed += 1
            _log.warning("a message from %s is refused: %s", self._caller, why)
        else:
            self._owner.refuse_connection(f"one that claims to be {self._caller}: {why}")
        self.abort()


class _PeerLink:
    """The calling end of a connection, which is made again whenever it is lost."""

    def __init__(self, owner: HttpTransport, peer: str) -> None:
        self._owner, self._peer = owner, peer
        self._sealer: Sealer | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        return self._sealer is not None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_connected())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def send(self, body: bytes) -> bool:
        """Send, and return True, unless the connection is down or stuck."""
        if self._sealer is None or self._writer is None or self._writer.is_closing():
            return False
        if self._writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return False
        self._writer.write(self._sealer.seal(body))
        return True

    async def _keep_connected(self) -> None:
        while True:
            try:
                await self._connected()
            except (UnavailableError, DeadlineError, AccessDeniedError) as error:
                _log.debug("no connection to %s: %s", self._peer, error)
            except PaxosBlockError as error:
                self._owner.refuse_connection(str(error))
            except OSError as error:  # no process listens there, or not yet
                _log.debug("no connection to %s: %s", self._peer, error)
            await asyncio.sleep(CALL_AGAIN_S)

    async def _connected(self) -> None:
        """Connect, and return when the connection is lost."""
        owner, peer, nonce = self._owner, self._peer, os.urandom(NONCE_BYTES)
        asked = owner.introduction(peer, nonce)
        sock, headers = await upgrade.call(
            *split_address(peer), RAFT_PATH, UPGRADE, asked, timeout_s=HANDSHAKE_S, tune=_tune
        )
        reader, writer = await asyncio.open_connection(sock=sock)
        try:
            sealer = owner.check_answer(peer, nonce, headers)
            writer.write(sealer.seal(b""))
            self._writer, self._sealer = writer, sealer
            await reader.read()  # nothing comes on this connection but its end
        finally:
            self._writer = self._sealer = None
            writer.transport.abort()


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # A machine that lost power sends no end of the connection: by default Linux would send the
        # same bytes to it again for a quarter of an hour (tcp_retries2) before it gave up.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
