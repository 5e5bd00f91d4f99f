"""The token that a program sends: its file, when it is read again, and where it is not sent to."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import pytest

from paxosblock.api.capability import BlockKey
from paxosblock.api.user_tokens import UserToken, seal
from paxosblock.config import (
    ClientConfig,
    DataNodeConfig,
    NameNodeConfig,
    load_config,
    with_settings,
)
from paxosblock.errors import AccessDeniedError, ConfigError
from paxosblock.net.port.access import Access
from paxosblock.net.port.bearer import OwnToken, TokenDoor

KEY = BlockKey(1, bytes(32))
WORD, NEXT = (seal(UserToken(1, n, "ann", (), 1, 1000), KEY) for n in (1, 2))


def written(tmp_path: Path, text: str = WORD + "\n", mode: int = 0o640) -> str:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def access_of(file: str) -> Access:
    return Access.of_client(ClientConfig(token_file=file))


def test_a_client_sends_what_its_file_has(tmp_path: Path) -> None:
    access = access_of(written(tmp_path))
    headers = access.introduction("/calls", "nn1:9870 127.0.0.1:9870").headers
    assert headers["Authorization"] == f"Bearer {WORD}"
    for shown in (repr(access), str(access), repr(access.token)):
        assert WORD not in shown


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (WORD, 0o644, "everybody may read the token: chmod o= it"),
        ("", 0o600, "this is no token"),
        (WORD + " " + NEXT, 0o600, "this is no token"),
        (WORD[:-9], 0o600, "this is no token"),
        ("c2VjcmV0", 0o600, "this is no token"),
    ],
)
def test_a_file_that_is_not_as_it_should_be_is_refused_in_one_line(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    file = written(tmp_path, text, mode)
    with pytest.raises(ConfigError, match=why) as error:
        access_of(file)
    assert f"token_file {file}" in str(error.value)
    assert "\n" not in str(error.value)
    assert not text or text not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        access_of(str(tmp_path / "none"))


def test_a_file_that_was_replaced_counts_from_then_on(tmp_path: Path) -> None:
    file = Path(written(tmp_path))
    token = OwnToken(str(file), looks_every_s=0.0)
    assert token.word == WORD
    for half in ("", NEXT[:20]):
        file.write_text(half)
        assert token.word == WORD, "it is being written"
    file.write_text(NEXT)
    assert token.word == NEXT
    file.unlink()
    assert token.word == NEXT
    file.write_text(WORD)
    file.chmod(0o644)
    assert token.word == NEXT, "everybody may read the one after it"
    file.chmod(0o600)
    os.utime(file)
    assert token.word == WORD


@pytest.mark.parametrize("peer", ["10.0.0.1:9870", "[fd00::1]:9870", "[::ffff:10.0.0.1]:9870"])
def test_a_token_goes_to_no_other_machine_without_tls(tmp_path: Path, peer: str) -> None:
    access = access_of(written(tmp_path))
    dialled = f"nn1:9870 {peer}"
    with pytest.raises(AccessDeniedError, match=r"is not sent to .* without TLS") as error:
        _ = access.introduction("/calls", dialled).headers
    assert WORD not in str(error.value)
    assert "Authorization" in access.introduction("/calls", dialled, hidden=True).headers
    for here in ("127.0.0.1:9870", "[::1]:9870"):
        assert "Authorization" in access.introduction("/calls", f"nn1:9870 {here}").headers
    config = ClientConfig(token_file=written(tmp_path), token_over_plain=True)
    told = Access.of_client(config).introduction("/calls", dialled)
    assert told.headers["Authorization"] == f"Bearer {WORD}"


def test_a_token_is_set_by_programs_and_files_alone(tmp_path: Path) -> None:
    config = with_settings(ClientConfig(), {"token": WORD})
    assert Access.of_client(config).word == WORD
    assert WORD not in repr(config)
    assert pickle.loads(pickle.dumps(config)).token == WORD
    file = tmp_path / "settings.toml"
    file.write_text(f'[client]\ntoken = "{WORD}"\n')
    for where, given in (
        ("PAXOSBLOCK_CLIENT_TOKEN", {"environment": {"PAXOSBLOCK_CLIENT_TOKEN": WORD}}),
        ("settings.toml", {"file": file, "environment": {}}),
        ("--token", {"flags": {"token": WORD}, "environment": {}}),
    ):
        with pytest.raises(ConfigError, match="a token stands in a file of its own") as error:
            load_config(ClientConfig, **given)
        assert where in str(error.value)
        assert WORD not in str(error.value)
    with pytest.raises(ConfigError) as error:
        with_settings(ClientConfig(), {"token": WORD.encode()})
    assert WORD not in str(error.value)
    with pytest.raises(ConfigError, match="name one of them"):
        ClientConfig(token=WORD, token_file="token")


def test_the_variable_names_the_file_for_clients_and_nodes_ignore_it(tmp_path: Path) -> None:
    file = written(tmp_path)
    environment = {"PAXOSBLOCK_TOKEN_FILE": file}
    assert load_config(ClientConfig, environment=environment).token_file == file
    for kind in (NameNodeConfig, DataNodeConfig):
        load_config(kind, environment=environment)


async def test_a_node_that_checks_none_takes_none() -> None:
    door = TokenDoor()
    assert await door.shown({}) is None
    assert await door.shown({"Authorization": "Basic abc"}) is None
    assert await door.shown({"Authorization": "Bearer 1000.abc"}) is None
    with pytest.raises(AccessDeniedError, match="takes no token"):
        await door.shown({"Authorization": f"Bearer {WORD}"})


def test_one_of_an_issuer_is_exchanged_for_datanodes_before_it_ends() -> None:
    foreign, next_one = "eyJhbGciOiJub25lIn0.e30.a", "eyJhbGciOiJub25lIn0.e30.b"
    own = OwnToken(word=foreign)
    at_datanodes = own.for_datanodes()
    assert own.wants_ours
    assert at_datanodes.word == ""
    soon, later = (
        seal(UserToken(1, 3, "ann", (), 1, int(time.time() + ends_s)), KEY) for ends_s in (30, 600)
    )
    own.exchange(foreign, soon)
    assert own.wants_ours
    own.exchange(foreign, later)
    assert not own.wants_ours
    assert (own.word, at_datanodes.word) == (foreign, later)
    assert later in at_datanodes.header("127.0.0.1", hidden=False)["Authorization"]
    assert later not in repr(at_datanodes)
    own.exchange(next_one, later)
    assert own.wants_ours, "that one is of another user, may be"
    ours = OwnToken(word=WORD)
    assert not ours.wants_ours
    assert ours.for_datanodes().word == WORD
