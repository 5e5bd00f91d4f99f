"""The pages, a struct each, and how each is made of the answers to calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from paxosblock.api.care import LEAVING, Leaving, LeavingNode, LeavingRequest
from paxosblock.api.datanode import FIND_REPLICA, FindReplica, ReplicaSummary
from paxosblock.api.file_pages import GET_FILE, FileView, GetFile
from paxosblock.api.insight import (
    DATANODE_STATUS,
    GATEWAY_STATUS,
    LIST_UNWHOLE,
    LIST_WRITERS,
    SHOW_SETTINGS,
    SHOW_WORK,
    DataNodeStatus,
    DataNodeStatusRequest,
    GatewayStatus,
    GatewayStatusRequest,
    ListUnwhole,
    ListWriters,
    NodeSettings,
    ShowSettings,
    ShowWork,
    UnwholeBlocks,
    Work,
    Writers,
)
from paxosblock.api.methods import Method
from paxosblock.api.namenode import (
    LIST,
    STAT,
    BlockMember,
    BlockRequest,
    BlockView,
    FileStatus,
    Kind,
    ListDirectory,
    PathRequest,
)
from paxosblock.api.reports import LAST_BLOCK
from paxosblock.api.status import (
    CLUSTER_STATUS,
    EXPLAIN,
    NAMENODE_STATUS,
    BlockExplanation,
    ClusterStatus,
    ClusterStatusRequest,
    NameNodeStatus,
    NameNodeStatusRequest,
    NodeStatus,
)
from paxosblock.base.paths import join, split
from paxosblock.errors import (
    AccessDeniedError,
    InvalidRequestError,
    PaxosBlockError,
    PermissionDeniedError,
)
from paxosblock.page.health import Health, HealthLevel, health_of
from paxosblock.page.life import Life, life_of
from paxosblock.protocol.types import BlockId, WriterId

Q = TypeVar("Q")
A = TypeVar("A")

ROWS: Final = 20
"""Rows of each list on the first page; pages of their own have the rest."""
NUMBER_DIGITS: Final = 20
"""Digits of the greatest number of a block."""
FILES: Final = 1000
"""Entries of a directory on one page."""

Query = Mapping[str, str]
"""What stands behind the `?` of an address."""


class Calls(Protocol):
    """Answers the calls of one who looks at a page, with what they may see."""

    async def call(self, method: Method[Q, A], request: Q, /) -> A:
        """Ask the node whose page it is; of several NameNodes, that one.

        Raises:
            PaxosBlockError: what the node answers.
        """

    async def ask(self, address: str, method: Method[Q, A], request: Q) -> A:
        """Ask another node, without long patience. Raises as `call`."""


class NameNodeRow(msgspec.Struct, frozen=True):
    """A NameNode; `status` is None if it does not answer, `behind` counts the entries that it has
    still to store as the leader knows it, None if there is no telling."""

    address: str
    status: NameNodeStatus | None
    behind: int | None = None


class Overview(ClusterStatus, frozen=True, kw_only=True):
    """The first page of a NameNode that leads, and the last line of `admin report --json`.

    `datanodes` are as in `ClusterStatus`, `leaving` those of them and others that are to leave.
    What is None was refused or is not known by the NameNode; `withheld` has the reasons.
    """

    health: Health
    cluster: str
    namenodes: tuple[NameNodeRow, ...]
    alarms: tuple[str, ...]
    alarm_count: int
    access_open: bool
    leaving: tuple[LeavingNode, ...] = ()
    unwhole: UnwholeBlocks | None = None
    writers: Writers | None = None
    work: Work | None = None
    settings: NodeSettings | None = None
    withheld: dict[str, str] = msgspec.field(default_factory=dict)

    def leaving_by_node(self) -> dict[str, LeavingNode]:
        """Return those that are to leave by the name of the DataNode."""
        return {each.status.node: each for each in self.leaving}


class Standby(msgspec.Struct, frozen=True):
    """The first page of a NameNode that does not lead: what it knows, and who leads."""

    health: Health
    status: NameNodeStatus
    datanodes: tuple[NodeStatus, ...]
    alarms: tuple[str, ...]
    settings: NodeSettings | None
    leader: str


class FilesPage(msgspec.Struct, frozen=True):
    """A directory with some of its entries, or a file with some of its blocks.

    The next page of entries begins behind `next_after`, the next one of blocks at `next_place`.
    """

    path: str
    status: FileStatus
    entries: tuple[FileStatus, ...] = ()
    after: str = ""
    next_after: str | None = None
    file: FileView | None = None
    unshown: str = ""
    """The reason why the blocks of the file are not shown."""

    def above(self) -> list[tuple[str, str]]:
        """Return name and path of each part of the path, from the first on."""
        names = split(self.path)
        return [(name, join(names[:end])) for end, name in enumerate(names, start=1)]


class ReplicaRow(msgspec.Struct, frozen=True):
    """A member of a block and its DataNode's answer; `problem` if there is none."""

    member: BlockMember
    replica: ReplicaSummary | None
    problem: str = ""


