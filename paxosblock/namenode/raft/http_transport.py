"""Messages between NameNodes on each node's own HTTP port: `GET /raft` with an Upgrade.

Every member calls every other one and only sends on the connections it made; answers come on the
connections that the others made. Both ends prove the cluster's secret as callers of other kinds
prove theirs (`net/port/access.py`), and who they are; where nodes have certificates, both must be
those of NameNodes, too. After that come frames (secure_channel.py), one message each.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web

from paxosblock.base.checksum import Buffer
from paxosblock.base.units import MIB
from paxosblock.errors import (
    AccessDeniedError,
    ConfigError,
    CorruptionError,
    DeadlineError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.namenode.raft import raft_messages
from paxosblock.namenode.raft.question import FROM, TO
from paxosblock.namenode.raft.raft_messages import Deliver, Message
from paxosblock.namenode.raft.roster import address_of
from paxosblock.namenode.raft.secure_channel import Opener, Sealer
from paxosblock.net.port import upgrade_server
from paxosblock.net.port.access import Access
from paxosblock.net.port.access_server import add_without_token
from paxosblock.net.port.admission import Rank, Slot
from paxosblock.net.port.certified import CertifiedKind
from paxosblock.net.port.doorkeeper import Doorkeeper, check_namenode
from paxosblock.net.port.handshake import SECRET_BYTES_MIN
from paxosblock.net.port.upgrade import Spoken, connect, split_address

if TYPE_CHECKING:
    from paxosblock.net.port.tls import Tls

RAFT: Final = Spoken("/raft", "paxosblock-raft/8")
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
        name: str,
        members: Sequence[str],
        secret: bytes,
        on_proven: Callable[[str], None] = lambda peer: None,
        tls: Tls | None = None,
    ) -> None:
        """Connect nothing before `start`.

        Args:
            name: that of this NameNode (roster.py).
            members: those of all NameNodes in its list.
            secret: the cluster's secret.
            on_proven: is called with the name of another member that has proven itself.
            tls: has the certificates of TLS.

        Raises:
            ConfigError: the secret is too short.
        """
        check_secret(secret)
        self.counters = TransportCounters()
        self.name, self.access = name, Access((secret,), tls=tls)
        self._links = {peer: _PeerLink(self, peer) for peer in members if peer != name}
        self._closing: set[asyncio.Task[None]] = set()
        self._receivers: set[_Receiver] = set()
        self._deliver: Deliver | None = None
        self._logged: set[str] = set()
        self.on_proven = on_proven

    def __repr__(self) -> str:
        up = [peer for peer, link in self._links.items() if link.up]
        return f"HttpTransport({self.name}, connected to {up})"

    def add_to(self, app: web.Application) -> None:
        """Add the route; messages that come before `start` are refused."""
        add_without_token(app, RAFT.path, self._upgrade)

    def know_by(self, key: bytes) -> None:
        """Know the other members by this key, before `start`: the secret and their lineage."""
        assert self._deliver is None, "no member is known by another key"
        self.access = replace(self.access, secrets=(key,))

    def start(self, deliver: Deliver) -> None:
        self._deliver = deliver
        for link in self._links.values():
            link.start()

    def know(self, members: Collection[str]) -> None:
        for peer in members:
            if peer != self.name:
                self._link(peer)
        for peer in [each for each in self._links if each not in members]:
            closing = asyncio.create_task(self._links.pop(peer).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _link(self, peer: str) -> _PeerLink:
        """Return the connection to a member. One that the list lacks gets answers, too: it may be
        about to be added, or not have heard that it was removed."""
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = _PeerLink(self, peer)
            if self._deliver is not None:
                link.start()
        return link

    def send(self, peer: str, message: Message) -> None:
        if not self._link(peer).send(raft_messages.encode(message)):
            self.counters.messages_dropped += 1

    @property
    def callers(self) -> set[str]:
        """The names of the members that are connected to this one, listed or not."""
        return {receiver.caller for receiver in self._receivers if receiver.proven}

    async def close(self) -> None:
        self._deliver = None
        for link in self._links.values():
            await link.close()
        await asyncio.gather(*self._closing)
        for receiver in tuple(self._receivers):
            receiver.abort()

    async def _upgrade(self, request: web.Request) -> web.StreamResponse:
        caller, called = request.headers.get(FROM, ""), request.headers.get(TO, "")
        transport = request.transport
        if self._deliver is None or transport is None:
            return upgrade_server.refusal(UnavailableError(f"{self.name} is not open yet"))
        if not _is_name(caller) or caller == self.name or called != self.name:
            self.refuse_connection(f"{caller or request.remote} is no other member")
            return _not_for_others()
        if not upgrade_server.asks_for(RAFT, request):
            self.refuse_connection(f"{caller} does not speak {RAFT.protocol}")
            return upgrade_server.unknown_protocol(RAFT)
        try:
            check_namenode(self.access.tls, request)
        except AccessDeniedError as error:
            self.refuse_connection(f"one that claims to be {caller}: {error}")
            return _not_for_others()
        try:
            # The member's name, which is proven, tells more than the address that was dialled.
            about = RAFT.path + names_of(caller, called)
            challenge = self.access.challenge(about, request.headers, lambda _: True)
        except AccessDeniedError:
            self.refuse_connection(f"{caller} offers no proof")
            return _not_for_others()
        assert challenge is not None, "a secret is demanded"
        receiver = _Receiver(self, caller, challenge.key)
        self._receivers.add(receiver)
        doorkeeper = Doorkeeper(challenge, receiver.let_in, receiver.refuse)
        receiver.hold(upgrade_server.take_over(request, transport, RAFT, receiver, doorkeeper))
        return web.Response(status=101)  # for the access log; it finds the connection gone

    # -- for links and receivers ------------------------------------------------------------------

    def received(self, sender: str, body: Buffer) -> None:
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
            _log.warning("%s refuses a connection: %s", self.name, why)

    def forget(self, receiver: _Receiver) -> None:
        """Drop the receiver of a connection that is gone."""
        self._receivers.discard(receiver)


def _is_name(caller: str) -> bool:
    """True if the name has an address to which answers can be sent."""
    host, _, port = address_of(caller).rpartition(":")
    return bool(host) and port.isdecimal() and len(caller.split()) == 1


class _Receiver(asyncio.Protocol):
    """The called end of a connection."""

    def __init__(self, owner: HttpTransport, caller: str, key: bytes) -> None:
        self._owner, self.caller = owner, caller
        self.proven = False
        """True once the caller has shown that it is a member of this lineage."""
        self._opener = Opener(key)
        self.slot = Slot(None, "")
        """Its slot among the connections of clients, until the caller has proven to be a member."""
        self._transport: asyncio.Transport | None = None
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

    def let_in(self, slot: Slot) -> None:
        """Take messages from now on: the caller is the member."""
        slot.release()
        self.proven = True
        if self._patience is not None:
            self._patience.cancel()
        self._owner.on_proven(self.caller)

    def refuse(self, _: str) -> None:
        """Count a caller that is not the member."""
        self._owner.refuse_connection(
            f"one that claims to be {self.caller}: it does not know the cluster's secret"
        )

    # -- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._patience = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._give_up)

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._opener.feed(data):
                self._owner.received(self.caller, body)
        except (ProtocolError, CorruptionError) as error:
            self._owner.counters.messages_malformed += 1
            _log.warning("a message from %s is refused: %s", self.caller, error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self.slot.release()
        self._owner.forget(self)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _give_up(self) -> None:
        self._owner.refuse_connection(f"one that claims to be {self.caller}: it sends nothing")
        self.abort()


class _Outgoing(asyncio.Protocol):
    """The calling end of a connection: nothing comes on it but its end."""

    def __init__(self, key: bytes) -> None:
        self._sealer = Sealer(key)
        self._transport: asyncio.Transport | None = None
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.lost.set()

    def send(self, body: bytes) -> bool:
        """Send, and return True, unless the connection is down or stuck."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return False
        transport.write(self._sealer.seal(body))
        return True

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


