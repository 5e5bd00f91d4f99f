"""Bodies of requests: bytes of objects, checked while they come, and documents of XML."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator
from typing import Final
from xml.etree import ElementTree

from paxosblock.base.units import GIB, MIB
from paxosblock.gateway.s3.aws_chunked import ChunkedBody
from paxosblock.gateway.s3.object_sums import CONTENT_MD5, BodySums
from paxosblock.gateway.s3.s3_call import S3Call
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error, too_large
from paxosblock.gateway.s3.s3_xml import NoXmlError, parsed
from paxosblock.gateway.s3.signatures import NOTHING, PayloadKind

OBJECT_BYTES_MAX: Final = 5 * GIB
"""Most bytes of one request, as in S3; larger objects come in parts."""
DOCUMENT_BYTES_MAX: Final = 4 * MIB
"""Most bytes of a document: of ten thousand parts with their checksums, or a thousand keys."""
DECODED_LENGTH: Final = "x-amz-decoded-content-length"


def announced_length(call: S3Call) -> int:
    """Return how many bytes the program says that it sends.

    Raises:
        S3Error: it does not say so, or they are too many.
    """
    name = DECODED_LENGTH if call.signed.payload.is_chunked else "content-length"
    said = call.headers.get(name, "" if call.exchange.has_body else "0")
    if not (said.isascii() and said.isdecimal() and len(said) < 19):
        words = f"You must provide the {name} HTTP header."
        raise S3Error(S3Code.MISSING_CONTENT_LENGTH, words)
    if int(said) > OBJECT_BYTES_MAX:
        raise too_large(OBJECT_BYTES_MAX, ProposedSize=said)
    return int(said)


async def checked_body(call: S3Call, sums: BodySums, length: int) -> AsyncIterator[memoryview]:
    """Yield the bytes that come with a request. When they end they are so many, and have the
    checksums and signatures that they should have.

    Raises:
        S3Error: they do not.
        InvalidRequestError, DeadlineError: they break off.
    """
    signed = call.signed
    whole = hashlib.sha256() if signed.payload is PayloadKind.WHOLE else None
    chunked = None
    if signed.payload.is_chunked:
        has_trailer = signed.payload is not PayloadKind.CHUNKS
        chunked = ChunkedBody(call.exchange.body(), signed.signer, has_trailer=has_trailer)
    pieces = _plain(call) if chunked is None else chunked.pieces()
    left = length
    async for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise _incomplete()
        if whole is not None:
            whole.update(piece)
        sums.update(piece)
        yield piece
    if left:
        raise _incomplete()
    if whole is not None and not hmac.compare_digest(whole.hexdigest(), signed.digest):
        words = "The provided 'x-amz-content-sha256' header does not match what was computed."
        raise S3Error(
            S3Code.CONTENT_SHA256_MISMATCH,
            words,
            ClientComputedContentSHA256=signed.digest,
            S3ComputedContentSHA256=whole.hexdigest(),
        )
    sums.told_late(chunked.trailer if chunked is not None else ())
    sums.check()


async def _plain(call: S3Call) -> AsyncIterator[memoryview]:
    if not call.exchange.has_body:
        return
    async for piece in call.exchange.body():
        yield memoryview(piece)


def _incomplete() -> S3Error:
    words = "You did not provide the number of bytes specified by the Content-Length HTTP header"
    return S3Error(S3Code.INCOMPLETE_BODY, words)


async def body_of(call: S3Call, *, sums_are_its: bool = True) -> bytes:
    """Return the body of a request that is a document, or nothing. Raises as `checked_body`.

    Args:
        sums_are_its: the checksums in the headers, beside an MD5, are those of the document.
    """
    if not call.exchange.has_body and call.signed.digest in ("", NOTHING):
        return b""
    length = announced_length(call)
    if length > DOCUMENT_BYTES_MAX:
        words = f"The XML you provided has more than {DOCUMENT_BYTES_MAX} bytes"
        raise S3Error(S3Code.ENTITY_TOO_LARGE, words)
    await call.hold(2 * length)
    its = {CONTENT_MD5: at} if (at := call.headers.get(CONTENT_MD5)) is not None else {}
    sums = BodySums.of_headers(call.headers if sums_are_its else its)
    return b"".join([bytes(piece) async for piece in checked_body(call, sums, length)])


async def document_of(call: S3Call, name: str, *, sums_are_its: bool = True) -> ElementTree.Element:
    """Return the document that comes with a request, whose root is called `name`. Raises
    S3Error."""
    return root_of(await body_of(call, sums_are_its=sums_are_its), name)


def root_of(body: bytes, name: str) -> ElementTree.Element:
    """Return the root of a document, which is called `name`. Raises S3Error if it is none."""
    try:
        return parsed(body, name)
    except NoXmlError:
        raise malformed_xml() from None


def malformed_xml() -> S3Error:
    """Return the refusal of a document that is not as it should be."""
    words = (
        "The XML you provided was not well-formed or did not validate against our published schema"
    )
    return S3Error(S3Code.MALFORMED_XML, words)
