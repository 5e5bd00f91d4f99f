"""`paxosblock fs` where bytes are carried: put, append, get, cat, head, tail."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import os
import posixpath
import pty
import random
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paxosblock import Client, LocalCluster, WriteOptions
from paxosblock.cli.progress_bar import speed_text
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.copies.places import COPYING
from paxosblock.client.writing.file_writer import AsyncFileWriter
from tests.children import killed_at_the_end
from tests.cli.conftest import CtrlC, Paxosblock
from tests.files import read, write
from tests.fork_server import Program
from tests.waiting import wait_until

DATA = random.Random(2).randbytes(3 * 1024 * 1024 + 17)


@contextlib.contextmanager
def started(
    cluster: LocalCluster, *words: str | Path, stderr: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """A verb of `fs` as a process of its own, which ends, or is killed when the test has failed."""
    command = [sys.executable, "-m", "paxosblock", "fs", *map(str, words)]
    where = {"PAXOSBLOCK_NAMENODES": ",".join(cluster.addresses)}
    pipe = subprocess.PIPE
    environment = os.environ | where
    process = Program[bytes](command, stdin=pipe, stdout=pipe, stderr=stderr, env=environment)
    with killed_at_the_end(process):
        yield process
        process.wait(30)


def make(client: Client, path: str, data: bytes = DATA) -> None:
    with client.create(path) as out:
        out.write(data)


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A local file that holds DATA."""
    path = tmp_path / "local.bin"
    path.write_bytes(DATA)
    return path


# --- put -----------------------------------------------------------------------------------------


def test_put_copies_a_file(fs: Paxosblock, client: Client, folder: str, local: Path) -> None:
    result = fs("put", local, f"{folder}/a")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert read(client, f"{folder}/a") == DATA


def test_put_into_a_directory_keeps_the_names(
    fs: Paxosblock, client: Client, folder: str, local: Path
) -> None:
    other = local.with_name("other")
    other.write_bytes(b"other")
    assert fs("-put", local, other, folder).code == 0
    assert read(client, f"{folder}/local.bin") == DATA
    assert read(client, f"{folder}/other") == b"other"


def test_put_replaces_a_file_only_with_f(
    fs: Paxosblock, client: Client, folder: str, local: Path
) -> None:
    make(client, f"{folder}/a", b"old")
    result = fs("put", local, f"{folder}/a")
    assert result.code == 1
    assert result.err == f"put: '{folder}/a': file exists (replace it with -f)\n"
    assert read(client, f"{folder}/a") == b"old"
    assert fs("put", "-f", local, f"{folder}/a").code == 0
    assert read(client, f"{folder}/a") == DATA


def test_put_says_which_replicas_and_durability_it_wants(
    fs: Paxosblock, client: Client, folder: str, local: Path
) -> None:
    assert fs("put", "--replication", "2", "--durability", "memory", local, folder).code == 0
    status = client.stat(f"{folder}/local.bin")
    assert (status.replication, status.durability.value) == (2, "memory")


