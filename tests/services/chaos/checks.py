"""Checks of what must be true when all failures are over: cluster and files are whole."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import Kind
from paxosblock.client.check import BlockCheck
from paxosblock.client.writing.exclusions import LONGEST_REST_S
from paxosblock.protocol.types import BlockId
from tests.services.chaos.writers import Writer
from tests.services.content import content, first_difference
from tests.waiting import wait_until

WHOLE_WITHIN_S: Final = 60.0
"""A DataNode counts as dead for 15 s at most, elections take a second: the rest is a busy machine.
"""
COPIED_WITHIN_S: Final = 120.0
"""For a lost replica to come back; of that a DataNode counts as dead for the first 45 s."""
LAG_MOST: Final = 50
"""Entries that a NameNode may lag behind the leader, under writers that write all the time."""
REPLICATION: Final = 3
BEGUN: Final = 2
"""Blocks that a writer begins before they are looked at."""
PROBE_BYTES: Final = 300_000


def wait_whole(cluster: LocalCluster) -> None:
    """Wait until every node serves and nothing is under recovery."""
    found: list[str] = []

    def whole() -> bool:
        found[:] = troubles(cluster)
        return not found

    try:
        wait_until(whole, WHOLE_WITHIN_S)
    except AssertionError:
        raise AssertionError(
            f"not whole {WHOLE_WITHIN_S:g} s after the last failure: {'; '.join(found)}"
        ) from None


def troubles(cluster: LocalCluster) -> list[str]:
    """Return what is not as it should be; no node is asked to help."""
    ended = [node for node in cluster.nodes if not node.alive]
    if ended:
        return [f"{node.name} has ended: {node.log_tail()}" for node in ended]
    return [*_namenode_troubles(cluster), *_datanode_troubles(cluster)]


def _namenode_troubles(cluster: LocalCluster) -> Iterator[str]:
    live = {node.address for node in cluster.datanodes}
    leaders = 0
    for node in cluster.namenodes:
        standing = cluster.namenode_status(node)
        if standing is None:
            yield f"{node.name} does not answer"
            continue
        leaders += standing.serves
        known = {each.address for each in standing.datanodes if each.state == "live"}
        if standing.trouble:
            yield f"{node.name}: {standing.trouble}"
        if missing := live - known:
            yield f"{node.name} does not hear {', '.join(sorted(missing))}"
        if max(standing.lag.values(), default=0) > LAG_MOST:
            yield f"{node.name} leads members that lag behind: {standing.lag}"
    if leaders != 1:
        yield f"{leaders} NameNodes lead"


def _datanode_troubles(cluster: LocalCluster) -> Iterator[str]:
    if cluster.leader is None:
        return
    status = cluster.status()
    if status.recoveries:
        yield f"{status.recoveries} blocks are under recovery"
    for node in status.datanodes:
        for volume in node.storages:
            if volume.failed:
                yield f"{node.node}: {volume.failed}"


def check_bytes(fs: Client, writer: Writer) -> int:
    """Read all of a writer's file, which has at least what was acknowledged before; its length."""
    acknowledged, closed = writer.acknowledged, writer.closed
    with fs.open(writer.path) as reader:
        data = reader.read()
    difference = first_difference(writer.path, 0, data)
    assert difference is None, f"{writer.path} differs at byte {difference} of {len(data)}"
    assert len(data) >= acknowledged, (
        f"{writer.path} has {len(data)} bytes, {acknowledged} were acknowledged"
    )
    assert not closed or len(data) == acknowledged, f"{writer.path} is longer than it was closed"
    return len(data)


def blocks_of(fs: Client, path: str) -> list[BlockId]:
    """The blocks of a file, in order; all but the last of them are ended."""
    found = fs.locations(path)
    undecided = [at.block for at in found[:-1] if not at.finalized]
    assert not undecided, f"{path}: blocks {undecided} are open, and others come after them"
    return [at.block for at in found]


def check_new_file(fs: Client, path: str) -> int:
    """A file that is written now gets all its replicas; how many blocks it has."""
    with fs.create(path, block_size=PROBE_BYTES // 2, chunk_size=1 << 14) as out:
        out.write(content(path, 0, PROBE_BYTES))
        out.hsync()
        check_members(fs, path, blocks_of(fs, path))
    blocks = blocks_of(fs, path)
    check_replicas(fs, blocks)
    return len(blocks)


def check_members(fs: Client, path: str, blocks: Iterable[BlockId]) -> None:
    """Each block has as many members as it should; an open one's have all voted."""
    for block in blocks:
        view = fs.blocks.get(block)
        members = {member.node for member in view.members if member.live}
        assert len(members) == REPLICATION, (
            f"block {block} of {path} has {len(view.record.members)} members, live are "
            f"{sorted(members)}: {view}"
        )


def check_replicas(fs: Client, blocks: Iterable[BlockId]) -> None:
    """Each of these ended blocks has a sound replica at every member, or soon (P5)."""
    for block in blocks:
        sound = partial(_sound_everywhere, fs, block)
        wait_until(sound, WHOLE_WITHIN_S, f"sound replicas of block {block} at all members")


def _sound_everywhere(fs: Client, block: BlockId) -> bool:
    return fs.blocks.check(block).sound_count == REPLICATION


def wait_replicas(fs: Client) -> int:
    """Wait until each finalized block of all files has its sound replicas, which are read one by
    one, and no other node is a member; return how many blocks there are.

    Whatever was lost or damaged comes back by itself.
    """
    blocks = [
        block
        for found in fs.walk("/")
        if found.kind is Kind.FILE
        for block in _finalized_of(fs, found.path)
    ]
    for block in blocks:
        _wait_sound(fs, block)
    return len(blocks)


def _finalized_of(fs: Client, path: str) -> list[BlockId]:
    return [at.block for at in fs.locations(path) if at.finalized]


def _wait_sound(fs: Client, block: BlockId) -> None:
    found: list[BlockCheck] = []

    def is_whole() -> bool:
        found[:] = [fs.blocks.check(block)]
        return found[0].sound_count == len(found[0].replicas) == REPLICATION

    try:
        wait_until(is_whole, COPIED_WITHIN_S)
    except AssertionError:
        raise AssertionError(f"block {block} has not got its replicas: {found}") from None


def wait_full(writer: Writer) -> float:
    """Wait until a writer's blocks have all their replicas again; return the seconds it took.

    A DataNode that failed it again and again may rest before it is taken again.
    """
    begun_s = time.monotonic()

    def is_full() -> bool:
        if writer.idle:
            writer.give_turn()
        return len(writer.members) == REPLICATION

    wait_until(is_full, LONGEST_REST_S + WHOLE_WITHIN_S, f"a block with all replicas of {writer}")
    return time.monotonic() - begun_s


def check_begun_blocks(fs: Client, writer: Writer) -> int:
    """Check that a steady writer's new blocks have all replicas; return how many it began."""
    known = set(blocks_of(fs, writer.path))

    def begun() -> list[BlockId]:
        found = [block for block in blocks_of(fs, writer.path) if block not in known]
        return found if len(found) >= BEGUN else []

    new = wait_until(begun, WHOLE_WITHIN_S, f"further blocks of {writer}")
    check_members(fs, writer.path, new)
    check_replicas(fs, new[:-1])
    return len(new)
