"""DataNodes that serve what a NameNode signed: real processes, and keys that change meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.datanode import FIND_REPLICA, FindReplica
from paxosblock.api.namenode import BlockMember, BlockView
from paxosblock.client.blocking.sync import FileWriter
from paxosblock.config import ClientConfig
from paxosblock.errors import AccessDeniedError
from paxosblock.local.cluster_folder import Settings
from paxosblock.net.calls.control import call
from paxosblock.protocol.types import FIRST_GENERATION, ChunkIndex, Generation
from tests.services.conftest import wait_other_leader
from tests.services.content import content

pytestmark = pytest.mark.plain("tokens by themselves, and a cluster without them")

PIECE_BYTES = 50_000
QUICK = ClientConfig(chunk_size=20_000, retry_for_s=20.0, rpc_timeout_s=2.0)
NO_TOKENS: Settings = {"datanode": {"heartbeat_interval": "200ms"}}


def tokens(key_interval: str = "8h") -> Settings:
    return {
        "namenode": {"block_tokens": True, "block_key_interval": key_interval},
        "datanode": {"block_tokens": True, "heartbeat_interval": "200ms"},
    }


@pytest.fixture(scope="module", params=[False, True], ids=["open", "tokens"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalCluster, bool]]:
    """A cluster without the defence, and with it."""
    settings = tokens() if request.param else NO_TOKENS
    with LocalCluster(3, 1, tmp_path_factory.mktemp("tokens"), settings=settings) as cluster:
        yield cluster, request.param


def stolen(member: BlockMember, capability: bytes = b"") -> BlockMember:
    """The member, as an attacker knows it that saw another capability, or none."""
    return msgspec.structs.replace(member, capability=capability)


def test_a_stranger_neither_reads_nor_writes_a_block_that_was_not_shown(
    cluster: tuple[LocalCluster, bool],
) -> None:
    running, defended = cluster
    with Client(running.url, QUICK) as fs, Client(running.url, QUICK) as stranger:
        view = fs.blocks.add()
        block = view.record.block
        for member in view.members:
            fs.blocks.datanode(member).write(block, FIRST_GENERATION, ChunkIndex(0), b"mine")
        seen = stranger.blocks.get(block)  # no users here: everybody may ask to read
        for member in view.members:
            unknown = stranger.blocks.datanode(stolen(member))
            reader = stranger.blocks.datanode(
                next(each for each in seen.members if each.storage == member.storage)
            )
            if not defended:
                assert unknown.read(block) == (FIRST_GENERATION, b"mine")
                assert reader.write(block, FIRST_GENERATION, ChunkIndex(1), b"theirs")
                continue
            with pytest.raises(AccessDeniedError, match="brings no capability"):
                unknown.read(block)
            assert reader.read(block) == (FIRST_GENERATION, b"mine")
            with pytest.raises(AccessDeniedError, match="allows read, not write"):
                reader.write(block, FIRST_GENERATION, ChunkIndex(1), b"theirs")
            with pytest.raises(AccessDeniedError, match="brings no capability"):
                unknown.next_gs(block, Generation(5))
        length = 1 if defended else 2
        assert fs.blocks.finalize(block, length).record.length == length


def test_what_was_signed_for_a_file_is_of_no_use_for_the_next_one_at_its_path(
    cluster: tuple[LocalCluster, bool],
) -> None:
    running, defended = cluster
    with Client(running.url, QUICK) as fs:
        before = written(fs, "/again", b"old")
        fs.delete("/again")
        after = written(fs, "/again", b"new")
        for old, new in zip(by_storage(before), by_storage(after), strict=True):
            replay = fs.blocks.datanode(stolen(new, old.capability))
            if not defended:
                assert replay.read(after.record.block)[1] == b"new"
                continue
            with pytest.raises(AccessDeniedError, match=f"is for block {before.record.block}"):
                replay.read(after.record.block)


def test_one_of_a_datanode_is_of_no_use_at_another(cluster: tuple[LocalCluster, bool]) -> None:
    running, defended = cluster
    with Client(running.url, QUICK) as fs:
        view = written(fs, "/elsewhere", b"data")
        one, other, _ = view.members
        thief = fs.blocks.datanode(stolen(one, other.capability))
        if not defended:
            assert thief.read(view.record.block)[1] == b"data"
            return
        with pytest.raises(AccessDeniedError, match="signed the capability for this node"):
            thief.read(view.record.block)
        wanted = FindReplica(view.record.block, one.storage)
        with pytest.raises(AccessDeniedError):
            call(one.address, FIND_REPLICA, wanted, 5.0)


def written(fs: Client, path: str, data: bytes) -> BlockView:
    """A file of one block, as the NameNode shows that."""
    with fs.create(path) as out:
        out.write(data)
    (place,) = fs.locations(path)
    return fs.blocks.get(place.block)


def by_storage(view: BlockView) -> list[BlockMember]:
    return sorted(view.members, key=lambda each: each.storage)


@dataclass
class Load:
    """A writer and a reader of one file, and small files beside it, while keys are replaced."""

    fs: Client
    out: FileWriter
    pieces: int = 0

    def piece(self) -> None:
        """Write more and read what is there; any error is one of the test."""
        at = self.pieces * PIECE_BYTES
        self.out.write(content("/log", at, at + PIECE_BYTES))
        self.out.hflush()
        self.pieces += 1
        small = f"/small-{self.pieces % 3}"
        with self.fs.create(small, overwrite=True) as whole:
            whole.write(content(small, 0, 100))
        with self.fs.open(small) as whole:
            assert whole.read() == content(small, 0, 100)
        with self.fs.open("/log") as log:
            assert log.pread(at, PIECE_BYTES) == content("/log", at, at + PIECE_BYTES)

    def until_keys_are_others(self, keys: int) -> None:
        """Go on until so many keys came after the one that signs now."""
        self.piece()
        before = last = self.last_key()
        while last < before + keys:
            self.piece()
            last = self.last_key()
            assert last >= before, "keys do not go back"

    def last_key(self) -> int:
        """The id of the key that signs now: the second at which it was made."""
        (place, *_) = self.fs.locations("/log")
        member = self.fs.blocks.get(place.block).members[0]
        return int.from_bytes(member.capability[:4], "little")


def test_keys_that_change_each_second_cost_no_recovery_and_no_error(tmp_path: Path) -> None:
    """A writer writes, a reader reads; then a DataNode is killed, and the NameNode that leads."""
    with (
        LocalCluster(4, 3, tmp_path / "cluster", settings=tokens("1s")) as cluster,
        Client(cluster.url, QUICK) as fs,
        Client(cluster.url, QUICK) as other,
    ):
        load = Load(fs, fs.create("/log"))
        load.piece()
        watched = other.open("/log")  # its capability ends before it reads again
        load.until_keys_are_others(5)
        assert watched.pread(100, 100) == content("/log", 100, 200)
        assert recoveries(cluster) == []

        killed = cluster.datanodes[0]
        killed.kill()
        load.until_keys_are_others(4)
        of_one_block = len({re.findall(r"block=\d+", line)[0] for line in recoveries(cluster)})
        assert of_one_block <= 1, "the block that was open at the DataNode"
        killed.start()
        leader = cluster.wait_leader()
        leader.kill()
        wait_other_leader(cluster, leader)
        load.until_keys_are_others(4)
        leader.start()
        load.out.close()
        with other.open("/log") as file:
            assert file.read() == content("/log", 0, load.pieces * PIECE_BYTES)
        watched.close()


def recoveries(cluster: LocalCluster) -> list[str]:
    """The lines about recoveries in the logs of the NameNodes."""
    lines = [line for node in cluster.namenodes for line in node.log.read_text().splitlines()]
    return [line for line in lines if "recovery starts" in line]
