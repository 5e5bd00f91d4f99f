"""The operation of S3 that makes an object of a form of a page in a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from msgspec.structs import replace as replaced

from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.s3.form_bodies import FORM
from paxosblock.gateway.s3.object_facts import StoredObject, facts_of_headers, is_shown
from paxosblock.gateway.s3.object_sums import BodySums
from paxosblock.gateway.s3.object_tags import tags_of_document
from paxosblock.gateway.s3.object_writes import Making, store
from paxosblock.gateway.s3.post_forms import PostForm
from paxosblock.gateway.s3.request_documents import OBJECT_BYTES_MAX, root_of
from paxosblock.gateway.s3.s3_call import S3Call
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error, invalid_argument, too_large
from paxosblock.gateway.s3.s3_operation_table import Level, s3_operation
from paxosblock.gateway.s3.s3_xml import XML, Field, document

REDIRECTS: Final = ("success_action_redirect", "redirect")
"""The fields that name the page which a browser shows next; the second is its older name."""


@s3_operation("PostObject", "POST", Level.BUCKET, changes=True)
async def post_object(call: S3Call) -> Answer:
    """Make an object of the file of a form (`multipart/form-data`), whole or not at all, if the
    policy that its maker signed lets it: its end, `eq`, `starts-with`, `content-length-range`.
    `${filename}` in a field is the name of the file; `success_action_redirect` and
    `success_action_status` say what is answered."""
    form = call.exchange
    if not isinstance(form, PostForm):
        words = f"Bucket POST must be of the enclosure-type {FORM}"
        raise S3Error(S3Code.PRECONDITION_FAILED, words, Condition=words)
    if call.is_marker:
        raise invalid_argument("A key that ends with '/' is a directory here, and has no bytes")
    facts, sums = facts_of_headers(form.headers), BodySums.of_headers(form.headers)
    tags = _tags(form)
    making = await Making.begin(call)
    stored = await store(
        making,
        _checked(form, sums),
        OBJECT_BYTES_MAX,
        lambda: replaced(facts, sums=sums.known),
        tags,
    )
    return _answer(call, form.fields, stored)


def _tags(form: PostForm) -> Mapping[str, str]:
    said = form.fields.get("tagging", "")
    return tags_of_document(root_of(said.encode(), "Tagging")) if said else {}


async def _checked(form: PostForm, sums: BodySums) -> AsyncIterator[bytes]:
    """Yield the bytes of the file. When they end, they are as many as they may be, and have the
    checksums that they should have."""
    size = 0
    async for piece in form.body():
        size += len(piece)
        _check_size(form, size, is_all=False)
        sums.update(piece)
        yield piece
    _check_size(form, size, is_all=True)
    sums.told_late(())
    sums.check()


def _check_size(form: PostForm, size: int, *, is_all: bool) -> None:
    if form.policy is not None:
        form.policy.check_size(size, is_all=is_all)
    if size > OBJECT_BYTES_MAX:
        raise too_large(OBJECT_BYTES_MAX)


def _answer(call: S3Call, fields: Mapping[str, str], stored: StoredObject) -> Answer:
    told = {"ETag": stored.etag, "Location": call.location}
    names = {"bucket": call.bucket, "key": call.key, "etag": stored.etag}
    for field in REDIRECTS:
        if page := _with_names(fields.get(field, ""), names):
            return Answer(HTTPStatus.SEE_OTHER, b"", {**told, "Location": page})
    status = fields.get("success_action_status", "")
    if status == "201":
        shown = [
            Field("Location", call.location),
            Field("Bucket", call.bucket),
            Field("Key", call.key),
            Field("ETag", stored.etag),
        ]
        made = document("PostResponse", shown, namespace="")
        return Answer(HTTPStatus.CREATED, made, {**told, "Content-Type": XML})
    return Answer(HTTPStatus.OK if status == "200" else HTTPStatus.NO_CONTENT, b"", told)


def _with_names(page: str, names: Mapping[str, str]) -> str:
    """Return the address of a page with what it is told; "" if it is none."""
    try:
        parts = urlsplit(page)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.netloc or not is_shown(page):
        return ""
    query = "&".join(part for part in (parts.query, urlencode(names, quote_via=quote)) if part)
    return urlunsplit(parts._replace(query=query))
