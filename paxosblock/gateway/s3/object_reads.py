"""Operations of S3 that read an object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.errors import IsDirectoryError, NotDirectoryError, NotFoundError
from paxosblock.gateway.download import ReplacedError, asked_again_if_replaced, begun
from paxosblock.gateway.exchange import Answer, StreamedBody
from paxosblock.gateway.s3.bucket_operations import acl_of_owner
from paxosblock.gateway.s3.key_lists import MARKER_TAG
from paxosblock.gateway.s3.object_conditions import is_unchanged
from paxosblock.gateway.s3.object_facts import (
    KEPT_HEADERS,
    StoredObject,
    http_time,
    is_shown,
    stored_at,
    stored_of,
    sum_fields,
)
from paxosblock.gateway.s3.object_tags import tag_fields
from paxosblock.gateway.s3.s3_call import S3Call, answered, words_of
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error, invalid_argument
from paxosblock.gateway.s3.s3_operation_table import Level, s3_operation
from paxosblock.gateway.s3.s3_xml import Field

_RANGE: Final = re.compile(r"bytes=(?:([0-9]{1,19})-([0-9]{0,19})|-([0-9]{1,19}))")
ATTRIBUTES: Final = "x-amz-object-attributes"
_ATTRIBUTES: Final = frozenset({"ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"})


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes of an object that are asked for."""

    start: int
    length: int


def range_of(header: str, size: int) -> ByteRange | None:
    """Return the range that a header asks for of so many bytes; None: all of them, as where it is
    none, or several.

    Raises:
        S3Error: no byte is in it.
    """
    found = _RANGE.fullmatch(header)
    if found is None:
        return None
    first, last, tail = found.groups()
    if tail is not None:
        start, stop = max(0, size - int(tail)), size
    else:
        start, stop = int(first), min(size, int(last) + 1 if last else size)
        if last and int(last) < start:
            return None
    if start >= stop:
        words = "The requested range is not satisfiable"
        error = S3Error(S3Code.INVALID_RANGE, words, ActualObjectSize=str(size))
        error.headers["Content-Range"] = f"bytes */{size}"
        raise error
    return ByteRange(start, stop - start)


def wanted_range(call: S3Call, size: int) -> ByteRange | None:
    """Return the range that a request asks for; None: all bytes. Raises as `range_of`."""
    number = call.number("partNumber", 0, least=1, most=10_000)
    if not number:
        return range_of(call.headers.get("range", ""), size)
    if "range" in call.headers:
        words = "Cannot specify both Range header and partNumber query parameter"
        raise S3Error(S3Code.INVALID_REQUEST, words)
    if number > 1:  # its parts were joined: it is one
        words = "The requested partnumber is not satisfiable"
        raise S3Error(S3Code.INVALID_PART_NUMBER, words)
    return ByteRange(0, size) if size else None


@s3_operation("GetObject", "GET", Level.OBJECT)
async def get_object(call: S3Call) -> Answer:
    """Send an object, or a range of it, if its conditions (`If-Match` and others) are met."""
    if call.is_marker:
        return await head_object(call)
    check_version(call)
    return await asked_again_if_replaced(
        call.stack, lambda stack: _opened_and_sent(replace(call, stack=stack))
    )


async def _opened_and_sent(call: S3Call) -> Answer:
    reader = await _opened(call)
    try:
        found = await stored_of(call.fs, reader.status)
    except (NotFoundError, NotDirectoryError):
        raise ReplacedError from None
    if found is None:
        raise ReplacedError
    return await _sent(call, reader, found)


async def _opened(call: S3Call) -> AsyncFileReader:
    try:
        reader = await call.fs.open(call.path)
    except (NotFoundError, NotDirectoryError, IsDirectoryError):
        raise await call.missing() from None
    call.stack.push_async_callback(reader.close)
    if reader.status.open:
        raise await call.missing()
    return reader


async def _sent(call: S3Call, reader: AsyncFileReader, stored: StoredObject) -> Answer:
    answer, start = _answer(call, stored)
    if answer.status == HTTPStatus.NOT_MODIFIED:
        return answer
    length = int(answer.headers.pop("Content-Length"))
    if length:
        await call.hold_to_read(length)
        answer.body = StreamedBody(await begun(reader, start, length), length)
    return answer


@s3_operation("HeadObject", "HEAD", Level.OBJECT)
async def head_object(call: S3Call) -> Answer:
    """Tell what `GetObject` would, without the bytes. A key that ends with `/` is a directory."""
    check_version(call)
    found = await found_object(call)
    if call.is_marker:
        return _of_directory(call, found.status)
    answer, _ = _answer(call, found)
    return answer


