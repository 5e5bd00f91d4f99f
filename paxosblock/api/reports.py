"""Calls by which every DataNode tells every NameNode that it lives and which replicas it holds.

A storage reports all that it holds page by page in order of the block ids. Each page speaks for a
range of ids and for nothing else, so it can be judged by itself, whichever page is lost, comes
twice, or is overtaken by a change.
"""

from __future__ import annotations

from typing import Final

import msgspec

from paxosblock.api.datanode import ReplicaSummary
from paxosblock.api.methods import Method
from paxosblock.protocol.types import BlockId, Generation, StorageId
from paxosblock.rack import DEFAULT_RACK

LAST_BLOCK: Final = BlockId((1 << 64) - 1)
"""No block has a greater id, of whichever cluster it is."""


class StorageReport(msgspec.Struct, frozen=True):
    """One volume: identity and room in bytes; a failed one says why.

    `used_bytes` is what its block files take, `free_bytes` what further ones may take. The rest of
    its file system's `capacity_bytes` belongs to others or is kept in reserve. `scrubbed_ms` is the
    Unix time at which its DataNode had read all of it for the last time; 0: not yet. `snapshot`:
    one is kept, as `datanode --upgrade` makes it.
    """

    storage: StorageId
    capacity_bytes: int
    free_bytes: int
    used_bytes: int
    failed: str = ""
    scrubbed_ms: int = 0
    snapshot: bool = False


class Timeline(msgspec.Struct, frozen=True):
    """The `timeline` of a storage: each snapshot begins one, and a rollback returns to one.

    While there are some in `before`, the storage may have forgotten what it promised in others, and
    says nothing before a NameNode has answered that it knows the storage in one of those, or in
    this one already.
    """

    storage: StorageId
    timeline: str
    before: tuple[str, ...] = ()


class Register(msgspec.Struct, frozen=True):
    """A DataNode introduces itself; `incarnation` differs for every start of its process.

    `cluster` is the id of the one it belongs to, "" before it learned one; `rack` is where it
    stands, and `host` its machine's name, "" where it does not say. `timelines` are those of the
    storages that had a snapshot; an answer means that the cluster knows the storages in them.
    """

    node: str
    address: str
    incarnation: str
    storages: tuple[StorageReport, ...]
    cluster: str = ""
    rack: str = DEFAULT_RACK
    host: str = ""
    timelines: tuple[Timeline, ...] = ()


class Registered(msgspec.Struct, frozen=True):
    """The id of the NameNode's cluster; "" while it does not know it, before its first leader."""

    cluster: str = ""


class Heartbeat(msgspec.Struct, frozen=True):
    """Alive; open streams count as load for placement."""

    node: str
    incarnation: str
    storages: tuple[StorageReport, ...]
    open_blocks: int


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """`register` asks the DataNode to register and report its blocks again."""

    register: bool
    report: bool = False


class BlockRange(msgspec.Struct, frozen=True):
    """The blocks whose ids are greater than `after` and at most `last`."""

    after: BlockId
    last: BlockId


ALL_BLOCKS: Final = BlockRange(BlockId(0), LAST_BLOCK)


class DeadReplica(msgspec.Struct, frozen=True):
    """A replica whose bytes are damaged (PROTOCOL.md D9): why, and the generation it promised; the
    epoch of its log where not even that can be read."""

    block: BlockId
    max_generation: Generation
    reason: str


class BlockReport(msgspec.Struct, frozen=True):
    """All that one storage holds of the blocks in the range `covers`: `replicas`, and those that
    are `dead`; nothing else.

    Where `covers` is None: replicas that changed, and blocks whose replicas were `deleted`.
    `number` grows with every report of a process; one that comes after a later one was given up by
    its sender, which has reported the same again since.
    """

    node: str
    incarnation: str
    storage: StorageId
    number: int
    covers: BlockRange | None
    replicas: tuple[ReplicaSummary, ...]
    deleted: tuple[BlockId, ...] = ()
    dead: tuple[DeadReplica, ...] = ()


class ReportAnswer(msgspec.Struct, frozen=True):
    """The NameNode knows what the storage holds of the blocks up to `up_to`; a gap ends that.

    If that is not the end of the page, the next page has to begin there. `LAST_BLOCK`: nothing is
    needed before the next full report is due, which is no sooner than `again_after_s`: the more
    replicas a cluster has, the longer it takes to report them all.
    """

    up_to: BlockId
    again_after_s: float = 0.0


REGISTER = Method("register", Register, Registered)
HEARTBEAT = Method("heartbeat", Heartbeat, HeartbeatAnswer)
BLOCK_REPORT = Method("block_report", BlockReport, ReportAnswer)
