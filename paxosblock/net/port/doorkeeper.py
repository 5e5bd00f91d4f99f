"""Lets callers that ask for an Upgrade through if they know the access secret."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, cast

from aiohttp import web

from paxosblock.errors import AccessDeniedError, UnavailableError
from paxosblock.net.port.access import NONCE, Access, Challenge
from paxosblock.net.port.admission import Slot
from paxosblock.net.port.certified import CertifiedKind, CertifiedName
from paxosblock.net.port.handshake import PROOF_BYTES
from paxosblock.net.port.http_server import slot_of
from paxosblock.net.port.own_names import is_own
from paxosblock.net.port.refusals import Refusal, Refusals

if TYPE_CHECKING:
    from paxosblock.net.port.tls import Tls


class Doorkeeper(asyncio.BufferedProtocol):
    """Takes the proof of one caller, then gives the connection to the protocol behind it.

    To that protocol the connection is there from the beginning, but nothing comes on it before the
    proof. The doorkeeper reads no byte too many: its buffer ends with the proof.
    """

    def __init__(
        self,
        challenge: Challenge,
        let_in: Callable[[Slot], None],
        refuse: Callable[[str], None],
    ) -> None:
        """Once the caller has met the `challenge`, call `let_in`, with the slot of its connection;
        else `refuse`, with its address."""
        self._challenge = challenge
        self._let_in = let_in
        self._refuse = refuse
        self._slot = Slot(None, "")
        self._behind: asyncio.BaseProtocol = asyncio.Protocol()
        self._proof = bytearray(PROOF_BYTES)
        self._came = 0
        self._transport: asyncio.Transport | None = None

    @classmethod
    def of(
        cls,
        access: Access,
        request: web.Request,
        refusals: Refusals,
        *,
        stays: bool = False,
        has_token: bool = False,
    ) -> Self | None:
        """Make the one for a caller that sent this `request`; None: everybody has access, and by
        its request it has proven enough, or it has a token. `stays`: one call is of no use to it.

        Raises:
            AccessDeniedError: the caller offers no proof, and shows no certificate where that is
                demanded instead, or wants another node.
            UnavailableError: everybody has access, and the node has no place left.
        """
        challenge, offered = None, NONCE in request.headers
        try:
            if not has_token:
                access.check_certified(certified(access, request), offered=offered)
            if not has_token or offered:
                challenge = access.challenge(request.path, request.headers, is_own(request))
        except AccessDeniedError:
            refusals.count(Refusal.NO_ACCESS, request.remote or "")
            raise
        if challenge is None:
            slot_of(request).prove(stays=stays)
            return None

        def let_in(slot: Slot) -> None:
            try:
                slot.prove(stays=stays)
            except UnavailableError:
                if slot.holder is not None:  # it tells the caller, in its own protocol
                    slot.holder.dismiss()

        return cls(challenge, let_in, lambda host: refusals.count(Refusal.NO_ACCESS, host))

    def before(self, protocol: asyncio.BaseProtocol, slot: Slot) -> Self:
        """Stand before this protocol, whose connection has this slot."""
        self._behind, self._slot = protocol, slot
        return self

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the `101`, with the proof of this node."""
        return self._challenge.headers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._behind.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._proof)[self._came :]

    def buffer_updated(self, nbytes: int) -> None:
        self._came += nbytes
        transport = self._transport
        if self._came < PROOF_BYTES or transport is None:
            return
        # A transport of uvloop chooses how to read when reading starts: buffered or not.
        transport.pause_reading()
        if self._challenge.met_by(bytes(self._proof)):
            transport.set_protocol(self._behind)
            transport.resume_reading()
            self._let_in(self._slot)
        else:
            host, *_ = transport.get_extra_info("peername") or ("",)
            self._refuse(host)
            transport.abort()

    def pause_writing(self) -> None:
        self._behind.pause_writing()

    def resume_writing(self) -> None:
        self._behind.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._behind.connection_lost(exc)


def certified(access: Access, request: web.Request) -> tuple[CertifiedName, ...]:
    """Return the names in the certificate that the caller has shown; none without TLS, or if it has
    shown none of our cluster."""
    if access.tls is None:
        return ()
    return access.tls.certified(request.get_extra_info("peercert"))


def check_namenode(tls: Tls | None, request: web.Request) -> None:
    """Check that a NameNode asks, where each node shows a certificate.

    Raises:
        AccessDeniedError: the caller has shown none of a NameNode of our cluster.
    """
    if tls is None or not tls.required:
        return
    names = tls.certified(request.get_extra_info("peercert"))
    if not any(each.kind is CertifiedKind.NAMENODE for each in names):
        shown = ", ".join(map(str, names)) or "none of this cluster"
        raise AccessDeniedError(
            f"only NameNodes of this cluster are answered here; the caller's certificate: {shown}"
        )
