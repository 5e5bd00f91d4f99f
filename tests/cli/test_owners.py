"""`paxosblock fs chmod`, `chown`, `chgrp`."""

from __future__ import annotations

import json

import pytest

from paxosblock import Client
from tests.cli.conftest import Paxosblock
from tests.files import write


def test_chmod_changes_bits_and_prints_nothing(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"abc")
    result = fs("chmod", "u+x,go-rwx", f"{folder}/a")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert client.stat(f"{folder}/a").permission == 0o700
    assert fs("chmod", "1777", folder).code == 0
    assert fs("ls", "-d", folder).out.startswith("drwxrwxrwt")


def test_chmod_of_a_directory_reaches_what_is_below_with_R(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    client.mkdirs(f"{folder}/sub")
    write(client, f"{folder}/sub/b", b"abc")
    assert fs("chmod", "700", folder).code == 0
    assert client.stat(f"{folder}/sub").permission == 0o755
    assert fs("-chmod", "-R", "go-r,o=X", folder).code == 0
    found = {entry.name: entry.permission for entry in client.walk(folder)}
    assert found == {"sub": 0o711, "b": 0o600}


def test_chown_and_chgrp_change_what_is_named(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"abc")
    for words, owner, group in (
        (("chown", "ada:staff"), "ada", "staff"),
        (("chown", "bob"), "bob", "staff"),
        (("chown", "eve:"), "eve", "staff"),
        (("chown", ":dev"), "eve", "dev"),
        (("chgrp", "-R", "ops"), "eve", "ops"),
    ):
        result = fs(*words, folder if "-R" in words else f"{folder}/a")
        assert (result.code, result.out, result.err) == (0, "", "")
        status = client.stat(f"{folder}/a")
        assert (status.owner, status.group) == (owner, group)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("chmod", "u+s"), "mode 'u+s' does not match the expected pattern."),
        (("chmod", "go="), "mode 'go=' does not match the expected pattern."),
        (("chmod", "8"), "mode '8' does not match the expected pattern."),
        (("chown", "a:b:c"), "'a:b:c' does not match expected pattern for [owner][:group]."),
        (("chown", ":"), "':' does not specify owner and group."),
        (("chgrp", "a b"), "'a b' does not match expected pattern for group"),
    ],
)
def test_what_is_no_mode_owner_or_group_is_wrong_usage(
    fs: Paxosblock, folder: str, words: tuple[str, ...], line: str
) -> None:
    result = fs(*words, folder)
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert line in result.err


def test_each_path_that_is_not_there_is_a_line_and_the_others_are_changed(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/a", b"abc")
    result = fs("chmod", "600", f"{folder}/none", f"{folder}/*")
    assert (result.code, result.err) == (
        1,
        f"chmod: '{folder}/none': no such file or directory\n",
    )
    assert client.stat(f"{folder}/a").permission == 0o600


def test_machines_are_told_each_change_and_nothing_else(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/a", b"abc")
    told = [json.loads(line) for line in fs("chmod", "-R", "755", folder, "--json").out.split()]
    assert [(each["path"], each["permission"]) for each in told] == [(f"{folder}/a", 0o755)]
