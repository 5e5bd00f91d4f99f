"""Readers that have a file open while members of its blocks leave and others come (K12, K13)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from paxosblock.base.units import KIB
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.client.session.backoff import Backoff
from tests.client.shipped import (
    NEAR,
    ShippedCluster,
    ShippedDataNode,
    shipped_cluster,
)
from tests.waiting import wait_until_async

DATA = os.urandom(96 * KIB)


@asynccontextmanager
async def half_read() -> AsyncIterator[tuple[ShippedCluster, AsyncClient, AsyncFileReader]]:
    """Six nodes, the first one nearest, and a file of three blocks of which half was read."""
    async with shipped_cluster(6, prefetch_size=4 * KIB, host=NEAR) as (cluster, fs):
        async with await fs.create("/a", chunk_size=4 * KIB, block_size=32 * KIB) as out:
            await out.write(DATA)
        async with await fs.open("/a") as file:
            assert await file.read(48 * KIB) == DATA[: 48 * KIB]
            cluster.calls.clear()
            yield cluster, fs, file


def questions(cluster: ShippedCluster) -> set[str]:
    """Return which calls asked the NameNode about files or blocks."""
    return {name for name in cluster.calls if name.startswith("get_")}


async def leave(cluster: ShippedCluster, *leaving: ShippedDataNode) -> None:
    """Others take the place of these in all blocks (K12, K13), and these drop their replicas."""
    views = await cluster.blocks("/a")

    async def has_left(node: ShippedDataNode) -> bool:
        members = [record.members for record in await cluster.records("/a")]
        return all(len(each) == 3 and node.storage not in each for each in members)

    async def has_dropped(node: ShippedDataNode) -> bool:
        replicas = [
            await cluster.has_replica(member, view.record.block)
            for view in views
            for member in view.members
            if member.storage == node.storage
        ]
        return not any(replicas)

    for node in leaving:
        await cluster.decommission(node)
    for node in leaving:
        await wait_until_async(partial(has_left, node))
        await wait_until_async(partial(has_dropped, node))


async def test_a_reader_goes_on_at_those_who_stay_without_asking_anew() -> None:
    async with half_read() as (cluster, fs, file):
        nearest, *_ = cluster.nodes
        assert {nearest} == {
            cluster.by_storage[view.members[0].storage] for view in await cluster.blocks("/a")
        }
        await leave(cluster, nearest)
        assert await file.read() == DATA[48 * KIB :]
        assert not questions(cluster)
        assert not fs._session.reading.is_suspected(nearest.address), "it is well"


async def test_a_reader_of_a_block_that_has_moved_altogether_asks_once_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def pause(_backoff: Backoff) -> None:
        raise AssertionError("a reader waits although it could know better")

    monkeypatch.setattr(Backoff, "pause", pause)
    async with half_read() as (cluster, _, file):
        await leave(cluster, *await cluster.members("/a"))
        assert await file.read() == DATA[48 * KIB :]
        assert questions(cluster) == {"get_block"}


async def test_a_file_that_is_opened_afterwards_is_read_from_those_who_came() -> None:
    async with half_read() as (cluster, fs, _):
        await leave(cluster, *await cluster.members("/a"))
        async with await fs.open("/a") as file:
            assert await file.read() == DATA
