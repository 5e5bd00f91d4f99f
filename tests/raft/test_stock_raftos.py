"""Stock raftos 0.2.6 fails in the same simulator, so there is a subclass for nearly everything."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from raftos.conf import config
from raftos.replicator import ReplicatedDict, ReplicatedList
from raftos.serializers import MessagePackSerializer
from raftos.server import Node
from raftos.storage import FileDict, Log
from raftos.timer import Timer

from tests.raft.stock import shims, simulate_stock
from tests.raft.virtual_time import VirtualTimeLoop

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_l1_l2_stock_erases_applied_entries_without_any_fault(tmp_path: Path, seed: int) -> None:
    counts = simulate_stock(tmp_path, seed)
    assert counts["answered"] > 10
    assert counts["erased"] > 0


def test_l5_stock_leaves_concurrent_writers_waiting(tmp_path: Path) -> None:
    assert simulate_stock(tmp_path, 1, clients=4)["hung"] > 0


def test_l4_stock_commits_nothing_any_more_after_ordinary_leader_changes(tmp_path: Path) -> None:
    outcomes = [simulate_stock(tmp_path / f"{seed}", seed, cut_off=True) for seed in SEEDS]
    assert any(each["wedged"] for each in outcomes)


async def test_p1_stock_nodes_cannot_be_built(tmp_path: Path) -> None:
    with shims(tmp_path, 0), pytest.raises(TypeError, match="loop"):
        Node(("127.0.0.1", 1), asyncio.get_running_loop())


def test_p2_the_stock_serializer_cannot_read() -> None:
    with pytest.raises(TypeError, match="encoding"):
        MessagePackSerializer.unpack(MessagePackSerializer.pack({}))


async def test_p3_stock_containers_cannot_be_changed() -> None:
    with pytest.raises(TypeError, match="await"):
        await ReplicatedDict("one").update({"key": 1})


def test_p4_stock_containers_share_their_content() -> None:
    assert ReplicatedDict("one").value is ReplicatedDict("two").value
    assert ReplicatedList("one").value is ReplicatedList("two").value


def test_s1_a_stock_log_cannot_be_read_from_term_10_on(tmp_path: Path) -> None:
    class Readable(MessagePackSerializer):  # type: ignore[misc]  # raftos has no types
        """Does what P2 means to do."""

        unpack = staticmethod(__import__("msgpack").unpackb)

    before = dict(vars(config))
    config.configure({"log_path": str(tmp_path)})
    try:
        Log("a:1", Readable).write(10, {"key": 1})
        with pytest.raises(ValueError, match=r"extra data|incomplete"):
            Log("a:1", Readable)
    finally:
        vars(config).update(before)


def test_s3_s4_stock_files_are_emptied_before_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        """The disk is full, or the power goes: nothing more can be written."""

        @staticmethod
        def pack(data: object) -> bytes:
            raise OSError("no space left")

        @staticmethod
        def unpack(data: bytes) -> object:
            return {"term": 7}

    file = tmp_path / "a.storage"
    file.write_bytes(b"the vote")
    with pytest.raises(OSError, match="no space"):
        FileDict(str(file), Full).update({"term": 8})
    assert file.read_bytes() == b""


def test_t1_a_stock_timer_cannot_be_stopped_before_it_was_started() -> None:
    loop = VirtualTimeLoop()
    asyncio.set_event_loop(loop)
    try:
        with pytest.raises(AttributeError, match="handler"):
            Timer(1.0, print).stop()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
