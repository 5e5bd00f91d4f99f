"""`paxosblock fs rm` with a trash, and `expunge`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from paxosblock import Client
from tests.cli.conftest import Paxosblock, Result
from tests.files import read, write

USER = "ben"
TRASH = f"/user/{USER}/.Trash"


@pytest.fixture
def home(client: Client) -> Iterator[str]:
    """The home of a user who is no superuser."""
    client.mkdirs(f"/user/{USER}")
    client.set_owner(f"/user/{USER}", USER)
    yield f"/user/{USER}"
    client.delete("/user", recursive=True)


@pytest.fixture
def ben(fs: Paxosblock, monkeypatch: pytest.MonkeyPatch, home: str) -> Paxosblock:
    """Run a command in the name of that user, with a trash."""

    def command(*words: str | os.PathLike[str]) -> Result:
        with monkeypatch.context() as patched:
            patched.setenv("HADOOP_USER_NAME", USER)
            patched.setenv("PAXOSBLOCK_CLIENT_TRASH_INTERVAL", "1h")
            return fs(*words)

    return command


def checkpoint(age_s: float) -> str:
    return time.strftime("%y%m%d%H%M%S", time.localtime(time.time() - age_s))


@pytest.fixture
def shared(client: Client, folder: str) -> str:
    """A directory in which every user may write."""
    client.set_permission(folder, 0o777)
    return folder


def test_rm_moves_to_the_trash_under_the_whole_path(
    ben: Paxosblock, client: Client, shared: str
) -> None:
    write(client, f"{shared}/d/a", b"theirs")
    result = ben("rm", "-r", f"{shared}/d")
    place = f"{TRASH}/Current{shared}/d"
    assert (result.code, result.err) == (0, "")
    assert result.out == f"Moved: '{shared}/d' to trash at: {place}\n"
    assert not client.exists(f"{shared}/d")
    assert read(client, f"{place}/a") == b"theirs"
    assert client.stat(f"{place}/a").owner != USER, "it keeps its owner"
    assert {client.stat(path).permission for path in (TRASH, f"{TRASH}/Current")} == {0o700}


def test_a_name_that_is_taken_gets_the_time_and_nothing_is_replaced(
    ben: Paxosblock, client: Client, shared: str
) -> None:
    for content in (b"1", b"2", b"3"):
        write(client, f"{shared}/a", content)
        assert ben("rm", f"{shared}/a").code == 0
    below = f"{TRASH}/Current{shared}"
    assert sorted(read(client, each.path) for each in client.ls(below)) == [b"1", b"2", b"3"]
    write(client, f"{shared}/a/in", b"in a directory of that name")
    client.set_permission(f"{shared}/a", 0o777)
    told = json.loads(ben("rm", "--json", f"{shared}/a/in").out)
    assert told["moved"] == f"{shared}/a/in"
    assert read(client, told["trash"]) == b"in a directory of that name"
    assert read(client, f"{below}/a") == b"1"


@pytest.mark.parametrize("words", ["-skipTrash {0}/a", "-r " + TRASH, TRASH + "/Current/x"])
def test_rm_deletes_with_skip_trash_and_in_the_trash(
    ben: Paxosblock, client: Client, shared: str, words: str
) -> None:
    for path in (f"{shared}/a", f"{TRASH}/Current/x"):
        write(client, path, b"x")
    for path in (TRASH, f"{TRASH}/Current", f"{TRASH}/Current/x"):
        client.set_owner(path, USER)
    words = words.format(shared)
    result = ben("rm", *words.split())
    path = words.split()[-1]
    assert (result.code, result.out, result.err) == (0, f"Deleted {path}\n", "")
    assert not client.exists(path)


@pytest.mark.parametrize("path", ["/user", f"/user/{USER}", "/"])
def test_what_contains_the_trash_stays(ben: Paxosblock, client: Client, path: str) -> None:
    result = ben("rm", "-r", path)
    text = f"rm: '{path}': cannot be moved to the trash, as it contains the trash\n"
    assert (result.code, result.out, result.err) == (1, "", text)
    assert client.exists(f"/user/{USER}")


@pytest.mark.plain("it claims to be another user, which a certificate says")
def test_what_cannot_be_moved_stays_and_the_error_names_a_way(
    ben: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/a", b"not his")
    result = ben("rm", f"{folder}/a")
    assert result.code == 1
    assert "cannot be moved to the trash: permission denied" in result.err.lower()
    assert result.err.endswith("Consider -skipTrash\n")
    assert read(client, f"{folder}/a") == b"not his"


def test_without_an_interval_deleted_is_deleted(
    fs: Paxosblock, client: Client, home: str, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(client, f"{shared}/a", b"x")
    monkeypatch.setenv("HADOOP_USER_NAME", USER)
    assert fs("rm", f"{shared}/a").out == f"Deleted {shared}/a\n"
    assert not client.exists(TRASH)


def test_expunge_deletes_checkpoints_that_are_old_and_makes_one(
    ben: Paxosblock, client: Client, shared: str
) -> None:
    write(client, f"{shared}/a", b"x")
    assert ben("expunge").out == ""
    assert ben("rm", f"{shared}/a").code == 0
    old, young = checkpoint(3700), checkpoint(3000)
    for name in (old, f"{old}-1", young, "kept"):
        client.mkdirs(f"{TRASH}/{name}/d")
        for path in (f"{TRASH}/{name}", f"{TRASH}/{name}/d"):
            client.set_owner(path, USER)
    result = ben("expunge")
    lines = result.out.splitlines()
    assert lines[:2] == [f"Deleted {TRASH}/{name}" for name in (old, f"{old}-1")]
    made = lines[2].removeprefix("Created ")
    assert made.startswith(f"{TRASH}/{checkpoint(0)[:6]}") or checkpoint(0)[:6] != made[-12:-6]
    assert read(client, f"{made}{shared}/a") == b"x"
    assert {each.name for each in client.ls(TRASH)} == {young, "kept", made.rpartition("/")[2]}
    assert ben("expunge").out == ""


@pytest.mark.plain("it claims to be another user, which a certificate says")
def test_expunge_of_all_and_at_once_is_for_a_superuser(
    fs: Paxosblock,
    ben: Paxosblock,
    client: Client,
    shared: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(client, f"{shared}/a", b"x")
    assert ben("rm", f"{shared}/a").code == 0
    client.mkdirs(f"{TRASH}/{checkpoint(10)}")
    with monkeypatch.context() as patched:
        patched.setenv("HADOOP_USER_NAME", "eve")
        assert fs("expunge", "--all", "-immediate").code == 1
    assert client.exists(f"{TRASH}/Current{shared}/a")
    assert fs("expunge", "--all", "-immediate").code == 0
    assert client.ls(TRASH) == []
