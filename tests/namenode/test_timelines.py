"""A storage that was rolled back and a cluster that was not, and the other way round (FORMAT.md 7).

The cluster's past is the store's content: a copy of it is what NameNodes are rolled back to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paxosblock.api.reports import Register, StorageReport, Timeline
from paxosblock.errors import InvalidRequestError, UnavailableError
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.checks import check_register
from paxosblock.namenode.handlers import register as handle
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit, View
from paxosblock.protocol.types import StorageId
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import new_scene
from tests.raft.alone import opened

STORAGE = StorageId("disk-1")
FIRST = Timeline(STORAGE, "")
UPGRADED = Timeline(STORAGE, "t1", ("",))
"""A snapshot was made in the first timeline."""
TAKEN_IN = Timeline(STORAGE, "t1")
ROLLED_BACK = Timeline(STORAGE, "", ("",))
TWICE = Timeline(STORAGE, "t2", ("", "t1"))
"""No member answered before the second snapshot: it may or may not be known in the one before."""
ROLLED_BACK_TO_SECOND = Timeline(STORAGE, "t1", ("t1",))
STRANGERS = "was rolled back and this cluster was not, or the other way round"


@asynccontextmanager
async def catalog() -> AsyncIterator[Catalog]:
    """A cluster that knows nothing of the storage: it is in its first timeline."""
    found = Catalog(MemoryStore())
    await found.start(5, "cluster-1")
    yield found


@pytest.mark.parametrize(
    "told",
    [
        (UPGRADED,),
        (UPGRADED, UPGRADED, TAKEN_IN),  # the answer was lost, then it was not
        (ROLLED_BACK,),  # NameNodes went back to before it was upgraded, or never heard of that
        (ROLLED_BACK, UPGRADED, TAKEN_IN),
        (TWICE,),
        (UPGRADED, TWICE),  # it was told of the first snapshot, but the answer was lost
        (UPGRADED, TAKEN_IN, Timeline(STORAGE, "t3", ("t1",))),  # finalized, and upgraded again
        (UPGRADED, ROLLED_BACK_TO_SECOND),
    ],
)
async def test_a_storage_whose_past_the_cluster_knows_is_taken_in(
    told: tuple[Timeline, ...],
) -> None:
    async with catalog() as cluster:
        for each in told:
            await cluster.enter_timelines("dn", (each,))
            assert cluster_knows(cluster, STORAGE) == each.timeline


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (UPGRADED, ROLLED_BACK),  # the DataNode alone was rolled back
        (TWICE, ROLLED_BACK),
        (Timeline(STORAGE, "t2", ("", "t1")), ROLLED_BACK_TO_SECOND),
        (FIRST, TAKEN_IN),  # the NameNodes alone were rolled back
        (FIRST, Timeline(STORAGE, "t2", ("t1",))),  # and the DataNode was upgraded again since
        (UPGRADED, Timeline(STORAGE, "t2", ("",))),  # rolled back alone, and upgraded again
        (UPGRADED, Timeline(STORAGE, "other")),  # an older copy of the disk came back
    ],
)
async def test_a_storage_that_was_rolled_back_alone_is_refused_and_nothing_is_changed(
    known: Timeline, told: Timeline
) -> None:
    async with catalog() as cluster:
        await cluster.enter_timelines("dn", (known,))
        with pytest.raises(InvalidRequestError, match=f"DataNode dn: storage disk-1 {STRANGERS}"):
            await cluster.enter_timelines("dn", (Timeline(StorageId("disk-0"), "t9", ("",)), told))
        assert cluster_knows(cluster, STORAGE) == known.timeline
        assert cluster_knows(cluster, StorageId("disk-0")) == "", "nothing of the request was kept"


def cluster_knows(cluster: Catalog, storage: StorageId) -> str:
    """The timeline that a storage is known in."""
    return cluster._store.view().get(b"v" + storage.encode()).value.decode()


class Behind(MemoryStore):
    """A NameNode that follows, and has not heard of anything lately."""

    async def commit(self, edit: Edit) -> Committed | Conflict:
        """Refuse: another one leads."""
        raise UnavailableError("another NameNode leads")

    async def barrier(self) -> View:
        """Refuse: another one leads."""
        raise UnavailableError("another NameNode leads")


async def test_one_that_follows_takes_in_nobody_who_may_have_forgotten_something() -> None:
    """An entry that it has not heard of yet may be the very thing that was forgotten."""
    follower = Catalog(Behind())
    for told in (ROLLED_BACK, UPGRADED, TAKEN_IN):
        with pytest.raises(UnavailableError):
            await follower.enter_timelines("dn", (told,))
    await follower.enter_timelines("dn", (FIRST,))
    assert cluster_knows(follower, STORAGE) == ""


async def test_timelines_outlive_the_namenode(tmp_path: Path) -> None:
    for told in (UPGRADED, TAKEN_IN):
        async with opened(tmp_path) as store:
            cluster = Catalog(store)
            await cluster.start(5, "cluster-1")
            await cluster.enter_timelines("dn", (told,))
            assert cluster_knows(cluster, STORAGE) == "t1"


def register(*timelines: Timeline, cluster: str = "", address: str = "dn:9864") -> Register:
    """Return the registration of a DataNode."""
    room = (StorageReport(STORAGE, 1000, 1000, 0),)
    return Register("dn", address, "run-1", room, cluster, timelines=timelines)


async def test_a_datanode_that_is_refused_is_an_alarm_and_stays_as_it_was_known() -> None:
    scene = await new_scene()
    await handle(scene.node, register(UPGRADED))
    assert scene.node.datanodes.address(STORAGE) == "dn:9864"
    with pytest.raises(InvalidRequestError, match=STRANGERS):
        await handle(scene.node, register(ROLLED_BACK, address="dn:1"))
    assert scene.node.datanodes.address(STORAGE) == "dn:9864"
    assert scene.node.alarms.counts.total() == 1


async def test_a_datanode_of_another_cluster_leaves_no_timeline_here() -> None:
    scene = await new_scene()
    with pytest.raises(InvalidRequestError, match="it is of cluster other"):
        await handle(scene.node, register(UPGRADED, cluster="other"))
    assert cluster_knows(scene.node.catalog, STORAGE) == ""


LONG = "t" * 129


@pytest.mark.parametrize("told", [Timeline(STORAGE, LONG), Timeline(STORAGE, "t", (LONG,))])
def test_a_timeline_of_any_length_is_refused(told: Timeline) -> None:
    with pytest.raises(InvalidRequestError, match="a timeline of 129 characters"):
        check_register(register(told))
