"""S3 as boto3 speaks it: objects, their conditions, lists and refusals."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen
from xml.etree import ElementTree

import pytest
from multidict import CIMultiDict

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import Kind
from paxosblock.gateway.s3.object_facts import ObjectFacts, encoded, facts_of_headers, xml_time
from paxosblock.gateway.s3.s3_call import words_of
from paxosblock.host.user import current_user
from tests.gateway.gateways import S3, RunningGateway, content, put, quiet_gateway_of
from tests.gateway.s3_clients import error_code, refused, s3_client, send, signed_request
from tests.master_keys import encrypt

DATA = os.urandom(3_000_000)


@pytest.fixture(scope="module")
def s3_gateway(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway with S3."""
    with quiet_gateway_of(cluster, tmp_path_factory.mktemp("s3"), *S3) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def s3(s3_gateway: RunningGateway) -> Any:
    """boto3's client of it."""
    return s3_client(s3_gateway.s3_url)


@pytest.fixture
def bucket(s3: Any) -> str:
    """A bucket that only this test uses."""
    name = f"b-{uuid.uuid4().hex}"
    s3.create_bucket(Bucket=name)
    return name


def keys(s3: Any, bucket: str, **arguments: Any) -> list[str]:
    """All keys of a bucket, page by page."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, **arguments)
    return [each["Key"] for page in pages for each in page.get("Contents", [])]


# -- objects ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    ["f", "a/b/c", "with space+plus", "üñ€/日本", "a'b\"c&<d>", "2026-11-23T12:00:00", "~._-"],
)
@pytest.mark.parametrize("data", [b"", b"x", DATA])
def test_an_object_is_a_file(s3: Any, fs: Client, bucket: str, key: str, data: bytes) -> None:
    made = s3.put_object(Bucket=bucket, Key=key, Body=data)
    assert content(fs, f"/{bucket}/{key}") == data
    got = s3.get_object(Bucket=bucket, Key=key)
    assert got["Body"].read() == data
    assert got["ETag"] == made["ETag"] == s3.head_object(Bucket=bucket, Key=key)["ETag"]
    (listed,) = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert (listed["Key"], listed["ETag"], listed["Size"]) == (key, made["ETag"], len(data))


def test_a_file_of_another_door_is_an_object(s3: Any, fs: Client, bucket: str) -> None:
    put(fs, f"/{bucket}/f", b"one")
    first = s3.head_object(Bucket=bucket, Key="f")
    assert first["ContentType"] == "binary/octet-stream"
    with fs.append(f"/{bucket}/f") as file:
        file.write(b"two")
    second = s3.get_object(Bucket=bucket, Key="f")
    assert second["Body"].read() == b"onetwo"
    assert first["ETag"] != second["ETag"]
    fs.truncate(f"/{bucket}/f", 3)
    assert s3.head_object(Bucket=bucket, Key="f")["ETag"] not in (first["ETag"], second["ETag"])


def test_an_open_file_is_no_object(s3: Any, fs: Client, bucket: str) -> None:
    with fs.create(f"/{bucket}/f") as file:
        file.write(b"half")
        file.flush()
        assert refused(s3.get_object, Bucket=bucket, Key="f") == "NoSuchKey"
        assert refused(s3.head_object, Bucket=bucket, Key="f") == "404"
        assert keys(s3, bucket) == []
        assert refused(s3.put_object, Bucket=bucket, Key="f", Body=b"x") == "OperationAborted"
    assert keys(s3, bucket) == ["f"]


def test_headers_and_metadata_stay_with_an_object(s3: Any, bucket: str) -> None:
    said = {
        "ContentType": "text/x-thing; charset=utf-8",
        "CacheControl": "no-store",
        "ContentDisposition": 'attachment; filename="a b"',
        "ContentEncoding": "gzip",
        "ContentLanguage": "de",
        "Metadata": {"one": "1", "two-three": "x y"},
    }
    packed = gzip.compress(b"hello")
    s3.put_object(Bucket=bucket, Key="f", Body=packed, **said)
    got = s3.get_object(Bucket=bucket, Key="f")
    assert got["Body"].read() == packed
    assert {name: got[name] for name in said} == said
    asked = {"ResponseContentType": "text/html", "ResponseCacheControl": "no-cache"}
    other = s3.get_object(Bucket=bucket, Key="f", **asked)
    assert (other["ContentType"], other["CacheControl"]) == ("text/html", "no-cache")
    s3.copy_object(
        Bucket=bucket,
        Key="f",
        CopySource={"Bucket": bucket, "Key": "f"},
        MetadataDirective="REPLACE",
        Metadata={"four": "4"},
    )
    again = s3.head_object(Bucket=bucket, Key="f")
    assert (again["Metadata"], again["ETag"]) == ({"four": "4"}, got["ETag"])
    assert refused(s3.put_object, Bucket=bucket, Key="g", Metadata={"a": "x" * 2100}) == (
        "MetadataTooLarge"
    )


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ("bytes=0-0", range(1)),
        ("bytes=5-9", range(5, 10)),
        ("bytes=2999990-", range(2_999_990, 3_000_000)),
        ("bytes=-3", range(2_999_997, 3_000_000)),
        ("bytes=-9999999", range(3_000_000)),
        ("bytes=1-99999999", range(1, 3_000_000)),
    ],
)
def test_a_range_is_sent(s3: Any, fs: Client, bucket: str, asked: str, sent: range) -> None:
    put(fs, f"/{bucket}/f", DATA)
    got = s3.get_object(Bucket=bucket, Key="f", Range=asked)
    assert got["Body"].read() == DATA[sent.start : sent.stop]
    assert got["ContentRange"] == f"bytes {sent.start}-{sent.stop - 1}/{len(DATA)}"
    assert s3.head_object(Bucket=bucket, Key="f", Range=asked)["ContentLength"] == len(sent)


def test_what_is_no_range_is_all_or_refused(s3: Any, fs: Client, bucket: str) -> None:
    put(fs, f"/{bucket}/f", b"0123456789")
    for asked in ("bytes=0-1,3-4", "lines=1-2", "bytes=5-2", "bytes=x"):
        assert s3.get_object(Bucket=bucket, Key="f", Range=asked)["Body"].read() == b"0123456789"
    for asked in ("bytes=10-", "bytes=10-20", "bytes=-0"):
        assert refused(s3.get_object, Bucket=bucket, Key="f", Range=asked) == "InvalidRange"


def test_conditions_of_reads(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="f", Body=b"x")
    head = s3.head_object(Bucket=bucket, Key="f")
    tag, time = head["ETag"], head["LastModified"]
    f = {"Bucket": bucket, "Key": "f"}
    assert refused(s3.get_object, **f, IfMatch='"other"') == "PreconditionFailed"
    assert refused(s3.get_object, **f, IfNoneMatch=tag) == "304"
    assert refused(s3.get_object, **f, IfModifiedSince=time) == "304"
    assert refused(s3.get_object, **f, IfUnmodifiedSince="1999-01-01") == "PreconditionFailed"
    assert s3.get_object(**f, IfMatch=tag, IfUnmodifiedSince="1999-01-01")["Body"].read() == b"x"
    assert s3.get_object(**f, IfNoneMatch='"other"', IfModifiedSince=time)["Body"].read() == b"x"


def test_conditions_of_writes(s3: Any, bucket: str) -> None:
    f: dict[str, Any] = {"Bucket": bucket, "Key": "f"}
    assert refused(s3.put_object, **f, IfMatch="*") == "NoSuchKey"
    tag = s3.put_object(**f, Body=b"1", IfNoneMatch="*")["ETag"]
    assert refused(s3.put_object, **f, Body=b"2", IfNoneMatch="*") == "PreconditionFailed"
    assert refused(s3.put_object, **f, Body=b"2", IfNoneMatch=tag) == "NotImplemented"
    assert refused(s3.put_object, **f, IfMatch=tag, IfNoneMatch="*") == "InvalidRequest"
    second = s3.put_object(**f, Body=b"2", IfMatch=tag)["ETag"]
    assert refused(s3.put_object, **f, Body=b"3", IfMatch=tag) == "PreconditionFailed"
    assert refused(s3.delete_object, **f, IfMatch=tag) == "PreconditionFailed"
    assert s3.get_object(**f)["Body"].read() == b"2"
    s3.delete_object(**f, IfMatch=second)
    assert keys(s3, bucket) == []


@pytest.mark.parametrize("kind", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_a_checksum_is_compared_and_kept(s3: Any, bucket: str, kind: str) -> None:
    f = {"Bucket": bucket, "Key": "f"}
    made = s3.put_object(**f, Body=DATA, ChecksumAlgorithm=kind)
    got = s3.get_object(**f, ChecksumMode="ENABLED")
    assert got[f"Checksum{kind}"] == made[f"Checksum{kind}"]
    assert got["Body"].read() == DATA  # boto3 compares it
    wrong = s3.put_object(**f, Body=b"other", ChecksumAlgorithm=kind)[f"Checksum{kind}"]
    assert refused(s3.put_object, **f, Body=DATA, **{f"Checksum{kind}": wrong}) == "BadDigest"
    assert refused(s3.put_object, **f, Body=DATA, **{f"Checksum{kind}": "x"}) == "InvalidRequest"
    assert s3.get_object(**f)["Body"].read() == b"other"


def test_content_md5_is_compared(s3: Any, bucket: str) -> None:
    f = {"Bucket": bucket, "Key": "f"}
    assert refused(s3.put_object, **f, Body=b"x", ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==") == (
        "BadDigest"
    )
    assert refused(s3.put_object, **f, Body=b"x", ContentMD5="x") == "InvalidDigest"
    assert keys(s3, bucket) == []


def test_a_copy_is_an_object_of_its_own(s3: Any, fs: Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="ü/f +", Body=DATA, ContentType="text/x", Metadata={"a": "b"})
    source = {"Bucket": bucket, "Key": "ü/f +"}
    copied = s3.copy_object(Bucket=bucket, Key="g", CopySource=source)["CopyObjectResult"]
    head = s3.head_object(Bucket=bucket, Key="g")
    assert (head["ContentType"], head["Metadata"]) == ("text/x", {"a": "b"})
    assert head["ETag"] == copied["ETag"]
    assert content(fs, f"/{bucket}/g") == DATA
    s3.delete_object(**source)
    assert content(fs, f"/{bucket}/g") == DATA
    assert refused(s3.copy_object, Bucket=bucket, Key="h", CopySource=source) == "NoSuchKey"
    itself = {"Bucket": bucket, "Key": "g"}
    summed = s3.copy_object(Bucket=bucket, Key="h", CopySource=itself, ChecksumAlgorithm="SHA256")
    digest = base64.b64encode(hashlib.sha256(DATA).digest()).decode()
    assert summed["CopyObjectResult"]["ChecksumSHA256"] == digest
    s3.delete_object(Bucket=bucket, Key="h")
    assert refused(s3.copy_object, **itself, CopySource=itself) == "InvalidRequest"
    when = {"CopySourceIfMatch": '"other"'}
    assert refused(s3.copy_object, Bucket=bucket, Key="h", CopySource=itself, **when) == (
        "PreconditionFailed"
    )


def test_links_are_signed_in_both_ways(s3_gateway: RunningGateway, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="a b+ü", Body=b"linked")
    for options in ({}, {"signature_version": "s3v4"}):
        client = s3_client(s3_gateway.s3_url, **options)
        link = client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "a b+ü"})
        assert ("X-Amz-Signature" in link) == bool(options)
        with urlopen(link) as answer:
            assert answer.read() == b"linked"
        target = link.removeprefix(s3_gateway.s3_url)
        assert error_code(send(s3_gateway.s3_url, "DELETE", target)) == "SignatureDoesNotMatch"
    assert keys(s3, bucket) == ["a b+ü"]


def test_a_time_is_written_with_its_milliseconds() -> None:
    assert xml_time(1.001) == "1970-01-01T00:00:01.001Z"  # 1.001 * 1000 is less than 1001


# -- deletes ---------------------------------------------------------------------------------------


def test_a_prefix_goes_with_its_last_object(s3: Any, fs: Client, bucket: str) -> None:
    for key in ("a/b/c/1", "a/b/2"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    s3.delete_object(Bucket=bucket, Key="a/b/c/1")
    assert not fs.exists(f"/{bucket}/a/b/c")
    s3.delete_object(Bucket=bucket, Key="a/b/2")
    assert fs.ls(f"/{bucket}") == []
    s3.delete_object(Bucket=bucket, Key="a/b/2")  # again: nothing to do
    assert refused(s3.delete_object, Bucket="none-of-it", Key="x") == "NoSuchBucket"


def test_a_directory_is_not_deleted_as_an_object(s3: Any, fs: Client, bucket: str) -> None:
    fs.mkdirs(f"/{bucket}/d")
    s3.delete_object(Bucket=bucket, Key="d")
    assert keys(s3, bucket) == ["d/"]
    s3.delete_object(Bucket=bucket, Key="d/")
    assert keys(s3, bucket) == []
    s3.put_object(Bucket=bucket, Key="e/f", Body=b"")
    s3.delete_object(Bucket=bucket, Key="e/")
    assert keys(s3, bucket) == ["e/f"]


def test_a_bucket_that_was_made_with_its_first_file_stays(s3: Any, fs: Client) -> None:
    name = f"b-{uuid.uuid4().hex}"
    with fs.create(f"/{name}/f"):
        pass
    s3.delete_object(Bucket=name, Key="f")
    assert fs.stat(f"/{name}").kind is Kind.DIRECTORY


@pytest.mark.parametrize("at_once", [True, False])
def test_directories_that_are_deleted_with_all_that_is_in_them_are_gone(
    s3: Any, fs: Client, bucket: str, at_once: bool
) -> None:
    """As Hadoop deletes a directory: by the keys of a list, in which it is before what is in it."""
    for key in ["kept", "d/", "d/e/", "d/e/f", "d/g"]:
        s3.put_object(Bucket=bucket, Key=key)
    fs.mkdirs(f"/{bucket}/d/h")
    below = [key for key in keys(s3, bucket) if key.startswith("d/")]
    assert below == ["d/", "d/e/", "d/e/f", "d/g", "d/h/"]
    if at_once:
        wanted = {"Objects": [{"Key": key} for key in below]}
        told = s3.delete_objects(Bucket=bucket, Delete=wanted)
        assert sorted(each["Key"] for each in told["Deleted"]) == below
    else:
        for key in below:
            s3.delete_object(Bucket=bucket, Key=key)
    assert [each.name for each in fs.ls(f"/{bucket}")] == ["kept"]


def test_many_are_deleted_at_once_and_each_is_told(s3: Any, fs: Client, bucket: str) -> None:
    names = [f"d{n % 7}/f{n}" for n in range(100)]
    for name in names:
        with fs.create(f"/{bucket}/{name}"):
            pass
    wanted = [{"Key": name} for name in [*names, "none", "a//b"]]
    told = s3.delete_objects(Bucket=bucket, Delete={"Objects": wanted})
    assert {each["Key"] for each in told["Deleted"]} == {*names, "none"}
    assert [(each["Key"], each["Code"]) for each in told["Errors"]] == [("a//b", "InvalidArgument")]
    assert fs.ls(f"/{bucket}") == []


# -- buckets and lists -----------------------------------------------------------------------------


def test_buckets(s3: Any, fs: Client, bucket: str) -> None:
    fs.mkdirs("/Not-A-Bucket")
    named = [each["Name"] for each in s3.list_buckets()["Buckets"]]
    assert bucket in named
    assert not {"Not-A-Bucket", ".staging"} & {*named}
    assert s3.list_buckets(Prefix=bucket[:-1])["Buckets"][0]["Name"] == bucket
    assert refused(s3.create_bucket, Bucket=bucket) == "BucketAlreadyOwnedByYou"
    assert s3.head_bucket(Bucket=bucket)["BucketRegion"] == "us-east-1"
    assert refused(s3.head_bucket, Bucket="none-of-it") == "404"
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] is None
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="a/f", Body=b"")
    assert refused(s3.delete_bucket, Bucket=bucket) == "BucketNotEmpty"
    fs.delete(f"/{bucket}/a/f")  # and leaves the directory
    s3.delete_bucket(Bucket=bucket)
    assert not fs.exists(f"/{bucket}")
    assert refused(s3.put_object, Bucket=bucket, Key="f", Body=b"") == "NoSuchBucket"
    assert refused(s3.delete_bucket, Bucket=bucket) == "NoSuchBucket"


KEYS = ("a+", "a-b/c", "a.b", "a/1", "a/b/2", "a/b/3", "a0", "b", "c/", "ü/x y")


def test_lists_of_every_size_are_in_order(s3: Any, bucket: str) -> None:
    for key in reversed(KEYS):
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    for size in range(1, len(KEYS) + 2):
        assert keys(s3, bucket, PaginationConfig={"PageSize": size}) == [*KEYS]
        pages = s3.get_paginator("list_objects").paginate(
            Bucket=bucket, PaginationConfig={"PageSize": size}
        )
        assert [each["Key"] for page in pages for each in page["Contents"]] == [*KEYS]
        pages = s3.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Delimiter="/", PaginationConfig={"PageSize": size}
        )
        shown = [
            found
            for page in pages
            for found in (
                *(each["Prefix"] for each in page.get("CommonPrefixes", [])),
                *(each["Key"] for each in page.get("Contents", [])),
            )
        ]
        assert sorted(shown) == sorted(["a-b/", "a/", "c/", "ü/", "a+", "a.b", "a0", "b"])
    assert keys(s3, bucket, Prefix="a/b") == ["a/b/2", "a/b/3"]
    assert keys(s3, bucket, StartAfter="a/b/2") == [*KEYS[5:]]
    found = s3.list_objects_v2(Bucket=bucket, Delimiter="b", Prefix="a")
    assert [each["Prefix"] for each in found["CommonPrefixes"]] == ["a-b", "a.b", "a/b"]
    assert s3.list_objects_v2(Bucket=bucket, MaxKeys=0)["IsTruncated"] is False
    versions = s3.list_object_versions(Bucket=bucket)["Versions"]
    assert [(each["Key"], each["VersionId"]) for each in versions] == [(k, "null") for k in KEYS]
    assert refused(s3.list_objects_v2, Bucket="none-of-it") == "NoSuchBucket"
    assert refused(s3.list_objects_v2, Bucket=bucket, ContinuationToken="x") == "InvalidArgument"


def test_keys_with_control_characters_are_listed(s3: Any, fs: Client, bucket: str) -> None:
    put(fs, f"/{bucket}/a\x01\n&<b", b"")
    assert keys(s3, bucket) == ["a\x01\n&<b"]  # boto3 asks for encoding-type=url


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["a//b", "./a", "a/../b", "..", "x" * 256, "a/" + "y" * 256])
def test_keys_that_are_no_paths_are_refused(s3: Any, bucket: str, key: str) -> None:
    assert refused(s3.put_object, Bucket=bucket, Key=key, Body=b"x") == "InvalidArgument"
    assert refused(s3.get_object, Bucket=bucket, Key=key) == "InvalidArgument"
    assert keys(s3, bucket) == []


def test_a_key_is_not_below_an_object(s3: Any, bucket: str) -> None:
    assert (
        refused(s3.put_object, Bucket=bucket, Key="x/" * 512 + "y", Body=b"") == "KeyTooLongError"
    )
    s3.put_object(Bucket=bucket, Key="f", Body=b"x")
    s3.put_object(Bucket=bucket, Key="d/f", Body=b"x")
    for key in ("f/x", "d", "f/"):
        assert refused(s3.put_object, Bucket=bucket, Key=key, Body=b"") == "ObjectParentIsObject"
    assert refused(s3.put_object, Bucket=bucket, Key="g/", Body=b"x") == "InvalidArgument"
    assert refused(s3.get_object, Bucket=bucket, Key="f/x") == "NoSuchKey"
    assert refused(s3.get_object, Bucket=bucket, Key="d") == "NoSuchKey"
    assert keys(s3, bucket) == ["d/f", "f"]


def test_the_attributes_of_an_object_are_told_that_are_asked_for(s3: Any, bucket: str) -> None:
    f = {"Bucket": bucket, "Key": "d/f"}
    made = s3.put_object(**f, Body=DATA, ChecksumAlgorithm="CRC32C")
    asked = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
    told = s3.get_object_attributes(**f, ObjectAttributes=asked)
    assert told["ETag"] == made["ETag"].strip('"')
    assert told["Checksum"]["ChecksumCRC32C"] == made["ChecksumCRC32C"]
    assert (told["StorageClass"], told["ObjectSize"]) == ("STANDARD", len(DATA))
    assert told["LastModified"] == s3.head_object(**f)["LastModified"]
    assert told["Checksum"]["ChecksumType"] == "FULL_OBJECT"
    told = s3.get_object_attributes(**f, ObjectAttributes=["ObjectSize"])
    assert told["ObjectSize"] == len(DATA)
    assert not {"ETag", "Checksum", "StorageClass"} & {*told}
    wrong = {**f, "ObjectAttributes": ["Owner"]}
    assert refused(s3.get_object_attributes, **wrong) == "InvalidArgument"
    missing = {**f, "Key": "none", "ObjectAttributes": ["ETag"]}
    assert refused(s3.get_object_attributes, **missing) == "NoSuchKey"


def test_what_is_lacking_is_refused_by_name(s3: Any, bucket: str) -> None:
    f = {"Bucket": bucket, "Key": "f"}
    for call, arguments in (
        (s3.put_object, {**f, "ServerSideEncryption": "AES256"}),
        (s3.put_object, {**f, "ACL": "public-read"}),
        (s3.put_object, {**f, "WebsiteRedirectLocation": "/x"}),
        (s3.create_bucket, {"Bucket": f"{bucket}-o", "ObjectLockEnabledForBucket": True}),
        (s3.create_bucket, {"Bucket": f"{bucket}-o", "ObjectOwnership": "ObjectWriter"}),
        (s3.create_bucket, {
            "Bucket": f"{bucket}-o",
            "CreateBucketConfiguration": {"Tags": [{"Key": "a", "Value": "b"}]},
        }),
        (s3.delete_object, {**f, "IfMatchSize": 1}),
        (s3.put_bucket_versioning, {
            "Bucket": bucket, "VersioningConfiguration": {"Status": "Enabled"}
        }),
        (s3.get_bucket_policy, {"Bucket": bucket}),
        (s3.get_bucket_lifecycle_configuration, {"Bucket": bucket}),
        (s3.put_bucket_tagging, {"Bucket": bucket, "Tagging": {"TagSet": []}}),
        (s3.restore_object, f),
    ):  # fmt: skip
        assert refused(call, **arguments) == "NotImplemented", call
    assert refused(s3.head_bucket, Bucket=f"{bucket}-o") == "404"
    assert refused(s3.put_object, **f, StorageClass="GLACIER") == "InvalidStorageClass"
    assert refused(s3.get_object, **f, VersionId="1") == "NoSuchVersion"
    assert keys(s3, bucket) == []


def test_nothing_is_locked_that_a_delete_would_bypass(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="f", Body=b"x")
    s3.delete_object(Bucket=bucket, Key="f", BypassGovernanceRetention=True)
    assert keys(s3, bucket) == []


def test_a_bucket_of_another_owner_than_expected_is_refused(s3: Any, bucket: str) -> None:
    f = {"Bucket": bucket, "Key": "f"}
    s3.put_object(**f, Body=b"kept", ExpectedBucketOwner=current_user())
    for call, arguments in (
        (s3.put_object, {**f, "Body": b"x"}),
        (s3.delete_object, f),
        (s3.get_object, f),
        (s3.delete_bucket, {"Bucket": bucket}),
    ):
        refusal = refused(call, **arguments, ExpectedBucketOwner="somebody")
        assert refusal == "AccessDenied", call
    copy = {**f, "Key": "g", "CopySource": f, "ExpectedSourceBucketOwner": "somebody"}
    assert refused(s3.copy_object, **copy) == "AccessDenied"
    assert s3.get_object(**f)["Body"].read() == b"kept"
    assert keys(s3, bucket) == ["f"]


def test_a_header_that_comes_twice_has_both_values() -> None:
    came = CIMultiDict([("X-Amz-Meta-A", "1"), ("x-amz-meta-b", "x"), ("x-amz-meta-a", "2")])
    assert facts_of_headers(came).metadata == {"a": "1,2", "b": "x"}


def test_words_of_a_list_come_in_one_header_or_in_several() -> None:
    name = "x-amz-object-attributes"
    came = CIMultiDict([(name, "ETag, ObjectSize"), (name.title(), "Checksum")])
    assert words_of(came, name) == ["ETag", "ObjectSize", "Checksum"]


def test_a_range_of_a_part_is_refused(s3: Any, bucket: str) -> None:
    f = {"Bucket": bucket, "Key": "f"}
    s3.put_object(**f, Body=b"hello")
    assert refused(s3.get_object, **f, Range="bytes=0-1", PartNumber=1) == "InvalidRequest"
    assert s3.get_object(**f, Range="bytes= -1")["Body"].read() == b"hello"  # it is no range


def test_a_directory_takes_no_tags(s3: Any, bucket: str) -> None:
    assert refused(s3.put_object, Bucket=bucket, Key="d/", Tagging="a=b") == "InvalidArgument"
    assert keys(s3, bucket) == []


def test_a_checksum_that_nobody_knows_is_refused(
    s3_gateway: RunningGateway, s3: Any, bucket: str
) -> None:
    """It would not be compared."""
    for headers in (
        {"x-amz-checksum-xxhash64": "AAAAAAAAAAA="},
        {"x-amz-checksum-crc32": "AAAAAA==", "x-amz-sdk-checksum-algorithm": "CRC32C"},
    ):
        put = signed_request(s3_gateway.s3_url, "PUT", f"/{bucket}/f", b"", headers)
        assert error_code(put) == "InvalidRequest"
    assert keys(s3, bucket) == []


def test_a_body_that_is_not_what_was_said_changes_nothing(
    s3_gateway: RunningGateway, s3: Any, bucket: str
) -> None:
    s3.put_object(Bucket=bucket, Key="f", Body=b"kept")
    url, target = s3_gateway.s3_url, f"/{bucket}/f"

    def answer(body: bytes, headers: dict[str, str]) -> str:
        return error_code(signed_request(url, "PUT", target, body, headers))

    other = {"x-amz-content-sha256": hashlib.sha256(b"other").hexdigest()}
    assert answer(b"x", other) == "XAmzContentSHA256Mismatch"
    told = ElementTree.fromstring(signed_request(url, "PUT", target, b"x", other).body)
    assert told.findtext("ClientComputedContentSHA256") == other["x-amz-content-sha256"]
    assert told.findtext("S3ComputedContentSHA256") == hashlib.sha256(b"x").hexdigest()
    assert answer(b"x", {"x-amz-content-sha256": "x"}) == "InvalidArgument"
    huge = {"Content-Length": str(5 << 40), "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
    assert answer(b"", huge) == "EntityTooLarge"
    chunks = {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER"}
    assert answer(b"0\r\n\r\n", chunks) == "MissingContentLength"
    chunks["x-amz-decoded-content-length"] = "2"
    for body in (
        b"1\r\nx\r\n0\r\n\r\n",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"2\r\nab",
        b"x",
        b"2\r\nabc\r\n",
    ):
        assert answer(body, chunks) == "IncompleteBody", body
    chunks["x-amz-trailer"] = "x-amz-checksum-crc32"
    assert answer(b"2\r\nab\r\n0\r\n\r\n", chunks) == "MalformedTrailerError"
    wrong = b"2\r\nab\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"
    assert answer(wrong, chunks) == "BadDigest"
    assert s3.get_object(Bucket=bucket, Key="f")["Body"].read() == b"kept"


def test_who_does_not_sign_or_signs_wrong_gets_nothing(
    s3_gateway: RunningGateway, s3: Any, bucket: str
) -> None:
    s3.put_object(Bucket=bucket, Key="f", Body=b"x")
    url = s3_gateway.s3_url
    for method, target in (("GET", "/"), ("GET", f"/{bucket}/f"), ("PUT", f"/{bucket}/g")):
        assert error_code(send(url, method, target)) == "AccessDenied"
    wrong = s3_client(url, secret="wrong")
    assert refused(wrong.get_object, Bucket=bucket, Key="f") == "SignatureDoesNotMatch"
    assert refused(wrong.put_object, Bucket=bucket, Key="g", Body=b"x") == "SignatureDoesNotMatch"
    nobody = s3_client(url, "nobody")
    assert refused(nobody.put_object, Bucket=bucket, Key="g", Body=b"x") == "AccessDenied"
    assert keys(s3, bucket) == ["f"]


def test_a_page_in_a_browser_gets_nothing(s3_gateway: RunningGateway, bucket: str) -> None:
    """It may know the word that all know, and sign."""
    url = s3_gateway.s3_url
    for headers in ({"Origin": "http://evil"}, {"Host": "evil.example"}, {"origin": "null"}):
        reply = signed_request(url, "GET", f"/{bucket}", headers=headers)
        assert (reply.status, error_code(reply)) == (403, "AccessDenied")


def test_headers_of_an_answer_cannot_be_made_up(
    s3_gateway: RunningGateway, s3: Any, fs: Client, bucket: str
) -> None:
    s3.put_object(Bucket=bucket, Key="f", Body=b"x")
    evil = quote("a\r\nSet-Cookie: x")
    target = f"/{bucket}/f?response-content-type={evil}"
    assert error_code(signed_request(s3_gateway.s3_url, "GET", target)) == "InvalidArgument"
    kept = fs.get_attributes(f"/{bucket}/f")["user.s3"]
    longer = kept.replace(b"\x80", b"")
    broken = {"content-type": "a\r\nSet-Cookie: x", "expires": "ü"}
    number = fs.stat(f"/{bucket}/f").file_id
    evil_facts = encoded(ObjectFacts(number, broken, {"a\r\nb": "c", "d": "\r\ne"}))
    for value in (b"", b"\xff", b"x" * 100, longer, kept + kept, evil_facts):
        fs.set_attributes(f"/{bucket}/f", {"user.s3": value})
        assert s3.get_object(Bucket=bucket, Key="f")["Body"].read() == b"x"


def test_objects_of_a_bucket_that_is_an_encryption_zone_are_written_and_read_as_any(
    cluster: LocalCluster, fs: Client, s3: Any, bucket: str
) -> None:
    encrypt(cluster, f"/{bucket}")
    s3.put_object(Bucket=bucket, Key="small", Body=b"secret")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="dir/large")["UploadId"]
    at = {"Bucket": bucket, "Key": "dir/large", "UploadId": upload}
    bodies = [os.urandom(5 << 20), b"the end"]
    parts = [
        {"PartNumber": number, "ETag": s3.upload_part(**at, PartNumber=number, Body=body)["ETag"]}
        for number, body in enumerate(bodies, 1)
    ]
    s3.complete_multipart_upload(**at, MultipartUpload={"Parts": parts})
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/small")
    wanted = {"small": b"secret", "copy": b"secret", "dir/large": b"".join(bodies)}
    for key, body in wanted.items():
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == body
        assert fs.stat(f"/{bucket}/{key}").encrypted
    part = s3.get_object(Bucket=bucket, Key="dir/large", Range="bytes=5242879-5242885")
    assert part["Body"].read() == bodies[0][-1:] + b"the en"
