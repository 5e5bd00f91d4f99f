"""Operations of S3 that make, replace or delete an object: each is one change of the catalog."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

from msgspec.structs import replace as replaced

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.transaction import (
    AssertDirectory,
    AssertFile,
    Delete,
    MakeDirectory,
    Operation,
    Rename,
    SetAttributes,
)
from paxosblock.base.checksum import Buffer
from paxosblock.client.publishing import Publish
from paxosblock.errors import (
    IsDirectoryError,
    LeaseError,
    NotDirectoryError,
    NotFoundError,
    PaxosBlockError,
)
from paxosblock.gateway.download import TRIES, pieces_of
from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.s3.object_conditions import (
    IF_MATCH,
    IF_NONE_MATCH,
    OF_SOURCE,
    asserted,
    is_unchanged,
)
from paxosblock.gateway.s3.object_facts import (
    ObjectFacts,
    StoredObject,
    attributes_of,
    etag_of,
    facts_of_headers,
    sum_fields,
    sum_headers,
    xml_time,
)
from paxosblock.gateway.s3.object_reads import ByteRange, check_version, found_object
from paxosblock.gateway.s3.object_sums import SUM_ALGORITHM, BodySums, sum_kind
from paxosblock.gateway.s3.object_tags import (
    TAGS_ATTRIBUTE,
    encoded_tags,
    tags_of_document,
    tags_of_headers,
)
from paxosblock.gateway.s3.request_documents import (
    announced_length,
    checked_body,
    document_of,
    malformed_xml,
)
from paxosblock.gateway.s3.s3_call import (
    EXPECTED_OWNER,
    EXPECTED_SOURCE_OWNER,
    S3Call,
    answered,
    checked_key,
    is_bucket_name,
)
from paxosblock.gateway.s3.s3_errors import (
    S3Code,
    S3Error,
    as_s3_error,
    invalid_argument,
    no_such_bucket,
    precondition_failed,
)
from paxosblock.gateway.s3.s3_operation_table import COPY_SOURCE, Level, s3_operation
from paxosblock.gateway.s3.s3_xml import Field, text_in
from paxosblock.gateway.small_uploads import SMALL_UPLOAD_BYTES, SmallUpload
from paxosblock.gateway.upload import fill

KEYS_DELETED_MAX: Final = 1000
DELETED_AT_ONCE: Final = 16
DIRECTIVE: Final = "x-amz-metadata-directive"
_CONDITIONS: Final = (IF_MATCH, IF_NONE_MATCH, EXPECTED_OWNER)
TAGGING_DIRECTIVE: Final = "x-amz-tagging-directive"


@dataclass(frozen=True, slots=True)
class Making:
    """An object that a request makes, and the file that is at its key now."""

    call: S3Call
    bucket: FileStatus
    present: FileStatus | None
    condition: Operation | None

    @classmethod
    async def begin(cls, call: S3Call) -> Making:
        """Look at what is there, before any byte is asked for.

        Raises:
            S3Error: there is no bucket, or the key is below an object, or has objects below it, or
                a condition of the request is not met.
        """
        path = call.path
        bucket = await call.bucket_status()
        try:
            present = await call.fs.stat(path)
        except NotFoundError:
            present = None
        except NotDirectoryError:
            raise _parent_is_object() from None
        if present is not None and present.kind is Kind.DIRECTORY:
            raise _parent_is_object()
        if present is not None and present.open:
            raise S3Error(S3Code.OPERATION_ABORTED, "A program is writing the file at this key")
        return cls(call, bucket, present, asserted(call.headers, path, present))

    def operations(
        self, hidden: str, facts: ObjectFacts, tags: Mapping[str, str]
    ) -> list[Operation]:
        """Return the change that makes the object of a hidden file, with its condition."""
        condition = [] if self.condition is None else [self.condition]
        state = AssertDirectory(self.bucket.path, self.bucket.file_id)
        return [state, *condition, *_making_object(self.call, hidden, facts, tags)]

    def refusal(self, error: PaxosBlockError) -> S3Error:
        """Return the refusal of a change that failed so: the bucket is gone, or the condition is
        no longer met."""
        number = error.details.get("operation")
        if number == 1 and isinstance(error, (NotFoundError, NotDirectoryError)):
            return no_such_bucket()
        if number == 2 and self.condition is not None and not isinstance(error, LeaseError):
            name = "If-Match" if isinstance(self.condition, AssertFile) else "If-None-Match"
            return precondition_failed(name)
        return as_s3_error(error)


def _making_object(
    call: S3Call, hidden: str, facts: ObjectFacts, tags: Mapping[str, str]
) -> list[Operation]:
    """Return what makes the object of a hidden file, where there is the bucket."""
    return [
        *_directory_above(call),
        SetAttributes(hidden, attributes_of(facts.file_id, facts, tags)),
        Rename(hidden, call.path, overwrite=True, as_new=True),
    ]


def _directory_above(call: S3Call) -> list[MakeDirectory]:
    """Return what makes the directory that a key is in; it goes with the last key below it."""
    parent = call.path.rpartition("/")[0]
    return [MakeDirectory(parent, implicit=True)] if parent != call.bucket_path() else []


def _parent_is_object() -> S3Error:
    return S3Error(
        S3Code.OBJECT_PARENT_IS_OBJECT,
        "Keys are paths of files here: a key is not below an object, and has no objects below it",
    )


@s3_operation("PutObject", "PUT", Level.OBJECT, changes=True)
async def put_object(call: S3Call) -> Answer:
    """Make an object of the bytes that come: it is there, whole, when all came with the right
    checksums, and if the conditions `If-None-Match: *` or `If-Match` are met then. A key that ends
    with `/` makes a directory, and has no bytes."""
    sums, length = BodySums.of_headers(call.headers), announced_length(call)
    if call.is_marker:
        return await _put_marker(call, sums, length)
    facts, tags = facts_of_headers(call.headers), tags_of_headers(call.headers)
    body: AsyncIterator[Buffer] = checked_body(call, sums, length)
    stored = None
    if length <= SMALL_UPLOAD_BYTES and not any(each in call.headers for each in _CONDITIONS):
        await call.hold_to_write(length)
        content = b"".join([bytes(piece) async for piece in body])
        stored = await _stored_with_others(call, content, _with(facts, sums), tags)
        body = _once(content)
    if stored is None:
        making = await Making.begin(call)
        stored = await store(making, body, length, lambda: _with(facts, sums), tags)
    return Answer(HTTPStatus.OK, b"", {"ETag": stored.etag, **sum_headers(stored.facts.sums)})


def _with(facts: ObjectFacts, sums: BodySums) -> ObjectFacts:
    return replaced(facts, sums=sums.known)


async def _once(content: bytes) -> AsyncIterator[Buffer]:
    yield content


async def _stored_with_others(
    call: S3Call, content: bytes, facts: ObjectFacts, tags: Mapping[str, str]
) -> StoredObject | None:
    """Make a small object, together with others that come just then, and look at nothing before:
    the change tells what is in its way. None: it must be made by itself, and hears of that.

    Raises:
        S3Error: it is not made, unless the answer was lost.
    """
    made: list[StoredObject] = []

    def publication(hidden: FileStatus) -> list[Operation]:
        known = replaced(facts, file_id=hidden.file_id, size=hidden.size)
        made.append(StoredObject(hidden, known))
        state = AssertDirectory(call.bucket_path())
        return [state, *_making_object(call, hidden.path, known, tags)]

    try:
        if await call.client.small_uploads.put(SmallUpload(call.path, content, publication)):
            return made[-1]
    except PaxosBlockError as error:
        raise as_s3_error(error) from None
    return None


async def store(
    making: Making,
    body: AsyncIterator[Buffer],
    length: int,
    facts_at_end: Callable[[], ObjectFacts],
    tags: Mapping[str, str],
) -> StoredObject:
    """Make an object of bytes, at most `length`; `facts_at_end` is asked when the last one came.

    Raises:
        S3Error: as `Making.refusal` says. It is not made, unless the answer was lost.
    """
    call = making.call
    await call.hold_to_write(length)
    staged = await call.client.staging.create(call.path, Publish.REPLACE)
    writer = staged.writer
    made: list[StoredObject] = []

    async def finish() -> None:
        size = await fill(writer, body)
        status = replaced(writer.status, size=size)
        facts = replaced(facts_at_end(), file_id=status.file_id, size=size)
        await writer.close(then=making.operations(status.path, facts, tags))
        made.append(StoredObject(status, facts))

    try:
        await staged.complete(finish, publishes=False)
    except PaxosBlockError as error:
        raise making.refusal(error) from None
    return made[0]


async def _put_marker(call: S3Call, sums: BodySums, length: int) -> Answer:
    if length or tags_of_headers(call.headers):
        words = "A key that ends with '/' is a directory here, and has no bytes and no tags"
        raise invalid_argument(words)
    async for _ in checked_body(call, sums, length):
        pass
    bucket = await call.bucket_status()
    if asserted(call.headers, call.path, None) is not None:
        raise invalid_argument("A directory is made without conditions")
    state = AssertDirectory(bucket.path, bucket.file_id)
    made = [*_directory_above(call), MakeDirectory(call.path)]
    try:
        await call.fs.transact([state, *made])
    except PaxosBlockError as error:
        if error.details.get("operation") == 1:
            raise no_such_bucket() from None
        raise _parent_is_object() from None
    return Answer(HTTPStatus.OK, b"", {"ETag": '"d41d8cd98f00b204e9800998ecf8427e"'})


# -- copies ----------------------------------------------------------------------------------------


def source_of(call: S3Call) -> S3Call:
    """Return the request for the object that is copied.

    Raises:
        S3Error: the header does not name one, or the key of the request may not read it.
    """
    written, _, query = call.headers[COPY_SOURCE].partition("?")
    bucket, _, key = unquote(written).removeprefix("/").partition("/")
    if not is_bucket_name(bucket) or not key:
        words = "Copy Source must mention the source bucket and key: sourcebucket/sourcekey"
        raise invalid_argument(words)
    if call.signed.key.bucket not in ("", bucket):
        raise S3Error(S3Code.ACCESS_DENIED, "The access key is good for another bucket")
    named = tuple(
        ("versionId", part.removeprefix("versionId=")) for part in query.split("&") if part
    )
    source = replace(call, bucket=bucket, key=checked_key(key), query=named)
    check_version(source)
    return source


async def found_source(call: S3Call, source: S3Call) -> StoredObject:
    """Return the object that is copied. Raises S3Error if there is none, or it is not as it should
    be."""
    await call.check_owner(EXPECTED_SOURCE_OWNER, source.bucket)
    found = await found_object(source)
    if is_unchanged(call.headers, found.status, OF_SOURCE):
        raise precondition_failed(f"{OF_SOURCE}if-none-match")
    return found


@contextlib.asynccontextmanager
async def bytes_of_source(
    call: S3Call, found: StoredObject, wanted: ByteRange
) -> AsyncIterator[AsyncIterator[Buffer]]:
    """Read bytes of the object that is copied. Raises S3Error if it is another one by now."""
    await call.hold_to_read(wanted.length)
    async with call.fs.open(found.status.path) as reader:
        if etag_of(reader.status) != found.etag:
            raise precondition_failed(f"{OF_SOURCE}if-match")
        yield pieces_of(reader, wanted.start, wanted.length)


@s3_operation("CopyObject", "PUT", Level.OBJECT, copies=True, changes=True)
async def copy_object(call: S3Call) -> Answer:
    """Make an object of the bytes of another one, which the gateway reads and writes. One that is
    copied onto itself gets other metadata, and no byte is read."""
    source = source_of(call)
    if source.is_marker or call.is_marker:
        raise invalid_argument("A directory is not copied")
    directive = _directive(call, DIRECTIVE)
    found = await found_source(call, source)
    facts = found.facts
    if directive == "REPLACE":
        facts = facts_of_headers(call.headers)
    tags = found.tags
    if _directive(call, TAGGING_DIRECTIVE) == "REPLACE":
        tags = tags_of_headers(call.headers)
    making = await Making.begin(call)
    if source.path == call.path:
        if directive == "COPY" == _directive(call, TAGGING_DIRECTIVE):
            words = (
                "This copy request is illegal because it is trying to copy an object to itself "
                "without changing the object's metadata"
            )
            raise S3Error(S3Code.INVALID_REQUEST, words)
        return _copied(await _with_other_facts(making, found, facts, tags))
    sums, size = BodySums(), found.status.size
    if asked := call.headers.get(SUM_ALGORITHM):
        sums.compute(sum_kind(asked))

    def facts_at_end() -> ObjectFacts:
        return replaced(facts, sums=sums.known or found.sums, upload="")

    async with bytes_of_source(call, found, ByteRange(0, size)) as body:
        return _copied(await store(making, sums.of_all(body), size, facts_at_end, tags))


def _directive(call: S3Call, name: str) -> str:
    """Return what a copy does about headers, or tags: COPY or REPLACE."""
    word = call.headers.get(name, "COPY").upper()
    if word not in ("COPY", "REPLACE"):
        raise invalid_argument(f"{name} is COPY or REPLACE, not {word[:20]!r}")
    return word


async def _with_other_facts(
    making: Making, found: StoredObject, facts: ObjectFacts, tags: Mapping[str, str]
) -> StoredObject:
    call, status = making.call, found.status
    same = replaced(facts, file_id=status.file_id, sums=found.sums, size=status.size)
    state = AssertFile(status.path, status.file_id, status.size, status.truncations)
    making = replace(making, condition=state)
    changed = attributes_of(status.file_id, same, tags)
    if tags is found.tags:
        del changed[TAGS_ATTRIBUTE]  # another program may change them at this moment
    operations: list[Operation] = [
        AssertDirectory(making.bucket.path, making.bucket.file_id),
        state,
        SetAttributes(status.path, changed),
    ]
    try:
        await call.fs.transact(operations)
    except PaxosBlockError as error:
        raise making.refusal(error) from None
    return StoredObject(status, same, tags)


def _copied(stored: StoredObject) -> Answer:
    modified = Field("LastModified", xml_time(stored.status.modified_s))
    return answered(
        "CopyObjectResult", [modified, Field("ETag", stored.etag), *sum_fields(stored.sums)]
    )


# -- tags ------------------------------------------------------------------------------------------


@s3_operation("PutObjectTagging", "PUT", Level.OBJECT, "tagging", changes=True)
async def put_object_tagging(call: S3Call) -> Answer:
    """Give an object these tags in the place of those that it has. It stays the object that it is,
    with its ETag."""
    check_version(call)
    await _give_tags(call, tags_of_document(await document_of(call, "Tagging")))
    return Answer(HTTPStatus.OK)


@s3_operation("DeleteObjectTagging", "DELETE", Level.OBJECT, "tagging", changes=True)
async def delete_object_tagging(call: S3Call) -> Answer:
    """Take the tags of an object away."""
    check_version(call)
    await _give_tags(call, {})
    return Answer(HTTPStatus.NO_CONTENT)


async def _give_tags(call: S3Call, tags: Mapping[str, str]) -> None:
    if call.is_marker:
        raise invalid_argument("A directory has no tags")
    for _ in range(TRIES):
        status = (await found_object(call)).status
        path, file_id = status.path, status.file_id
        given = {TAGS_ATTRIBUTE: encoded_tags(file_id, tags)}
        try:
            await call.fs.transact([AssertFile(path, file_id), SetAttributes(path, given)])
        except PaxosBlockError as error:
            if error.details.get("operation") != 1:
                raise
        else:
            return
    raise S3Error(S3Code.OPERATION_ABORTED, "The object is being replaced all the time")


# -- deletes ---------------------------------------------------------------------------------------


@s3_operation("DeleteObject", "DELETE", Level.OBJECT, changes=True)
async def delete_object(call: S3Call) -> Answer:
    """Delete an object, if there is one, and each directory above that was there for it alone. With
    `If-Match` only while it is met. A key that ends with `/` is that of a directory, which stays as
    long as objects are below it."""
    check_version(call)
    await _delete(call, await call.bucket_status(), call.headers.get(IF_MATCH))
    return Answer(HTTPStatus.NO_CONTENT)


async def _delete(call: S3Call, bucket: FileStatus, match: str | None) -> None:
    path = call.path
    condition: Operation = AssertDirectory(path) if call.is_marker else AssertFile(path)
    if match is not None and not call.is_marker:
        found = await found_object(call)
        wanted = asserted({IF_MATCH: match}, path, found.status)
        assert isinstance(wanted, AssertFile), "it is that of If-Match"
        condition = wanted
    operations: list[Operation] = [
        AssertDirectory(bucket.path, bucket.file_id),
        condition,
        # A bucket that was made for its first key does not go with its last one.
        MakeDirectory(bucket.path),
        Delete(path, must_exist=True, prune=True),
    ]
    try:
        await call.fs.transact(operations)
    except (NotFoundError, NotDirectoryError, IsDirectoryError) as error:
        if error.details.get("operation") == 1:
            raise no_such_bucket() from None
        if match is not None:
            raise precondition_failed("If-Match") from None


@s3_operation("DeleteObjects", "POST", Level.BUCKET, "delete", changes=True)
async def delete_objects(call: S3Call) -> Answer:
    """Delete up to a thousand objects that a document names, each by itself; the answer tells of
    each."""
    wanted = await document_of(call, "Delete")
    keys = [(text_in(each, "Key"), each.findtext("ETag")) for each in wanted.findall("Object")]
    if not 1 <= len(keys) <= KEYS_DELETED_MAX or not all(key for key, _ in keys):
        raise malformed_xml()
    quiet = text_in(wanted, "Quiet").strip() == "true"
    bucket = await call.bucket_status()
    at_once = asyncio.Semaphore(DELETED_AT_ONCE)

    async def told(key: str, match: str | None) -> Field | None:
        async with at_once:
            try:
                one = replace(call, key=checked_key(key))
                await _delete(one, bucket, match)
            except PaxosBlockError as error:
                return _failed(key, as_s3_error(error))
            except S3Error as error:
                return _failed(key, error)
        return None if quiet else Field("Deleted", [Field("Key", key)])

    found = await asyncio.gather(*(told(*each) for each in keys))
    return answered("DeleteResult", [each for each in found if each is not None])


def _failed(key: str, error: S3Error) -> Field:
    said = [Field("Key", key), Field("Code", error.code.word), Field("Message", error.message)]
    return Field("Error", said)
