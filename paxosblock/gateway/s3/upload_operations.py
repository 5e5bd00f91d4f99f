"""Objects that come in parts: each part is a hidden file, and the object is their blocks joined.

An upload is a hidden directory with a time to live, whose attribute says for which key it is. So
any gateway takes any part, and nothing is kept in memory. To complete it moves blocks, and no byte,
in the change that makes the object.

One change moves a bounded number of blocks. Of more parts the first are joined before it, change by
change, to a hidden file that grows. What is left of that by a gateway that ends goes with the
upload, or any gateway goes on with it when it is asked to complete the same parts again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import re
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec
from msgspec.structs import replace as replaced

from paxosblock.api.namenode import FileStatus
from paxosblock.api.transaction import (
    AssertFile,
    Concat,
    Delete,
    Operation,
    Rename,
    SetAttributes,
)
from paxosblock.base.checksum import Buffer
from paxosblock.base.encoding import MALFORMED, msgpack_decoder
from paxosblock.base.paths import STAGING
from paxosblock.base.units import MIB
from paxosblock.errors import (
    NotDirectoryError,
    NotFoundError,
    PaxosBlockError,
    PermissionDeniedError,
)
from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.s3.object_conditions import OF_SOURCE
from paxosblock.gateway.s3.object_facts import (
    ATTRIBUTE,
    ObjectFacts,
    encoded,
    etag_of,
    facts_of_headers,
    state_of,
    state_tag,
    stored_of,
    sum_fields,
    sum_headers,
    xml_time,
)
from paxosblock.gateway.s3.object_reads import ByteRange, found_object, range_of
from paxosblock.gateway.s3.object_sums import (
    SUM_ALGORITHM,
    SUM_TYPE,
    BodySums,
    SumKind,
    check_value,
    invalid_header,
    joined_crc,
    new_sum,
    several_sums,
    sum_kind,
    sum_type,
    wrong_sum,
)
from paxosblock.gateway.s3.object_tags import tags_of_headers
from paxosblock.gateway.s3.object_writes import Making, bytes_of_source, found_source, source_of
from paxosblock.gateway.s3.request_documents import (
    announced_length,
    body_of,
    checked_body,
    document_of,
    malformed_xml,
)
from paxosblock.gateway.s3.s3_call import S3Call, answered, checked_key
from paxosblock.gateway.s3.s3_errors import (
    S3Code,
    S3Error,
    invalid_argument,
    not_implemented,
)
from paxosblock.gateway.s3.s3_operation_table import Level, s3_operation
from paxosblock.gateway.s3.s3_xml import Field, text_in
from paxosblock.gateway.upload import fill

UPLOAD_TTL_S: Final = 7 * 24 * 3600.0
"""Seconds after its last part at which an upload that was not completed is deleted."""
OBJECT_SIZE: Final = "x-amz-mp-object-size"
PARTS_MAX: Final = 10_000
PART_BYTES_MIN: Final = 5 * MIB
"""Least bytes of each part but the last, as in S3."""
_ID: Final = re.compile(r"[0-9a-f]{12}-[0-9a-f]{32}")
_PART: Final = re.compile(r"[0-9]{5}")
LISTED_MAX: Final = 1000
ASKED_AT_ONCE: Final = 16
JOINED_MAX: Final = 2000
"""Most parts that one change joins, and most blocks that they should have: half of what a change
may move, as a writer that fails over ends a block early."""


class _UploadNote(msgspec.Struct, frozen=True):
    """The attribute of an upload's directory."""

    bucket: str
    key: str
    facts: ObjectFacts
    sum_kind: str = ""
    tags: dict[str, str] = {}
    whole_sum: bool = False
    """The checksum of the object is that of all its bytes, and not of those of its parts."""


class _JoinedNote(msgspec.Struct, frozen=True):
    """The attribute of the file of the parts that are joined already."""

    named: bytes
    """The digest of all parts that the object will have."""
    sums: dict[str, str]
    """The checksums that the object will have."""


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgpack_decoder(_UploadNote)
_joined_decoder = msgpack_decoder(_JoinedNote)


