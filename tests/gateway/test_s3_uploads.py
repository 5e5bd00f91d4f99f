"""Objects of S3 that come in parts, at any gateway; and the programs that send them so."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import os
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from boto3.s3.transfer import TransferConfig

from paxosblock import Client, LocalCluster
from paxosblock.gateway.s3.access_keys import OPEN_SECRET
from paxosblock.gateway.s3.object_sums import SumKind, joined_crc, new_sum
from paxosblock.host.user import current_user
from tests.gateway.gateways import S3, RunningGateway, content, gateway_of
from tests.gateway.s3_clients import refused, s3_client, signed_head
from tests.waiting import wait_until

MIB = 1024 * 1024
DATA = os.urandom(5 * MIB)
TAIL = os.urandom(1000)


@pytest.fixture(scope="module")
def clients(gateways: tuple[RunningGateway, RunningGateway]) -> list[Any]:
    """A client of each."""
    return [s3_client(each.s3_url) for each in gateways]


@pytest.fixture
def key(clients: list[Any]) -> dict[str, str]:
    """A key in a bucket that only this test uses."""
    bucket = f"b-{uuid.uuid4().hex}"
    clients[0].create_bucket(Bucket=bucket)
    return {"Bucket": bucket, "Key": "d/ü f"}


def begin(client: Any, key: dict[str, str], **options: Any) -> dict[str, str]:
    """Begin an upload, and return what names it."""
    return {**key, "UploadId": client.create_multipart_upload(**key, **options)["UploadId"]}


def put_parts(clients: list[Any], upload: dict[str, str], *parts: bytes) -> dict[str, Any]:
    """Send parts to the gateways in turn, the last one first, and return what Complete wants."""
    tags = {}
    for number, part in reversed([*enumerate(parts, 1)]):
        client = clients[number % len(clients)]
        tags[number] = client.upload_part(**upload, PartNumber=number, Body=part)["ETag"]
    told = [{"PartNumber": number, "ETag": tags[number]} for number in sorted(tags)]
    return {"MultipartUpload": {"Parts": told}}


def test_a_program_may_say_what_the_whole_object_is(
    clients: list[Any], key: dict[str, str]
) -> None:
    """In the headers of Complete, whose checksum is that of the object and not of its document."""
    whole = DATA + TAIL
    checksum = base64.b64encode(zlib.crc32(whole).to_bytes(4, "big")).decode()
    options = {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"}
    upload = begin(clients[0], key, **options)
    parts = put_parts(clients, upload, DATA, TAIL)
    complete = clients[0].complete_multipart_upload
    wrong = {"ChecksumCRC32": "AAAAAA==", "MpuObjectSize": 1, "ChecksumType": "COMPOSITE"}
    right = {"ChecksumCRC32": checksum, "MpuObjectSize": len(whole), "ChecksumType": "FULL_OBJECT"}
    for name, code in zip(wrong, ("BadDigest", "InvalidRequest", "InvalidRequest"), strict=True):
        assert refused(complete, **upload, **parts, **{name: wrong[name]}) == code
    for sums in ({"ChecksumCRC32": "x"}, {"ChecksumCRC32": checksum, "ChecksumSHA1": "x"}):
        assert refused(complete, **upload, **parts, **sums) == "InvalidRequest"
    made = complete(**upload, **parts, **right)
    assert (made["ChecksumCRC32"], made["ChecksumType"]) == (checksum, "FULL_OBJECT")


def test_uploads_of_one_key_are_listed_in_the_order_of_their_beginnings(
    clients: list[Any], key: dict[str, str]
) -> None:
    begun = [begin(clients[number % 2], key)["UploadId"] for number in range(6)]
    pages = clients[0].get_paginator("list_multipart_uploads")
    shown = pages.paginate(Bucket=key["Bucket"], PaginationConfig={"PageSize": 2})
    assert [each["UploadId"] for page in shown for each in page["Uploads"]] == begun


def test_a_part_that_is_copied_has_the_checksum_of_its_bytes(
    clients: list[Any], key: dict[str, str]
) -> None:
    source = {**key, "Key": "source"}
    clients[0].put_object(**source, Body=TAIL)
    upload = begin(clients[0], key, ChecksumAlgorithm="CRC32")
    part = {**upload, "PartNumber": 1, "CopySource": source, "CopySourceRange": "bytes=1-99"}
    checksum = base64.b64encode(zlib.crc32(TAIL[1:100]).to_bytes(4, "big")).decode()
    copied = clients[1].upload_part_copy(**part)["CopyPartResult"]
    assert copied["ChecksumCRC32"] == checksum
    beyond = {**part, "CopySourceRange": "bytes=1-1000"}
    assert refused(clients[1].upload_part_copy, **beyond) == "InvalidArgument"
    wrong = {**upload, "PartNumber": 1, "Body": b"x", "ChecksumAlgorithm": "SHA1"}
    assert refused(clients[0].upload_part, **wrong) == "InvalidRequest"
    told = {"PartNumber": 1, "ETag": copied["ETag"], "ChecksumCRC32": checksum}
    complete = {**upload, "MultipartUpload": {"Parts": [told]}}
    clients[0].complete_multipart_upload(**complete)
    assert clients[0].get_object(**key)["Body"].read() == TAIL[1:100]


def staged(fs: Client) -> list[str]:
    """The uploads that go on."""
    return [each.name for each in fs.ls("/.staging") if each.name.startswith("s3-")]


def test_parts_at_any_gateway_become_an_object(
    clients: list[Any], fs: Client, key: dict[str, str]
) -> None:
    upload = begin(clients[0], key, ContentType="text/x", Metadata={"a": "b"})
    parts = put_parts(clients, upload, DATA, DATA, TAIL)
    assert refused(clients[0].head_object, **key) == "404"
    listed = clients[1].list_parts(**upload)["Parts"]
    assert [(each["PartNumber"], each["Size"]) for each in listed] == [
        (1, len(DATA)), (2, len(DATA)), (3, len(TAIL))
    ]  # fmt: skip
    (going_on,) = clients[1].list_multipart_uploads(Bucket=key["Bucket"])["Uploads"]
    assert (going_on["Key"], going_on["UploadId"]) == (key["Key"], upload["UploadId"])
    made = clients[1].complete_multipart_upload(**upload, **parts)
    head = clients[0].head_object(**key)
    assert head["ETag"] == made["ETag"]
    assert (head["ContentType"], head["Metadata"]) == ("text/x", {"a": "b"})
    assert content(fs, f"/{key['Bucket']}/{key['Key']}") == DATA + DATA + TAIL
    again = clients[0].complete_multipart_upload(**upload, **parts)  # as after a lost answer
    assert again["ETag"] == made["ETag"]
    assert "Uploads" not in clients[0].list_multipart_uploads(Bucket=key["Bucket"])
    assert not [name for name in staged(fs) if name.endswith(upload["UploadId"])]
    clients[0].put_object(**key, Body=b"other")
    assert refused(clients[0].complete_multipart_upload, **upload, **parts) == "NoSuchUpload"
    assert clients[0].get_object(**key)["Body"].read() == b"other"


def test_what_is_wrong_with_parts_is_told(clients: list[Any], key: dict[str, str]) -> None:
    one = clients[0]
    upload = begin(one, key)
    parts = put_parts(clients, upload, DATA, TAIL, TAIL)["MultipartUpload"]["Parts"]

    def complete(*chosen: Any) -> str:
        return refused(
            one.complete_multipart_upload, **upload, MultipartUpload={"Parts": [*chosen]}
        )

    assert complete(parts[1], parts[0]) == "InvalidPartOrder"
    assert complete(parts[0], parts[0]) == "InvalidPartOrder"
    assert complete({**parts[0], "ETag": parts[1]["ETag"]}) == "InvalidPart"
    assert complete({"PartNumber": 9, "ETag": "x"}) == "InvalidPart"
    assert complete(*parts) == "EntityTooSmall"
    assert complete() == "MalformedXML"
    assert refused(one.upload_part, **upload, PartNumber=0, Body=b"") == "InvalidArgument"
    assert refused(one.upload_part, **upload, PartNumber=10_001, Body=b"") == "InvalidArgument"
    before = parts[1]
    one.upload_part(**upload, PartNumber=2, Body=b"sent again")
    assert complete(parts[0], before) == "InvalidPart"
    assert refused(one.head_object, **key) == "404"
    other = {**upload, "Key": "other"}
    assert refused(one.upload_part, **other, PartNumber=1, Body=b"") == "NoSuchUpload"
    assert refused(one.list_parts, **{**upload, "UploadId": "x"}) == "NoSuchUpload"
    one.abort_multipart_upload(**upload)
    for call, more in ((one.upload_part, {"PartNumber": 1}), (one.abort_multipart_upload, {})):
        assert refused(call, **upload, **more) == "NoSuchUpload"
    assert complete(parts[0]) == "NoSuchUpload"


def test_one_of_many_completes_wins(clients: list[Any], key: dict[str, str]) -> None:
    uploads = [begin(clients[0], key) for _ in range(6)]
    wanted = [put_parts(clients, each, bytes([number])) for number, each in enumerate(uploads)]

    def complete(number: int) -> str:
        call = clients[number % 2].complete_multipart_upload
        return refused(call, **uploads[number], **wanted[number], IfNoneMatch="*")

    with ThreadPoolExecutor(6) as pool:
        codes = list(pool.map(complete, range(6)))
    assert sorted(codes) == ["", *["PreconditionFailed"] * 5]
    assert clients[0].get_object(**key)["Body"].read() == bytes([codes.index("")])


@pytest.mark.parametrize("kind", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_checksums_of_parts_become_that_of_the_object(
    clients: list[Any], key: dict[str, str], kind: str
) -> None:
    one = clients[0]
    upload = begin(one, key, ChecksumAlgorithm=kind)
    told = []
    for number, part in enumerate((DATA, TAIL), 1):
        sent = one.upload_part(**upload, PartNumber=number, Body=part, ChecksumAlgorithm=kind)
        named = {"PartNumber": number, "ETag": sent["ETag"]}
        told.append({**named, f"Checksum{kind}": sent[f"Checksum{kind}"]})
    wrong = [{**told[0], f"Checksum{kind}": told[1][f"Checksum{kind}"]}, told[1]]
    assert (
        refused(one.complete_multipart_upload, **upload, MultipartUpload={"Parts": wrong})
        == "InvalidPart"
    )
    made = one.complete_multipart_upload(**upload, MultipartUpload={"Parts": told})
    whole = new_sum(SumKind[kind])
    if kind == "CRC64NVME":
        whole.update(DATA + TAIL)
        right = base64.b64encode(whole.digest()).decode()
    else:
        whole.update(b"".join(base64.b64decode(each[f"Checksum{kind}"]) for each in told))
        right = f"{base64.b64encode(whole.digest()).decode()}-2"
    assert made[f"Checksum{kind}"] == right
    got = one.get_object(**key, ChecksumMode="ENABLED")
    assert got[f"Checksum{kind}"] == right
    assert got["Body"].read() == DATA + TAIL


@pytest.mark.parametrize("size", [0, 1, 999, 100_000])
def test_a_crc_of_two_parts_is_that_of_both(size: int) -> None:
    first, second = zlib.crc32(DATA), zlib.crc32(DATA[:size])
    made = joined_crc(SumKind.CRC32, first.to_bytes(4, "big"), second.to_bytes(4, "big"), size)
    assert int.from_bytes(made, "big") == zlib.crc32(DATA + DATA[:size])


def test_parts_are_copied(clients: list[Any], key: dict[str, str]) -> None:
    one = clients[0]
    source = {"Bucket": key["Bucket"], "Key": "source"}
    one.put_object(**source, Body=DATA + TAIL)
    upload = begin(one, key)
    told = []
    for number, asked in enumerate(("bytes=1000-5243879", "bytes=0-9"), 1):
        copied = one.upload_part_copy(
            **upload, PartNumber=number, CopySource=source, CopySourceRange=asked
        )["CopyPartResult"]
        told.append({"PartNumber": number, "ETag": copied["ETag"]})
    one.complete_multipart_upload(**upload, MultipartUpload={"Parts": told})
    assert one.get_object(**key)["Body"].read() == (DATA + TAIL)[1000:] + DATA[:10]


def test_boto3_sends_and_gets_large_files(clients: list[Any], key: dict[str, str]) -> None:
    parts = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    clients[0].upload_fileobj(io.BytesIO(DATA * 3 + TAIL), key["Bucket"], key["Key"], Config=parts)
    got = io.BytesIO()
    clients[1].download_fileobj(key["Bucket"], key["Key"], got, Config=parts)
    assert hashlib.sha256(got.getvalue()).digest() == hashlib.sha256(DATA * 3 + TAIL).digest()


def test_pyarrow_keeps_tables(
    gateways: tuple[RunningGateway, RunningGateway], fs: Client, key: dict[str, str]
) -> None:
    there = pyarrow.fs.S3FileSystem(
        access_key=current_user(),
        secret_key=OPEN_SECRET,
        endpoint_override=urlsplit(gateways[0].s3_url).netloc,
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
        allow_bucket_deletion=True,
    )
    root = key["Bucket"]
    table = pa.table({"a": list(range(1000))})
    there.create_dir(f"{root}/t/x")
    pq.write_table(table, f"{root}/t/x/f.parquet", filesystem=there)
    assert pq.read_table(f"{root}/t/x/f.parquet", filesystem=there).equals(table)
    assert pq.read_table(io.BytesIO(content(fs, f"/{root}/t/x/f.parquet"))).equals(table)
    there.copy_file(f"{root}/t/x/f.parquet", f"{root}/t/g")
    there.move(f"{root}/t/g", f"{root}/t/h")
    found = there.get_file_info(pyarrow.fs.FileSelector(root, recursive=True))
    assert {each.path: each.is_file for each in found} == {
        f"{root}/t": False, f"{root}/t/x": False, f"{root}/t/x/f.parquet": True, f"{root}/t/h": True
    }  # fmt: skip
    with there.open_output_stream(f"{root}/big") as out:
        out.write(DATA * 3)
    with there.open_input_file(f"{root}/big") as file:
        file.seek(5 * MIB - 3)
        assert file.read(6) == DATA[-3:] + DATA[:3]
    there.delete_dir(f"{root}/t")
    with contextlib.suppress(FileNotFoundError):  # the order of the deletions is pyarrow's choice
        there.delete_dir(f"{root}/t")  # that which was made stays until it is empty, and asked for
    assert [each.name for each in fs.ls(f"/{root}")] == ["big"]
    there.delete_file(f"{root}/big")
    there.delete_dir(root)
    assert not fs.exists(f"/{root}")


def test_killed_in_a_part_it_leaves_the_others_to_another_gateway(
    cluster: LocalCluster, clients: list[Any], fs: Client, key: dict[str, str], tmp_path: Path
) -> None:
    with gateway_of(cluster, tmp_path, *S3) as gateway:
        client = s3_client(gateway.s3_url)
        upload = begin(client, key)
        parts = put_parts([client], upload, DATA, TAIL)
        target = f"/{key['Bucket']}/d/%C3%BC%20f?partNumber=2&uploadId={upload['UploadId']}"
        head = signed_head(gateway.s3_url, "PUT", target, length=1_000_000_000)
        with gateway.connect_s3() as connection:
            connection.sendall(head + DATA)
            wait_until(lambda: any(each.open for each in fs.walk("/.staging")))
            gateway.kill()
    clients[0].complete_multipart_upload(**upload, **parts)
    assert clients[1].get_object(**key)["Body"].read() == DATA + TAIL


def test_what_is_left_has_a_time_to_live(
    clients: list[Any], fs: Client, key: dict[str, str]
) -> None:
    upload = begin(clients[0], key)
    (left,) = [each for each in fs.ls("/.staging") if each.name.endswith(upload["UploadId"])]
    assert left.expires_s > left.created_s
    clients[0].abort_multipart_upload(**upload)
