"""A DataNode that was upgraded or rolled back says nothing before a NameNode has taken it in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paxosblock.api.datanode import Envelope
from paxosblock.api.reports import Heartbeat, Register
from paxosblock.datanode.data_node import DataNode
from paxosblock.datanode.store.layout import CURRENT
from paxosblock.datanode.volumes.volume_snapshot import PREVIOUS, finalize, is_kept, roll_back
from paxosblock.errors import NotReadyError
from paxosblock.host.disk import OsDisk
from paxosblock.protocol.messages import Finalized, Nack, Read
from tests.datanode.node import BLOCK, frame, name, running
from tests.datanode.test_reporter import create, namenode, reporting
from tests.datanode.test_served_stream import stream_to
from tests.waiting import wait_until_async

UNHEARD = "no NameNode has taken it in yet"


async def check_silent(node: DataNode) -> None:
    """Nothing is promised or told to NameNodes."""
    with pytest.raises(NotReadyError, match=UNHEARD):
        await node.accept(Envelope(node.volumes[0].storage, Read(BLOCK)))


async def test_a_reader_is_told_nothing_either(tmp_path: Path) -> None:
    async with running(tmp_path, upgrade=True) as node, stream_to(node) as (channel, _, _):
        asked = Envelope(node.storage, Read(BLOCK))
        with pytest.raises(NotReadyError, match=UNHEARD):
            await channel.call(asked, block=BLOCK, timeout_s=10)
        await node.volumes[0].be_taken_in()
        assert isinstance(await channel.call(asked, block=BLOCK, timeout_s=10), Nack)


async def test_an_upgraded_or_rolled_back_node_says_nothing_before_it_was_taken_in(
    tmp_path: Path,
) -> None:
    """It may have forgotten what it promised to a cluster that was not rolled back with it."""
    folder = tmp_path / "dn"
    folder.mkdir()
    async with namenode() as (listener, address):
        async with reporting(folder, address) as node:
            assert not node.volumes[0].outside, "who never had a snapshot waits for nobody"
            await create(node)
            assert (await listener.hears(Register)).timelines == ()
        for rolls_back in (False, True):
            if rolls_back:
                roll_back(OsDisk(), [folder])
            listener.leads = False
            listener.heard.clear()
            async with reporting(folder, address, upgrade=not rolls_back) as node:
                await wait_until_async(lambda: len(listener.all(Register)) > 1, what="two tries")
                await check_silent(node)
                (told,) = listener.all(Register)[-1].timelines
                assert (told.timeline == "", told.before) == (rolls_back, ("",))
                listener.leads = True
                await wait_until_async(lambda: not node.volumes[0].outside, what="it is taken in")
                await node.accept(Envelope(node.volumes[0].storage, Read(BLOCK)))
        listener.heard.clear()
        async with reporting(folder, address) as node:
            assert not node.volumes[0].outside, "that it was taken in outlives the process"
            assert (await listener.hears(Register)).timelines == ()


async def test_a_volume_that_fails_before_it_was_taken_in_keeps_none_of_the_others_out(
    tmp_path: Path,
) -> None:
    """It cannot note that any more, so the node would refuse all until it is started again."""
    folders = tmp_path / "a", tmp_path / "b"
    async with running(*folders, upgrade=True) as node, stream_to(node) as (channel, _, _):
        sound, broken = node.volumes
        await sound.be_taken_in()
        asked = Envelope(sound.storage, Read(BLOCK))
        with pytest.raises(NotReadyError, match=UNHEARD):
            await channel.call(asked, block=BLOCK, timeout_s=10)
        broken.fail(OSError("gone"))
        assert isinstance(await channel.call(asked, block=BLOCK, timeout_s=10), Nack)


async def test_a_report_says_whether_a_snapshot_is_kept_also_once_it_was_removed_meanwhile(
    tmp_path: Path,
) -> None:
    async with namenode() as (listener, address), reporting(tmp_path, address, upgrade=True):
        await listener.hears(Heartbeat, lambda beat: beat.storages[0].snapshot)
        assert finalize(OsDisk(), [tmp_path]) == (tmp_path,)
        await listener.hears(Heartbeat, lambda beat: not beat.storages[0].snapshot)


async def test_what_a_snapshot_shares_is_not_counted_twice(tmp_path: Path) -> None:
    async with namenode() as (_, address):
        async with reporting(tmp_path, address) as node:
            await create(node)
            before = node.volumes[0].used_bytes
        async with reporting(tmp_path, address, upgrade=True) as node:
            assert node.volumes[0].used_bytes == before


async def test_a_block_that_is_cut_is_whole_in_the_snapshot(tmp_path: Path) -> None:
    """K8, P5: a block file with two names is not cut in place."""
    async with running(tmp_path) as node:
        await node.create()
        await node.write(2)
        await node.finalize(1, [name(0), name(1)])
    whole = (tmp_path / CURRENT / "blk_7").read_bytes()
    async with running(tmp_path, upgrade=True) as node:
        await node.volumes[0].be_taken_in()
        assert isinstance(await node.finalize(2, [name(0)]), Finalized)
        assert (tmp_path / CURRENT / "blk_7").read_bytes() == frame(0)[1]
        assert (tmp_path / PREVIOUS / CURRENT / "blk_7").read_bytes() == whole


class Finalizing(OsDisk):
    """Another process removes the snapshot between any two looks at the volume's folder."""

    def names(self, folder: Path) -> list[str]:
        """List, and let it go on."""
        found = super().names(folder)
        if folder.name == "dn":
            shutil.rmtree(folder / PREVIOUS)
        return found


def test_a_snapshot_that_vanishes_while_it_is_looked_for_fails_no_volume(tmp_path: Path) -> None:
    folder = tmp_path / "dn"
    (folder / PREVIOUS).mkdir(parents=True)
    (folder / PREVIOUS / "VERSION").touch()
    assert is_kept(OsDisk(), folder)
    assert not is_kept(Finalizing(), folder)