def test_put_says_what_becomes_of_a_block_that_loses_a_datanode(
    fs: Paxosblock, client: Client, folder: str, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, create = [], AsyncClient.create

    async def noted(client: AsyncClient, *args: Any, **how: Any) -> AsyncFileWriter:
        out = await create(client, *args, **how)
        asked.append(how["options"])
        return out

    monkeypatch.setattr(AsyncClient, "create", noted)
    put = ("put", "--on-failure", "rebuild", "--replace-on-failure", "always")
    assert fs(*put, local, f"{folder}/a").code == 0
    assert fs("put", local, f"{folder}/b").code == 0
    assert asked == [WriteOptions("rebuild", "always"), WriteOptions()]
    wrong = fs("put", "--on-failure", "maybe", local, f"{folder}/c")
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err == "put: on_failure 'maybe': write 'seal' or 'rebuild'\n"
    assert not client.exists(f"{folder}/c")


def test_put_with_too_few_datanodes_succeeds_and_says_how_many_replicas_there_are(
    fs: Paxosblock, client: Client, folder: str, local: Path
) -> None:
    result = fs("put", "--replication", "9", local, f"{folder}/a")
    line = f"put: '{folder}/a': warning: only 3 of 9 replicas: too few DataNodes\n"
    assert (result.code, result.out, result.err) == (0, "", line)
    with client.open(f"{folder}/a") as file:
        assert file.read() == local.read_bytes()


def test_put_with_json_tells_a_shortfall_of_replicas_as_json(
    fs: Paxosblock, folder: str, local: Path
) -> None:
    result = fs("put", "--json", "--replication", "4", local, f"{folder}/a")
    assert json.loads(result.err) == {
        "verb": "put",
        "path": f"{folder}/a",
        "warning": "warning: only 3 of 4 replicas: too few DataNodes",
    }


def test_put_reads_standard_input(cluster: LocalCluster, client: Client, folder: str) -> None:
    with started(cluster, "put", "-", f"{folder}/a") as process:
        out, err = process.communicate(DATA, timeout=60)
    assert (process.returncode, out, err) == (0, b"", b"")
    assert read(client, f"{folder}/a") == DATA


def test_what_goes_on_is_not_cut_and_who_feeds_it_may_take_his_time(
    cluster: LocalCluster, client: Client, folder: str
) -> None:
    with started(cluster, "put", "-d", "--timeout", "1s", "-", f"{folder}/a") as process:
        assert process.stdin is not None
        process.stdin.write(DATA)
        process.stdin.flush()
        wait_until(lambda: client.exists(f"{folder}/a"), what="the file to appear")
        later = time.monotonic() + 2.5
        wait_until(lambda: time.monotonic() > later, what="more than its patience to go by")
        out, err = process.communicate(b"the end", timeout=60)
    assert (process.returncode, out, err) == (0, b"", b"")
    assert read(client, f"{folder}/a") == DATA + b"the end"


def test_put_directly_can_be_followed_while_it_grows(
    cluster: LocalCluster, client: Client, folder: str
) -> None:
    with started(cluster, "put", "-d", "-", f"{folder}/a") as process:
        assert process.stdin is not None
        process.stdin.write(b"first")
        process.stdin.flush()
        wait_until(lambda: client.exists(f"{folder}/a"), what="the file to appear")
        following = client.follow(f"{folder}/a")
        assert bytes(next(following)) == b"first"
        process.stdin.write(b"second")
        process.stdin.close()
        assert b"".join(map(bytes, following)) == b"second"
    assert process.returncode == 0


@pytest.mark.parametrize("killed", [True, False])
def test_a_put_takes_the_place_of_one_that_was_killed_or_is_at_work(
    *, killed: bool, cluster: LocalCluster, client: Client, fs: Paxosblock, folder: str, local: Path
) -> None:
    with started(cluster, "put", "-", f"{folder}/a") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"first")
        process.stdin.flush()
        wait_until(lambda: client.exists(f"{folder}/a{COPYING}"), what="the copy to begin")
        if killed:
            process.kill()
            process.wait(30)
        second = fs("put", local, f"{folder}/a")
        assert (second.code, second.err) == (0, "")
        if not killed:
            process.stdin.close()
            assert process.wait(30) == 1
            (line,) = process.stderr.read().splitlines()
            assert line.startswith(f"put: '{folder}/a{COPYING}': ".encode())
    assert read(client, f"{folder}/a") == DATA
    assert [entry.path for entry in client.ls(folder)] == [f"{folder}/a"]


