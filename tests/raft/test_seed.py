"""The map that a new member of a grown cluster begins with: who gets it, and that it is right."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from paxosblock.errors import ConfigError, ProtocolError, UnavailableError
from paxosblock.host.disk import OsDisk
from paxosblock.local.cluster import HeldPorts
from paxosblock.namenode.kv.interface import Versioned
from paxosblock.namenode.kv.rocks_table import ROCKS, RocksTable
from paxosblock.namenode.kv.table import Checkpoint
from paxosblock.namenode.membership import Peers, join
from paxosblock.namenode.raft.admissions_file import (
    JOINED,
    UNNAMED,
    read_admissions,
    write_admissions,
)
from paxosblock.namenode.raft.folder_admission import NOBODYS, Admissions, Admitted, Lineage
from paxosblock.namenode.raft.http_transport import HttpTransport, key_of
from paxosblock.namenode.raft.member_folder import (
    begin_newborn,
    check_member,
    open_folder,
    read_lineage,
)
from paxosblock.namenode.raft.roster import name_of
from paxosblock.namenode.raft.seed import SEED_PATH, Seed, Seeds, fetch_seed
from tests.waiting import wait_until_async

SECRET, OTHER_SECRET = b"a secret of sixteen bytes", b"another one of them bytes"
LINE = Lineage("line", born=False)
WITHIN_S = 30.0
"""Longer than a busy machine takes."""
ITEMS = [(b"k%06d" % number, Versioned(b"v" * 100, number)) for number in range(1, 8000)]


_PORTS = HeldPorts()


@pytest.fixture(autouse=True)
def ports() -> Iterator[None]:
    """Keep each port until its test ends, as one that is given back may be the next one found."""
    yield
    _PORTS.release()


def free_port() -> str:
    return _PORTS.hold("127.0.0.1:0")


@contextlib.asynccontextmanager
async def served(add_to: Callable[[web.Application], None], address: str) -> AsyncIterator[None]:
    """A web application at host:port."""
    app = web.Application()
    add_to(app)
    runner = web.AppRunner(app)
    await runner.setup()
    host, _, port = address.rpartition(":")
    await web.TCPSite(runner, host, int(port)).start()
    try:
        yield
    finally:
        await runner.cleanup()


class MemoryStream:
    """A checkpoint, read as a whole, which is closed each time a member has it."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        data = bytearray()
        while len(data) < checkpoint.size_bytes:
            data += checkpoint.read(1 << 20, len(data))
        checkpoint.close()
        self.data, self.closed = bytes(data), 0

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read(self, size_bytes: int, offset: int) -> bytes:
        return self.data[offset : offset + size_bytes]

    def close(self) -> None:
        self.closed += 1


class Giver:
    """A member that was a cluster's only NameNode: its folder, and what it answers."""

    def __init__(self, folder: Path, lineage: Lineage = LINE, first: str = UNNAMED) -> None:
        self.address, self.joiner, self.third = (free_port() for _ in range(3))
        self.members = (self.address, self.joiner, self.third)
        self.folder, self.lineage, self.copies = folder, lineage, 0
        folder.mkdir(exist_ok=True)
        write_admissions(OsDisk(), folder, Admissions(first, {self.third: "let-in-before"}))
        table = RocksTable(OsDisk(), folder / "filled", new=True)
        table.write(9000, dict(ITEMS), 1)
        self.stream = MemoryStream(table.checkpoint().make())
        table.close()
        self.draft = folder / "draft"
        self.draft.mkdir()
        self.restart()

    def restart(self) -> None:
        """Give as a process does that was started again."""

        async def checkpoint() -> Checkpoint:
            self.copies += 1
            return self.stream

        self.seeds = Seeds(
            self.folder, self.address, lambda: self.members, SECRET, checkpoint=checkpoint
        )
        self.seeds.begin(self.lineage)

    def fetch(
        self, address: str = "", within_s: float = 0.5, members: tuple[str, ...] = ()
    ) -> Awaitable[Seed]:
        """Ask for the catalog, as the member that joins."""
        return fetch_seed(
            address or self.joiner,
            members or self.members,
            SECRET,
            "a-token",
            receive=partial(ROCKS.receive, OsDisk(), self.draft),
            within_s=within_s,
        )

    @contextlib.asynccontextmanager
    async def serving(
        self, instead: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    ) -> AsyncIterator[None]:
        """Answer, or let `instead` do it."""

        def add_to(app: web.Application) -> None:
            if instead is None:
                self.seeds.add_to(app)
            else:
                app.router.add_get(SEED_PATH, instead)

        async with served(add_to, self.address):
            yield

    def peers(self, secret: bytes = SECRET) -> Peers:
        return Peers(self.joiner, self.members, secret, joins=True)


@pytest.fixture
def giver(tmp_path: Path) -> Giver:
    return Giver(tmp_path / "giver")


