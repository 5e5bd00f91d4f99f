"""Lists of the keys of a bucket, as S3 has them."""

from __future__ import annotations

import base64
import binascii
from typing import Final
from urllib.parse import quote

from paxosblock.api.namenode import FileStatus
from paxosblock.api.subtree import KEYS_MAX, ListedKey
from paxosblock.errors import NotDirectoryError, NotFoundError
from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.s3.object_facts import etag_of, owner, xml_time
from paxosblock.gateway.s3.s3_call import S3Call, answered
from paxosblock.gateway.s3.s3_errors import invalid_argument, no_such_bucket
from paxosblock.gateway.s3.s3_operation_table import Level, s3_operation
from paxosblock.gateway.s3.s3_xml import Field

MARKER_TAG: Final = '"d41d8cd98f00b204e9800998ecf8427e"'
"""The tag of a key that is a directory: that of no bytes."""


@s3_operation("ListObjectsV2", "GET", Level.BUCKET, "list-type")
async def list_objects_v2(call: S3Call) -> Answer:
    """Show a thousand keys that begin with `prefix` and are greater than `start-after`, in the
    order of their bytes, all as they were at one moment. With a `delimiter`, keys in which it
    follows are shown as one."""
    if call.parameter("list-type") != "2":
        raise invalid_argument("list-type is 2")
    listing = await _listing(call, _after_token(call) or call.parameter("start-after"))
    token = _token(listing.after) if listing.after else ""
    fields = [
        Field("KeyCount", len(listing.contents) + len(listing.groups)),
        *_if_there("StartAfter", listing.written(call.parameter("start-after"))),
        *_if_there("ContinuationToken", call.parameter("continuation-token")),
        *_if_there("NextContinuationToken", token),
    ]
    return listing.answer(fields, owners=call.parameter("fetch-owner") == "true")


@s3_operation("ListObjects", "GET", Level.BUCKET)
async def list_objects(call: S3Call) -> Answer:
    """Show keys as `ListObjectsV2` does; `marker` is the key behind which it begins."""
    marker = call.parameter("marker")
    listing = await _listing(call, marker)
    fields = [
        Field("Marker", listing.written(marker)),
        *_if_there("NextMarker", listing.written(listing.after)),
    ]
    return listing.answer(fields, owners=True)


@s3_operation("ListObjectVersions", "GET", Level.BUCKET, "versions")
async def list_object_versions(call: S3Call) -> Answer:
    """Show keys as `ListObjects` does, each with the one version that there is, `null`."""
    marker = call.parameter("key-marker")
    listing = await _listing(call, marker)
    fields = [
        Field("KeyMarker", listing.written(marker)),
        Field("VersionIdMarker", call.parameter("version-id-marker")),
        *_if_there("NextKeyMarker", listing.written(listing.after)),
        *_if_there("NextVersionIdMarker", "null" if listing.after else ""),
    ]
    return listing.answer(fields, owners=True, versions=True)


class _KeyPage:
    """The keys of one answer."""

    def __init__(self, call: S3Call, encoding: str, most: int) -> None:
        self._call = call
        self._encodes = bool(encoding)
        self._most = most
        self.contents: list[tuple[str, FileStatus]] = []
        self.groups: list[str] = []
        self.after = ""

    def add(self, key: ListedKey) -> None:
        if key.status is None:
            self.groups.append(key.key)
        elif not key.status.open:  # what is written over HDFS's door is no object until it is whole
            self.contents.append((key.key, key.status))

    def written(self, key: str) -> str:
        """Return a key as this answer has it."""
        return quote(key, safe="/-_.~") if self._encodes else key

    def answer(self, fields: list[Field], *, owners: bool, versions: bool = False) -> Answer:
        call = self._call
        said = [
            Field("Name", call.bucket),
            Field("Prefix", self.written(call.parameter("prefix"))),
            *_if_there("Delimiter", self.written(call.parameter("delimiter"))),
            Field("MaxKeys", self._most),
            *_if_there("EncodingType", "url" if self._encodes else ""),
            Field("IsTruncated", bool(self.after)),
            *fields,
            *(self._content(*each, owners=owners, versions=versions) for each in self.contents),
            *(
                Field("CommonPrefixes", [Field("Prefix", self.written(group))])
                for group in self.groups
            ),
        ]
        return answered("ListVersionsResult" if versions else "ListBucketResult", said)

    def _content(self, key: str, status: FileStatus, *, owners: bool, versions: bool) -> Field:
        is_marker = key.endswith("/")
        fields = [
            Field("Key", self.written(key)),
            *([Field("VersionId", "null"), Field("IsLatest", True)] if versions else []),
            Field("LastModified", xml_time(status.modified_s)),
            Field("ETag", MARKER_TAG if is_marker else etag_of(status)),
            Field("Size", 0 if is_marker else status.size),
            *([owner(status)] if owners else []),
            Field("StorageClass", "STANDARD"),
        ]
        return Field("Version" if versions else "Contents", fields)


async def _listing(call: S3Call, after: str) -> _KeyPage:
    encoding = call.parameter("encoding-type")
    if encoding not in ("", "url"):
        raise invalid_argument("Invalid Encoding Method specified in Request")
    most = call.number("max-keys", KEYS_MAX, most=KEYS_MAX)
    page = _KeyPage(call, encoding, most)
    if not most:
        await call.bucket_status()
        return page
    try:
        found = await call.fs.list_keys(
            call.bucket_path(),
            prefix=call.parameter("prefix"),
            after=after,
            delimiter=call.parameter("delimiter"),
            limit=most,
        )
    except (NotFoundError, NotDirectoryError):
        raise no_such_bucket() from None
    for key in found.keys:
        page.add(key)
    page.after = found.after
    return page


def _if_there(name: str, text: str) -> list[Field]:
    return [Field(name, text)] if text else []


def _token(after: str) -> str:
    return base64.urlsafe_b64encode(after.encode()).decode()


def _after_token(call: S3Call) -> str:
    token = call.parameter("continuation-token")
    try:
        return base64.b64decode(token.encode("ascii"), b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise invalid_argument("The continuation token provided is incorrect") from None
