"""Calls that show people what no other caller needs: writers, blocks that are not whole, copies
under way, settings, a DataNode and a gateway as they see themselves."""

from __future__ import annotations

from typing import Final

import msgspec

from paxosblock.api.care import BalanceStatus
from paxosblock.api.fsck_call import Finding
from paxosblock.api.methods import Method
from paxosblock.api.namenode import NO_BLOCK
from paxosblock.protocol.types import NO_WRITER, BlockId, StorageId, WriterId

ROWS_MAX: Final = 200
"""Rows in one answer."""
PATHS_SHOWN: Final = 5
"""Files of a writer that are shown."""


class ListWriters(msgspec.Struct, frozen=True):
    """Ask for at most `limit` writers in the order of their names, beginning behind `after`."""

    after: WriterId = NO_WRITER
    limit: int = ROWS_MAX


class WriterLease(msgspec.Struct, frozen=True):
    """A writer that holds `files`; the first of them are at `paths`.

    It began `held_s` ago and last renewed `silent_s` ago; at `soft_s` others may take its files
    over. It calls as `user` from `address`; both are "" for one that this NameNode knows from the
    catalog only, as it began to lead after the writer had begun.
    """

    writer: WriterId
    user: str
    address: str
    held_s: float
    silent_s: float
    soft_s: float
    files: int
    paths: tuple[str, ...]


class Writers(msgspec.Struct, frozen=True):
    """A page of the `total` writers; `more` says that another follows.

    The caller, who is no superuser, does not see the `hidden` ones of other users.
    """

    each: tuple[WriterLease, ...]
    total: int
    hidden: int = 0
    more: bool = False


class ListUnwhole(msgspec.Struct, frozen=True):
    """Ask for at most `limit` blocks that are not as they should be, in the order of their numbers,
    beginning behind `after`; with `worst` only for those that have a damaged replica, or none that
    can be read."""

    after: BlockId = NO_BLOCK
    limit: int = ROWS_MAX
    worst: bool = False


class UnwholeBlocks(msgspec.Struct, frozen=True):
    """A page of the blocks that need something, as far as the NameNode that leads has looked; the
    next one begins behind `next`, None on the last.

    `total` counts all of them, also those that need only a moment and are not shown.
    """

    findings: tuple[Finding, ...]
    total: int
    next: BlockId | None = None


class ShowSettings(msgspec.Struct, frozen=True):
    """Ask a node for its settings that differ from the default."""


class ChangedSetting(msgspec.Struct, frozen=True):
    """A setting by its name, its value and its default, as a user writes them."""

    name: str
    value: str
    default: str


class NodeSettings(msgspec.Struct, frozen=True):
    """The settings of a node of the `section` that differ from the default."""

    section: str
    changed: tuple[ChangedSetting, ...]


class ShowWork(msgspec.Struct, frozen=True):
    """Ask for the copies and the balancing that are under way."""


class CopyUnderWay(msgspec.Struct, frozen=True):
    """A replica that is being made at the storage `target` of DataNode `target_node`, from what
    DataNode `source` has."""

    block: BlockId
    size_bytes: int
    source: str
    target: StorageId
    target_node: str


class Work(msgspec.Struct, frozen=True):
    """The work of the NameNode that leads: some of the `under_way` copies, and the balancing that
    an operator's command asks for, None if there is none.

    Since it started, `made` copies were made and `failed` ones were not; in the last minute it made
    `made_per_s` of them, and copied `bytes_per_s` in these, 0 if it made less than two.
    """

    copies: tuple[CopyUnderWay, ...]
    under_way: int
    made: int
    failed: int
    balance: BalanceStatus | None = None
    made_per_s: float = 0.0
    bytes_per_s: float = 0.0


class VolumeStatus(msgspec.Struct, frozen=True):
    """A volume as its DataNode sees it; `state` is "ok", or why it is not used.

    Room, `scrubbed_ms` and `scrub_ends_ms` are as in `StorageReport`; since the start its scrubber
    has read `scrubbed_bytes` and found `damaged` replicas. `all_read` says that every replica was
    read since the start.
    """

    storage: StorageId
    folder: str
    state: str
    capacity_bytes: int = 0
    used_bytes: int = 0
    free_bytes: int = 0
    deleted_bytes: int = 0
    scrubbed_ms: int = 0
    scrubbed_bytes: int = 0
    damaged: int = 0
    all_read: bool = True
    scrub_ends_ms: int = 0


class DataNodeStatusRequest(msgspec.Struct, frozen=True):
    """Ask a DataNode for its own state."""


class DataNodeStatus(msgspec.Struct, frozen=True):
    """One DataNode as it sees itself; `failure` says why it cannot work, "" while it can.

    It has replicas of `blocks`, `open_blocks` of them are being written, and `streams` are open to
    it. Counts are since its start. `namenodes` are those it reports to.
    """

    node: str
    cluster: str
    failure: str
    volumes: tuple[VolumeStatus, ...]
    namenodes: tuple[str, ...]
    streams: int
    blocks: int
    open_blocks: int
    votes: int
    copied_in_bytes: int
    copied_out_bytes: int


class GatewayStatusRequest(msgspec.Struct, frozen=True):
    """Ask a gateway for its own state. Only its page asks: it serves no calls."""


class DoorStatus(msgspec.Struct, frozen=True):
    """A door of a gateway: where it listens, and the requests that it answered since the start.

    `failed` are those that the gateway or its cluster failed: 5xx, and those of WebHDFS that say so
    with 403; `refused` the others whose status was 4xx. 99 of 100 were answered within `within_s`,
    None if that is longer than any bound or there was none. Bytes are those of files and lists, as
    they came and went.
    """

    door: str
    address: str
    requests: int
    refused: int
    failed: int
    within_s: float | None
    received_bytes: int
    sent_bytes: int


class GatewayStatus(msgspec.Struct, frozen=True):
    """One gateway as it sees itself. It keeps connections for `users`; `under_way_bytes` of at most
    `room_bytes` are on their way through it. Callers `prove` who they are, or claim it. Of several
    `processes` it is the one with the number `worker`, and tells of itself alone."""

    doors: tuple[DoorStatus, ...]
    namenodes: tuple[str, ...]
    connections: int
    users: int
    under_way_bytes: int
    room_bytes: int
    proves: bool
    worker: int = 1
    processes: int = 1


LIST_WRITERS = Method("writers", ListWriters, Writers)
LIST_UNWHOLE = Method("unwhole_blocks", ListUnwhole, UnwholeBlocks)
SHOW_SETTINGS = Method("settings", ShowSettings, NodeSettings)
SHOW_WORK = Method("work", ShowWork, Work)
DATANODE_STATUS = Method("datanode_status", DataNodeStatusRequest, DataNodeStatus)
GATEWAY_STATUS = Method("gateway_status", GatewayStatusRequest, GatewayStatus)
