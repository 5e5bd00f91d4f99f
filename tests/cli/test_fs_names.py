"""`paxosblock fs` where only names are concerned: ls, mkdir, rm, mv, concat, stat."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TypeVar

import pytest
from msgspec.structs import replace

from paxosblock import AsyncClient, Client, LocalCluster
from paxosblock.api.methods import Method
from paxosblock.api.namenode import ListDirectory
from paxosblock.cli.invocation import Invocation
from paxosblock.cli.text import human_size
from tests.cli.conftest import Paxosblock
from tests.files import write

Q = TypeVar("Q")
A = TypeVar("A")


# --- ls ------------------------------------------------------------------------------------------


def test_ls_prints_a_directory_as_hdfs_does(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/b", b"12345")
    client.mkdirs(f"{folder}/a")
    result = fs("ls", folder)
    assert (result.code, result.err) == (0, "")
    head, directory, file = result.out.splitlines()
    assert head == "Found 2 items"
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.fullmatch(rf"drwxr-xr-x   - \S+ +\S+ +0 {moment} {folder}/a", directory)
    assert re.fullmatch(rf"-rw-r--r--   3 \S+ +\S+ +5 {moment} {folder}/b", file)


STRANGE = "two\nlines \x1b[2J\x7f\x9b"


def test_ls_keeps_a_name_byte_for_byte_in_a_pipe(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/{STRANGE}", b"")
    assert fs("ls", "-C", folder).out == f"{folder}/{STRANGE}\n"


def test_ls_shows_control_characters_escaped_on_a_terminal(
    fs: Paxosblock, client: Client, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(client, f"{folder}/{STRANGE}", b"")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert fs("ls", "-C", folder).out == rf"{folder}/two\nlines \x1b[2J\x7f\x9b" + "\n"


def test_ls_shows_characters_that_turn_the_order_escaped_on_a_terminal(
    fs: Paxosblock, client: Client, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(client, f"{folder}/\u202etxt.exe\u2066\u061c", b"")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert fs("ls", "-C", folder).out == rf"{folder}/\u202etxt.exe\u2066\u061c" + "\n"


def test_an_error_line_is_one_line_whatever_the_name(fs: Paxosblock) -> None:
    assert fs("ls", f"/{STRANGE}".replace("[", r"\[")).err == (
        r"ls: '/two\nlines \x1b\[2J\x7f\x9b': no such file or directory" + "\n"
    )


def test_ls_shows_a_directory_as_it_was_at_one_time(
    fs: Paxosblock, client: Client, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a name that moves in front of the pages that were read would be missing, and one
    that moves behind them would be there twice.
    """
    for name in "abcd":
        client.mkdirs(f"{folder}/{name}")
    ask, moves = Invocation.call, [("d", "0"), ("a", "z")]

    def call(invocation: Invocation, method: Method[Q, A], request: Q) -> A:
        if isinstance(request, ListDirectory):
            if request.after and moves:
                source, target = moves.pop()
                client.rename(f"{folder}/{source}", f"{folder}/{target}")
            request = replace(request, limit=2)
        return ask(invocation, method, request)

    monkeypatch.setattr(Invocation, "call", call)
    shown = fs("ls", "-C", folder).out.splitlines()
    assert (shown, moves) == ([f"{folder}/{name}" for name in "0bcz"], [])


def test_ls_of_a_file_shows_the_file(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"")
    (line,) = fs("ls", f"{folder}/a").out.splitlines()
    assert line.endswith(f" {folder}/a")


def test_ls_of_an_empty_directory_prints_nothing(fs: Paxosblock, folder: str) -> None:
    result = fs("ls", folder)
    assert (result.code, result.out, result.err) == (0, "", "")


def test_ls_without_a_path_shows_the_root(fs: Paxosblock, folder: str) -> None:
    assert f" {folder}\n" in fs("ls").out