def test_a_put_that_fails_leaves_alone_what_another_has_begun_since(
    cluster: LocalCluster, client: Client, folder: str
) -> None:
    copying = f"{folder}/a{COPYING}"
    with started(cluster, "put", "-", f"{folder}/a") as process:
        assert process.stdin is not None
        process.stdin.write(b"first")
        process.stdin.flush()
        wait_until(lambda: client.exists(copying), what="the copy to begin")
        client.delete(copying)
        with client.create(copying) as other:
            other.write(b"other")
            process.stdin.close()
            assert process.wait(30) == 1
            assert process.stderr is not None
            assert b"was deleted" in process.stderr.read()
    assert read(client, copying) == b"other"


@pytest.mark.slow
def test_a_put_whose_cluster_goes_waits_for_it_once() -> None:
    with LocalCluster() as own, Client(own.url) as fs:
        with started(own, "put", "--timeout", "12s", "-", "/a") as process:
            assert process.stdin is not None
            process.stdin.write(b"first")
            process.stdin.flush()
            wait_until(lambda: fs.exists(f"/a{COPYING}"), what="the copy to begin")
            own.namenodes[0].pause()
            begun = time.monotonic()
            _, err = process.communicate(timeout=60)
        # The call that waits may have begun a moment before the pause, and it waits once.
        assert 11.0 <= time.monotonic() - begun < 22.0
        assert b"put: waiting for the cluster at" in err
        assert process.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_put_leaves_nothing(
    cluster: LocalCluster, client: Client, folder: str, ctrl_c: CtrlC, number: signal.Signals
) -> None:
    with started(cluster, "put", "-", f"{folder}/a") as process:
        assert process.stdin is not None
        process.stdin.write(DATA)
        process.stdin.flush()
        wait_until(lambda: client.exists(f"{folder}/a{COPYING}"), what="the copy to begin")
        assert not client.exists(f"{folder}/a")
        ctrl_c(process, number)
        assert process.wait(30) == 128 + number
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert client.ls(folder) == []


@pytest.mark.parametrize(
    ("source", "target", "line"),
    [
        ("nope", "/a", "put: 'nope': no such file or directory\n"),
        ("local.bin", "/no/where", "put: '{0}/no': no such file or directory\n"),
        ("local.bin", "/no/", "put: '{0}/no/': no such directory\n"),
        ("-", "", "put: '{0}': is a directory: standard input needs a file name\n"),
    ],
)
def test_put_tells_what_is_wrong(
    *,
    fs: Paxosblock,
    folder: str,
    local: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    target: str,
    line: str,
) -> None:
    monkeypatch.chdir(local.parent)
    result = fs("put", source, folder + target)
    assert (result.code, result.out, result.err) == (1, "", line.format(folder))


def test_put_of_several_copies_those_that_are_there(
    fs: Paxosblock, client: Client, folder: str, local: Path
) -> None:
    result = fs("put", "nope", local, folder)
    assert (result.code, result.err) == (1, "put: 'nope': no such file or directory\n")
    assert read(client, f"{folder}/local.bin") == DATA


def test_put_shows_its_progress_on_a_terminal_only(
    cluster: LocalCluster, folder: str, local: Path
) -> None:
    ours, theirs = pty.openpty()
    try:
        with started(cluster, "put", local, folder, stderr=theirs) as process:
            assert process.wait(30) == 0
        shown = os.read(ours, 1 << 16)
    finally:
        os.close(theirs)
        os.close(ours)
    assert b"local.bin" in shown
    assert b"3.0/3.0 MiB" in shown


@pytest.mark.parametrize(
    ("bytes_per_s", "text"),
    [(None, ""), (0.4, "0.4 B/s"), (1536.0, "1.5 KiB/s"), (3 * 2.0**20, "3.0 MiB/s")],
)
def test_a_speed_is_in_the_units_of_the_bytes_beside_it(
    bytes_per_s: float | None, text: str
) -> None:
    assert speed_text(bytes_per_s) == text