@dataclass(frozen=True, slots=True)
class PartsUpload:
    """An upload that goes on."""

    id: str
    begun: _UploadNote

    @property
    def directory(self) -> str:
        """Return the directory of its parts."""
        return _directory(self.id)

    def part_path(self, number: int) -> str:
        """Return the file of a part: in the order of names they are in that of numbers."""
        return f"{self.directory}/{number:05d}"

    @property
    def joined_path(self) -> str:
        """Return the file of the parts that are joined already, if some are."""
        return f"{self.directory}/joined"

    @property
    def kind(self) -> SumKind | None:
        """Return the checksum that each part has; None: none is asked for."""
        return sum_kind(self.begun.sum_kind) if self.begun.sum_kind else None


def _directory(upload_id: str) -> str:
    return f"{STAGING}/s3-{upload_id}"


def _no_such_upload() -> S3Error:
    return S3Error(
        S3Code.NO_SUCH_UPLOAD,
        "The specified multipart upload does not exist. The upload ID might be invalid, or the "
        "multipart upload might have been aborted or completed.",
    )


async def _found(call: S3Call, upload_id: str) -> PartsUpload:
    if not _ID.fullmatch(upload_id):
        raise _no_such_upload()
    try:
        found = await call.fs.get_attributes(_directory(upload_id), ATTRIBUTE)
        begun = _decoder.decode(found[ATTRIBUTE])
    except (NotFoundError, NotDirectoryError, KeyError, *MALFORMED):
        raise _no_such_upload() from None
    return PartsUpload(upload_id, begun)


async def upload_of(call: S3Call) -> PartsUpload:
    """Return the upload that a request names. Raises S3Error if it is none of this key."""
    checked_key(call.key)
    try:
        upload = await _found(call, call.parameter("uploadId"))
    except S3Error:
        await call.bucket_status()
        raise
    if (upload.begun.bucket, upload.begun.key) != (call.bucket, call.key):
        raise _no_such_upload()
    return upload


# -- parts -----------------------------------------------------------------------------------------


@s3_operation("CreateMultipartUpload", "POST", Level.OBJECT, "uploads", changes=True)
async def create_multipart_upload(call: S3Call) -> Answer:
    """Begin an object that comes in parts, at any gateways and in any order. It is given up a week
    after its beginning."""
    await body_of(call)
    if call.is_marker:
        raise invalid_argument("A key that ends with '/' is a directory here, and has no bytes")
    facts = facts_of_headers(call.headers)
    kind, whole = _sum_asked(call)
    making = await Making.begin(call)
    # In the order of ids are those of one key in that of their beginnings.
    begun_us = time.time_ns() // 1000
    upload_id = f"{making.bucket.file_id:012x}-{begun_us:014x}{uuid.uuid4().hex[14:]}"
    word = kind.word if kind is not None else ""
    tags = tags_of_headers(call.headers)
    begun = _UploadNote(call.bucket, call.key, facts, word, tags, whole)
    directory = _directory(upload_id)
    await call.fs.mkdirs(directory, permission=0o700, ttl_s=UPLOAD_TTL_S)
    await call.fs.set_attributes(directory, {ATTRIBUTE: _encode(begun)})
    fields = [
        Field("Bucket", call.bucket),
        Field("Key", call.key),
        Field("UploadId", upload_id),
    ]
    answer = answered("InitiateMultipartUploadResult", fields)
    if kind is not None:
        answer.headers[SUM_ALGORITHM] = word
        answer.headers[SUM_TYPE] = sum_type(whole=whole)
    return answer


def _sum_asked(call: S3Call) -> tuple[SumKind | None, bool]:
    """Return the checksum that the object will have, and if it is that of all its bytes."""
    word = call.headers.get(SUM_ALGORITHM, "")
    how = call.headers.get(SUM_TYPE, "").upper()
    if not word:
        if how:
            words = f"The {SUM_TYPE} header can only be used with the {SUM_ALGORITHM} header."
            raise S3Error(S3Code.INVALID_REQUEST, words)
        return None, False
    kind = sum_kind(word)
    BodySums().compute(kind)  # it is refused now if a part would be
    usual, full = sum_type(whole=kind is SumKind.CRC64NVME), sum_type(whole=True)
    if how not in ("", full, sum_type(whole=False)):
        raise invalid_header(SUM_TYPE)
    whole = (how or usual) == full
    if whole != kind.is_crc and (whole or kind is SumKind.CRC64NVME):
        words = f"The {how} checksum type cannot be used with the {kind.word} checksum algorithm."
        raise S3Error(S3Code.INVALID_REQUEST, words)
    return kind, whole