def test_ls_takes_a_leading_dash_and_flags_as_hdfs_does(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/deep/er/file", bytes(2048))
    result = fs("-ls", "-R", "-h", folder)
    assert [line.rpartition(" ")[2] for line in result.out.splitlines()] == [
        f"{folder}/deep",
        f"{folder}/deep/er",
        f"{folder}/deep/er/file",
    ]
    assert " 2 K " in result.out


@pytest.mark.parametrize(
    ("flags", "names"),
    [((), "abc"), (("-r",), "cba"), (("-S",), "cab"), (("-S", "-r"), "bac"), (("-t",), "acb")],
)
def test_ls_sorts_by_name_size_or_time(
    fs: Paxosblock, client: Client, folder: str, flags: tuple[str, ...], names: str
) -> None:
    for name, size in (("b", 1), ("c", 3), ("a", 2)):
        write(client, f"{folder}/{name}", bytes(size))
    result = fs("ls", "-C", *flags, folder)
    assert result.out.splitlines() == [f"{folder}/{name}" for name in names]


def test_ls_of_itself_shows_the_directory(fs: Paxosblock, folder: str) -> None:
    (line,) = fs("ls", "-d", folder).out.splitlines()
    assert line.startswith("drwxr-xr-x")
    assert line.endswith(f" {folder}")


def test_ls_goes_on_after_a_path_that_is_not_there(fs: Paxosblock, folder: str) -> None:
    result = fs("ls", "-d", "/nope", folder)
    assert result.code == 1
    assert result.err == "ls: '/nope': no such file or directory\n"
    assert result.out.endswith(f" {folder}\n")


def test_ls_with_json_is_one_object_per_line(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"123")
    client.mkdirs(f"{folder}/b")
    entries = [json.loads(line) for line in fs("ls", "--json", folder).out.splitlines()]
    assert [(entry["path"], entry["kind"], entry["size"]) for entry in entries] == [
        (f"{folder}/a", "file", 3),
        (f"{folder}/b", "directory", 0),
    ]


def test_ls_shows_a_directory_of_several_pages(
    fs: Paxosblock, cluster: LocalCluster, folder: str
) -> None:
    paths = [f"{folder}/{number:04}" for number in range(1003)]

    async def make_all() -> None:
        async with AsyncClient(cluster.url) as client:
            for start in range(0, len(paths), 100):
                await asyncio.gather(*map(client.mkdirs, paths[start : start + 100]))

    asyncio.run(make_all())
    assert fs("ls", "-C", folder).out.splitlines() == paths


def test_a_url_names_its_cluster(
    paxosblock: Paxosblock, cluster: LocalCluster, client: Client, folder: str
) -> None:
    client.mkdirs(f"{folder}/a")
    assert paxosblock("fs", "ls", "-C", cluster.url + folder).out == f"{folder}/a\n"


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0"),
        (1023, "1023"),
        (1024, "1 K"),
        (1025, "1.0 K"),
        (1280, "1.3 K"),
        (1536, "1.5 K"),
        (1638, "1.6 K"),
        (2047, "2.0 K"),
        (10240, "10 K"),
        (10291, "10.0 K"),
        (1023999, "1000.0 K"),
        (1048524, "1023.9 K"),
        (1048525, "1.0 M"),
        (1048575, "1.0 M"),
        (256 << 20, "256 M"),
        ((1 << 60) - 1, "1.0 E"),
        ((1 << 63) - 1, "8.0 E"),
        (1 << 80, "1048576 E"),
    ],
)
def test_sizes_are_shown_as_hdfs_shows_them(size_bytes: int, shown: str) -> None:
    assert human_size(size_bytes) == shown


# --- patterns ------------------------------------------------------------------------------------


@pytest.fixture
def logs(client: Client, folder: str) -> str:
    """A directory with files and a directory in it."""
    for name in ("a1", "a2", "b1", "sub/a3"):
        with client.create(f"{folder}/{name}") as out:
            out.write(name.encode())
    return folder


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (("ls", "-C", "{}/a?"), "{0}/a1\n{0}/a2\n"),
        (("ls", "-C", "-d", "{}/[bs]*"), "{0}/b1\n{0}/sub\n"),
        (("stat", "%n", "{}/**/a*"), "a1\na2\na3\n"),
        (("cat", "{}/a*"), "a1a2"),
        (("head", "{}/b*"), "b1"),
        (("tail", "{}/b*"), "b1"),
        (("get", "{}/b*", "-"), "b1"),
        (("rm", "{}/a*"), "Deleted {0}/a1\nDeleted {0}/a2\n"),
        (("mv", "{}/a*", "{}/sub"), ""),
        (("concat", "{}/b1", "{}/a*"), ""),
    ],
)
def test_every_verb_takes_patterns(
    fs: Paxosblock, client: Client, logs: str, words: tuple[str, ...], out: str
) -> None:
    result = fs(*(word.format(logs) for word in words))
    assert (result.code, result.out, result.err) == (0, out.format(logs), "")
    left = {entry.path.removeprefix(f"{logs}/") for entry in client.walk(logs)}
    if words[0] in ("rm", "concat"):
        assert left == {"b1", "sub", "sub/a3"}
    elif words[0] == "mv":
        assert left == {"b1", "sub", "sub/a1", "sub/a2", "sub/a3"}


