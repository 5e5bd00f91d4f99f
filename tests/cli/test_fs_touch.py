"""`paxosblock fs` about what is empty: touch, touchz, test, rmdir."""

from __future__ import annotations

import json
import time
from datetime import datetime

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.errors import NotFoundError
from tests.cli.conftest import Paxosblock
from tests.files import write

STAMP = datetime(2020, 1, 2, 3, 4, 5).timestamp()


# --- touch ---------------------------------------------------------------------------------------


def test_touch_makes_a_file_and_sets_its_time(fs: Paxosblock, client: Client, folder: str) -> None:
    result = fs("touch", "-t", "20200102:030405", f"{folder}/a", folder)
    assert (result.code, result.out, result.err) == (0, "", "")
    made = client.stat(f"{folder}/a")
    assert (made.size, made.open, made.modified_s) == (0, False, STAMP)
    assert client.stat(folder).modified_s == STAMP
    before_s = time.time()
    assert fs("touch", "-m", "-a", f"{folder}/a").code == 0
    assert before_s - 0.01 <= client.stat(f"{folder}/a").modified_s <= time.time()


def test_touch_keeps_the_bytes_of_a_file(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"hello")
    assert fs("touch", "-c", "-t", "20200102:030405", f"{folder}/a").code == 0
    status = client.stat(f"{folder}/a")
    assert (status.size, status.modified_s) == (5, STAMP)


def test_touch_c_makes_no_file(fs: Paxosblock, client: Client, folder: str) -> None:
    assert fs("touch", "-c", f"{folder}/a") == fs("ls", folder)
    assert not client.exists(f"{folder}/a")


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("-t", "2020"), (2, "touch: Invalid value for '-t': Unable to parse the specified time")),
        (("-a",), (1, "touch: '-a': the time of the last access is not kept")),
    ],
)
def test_touch_refuses_what_it_cannot_set(
    fs: Paxosblock, client: Client, folder: str, words: tuple[str, ...], refusal: tuple[int, str]
) -> None:
    result = fs("touch", *words, f"{folder}/a")
    assert (result.code, result.out) == (refusal[0], "")
    assert result.err.startswith(refusal[1])
    assert not client.exists(f"{folder}/a")


@pytest.mark.parametrize("verb", ["touch", "touchz"])
def test_they_make_no_directory(fs: Paxosblock, client: Client, folder: str, verb: str) -> None:
    result = fs(verb, f"{folder}/none/a")
    assert result.code == 1
    assert result.err == f"{verb}: '{folder}/none': no such file or directory\n"
    assert not client.exists(f"{folder}/none")


def test_touchz_makes_an_empty_file_and_leaves_one_with_bytes(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/full", b"hello")
    before = client.stat(f"{folder}/full")
    for _ in range(2):
        assert fs("touchz", f"{folder}/a").code == 0
    assert client.stat(f"{folder}/a").size == 0
    result = fs("touchz", f"{folder}/full", folder)
    assert result.code == 1
    assert result.err == (
        f"touchz: '{folder}/full': not a zero-length file\ntouchz: '{folder}': is a directory\n"
    )
    assert client.stat(f"{folder}/full") == before


# --- rmdir ---------------------------------------------------------------------------------------


def test_rmdir_deletes_empty_directories_only(fs: Paxosblock, client: Client, folder: str) -> None:
    client.mkdirs(f"{folder}/empty")
    write(client, f"{folder}/full/file", b"")
    result = fs("rmdir", f"{folder}/empty", f"{folder}/full", f"{folder}/full/file", "/none")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"rmdir: '{folder}/full': directory is not empty\n"
        f"rmdir: '{folder}/full/file': is not a directory\n"
        "rmdir: '/none': no such file or directory\n"
    )
    assert [entry.name for entry in client.ls(folder)] == ["full"]
    assert fs("rmdir", "--ignore-fail-on-non-empty", f"{folder}/full").code == 0
    assert client.exists(f"{folder}/full/file")


# --- test ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("letter", "yes"),
    [
        ("e", {"d", "empty", "full"}),
        ("d", {"d"}),
        ("f", {"empty", "full"}),
        ("s", {"full"}),
        ("z", {"d", "empty"}),
        ("r", {"d", "empty", "full"}),
        ("w", {"d", "empty", "full"}),
    ],
)
def test_test_answers_with_its_exit_code(
    fs: Paxosblock, client: Client, folder: str, letter: str, yes: set[str]
) -> None:
    client.mkdirs(f"{folder}/d")
    write(client, f"{folder}/empty", b"")
    write(client, f"{folder}/full", b"x")
    for name in ("d", "empty", "full", "none"):
        result = fs("test", f"-{letter}", f"{folder}/{name}")
        assert result == fs("-test", f"-{letter}", f"{folder}/{name}")
        assert (result.code, result.out, result.err) == (int(name not in yes), "", "")
    told = json.loads(fs("test", f"-{letter}", "--json", f"{folder}/d").out)
    assert told == {"path": f"{folder}/d", "test": letter, "answer": "d" in yes}


@pytest.mark.plain("it claims to be another user, which a certificate says")
def test_test_asks_for_the_rights_of_the_caller(
    fs: Paxosblock, client: Client, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(client, f"{folder}/a", b"")
    client.set_permission(f"{folder}/a", 0o604)
    monkeypatch.setenv("HADOOP_USER_NAME", "eve")
    assert (fs("test", "-r", f"{folder}/a").code, fs("test", "-w", f"{folder}/a").code) == (0, 1)
    client.set_permission(f"{folder}/a", 0o602)
    assert (fs("test", "-r", f"{folder}/a").code, fs("test", "-w", f"{folder}/a").code) == (1, 0)


@pytest.mark.parametrize(
    ("flags", "line"),
    [((), "No test flag given"), (("-d", "-e"), "Only one test flag is allowed")],
)
def test_test_asks_one_question(fs: Paxosblock, flags: tuple[str, ...], line: str) -> None:
    result = fs("test", *flags, "/")
    assert (result.code, result.out) == (2, "")
    assert result.err == f"test: {line}. Try 'paxosblock fs test --help'.\n"


def test_set_times_is_a_method_of_the_client(client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"")
    assert client.set_times(f"{folder}/a", 1.5).modified_s == 1.5
    with pytest.raises(NotFoundError):
        client.set_times(f"{folder}/none", 1)


def test_content_summary_is_a_method_of_the_client(
    client: Client, cluster: LocalCluster, folder: str
) -> None:
    write(client, f"{folder}/a/b", b"hello")
    found = client.content_summary(folder)
    assert (found.files, found.directories, found.size, found.space) == (1, 2, 5, 15)
    (one,) = client.content_summaries(folder)
    assert (one.status.path, one.summary.size) == (f"{folder}/a", 5)
    names = [entry.path for entry in client.walk(folder, one_state=True)]
    assert names == [f"{folder}/a", f"{folder}/a/b"]
