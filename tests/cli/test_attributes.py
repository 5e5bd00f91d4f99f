"""`paxosblock fs getfattr` and `setfattr`."""

from __future__ import annotations

import json

import pytest

from paxosblock import Client
from tests.cli.conftest import Paxosblock
from tests.files import write


@pytest.mark.parametrize(
    ("written", "value", "shown"),
    [
        ("red", b"red", '"red"'),
        ('"a b"', b"a b", '"a b"'),
        ("0x00FF", b"\x00\xff", "0x00ff"),
        ("0sAP8=", b"\x00\xff", "0x00ff"),
        ("größe", "größe".encode(), '"größe"'),
        ("0x1b5b316d", b"\x1b[1m", "0x1b5b316d"),
    ],
)
def test_a_value_is_set_as_written_and_shown_as_a_terminal_bears_it(
    fs: Paxosblock, client: Client, folder: str, *, written: str, value: bytes, shown: str
) -> None:
    path = f"{folder}/a"
    write(client, path, b"abc")
    result = fs("setfattr", "-n", "user.colour", "-v", written, path)
    assert (result.code, result.out, result.err) == (0, "", "")
    assert client.get_attributes(path) == {"user.colour": value}
    result = fs("getfattr", "-n", "user.colour", path)
    assert (result.code, result.out) == (0, f"# file: {path}\nuser.colour={shown}\n")


def test_all_are_shown_by_name_and_with_R_of_all_below(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/a", b"abc")
    client.set_attributes(f"{folder}/a", {"user.b": b"", "user.a": b"1"})
    result = fs("-getfattr", "-R", "-d", "-e", "hex", folder)
    assert result.out == f"# file: {folder}\n# file: {folder}/a\nuser.a=0x31\nuser.b\n"
    told = json.loads(fs("getfattr", "-d", "--json", f"{folder}/a").out)
    assert told == {"path": f"{folder}/a", "attributes": {"user.a": '"1"', "user.b": '""'}}


def test_one_is_removed_and_one_that_is_not_there_is_said(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    path = f"{folder}/a"
    write(client, path, b"abc")
    client.set_attributes(path, {"user.a": b"1"})
    assert fs("setfattr", "-x", "user.a", path).code == 0
    assert client.get_attributes(path) == {}
    for words in (("setfattr", "-x"), ("getfattr", "-n")):
        result = fs(*words, "user.a", path)
        assert (result.code, result.out) == (1, "")
        assert result.err == f"{words[0]}: '{path}': has no attribute user.a\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("getfattr",), "Must specify '-n name' or '-d' option."),
        (("getfattr", "-d", "-n", "user.a"), "Must specify '-n name' or '-d' option."),
        (("setfattr",), "Must specify '-n name' or '-x name' option."),
        (("setfattr", "-n", "user.a", "-x", "user.a"), "Can not specify both"),
        (("setfattr", "-n", "user.a", "-v", "0xg"), "'0xg' is no value"),
        (("setfattr", "-n", "user.a", "-v", "0s!"), "'0s!' is no value"),
    ],
)
def test_wrong_usage_is_one_line(
    fs: Paxosblock, folder: str, words: tuple[str, ...], line: str
) -> None:
    result = fs(*words, folder)
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert line in result.err


def test_a_name_of_another_kind_is_refused_in_one_line(fs: Paxosblock, folder: str) -> None:
    result = fs("setfattr", "-n", "colour", folder)
    assert (result.code, len(result.err.splitlines())) == (1, 1)
    assert result.err.startswith(f"setfattr: '{folder}': 'colour' is no name of an attribute")
    assert "it begins with user. or trusted." in result.err


def test_the_synchronous_client_asks_for_those_that_are_named(client: Client, folder: str) -> None:
    path = f"{folder}/a"
    write(client, path, b"abc")
    client.set_attributes(path, {"user.a": b"1", "user.b": b"2"})
    assert client.get_attributes(path, "user.b") == {"user.b": b"2"}
    status, found = client.stat_with_attributes(path, "user.a")
    assert (status.path, status.size, found) == (path, 3, {"user.a": b"1"})