async def test_a_new_member_begins_with_the_catalog_of_the_first(
    giver: Giver, tmp_path: Path
) -> None:
    async with giver.serving():
        await join(tmp_path, giver.peers(), within_s=WITHIN_S)
    folder = tmp_path / "raft"
    check_member(folder, giver.joiner, giver.members, new_cluster=False)
    assert read_lineage(OsDisk(), folder) == LINE
    assert read_admissions(OsDisk(), folder) == Admissions("", {})
    assert giver.stream.closed == giver.copies == 1
    member = open_folder(OsDisk(), folder, 1 << 20)
    assert list(member.machine.scan(b"", b"")) == ITEMS
    assert (member.tail.last_index, member.votes.vote.term) == (9000, 1)
    member.close()


async def test_one_that_is_a_member_is_not_begun_anew(giver: Giver, tmp_path: Path) -> None:
    async with giver.serving():
        await join(tmp_path, giver.peers(), within_s=WITHIN_S)
        with pytest.raises(ConfigError, match="holds a member already; start without it"):
            await join(tmp_path, giver.peers(), within_s=WITHIN_S)


async def test_one_that_was_cut_short_is_begun_anew(giver: Giver, tmp_path: Path) -> None:
    """The folder that was let in is the same one, which promised nothing yet."""
    (tmp_path / "raft").mkdir()
    newborn = begin_newborn(OsDisk(), tmp_path / "raft")
    receive = partial(ROCKS.receive, OsDisk(), giver.draft)
    async with giver.serving():
        await fetch_seed(
            giver.joiner, giver.members, SECRET, newborn.token, receive=receive, within_s=WITHIN_S
        )
        giver.restart()
        await join(tmp_path, giver.peers(), within_s=WITHIN_S)
    assert read_admissions(OsDisk(), giver.folder).tokens[giver.joiner] == newborn.token
    check_member(tmp_path / "raft", giver.joiner, giver.members, new_cluster=False)


async def test_a_folder_that_was_lost_since_it_was_let_in_gets_nothing(
    giver: Giver, tmp_path: Path
) -> None:
    async with giver.serving():
        await join(tmp_path, giver.peers(), within_s=WITHIN_S)
        shutil.rmtree(tmp_path / "raft")
        with pytest.raises(ConfigError, match="has been a member of this cluster"):
            await join(tmp_path, giver.peers(), within_s=WITHIN_S)
        giver.restart()
        with pytest.raises(ConfigError, match="has been a member of this cluster"):
            await join(tmp_path, giver.peers(), within_s=WITHIN_S)


async def test_only_the_one_that_had_the_catalog_first_lets_others_in(tmp_path: Path) -> None:
    """Another one may have been down when the folder was let in that is lost now."""
    giver = Giver(tmp_path / "giver", first="")
    async with giver.serving():
        with pytest.raises(UnavailableError, match="is not the one that had the catalog first"):
            await giver.fetch()
    copied = Giver(tmp_path / "copied", first="nn1:1")
    async with copied.serving():
        with pytest.raises(UnavailableError, match="is not the one that had the catalog first"):
            await copied.fetch()


async def test_nobody_is_let_in_before_all_others_have_asked_with_an_empty_folder(
    giver: Giver, tmp_path: Path
) -> None:
    """One that has the log of an earlier lineage never asks."""
    write_admissions(OsDisk(), giver.folder, Admissions(giver.address, {}))
    receive = partial(ROCKS.receive, OsDisk(), tmp_path)
    ask = partial(fetch_seed, members=giver.members, secret=SECRET, within_s=0.3)
    async with giver.serving():
        asks = asyncio.ensure_future(giver.fetch())
        await asyncio.wait([asks], timeout=1.0)  # longer than it looks for one with the catalog
        assert not asks.done()
        assert read_admissions(OsDisk(), giver.folder).tokens == {}
        await ask(giver.third, token="its-token", receive=receive)
        await asks
    known = {giver.joiner: "a-token", giver.third: "its-token"}
    assert read_admissions(OsDisk(), giver.folder).tokens == known


async def test_one_that_names_other_members_is_not_let_in(giver: Giver) -> None:
    """It would count other majorities."""
    fewer = (giver.address, giver.joiner)
    async with giver.serving():
        with pytest.raises(ConfigError, match=r"--join: .* has other --peers: "):
            await giver.fetch(members=fewer)


async def test_nobody_is_let_in_before_it_is_written_down(giver: Giver) -> None:
    (giver.folder / f"{JOINED}.tmp").mkdir()  # in the way of the file
    async with giver.serving():
        with pytest.raises(UnavailableError, match="cannot let anybody in now"):
            await giver.fetch()
    assert giver.copies == 0


async def test_the_folder_of_a_single_namenode_does_not_join(giver: Giver, tmp_path: Path) -> None:
    check_member(tmp_path / "raft", giver.joiner, (), new_cluster=False)
    with pytest.raises(ConfigError, match=r"--join: .* holds a member already"):
        await join(tmp_path, giver.peers(), within_s=WITHIN_S)


