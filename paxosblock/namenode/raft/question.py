"""Questions between members that are no messages of the engine: an HTTP request each, proven.

    request   X-Raft-From, X-Raft-To, X-Raft-Nonce (16 random bytes), X-Raft-Proof
    answer    ends with, or has as X-Raft-Proof, a tag that only a member can make

Proof and tag are HMAC-SHA256 with the cluster's secret over both names, the nonce and the purpose;
the tag covers the answer, too. All of it is the same inside TLS, where both ends also show the
certificates of NameNodes.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.connector import Connection

from paxosblock.errors import AccessDeniedError, UnavailableError
from paxosblock.net.port.certified import CertifiedKind
from paxosblock.net.port.handshake import NONCE_BYTES, Handshake, header_bytes, nonce_of

if TYPE_CHECKING:
    from paxosblock.net.port.tls import Tls

FROM, TO, NONCE, PROOF = "X-Raft-From", "X-Raft-To", "X-Raft-Nonce", "X-Raft-Proof"
"""Headers of requests between members, and of their answers."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question for one `purpose`: its two members, and a nonce that no member used before."""

    purpose: bytes
    caller: str
    called: str
    nonce: bytes

    @classmethod
    def fresh(cls, purpose: bytes, caller: str, called: str) -> Question:
        """Return a question that no member asked before."""
        return cls(purpose, caller, called, os.urandom(NONCE_BYTES))

    @classmethod
    def read(cls, purpose: bytes, headers: Mapping[str, str]) -> Question | None:
        """Return the question of a request; None if a header is missing or wrong."""
        if not all(name in headers for name in (FROM, TO, NONCE, PROOF)):
            return None
        nonce = nonce_of(headers[NONCE])
        return None if nonce is None else cls(purpose, headers[FROM], headers[TO], nonce)

    @classmethod
    def heard(
        cls,
        purpose: bytes,
        headers: Mapping[str, str],
        secret: bytes,
        *,
        called: str,
        callers: Container[str] | None = None,
    ) -> Question:
        """Return the question of a request to the member `called`, of one of `callers` if they are
        given.

        Raises:
            AccessDeniedError: another member was meant, or nothing proves which member asks.
        """
        asked = cls.read(purpose, headers)
        known = asked is not None and (callers is None or asked.caller in callers)
        if asked is None or not known or asked.called != called:
            raise AccessDeniedError("only NameNodes of this cluster are answered here")
        if not asked.is_proven(secret, headers):
            raise AccessDeniedError(f"{asked.caller} does not know the cluster's secret")
        return asked

    def headers(self, secret: bytes) -> dict[str, str]:
        """Return the headers of the request."""
        return {
            FROM: self.caller,
            TO: self.called,
            NONCE: self.nonce.hex(),
            PROOF: self._proof(secret).decode(),
        }

    def is_proven(self, secret: bytes, headers: Mapping[str, str]) -> bool:
        """True if only a holder of the secret can have asked it."""
        return hmac.compare_digest(self._proof(secret), header_bytes(headers[PROOF]))

    def tag(self, secret: bytes, about: str = "") -> hmac.HMAC:
        """Return the tag of the answer and what it is `about`, to be updated with its bytes."""
        key = self._handshake.purpose(secret, self.purpose + b" answer")
        return hmac.new(key, about.encode() + b"\0", "sha256")

    def _proof(self, secret: bytes) -> bytes:
        """Return the proof that only a holder of the secret can make, in hex."""
        return self._handshake.purpose(secret, self.purpose).hex().encode()

    @property
    def _handshake(self) -> Handshake:
        return Handshake(self.caller, self.called, self.nonce, b"")


def session_of(tls: Tls | None, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
    """Return a session for questions, which with TLS believes an answer only if the other end has
    shown the certificate of a NameNode."""

    class OfNameNode(aiohttp.ClientResponse):
        async def start(self, connection: Connection) -> aiohttp.ClientResponse:
            transport = connection.transport
            shown = None if transport is None else transport.get_extra_info("peercert")
            if tls is not None and (shown or tls.required):
                tls.check_node(self.url.authority, shown, CertifiedKind.NAMENODE)
            return await super().start(connection)

    return aiohttp.ClientSession(timeout=timeout, response_class=OfNameNode)


async def ask(
    session: aiohttp.ClientSession,
    peer: str,
    path: str,
    headers: Mapping[str, str],
    tls: Tls | None,
) -> aiohttp.ClientResponse:
    """Ask the member at `peer` for what is at `path`; with TLS if we speak it, and if the member
    does or must.

    Raises:
        UnavailableError: one of the two does not believe the certificate of the other.
        OSError, aiohttp.ClientError, TimeoutError: there is no answer.
    """
    if tls is None:
        return await session.get(f"http://{peer}{path}", headers=headers)
    try:
        return await session.get(f"https://{peer}{path}", headers=headers, ssl=tls.client)
    except (aiohttp.ClientConnectorSSLError, aiohttp.ClientConnectorCertificateError) as error:
        cause: Any = (
            error.certificate_error if hasattr(error, "certificate_error") else error.os_error
        )
        if tls.may_be_plain(cause):
            return await ask(session, peer, path, headers, None)
        if (failure := tls.explained(peer, cause)) is None:
            raise
        raise UnavailableError(str(failure), peer=peer) from error
    except aiohttp.ClientOSError as error:
        if isinstance(strange := error.__cause__, AccessDeniedError):
            raise UnavailableError(str(strange), peer=peer) from error
        raise
