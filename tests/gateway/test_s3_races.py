"""Conditions of S3 are those of the same change, at any number of gateways; and a gateway that is
killed leaves no half of an object."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from paxosblock import Client, LocalCluster
from tests.gateway.gateways import S3, RunningGateway, content, gateway_of
from tests.gateway.s3_clients import refused, s3_client, signed_head
from tests.waiting import wait_until

DATA = os.urandom(3_000_000)
WRITERS = 12


@pytest.fixture(scope="module")
def clients(gateways: tuple[RunningGateway, RunningGateway]) -> list[Any]:
    """A client of each."""
    found = [s3_client(each.s3_url, max_pool_connections=WRITERS) for each in gateways]
    found[0].create_bucket(Bucket="races")
    return found


def test_one_of_many_writers_makes_an_object_and_one_replaces_it(clients: list[Any]) -> None:
    for race in range(4):
        f = {"Bucket": "races", "Key": f"d/{race}"}
        tag = winner_of_a_race(clients, **f, IfNoneMatch="*")
        assert winner_of_a_race(clients, **f, IfMatch=tag) != tag


def winner_of_a_race(clients: list[Any], **asked: str) -> str:
    """Let many write at once, check that one of them did, and return the tag of its object."""

    def write(number: int) -> str:
        return refused(clients[number % 2].put_object, **asked, Body=body(number))

    def body(number: int) -> bytes:
        return str(number).encode() * (1 + number * 1000)

    with ThreadPoolExecutor(WRITERS) as pool:
        codes = list(pool.map(write, range(WRITERS)))
    assert sorted(codes) == ["", *["PreconditionFailed"] * (WRITERS - 1)]
    got = clients[0].get_object(Bucket=asked["Bucket"], Key=asked["Key"])
    assert got["Body"].read() == body(codes.index(""))
    return str(got["ETag"])


def test_small_objects_that_come_at_once_are_made_or_refused_each_by_itself(
    clients: list[Any],
) -> None:
    """They are written together, and one that is refused keeps no other away."""
    s3 = s3_client(clients[0].meta.endpoint_url, max_pool_connections=32)
    s3.put_object(Bucket="races", Key="small/file", Body=b"")
    keys = [f"small/{number % 20}" for number in range(22)]  # two of them twice
    bad = [("races", "small/file/below"), ("none-of-it", "x"), ("races", "small")]

    def write(number: int, bucket: str, key: str) -> str:
        return refused(
            s3.put_object, Bucket=bucket, Key=key, Body=f"{number}", Metadata={"n": f"{number}"}
        )

    asked = [*(("races", key) for key in keys), *bad]
    with ThreadPoolExecutor(len(asked)) as pool:
        codes = list(pool.map(write, range(len(asked)), *zip(*asked, strict=True)))
    assert codes[: len(keys)] == [""] * len(keys)
    assert codes[len(keys) :] == ["ObjectParentIsObject", "NoSuchBucket", "ObjectParentIsObject"]
    for number, key in enumerate(keys[:20]):
        got = s3.get_object(Bucket="races", Key=key)
        assert got["Body"].read().decode() == got["Metadata"]["n"]
        assert int(got["Metadata"]["n"]) % 20 == number


def test_an_object_is_not_made_in_a_bucket_that_goes(clients: list[Any], fs: Client) -> None:
    """Each object that was acknowledged is there, or its bucket could not be deleted."""
    one, other = clients
    for race in range(8):
        name = f"bucket-{race}"
        one.create_bucket(Bucket=name)
        with ThreadPoolExecutor(2) as pool:
            made = pool.submit(refused, one.put_object, Bucket=name, Key="a/b", Body=b"x")
            gone = pool.submit(refused, other.delete_bucket, Bucket=name)
            codes = made.result(), gone.result()
        assert codes in (("", "BucketNotEmpty"), ("NoSuchBucket", "")), codes
        assert fs.exists(f"/{name}/a/b") == (codes[0] == "")
        assert fs.exists(f"/{name}") == (codes[1] != "")


def test_readers_see_one_whole_object_while_it_is_replaced(clients: list[Any]) -> None:
    one, other = clients
    bodies = [bytes([number]) * 400_000 for number in range(6)]
    f = {"Bucket": "races", "Key": "replaced"}
    one.put_object(**f, Body=bodies[0], Metadata={"n": "0"})

    def read(_: int) -> bool:
        got = other.get_object(**f)
        return bool(got["Body"].read() == bodies[int(got["Metadata"]["n"])])

    with ThreadPoolExecutor(4) as pool:
        reads = pool.map(read, range(40))
        for number in range(1, 6):
            one.put_object(**f, Body=bodies[number], Metadata={"n": str(number)})
        assert all(reads)


@pytest.mark.parametrize("before", [b"", b"old"])
def test_killed_in_a_put_it_leaves_what_was_there(
    cluster: LocalCluster, fs: Client, tmp_path: Path, before: bytes
) -> None:
    bucket = f"killed-{len(before)}"
    with gateway_of(cluster, tmp_path, *S3) as gateway:
        client = s3_client(gateway.s3_url)
        client.create_bucket(Bucket=bucket)
        if before:
            client.put_object(Bucket=bucket, Key="f", Body=before)
        head = signed_head(gateway.s3_url, "PUT", f"/{bucket}/f", length=1_000_000_000)
        with gateway.connect_s3() as connection:
            connection.sendall(head + DATA)
            wait_until(lambda: any(each.open for each in fs.walk("/.staging")))
            gateway.kill()
    assert fs.exists(f"/{bucket}/f") == bool(before)
    if before:
        assert content(fs, f"/{bucket}/f") == before


def test_a_body_that_breaks_off_changes_nothing(
    gateways: tuple[RunningGateway, RunningGateway], clients: list[Any], fs: Client
) -> None:
    f = {"Bucket": "races", "Key": "broken"}
    clients[0].put_object(**f, Body=b"kept")
    head = signed_head(gateways[0].s3_url, "PUT", "/races/broken", length=1_000_000_000)
    with gateways[0].connect_s3() as connection:
        connection.sendall(head + DATA)
        wait_until(lambda: any(each.open for each in fs.walk("/.staging")))
    wait_until(lambda: not any(each.open for each in fs.walk("/.staging")), what="the clean-up")
    assert clients[1].get_object(**f)["Body"].read() == b"kept"
