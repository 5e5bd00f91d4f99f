"""The tags of an object: pairs of words that programs give it, and may change later.

They are an attribute of the file, beside that of its headers: so a change of one never takes back
one of the other that was made at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_plus
from xml.etree import ElementTree

import msgspec

from paxosblock.base.encoding import MALFORMED, msgpack_decoder
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error, invalid_argument
from paxosblock.gateway.s3.s3_xml import Field, text_in

TAGS_ATTRIBUTE: Final = "user.s3.tags"
TAGGING: Final = "x-amz-tagging"
TAGS_MAX: Final = 10
KEY_CHARACTERS_MAX: Final = 128
VALUE_CHARACTERS_MAX: Final = 256


class _ObjectTags(msgspec.Struct, frozen=True):
    """The attribute `user.s3.tags` of a file."""

    file_id: int
    """The file to which they were given."""
    tags: dict[str, str]


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgpack_decoder(_ObjectTags)


def encoded_tags(file_id: int, tags: Mapping[str, str]) -> bytes | None:
    """Return the value of the attribute; None, which takes it away, without tags."""
    return _encode(_ObjectTags(file_id, dict(tags))) if tags else None


def tags_in(value: bytes, file_id: int) -> dict[str, str]:
    """Return the tags of a file that the value of its attribute says; none where it is that of
    another file."""
    try:
        found = _decoder.decode(value) if value else None
    except MALFORMED:
        found = None
    return found.tags if found is not None and found.file_id == file_id else {}


def tags_of_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that the headers of a request give to the object that it makes.

    Raises:
        S3Error: no object can have them.
    """
    pairs, said = [], headers.get(TAGGING, "")
    if not said.isascii():
        raise invalid_argument(f"The header {TAGGING} is not of ASCII")
    for part in said.split("&"):
        key, _, value = part.partition("=")
        if part:
            try:
                pairs.append((_decoded(key), _decoded(value)))
            except UnicodeDecodeError:
                raise invalid_argument(f"The header {TAGGING} is not UTF-8") from None
    return _checked(pairs)


def _decoded(text: str) -> str:
    return unquote_plus(text, errors="strict")


def tags_of_document(tagging: ElementTree.Element) -> dict[str, str]:
    """Return the tags that a document `Tagging` names. Raises S3Error if no object can have
    them."""
    return _checked(
        [(text_in(each, "Key"), text_in(each, "Value")) for each in tagging.iter("Tag")]
    )


def _checked(pairs: list[tuple[str, str]]) -> dict[str, str]:
    if len(pairs) > TAGS_MAX:
        raise S3Error(S3Code.BAD_REQUEST, f"Object tags cannot be greater than {TAGS_MAX}")
    for key, value in pairs:
        if not 1 <= len(key) <= KEY_CHARACTERS_MAX:
            raise S3Error(S3Code.INVALID_TAG, "The TagKey you have provided is invalid")
        if len(value) > VALUE_CHARACTERS_MAX:
            raise S3Error(S3Code.INVALID_TAG, "The TagValue you have provided is invalid")
    found = dict(pairs)
    if len(found) < len(pairs):
        words = "Cannot provide multiple Tags with the same key"
        raise S3Error(S3Code.INVALID_TAG, words)
    return found


def tag_fields(tags: Mapping[str, str]) -> list[Field]:
    """Return what a document `Tagging` has of these tags."""
    shown = [Field("Tag", [Field("Key", key), Field("Value", tags[key])]) for key in sorted(tags)]
    return [Field("TagSet", shown)]