class _PeerLink:
    """Keeps a connection to another member, which is made again whenever it is lost."""

    def __init__(self, owner: HttpTransport, peer: str) -> None:
        self._owner, self._peer = owner, peer
        self._outgoing: _Outgoing | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        return self._outgoing is not None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_connected())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def send(self, body: bytes) -> bool:
        """Send, and return True, unless the connection is down or stuck."""
        return self._outgoing is not None and self._outgoing.send(body)

    async def _keep_connected(self) -> None:
        while True:
            try:
                await self._connected()
            except (UnavailableError, DeadlineError) as error:  # also where no process listens
                _log.debug("no connection to %s: %s", self._peer, error)
            except AccessDeniedError as error:
                why = "does not know the cluster's secret, or is no NameNode"
                self._owner.refuse_connection(f"{self._peer} {why}: {error}")
            except PaxosBlockError as error:
                self._owner.refuse_connection(str(error))
            await asyncio.sleep(CALL_AGAIN_S)

    async def _connected(self) -> None:
        """Connect, and return when the connection is lost."""
        owner, peer = self._owner, self._peer
        outgoing = await connect(
            *split_address(address_of(peer)),
            RAFT,
            _Outgoing,
            timeout_s=HANDSHAKE_S,
            headers={FROM: owner.name, TO: peer},
            tune=_tune,
            access=owner.access,
            about=names_of(owner.name, peer),
            kind=CertifiedKind.NAMENODE,
        )
        self._outgoing = outgoing
        try:
            await outgoing.lost.wait()
        finally:
            self._outgoing = None
            outgoing.abort()


def names_of(caller: str, called: str) -> str:
    """Return the part of a proof that tells which members are at both ends."""
    return f" {caller} {called}"


def _not_for_others() -> web.Response:
    return web.Response(status=403, text="only NameNodes of this cluster speak here\n")


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # A machine that lost power sends no end of the connection: by default Linux would send the
        # same bytes to it again for a quarter of an hour (tcp_retries2) before it gave up.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
