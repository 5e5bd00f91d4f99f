"""Tags of objects: given with them or later, at any gateway, and lost by nothing but their end."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from paxosblock import Client
from paxosblock.gateway.s3.object_tags import tags_of_headers
from paxosblock.gateway.s3.s3_errors import S3Error
from tests.gateway.gateways import RunningGateway
from tests.gateway.s3_clients import refused, s3_client, signed_request

TAGS = {"a": "1", "ö/+ &=": "x y=ü&", "empty": ""}
HEADER = "a=1&%C3%B6%2F%2B+%26%3D=x%20y%3D%C3%BC%26&empty="


@pytest.fixture(scope="module")
def clients(gateways: tuple[RunningGateway, RunningGateway]) -> list[Any]:
    """A client of each."""
    return [s3_client(each.s3_url) for each in gateways]


@pytest.fixture
def f(clients: list[Any]) -> dict[str, str]:
    """An object without tags in a bucket that only this test uses."""
    key = {"Bucket": f"b-{uuid.uuid4().hex}", "Key": "d/f"}
    clients[0].create_bucket(Bucket=key["Bucket"])
    clients[0].put_object(**key, Body=b"x", Metadata={"n": "0"})
    return key


def tags_of(client: Any, key: dict[str, str]) -> dict[str, str]:
    """The tags of an object."""
    found = client.get_object_tagging(**key)["TagSet"]
    assert [each["Key"] for each in found] == sorted(each["Key"] for each in found)
    return {each["Key"]: each["Value"] for each in found}


def give(client: Any, key: dict[str, str], tags: dict[str, str]) -> None:
    """Give an object tags."""
    client.put_object_tagging(**key, Tagging=tag_set(tags))


def tag_set(tags: dict[str, str]) -> Any:
    return {"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]}


def test_tags_are_given_replaced_and_taken_and_the_object_stays_the_same(
    clients: list[Any], f: dict[str, str]
) -> None:
    one, other = clients
    before = one.head_object(**f)
    assert tags_of(one, f) == {}
    assert "TagCount" not in one.get_object(**f)
    give(one, f, TAGS)
    assert tags_of(other, f) == TAGS
    assert other.get_object(**f)["TagCount"] == 3
    give(other, f, {"b": "2"})
    assert tags_of(one, f) == {"b": "2"}
    one.delete_object_tagging(**f)
    assert tags_of(other, f) == {}
    after = one.head_object(**f)
    assert (after["ETag"], after["Metadata"]) == (before["ETag"], {"n": "0"})


def test_an_object_is_made_with_tags_and_the_next_one_does_not_inherit_them(
    clients: list[Any], f: dict[str, str]
) -> None:
    clients[0].put_object(**f, Body=b"y", Tagging=HEADER)
    assert tags_of(clients[1], f) == TAGS
    upload = {**f, "UploadId": clients[0].create_multipart_upload(**f, Tagging="b=2")["UploadId"]}
    tag = clients[1].upload_part(**upload, PartNumber=1, Body=b"z")["ETag"]
    told = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
    clients[1].complete_multipart_upload(**upload, MultipartUpload=told)
    assert tags_of(clients[0], f) == {"b": "2"}
    clients[0].put_object(**f, Body=b"y")
    assert tags_of(clients[1], f) == {}


def test_a_copy_has_the_tags_of_its_source_or_those_that_it_is_given(
    clients: list[Any], f: dict[str, str]
) -> None:
    one = clients[0]
    give(one, f, TAGS)
    copy = {"Bucket": f["Bucket"], "Key": "copy"}
    one.copy_object(**copy, CopySource=f)
    assert tags_of(one, copy) == TAGS
    one.copy_object(**copy, CopySource=f, TaggingDirective="REPLACE", Tagging="c=3")
    assert tags_of(one, copy) == {"c": "3"}
    one.copy_object(**copy, CopySource=copy, TaggingDirective="REPLACE", Tagging="d=4")
    assert tags_of(one, copy) == {"d": "4"}
    one.copy_object(**copy, CopySource=copy, MetadataDirective="REPLACE", Metadata={"m": "1"})
    assert tags_of(one, copy) == {"d": "4"}
    assert refused(one.copy_object, **copy, CopySource=copy) == "InvalidRequest"


def test_a_change_of_tags_and_one_of_metadata_at_once_lose_nothing(
    clients: list[Any], f: dict[str, str]
) -> None:
    replaced: Any = {"CopySource": f, "MetadataDirective": "REPLACE"}
    for race in range(8):
        word = str(race)
        with ThreadPoolExecutor(2) as pool:
            tagged = pool.submit(give, clients[0], f, {"n": word})
            copied = pool.submit(clients[1].copy_object, **f, **replaced, Metadata={"n": word})
            tagged.result(), copied.result()
        assert tags_of(clients[1], f) == clients[0].head_object(**f)["Metadata"] == {"n": word}


def test_tags_that_no_object_can_have_are_refused(
    clients: list[Any], gateways: tuple[RunningGateway, RunningGateway], f: dict[str, str]
) -> None:
    one = clients[0]
    give(one, f, {"kept": "1"})
    many = {str(number): "x" for number in range(11)}
    wrong: list[tuple[dict[str, str], str]] = [
        (many, "BadRequest"),
        ({"k" * 129: "x"}, "InvalidTag"),
        ({"k": "x" * 257}, "InvalidTag"),
    ]
    for tags, code in wrong:
        assert refused(one.put_object_tagging, **f, Tagging=tag_set(tags)) == code
    twice = {"TagSet": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]}
    assert refused(one.put_object_tagging, **f, Tagging=twice) == "InvalidTag"
    assert refused(one.put_object, **f, Body=b"y", Tagging="a=1&a=2") == "InvalidTag"
    assert refused(one.put_object, **f, Body=b"y", Tagging="a=%ff") == "InvalidArgument"
    assert refused(one.put_object, **f, Body=b"y", Tagging="=1") == "InvalidTag"
    with pytest.raises(S3Error, match="not of ASCII"):
        tags_of_headers({"x-amz-tagging": "a=\udcfc"})  # as a byte of no UTF-8 comes in
    assert refused(one.get_object_tagging, **{**f, "Key": "none"}) == "NoSuchKey"
    assert refused(one.put_object_tagging, **{**f, "Key": "d/"}, Tagging=tag_set({})) != ""
    target = f"/{f['Bucket']}/d/f?tagging"
    assert signed_request(gateways[0].s3_url, "PUT", target, b"<Tagging").status == 400
    largest = {chr(0x1F600 + n) * 128: "ü" * 256 for n in range(10)}
    assert tags_of(one, f) == {"kept": "1"}
    give(one, f, largest)
    assert tags_of(one, f) == largest


def test_a_file_of_another_door_that_takes_its_place_has_no_tags(
    clients: list[Any], fs: Client, f: dict[str, str]
) -> None:
    give(clients[0], f, TAGS)
    with fs.create(f"/{f['Bucket']}/d/f", overwrite=True) as file:
        file.write(b"by another door")
    assert tags_of(clients[0], f) == {}
