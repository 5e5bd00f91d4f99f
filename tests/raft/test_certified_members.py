"""Certificates of NameNodes, beside their secret: who has stolen that is no NameNode by it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from paxosblock.errors import ProtocolError, UnavailableError
from paxosblock.namenode.kv.table import Checkpoint
from paxosblock.namenode.raft.birth import BIRTH_PATH, Birth
from paxosblock.namenode.raft.folder_admission import Lineage
from paxosblock.namenode.raft.http_transport import RAFT, HttpTransport, names_of
from paxosblock.namenode.raft.question import FROM, TO, Question, ask, session_of
from paxosblock.namenode.raft.seed import SEED_PATH, Seeds
from paxosblock.net.port.access import Access
from paxosblock.net.port.certified import CertifiedKind
from paxosblock.net.port.tls import Tls
from paxosblock.net.port.upgrade import connect, split_address
from tests.certificates import Certificates
from tests.waiting import wait_until_async

SECRET: Final = b"stolen from a NameNode"
CALLER: Final = "127.0.0.1:1"
"""The member for which the attacker speaks."""
PURPOSES: Final = {BIRTH_PATH: b"birth", SEED_PATH: b"seed  "}
ANSWERED: Final = {BIRTH_PATH: 200, SEED_PATH: 503}
"""The status of an answer to a member: this one has no catalog to give."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


def node(certificates: Certificates, name: str, *, required: bool = True) -> Tls:
    """The certificate of the NameNode, or of a DataNode, as that node has it."""
    kind = CertifiedKind.NAMENODE if name == "namenode" else CertifiedKind.DATANODE
    return Tls(certificates.node(name), certificates.ca, serves=kind, required=required)


def stolen(certificates: Certificates, holder: str) -> Tls:
    """The certificate that the attacker shows beside the secret, of this holder, or none."""
    if not holder:
        return Tls("", certificates.ca)
    return Tls(
        certificates.user() if holder == "user" else certificates.node(holder), certificates.ca
    )


@asynccontextmanager
async def member(folder: Path, tls: Tls) -> AsyncIterator[tuple[str, HttpTransport]]:
    """One that takes messages and answers questions, at this address."""

    async def nothing() -> Checkpoint:
        raise AssertionError("this member has no catalog")

    with socket.create_server(("127.0.0.1", 0)) as port:
        address = f"127.0.0.1:{port.getsockname()[1]}"
        everybody = [address, CALLER]
        transport = HttpTransport(address, [address], SECRET, tls=tls)
        seeds = Seeds(folder, address, lambda: everybody, SECRET, checkpoint=nothing, tls=tls)
        app = web.Application()
        transport.add_to(app)
        seeds.add_to(app)
        Birth(folder, address, everybody, SECRET, Lineage("line", born=True), tls=tls).add_to(app)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.SockSite(runner, port, ssl_context=tls.server).start()
        transport.start(lambda *_: None)
        try:
            yield address, transport
        finally:
            await transport.close()
            await runner.cleanup()


async def answered(address: str, path: str, tls: Tls) -> int:
    """Ask as that member, with the right secret; return the status of the answer."""
    headers = Question.fresh(PURPOSES[path], CALLER, address).headers(SECRET)
    async with (
        session_of(tls, aiohttp.ClientTimeout(total=20)) as session,
        await ask(session, address, path, headers, tls) as found,
    ):
        return found.status


async def speak(address: str, tls: Tls) -> asyncio.Protocol:
    """Connect as that member, with the right secret."""
    return await connect(
        *split_address(address),
        RAFT,
        lambda _: asyncio.Protocol(),
        timeout_s=20,
        headers={FROM: CALLER, TO: address},
        access=Access((SECRET,), tls=tls),
        about=names_of(CALLER, address),
    )


@pytest.mark.parametrize("holder", ["", "user", "datanode-0"])
async def test_a_stolen_secret_makes_no_namenode_of_a_caller(
    certificates: Certificates, tmp_path: Path, holder: str
) -> None:
    thief = stolen(certificates, holder)
    async with member(tmp_path, node(certificates, "namenode")) as (address, transport):
        for path in PURPOSES:
            assert await answered(address, path, thief) == 403
        with pytest.raises(ProtocolError, match="403"):
            await speak(address, thief)
        assert not transport.callers

        namenode = stolen(certificates, "namenode")
        for path, status in ANSWERED.items():
            assert await answered(address, path, namenode) == status
        await speak(address, namenode)
        await wait_until_async(lambda: transport.callers == {CALLER})


@pytest.mark.parametrize("holder", ["", "user", "datanode-0"])
async def test_the_attack_succeeds_while_certificates_are_not_required(
    certificates: Certificates, tmp_path: Path, holder: str
) -> None:
    """As before there were any: a cluster that is being brought over trusts the secret alone."""
    thief, open_to_all = (
        stolen(certificates, holder),
        node(certificates, "namenode", required=False),
    )
    async with member(tmp_path, open_to_all) as (address, transport):
        for path, status in ANSWERED.items():
            assert await answered(address, path, thief) == status
        await speak(address, thief)
        await wait_until_async(lambda: transport.callers == {CALLER})


async def test_a_datanode_at_the_port_of_a_namenode_is_told_nothing(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    namenode = node(certificates, "namenode")
    async with member(tmp_path, node(certificates, "datanode-0", required=False)) as (address, _):
        for path in PURPOSES:
            with pytest.raises(UnavailableError, match="not of a namenode of this cluster"):
                await answered(address, path, namenode)
        caller = HttpTransport(CALLER, [CALLER, address], SECRET, tls=namenode)
        caller.start(lambda *_: None)
        try:
            await wait_until_async(lambda: caller.counters.connections_refused > 0)
        finally:
            await caller.close()
        assert "not of a namenode of this cluster" in caplog.text
