"""Calls by which every DataNode tells every NameNode that it lives and which replicas it holds.

A storage reports all its replicas page by page, in order of the block ids. Each page speaks only
for a range of ids. So a NameNode can judge it by itself, even if another page is lost, comes twice,
or is overtaken by a change.
"""

from __future__ import annotations

from typing import Final

import msgspec

from paxosblock.api.capability import BlockKey
from paxosblock.api.datanode import ReplicaSummary
from paxosblock.api.methods import Method
from paxosblock.api.user_tokens import TokenKeys
from paxosblock.base.rack import DEFAULT_RACK
from paxosblock.base.units import MIB
from paxosblock.protocol.types import BlockId, Generation, StorageId

LAST_BLOCK: Final = BlockId((1 << 64) - 1)
"""No block of any cluster has a greater id."""


class StorageReport(msgspec.Struct, frozen=True):
    """One volume: its identity and its room in bytes; `failed` is the reason if it failed.

    Block files take `used_bytes`, and further ones may take `free_bytes`. The used bytes include
    `deleted_bytes`, which belong to replicas that are gone and go back soon. The rest of the file
    system's `capacity_bytes` belongs to others or is kept in reserve. `scrubbed_ms` is the Unix
    time at which its DataNode last finished reading all of it, 0 if it never has, `scrub_ends_ms`
    the one at which it will have done so again at its pace so far, 0 if there is no telling.
    `snapshot` says that the volume keeps one, as `datanode --upgrade` makes it.
    """

    storage: StorageId
    capacity_bytes: int
    free_bytes: int
    used_bytes: int
    failed: str = ""
    scrubbed_ms: int = 0
    snapshot: bool = False
    deleted_bytes: int = 0
    scrub_ends_ms: int = 0


class Timeline(msgspec.Struct, frozen=True):
    """The `timeline` of a storage: each snapshot begins one, and a rollback returns to one.

    While `before` names some, the storage may have forgotten promises that it made in others. It
    stays silent until a NameNode answers that it knows the storage in one of those named, or
    already in this one.
    """

    storage: StorageId
    timeline: str
    before: tuple[str, ...] = ()


class Register(msgspec.Struct, frozen=True):
    """A DataNode introduces itself; `incarnation` differs for every start of its process.

    `cluster` is the id of its cluster, "" before it has learned that; `rack` is its rack; `host` is
    the name of its machine, "" if it does not say. `timelines` are those of the storages that had a
    snapshot; an answer means that the cluster knows the storages in them. `heartbeat_s` are the
    seconds between its heartbeats, 0 if it does not say.
    """

    node: str
    address: str
    incarnation: str
    storages: tuple[StorageReport, ...]
    cluster: str = ""
    rack: str = DEFAULT_RACK
    host: str = ""
    timelines: tuple[Timeline, ...] = ()
    heartbeat_s: float = 0.0


class Registered(msgspec.Struct, frozen=True, omit_defaults=True):
    """The id of the NameNode's cluster; "" while that is unknown, before the first leader.

    `keys` are those of the DataNode alone, and `tokens` what it checks tokens of users by, as in
    `HeartbeatAnswer`.
    """

    cluster: str = ""
    keys: tuple[BlockKey, ...] = ()
    tokens: TokenKeys | None = None


class Heartbeat(msgspec.Struct, frozen=True):
    """A DataNode is alive; placement counts its open blocks as load. `tokens_at` is the number of
    what it was told of tokens of users."""

    node: str
    incarnation: str
    storages: tuple[StorageReport, ...]
    open_blocks: int
    tokens_at: int = 0


class HeartbeatAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """`register` asks the DataNode to register and report its blocks again. `namenodes` is the list
    of NameNodes, as it was after entry `namenodes_at` of the log; none of a cluster's only one.

    `keys` are those by which the DataNode knows what a NameNode signed for it (`capability.py`),
    oldest first; none if capabilities are off. `tokens` is what it checks tokens of users by, if
    that has changed since its `tokens_at`.
    """

    register: bool
    report: bool = False
    namenodes: tuple[str, ...] = ()
    namenodes_at: int = 0
    keys: tuple[BlockKey, ...] = ()
    tokens: TokenKeys | None = None


class BlockRange(msgspec.Struct, frozen=True):
    """The blocks whose ids are greater than `after` and at most `last`."""

    after: BlockId
    last: BlockId


ALL_BLOCKS: Final = BlockRange(BlockId(0), LAST_BLOCK)


class DeadReplica(msgspec.Struct, frozen=True):
    """A replica whose bytes are damaged (PROTOCOL.md D9), and the `reason`.

    `max_generation` is the generation it promised, or the epoch of its log if the promise cannot be
    read.
    """

    block: BlockId
    max_generation: Generation
    reason: str


class BlockReport(msgspec.Struct, frozen=True):
    """All replicas of one storage in the range `covers`: the `replicas` and those that are `dead`.

    If `covers` is None, the report has replicas that changed, and blocks whose replicas were
    `deleted`. `number` grows with every report of a process; a report that arrives behind one with
    a greater number is void, because its sender gave it up and has reported the same again since.
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
    """The NameNode knows the storage's replicas, without a gap, of the blocks up to `up_to`.

    If that is not the end of the page, the next page has to begin there. `LAST_BLOCK` says that the
    NameNode needs no more before the next full report, which is due after `again_after_s` at the
    earliest: the more replicas a cluster has, the longer it takes to report them all.
    """

    up_to: BlockId
    again_after_s: float = 0.0


REGISTER = Method("register", Register, Registered, request_bytes_max=16 * MIB)
HEARTBEAT = Method("heartbeat", Heartbeat, HeartbeatAnswer)
BLOCK_REPORT = Method("block_report", BlockReport, ReportAnswer, request_bytes_max=64 * MIB)
