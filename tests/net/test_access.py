"""The access secret: what it takes to call a node that has one, and what a caller makes of one that
has none."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from paxosblock.api.capability import BlockKey
from paxosblock.api.methods import Method
from paxosblock.api.user_tokens import SignedFor, TokenKeys, UserToken, key_at, seal
from paxosblock.datanode.own_keys import OwnTokens
from paxosblock.errors import AccessDeniedError, ConfigError, Outcome, PaxosBlockError
from paxosblock.host.loop import run
from paxosblock.net.calls import control
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.message_frames import MessageFrameKind, pack
from paxosblock.net.port import access
from paxosblock.net.port.access import (
    NONCE,
    OPEN,
    PROOF,
    PROOF_S,
    TO,
    Access,
    dialled,
    make_secret,
)
from paxosblock.net.port.bearer import TokenDoor
from paxosblock.net.port.guard import Guard
from paxosblock.net.port.handshake import PROOF_BYTES
from paxosblock.net.port.own_names import OwnNames
from paxosblock.net.port.refusals import Refusal
from paxosblock.net.port.upgrade import CALLS, STREAM, Spoken, head, split_address
from paxosblock.net.streams.stream import connect
from paxosblock.net.wire import FrameKind, Header, decode_error
from tests.net.relay import relay
from tests.net.streams import Echo, Recorder
from tests.net.streams import node as stream_node
from tests.net.test_call_server import Text, node
from tests.waiting import wait_until_async

A, B = b"the secret of the first cluster.", b"that of another one, or the next"
WORD = base64.b64encode(A)
ONE, OTHER = Access((A,)), Access((B,))
NO_SECRET = (
    "is no secret, one word of base64 or hex of 32 bytes: `paxosblock setup secret` makes one"
)
WAIT = Method("wait_at_once", Text, str)
LOOPS = pytest.mark.parametrize("run_on", [run, asyncio.run], ids=["uvloop", "asyncio"])
Run = Callable[[Any], Any]


# -- its file --------------------------------------------------------------------------------------


def written(tmp_path: Path, text: bytes, mode: int = 0o640) -> str:
    file = tmp_path / "access"
    file.write_bytes(text)
    file.chmod(mode)
    return str(file)


def test_each_line_of_the_file_is_a_secret(tmp_path: Path) -> None:
    text = base64.b64encode(A) + b"\r\n\n" + B.hex().upper().encode() + b" \n"
    assert Access.of(written(tmp_path, text)) == Access((A, B))
    assert Access.of("") == OPEN


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        (WORD, 0o644, "everybody may read the secret: chmod o= it"),
        (b" \n\n", 0o600, "it holds no secret"),
        (WORD + b"\nshort\n", 0o600, f"line 2 {NO_SECRET}"),
        (b"# the secret of our cluster\n" + WORD, 0o600, f"line 1 {NO_SECRET}"),
        (b"\n-----BEGIN PRIVATE KEY-----\n" + WORD, 0o600, f"line 2 {NO_SECRET}"),
        (b"correct horse battery staple", 0o600, f"line 1 {NO_SECRET}"),
        (base64.b64encode(bytes(31)), 0o600, f"line 1 {NO_SECRET}"),
        (base64.b64encode(bytes(33)), 0o600, f"line 1 {NO_SECRET}"),
        (WORD + b" " + WORD, 0o600, f"line 1 {NO_SECRET}"),
        (b"\xff" * 44, 0o600, f"line 1 {NO_SECRET}"),
    ],
)
def test_a_file_that_is_no_secret_is_refused_in_one_line(
    tmp_path: Path, text: bytes, mode: int, words: str
) -> None:
    file = written(tmp_path, text, mode)
    with pytest.raises(ConfigError) as refused:
        Access.of(file)
    assert str(refused.value) == f"access_file {file}: {words}"


def test_a_made_secret_is_read_by_its_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for file in (first, second):
        make_secret(file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Access.of(str(first)) != Access.of(str(second))
    before = first.read_bytes()
    with pytest.raises(FileExistsError):
        make_secret(first)
    assert first.read_bytes() == before


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none: No such file or directory"):
        Access.of(str(tmp_path / "none"))


def test_what_is_shown_of_an_access_shows_no_secret() -> None:
    assert A.decode() not in repr(ONE)


# -- the handshake ---------------------------------------------------------------------------------


def meant(_: str) -> bool:
    """A node at which callers are right whomever they dialled."""
    return True


def hands_shaken(caller: Access, called: Access, path: str = "/calls") -> bool:
    """Both ends of a handshake, without a connection; raises what each of them raises."""
    introduction = caller.introduction("/calls", "n:1 10.0.0.1:1")
    challenge = called.challenge(path, introduction.headers, meant)
    answered = {} if challenge is None else challenge.headers
    proof = introduction.proof("host:1", {name.lower(): text for name, text in answered.items()})
    return challenge is None or challenge.met_by(proof)


def test_two_that_know_one_secret_of_several_understand_each_other() -> None:
    assert hands_shaken(ONE, ONE)
    assert hands_shaken(Access((A, B)), OTHER)
    assert hands_shaken(ONE, Access((B, A)))
    assert hands_shaken(OPEN, OPEN)


@pytest.mark.parametrize(
    ("caller", "called", "words"),
    [
        (OPEN, ONE, "the node serves those only who know the cluster's access secret"),
        (ONE, OTHER, "host:1 has another access secret than ours"),
        (ONE, OPEN, "host:1 has no access secret, and we have one"),
    ],
)
def test_who_does_not_know_the_secret_of_the_other_is_refused(
    caller: Access, called: Access, words: str
) -> None:
    with pytest.raises(AccessDeniedError, match=words) as refused:
        hands_shaken(caller, called)
    assert refused.value.outcome is Outcome.NEVER
    assert not refused.value.retriable


def test_a_proof_is_good_for_one_connection_to_one_path_only() -> None:
    introduction = ONE.introduction(CALLS.path, "n:1 10.0.0.1:1")
    first, second = (ONE.challenge(CALLS.path, introduction.headers, meant) for _ in range(2))
    elsewhere = ONE.challenge(STREAM.path, introduction.headers, meant)
    assert first is not None
    assert second is not None
    assert elsewhere is not None
    proof = introduction.proof("host:1", {n.lower(): text for n, text in first.headers.items()})
    assert first.met_by(proof)
    assert not second.met_by(proof)
    assert not elsewhere.met_by(proof)


def test_a_proof_that_is_turned_back_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger sends a node the proof that it just sent: each end proves in words of its own."""
    introduction = ONE.introduction(CALLS.path, "n:1 10.0.0.1:1")
    challenge = ONE.challenge(CALLS.path, introduction.headers, meant)
    assert challenge is not None
    turned_back = bytes.fromhex(challenge.headers[PROOF])
    assert not challenge.met_by(turned_back)
    monkeypatch.setattr(access, "_OF_CALLER", access._OF_NODE)
    assert challenge.met_by(turned_back), "without that, it is a proof"