def test_commands_that_look_inside_take_patterns_too(
    fs: Paxosblock, paxosblock: Paxosblock, logs: str
) -> None:
    assert fs("recover-lease", f"{logs}/b*").code == 0
    shown = paxosblock("explain", f"{logs}/a?").out
    assert [f" of {logs}/{name}: " in shown for name in ("a1", "a2", "b1")] == [True, True, False]
    assert f"under path '{logs}/b1' is HEALTHY" in paxosblock("fsck", f"{logs}/b*").out
    several = paxosblock("fsck", f"{logs}/a*").err
    assert several == f"fsck: '{logs}/a*': matches 2 files; name one\n"


def test_a_file_that_is_called_like_a_pattern_is_meant_alone(
    fs: Paxosblock, client: Client, logs: str
) -> None:
    client.create(f"{logs}/a*").close()
    assert fs("rm", f"{logs}/a*").out == f"Deleted {logs}/a*\n"
    assert client.exists(f"{logs}/a1")


def test_a_pattern_without_a_match_or_with_several_is_told(fs: Paxosblock, logs: str) -> None:
    for words in (("ls",), ("cat",), ("rm",), ("rm", "-r"), ("stat",)):
        result = fs(*words, f"{logs}/x*")
        line = f"{words[0]}: '{logs}/x*': no such file or directory\n"
        assert (result.code, result.out, result.err) == (1, "", line)
    assert fs("rm", "-f", f"{logs}/x*").code == 0
    result = fs("tail", f"{logs}/a*")
    assert (result.code, result.err) == (1, f"tail: '{logs}/a*': matches 2 files; name one\n")


# --- mkdir ---------------------------------------------------------------------------------------


def test_mkdir_makes_one_directory_and_with_p_those_above(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    assert fs("mkdir", f"{folder}/a").code == 0
    assert fs("mkdir", "-p", f"{folder}/b/c", f"{folder}/a").code == 0
    assert [entry.path for entry in client.ls(folder)] == [f"{folder}/a", f"{folder}/b"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/a", "exists already"),
        ("/x/y", "no such file or directory"),
        ("/f/x", "is a file, not a directory"),
    ],
)
def test_mkdir_tells_what_is_in_the_way(
    fs: Paxosblock, client: Client, folder: str, path: str, reason: str
) -> None:
    client.mkdirs(f"{folder}/a")
    write(client, f"{folder}/f", b"")
    result = fs("mkdir", folder + path)
    assert result.code == 1
    assert re.fullmatch(rf"mkdir: '{folder}/\w+(/\w+)?': {reason}\n", result.err)


# --- rm ------------------------------------------------------------------------------------------


def test_rm_deletes_files_and_says_so(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"")
    result = fs("rm", "-skipTrash", f"{folder}/a")
    assert (result.code, result.out) == (0, f"Deleted {folder}/a\n")
    assert not client.exists(f"{folder}/a")


