"""All that S3 shows of an object beside its bytes: its tag, its times, its headers and metadata.

The tag (ETag) is that of one state of one file: its id, how often it was truncated, and its length.
It is the same through every list and answer, also for files that came through another door, no byte
is read for it, and no other state ever has it. It ends with `-1`, by which programs know that it is
no MD5. Headers and metadata are one attribute of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Final

import msgspec

from paxosblock.api.namenode import FileStatus
from paxosblock.base.encoding import MALFORMED, msgpack_decoder
from paxosblock.client.async_client import AsyncClient
from paxosblock.gateway.s3.object_sums import SUM_TYPE, SumKind, sum_type
from paxosblock.gateway.s3.object_tags import TAGS_ATTRIBUTE, encoded_tags, tags_in
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error, invalid_argument
from paxosblock.gateway.s3.s3_xml import Field

ATTRIBUTE: Final = "user.s3"
METADATA: Final = "x-amz-meta-"
METADATA_BYTES_MAX: Final = 2048
KEPT_HEADERS: Final = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
)
"""Headers that a program gives an object, and gets back with it."""
DEFAULT_TYPE: Final = "binary/octet-stream"
VALUE_CHARACTERS_MAX: Final = 4096

_SHOWN: Final = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")
_TAG: Final = re.compile(r"([0-9a-f]{12})([0-9a-f]{8})([0-9a-f]{12})-1")


class ObjectFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The attribute `user.s3` of a file."""

    file_id: int = 0
    """The file for which it was made; 0: one without the attribute."""
    headers: dict[str, str] = {}
    metadata: dict[str, str] = {}
    sums: dict[str, str] = {}
    """Checksums of its bytes in base64, while it has `size` bytes and was never truncated."""
    size: int = 0
    upload: str = ""
    """The multipart upload that made it."""


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgpack_decoder(ObjectFacts)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A file as S3 shows it."""

    status: FileStatus
    facts: ObjectFacts
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def etag(self) -> str:
        """Return its tag."""
        return etag_of(self.status)

    @property
    def sums(self) -> dict[str, str]:
        """Return the checksums of its bytes that are known, by their names."""
        same = self.status.size == self.facts.size and not self.status.truncations
        return self.facts.sums if same else {}

    def headers(self) -> dict[str, str]:
        """Return the headers that tell of it."""
        told = {
            "Content-Type": DEFAULT_TYPE,
            **{name.title(): value for name, value in self.facts.headers.items()},
            **{f"{METADATA}{name}": value for name, value in self.facts.metadata.items()},
            "ETag": self.etag,
            "Last-Modified": http_time(self.status.modified_s),
            "Accept-Ranges": "bytes",
        }
        if self.tags:
            told["x-amz-tagging-count"] = str(len(self.tags))
        # Who may write the file may write its attribute, and not what else an answer says.
        return {name: value for name, value in told.items() if is_shown(name) and is_shown(value)}

    def sum_headers(self) -> dict[str, str]:
        """Return the headers with its checksums."""
        return sum_headers(self.sums)


def sum_headers(sums: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with checksums that are given by their names."""
    found = {kind.header: sums[kind.word] for kind in SumKind if kind.word in sums}
    if found:
        found[SUM_TYPE] = _sum_type(sums)
    return found


def sum_fields(sums: Mapping[str, str]) -> list[Field]:
    """Return the elements with checksums that are given by their names."""
    found = [Field(f"Checksum{name}", value) for name, value in sums.items()]
    return [*found, Field("ChecksumType", _sum_type(sums))] if found else []


def _sum_type(sums: Mapping[str, str]) -> str:
    return sum_type(whole=not any("-" in value for value in sums.values()))


def is_shown(text: str) -> bool:
    """True if a text may stand in a header."""
    return bool(_SHOWN.fullmatch(text)) and text.isascii()


def http_time(seconds: float) -> str:
    """Return a time, in seconds since 1970, as headers have it."""
    return formatdate(int(seconds), usegmt=True)


