"""`with fs.transaction`: all at once, or nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pandas as pd
import pytest

from paxosblock.base.paths import STAGING
from paxosblock.client.blocking.sync import Client
from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.errors import InvalidRequestError
from paxosblock.host.disk import OsDisk
from paxosblock.local.cluster import LocalCluster
from paxosblock.namenode.kv.interface import prefix_range
from paxosblock.namenode.kv.rocks_table import ROCKS
from paxosblock.namenode.raft.member_folder import MEMBER
from tests.outside.staging import staged
from tests.raft.alone import LoneFolder
from tests.waiting import wait_until


class Oops(Exception):
    """An error that the tests raise in the middle of a block."""


def test_what_is_published_leaves_no_record_of_its_own(tmp_path: Path) -> None:
    """It is done once by the name of its request, of which the NameNode keeps one per client."""
    with LocalCluster(datanodes=3, path=tmp_path) as cluster:
        fs, _ = fsspec.url_to_fs(cluster.url, durability="memory", skip_instance_cache=True)
        for number in range(5):
            fs.pipe_file(f"/files/{number}", b"published")
        fs.mv("/files/0", "/files/5")
        fs.rm("/files/1")
        fs.touch("/files/6")
        fs.close()
        (folder,) = cluster.namenode.volumes
    storage = LoneFolder(OsDisk(), folder / MEMBER, tables=ROCKS)
    try:
        applications = [key for key, _ in storage.machine.scan(*prefix_range(b"a"))]
        sessions = [key for key, _ in storage.machine.scan(*prefix_range(b"s"))]
    finally:
        storage.close()
    assert applications == []
    assert 1 <= len(sessions) <= 3


def test_all_files_appear_at_the_end_together(
    fs: PaxosBlockFileSystem, home: str, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"put")
    fs.pipe_file(f"{home}/old", b"old")
    with fs.transaction:
        with fs.open(f"{home}/opened", "wb") as out:
            out.write(b"opened")
        with fs.open(f"{home}/old", "ab") as out:
            out.write(b" appended")
        with fsspec.open(fs.unstrip_protocol(f"{home}/text"), "wt", durability="memory") as text:
            text.write("text")
        fs.pipe_file(f"{home}/deep/piped", b"piped")
        fs.put_file(str(local), f"{home}/put")
        fs.cp_file(f"{home}/old", f"{home}/copied")
        fs.touch(f"{home}/touched")
        assert fs.find(home) == [f"{home}/old"]
        assert fs.cat_file(f"{home}/old") == b"old"
    found = {path.removeprefix(f"{home}/"): data for path, data in fs.cat(fs.find(home)).items()}
    assert found == {
        "opened": b"opened",
        "old": b"old appended",
        "text": b"text",
        "deep/piped": b"piped",
        "put": b"put",
        "copied": b"old",
        "touched": b"",
    }
    assert staged(fs) == []


def test_a_reader_sees_none_or_all_of_two_hundred_files(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    def write() -> None:
        with fs.transaction:
            fs.pipe({f"{home}/set/{number:03}": b"x" for number in range(200)})

    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write)
        seen = set()
        while not writing.done():
            seen.add(len(fs.find(f"{home}/set")))
        writing.result()
    assert seen <= {0, 200}
    assert len(fs.find(f"{home}/set")) == 200


def test_an_exception_publishes_nothing(fs: PaxosBlockFileSystem, home: str) -> None:
    fs.pipe_file(f"{home}/old", b"old")

    def fail() -> None:
        with fs.transaction:
            fs.pipe_file(f"{home}/old", b"new")
            with fs.open(f"{home}/new", "wb") as out:
                out.write(b"new")
                raise Oops

    with pytest.raises(Oops):
        fail()
    assert fs.cat(fs.find(home)) == {f"{home}/old": b"old"}
    assert staged(fs) == []
    fs.pipe_file(f"{home}/after", b"published at once")
    assert fs.exists(f"{home}/after")


def test_one_target_that_is_taken_keeps_all_from_being_published(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    def collide() -> None:
        with fs.transaction:
            fs.pipe_file(f"{home}/first", b"first")
            fs.pipe_file(f"{home}/taken", b"mine", mode="create")
            other.pipe_file(f"{home}/taken", b"theirs")

    other = PaxosBlockFileSystem(fs.namenodes, skip_instance_cache=True)
    with pytest.raises(FileExistsError, match="taken"):
        collide()
    other.close()
    assert fs.cat(fs.find(home)) == {f"{home}/taken": b"theirs"}
    assert staged(fs) == []


def test_a_file_that_is_still_open_keeps_all_from_being_published(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    def forget() -> None:
        with fs.transaction:
            fs.pipe_file(f"{home}/a", b"a")
            out = fs.open(f"{home}/b", "wb")
            out.write(b"b")

    with pytest.raises(InvalidRequestError, match=f"'{home}/b' is open"):
        forget()
    assert fs.find(home) == []
    assert staged(fs) == []


def test_a_file_whose_block_raised_is_left_out(fs: PaxosBlockFileSystem, home: str) -> None:
    def fail() -> None:
        with fs.open(f"{home}/bad", "wb") as out:
            out.write(b"half")
            raise Oops

    with fs.transaction:
        fs.pipe_file(f"{home}/good", b"good")
        with pytest.raises(Oops):
            fail()
    assert fs.find(home) == [f"{home}/good"]


def test_frames_of_pandas_are_published_together(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, home: str
) -> None:
    options = {"durability": "memory"}
    with fs.transaction:
        for part in range(3):
            url = f"{cluster.url}{home}/{part}.csv"
            pd.DataFrame({"part": [part]}).to_csv(url, storage_options=options)
        assert fs.find(home) == []
    assert len(fs.find(home)) == 3


async def test_streams_of_the_event_loop_take_part(cluster: LocalCluster, home: str) -> None:
    fs = PaxosBlockFileSystem(cluster.url, skip_instance_cache=True)

    async def write(path: str) -> None:
        async with await fs.open_async(path, "wb") as out:
            await out.write(b"x")

    def both() -> None:
        with fs.transaction:
            for name in "ab":
                asyncio.run_coroutine_threadsafe(write(f"{home}/{name}"), fs.loop).result()
            assert fs.find(home) == []
        assert fs.find(home) == [f"{home}/a", f"{home}/b"]
        fs.close()

    await asyncio.to_thread(both)


def test_a_file_that_took_longer_than_its_time_to_live_is_published(
    cluster: LocalCluster, home: str
) -> None:
    fs = PaxosBlockFileSystem(cluster.url, staging_ttl="1s", skip_instance_cache=True)
    with fs.open(f"{home}/slow", "wb") as out:
        out.write(b"slow")
        other = f"{STAGING}/{uuid.uuid4().hex}"
        with Client(cluster.url) as client:
            client.mkdirs(other, ttl_s=1.0)
            wait_until(lambda: not client.exists(other), 30, "a younger directory is removed")
    assert fs.cat_file(f"{home}/slow") == b"slow"
    fs.close()


def test_a_process_killed_in_a_transaction_leaves_nothing_visible_and_then_nothing_at_all(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, home: str
) -> None:
    script = """
import fsspec, os, signal, sys
fs, path = fsspec.url_to_fs(sys.argv[1], durability="memory", staging_ttl="1s")
with fs.transaction:
    fs.pipe_file(f"{path}/complete", b"complete")
    out = fs.open(f"{path}/open", "wb")
    out.write(b"x" * 2_000_000)
    print(fs._connection.staging.directory, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", script, cluster.url + home]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    directory = killed.stdout.strip()
    assert killed.returncode == -9
    assert fs.find(home) == []
    wait_until(lambda: not fs.exists(directory), 30, "the staging directory is removed")