def test_the_first_secret_of_a_running_cluster_is_not_required_at_once() -> None:
    on_the_way = Access((A,), required=False)
    for other in (OPEN, ONE, on_the_way):
        assert hands_shaken(on_the_way, other)
        assert hands_shaken(other, on_the_way)
    with pytest.raises(AccessDeniedError, match="another access secret"):
        hands_shaken(on_the_way, OTHER)


# -- who was dialled -------------------------------------------------------------------------------


@LOOPS
def test_what_a_caller_proves_to_one_who_is_no_node_is_good_at_no_node(run_on: Run) -> None:
    async def scenario() -> None:
        async with (
            node(Guard(access=ONE)) as served,
            relay(served.address) as strangers,
            RpcClient(ONE) as client,
        ):
            served.gate.open.set()
            with pytest.raises(AccessDeniedError, match="wanted the node at"):
                await client.call(strangers, WAIT.name, Text("a"), str, 10)
            with pytest.raises(AccessDeniedError, match="wanted the node at"):
                await asyncio.to_thread(control.call, strangers, WAIT, Text("a"), 10.0, ONE)
            assert served.gate.begun == 0
            assert served.count(Refusal.NO_ACCESS) == 2

    run_on(scenario())


def test_no_stream_is_passed_on_to_another_node() -> None:
    """Without a secret, which a caller proves to the node that it dialled, any is."""

    async def scenario() -> None:
        async with (
            stream_node(lambda _: Echo(), access=ONE) as port,
            relay(f"127.0.0.1:{port}") as strangers,
        ):
            with pytest.raises(AccessDeniedError, match="wanted the node at"):
                await connect(*split_address(strangers), Recorder(), access=ONE)
        async with (
            stream_node(lambda _: Echo(), access=OPEN) as port,
            relay(f"127.0.0.1:{port}") as strangers,
        ):
            passed_on = await connect(*split_address(strangers), Recorder(), access=OPEN)
            passed_on.close()
            await passed_on.wait_closed()

    run(scenario())


@pytest.mark.parametrize("own", ["0.0.0.0:9870", ":9870", "[::]:9870", "127.0.0.1:9870"])
def test_no_address_that_other_nodes_have_too_is_a_nodes_own(own: str) -> None:
    names = OwnNames()
    names.add([own, "localhost:9870"])
    for asked in (own, "localhost:9870"):
        host = asked.rpartition(":")[0]
        assert not names.are_in(dialled(host, 9870, ("192.0.2.7", 9870)), ("10.0.0.9", 9870))