@s3_operation("UploadPart", "PUT", Level.OBJECT, "uploadId", changes=True)
async def upload_part(call: S3Call) -> Answer:
    """Take a part; one that came before with the same number is replaced, when all bytes came."""
    sums, length = BodySums.of_headers(call.headers), announced_length(call)
    number = _part_number(call)
    upload = await upload_of(call)
    status = await _store_part(call, upload, number, checked_body(call, sums, length), length, sums)
    return Answer(HTTPStatus.OK, b"", {"ETag": etag_of(status), **sum_headers(sums.known)})


def _part_number(call: S3Call) -> int:
    number = call.number("partNumber", 0, least=1, most=PARTS_MAX + 1)
    if not 1 <= number <= PARTS_MAX:
        raise invalid_argument(f"Part number must be an integer between 1 and {PARTS_MAX}")
    return number


async def _store_part(  # noqa: PLR0917 - the parts of a part
    call: S3Call,
    upload: PartsUpload,
    number: int,
    body: AsyncIterator[Buffer],
    length: int,
    sums: BodySums,
) -> FileStatus:
    if upload.kind is not None:
        if told := sums.kinds - {upload.kind}:
            words = (
                f"Checksum Type mismatch occurred, expected checksum Type: {upload.kind.word}, "
                f"actual checksum Type: {told.pop().word}"
            )
            raise S3Error(S3Code.INVALID_REQUEST, words)
        sums.compute(upload.kind)
    await call.hold_to_write(length)
    hidden = f"{upload.directory}/{uuid.uuid4().hex}"
    try:
        writer = await call.fs.create(hidden, parent_must_exist=True, zone_of=call.path)
    except NotFoundError:
        raise _no_such_upload() from None
    try:
        await fill(writer, body)
        status = replaced(writer.status, size=length)
        facts = ObjectFacts(file_id=status.file_id, sums=sums.known, size=length)
        named: list[Operation] = [
            SetAttributes(hidden, {ATTRIBUTE: encoded(facts)}),
            Rename(hidden, upload.part_path(number), overwrite=True),
        ]
        await writer.close(then=named)
    except BaseException as error:
        await writer.abort()
        await call.client.staging.remove(hidden)
        if isinstance(error, NotFoundError):
            raise _no_such_upload() from None
        raise
    return status


@s3_operation("UploadPartCopy", "PUT", Level.OBJECT, "uploadId", copies=True, changes=True)
async def upload_part_copy(call: S3Call) -> Answer:
    """Make a part of the bytes of an object, or of a range of it, which the gateway reads and
    writes."""
    source, number = source_of(call), _part_number(call)
    if source.is_marker:
        raise invalid_argument("A directory is not copied")
    upload, found = await upload_of(call), await found_source(call, source)
    size = found.status.size
    asked = call.headers.get(f"{OF_SOURCE}range", "")
    wanted = range_of(asked, size)
    if asked and wanted is None:
        raise invalid_argument("The x-amz-copy-source-range value must be bytes=first-last")
    piece, sums = wanted or ByteRange(0, size), BodySums()
    if asked and not asked.endswith(f"-{piece.start + piece.length - 1}"):
        words = f"Range specified is not valid for source object of size: {size}"
        raise invalid_argument(words)
    async with bytes_of_source(call, found, piece) as body:
        status = await _store_part(call, upload, number, sums.of_all(body), piece.length, sums)
    fields = [
        Field("LastModified", xml_time(status.modified_s)),
        Field("ETag", etag_of(status)),
        *(Field(f"Checksum{name}", value) for name, value in sums.known.items()),
    ]
    return answered("CopyPartResult", fields)