def test_copying_with_json_tells_what_was_copied(fs: Paxosblock, folder: str, local: Path) -> None:
    there, back = f"{folder}/local.bin", str(local.with_name("back"))
    put, get = fs("put", "--json", local, folder), fs("get", "--json", there, back)
    assert [json.loads(result.out) for result in (put, get)] == [
        {"source": str(local), "path": there, "size_bytes": len(DATA)},
        {"source": there, "path": back, "size_bytes": len(DATA)},
    ]


def test_an_empty_file_goes_there_and_back(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    assert fs("put", tmp_path / "empty", folder).code == 0
    assert client.stat(f"{folder}/empty").size == 0
    assert fs("get", f"{folder}/empty", tmp_path / "back").code == 0
    assert (tmp_path / "back").read_bytes() == b""
    assert fs("cat", f"{folder}/empty").out == ""


def test_directories_are_put_and_got_whole(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    source = tmp_path / "photos"
    (source / "empty").mkdir(parents=True)
    (source / "2024" / "may").mkdir(parents=True)
    contents = {"a": b"first", "2024/b": b"", "2024/may/c": DATA}
    for name, data in contents.items():
        (source / name).write_bytes(data)
    put = fs("put", source, folder)
    assert (put.code, put.out, put.err) == (0, "", "")
    there = {each.path.removeprefix(f"{folder}/") for each in client.walk(folder)}
    below = {"empty", "2024", "2024/may", *contents}
    assert there == {"photos"} | {f"photos/{name}" for name in below}
    (tmp_path / "into").mkdir()
    for target, place in (("new", "new"), ("into", "into/photos")):
        get = fs("get", f"{folder}/photos", tmp_path / target)
        assert (get.code, get.out, get.err) == (0, "", "")
        got = tmp_path / place
        assert {str(each.relative_to(got)) for each in got.rglob("*")} == below
        assert {name: (got / name).read_bytes() for name in contents} == contents


def test_an_interrupted_put_of_a_directory_leaves_whole_files_only(
    cluster: LocalCluster, client: Client, folder: str, ctrl_c: CtrlC, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in "abc":
        with (source / name).open("wb") as file:
            file.truncate(1 << 30)
    with started(cluster, "put", source, folder) as process:
        wait_until(lambda: len(copying_in(client, folder)) == 3, what="the copies to begin")
        ctrl_c(process, signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert client.ls(f"{folder}/source") == []


def copying_in(client: Client, folder: str) -> list[str]:
    """The files below a directory that are not complete yet."""
    return [entry.path for entry in client.walk(folder) if entry.path.endswith(COPYING)]


def test_a_directory_is_one_bar_with_a_total(
    cluster: LocalCluster, client: Client, folder: str, tmp_path: Path
) -> None:
    source = tmp_path / "photos"
    source.mkdir()
    for name in "abc":
        (source / name).write_bytes(DATA)
    back = tmp_path / "back"
    for words in (("put", source, folder), ("get", f"{folder}/photos", back)):
        ours, theirs = pty.openpty()
        try:
            with started(cluster, *words, stderr=theirs) as process:
                assert process.wait(30) == 0
            shown = os.read(ours, 1 << 16)
        finally:
            os.close(theirs)
            os.close(ours)
        assert b"photos" in shown
        assert b"9.0/9.0 MiB" in shown


def test_of_a_directory_what_can_be_put_is_put(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(b"new")
    (source / "b").write_bytes(b"b")
    (source / "circle").symlink_to(source)
    make(client, f"{folder}/source/a", b"old")
    result = fs("put", source, folder)
    assert result.code == 1
    assert result.err.splitlines() == [
        f"put: '{folder}/source/a': file exists (replace it with -f)",
        f"put: '{source}/circle': is a directory",
    ]
    assert [read(client, f"{folder}/source/{name}") for name in "ab"] == [b"old", b"b"]


def test_a_pipe_in_a_directory_is_told_and_does_not_hold_up_the_rest(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    os.mkfifo(source / "pipe")
    (source / "z").write_bytes(b"z")
    result = fs("put", source, folder)
    assert (result.code, result.out) == (1, "")
    assert result.err == f"put: '{source}/pipe': is neither a file nor a directory\n"
    assert read(client, f"{folder}/source/z") == b"z"


# --- append --------------------------------------------------------------------------------------


def test_append_adds_files_to_the_end_of_one(
    fs: Paxosblock, client: Client, folder: str, local: Path
) -> None:
    other = local.with_name("other")
    other.write_bytes(b"other")
    make(client, f"{folder}/a", b"first, ")
    result = fs("append", other, local, f"{folder}/a")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert read(client, f"{folder}/a") == b"first, other" + DATA


def test_append_makes_a_file_that_does_not_exist(
    fs: Paxosblock, client: Client, folder: str, local: Path
) -> None:
    assert fs("-append", local, f"{folder}/new").code == 0
    assert read(client, f"{folder}/new") == DATA


def test_append_goes_to_the_one_file_that_a_pattern_names(
    fs: Paxosblock, client: Client, folder: str, local: Path
) -> None:
    make(client, f"{folder}/one", b"old")
    assert fs("append", local, f"{folder}/*").code == 0
    assert read(client, f"{folder}/one") == b"old" + DATA


@pytest.mark.parametrize("names", [(), ("a", "b")])
def test_append_makes_no_file_of_a_pattern(
    fs: Paxosblock, client: Client, folder: str, local: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        make(client, f"{folder}/{name}", b"old")
    result = fs("append", local, f"{folder}/*")
    why = "matches 2 files; name one" if names else "a pattern that matches no file"
    assert (result.code, result.err) == (1, f"append: '{folder}/*': {why}\n")
    assert [entry.name for entry in client.ls(folder)] == list(names)


def test_append_of_standard_input_is_read_while_it_goes_on(
    cluster: LocalCluster, client: Client, folder: str
) -> None:
    make(client, f"{folder}/a", b"before, ")
    with started(cluster, "append", "-", f"{folder}/a") as appending:
        assert appending.stdin is not None
        appending.stdin.write(b"piped")
        appending.stdin.flush()
        wait_until(lambda: read(client, f"{folder}/a") == b"before, piped")
        out, err = appending.communicate(b", end", timeout=30)
    assert (appending.returncode, out, err) == (0, b"", b"")
    assert read(client, f"{folder}/a") == b"before, piped, end"


def test_append_tells_json_how_much_of_which_file(
    fs: Paxosblock, client: Client, folder: str, local: Path
) -> None:
    make(client, f"{folder}/a", b"first")
    told = json.loads(fs("append", "--json", local, f"{folder}/a").out)
    assert told == {"source": str(local), "path": f"{folder}/a", "size_bytes": len(DATA)}


def test_append_to_what_cannot_be_appended_to_is_one_line(
    fs: Paxosblock, client: Client, folder: str, local: Path
) -> None:
    result = fs("append", local, folder)
    assert (result.code, result.err) == (1, f"append: '{folder}': is a directory\n")
    with client.create(f"{folder}/open"):
        result = fs("append", local, f"{folder}/open")
    assert result.code == 1
    assert result.err.startswith(f"append: '{folder}/open': is being written by ")
    result = fs("append", local.with_name("nope"), f"{folder}/b")
    assert (result.code, result.err) == (
        1,
        f"append: '{local.with_name('nope')}': no such file or directory\n",
    )


# --- get -----------------------------------------------------------------------------------------


def test_get_copies_a_file(fs: Paxosblock, client: Client, folder: str, tmp_path: Path) -> None:
    make(client, f"{folder}/a")
    result = fs("get", f"{folder}/a", tmp_path / "here")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert (tmp_path / "here").read_bytes() == DATA
    assert len(list(tmp_path.iterdir())) == 1


def test_get_into_a_directory_keeps_the_names(
    fs: Paxosblock,
    client: Client,
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(client, f"{folder}/a", b"a")
    make(client, f"{folder}/b", b"b")
    (tmp_path / "into").mkdir()
    assert fs("get", f"{folder}/a", f"{folder}/b", tmp_path / "into").code == 0
    assert (tmp_path / "into" / "b").read_bytes() == b"b"
    monkeypatch.chdir(tmp_path)
    assert fs("get", f"{folder}/a").code == 0
    assert (tmp_path / "a").read_bytes() == b"a"


def test_get_replaces_a_local_file_only_with_f(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    make(client, f"{folder}/a")
    here = tmp_path / "here"
    here.write_bytes(b"old")
    result = fs("get", f"{folder}/a", here)
    assert result.code == 1
    assert result.err == f"get: '{here}': file exists (replace it with -f)\n"
    assert here.read_bytes() == b"old"
    assert fs("get", "-f", f"{folder}/a", here).code == 0
    assert here.read_bytes() == DATA


def test_get_writes_to_standard_output(cluster: LocalCluster, client: Client, folder: str) -> None:
    make(client, f"{folder}/a")
    with started(cluster, "get", f"{folder}/a", "-") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, DATA, b"")


@pytest.mark.parametrize(
    ("source", "target", "line"),
    [
        ("/nope", "x", "get: '{0}/nope': no such file or directory\n"),
        ("", "-", "get: '{0}': is a directory\n"),
        ("/a", "no/where", "get: 'no/where': no such file or directory\n"),
    ],
)
def test_get_tells_what_is_wrong_and_leaves_nothing(
    *,
    fs: Paxosblock,
    client: Client,
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    target: str,
    line: str,
) -> None:
    make(client, f"{folder}/a", b"a")
    monkeypatch.chdir(tmp_path)
    result = fs("get", folder + source, target)
    assert (result.code, result.out, result.err) == (1, "", line.format(folder))
    assert list(tmp_path.iterdir()) == []


def test_get_of_several_wants_a_directory(fs: Paxosblock, tmp_path: Path) -> None:
    result = fs("get", "/a", "/b", tmp_path / "x")
    assert (result.code, result.err) == (1, f"get: '{tmp_path}/x': no such directory\n")


# --- cat, head, tail -----------------------------------------------------------------------------


def test_cat_writes_the_bytes_one_file_after_the_other(
    cluster: LocalCluster, client: Client, folder: str
) -> None:
    make(client, f"{folder}/a")
    make(client, f"{folder}/b", b"\x00\xff")
    with started(cluster, "cat", f"{folder}/a", f"{folder}/b") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, DATA + b"\x00\xff", b"")


def test_cat_into_a_reader_that_leaves_is_silent(
    cluster: LocalCluster, client: Client, folder: str
) -> None:
    make(client, f"{folder}/a")
    with started(cluster, "cat", f"{folder}/a") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == DATA[:1]
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


def test_cat_goes_on_after_a_file_that_is_not_there(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    make(client, f"{folder}/a", b"here")
    result = fs("cat", f"{folder}/nope", folder, f"{folder}/a")
    assert (result.code, result.out) == (1, "here")
    assert result.err == (
        f"cat: '{folder}/nope': no such file or directory\ncat: '{folder}': is a directory\n"
    )


def test_head_and_tail_show_a_kilobyte(fs: Paxosblock, client: Client, folder: str) -> None:
    text = "".join(f"line {number}\n" for number in range(500))
    make(client, f"{folder}/a", text.encode())
    make(client, f"{folder}/short", b"short\n")
    assert fs("head", f"{folder}/a").out == text[:1024]
    assert fs("tail", f"{folder}/a").out == text[-1024:]
    assert fs("head", f"{folder}/short").out == "short\n"
    assert fs("tail", f"{folder}/short").out == "short\n"


def test_tail_f_follows_a_file_also_past_its_close_until_ctrl_c(
    cluster: LocalCluster, client: Client, folder: str, ctrl_c: CtrlC
) -> None:
    with client.create(f"{folder}/a") as out:
        out.write(bytes(3000) + b"first")
        out.hflush()
        with started(cluster, "tail", "-f", f"{folder}/a") as process:
            assert process.stdout is not None
            assert process.stdout.read(1024) == bytes(1019) + b"first"
            out.write(b"second")
            out.hflush()
            assert process.stdout.read(6) == b"second"
            out.write(b"third")
            out.close()
            assert process.stdout.read(5) == b"third"
            with client.append(f"{folder}/a") as more:
                more.write(b"fourth")
            assert process.stdout.read(6) == b"fourth"
            ctrl_c(process)
            assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 130


def test_tail_f_ends_the_line_on_which_a_terminal_shows_ctrl_c(
    cluster: LocalCluster, client: Client, folder: str, ctrl_c: CtrlC
) -> None:
    ours, theirs = pty.openpty()
    with client.create(f"{folder}/a") as out:
        out.write(b"first")
        out.hflush()
        with started(cluster, "tail", "-f", f"{folder}/a", stderr=theirs) as process:
            assert process.stdout is not None
            assert process.stdout.read(5) == b"first"
            ctrl_c(process)
            assert process.stdout.read() == b""
    assert (process.returncode, os.read(ours, 1 << 16)) == (130, b"\r\n")
    os.close(theirs)
    os.close(ours)


@pytest.mark.parametrize("verb", ["head", "tail"])
def test_head_and_tail_of_nothing_are_one_line(fs: Paxosblock, verb: str, folder: str) -> None:
    result = fs(verb, f"{folder}/a")
    assert (result.code, result.err) == (1, f"{verb}: '{folder}/a': no such file or directory\n")


# --- truncate ------------------------------------------------------------------------------------


def test_truncate_cuts_files_and_says_so(fs: Paxosblock, client: Client, folder: str) -> None:
    make(client, f"{folder}/a", DATA[:100])
    make(client, f"{folder}/b", DATA[:50])
    result = fs("-truncate", "-w", "10", f"{folder}/*")
    lines = [f"Truncated {folder}/{name} to length: 10\n" for name in "ab"]
    assert (result.code, result.out, result.err) == (0, "".join(lines), "")
    assert (read(client, f"{folder}/a"), read(client, f"{folder}/b")) == (DATA[:10], DATA[:10])
    again = fs("truncate", "--json", "10", f"{folder}/a")
    told = json.loads(again.out)
    assert (told["path"], told["size"], told["truncations"]) == (f"{folder}/a", 10, 1)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("11 a", "has 10 bytes and cannot be truncated to 11"),
        ("-1 a", "has 10 bytes and cannot be truncated to -1"),
        ("0 none", "no such file or directory"),
        ("0 dir", "is a directory"),
        ("0 open", "is being written by "),
        ("ten a", "is no length: write a number of bytes, as in `truncate 1024 /a`"),
    ],
)
def test_what_cannot_be_truncated_is_one_line_and_nothing_changes(
    fs: Paxosblock, client: Client, folder: str, written: str, says: str
) -> None:
    length, name = written.split()
    make(client, f"{folder}/a", DATA[:10])
    client.mkdirs(f"{folder}/dir")
    with client.create(f"{folder}/open") as out:
        out.write(DATA[:10])
        result = fs("truncate", length, f"{folder}/{name}")
        assert (result.code, result.out) == (1, "")
        subject = length if length == "ten" else f"{folder}/{name}"
        assert result.err.startswith(f"truncate: '{subject}': {says}")
        assert result.err.count("\n") == 1
    assert read(client, f"{folder}/a") == read(client, f"{folder}/open") == DATA[:10]


def test_tail_f_of_a_file_that_is_truncated_ends_with_one_line_that_says_so(
    cluster: LocalCluster, client: Client, folder: str
) -> None:
    path = f"{folder}/log"
    with client.create(path) as out:
        out.write(b"first ")
        out.hflush()
        with started(cluster, "tail", "-f", path) as process:
            assert process.stdout is not None
            assert process.stdout.read(6) == b"first "
            out.close()
            client.truncate(path, 3)
            with client.append(path) as more:
                more.write(b"quite other bytes")
            rest, told = process.communicate(timeout=30)
    assert (process.returncode, rest) == (1, b"")
    assert told.decode() == f"tail: '{path}': was truncated after it was opened\n"


# --- text, getmerge, tail -n ---------------------------------------------------------------------


def test_text_unpacks_what_is_packed(fs: Paxosblock, client: Client, folder: str) -> None:
    plain = b"one\n" * 5000
    write(client, f"{folder}/plain", plain)
    write(client, f"{folder}/packed", gzip.compress(plain[:100]) + gzip.compress(plain[100:]))
    write(client, f"{folder}/a.bz2", bz2.compress(plain))
    write(client, f"{folder}/a.deflate", zlib.compress(plain))
    for name in ("plain", "packed", "a.bz2", "a.deflate"):
        result = fs("text", f"{folder}/{name}")
        assert (result.code, result.out, result.err) == (0, plain.decode(), "")


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("a", (b"SEQ\x06xyz", "is a SequenceFile, which is not read here")),
        ("b", (b"Obj\x01xyz", "is an Avro file, which is not read here")),
        ("c", (gzip.compress(bytes(1000), mtime=0)[:-9], "cannot be unpacked: ")),
        ("d.deflate", (zlib.compress(bytes(1000))[:-5], "cannot be unpacked: it ends too early")),
        ("e.bz2", (b"hello", "invalid data stream")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_text_refuses_what_it_cannot_read(
    fs: Paxosblock, client: Client, folder: str, name: str, case: tuple[bytes, str]
) -> None:
    content, line = case
    write(client, f"{folder}/{name}", content)
    result = fs("text", f"{folder}/{name}")
    assert result.code == 1
    assert f": {line}" in result.err


@pytest.mark.parametrize(
    ("words", "merged"),
    [("", b"hello"), ("-nl", b"hello\n\n"), ("-nl -skip-empty-file", b"hello\n")],
)
def test_getmerge_joins_the_files_of_a_directory(
    fs: Paxosblock, folder: str, tmp_path: Path, words: str, merged: bytes
) -> None:
    for name, content in (("a.txt", "hello"), ("sub/b", "not this"), ("zero", "")):
        source = tmp_path / "source"
        source.write_text(content)
        fs("mkdir", "-p", posixpath.dirname(f"{folder}/d/{name}"))
        assert fs("put", source, f"{folder}/d/{name}").code == 0
    local = tmp_path / "merged"
    local.write_bytes(b"before")
    assert fs("getmerge", *words.split(), f"{folder}/d", local).code == 0
    assert local.read_bytes() == merged
    assert fs("getmerge", "-nl", f"{folder}/d/a.txt", f"{folder}/d/a.txt", local).code == 0
    assert local.read_bytes() == b"hello\nhello\n"


def test_getmerge_of_nothing_leaves_no_file(fs: Paxosblock, folder: str, tmp_path: Path) -> None:
    result = fs("getmerge", folder, "/none", tmp_path / "merged")
    assert (result.code, result.err) == (1, "getmerge: '/none': no such file or directory\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ["", "\n"])
def test_tail_n_shows_the_last_lines(fs: Paxosblock, client: Client, folder: str, end: str) -> None:
    lines = [f"{number}{'x' * (number % 700)}\n" for number in range(1000)]
    write(client, f"{folder}/a", "".join(lines).removesuffix("\n").encode() + end.encode())
    for count in (0, 1, 2, 500, 1000, 2000):
        wanted = "".join(lines[-count:] if count else []).removesuffix("\n") + (
            end if count else ""
        )
        assert fs("tail", "-n", str(count), f"{folder}/a").out == wanted
