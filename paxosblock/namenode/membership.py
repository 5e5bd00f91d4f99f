"""The engine that keeps the catalog, for one NameNode or for one of several."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from paxosblock.api.namenode_list import ChangeNameNodes, NameNodesChange
from paxosblock.config import NameNodeConfig
from paxosblock.errors import ConfigError, InvalidRequestError, StorageError
from paxosblock.host.disk import OF_A_VOLUME, OsDisk
from paxosblock.host.metrics import NodeMetrics
from paxosblock.namenode.backups import COMMAND as RESTORE
from paxosblock.namenode.backups import RESTORING
from paxosblock.namenode.kv.interface import KeyValueStore
from paxosblock.namenode.kv.rocks_table import ROCKS
from paxosblock.namenode.kv.table import Checkpoint
from paxosblock.namenode.raft import vote_file
from paxosblock.namenode.raft.birth import Birth
from paxosblock.namenode.raft.folder_admission import Lineage
from paxosblock.namenode.raft.http_transport import HttpTransport, check_secret, key_of
from paxosblock.namenode.raft.member_folder import (
    MEMBER,
    begin_newborn,
    check_member,
    check_owner,
    name_in,
    read_lineage,
    write_name,
)
from paxosblock.namenode.raft.new_member import clear, make_of_catalog
from paxosblock.namenode.raft.options import check_raftos, options_of
from paxosblock.namenode.raft.roster import address_of
from paxosblock.namenode.raft.seed import Seeds, fetch_seed
from paxosblock.namenode.raft.vote_file import ElectionVote

if TYPE_CHECKING:
    from paxosblock.net.port.tls import Tls

EARLIER = "kv"
"""The part of a NameNode's folder in which an earlier version kept a cluster's only catalog."""

RESIGN_S = 1.0
"""Seconds that a successor may take to lead before another one is tried."""


@dataclass(frozen=True, slots=True)
class Peers:
    """All NameNodes of a cluster as host:port, including this one (`address`), and their secret.

    `new_cluster` marks the cluster's first start, so that an empty folder is not taken for a lost
    one. `joins` marks the first start of this NameNode in a cluster that had a single one.
    """

    address: str
    members: tuple[str, ...]
    secret: bytes = field(repr=False)
    new_cluster: bool = False
    joins: bool = False


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The place of a member in its cluster's log; only the leader has `lag`, entries by address."""

    role: str
    term: int = 0
    commit_index: int = 0
    applied_index: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Engine:
    """A store that is not started yet, with what a NameNode needs of it beyond its interface.

    `members` tells all NameNodes, including this one; none if it is alone.
    """

    store: KeyValueStore
    members: Callable[[], tuple[str, ...]]
    listed: Callable[[], tuple[tuple[str, ...], int]]
    """Tells them as far as that is committed, and the entry of the log that has the list."""
    position: Callable[[], LogPosition]
    add_to: Callable[[web.Application], None]
    """Adds the routes by which members speak to each other."""
    begin: Callable[[], Awaitable[None]]
    """Has the member born if the cluster is new: then it waits for all others. Comes after the
    routes, and before the store starts."""
    resign: Callable[[], Awaitable[None]]
    """Lets another member lead, if one can, so that closing a node costs no election."""
    observe: Callable[[NodeMetrics], None]
    """Adds the metrics of the engine."""
    checkpoint: Callable[[], Awaitable[Checkpoint]]
    """Copies the state that this member has applied."""
    change: Callable[[ChangeNameNodes], Awaitable[NameNodesChange]]
    """Adds another member, or removes one, a step each time."""
    removed: Callable[[], Awaitable[None]]
    """Returns once this member was removed."""