class BlockLifePage(msgspec.Struct, frozen=True):
    """A block: its record, its replicas side by side, its steps and the drawing of them."""

    explanation: BlockExplanation
    replicas: tuple[ReplicaRow, ...]
    life: Life


class WritersPage(msgspec.Struct, frozen=True):
    """The writers of files."""

    after: str
    writers: Writers


class UnwholePage(msgspec.Struct, frozen=True):
    """Blocks that are not as they should be, by file."""

    after: int
    unwhole: UnwholeBlocks


class DataNodePage(msgspec.Struct, frozen=True):
    """The first page of a DataNode."""

    health: Health
    status: DataNodeStatus
    settings: NodeSettings


class AskedNameNode(msgspec.Struct, frozen=True):
    """A NameNode as a gateway finds it: its `role`, "" if it tells this gateway nothing, and why it
    does not answer, "" if it does."""

    address: str
    role: str
    serves: bool
    problem: str


class GatewayPage(msgspec.Struct, frozen=True):
    """The page of a gateway."""

    health: Health
    status: GatewayStatus
    namenodes: tuple[AskedNameNode, ...]
    settings: NodeSettings


async def first_page(calls: Calls, _: Query) -> Overview | Standby:
    """Return the first page of a NameNode."""
    own = await calls.call(NAMENODE_STATUS, NameNodeStatusRequest())
    return await overview(calls, own) if own.serves else await standby(calls, own)


async def overview(calls: Calls, own: NameNodeStatus, *, recent: bool = True) -> Overview:
    """Return the page of the NameNode that leads, whose own status this is; `recent` as in
    `ClusterStatusRequest`."""
    seen = await calls.call(CLUSTER_STATUS, ClusterStatusRequest(recent))
    seen = msgspec.structs.replace(seen, datanodes=_in_order(seen.datanodes))
    others = tuple(each for each in own.members if each != own.leader)
    standings: dict[str, NameNodeStatus | None] = {own.leader or own.node: own}
    found = await asyncio.gather(*(_status_at(calls, each) for each in others))
    standings |= dict(zip(others, found, strict=True))
    withheld: dict[str, str] = {}
    leaving = await _part(calls, LEAVING, LeavingRequest(), withheld) or Leaving(())
    leaves = {each.status.node: each for each in leaving.nodes}
    told = (each.alarms for each in standings.values() if each is not None)
    return Overview(
        **{name: getattr(seen, name) for name in ClusterStatus.__struct_fields__},
        health=health_of(seen, standings, leaves),
        cluster=own.cluster,
        namenodes=tuple(
            NameNodeRow(address, _brief(status), own.lag.get(address))
            for address, status in standings.items()
        ),
        alarms=tuple(dict.fromkeys(alarm for alarms in told for alarm in alarms)),
        alarm_count=sum(each.alarm_count for each in standings.values() if each is not None),
        access_open=any(each.access_open for each in standings.values() if each is not None),
        leaving=leaving.nodes,
        unwhole=await _worst_first(calls, withheld),
        writers=await _part(calls, LIST_WRITERS, ListWriters(limit=ROWS), withheld),
        work=await _part(calls, SHOW_WORK, ShowWork(), withheld),
        settings=await _part(calls, SHOW_SETTINGS, ShowSettings(), withheld),
        withheld=withheld,
    )


