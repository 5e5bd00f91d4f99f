"""`paxosblock fs` where files are copied with what belongs to them: cp, put -p, get -p, checksum,
moveFromLocal; and usage, help."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paxosblock import Client
from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.cli.fs import fs as group
from paxosblock.client.copies.local_place import PIECE_BYTES, LocalSource
from paxosblock.client.copies.places import COPYING
from paxosblock.host.user import name_of_group, name_of_user
from tests.cli.conftest import Paxosblock
from tests.files import read, write

TIME_S = 1_577_934_245.0


def names(client: Client, path: str) -> list[str]:
    return [entry.path.removeprefix(path) for entry in client.walk(path)]


# --- cp ------------------------------------------------------------------------------------------


def test_cp_copies_a_file_with_its_replication_and_block_size(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    with client.create(f"{folder}/a", replication=2, block_size=1 << 20) as out:
        out.write(b"hello" * 1000)
    result = fs("cp", f"{folder}/a", f"{folder}/b")
    assert (result.code, result.out, result.err) == (0, "", "")
    status = client.stat(f"{folder}/b")
    assert (status.replication, status.block_size) == (2, 1 << 20)
    assert read(client, f"{folder}/b") == b"hello" * 1000
    assert status.file_id != client.stat(f"{folder}/a").file_id


def test_cp_replaces_a_file_only_with_f(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"new")
    write(client, f"{folder}/b", b"old")
    result = fs("cp", f"{folder}/a", f"{folder}/b")
    assert result.code == 1
    assert result.err == f"cp: '{folder}/b': file exists (replace it with -f)\n"
    assert read(client, f"{folder}/b") == b"old"
    assert fs("cp", "-f", f"{folder}/a", f"{folder}/b").code == 0
    assert read(client, f"{folder}/b") == b"new"
    assert fs("cp", "-f", f"{folder}/a", f"{folder}/a").code == 0
    assert read(client, f"{folder}/a") == b"new"
    assert names(client, folder) == ["/a", "/b"]


def test_cp_copies_a_directory_as_the_target_and_then_into_it(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    for name in ("d/a", "d/sub/b"):
        write(client, f"{folder}/{name}", name.encode())
    client.mkdirs(f"{folder}/d/empty")
    inside = ["/a", "/empty", "/sub", "/sub/b"]
    assert fs("cp", f"{folder}/d", f"{folder}/e").code == 0
    assert names(client, f"{folder}/e") == inside
    assert fs("cp", "-t", "2", "-q", "10", f"{folder}/d", f"{folder}/e").code == 0
    assert names(client, f"{folder}/e/d") == inside
    assert read(client, f"{folder}/e/d/sub/b") == b"d/sub/b"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("none x", "'{0}/none': no such file or directory"),
        ("a nodir/x", "'{0}/nodir': no such file or directory"),
        ("a d nodir", "'{0}/nodir': no such directory"),
        ("d d", "'{0}/d': to '{0}/d/d': is a subdirectory of itself"),
        ("d d/in", "'{0}/d': to '{0}/d/in': is a subdirectory of itself"),
        ("d a", "'{0}/a': file exists"),
        ("a a", "'{0}/a': file exists (replace it with -f)"),
    ],
)
def test_cp_refuses_what_hdfs_refuses_and_changes_nothing(
    fs: Paxosblock, client: Client, folder: str, words: str, line: str
) -> None:
    write(client, f"{folder}/a", b"hello")
    write(client, f"{folder}/d/b", b"hello")
    result = fs("cp", *[f"{folder}/{word}" for word in words.split()])
    assert (result.code, result.out) == (1, "")
    assert result.err == f"cp: {line.format(folder)}\n"
    assert names(client, folder) == ["/a", "/d", "/d/b"]


@pytest.mark.parametrize(("flag", "kept"), [("-p", "top"), ("-pt", "t"), ("-pp", "p"), ("-d", "")])
def test_cp_p_keeps_what_its_letters_say(
    fs: Paxosblock, client: Client, folder: str, flag: str, kept: str
) -> None:
    write(client, f"{folder}/d/a", b"hello")
    for path in (f"{folder}/d/a", f"{folder}/d"):
        client.set_permission(path, 0o750)
        client.set_owner(path, "ada", "staff")
        client.set_times(path, TIME_S)
    assert fs("cp", flag, f"{folder}/d", f"{folder}/e").code == 0
    for path in (f"{folder}/e/a", f"{folder}/e"):
        status = client.stat(path)
        assert (status.modified_s == TIME_S) == ("t" in kept)
        assert ((status.owner, status.group) == ("ada", "staff")) == ("o" in kept)
        assert (status.permission == 0o750) == ("p" in kept)


@pytest.mark.plain("it claims to be another user, which a certificate says")
def test_a_copy_that_may_not_be_given_away_is_not_made(
    fs: Paxosblock, client: Client, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(client, f"{folder}/a", b"hello")
    client.set_permission(folder, 0o777)
    monkeypatch.setenv("HADOOP_USER_NAME", "eve")
    result = fs("cp", "-p", f"{folder}/a", f"{folder}/b")
    assert result.code == 1
    assert "non-super user cannot change owner" in result.err
    assert names(client, folder) == ["/a"]


def test_mv_f_replaces_a_file(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"new")
    write(client, f"{folder}/b", b"old")
    assert fs("mv", f"{folder}/a", f"{folder}/b").code == 1
    assert fs("mv", "-f", f"{folder}/a", f"{folder}/b").code == 0
    assert read(client, f"{folder}/b") == b"new"
    assert names(client, folder) == ["/b"]


# --- put and get ---------------------------------------------------------------------------------


def test_put_p_and_get_p_keep_times_and_permissions(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    local = tmp_path / "d"
    (local / "sub").mkdir(parents=True)
    (local / "sub" / "a").write_bytes(b"hello")
    for path in (local / "sub" / "a", local / "sub", local):
        path.chmod(0o750)
        os.utime(path, (TIME_S, TIME_S))
    user, group = name_of_user(os.getuid()), name_of_group(local.stat().st_gid)
    assert fs("put", "-p", "-t", "3", local, f"{folder}/d").code == 0
    for name in ("d", "d/sub", "d/sub/a"):
        status = client.stat(f"{folder}/{name}")
        assert (status.modified_s, status.permission) == (TIME_S, 0o750)
        assert (status.owner, status.group) == (user, group)
    assert fs("get", "-p", "-crc", "-ignoreCrc", f"{folder}/d", tmp_path / "e").code == 0
    for name in ("e", "e/sub", "e/sub/a"):
        found = (tmp_path / name).stat()
        assert (found.st_mtime, found.st_mode & 0o777) == (TIME_S, 0o750)
    assert (tmp_path / "e" / "sub" / "a").read_bytes() == b"hello"


def test_get_p_of_a_stranger_leaves_no_file(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    write(client, f"{folder}/a", b"hello")
    client.set_owner(f"{folder}/a", "nobody-of-this-machine")
    result = fs("get", "-p", f"{folder}/a", tmp_path / "a")
    assert result.code == 1
    assert "cannot be given to nobody-of-this-machine:" in result.err
    assert list(tmp_path.iterdir()) == []


def test_put_l_asks_for_one_replica_in_memory(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    assert fs("put", "-l", tmp_path / "a", folder).code == 0
    status = client.stat(f"{folder}/a")
    assert (status.replication, status.durability.value) == (1, "memory")


def test_move_from_local_deletes_what_was_copied(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "sub" / "a").write_bytes(b"hello")
    (tmp_path / "b").write_bytes(b"two")
    assert fs("moveFromLocal", tmp_path / "d", tmp_path / "b", folder).code == 0
    assert list(tmp_path.iterdir()) == []
    assert read(client, f"{folder}/d/sub/a") == b"hello"
    assert read(client, f"{folder}/b") == b"two"


def test_move_from_local_keeps_what_was_not_copied(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"new")
    write(client, f"{folder}/a", b"old")
    result = fs("moveFromLocal", tmp_path / "a", folder)
    assert (result.code, read(client, f"{folder}/a")) == (1, b"old")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(client, folder) == ["/a"]
    assert fs("moveFromLocal", "-", folder).code == 2


@pytest.mark.parametrize("named", ["d", "d/a"])
def test_move_from_local_keeps_a_file_that_grew_while_it_was_copied(
    fs: Paxosblock, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, named: str
) -> None:
    (tmp_path / "d").mkdir()
    file = tmp_path / "d" / "a"
    file.write_bytes(b"hello")

    async def pieces(source: LocalSource) -> AsyncIterator[Buffer]:
        yield await source.read(PIECE_BYTES)
        with file.open("ab") as out:
            out.write(b", world")

    monkeypatch.setattr(LocalSource, "pieces", pieces)
    result = fs("moveFromLocal", tmp_path / named, folder)
    assert (result.code, file.read_bytes()) == (1, b"hello, world")
    assert result.err.endswith("was changed while it was copied, and stays\n")


def test_move_to_local_is_not_there_as_in_hdfs(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    write(client, f"{folder}/a", b"hello")
    result = fs("moveToLocal", f"{folder}/a", tmp_path / "a")
    assert result.code == 1
    assert "option '-moveToLocal' is not implemented yet" in result.err
    assert names(client, folder) == ["/a"]


# --- checksum ------------------------------------------------------------------------------------


def md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def block_md5(block: bytes) -> bytes:
    pieces = [block[at : at + 512] for at in range(0, len(block), 512)]
    return md5(b"".join(struct.pack(">I", crc32c(piece)) for piece in pieces))


def test_the_checksum_of_an_empty_file_is_that_of_hdfs(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/a", b"")
    known = "00000000000000000000000070bc8f4b72a86921468bf8e8441dce51"
    assert fs("checksum", f"{folder}/a").out == f"{folder}/a\tMD5-of-0MD5-of-0CRC32\t{known}\n"


def test_the_checksum_of_a_file_of_one_block(fs: Paxosblock, client: Client, folder: str) -> None:
    data = bytes(range(256)) * 5 + b"x"
    write(client, f"{folder}/a", data)
    text = "00000200" + "0" * 16 + md5(block_md5(data) + bytes(16)).hex()
    size = client.stat(f"{folder}/a").block_size
    assert fs("checksum", "-v", f"{folder}/a").out == (
        f"{folder}/a\tMD5-of-0MD5-of-512CRC32C\t{text}\tBlockSize={size}\n"
    )
    assert fs("cp", f"{folder}/a", f"{folder}/b").code == 0
    assert client.checksum(f"{folder}/b").text == text
    told = json.loads(fs("checksum", "--json", f"{folder}/b").out)
    assert (told["text"], told["algorithm"]) == (text, "MD5-of-0MD5-of-512CRC32C")


@pytest.mark.parametrize("blocks", [2, 3])
def test_the_checksum_of_a_file_of_several_blocks(client: Client, folder: str, blocks: int) -> None:
    data = os.urandom(4096 * (blocks - 1) + 1000)
    with client.create(f"{folder}/a", block_size=4096) as out:
        out.write(data)
    ends = [place.offset + place.size for place in client.locations(f"{folder}/a")]
    assert len(ends) == blocks
    sums = b"".join(
        block_md5(data[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)
    )
    found = client.checksum(f"{folder}/a")
    assert found.algorithm == "MD5-of-8MD5-of-512CRC32C"
    padded = sums.ljust(32 if blocks == 2 else 64, b"\0")
    assert found.text == f"{512:08x}{8:016x}{md5(padded).hex()}"


def test_a_directory_has_no_checksum(fs: Paxosblock, folder: str) -> None:
    result = fs("checksum", folder, "/none")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"checksum: '{folder}': is a directory\nchecksum: '/none': no such file or directory\n"
    )


# --- usage and help ------------------------------------------------------------------------------


def test_usage_shows_the_options_of_verbs(fs: Paxosblock) -> None:
    assert fs("usage", "du", "rmdir").out == (
        "Usage: paxosblock fs [OPTIONS] -du [-s] [-h] [-v] [-x] [--at TIME] [PATHS]...\n"
        "Usage: paxosblock fs [OPTIONS] -rmdir [--ignore-fail-on-non-empty] PATHS...\n"
    )
    assert len(fs("usage").out.splitlines()) == len(group.entries)


def test_help_shows_what_verbs_do(fs: Paxosblock) -> None:
    assert fs("help", "du").out.startswith("Usage: paxosblock fs du ")
    assert all(f"-{name} " in fs("help").out for name in ("ls", "copyFromLocal", "df"))


@pytest.mark.parametrize("verb", ["usage", "help"])
def test_a_verb_that_is_none_has_no_help(fs: Paxosblock, verb: str) -> None:
    result = fs(verb, "frob")
    assert (result.code, result.out) == (2, "")
    assert "'frob': Unknown command" in result.err


def test_no_copy_leaves_its_draft(client: Client) -> None:
    """Other tests of the same cluster leave some on purpose."""
    ours = tuple(f"/{name}" for name in globals() if name.startswith("test_"))
    left = (entry.path for entry in client.walk("/") if entry.path.endswith(COPYING))
    assert [path for path in left if path.startswith(ours)] == []