# -- the end ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _NamedPart:
    """A part as the document of a Complete names it."""

    number: int
    etag: str
    sums: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Joining:
    """The parts of an object on their way to it."""

    head: FileStatus
    """The first part, or the file of the parts that are joined already."""
    left: list[FileStatus]
    """The parts that come behind it, in order."""
    note: _JoinedNote
    has_begun: bool
    """Some are joined already."""

    def next(self) -> list[FileStatus]:
        """Return the parts that one more change joins."""
        blocks = itertools.accumulate(-(-each.size // each.block_size) for each in self.left)
        fitting = sum(count <= JOINED_MAX for count in blocks)
        return self.left[: max(1, min(fitting, JOINED_MAX))]

    def join(self, parts: list[FileStatus]) -> list[Operation]:
        """Return the change that joins parts, if all are as they were seen: the states first."""
        joined = [Concat(self.head.path, [each.path for each in parts])] if parts else []
        return [*_states(self.head, *parts), *joined]


def _states(*files: FileStatus) -> list[AssertFile]:
    return [AssertFile(each.path, each.file_id, each.size, each.truncations) for each in files]


@s3_operation("CompleteMultipartUpload", "POST", Level.OBJECT, "uploadId", changes=True)
async def complete_multipart_upload(call: S3Call) -> Answer:
    """Make the object of the parts that a document names, whole and without a byte copied, if the
    conditions `If-None-Match: *` or `If-Match` are met then. To ask again after a lost answer is
    answered the same."""
    named = await _named_parts(call)
    _check_sum_of_whole(call)
    try:
        upload = await upload_of(call)
        making = await Making.begin(call)
        joining = await _joined_but_the_last(call, upload, named)
        return await _make(making, upload, joining)
    except S3Error as error:
        return await _completed_before(call, error)


async def _joined_but_the_last(
    call: S3Call, upload: PartsUpload, named: list[_NamedPart]
) -> _Joining:
    """Join parts until one change is enough for those that are left.

    Raises:
        S3Error: a part is not as the program says.
    """
    seen = -1
    while True:
        found = await _find_parts(call, upload, named)
        some = found.next()
        if len(some) == len(found.left):
            return found
        if found.head.size == seen:
            raise _invalid_part()
        operations = found.join(some)
        if not found.has_begun:
            # Under a name of its own: a first part that is sent again does not take its place.
            note = SetAttributes(found.head.path, {ATTRIBUTE: _encode(found.note)})
            operations += [note, Rename(found.head.path, upload.joined_path)]
        try:
            await call.fs.transact(operations)
        except PaxosBlockError as error:
            if not 1 <= int(error.details.get("operation", 0)) <= len(some) + 1:
                raise
            seen = found.head.size  # a part is another one now, or another gateway joined some


async def _make(making: Making, upload: PartsUpload, joining: _Joining) -> Answer:
    """Join the parts that are left, and give the file the name of the object."""
    head, left = joining.head, joining.left
    size = head.size + sum(part.size for part in left)
    _check_whole(making.call, upload, size)
    sums = joining.note.sums
    facts = replaced(
        upload.begun.facts, file_id=head.file_id, sums=sums, size=size, upload=upload.id
    )
    operations = making.operations(head.path, facts, upload.begun.tags)
    first = 1 if making.condition is None else 2
    operations[first:first] = joining.join(left)
    operations.append(Delete(upload.directory, recursive=True))
    try:
        await making.call.fs.transact(operations)
    except PaxosBlockError as error:
        if first < int(error.details.get("operation", 0)) <= first + len(left) + 1:
            raise _invalid_part() from None
        raise making.refusal(error) from None
    return _completed(making.call, state_tag(head.file_id, 0, size), sums)


def _check_sum_of_whole(call: S3Call) -> None:
    """Demand that the checksum which the program tells of the object, if it does, can be one."""
    told = [kind for kind in SumKind if kind.header in call.headers]
    if len(told) > 1:
        raise several_sums()
    for kind in told:
        check_value(kind, call.headers[kind.header].partition("-")[0])


def _check_whole(call: S3Call, upload: PartsUpload, size: int) -> None:
    """Compare the object with what the program says of it."""
    if (said := call.headers.get(OBJECT_SIZE)) is not None and said != str(size):
        words = f"The provided {OBJECT_SIZE} header does not match the size of the object: {size}"
        raise S3Error(S3Code.INVALID_REQUEST, words)
    how = sum_type(whole=upload.begun.whole_sum)
    if upload.kind is not None and call.headers.get(SUM_TYPE, how).upper() != how:
        words = f"The upload was created with the {how} checksum mode, and is completed as another"
        raise S3Error(S3Code.INVALID_REQUEST, words)


async def _named_parts(call: S3Call) -> list[_NamedPart]:
    # The checksum in its headers is that of the object.
    document = await document_of(call, "CompleteMultipartUpload", sums_are_its=False)
    found = []
    for each in document.findall("Part"):
        number, etag = text_in(each, "PartNumber").strip(), text_in(each, "ETag").strip()
        if not (number.isascii() and number.isdecimal() and len(number) < 6 and etag):
            raise malformed_xml()
        sums = {kind.word: text_in(each, kind.element).strip() for kind in SumKind}
        said = {name: value for name, value in sums.items() if value}
        found.append(_NamedPart(int(number), etag.strip('"'), said))
    numbers = [each.number for each in found]
    if not found:
        raise malformed_xml()
    if numbers != sorted({*numbers}):
        words = (
            "The list of parts was not in ascending order. Parts must be ordered by part number."
        )
        raise S3Error(S3Code.INVALID_PART_ORDER, words)
    if numbers[-1] > PARTS_MAX:
        raise _invalid_part()
    return found


async def _find_parts(call: S3Call, upload: PartsUpload, named: list[_NamedPart]) -> _Joining:
    """Look for the parts that are named.

    Raises:
        S3Error: one is not there, or is not as the program says, or others are joined already.
    """
    states = [state_of(each.etag) for each in named]
    try:
        there = {each.path: each for each in await call.fs.ls(upload.directory)}
        joined = there.get(upload.joined_path)
        note = None if joined is None else await _note_of(call, joined)
    except NotFoundError:
        raise _no_such_upload() from None
    count = 0
    if joined is not None:
        # A tag tells the size of its part, so the bytes that are joined tell how many parts are.
        ends = [*itertools.accumulate(0 if each is None else each.size for each in states)]
        if note is None or note.named != _digest_of(named) or joined.size not in ends:
            raise _invalid_part()
        count = ends.index(joined.size) + 1
    parts = [] if joined is None else [joined]
    for each in named[count:]:
        part = there.get(upload.part_path(each.number))
        if part is None or part.open or etag_of(part).strip('"') != each.etag:
            raise _invalid_part()
        parts.append(part)
    if any(each is not None and each.size < PART_BYTES_MIN for each in states[:-1]):
        words = "Your proposed upload is smaller than the minimum allowed size"
        raise S3Error(S3Code.ENTITY_TOO_SMALL, words)
    if note is None:
        sums = await _joined_sums(call, upload, parts, named)
        note = _JoinedNote(_digest_of(named), sums)
    if (kind := upload.kind) is not None:
        made = note.sums[kind.word]
        if call.headers.get(kind.header, made) != made:
            raise wrong_sum(kind)
    return _Joining(parts[0], parts[1:], note, joined is not None)


async def _note_of(call: S3Call, joined: FileStatus) -> _JoinedNote | None:
    found = await call.fs.get_attributes(joined.path, ATTRIBUTE)
    try:
        return _joined_decoder.decode(found[ATTRIBUTE])
    except (KeyError, *MALFORMED):
        return None


def _digest_of(named: list[_NamedPart]) -> bytes:
    return hashlib.sha256(_encode([(each.number, each.etag) for each in named])).digest()


def _invalid_part() -> S3Error:
    return S3Error(
        S3Code.INVALID_PART,
        "One or more of the specified parts could not be found. The part may not have been "
        "uploaded, or the specified entity tag may not match the part's entity tag.",
    )


async def _joined_sums(
    call: S3Call, upload: PartsUpload, parts: list[FileStatus], named: list[_NamedPart]
) -> dict[str, str]:
    """Return the checksum of the object, made of those of its parts, which must be those that the
    program says."""
    kind = upload.kind
    if kind is None:
        return {}
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)

    async def of_part(part: FileStatus, said: _NamedPart) -> bytes:
        async with at_once:
            found = await stored_of(call.fs, part)
        text = found.facts.sums.get(kind.word, "") if found is not None else ""
        if said.sums.get(kind.word, text) != text or not text:
            raise _invalid_part()
        return base64.b64decode(text)

    sums = await asyncio.gather(*map(of_part, parts, named))
    if upload.begun.whole_sum:
        made = sums[0]
        for each, part in zip(sums[1:], parts[1:], strict=True):
            made = joined_crc(kind, made, each, part.size)
        text = base64.b64encode(made).decode()
    else:
        running = new_sum(kind)
        running.update(b"".join(sums))
        text = f"{base64.b64encode(running.digest()).decode()}-{len(sums)}"
    return {kind.word: text}


async def _completed_before(call: S3Call, error: S3Error) -> Answer:
    """Return the answer to a Complete that was done already. Raises `error` if it was not."""
    try:
        found = await found_object(call)
    except S3Error:
        raise error from None
    if not found.facts.upload or found.facts.upload != call.parameter("uploadId"):
        raise error
    return _completed(call, found.etag, found.sums)


def _completed(call: S3Call, etag: str, sums: dict[str, str]) -> Answer:
    return answered(
        "CompleteMultipartUploadResult",
        [
            Field("Location", call.location),
            Field("Bucket", call.bucket),
            Field("Key", call.key),
            Field("ETag", etag),
            *sum_fields(sums),
        ],
    )


@s3_operation("AbortMultipartUpload", "DELETE", Level.OBJECT, "uploadId", changes=True)
async def abort_multipart_upload(call: S3Call) -> Answer:
    """Give an upload up, and delete its parts."""
    upload = await upload_of(call)
    await call.fs.delete(upload.directory, recursive=True)
    return Answer(HTTPStatus.NO_CONTENT)


# -- lists -----------------------------------------------------------------------------------------


@s3_operation("ListParts", "GET", Level.OBJECT, "uploadId")
async def list_parts(call: S3Call) -> Answer:
    """Show the parts of an upload that came."""
    upload = await upload_of(call)
    most = call.number("max-parts", LISTED_MAX, most=LISTED_MAX)
    after = call.number("part-number-marker", 0, most=PARTS_MAX)
    found = [
        (int(each.name), each)
        for each in await call.fs.ls(upload.directory)
        if _PART.fullmatch(each.name) and int(each.name) > after
    ]
    shown = found[:most]
    parts = [
        Field(
            "Part",
            [
                Field("PartNumber", number),
                Field("LastModified", xml_time(each.modified_s)),
                Field("ETag", etag_of(each)),
                Field("Size", each.size),
            ],
        )
        for number, each in shown
    ]
    fields = [
        Field("Bucket", call.bucket),
        Field("Key", call.key),
        Field("UploadId", upload.id),
        Field("StorageClass", "STANDARD"),
        Field("PartNumberMarker", after),
        Field("NextPartNumberMarker", shown[-1][0] if shown else after),
        Field("MaxParts", most),
        Field("IsTruncated", len(found) > len(shown)),
        *parts,
    ]
    return answered("ListPartsResult", fields)


@s3_operation("ListMultipartUploads", "GET", Level.BUCKET, "uploads")
async def list_multipart_uploads(call: S3Call) -> Answer:
    """Show the uploads of the user that go on, by key and the time of their beginning."""
    if call.parameter("delimiter"):
        raise not_implemented("delimiter of ListMultipartUploads")
    bucket = await call.bucket_status()
    most = call.number("max-uploads", LISTED_MAX, most=LISTED_MAX)
    after = call.parameter("key-marker"), call.parameter("upload-id-marker")
    found = sorted(
        [
            (upload.begun.key, upload.id, status)
            async for upload, status in _uploads_of(call, bucket)
            if upload.begun.key.startswith(call.parameter("prefix"))
        ],
        key=lambda each: each[:2],
    )
    found = [each for each in found if _is_behind(each[:2], after)]
    shown = found[:most]
    uploads = [
        Field(
            "Upload",
            [
                Field("Key", key),
                Field("UploadId", upload_id),
                Field("Initiated", xml_time(status.created_s)),
                Field("StorageClass", "STANDARD"),
            ],
        )
        for key, upload_id, status in shown
    ]
    more = len(found) > len(shown) > 0
    fields = [
        Field("Bucket", call.bucket),
        Field("KeyMarker", after[0]),
        Field("UploadIdMarker", after[1]),
        *([Field("NextKeyMarker", shown[-1][0])] if more else []),
        *([Field("NextUploadIdMarker", shown[-1][1])] if more else []),
        Field("Prefix", call.parameter("prefix")),
        Field("MaxUploads", most),
        Field("IsTruncated", more),
        *uploads,
    ]
    return answered("ListMultipartUploadsResult", fields)


def _is_behind(one: tuple[str, str], after: tuple[str, str]) -> bool:
    key, upload_id = after
    return one > after if upload_id else one[0] > key


async def _uploads_of(
    call: S3Call, bucket: FileStatus
) -> AsyncIterator[tuple[PartsUpload, FileStatus]]:
    mine = f"s3-{bucket.file_id:012x}-"
    try:
        async for page in call.fs.pages(STAGING, mine, one_state=False):
            for each in page.entries:
                if not each.name.startswith(mine):
                    return
                with contextlib.suppress(S3Error, PermissionDeniedError):  # gone, or another's
                    yield await _found(call, each.name.removeprefix("s3-")), each
    except NotFoundError:
        return