def read_peers(
    members: tuple[str, ...],
    address: str,
    secret_file: Path | None,
    *,
    new_cluster: bool = False,
    joins: bool = False,
) -> Peers:
    """Return the members of a cluster of several NameNodes.

    Raises:
        ConfigError: `address` is not one of them, one is named twice, the number of a new cluster's
            is even, or the secret is missing, unreadable or readable by others.
    """
    if (address not in members and not joins) or len(set(members)) < len(members):
        named = f"must name {address} and each NameNode once"
        raise ConfigError(f"--peers {','.join(members)}: {named}")
    if members == (address,):
        raise ConfigError(f"--peers {address}: a cluster's only NameNode starts without it")
    if len(members) % 2 == 0 and new_cluster:
        raise ConfigError(f"--peers: {len(members)} NameNodes; an odd number can lose as many")
    if new_cluster and joins:
        raise ConfigError("--new-cluster and --join: a cluster is new, or this one comes to it")
    if secret_file is None:
        raise ConfigError("--peers needs --secret-file: what the NameNodes know each other by")
    return Peers(address, members, _read_secret(secret_file), new_cluster, joins)


def engine_of(
    config: NameNodeConfig,
    folder: Path,
    address: str,
    peers: Peers | None = None,
    tls: Tls | None = None,
) -> Engine:
    """Return the engine of the NameNode at `address`: a cluster's only one, or one of `peers`, with
    which it speaks `tls`.

    Raises:
        ConfigError: raftos is missing; the secret is too short; the folder belongs to a member of
            another cluster, or of another list of members; it holds no member and the cluster of
            several is not new, or it holds one and the cluster is new.
    """
    _refuse_strange(folder)
    check_raftos()
    return (
        _alone(config, folder / MEMBER, address)
        if peers is None
        else _one_of(config, folder / MEMBER, peers, tls)
    )


def _alone(config: NameNodeConfig, folder: Path, address: str) -> Engine:
    from paxosblock.namenode.raft.report import observe  # noqa: PLC0415 - raftos may be missing
    from paxosblock.namenode.raft.store import ReplicatedStore  # noqa: PLC0415 - raftos may be missing

    check_member(folder, address, (), new_cluster=False)
    store = ReplicatedStore(folder, address, (address,), options=options_of(config))

    def position() -> LogPosition:
        revision = store.view().revision
        return LogPosition("alone", commit_index=revision, applied_index=revision)

    async def refuse(asked: ChangeNameNodes) -> NameNodesChange:
        raise InvalidRequestError(
            "a cluster's only NameNode becomes the first of several with `paxosblock admin grow`,"
            " while it is down"
        )

    return Engine(
        store,
        tuple,
        lambda: ((), 0),
        position,
        lambda app: None,
        _stay,
        _stay,
        partial(observe, store=store, transport=None),
        store.checkpoint,
        refuse,
        _for_ever,
    )


def _one_of(config: NameNodeConfig, folder: Path, peers: Peers, tls: Tls | None) -> Engine:
    from paxosblock.namenode.raft.list_steps import ListChanges  # noqa: PLC0415 - raftos may be missing
    from paxosblock.namenode.raft.report import observe  # noqa: PLC0415 - raftos may be missing
    from paxosblock.namenode.raft.store import ReplicatedStore  # noqa: PLC0415 - raftos may be missing

    check_secret(peers.secret)
    newborn = check_member(folder, peers.address, peers.members, new_cluster=peers.new_cluster)
    own = newborn or read_lineage(OsDisk(), folder)

    async def checkpoint() -> Checkpoint:
        return await store.checkpoint()

    birth = Birth(folder, peers.address, peers.members, peers.secret, own, tls=tls)

    def members() -> tuple[str, ...]:
        return store.members

    seeds = Seeds(folder, peers.address, members, peers.secret, checkpoint=checkpoint, tls=tls)
    name = name_in(OsDisk(), folder, peers.address)
    transport = HttpTransport(
        name, peers.members, peers.secret, lambda peer: seeds.note(address_of(peer)), tls
    )
    store = ReplicatedStore(
        folder, peers.address, peers.members, transport, options=options_of(config)
    )

    def add_to(app: web.Application) -> None:
        transport.add_to(app)
        seeds.add_to(app)
        birth.add_to(app)

    async def begin() -> None:
        lineage = await birth.finish()
        await asyncio.to_thread(seeds.begin, lineage)
        transport.know_by(key_of(peers.secret, lineage.name))

    def position() -> LogPosition:
        status = store.status()
        return LogPosition(
            status.role, status.term, status.commit_index, status.applied_index, status.lag
        )

    async def resign() -> None:
        await store.resign(RESIGN_S)

    report = partial(observe, store=store, transport=transport)
    change = ListChanges(store, seeds, transport).change
    return Engine(
        store,
        members,
        store.committed_list,
        position,
        add_to,
        begin,
        resign,
        report,
        checkpoint,
        change,
        store.wait_removed,
    )