def test_rm_wants_r_for_a_directory(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/d/a", b"")
    result = fs("rm", f"{folder}/d")
    assert result.code == 1
    assert result.err == f"rm: '{folder}/d': is a directory (delete it with -r)\n"
    assert fs("rm", "-r", f"{folder}/d").out == f"Deleted {folder}/d\n"
    assert not client.exists(f"{folder}/d")


def test_rm_of_nothing_fails_unless_forced(fs: Paxosblock, folder: str) -> None:
    result = fs("rm", f"{folder}/a")
    assert (result.code, result.err) == (1, f"rm: '{folder}/a': no such file or directory\n")
    forced = fs("rm", "-f", f"{folder}/a")
    assert (forced.code, forced.out, forced.err) == (0, "", "")


def test_rm_of_the_root_is_refused(fs: Paxosblock) -> None:
    result = fs("rm", "-r", "/")
    assert (result.code, result.err) == (1, "rm: '/': the root cannot be deleted\n")


# --- mv ------------------------------------------------------------------------------------------


def test_mv_renames_and_moves_into_directories(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"")
    write(client, f"{folder}/b", b"")
    client.mkdirs(f"{folder}/d")
    assert fs("mv", f"{folder}/a", f"{folder}/c").code == 0
    assert fs("mv", f"{folder}/b", f"{folder}/c", f"{folder}/d").code == 0
    assert [entry.path for entry in client.ls(f"{folder}/d")] == [
        f"{folder}/d/b",
        f"{folder}/d/c",
    ]


def test_mv_never_replaces_a_file(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"a")
    write(client, f"{folder}/b", b"b")
    result = fs("mv", f"{folder}/a", f"{folder}/b")
    assert (result.code, result.err) == (1, f"mv: '{folder}/b': exists already\n")


def test_mv_of_several_wants_a_directory(fs: Paxosblock, client: Client, folder: str) -> None:
    result = fs("mv", f"{folder}/a", f"{folder}/b", f"{folder}/c")
    assert (result.code, result.err) == (1, f"mv: '{folder}/c': no such directory\n")


def test_mv_tells_each_source_that_is_missing(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/b", b"")
    client.mkdirs(f"{folder}/d")
    result = fs("mv", f"{folder}/a", f"{folder}/b", f"{folder}/d")
    assert (result.code, result.err) == (1, f"mv: '{folder}/a': no such file or directory\n")
    assert client.exists(f"{folder}/d/b")


# --- concat --------------------------------------------------------------------------------------


def test_concat_joins_files_in_order(fs: Paxosblock, client: Client, folder: str) -> None:
    for name in "abc":
        write(client, f"{folder}/{name}", name.encode())
    result = fs("-concat", f"{folder}/a", f"{folder}/c", f"{folder}/b")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert [entry.path for entry in client.ls(folder)] == [f"{folder}/a"]
    with client.open(f"{folder}/a") as file:
        assert file.read() == b"acb"


def test_concat_that_is_refused_is_one_line_and_changes_nothing(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/a", b"a")
    write(client, f"{folder}/b", b"b")
    result = fs("concat", f"{folder}/a", f"{folder}/b", f"{folder}/nope")
    assert (result.code, result.err) == (
        1,
        f"concat: '{folder}/nope': no such file or directory\n",
    )
    assert (client.stat(f"{folder}/a").size, client.stat(f"{folder}/b").size) == (1, 1)


# --- stat ----------------------------------------------------------------------------------------


def test_stat_fills_in_a_format(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"123")
    result = fs("stat", "%F|%b|%n|%r|%a|%A|%%|%Q", f"{folder}/a")
    assert result.out == "regular file|3|a|3|644|rw-r--r--|%|%Q\n"


def test_stat_shows_the_time_of_the_last_change(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n", fs("stat", folder).out)
    assert fs("stat", "%Y", folder).out == f"{round(client.stat(folder).modified_s * 1000)}\n"


def test_stat_with_json_tells_everything(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"123")
    fact = json.loads(fs("stat", "--json", f"{folder}/a").out)
    assert fact["size"] == 3
    assert fact["durability"] == "disk"
    assert fact["open"] is False


def test_stat_shows_how_many_replicas_are_missing(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    with client.create(f"{folder}/a", replication=5) as out:
        out.write(b"123")
    assert fs("stat", "%m of %r", f"{folder}/a").out == "3 of 5\n"
    fact = json.loads(fs("stat", "--json", f"{folder}/a").out)
    assert (fact["fewest_replicas"], fact["replication"]) == (3, 5)


def test_stat_of_nothing_is_one_line(fs: Paxosblock) -> None:
    result = fs("stat", "/nope")
    assert (result.code, result.err) == (1, "stat: '/nope': no such file or directory\n")


# --- patterns ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("{a.txt,sub/{b.bin,deep}}", ["a.txt", "sub/b.bin", "sub/deep"]),
        ("{sub,.}/*", ["sub/b.bin", "sub/deep"]),
        ("[!a]*", ["sub", "zero"]),
        ("[a-s]*", ["a.txt", "sub"]),
        (r"\a.txt", ["a.txt"]),
        ("{,a}.txt", ["a.txt"]),
        ("**/c.log", ["sub/deep/c.log"]),
        (r"st\*r", ["st*r"]),
    ],
)
def test_patterns_are_those_of_hadoop(
    fs: Paxosblock, client: Client, folder: str, pattern: str, names: list[str]
) -> None:
    for name in ("a.txt", "sub/b.bin", "sub/deep/c.log", "zero"):
        write(client, f"{folder}/{name}", b"")
    if "\\*" in pattern:
        write(client, f"{folder}/st*r", b"")
        write(client, f"{folder}/star", b"")
    assert fs("ls", "-d", "-C", f"{folder}/{pattern}").out.splitlines() == [
        f"{folder}/{name}" for name in names
    ]


def test_what_is_no_pattern_is_refused(fs: Paxosblock, folder: str) -> None:
    result = fs("rm", f"{folder}/{{a")
    assert (result.code, result.out) == (1, "")
    assert result.err == "rm: '{a': Illegal file pattern: Unclosed group at pos 2: `{a`\n"