def _in_order(datanodes: tuple[NodeStatus, ...]) -> tuple[NodeStatus, ...]:
    """Return them by name, those in trouble first."""
    return tuple(
        sorted(
            datanodes,
            key=lambda each: (
                each.state == "live" and not any(volume.failed for volume in each.storages),
                each.node,
            ),
        )
    )


async def _worst_first(calls: Calls, withheld: dict[str, str]) -> UnwholeBlocks | None:
    """Return some of the blocks that are not whole: before all others those with bytes at risk."""
    worst = await _part(calls, LIST_UNWHOLE, ListUnwhole(limit=ROWS, worst=True), withheld)
    found = await _part(calls, LIST_UNWHOLE, ListUnwhole(limit=ROWS), withheld)
    if worst is None or found is None:
        return None
    others = (each for each in found.findings if each not in worst.findings)
    return msgspec.structs.replace(found, findings=(*worst.findings, *others)[:ROWS])


def _brief(status: NameNodeStatus | None) -> NameNodeStatus | None:
    """Leave out the DataNodes, which the page has once."""
    return None if status is None else msgspec.structs.replace(status, datanodes=())


async def _status_at(calls: Calls, address: str) -> NameNodeStatus | None:
    try:
        return await calls.ask(address, NAMENODE_STATUS, NameNodeStatusRequest())
    except PaxosBlockError:
        return None


async def _part(
    calls: Calls, method: Method[Q, A], request: Q, withheld: dict[str, str]
) -> A | None:
    """Return one part of a page; without it, which an earlier version may not know, or the caller
    may not see, the others are shown."""
    try:
        return await calls.call(method, request)
    except PaxosBlockError as error:
        withheld[method.name] = str(error)
        return None


async def standby(calls: Calls, own: NameNodeStatus) -> Standby:
    """Return the page of a NameNode that does not lead."""
    leads = f"NameNode {own.leader} leads: its page tells how the cluster is."
    text = leads if own.leader else "No NameNode is known to lead: names cannot be changed now."
    level = HealthLevel.FOLLOWER if own.leader else HealthLevel.NO_CHANGES
    if own.trouble:
        level = HealthLevel.NO_CHANGES
        text = f"This NameNode cannot store changes: {own.trouble}. {text}"
    return Standby(
        Health(level, text),
        msgspec.structs.replace(own, datanodes=()),
        _in_order(own.datanodes),
        own.alarms,
        await _part(calls, SHOW_SETTINGS, ShowSettings(), {}),
        own.leader,
    )


async def files(calls: Calls, query: Query) -> FilesPage:
    """Return the page of the directory or file at `path`."""
    path = query.get("path", "/")
    status = await calls.call(STAT, PathRequest(path))
    if status.kind is Kind.DIRECTORY:
        after = query.get("after", "")
        listing = await calls.call(LIST, ListDirectory(path, after, FILES))
        return FilesPage(path, status, listing.entries, after, listing.next_after)
    request = GetFile(path, _number(query, "place"), file_id=status.file_id, only_shows=True)
    try:
        found = await calls.call(GET_FILE, request)
    except PaxosBlockError as error:
        return FilesPage(path, status, unshown=str(error))
    return FilesPage(path, found.status, file=_unsigned(found))


def _unsigned(found: FileView) -> FileView:
    blocks = tuple(map(_unsigned_block, found.blocks))
    return msgspec.structs.replace(found, blocks=blocks, last=None)


def _unsigned_block(view: BlockView) -> BlockView:
    """Leave out the capabilities: a page is read by people, and may be kept by their browsers."""
    members = tuple(msgspec.structs.replace(each, capability=b"") for each in view.members)
    return msgspec.structs.replace(view, members=members)


async def block(calls: Calls, query: Query) -> BlockLifePage:
    """Return the page of the block with the number `id`."""
    found = await calls.call(EXPLAIN, BlockRequest(BlockId(_number(query, "id"))))
    number = found.view.record.block
    replicas = await asyncio.gather(*(_replica(calls, number, each) for each in found.view.members))
    shown = msgspec.structs.replace(found, view=_unsigned_block(found.view))
    return BlockLifePage(shown, tuple(replicas), life_of(found.history))


