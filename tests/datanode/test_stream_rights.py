"""A DataNode serves what a NameNode signed: attacks, each without that defence and with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paxosblock.api.capability import BlockKey, Capability, Right, Stamp, key_of, sign
from paxosblock.api.datanode import (
    Admit,
    BlockAdmitted,
    CreateAndWrite,
    CreateAndWriteAll,
    Envelope,
    FetchChunks,
    NoAnswer,
    ReadBytes,
    Run,
    Watch,
)
from paxosblock.datanode import own_keys
from paxosblock.datanode.own_keys import OwnKeys
from paxosblock.datanode.stream_rights import KEPT_MAX, StreamRights
from paxosblock.errors import AccessDeniedError, NotReadyError, OutcomeUnknownError
from paxosblock.net.streams.stream_calls import CallChannel
from paxosblock.net.wire import decode_error
from paxosblock.protocol.messages import Create, Created, Delete, NextGS, Read, ReadReply, Vote
from paxosblock.protocol.read import Version
from paxosblock.protocol.types import NO_GENERATION, BlockId, Durability, Generation
from tests.datanode.node import BLOCK, WINDOW, Node, chunk, frame, running
from tests.datanode.process import Received, Votes
from tests.datanode.test_served_stream import stream_to
from tests.waiting import wait_until_async

NOW_S = 1_800_000_000.0
OTHER = BlockId(8)
SHARED = BlockKey(5, b"shared by NameNodes alone")
OWN = key_of(SHARED, "node-1")
READ = int(Right.READ)
WRITE = int(Right.READ | Right.WRITE)
CREATE = WRITE | int(Right.CREATE)


def signed(
    rights: int = CREATE,
    block: BlockId = BLOCK,
    generation: int = 0,
    until_s: int = int(NOW_S) + 60,
    key: BlockKey = OWN,
) -> bytes:
    return sign(Capability(block, rights, Generation(generation), until_s), (Stamp(key),))[0]


@dataclass
class Attacker:
    """A client of a node with a replica of one chunk, whose capabilities are checked or not."""

    node: Node
    keys: OwnKeys
    channel: CallChannel
    votes: Votes
    now_s: float = NOW_S
    asked: int = 0

    async def call(self, request: Any) -> Any:
        return await self.channel.call(request, timeout_s=20, sink=Received())

    async def create(self, capability: bytes, block: BlockId = OTHER) -> Any:
        create = Create(block, WINDOW, Durability.DISK)
        return await self.call(Envelope(self.node.storage, create, capability=capability))

    async def create_several(self, capability: bytes) -> None:
        """Create `OTHER` behind a block that is allowed. Raises the error of the one."""
        whole = [
            CreateAndWrite(
                self.node.storage,
                Create(block, WINDOW, Durability.DISK, small=True),
                frame(0, block=block)[1],
                allows,
            )
            for block, allows in ((BlockId(9), signed(CREATE, BlockId(9))), (OTHER, capability))
        ]
        first, second = (await self.call(CreateAndWriteAll(tuple(whole)))).each
        assert isinstance(first, Vote)
        if isinstance(second, NoAnswer):
            raise decode_error(second.error)

    async def voted(self, index: int, generation: int = 0, block: BlockId = BLOCK) -> None:
        """Send a chunk, and wait for its vote. Raises the error that closes the stream instead."""
        before = len(self.votes.votes)
        sent = frame(index, chunk(index), generation=generation, block=block)[1]
        self.channel.connection.send(sent)
        await wait_until_async(lambda: len(self.votes.votes) > before or self.votes.lost)
        if self.channel.connection.error is not None:
            raise self.channel.connection.error

    def length(self, block: BlockId = BLOCK) -> int:
        """Chunks at the node, -1 without a replica."""
        found = self.node.acceptor.find(block, self.node.storage)
        return -1 if found is None or found.replica is None else found.replica.length

    def read(self, capability: bytes) -> ReadBytes:
        version = Version(Generation(0), NO_GENERATION, 1)
        return ReadBytes(BLOCK, self.node.storage, version, 0, 100, capability=capability)


@asynccontextmanager
async def attacker(folder: Path, *, defended: bool = True) -> AsyncIterator[Attacker]:
    """A stream to a node that holds chunk 0 of `BLOCK`."""
    async with running(folder) as node:
        await node.create()
        await node.write(1)
        holder: list[Attacker] = []

        def ask() -> None:
            holder[0].asked += 1

        keys = OwnKeys(ask, lambda: holder[0].now_s)
        keys.take((BlockKey(4, b"before"), OWN, key_of(BlockKey(6, b"next"), "node-1")))
        rights = StreamRights(keys, node.acceptor.is_open) if defended else None
        async with stream_to(node, rights) as (channel, votes, _):
            holder.append(Attacker(node, keys, channel, votes))
            yield holder[0]


Attack = Callable[[Attacker], Awaitable[object]]


async def write_without_admission(a: Attacker) -> None:
    await a.voted(1)


async def write_with_a_right_to_read(a: Attacker) -> None:
    await a.call(Admit(BLOCK, signed(READ)))
    await a.voted(1)


async def write_after_a_read(a: Attacker) -> None:
    await a.call(a.read(signed(READ)))
    await a.voted(1)


async def write_another_block(a: Attacker) -> None:
    await a.node.create(OTHER)
    await a.call(Admit(OTHER, signed(WRITE, OTHER)))
    await a.voted(1)


async def write_as_a_successor(a: Attacker) -> None:
    """A writer that was fenced takes the generation of the one that came after it."""
    await a.call(Admit(BLOCK, signed(WRITE)))
    await a.node.next_gs(1)
    await a.node.recover(1, [])
    await a.voted(0, generation=1)


ATTACKS: dict[str, Attack] = {
    "read without a capability": lambda a: a.call(a.read(b"")),
    "read with noise": lambda a: a.call(a.read(bytes(41))),
    "read with one that ended": lambda a: a.call(a.read(signed(READ, until_s=int(NOW_S) - 1))),
    "read with one of another block": lambda a: a.call(a.read(signed(READ, OTHER))),
    "read with one of another DataNode": lambda a: a.call(
        a.read(signed(READ, key=key_of(SHARED, "node-2")))
    ),
    "read with one that a client signed": lambda a: a.call(
        a.read(signed(READ, key=BlockKey(OWN.id, b"mine")))
    ),
    "read with a key that is over": lambda a: a.call(
        a.read(signed(READ, key=BlockKey(3, OWN.key)))
    ),
    "fetch chunks as a DataNode does": lambda a: a.call(
        FetchChunks(BLOCK, a.node.storage, (Generation(0),), 0, 1)
    ),
    "wait for chunks": lambda a: a.call(
        Watch(a.node.storage, Read(BLOCK), Generation(0), 0, 10, signed(READ, OTHER))
    ),
    "ask for the state": lambda a: a.call(Envelope(a.node.storage, Read(BLOCK))),
    "create without a capability": lambda a: a.create(b""),
    "create with a right to write": lambda a: a.create(signed(WRITE, OTHER)),
    "create with one of another block": lambda a: a.create(signed(CREATE)),
    "create and write in one": lambda a: a.call(
        CreateAndWrite(
            a.node.storage,
            Create(OTHER, WINDOW, Durability.DISK, small=True),
            frame(0, block=OTHER)[1],
            signed(WRITE, OTHER),
        )
    ),
    "create and write among several": lambda a: a.create_several(signed(WRITE, OTHER)),
    "fence a writer": lambda a: a.call(
        Envelope(
            a.node.storage,
            NextGS(BLOCK, Generation(9), Generation(0), WINDOW, Durability.DISK),
            capability=signed(CREATE),
        )
    ),
    "delete a replica": lambda a: a.call(
        Envelope(a.node.storage, Delete(BLOCK, Generation(9)), capability=signed(CREATE))
    ),
    "write without admission": write_without_admission,
    "write with a right to read": write_with_a_right_to_read,
    "write after a read": write_after_a_read,
    "write another block than the one admitted": write_another_block,
    "write in the generation of a successor": write_as_a_successor,
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_goes_well_without_the_defence(tmp_path: Path, name: str) -> None:
    async with attacker(tmp_path, defended=False) as a:
        await ATTACKS[name](a)
        assert a.channel.connection.error is None


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_is_refused_and_nothing_done(tmp_path: Path, name: str) -> None:
    async with attacker(tmp_path) as a:
        with pytest.raises(AccessDeniedError) as error:
            await ATTACKS[name](a)
        assert "\n" not in str(error.value)
        assert a.asked == 0
        lost_to_recovery = name == "write in the generation of a successor"
        assert a.length() == (0 if lost_to_recovery else 1)
        assert a.length(OTHER) in {-1, 0}
        found = a.node.acceptor.find(BLOCK, a.node.storage)
        assert found is not None
        assert found.replica is not None
        assert found.replica.registers.max_generation == int(lost_to_recovery)


async def test_the_one_that_was_let_in_writes_and_reads(tmp_path: Path) -> None:
    async with attacker(tmp_path) as a:
        assert isinstance(await a.create(signed(CREATE, OTHER)), Created)
        await a.voted(0, block=OTHER)
        assert await a.call(Admit(BLOCK, signed(WRITE))) == BlockAdmitted(BLOCK)
        await a.voted(1)
        state = Envelope(a.node.storage, Read(BLOCK), capability=signed(READ))
        assert isinstance(await a.call(state), ReadReply)
        whole = CreateAndWrite(
            a.node.storage,
            Create(BlockId(9), WINDOW, Durability.DISK, small=True),
            frame(0, block=BlockId(9))[1],
            signed(CREATE, BlockId(9)),
        )
        assert isinstance(await a.call(whole), Vote)


async def test_one_that_ends_in_the_midst_costs_nothing(tmp_path: Path) -> None:
    async with attacker(tmp_path) as a:
        await a.call(Admit(BLOCK, signed(WRITE)))
        await a.call(a.read(signed(READ)))
        await a.voted(1)
        a.now_s += 3600
        a.keys.take(tuple(BlockKey(number, b"later") for number in (11, 12, 13)))
        await a.voted(2)
        await a.call(a.read(signed(READ)))
        with pytest.raises(AccessDeniedError, match="over or never was"):
            await a.call(a.read(signed(READ, until_s=int(NOW_S) + 61)))


async def test_what_is_kept_of_a_stream_is_bounded_and_costs_nobody_his_block(
    tmp_path: Path,
) -> None:
    async with attacker(tmp_path) as a:
        rights = StreamRights(a.keys, a.node.acceptor.is_open)
        rights.admit_known(Admit(BLOCK, signed(WRITE)))
        for number in range(100, 100 + 3 * KEPT_MAX):
            block = BlockId(number)
            rights.admit_known(Admit(block, signed(WRITE, block)))
        assert len(rights.writes) <= KEPT_MAX + 1
        assert len(rights._checked) <= KEPT_MAX
        rights.check_chunk(frame(1)[0])  # it is still being written


async def test_a_key_that_is_not_known_yet_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with attacker(tmp_path) as a:
        late = key_of(BlockKey(7, b"just made"), "node-1")
        reading = asyncio.ensure_future(a.call(a.read(signed(READ, key=late))))
        await wait_until_async(lambda: a.asked)
        assert not reading.done()
        a.keys.take((BlockKey(5, OWN.key), BlockKey(6, b"next"), late))
        await reading
        monkeypatch.setattr(own_keys, "WAIT_S", 0.01)
        with pytest.raises(NotReadyError, match="no NameNode has told it this key yet"):
            await a.call(a.read(signed(READ, key=BlockKey(99, b"mine"))))


async def test_without_keys_a_node_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_keys, "WAIT_S", 0.01)
    async with running(tmp_path) as node:
        keys = OwnKeys(lambda: None)
        async with stream_to(node, StreamRights(keys, node.acceptor.is_open)) as (channel, _, __):
            a = Attacker(node, keys, channel, Votes())
            with pytest.raises(NotReadyError, match="told it a key yet") as error:
                await a.call(a.read(signed(READ)))
            assert error.value.retriable
            with pytest.raises(AccessDeniedError, match="brings no capability"):
                await a.call(a.read(b""))


async def test_keys_of_a_namenode_that_lags_are_no_step_back(tmp_path: Path) -> None:
    async with attacker(tmp_path) as a:
        a.keys.take((BlockKey(3, b""), BlockKey(4, b""), BlockKey(5, b"")))
        a.keys.take(())
        assert isinstance(await a.call(a.read(signed(READ))), Run)


async def test_a_refused_chunk_closes_the_stream_with_the_reason(tmp_path: Path) -> None:
    async with attacker(tmp_path) as a:
        with pytest.raises(AccessDeniedError, match="block 7: a chunk came, but no capability"):
            await a.voted(1)
        with pytest.raises((AccessDeniedError, OutcomeUnknownError, ConnectionError)):
            await a.call(a.read(signed(READ)))