def test_a_node_is_known_by_the_address_of_its_socket_or_by_its_name() -> None:
    names = OwnNames()
    names.add(["NN1:9870", "[fe80::1]:9870"])
    assert names.are_in(dialled("nn1", 9870, ("192.0.2.7", 80)), ("10.0.0.9", 9870))
    assert names.are_in(dialled("fe80::1%eth0", 9870, ("192.0.2.7", 80)), ("10.0.0.9", 9870))
    assert names.are_in(dialled("alias", 9870, ("10.0.0.9", 9870)), ("10.0.0.9", 9870))
    assert names.are_in(dialled("x", 1, ("fe80::2%en1", 1, 0, 7)), ("fe80::2%en0", 1, 0, 3))
    for stranger_of in ("nn1:9871", "nn2:9870", "", "nn1", "\udcff:1"):
        assert not names.are_in(stranger_of, ("10.0.0.9", 9870))
    assert not names.are_in("nn2:9870 10.0.0.8:9870", ("10.0.0.9", 9870))
    assert not names.are_in("", None)


# -- the proof of a request without an Upgrade -----------------------------------------------------

MEANT = "nn1:9870 10.0.0.1:9870"


def test_the_proof_of_a_request_is_good_until_its_end() -> None:
    header = "Bearer " + ONE.request_proof("backup", 1000, MEANT)
    ONE.check_request(header, 999.9, "backup", MEANT)
    Access((B, A)).check_request(header, 999.9, "backup", MEANT)
    OPEN.check_request("", 0, "backup", "")
    for now_s in (1000, 1000 - 2 * PROOF_S - 1):
        with pytest.raises(AccessDeniedError, match="clocks of caller and node differ"):
            ONE.check_request(header, now_s, "backup", MEANT)


@pytest.mark.parametrize(
    "header",
    [
        "Bearer 2000." + ONE.request_proof("backup", 1000, MEANT).partition(".")[2],
        "Bearer " + OTHER.request_proof("backup", 2000, MEANT),
        "Bearer " + ONE.request_proof("backup", 2000, MEANT)[:-1],
        "Bearer ²." + ONE.request_proof("backup", 2, MEANT).partition(".")[2],
        "Bearer " + ONE.request_proof("rpc", 2000, MEANT),
    ],
)
def test_a_proof_that_others_made_or_changed_or_of_another_purpose_is_refused(header: str) -> None:
    with pytest.raises(AccessDeniedError, match="not made with the access secret"):
        ONE.check_request(header, 1000, "backup", MEANT)


@pytest.mark.parametrize("header", ["", "Basic 1234", ONE.request_proof("backup", 2000, MEANT)])
def test_a_request_without_a_proof_is_told_what_to_send(header: str) -> None:
    with pytest.raises(AccessDeniedError, match="or bring a token"):
        ONE.check_request(header, 1000, "backup", MEANT)


def test_a_proof_that_is_bound_to_no_node_is_refused() -> None:
    header = "Bearer " + ONE.request_proof("backup", 2000, "")
    with pytest.raises(AccessDeniedError):
        ONE.check_request(header, 1000, "backup", "")


def test_a_proof_is_good_at_the_node_alone_that_was_dialled() -> None:
    asking = ONE.introduction("/backup", MEANT)
    header = asking.proof_header("backup", 1000.0)["Authorization"]
    ONE.check_request(header, 1000.0, "backup", MEANT)
    for elsewhere in ("", "nn2:9870 10.0.0.2:9870"):
        with pytest.raises(AccessDeniedError):
            ONE.check_request(header, 1000.0, "backup", elsewhere)


# -- at a node -------------------------------------------------------------------------------------


@LOOPS
def test_calls_are_answered_to_those_who_know_the_secret(run_on: Run) -> None:
    async def scenario() -> None:
        async with node(Guard(access=ONE)) as served, RpcClient(ONE) as client:
            served.gate.open.set()
            calls = (
                client.call(served.address, WAIT.name, Text(text), str, 10) for text in ("a", "b")
            )
            assert await asyncio.gather(*calls) == ["a", "b"]
            by_command = asyncio.to_thread(control.call, served.address, WAIT, Text("c"), 10.0, ONE)
            assert await by_command == "c"

    run_on(scenario())


@pytest.mark.parametrize(("caller", "refused"), [(OPEN, 1), (OTHER, 0)])
def test_calls_of_others_are_refused_before_anything_is_done(caller: Access, refused: int) -> None:
    async def scenario() -> None:
        async with node(Guard(access=ONE)) as served, RpcClient(caller) as client:
            with pytest.raises(AccessDeniedError) as by_client:
                await client.call(served.address, WAIT.name, Text("a"), str, 10)
            with pytest.raises(AccessDeniedError):
                await asyncio.to_thread(control.call, served.address, WAIT, Text("a"), 10.0, caller)
            assert by_client.value.outcome is Outcome.NEVER
            assert served.gate.begun == 0
            assert served.count(Refusal.NO_ACCESS) == 2 * refused

    run(scenario())