async def found_object(call: S3Call) -> StoredObject:
    """Return the object that is at the key, or the directory of a key that ends with `/`. Raises
    S3Error without one."""
    kind = Kind.DIRECTORY if call.is_marker else Kind.FILE
    try:
        found = await stored_at(call.fs, call.path)
    except (NotFoundError, NotDirectoryError):
        raise await call.missing() from None
    if found.status.kind is not kind or found.status.open:
        raise await call.missing()
    return found


def _of_directory(call: S3Call, status: FileStatus) -> Answer:
    headers = {
        "Content-Type": "application/x-directory",
        "ETag": MARKER_TAG,
        "Last-Modified": http_time(status.modified_s),
        "Accept-Ranges": "bytes",
    }
    if call.exchange.method == "HEAD":
        headers["Content-Length"] = "0"
    return Answer(HTTPStatus.OK, b"", headers)


def _answer(call: S3Call, stored: StoredObject) -> tuple[Answer, int]:
    """Return the head of an answer, and the byte of the object with which its body begins."""
    headers = stored.headers()
    if is_unchanged(call.headers, stored.status):
        kept = ("ETag", "Last-Modified", "Cache-Control", "Expires")
        told = {name: headers[name] for name in kept if name in headers}
        return Answer(HTTPStatus.NOT_MODIFIED, b"", told), 0
    size = stored.status.size
    wanted = wanted_range(call, size)
    if wanted is None and call.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED":
        headers |= stored.sum_headers()
    headers |= _overridden(call, headers)
    if wanted is None:
        headers["Content-Length"] = str(size)
        return Answer(HTTPStatus.OK, b"", headers), 0
    last = wanted.start + wanted.length - 1
    headers["Content-Range"] = f"bytes {wanted.start}-{last}/{size}"
    headers["Content-Length"] = str(wanted.length)
    return Answer(HTTPStatus.PARTIAL_CONTENT, b"", headers), wanted.start


def _overridden(call: S3Call, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the program asks for in the place of those of the object."""
    found = {}
    for name in KEPT_HEADERS:
        if value := call.parameter(f"response-{name}"):
            if not call.signed.key.id:
                words = "Request specific response headers cannot be used for anonymous GET"
                raise S3Error(S3Code.INVALID_REQUEST, words)
            if not is_shown(value):
                raise invalid_argument(f"response-{name} is not of ASCII")
            found[name.title()] = value
    return found


def check_version(call: S3Call) -> None:
    """Check that no version is asked for but the one that there is. Raises S3Error otherwise."""
    if call.parameter("versionId", "null") != "null":
        raise S3Error(S3Code.NO_SUCH_VERSION, "The specified version does not exist.")


@s3_operation("GetObjectAttributes", "GET", Level.OBJECT, "attributes")
async def get_object_attributes(call: S3Call) -> Answer:
    """Tell those of the ETag, the checksums, the size and the storage class of an object that a
    header names. It has no parts: they were joined."""
    check_version(call)
    wanted = {*words_of(call.headers, ATTRIBUTES)}
    if not wanted or not wanted <= _ATTRIBUTES:
        raise invalid_argument("Invalid attribute name specified.")
    found = await found_object(call)
    sums = sum_fields(found.sums)
    told = {
        "ETag": Field("ETag", (MARKER_TAG if call.is_marker else found.etag).strip('"')),
        "Checksum": Field("Checksum", sums) if sums else None,
        "StorageClass": Field("StorageClass", "STANDARD"),
        "ObjectSize": Field("ObjectSize", found.status.size),
    }
    fields = [field for name, field in told.items() if name in wanted and field is not None]
    answer = answered("GetObjectAttributesResponse", fields)
    answer.headers["Last-Modified"] = http_time(found.status.modified_s)
    return answer


@s3_operation("GetObjectTagging", "GET", Level.OBJECT, "tagging")
async def get_object_tagging(call: S3Call) -> Answer:
    """Show the tags of an object."""
    check_version(call)
    return answered("Tagging", tag_fields((await found_object(call)).tags))


@s3_operation("GetObjectAcl", "GET", Level.OBJECT, "acl")
async def get_object_acl(call: S3Call) -> Answer:
    """Tell the owner, who may do everything; the rest is in the permissions of the file."""
    return acl_of_owner((await found_object(call)).status)
