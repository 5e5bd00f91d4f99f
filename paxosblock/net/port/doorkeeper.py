"""Lets through, of those who ask for an Upgrade, the callers that know the access secret."""

from __future__ import annotations

import asyncio
from typing import Self, cast

from aiohttp import web

from paxosblock.errors import AccessDeniedError
from paxosblock.net.port.access import Access, Challenge
from paxosblock.net.port.handshake import PROOF_BYTES
from paxosblock.net.port.own_names import is_own
from paxosblock.net.port.refusals import Refusal, Refusals


class Doorkeeper(asyncio.BufferedProtocol):
    """Takes the proof of one caller, then gives the connection to the protocol behind it.

    To that protocol the connection is there from the beginning, but nothing comes on it before the
    proof. The doorkeeper reads no byte too many: its buffer ends with the proof.
    """

    def __init__(self, challenge: Challenge, refusals: Refusals) -> None:
        """Count in `refusals` a caller that does not meet the `challenge`."""
        self._challenge = challenge
        self._refusals = refusals
        self._behind: asyncio.BaseProtocol = asyncio.Protocol()
        self._proof = bytearray(PROOF_BYTES)
        self._came = 0
        self._transport: asyncio.Transport | None = None

    @classmethod
    def of(cls, access: Access, request: web.Request, refusals: Refusals) -> Self | None:
        """Make the one for a caller that sent this `request`; None: everybody has access.

        Raises:
            AccessDeniedError: the caller offers no proof, or wants another node.
        """
        try:
            challenge = access.challenge(request.path, request.headers, is_own(request))
        except AccessDeniedError:
            refusals.count(Refusal.NO_ACCESS, request.remote or "")
            raise
        return None if challenge is None else cls(challenge, refusals)

    def before(self, protocol: asyncio.BaseProtocol) -> Self:
        """Stand before this protocol."""
        self._behind = protocol
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
        else:
            host, *_ = transport.get_extra_info("peername") or ("",)
            self._refusals.count(Refusal.NO_ACCESS, host)
            transport.abort()

    def pause_writing(self) -> None:
        self._behind.pause_writing()

    def resume_writing(self) -> None:
        self._behind.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._behind.connection_lost(exc)
