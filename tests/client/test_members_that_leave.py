"""Readers that have a file open while members of its blocks leave and others come (K12, K13)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from paxosblock.base.units import KIB
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.client.session.backoff import Backoff
from paxosblock.protocol.types import StorageId
from tests.client.memory_cluster import MemoryCluster, memory_cluster

DATA = os.urandom(96 * KIB)


@asynccontextmanager
async def half_read() -> AsyncIterator[tuple[MemoryCluster, AsyncClient, AsyncFileReader]]:
    """Six nodes, the first ones nearer, and a file of three blocks of which half was read."""
    async with memory_cluster(6, prefetch_size=4 * KIB, host="here") as (cluster, fs):
        cluster.distances = {("here", at): n for n, at in enumerate(cluster.by_storage)}
        async with await fs.create("/a", chunk_size=4 * KIB, block_size=32 * KIB) as out:
            await out.write(DATA)
        async with await fs.open("/a") as file:
            assert await file.read(48 * KIB) == DATA[: 48 * KIB]
            cluster.calls.clear()
            yield cluster, fs, file


def members_change(cluster: MemoryCluster, count: int) -> set[StorageId]:
    """So many members of each block are replaced, the nearest first; returns who left one."""
    gone = set()
    for block, before in tuple(cluster.records.items()):
        spare = [at for at in cluster.by_storage if at not in before.members]
        for leaving, coming in zip(sorted(before.members)[:count], spare, strict=False):
            cluster.replace_member(block, leaving, coming)
            gone.add(leaving)
    return gone


async def test_a_reader_goes_on_at_those_who_stay_without_asking_anew() -> None:
    async with half_read() as (cluster, fs, file):
        gone = members_change(cluster, 1)
        assert gone
        assert await file.read() == DATA[48 * KIB :]
        assert cluster.calls == []
        suspected = fs._session.reading.is_suspected
        assert not any(suspected(cluster.by_storage[at].address) for at in gone), "they are well"


async def test_a_reader_of_a_block_that_has_moved_altogether_asks_once_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def pause(_backoff: Backoff) -> None:
        raise AssertionError("a reader waits although it could know better")

    monkeypatch.setattr(Backoff, "pause", pause)
    async with half_read() as (cluster, _, file):
        members_change(cluster, 3)
        assert await file.read() == DATA[48 * KIB :]
        assert set(cluster.calls) == {"get_block"}


async def test_a_file_that_is_opened_afterwards_is_read_from_those_who_came() -> None:
    async with half_read() as (cluster, fs, _):
        members_change(cluster, 3)
        async with await fs.open("/a") as file:
            assert await file.read() == DATA