async def stranger(address: str, spoken: Spoken) -> tuple[Any, Any]:
    """The connection of one who asks as if it knew the secret."""
    reader, writer = await asyncio.open_connection(*split_address(address))
    asked = {NONCE: "00" * 16, TO: dialled(*split_address(address), split_address(address))}
    writer.write(head(address, spoken, asked))
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


@LOOPS
def test_a_call_behind_a_wrong_proof_is_not_heard(run_on: Run) -> None:
    async def scenario() -> None:
        async with node(Guard(access=ONE)) as served:
            reader, writer = await stranger(served.address, CALLS)
            writer.write(bytes(PROOF_BYTES) + pack(MessageFrameKind.CALL, 1, b"", b"wait_at_once"))
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 20) == b""
            assert served.gate.begun == 0
            assert served.count(Refusal.NO_ACCESS) == 1
            writer.close()

    run_on(scenario())


@LOOPS
def test_a_proof_may_come_in_pieces_and_together_with_the_first_call(run_on: Run) -> None:
    async def scenario() -> None:
        async with node(Guard(access=ONE)) as served:
            served.gate.open.set()
            place = split_address(served.address)
            introduction = ONE.introduction(CALLS.path, dialled(*place, place))
            reader, writer = await asyncio.open_connection(*place)
            writer.write(head(served.address, CALLS, introduction.headers))
            answered = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            headers = dict(line.split(": ") for line in answered if ": " in line)
            proof = introduction.proof("host:1", headers)
            writer.write(proof[:5])
            await writer.drain()
            call = pack(MessageFrameKind.CALL, 1, b"\x81\xa4text\xa1a", b"wait_at_once")
            writer.write(proof[5:] + call)
            assert (await asyncio.wait_for(reader.read(100), 20)).endswith(b"\xa1a")
            writer.close()

    run_on(scenario())


@LOOPS
def test_a_stream_carries_frames_for_those_who_know_the_secret(run_on: Run) -> None:
    async def scenario() -> None:
        async with stream_node(lambda _: Echo(), access=ONE) as port:
            heard = Recorder()
            connection = await connect("127.0.0.1", port, heard, access=ONE)
            payload = bytes(range(256)) * 4096
            connection.send_frame(Header.of(FrameKind.REPLY, payload), payload)
            _, frame = await asyncio.wait_for(heard.frames.get(), 20)
            assert frame.endswith(payload)
            connection.close()
            for other in (OPEN, OTHER):
                with pytest.raises(AccessDeniedError):
                    await connect("127.0.0.1", port, Recorder(), access=other)

    run_on(scenario())


def test_a_stream_on_which_no_proof_comes_is_closed() -> None:
    async def scenario() -> None:
        handlers: list[Echo] = []

        def make(_: object) -> Echo:
            handlers.append(Echo())
            return handlers[-1]

        async with stream_node(make, access=ONE, stall_s=0.05) as port:
            _, writer = await stranger(f"127.0.0.1:{port}", STREAM)
            await wait_until_async(lambda: handlers[0].lost is not None)
            writer.close()

    run(scenario())


def test_over_http_a_call_wants_a_token() -> None:
    async def scenario() -> None:
        access = replace(ONE, door=TokenDoor())
        async with node(Guard(access=access)) as served, aiohttp.ClientSession() as http:
            served.gate.open.set()
            url = f"http://{served.address}/rpc/wait"
            body, kind = b"\x81\xa4text\xa1a", {"Content-Type": "application/msgpack"}
            async with http.post(url, data=body) as refused:
                assert refused.status == 403
                error: PaxosBlockError = decode_error(await refused.read())
            assert isinstance(error, AccessDeniedError)
            key = BlockKey(1, b"a key that all NameNodes know")
            word = seal(UserToken(1, 2, "ann", (), 1, int(time.time()) + 60), key)
            headers = kind | {"Authorization": f"Bearer {word}"}
            async with http.post(url, data=body, headers=headers) as refused:
                assert refused.status == 403, "this node knows no token"
            told = OwnTokens(lambda: None)
            told.take(TokenKeys(1, (key_at(key, SignedFor.DATANODE),)))
            access.door.checks = told
            async with http.post(url, data=body, headers=headers) as answered:
                assert (answered.status, await answered.read()) == (200, b"\xa1a")
            async with http.get(f"http://{served.address}/nothing/here") as unknown:
                assert unknown.status == 403
            assert served.count(Refusal.NO_ACCESS) == 3

    run(scenario())
