"""Two ends prove to each other that they know the same secret. No I/O.

Each sends a random nonce. A proof is the HMAC-SHA256 of both nonces, of the names of both ends and
of the proof's purpose, so it proves nothing on another connection, to others, or of another thing.
"""

from __future__ import annotations

import contextlib
import hmac
import struct
from dataclasses import dataclass
from typing import Final

NONCE_BYTES: Final = 16
PROOF_BYTES: Final = 32
SECRET_BYTES_MIN: Final = 16

_LENGTH = struct.Struct(">I")


def nonce_of(header: str) -> bytes | None:
    """Return the nonce in a header; None if it is not one."""
    with contextlib.suppress(ValueError):
        nonce = bytes.fromhex(header)
        return nonce if len(nonce) == NONCE_BYTES else None
    return None


def header_bytes(text: str) -> bytes:
    """Return the bytes that came as this header: they need not be text."""
    return text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Handshake:
    """The values that both ends know after they exchanged nonces."""

    caller: str
    called: str
    caller_nonce: bytes
    called_nonce: bytes

    def proof(self, secret: bytes) -> bytes:
        """Return the answer to the caller's nonce that only a holder of the secret can make."""
        return self.purpose(secret, b"proof")

    def key(self, secret: bytes) -> bytes:
        """Return the key of this connection's frames."""
        return self.purpose(secret, b"frames")

    def purpose(self, secret: bytes, purpose: bytes) -> bytes:
        """Return bytes that only a holder of the secret can make, for this `purpose` only."""
        parts = (purpose, header_bytes(self.caller), header_bytes(self.called))
        named = b"".join(_LENGTH.pack(len(part)) + part for part in parts)
        return hmac.digest(secret, named + self.caller_nonce + self.called_nonce, "sha256")
