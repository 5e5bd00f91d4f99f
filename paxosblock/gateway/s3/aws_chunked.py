"""Bodies in AWS's chunks: each has its length, and perhaps a signature, before its bytes.

::

    10000;chunk-signature=...\\r\\n  65536 bytes  \\r\\n
    0;chunk-signature=...\\r\\n
    x-amz-checksum-crc32:...\\r\\n
    x-amz-trailer-signature:...\\r\\n
    \\r\\n
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import AsyncIterator
from typing import Final

from paxosblock.gateway.s3.s3_errors import S3Code, S3Error
from paxosblock.gateway.s3.signatures import ChunkSigner

LINE_BYTES_MAX: Final = 1024
TRAILERS_MAX: Final = 16
TRAILER_SIGNATURE: Final = "x-amz-trailer-signature"

_HEAD: Final = re.compile(rb"([0-9a-fA-F]{1,16})(?:;chunk-signature=([0-9a-f]{64}))?")


class _Source:
    """The bytes of a body, a line or a piece at a time."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self._held = memoryview(b"")

    async def line(self) -> bytes:
        """Return the next line without its end."""
        found = b""
        while b"\n" not in found:
            if len(found) > LINE_BYTES_MAX:
                raise _malformed("a line is too long")
            found += bytes(await self.piece(LINE_BYTES_MAX))
        line, _, rest = found.partition(b"\n")
        if not line.endswith(b"\r"):
            raise _malformed("a line does not end with CR LF")
        self._held = memoryview(rest + bytes(self._held))
        return line[:-1]

    async def piece(self, most: int) -> memoryview:
        """Return the next bytes, at most so many."""
        while not self._held:
            try:
                self._held = memoryview(await anext(self._body))
            except StopAsyncIteration:
                raise _malformed("it ends before its last chunk") from None
        piece, self._held = self._held[:most], self._held[most:]
        return piece

    async def at_end(self) -> bool:
        """True if nothing follows."""
        if self._held:
            return False
        return not [piece async for piece in self._body if piece]


class ChunkedBody:
    """The bytes in the chunks of a body; `trailer` is what came behind them."""

    def __init__(
        self, body: AsyncIterator[bytes], signer: ChunkSigner | None, *, has_trailer: bool
    ) -> None:
        """`signer`: each chunk has its signature; None: none needs one."""
        self._source = _Source(body)
        self._signer = signer
        self._has_trailer = has_trailer
        self.trailer: list[tuple[str, str]] = []

    async def pieces(self) -> AsyncIterator[memoryview]:
        """Yield the bytes, before the signature of their chunk is compared.

        Raises:
            S3Error: it is not as it should be, or a signature does not fit.
        """
        while True:
            size, signature = self._head(await self._source.line())
            digest = hashlib.sha256() if self._signer is not None else None
            left = size
            while left:
                piece = await self._source.piece(left)
                left -= len(piece)
                if digest is not None:
                    digest.update(piece)
                yield piece
            if self._signer is not None and digest is not None:
                _compare(self._signer.of_chunk(digest.hexdigest()), signature)
            if not size:
                break
            if await self._source.line():
                raise _malformed("bytes follow a chunk")
        await self._read_trailer()

    def _head(self, line: bytes) -> tuple[int, str]:
        found = _HEAD.fullmatch(line)
        if found is None:
            raise _malformed("a chunk has no length")
        return int(found[1], 16), (found[2] or b"").decode()

    async def _read_trailer(self) -> None:
        signed, signature = b"", ""
        while line := await self._source.line():
            name, colon, value = line.decode("latin-1").partition(":")
            name, value = name.strip().lower(), value.strip()
            if not colon or not self._has_trailer or len(self.trailer) >= TRAILERS_MAX:
                raise _malformed("the trailer is none")
            if name == TRAILER_SIGNATURE:
                signature = value
            else:
                self.trailer.append((name, value))
                signed += f"{name}:{value}\n".encode("latin-1")
        if self._signer is not None and self._has_trailer:
            _compare(self._signer.of_trailer(hashlib.sha256(signed).hexdigest()), signature)
        if not await self._source.at_end():
            raise _malformed("bytes follow its end")


def _compare(right: str, came: str) -> None:
    if not hmac.compare_digest(right.encode(), came.encode("latin-1", "replace")):
        raise S3Error(
            S3Code.SIGNATURE_DOES_NOT_MATCH, "The signature of a chunk or trailer does not match."
        )


def _malformed(why: str) -> S3Error:
    return S3Error(S3Code.INCOMPLETE_BODY, f"The body is not aws-chunked as it says: {why}.")