async def test_one_that_was_heard_of_as_a_member_gets_nothing_ever_again(
    giver: Giver, tmp_path: Path
) -> None:
    """Its folder was a copy, which no token was written down for."""
    async with giver.serving():
        giver.seeds.note(giver.joiner)
        await wait_until_async(
            lambda: giver.joiner in read_admissions(OsDisk(), giver.folder).tokens
        )
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"has been a member .* gets it back"):
                await join(tmp_path, giver.peers(), within_s=WITHIN_S)
            giver.restart()
    assert not (tmp_path / "raft" / "vote").exists()


async def test_one_whose_note_could_not_be_written_is_noted_when_it_is_heard_of_again(
    giver: Giver,
) -> None:
    draft = giver.folder / f"{JOINED}.tmp"
    draft.mkdir()  # in the way of the file

    async def noted() -> bool:
        giver.seeds.note(giver.joiner)
        name = f"note {giver.joiner}"
        await asyncio.gather(*(each for each in asyncio.all_tasks() if each.get_name() == name))
        return giver.joiner in read_admissions(OsDisk(), giver.folder).tokens

    assert not await noted()
    draft.rmdir()
    assert await noted()


async def test_who_does_not_know_the_secret_gets_nothing(giver: Giver, tmp_path: Path) -> None:
    async with giver.serving():
        with pytest.raises(ConfigError, match="does not know the cluster's secret"):
            await join(tmp_path, giver.peers(OTHER_SECRET), within_s=WITHIN_S)


async def test_one_that_is_in_no_list_waits_until_the_leader_adds_it(giver: Giver) -> None:
    async with giver.serving():
        other = free_port()
        fetching = asyncio.ensure_future(giver.fetch(other))
        await wait_until_async(lambda: giver.seeds.waits(other) or fetching.done())
        assert giver.copies == 0
        for token in ("of another folder", giver.seeds.waits(other)):
            admitted = Admitted(name_of(other, token), giver.members, False, 7, giver.address)
            giver.seeds.admit(other, admitted)
        seed = await fetching
        assert seed.admitted == admitted
        assert giver.copies == 1


async def test_a_cluster_whose_members_all_began_empty_lets_nobody_in(tmp_path: Path) -> None:
    giver = Giver(tmp_path, Lineage("line", born=True))
    async with giver.serving():
        with pytest.raises(ConfigError, match="has been a member of this cluster"):
            await giver.fetch()


async def test_one_that_is_not_born_yet_gives_nothing(tmp_path: Path) -> None:
    giver = Giver(tmp_path, NOBODYS)
    async with giver.serving():
        with pytest.raises(UnavailableError, match="is no member yet"):
            await giver.fetch()


async def test_where_nobody_is_it_says_whom_to_start(giver: Giver) -> None:
    with pytest.raises(UnavailableError, match="start the one first that was a cluster's only"):
        await giver.fetch()


async def test_the_first_one_may_come_later(giver: Giver) -> None:
    asking = asyncio.ensure_future(giver.fetch(within_s=30.0))
    await asyncio.sleep(0)
    async with giver.serving():
        assert (await asking).receiver.check() == 9000


@pytest.mark.parametrize("at", [None, 0, 1000, -33, -1])
async def test_bytes_that_were_changed_on_their_way_are_refused(
    giver: Giver, at: int | None
) -> None:
    """A proxy in between passes the question on, and flips a bit of the answer."""
    behind = free_port()

    async def in_between(request: web.Request) -> web.Response:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{behind}{SEED_PATH}", headers=request.headers) as answer,
        ):
            body = bytearray(await answer.read())
            lineage = answer.headers["X-Raft-Lineage"]
        if at is not None:
            body[at] ^= 1
        return web.Response(body=bytes(body), headers={"X-Raft-Lineage": lineage})

    asked = giver.fetch(within_s=5.0)
    async with served(giver.seeds.add_to, behind), giver.serving(in_between):
        if at is None:
            assert (await asked).receiver.check() == 9000
        else:
            with pytest.raises(ProtocolError, match="changed on its way"):
                await asked


async def test_an_answer_that_ends_too_early_is_asked_for_again(giver: Giver) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"X-Raft-Lineage": "line"})
        response.content_length = len(giver.stream.data) + 32
        await response.prepare(request)
        await response.write(giver.stream.data[:1000])
        assert request.transport is not None
        request.transport.close()
        return response

    async with giver.serving(cut):
        with pytest.raises(UnavailableError):
            await giver.fetch()


async def test_an_empty_member_of_the_same_secret_is_a_stranger() -> None:
    """Of another lineage, as its folder was lost: it could elect one that has little."""
    grown, empty = free_port(), free_port()
    members = (grown, empty)
    first = HttpTransport(grown, members, key_of(SECRET, "line"))
    second = HttpTransport(empty, members, key_of(SECRET, "other"))
    heard: list[object] = []
    async with served(first.add_to, grown), served(second.add_to, empty):
        for transport in (first, second):
            transport.start(lambda sender, message: heard.append(message))
        await wait_until_async(
            lambda: first.counters.connections_refused and second.counters.connections_refused
        )
        assert heard == []
        for transport in (first, second):
            await transport.close()