def xml_time(seconds: float) -> str:
    """Return a time, in seconds since 1970, as documents have it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def owner(status: FileStatus) -> Field:
    """Return the owner of a file or directory."""
    return Field("Owner", [Field("ID", status.owner), Field("DisplayName", status.owner)])


def etag_of(status: FileStatus) -> str:
    """Return the tag of a file."""
    return state_tag(status.file_id, status.truncations, status.size)


def state_tag(file_id: int, truncations: int, size: int) -> str:
    """Return the tag of a file in one state."""
    return f'"{file_id:012x}{truncations:08x}{size:012x}-1"'


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file that a tag names."""

    file_id: int
    truncations: int
    size: int


def state_of(tag: str) -> FileState | None:
    """Return the state that a tag names; None if it names none that there can be."""
    found = _TAG.fullmatch(tag.strip().strip('"'))
    if found is None:
        return None
    return FileState(int(found[1], 16), int(found[2], 16), int(found[3], 16))


def encoded(facts: ObjectFacts) -> bytes:
    """Return the value of the attribute."""
    return _encode(facts)


def facts_of_headers(headers: Mapping[str, str]) -> ObjectFacts:
    """Return what the headers of a request say of the object that it makes.

    Raises:
        S3Error: it is too much.
    """
    kept = {name: headers[name] for name in KEPT_HEADERS if headers.get(name)}
    if coding := kept.pop("content-encoding", ""):
        codings = (each.strip() for each in coding.split(","))
        if real := ", ".join(each for each in codings if each != "aws-chunked"):
            kept["content-encoding"] = real
    metadata: dict[str, str] = {}
    for header, value in headers.items():
        if (name := header.lower()).startswith(METADATA):
            # One that came several times has all of its values, as everywhere in HTTP.
            before = metadata.get(name.removeprefix(METADATA))
            joined = value if before is None else f"{before},{value}"
            metadata[name.removeprefix(METADATA)] = joined
    size = sum(_size(name) + _size(value) for name, value in metadata.items())
    if size > METADATA_BYTES_MAX:
        raise S3Error(
            S3Code.METADATA_TOO_LARGE,
            "Your metadata headers exceed the maximum allowed metadata size",
            Size=str(size),
            MaxSizeAllowed=str(METADATA_BYTES_MAX),
        )
    for name, value in (kept | metadata).items():
        if not is_shown(value) or not is_shown(name) or len(value) > VALUE_CHARACTERS_MAX:
            raise invalid_argument(f"the header {name[:80]!r} is too long, or not of ASCII")
    return ObjectFacts(headers=kept, metadata=metadata)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def attributes_of(
    file_id: int, facts: ObjectFacts, tags: Mapping[str, str]
) -> dict[str, bytes | None]:
    """Return the attributes of the file that is an object: with the id of a file and its facts."""
    return {ATTRIBUTE: encoded(facts), TAGS_ATTRIBUTE: encoded_tags(file_id, tags)}


async def stored_at(fs: AsyncClient, path: str) -> StoredObject:
    """Return what is at a path as an object; it may be a directory, or a file that is written.

    Raises:
        NotFoundError, NotDirectoryError: nothing is there.
    """
    status, found = await fs.stat_with_attributes(path, ATTRIBUTE, TAGS_ATTRIBUTE)
    facts = _decoded(found.get(ATTRIBUTE, b""))
    tags = tags_in(found.get(TAGS_ATTRIBUTE, b""), status.file_id)
    # An attribute of another file is none of this one.
    return StoredObject(status, facts if facts.file_id == status.file_id else ObjectFacts(), tags)


async def stored_of(fs: AsyncClient, status: FileStatus) -> StoredObject | None:
    """Return the object that is the file which has `status`; None if another one is there now.

    Raises:
        NotFoundError, NotDirectoryError: nothing is there any more.
    """
    found = await stored_at(fs, status.path)
    return replace(found, status=status) if found.status.file_id == status.file_id else None


def _decoded(value: bytes) -> ObjectFacts:
    try:
        return _decoder.decode(value) if value else ObjectFacts()
    except MALFORMED:
        return ObjectFacts()