async def join(folder: Path, peers: Peers, *, within_s: float, tls: Tls | None = None) -> None:
    """Fill an empty folder with the catalog of the other NameNodes, within seconds since one of
    them said that it gives it.

    Raises:
        ConfigError: the folder is not empty, or the others know this NameNode as a member.
        UnavailableError: none of them has a catalog to begin with.
        ProtocolError, CorruptionError: the catalog was changed on its way.
        NoSpaceError, StorageError: the disk refused; try again.
    """
    _refuse_strange(folder)
    disk, part = OsDisk(), folder / MEMBER
    if (part / vote_file.NAME).exists():
        raise ConfigError(f"--join: {folder} holds a member already; start without it")
    check_secret(peers.secret)
    lock = await asyncio.to_thread(clear, disk, part)
    try:
        await asyncio.to_thread(check_owner, disk, part, peers.address)
        newborn = await asyncio.to_thread(begin_newborn, disk, part)
        if newborn.chosen:
            raise ConfigError(f"--join: {folder} began with --new-cluster: go on with that")
        receive = partial(ROCKS.receive, disk, part)
        seed = await fetch_seed(
            peers.address,
            peers.members,
            peers.secret,
            newborn.token,
            receive=receive,
            within_s=within_s,
            tls=tls,
        )
        begin = partial(make_of_catalog, disk, part, seed.receiver, first=False)
        if (admitted := seed.admitted) is None:
            lineage = Lineage(seed.lineage, born=False)
            await asyncio.to_thread(begin, members=peers.members, lineage=lineage)
            return
        await asyncio.to_thread(write_name, disk, part, admitted.name)
        await asyncio.to_thread(
            begin,
            members=admitted.members,
            lineage=Lineage(seed.lineage, born=admitted.born),
            vote=ElectionVote(admitted.term, admitted.leader),
        )
    finally:
        disk.close(lock)


async def _for_ever() -> None:
    """Wait: a cluster's only NameNode is never removed."""
    await asyncio.Event().wait()


async def _stay() -> None:
    """Do nothing: no other member can lead."""


def _read_secret(file: Path) -> bytes:
    try:
        secret = file.read_bytes().strip()
        readable_by = file.stat().st_mode & 0o007  # a group may, as with access_file
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    if readable_by:
        raise ConfigError(f"{file}: others may read the secret: chmod 600 it")
    return secret


def _refuse_strange(folder: Path) -> None:
    _refuse_other(folder, RESTORING, f"no NameNode yet: run `{RESTORE}` again, which was cut short")
    _refuse_other(
        folder,
        EARLIER,
        f"an earlier version, which kept its catalog in {EARLIER}: take a backup with that version,"
        " and restore it with this one",
    )
    for name in OF_A_VOLUME:
        _refuse_other(folder, name, "a DataNode's volume: a NameNode needs one of its own")


def _refuse_other(folder: Path, other: str, what: str) -> None:
    try:
        found = (folder / other).exists()
    except OSError as error:
        raise StorageError.of(folder, error) from error
    if found:
        raise ConfigError(f"{folder} is the folder of {what}")
