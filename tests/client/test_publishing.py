"""Files that get their name when they are complete: in the step that closes them, or not at all."""

from __future__ import annotations

import re
import urllib.request
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import fsspec
import pytest

from paxosblock import AssertAbsent, AsyncClient, Client, LocalCluster, Rename, SetAttributes
from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.client.publishing import Publish, StagingArea, publish
from paxosblock.errors import ExistsError, InvalidRequestError, LeaseError
from tests.secure import url_of

DONE = re.compile(r'^paxosblock_namenode_calls_total\{call="(\w+)",outcome="done"\} (\d+)', re.M)
CHANGES = {"create", "close_file", "transact", "rename", "delete", "finalize_block", "add_block"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(path=tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
        PaxosBlockFileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def fs(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.url) as fs:
        yield fs


@pytest.fixture
def home(fs: Client) -> str:
    path = f"/{uuid.uuid4().hex}"
    fs.mkdirs(path)
    return path


def changes_made(cluster: LocalCluster) -> Counter[str]:
    """Count the changes that the NameNode made until now, by the name of the call."""
    with urllib.request.urlopen(url_of(cluster.namenode.address, "metrics"), timeout=60) as answer:
        text = answer.read().decode()
    return Counter({name: int(count) for name, count in DONE.findall(text) if name in CHANGES})


def put(fs: Client, path: str, content: bytes) -> None:
    with fs.create(path) as out:
        out.write(content)


def got(fs: Client, path: str) -> bytes:
    with fs.open(path) as file:
        return file.read()


@asynccontextmanager
async def staging_of(cluster: LocalCluster) -> AsyncIterator[StagingArea]:
    async with AsyncClient(cluster.url) as client:
        area = StagingArea(client, ttl_s=600.0)
        yield area
        await area.close()


@pytest.mark.parametrize("size", [0, 10, 3 << 20])
def test_a_file_gets_its_name_and_attributes_in_the_step_that_closes_it(
    fs: Client, cluster: LocalCluster, home: str, size: int
) -> None:
    hidden, name, content = f"{home}/hidden", f"{home}/name", bytes(size)
    out = fs.create(hidden, chunk_size=1 << 20)
    out.write(content)
    before = changes_made(cluster)
    out.close(then=[Rename(hidden, name), SetAttributes(name, {"user.a": b"1"})])
    made = changes_made(cluster) - before
    del made["add_block"]  # what is left is written, to as many blocks as a busy machine needs
    assert made == Counter({"transact": 1})
    assert (out.status.open, out.status.size) == (False, size)
    assert (got(fs, name), fs.get_attributes(name)) == (content, {"user.a": b"1"})
    assert not fs.stat(name).open
    out.close()  # closed is closed


def test_what_cannot_be_done_leaves_the_file_without_its_name(fs: Client, home: str) -> None:
    hidden, name = f"{home}/hidden", f"{home}/name"
    put(fs, name, b"old")
    out = fs.create(hidden)
    out.write(b"new")
    with pytest.raises(ExistsError):
        out.close(then=[Rename(hidden, name)])
    assert (out.closed, got(fs, name)) == (True, b"old")
    fs.delete(hidden)


def test_a_name_that_another_writes_is_not_taken_for_the_loss_of_the_own_file(
    fs: Client, home: str
) -> None:
    hidden, name = f"{home}/hidden", f"{home}/name"
    with fs.create(name):
        out = fs.create(hidden)
        with pytest.raises(LeaseError, match="is being written by"):
            out.close(then=[Rename(hidden, name, overwrite=True)])


def test_fsspec_publishes_a_file_by_the_call_that_closes_it(
    fs: Client, cluster: LocalCluster, home: str
) -> None:
    outside, _ = fsspec.url_to_fs(cluster.url)
    outside.pipe_file(f"{home}/first", b"makes the staging directory")
    before = changes_made(cluster)
    with outside.open(f"{home}/file", "wb") as file:
        file.write(b"whole")
    outside.pipe_file(f"{home}/piped", b"whole")
    assert changes_made(cluster) - before == Counter({"create": 2, "transact": 2})
    assert got(fs, f"{home}/file") == got(fs, f"{home}/piped") == b"whole"


async def test_a_door_publishes_under_conditions_with_attributes(
    fs: Client, cluster: LocalCluster, home: str
) -> None:
    async with staging_of(cluster) as area:
        name = f"{home}/deep/key"
        for content, error in ((b"first", None), (b"second", ExistsError)):
            staged = await area.create(name, Publish.REPLACE)
            await staged.writer.write(content)
            kept = SetAttributes(name, {"user.by": content})
            if error is None:
                await publish([staged], before=[AssertAbsent(name)], after=[kept])
                continue
            with pytest.raises(error):
                await publish([staged], before=[AssertAbsent(name)], after=[kept])
            assert staged.discarded
        assert got(fs, name) == b"first"
        assert fs.get_attributes(name) == {"user.by": b"first"}
        assert fs.ls(area.directory) == [], "nothing is left of the second"


async def test_several_open_files_are_published_together_or_not_at_all(
    fs: Client, cluster: LocalCluster, home: str
) -> None:
    async with staging_of(cluster) as area:
        names = [f"{home}/{number}" for number in range(3)]
        files = [await area.create(name, Publish.CREATE) for name in names]
        for file in files:
            await file.writer.write(b"x")
        put(fs, names[1], b"another's")
        with pytest.raises(ExistsError):
            await publish(files)
        assert [entry.path for entry in fs.ls(home)] == [names[1]]


async def test_an_addition_to_a_file_takes_no_other_step(
    fs: Client, cluster: LocalCluster, home: str
) -> None:
    async with staging_of(cluster) as area:
        put(fs, f"{home}/log", b"one ")
        staged = await area.create(f"{home}/log", Publish.APPEND, alone=True)
        await staged.writer.write(b"two")
        with pytest.raises(InvalidRequestError, match="an addition ends with no other step"):
            await staged.writer.close(then=[AssertAbsent(f"{home}/no")])
        await publish([staged])
        assert got(fs, f"{home}/log") == b"one two"