async def _replica(calls: Calls, number: BlockId, member: BlockMember) -> ReplicaRow:
    shown = msgspec.structs.replace(member, capability=b"")
    if not member.address:
        return ReplicaRow(shown, None, "its DataNode is not known")
    wanted = FindReplica(number, member.storage, member.capability)
    try:
        found = (await calls.ask(member.address, FIND_REPLICA, wanted)).replicas
    except PaxosBlockError as error:
        return ReplicaRow(shown, None, str(error))
    return ReplicaRow(shown, found[0]) if found else ReplicaRow(shown, None, "it has none")


async def writers(calls: Calls, query: Query) -> WritersPage:
    """Return a page of the writers of files."""
    after = query.get("after", "")
    return WritersPage(after, await calls.call(LIST_WRITERS, ListWriters(WriterId(after))))


async def unwhole(calls: Calls, query: Query) -> UnwholePage:
    """Return a page of the blocks that are not as they should be."""
    after = _number(query, "after")
    return UnwholePage(after, await calls.call(LIST_UNWHOLE, ListUnwhole(BlockId(after))))


async def datanode(calls: Calls, _: Query) -> DataNodePage:
    """Return the first page of a DataNode."""
    status = await calls.call(DATANODE_STATUS, DataNodeStatusRequest())
    bad = [volume for volume in status.volumes if volume.state != "ok"]
    if status.failure:
        health = Health(HealthLevel.DEAD_NODE, f"This DataNode stores nothing: {status.failure}.")
    elif bad:
        text = f"{len(bad)} of {len(status.volumes)} volumes are not used: {bad[0].state}."
        health = Health(HealthLevel.DEAD_NODE, text)
    else:
        text = "All volumes of this DataNode are in use. How the cluster is, NameNodes tell."
        health = Health(HealthLevel.HEALTHY, text)
    return DataNodePage(health, status, await calls.call(SHOW_SETTINGS, ShowSettings()))


async def gateway(calls: Calls, _: Query) -> GatewayPage:
    """Return the page of a gateway."""
    status = await calls.call(GATEWAY_STATUS, GatewayStatusRequest())
    found = await asyncio.gather(*(_asked(calls, each) for each in status.namenodes))
    settings = await calls.call(SHOW_SETTINGS, ShowSettings())
    return GatewayPage(_health_of_gateway(status, found), status, tuple(found), settings)


async def _asked(calls: Calls, address: str) -> AskedNameNode:
    try:
        status = await calls.ask(address, NAMENODE_STATUS, NameNodeStatusRequest())
    except (AccessDeniedError, PermissionDeniedError):  # it answers, but not to a gateway
        return AskedNameNode(address, "", serves=False, problem="")
    except PaxosBlockError as error:
        return AskedNameNode(address, "", serves=False, problem=str(error))
    return AskedNameNode(address, status.role, status.serves, "")


def _health_of_gateway(status: GatewayStatus, namenodes: Sequence[AskedNameNode]) -> Health:
    silent = [each for each in namenodes if each.problem]
    unknown = any(not each.role and not each.problem for each in namenodes)
    if len(silent) == len(namenodes):
        text = "No NameNode answers this gateway: through it nothing is read or written."
        return Health(HealthLevel.NO_CHANGES, text)
    if not unknown and not any(each.serves for each in namenodes):
        text = "No NameNode that answers leads: names cannot be changed now."
        return Health(HealthLevel.NO_CHANGES, text)
    if silent:
        do = "does" if len(silent) == 1 else "do"
        text = f"{len(silent)} of {len(namenodes)} NameNodes {do} not answer; the others do."
        return Health(HealthLevel.DEAD_NODE, text)
    if status.under_way_bytes >= status.room_bytes:
        text = "All room for bytes is taken: requests that bring or fetch some wait for others."
        return Health(HealthLevel.WAITING, text)
    text = "This gateway serves. How the cluster is, the NameNode that leads tells."
    return Health(HealthLevel.HEALTHY, text)


def _number(query: Query, name: str) -> int:
    """Return a number of an address, 0 if it is not there."""
    text = query.get(name, "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS):
        raise InvalidRequestError(f"{name}={text[:40]!r} is no number")
    return min(int(text), LAST_BLOCK)
